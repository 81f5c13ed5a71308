"""What the sweeps of faults above the log share: lives of an engine, lives of a job store.

A request that is refused has changed nothing, and is taken once the disk is well. After a
failure that is final every request raises. The next open finds what was promised, whether
the process was killed, the power failed, or the same machine goes on.
"""

from __future__ import annotations

import contextlib
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar, Generic, TypeVar

from tests.crash.fault_disk import NO_ROOM
from tests.crash.fault_sweep import FaultLife, FaultSweep
from timingwheel.errors import EngineFailedError, TimingWheelError
from wal.errors import CommitUnknownError, DiskFullError, StoreError, WalError
from wal.testing import MemoryFileSystem

Driver = TypeVar("Driver")


class DriverLife(FaultLife, Generic[Driver]):
    """One run of a program of a driver's acts on a disk with one fault.

    Args:
        sweep: whose.
        driver: does the acts, on a disk with the fault.
        program: the acts that follow on `_open`.
    """

    strangers: ClassVar[tuple[type[Exception], ...]] = ()
    """What an act raises, rightly, on something that was refused before."""

    def __init__(
        self,
        sweep: FaultSweep,
        driver: Driver,
        program: Sequence[Callable[[Driver], object]],
    ) -> None:
        super().__init__(sweep.trouble)
        self.sweep = sweep
        self.driver = driver
        self._program = program
        self._step = -1

    @property
    def where(self) -> str:
        """How far it has come in its program, for messages."""
        return f"step {self._step}"

    def live(self) -> None:
        """Do all steps, or those up to a final failure."""
        if not self._attempt(lambda _: self._open()):
            return
        for number, step in enumerate(self._program):
            self._step = number
            if not self._attempt(step):
                return

    def look(self) -> None:
        """Open what is left, in every way, and live on."""
        disk, broken = self.disk, self.sweep.violation
        if not disk.fault.struck:
            raise broken("the life was over before")
        if disk.again:
            raise broken(f"synced again after a failed sync: {disk.again}")
        disk.mend()
        losses = ("none", f"random {self.sweep.rng.getrandbits(30)}")
        left = [
            ("killed", disk.killed()),
            *((f"power loss {label!r}", disk.crashed(label)) for label in losses),
        ]
        with contextlib.suppress(OSError, WalError, TimingWheelError):
            self._close()
        if disk.again:
            raise broken(f"closing synced again what had failed: {disk.again}")
        for opened in list(disk._machine.handles):  # as a process that ends does
            disk.close(opened)
        for label, state in [*left, ("the same machine", disk)]:
            self.sweep.states += 1
            try:
                self._live_on(state)
            except broken as violation:
                raise broken(f"{label}: {violation}") from violation
            except (OSError, WalError, TimingWheelError) as error:
                raise broken(f"{label}: it fails again: {error!r}") from error

    # -- what a kind of driver says -------------------------------------------------------

    @abstractmethod
    def _open(self) -> None:
        """Open, for the first time."""

    @property
    @abstractmethod
    def _opened(self) -> object:
        """What is open, another thing after each open; None before the first."""

    @property
    @abstractmethod
    def _is_closed(self) -> bool:
        """Whether nothing is open now."""

    @property
    @abstractmethod
    def _failure(self) -> BaseException | None:
        """What has ended the log for good."""

    @abstractmethod
    def _check(self) -> None:
        """Look that what was refused has changed nothing."""

    @abstractmethod
    def _requests(self) -> Iterable[Callable[[], object]]:
        """Yield requests of every kind, none of which is taken after a final failure."""

    @abstractmethod
    def _close(self) -> None:
        """Close what is open."""

    @abstractmethod
    def _live_on(self, disk: MemoryFileSystem) -> None:
        """Open a disk that was left, compare, and live on."""

    # -- inside ---------------------------------------------------------------------------

    def _attempt(self, step: Callable[[Driver], object]) -> bool:
        """Do one step; return whether there can be others."""
        for _ in range(2):
            before = self.files, self._opened
            try:
                step(self.driver)
            except self.strangers:
                if not self.lasts:
                    raise
                return True
            except (OSError, WalError, TimingWheelError) as error:
                is_over = (self.files, self._opened) != before
                if self._judge(error, is_over=is_over):
                    return False
            else:
                return True
            self._check()
            if self.lasts:
                return True
        raise self.sweep.violation(
            "what was refused once is refused again by a sound disk"
        )

    def _judge(self, error: Exception, *, is_over: bool) -> bool:
        """Look that an error is right; return whether it ended this life.

        Args:
            error: what a step has raised.
            is_over: whether the step had already closed what was open.
        """
        broken, trouble = self.sweep.violation, self.sweep.trouble
        self.outcome = type(error).__name__
        if not self.disk.fault.struck:
            raise broken(f"{error!r}, and the disk was well") from error
        if self._step < 0 or is_over or self._is_closed:
            if isinstance(error, OSError | DiskFullError | CommitUnknownError):
                return True
            if isinstance(error, StoreError) and "is not writable" in error.found:
                return True
            raise broken(f"an open or a close raised {error!r}") from error
        if self._failure is not None:
            if not isinstance(error, CommitUnknownError | EngineFailedError):
                raise broken(f"a final failure was told as {error!r}") from error
            if trouble.spares_commits:
                raise broken("a commit met it") from error
            self._require_final()
            return True
        if not isinstance(error, OSError | DiskFullError):
            raise broken(f"an error of no right kind: {error!r}") from error
        if isinstance(error, DiskFullError) and trouble.code not in NO_ROOM:
            raise broken("a full disk, of a disk that is not") from error
        return False

    def _require_final(self) -> None:
        """No request is taken, nothing is read, and nothing fires."""
        for request in self._requests():
            try:
                request()
            except EngineFailedError:
                continue
            raise self.sweep.violation("one whose disk had failed goes on")
