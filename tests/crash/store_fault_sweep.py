"""Fail every system call of a job store's life, one after the other.

As `engine_fault_sweep`, a layer up: callers, node and handlers in one, held to what they
were promised by `store_driver`. The history is in memory here, as its own disk is SQLite's;
tests/crash/test_full_tmpfs.py fills a real one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tests.crash.fault_disk import FaultDisk
from tests.crash.fault_sweep import FaultLife, FaultSweep
from tests.crash.log_fault_sweep import NO_ROOM
from tests.crash.store_driver import Broken, MakeStore, StoreDriver, make_store
from tests.stores.stage import WORKER, draft
from timingwheel.errors import EngineFailedError, TimingWheelError
from timingwheel.jobs.model import Outcome
from timingwheel.jobs.store import Claim
from timingwheel.scheduler.simulated import KeptHistory
from wal.errors import CommitUnknownError, DiskFullError, StoreError, WalError
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


class _Life(FaultLife):
    """One run of the program on a disk with one fault."""

    def __init__(self, sweep: StoreFaultSweep, index: int) -> None:
        super().__init__(sweep.trouble)
        self.sweep = sweep
        self.driver = TolerantDriver(
            FaultDisk(sweep.trouble, index), KeptHistory(":memory:"), make=sweep.make
        )
        self.stack.callback(self.driver.end)
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
        """Do one step; return whether the store can go on."""
        for _ in range(2):
            driver = self.driver
            before = driver.disk, driver.store
            try:
                step(driver)
            except KeyError:
                if not self.lasts:  # else the job was never made
                    raise
                return True
            except (OSError, WalError, TimingWheelError) as error:
                is_over = (driver.disk, driver.store) != before
                if self._judge(error, is_over=is_over):
                    return False
            else:
                return True
            driver.on.check()
            if self.lasts:
                return True
        raise Broken("what was refused once is refused again by a sound disk")

    def _judge(self, error: Exception, *, is_over: bool) -> bool:
        """Look that an error is right; return whether it ended this life."""
        driver, code = self.driver, self.sweep.trouble.code
        self.outcome = type(error).__name__
        if not self.disk.fault.struck:
            raise Broken(f"{error!r}, and the disk was well") from error
        if self.step < 0 or is_over or driver.store is None or driver.store._closed:
            if isinstance(error, OSError | DiskFullError | CommitUnknownError):
                return True
            if isinstance(error, StoreError) and "is not writable" in error.found:
                return True
            raise Broken(f"an open or a close raised {error!r}") from error
        if driver.store._log.failure is not None:
            if not isinstance(error, CommitUnknownError | EngineFailedError):
                raise Broken(f"a final failure was told as {error!r}") from error
            if self.sweep.trouble.spares_commits:
                raise Broken("a commit met it") from error
            self._require_final()
            return True
        if not isinstance(error, OSError | DiskFullError):
            raise Broken(f"an error of no right kind: {error!r}") from error
        if isinstance(error, DiskFullError) and code not in NO_ROOM:
            raise Broken("a full disk, of a disk that is not") from error
        return False

    def _require_final(self) -> None:
        """No request is taken, nothing is read, and nothing is fired or begun."""
        store = self.driver.on
        some = next(iter(self.driver.promises.jobs), None)
        acts: list[Callable[[], object]] = [
            lambda: store.put([draft(1)]),
            lambda: store.fire(10),
            lambda: store.claim(WORKER, tasks=frozenset({"t"}), count=1),
        ]
        if some is not None:
            acts += [lambda: store.get(some), lambda: store.cancel(some)]
        for act in acts:
            try:
                act()
            except EngineFailedError:
                continue
            raise Broken("a store whose disk had failed goes on")

    def look(self) -> None:
        """Open what is left, in every way, and live on."""
        disk, driver = self.disk, self.driver
        if not disk.fault.struck:
            raise Broken("the life was over before")
        if disk.again:
            raise Broken(f"synced again after a failed sync: {disk.again}")
        disk.mend()
        history = driver.history.fork()
        self.stack.callback(history.end)
        left = list(self._states())
        with contextlib.suppress(OSError, WalError, TimingWheelError):
            if driver.store is not None:
                driver.store.close()
        if disk.again:
            raise Broken(f"closing synced again what had failed: {disk.again}")
        for opened in list(disk._machine.handles):  # as a process that ends does
            disk.close(opened)
        for label, state in [*left, ("the same machine", disk)]:
            self.sweep.states += 1
            heir = driver.heir(state, history.fork())
            self.stack.callback(heir.end)
            try:
                heir.open_and_live_on()
            except Broken as broken:
                raise Broken(f"{label}: {broken}") from broken
            except (OSError, WalError, TimingWheelError) as error:
                raise Broken(f"{label}: it fails again: {error!r}") from error
            finally:
                heir.end()

    def _states(self) -> Iterator[tuple[str, MemoryFileSystem]]:
        yield "killed", self.disk.killed()
        for label in ("none", f"random {self.sweep.rng.getrandbits(30)}"):
            yield f"power loss {label!r}", self.disk.crashed(label)
