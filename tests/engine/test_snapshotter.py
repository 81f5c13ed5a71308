"""When a snapshot is written, and that one that fails costs nothing."""

from __future__ import annotations

import errno
import logging
import threading
from collections.abc import Callable, Iterator

import pytest

from tests.engine.stage import PATIENCE_S, SMALL, CountingClock, Door
from timingwheel.engine.snapshotter import GIVE_WAY_SECONDS, GiveWay, Snapshotter
from timingwheel.engine.timers import Timers
from wal.filesystem import Handle
from wal.log import Log
from wal.testing import MemoryFileSystem

EVERY_BYTES = 20_000


class SnapDisk(MemoryFileSystem):
    """A disk that tells when a snapshot's name or its end came, and can hold one up."""

    def __init__(self) -> None:
        super().__init__()
        self.named = threading.Semaphore(0)
        self.given_up = threading.Semaphore(0)
        self.gate: Door | None = None
        self.on_create: Callable[[], object] = lambda: None

    def create(self, name: str) -> Handle:
        if name == "snapshot.tmp":
            self.on_create()
            if self.gate is not None:
                self.gate()
        return super().create(name)

    def rename(self, old: str, new: str) -> None:
        super().rename(old, new)
        if new.endswith(".snap"):
            self.named.release()

    def unlink(self, name: str) -> None:
        super().unlink(name)
        if name == "snapshot.tmp":
            self.given_up.release()

    @property
    def snapshots(self) -> list[str]:
        return [name for name in self.names() if name.endswith(".snap")]


