"""Every system call that a log makes, on one directory.

Nothing else in the house touches files, so a test can record each call, fail the n-th,
and replay every state that a crash may legally leave: `wal.testing.MemoryFileSystem` is
the same interface over memory.

What a caller may rely on, and no more:

- `pwrite` reaches the disk only with a later `datasync` or `sync` of that file;
- `datasync` covers the bytes and the size, not the file's *name*;
- a name that `create`, `rename` or `unlink` changed holds only after `sync_dir`;
- 512-byte sectors are written whole or not at all (`SECTOR_BYTES`).

From `lock` until its handle is closed, the directory is the one that was locked, by its
descriptor and no longer by its path: renamed or swapped for another under a process at
work, it goes on in the one that it knows, and makes nothing in the other. It needs no
descriptor then to sync its names.

Errors are OSError with the file's path in `filename`. Names are relative to the directory.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple, NewType

Handle = NewType("Handle", int)

SECTOR_BYTES: Final = 512
NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""Errors of a disk that takes no more for now: full, a quota, a limit on file sizes."""
NO_DESCRIPTOR: Final = frozenset({errno.EMFILE, errno.ENFILE})
"""Errors of a process, or of a machine, that can open no file more for now."""
REMOVED: Final = "was removed while it was open, with all it held"
"""What a sync of a file that no name leads to any more is told."""
_MODE: Final = 0o644
_OCTAL: Final = re.compile(r"\\([0-7]{3})")
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class Free(NamedTuple):
    """Room on a file system.

    Attributes:
        size_bytes: that can still be written.
        files: that can still be made; None where nobody counts them.
    """

    size_bytes: int
    files: int | None


