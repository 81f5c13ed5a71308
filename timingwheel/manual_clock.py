"""A clock that tests turn by hand, for programs that are given a Clock.

    clock = ManualClock()
    fired = []
    with TimerEngine(":memory:", on_fire=lambda id, payload: fired.append(payload),
                     clock=clock) as engine:
        engine.schedule(30, b"tea is ready")
        clock.advance(29.999)
        clock.settle()
        assert fired == []
        clock.advance(0.001)
        clock.settle()
        assert fired == [b"tea is ready"]

What always holds: time moves only when the test says so. A thread that waits through
the clock is *parked*; it becomes *awake* in the very act of being woken, before it has
run one line, so that `settle` cannot mistake a thread that is about to run for one that
has nothing to do. Nothing polls, and nothing sleeps.

The idea is that of every simulated clock (Rust's `tokio::time::pause`, Go's
`testing/synctest`): time stands still until all who live by it have gone quiet.
"""

from __future__ import annotations

import itertools
import math
import sys
import threading
import weakref
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from timingwheel.clock import Clock, Reading
from timingwheel.errors import ArgumentError

__all__ = ["ManualClock"]

_SECOND_NS: Final = 1_000_000_000


class ManualClock(Clock):
    """A Clock whose two times are numbers that the test sets.

    Every method may be called from any thread. Call those that move the time while
    holding no condition that a parked thread uses, except one made of an RLock (the
    default of threading.Condition), else they wait for the lock you hold.

    On the first wait on a condition its notify() and notify_all() are wrapped, so that
    the clock knows who was woken; notify(n) then wakes all who wait there, which the
    contract of threading.Condition permits.

    Example:
        >>> clock = ManualClock(wall_ns=0, monotonic_ns=0)
        >>> clock.advance(1.5)
        >>> clock.step(-3_000_000_000)
        >>> clock.read()
        Reading(wall_ns=-1500000000, monotonic_ns=1500000000)
    """

    def __init__(
        self,
        *,
        wall_ns: int = 1_700_000_000 * _SECOND_NS,
        monotonic_ns: int = 1_000 * _SECOND_NS,
    ) -> None:
        """Start both clocks; they differ by default, so that mixing them shows.

        Args:
            wall_ns: nanoseconds since 1970; by default an evening in November 2023.
            monotonic_ns: nanoseconds since some fixed moment.
        """
        self._wall_ns = wall_ns
        self._monotonic_ns = monotonic_ns
        self._register = _Register()
        self._local = threading.local()
        self._watched: weakref.WeakSet[threading.Condition] = weakref.WeakSet()

    def wall_ns(self) -> int:
        """Return the wall clock."""
        return self._wall_ns

    def monotonic_ns(self) -> int:
        """Return the monotonic clock."""
        return self._monotonic_ns

    def read(self) -> Reading:
        """Return both clocks, as of one moment."""
        with self._register.changed:
            return Reading(self._wall_ns, self._monotonic_ns)

    def advance(self, seconds: float = 0, *, ns: int = 0) -> None:
        """Let time pass: both clocks move on, and threads whose time has come wake.

        It returns when they have been woken, not when they have done what they woke
        for: that is what settle() waits for.

        Args:
            seconds: >= 0, rounded to a nanosecond; an int is exact.
            ns: >= 0, added to it.

        Raises:
            ArgumentError: time would go back, or by NaN or infinity.
        """
        if not (math.isfinite(seconds) and seconds >= 0):
            raise ArgumentError("seconds", seconds, "time only advances; see step()")
        if ns < 0:
            raise ArgumentError("ns", ns, "time only advances; see step()")
        delta_ns = round(seconds * _SECOND_NS) + ns
        with self._register.changed:
            self._wall_ns += delta_ns
            self._monotonic_ns += delta_ns
            woken = self._register.wake_until(self._monotonic_ns)
        _notify(woken)

    def step(self, wall_delta_ns: int) -> None:
        """Set the wall clock on or back, as NTP or a person does; no time passes.

        Every parked thread wakes, as it would within WAIT_MAX_NS on the real clock.

        Args:
            wall_delta_ns: added to the wall clock; may be negative.
        """
        with self._register.changed:
            self._wall_ns += wall_delta_ns
            woken = self._register.wake_all()
        _notify(woken)

    def suspend(self, ns: int, *, boottime: bool = True) -> None:
        """Let the machine sleep: the world goes on, and nobody runs until it is over.

        The policy this serves to test: a suspended delay counts, where the system can
        tell (SystemClock). Afterwards every parked thread wakes, as it would within
        WAIT_MAX_NS of resuming.

        Args:
            ns: >= 0, how long the machine slept.
            boottime: the monotonic clock counts suspended time, as Linux's
                CLOCK_BOOTTIME does. False is a system without it: only the wall clock
                has moved, which nothing can tell from a step.

        Raises:
            ArgumentError: ns is negative.
        """
        if ns < 0:
            raise ArgumentError("ns", ns, "a machine sleeps for some time or none")
        with self._register.changed:
            self._wall_ns += ns
            if boottime:
                self._monotonic_ns += ns
            woken = self._register.wake_all()
        _notify(woken)

    def wait(self, condition: threading.Condition, until_ns: int | None) -> None:
        """Park this thread until notified, or until the manual time reaches until_ns.

        See Clock.wait; only WAIT_MAX_NS does not apply, since no real time counts.
        """
        member = self._member()
        with self._register.changed:
            self._watch(condition)
            if until_ns is not None and until_ns <= self._monotonic_ns:
                self._register.note_awake(member)
                return
            self._register.park(member, condition, until_ns)
        # No wake-up can fall in between: whoever wakes this thread must first get the
        # condition, and that is free only once this thread waits on it.
        try:
            condition.wait()
        finally:
            with self._register.changed:
                self._register.note_awake(member)

    def settle(self, timeout: float = 10.0, *, threads: int = 0) -> None:
        """Wait until all is quiet: every thread of this clock is parked again.

        A thread belongs to the clock from its first wait to its end; the caller itself
        does not count. What such threads hand to each other through conditions that
        they wait on through this clock is done as well, however long the chain.
        Threads that wait elsewhere, in a queue or on an event, are unknown until their
        first wait() and awake after it; a handler that a test holds up should wait
        through the clock too: `with door: while not opened: clock.wait(door, None)`.
        Hold no condition that they need.

        Args:
            timeout: real seconds to wait at most; a test that is well never needs it.
            threads: wait also until at least so many are parked; for threads that have
                been started and may not have reached their first wait.

        Raises:
            TimeoutError: threads were still awake, or too few parked; it names them.
        """
        own = self._known_member()
        register = self._register
        with register.changed:
            if not register.changed.wait_for(
                lambda: register.is_quiet(own, threads=threads), timeout
            ):
                raise TimeoutError(
                    f"after {timeout} s {register.describe(own)}; "
                    f"expected none awake and at least {threads} parked"
                )

    def check(self) -> None:
        """Assert the invariants: nobody is parked whose time has come."""
        with self._register.changed:
            self._register.check(self._monotonic_ns)

    def _member(self) -> _Member:
        member = self._known_member()
        if member is None:
            member = _Member(self._register)
            self._local.member = member
        return member

    def _known_member(self) -> _Member | None:
        member: _Member | None = getattr(self._local, "member", None)
        return member

    def _watch(self, condition: threading.Condition) -> None:
        """Learn of everyone whom this condition will wake; the caller holds it."""
        if condition in self._watched:
            return
        register = self._register
        original = condition.notify

        def notify(n: int = 1) -> None:  # noqa: ARG001 - nobody can tell whom n would wake
            original(sys.maxsize)
            # The woken cannot run before the notifier frees the condition it holds,
            # so they are still all on the register.
            with register.changed:
                register.wake_on(condition)

        condition.notify = notify  # type: ignore[method-assign]
        condition.notify_all = notify  # type: ignore[method-assign]
        self._watched.add(condition)


