"""A pass over all segments: what it says of the log, past every fault."""

from __future__ import annotations

import errno
import struct
from collections.abc import Iterator

import pytest

from tests.wal.example_stores import (
    WALL_START_NS,
    append,
    open_log,
    segments_of,
    store,
    take_snapshot,
)
from tests.wal.stores import frames_of, segment_header
from wal.checksum import extend
from wal.errors import StoreError
from wal.faults import Fault, Lost
from wal.log import Log
from wal.recovery import LSN_SKIP
from wal.repair import repair
from wal.salvage import Frame
from wal.scan import Scan
from wal.segment import SEGMENT_HEADER_BYTES
from wal.segment_files import SegmentFile
from wal.store import read_identity
from wal.testing import MemoryFileSystem

PADDING = 8 * 2000
"""A bit of a segment's header that tells nothing: without its checksum it is damaged."""


def scan_of(disk: MemoryFileSystem, *, from_lsn: int = 0) -> Scan:
    """A scan of a disk on which nothing happens between two looks."""
    uuid = read_identity(disk).uuid
    return Scan(disk, uuid, from_lsn=from_lsn, pause=lambda: None)


def scanned(
    disk: MemoryFileSystem, *, from_lsn: int = 0
) -> tuple[Scan, list[SegmentFile | Frame | Fault]]:
    scan = scan_of(disk, from_lsn=from_lsn)
    return scan, list(scan.items())


def faults_of(disk: MemoryFileSystem) -> list[Fault]:
    return [item for item in scanned(disk)[1] if isinstance(item, Fault)]


def reopened_store() -> MemoryFileSystem:
    """Records 1 to 10, a crash, and a second segment that holds none."""
    disk = store(10, close=False)
    for name in segments_of(disk)[:-1]:
        assert frames_of(disk, name)
    open_log(disk).start()
    return disk.killed()


def read_until(
    items: Iterator[SegmentFile | Frame | Fault], name: str
) -> list[SegmentFile | Frame | Fault]:
    """Take items up to the segment of that name, which is not read yet."""
    found = []
    for item in items:
        found.append(item)
        if isinstance(item, SegmentFile) and item.name == name:
            return found
    raise AssertionError(f"{name} never came")


def drop(disk: MemoryFileSystem, log: Log, name: str) -> None:
    """Write checkpoints until a segment goes."""
    while name in segments_of(disk):
        append(log, 10)
        take_snapshot(log)


# -- what it says of the log -----------------------------------------------------------


def test_without_any_segment_nothing_is_known_of_the_log() -> None:
    disk = store(3)
    for name in segments_of(disk):
        disk.remove(name)

    scan, items = scanned(disk)

    assert items == []
    assert (scan.base_lsn, scan.last_lsn, scan.highest_lsn) == (0, 0, 0)
    assert (scan.first_created_ns, scan.last_wall_ns) == (0, 0)
    assert (scan.first_file, scan.last_file, scan.last_offset) == ("", "", 0)
    assert (scan.closed, scan.busy, scan.vanished, scan.overtaken) == (
        False,
        False,
        0,
        False,
    )


def test_a_scan_says_how_far_the_log_goes_and_where_it_ends() -> None:
    disk = store(30)
    names = segments_of(disk)
    last = frames_of(disk, names[-1])

    scan, _ = scanned(disk)

    assert (scan.base_lsn, scan.last_lsn, scan.highest_lsn) == (0, 30, 30)
    assert scan.first_file == names[0]
    assert WALL_START_NS < scan.first_created_ns < scan.last_wall_ns
    assert scan.last_wall_ns == last[-1][1].wall_ns
    assert (scan.last_file, scan.last_offset) == (
        names[-1],
        last[-1][0] + last[-1][1].frame_bytes,
    )
    assert (scan.closed, scan.busy, scan.vanished) == (True, False, 0)


@pytest.mark.parametrize("place", [8, 70])
def test_a_lost_end_counts_as_given_out_and_is_not_settled(place: int) -> None:
    """Of the last frame a byte of the header is damaged, or one of its body."""
    disk = store(30, close=False)
    name = segments_of(disk)[-1]
    at, _ = frames_of(disk, name)[-1]
    disk.flip_bit(name, 8 * (at + place))

    scan, items = scanned(disk)

    (fault,) = [item for item in items if isinstance(item, Fault)]
    assert fault.lost == Lost(30, None if place == 8 else 30)
    assert (scan.last_lsn, scan.highest_lsn) == (29, 30)


