"""The tick thread: when it wakes, what it hands on, and what can stop it."""

from __future__ import annotations

import errno
import logging
import threading
from collections.abc import Callable, Iterator

import pytest

from tests.engine.stage import (
    PATIENCE_S,
    SECOND_NS,
    SMALL,
    CountingClock,
    Door,
    GatedDisk,
    fill_up,
)
from tests.wal.stores import segments_of
from timingwheel.engine.acknowledgements import Acknowledgements
from timingwheel.engine.records import TimerId
from timingwheel.engine.ticker import Ticker
from timingwheel.engine.timers import Timers
from timingwheel.engine.volatile import VolatileLog
from wal.log import Log
from wal.testing import MemoryFileSystem


class Stage:
    """A ticker over timers, with a queue whose room the test sets."""

    def __init__(self, clock: CountingClock, disk: MemoryFileSystem | None) -> None:
        log: Log | VolatileLog = VolatileLog()
        if disk is not None:
            log = Log.open(disk, wall_ns=clock.wall_ns, **SMALL)
        self.clock = clock
        self.timers = Timers(log, clock, may_wait=True)
        self.core = self.timers.core
        self.room = 100
        self.fired: list[int] = []
        self.ticker = Ticker(
            self.core,
            clock,
            room=lambda: self.room,
            deliver=self.deliver,
            ended=Acknowledgements(self.timers),
        )

    def deliver(self, timer_ids: list[TimerId]) -> None:
        self.fired += timer_ids

    def start(self) -> None:
        self.ticker.start()
        self.settle()

    def settle(self) -> list[int]:
        """Return what fired, once the thread waits again."""
        self.clock.settle(PATIENCE_S, threads=1)
        return self.fired

    def schedule(self, *delays: float) -> list[int]:
        ids, lsn = self.timers.schedule_many(delays, [b""] * len(delays))
        self.core.commit(lsn)
        return [*ids]

    @property
    def waits(self) -> int:
        return len(self.clock.untils)


MakeStage = Callable[..., Stage]


@pytest.fixture
def make(clock: CountingClock) -> Iterator[MakeStage]:
    stages: list[Stage] = []

    def make_one(disk: MemoryFileSystem | None = None) -> Stage:
        stages.append(Stage(clock, disk))
        return stages[-1]

    yield make_one
    for stage in stages:
        stage.ticker.stop()
        stage.core.close()


def test_timers_are_handed_on_when_they_are_due_in_order(
    make: MakeStage, clock: CountingClock
) -> None:
    stage = make()
    stage.schedule(3, 1, 2, 1)
    stage.start()
    for seconds, fired in [
        (0.99, []),
        (0.02, [2, 4]),
        (1, [2, 4, 3]),
        (9, [2, 4, 3, 1]),
    ]:
        clock.advance(seconds)
        assert stage.settle() == fired


def test_its_thread_has_a_name_and_keeps_no_process_alive(make: MakeStage) -> None:
    thread = make().ticker._thread
    assert (thread.name, thread.daemon) == ("timingwheel-tick", True)


def test_overdue_timers_fire_at_once(make: MakeStage, clock: CountingClock) -> None:
    stage = make()
    stage.schedule(2, 1, 1)
    clock.advance(60)
    stage.start()
    assert stage.settle() == [2, 3, 1]


def test_only_an_earlier_timer_wakes_the_thread(
    make: MakeStage, clock: CountingClock
) -> None:
    stage = make()
    stage.start()
    assert stage.waits == 1
    stage.schedule(10)
    stage.settle()
    assert stage.waits == 2
    stage.schedule(*range(11, 300))
    stage.timers.cancel(1)  # the head: at most one wake-up for nothing, later
    stage.timers.reschedule(2, 500)
    stage.settle()
    assert stage.waits == 2
    earlier = stage.schedule(5)
    stage.settle()
    assert stage.waits == 3
    clock.advance(5.1)
    assert stage.settle() == earlier


def test_with_nothing_due_it_hardly_ever_wakes(
    make: MakeStage, clock: CountingClock
) -> None:
    """Less than once in ten seconds, which the system's clock adds by itself."""
    stage = make()
    stage.schedule(*(3600 + number for number in range(5_000)))
    stage.start()
    for _ in range(359):
        clock.advance(10)
        assert stage.settle() == []
    assert stage.waits < 20


