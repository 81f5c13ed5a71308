"""What a node counts, in plain numbers: counters, and histograms of lateness.

Nothing here knows how the numbers leave the process. `snapshot` returns them as they
stand, as a value that a server can render and a test can compare.

    dispatch_lag    due time to the start of the handler: what users feel
    schedule_lag    due time to the claim: what the store and the node add to it
    run_duration    the start of the handler to its end, of every attempt

Attempts of workers far away are counted too, from when the server gave them out.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Final

import msgspec

from timingwheel.jobs.figures import HistogramSnapshot
from wal.histogram import Histogram

_NS: Final = 1_000_000_000
BOUNDS_NS: Final = tuple(
    round(seconds * _NS)
    for seconds in (
        *(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
        *(1, 2.5, 5, 10, 30, 60, 300, 3_600),
    )
)
"""Upper bounds of a histogram's buckets, ns; one more bucket holds what is above."""


class MetricsSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """What a node has counted since it was made.

    Attributes:
        dispatch_lag: due to the start of the handler.
        schedule_lag: due to the claim.
        run_duration: the start of a handler to its end, snoozed or not.
        runs: attempts and runs by how they ended, such as "ok", "timeout" or
            "snoozed".
        attempts: begun.
        retries: begun, but for the first of each run.
        lease_losses: ends that were refused, since the run was somebody else's by then.
        alerts: slots given up as stuck, processes killed, and the like.
        clock_steps: how often somebody set the wall clock.
        pauses: how often a full disk held up the node.
        running: attempts that are with the executors now.
    """

    dispatch_lag: HistogramSnapshot
    schedule_lag: HistogramSnapshot
    run_duration: HistogramSnapshot
    runs: dict[str, int]
    attempts: int
    retries: int
    lease_losses: int
    alerts: int
    clock_steps: int
    pauses: int
    running: int


class Metrics:
    """The counters of one node. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._dispatch_lag = Histogram(BOUNDS_NS)
        self._schedule_lag = Histogram(BOUNDS_NS)
        self._run_duration = Histogram(BOUNDS_NS)
        self._runs: dict[str, int] = {}
        self._counts = dict.fromkeys(_COUNTERS, 0)

    def note_claims(self, lags_ns: Sequence[int]) -> None:
        """Note that runs were claimed, each this long after it was due."""
        with self._lock:
            for lag_ns in lags_ns:
                self._schedule_lag.add(lag_ns)
            self._counts["running"] += len(lags_ns)

    def note_begin(self, lag_ns: int, *, attempt: int) -> None:
        """Note that a handler starts, this long after its run was due."""
        with self._lock:
            self._note_begin(lag_ns, attempt)

    def note_returns(self, count: int) -> None:
        """Note that claimed runs left the node without an attempt."""
        with self._lock:
            self._counts["running"] -= count

    def note_end(self, outcome: str, duration_ns: int) -> None:
        """Note how an attempt ended, this long after its handler had started."""
        with self._lock:
            self._note_end(outcome, duration_ns)
            self._counts["running"] -= 1

    def note_far_begin(self, lag_ns: int, *, attempt: int) -> None:
        """Note that a worker far away has a run, this long after it was due."""
        with self._lock:
            self._schedule_lag.add(lag_ns)
            self._note_begin(lag_ns, attempt)

    def note_far_end(self, outcome: str, duration_ns: int) -> None:
        """Note how an attempt of a worker far away ended."""
        with self._lock:
            self._note_end(outcome, duration_ns)

    def _note_begin(self, lag_ns: int, attempt: int) -> None:
        self._counts["attempts"] += 1
        if attempt > 1:
            self._counts["retries"] += 1
        else:
            # A later attempt is late by its backoff, on purpose.
            self._dispatch_lag.add(lag_ns)

    def _note_end(self, outcome: str, duration_ns: int) -> None:
        self._runs[outcome] = self._runs.get(outcome, 0) + 1
        self._run_duration.add(duration_ns)

    def count(self, counter: str) -> None:
        """Add one to `lease_losses`, `alerts`, `clock_steps` or `pauses`."""
        with self._lock:
            self._counts[counter] += 1

    def snapshot(self) -> MetricsSnapshot:
        """Return all of it as of one moment."""
        with self._lock:
            return MetricsSnapshot(
                dispatch_lag=HistogramSnapshot.of(self._dispatch_lag),
                schedule_lag=HistogramSnapshot.of(self._schedule_lag),
                run_duration=HistogramSnapshot.of(self._run_duration),
                runs=dict(self._runs),
                **self._counts,
            )


_COUNTERS: Final = (
    "attempts",
    "retries",
    "lease_losses",
    "alerts",
    "clock_steps",
    "pauses",
    "running",
)
