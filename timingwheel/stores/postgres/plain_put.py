"""One plain job is put in one statement, which asks nothing and tells the time by itself.

A plain job depends on nothing that is there, so there is nothing to read and no version to
compare; its delay counts from the database's clock in the very statement that inserts it.
Its body is written before that time is known: of a plain run the columns say when it was
made and when it is due.
"""

from __future__ import annotations

from typing import Final

from psycopg import errors

from timingwheel.engine.records import Base
from timingwheel.jobs.model import Delivery, Draft, JobId, RunState
from timingwheel.jobs.triggers import At, Delay
from timingwheel.stores.history_entries import searched
from timingwheel.stores.postgres.connections import Database
from timingwheel.stores.postgres.rows import shard_of
from timingwheel.stores.ready import PRIORITY_NS
from timingwheel.stores.records import PlainJob, encode

# VALUES and not unnest: half the time for one row.
_PUT: Final = """
INSERT INTO timingwheel_run (
    shard, job_id, nominal_ns, n, version, plain, state, held, task, queue, rank, seq,
    due_ns, wake_ns, wake_base, cap, alone, once, attempts, token, worker, inc,
    created_ns, body
) SELECT %s, %s, {nominal}, 0, 1, true, '{state}', false, %s, %s,
    {nominal} - %s, %s, {nominal}, {wake}, {base}, %s, false, %s, 0, 0, '', 0,
    t.wall_ns, %s
FROM (
    SELECT %s::bigint AS time_ns, timingwheel_now() AS wall_ns, steps_ns
    FROM timingwheel_meta OFFSET 0
) AS t
RETURNING nominal_ns - created_ns
"""
_AFTER_DELAY: Final = _PUT.format(
    nominal="t.wall_ns + t.time_ns",
    wake="t.wall_ns - t.steps_ns + t.time_ns",
    base=int(Base.ELAPSED),
    state=RunState.PLANNED.value,
)
_AT: Final = _PUT.format(
    nominal="t.time_ns",
    wake="t.time_ns",
    base=int(Base.WALL),
    state=RunState.PLANNED.value,
)


def put_plain(
    connections: Database, draft: Draft, job_id: JobId, *, seq: int, shards: int
) -> int | None:
    """Put a job that `is_plain`.

    Args:
        connections: to the database.
        draft: what is asked for.
        job_id: a new one.
        seq: the number of its run.
        shards: of the store.

    Returns:
        In how many ns it is due, by the database's clock; None: beyond the end of
        time, and nothing was written.

    Cost: one statement.
    """
    when = draft.trigger.when
    if isinstance(when, Delay):
        sql, time_ns = _AFTER_DELAY, when.delay_ns
    else:
        assert isinstance(when, At)
        sql, time_ns = _AT, when.at_ns
    plain = PlainJob(
        draft.task,
        draft.payload.body,
        0,
        0,
        v=draft.payload.version,
        q=draft.queue,
        r=draft.priority,
        o=draft.policy,
        k=draft.cap,
    )
    values = (
        shard_of(job_id, shards),
        job_id,
        searched(draft.task),
        searched(draft.queue),
        draft.priority * PRIORITY_NS,
        seq,
        None if draft.cap is None else searched(draft.cap.key),
        draft.policy.delivery is Delivery.AT_MOST_ONCE,
        encode(plain),
        time_ns,
    )
    try:
        [(in_ns,)] = connections.rows(sql, values)
    except errors.NumericValueOutOfRange:
        return None
    return int(in_ns)
