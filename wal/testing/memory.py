"""`MemoryFileSystem`: the front door of `wal.testing`.

Nothing here waits, asks the time or draws unseeded random numbers, so a run that is the
same does the same.
"""

from __future__ import annotations

import contextlib
import errno
import os
import random
from collections.abc import Iterator
from typing import Final

from wal.filesystem import REMOVED, FileSystem, Free, Handle
from wal.testing.crash import CrashChoice, crash_choices
from wal.testing.disk import Disk, Inode
from wal.testing.machine import FAILABLE, Call, Fault, Machine, OpenFile

_DUPLICATES_MAX: Final = 100  # random states in a row that told nothing new


class MemoryFileSystem(FileSystem):
    """A directory in memory, with the tools to break it. Safe to use from any thread.

    Each call that changes the disk, syncs it or takes the lock is recorded and counted;
    reads are not. The tools are no calls of the program: they are never recorded, work
    on a disk that is off, and make the directory if they have to.

    Args:
        path: what messages show as the directory; nothing is made there.
        seed: where `entropy` starts; each disk made from this one goes on differently.
        process: what `process_label` answers.

    Attributes:
        label: how the crash was chosen that this disk comes from, or "".
    """

    def __init__(
        self, path: str = "memory", *, seed: int = 0, process: str = "process 1"
    ) -> None:
        super().__init__(path)
        self.label = ""
        self._seed = seed
        self._process = process
        self._machine = Machine(Disk(), path)
        self._begin_life(0, 1)

    # -- the directory ---------------------------------------------------------------

    def make_directory(self) -> None:
        """Make the directory, durably."""
        with self._machine.recorded("make_directory"):
            self._machine.disk.present = True

    def remove_directory(self) -> None:
        """Remove the directory, which must be empty."""
        with self._machine.recorded("remove_directory"):
            if self._machine.disk.names:
                raise self._machine.error(errno.ENOTEMPTY, "")
            self._machine.disk.present = False

    def exists(self) -> bool:
        """Return whether the directory is there."""
        with self._machine.unrecorded("exists"):
            return self._machine.disk.present

    def names(self) -> list[str]:
        """Return the names in the directory, sorted."""
        with self._machine.unrecorded("names"):
            self._machine.require_directory()
            return sorted(self._machine.disk.names)

    def sync_dir(self) -> None:
        """Make all names of the directory durable."""
        with self._machine.recorded("sync_dir"):
            self._machine.require_directory()
            self._machine.disk.sync_names()

    def rename(self, old: str, new: str) -> None:
        """Give `old` the name `new`, replacing what had it, in one step."""
        with self._machine.recorded("rename", old, f"to {new}"):
            inode = self._machine.named(old)
            self._machine.disk.rename(old, new)
            for opened in self._machine.handles.values():
                if opened.inode is inode:
                    opened.name = new

    def unlink(self, name: str) -> None:
        """Remove a name; the bytes go with the last handle."""
        with self._machine.recorded("unlink", name):
            self._machine.named(name)
            self._machine.disk.unlink(name)

    # -- files ------------------------------------------------------------------------

    def create(self, name: str) -> Handle:
        """Create an empty file for reading and writing, replacing any of that name.

        A new name needs a free block to be there, though it takes none.
        """
        with self._machine.recorded("create", name):
            return self._add_handle(self._created(name), name, writable=True)

    def open(self, name: str, *, writable: bool = False) -> Handle:
        """Open an existing file."""
        with self._machine.unrecorded("open", name):
            return self._add_handle(self._machine.named(name), name, writable=writable)

    def close(self, handle: Handle) -> None:
        """Close a handle, and with it the lock if it holds it."""
        opened = self._machine.opened(handle)
        with self._machine.unrecorded("close", opened.name):
            del self._machine.handles[handle]

    def size_bytes(self, handle: Handle) -> int:
        """Return the file's length."""
        opened = self._machine.opened(handle)
        with self._machine.unrecorded("size_bytes", opened.name):
            return len(opened.inode.visible)

    def pread(self, handle: Handle, size_bytes: int, offset: int) -> bytes:
        """Return up to `size_bytes` at `offset`; shorter only at the end of the file."""
        opened = self._machine.opened(handle)
        with self._machine.unrecorded("pread", opened.name):
            if offset < 0 or size_bytes < 0:
                raise self._machine.error(errno.EINVAL, opened.name)
            return bytes(opened.inode.visible[offset : offset + size_bytes])

    def pwrite(self, handle: Handle, data: bytes, offset: int) -> int:
        """Write at `offset`; return how many bytes went.

        Fewer go if `short_writes` says so, or if the disk has room for the beginning
        only; ENOSPC comes when there is room for nothing, as on a real disk.
        """
        opened = self._machine.opened(handle)
        detail = f"{offset}+{len(data)}"
        with self._machine.recorded("pwrite", opened.name, detail):
            if offset < 0:
                raise self._machine.error(errno.EINVAL, opened.name)
            if not opened.writable:
                raise self._machine.error(errno.EBADF, opened.name)
            part = bytes(data[: self._fitting_bytes(opened, len(data), offset)])
            disk = self._machine.disk
            disk.write(opened.inode, opened.name, data=part, offset=offset)
            return len(part)

    def truncate(self, handle: Handle, size_bytes: int) -> None:
        """Set the file's length."""
        opened = self._machine.opened(handle)
        with self._machine.recorded("truncate", opened.name, f"{size_bytes}"):
            if not opened.writable or size_bytes < 0:
                raise self._machine.error(errno.EINVAL, opened.name)
            if size_bytes > self._machine.room_bytes(len(opened.inode.visible)):
                raise self._machine.error(errno.ENOSPC, opened.name)
            self._machine.disk.truncate(opened.inode, opened.name, size_bytes)

    def datasync(self, handle: Handle) -> None:
        """Make the file's bytes and length durable, not its name."""
        self._sync("datasync", handle)

    def sync(self, handle: Handle) -> None:
        """Make the file durable with all its metadata, not its name."""
        self._sync("sync", handle)

    def forget_cache(self, handle: Handle) -> None:
        """Let reads show the disk where a failed sync had left pages clean."""
        opened = self._machine.opened(handle)
        with self._machine.unrecorded("forget_cache", opened.name):
            opened.inode.forget_cache()

    # -- the lock and the process -------------------------------------------------------

    def lock(self, name: str) -> Handle | None:
        """Take the exclusive lock on `name`, made if missing; None if it is taken."""
        with self._machine.recorded("lock", name):
            inode = self._machine.disk.names.get(name)
            if inode is None:
                inode = self._created(name)
            opened = self._machine.handles.values()
            if any(other.locks and other.inode is inode for other in opened):
                return None
            return self._add_handle(inode, name, writable=True, locks=True)

    def free(self) -> Free:
        """Return what is left of `capacity_bytes`; a TiB without it."""
        with self._machine.mutex:
            return Free(min(self._machine.room_bytes(0), 1 << 40), None)

    def kind(self) -> str:
        """Return the kind of file system: one of its own."""
        return "memory"

    def entropy(self, size_bytes: int) -> bytes:
        """Return bytes that the seed decides, other ones after each crash."""
        with self._machine.mutex:
            return self._random.randbytes(size_bytes)

    def process_label(self) -> str:
        """Return how this process is named to others that find the lock taken."""
        return self._process

    def other_process(self, process: str | None = None) -> MemoryFileSystem:
        """Return a second process on the same disk: its own label and entropy."""
        machine = self._machine
        with machine.mutex:
            machine.processes += 1
            number = machine.processes
        other = MemoryFileSystem(
            self.path, seed=self._seed, process=process or f"process {number}"
        )
        other._machine = machine
        other._begin_life(self._life, number)
        return other

    # -- what happened, and what shall --------------------------------------------------

    @property
    def calls(self) -> int:
        """How many calls were recorded."""
        return self._machine.calls

    @property
    def trace(self) -> list[Call]:
        """The recorded calls, oldest first; the last 10,000 of them."""
        with self._machine.mutex:
            return list(self._machine.trace)

    @property
    def off(self) -> bool:
        """Whether the crash that `crash_at` set has happened."""
        return self._machine.off

    def crash_at(self, index: int, *, after: bool = False) -> None:
        """Switch the machine off at the `index`-th recorded call since it was made.

        Args:
            index: counted from 1; it must lie ahead.
            after: the call takes effect first. Without, it does nothing at all.

        Raises:
            ValueError: that many calls were made already.
        """
        with self._machine.mutex:
            if index <= self._machine.calls:
                raise ValueError(f"call {index} is past: {self._machine.calls} made")
            self._machine.crash_index = index
            self._machine.crash_after = after

    def fail(
        self,
        op: str,
        error: OSError | int,
        *,
        name: str | None = None,
        after: int = 1,
        times: int | None = 1,
    ) -> None:
        """Make calls of one method raise an OSError, with the file's path in it.

        A failed call changes nothing, but a failed `datasync` or `sync` leaves behind
        what `wal.testing.disk` tells: the next one succeeds and yet makes nothing of
        the earlier writes durable.

        Args:
            op: the method's name: a recorded one, or `exists`, `names`, `open`,
                `pread`, `size_bytes`.
            error: an errno, or an error to take it from.
            name: count and fail only calls at this file (the old name of a rename).
            after: which of the coming calls is the first to fail; 1 is the next.
            times: how many calls fail from there on; None for all until `heal`.

        Raises:
            ValueError: that method cannot fail, or a number is not positive.
        """
        if op not in FAILABLE:
            raise ValueError(f"{op!r} cannot fail; these can: {sorted(FAILABLE)}")
        if after < 1 or (times is not None and times < 1):
            raise ValueError(f"after={after} and times={times} must be positive")
        code = error if isinstance(error, int) else error.errno or errno.EIO
        text = None if isinstance(error, int) else error.strerror
        fault = Fault(op, code, text or os.strerror(code), name, after - 1, times)
        with self._machine.mutex:
            self._machine.faults.append(fault)

    def heal(self) -> None:
        """Forget all faults of `fail` and `short_writes`; the capacity stays."""
        with self._machine.mutex:
            self._machine.faults.clear()
            self._machine.write_bytes_max = None

    def short_writes(self, bytes_max: int | None) -> None:
        """Let `pwrite` write at most that many bytes a call; None lifts it."""
        self._machine.write_bytes_max = bytes_max

    @property
    def capacity_bytes(self) -> int | None:
        """The size of the disk, in whole blocks of 4,096; None is without bound.

        It may be set at any time. A file owns the blocks up to its length: overwriting
        them always works, growing beyond the capacity raises ENOSPC. It is kept over a
        crash.
        """
        return self._machine.capacity_bytes

    @capacity_bytes.setter
    def capacity_bytes(self, size_bytes: int | None) -> None:
        self._machine.capacity_bytes = size_bytes

    @property
    def used_bytes(self) -> int:
        """What the files own, in whole blocks; files without a name while open too."""
        with self._machine.mutex:
            return self._machine.used_bytes()

    # -- crashes --------------------------------------------------------------------------

    def unsynced(self) -> list[str]:
        """Return what a crash may take, oldest first, for people to read."""
        with self._machine.mutex:
            return [str(operation) for operation in self._machine.disk.unsynced()]

    def crashed(self, choice: CrashChoice | str = "none") -> MemoryFileSystem:
        """Return the disk as a power loss at this moment may leave it.

        It is a new one: nothing un-synced, no handle, lock or fault, no call recorded.
        This one is as before.

        Args:
            choice: which of the legal states, or its label.
        """
        if isinstance(choice, str):
            choice = CrashChoice.parse(choice)
        with self._machine.mutex:
            disk = self._machine.disk
            return self._next_life(_after(disk, choice), choice.label)

    def crash_states(
        self, limit: int = 200, seed: int = 0
    ) -> Iterator[MemoryFileSystem]:
        """Yield states that a power loss at this moment may leave, no two alike.

        First the telling ones: nothing kept, everything, only names, only bytes, each
        un-synced operation lost alone and kept alone, the last write torn at its
        sectors, files grown without their bytes. Then random ones, until there are
        `limit` or no new ones are found.

        Args:
            limit: yield at most that many.
            seed: of the random ones.
        """
        with self._machine.mutex:
            disk = self._machine.disk.fork()
        seen: set[object] = set()
        duplicates = 0
        for choice in crash_choices(disk.unsynced(), seed):
            if len(seen) >= limit or duplicates > _DUPLICATES_MAX:
                return
            state = _after(disk, choice)
            fingerprint = state.fingerprint()
            if fingerprint in seen:
                duplicates += choice.kind == "random"
                continue
            seen.add(fingerprint)
            duplicates = 0
            yield self._next_life(state, choice.label)

    def killed(self) -> MemoryFileSystem:
        """Return the disk after SIGKILL of all processes: handles and locks are gone.

        All that was written is there to read, but what was un-synced still is: a power
        loss later may take it.
        """
        return self.copy()

    def copy(self) -> MemoryFileSystem:
        """Return an independent disk with the same files and un-synced operations.

        Handles, locks, faults and the count of calls are not copied.
        """
        with self._machine.mutex:
            return self._next_life(self._machine.disk.fork(), self.label)

    # -- damage, and looking ----------------------------------------------------------------
    # What these verbs change is at once durable, and so is all else of that file.

    def flip_bit(self, name: str, bit_index: int) -> None:
        """Flip one bit of a file; bit 8 is the lowest one of the second byte."""
        with self._editing(name) as content:
            if not 0 <= bit_index < 8 * len(content):
                raise ValueError(f"{name} has no bit {bit_index}")
            content[bit_index // 8] ^= 1 << bit_index % 8

    def overwrite(self, name: str, offset: int, data: bytes) -> None:
        """Put bytes into a file; zeros fill a gap before them."""
        with self._editing(name) as content:
            content.extend(bytes(max(0, offset - len(content))))
            content[offset : offset + len(data)] = data

    def cut(self, name: str, size_bytes: int) -> None:
        """Shorten a file to that length, or leave it if it is shorter."""
        with self._editing(name) as content:
            del content[size_bytes:]

    def put(self, name: str, data: bytes) -> None:
        """Make a file hold these bytes, making it if need be; all names become durable."""
        with self._machine.mutex:
            disk = self._machine.disk
            disk.present = True
            disk.names.setdefault(name, Inode(bytearray())).replace(bytearray(data))
            disk.sync_names()

    def remove(self, name: str) -> None:
        """Remove a file; all names become durable."""
        with self._machine.mutex:
            self._machine.named(name)
            del self._machine.disk.names[name]
            self._machine.disk.sync_names()

    def content(self, name: str) -> bytes:
        """Return the bytes of a file, as a read sees them."""
        with self._machine.mutex:
            return bytes(self._machine.named(name).visible)

    def snapshot_of_all(self) -> dict[str, bytes]:
        """Return all files with their bytes: equal before and after if untouched."""
        with self._machine.mutex:
            files = self._machine.disk.names.items()
            return {name: bytes(inode.visible) for name, inode in sorted(files)}

    # -- the rest -----------------------------------------------------------------------

    def _sync(self, op: str, handle: Handle) -> None:
        opened = self._machine.opened(handle)
        with self._machine.mutex:
            try:
                with self._machine.recorded(op, opened.name):
                    opened.inode.sync()
            except OSError:
                opened.inode.fail_sync()
                raise
            if opened.inode not in self._machine.disk.names.values():
                raise FileNotFoundError(errno.ENOENT, REMOVED, self.path)

    def _created(self, name: str) -> Inode:
        self._machine.require_directory()
        if name not in self._machine.disk.names and not self._machine.room_bytes(0):
            raise self._machine.error(errno.ENOSPC, name)
        return self._machine.disk.create(name)

    def _add_handle(
        self, inode: Inode, name: str, *, writable: bool, locks: bool = False
    ) -> Handle:
        return self._machine.add_handle(OpenFile(inode, name, writable, locks))

    def _fitting_bytes(self, opened: OpenFile, size_bytes: int, offset: int) -> int:
        """Return how much of a write goes. Raises ENOSPC if the disk allows nothing."""
        if self._machine.write_bytes_max is not None:
            size_bytes = min(size_bytes, self._machine.write_bytes_max)
        room = self._machine.room_bytes(len(opened.inode.visible))
        if size_bytes and offset >= room:
            raise self._machine.error(errno.ENOSPC, opened.name)
        return min(size_bytes, room - offset) if size_bytes else 0

    @contextlib.contextmanager
    def _editing(self, name: str) -> Iterator[bytearray]:
        with self._machine.mutex:
            inode = self._machine.named(name)
            content = bytearray(inode.visible)
            yield content
            inode.replace(content)

    def _next_life(self, disk: Disk, label: str) -> MemoryFileSystem:
        heir = MemoryFileSystem(self.path, seed=self._seed, process=self._process)
        heir.label = label
        heir._machine.disk = disk
        heir._machine.capacity_bytes = self._machine.capacity_bytes
        heir._begin_life(self._life + 1, 1)
        return heir

    def _begin_life(self, life: int, process: int) -> None:
        self._life = life  # how many crashes, kills and copies lie behind
        self._random = random.Random(f"{self._seed} {life} {process}")


def _after(disk: Disk, choice: CrashChoice) -> Disk:
    return disk.after_crash(choice.fates(disk.unsynced()))