def test_a_torn_first_record_gave_out_no_number() -> None:
    disk = store(1, close=False)
    (name,) = segments_of(disk)
    at, _ = frames_of(disk, name)[-1]
    disk.overwrite(name, at, bytes(64))

    scan, items = scanned(disk)

    (fault,) = [item for item in items if isinstance(item, Fault)]
    assert fault.torn
    assert (scan.last_lsn, scan.highest_lsn) == (0, 0)


def test_numbers_that_a_start_after_a_crash_skipped_are_settled() -> None:
    scan, items = scanned(reopened_store())

    assert not [item for item in items if isinstance(item, Fault)]
    assert (scan.last_lsn, scan.highest_lsn) == (10 + LSN_SKIP, 10 + LSN_SKIP)


def test_what_was_closed_before_the_last_segment_was_dropped_is_not_closed_now() -> (
    None
):
    disk = store(3)
    log = open_log(disk)
    append(log, 10)
    second = segments_of(disk)[1]
    scan = scan_of(disk)
    items = scan.items()
    read_until(items, second)
    assert scan.closed
    drop(disk, log, segments_of(disk)[-1])  # and all before, whatever was listed

    rest = list(items)

    assert not [item for item in rest if isinstance(item, Frame | Fault)]
    assert scan.vanished == len([i for i in rest if isinstance(i, SegmentFile)]) + 1
    assert (scan.closed, scan.overtaken) == (False, True)


# -- where it begins -------------------------------------------------------------------


def test_damage_in_a_segment_without_a_record_is_found() -> None:
    disk = MemoryFileSystem()
    with open_log(disk) as log:
        log.start()
    append(open_log(disk), 1)
    first = segments_of(disk)[0]
    (at, _), *_ = frames_of(disk, first)
    disk.flip_bit(first, 8 * at)

    items = Scan(disk, read_identity(disk).uuid, pause=lambda: None).items()

    (fault,) = [item for item in items if isinstance(item, Fault)]
    assert (fault.file, fault.offset) == (first, at)


def test_segments_that_end_before_the_asked_record_are_named_and_not_read() -> None:
    disk = store(30)
    names = segments_of(disk)  # from 1, 8, 15, 22 and 29 on
    for from_lsn, read in ((14, 1), (15, 2)):
        scan, items = scanned(disk, from_lsn=from_lsn)
        assert [i.name for i in items if isinstance(i, SegmentFile)] == names
        frames = [item for item in items if isinstance(item, Frame)]
        assert {frame.file for frame in frames} == set(names[read:])
        assert frames[0].header.first_lsn == 7 * read + 1
        assert scan.last_lsn == 30


def test_a_segment_whose_end_no_other_tells_is_read_wherever_a_scan_begins() -> None:
    disk = store(30)
    names = segments_of(disk)
    disk.remove(names[2])  # 15 to 21

    _, items = scanned(disk, from_lsn=22)

    assert next(item for item in items if isinstance(item, Frame)).file == names[1]
    (fault,) = [item for item in items if isinstance(item, Fault)]
    assert fault.lost == Lost(15, 21, exact=False)


# -- beside a live owner ---------------------------------------------------------------


def test_what_came_behind_the_last_frame_read_is_read_if_the_log_has_moved_on() -> None:
    disk = MemoryFileSystem()
    log = open_log(disk)
    append(log, 3)
    (first,) = segments_of(disk)
    scan = scan_of(disk)
    items = scan.items()
    read = [next(items) for _ in range(4)]
    assert isinstance(read[-1], Frame)

    append(log, 12)  # the next segment is none of those that the scan listed
    read += items

    assert [i.header.first_lsn for i in read if isinstance(i, Frame)] == [*range(1, 8)]
    assert not [item for item in read if isinstance(item, Fault)]
    assert (scan.last_file, scan.last_lsn, scan.busy) == (first, 7, True)


def test_a_log_that_is_opened_anew_meanwhile_has_moved_on() -> None:
    """Its second segment begins at record 1, too."""
    disk = MemoryFileSystem()
    with open_log(disk) as log:
        log.start()
    scan = scan_of(disk)
    items = scan.items()
    assert isinstance(next(items), SegmentFile)

    append(open_log(disk), 1)

    (close,) = items
    assert isinstance(close, Frame)
    assert (scan.busy, scan.last_lsn) == (True, 0)


