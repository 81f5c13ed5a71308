"""What the store forgets, and when: by the rules of stores/history_retention.py.

In steps of bounded size, each a statement; several nodes may be about it at once.
"""

from __future__ import annotations

from typing import Final

from timingwheel.stores.history_retention import Retention
from timingwheel.stores.postgres.connections import Connections

STEP_ROWS: Final = 2_000

_RUNS: Final = """
WITH oldest AS MATERIALIZED (
    SELECT r.shard, r.job_id, r.nominal_ns, r.n, r.plain, r.ended_ns, r.state
    FROM timingwheel_past r
    WHERE (r.ended_ns, r.job_id) > (%(after_ns)s, %(after_id)s)
    AND r.ended_ns < greatest(%(runs_before)s, %(dead_before)s)
    ORDER BY r.ended_ns, r.job_id LIMIT %(step)s
),
sheltered AS MATERIALIZED (
    SELECT DISTINCT o.shard, o.job_id FROM oldest o WHERE %(runs_min)s > 0 AND NOT o.plain
    AND NOT EXISTS (
        SELECT 1 FROM timingwheel_job j WHERE j.shard = o.shard AND j.id = o.job_id
        AND (NOT j.recurring OR (NOT j.live AND j.ended_ns < %(runs_before)s))
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
    DELETE FROM timingwheel_past r USING gone g WHERE r.shard = g.shard
    AND r.job_id = g.job_id AND r.nominal_ns = g.nominal_ns AND r.n = g.n
)
SELECT (SELECT count(*) FROM gone), (SELECT count(*) FROM oldest), o.ended_ns, o.job_id
FROM oldest o ORDER BY o.ended_ns DESC, o.job_id DESC LIMIT 1
"""
_JOBS: Final = """
DELETE FROM timingwheel_job j WHERE NOT j.live AND j.ended_ns < %s AND NOT EXISTS (
    SELECT 1 FROM timingwheel_past r WHERE r.shard = j.shard AND r.job_id = j.id
) RETURNING j.id
"""
_SKIPS: Final = "DELETE FROM timingwheel_skips WHERE last_ns < %s RETURNING shard"


class Purge:
    """One walk through all that may have to go: call step() until is_done.

    Args:
        connections: to the database.
        now_ns: the present, wall.
        retention: what stays.
    """

    def __init__(
        self, connections: Connections, now_ns: int, retention: Retention
    ) -> None:
        self.is_done = False
        self._connections = connections
        self._runs_before_ns = now_ns - retention.runs_ns
        self._skips_before_ns = now_ns - retention.skips_ns
        self._values: dict[str, object] = {
            "runs_before": self._runs_before_ns,
            "dead_before": now_ns - retention.dead_ns,
            "runs_min": retention.runs_min,
            "step": STEP_ROWS,
            "after_ns": -(2**63),
            "after_id": "",
        }

    def step(self) -> int:
        """Go on a little; return how many runs, jobs and skip ranges went."""
        values = self._values
        rows = self._connections.named_rows(_RUNS, values)
        gone = looked_at = 0
        if rows:
            # Runs of one job that have ended in one moment may be split by a step: then
            # the rest of them waits for the next walk.
            gone, looked_at, values["after_ns"], values["after_id"] = rows[0]
        if looked_at == STEP_ROWS:
            return gone
        # Runs before jobs, since a job outlives its runs.
        self.is_done = True
        jobs = self._connections.rows(_JOBS, [self._runs_before_ns])
        skips = self._connections.rows(_SKIPS, [self._skips_before_ns])
        return gone + len(jobs) + len(skips)
