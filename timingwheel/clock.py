"""The clock: the one place that asks what time it is, or waits for it.

Two times, both integer nanoseconds. *Wall* time is what people mean (since 1970, can be
set, so it may jump either way). *Monotonic* time only ever moves on; where the system
can, it also counts the time the machine was suspended, so that a delay of an hour is
an hour of the world's time.

What always holds: all else in this package is given a Clock and asks only that, so a
test (timingwheel.testing.ManualClock) decides what time it is. A wait is never trusted
to have been long enough: it may end early, and the caller looks at the clock again.
"""

from __future__ import annotations

import threading
import time
from typing import Final, NamedTuple, Protocol

__all__ = ["WAIT_MAX_NS", "Clock", "Reading", "SystemClock"]

WAIT_MAX_NS: Final = 10_000_000_000
"""No wait is longer. Python waits on CLOCK_MONOTONIC, which does not see the wall clock
set and stands still in suspend; so both clocks are read again at least this often."""

_READ_SPREAD_NS: Final = 50_000  # two reads this near were not parted by preemption
_MEMORY_S: Final = 0.01
_READ_TRIES: Final = 8


class Reading(NamedTuple):
    """Both clocks at one moment."""

    wall_ns: int
    monotonic_ns: int


class Clock(Protocol):
    """What the rest of the package may know of time; every method is thread-safe."""

    def wall_ns(self) -> int:
        """Return nanoseconds since 1970-01-01 UTC; may jump in both directions."""

    def monotonic_ns(self) -> int:
        """Return nanoseconds since some fixed moment; never goes back."""

    def read(self) -> Reading:
        """Return both clocks as of one moment.

        Between two readings the difference of the two clocks changes only if someone
        set the wall clock, apart from some tens of microseconds of noise and the drift
        of NTP's slewing. Two separate calls could be parted by milliseconds of other
        people's work, which would look like a step.
        """

    def wait(self, condition: threading.Condition, until_ns: int | None) -> None:
        """Wait, with `condition` held, until it is notified or until_ns has come.

        As with Condition.wait, the lock is free during the wait and held again
        afterwards. It may also return for no reason, and does so after WAIT_MAX_NS at
        the latest: call it in a loop that looks at the state and the clock again. If
        until_ns has passed already, it returns at once and the lock was never free.

        Args:
            condition: held by the calling thread.
            until_ns: on monotonic_ns's scale; None is no deadline at all.

        Raises:
            RuntimeError: `condition` is not held.
        """


class SystemClock:
    """The clock of the operating system.

    Suspend: monotonic_ns is CLOCK_BOOTTIME where the system has it (Linux), and then
    time asleep counts, so a delay that ran out during it is served at most WAIT_MAX_NS
    after resuming. Elsewhere it is Python's monotonic clock; where that stands still
    in suspend, the sleep looks like a step of the wall clock: delays then do not count
    it, and wall times do.
    """

    __slots__ = ("_boottime",)

    def __init__(self) -> None:
        self._boottime = _boottime_id()

    def wall_ns(self) -> int:
        """Return nanoseconds since 1970-01-01 UTC, as the system has it now."""
        return time.time_ns()

    def monotonic_ns(self) -> int:
        """Return nanoseconds since boot or some other fixed moment."""
        if self._boottime is None:
            return time.monotonic_ns()
        return time.clock_gettime_ns(self._boottime)

    def read(self) -> Reading:
        """Return both clocks as of one moment, at best within 50 us.

        The wall clock is read between two reads of the monotonic one. If they lie far
        apart this thread was interrupted in between, so it tries again; after eight
        tries on a busy machine it gives the tightest.

        Cost: three reads of a clock when undisturbed, at most 24.
        """
        tightest_ns = -1
        best = Reading(0, 0)
        for _ in range(_READ_TRIES):
            before_ns = self.monotonic_ns()
            wall_ns = self.wall_ns()
            spread_ns = self.monotonic_ns() - before_ns
            if tightest_ns < 0 or spread_ns < tightest_ns:
                tightest_ns = spread_ns
                # The middle halves the greatest possible error.
                best = Reading(wall_ns, before_ns + spread_ns // 2)
            if spread_ns <= _READ_SPREAD_NS:
                break
        return best

    def wait(self, condition: threading.Condition, until_ns: int | None) -> None:
        """Wait until notified, until_ns, or WAIT_MAX_NS: see Clock.wait."""
        timeout_ns = WAIT_MAX_NS
        if until_ns is not None:
            timeout_ns = min(timeout_ns, until_ns - self.monotonic_ns())
            if timeout_ns <= 0:
                return
        # Rounded up to whole microseconds, as the kernel's wait counts them: a wait
        # that ended a fraction too early would make the caller's loop spin.
        condition.wait(-(-timeout_ns // 1_000) / 1_000_000)


def _boottime_id() -> int | None:
    """Return the number of CLOCK_BOOTTIME if this system really answers to it."""
    clock_id: int | None = getattr(time, "CLOCK_BOOTTIME", None)
    if clock_id is None:
        return None
    try:
        time.clock_gettime_ns(clock_id)
    except OSError:  # a sandbox or an old kernel may know the name only
        return None
    return clock_id


def await_memory() -> None:
    """Wait a moment for others to give memory back; then do again what found none.

    For what must not fail, and may be repeated: nothing that it does is half done. An
    attempt that has begun, say, is known to its executor alone. If the word of its end
    found no memory and was given up, its run would count as running until the program
    ends, and nobody would hear of it.
    """
    time.sleep(_MEMORY_S)