def cut_short(disk: MemoryFileSystem, name: str) -> bytes:
    """Take the body of a segment's last frame out, as if it were under way yet."""
    whole = disk.content(name)
    at, _ = frames_of(disk, name)[-1]
    disk.overwrite(name, at + 64, bytes(8))
    return whole


def test_a_log_that_has_moved_on_past_damage_shows_it_by_its_new_segment() -> None:
    disk = MemoryFileSystem()
    log = open_log(disk)
    append(log, 7)  # as many as the first segment takes
    (first,) = segments_of(disk)
    at, _ = frames_of(disk, first)[-1]
    cut_short(disk, first)

    def go_on() -> None:
        append(log, 1)

    scan = Scan(disk, read_identity(disk).uuid, pause=go_on)

    (fault,) = [item for item in scan.items() if isinstance(item, Fault)]

    assert (fault.file, fault.offset) == (first, at)
    assert fault.what.startswith("its successor says")
    assert fault.lost == Lost(7, 7)


def test_a_segment_that_is_dropped_while_it_is_looked_at_again_is_no_fault() -> None:
    disk = MemoryFileSystem()
    log = open_log(disk)
    append(log, 14)
    first, last = segments_of(disk)
    whole = cut_short(disk, last)

    def go_on() -> None:
        disk.put(last, whole)
        drop(disk, log, last)

    scan = Scan(disk, read_identity(disk).uuid, pause=go_on)
    items = scan.items()
    read = [next(items)]
    disk.remove(first)  # that one goes before it is read
    read += items

    assert [type(item) for item in read] == [SegmentFile, SegmentFile, *[Frame] * 6]
    assert (scan.vanished, scan.overtaken, scan.closed) == (2, True, False)


def test_a_segment_that_is_dropped_when_its_successor_stands_there_is_no_fault() -> (
    None
):
    disk = MemoryFileSystem()
    log = open_log(disk)
    append(log, 3)
    (first,) = segments_of(disk)
    scan = scan_of(disk)
    items = scan.items()
    read = [next(items) for _ in range(4)]

    drop(disk, log, first)
    read += items

    assert [type(item) for item in read] == [SegmentFile, *[Frame] * 3]
    assert (scan.vanished, scan.overtaken, scan.closed) == (1, True, False)


def test_a_segment_that_goes_before_it_is_read_leaves_the_end_of_the_log_known() -> (
    None
):
    disk = store(30)
    second = segments_of(disk)[1]
    scan = scan_of(disk)
    items = scan.items()
    next(items)
    for name in segments_of(disk)[:2]:
        disk.remove(name)

    rest = list(items)

    assert not [item for item in rest if isinstance(item, Fault)]
    assert (scan.vanished, scan.overtaken, scan.closed) == (2, False, True)
    assert (scan.last_lsn, second in segments_of(disk)) == (30, False)


def test_a_file_that_is_listed_and_is_not_there_is_an_error_not_a_drop() -> None:
    disk = store(30)
    first = segments_of(disk)[0]
    disk.fail("open", errno.ENOENT, name=first, after=2)

    with pytest.raises(FileNotFoundError, match=first):
        scanned(disk)


# -- strangers -------------------------------------------------------------------------


def test_a_segment_of_another_store_is_nobodys_successor() -> None:
    other = MemoryFileSystem(seed=1)
    append(open_log(other), 8)
    foreign = segments_of(other)[-1]
    disk = store(3, close=False)
    (first,) = segments_of(disk)
    at, _ = frames_of(disk, first)[-1]
    disk.overwrite(first, at, bytes(64))
    disk.put(foreign, other.content(foreign))

    torn, stranger = faults_of(disk)

    assert (torn.file, torn.offset, torn.torn) == (first, at, True)
    assert (stranger.file, stranger.what) == (foreign, "the segment of another store")


# -- damaged headers -------------------------------------------------------------------


def test_a_log_whose_first_header_is_damaged_begins_where_its_name_says() -> None:
    disk = store(30)
    first, second, *_ = segments_of(disk)
    disk.remove(first)  # 1 to 7
    disk.flip_bit(second, PADDING)

    scan, items = scanned(disk)

    assert scan.base_lsn == 7
    assert scan.first_created_ns == 0
    assert scan.last_lsn == 30
    assert [item for item in items if isinstance(item, Fault)] == [
        Fault(
            second,
            0,
            8,
            "a damaged segment header, which no crash can leave",
            records_at_stake=1,
        )
    ]


