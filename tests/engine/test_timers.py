"""What a request does to a timer in each of its states, without threads or a disk."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.engine.stage import (
    SECOND_NS,
    SMALL,
    TICK_S,
    CountingClock,
    fill_up,
    repeat_until,
)
from timingwheel.engine.records import DEADLINE_MAX_NS, TimerId, timer_fired
from timingwheel.engine.timers import BACKOFF_MAX_NS, Timer, Timers, backoff_ns
from timingwheel.engine.volatile import VolatileLog
from timingwheel.errors import (
    ArgumentError,
    BatchTooLargeError,
    DeadlineError,
    EngineClosedError,
    PayloadTooLargeError,
    TimingWheelError,
)
from wal.errors import DiskFullError
from wal.log import Log, RoomNeededError
from wal.testing import MemoryFileSystem


@pytest.fixture
def timers(clock: CountingClock) -> Timers:
    return Timers(VolatileLog(), clock, may_wait=True)


def fire(timers: Timers, clock: CountingClock, seconds: float = 0) -> list[int]:
    clock.advance(seconds)
    return [*timers.core.step(1000).timers]


def attempt(timers: Timers, timer_id: int) -> int:
    timer = timers.get(timer_id)
    assert timer is not None
    return timer.attempt


# -- scheduling ----------------------------------------------------------------------------


def test_a_timer_is_seen_as_it_was_made(timers: Timers, clock: CountingClock) -> None:
    assert timers.schedule(1.5, b"delay") == (1, 1)
    assert timers.schedule_at(77, b"wall") == (2, 2)
    assert timers.schedule_many([2, 3], [b"a", b"b"]) == (range(3, 5), 4)
    now_ns = clock.wall_ns()
    due_ns = now_ns + 1_500_000_000
    assert timers.get(1) == Timer(TimerId(1), due_ns, b"delay", 0, False, False)
    assert timers.get(2) == Timer(TimerId(2), 77, b"wall", 0, False, True)
    assert timers.get(5) is None
    assert len(timers) == 4


def test_an_empty_batch_makes_nothing(timers: Timers) -> None:
    ids, lsn = timers.schedule_many([], [])
    assert (len(ids), lsn, len(timers)) == (0, 0, 0)


def test_a_deadline_is_seen_on_the_wall_clock_as_it_stands(
    timers: Timers, clock: CountingClock
) -> None:
    timers.schedule(100, b"")
    timers.schedule_at(clock.wall_ns() + 100 * SECOND_NS, b"")
    due_ns = clock.wall_ns() + 100 * SECOND_NS
    clock.step(-3600 * SECOND_NS)
    timers.core.step(0)
    moved_ns = due_ns - 3600 * SECOND_NS
    assert [timer.deadline_ns for timer in timers.first(2)] == [moved_ns, due_ns]


def test_the_first_timers_come_in_due_order(timers: Timers) -> None:
    timers.schedule_many([5, 1, 3, 1], [b""] * 4)
    assert [timer.id for timer in timers.first(3)] == [2, 4, 3]
    assert [timer.id for timer in timers.first(100)] == [2, 4, 3, 1]
    assert timers.first(0) == []


@pytest.mark.parametrize("limit", [-1, 1.0, None, "9", True])
def test_a_bad_limit_is_refused(timers: Timers, limit: Any) -> None:
    message = f"limit is {limit!r}: pass a number of timers, 0 or more"
    with pytest.raises(ArgumentError, match=re.escape(message)):
        timers.first(limit)


@pytest.mark.parametrize(
    ("request_", "error", "message"),
    [
        (lambda t: t.schedule(-1, b""), ArgumentError, "^delay is -1: "),
        (lambda t: t.schedule(math.nan, b""), ArgumentError, "^delay is nan: "),
        (lambda t: t.schedule(math.inf, b""), DeadlineError, "^delay is inf: "),
        (
            lambda t: t.schedule(9e9, b""),
            DeadlineError,
            "^delay is 9000000000.0: .*2262",
        ),
        (lambda t: t.schedule(1, "x"), ArgumentError, "^payload is 'x': "),
        (lambda t: t.schedule(1, bytes(1 << 21)), PayloadTooLargeError, "^payload is "),
        (lambda t: t.schedule_at(-1, b""), ArgumentError, "^wall_ns is -1: "),
        (lambda t: t.schedule_at(1 << 63, b""), DeadlineError, "^wall_ns is .*2262"),
        (lambda t: t.schedule_at(1.5, b""), ArgumentError, "^wall_ns is 1.5: "),
        (lambda t: t.schedule_at(1, None), ArgumentError, "^payload is None: "),
        (lambda t: t.schedule_many([1], []), ArgumentError, "^payloads is 0: "),
        (
            lambda t: t.schedule_many([1, 9e9], [b"", b""]),
            DeadlineError,
            r"^delays\[1\] is 9000000000.0: ",
        ),
        (
            lambda t: t.schedule_many([9e9, 1], [b"", b""]),
            DeadlineError,
            r"^delays\[0\] is 9000000000.0: ",
        ),
        (
            lambda t: t.schedule_many([1] * 65_537, [b""] * 65_537),
            BatchTooLargeError,
            "^delays is 65537: ",
        ),
        (lambda t: t.reschedule(1, -2), ArgumentError, "^delay is -2: "),
        (lambda t: t.reschedule(1, 9e9), DeadlineError, "^delay is 9000000000.0: "),
        (lambda t: t.reschedule(0, 1), ArgumentError, "^timer_id is 0: "),
        (lambda t: t.cancel("1"), ArgumentError, "^timer_id is '1': "),
        (lambda t: t.cancel(-5), ArgumentError, "^timer_id is -5: "),
        (lambda t: t.get(1 << 70), ArgumentError, "^timer_id is "),
    ],
)
def test_bad_input_is_refused_by_name_and_nothing_has_changed(
    timers: Timers,
    request_: Callable[[Any], object],
    error: type[Exception],
    message: str,
) -> None:
    timers.schedule(5, b"there")
    before = timers.first(9), timers.core.log.appended_lsn
    with pytest.raises(error, match=message):
        request_(timers)
    assert (timers.first(9), timers.core.log.appended_lsn) == before


# -- the states of a timer -----------------------------------------------------------------


def test_a_waiting_timer_can_be_moved_and_cancelled_once(
    timers: Timers, clock: CountingClock
) -> None:
    timers.schedule_many([1, 1], [b"", b""])
    assert timers.reschedule(1, 5) == (True, 3)
    assert timers.cancel(2) == (True, 4)
    assert timers.cancel(2) == (False, 4)
    assert timers.reschedule(2, 5) == (False, 4)
    assert timers.cancel(999) == (False, 4)
    assert fire(timers, clock, 4.9) == []
    assert fire(timers, clock, 0.2) == [1]


def test_a_moved_wall_timer_is_a_delay_from_then_on(
    timers: Timers, clock: CountingClock
) -> None:
    timers.schedule_at(clock.wall_ns() + SECOND_NS, b"")
    assert timers.reschedule(1, 10)[0]
    clock.step(3600 * SECOND_NS)
    assert fire(timers, clock, 9.9) == []
    assert fire(timers, clock, 0.2) == [1]
    seen = timers.get(1)
    assert seen is not None
    assert not seen.wall


def test_a_fired_timer_is_cancelled_until_a_handler_has_it(
    timers: Timers, clock: CountingClock
) -> None:
    timers.schedule_many([1, 1], [b"a", b"b"])
    assert fire(timers, clock, 2) == [1, 2]
    assert timers.cancel(1)[0]
    assert timers.begin(1) is None
    assert timers.begin(2) == b"b"
    assert timers.cancel(2)[0] is False
    assert timers.reschedule(2, 1)[0] is False
    assert len(timers) == 1


def test_a_fired_timer_that_a_full_disk_does_not_let_go_is_delivered_after_all(
    clock: CountingClock,
) -> None:
    disk = MemoryFileSystem()
    log = Log.open(disk, wall_ns=clock.wall_ns, **SMALL, background=False)
    timers = Timers(log, clock, may_wait=True)
    timers.schedule(1, b"p")
    assert fire(timers, clock, 2) == [1]
    fill_up(timers.core, disk)
    with pytest.raises(DiskFullError):
        timers.cancel(1)
    assert timers.begin(1) is None, "it fires again, whether or not its worker came"
    timers.core.check()
    disk.capacity_bytes = None
    assert fire(timers, clock) == [1]
    assert timers.begin(1) == b"p"
    assert timers.cancel(1)[0] is False


@pytest.mark.parametrize(
    "end",
    [
        lambda timers: timers.acknowledge([1]),
        lambda timers: timers.acknowledge([1, 2]),
        lambda timers: timers.redeliver_later(1),
        lambda timers: timers.cancel(1)[1],
        lambda timers: timers.reschedule(1, 5)[1],
    ],
    ids=["acknowledge", "acknowledge many", "redeliver", "cancel", "reschedule"],
)
def test_what_became_of_a_delivery_is_recorded_out_of_the_reserve_of_a_full_disk(
    clock: CountingClock, end: Callable[[Timers], int]
) -> None:
    disk = MemoryFileSystem()
    log = Log.open(disk, wall_ns=clock.wall_ns, **SMALL, background=False)
    timers = Timers(log, clock, may_wait=True)
    timers.schedule_many([1, 1], [b"", b""])
    assert fire(timers, clock, 2) == [1, 2]
    timers.core.make_room(urgent=False)  # one segment, and one in reserve
    disk.capacity_bytes = disk.used_bytes
    for size in (30_000, 3_000, 300, 0):
        repeat_until(DiskFullError, functools.partial(timers.schedule, 99, bytes(size)))
    before = log.appended_lsn
    assert end(timers) == before + 1


def test_a_fired_timer_that_is_moved_fires_again_at_its_new_deadline(
    timers: Timers, clock: CountingClock
) -> None:
    timers.schedule(1, b"p")
    assert fire(timers, clock, 2) == [1]
    assert timers.reschedule(1, 7)[0]
    assert timers.begin(1) is None  # what a worker finds in its queue
    assert fire(timers, clock, 6.9) == []
    assert fire(timers, clock, 0.2) == [1]
    assert timers.begin(1) == b"p"
    assert attempt(timers, 1) == 2


def test_of_many_that_fire_at_once_each_counts_its_own_deliveries(
    timers: Timers, clock: CountingClock
) -> None:
    ids: list[int] = []
    for count in (1, 2, 3, 4):
        ids.append(timers.schedule(0, b"")[0])
        assert sorted(fire(timers, clock, TICK_S)) == ids
        assert [attempt(timers, timer_id) for timer_id in ids] == [*range(count, 0, -1)]
        for timer_id in ids:
            timers.begin(timer_id)
            timers.redeliver_later(timer_id)
        clock.advance(BACKOFF_MAX_NS // SECOND_NS)


def test_a_timer_is_given_to_one_handler_at_a_time(
    timers: Timers, clock: CountingClock
) -> None:
    timers.schedule(1, b"p")
    fire(timers, clock, 2)
    timers.reschedule(1, 0)
    assert fire(timers, clock, 1) == [1]  # so it is in the queue twice
    assert timers.begin(1) == b"p"
    assert timers.begin(1) is None


def test_an_acknowledged_timer_is_gone(timers: Timers, clock: CountingClock) -> None:
    timers.schedule(1, b"p")
    fire(timers, clock, 2)
    timers.begin(1)
    assert timers.acknowledge([1]) == 3
    assert len(timers) == 0
    assert timers.begin(1) is None
    assert timers.cancel(1)[0] is False
    timers.core.check()


def test_a_timer_whose_handler_raised_waits_longer_each_time(
    timers: Timers, clock: CountingClock
) -> None:
    """1 s, 2 s, 4 s, ... 10 minutes, without end."""
    timers.schedule(0.5, b"p")
    clock.advance(0.6)
    waits = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 600, 600]
    for number, seconds in enumerate(waits, 1):
        assert fire(timers, clock) == [1]
        assert timers.begin(1) == b"p"
        assert attempt(timers, 1) == number
        timers.redeliver_later(1)
        assert fire(timers, clock, seconds - 0.001) == []
        clock.advance(0.002)
    timers.core.check()


@pytest.mark.parametrize("attempts", [11, 1_000, 2**32 - 1])
def test_the_backoff_ends_at_ten_minutes(attempts: int) -> None:
    assert backoff_ns(attempts) == BACKOFF_MAX_NS == 600 * SECOND_NS


def test_a_timer_that_waits_for_redelivery_can_be_cancelled_and_moved(
    timers: Timers, clock: CountingClock
) -> None:
    timers.schedule_many([1, 1], [b"a", b"b"])
    fire(timers, clock, 2)
    for timer_id in (1, 2):
        timers.begin(timer_id)
        timers.redeliver_later(timer_id)
    assert timers.cancel(1)[0]
    assert timers.reschedule(2, 50)[0]
    assert fire(timers, clock, 49.9) == []
    assert fire(timers, clock, 0.2) == [2]
    assert timers.begin(2) == b"b"
    assert attempt(timers, 2) == 2


class Interrupted(Timers):
    """Between the record of a failed delivery and the worker's next line, others act."""

    def redeliver_later(self, timer_id: int) -> int:
        submit = self._submit

        def submit_and_pause(*args: Any, **options: Any) -> int:
            lsn = submit(*args, **options)
            self._submit = submit
            self.meanwhile()
            return lsn

        self._submit = submit_and_pause
        return super().redeliver_later(timer_id)

    def meanwhile(self) -> None:
        """Overridden by the test."""


