"""Snapshots: the state of the log's owner at an LSN, in a file that can be verified.

The owner hands in blocks of bytes and gets them back in order; what they mean is its
business. A snapshot may be *fuzzy*: pinned at `pin_lsn`, written while the log goes on,
and complete once the log is durable up to `reach_lsn`; its owner replays the records
after `pin_lsn` over it. All integers are little-endian.

    offset  size  header (4096 bytes, the rest zero)
    0       8     magic           b"TWSNAPSH"
    8       2+2   format major, minor
    12      3*4   incompatible, read-only, compatible bits
    24      16    store uuid
    40      8     pin_lsn
    48      8     salt            random; seeds the checksums below
    56      8     created         wall clock, ns since 1970
    4092    4     CRC32C of 0..4091

    offset  size  block           (then the next block, or the footer)
    0       4     magic           b"TWsb"
    4       4     CRC32C of 8.. to the end of the body, seeded with the salt
    8       4     index           0, 1, 2, ...
    12      4     body length     at most BLOCK_BYTES_MAX
    16      ..    body

    offset  size  footer          (ends the file)
    0       4     magic           b"TWsf"
    4       4     CRC32C of 8..39, seeded with the salt
    8       8     block count
    16      8     pin_lsn
    24      8     reach_lsn       the log must reach this LSN for the snapshot to hold
    32      4     CRC32C over the CRCs of all blocks in order
    36      4     zero

Source: fuzzy checkpoints as in ARIES (Mohan et al. 1992); reading back before anything
is dropped is ours.
"""

from __future__ import annotations

import contextlib
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from wal.checksum import crc32c, extend
from wal.filesystem import FileSystem, opened, write_fully
from wal.frame import LSN_MAX, Lsn
from wal.segment import FORMAT_MAJOR, FORMAT_MINOR, check_features

BLOCK_BYTES_MAX: Final = 8 << 20
SYNC_EVERY_BYTES: Final = 1 << 20
SNAPSHOT_HEADER_BYTES: Final = 4096
_WRITING: Final = "snapshot.tmp"

_MAGIC: Final = b"TWSNAPSH"
_HEADER: Final = struct.Struct("<8sHHIII16sQQQ")
_BLOCK_MAGIC: Final = b"TWsb"
_BLOCK: Final = struct.Struct("<4sIII")
_FOOTER_MAGIC: Final = b"TWsf"
_FOOTER: Final = struct.Struct("<4sIQQQI4x")
_U32: Final = struct.Struct("<I")
_U64: Final = struct.Struct("<Q")
_NAME: Final = re.compile(r"snap-([0-9a-f]{16})\.snap")


class SnapshotDamagedError(ValueError):
    """A snapshot failed its check. An older one and the log since it serve.

    Attributes:
        path: of the file.
        offset: where in it, in bytes.
        what: what was found there.
    """

    def __init__(self, path: str, offset: int, what: str) -> None:
        super().__init__(f"{path}: offset {offset}: {what}")
        self.path = path
        self.offset = offset
        self.what = what


@dataclass(frozen=True, slots=True)
class SnapshotInfo:
    """What a verified snapshot says of itself.

    Attributes:
        name: its file.
        pin_lsn: replay starts after this record.
        reach_lsn: the log must hold every record up to this one.
        block_count: how many blocks it has.
        size_bytes: of the file.
        created_ns: wall clock when it was begun, ns since 1970.
    """

    name: str
    pin_lsn: Lsn
    reach_lsn: Lsn
    block_count: int
    size_bytes: int
    created_ns: int


def snapshot_name(pin_lsn: int) -> str:
    """Return the file name of a snapshot."""
    return f"snap-{pin_lsn:016x}.snap"


def parse_snapshot_name(name: str) -> Lsn | None:
    """Return the pin LSN in a snapshot's file name, None for other names."""
    match = _NAME.fullmatch(name)
    return Lsn(int(match[1], 16)) if match is not None else None


def snapshot_names(files: FileSystem) -> list[str]:
    """Return the names of all snapshots, newest first."""
    names = [n for n in files.names() if parse_snapshot_name(n) is not None]
    return sorted(names, reverse=True)


