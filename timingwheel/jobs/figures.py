"""What a store can say of itself in numbers, for metrics. Pure values.

Counters begin with 0 when this process opens the store and only rise; everything else is
as of the moment of the question. Nothing here grows with the number of jobs or of runs.
"""

from __future__ import annotations

from typing import Final, Protocol, Self, runtime_checkable

import msgspec

from wal.histogram import Histogram

BACKLOG_QUEUES_MAX: Final = 100
"""Queues whose backlog is told one by one; the rest is one sum."""
OTHER_QUEUES: Final = "(others)"
"""In place of a queue's name: all beyond BACKLOG_QUEUES_MAX together."""
DEAD_COUNTED_MAX: Final = 100_000
"""Runs on the dead-letter list that are counted; a longer list counts as this."""


class HistogramSnapshot(msgspec.Struct, frozen=True):
    """A histogram at one moment.

    Attributes:
        bounds_ns: upper bound of each bucket but the last, which has none.
        counts: how many values each bucket holds.
        sum_ns: of all values.
        max_ns: the largest.
    """

    bounds_ns: tuple[int, ...]
    counts: tuple[int, ...]
    sum_ns: int
    max_ns: int

    @classmethod
    def of(cls, histogram: Histogram) -> Self:
        """Return a histogram as it stands."""
        return cls(
            histogram.bounds_ns, histogram.counts, histogram.sum_ns, histogram.max_ns
        )

    @property
    def count(self) -> int:
        """How many values there were."""
        return sum(self.counts)


class LogFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The log of a store in numbers; a store in memory has none.

    Attributes:
        sync: how long each sync of the log to the disk took.
        bytes: of its segments.
        segments: how many there are.
        snapshot_age_ns: since the newest snapshot was begun; None before the first.
        recovery_ns: what reading snapshot and log took at the opening.
        disk_full: no room for a further segment was found.
    """

    sync: HistogramSnapshot
    bytes: int
    segments: int
    snapshot_age_ns: int | None
    recovery_ns: int
    disk_full: bool


class StoreFigures(msgspec.Struct, frozen=True, kw_only=True):
    """A store in numbers.

    Attributes:
        runs: runs that reached a final state, by that state.
        skips: occurrences that did not run, by reason.
        leases_expired: attempts lost because their worker gave no sign of life.
        timers: that wait, in the wheels or in the tables.
        tick_lag: how late the node looked at the wheels, each time something was due;
            None: there are none.
        jobs: that are live, by state.
        backlog: runs that are ready and wait for a worker, by queue.
        running: attempts that hold a lease.
        workers: that have joined and not left.
        dead: runs on the dead-letter list, up to DEAD_COUNTED_MAX.
        log: the log.
    """

    runs: dict[str, int]
    skips: dict[str, int]
    leases_expired: int
    timers: int
    tick_lag: HistogramSnapshot | None
    jobs: dict[str, int]
    backlog: dict[str, int]
    running: int
    workers: int
    dead: int
    log: LogFigures | None


@runtime_checkable
class Measured(Protocol):
    """A JobStore that can say how it stands. Not every one can."""

    def figures(self) -> StoreFigures:
        """Return the store in numbers. It may read the directory: not for event loops.

        Raises:
            EngineClosedError: it is closed.
            EngineFailedError: it failed.
        """
