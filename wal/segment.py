"""Segments: the files of a log, their names and their 4-KiB header.

A segment is made full-size and zero-filled before its first use, so a commit in it
changes no metadata; it is never used twice. Its header is synced before the file gets
its name, so a named segment always has one. All integers are little-endian.

    offset  size  field
    0       8     magic               b"TWLOGSEG"
    8       2     format major        a reader refuses what is above its own
    10      2     format minor        informs only
    12      4     incompatible bits   unknown ones: refuse
    16      4     read-only bits      unknown ones: read, never write
    20      4     compatible bits     unknown ones: ignore
    24      16    store uuid
    40      8     segment id          from 1, consecutive
    48      8     first LSN           of the first record that may stand here
    56      8     salt                random; every checksum in the segment starts from it
    64      1     checksum kind       1 = CRC32C
    66      2     sector size         the atomic unit that the tail rule assumes
    72      8     size                bytes the file was made with
    80      8     created             wall clock, ns since 1970
    88      8     predecessor id      0 for the first segment
    96      8     predecessor end     its exact length in use; bytes past it are ignored
    104     8     predecessor last LSN
    112     4     predecessor chain   chain CRC after its last frame
    116     ..    zero
    4092    4     CRC32C of 0..4091

Names: wal-<segment id>-<first LSN>.seg, both in 16 hexadecimal digits.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from typing import Final

from wal.checksum import crc32c
from wal.errors import StoreError
from wal.filesystem import SECTOR_BYTES
from wal.frame import LSN_MAX, Lsn, segment_seed

SEGMENT_HEADER_BYTES: Final = 4096
FORMAT_MAJOR: Final = 1
FORMAT_MINOR: Final = 0
KNOWN_INCOMPATIBLE: Final = 0
KNOWN_READ_ONLY: Final = 0

_MAGIC: Final = b"TWLOGSEG"
_HEADER: Final = struct.Struct("<8sHHIII16sQQQBxH4xQQQQQI")
_CRC: Final = struct.Struct("<I")
_CHECKSUM_CRC32C: Final = 1
_NAME: Final = re.compile(r"wal-([0-9a-f]{16})-([0-9a-f]{16})\.seg")


@dataclass(frozen=True, slots=True)
class SegmentEnd:
    """Where a segment ends: what its successor's header says of it."""

    segment_id: int
    offset: int
    last_lsn: Lsn
    chain_crc: int


NO_PREDECESSOR: Final = SegmentEnd(0, 0, Lsn(0), 0)


@dataclass(frozen=True, slots=True)
class SegmentHeader:
    """What the first block of a segment says."""

    store_uuid: bytes
    segment_id: int
    first_lsn: Lsn
    salt: int
    size_bytes: int
    created_ns: int
    predecessor: SegmentEnd

    @property
    def name(self) -> str:
        """The file name that goes with this header."""
        return segment_name(self.segment_id, self.first_lsn)

    @property
    def seed(self) -> int:
        """What the checksums of this segment's frames start from."""
        return segment_seed(self.salt, self.segment_id)

    def encode(self) -> bytes:
        """Return the 4096 bytes of the block."""
        before = self.predecessor
        fields = _HEADER.pack(
            _MAGIC,
            FORMAT_MAJOR,
            FORMAT_MINOR,
            0,
            0,
            0,
            self.store_uuid,
            self.segment_id,
            self.first_lsn,
            self.salt,
            _CHECKSUM_CRC32C,
            SECTOR_BYTES,
            self.size_bytes,
            self.created_ns,
            before.segment_id,
            before.offset,
            before.last_lsn,
            before.chain_crc,
        )
        block = fields.ljust(SEGMENT_HEADER_BYTES - _CRC.size, b"\0")
        return block + _CRC.pack(crc32c(block))


def segment_name(segment_id: int, first_lsn: int) -> str:
    """Return the file name of a segment."""
    return f"wal-{segment_id:016x}-{first_lsn:016x}.seg"


def parse_segment_name(name: str) -> tuple[int, Lsn] | None:
    """Return (segment id, first LSN) of a segment's file name, None for other names."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    return int(match[1], 16), Lsn(int(match[2], 16))


def decode_segment_header(block: bytes, path: str) -> SegmentHeader | None:
    """Return what a header block says, or None if it is damaged.

    Args:
        block: the first SEGMENT_HEADER_BYTES of the file.
        path: of the file, for messages.

    Raises:
        StoreError: a good header of a format or with features that we do not know.
    """
    if len(block) != SEGMENT_HEADER_BYTES or not block.startswith(_MAGIC):
        return None
    if crc32c(block[:-4]) != _CRC.unpack_from(block, SEGMENT_HEADER_BYTES - 4)[0]:
        return None
    (_, major, minor, incompatible, read_only, _, uuid, segment_id, first_lsn) = (
        fields := _HEADER.unpack_from(block)
    )[:9]
    salt, checksum, sector, size, created, *before = fields[9:]
    check_features(
        path,
        major=major,
        minor=minor,
        incompatible=incompatible,
        read_only=read_only,
    )
    if checksum != _CHECKSUM_CRC32C or sector != SECTOR_BYTES:
        raise StoreError(
            path,
            f"checksum kind {checksum} and sectors of {sector} bytes",
            "open it with the version that wrote it",
        )
    if max(segment_id, first_lsn, size, *before[:3]) > LSN_MAX:
        return None  # no writer gets so far, and sums with it would not fit 64 bits
    end = SegmentEnd(before[0], before[1], Lsn(before[2]), before[3])
    return SegmentHeader(uuid, segment_id, Lsn(first_lsn), salt, size, created, end)


def claims_of_damaged_header(block: bytes) -> tuple[bytes, int] | None:
    """Return the (store uuid, salt) that a damaged header block seems to hold.

    For salvage: nothing proves them, but frames that hold under that salt do. None if
    the block is cut off before them.
    """
    if len(block) < _HEADER.size:
        return None
    fields = _HEADER.unpack_from(block)
    return fields[6], fields[9]


def check_features(
    path: str, *, major: int, minor: int, incompatible: int, read_only: int
) -> None:
    """Refuse a file whose format is newer than this program.

    Raises:
        StoreError: naming the version found and the one known.
    """
    if major > FORMAT_MAJOR:
        raise StoreError(
            path,
            f"format {major}.{minor}, and this version reads up to {FORMAT_MAJOR}",
            "open it with a newer version of this package",
        )
    unknown = incompatible & ~KNOWN_INCOMPATIBLE | read_only & ~KNOWN_READ_ONLY
    if unknown:
        raise StoreError(
            path,
            f"feature bits {unknown:#x} that this version does not know",
            "open it with a newer version of this package",
        )