def test_when_nobody_has_room_it_waits_to_be_told(
    make: MakeStage, clock: CountingClock
) -> None:
    stage = make()
    stage.schedule(*[1] * 5)
    stage.room = 2
    stage.start()
    deliver = stage.deliver

    def deliver_and_fill(timer_ids: list[TimerId]) -> None:
        deliver(timer_ids)
        stage.room = 0

    stage.ticker._deliver = deliver_and_fill
    clock.advance(2)
    assert stage.settle() == [1, 2]
    clock.advance(10)
    assert stage.settle() == [1, 2]
    stage.room = 9
    stage.ticker.wake()
    assert stage.settle() == [1, 2, 3, 4, 5]


def test_a_step_of_the_clock_is_seen_both_ways(
    make: MakeStage, clock: CountingClock
) -> None:
    stage = make()
    stage.timers.schedule_at(clock.wall_ns() + 3600 * SECOND_NS, b"")
    stage.schedule(60)
    stage.start()
    clock.step(3601 * SECOND_NS)
    assert stage.settle() == [1]
    clock.step(-9000 * SECOND_NS)
    assert stage.settle() == [1]
    clock.advance(60.1)
    assert stage.settle() == [1, 2]


def test_nothing_is_handed_on_before_it_is_durable(
    make: MakeStage, clock: CountingClock
) -> None:
    disk = GatedDisk()
    stage = make(disk)
    stage.schedule(1)
    stage.start()
    gate = disk.gate = Door()
    clock.advance(2)
    gate.await_somebody()
    assert stage.fired == []
    assert stage.core.log.durable_lsn == 1
    gate.open()
    assert stage.settle() == [1]
    assert stage.core.log.durable_lsn == 2


def test_stopping_hands_on_what_was_taken_out(
    make: MakeStage, clock: CountingClock
) -> None:
    disk = GatedDisk()
    stage = make(disk)
    stage.schedule(1)
    stage.start()
    gate = disk.gate = Door()
    clock.advance(2)
    gate.await_somebody()
    stopping = threading.Thread(target=stage.ticker.stop)
    stopping.start()
    gate.open()
    stopping.join(PATIENCE_S)
    assert stage.fired == [1]
    assert not stage.ticker.alive


def test_who_acknowledges_records_it_once_the_thread_is_over_and_not_before(
    make: MakeStage, clock: CountingClock
) -> None:
    stage = make()
    stage.schedule(1)
    log = stage.core.log
    seen = [stage.ticker.over]
    stage.start()
    clock.advance(2)
    (timer_id,) = stage.settle()
    stage.timers.begin(TimerId(timer_id))
    seen.append(stage.ticker.over)
    stage.ticker.stop()
    before = log.appended_lsn
    stage.ticker.acknowledge(TimerId(timer_id))
    assert log.appended_lsn == before + 1
    seen.append(stage.ticker.over)
    assert seen == [False, False, True]


def test_one_acknowledgement_wakes_it_and_those_beside_it_need_not(
    make: MakeStage,
) -> None:
    stage = make()
    stage.ticker._resting = True
    stage.ticker.acknowledge(TimerId(1))
    assert not stage.ticker._resting


def test_stopping_what_never_started_is_nothing(make: MakeStage) -> None:
    stage = make()
    stage.ticker.stop()
    assert not stage.ticker.alive


def test_a_failed_disk_stops_it_for_good_and_loudly(
    make: MakeStage, clock: CountingClock, caplog: pytest.LogCaptureFixture
) -> None:
    disk = MemoryFileSystem()
    stage = make(disk)
    stage.schedule(1)
    stage.start()
    # Of this file: the log fills the next one meanwhile, and syncs it too.
    disk.fail("datasync", errno.EIO, name=segments_of(disk)[0])
    clock.advance(2)
    stage.ticker._thread.join(PATIENCE_S)
    assert not stage.ticker.alive
    assert stage.fired == []
    assert [(r.levelno, r.message) for r in caplog.records] == [
        (logging.CRITICAL, "firing stopped for good")
    ]


