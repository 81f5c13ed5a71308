"""Fail every system call of an engine's life, one after the other.

As `log_fault_sweep`, a layer up: the oracle is that of the crash sweeps. A request that
is refused has changed nothing, and is taken once the disk is well; after a failure that
is final every request raises and nothing fires; the next open finds what was promised and
delivers it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tests.crash.engine_sweep import Step, open_and_live_on
from tests.crash.fault_disk import FaultDisk
from tests.crash.fault_sweep import FaultLife, FaultSweep
from tests.crash.log_fault_sweep import NO_ROOM
from tests.model.engine_driver import EngineDriver, MakeTimers, make_timers
from tests.model.engine_oracle import Violation
from timingwheel.errors import EngineFailedError, TimingWheelError
from wal.errors import CommitUnknownError, DiskFullError, StoreError, WalError
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


class _Life(FaultLife):
    """One run of the program on a disk with one fault."""

    def __init__(self, sweep: EngineFaultSweep, index: int) -> None:
        super().__init__(sweep.trouble)
        self.sweep = sweep
        disk = FaultDisk(sweep.trouble, index)
        self.driver = TolerantDriver(disk, segment_size_bytes=5632, make=sweep.make)
        self.step = -1

    @property
    def files(self) -> FileSystem:
        """The disk, which heirs of a killed process have in their turn."""
        return self.driver.disk

    @property
    def where(self) -> str:
        """How far it has come in its program, for messages."""
        return f"step {self.step}"

    def live(self) -> None:
        """Do all steps, or those up to a final failure."""
        if not self._attempt(lambda driver: driver.open()):
            return
        for number, step in enumerate(self.sweep.program):
            self.step = number
            if not self._attempt(step):
                return

    def _attempt(self, step: Step) -> bool:
        """Do one step; return whether the engine can go on."""
        for _ in range(2):
            driver = self.driver
            before = driver.disk, getattr(driver, "core", None)
            try:
                step(driver)
            except (OSError, WalError, TimingWheelError) as error:
                is_over = (driver.disk, getattr(driver, "core", None)) != before
                if self._judge(error, is_over=is_over):
                    return False
            else:
                return True
            driver.core.check()  # what was refused has changed nothing
            driver.compare()
            if self.lasts:
                return True
        raise Violation("what was refused once is refused again by a sound disk")

    def _judge(self, error: Exception, *, is_over: bool) -> bool:
        """Look that an error is right; return whether it ended this life."""
        driver, code = self.driver, self.sweep.trouble.code
        self.outcome = type(error).__name__
        if not self.disk.fault.struck:
            raise Violation(f"{error!r}, and the disk was well") from error
        if self.step < 0 or is_over or not driver._alive or driver.core.life.closed:
            if isinstance(error, OSError | DiskFullError | CommitUnknownError):
                return True
            if isinstance(error, StoreError) and "is not writable" in error.found:
                return True
            raise Violation(f"an open or a close raised {error!r}") from error
        if driver.log.failure is not None:
            if not isinstance(error, CommitUnknownError | EngineFailedError):
                raise Violation(f"a final failure was told as {error!r}") from error
            if self.sweep.trouble.spares_commits:
                raise Violation("a commit met it") from error
            self._require_final()
            return True
        if not isinstance(error, OSError | DiskFullError):
            raise Violation(f"an error of no right kind: {error!r}") from error
        if isinstance(error, DiskFullError) and code not in NO_ROOM:
            raise Violation("a full disk, of a disk that is not") from error
        return False

    def _require_final(self) -> None:
        """No request is taken, nothing is read, and nothing fires."""
        driver = self.driver
        some = next(iter(driver.oracle.timers), 1)
        for act in (
            lambda: driver.timers.schedule(1, b"too late"),
            lambda: driver.timers.cancel(some),
            lambda: driver.timers.reschedule(some, 1),
            lambda: driver.timers.begin(some),
            lambda: driver.core.step(10),
        ):
            try:
                act()
            except EngineFailedError:
                continue
            raise Violation("an engine whose disk had failed goes on")

    def look(self) -> None:
        """Open what is left, in every way, and live on."""
        disk = self.disk
        if not disk.fault.struck:
            raise Violation("the life was over before")
        if disk.again:
            raise Violation(f"synced again after a failed sync: {disk.again}")
        disk.mend()
        for label, left in self._successors():
            self.sweep.states += 1
            try:
                open_and_live_on(self.driver.heir(left))
            except Violation as violation:
                raise Violation(f"{label}: {violation}") from violation
            except (OSError, WalError, TimingWheelError) as error:
                raise Violation(f"{label}: it fails again: {error!r}") from error

    def _successors(self) -> Iterator[tuple[str, MemoryFileSystem]]:
        disk, rng = self.disk, self.sweep.rng
        yield "killed", disk.killed()
        for label in ("none", f"random {rng.getrandbits(30)}"):
            yield f"power loss {label!r}", disk.crashed(label)
        if hasattr(self.driver, "core"):
            with contextlib.suppress(OSError, WalError, TimingWheelError):
                self.driver.core.close()
            if disk.again:
                raise Violation(f"closing synced again what had failed: {disk.again}")
        for opened in list(disk._machine.handles):  # as a process that ends does
            disk.close(opened)
        yield "the same machine", disk
