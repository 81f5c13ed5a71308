"""Reading back: one segment frame by frame, and the chain of segments."""

from __future__ import annotations

import errno
import struct

import pytest

from tests.wal.stores import (
    SEGMENT_BYTES,
    UUID,
    SegmentBuilder,
    closed_store,
    frames_of,
    killed_store,
    open_log,
    payloads_of,
    segments_of,
)
from wal.checksum import extend
from wal.errors import LogCorruptError, StoreError
from wal.filesystem import Handle
from wal.frame import HEADER_BYTES, Flag, decode_records
from wal.reader import LogReader, SegmentReader, read_headers
from wal.segment import SEGMENT_HEADER_BYTES, SegmentEnd, segment_name
from wal.tail import Verdict
from wal.testing import MemoryFileSystem


def reader_of(segment: SegmentBuilder) -> SegmentReader:
    return SegmentReader(bytes(segment.data), segment.header)


def read(
    reader: SegmentReader, until: int | None = None
) -> list[tuple[int, list[bytes]]]:
    """First LSN and payloads of each group."""
    return [
        (group.first_lsn, list(decode_records(group.body)))
        for group in reader.groups(until=until)
    ]


@pytest.fixture
def disk() -> MemoryFileSystem:
    disk = MemoryFileSystem("the/store")
    disk.make_directory()
    return disk


def chain(disk: MemoryFileSystem, *groups: list[bytes]) -> list[SegmentBuilder]:
    """A log on the disk: a segment for each list, a frame for each payload."""
    segments: list[SegmentBuilder] = []
    for payloads in groups:
        if segments:
            last = segments[-1]
            segment = SegmentBuilder(
                segment_id=last.header.segment_id + 1,
                first_lsn=last.last_lsn + 1,
                predecessor=last.end(),
            )
        else:
            segment = SegmentBuilder()
        for payload in payloads:
            segment.add(payload)
        segment.put(disk)
        segments.append(segment)
    return segments


def log_of(disk: MemoryFileSystem, after_lsn: int = 0) -> list[bytes]:
    """The payloads that a reader of the whole log finds."""
    groups = LogReader(disk, UUID).groups(after_lsn)
    return [payload for group in groups for payload in decode_records(group.body)]


def refusal(disk: MemoryFileSystem, after_lsn: int = 0) -> LogCorruptError:
    with pytest.raises(LogCorruptError) as caught:
        log_of(disk, after_lsn)
    return caught.value


# -- one segment -----------------------------------------------------------------------


def test_a_segment_gives_its_groups_in_order_and_knows_where_it_ends() -> None:
    segment = SegmentBuilder()
    segment.add(b"a", b"b")
    segment.add(b"c")
    reader = reader_of(segment)
    assert read(reader) == [(1, [b"a", b"b"]), (3, [b"c"])]
    assert reader.end() == segment.end()
    assert reader.last_flags == Flag.ATOMIC
    assert reader.last_wall_ns == segment.header.created_ns + 3


def test_an_empty_segment_ends_before_its_first_record() -> None:
    before = SegmentEnd(8, 4096, 99, 5)  # type: ignore[arg-type]
    segment = SegmentBuilder(segment_id=9, first_lsn=500, predecessor=before)
    reader = reader_of(segment)
    assert read(reader) == []
    assert reader.end() == SegmentEnd(9, 4096, 499, 5)  # type: ignore[arg-type]
    assert reader.last_wall_ns == segment.header.created_ns


def test_reading_stops_at_the_asked_offset() -> None:
    segment = SegmentBuilder()
    segment.add(b"a")
    at = segment.add(b"b")
    assert read(reader_of(segment), until=at) == [(1, [b"a"])]


def test_reading_stops_at_the_first_bad_frame() -> None:
    segment = SegmentBuilder()
    segment.add(b"a")
    at = segment.add(b"b")
    segment.add(b"c")
    segment.data[at + 64 + 4] ^= 1
    reader = reader_of(segment)
    assert read(reader) == [(1, [b"a"])]
    assert reader.offset == at


def test_a_frame_that_does_not_follow_is_not_read() -> None:
    segment = SegmentBuilder()
    segment.add(b"a")
    segment.add(b"b", first_lsn=3)
    assert read(reader_of(segment)) == [(1, [b"a"])]

    broken = SegmentBuilder()
    broken.add(b"a")
    broken.chain_crc ^= 1
    broken.add(b"b")
    assert read(reader_of(broken)) == [(1, [b"a"])]