def test_a_timer_that_fires_before_its_former_worker_let_go_is_delivered(
    clock: CountingClock,
) -> None:
    begun: list[bytes | None] = []

    class Meanwhile(Interrupted):
        def meanwhile(self) -> None:
            assert self.reschedule(1, 0)[0]
            assert fire(self, clock, 1) == [1]
            begun.append(self.begin(1))

    timers = Meanwhile(VolatileLog(), clock, may_wait=True)
    timers.schedule(1, b"p")
    fire(timers, clock, 2)
    timers.begin(1)
    timers.redeliver_later(1)
    assert begun == [b"p"]
    assert timers.cancel(1)[0] is False  # it runs, and for that nobody may cancel it
    timers.acknowledge([1])
    assert len(timers) == 0


# -- other owners, and the end -------------------------------------------------------------


def open_log(disk: MemoryFileSystem, clock: CountingClock) -> Log:
    return Log.open(
        disk,
        wall_ns=clock.wall_ns,
        segment_size_bytes=5120,
        reserve_bytes=0,
        background=False,
    )


def test_a_directory_of_another_owner_is_refused_and_untouched(
    clock: CountingClock,
) -> None:
    disk = MemoryFileSystem()
    with open_log(disk, clock) as log:
        log.commit(log.append(bytes([64]) + b"a job"))
    before = disk.snapshot_of_all()
    log = open_log(disk, clock)
    with (
        log,
        pytest.raises(ArgumentError, match=r"^path is .*LSN 1 of kind 64.*Scheduler"),
    ):
        Timers(log, clock, may_wait=True)
    assert disk.snapshot_of_all() == before


