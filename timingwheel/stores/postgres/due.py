"""What has come due, as SQL: by the database's clock, shard by shard, by index."""

from __future__ import annotations

from typing import Final

from timingwheel.engine.records import Base
from timingwheel.stores.postgres.keys import same_key

# An array of ten items, as the planner believes. Without that it expects as many rows as the
# limit allows, and reads all that wait rather than probe for those few.
KEYS: Final = """
keys AS MATERIALIZED (
    SELECT u.* FROM (
        SELECT array_agg(shard) AS shards, array_agg(job_id) AS jobs,
        array_agg(nominal_ns) AS nominals, array_agg(n) AS ns,
        array_agg(version) AS versions FROM {found}
    ) AS a, unnest(a.shards, a.jobs, a.nominals, a.ns, a.versions)
    AS u(shard, job_id, nominal_ns, n, version)
)"""
"""Which runs the part `found` has found, to be joined with their table by its key."""
DIRECT: Final = """r.plain AND r.state = 'planned' AND r.cap IS NULL AND NOT r.once
AND r.task = ANY(%s) AND NOT EXISTS (
    SELECT 1 FROM timingwheel_queue q WHERE q.name = r.queue
)"""
"""Whether a worker that can run these tasks takes a due run `r` without its being made
ready first: nothing bounds it, and it may wait inside an executor. Values: the tasks."""

# A plain run keeps the base that says what its trigger was; others wake by the wall clock
# when they are too late to start.
OWN_AND_CLOCK: Final = f"""
own AS MATERIALIZED (
    SELECT s.shard FROM unnest(%s::bigint[], %s::bigint[]) AS g(shard, epoch)
    JOIN timingwheel_shard s ON s.shard = g.shard AND s.epoch = g.epoch
    AND s.owner_inc = %s ORDER BY s.shard FOR SHARE OF s
),
clock AS MATERIALIZED (
    SELECT base, now_ns FROM (VALUES
        ({int(Base.ELAPSED)}, timingwheel_elapsed()),
        ({int(Base.WALL)}, timingwheel_now())
    ) AS c(base, now_ns) WHERE timingwheel_elapsed() <= %s
)
"""
"""The shards that are still this node's, and the present.

Values: shards, epochs, its number, and an elapsed time after which nothing is due since the
clock must have been set (steps.py)."""

MADE_READY: Final = f"""
{KEYS.format(found="due")},
locked AS MATERIALIZED (
    SELECT r.shard, r.job_id, r.nominal_ns, r.n
    FROM keys d JOIN timingwheel_run r ON {same_key("r", "d")}
    AND r.version = d.version
    ORDER BY d.shard, d.job_id, d.nominal_ns, d.n FOR UPDATE OF r
)
UPDATE timingwheel_run r SET state = 'ready', version = r.version + 1,
    wake_ns = CASE WHEN r.attempts = 0 THEN r.expires_ns END,
    wake_base = CASE WHEN r.plain THEN r.wake_base ELSE {int(Base.WALL)} END
FROM locked u WHERE {same_key("r", "u")}
RETURNING r.job_id
"""
"""Makes ready the runs that a part named `due` has found."""

READY: Final = f"""
WITH {OWN_AND_CLOCK},
due AS MATERIALIZED (
    SELECT d.* FROM own, clock, LATERAL (
        SELECT r.shard, r.job_id, r.nominal_ns, r.n, r.version
        FROM timingwheel_run r
        WHERE r.shard = own.shard AND r.wake_base = clock.base
        AND r.wake_ns <= clock.now_ns
        AND r.wake_ns IS NOT NULL AND r.state IN ('planned', 'retrying')
        ORDER BY r.wake_ns LIMIT %s
    ) AS d LIMIT %s
),
{MADE_READY}"""
"""Makes ready the runs whose time has come, of shards that are still this node's.

Values: those of OWN_AND_CLOCK, how many a shard, how many."""

DUE_JOBS: Final = f"""
SELECT d.id FROM unnest(%s::bigint[]) AS own(shard), (VALUES
    ({int(Base.ELAPSED)}, timingwheel_elapsed()),
    ({int(Base.WALL)}, timingwheel_now())
) AS clock(base, now_ns), LATERAL (
    SELECT j.id, j.wake_ns FROM timingwheel_job j
    WHERE j.shard = own.shard AND j.wake_base = clock.base
    AND j.wake_ns <= clock.now_ns AND j.wake_ns IS NOT NULL
    ORDER BY j.wake_ns LIMIT %s
) AS d ORDER BY d.wake_ns, d.id LIMIT %s
"""
"""Jobs whose next occurrence, or the end of whose pause, has come: shards, limits."""

LATE_RUNS: Final = """
SELECT r.job_id, r.nominal_ns, r.n FROM timingwheel_run r
WHERE r.shard = ANY(%s) AND r.expires_ns <= timingwheel_now()
AND r.expires_ns IS NOT NULL AND r.state = 'ready' AND r.attempts = 0 LIMIT %s
"""
"""Ready runs that are too late to start: shards, a limit."""

# By absence, not by age, and not by a join on what may be pruned.
ORPHANS: Final = """
SELECT r.job_id, r.nominal_ns, r.n, r.token FROM timingwheel_run r
WHERE r.state = 'running' AND NOT EXISTS (
    SELECT 1 FROM timingwheel_member m
    WHERE m.inc = r.inc AND m.until_ns > timingwheel_elapsed()
) AND r.shard = ANY(%s) ORDER BY r.token LIMIT %s
"""
"""Attempts whose worker is not among the living: shards, a limit."""

ASKED: Final = """
SELECT r.job_id, r.nominal_ns, r.n, r.token, r.asked FROM timingwheel_run r
WHERE r.state = 'running' AND r.asked > 0 AND r.inc = ANY(%s)
"""
"""Attempts that are to be ended: numbers of workers."""
