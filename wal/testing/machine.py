"""The machine that processes share: calls counted, crashes, faults, and the room left.

One `Machine` has one `Disk`. It is off for good once the crash has come: every call from
any process raises `SimulatedCrash` then.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import threading
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from wal.filesystem import Handle
from wal.testing.disk import Disk, Inode

BLOCK_BYTES: Final = 4096
TRACE_MAX: Final = 10_000

_DIRECTORY_CALLS = {"make_directory", "sync_dir", "rename", "unlink", "lock"}
_FILE_CALLS = {"create", "pwrite", "truncate", "datasync", "sync"}
_READS = {"exists", "names", "open", "pread", "size_bytes"}
FAILABLE: Final = frozenset(_DIRECTORY_CALLS | _FILE_CALLS | _READS)


class Call(NamedTuple):
    """One recorded call: numbered from 1 since the disk was made."""

    number: int
    op: str
    name: str
    detail: str


class SimulatedCrash(BaseException):
    """The machine is off: raised by the call that `crash_at` names and all later ones.

    Not an Exception, so that no handler of errors takes it for one.
    """


@dataclass(slots=True)
class Fault:
    """The OSError that coming calls of `op` meet, at the file `name` or at any."""

    op: str
    code: int
    message: str
    name: str | None
    skip: int  # calls that still pass
    times: int | None  # calls that will fail then; None is without end

    def strikes(self, op: str, name: str) -> bool:
        """Count this call; return whether it fails."""
        if op != self.op or self.name not in (None, name) or self.times == 0:
            return False
        if self.skip:
            self.skip -= 1
            return False
        if self.times is not None:
            self.times -= 1
        return True


@dataclass(slots=True)
class OpenFile:
    """What a handle stands for. `name` follows renames."""

    inode: Inode
    name: str
    writable: bool
    locks: bool


class Machine:
    """What the processes on one disk have in common. `mutex` guards all of it.

    Invariant: `calls` calls were recorded, and none took effect after `off` was set.
    """

    def __init__(self, disk: Disk, path: str) -> None:
        self.disk = disk
        self.path = path
        self.mutex = threading.RLock()
        self.calls = 0
        self.trace: deque[Call] = deque(maxlen=TRACE_MAX)
        self.faults: list[Fault] = []
        self.capacity_bytes: int | None = None
        self.write_bytes_max: int | None = None
        self.off = False
        self.crash_index = 0
        self.crash_after = False
        self.handles: dict[Handle, OpenFile] = {}
        self.processes = 1
        self._last_handle = 2  # never used again, so a stale one cannot hit a new file

    @contextlib.contextmanager
    def recorded(self, op: str, name: str = "", detail: str = "") -> Iterator[None]:
        """Record a call and let it happen in the `with` block, or not.

        Raises:
            SimulatedCrash: the machine is off, or goes off with this call.
            OSError: a fault was set.
        """
        with self.mutex:
            self._require_on()
            self.calls += 1
            self.trace.append(Call(self.calls, op, name, detail))
            index = self.calls
            self._go_off(index, after=False)
            try:
                self._meet_faults(op, name)
                yield
            finally:
                self._go_off(index, after=True)

    @contextlib.contextmanager
    def unrecorded(self, op: str, name: str = "") -> Iterator[None]:
        """Let a call happen that changes nothing on the disk. Raises as `recorded`."""
        with self.mutex:
            self._require_on()
            self._meet_faults(op, name)
            yield

    def opened(self, handle: Handle) -> OpenFile:
        """Return the open file, or raise EBADF."""
        with self.mutex:
            if handle not in self.handles:
                raise self.error(errno.EBADF, "")
            return self.handles[handle]

    def add_handle(self, opened: OpenFile) -> Handle:
        """Return a new handle of the open file."""
        self._last_handle += 1
        handle = Handle(self._last_handle)
        self.handles[handle] = opened
        return handle

    def require_directory(self) -> None:
        """Raise ENOENT if the directory was never made."""
        if not self.disk.present:
            raise self.error(errno.ENOENT, "")

    def named(self, name: str) -> Inode:
        """Return the file of that name, or raise ENOENT."""
        if name not in self.disk.names:
            raise self.error(errno.ENOENT, name)
        return self.disk.names[name]

    def error(self, code: int, name: str) -> OSError:
        """Return the error with the file's path, or the directory's."""
        path = os.path.join(self.path, name) if name else self.path
        return OSError(code, os.strerror(code), path)

    def used_bytes(self) -> int:
        """Return what the files own, those without a name too while they are open."""
        files = set(self.disk.names.values())
        files.update(opened.inode for opened in self.handles.values())
        return sum(_whole_blocks(len(file.visible)) for file in files)

    def room_bytes(self, size_bytes: int) -> int:
        """Return how long a file that has `size_bytes` may become."""
        if self.capacity_bytes is None:
            return sys.maxsize
        free = max(0, self.capacity_bytes - self.used_bytes())
        return _whole_blocks(size_bytes) + free // BLOCK_BYTES * BLOCK_BYTES

    def _require_on(self) -> None:
        if self.off:
            side = "right after" if self.crash_after else "at"
            raise SimulatedCrash(f"the machine went off {side} call {self.crash_index}")

    def _go_off(self, index: int, *, after: bool) -> None:
        if index == self.crash_index and after == self.crash_after:
            self.off = True
            self._require_on()

    def _meet_faults(self, op: str, name: str) -> None:
        struck = [fault for fault in self.faults if fault.strikes(op, name)]
        if struck:
            error = self.error(struck[0].code, name)
            error.strerror = struck[0].message
            raise error


def _whole_blocks(size_bytes: int) -> int:
    return -(-size_bytes // BLOCK_BYTES) * BLOCK_BYTES