def test_the_first_frame_continues_the_chain_of_the_segment_before() -> None:
    before = SegmentEnd(1, 4160, 1, 0xABCD)  # type: ignore[arg-type]
    segment = SegmentBuilder(segment_id=2, first_lsn=2, predecessor=before)
    segment.chain_crc = 0
    segment.add(b"b")
    assert read(reader_of(segment)) == []


def test_a_close_frame_gives_no_group_and_ends_the_reading() -> None:
    segment = SegmentBuilder()
    segment.add(b"a")
    segment.add(flags=Flag.CLOSE)
    segment.add(b"never")
    reader = reader_of(segment)
    assert read(reader) == [(1, [b"a"])]
    assert Flag.CLOSE in reader.last_flags
    assert reader.offset == segment.starts[2]
    assert reader.tail(atomic_sectors=True).verdict is Verdict.REFUSE


def test_a_file_that_was_cut_is_damaged_even_if_its_tail_looks_torn() -> None:
    segment = SegmentBuilder()
    at = segment.add(b"acknowledged before it was synced", flags=Flag.RELAXED)
    segment.data[at + HEADER_BYTES + 4] ^= 1
    whole = reader_of(segment)
    assert read(whole) == []
    assert whole.tail(atomic_sectors=True).doubtful
    cut = SegmentReader(bytes(segment.data[:-512]), segment.header)
    assert read(cut) == []
    tail = cut.tail(atomic_sectors=True)
    assert (tail.verdict, tail.doubtful) == (Verdict.REFUSE, False)


def test_of_a_file_that_was_cut_at_least_one_record_is_at_stake() -> None:
    segment = SegmentBuilder()
    reader = SegmentReader(bytes(segment.data[:-512]), segment.header)
    assert read(reader) == []
    assert reader.tail(atomic_sectors=True).records_at_stake == 1


# -- the chain -------------------------------------------------------------------------


def test_segments_are_read_as_one_log(disk: MemoryFileSystem) -> None:
    chain(disk, [b"1", b"2"], [], [b"3"], [b"4", b"5"])
    assert log_of(disk) == [b"1", b"2", b"3", b"4", b"5"]


def test_a_reader_knows_the_last_segment_only_when_it_has_read_to_its_end(
    disk: MemoryFileSystem,
) -> None:
    chain(disk, [b"1"], [b"2"])
    reader = LogReader(disk, UUID)
    groups = reader.groups()
    assert next(groups).first_lsn == 1
    assert (reader.last, reader.tail) == (None, None)
    for _ in groups:
        pass
    assert reader.last is not None
    assert reader.last.last_lsn == 2
    assert reader.tail is not None
    assert reader.tail.verdict is Verdict.CLEAN


def test_bytes_past_the_end_that_the_successor_names_are_ignored(
    disk: MemoryFileSystem,
) -> None:
    first, _ = chain(disk, [b"1", b"2"], [b"3"])
    data = bytearray(disk.content(first.header.name))
    data[first.offset :] = b"\xff" * (len(data) - first.offset)
    disk.put(first.header.name, bytes(data))
    assert log_of(disk) == [b"1", b"2", b"3"]
    disk.put(first.header.name, bytes(data[: first.offset]))
    assert log_of(disk) == [b"1", b"2", b"3"]


def test_groups_that_a_snapshot_covers_are_left_out(disk: MemoryFileSystem) -> None:
    segment = SegmentBuilder()
    segment.add(b"1", b"2")
    segment.add(b"3", b"4")
    segment.put(disk)
    assert log_of(disk, after_lsn=2) == [b"3", b"4"]
    assert log_of(disk, after_lsn=3) == [b"3", b"4"]  # the group holds one above it
    assert log_of(disk, after_lsn=4) == []


def test_segments_that_a_snapshot_covers_are_not_opened(disk: MemoryFileSystem) -> None:
    first, second, _ = chain(disk, [b"1", b"2"], [b"3"], [b"4"])
    for segment in (first, second):
        disk.flip_bit(segment.header.name, 8 * (SEGMENT_HEADER_BYTES + 70))
    assert log_of(disk, after_lsn=3) == [b"4"]
    assert refusal(disk, after_lsn=2).file == second.header.name
    assert refusal(disk).file == first.header.name


def test_a_log_that_begins_after_its_snapshot_is_refused(
    disk: MemoryFileSystem,
) -> None:
    first, second, _ = chain(disk, [b"1", b"2", b"3"], [b"4"], [b"5"])
    disk.remove(first.header.name)
    assert log_of(disk, after_lsn=3) == [b"4", b"5"]
    error = refusal(disk, after_lsn=1)
    assert error.file == second.header.name
    assert (error.offset, error.expected_lsn) == (0, 4)
    assert error.records_at_stake == 2
    assert "starts after LSN 3" in error.what
    assert "no valid snapshot reaches further than LSN 1" in error.what


