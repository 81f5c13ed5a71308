"""The manual clock: time, threads that live by it, and when all is quiet."""

from __future__ import annotations

import doctest
import math
import random
import threading
from collections.abc import Callable, Iterator

import pytest

import timingwheel.manual_clock
from timingwheel.clock import Clock, Reading
from timingwheel.errors import ArgumentError
from timingwheel.manual_clock import ManualClock

SECOND_NS = 1_000_000_000


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(wall_ns=5_000 * SECOND_NS, monotonic_ns=0)


class Ticker(threading.Thread):
    """A thread as the engine's: at every deadline, and at every notice, it counts."""

    def __init__(self, clock: Clock, deadlines_ns: list[int]) -> None:
        super().__init__(daemon=True)
        self.clock = clock
        self.condition = threading.Condition()
        self.deadlines_ns = deadlines_ns
        self.fired_ns: list[int] = []
        self.wakeups = 0
        self.notices = 0
        self.notices_seen = 0
        self.on_fire: Callable[[], None] = lambda: None
        self.stopping = False

    def run(self) -> None:
        with self.condition:
            while not self.stopping:
                self.notices_seen = self.notices
                while self.deadlines_ns and (
                    self.deadlines_ns[0] <= self.clock.monotonic_ns()
                ):
                    self.fired_ns.append(self.deadlines_ns.pop(0))
                    self.on_fire()
                until_ns = self.deadlines_ns[0] if self.deadlines_ns else None
                self.clock.wait(self.condition, until_ns)
                self.wakeups += 1

    def notice(self, *, all_waiters: bool = True) -> None:
        with self.condition:
            self.notices += 1
            if all_waiters:
                self.condition.notify_all()
            else:
                self.condition.notify()

    def stop(self) -> None:
        with self.condition:
            self.stopping = True
            self.condition.notify_all()


@pytest.fixture
def start(clock: ManualClock) -> Iterator[Callable[..., Ticker]]:
    tickers: list[Ticker] = []

    def start_one(*deadlines_ns: int) -> Ticker:
        ticker = Ticker(clock, list(deadlines_ns))
        tickers.append(ticker)
        ticker.start()
        clock.settle(threads=len(tickers))
        return ticker

    yield start_one
    for ticker in tickers:
        ticker.stop()
        ticker.join()


def test_time_stands_still_until_it_is_moved(clock: ManualClock) -> None:
    assert clock.read() == clock.read() == Reading(5_000 * SECOND_NS, 0)


def test_advance_moves_both_clocks_exactly(clock: ManualClock) -> None:
    clock.advance(3)
    clock.advance(0.1)
    clock.advance(ns=7)
    clock.advance(1, ns=1)
    assert clock.monotonic_ns() == 4_100_000_008
    assert clock.wall_ns() == 5_000 * SECOND_NS + 4_100_000_008


def test_an_int_of_seconds_is_exact_where_a_float_is_not(clock: ManualClock) -> None:
    clock.advance(2**53 + 1)
    assert clock.monotonic_ns() == (2**53 + 1) * SECOND_NS


@pytest.mark.parametrize("seconds", [-1, -1e-9, math.nan, math.inf, -math.inf])
def test_time_cannot_be_advanced_by_less_than_nothing_or_by_no_number(
    clock: ManualClock, seconds: float
) -> None:
    with pytest.raises(ArgumentError, match=r"seconds is .*: time only advances"):
        clock.advance(seconds)
    with pytest.raises(ArgumentError, match="ns is -1"):
        clock.advance(ns=-1)
    with pytest.raises(ArgumentError, match="ns is -1"):
        clock.suspend(-1)
    assert clock.monotonic_ns() == 0


def test_a_step_moves_the_wall_clock_alone(clock: ManualClock) -> None:
    clock.step(-7_200 * SECOND_NS)
    assert clock.read() == Reading(-2_200 * SECOND_NS, 0)


def test_suspended_time_counts_where_the_system_can_tell(clock: ManualClock) -> None:
    """An hour's timer in a machine that sleeps 15 minutes has 45 minutes left."""
    deadline_ns = clock.monotonic_ns() + 3_600 * SECOND_NS
    clock.suspend(900 * SECOND_NS)
    assert deadline_ns - clock.monotonic_ns() == 2_700 * SECOND_NS
    assert clock.wall_ns() == 5_900 * SECOND_NS