class FileSystem:
    """The system calls of one store's directory. Keeps no state but the directory.

    Args:
        path: the directory; it need not exist yet.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self._held: int | None = None
        """The directory's descriptor, while it is locked."""
        self._lock: Handle | None = None

    # -- the directory ---------------------------------------------------------------

    def make_directory(self) -> None:
        """Create the directory and its parents if missing, durably.

        Raises:
            OSError: no permission, a parent is a file, a read-only file system, ...
        """
        missing = []
        place = os.path.abspath(self.path)
        while not os.path.isdir(place):
            missing.append(place)
            place = os.path.dirname(place)
        os.makedirs(self.path, exist_ok=True)
        for made in missing:
            _sync_path(os.path.dirname(made))

    def remove_directory(self) -> None:
        """Remove the directory, which must be empty."""
        os.rmdir(self.path)

    def exists(self) -> bool:
        """Return whether the directory is there; NotADirectoryError if it is a file."""
        held = self._held
        if held is not None:
            return os.fstat(held).st_nlink > 0
        if os.path.lexists(self.path) and not os.path.isdir(self.path):
            raise NotADirectoryError(errno.ENOTDIR, "is not a directory", self.path)
        return os.path.isdir(self.path)

    def names(self) -> list[str]:
        """Return the names in the directory, sorted."""
        held = self._held
        if held is None:
            return sorted(os.listdir(self.path))
        # A descriptor of its own: threads that list by one share how far they are.
        with self._errors_named(""):
            own = os.open(".", _DIRECTORY, dir_fd=held)
        try:
            return sorted(os.listdir(own))
        finally:
            os.close(own)

    def sync_dir(self) -> None:
        """Make all names of the directory durable."""
        held = self._held
        if held is None:
            _sync_path(self.path)
            return
        with self._errors_named(""):
            os.fsync(held)

    def rename(self, old: str, new: str) -> None:
        """Give `old` the name `new`, replacing what had it, in one step."""
        held = self._held
        with self._errors_named(old):
            os.rename(
                self._at(old, held),
                self._at(new, held),
                src_dir_fd=held,
                dst_dir_fd=held,
            )

    def unlink(self, name: str) -> None:
        """Remove a name; the bytes go with the last handle."""
        held = self._held
        with self._errors_named(name):
            os.unlink(self._at(name, held), dir_fd=held)

    # -- files ------------------------------------------------------------------------

    def create(self, name: str) -> Handle:
        """Create an empty file for reading and writing, replacing any of that name."""
        return self._open(name, os.O_RDWR | os.O_CREAT | os.O_TRUNC)

    def open(self, name: str, *, writable: bool = False) -> Handle:
        """Open an existing file."""
        return self._open(name, os.O_RDWR if writable else os.O_RDONLY)

    def close(self, handle: Handle) -> None:
        """Close a handle. What was written stays un-synced if it was."""
        held = self._held
        if held is None or handle != self._lock:
            os.close(handle)
            return
        self._held = self._lock = None
        os.close(handle)
        os.close(held)

    def size_bytes(self, handle: Handle) -> int:
        """Return the file's length."""
        return os.fstat(handle).st_size

    def pread(self, handle: Handle, size_bytes: int, offset: int) -> bytes:
        """Return `size_bytes` from byte `offset` on; fewer only at the end of the file."""
        data = os.pread(handle, size_bytes, offset)
        if len(data) == size_bytes or not data:
            return data
        parts = [data]
        got = len(data)
        while got < size_bytes:
            part = os.pread(handle, size_bytes - got, offset + got)
            if not part:
                break
            parts.append(part)
            got += len(part)
        return b"".join(parts)

    def pwrite(self, handle: Handle, data: bytes, offset: int) -> int:
        """Write from byte `offset` on; return how many bytes went: 0 .. len(data)."""
        return os.pwrite(handle, data, offset)

    def truncate(self, handle: Handle, size_bytes: int) -> None:
        """Set the file's length."""
        os.ftruncate(handle, size_bytes)

    def datasync(self, handle: Handle) -> None:
        """Make the file's bytes and length durable, not its name.

        Raises:
            FileNotFoundError: the file was removed, so nothing can find its bytes.
        """
        os.fdatasync(handle)
        if not os.fstat(handle).st_nlink:
            self._require_name(handle)

    def sync(self, handle: Handle) -> None:
        """Make the file durable with all its metadata; raises as `datasync`."""
        os.fsync(handle)
        if not os.fstat(handle).st_nlink:
            self._require_name(handle)

    def forget_cache(self, handle: Handle) -> None:
        """Drop the file's clean pages, so that the next read asks the disk.

        After a failed sync the kernel may show pages that the disk never got (Rebello
        et al., ATC 2020); a verdict about damage must not rest on them.
        """
        with contextlib.suppress(OSError):  # a hint: some file systems refuse it
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)

    # -- the lock ---------------------------------------------------------------------

    def lock(self, name: str) -> Handle | None:
        """Take the exclusive lock on `name`, made if missing.

        Returns:
            The handle that holds it until closed, or None if somebody else has it.
            `flock`, not `fcntl`: that one is lost when *any* handle of the file closes.
        """
        former = self._held
        held = os.open(self.path, _DIRECTORY) if former is None else former
        handle: Handle | None = None
        try:
            handle = self._open(name, os.O_RDWR | os.O_CREAT, held=held)
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if handle is not None:
                os.close(handle)
            if former is None:
                os.close(held)
            if isinstance(error, BlockingIOError):
                return None
            raise
        if former is None:
            self._held, self._lock = held, handle
        return handle

    # -- the rest ---------------------------------------------------------------------

    def free(self) -> Free:
        """Return what this user may still take where the directory lies."""
        held = self._held
        found = os.statvfs(self.path if held is None else held)
        # A file system that counts no files, such as btrfs, has 0 of 0.
        files = found.f_favail if found.f_files else None
        return Free(found.f_bavail * found.f_frsize, files)

    def kind(self) -> str:
        """Return the kind of file system, such as "ext4"; "" if that is not known."""
        try:
            # Names need not be text; what is not comes as it does from the system.
            with open(
                "/proc/self/mounts", encoding="utf-8", errors="surrogateescape"
            ) as mounts:
                return kind_at(os.path.realpath(self.path), mounts)
        except OSError:
            return ""

    def entropy(self, size_bytes: int) -> bytes:
        """Return random bytes for uuids and salts."""
        return os.urandom(size_bytes)

    def process_label(self) -> str:
        """Return how this process is named to others that find the lock taken."""
        return f"process {os.getpid()}"

    def _require_name(self, handle: Handle) -> None:
        """Raise if no name leads to a file; there are systems that never count them."""
        number = os.fstat(handle).st_ino
        with contextlib.suppress(FileNotFoundError):
            for name in self.names():
                with contextlib.suppress(FileNotFoundError):
                    held = self._held
                    found = os.lstat(self._at(name, held), dir_fd=held)
                    if found.st_ino == number:
                        return
        raise FileNotFoundError(errno.ENOENT, REMOVED, self.path)

    def _open(self, name: str, flags: int, *, held: int | None = None) -> Handle:
        held = self._held if held is None else held
        with self._errors_named(name):
            return Handle(
                os.open(self._at(name, held), flags | os.O_CLOEXEC, _MODE, dir_fd=held)
            )

    def _at(self, name: str, held: int | None) -> str:
        """Return a name as a system call takes it beside `dir_fd=held`."""
        return os.path.join(self.path, name) if held is None else name

    @contextlib.contextmanager
    def _errors_named(self, name: str) -> Iterator[None]:
        """Give an error the file's path, which a call by descriptor does not know."""
        try:
            yield
        except OSError as error:
            error.filename = os.path.join(self.path, name) if name else self.path
            raise


