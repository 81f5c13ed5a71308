"""What the sweeps of faults share: in a life, every system call fails in turn.

A life is led once to count its calls, then once more for each call that is to fail. What
a life is, and what it is held to, say `log_fault_sweep`, and, for what stands on a log,
`driver_fault_sweep` with `engine_fault_sweep` and `store_fault_sweep`.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import ClassVar

from tests.crash.fault_disk import FaultDisk, Trouble
from wal.filesystem import FileSystem


class FaultLife(ABC):
    """One run of a program on a disk with one fault.

    Attributes:
        outcome: how the last thing that failed, failed.
        stack: closes what is open when it is over.

    Args:
        trouble: what goes wrong.
    """

    def __init__(self, trouble: Trouble) -> None:
        self._trouble = trouble
        self.stack = ExitStack()
        self.outcome = "nobody noticed"

    @property
    @abstractmethod
    def files(self) -> FileSystem:
        """The disk, which heirs of a killed process have in their turn."""

    @property
    def disk(self) -> FaultDisk:
        """The disk, with its fault."""
        files = self.files
        assert isinstance(files, FaultDisk)
        return files

    @property
    def lasts(self) -> bool:
        """Whether the disk stays as it is until it is mended."""
        return self._trouble.kind != "once"

    @property
    @abstractmethod
    def where(self) -> str:
        """How far it has come in its program, for messages."""

    @abstractmethod
    def live(self) -> None:
        """Do all steps, or those up to a final failure."""

    @abstractmethod
    def look(self) -> None:
        """Open what is left, in every way, and live on."""


@dataclass
class FaultSweep(ABC):
    """Faults in one life. Counts what it tried and what came of it.

    Args:
        trouble: what goes wrong.
        rng: chooses the power losses that are looked at.

    Attributes:
        outcomes: how the last thing that failed, failed.
        states: disks that were opened and lived on with.
    """

    violation: ClassVar[type[Exception]]
    """What breaks a promise; raised with words."""

    trouble: Trouble
    rng: random.Random
    outcomes: Counter[str] = field(default_factory=Counter, init=False)
    states: int = field(default=0, init=False)

    @abstractmethod
    def life(self, index: int) -> FaultLife:
        """Return a new life whose `index`-th call fails; 0: none does."""

    def run(self, *, start: int = 0, stride: int = 1) -> int:
        """Fail every `stride`-th call; return how many were tried.

        Raises:
            violation: naming the call that repeats it.
        """
        with ExitStack() as stack:
            counted = self._begun(0, stack)
            counted.live()
            calls = counted.disk.fault.calls
        indexes = range(1 + start, calls + 1, stride)
        for index in indexes:
            with ExitStack() as stack:
                life = self._begun(index, stack)
                try:
                    life.live()
                    life.look()
                except self.violation as broken:
                    raise self.violation(
                        f"{self.trouble} at call {index} ({life.disk.fault.struck}), "
                        f"{life.where}: {broken}"
                    ) from broken
                self.outcomes[life.outcome] += 1
        return len(indexes)

    def _begun(self, index: int, stack: ExitStack) -> FaultLife:
        life = self.life(index)
        stack.enter_context(life.stack)
        return life
