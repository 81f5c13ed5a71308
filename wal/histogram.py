"""Durations counted by size: how long syncs took, how late ticks were.

Plain numbers, in buckets whose bounds are fixed when it is made, so that adding costs a
binary search and three additions, and reading costs a copy.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Final


class Histogram:
    """Counts durations by size. Invariant: one bucket more than there are bounds.

    One thread adds at a time; any may read, and sees the counts of some moment.

    Args:
        bounds_ns: upper bound of each bucket, growing; one more holds what is above.
    """

    __slots__ = ("_counts", "bounds_ns", "max_ns", "sum_ns")

    def __init__(self, bounds_ns: tuple[int, ...]) -> None:
        self.bounds_ns: Final = bounds_ns
        self.sum_ns = 0
        """Of all durations."""
        self.max_ns = 0
        """The longest."""
        self._counts = [0] * (len(bounds_ns) + 1)

    def add(self, duration_ns: int) -> None:
        """Count a duration; one below 0, by a clock that was set, counts as 0."""
        # Not max(): this stands in the way of every run, and a call costs as much again.
        if duration_ns < 0:  # noqa: PLR1730
            duration_ns = 0
        self._counts[bisect_left(self.bounds_ns, duration_ns)] += 1
        self.sum_ns += duration_ns
        if duration_ns > self.max_ns:  # noqa: PLR1730
            self.max_ns = duration_ns

    @property
    def counts(self) -> tuple[int, ...]:
        """How many durations each bucket holds."""
        return tuple(self._counts)