def test_suspended_time_looks_like_a_step_where_it_cannot(clock: ManualClock) -> None:
    clock.suspend(900 * SECOND_NS, boottime=False)
    assert clock.read() == Reading(5_900 * SECOND_NS, 0)


def test_a_parked_thread_wakes_when_its_time_has_come_and_not_before(
    clock: ManualClock, start: Callable[..., Ticker]
) -> None:
    ticker = start(5 * SECOND_NS, 6 * SECOND_NS)
    clock.advance(ns=5 * SECOND_NS - 1)
    clock.settle()
    assert (ticker.fired_ns, ticker.wakeups) == ([], 0)
    clock.advance(ns=1)
    clock.settle()
    assert (ticker.fired_ns, ticker.wakeups) == ([5 * SECOND_NS], 1)
    clock.advance(100)
    clock.settle()
    assert (ticker.fired_ns, ticker.wakeups) == ([5 * SECOND_NS, 6 * SECOND_NS], 2)


def test_advance_wakes_only_those_who_are_due(
    clock: ManualClock, start: Callable[..., Ticker]
) -> None:
    early, late, idle = start(SECOND_NS), start(9 * SECOND_NS), start()
    clock.advance(1)
    clock.settle()
    assert [t.wakeups for t in (early, late, idle)] == [1, 0, 0]


@pytest.mark.parametrize(
    "move",
    [
        lambda clock: clock.step(1),
        lambda clock: clock.step(-SECOND_NS),
        lambda clock: clock.suspend(0),
        lambda clock: clock.suspend(0, boottime=False),
    ],
)
def test_a_step_and_a_suspend_make_everyone_look_at_the_clock(
    clock: ManualClock,
    start: Callable[..., Ticker],
    move: Callable[[ManualClock], None],
) -> None:
    tickers = [start(9 * SECOND_NS), start()]
    move(clock)
    clock.settle()
    assert [ticker.wakeups for ticker in tickers] == [1, 1]


def test_a_moment_that_has_come_is_not_waited_for(clock: ManualClock) -> None:
    condition = threading.Condition()
    clock.advance(1)
    with condition:
        clock.wait(condition, SECOND_NS)
        clock.wait(condition, -1)


def test_a_wait_without_the_lock_is_refused_and_leaves_nobody_parked(
    clock: ManualClock,
) -> None:
    with pytest.raises(RuntimeError, match="un-acquired"):
        clock.wait(threading.Condition(), None)
    with pytest.raises(TimeoutError, match="at least 1 parked"):
        clock.settle(0.01, threads=1)


@pytest.mark.parametrize("all_waiters", [True, False])
def test_settle_waits_for_a_thread_that_was_notified_and_has_not_yet_run(
    clock: ManualClock, start: Callable[..., Ticker], *, all_waiters: bool
) -> None:
    """The window between notify and the thread's first line is where others guess."""
    ticker = start()
    for round_ in range(1, 500):
        ticker.notice(all_waiters=all_waiters)
        clock.settle()
        assert ticker.notices_seen == round_


def test_settle_waits_for_a_thread_that_time_has_woken(
    clock: ManualClock, start: Callable[..., Ticker]
) -> None:
    ticker = start(*range(1, 500))
    for fired in range(1, 500):
        clock.advance(ns=1)
        clock.settle()
        assert len(ticker.fired_ns) == fired


def test_settle_waits_for_the_end_of_a_chain_of_hand_overs(
    clock: ManualClock, start: Callable[..., Ticker]
) -> None:
    first, *others = (start(1) if n == 0 else start() for n in range(6))
    chain = [first, *others]
    for giver, taker in zip(chain, others, strict=False):
        # Each is woken by the one before it, who parks again at once.
        taker.deadlines_ns = [1]
        giver.on_fire = taker.notice
    clock.advance(ns=1)
    clock.settle()
    assert [ticker.fired_ns for ticker in chain] == [[1]] * 6


