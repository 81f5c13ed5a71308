"""What is read of a log's files, whatever they hold: frames, whole stores, snapshots.

Checksums are the first thing that a damaged byte meets, and a fuzzer would meet nothing
else. So each target can make them right again, and what lies behind is reached: lengths,
numbers and counts that no writer of ours has written.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from functools import cache, partial

from tests.fuzz.source import Source
from tests.wal import example_stores
from tests.wal.codec_bodies import COMPILED, PLAIN
from wal.checksum import crc32c, extend
from wal.errors import WalError
from wal.filesystem import FileSystem
from wal.frame import (
    BODY_BYTES_MAX,
    HEADER_BYTES,
    LSN_MAX,
    MAGIC,
    Flag,
    FormatError,
    Lsn,
    chain_of,
    decode_records,
    padded,
)
from wal.inspection import stat, verify
from wal.repair import repair
from wal.runs import Place
from wal.segment import SEGMENT_HEADER_BYTES, SegmentHeader, decode_segment_header
from wal.snapshot import (
    SNAPSHOT_HEADER_BYTES,
    SnapshotDamagedError,
    parse_snapshot_name,
    read_snapshot,
    verify_snapshot,
)
from wal.store import read_identity
from wal.testing import MemoryFileSystem

BLOCK_HEAD_BYTES = 16
FOOTER_BYTES = 40


def outcome(call: Callable[[], object], *allowed: type[Exception]) -> object:
    """What a call returns, or the kind and the words of an error that it may raise."""
    try:
        return call()
    except allowed as error:
        return type(error).__name__, str(error)


# -- sums made right ---------------------------------------------------------------------


def mend_frames(
    data: bytearray, at: int, *, seed: int, next_lsn: int, chain_crc: int, follow: bool
) -> None:
    """Give the frames that lie one behind the other from `at` on the sums that hold.

    Args:
        data: a segment.
        at: where the first of them begins.
        seed: of the segment.
        next_lsn: what the first begins with.
        chain_crc: what the first carries.
        follow: whether numbers and chain are made right too.
    """
    while at + HEADER_BYTES <= len(data) and data[at : at + 4] == MAGIC:
        length, count = struct.unpack_from("<II", data, at + 8)
        if follow:
            last = (next_lsn + count - 1) % (1 << 64)
            struct.pack_into("<QQ", data, at + 16, next_lsn % (1 << 64), last)
            struct.pack_into("<I", data, at + 52, chain_crc)
            next_lsn += count
        at_offset = extend(seed, struct.pack("<Q", at))
        body = bytes(data[at + HEADER_BYTES : at + HEADER_BYTES + padded(length)])
        struct.pack_into("<I", data, at + 48, extend(at_offset, body))
        header_crc = extend(at_offset, bytes(data[at + 8 : at + HEADER_BYTES]))
        struct.pack_into("<I", data, at + 4, header_crc)
        chain_crc = chain_of(bytes(data[at : at + HEADER_BYTES]))
        at += HEADER_BYTES + padded(length)


def mend_segment(data: bytearray, *, follow: bool) -> None:
    """Give a segment's header and its frames the sums that hold."""
    if len(data) < SEGMENT_HEADER_BYTES:
        return
    mend_header(data, SEGMENT_HEADER_BYTES)
    header = outcome(
        partial(decode_segment_header, bytes(data[:SEGMENT_HEADER_BYTES]), "fuzz"),
        WalError,
    )
    if isinstance(header, SegmentHeader):
        mend_frames(
            data,
            SEGMENT_HEADER_BYTES,
            seed=header.seed,
            next_lsn=header.first_lsn,
            chain_crc=header.predecessor.chain_crc,
            follow=follow,
        )


def mend_header(data: bytearray, size: int) -> None:
    """Give a block that ends with the sum of itself the one that holds."""
    if len(data) >= size >= 4:
        struct.pack_into("<I", data, size - 4, crc32c(bytes(data[: size - 4])))