class Stage:
    """Timers whose log grows by what the test schedules."""

    def __init__(
        self, disk: MemoryFileSystem, clock: CountingClock, every_bytes: int
    ) -> None:
        log = Log.open(disk, wall_ns=clock.wall_ns, **SMALL)
        self.timers = Timers(log, clock, may_wait=True)
        self.core, self.log = self.timers.core, log
        self.snapshotter = Snapshotter(self.core, log, every_bytes=every_bytes)

    def grow(self, size_bytes: int) -> None:
        for _ in range(max(1, size_bytes // 1_000)):
            self.core.commit(self.timers.schedule(99, bytes(min(size_bytes, 1_000)))[1])


@pytest.fixture
def snap_disk() -> SnapDisk:
    return SnapDisk()


class Warnings(logging.Handler):
    """Tells when something was logged."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.emitted = threading.Semaphore(0)

    def emit(self, record: logging.LogRecord) -> None:
        self.emitted.release()


@pytest.fixture
def warnings() -> Iterator[Warnings]:
    handler = Warnings()
    logger = logging.getLogger("timingwheel")
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)


MakeStage = Callable[..., Stage]


@pytest.fixture
def make(snap_disk: SnapDisk, clock: CountingClock) -> Iterator[MakeStage]:
    stages: list[Stage] = []

    def make_one(
        disk: MemoryFileSystem = snap_disk, every_bytes: int = EVERY_BYTES
    ) -> Stage:
        stages.append(Stage(disk, clock, every_bytes))
        return stages[-1]

    yield make_one
    for stage in stages:
        stage.snapshotter.stop()
        stage.core.close()


def happened(event: threading.Semaphore) -> bool:
    return event.acquire(timeout=PATIENCE_S)


def test_a_snapshot_is_written_when_the_log_has_grown_enough(
    make: MakeStage, snap_disk: SnapDisk
) -> None:
    stage = make()
    stage.snapshotter.start()
    stage.grow(EVERY_BYTES - 2_000)
    assert not stage.snapshotter._is_due()
    assert snap_disk.snapshots == []
    stage.grow(5_000)
    assert happened(snap_disk.named)


def test_the_next_one_waits_for_twice_the_size_of_the_last(
    make: MakeStage, snap_disk: SnapDisk
) -> None:
    """It costs as much as the live state, however short `every_bytes` is."""
    stage = make(every_bytes=1)
    stage.grow(50_000)
    info = stage.snapshotter.write()
    assert info.size_bytes > 50_000
    stage.snapshotter.start()
    stage.grow(90_000)
    assert not stage.snapshotter._is_due()
    assert len(snap_disk.snapshots) == 1
    stage.grow(40_000)
    assert happened(snap_disk.named)
    assert happened(snap_disk.named)


def test_what_is_committed_while_one_is_written_does_not_make_another_at_once(
    make: MakeStage, snap_disk: SnapDisk
) -> None:
    stage = make()
    begun_at: list[int] = []
    snap_disk.on_create = lambda: begun_at.append(stage.log.bytes_written)
    gate = snap_disk.gate = Door()
    stage.snapshotter.start()
    stage.grow(EVERY_BYTES + 2_000)
    gate.await_somebody()
    stage.grow(5_000)
    gate.open()
    assert happened(snap_disk.named)
    stage.grow(100_000)
    assert happened(snap_disk.named)
    first, second = begun_at[:2]
    assert second - first > EVERY_BYTES


def test_a_log_that_was_long_at_open_gets_one_at_once(
    make: MakeStage, snap_disk: SnapDisk, clock: CountingClock
) -> None:
    first = make()
    first.grow(EVERY_BYTES + 2_000)
    first.core.close()
    stage = make()
    assert stage.core.replayed_bytes > EVERY_BYTES
    stage.snapshotter.start()
    assert happened(snap_disk.named)


def test_the_newest_snapshot_is_known_from_the_open_on(make: MakeStage) -> None:
    first = make()
    seen = [first.snapshotter.last]
    first.grow(9_000)
    written = first.snapshotter.write()
    seen.append(first.snapshotter.last)
    assert seen == [None, written]
    first.core.close()
    assert make().snapshotter.last == written


def test_one_is_due_a_byte_beyond_the_growth_that_was_asked_for(
    make: MakeStage,
) -> None:
    stage = make(every_bytes=1)

    def due_after(grown_bytes: int) -> bool:
        stage.snapshotter._begun_at = stage.log.bytes_written - grown_bytes
        return stage.snapshotter._is_due()

    assert [due_after(grown_bytes) for grown_bytes in (1, 2)] == [False, True]
    twice = 2 * stage.snapshotter.write().size_bytes
    assert [due_after(twice + more) for more in (0, 1)] == [False, True]


def test_its_thread_has_a_name_and_keeps_no_process_alive(make: MakeStage) -> None:
    thread = make().snapshotter._thread
    assert (thread.name, thread.daemon) == ("timingwheel-snapshot", True)


def test_one_that_finds_the_disk_full_is_given_up_and_tried_again_later(
    make: MakeStage,
    snap_disk: SnapDisk,
    caplog: pytest.LogCaptureFixture,
    warnings: Warnings,
) -> None:
    stage = make()
    begun_at: list[int] = []
    snap_disk.on_create = lambda: begun_at.append(stage.log.bytes_written)
    stage.snapshotter.start()
    snap_disk.fail("pwrite", errno.ENOSPC, name="snapshot.tmp", after=2)
    stage.grow(EVERY_BYTES + 2_000)
    assert happened(warnings.emitted)
    stage.grow(5_000)
    assert not stage.snapshotter._is_due()
    assert len(begun_at) == 1
    stage.grow(EVERY_BYTES)
    assert happened(snap_disk.named)
    first, second = begun_at
    assert second - first >= EVERY_BYTES
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "a snapshot failed and will be tried again" in caplog.text
    assert "No space" in caplog.text


def test_stopping_gives_up_what_is_being_written(
    make: MakeStage, snap_disk: SnapDisk
) -> None:
    stage = make()
    gate = snap_disk.gate = Door()
    stage.snapshotter.start()
    stage.grow(EVERY_BYTES + 2_000)
    gate.await_somebody()
    stopping = threading.Thread(target=stage.snapshotter.stop)
    stopping.start()
    assert stage.snapshotter._stopped.wait(PATIENCE_S)
    gate.open()
    stopping.join(PATIENCE_S)
    assert snap_disk.snapshots == []
    assert "snapshot.tmp" not in snap_disk.names()


def test_a_failed_log_ends_it_quietly(
    make: MakeStage, snap_disk: SnapDisk, caplog: pytest.LogCaptureFixture
) -> None:
    stage = make()
    gate = snap_disk.gate = Door()
    stage.snapshotter.start()
    stage.grow(EVERY_BYTES + 2_000)
    gate.await_somebody()
    snap_disk.fail("datasync", errno.EIO)
    with pytest.raises(Exception, match="disk failed"):
        stage.grow(1)
    gate.open()
    stage.snapshotter._thread.join(PATIENCE_S)
    assert not stage.snapshotter._thread.is_alive()
    assert caplog.records == []


def test_callers_and_the_thread_write_one_at_a_time(
    make: MakeStage, snap_disk: SnapDisk
) -> None:
    stage = make()
    gate = snap_disk.gate = Door()
    stage.snapshotter.start()
    stage.grow(EVERY_BYTES + 2_000)
    gate.await_somebody()
    caller = threading.Thread(target=stage.snapshotter.write)
    caller.start()
    gate.open()
    caller.join(PATIENCE_S)
    assert happened(snap_disk.named)
    assert happened(snap_disk.named)


def test_one_that_somebody_waits_for_gives_way_once_a_block_to_commits_alone(
    make: MakeStage,
) -> None:
    stage, waits = make(), list[float]()
    stage.grow(9_000)
    give_way = GiveWay(stage.log, waits.append)
    give_way()
    assert waits == []
    for _ in range(3):
        stage.grow(5_000)
        give_way()
        give_way()
    assert waits == [GIVE_WAY_SECONDS] * 3


def test_the_engine_goes_on_while_one_is_written(
    make: MakeStage, snap_disk: SnapDisk, clock: CountingClock
) -> None:
    stage = make()
    stage.grow(30_000)
    gate = snap_disk.gate = Door()
    stage.snapshotter.start()
    gate.await_somebody()
    stage.grow(30_000)
    stage.core.commit(stage.timers.cancel(1)[1])
    gate.open()
    assert happened(snap_disk.named)
    heir = Timers(
        Log.open(snap_disk.killed(), wall_ns=clock.wall_ns, background=False, **SMALL),
        clock,
        may_wait=True,
    )
    assert heir.core.state.table.timer_ids() == stage.core.state.table.timer_ids()