def kind_at(place: str, mounts: Iterable[str]) -> str:
    """Return the kind of file system that a path lies on, "" if no mount holds it.

    Args:
        place: absolute, without links.
        mounts: lines of device, place, kind and more, as /proc/self/mounts has them: a
            blank in a name, and what else would part the fields, is an octal number.
    """
    kind, longest = "", 0
    for line in mounts:
        _, at, found, *_ = line.split(" ")
        at = _OCTAL.sub(lambda number: chr(int(number[1], 8)), at)
        # A later mount on the same place hides the earlier one.
        if len(at) >= longest and os.path.commonpath([at, place]) == at:
            kind, longest = found, len(at)
    return kind


def _sync_path(path: str) -> None:
    handle = os.open(path, _DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_fully(files: FileSystem, handle: Handle, data: bytes, *, offset: int) -> None:
    """Write all of `data` at `offset`, going on after short writes.

    Raises:
        OSError: the write failed; how much went is unknown.
    """
    written = files.pwrite(handle, data, offset)
    while written < len(data):
        went = files.pwrite(handle, data[written:], offset + written)
        if went == 0:
            raise OSError(errno.EIO, "a write went nowhere", files.path)
        written += went


def read_whole(files: FileSystem, name: str) -> bytes:
    """Return a whole file. Raises OSError as the disk does."""
    with opened(files, name) as handle:
        return files.pread(handle, files.size_bytes(handle), 0)


@contextlib.contextmanager
def opened(files: FileSystem, name: str, *, writable: bool = False) -> Iterator[Handle]:
    """Open a file for the length of a `with` block."""
    handle = files.open(name, writable=writable)
    try:
        yield handle
    finally:
        files.close(handle)


def write_new_file(files: FileSystem, name: str, data: bytes) -> None:
    """Make a file with these bytes appear under `name`, whole or not at all, durably.

    Temporary name, write, sync, rename, directory sync: whichever of them a crash cuts
    off, `name` is either absent (or the old file) or complete.

    Raises:
        OSError: as the disk does; on a full one nothing half made takes up room.
    """
    temporary = name + ".tmp"
    handle = files.create(temporary)
    try:
        write_fully(files, handle, data, offset=0)
        files.sync(handle)
    except OSError:
        with contextlib.suppress(OSError):
            files.unlink(temporary)
        raise
    finally:
        files.close(handle)
    files.rename(temporary, name)
    files.sync_dir()
