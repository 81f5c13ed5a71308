"""Bytes of a group frame: the unit of write, of atomicity and of checksum.

One commit writes one frame, however many records it takes along. All integers are
little-endian; a frame starts on 64 bytes, so its header never straddles a sector.

    offset  size  field
    0       4     magic         b"TWgf", never zero
    4       4     header_crc    CRC32C of 8..63
    8       4     body_length   bytes of records, at most BODY_BYTES_MAX
    12      4     record_count  0 only in a CLOSE frame
    16      8     first_lsn     number of the first record
    24      8     last_lsn      first_lsn + record_count - 1
    32      8     durable_lsn   highest LSN known synced when this frame was written
    40      8     wall_ns       wall clock then, ns since 1970: data, never order
    48      4     body_crc      CRC32C of the body as written: padded and masked
    52      4     chain_crc     CRC32C of the previous frame's header (0 before the first)
    56      2     flags         ATOMIC, RELAXED, MASKED, CLOSE
    58      1     version       FRAME_VERSION
    59      1     zero
    60      4     mask          the pattern that the body was XORed with, 0 for none
    64      ..    body          records, then zeros up to a multiple of 64

    record = size (4 bytes), then that many bytes of payload; its LSN is its place.

Both checksums start from the segment's salt and id and the frame's offset, so a block
that was copied, recycled or written to the wrong place cannot pass.

The mask keeps a promise to the tail rule (docs/wal-format.md): no 512-byte sector of a
written frame after its first is all zero, nor one damaged byte away from it, so a zero
sector proves a torn write.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntFlag
from typing import Final, NewType

from wal.checksum import extend
from wal.filesystem import SECTOR_BYTES

Lsn = NewType("Lsn", int)

MAGIC: Final = b"TWgf"
FRAME_VERSION: Final = 1
HEADER_BYTES: Final = 64
ALIGN_BYTES: Final = 64
BODY_BYTES_MAX: Final = 8 << 20
RECORD_OVERHEAD_BYTES: Final = 4
LSN_MAX: Final = (1 << 63) - 1

_HEADER: Final = struct.Struct("<4sIIIQQQQIIHBxI")
_SEED: Final = struct.Struct("<QQ")
_OFFSET: Final = struct.Struct("<Q")
_SIZE: Final = struct.Struct("<I")
_FAINT_RUN: Final = bytes(SECTOR_BYTES // 2 - 1)
assert _HEADER.size == HEADER_BYTES


class Flag(IntFlag):
    """What is special about a frame."""

    NONE = 0
    ATOMIC = 1
    """All records hold or none: true of every frame of this version."""
    RELAXED = 2
    """Acknowledged before it was synced (`durability="interval"`)."""
    MASKED = 4
    """The body is XORed with `mask`."""
    CLOSE = 8
    """The log was closed here; nothing follows."""


# IntFlag arithmetic costs microseconds a frame, a look-up nothing.
_FLAGS: Final = tuple(Flag(bits) for bits in range(Flag.CLOSE << 1))
_ATOMIC: Final = int(Flag.ATOMIC)
_MASKED: Final = int(Flag.MASKED)


@dataclass(frozen=True, slots=True)
class Header:
    """The fields of a frame header whose checksum holds."""

    body_length: int
    record_count: int
    first_lsn: Lsn
    last_lsn: Lsn
    durable_lsn: Lsn
    wall_ns: int
    body_crc: int
    chain_crc: int
    flags: Flag
    mask: int

    @property
    def frame_bytes(self) -> int:
        """Bytes from the start of this frame to the start of the next."""
        return HEADER_BYTES + padded(self.body_length)


@dataclass(frozen=True, slots=True)
class Group:
    """Frames read back: `record_count` records from `first_lsn` on, still encoded.

    One frame, or several that follow each other (wal/runs.py); `wall_ns` and `flags` are
    the last one's.
    """

    first_lsn: Lsn
    record_count: int
    body: bytes
    wall_ns: int
    flags: Flag


class FormatError(ValueError):
    """Bytes with a valid checksum that do not follow the format: a newer writer's."""