def test_settle_counts_a_thread_that_ends_as_quiet(
    clock: ManualClock, start: Callable[..., Ticker]
) -> None:
    living = start()
    for _ in range(100):
        ending = Ticker(clock, [])
        ending.start()
        clock.settle(threads=2)
        ending.stop()
        living.notice()
        clock.settle()
        assert living.notices_seen == living.notices


def test_threads_that_came_and_went_leave_nothing_behind(clock: ManualClock) -> None:
    for _ in range(50):
        ticker = Ticker(clock, [])
        ticker.start()
        clock.settle(threads=1)
        ticker.stop()
        ticker.join()
    clock.settle()
    assert not clock._register._awake
    assert not clock._register._parked


def test_settle_does_not_wait_for_its_own_caller(clock: ManualClock) -> None:
    condition = threading.Condition()
    with condition:
        clock.wait(condition, 0)
    clock.settle()


def test_settle_names_the_thread_that_does_not_come_to_rest(
    clock: ManualClock,
) -> None:
    release = threading.Event()
    condition = threading.Condition()

    def leaves_and_waits_elsewhere() -> None:
        with condition:
            clock.wait(condition, 0)
        release.wait()

    thread = threading.Thread(target=leaves_and_waits_elsewhere, name="runaway")
    thread.start()
    try:
        with pytest.raises(TimeoutError, match=r"awake: \['runaway'\], parked: none"):
            clock.settle(0.05, threads=1)
    finally:
        release.set()
        thread.join()
    clock.settle()


def test_a_handler_that_waits_through_the_clock_counts_as_quiet(
    clock: ManualClock, start: Callable[..., Ticker]
) -> None:
    door = threading.Condition()
    opened = False

    def hold_up() -> None:
        with door:
            while not opened:
                clock.wait(door, None)

    ticker = start(1)
    ticker.on_fire = hold_up
    clock.advance(ns=1)
    clock.settle()
    assert ticker.wakeups == 1
    with door:
        opened = True
        door.notify_all()
    clock.settle()
    assert not ticker.deadlines_ns
    clock.step(1)
    clock.settle()
    assert ticker.wakeups == 2


def test_several_threads_may_wait_on_one_condition(clock: ManualClock) -> None:
    condition = threading.Condition()
    jobs: list[int] = []
    done: list[int] = []
    stopping = False

    def worker() -> None:
        with condition:
            while not stopping:
                while jobs:
                    done.append(jobs.pop())
                clock.wait(condition, None)

    threads = [threading.Thread(target=worker) for _ in range(4)]
    for thread in threads:
        thread.start()
    clock.settle(threads=4)
    for job in range(100):
        with condition:
            jobs.append(job)
            condition.notify()
        clock.settle(threads=4)
        assert done == list(range(job + 1))
    with condition:
        stopping = True
        condition.notify_all()
    for thread in threads:
        thread.join()


def test_time_can_be_moved_by_a_thread_that_holds_a_condition(
    clock: ManualClock, start: Callable[..., Ticker]
) -> None:
    """So it is when a handler moves the clock."""
    ticker = start(1, 2)
    ticker.on_fire = lambda: clock.advance(ns=1)
    clock.advance(ns=1)
    clock.settle()
    assert ticker.fired_ns == [1, 2]


def test_moving_time_and_waiting_from_many_threads_never_deadlocks(
    clock: ManualClock, start: Callable[..., Ticker], rng: random.Random
) -> None:
    tickers = [start(*range(1, 400)) for _ in range(4)]

    def mover(seed: int) -> None:
        own = random.Random(seed)
        for _ in range(100):
            match own.randrange(5):
                case 0:
                    clock.step(own.randrange(-5, 5))
                case 1:
                    clock.suspend(0)
                case 2:
                    own.choice(tickers).notice()
                case _:
                    clock.advance(ns=1)

    movers = [
        threading.Thread(target=mover, args=(rng.getrandbits(32),)) for _ in range(4)
    ]
    for thread in movers:
        thread.start()
    for thread in movers:
        thread.join()
    clock.settle(threads=4)
    clock.check()
    due = list(range(1, clock.monotonic_ns() + 1))
    assert [ticker.fired_ns for ticker in tickers] == [due] * 4


def test_the_examples_in_the_docstrings_hold() -> None:
    results = doctest.testmod(timingwheel.manual_clock)
    assert results.attempted > 0
    assert results.failed == 0
