"""Two clocks, two wheels: when a timer is due, whatever happens to the wall clock.

*Elapsed* time carries delays: it is wall time minus every step that the wall clock ever
took, so setting the clock moves no delay, and a restart does not undo that. *Wall* time
carries `schedule_at`: it is whatever the clock says now.

Both wheels turn in ticks of TICK_NS. A deadline is rounded up to a tick and the present
down, so nothing is ever early. A wall timer whose tick the wheel has passed already, since
the clock was set back, waits in a sorted map outside the wheel and fires once, when the
clock gets there.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import Final

from sortedcontainers import SortedDict

from timingwheel.bodies import TimerWheel
from timingwheel.clock import Reading
from timingwheel.engine.records import Base

TICK_BITS: Final = 16
TICK_NS: Final = 1 << TICK_BITS
STEP_MIN_NS: Final = 1_000_000
"""A smaller difference between the clocks is noise or slewing, not a step."""
PASSED_HANDLE: Final = -2
"""Stands for a wheel handle of a wall timer that waits outside the wheel."""


@dataclass(frozen=True, slots=True)
class Now:
    """The present on all three scales, ns."""

    monotonic_ns: int
    elapsed_ns: int
    wall_ns: int


def tick_of_deadline(deadline_ns: int) -> int:
    """Return the first tick that does not lie before a deadline."""
    return -(-deadline_ns >> TICK_BITS)


class Timeline:
    """The present, and the timers in order of what is due.

    Invariants: elapsed time never goes back; a timer is in one wheel, or in the map of
    passed wall timers, or in neither.

    Attributes:
        elapsed_wheel: delays, by elapsed time.
        elapsed_ahead_ns: elapsed time less the monotonic clock; never changes.

    Args:
        reading: the clocks now.
        steps_ns: sum of all steps of the wall clock so far.
        start_elapsed_ns: where the elapsed wheel begins; nothing earlier was served.
        start_wall_ns: where the wall wheel begins.
    """

    def __init__(
        self,
        reading: Reading,
        *,
        steps_ns: int,
        start_elapsed_ns: int,
        start_wall_ns: int,
    ) -> None:
        self.elapsed_wheel = TimerWheel(start_elapsed_ns >> TICK_BITS)
        self._wall = TimerWheel(start_wall_ns >> TICK_BITS)
        self._passed: SortedDict[tuple[int, int], None] = SortedDict()
        self.elapsed_ahead_ns = reading.wall_ns - steps_ns - reading.monotonic_ns
        self._wall_ahead_ns = reading.wall_ns - reading.monotonic_ns
        self._wall_first = False

    # -- the present ------------------------------------------------------------------

    def elapsed_ns(self, monotonic_ns: int) -> int:
        """Return elapsed time at a moment of the monotonic clock."""
        return monotonic_ns + self.elapsed_ahead_ns

    def now(self, reading: Reading) -> Now:
        """Return the present on all scales."""
        self._wall_ahead_ns = reading.wall_ns - reading.monotonic_ns
        return Now(
            reading.monotonic_ns, self.elapsed_ns(reading.monotonic_ns), reading.wall_ns
        )

    def step_ns(self, now: Now, steps_ns: int) -> int:
        """Return how far the wall clock was set since `steps_ns` was right; 0: it wasn't.

        Args:
            now: the present.
            steps_ns: sum of the steps known so far.
        """
        difference = now.wall_ns - now.elapsed_ns - steps_ns
        return difference if abs(difference) >= STEP_MIN_NS else 0

    # -- timers -----------------------------------------------------------------------

    def insert(self, base: int, deadline_ns: int, key: int) -> int:
        """Add a timer and return its handle; PASSED_HANDLE if its wheel has passed it.

        Args:
            base: which clock the deadline is measured on, a Base.
            deadline_ns: on that clock, 0 .. 2**63 - 1; rounded up to a tick.
            key: comes back from `advance`.

        Cost: O(1), O(log n) for a passed one.
        """
        tick = tick_of_deadline(deadline_ns)
        if base == Base.ELAPSED:
            return self.elapsed_wheel.insert(tick, key)
        if self.is_passed(base, tick):
            self._passed[deadline_ns, key] = None
            return PASSED_HANDLE
        return self._wall.insert(tick, key)

    def is_passed(self, base: int, tick: int) -> bool:
        """Return whether a timer of this tick would wait outside its wheel."""
        return base == Base.WALL and tick <= self._wall.now_tick

    def insert_many(self, base: int, ticks: array[int], keys: array[int]) -> array[int]:
        """Add many timers, as `insert` does one after the other; return their handles.

        Args:
            base: of all of them.
            ticks: deadlines, rounded up; none of them `is_passed`.
            keys: one for each.
        """
        wheel = self.elapsed_wheel if base == Base.ELAPSED else self._wall
        return wheel.insert_many(ticks, keys)

    def cancel(self, base: int, handle: int, *, deadline_ns: int, key: int) -> bool:
        """Take a timer out; False if it is not in any more.

        Args:
            base: as it was inserted.
            handle: what `insert` returned.
            deadline_ns: as it was inserted; of no account unless it has passed.
            key: likewise.

        Cost: O(1), O(log n) for a passed one.
        """
        if handle == PASSED_HANDLE:
            return self._passed.pop((deadline_ns, key), self) is None
        wheel = self.elapsed_wheel if base == Base.ELAPSED else self._wall
        return wheel.cancel(handle)

    def advance(self, now: Now, limit: int) -> tuple[list[int], list[int]]:
        """Take out what is due, at most `limit` timers.

        Returns:
            Keys of the elapsed and of the wall wheel, each in (tick, insertion) order.
        """
        elapsed: list[int] = []
        wall: list[int] = []
        # The wheel that goes first may use the limit up; they take turns, so that a
        # flood on one does not starve the other.
        self._wall_first = not self._wall_first
        for base in (1, 0) if self._wall_first else (0, 1):
            left = limit - len(elapsed) - len(wall)
            if left <= 0:
                break
            if base == Base.ELAPSED:
                elapsed = self.elapsed_wheel.advance(now.elapsed_ns >> TICK_BITS, left)
            else:
                wall = self._take_passed(now.wall_ns, left)
                left -= len(wall)
                if left:
                    wall += self._wall.advance(now.wall_ns >> TICK_BITS, left)
        return elapsed, wall

    def next_due_ns(self) -> int | None:
        """Return when to look again, on the monotonic clock; None: nothing waits.

        A lower bound: what is due is never due before it.
        """
        due: list[int] = []
        tick = self.elapsed_wheel.next_due()
        if tick is not None:
            due.append((tick << TICK_BITS) - self.elapsed_ahead_ns)
        tick = self._wall.next_due()
        if tick is not None:
            due.append((tick << TICK_BITS) - self._wall_ahead_ns)
        if self._passed:
            due.append(self._passed.peekitem(0)[0][0] - self._wall_ahead_ns)
        return min(due, default=None)

    def due_ns(self, base: int, deadline_ns: int) -> int:
        """Return when a timer will be due on the monotonic clock, as things stand."""
        return self.tick_due_ns(base, tick_of_deadline(deadline_ns))

    def tick_due_ns(self, base: int, tick: int) -> int:
        """Return when a tick will come on the monotonic clock, as things stand."""
        ahead = self.elapsed_ahead_ns if base == Base.ELAPSED else self._wall_ahead_ns
        return (tick << TICK_BITS) - ahead

    def wheels(self) -> dict[str, TimerWheel]:
        """Return the wheels by name, to look at; the owner's lock is held."""
        return {"elapsed": self.elapsed_wheel, "wall": self._wall}

    def __len__(self) -> int:
        return len(self.elapsed_wheel) + len(self._wall) + len(self._passed)

    def check(self) -> None:
        """Assert the invariants. For tests."""
        self.elapsed_wheel.check()
        self._wall.check()
        for deadline_ns, _ in self._passed:
            assert tick_of_deadline(deadline_ns) <= self._wall.now_tick

    def _take_passed(self, wall_ns: int, limit: int) -> list[int]:
        taken: list[int] = []
        while self._passed and len(taken) < limit:
            deadline_ns, key = self._passed.peekitem(0)[0]
            if deadline_ns > wall_ns:
                break
            self._passed.popitem(0)
            taken.append(key)
        return taken
