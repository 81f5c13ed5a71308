"""A disk whose n-th system call fails, counted over all kinds of calls and all lives.

`MemoryFileSystem.fail` counts the calls of one method. A sweep wants every call of a
life in turn, whatever it is, and goes on counting when a process was killed and the next
one opens the same disk.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Literal

from wal.filesystem import NO_DESCRIPTOR, Handle
from wal.testing import MemoryFileSystem
from wal.testing.disk import Inode
from wal.testing.machine import FAILABLE, Fault

READS: Final = frozenset({"exists", "names", "open", "pread", "size_bytes"})
OPENING: Final = frozenset({"make_directory", "names", "create", "open", "lock"})
"""What takes a descriptor; the directory of a locked store has its own already."""
SYNCS: Final = frozenset({"sync", "datasync", "sync_dir"})
NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""Codes that are told as a full disk."""

Kind = Literal["once", "from then on", "fills up"]


@dataclass(frozen=True, slots=True)
class Trouble:
    """What goes wrong with a disk.

    Attributes:
        code: the errno.
        kind: one call alone; or all from it on that could meet it; or, from it on, no
            file takes one block more, while those that are there can be written over.
    """

    code: int
    kind: Kind

    def __str__(self) -> str:
        return f"{errno.errorcode[self.code]} {self.kind}"

    @property
    def spares_commits(self) -> bool:
        """Whether all that a commit needs is there before anything is promised."""
        return self.kind == "fills up" or self.code in NO_DESCRIPTOR

    def hits(self, op: str) -> bool:
        """Return whether calls of this kind are counted and can fail so."""
        if op not in FAILABLE:
            return False
        if self.code in NO_DESCRIPTOR:
            return op in OPENING
        if self.code == errno.EROFS:
            return op not in READS | SYNCS
        return self.code == errno.EIO or op not in READS


@dataclass(slots=True)
class NthCall(Fault):
    """Fails the n-th call that the trouble can hit.

    Attributes:
        calls: how many such calls were made so far.
        struck: what the failed call was, "" before.
    """

    trouble: Trouble = field(default_factory=lambda: Trouble(errno.EIO, "once"))
    index: int = 0
    calls: int = 0
    struck: str = ""
    healed: bool = False
    fill: Callable[[], None] = lambda: None

    def strikes(self, op: str, name: str) -> bool:
        """Count this call; return whether it fails."""
        if not self.trouble.hits(op):
            return False
        self.calls += 1
        if self.calls < self.index or not self.index or self.healed:
            return False
        if self.calls > self.index and self.trouble.kind == "once":
            return False
        if not self.struck:
            self.struck = f"{op} {name}"
            self.fill()
        return self.trouble.kind != "fills up"


def nth_call(trouble: Trouble, index: int) -> NthCall:
    """Return the fault of the `index`-th call from 1; 0 only counts."""
    return NthCall(
        "", trouble.code, os.strerror(trouble.code), None, 0, None, trouble, index
    )


class FaultDisk(MemoryFileSystem):
    """A disk in memory with one trouble, which its heirs by `killed` share.

    Attributes:
        fault: the trouble, and how far it was counted.
        failed: files of which a sync failed.
        again: those of them that were synced once more with what they held, which would
            prove nothing.
    """

    def __init__(self, trouble: Trouble, index: int) -> None:
        super().__init__()
        self.fault = nth_call(trouble, index)
        self.failed: list[Inode] = []
        self.again: list[str] = []
        self._suffer(self.fault)

    def killed(self) -> FaultDisk:
        """Return the disk after SIGKILL; the same trouble goes on."""
        heir = FaultDisk(self.fault.trouble, 0)
        heir._machine.disk = self._machine.disk.fork()
        heir._machine.capacity_bytes = self.capacity_bytes
        heir._begin_life(self._life + 1, 1)
        heir._suffer(self.fault)
        return heir

    def _suffer(self, fault: NthCall) -> None:
        self.fault = fault
        self._machine.faults[:] = [fault]
        if fault.trouble.kind == "fills up":
            fault.fill = self._fill

    def _fill(self) -> None:
        self.capacity_bytes = self.used_bytes

    def mend(self) -> None:
        """Let every call succeed from now on."""
        self.fault.healed = True
        self.capacity_bytes = None

    def create(self, name: str) -> Handle:
        """Create an empty file; of one of that name all that had failed is gone."""
        handle = super().create(name)
        inode = self._machine.opened(handle).inode
        self.failed = [one for one in self.failed if one is not inode]
        return handle

    def sync(self, handle: Handle) -> None:
        """Make a file durable; note if that had failed before."""
        self._noted(handle, super().sync)

    def datasync(self, handle: Handle) -> None:
        """Make a file's bytes durable; note if that had failed before."""
        self._noted(handle, super().datasync)

    def _noted(self, handle: Handle, sync: Callable[[Handle], None]) -> None:
        opened = self._machine.opened(handle)
        if opened.inode in self.failed:
            self.again.append(opened.name)
        try:
            sync(handle)
        except OSError:
            self.failed.append(opened.inode)
            raise
