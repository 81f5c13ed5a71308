"""The wall clock is set at any reading that an opening takes: nothing is lost or early."""

from __future__ import annotations

import pytest

from tests.model.engine_driver import SECOND_NS, EngineDriver
from timingwheel.clock import Reading
from timingwheel.engine.timers import Timers
from timingwheel.testing import ManualClock
from wal.log import Log
from wal.testing import MemoryFileSystem

HOUR_NS = 3600 * SECOND_NS


class SteppingClock(ManualClock):
    """A clock that somebody sets right before its n-th reading, once."""

    def __init__(self, *, wall_ns: int, index: int, step_ns: int) -> None:
        super().__init__(wall_ns=wall_ns, monotonic_ns=7)
        self.readings = 0
        self._index = index
        self._step_ns = step_ns

    def _note(self) -> None:
        self.readings += 1
        if self.readings == self._index:
            self.step(self._step_ns)

    def wall_ns(self) -> int:
        self._note()
        return super().wall_ns()

    def read(self) -> Reading:
        self._note()
        return super().read()


def killed(*, clean: bool) -> tuple[MemoryFileSystem, int]:
    """Return a disk with timers on both scales, and what its clock showed."""
    driver = EngineDriver(MemoryFileSystem())
    driver.open()
    for number in range(5):
        driver.schedule(10 + number, b"elapsed")
        driver.schedule_at(driver.clock.wall_ns() + (10 + number) * SECOND_NS, b"wall")
    driver.clock.advance(1)
    driver.snapshot()
    wall_ns = driver.clock.wall_ns()
    if clean:
        driver.close()
    return driver.disk.killed(), wall_ns


def opened(disk: MemoryFileSystem, clock: ManualClock) -> tuple[Timers, Log]:
    log = Log.open(
        disk, wall_ns=clock.wall_ns, segment_size_bytes=8192, background=False
    )
    return Timers(log, clock, may_wait=True), log


def fire(
    timers: Timers, clock: ManualClock, deadlines: dict[int, int], seen: list[int]
) -> None:
    """Deliver what is due; deadlines are those of the wall clock."""
    for timer_id in timers.core.step(100).timers:
        if timers.begin(timer_id) == b"wall":
            assert ManualClock.wall_ns(clock) >= deadlines[timer_id]
        seen.append(timer_id)
        timers.core.commit(timers.acknowledge([timer_id]))


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("step_ns", [HOUR_NS, -HOUR_NS, 5 * SECOND_NS, -2 * SECOND_NS])
def test_a_clock_that_is_set_at_any_reading_of_an_opening_fires_nothing_early(
    step_ns: int, clean: bool
) -> None:
    disk, wall_ns = killed(clean=clean)
    counted = SteppingClock(wall_ns=wall_ns, index=0, step_ns=0)
    opened(disk.copy(), counted)
    assert counted.readings > 2
    for index in range(1, counted.readings + 1):
        left = disk.copy()
        clock = SteppingClock(wall_ns=wall_ns, index=index, step_ns=step_ns)
        timers, log = opened(left, clock)
        by_id = {timer.id: timer for timer in timers.first(100)}
        assert len(by_id) == 10
        deadlines = {
            int(timer_id): wall_ns + (9 + place // 2) * SECOND_NS
            for place, timer_id in enumerate(sorted(by_id))
        }
        seen: list[int] = []
        fire(timers, clock, deadlines, seen)
        timers.core.check()
        for _ in range(100):  # whatever the clock was set to, all will have come
            clock.advance(90)
            fire(timers, clock, deadlines, seen)
        assert sorted(seen) == sorted(by_id)
        log.close()
        again, _ = opened(left, ManualClock(wall_ns=clock.wall_ns(), monotonic_ns=7))
        assert len(again) == 0