def mend_snapshot(data: bytearray, *, follow: bool) -> None:
    """Give a snapshot's header, blocks and footer the sums that hold.

    Args:
        data: a snapshot's file.
        follow: whether indexes, and what the footer counts, are made right too.
    """
    if len(data) < SNAPSHOT_HEADER_BYTES:
        return
    mend_header(data, SNAPSHOT_HEADER_BYTES)
    seed = crc32c(bytes(data[48:56]))
    at, count, sums = SNAPSHOT_HEADER_BYTES, 0, 0
    while data[at : at + 4] == b"TWsb" and at + BLOCK_HEAD_BYTES <= len(data):
        if follow:
            struct.pack_into("<I", data, at + 8, count)
        (length,) = struct.unpack_from("<I", data, at + 12)
        end = at + BLOCK_HEAD_BYTES + length
        crc = extend(seed, bytes(data[at + 8 : end]))
        struct.pack_into("<I", data, at + 4, crc)
        sums = extend(sums, struct.pack("<I", crc))
        count, at = count + 1, end
    if data[at : at + 4] == b"TWsf" and at + FOOTER_BYTES <= len(data):
        if follow:
            struct.pack_into("<QQ", data, at + 8, count, *_pin_lsn(data))
            struct.pack_into("<I", data, at + 32, sums)
        crc = extend(seed, bytes(data[at + 8 : at + FOOTER_BYTES]))
        struct.pack_into("<I", data, at + 4, crc)


def _pin_lsn(data: bytearray) -> tuple[int]:
    return (struct.unpack_from("<Q", data, 40)[0],)


# -- frames ------------------------------------------------------------------------------


def fuzz_frames(data: bytes) -> None:
    """Both bodies read the same of any bytes, and no more than there is."""
    source = Source(data)
    options = source.number(1)
    seed, chain_crc = source.number(4), source.number(4)
    after_lsn, bytes_max = source.number(8) >> 1, source.number(2)
    place = Place(0, Lsn(source.number(8) >> 1), chain_crc, Flag.NONE, 0)
    segment = bytearray(source.take(1 << 16))
    if options & 1:
        mend_frames(
            segment,
            0,
            seed=seed,
            next_lsn=place.last_lsn + 1,
            chain_crc=chain_crc,
            follow=bool(options & 2),
        )
    until = len(segment) + (64 if options & 4 else 0)
    whole = bytes(segment)
    while True:
        ask = {
            "place": place,
            "seed": seed,
            "until": until,
            "after_lsn": after_lsn,
            "bytes_max": bytes_max,
        }
        plain = outcome(partial(PLAIN.read_frames, whole, **ask), FormatError)
        if COMPILED is not None:
            read = partial(COMPILED.read_frames, whole, **ask)
            compiled = outcome(read, FormatError)
            assert compiled == plain, (compiled, plain)
        assert isinstance(plain, tuple)
        following, group = plain
        if group is None or isinstance(group, str):
            return
        assert len(group.body) <= len(whole)
        assert group.first_lsn + group.record_count - 1 <= LSN_MAX
        outcome(partial(_check_records, group.body), FormatError)
        place = following


def _check_records(body: bytes) -> None:
    records = list(decode_records(body))
    assert sum(map(len, records)) + 4 * len(records) == len(body)


# -- stores ------------------------------------------------------------------------------

EDITS_MAX = 8
EDIT_BYTES_MAX = 256


@cache
def _example_stores() -> tuple[dict[str, bytes], ...]:
    """Small stores: closed and killed, with snapshots and without."""
    return tuple(
        example_stores.store(count, close=close, snapshots_at=at).snapshot_of_all()
        for count, close, at in [(4, False, ()), (12, True, (4, 9)), (2, True, ())]
    )


