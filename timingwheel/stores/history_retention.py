"""What the history forgets, and when: in small steps, each a transaction of its own.

A run goes when it has ended long enough ago, and so does a skip range. A job goes when
it has, and no run of it is left. The last runs of a recurring job stay while it lives,
however old they are, and as long after its end as any run does: else every recurring
job that ever was would leave its last runs behind for ever.

The purge walks along the time of the end and remembers where it is. A step takes some
ten milliseconds (measured: 42 at most), and what is new can be written in between.
"""

from __future__ import annotations

from typing import Final

import msgspec

from timingwheel.errors import ArgumentError
from timingwheel.stores.sqlite_files import Connection

STEP_ROWS: Final = 500
"""Runs a step looks at; with their attempts it deletes about twice as many rows."""

_DAY_NS: Final = 86_400_000_000_000


class Retention(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How long what has ended is remembered.

    Attributes:
        runs_ns: runs, and jobs without any, after their end.
        runs_min: the last runs of a recurring job that stay whatever their age.
        dead_ns: runs that failed or were lost, after their end.
        skips_ns: skip ranges, after the last occurrence in them.

    Raises:
        ArgumentError: one is negative.
    """

    runs_ns: int = 7 * _DAY_NS
    runs_min: int = 100
    dead_ns: int = 7 * _DAY_NS
    skips_ns: int = 30 * _DAY_NS

    def __post_init__(self) -> None:
        """Refuse what is invalid."""
        for name in self.__struct_fields__:
            if getattr(self, name) < 0:
                raise ArgumentError(name, getattr(self, name), "pass 0 or more")


# A run of a job that has no row belongs to a live job, which may be recurring; if it
# is not, it keeps its few runs until it ends, which does no harm.
_CANDIDATES: Final = """
INSERT INTO temp.candidates
WITH oldest AS MATERIALIZED (
    SELECT job_id, nominal_ns, n, ended_ns, state, plain FROM runs
    WHERE ended_ns < :latest_ns AND (ended_ns, job_id, nominal_ns, n)
        > (:ended_ns, :job_id, :nominal_ns, :n)
    ORDER BY ended_ns, job_id, nominal_ns, n LIMIT :step
),
sheltered AS MATERIALIZED (
    SELECT DISTINCT job_id FROM oldest WHERE :runs_min > 0 AND NOT plain
    AND NOT EXISTS (
        SELECT 1 FROM jobs WHERE jobs.id = oldest.job_id
        AND (NOT jobs.recurring OR jobs.ended_ns < :runs_before_ns)
    )
),
floors AS MATERIALIZED (
    SELECT job_id, coalesce((
        SELECT nominal_ns FROM runs WHERE runs.job_id = sheltered.job_id
        ORDER BY nominal_ns DESC, n DESC LIMIT 1 OFFSET :runs_min - 1
    ), :none_ns) AS nominal_ns FROM sheltered
)
SELECT oldest.ended_ns, oldest.job_id, oldest.nominal_ns, oldest.n,
    oldest.ended_ns < iif(
        state IN ('failed', 'lost'), :dead_before_ns, :runs_before_ns
    ) AND (floors.job_id IS NULL OR oldest.nominal_ns < floors.nominal_ns)
FROM oldest LEFT JOIN floors ON floors.job_id = oldest.job_id
"""
_DELETE_ATTEMPTS: Final = """
DELETE FROM attempts WHERE run_id IN (
    SELECT job_id || '@' || nominal_ns || iif(n, '#' || n, '')
    FROM temp.candidates WHERE goes
)
"""
_DELETE_RUNS: Final = """
DELETE FROM runs WHERE (job_id, nominal_ns, n) IN (
    SELECT job_id, nominal_ns, n FROM temp.candidates WHERE goes
)
"""
_LAST_CANDIDATE: Final = """
SELECT ended_ns, job_id, nominal_ns, n FROM temp.candidates
ORDER BY ended_ns DESC, job_id DESC, nominal_ns DESC, n DESC LIMIT 1
"""
_JOBS: Final = """
INSERT INTO temp.candidates
SELECT ended_ns, id, 0, 0,
    NOT EXISTS (SELECT 1 FROM runs WHERE runs.job_id = jobs.id)
    AND NOT EXISTS (SELECT 1 FROM revived WHERE revived.job_id = jobs.id)
FROM jobs WHERE ended_ns < :runs_before_ns AND (ended_ns, id) > (:ended_ns, :job_id)
ORDER BY ended_ns, id LIMIT :step
"""
_DELETE_JOBS: Final = """
DELETE FROM jobs WHERE id IN (SELECT job_id FROM temp.candidates WHERE goes)
"""
_DELETE_SKIPS: Final = """
DELETE FROM skips WHERE (job_id, first_ns, reason, last_ns) IN (
    SELECT job_id, first_ns, reason, last_ns FROM skips WHERE last_ns < ? LIMIT ?
)
"""
_TEMP: Final = """
CREATE TEMP TABLE IF NOT EXISTS candidates (
    ended_ns INTEGER, job_id TEXT, nominal_ns INTEGER, n INTEGER, goes INTEGER
)
"""
_BEGINNING: Final = (-(2**63), "", 0, 0)


class Purge:
    """One walk through all that may have to go: call step() until is_done.

    Args:
        now_ns: the present, wall.
        retention: what stays.
    """

    def __init__(self, now_ns: int, retention: Retention) -> None:
        runs_before_ns = now_ns - retention.runs_ns
        dead_before_ns = now_ns - retention.dead_ns
        self._skips_before_ns = now_ns - retention.skips_ns
        self._bounds: dict[str, object] = {
            "latest_ns": max(runs_before_ns, dead_before_ns),
            "runs_before_ns": runs_before_ns,
            "dead_before_ns": dead_before_ns,
            "runs_min": retention.runs_min,
            "none_ns": -(2**63),
            "step": STEP_ROWS,
        }
        self._place: tuple[object, ...] = _BEGINNING
        # Runs before jobs, since a job outlives its runs.
        self._steps = [self._step_skips, self._step_jobs, self._step_runs]

    @property
    def is_done(self) -> bool:
        """Whether the walk has come to its end."""
        return not self._steps

    def step(self, connection: Connection) -> int:
        """Go on a little; the caller has begun a transaction and commits it.

        Returns:
            How many runs, jobs and skip ranges were deleted.
        """
        if self.is_done:
            return 0
        deleted, at_end = self._steps[-1](connection)
        if at_end:
            self._steps.pop()
            self._place = _BEGINNING
        return deleted

    def _step_runs(self, connection: Connection) -> tuple[int, bool]:
        at_end = self._choose(connection, _CANDIDATES)
        connection.execute(_DELETE_ATTEMPTS)
        return connection.execute(_DELETE_RUNS).rowcount, at_end

    def _step_jobs(self, connection: Connection) -> tuple[int, bool]:
        at_end = self._choose(connection, _JOBS)
        return connection.execute(_DELETE_JOBS).rowcount, at_end

    def _step_skips(self, connection: Connection) -> tuple[int, bool]:
        bounds = (self._skips_before_ns, STEP_ROWS)
        deleted = connection.execute(_DELETE_SKIPS, bounds).rowcount
        return deleted, deleted < STEP_ROWS

    def _choose(self, connection: Connection, question: str) -> bool:
        """Fill the table of candidates; return whether these were the last."""
        connection.execute(_TEMP)
        connection.execute("DELETE FROM temp.candidates")
        place = dict(
            zip(("ended_ns", "job_id", "nominal_ns", "n"), self._place, strict=True)
        )
        looked_at = connection.execute(question, self._bounds | place).rowcount
        if looked_at:
            # What a step that fails has not deleted waits for the next purge.
            self._place = connection.execute(_LAST_CANDIDATE).fetchone()
        return looked_at < STEP_ROWS
