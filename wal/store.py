r"""The directory of a store: what may stand in it, `STORE`, and the lock.

    LOCK                   flock; its text names the holder
    STORE                  identity, written last, so its presence proves that creation was complete
    wal-<id>-<lsn>.seg     segments                       (wal/segment.py)
    snap-<lsn>.snap        snapshots                      (wal/snapshot.py)
    ready-<n>.tmp          zero-filled segments to come   (wal/pool.py)
    *.tmp                  anything half made; removed at the next open
    *.torn, *.damaged      bytes set aside for a person to look at; never read

Bytes of `STORE`, little-endian:

    offset  size  field
    0       8     magic              b"TWSTORE\0"
    8       2     format major
    10      2     format minor
    12      4     incompatible bits
    16      4     read-only bits
    20      4     compatible bits    REPAIRED: records are missing, by `wal repair`
    24      16    uuid
    40      8     created            wall clock, ns since 1970
    48      4     CRC32C of 0..47

An empty or a missing file is never "an empty store": a directory is a new store only
while it holds nothing, or what a creation that a crash interrupted leaves.
"""

from __future__ import annotations

import contextlib
import struct
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from wal.checksum import crc32c
from wal.errors import StoreError, StoreInUseError
from wal.filesystem import FileSystem, Handle, read_whole, write_fully, write_new_file
from wal.segment import (
    FORMAT_MAJOR,
    FORMAT_MINOR,
    SEGMENT_HEADER_BYTES,
    check_features,
    parse_segment_name,
)

STORE_NAME: Final = "STORE"
LOCK_NAME: Final = "LOCK"
OPENING_NAME: Final = "opening.tmp"
"""The segment that an open begins with, until it has its name."""
TEMPORARY_SUFFIX: Final = ".tmp"
REPAIRED: Final = 1
"""Compatible bit: a repair left records out, so later ones may name unknown things."""

_MAGIC: Final = b"TWSTORE\0"
_STORE: Final = struct.Struct("<8sHHIII16sQ")
_CRC: Final = struct.Struct("<I")
_STORE_BYTES: Final = _STORE.size + _CRC.size


@dataclass(frozen=True, slots=True)
class StoreIdentity:
    """What `STORE` says."""

    uuid: bytes
    created_ns: int
    compatible: int = 0

    @property
    def repaired(self) -> bool:
        """Whether `wal repair` made this store and left records out."""
        return bool(self.compatible & REPAIRED)

    def encode(self) -> bytes:
        """Return the bytes of the file."""
        fields = _STORE.pack(
            _MAGIC,
            FORMAT_MAJOR,
            FORMAT_MINOR,
            0,
            0,
            self.compatible,
            self.uuid,
            self.created_ns,
        )
        return fields + _CRC.pack(crc32c(fields))


def new_identity(files: FileSystem, wall_ns: int) -> StoreIdentity:
    """Return the identity of a store born now."""
    return StoreIdentity(uuid=files.entropy(16), created_ns=wall_ns)


def read_identity(files: FileSystem) -> StoreIdentity:
    """Return what `STORE` says.

    Raises:
        StoreError: damaged, of another kind, or of a newer format.
    """
    data = read_whole(files, STORE_NAME)
    path = f"{files.path}/{STORE_NAME}"
    identity = decode_identity(data, path)
    if identity is not None:
        return identity
    if len(data) != _STORE_BYTES or not data.startswith(_MAGIC):
        raise StoreError(
            path,
            f"{len(data)} bytes that are not the identity of a store",
            "if this was one, bring the file back from a backup; the log beside it is "
            "readable by: python -m wal inspect",
        )
    raise StoreError(
        path,
        "its checksum does not hold",
        "bring this one file back from a backup; nothing else was touched",
    )