def test_a_store_without_segments_has_no_groups(disk: MemoryFileSystem) -> None:
    reader = LogReader(disk, UUID)
    assert list(reader.groups()) == []
    assert reader.last is None


def test_sectors_are_atomic_unless_the_caller_says_otherwise(
    disk: MemoryFileSystem,
) -> None:
    (last,) = chain(disk, [b"1"])
    disk.flip_bit(last.header.name, 8 * (last.starts[0] + HEADER_BYTES + 4))
    assert refusal(disk).offset == last.starts[0]
    torn = LogReader(disk, UUID, atomic_sectors=False)
    assert list(torn.groups()) == []
    assert torn.tail is not None
    assert torn.tail.verdict is Verdict.CUT


# -- damage in a segment that is not the last ------------------------------------------


def test_any_damage_before_the_end_that_the_successor_names_is_refused(
    disk: MemoryFileSystem,
) -> None:
    first, _ = chain(disk, [b"1", b"2" * 600, b"3"], [b"4"])
    name, good = first.header.name, bytes(first.data)
    for at in range(SEGMENT_HEADER_BYTES, first.offset):
        damaged = bytearray(good)
        damaged[at] ^= 4
        disk.put(name, bytes(damaged))
        error = refusal(disk)
        assert error.file == name
        frames = [start for start in first.starts if start <= at]
        assert error.offset == frames[-1]
        assert error.expected_lsn == len(frames)
        assert error.records_at_stake == 3 - (len(frames) - 1)


@pytest.mark.parametrize("cut", ["inside", "at a frame", "all"])
def test_a_segment_cut_short_before_its_successor_is_refused(
    disk: MemoryFileSystem, cut: str
) -> None:
    first, _ = chain(disk, [b"1", b"2", b"3"], [b"4"])
    size = {
        "inside": first.offset - 10,
        "at a frame": first.starts[2],
        "all": SEGMENT_HEADER_BYTES,
    }[cut]
    disk.put(first.header.name, bytes(first.data[:size]))
    error = refusal(disk)
    assert error.file == first.header.name
    assert f"ends at offset {first.offset} with LSN 3" in error.what
    assert error.records_at_stake == (3 if cut == "all" else 1)


def test_a_torn_looking_frame_in_a_former_segment_is_refused(
    disk: MemoryFileSystem,
) -> None:
    first, _ = chain(disk, [b"1", b"x" * 1500], [b"3"])
    data = bytearray(first.data)
    at = first.starts[1] // 512 * 512 + 512
    data[at : at + 512] = bytes(512)
    disk.put(first.header.name, bytes(data))
    assert refusal(disk).expected_lsn == 2


def test_a_refusal_says_where_the_next_good_frame_is(disk: MemoryFileSystem) -> None:
    first, _ = chain(disk, [b"1", b"2", b"3"], [b"4"])
    disk.flip_bit(first.header.name, 8 * (first.starts[0] + 68))
    error = refusal(disk)
    assert (error.next_offset, error.next_lsn) == (first.starts[1], 2)
    disk.flip_bit(first.header.name, 8 * (first.starts[1] + 68))
    disk.flip_bit(first.header.name, 8 * (first.starts[0] + 68))
    assert refusal(disk).next_offset == first.starts[2]
    disk.put(first.header.name, bytes(first.data[: first.starts[1]]))
    assert refusal(disk).next_offset is None


def test_a_frame_past_the_named_end_is_no_next_good_frame(
    disk: MemoryFileSystem,
) -> None:
    first, _ = chain(disk, [b"1"], [b"2"])
    first.add(b"cut off")  # in the file, past what the successor names
    first.put(disk)
    disk.flip_bit(first.header.name, 8 * (first.starts[0] + 68))
    assert refusal(disk).next_offset is None


def test_a_good_frame_past_the_named_end_is_not_read(disk: MemoryFileSystem) -> None:
    first, _ = chain(disk, [b"1"], [b"2"])
    first.add(b"cut off")
    first.put(disk)
    assert log_of(disk) == [b"1", b"2"]


def test_a_segment_whose_end_has_another_chain_is_refused(
    disk: MemoryFileSystem,
) -> None:
    first = SegmentBuilder()
    first.add(b"1")
    first.put(disk)
    end = first.end()
    wrong = SegmentEnd(end.segment_id, end.offset, end.last_lsn, end.chain_crc ^ 1)
    second = SegmentBuilder(segment_id=2, first_lsn=2, predecessor=wrong)
    second.put(disk)
    assert refusal(disk).file == first.header.name