class SnapshotWriter:
    """Writes one snapshot. Until `finish` returns, nothing of it can be found.

    Args:
        files: the store's directory.
        uuid: of the store.
        pin_lsn: the state written is at least that of this LSN, durable already.
        wall_ns: wall clock now.

    Raises:
        OSError: from any method; call `abandon` then. A full disk harms nothing else.
    """

    def __init__(
        self, files: FileSystem, uuid: bytes, *, pin_lsn: int, wall_ns: int
    ) -> None:
        self._files = files
        self._uuid = uuid
        self._pin_lsn = pin_lsn
        self._salt = int.from_bytes(files.entropy(8), "little")
        self._seed = crc32c(_U64.pack(self._salt))
        self._count = 0
        self._crcs = 0
        self._unsynced = 0
        self._offset = SNAPSHOT_HEADER_BYTES
        self._open = True
        self._handle = files.create(_WRITING)
        fields = _HEADER.pack(
            _MAGIC,
            FORMAT_MAJOR,
            FORMAT_MINOR,
            0,
            0,
            0,
            uuid,
            pin_lsn,
            self._salt,
            wall_ns,
        ).ljust(SNAPSHOT_HEADER_BYTES - 4, b"\0")
        header = fields + _U32.pack(crc32c(fields))
        try:
            write_fully(files, self._handle, header, offset=0)
        except BaseException:
            self.abandon()
            raise

    def add(self, body: bytes) -> None:
        """Write one block, 1 .. BLOCK_BYTES_MAX bytes; syncs after each MiB."""
        assert 0 < len(body) <= BLOCK_BYTES_MAX
        crc = extend(self._seed, struct.pack("<II", self._count, len(body)) + body)
        block = _BLOCK.pack(_BLOCK_MAGIC, crc, self._count, len(body)) + body
        self._write(block)
        self._crcs = extend(self._crcs, _U32.pack(crc))
        self._count += 1
        if self._unsynced >= SYNC_EVERY_BYTES:
            # One long sync at the end would hold up the log's commits behind it.
            self._files.datasync(self._handle)
            self._unsynced = 0

    def finish(self, *, reach_lsn: int) -> SnapshotInfo:
        """Complete the snapshot, make it findable, read it back and verify it.

        Args:
            reach_lsn: the last LSN whose effect may be in a block; durable already.

        Raises:
            SnapshotDamagedError: what came back is not what was written.
        """
        tail = struct.pack("<QQQI4x", self._count, self._pin_lsn, reach_lsn, self._crcs)
        crc = extend(self._seed, tail)
        self._write(_FOOTER_MAGIC + _U32.pack(crc) + tail)
        self._files.sync(self._handle)
        self._files.forget_cache(self._handle)
        self._close()
        name = snapshot_name(self._pin_lsn)
        self._files.rename(_WRITING, name)
        self._files.sync_dir()
        return verify_snapshot(self._files, name, self._uuid)

    def abandon(self) -> None:
        """Remove what was written; never raises, the next open removes it too."""
        with contextlib.suppress(OSError):
            self._close()
        with contextlib.suppress(OSError):
            self._files.unlink(_WRITING)

    def _close(self) -> None:
        if self._open:
            self._open = False  # a second close could hit a file of somebody else
            self._files.close(self._handle)

    def _write(self, data: bytes) -> None:
        write_fully(self._files, self._handle, data, offset=self._offset)
        self._offset += len(data)
        self._unsynced += len(data)


def verify_snapshot(files: FileSystem, name: str, uuid: bytes) -> SnapshotInfo:
    """Read a whole snapshot and return what it says.

    Raises:
        SnapshotDamagedError: it fails its check.
        StoreError: it is of a newer format.
        OSError: it cannot be read; that is no verdict.

    Cost: O(size), one pass, one block in memory at a time.
    """
    reader = _Reader(files, name, uuid)
    for _ in reader.blocks():
        pass
    return reader.info()


def read_snapshot(files: FileSystem, name: str, uuid: bytes) -> Iterator[bytes]:
    """Yield the blocks of a snapshot, each verified; raises as `verify_snapshot`."""
    return _Reader(files, name, uuid).blocks()


class _Reader:
    def __init__(self, files: FileSystem, name: str, uuid: bytes) -> None:
        self._files = files
        self._name = name
        self._uuid = uuid
        self._info: SnapshotInfo | None = None

    def info(self) -> SnapshotInfo:
        assert self._info is not None, "blocks() was not used up"
        return self._info

    def blocks(self) -> Iterator[bytes]:
        with opened(self._files, self._name) as handle:
            size = self._files.size_bytes(handle)

            def read(length: int, offset: int) -> bytes:
                if offset + length > size:
                    raise self._damaged(offset, "the file ends early")
                return self._files.pread(handle, length, offset)

            pin_lsn, salt, created = self._read_header(read(SNAPSHOT_HEADER_BYTES, 0))
            seed = crc32c(_U64.pack(salt))
            at, count, crcs = SNAPSHOT_HEADER_BYTES, 0, 0
            while True:
                head = read(_BLOCK.size, at)
                if head[:4] == _FOOTER_MAGIC:
                    break
                magic, crc, index, length = _BLOCK.unpack(head)
                if magic != _BLOCK_MAGIC or length > BLOCK_BYTES_MAX:
                    raise self._damaged(at, "no block and no footer here")
                body = read(length, at + _BLOCK.size)
                if index != count or extend(seed, head[8:] + body) != crc:
                    raise self._damaged(at, f"block {count} does not hold")
                yield body
                crcs = extend(crcs, _U32.pack(crc))
                count += 1
                at += _BLOCK.size + length
            footer = read(_FOOTER.size, at)
            _, crc, blocks, pinned, reach_lsn, root = _FOOTER.unpack(footer)
            if (
                extend(seed, footer[8:]) != crc
                or (blocks, pinned, root) != (count, pin_lsn, crcs)
                or at + _FOOTER.size != size
                or max(pin_lsn, reach_lsn) > LSN_MAX
            ):
                raise self._damaged(at, "the footer does not hold")
        self._info = SnapshotInfo(
            self._name, Lsn(pin_lsn), Lsn(reach_lsn), count, size, created
        )

    def _read_header(self, block: bytes) -> tuple[int, int, int]:
        crc = _U32.unpack_from(block, SNAPSHOT_HEADER_BYTES - 4)[0]
        if not block.startswith(_MAGIC) or crc32c(block[:-4]) != crc:
            raise self._damaged(0, "the header does not hold")
        (_, major, minor, incompatible, read_only, _, uuid, pin, salt, created) = (
            _HEADER.unpack_from(block)
        )
        check_features(
            f"{self._files.path}/{self._name}",
            major=major,
            minor=minor,
            incompatible=incompatible,
            read_only=read_only,
        )
        if uuid != self._uuid or parse_snapshot_name(self._name) != pin:
            raise self._damaged(0, "it belongs to another store or was renamed")
        return pin, salt, created

    def _damaged(self, offset: int, what: str) -> SnapshotDamagedError:
        return SnapshotDamagedError(f"{self._files.path}/{self._name}", offset, what)