def decode_identity(data: bytes, path: str) -> StoreIdentity | None:
    """Return what the bytes of `STORE` say, or None if they are damaged.

    Args:
        data: the whole file.
        path: of the file, for messages.

    Raises:
        StoreError: good bytes of a newer format.
    """
    if len(data) != _STORE_BYTES or not data.startswith(_MAGIC):
        return None
    fields = data[: _STORE.size]
    if crc32c(fields) != _CRC.unpack_from(data, _STORE.size)[0]:
        return None
    (_, major, minor, incompatible, read_only, compatible, uuid, created) = (
        _STORE.unpack(fields)
    )
    check_features(
        path,
        major=major,
        minor=minor,
        incompatible=incompatible,
        read_only=read_only,
    )
    return StoreIdentity(uuid=uuid, created_ns=created, compatible=compatible)


def write_identity(files: FileSystem, identity: StoreIdentity) -> None:
    """Complete a new store: from here on the directory is one, whatever happens."""
    write_new_file(files, STORE_NAME, identity.encode())


def is_store(files: FileSystem, *, create: bool) -> bool:
    """Return whether the path holds a store; False: it may become a new one.

    Args:
        files: the directory, which may not exist.
        create: whether the caller accepts a new store.

    Raises:
        StoreError: a file, a directory that holds something else, a store that lost its
            `STORE` or all of its log, or nothing where a store is expected.
        OSError: the directory cannot be read.
    """
    path = files.path
    try:
        there = files.exists()
    except NotADirectoryError:
        raise StoreError(
            path, "is a file, not a directory", "pass the path of a directory"
        ) from None
    names = files.names() if there else []
    if STORE_NAME in names:
        return True
    strangers = [name for name in names if not left_by_birth(files, name)]
    if strangers:
        shown = ", ".join(strangers[:3]) + (", ..." if len(strangers) > 3 else "")
        if any(parse_segment_name(name) for name in strangers):
            found = f"holds a log ({shown}) but no {STORE_NAME}"
            raise StoreError(path, found, f"bring {STORE_NAME} back from a backup")
        raise StoreError(
            path,
            f"is not a store: it holds {shown}",
            "pass an empty or a new directory",
        )
    if not create:
        found = "is empty" if there else "does not exist"
        raise StoreError(path, found, "check the path; no store was made")
    return False


def clear_birth(files: FileSystem) -> None:
    """Remove what a creation that a crash interrupted left. The lock must be held."""
    for name in files.names():
        if name != LOCK_NAME and left_by_birth(files, name):
            files.unlink(name)


def left_by_birth(files: FileSystem, name: str) -> bool:
    """Return whether a file may stand in a store whose creation was interrupted.

    A first segment may: it is made before `STORE` and holds no frame until after it. Of
    temporary files only our own: others may be somebody's work.
    """
    if name in (LOCK_NAME, OPENING_NAME, STORE_NAME + TEMPORARY_SUFFIX):
        return True
    if parse_segment_name(name) != (1, 1):
        return False
    return not any(read_whole(files, name)[SEGMENT_HEADER_BYTES:])


# -- the lock --------------------------------------------------------------------------


def take_lock(files: FileSystem) -> Handle:
    """Return the handle that holds the directory until it is closed.

    Raises:
        StoreInUseError: naming the holder as far as its text does.
    """
    handle = files.lock(LOCK_NAME)
    if handle is None:
        with contextlib.suppress(OSError):
            text = read_whole(files, LOCK_NAME).decode("utf-8", "replace").strip()
            if text:
                raise StoreInUseError(files.path, text)
        raise StoreInUseError(files.path, "another process that is just opening it")
    return handle


def write_holder(files: FileSystem, lock: Handle, wall_ns: int) -> None:
    """Write into LOCK who holds it and since when, for the next one's message.

    It only informs, so a disk that is too full for it does not matter.
    """
    since = datetime.fromtimestamp(wall_ns // 1_000_000_000, UTC)
    text = f"{files.process_label()}, open since {since:%Y-%m-%d %H:%M:%S} UTC\n"
    with contextlib.suppress(OSError):
        files.truncate(lock, 0)
        write_fully(files, lock, text.encode(), offset=0)


def clear_holder(files: FileSystem, lock: Handle) -> None:
    """Take the text out again; the lock itself goes when the handle is closed."""
    with contextlib.suppress(OSError):
        files.truncate(lock, 0)