def test_a_snapshot_of_another_owner_is_refused_too(clock: CountingClock) -> None:
    disk = MemoryFileSystem()
    with open_log(disk, clock) as log:
        log.commit(log.append(bytes([6]) + bytes(8)))
        writer = log.begin_snapshot()
        writer.add(bytes([64]) + b"jobs")
        log.finish_snapshot(writer, reach_lsn=1)
    log = open_log(disk, clock)
    with (
        log,
        pytest.raises(ArgumentError, match=r"^path is 'a snapshot of another owner'"),
    ):
        Timers(log, clock, may_wait=True)


def test_a_record_that_names_a_missing_timer_is_refused(clock: CountingClock) -> None:
    disk = MemoryFileSystem()
    with open_log(disk, clock) as log:
        log.commit(log.append(timer_fired(5, 1)))
    log = open_log(disk, clock)
    with log, pytest.raises(TimingWheelError, match="LSN 1 changes timer 5"):
        Timers(log, clock, may_wait=True)


def test_requests_that_may_not_wait_say_that_there_is_no_room(
    clock: CountingClock,
) -> None:
    log = open_log(MemoryFileSystem(), clock)
    timers = Timers(log, clock, may_wait=False)
    known = repeat_until(
        RoomNeededError,
        lambda: timers.core.commit(timers.schedule(1, bytes(300))[1]),
    )
    timers.core.make_room(urgent=False)
    timers.core.commit(timers.schedule(1, bytes(300))[1])
    assert len(timers) == known + 1
    timers.core.close()


def test_reads_raise_after_the_end(timers: Timers) -> None:
    timers.schedule(1, b"")
    timers.core.close()
    for read in (
        lambda: len(timers),
        lambda: timers.get(1),
        lambda: timers.first(1),
        lambda: timers.begin(1),
    ):
        with pytest.raises(EngineClosedError):
            read()


def test_the_last_deadline_that_fits_is_held(
    timers: Timers, clock: CountingClock
) -> None:
    timer_id, _ = timers.schedule_at(DEADLINE_MAX_NS, b"2262")
    assert fire(timers, clock, 10**8) == []
    seen = timers.get(timer_id)
    assert seen is not None
    assert seen.deadline_ns == DEADLINE_MAX_NS
    timers.core.check()