@dataclass(frozen=True, slots=True)
class _Parked:
    name: str
    condition: threading.Condition
    until_ns: int | None


class _Register:
    """Who lives by a clock, and whether awake or parked; each thread is one of the two.

    All methods are called with `changed` held, enrol() and forget() alone excepted. No
    condition of a caller is ever acquired under `changed`: waiters come the other way
    round.
    """

    def __init__(self) -> None:
        # Re-entrant, because forget() may come from the garbage collector, anywhere.
        self.changed = threading.Condition(threading.RLock())
        self._numbers = itertools.count()
        self._ended: deque[int] = deque()
        self._awake: dict[int, str] = {}
        self._parked: dict[int, _Parked] = {}

    def enrol(self) -> int:
        """Return a number for a thread that is new here."""
        return next(self._numbers)

    def park(
        self, member: _Member, condition: threading.Condition, until_ns: int | None
    ) -> None:
        """Enter that this thread is about to wait on the condition it holds."""
        self._awake.pop(member.number, None)
        self._parked[member.number] = _Parked(member.name, condition, until_ns)
        self.changed.notify_all()

    def note_awake(self, member: _Member) -> None:
        """Enter that this thread runs."""
        self._parked.pop(member.number, None)
        self._awake[member.number] = member.name

    def forget(self, number: int) -> None:
        """Take note that a thread has ended; is_quiet() strikes it off."""
        self._ended.append(number)
        with self.changed:
            self.changed.notify_all()

    def wake_until(self, now_ns: int) -> list[threading.Condition]:
        """Enter all as awake whose time has come; return what to notify for it."""
        return self._wake(
            number
            for number, parked in self._parked.items()
            if parked.until_ns is not None and parked.until_ns <= now_ns
        )

    def wake_all(self) -> list[threading.Condition]:
        """Enter all as awake; return what to notify for it."""
        return self._wake(self._parked)

    def wake_on(self, condition: threading.Condition) -> None:
        """Enter those as awake who were parked on this condition."""
        self._wake(
            number
            for number, parked in self._parked.items()
            if parked.condition is condition
        )

    def _wake(self, numbers: Iterable[int]) -> list[threading.Condition]:
        conditions: dict[int, threading.Condition] = {}
        for number in list(numbers):
            parked = self._parked.pop(number)
            self._awake[number] = parked.name
            conditions[id(parked.condition)] = parked.condition
        return list(conditions.values())

    def is_quiet(self, own: _Member | None, *, threads: int) -> bool:
        """Return whether all but `own` are parked, and at least so many."""
        while self._ended:
            number = self._ended.popleft()
            self._awake.pop(number, None)
            self._parked.pop(number, None)
        awake = len(self._awake)
        if own is not None and own.number in self._awake:
            awake -= 1
        return awake == 0 and len(self._parked) >= threads

    def describe(self, own: _Member | None) -> str:
        """Return who is awake and who is parked, in words."""
        own_number = None if own is None else own.number
        awake = [name for number, name in self._awake.items() if number != own_number]
        parked = [parked.name for parked in self._parked.values()]
        return f"awake: {awake or 'none'}, parked: {parked or 'none'}"

    def check(self, now_ns: int) -> None:
        """Assert that nobody is both, and that nobody is parked beyond its time."""
        assert not self._awake.keys() & self._parked.keys()
        for parked in self._parked.values():
            assert parked.until_ns is None or parked.until_ns > now_ns, parked


class _Member:
    """One thread's entry, held by that thread's locals alone, so it ends with it."""

    __slots__ = ("_register", "name", "number")

    def __init__(self, register: _Register) -> None:
        self._register = register
        self.name = threading.current_thread().name
        self.number = register.enrol()

    def __del__(self) -> None:
        # Nothing else tells, without polling, that a thread has ended. At the end of
        # the process nobody asks, and a daemon thread may have died with the lock.
        if not sys.is_finalizing():
            self._register.forget(self.number)


def _notify(conditions: list[threading.Condition]) -> None:
    for condition in conditions:
        with condition:
            condition.notify_all()
