"""Fail every system call of an engine's life, one after the other.

As `log_fault_sweep`, a layer up: the oracle is that of the crash sweeps. A request that
is refused has changed nothing, and is taken once the disk is well; after a failure that
is final every request raises and nothing fires; the next open finds what was promised and
delivers it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from tests.crash.driver_fault_sweep import DriverLife
from tests.crash.engine_sweep import Step, open_and_live_on
from tests.crash.fault_disk import FaultDisk
from tests.crash.fault_sweep import FaultLife, FaultSweep
from tests.model.engine_driver import EngineDriver, MakeTimers, make_timers
from tests.model.engine_oracle import Violation
from wal.errors import CommitUnknownError, DiskFullError, WalError
from wal.filesystem import FileSystem
from wal.testing import MemoryFileSystem


class TolerantDriver(EngineDriver):
    """A driver that knows what a failed call has left undone."""

    def fire(self, limit: int = 4096) -> list[int]:
        """Step; what a commit that failed had fired may hold or not."""
        try:
            return super().fire(limit)
        except CommitUnknownError:
            self._note_what_the_dead_fired()
            raise

    def acknowledge(self, place: int = 0, *, wait: bool = True) -> None:
        """Let a handler return; if that is refused, it still waits for its record."""
        running = [*self.running]
        try:
            super().acknowledge(place, wait=wait)
        except (DiskFullError, OSError):
            self.running = running
            raise

    def redeliver_later(self, place: int = 0, *, wait: bool = True) -> None:
        """Let a handler raise; likewise."""
        running = [*self.running]
        try:
            super().redeliver_later(place, wait=wait)
        except (DiskFullError, OSError):
            self.running = running
            raise

    def add_to_snapshot(self) -> bool:
        """Write the next block; a snapshot that failed is given up."""
        try:
            return super().add_to_snapshot()
        except OSError:
            self.abandon_snapshot()
            raise

    def finish_snapshot(self) -> None:
        """Complete a snapshot, or give it up."""
        snapshot = self._snapshot
        try:
            super().finish_snapshot()
        except (OSError, WalError):
            self._snapshot = snapshot
            self.abandon_snapshot()
            raise

    def abandon_snapshot(self) -> None:
        """Give up what is being written."""
        if self._snapshot is not None:
            self._snapshot[0].abandon()
            self._snapshot = None


@dataclass
class EngineFaultSweep(FaultSweep):
    """Faults in one life of an engine.

    Args:
        program: the life.
        make: makes the timers; a planted fault goes in here.
    """

    violation = Violation

    program: Sequence[Step]
    make: MakeTimers = make_timers

    def life(self, index: int) -> FaultLife:
        """Return a new life whose `index`-th call fails; 0: none does."""
        return _Life(self, index)


class _Life(DriverLife[TolerantDriver]):
    """One run of the program on a disk with one fault."""

    def __init__(self, sweep: EngineFaultSweep, index: int) -> None:
        disk = FaultDisk(sweep.trouble, index)
        driver = TolerantDriver(disk, segment_size_bytes=5632, make=sweep.make)
        super().__init__(sweep, driver, sweep.program)

    @property
    def files(self) -> FileSystem:
        """The disk, which heirs of a killed process have in their turn."""
        return self.driver.disk

    def _open(self) -> None:
        self.driver.open()

    @property
    def _opened(self) -> object:
        return getattr(self.driver, "core", None)

    @property
    def _is_closed(self) -> bool:
        return not self.driver._alive or self.driver.core.life.closed is not None

    @property
    def _failure(self) -> BaseException | None:
        return self.driver.log.failure

    def _check(self) -> None:
        self.driver.core.check()
        self.driver.compare()

    def _requests(self) -> Iterable[Callable[[], object]]:
        driver = self.driver
        some = next(iter(driver.oracle.timers), 1)
        yield lambda: driver.timers.schedule(1, b"too late")
        yield lambda: driver.timers.cancel(some)
        yield lambda: driver.timers.reschedule(some, 1)
        yield lambda: driver.timers.begin(some)
        yield lambda: driver.core.step(10)

    def _close(self) -> None:
        if self._opened is not None:
            self.driver.core.close()

    def _live_on(self, disk: MemoryFileSystem) -> None:
        open_and_live_on(self.driver.heir(disk))
