"""A backup as one file: a tar of what its directory holds, the manifest first.

    BACKUP        the manifest, as in a directory
    data/NAME     each file that the manifest names, in its order
    zeros         two blocks, the end of a tar

Plain tar, so that any tar unpacks it to the directory that it stands for. The file has
its name only when it is whole and was read back; till then it is `NAME.tmp`.
"""

from __future__ import annotations

import tarfile
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from wal.backup import COPY_BYTES
from wal.filesystem import FileSystem, Handle, opened, write_fully

SUFFIX: Final = ".tar"
TEMPORARY_SUFFIX: Final = ".tmp"
_MODE: Final = 0o600
_END: Final = bytes(2 * tarfile.BLOCKSIZE)


class TornArchiveError(Exception):
    """The file is no whole tar. Its text says in which way, as a phrase."""


def pack(
    place: FileSystem,
    names: Sequence[str],
    out: FileSystem,
    name: str,
    *,
    mtime_ns: int,
) -> None:
    """Move files into a new tar, durably; it does not have its name yet.

    Each file shrinks from its end as it goes over and is removed then, so the disk needs
    room for one of the two, and for COPY_BYTES more.

    Args:
        place: the directory of the files, which are gone afterwards; cut off, it is left
            with some of them.
        names: of the files, in the order of the tar.
        out: the directory of the tar.
        name: of the tar; it is written as `name` + TEMPORARY_SUFFIX.
        mtime_ns: of all members, ns since 1970.
    """
    tar = out.create(name + TEMPORARY_SUFFIX)
    try:
        at = 0
        for member in names:
            with opened(place, member, writable=True) as handle:
                size = place.size_bytes(handle)
                head = _header(member, size, mtime_ns)
                write_fully(out, tar, head, offset=at)
                at += len(head)
                for begin in reversed(range(0, size, COPY_BYTES)):
                    chunk = place.pread(handle, COPY_BYTES, begin)
                    write_fully(out, tar, chunk, offset=at + begin)
                    place.truncate(handle, begin)
            place.unlink(member)
            at += size
            pad = bytes(-size % tarfile.BLOCKSIZE)
            if pad:
                write_fully(out, tar, pad, offset=at)
                at += len(pad)
        write_fully(out, tar, _END, offset=at)
        out.sync(tar)
    finally:
        out.close(tar)


def publish(out: FileSystem, name: str, *, looked_over: Callable[[str], None]) -> None:
    """Give a tar its name once it was read back.

    Args:
        out: its directory.
        name: of the tar.
        looked_over: called with the name it still has; raises if it is not well.
    """
    looked_over(name + TEMPORARY_SUFFIX)
    out.rename(name + TEMPORARY_SUFFIX, name)
    out.sync_dir()


def members(files: FileSystem, name: str) -> dict[str, tuple[int, int]]:
    """Return where each member of a tar lies: its name -> (offset, bytes).

    Raises:
        TornArchiveError: it is no tar, or not whole.
    """
    found: dict[str, tuple[int, int]] = {}
    with opened(files, name) as handle:
        files.forget_cache(handle)  # the disk is asked, not the memory
        end = files.size_bytes(handle)
        at = 0
        while True:
            block = files.pread(handle, tarfile.BLOCKSIZE, at)
            if len(block) == tarfile.BLOCKSIZE and not any(block):
                return found
            try:
                info = tarfile.TarInfo.frombuf(block, "utf-8", "strict")
            except (tarfile.HeaderError, UnicodeDecodeError) as error:
                how = "was cut off" if found else "is no tar"
                raise TornArchiveError(f"{how}, at offset {at}: {error}") from error
            at += tarfile.BLOCKSIZE
            if at + info.size > end:
                raise TornArchiveError(f"was cut off, in {info.name}")
            found[info.name] = (at, info.size)
            at += info.size + -info.size % tarfile.BLOCKSIZE


def chunks_of(
    files: FileSystem, name: str, offset: int, size_bytes: int
) -> Iterator[bytes]:
    """Yield the bytes of a member, from the disk."""
    with opened(files, name) as handle:
        files.forget_cache(handle)
        yield from _chunks(files, handle, offset, size_bytes)


def _chunks(
    files: FileSystem, handle: Handle, offset: int, size_bytes: int
) -> Iterator[bytes]:
    end = offset + size_bytes
    for at in range(offset, end, COPY_BYTES):
        yield files.pread(handle, min(COPY_BYTES, end - at), at)


def _header(name: str, size_bytes: int, mtime_ns: int) -> bytes:
    info = tarfile.TarInfo(name)
    info.size, info.mode, info.mtime = size_bytes, _MODE, mtime_ns // 1_000_000_000
    # GNU's form alone holds sizes beyond 8 GiB in one block.
    return info.tobuf(tarfile.GNU_FORMAT, "utf-8", "strict")
