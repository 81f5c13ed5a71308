"""The system's clock: what it reads, and how long it waits."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timingwheel.clock import WAIT_MAX_NS, Clock, Reading, SystemClock


class ScriptedClock(SystemClock):
    """The system's arithmetic over times that the test gives, the last one for ever."""

    def __init__(self, *, wall: Iterable[int], monotonic: Iterable[int]) -> None:
        super().__init__()
        self._wall = _then_last_for_ever(wall)
        self._monotonic = _then_last_for_ever(monotonic)
        self.wall_reads = 0

    def wall_ns(self) -> int:
        self.wall_reads += 1
        return next(self._wall)

    def monotonic_ns(self) -> int:
        return next(self._monotonic)


def _then_last_for_ever(times: Iterable[int]) -> Iterator[int]:
    last = 0
    for last in times:
        yield last
    while True:
        yield last


class RecordingCondition(threading.Condition):
    """Notes how long it was asked to wait, and does not wait."""

    def __init__(self) -> None:
        super().__init__()
        self.timeouts: list[float | None] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.timeouts.append(timeout)
        return False


def waited(*, now_ns: int, until_ns: int | None) -> list[float | None]:
    clock = ScriptedClock(wall=[0], monotonic=[now_ns])
    condition = RecordingCondition()
    with condition:
        clock.wait(condition, until_ns)
    return condition.timeouts


def test_the_wall_clock_is_the_systems_time() -> None:
    before = time.time_ns()
    now = SystemClock().wall_ns()
    assert before <= now <= time.time_ns()


def test_the_monotonic_clock_never_goes_back() -> None:
    clock = SystemClock()
    times = [clock.monotonic_ns() for _ in range(10_000)]
    assert times == sorted(times)


@pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="Linux only")
def test_the_monotonic_clock_counts_the_time_a_machine_was_suspended() -> None:
    before = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    now = SystemClock().monotonic_ns()
    assert before <= now <= time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def test_a_system_without_boottime_is_served_by_pythons_monotonic_clock() -> None:
    clock = SystemClock()
    clock._boottime = None
    before = time.monotonic_ns()
    now = clock.monotonic_ns()
    assert before <= now <= time.monotonic_ns()


def test_the_system_clock_is_a_clock() -> None:
    clock: Clock = SystemClock()
    assert clock.read().wall_ns > 0


def test_a_reading_pairs_the_wall_clock_with_the_middle_of_its_neighbours() -> None:
    clock = ScriptedClock(wall=[7_000], monotonic=[100, 140])
    assert clock.read() == Reading(wall_ns=7_000, monotonic_ns=120)
    assert clock.wall_reads == 1


def test_a_reading_that_was_interrupted_is_taken_again() -> None:
    """A thread put aside for 3 ms in between would see a step of 3 ms."""
    clock = ScriptedClock(
        wall=[1_000_000, 4_000_050],
        monotonic=[0, 3_000_000, 3_000_100, 3_000_200],
    )
    assert clock.read() == Reading(wall_ns=4_000_050, monotonic_ns=3_000_150)


def test_a_reading_on_a_busy_machine_is_the_tightest_of_a_bounded_number() -> None:
    spreads_us = [900, 800, 70, 800, 300, 900, 900, 900, 900, 900]
    monotonic, wall, now = [], [], 0
    for spread_us in spreads_us:
        monotonic += [now, now + spread_us * 1_000]
        wall.append(now + spread_us * 500)
        now += spread_us * 1_000 + 10
    clock = ScriptedClock(wall=wall, monotonic=monotonic)

    reading = clock.read()

    assert clock.wall_reads == 8
    assert reading == Reading(wall_ns=wall[2], monotonic_ns=wall[2])


def test_a_reading_may_lie_before_1970_and_at_zero() -> None:
    clock = ScriptedClock(wall=[-5], monotonic=[0, 0])
    assert clock.read() == Reading(wall_ns=-5, monotonic_ns=0)


def test_readings_of_the_system_differ_only_by_time_passed() -> None:
    clock = SystemClock()
    before = clock.monotonic_ns()
    reading = clock.read()
    assert before <= reading.monotonic_ns <= clock.monotonic_ns()


@pytest.mark.parametrize("until_ns", [-1, 0, 999, 1_000])
def test_a_moment_that_has_come_is_not_waited_for(until_ns: int) -> None:
    assert waited(now_ns=1_000, until_ns=until_ns) == []


def test_no_wait_is_longer_than_ten_seconds() -> None:
    assert WAIT_MAX_NS == 10 * 10**9
    assert waited(now_ns=5, until_ns=None) == [10.0]
    assert waited(now_ns=5, until_ns=5 + WAIT_MAX_NS + 1) == [10.0]
    assert waited(now_ns=5, until_ns=2**63) == [10.0]


@given(now_ns=st.integers(0, 2**62), remaining_ns=st.integers(1, WAIT_MAX_NS).map(int))
def test_a_wait_is_never_short_and_at_most_a_microsecond_long(
    now_ns: int, remaining_ns: int
) -> None:
    """Rounded down, the caller would come back early, and come back, and come back."""
    [timeout] = waited(now_ns=now_ns, until_ns=now_ns + remaining_ns)
    assert timeout is not None
    assert timeout >= 1e-6
    # The nearest double lies within 1e-15 of the microsecond; the kernel rounds up.
    excess_ns = Fraction(timeout) * 10**9 - remaining_ns
    assert Fraction(-1, 10**5) < excess_ns < 1_000


def test_a_wait_without_the_lock_is_refused() -> None:
    with pytest.raises(RuntimeError, match="un-acquired"):
        SystemClock().wait(threading.Condition(), None)


def test_a_real_wait_ends_not_before_its_time() -> None:
    clock = SystemClock()
    condition = threading.Condition()
    for wait_us in (1, 10, 100, 1_000):
        until_ns = clock.monotonic_ns() + wait_us * 1_000
        with condition:
            clock.wait(condition, until_ns)
        assert clock.monotonic_ns() >= until_ns


def test_a_real_wait_ends_when_notified() -> None:
    clock = SystemClock()
    condition = threading.Condition()
    ready = False

    def notifier() -> None:
        nonlocal ready
        with condition:  # free only once the waiter waits
            ready = True
            condition.notify_all()

    with condition:
        thread = threading.Thread(target=notifier)
        thread.start()
        while not ready:
            clock.wait(condition, None)
    thread.join()
    assert ready
