"""Ready runs in the order of their ranks, read with all that bounds who may start."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Any, Final, NamedTuple

from timingwheel.jobs.model import Cap, Delivery, Job, Payload, Policy, Queue
from timingwheel.stores.entries import ALONE_CAP
from timingwheel.stores.history_entries import searched
from timingwheel.stores.postgres.connections import Connections, Texts
from timingwheel.stores.postgres.loading import PRESENT
from timingwheel.stores.postgres.queues import decode_queue
from timingwheel.stores.postgres.rows import (
    LIVE_COLUMNS,
    LiveRow,
    decode_job,
    is_suspect,
    live_row,
)

ALONE: Final = searched(ALONE_CAP)
"""The cap of runs that may be lost only once more."""

# OFFSET 0: so that the key of the job is probed; see keys.py.
_CANDIDATES: Final = f"""
SELECT {LIVE_COLUMNS}, j.body FROM timingwheel_run r
LEFT JOIN LATERAL (
    SELECT j.body FROM timingwheel_job j
    WHERE j.shard = r.shard AND j.id = r.job_id OFFSET 0
) AS j ON true
WHERE r.state = 'ready' AND NOT r.held AND r.task = ANY(%s)
AND (%s::text[] IS NULL OR r.queue = ANY(%s)) AND NOT r.queue = ANY(%s)
AND (r.cap IS NULL OR NOT r.cap = ANY(%s)) AND NOT (r.alone AND %s)
AND (r.expires_ns IS NULL OR r.attempts > 0 OR r.expires_ns > timingwheel_now())
ORDER BY r.rank, r.seq LIMIT %s
"""
_QUEUES: Final = "SELECT name, version, next_start_ns, body FROM timingwheel_queue"
_CAPS: Final = "SELECT name, version FROM timingwheel_cap"
_BY_QUEUE: Final = """
SELECT queue, count(*) FROM timingwheel_run WHERE state = 'running' GROUP BY queue
"""
_BY_CAP: Final = """
SELECT c, count(*) FROM timingwheel_run, unnest(caps) AS c WHERE state = 'running'
GROUP BY c
"""


class Candidate(NamedTuple):
    """A ready run that may be claimed.

    Attributes:
        row: the run.
        payload, policy: the run's.
        cap: of its job.
    """

    row: LiveRow
    payload: Payload
    policy: Policy
    cap: Cap | None

    @property
    def caps(self) -> list[str]:
        """The names of the caps that it counts for."""
        names = [] if self.cap is None else [searched(self.cap.key)]
        if is_suspect(self.row.live.run, self.policy):
            names.append(ALONE)
        return names

    @property
    def may_wait(self) -> bool:
        """Whether it may be claimed before a slot is free.

        Not if it may run only once, since what is claimed ahead is lost with the process;
        not a second attempt, so that what kills the process is soon alone; and not under
        a cap.
        """
        is_first = self.row.live.run.attempts == 0
        at_least_once = self.policy.delivery is Delivery.AT_LEAST_ONCE
        return is_first and at_least_once and not self.caps


class Bound(NamedTuple):
    """A queue that was set.

    Attributes:
        queue: its bounds.
        version: of its row.
        next_start_ns: before which it starts nothing, elapsed, if it has a rate.
    """

    queue: Queue
    version: int
    next_start_ns: int

    @property
    def is_bounded(self) -> bool:
        """Whether it counts what runs, or how fast it starts."""
        return self.queue.limit is not None or self.queue.rate is not None


class Found(NamedTuple):
    """Candidates, and what bounds them, of one moment.

    Attributes:
        wall_ns, elapsed_ns: the present.
        bounds: the queues that were set.
        caps: the version of each cap that was ever used.
        by_queue, by_cap: how many runs run.
        candidates: in order of rank.
    """

    wall_ns: int
    elapsed_ns: int
    bounds: dict[str, Bound]
    caps: dict[str, int]
    by_queue: Counter[str]
    by_cap: Counter[str]
    candidates: list[Candidate]


def read(
    connections: Connections,
    *,
    tasks: Texts,
    queues: Texts | None,
    closed: Collection[str],
    full: Collection[str],
    limit: int,
) -> Found:
    """Read the first candidates.

    Args:
        connections: to the database.
        tasks: that the worker can run.
        queues: of which queues; None: of all.
        closed: queues that let nothing go.
        full: caps that let nothing go.
        limit: how many at most.
    """
    caps_full = Texts(sorted(set(full) - {ALONE}))
    closed_now = Texts(sorted(closed))
    values = [tasks, queues, queues, closed_now, caps_full, ALONE in full, limit]
    [present], known, caps, by_queue, by_cap, rows = connections.all(
        [
            (PRESENT, []),
            (_QUEUES, []),
            (_CAPS, []),
            (_BY_QUEUE, []),
            (_BY_CAP, []),
            (_CANDIDATES, values),
        ]
    )
    bounds = {
        name: Bound(decode_queue(body), version, next_start_ns)
        for name, version, next_start_ns, body in known
    }
    return Found(
        present[0],
        present[0] - present[1],
        bounds,
        dict(caps),
        Counter(dict(by_queue)),
        Counter(dict(by_cap)),
        [_candidate(row) for row in rows],
    )


def _candidate(row: tuple[Any, ...]) -> Candidate:
    *columns, body = row
    run = live_row(tuple(columns))
    if run.plain is not None:
        plain = run.plain
        return Candidate(run, Payload(plain.p, plain.v), plain.o, plain.k)
    job: Job = decode_job(body)
    live = run.live
    return Candidate(
        run, live.payload or job.payload, live.policy or job.policy, job.cap
    )
