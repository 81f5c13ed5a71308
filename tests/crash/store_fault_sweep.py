"""Fail every system call of a job store's life, one after the other.

As `engine_fault_sweep`, a layer up: callers, node and handlers in one, held to what they
were promised by `store_driver`. The history is in memory here, as its own disk is SQLite's;
tests/crash/test_real_disks.py fills a real one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tests.crash.driver_fault_sweep import DriverLife
from tests.crash.fault_disk import FaultDisk
from tests.crash.fault_sweep import FaultLife, FaultSweep
from tests.crash.store_driver import Broken, MakeStore, StoreDriver, make_store
from tests.stores.stage import WORKER, draft
from timingwheel.jobs.model import Outcome
from timingwheel.jobs.store import Claim
from timingwheel.scheduler.simulated import KeptHistory
from wal.errors import DiskFullError
from wal.filesystem import FileSystem
from wal.testing import MemoryFileSystem

Step = Callable[[StoreDriver], object]


class TolerantDriver(StoreDriver):
    """A driver that knows what a failed call has left undone."""

    def finish(
        self, outcome: Outcome = Outcome.OK, *, count: int = 100, **more: Any
    ) -> None:
        """End what runs; what is refused goes on running."""
        running = [*self.running]
        try:
            super().finish(outcome, count=count, **more)
        except (DiskFullError, OSError):
            self.running = running
            raise

    def _note_left(self, claims: list[Claim]) -> None:
        self.running = claims + self.running

    def retry(self, label: str) -> None:
        """Retry a failed run; if that is refused it stays failed."""
        ended = dict(self.promises.ended)
        try:
            super().retry(label)
        except (DiskFullError, OSError):
            self.promises.ended = ended
            raise

    def resume(self, label: str, rule: Any = "skip") -> None:
        """Resume a job; if that is refused it stays paused."""
        paused = set(self.promises.paused)
        try:
            super().resume(label, rule)
        except (DiskFullError, OSError):
            self.promises.paused = paused
            raise


@dataclass
class StoreFaultSweep(FaultSweep):
    """Faults in one life of a job store.

    Args:
        program: the life.
        make: makes the store; a planted fault goes in here.
    """

    violation = Broken

    program: Sequence[Step]
    make: MakeStore = make_store

    def life(self, index: int) -> FaultLife:
        """Return a new life whose `index`-th call fails; 0: none does."""
        return _Life(self, index)


class _Life(DriverLife[TolerantDriver]):
    """One run of the program on a disk with one fault."""

    strangers = (KeyError,)  # of a job that was never made

    def __init__(self, sweep: StoreFaultSweep, index: int) -> None:
        driver = TolerantDriver(
            FaultDisk(sweep.trouble, index), KeptHistory(":memory:"), make=sweep.make
        )
        super().__init__(sweep, driver, sweep.program)
        self._history = driver.history
        self.stack.callback(driver.end)

    @property
    def files(self) -> FileSystem:
        """The disk, which heirs of a killed process have in their turn."""
        return self.driver.disk

    def _open(self) -> None:
        self.driver.open()

    @property
    def _opened(self) -> object:
        return self.driver.store

    @property
    def _is_closed(self) -> bool:
        return self.driver.store is None or self.driver.store._closed

    @property
    def _failure(self) -> BaseException | None:
        return self.driver.on._log.failure

    def _check(self) -> None:
        self.driver.on.check()

    def _requests(self) -> Iterable[Callable[[], object]]:
        store = self.driver.on
        yield lambda: store.put([draft(1)])
        yield lambda: store.fire(10)
        yield lambda: store.claim(WORKER, tasks=frozenset({"t"}), count=1)
        some = next(iter(self.driver.promises.jobs), None)
        if some is not None:
            yield lambda: store.get(some)
            yield lambda: store.cancel(some)

    def _close(self) -> None:
        self._history = self.driver.history.fork()
        self.stack.callback(self._history.end)
        if self.driver.store is not None:
            self.driver.store.close()

    def _live_on(self, disk: MemoryFileSystem) -> None:
        heir = self.driver.heir(disk, self._history.fork())
        self.stack.callback(heir.end)
        try:
            heir.open_and_live_on()
        finally:
            heir.end()
