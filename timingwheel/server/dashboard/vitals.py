"""How the scheduler does, minute by minute: what the page Overview draws.

The layers below count from their start on and never look back. Here the counts are read
every few seconds, and what they have grown by is put down to the minute; so counting
costs a run nothing, and an hour is kept in a few kilobytes. However many pages are open,
the store is asked once a second at most.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from timingwheel.jobs.figures import HistogramSnapshot, Measured, StoreFigures
from timingwheel.scheduler.metrics import MetricsSnapshot
from timingwheel.scheduler.scheduler import Scheduler
from timingwheel.server.dashboard.forecast import Forecast

MINUTES: Final = 60
"""Minutes that are kept, the present one too."""
LOOK_NS: Final = 1_000_000_000
MINUTE_NS: Final = 60_000_000_000


class Minute:
    """What happened in one minute.

    Attributes:
        start_ns: when it began, on the wall clock.
        ended: runs that ended, by final state.
        lags: starts by how late they were: a count for each bucket of the histogram.
    """

    __slots__ = ("ended", "lags", "start_ns")

    def __init__(self, start_ns: int) -> None:
        self.start_ns = start_ns
        self.ended: Counter[str] = Counter()
        self.lags: Counter[int] = Counter()


class Minutes:
    """Counts that only rise, as what they grew by in each of the last minutes.

    Invariant: the minutes follow each other without a hole, the present one last.
    """

    def __init__(self) -> None:
        self._kept: deque[Minute] = deque(maxlen=MINUTES)
        self._runs: Mapping[str, int] | None = None
        self._lags: Sequence[int] = ()
        self.bounds_ns: tuple[int, ...] = ()

    def take(
        self, now_ns: int, runs: Mapping[str, int], lag: HistogramSnapshot
    ) -> None:
        """Put down what the counts have grown by since they were last read.

        Args:
            now_ns: on the wall clock; set back, it counts for the present minute.
            runs: ended since the start, by final state.
            lag: of starts, since the start.
        """
        self._reach(now_ns)
        minute = self._kept[-1]
        if self._runs is not None:
            for state, count in runs.items():
                minute.ended[state] += max(count - self._runs.get(state, 0), 0)
            for place, (now, then) in enumerate(
                zip(lag.counts, self._lags, strict=True)
            ):
                minute.lags[place] += max(now - then, 0)
        self._runs, self._lags, self.bounds_ns = dict(runs), lag.counts, lag.bounds_ns

    def last(self) -> list[Minute]:
        """Return MINUTES minutes, oldest first; those before the start are empty."""
        kept = list(self._kept)
        first_ns = kept[0].start_ns if kept else 0
        missing = MINUTES - len(kept)
        before = [Minute(first_ns - n * MINUTE_NS) for n in range(missing, 0, -1)]
        return before + kept

    def quantile_ns(self, share: float, minutes: Sequence[Minute]) -> int | None:
        """Return within which time a share of the starts of some minutes began.

        Args:
            share: 0 to 1.
            minutes: of `last`.

        Returns:
            Interpolated within its bucket; None if nothing started.
        """
        counts: Counter[int] = Counter()
        for minute in minutes:
            counts.update(minute.lags)
        wanted = share * counts.total()
        edges = (0, *self.bounds_ns)
        below = 0
        for place, (low_ns, high_ns) in enumerate(pairwise(edges)):
            here = counts[place]
            if here and below + here >= wanted:
                return low_ns + round((high_ns - low_ns) * (wanted - below) / here)
            below += here
        return edges[-1] if counts.total() else None

    def _reach(self, now_ns: int) -> None:
        start_ns = now_ns // MINUTE_NS * MINUTE_NS
        if not self._kept or start_ns - self._kept[-1].start_ns > MINUTES * MINUTE_NS:
            self._kept.clear()
            self._kept.append(Minute(start_ns))
        while self._kept[-1].start_ns < start_ns:
            self._kept.append(Minute(self._kept[-1].start_ns + MINUTE_NS))


class Vital(NamedTuple):
    """How the scheduler does at one moment.

    Attributes:
        figures: of the store; None if it has none.
        metrics: of this process.
        minutes: the last ones, the present one last.
        lags_ns: for each minute, the p50, p95 and p99 of how late starts were.
        recent_lags_ns: the same for the last RECENT_MINUTES together.
    """

    figures: StoreFigures | None
    metrics: MetricsSnapshot
    minutes: list[Minute]
    lags_ns: list[tuple[int | None, ...]]
    recent_lags_ns: tuple[int | None, ...]


QUANTILES: Final = (0.5, 0.95, 0.99)
RECENT_MINUTES: Final = 15


class Vitals:
    """Reads the counts of a scheduler, once a second at most. Thread-safe.

    Attributes:
        forecast: planned starts.

    Args:
        scheduler: whose.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self.forecast: Final = Forecast(scheduler)
        self._scheduler = scheduler
        self._lock = threading.Lock()
        self._minutes = Minutes()
        self._seen: Vital | None = None
        self._seen_ns = 0

    def look(self) -> Vital:
        """Return how it does now, or did less than a second ago.

        Raises:
            EngineClosedError, EngineFailedError: the store is not open any more.
        """
        clock = self._scheduler.clock
        with self._lock:
            now_ns = clock.monotonic_ns()
            if self._seen is None or now_ns - self._seen_ns >= LOOK_NS:
                self._seen, self._seen_ns = self._read(clock.wall_ns()), now_ns
            return self._seen

    def _read(self, now_ns: int) -> Vital:
        store, metrics = self._scheduler.desk.store, self._scheduler.snapshot_metrics()
        figures = store.figures() if isinstance(store, Measured) else None
        # Attempts, where the store does not count runs: nearly the same.
        runs = metrics.runs if figures is None else figures.runs
        self._minutes.take(now_ns, runs, metrics.dispatch_lag)
        minutes = self._minutes.last()
        return Vital(
            figures=figures,
            metrics=metrics,
            minutes=[_copy(minute) for minute in minutes],
            lags_ns=[self._quantiles([minute]) for minute in minutes],
            recent_lags_ns=self._quantiles(minutes[-RECENT_MINUTES:]),
        )

    def _quantiles(self, minutes: Sequence[Minute]) -> tuple[int | None, ...]:
        return tuple(self._minutes.quantile_ns(one, minutes) for one in QUANTILES)


def _copy(minute: Minute) -> Minute:
    """Return a minute that does not grow any more: pages read it without the lock."""
    made = Minute(minute.start_ns)
    made.ended.update(minute.ended)
    made.lags.update(minute.lags)
    return made