def test_a_damaged_header_of_a_log_that_a_repair_began_later_loses_nothing() -> None:
    disk, out = store(30), MemoryFileSystem("new", seed=7)
    first, second, *_ = segments_of(disk)
    disk.remove(first)  # 1 to 7
    disk.remove(second)  # 8 to 14
    assert repair(disk, out, pause=lambda: None).first_lsn == 15
    (name, *_) = segments_of(out)
    out.flip_bit(name, PADDING)

    scan, items = scanned(out)

    (fault,) = [item for item in items if isinstance(item, Fault)]
    assert (fault.file, fault.offset, fault.expected_lsn) == (name, 0, 15)
    assert fault.lost is None
    assert (scan.base_lsn, scan.last_lsn) == (0, 30)


def test_a_damaged_header_of_a_start_after_a_crash_is_no_gap() -> None:
    disk = store(10, close=False)
    log = open_log(disk)
    append(log, 3)
    log.close()
    name = segments_of(disk)[-1]
    disk.flip_bit(name, PADDING)

    scan, items = scanned(disk)

    (fault,) = [item for item in items if isinstance(item, Fault)]
    assert (fault.file, fault.offset, fault.lost) == (name, 0, None)
    assert fault.records_at_stake == 1
    assert scan.last_lsn == 10 + LSN_SKIP + 3


def test_a_damaged_header_behind_a_missing_segment_is_a_gap_wherever_it_began() -> None:
    """The name may say what a start after a crash would: that proves nothing here."""
    disk = store(10, close=False)
    log = open_log(disk)
    append(log, 3)
    log.close()
    *_, before, name = segments_of(disk)
    disk.flip_bit(name, PADDING)
    disk.remove(before)  # 8 to 10

    (fault,) = faults_of(disk)

    assert fault.lost == Lost(8, 10 + LSN_SKIP, exact=False)


def test_of_a_last_segment_whose_header_is_gone_the_name_still_tells() -> None:
    disk = reopened_store()
    name = segments_of(disk)[-1]
    disk.overwrite(name, 0, bytes(SEGMENT_HEADER_BYTES))

    scan, items = scanned(disk)

    assert [item for item in items if isinstance(item, Fault)] == [
        Fault(
            name,
            0,
            11 + LSN_SKIP,
            "a damaged segment header, which no crash can leave",
            records_at_stake=1,
        )
    ]
    assert (scan.last_lsn, scan.highest_lsn) == (10, 10 + LSN_SKIP)


@pytest.mark.parametrize("left", [b"X", b"\1"])
def test_behind_a_header_that_is_gone_one_byte_shows_that_records_were_there(
    left: bytes,
) -> None:
    disk = reopened_store()
    name = segments_of(disk)[-1]
    disk.overwrite(name, 0, bytes(SEGMENT_HEADER_BYTES))
    disk.overwrite(name, SEGMENT_HEADER_BYTES + 700, left)

    (fault,) = faults_of(disk)

    assert fault.lost == Lost(11 + LSN_SKIP, None)


def test_a_closed_log_whose_last_header_is_gone_is_not_closed() -> None:
    disk = store(3)
    append(open_log(disk), 1)
    name = segments_of(disk)[-1]
    disk.overwrite(name, 0, bytes(SEGMENT_HEADER_BYTES))

    scan, items = scanned(disk)

    (fault,) = [item for item in items if isinstance(item, Fault)]
    assert fault.lost == Lost(4, None)
    assert not scan.closed


# -- what it refuses -------------------------------------------------------------------


def renew(disk: MemoryFileSystem, name: str) -> None:
    """Turn the first frame of a segment into one of the next version."""
    (at, _), *_ = frames_of(disk, name)
    disk.overwrite(name, at + 58, b"\2")
    seed = extend(segment_header(disk, name).seed, struct.pack("<Q", at))
    crc = extend(seed, disk.content(name)[at + 8 : at + 64])
    disk.overwrite(name, at + 4, struct.pack("<I", crc))


@pytest.mark.parametrize("header", ["sound", "damaged"])
def test_a_frame_of_a_newer_version_is_refused_with_its_file(header: str) -> None:
    disk = store(3)
    (name,) = segments_of(disk)
    renew(disk, name)
    if header == "damaged":
        disk.flip_bit(name, PADDING)

    with pytest.raises(StoreError, match="frame version 2, flags 0x1: ") as caught:
        scanned(disk)

    assert caught.value.path == f"{disk.path}/{name}"
    assert "newer version of this package" in caught.value.remedy
