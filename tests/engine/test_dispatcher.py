"""The worker pool: order, cap, what waits, and how it ends."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from tests.engine.stage import PATIENCE_S, CountingClock, Door
from timingwheel.engine.dispatcher import QUEUE_MAX, Dispatcher
from timingwheel.engine.records import TimerId


class Deliveries:
    """A `deliver` that notes what comes, and holds up what it is told to."""

    def __init__(self) -> None:
        self.done: list[int] = []
        self.doors: dict[int, Door] = {}
        self.most_at_once = 0
        self._now = 0
        self._changed = threading.Condition()

    def __call__(self, timer_id: TimerId) -> None:
        with self._changed:
            self._now += 1
            self.most_at_once = max(self.most_at_once, self._now)
            door = self.doors.get(timer_id)
        if door is not None:
            door()
        with self._changed:
            self._now -= 1
            self.done.append(timer_id)
            self._changed.notify_all()

    def wait_for(self, count: int) -> list[int]:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.done) >= count, PATIENCE_S)
            return [*self.done]


@pytest.fixture
def deliveries() -> Deliveries:
    return Deliveries()


MakeDispatcher = Callable[..., Dispatcher]


@pytest.fixture
def make(deliveries: Deliveries, clock: CountingClock) -> Iterator[MakeDispatcher]:
    made: list[Dispatcher] = []

    def make_one(
        workers: int, on_space: Callable[[], None] = lambda: None
    ) -> Dispatcher:
        made.append(Dispatcher(deliveries, clock, workers=workers, on_space=on_space))
        return made[-1]

    yield make_one
    for door in deliveries.doors.values():
        door.open()
    for dispatcher in made:
        dispatcher.stop(PATIENCE_S)


def ids(*numbers: int) -> list[TimerId]:
    return [TimerId(number) for number in numbers]


def test_one_worker_delivers_in_order(
    make: MakeDispatcher, deliveries: Deliveries
) -> None:
    dispatcher = make(1)
    dispatcher.put(ids(*range(1, 500)))
    dispatcher.put(ids(*range(500, 1000)))
    assert deliveries.wait_for(999) == list(range(1, 1000))


def test_no_more_run_at_once_than_there_are_workers(
    make: MakeDispatcher, deliveries: Deliveries
) -> None:
    deliveries.doors = {n: Door() for n in range(1, 9)}
    dispatcher = make(3)
    dispatcher.put(ids(*range(1, 9)))
    for number in (1, 2, 3):
        deliveries.doors[number].await_somebody()
    assert not deliveries.doors[4].reached.is_set()
    for door in deliveries.doors.values():
        door.open()
    deliveries.wait_for(8)
    assert deliveries.most_at_once == 3


def test_a_slow_handler_delays_nobody_while_a_worker_is_free(
    make: MakeDispatcher, deliveries: Deliveries
) -> None:
    deliveries.doors[1] = Door()
    dispatcher = make(2)
    dispatcher.put(ids(1))
    deliveries.doors[1].await_somebody()
    for number in range(2, 100):
        dispatcher.put(ids(number))
    assert deliveries.wait_for(98) == list(range(2, 100))


def test_threads_start_when_they_are_needed(
    make: MakeDispatcher, deliveries: Deliveries
) -> None:
    dispatcher = make(8)
    assert not dispatcher._threads
    for number in range(1, 50):
        dispatcher.put(ids(number))
        deliveries.wait_for(number)
    assert 1 <= len(dispatcher._threads) <= 8


def test_who_rests_is_woken_before_another_is_started(
    make: MakeDispatcher, deliveries: Deliveries, clock: CountingClock
) -> None:
    dispatcher = make(8)
    for number in range(1, 9):
        dispatcher.put(ids(number))
        clock.settle(PATIENCE_S)
    assert len(dispatcher._threads) == 1
    assert deliveries.done == list(range(1, 9))


def test_as_many_as_rest_are_woken_before_another_is_started(
    make: MakeDispatcher, deliveries: Deliveries, clock: CountingClock
) -> None:
    deliveries.doors = {number: Door(clock) for number in (1, 2, 3)}
    dispatcher = make(6)
    dispatcher.put(ids(1, 2, 3))
    for door in deliveries.doors.values():
        door.await_somebody()
        door.open()
    clock.settle(PATIENCE_S, threads=3)
    dispatcher.put(ids(4, 5, 6))
    clock.settle(PATIENCE_S, threads=3)
    assert len(dispatcher._threads) == 3
    dispatcher.put(ids(*range(7, 12)))
    clock.settle(PATIENCE_S, threads=5)
    assert len(dispatcher._threads) == 5


def test_its_threads_are_numbered_and_keep_no_process_alive(
    make: MakeDispatcher, deliveries: Deliveries
) -> None:
    deliveries.doors = {number: Door() for number in (1, 2, 3)}
    dispatcher = make(3)
    dispatcher.put(ids(1, 2, 3))
    threads = dispatcher._threads
    names = sorted(thread.name for thread in threads)
    assert names == [f"timingwheel-worker-{number}" for number in (0, 1, 2)]
    assert all(thread.daemon for thread in threads)


def test_every_timer_of_a_burst_gets_a_worker_of_its_own_while_there_are_some(
    make: MakeDispatcher, deliveries: Deliveries
) -> None:
    """A worker that was woken and has not run yet must not count as free twice."""
    dispatcher = make(6)
    dispatcher.put(ids(*range(100, 106)))
    deliveries.wait_for(6)
    deliveries.doors = {n: Door() for n in range(1, 7)}
    for number in range(1, 7):
        dispatcher.put(ids(number))
    for door in deliveries.doors.values():
        door.await_somebody()


def test_a_full_queue_has_no_room_until_half_of_it_has_gone(
    make: MakeDispatcher, deliveries: Deliveries
) -> None:
    calls: list[int] = []
    half = QUEUE_MAX // 2
    deliveries.doors = {1: Door(), half: Door()}
    dispatcher: Dispatcher = make(1, lambda: calls.append(dispatcher.room))
    assert dispatcher.room == QUEUE_MAX
    dispatcher.put(ids(1))
    deliveries.doors[1].await_somebody()
    dispatcher.put(ids(*range(2, QUEUE_MAX + 2)))
    assert dispatcher.room == 0
    deliveries.doors[1].open()
    deliveries.doors[half].await_somebody()
    assert (dispatcher.room, calls) == (0, [])
    deliveries.doors[half].open()
    deliveries.wait_for(QUEUE_MAX + 1)
    assert calls == [half], "the tick thread is told once, when half is free"
    assert dispatcher.room == QUEUE_MAX


def test_while_there_was_room_all_along_nobody_is_told_of_it(
    make: MakeDispatcher, deliveries: Deliveries
) -> None:
    calls: list[int] = []
    dispatcher: Dispatcher = make(1, lambda: calls.append(dispatcher.room))
    dispatcher.put(ids(*range(1, QUEUE_MAX // 2 + 1)))
    deliveries.wait_for(QUEUE_MAX // 2)
    assert calls == []


def test_stopping_starts_nothing_more_and_waits_for_what_runs(
    make: MakeDispatcher, deliveries: Deliveries
) -> None:
    deliveries.doors[1] = Door()
    dispatcher = make(1)
    dispatcher.put(ids(1, 2, 3))
    deliveries.doors[1].await_somebody()
    ended: list[bool] = []
    stopping = threading.Thread(
        target=lambda: ended.append(dispatcher.stop(PATIENCE_S))
    )
    stopping.start()
    with dispatcher._changed:
        dispatcher._changed.wait_for(lambda: dispatcher._stopped, PATIENCE_S)
    deliveries.doors[1].open()
    stopping.join(PATIENCE_S)
    assert ended == [True]
    assert deliveries.done == [1]
    dispatcher.put(ids(4))
    assert not dispatcher._queue


def test_a_handler_that_takes_longer_than_the_grace_is_left_behind(
    make: MakeDispatcher, deliveries: Deliveries
) -> None:
    deliveries.doors[1] = Door()
    dispatcher = make(1)
    dispatcher.put(ids(1))
    deliveries.doors[1].await_somebody()
    assert dispatcher.stop(0) is False


def test_while_one_of_several_handlers_runs_they_have_not_all_ended(
    make: MakeDispatcher, deliveries: Deliveries, clock: CountingClock
) -> None:
    deliveries.doors = {number: Door(clock) for number in (1, 2)}
    dispatcher = make(2)
    dispatcher.put(ids(1, 2))
    for door in deliveries.doors.values():
        door.await_somebody()
    deliveries.doors[1].open()
    deliveries.wait_for(1)
    clock.settle(PATIENCE_S, threads=2)
    assert dispatcher.stop(0) is False
    deliveries.doors[2].open()
    assert dispatcher.stop(PATIENCE_S) is True


def test_a_handler_may_stop_its_own_pool(clock: CountingClock) -> None:
    ended: list[bool] = []
    done = threading.Event()

    def deliver(_: TimerId) -> None:
        ended.append(dispatcher.stop(PATIENCE_S))
        done.set()

    dispatcher = Dispatcher(deliver, clock, workers=2, on_space=lambda: None)
    dispatcher.put(ids(1))
    assert done.wait(PATIENCE_S)
    assert ended == [True]


def test_idle_workers_end_when_it_stops(
    make: MakeDispatcher, deliveries: Deliveries
) -> None:
    dispatcher = make(4)
    dispatcher.put(ids(1, 2, 3, 4))
    deliveries.wait_for(4)
    threads = [*dispatcher._threads]
    assert dispatcher.stop(PATIENCE_S)
    for thread in threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


def test_workers_that_had_nothing_to_do_for_ten_seconds_end_and_come_again(
    make: MakeDispatcher, deliveries: Deliveries, clock: CountingClock
) -> None:
    """So an idle engine wakes nobody: each waits no longer than the clock allows."""
    dispatcher = make(4)
    dispatcher.put(ids(1, 2, 3, 4))
    deliveries.wait_for(4)
    clock.settle(PATIENCE_S)
    threads = [*dispatcher._threads]
    assert threads
    clock.advance(9.9)
    clock.step(1)  # wakes whoever is parked
    clock.settle(PATIENCE_S)
    assert {*threads} == dispatcher._threads
    clock.advance(0.1)
    clock.step(1)
    for thread in threads:
        thread.join(PATIENCE_S)
    assert not dispatcher._threads
    dispatcher.put(ids(5))
    assert deliveries.wait_for(5)[4] == 5


def test_a_manual_clock_waits_for_workers_that_have_only_just_started(
    make: MakeDispatcher, deliveries: Deliveries, clock: CountingClock
) -> None:
    dispatcher = make(2)
    for number in range(1, 200):
        dispatcher.put(ids(number))
        clock.settle(PATIENCE_S)
        assert len(deliveries.done) == number
        if number % 20 == 0:
            clock.advance(10)
            clock.step(1)
            clock.settle(PATIENCE_S)
