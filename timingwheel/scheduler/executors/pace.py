"""How long handlers take of late, and so how much work may wait inside an executor.

A commit costs a tenth of a millisecond and more. Handlers that are shorter than that
would wait for it one by one, so for them a node claims a batch ahead. A handler that may
take long must not have others waiting behind it: their lease runs, and another node
could have them.
"""

from __future__ import annotations

from typing import Final

AHEAD_MAX: Final = 960
"""Work that may wait inside an executor, however short it is.

With some slots beside it is still one claim of every store."""

AHEAD_BYTES_MAX: Final = 16 << 20
"""Of payloads that may wait there; 960 of the largest would take a gigabyte."""

SHORT_NS: Final = 1_000_000
"""Handlers of this mean and more have nothing waiting behind them."""

HELD_UP_NS: Final = 1_000_000_000
"""What waits behind handlers that go on for so long was taken ahead in error."""

_AHEAD_NS: Final = 5_000_000  # so much work waits for each slot at most
_WEIGHT: Final = 0.1  # of the newest; one of a second is forgotten after 66 short ones


class Pace:
    """Moving means, of durations and of sizes. Not thread-safe: keep it under the
    executor's lock.
    """

    __slots__ = ("_mean_bytes", "_mean_ns")

    def __init__(self) -> None:
        self._mean_ns: float | None = None
        self._mean_bytes = 0.0

    def note(self, duration_ns: int, size_bytes: int = 0) -> None:
        """Take in how long a handler took, and how large its payload was."""
        mean_ns = self._mean_ns
        if mean_ns is None:
            self._mean_ns, self._mean_bytes = float(duration_ns), float(size_bytes)
        else:
            self._mean_ns = mean_ns + _WEIGHT * (duration_ns - mean_ns)
            self._mean_bytes += _WEIGHT * (size_bytes - self._mean_bytes)

    def ahead(self, slots: int) -> int:
        """Return how much work may wait for so many slots: 0 until they prove short."""
        mean_ns = self._mean_ns
        if mean_ns is None or mean_ns >= SHORT_NS:
            return 0
        # A clock that stands still, as one turned by hand, shows no time at all.
        by_time = int(slots * _AHEAD_NS / max(mean_ns, 1.0))
        by_size = int(AHEAD_BYTES_MAX / max(self._mean_bytes, 1.0))
        return min(AHEAD_MAX, by_time, by_size)