def edited(source: Source, files: dict[str, bytes]) -> MemoryFileSystem:
    """A disk with these files, changed in some places as the source says."""
    disk = MemoryFileSystem()
    contents = {name: bytearray(content) for name, content in files.items()}
    for _ in range(EDITS_MAX):
        if not source:
            break
        name = source.choice(sorted(contents))
        data, at = contents[name], source.number(2)
        match source.number(1) % 4:
            case 0:
                piece = source.piece()
                at %= max(len(data), 1)
                data[at : at + len(piece)] = piece
            case 1:
                del data[at % (len(data) + 1) :]
            case 2:
                # A field of a header, where most of what is said stands.
                at = at % 16 * 8
                data[at : at + 8] = source.take(8).ljust(8, b"\0")
            case 3:
                data += source.piece()
    if source.number(1) & 1:
        _mend_all(contents, follow=bool(source.number(1) & 1))
    for name, content in contents.items():
        disk.put(name, bytes(content))
    return disk


def _mend_all(contents: dict[str, bytearray], *, follow: bool) -> None:
    for name, data in contents.items():
        if name.endswith(".seg"):
            mend_segment(data, follow=follow)
        elif name.endswith(".snap"):
            mend_snapshot(data, follow=follow)
        elif name == "STORE":
            mend_header(data, len(data))


def fuzz_stores(data: bytes) -> None:
    """Any directory opens, or is refused by an error of the log's and stays as it is."""
    source = Source(data)
    files = source.choice(_example_stores())
    disk = edited(source, files)
    before = disk.snapshot_of_all()
    if source.number(1) & 1:
        _look_at(disk)
        assert disk.snapshot_of_all() == before
        return
    first = outcome(lambda: example_stores.records_of(disk), WalError)
    if isinstance(first, tuple):
        # Reading settles every file first; no byte may have changed by it.
        after = disk.snapshot_of_all()
        assert {name: after[name] for name in before if name != "LOCK"} == {
            name: content for name, content in before.items() if name != "LOCK"
        }
        return
    assert example_stores.records_of(disk) == first


def _look_at(disk: MemoryFileSystem) -> None:
    """Ask all that only reads."""
    outcome(lambda: verify(disk, pause=lambda: None), WalError)
    outcome(lambda: stat(disk), WalError)
    out = MemoryFileSystem("out")
    if not isinstance(
        outcome(lambda: repair(disk, out, pause=lambda: None), WalError), tuple
    ):
        assert verify(out).faults == ()


# -- snapshots ---------------------------------------------------------------------------


def fuzz_snapshots(data: bytes) -> None:
    """Any bytes are a snapshot that holds, or are passed over; no length is believed."""
    source = Source(data)
    options, shift = source.number(1), source.number(2)
    files = _example_stores()[1]
    name = max(name for name in files if name.endswith(".snap"))
    content = bytearray(files[name])
    piece = source.take(1 << 12)
    if options & 4:
        content[SNAPSHOT_HEADER_BYTES:] = piece
    else:
        at = shift % len(content)
        content[at : at + len(piece)] = piece
    if options & 1:
        mend_snapshot(content, follow=bool(options & 2))
    disk = MemoryFileSystem()
    for other, bytes_ in files.items():
        disk.put(other, bytes_)
    disk.put(name, bytes(content))
    uuid = read_identity(disk).uuid
    info = outcome(
        lambda: verify_snapshot(disk, name, uuid), SnapshotDamagedError, WalError
    )
    blocks = outcome(
        lambda: list(_counted(disk, name, uuid)), SnapshotDamagedError, WalError
    )
    assert isinstance(info, tuple) == isinstance(blocks, tuple)
    if isinstance(blocks, list):
        assert sum(map(len, blocks)) < len(content)
        assert parse_snapshot_name(name) is not None


def _counted(disk: FileSystem, name: str, uuid: bytes) -> Iterator[bytes]:
    for block in read_snapshot(disk, name, uuid):
        assert len(block) <= BODY_BYTES_MAX
        yield block