def padded(length: int) -> int:
    """Return `length` rounded up to a multiple of ALIGN_BYTES."""
    return -(-length // ALIGN_BYTES) * ALIGN_BYTES


def frame_bytes(body_length: int) -> int:
    """Return the room that a frame with this much body takes."""
    return HEADER_BYTES + padded(body_length)


def segment_seed(salt: int, segment_id: int) -> int:
    """Return what both checksums of every frame of a segment start from."""
    return extend(0, _SEED.pack(salt, segment_id))


# -- records ---------------------------------------------------------------------------


def encode_records(payloads: Iterable[bytes]) -> bytes:
    """Return the body that holds these records, in order."""
    pack = _SIZE.pack
    return b"".join([pack(len(payload)) + payload for payload in payloads])


def decode_records(body: bytes, start: int = 0) -> Iterator[bytes]:
    """Yield the payloads of a body, in order.

    Args:
        body: encoded records.
        start: the byte where the first of them begins.

    Raises:
        FormatError: sizes that do not add up.
    """
    unpack = _SIZE.unpack_from
    at, end = start, len(body)
    while at < end:
        if at + RECORD_OVERHEAD_BYTES > end:
            raise FormatError(f"half a record size at byte {at} of a body of {end}")
        (size,) = unpack(body, at)
        at += RECORD_OVERHEAD_BYTES
        if at + size > end:
            raise FormatError(f"a record of {size} bytes at byte {at} of {end}")
        yield body[at : at + size]
        at += size


# -- frames ----------------------------------------------------------------------------


def encode_frame(
    body: bytes | bytearray,
    *,
    record_count: int,
    first_lsn: int,
    durable_lsn: int,
    wall_ns: int,
    chain_crc: int,
    flags: Flag,
    seed: int,
    offset: int,
) -> bytes:
    """Return the frame as it goes to the disk at `offset` of its segment.

    Args:
        body: encoded records, at most BODY_BYTES_MAX bytes.
        record_count: how many; 0 only with Flag.CLOSE.
        first_lsn: number of the first record.
        durable_lsn: highest LSN known synced now.
        wall_ns: wall clock, 0 <= wall_ns < 2**64.
        chain_crc: `chain_of` the previous frame.
        flags: RELAXED and CLOSE as they apply; ATOMIC and MASKED are set here.
        seed: `segment_seed` of the segment.
        offset: where in the segment, a multiple of ALIGN_BYTES.

    Cost: O(len(body)); two checksum calls.
    """
    assert len(body) <= BODY_BYTES_MAX
    assert offset % ALIGN_BYTES == 0
    bits = int(flags) | _ATOMIC
    stored = bytes(body).ljust(padded(len(body)), b"\0")
    mask = _find_mask(stored, offset)
    if mask:
        stored = _xor(stored, mask)
        bits |= _MASKED
    at_offset = extend(seed, _OFFSET.pack(offset))
    header = _HEADER.pack(
        MAGIC,
        0,
        len(body),
        record_count,
        first_lsn,
        first_lsn + record_count - 1,
        durable_lsn,
        wall_ns,
        extend(at_offset, stored),
        chain_crc,
        bits,
        FRAME_VERSION,
        mask,
    )
    header_crc = extend(at_offset, header[8:])
    return b"".join((header[:4], _SIZE.pack(header_crc), header[8:], stored))


def chain_of(frame: bytes, offset: int = 0) -> int:
    """Return the chain checksum that the next frame carries."""
    assert 0 <= offset <= len(frame) - HEADER_BYTES
    return extend(0, frame[offset : offset + HEADER_BYTES])


def decode_header(data: bytes, offset: int, seed: int) -> Header | None:
    """Return the header at `offset` of a segment's bytes, or None if none is valid.

    A header is valid if it is whole, its magic, version and checksum hold, and its
    fields agree with each other. Nothing is allocated on the strength of a length.

    Args:
        data: the bytes of a segment, from its start.
        offset: where the frame starts, a multiple of ALIGN_BYTES; past the end is allowed.
        seed: `segment_seed` of the segment.

    Raises:
        FormatError: the checksum is valid, and a version or flag is newer than this reader.
    """
    if offset + HEADER_BYTES > len(data) or data[offset : offset + 4] != MAGIC:
        return None
    (_, header_crc, body_length, record_count, first_lsn, last_lsn) = (
        fields := _HEADER.unpack_from(data, offset)
    )[:6]
    at_offset = extend(seed, _OFFSET.pack(offset))
    if extend(at_offset, data[offset + 8 : offset + HEADER_BYTES]) != header_crc:
        return None
    durable_lsn, wall_ns, body_crc, chain_crc, flags, version, mask = fields[6:]
    if version != FRAME_VERSION or flags >= len(_FLAGS):
        raise FormatError(
            f"frame version {version}, flags {flags:#x}: written by a newer version"
        )
    if (
        body_length > BODY_BYTES_MAX
        or last_lsn != first_lsn + record_count - 1
        or last_lsn > LSN_MAX
    ):
        return None
    return Header(
        body_length,
        record_count,
        Lsn(first_lsn),
        Lsn(last_lsn),
        Lsn(durable_lsn),
        wall_ns,
        body_crc,
        chain_crc,
        _FLAGS[flags],
        mask,
    )


def decode_body(data: bytes, offset: int, *, header: Header, seed: int) -> bytes | None:
    """Return the body of the frame at `offset`, or None if its checksum fails.

    Args:
        data: the bytes of a segment, from its start.
        offset: where the frame starts.
        header: what `decode_header` gave there.
        seed: `segment_seed` of the segment.

    Returns:
        The encoded records, unmasked and without padding.

    Cost: O(body): one checksum call, and a copy.
    """
    start = offset + HEADER_BYTES
    length = padded(header.body_length)
    stored = data[start : start + length]
    at_offset = extend(seed, _OFFSET.pack(offset))
    if len(stored) != length or extend(at_offset, stored) != header.body_crc:
        return None
    if header.mask:
        stored = _xor(stored, header.mask)
    return stored[: header.body_length]


def has_unwritten_sector(data: bytes, offset: int, header: Header) -> bool:
    """Return whether a sector of this frame after its first never reached the disk.

    True if some 512-byte sector after the one that holds the header is all zero within
    the frame, or lies past the end of the file.
    """
    end = offset + header.frame_bytes
    at = (offset // SECTOR_BYTES + 1) * SECTOR_BYTES
    while at < end:
        stop = min(at + SECTOR_BYTES, end)
        if stop > len(data) or not any(data[at:stop]):
            return True
        at = stop
    return False


def _find_mask(stored: bytes, offset: int) -> int:
    """Return 0 if no sector after the first is faint, else a pattern that mends it."""
    first = -(offset + HEADER_BYTES) % SECTOR_BYTES
    if len(stored) <= first or not _has_faint_sector(stored, first):
        return 0
    # There are at most 2**14 sectors in a body and 2**32 patterns: one always fits, and
    # the first tried nearly always does. 0 is none of them: under it the body is as it is.
    pattern = 0xA5C3_5A3C
    while _has_faint_sector(_xor(stored, pattern), first):
        pattern = (pattern * 1_664_525 + 1_013_904_223) & 0xFFFF_FFFF
    return pattern


def _has_faint_sector(stored: bytes, first: int) -> bool:
    """Return whether a sector of `stored`, cut at `first`, first + 512, ..., is faint."""
    tail = (len(stored) - first) % SECTOR_BYTES
    if tail and _is_faint(stored[len(stored) - tail :]):
        return True
    # A faint sector has zeros in a row on one side of its one byte; few bodies do.
    if stored.find(_FAINT_RUN, first) < 0:
        return False
    sectors = range(first, len(stored) - tail, SECTOR_BYTES)
    return any(_is_faint(stored[at : at + SECTOR_BYTES]) for at in sectors)


def _is_faint(sector: bytes) -> bool:
    """Return whether one damaged byte could make a sector all zero.

    All zero is not enough: a flipped bit in the only byte that is not would make damage
    look like a sector that was never written.
    """
    return len(sector) - sector.count(0) < 2


def _xor(data: bytes, pattern: int) -> bytes:
    """Return `data`, a multiple of 64 bytes long, XORed with the repeated pattern."""
    repeated = _SIZE.pack(pattern) * (len(data) // 4)
    number = int.from_bytes(data, "little") ^ int.from_bytes(repeated, "little")
    return number.to_bytes(len(data), "little")