def test_a_full_disk_pauses_it_and_space_lets_it_go_on(
    make: MakeStage, clock: CountingClock, caplog: pytest.LogCaptureFixture
) -> None:
    disk = MemoryFileSystem()
    stage = make(disk)
    stage.schedule(*[1] * 4)
    stage.start()
    fill_up(stage.core, disk)
    clock.advance(2)
    for _ in range(3):  # it tries once a second
        assert stage.settle() == []
        messages = [record.message for record in caplog.records]
        assert len(messages) == 1, "once, not once a second"
        clock.advance(1)
    assert stage.ticker.alive
    assert messages[0].startswith("firing pauses: memory: the disk is full")
    disk.capacity_bytes = None
    clock.advance(1)
    assert stage.settle() == [1, 2, 3, 4]
    stage.schedule(1)
    clock.advance(2)
    assert len(stage.settle()) == 5
    stage.schedule(1)
    fill_up(stage.core, disk)
    clock.advance(2)
    stage.settle()
    assert len(caplog.records) == 2, "and again when it is full again"
    disk.capacity_bytes = None


def test_a_disk_that_is_full_at_the_start_is_told_of_too(
    make: MakeStage, clock: CountingClock, caplog: pytest.LogCaptureFixture
) -> None:
    disk = MemoryFileSystem()
    stage = make(disk)
    stage.schedule(1)
    fill_up(stage.core, disk)
    clock.advance(2)
    stage.start()
    (record,) = caplog.records
    assert record.message.startswith("firing pauses: memory: the disk is full")
    disk.capacity_bytes = None


def test_it_can_be_stopped_while_the_disk_is_full(
    make: MakeStage, clock: CountingClock
) -> None:
    disk = MemoryFileSystem()
    stage = make(disk)
    stage.schedule(1)
    stage.start()
    fill_up(stage.core, disk)
    clock.advance(2)
    stage.settle()
    stage.ticker.stop()
    assert not stage.ticker.alive


def test_closing_the_core_under_it_ends_it_quietly(
    make: MakeStage, clock: CountingClock, caplog: pytest.LogCaptureFixture
) -> None:
    stage = make()
    stage.start()
    stage.core.close()
    stage.ticker.wake()
    stage.ticker._thread.join(PATIENCE_S)
    assert not stage.ticker.alive
    assert caplog.records == []


@pytest.mark.parametrize("end", ["closed", "full", "failing"])
def test_a_delivery_that_cannot_be_recorded_any_more_ends_it_quietly_too(
    make: MakeStage, clock: CountingClock, end: str
) -> None:
    """It comes again after the next open; a thread has nobody to raise an error to."""
    disk = MemoryFileSystem()
    stage = make(disk)
    stage.schedule(1)
    stage.start()
    clock.advance(2)
    assert stage.settle() == [1]
    stage.timers.begin(TimerId(1))

    def acknowledge_last() -> int:  # after the thread has recorded what it knew of
        stage.ticker._ended.add(TimerId(1))
        stage.ticker._stopped = True
        if end == "closed":
            stage.core.close()
        elif end == "full":
            fill_up(stage.core, disk)
        else:
            fill_up(stage.core, disk)
            disk.capacity_bytes = None
            disk.fail("create", errno.EMFILE)
        return 0

    stage.ticker._room = acknowledge_last
    stage.ticker.wake()
    stage.ticker._thread.join(PATIENCE_S)
    assert not stage.ticker.alive
    assert stage.ticker.over
    disk.heal()


def test_an_error_that_nobody_foresaw_is_not_silent(
    make: MakeStage, clock: CountingClock, caplog: pytest.LogCaptureFixture
) -> None:
    stage = make()
    stage.schedule(1)

    def deliver(timer_ids: list[TimerId]) -> None:
        if timer_ids:
            raise LookupError("a bug")

    stage.ticker._deliver = deliver
    stage.start()
    clock.advance(2)
    stage.ticker._thread.join(PATIENCE_S)
    assert [record.levelno for record in caplog.records] == [logging.CRITICAL]
    assert "a bug" in caplog.text
