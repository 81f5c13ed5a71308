"""A store in a database in numbers; see StoreFigures.

Gauges are of the whole store, so each of its processes tells the same. Counters are of what
this process has written, so those of all processes add up: an end, a skip or a loss is
written by one. Whatever could be many is counted up to COUNTED_MAX, so a scrape costs some
milliseconds however large the store is.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable
from typing import Final

from timingwheel.engine.records import Base
from timingwheel.jobs.figures import DEAD_COUNTED_MAX, StoreFigures
from timingwheel.jobs.model import JobState, Run, RunState
from timingwheel.stores.measuring import bounded_backlog
from timingwheel.stores.postgres.changes import RowChanges
from timingwheel.stores.postgres.connections import Connections

COUNTED_MAX: Final = 100_000
"""Jobs, timers, and runs that wait in queues, that are counted at most: of each kind the
rest is not seen."""
_JOBS: Final = f"""
SELECT j.state, count(*) FROM (
    (SELECT state FROM timingwheel_job WHERE live ORDER BY created_ns DESC LIMIT %s)
    UNION ALL
    (SELECT '{JobState.ACTIVE.value}' FROM timingwheel_run WHERE plain LIMIT %s)
) AS j GROUP BY j.state
"""
_TIMERS: Final = """
SELECT
    (SELECT count(*) FROM (
        SELECT 1 FROM timingwheel_run WHERE wake_ns IS NOT NULL LIMIT %s) AS r)
    + (SELECT count(*) FROM (
        SELECT 1 FROM timingwheel_job WHERE wake_ns IS NOT NULL LIMIT %s) AS j)
"""
# What is due waits as it was planned until somebody has room for it: window.py, taking.py.
_BACKLOG: Final = f"""
SELECT w.queue, count(*) FROM (
    (SELECT queue FROM timingwheel_run
        WHERE state = '{RunState.READY.value}' AND NOT held LIMIT %s)
    UNION ALL
    (SELECT d.queue FROM timingwheel_shard s
        CROSS JOIN (VALUES
            ({int(Base.ELAPSED)}, timingwheel_elapsed()),
            ({int(Base.WALL)}, timingwheel_now())
        ) AS c(base, now_ns)
        CROSS JOIN LATERAL (
            SELECT r.queue FROM timingwheel_run r
            WHERE r.shard = s.shard AND r.wake_base = c.base AND r.wake_ns <= c.now_ns
            AND r.state IN ('{RunState.PLANNED.value}', '{RunState.RETRYING.value}')
            LIMIT %s
        ) AS d LIMIT %s)
) AS w GROUP BY w.queue
"""
_WORK: Final = f"""
SELECT
    (SELECT count(*) FROM timingwheel_run WHERE state = '{RunState.RUNNING.value}'),
    (SELECT count(*) FROM timingwheel_member
        WHERE NOT is_node AND until_ns > timingwheel_elapsed()),
    (SELECT count(*) FROM (
        SELECT 1 FROM timingwheel_past WHERE NOT discarded
        AND state IN ('{RunState.FAILED.value}', '{RunState.LOST.value}') LIMIT %s
    ) AS p)
"""


class Tally:
    """What this process has written, counted. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs: Counter[str] = Counter({RunState.SUCCEEDED.value: 0})
        self._skips: Counter[str] = Counter()
        self._lost = 0

    def ended(self, runs: Iterable[Run]) -> None:
        """Count runs that have come to rest."""
        with self._lock:
            for run in runs:
                self._runs[run.state.value] += 1
                if run.skip_reason is not None:
                    self._skips[run.skip_reason.value] += 1

    def wrote(self, changes: RowChanges) -> None:
        """Count what a step has written."""
        self.ended(changes.ended)
        with self._lock:
            self._lost += changes.lost
            for *_, reason, _, count in changes.skips:
                self._skips[reason] += count

    def measure(self, connections: Connections) -> StoreFigures:
        """Return the store in numbers; an attempt whose worker left counts as expired.

        Args:
            connections: to its database.

        Raises:
            DatabaseAwayError: it does not answer.

        Cost: one message.
        """
        most = COUNTED_MAX
        jobs, [(timers,)], backlog, [(running, workers, dead)] = connections.all(
            [
                (_JOBS, [most, most]),
                (_TIMERS, [most, most]),
                (_BACKLOG, [most, most, most]),
                (_WORK, [DEAD_COUNTED_MAX]),
            ]
        )
        with self._lock:
            runs, skips, lost = dict(self._runs), dict(self._skips), self._lost
        return StoreFigures(
            runs=runs,
            skips=skips,
            leases_expired=lost,
            timers=timers,
            tick_lag=None,
            jobs=dict(jobs),
            backlog=bounded_backlog(dict(backlog)),
            running=running,
            workers=workers,
            dead=dead,
            log=None,
        )
