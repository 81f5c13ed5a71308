"""The disk itself: where benchmarks write, and the least that a durable write costs."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench.rounds import BASELINE, Sustained
from wal.filesystem import FileSystem, Handle
from wal.pool import zero_fill

NEEDED_BYTES = 4 << 30
"""Free space without which nothing is begun; a full run stays below it."""
FILE_BYTES = 64 << 20
_MEMORY_ONLY = frozenset({"tmpfs", "ramfs", "devtmpfs"})


class SpaceError(Exception):
    """The disk is too full to measure on."""


@contextlib.contextmanager
def work_directory(parent: Path) -> Iterator[Path]:
    """Make an empty directory below `parent`, and remove it whatever happens.

    Raises:
        SpaceError: less than NEEDED_BYTES are free there.
        OSError: it cannot be made.
    """
    parent.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(parent).free
    if free < NEEDED_BYTES:
        raise SpaceError(
            f"{parent}: {free >> 20:,} MiB are free and {NEEDED_BYTES >> 20:,} needed: "
            "make room, or name another directory with --dir"
        )
    place = Path(tempfile.mkdtemp(prefix="bench-", dir=parent))
    try:
        place.chmod(0o711)  # a server may run as another user, who must get through
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


def kind_of(directory: Path) -> str:
    """Return the kind of file system that a directory is on, such as "ext4"."""
    try:
        with open("/proc/mounts", encoding="utf-8") as mounts:
            lines = [line.split() for line in mounts]
    except OSError:
        return "unknown"
    place = directory.resolve()
    kinds = {Path(line[1]): line[2] for line in lines}
    return next((kinds[at] for at in (place, *place.parents) if at in kinds), "unknown")


def is_memory(kind: str) -> bool:
    """Return whether a sync is free there, so that no durable figure means anything."""
    return kind in _MEMORY_ONLY


class Fdatasync(Sustained):
    """Writes equal bytes to blocks that the file already owns, each time with a sync.

    Args:
        directory: where its file goes.
        size_bytes: of a write.
        timers: how many timers those bytes would be, for the figure a timer.
    """

    peer = BASELINE

    def __init__(self, directory: Path, *, size_bytes: int, timers: int = 1) -> None:
        self.note = f"{size_bytes:,} B a sync"
        self._files = FileSystem(directory)
        self._data = os.urandom(size_bytes)
        self._timers = timers
        self._offset = 0
        self._name = f"baseline-{size_bytes}"
        self._handle: Handle = self._files.create(self._name)
        # A file that grew would add its size to each sync: 1.3 times the cost of one.
        for _ in zero_fill(self._files, self._handle, FILE_BYTES):
            pass
        self._files.sync(self._handle)

    def run(self) -> float:
        return self.repeat(self.write)

    def close(self) -> None:
        self._files.close(self._handle)
        self._files.unlink(self._name)

    def write(self) -> int:
        """Write once, durably; return how many timers those bytes would be."""
        if self._offset + len(self._data) > FILE_BYTES:
            self._offset = 0
        os.pwrite(self._handle, self._data, self._offset)
        os.fdatasync(self._handle)
        self._offset += len(self._data)
        return self._timers


def forget(directory: Path) -> None:
    """Drop a directory's files from the page cache, so that the disk is read."""
    os.sync()
    for path in directory.rglob("*"):
        if path.is_file():
            with open(path, "rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