# -- headers ---------------------------------------------------------------------------


def test_a_damaged_header_is_refused_before_anything_is_read(
    disk: MemoryFileSystem,
) -> None:
    _, second, _ = chain(disk, [b"1"], [b"2"], [b"3"])
    disk.flip_bit(second.header.name, 8 * 100)
    with pytest.raises(LogCorruptError, match="a damaged segment header") as caught:
        LogReader(disk, UUID)
    assert caught.value.file == second.header.name
    assert caught.value.offset == 0
    assert caught.value.expected_lsn == 2


@pytest.mark.parametrize("size", [0, 100, 4095])
def test_an_empty_or_short_segment_is_refused(
    disk: MemoryFileSystem, size: int
) -> None:
    first, second = chain(disk, [b"1"], [b"2"])
    disk.put(second.header.name, bytes(second.data[:size]))
    with pytest.raises(LogCorruptError, match="a damaged segment header"):
        LogReader(disk, UUID)
    assert disk.content(first.header.name) == bytes(first.data)


def test_a_missing_segment_is_refused(disk: MemoryFileSystem) -> None:
    segments = chain(disk, [b"1"], [b"2"], [b"3"], [b"4"])
    disk.remove(segments[1].header.name)
    disk.remove(segments[2].header.name)
    with pytest.raises(LogCorruptError, match=r"2 segment\(s\) missing") as caught:
        LogReader(disk, UUID)
    assert caught.value.file == segments[3].header.name
    assert segments[0].header.name in caught.value.what


def test_a_renamed_segment_is_refused(disk: MemoryFileSystem) -> None:
    first, second = chain(disk, [b"1"], [b"2"])
    disk.rename(second.header.name, segment_name(2, 3))
    with pytest.raises(LogCorruptError, match="the file was renamed"):
        LogReader(disk, UUID)
    disk.rename(segment_name(2, 3), segment_name(3, 2))
    with pytest.raises(LogCorruptError, match="the file was renamed"):
        LogReader(disk, UUID)
    assert first.header.name in disk.names()


def test_the_segment_of_another_store_is_refused(disk: MemoryFileSystem) -> None:
    first, _ = chain(disk, [b"1"], [b"2"])
    stranger = SegmentBuilder(
        segment_id=2,
        first_lsn=2,
        predecessor=first.end(),
        uuid=b"another store ==="[:16],
    )
    stranger.put(disk)
    with pytest.raises(LogCorruptError, match="the segment of another store"):
        LogReader(disk, UUID)


def test_a_first_segment_with_a_predecessor_is_refused(disk: MemoryFileSystem) -> None:
    before = SegmentEnd(0, 4096, 0, 0)  # type: ignore[arg-type]
    SegmentBuilder(predecessor=before).put(disk)
    with pytest.raises(LogCorruptError, match="claims a predecessor"):
        LogReader(disk, UUID)


def test_a_segment_that_names_another_predecessor_is_refused(
    disk: MemoryFileSystem,
) -> None:
    first, _ = chain(disk, [b"1"], [b"2"])
    end = first.end()
    wrong = SegmentEnd(7, end.offset, end.last_lsn, end.chain_crc)
    SegmentBuilder(segment_id=2, first_lsn=2, predecessor=wrong).put(disk)
    with pytest.raises(LogCorruptError, match="names segment 7 as its predecessor"):
        LogReader(disk, UUID)


def test_other_files_are_not_looked_at(disk: MemoryFileSystem) -> None:
    chain(disk, [b"1"])
    disk.put("wal-0000000000000002-0000000000000002.seg.00001000.torn", b"x")
    disk.put("ready-00000001.tmp", b"x")
    assert len(read_headers(disk, UUID)) == 1


def test_a_newer_segment_is_refused_as_newer_not_as_damaged(
    disk: MemoryFileSystem,
) -> None:
    (first,) = chain(disk, [b"1"])
    block = bytearray(first.data[:SEGMENT_HEADER_BYTES])
    block[8] = 9
    block[-4:] = struct.pack("<I", extend(0, bytes(block[:-4])))
    disk.put(first.header.name, bytes(block) + bytes(first.data[4096:]))
    with pytest.raises(StoreError, match=r"format 9\.0.*newer version") as caught:
        LogReader(disk, UUID)
    assert caught.value.path == f"the/store/{first.header.name}"


