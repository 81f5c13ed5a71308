"""What the store forgets, and when: by the rules of stores/history_retention.py.

A day of past runs goes as a whole, with its partition, when all of it is old enough. What
must stay beyond that is moved first: dead letters, if those are kept longer, and the last
runs of recurring jobs, found from the jobs and not by reading through the day. What has
no partition of its own day goes row by row.

In steps of bounded size, each a statement; several nodes may be about it at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from psycopg import errors

from timingwheel.stores.history_retention import Retention
from timingwheel.stores.postgres.connections import Connections, Ints
from timingwheel.stores.postgres.keys import JOB_KEY, same_key
from timingwheel.stores.postgres.past import KEPT, Partitions, partition_of
from timingwheel.stores.postgres.rows import DAY_NS, PAST_COLUMNS
from timingwheel.stores.postgres.writing import CONFLICTS

STEP_ROWS: Final = 2_000
STEP_JOBS: Final = 50
"""Jobs whose last runs one step looks after: a hundred each, by the default."""
DROP_TRIES: Final = 3
"""How often one walk tries to drop a day; then the next may."""
_NONE_NS: Final = -(2**63)

_MOVE: Final = f"""
moved AS (
    DELETE FROM timingwheel_past r USING kept k WHERE r.shard = k.shard
    AND r.job_id = k.job_id AND r.nominal_ns = k.nominal_ns AND r.n = k.n
    AND r.day = k.day RETURNING r.*
),
added AS (
    INSERT INTO timingwheel_past ({", ".join(PAST_COLUMNS)})
    SELECT {", ".join("%(kept)s" if c == "day" else c for c in PAST_COLUMNS)} FROM moved
    RETURNING shard
)
"""
_KEEP_DEAD: Final = f"""
WITH kept AS MATERIALIZED (
    SELECT r.shard, r.job_id, r.nominal_ns, r.n, r.day FROM timingwheel_past r
    WHERE r.day = ANY(%(days)s) AND r.state IN ('failed', 'lost')
    AND r.ended_ns >= %(dead_before)s
    ORDER BY r.shard, r.job_id, r.nominal_ns, r.n LIMIT %(step)s FOR UPDATE OF r
), {_MOVE}
SELECT count(*) FROM added
"""
_KEEP_LAST: Final = f"""
WITH part AS MATERIALIZED (
    SELECT j.shard, j.id,
        j.recurring AND (j.live OR j.ended_ns >= %(runs_before)s) AS shelters
    FROM timingwheel_job j WHERE (j.shard, j.id) > (%(shard)s, %(id)s)
    ORDER BY j.shard, j.id LIMIT %(step)s
),
floors AS MATERIALIZED (
    SELECT s.shard, s.id, coalesce((
        SELECT r.nominal_ns FROM timingwheel_past r
        WHERE r.shard = s.shard AND r.job_id = s.id
        ORDER BY r.nominal_ns DESC, r.n DESC LIMIT 1 OFFSET %(runs_min)s - 1
    ), {_NONE_NS}) AS nominal_ns FROM part s WHERE s.shelters AND EXISTS (
        SELECT 1 FROM timingwheel_past r WHERE r.shard = s.shard AND r.job_id = s.id
        AND r.day = ANY(%(days)s)
    )
),
kept AS MATERIALIZED (
    SELECT r.shard, r.job_id, r.nominal_ns, r.n, r.day FROM floors f
    JOIN timingwheel_past r ON r.shard = f.shard AND r.job_id = f.id
    AND r.nominal_ns >= f.nominal_ns AND r.day = ANY(%(days)s)
    ORDER BY r.shard, r.job_id, r.nominal_ns, r.n FOR UPDATE OF r
), {_MOVE}
SELECT (SELECT count(*) FROM part), (SELECT count(*) FROM added), shard, id FROM part
ORDER BY shard DESC, id DESC LIMIT 1
"""
# OFFSET 0, here and below: so that keys are probed; see keys.py. IS NOT TRUE for the same
# reason: of NOT live there is an index.
_RUNS: Final = """
WITH oldest AS MATERIALIZED (
    SELECT r.shard, r.job_id, r.nominal_ns, r.n, r.plain, r.ended_ns, r.state
    FROM {table} r
    WHERE r.shard >= 0 AND (r.ended_ns, r.job_id) > (%(after_ns)s, %(after_id)s)
    AND r.ended_ns < greatest(%(runs_before)s, %(dead_before)s) {which}
    ORDER BY r.ended_ns, r.job_id LIMIT %(step)s
),
sheltered AS MATERIALIZED (
    SELECT DISTINCT o.shard, o.job_id FROM oldest o WHERE %(runs_min)s > 0 AND NOT o.plain
    AND NOT EXISTS (
        SELECT 1 FROM timingwheel_job j WHERE j.shard = o.shard AND j.id = o.job_id
        AND (NOT j.recurring OR (NOT j.live AND j.ended_ns < %(runs_before)s)) OFFSET 0
    )
),
floors AS MATERIALIZED (
    SELECT s.shard, s.job_id, coalesce((
        SELECT r.nominal_ns FROM timingwheel_past r
        WHERE r.shard = s.shard AND r.job_id = s.job_id
        ORDER BY r.nominal_ns DESC, r.n DESC LIMIT 1 OFFSET greatest(%(runs_min)s - 1, 0)
    ), -9223372036854775808) AS nominal_ns FROM sheltered s
),
gone AS MATERIALIZED (
    SELECT o.* FROM oldest o
    LEFT JOIN floors f ON f.shard = o.shard AND f.job_id = o.job_id
    WHERE o.ended_ns < CASE WHEN o.state IN ('failed', 'lost')
        THEN %(dead_before)s ELSE %(runs_before)s END
    AND (f.job_id IS NULL OR o.nominal_ns < f.nominal_ns)
),
runs AS (
    DELETE FROM {table} r USING gone g WHERE {same_run}
)
SELECT (SELECT count(*) FROM oldest), (SELECT count(*) FROM gone), o.ended_ns, o.job_id
FROM oldest o ORDER BY o.ended_ns DESC, o.job_id DESC LIMIT 1
""".replace("{same_run}", same_key("r", "g"))
_DEAD: Final = "AND r.state IN ('failed', 'lost')"
_JOBS: Final = f"""
WITH oldest AS MATERIALIZED (
    SELECT j.shard, j.id, j.ended_ns FROM timingwheel_job j
    WHERE NOT j.live AND j.ended_ns < %(runs_before)s
    AND (j.ended_ns, j.id) > (%(after_ns)s, %(after_id)s)
    ORDER BY j.ended_ns, j.id LIMIT %(step)s
),
keys AS MATERIALIZED (
    SELECT u.* FROM (
        SELECT array_agg(shard) AS shards, array_agg(id) AS ids FROM oldest
    ) AS a, unnest(a.shards, a.ids) AS u(shard, id)
),
gone AS (
    DELETE FROM timingwheel_job j USING keys o WHERE {same_key("j", "o", JOB_KEY)}
    AND j.live IS NOT TRUE AND NOT EXISTS (
        SELECT 1 FROM timingwheel_past r WHERE r.shard = o.shard AND r.job_id = o.id
        OFFSET 0
    ) RETURNING j.id
)
SELECT (SELECT count(*) FROM oldest), (SELECT count(*) FROM gone), o.ended_ns, o.id
FROM oldest o ORDER BY o.ended_ns DESC, o.id DESC LIMIT 1
"""
_SKIPS: Final = """
WITH oldest AS MATERIALIZED (
    SELECT shard, job_id, first_ns, reason, last_ns FROM timingwheel_skips
    WHERE last_ns < %s ORDER BY last_ns LIMIT %s
)
DELETE FROM timingwheel_skips s USING oldest o WHERE s.shard = o.shard
AND s.job_id = o.job_id AND s.first_ns = o.first_ns AND s.reason = o.reason
AND s.last_ns = o.last_ns RETURNING s.shard
"""
_INTERFERED: Final = (*CONFLICTS, errors.UndefinedTable, errors.LockNotAvailable)
"""Another node is about the same; it, or the next walk, does the rest."""


class Purge:
    """One walk through all that may have to go: call step() until is_done.

    Args:
        connections: to the database.
        partitions: of past runs.
        now_ns: the present, wall.
        retention: what stays.
    """

    def __init__(
        self,
        connections: Connections,
        partitions: Partitions,
        now_ns: int,
        retention: Retention,
    ) -> None:
        self.is_done = False
        self._connections = connections
        self._partitions = partitions
        self._runs_before_ns = now_ns - retention.runs_ns
        self._dead_before_ns = now_ns - retention.dead_ns
        self._skips_before_ns = now_ns - retention.skips_ns
        self._runs_min = retention.runs_min
        self._walk = self._all()

    def step(self) -> int:
        """Go on a little; return how many days, runs, jobs and skip ranges went."""
        try:
            gone = next(self._walk, None)
        except _INTERFERED:
            gone = None
        self.is_done = gone is None
        return gone or 0

    def _all(self) -> Iterator[int]:
        days = self._partitions.days()
        old = [day for day in days if (day + 1) * DAY_NS <= self._runs_before_ns]
        if old:
            yield from self._keep(old)
            for day in old:
                yield from self._drop(day)
        for table in ("timingwheel_past_kept", "timingwheel_past_default"):
            yield from self._by_rows(_RUNS.format(table=table, which=""))
        for day in days:
            # Of the days that stay; with the default retention there is nothing to do.
            if day not in old and day * DAY_NS < self._dead_before_ns:
                sql = _RUNS.format(table=partition_of(day), which=_DEAD)
                yield from self._by_rows(sql)
        # Runs before jobs, since a job outlives its runs.
        yield from self._by_rows(_JOBS)
        while gone := len(
            self._connections.rows(_SKIPS, [self._skips_before_ns, STEP_ROWS])
        ):
            yield gone

    def _keep(self, days: list[int]) -> Iterator[int]:
        """Move out of old days what must stay; nothing is gone by that."""
        values = {"days": Ints(days), "kept": KEPT}
        while (days[-1] + 1) * DAY_NS > self._dead_before_ns:
            [(moved,)] = self._ask(_KEEP_DEAD, step=STEP_ROWS, **values)
            yield 0
            if moved < STEP_ROWS:
                break
        shard, job_id = -1, ""
        while self._runs_min:
            more = {"shard": shard, "id": job_id, "step": STEP_JOBS}
            rows = self._ask(_KEEP_LAST, **more, **values)
            yield 0
            if not rows or rows[0][0] < STEP_JOBS:
                break
            _, _, shard, job_id = rows[0]

    def _drop(self, day: int) -> Iterator[int]:
        for _ in range(DROP_TRIES):
            if self._partitions.drop(day):
                yield 1
                return
            yield 0

    def _by_rows(self, sql: str) -> Iterator[int]:
        """Walk along the time of the end and delete what may go."""
        after_ns, after_id = _NONE_NS, ""
        while True:
            rows = self._ask(sql, after_ns=after_ns, after_id=after_id, step=STEP_ROWS)
            if not rows:
                return
            # Runs of one job that have ended in one moment may be split by a step: then
            # the rest of them waits for the next walk.
            looked_at, gone, after_ns, after_id = rows[0]
            yield gone
            if looked_at < STEP_ROWS:
                return

    def _ask(self, sql: str, **values: object) -> list[tuple[Any, ...]]:
        bounds = {
            "runs_before": self._runs_before_ns,
            "dead_before": self._dead_before_ns,
            "runs_min": self._runs_min,
        }
        return self._connections.named_rows(sql, bounds | values)
