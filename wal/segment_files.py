"""The segments that stand in a directory, whatever became of them.

Recovery refuses the first bad header (wal/reader.py); here every file is listed, and that
its owner may drop one between two calls is no error.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from wal.filesystem import FileSystem, opened
from wal.segment import (
    SEGMENT_HEADER_BYTES,
    SegmentHeader,
    decode_segment_header,
    parse_segment_name,
)
from wal.snapshot import parse_snapshot_name

LISTINGS_MAX: Final = 5
"""How often the names are read anew because a file was gone when it was opened."""


@dataclass(frozen=True, slots=True)
class SegmentFile:
    """A file that is named like a segment.

    Attributes:
        name: of the file.
        segment_id: by the header, or by the name if that is damaged.
        first_lsn: likewise.
        size_bytes: of the file.
        header: what the first block says, None if it is damaged.
        block: the first block.
    """

    name: str
    segment_id: int
    first_lsn: int
    size_bytes: int
    header: SegmentHeader | None
    block: bytes

    @property
    def is_renamed(self) -> bool:
        """Whether its name is not the one that its header goes with."""
        return self.header is not None and self.header.name != self.name


def list_segments(files: FileSystem) -> list[SegmentFile]:
    """Return the segments by id.

    Raises:
        StoreError: one is of a newer format.
        OSError: the directory or a file cannot be read.
    """
    found: list[SegmentFile] = []
    for _ in range(LISTINGS_MAX):
        names = list(filter(parse_segment_name, files.names()))
        found = [segment for name in names for segment in _look_at(files, name)]
        if len(found) == len(names):
            break  # else the owner has just dropped one, and may have begun another
    # Of two that claim one id, the one that has the right name comes first.
    return sorted(found, key=lambda s: (s.segment_id, s.is_renamed, s.name))


def is_segment(name: str) -> bool:
    """Return whether a file is named like a segment."""
    return parse_segment_name(name) is not None


def _look_at(files: FileSystem, name: str) -> Iterator[SegmentFile]:
    """Yield what stands at the head of a segment's file, nothing if it is gone."""
    try:
        with opened(files, name) as handle:
            size = files.size_bytes(handle)
            block = files.pread(handle, SEGMENT_HEADER_BYTES, 0)
    except FileNotFoundError:
        return
    header = decode_segment_header(block, f"{files.path}/{name}")
    named = parse_segment_name(name)
    assert named is not None
    place = (header.segment_id, header.first_lsn) if header is not None else named
    yield SegmentFile(name, *place, size, header, block)


def is_of_a_log(name: str) -> bool:
    """Return whether a file is named like a segment or a snapshot."""
    return parse_segment_name(name) is not None or parse_snapshot_name(name) is not None


def sizes_of(
    files: FileSystem, is_wanted: Callable[[str], bool] = lambda _: True
) -> dict[str, int]:
    """Return the files of a directory by name, with their sizes in bytes; {} without it.

    Args:
        files: the directory.
        is_wanted: by the name. In the process that has the store open, leave out what is
            not of the log: SQLite's locks are lost when any handle of its file closes.
    """
    try:
        names = files.names() if files.exists() else []
    except NotADirectoryError:
        names = []  # `is_store` says so
    sizes = {}
    for name in filter(is_wanted, names):
        try:
            with opened(files, name) as handle:
                sizes[name] = files.size_bytes(handle)
        except (FileNotFoundError, IsADirectoryError):
            continue
        except OSError as error:
            if error.errno != errno.ENXIO:  # a socket, which is no file
                raise
    return sizes


def read_file(files: FileSystem, name: str) -> bytes:
    """Return a whole file as the disk has it; an OSError names the file."""
    try:
        with opened(files, name) as handle:
            files.forget_cache(handle)
            return files.pread(handle, files.size_bytes(handle), 0)
    except OSError as error:
        if error.filename is not None:
            raise
        path = f"{files.path}/{name}"
        raise OSError(error.errno, error.strerror, path) from error