def test_a_newer_frame_is_refused_as_newer_not_as_damaged(
    disk: MemoryFileSystem,
) -> None:
    (first,) = chain(disk, [b"1"])
    at = first.starts[0]
    first.data[at + 58] = 2
    seeded = extend(first.header.seed, struct.pack("<Q", at))
    crc = extend(seeded, bytes(first.data[at + 8 : at + 64]))
    first.data[at + 4 : at + 8] = struct.pack("<I", crc)
    first.put(disk)
    with pytest.raises(StoreError, match=r"frame version 2.*newer version"):
        log_of(disk)


# -- the disk --------------------------------------------------------------------------


@pytest.mark.parametrize("op", ["open", "pread"])
def test_an_error_while_reading_is_no_end_of_log(op: str) -> None:
    disk = killed_store(b"1", b"2")
    before = disk.snapshot_of_all()
    name = segments_of(disk)[-1]
    disk.fail(op, errno.EIO, name=name, after=2)  # the first one reads the header
    with pytest.raises(OSError) as caught, open_log(disk) as log:
        list(log.read())
    assert caught.value.errno == errno.EIO
    assert caught.value.filename == f"memory/{name}"
    assert disk.snapshot_of_all() == before
    assert payloads_of(disk) == [b"1", b"2"]


class Noted(MemoryFileSystem):
    """Notes what is done to the files that are opened."""

    def __init__(self) -> None:
        super().__init__()
        self.notes: list[str] = []

    def pread(self, handle: Handle, size_bytes: int, offset: int) -> bytes:
        self.notes.append(f"read {size_bytes}")
        return super().pread(handle, size_bytes, offset)

    def sync(self, handle: Handle) -> None:
        self.notes.append("sync")
        super().sync(handle)

    def forget_cache(self, handle: Handle) -> None:
        self.notes.append("forget")
        super().forget_cache(handle)


def test_verdicts_rest_on_the_disk_and_not_on_its_cache() -> None:
    disk = Noted()
    disk.make_directory()
    chain(disk, [b"1"])
    for _ in LogReader(disk, UUID, settle=True).groups():
        pass
    assert disk.notes == ["read 4096", "sync", "forget", f"read {SEGMENT_BYTES}"]
    disk.notes.clear()
    for _ in LogReader(disk, UUID).groups():
        pass
    assert disk.notes == ["read 4096", f"read {SEGMENT_BYTES}"]


def test_a_frame_that_only_the_cache_holds_is_not_read() -> None:
    disk = MemoryFileSystem()
    log = open_log(disk)
    log.commit(log.append(b"synced"))
    lsn = log.append(b"lost by a failed sync")
    disk.fail("datasync", errno.EIO)
    with pytest.raises(Exception, match="the disk failed"):
        log.commit(lsn)
    log.close()
    name = segments_of(disk)[-1]
    assert len(frames_of(disk, name)) == 2  # the kernel still shows it
    assert payloads_of(disk) == [b"synced"]


# -- one segment that is not the last --------------------------------------------------


def test_a_former_segment_is_checked_up_to_the_end_that_the_next_one_names(
    disk: MemoryFileSystem,
) -> None:
    first, second, third = chain(disk, [b"1", b"2"], [b"3"], [b"4"])
    names = [segment.header.name for segment in (first, second, third)]
    LogReader(disk, UUID, names=names[:2]).verify_first()
    LogReader(disk, UUID, names=names[1:]).verify_first()
    disk.flip_bit(names[0], 8 * (first.starts[1] + 65))
    LogReader(disk, UUID, names=names[1:]).verify_first()
    with pytest.raises(LogCorruptError) as caught:
        LogReader(disk, UUID, names=names[:2]).verify_first()
    assert caught.value.offset == first.starts[1]


def test_a_closed_segment_is_checked_up_to_its_close_frame() -> None:
    disk = closed_store(b"1")
    with open_log(disk) as log:
        log.append(b"2")
    names = segments_of(disk)
    uuid = disk.content("STORE")[24:40]
    LogReader(disk, uuid, names=names).verify_first()
    close_at = len(disk.content(names[0])) - 64
    disk.flip_bit(names[0], 8 * (close_at + 9))
    with pytest.raises(LogCorruptError):
        LogReader(disk, uuid, names=names).verify_first()


def test_a_former_segment_is_checked_no_further_than_the_end_that_the_next_one_names(
    disk: MemoryFileSystem,
) -> None:
    first, second = chain(disk, [b"1"], [b"2"])
    first.add(b"cut off")  # in the file, past what the successor names
    first.put(disk)
    names = [first.header.name, second.header.name]
    LogReader(disk, UUID, names=names).verify_first()
