"""The tail rule, row by row: as a function of bytes, then through `Log.open`.

The table is that of docs/wal-format.md. `e` is the number that the first bad frame
should have begun with.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest

from tests.wal.stores import (
    SegmentBuilder,
    closed_store,
    frames_of,
    killed_store,
    open_log,
    payloads_of,
    segments_of,
)
from wal.checksum import extend
from wal.errors import LogCorruptError
from wal.filesystem import SECTOR_BYTES
from wal.frame import HEADER_BYTES, MAGIC, Flag, FormatError
from wal.reader import SegmentReader
from wal.segment import SEGMENT_HEADER_BYTES
from wal.tail import Tail, Verdict, judge_tail, later_headers
from wal.testing import MemoryFileSystem

LONG = bytes(range(1, 251)) * 6  # 1,500 bytes: four sectors
RELAXED = Flag.RELAXED


def judge(segment: SegmentBuilder, *, atomic_sectors: bool = True) -> Tail:
    """The verdict on a segment from its first bad frame on."""
    data = bytes(segment.data)
    reader = SegmentReader(data, segment.header)
    for _ in reader.groups():
        pass
    return judge_tail(
        data,
        reader.offset,
        expected_lsn=reader.last_lsn + 1,
        expected_chain=reader.chain_crc,
        seed=segment.header.seed,
        last_flags=reader.last_flags,
        atomic_sectors=atomic_sectors,
    )


def flip(data: bytearray, at: int) -> None:
    data[at] ^= 0x10


def wipe(data: bytearray, start: int, stop: int) -> None:
    data[start:stop] = bytes(stop - start)


def wipe_sector(data: bytearray, start: int, number: int, end: int) -> None:
    """Wipe the `number`-th sector of the frame start..end, the header's being 0."""
    at = start // SECTOR_BYTES * SECTOR_BYTES + number * SECTOR_BYTES
    wipe(data, max(at, start), min(at + SECTOR_BYTES, end))


# -- only zeros follow: a clean end ----------------------------------------------------


@pytest.mark.parametrize("count", [0, 1, 5])
def test_zeros_after_the_last_frame_are_a_clean_end(count: int) -> None:
    segment = SegmentBuilder()
    for _ in range(count):
        segment.add(LONG[:300])
    assert judge(segment) == Tail(Verdict.CLEAN, "only zeros follow")


def test_a_segment_that_is_full_to_its_last_byte_ends_clean() -> None:
    segment = SegmentBuilder()
    segment.add(b"x" * (len(segment.data) - SEGMENT_HEADER_BYTES - HEADER_BYTES - 4))
    assert segment.offset == len(segment.data)
    assert judge(segment).verdict is Verdict.CLEAN


def test_zeros_after_the_frame_that_closed_the_log_are_a_clean_end() -> None:
    segment = SegmentBuilder()
    segment.add(b"x")
    segment.add(flags=Flag.CLOSE)
    assert judge(segment).verdict is Verdict.CLEAN


# -- a valid later header with first_lsn > e and durable_lsn >= e: refuse --------------


def damage_header(data: bytearray, start: int, _: int) -> None:
    flip(data, start + 20)


def damage_body(data: bytearray, start: int, _: int) -> None:
    flip(data, start + HEADER_BYTES + 700)


def lose_header(data: bytearray, start: int, _: int) -> None:
    wipe(data, start, start + HEADER_BYTES)


def lose_sector(data: bytearray, start: int, end: int) -> None:
    wipe_sector(data, start, 1, end)


def lose_frame(data: bytearray, start: int, end: int) -> None:
    wipe(data, start, end)


DAMAGES = [damage_header, damage_body, lose_header, lose_sector, lose_frame]


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("atomic_sectors", [True, False])
def test_what_a_later_frame_proves_to_have_been_synced_is_never_cut(
    damage: Callable[[bytearray, int, int], None], atomic_sectors: bool
) -> None:
    segment = SegmentBuilder()
    segment.add(b"first")
    start = segment.add(LONG, LONG)  # LSN 2 and 3
    later = segment.add(b"last")  # LSN 4, written when 3 was synced
    damage(segment.data, start, later)
    tail = judge(segment, atomic_sectors=atomic_sectors)
    assert tail.verdict is Verdict.REFUSE
    assert (tail.next_offset, tail.next_lsn) == (later, 4)
    assert tail.records_at_stake == 3
    assert not tail.doubtful


def test_relaxed_frames_prove_what_was_synced_before_them_too() -> None:
    segment = SegmentBuilder()
    start = segment.add(LONG, flags=RELAXED, durable_lsn=0)
    segment.add(b"2", flags=RELAXED, durable_lsn=0)
    segment.add(b"3", flags=RELAXED, durable_lsn=1)
    damage_body(segment.data, start, 0)
    tail = judge(segment)
    assert tail.verdict is Verdict.REFUSE
    assert tail.next_lsn == 2  # the next one, though the one after it is the proof
    assert "proves that LSN 1 had been synced" in tail.what


def test_a_frame_of_no_later_number_proves_nothing() -> None:
    segment = SegmentBuilder()
    segment.add(b"1", flags=RELAXED)
    start = segment.add(LONG, flags=RELAXED)
    segment.add(b"x", first_lsn=2, durable_lsn=2)  # no writer's, and no proof for e = 2
    damage_body(segment.data, start, 0)
    tail = judge(segment)
    assert (tail.verdict, tail.records_at_stake) == (Verdict.CUT, 1)


def test_a_later_header_proves_it_even_if_its_own_body_is_bad() -> None:
    segment = SegmentBuilder()
    start = segment.add(LONG)
    later = segment.add(LONG)
    damage_body(segment.data, start, 0)
    damage_body(segment.data, later, 0)
    assert judge(segment).verdict is Verdict.REFUSE


def test_a_close_frame_proves_that_all_before_it_was_synced() -> None:
    segment = SegmentBuilder()
    start = segment.add(LONG)
    segment.add(flags=Flag.CLOSE)
    lose_frame(segment.data, start, segment.starts[1])
    tail = judge(segment)
    assert (tail.verdict, tail.records_at_stake) == (Verdict.REFUSE, 1)


def test_half_the_last_group_lost_before_a_later_one_is_no_torn_tail() -> None:
    segment = SegmentBuilder()
    first = segment.add(LONG)
    for _ in range(3):
        segment.add(b"x")
    lose_sector(segment.data, first, segment.starts[1])
    tail = judge(segment)
    assert tail.verdict is Verdict.REFUSE
    assert tail.records_at_stake == 4


# -- only valid later frames with durable_lsn < e: never synced, cut -------------------


@pytest.mark.parametrize("damage", DAMAGES)
def test_later_frames_that_prove_nothing_are_cut_with_the_bad_one(
    damage: Callable[[bytearray, int, int], None],
) -> None:
    segment = SegmentBuilder()
    segment.add(b"1", flags=RELAXED, durable_lsn=0)
    start = segment.add(LONG, flags=RELAXED, durable_lsn=1)  # e = 2
    later = segment.add(b"3", flags=RELAXED, durable_lsn=1)
    segment.add(b"4", flags=RELAXED, durable_lsn=1)
    damage(segment.data, start, later)
    tail = judge(segment)
    assert tail.verdict is Verdict.CUT
    assert (tail.next_lsn, tail.next_offset) == (3, later)
    assert tail.records_at_stake == 3
    assert not tail.doubtful


# -- header good, body bad, a sector never written: torn, cut --------------------------


@pytest.mark.parametrize("lead", [0, 1, 300, 448, 511])
@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_frame_of_which_a_sector_was_never_written_is_torn(
    lead: int, number: int
) -> None:
    segment = SegmentBuilder()
    segment.add(b"x" * lead)  # so that the frame starts anywhere in its sector
    start = segment.add(LONG)
    wipe_sector(segment.data, start, number, segment.offset)
    tail = judge(segment)
    assert tail.verdict is Verdict.CUT
    assert not tail.doubtful
    assert "never written" in tail.what


def test_all_records_of_a_torn_frame_are_at_stake() -> None:
    segment = SegmentBuilder()
    start = segment.add(LONG, b"2", b"3")
    wipe_sector(segment.data, start, 1, segment.offset)
    tail = judge(segment)
    assert (tail.verdict, tail.records_at_stake) == (Verdict.CUT, 3)


def test_a_lost_partial_last_sector_is_torn() -> None:
    segment = SegmentBuilder()
    start = segment.add(b"x" * 448)  # 64 bytes of the frame lie in its second sector
    assert segment.offset - start == SECTOR_BYTES + 64
    wipe_sector(segment.data, start, 1, segment.offset)
    assert judge(segment).verdict is Verdict.CUT


@pytest.mark.parametrize("kept", [HEADER_BYTES, 500, 512, 1000, 1500])
def test_a_frame_that_goes_past_the_end_of_the_file_is_torn(kept: int) -> None:
    segment = SegmentBuilder()
    start = segment.add(LONG)
    del segment.data[start + kept :]
    assert judge(segment).verdict is Verdict.CUT


def test_a_torn_frame_of_zeros_shows_because_zeros_are_masked() -> None:
    segment = SegmentBuilder()
    start = segment.add(bytes(1500))
    wipe_sector(segment.data, start, 2, segment.offset)
    assert judge(segment).verdict is Verdict.CUT


def test_a_torn_relaxed_frame_is_cut_without_doubt() -> None:
    segment = SegmentBuilder()
    start = segment.add(LONG, flags=RELAXED)
    wipe_sector(segment.data, start, 1, segment.offset)
    assert not judge(segment).doubtful


# -- header good, not relaxed, every sector written, body bad: refuse ------------------


@pytest.mark.parametrize(
    "body", [LONG, bytes(1500), b"x"], ids=["text", "zeros", "one"]
)
def test_a_frame_that_was_written_whole_and_is_bad_is_damage(body: bytes) -> None:
    for at in range(HEADER_BYTES, HEADER_BYTES + len(body)):
        segment = SegmentBuilder()
        start = segment.add(body)
        flip(segment.data, start + at)
        tail = judge(segment)
        assert tail.verdict is Verdict.REFUSE, at
        assert tail.records_at_stake == 1
        assert tail.next_offset is None


def test_damage_beside_the_header_is_damage_even_if_it_looks_like_zeros() -> None:
    segment = SegmentBuilder()
    start = segment.add(LONG)
    wipe(segment.data, start + HEADER_BYTES, start + SECTOR_BYTES)
    assert judge(segment).verdict is Verdict.REFUSE


# -- header place zero, later bytes not: torn, cut -------------------------------------


def test_a_frame_whose_header_was_never_written_is_torn() -> None:
    segment = SegmentBuilder()
    segment.add(b"first")
    start = segment.add(LONG)
    wipe_sector(segment.data, start, 0, segment.offset)
    tail = judge(segment)
    assert tail.verdict is Verdict.CUT
    assert not tail.doubtful
    assert "header was never written" in tail.what


def test_garbage_behind_a_clean_end_is_cut() -> None:
    segment = SegmentBuilder()
    segment.add(b"first")
    segment.data[-100:] = b"garbage of a later sector" * 4
    assert judge(segment).verdict is Verdict.CUT


# -- header not zero but bad, last good frame not relaxed: refuse ----------------------


@pytest.mark.parametrize("frames_before", [0, 1])
def test_a_damaged_header_is_damage_whatever_bit_it_is(frames_before: int) -> None:
    for bit in range(8 * HEADER_BYTES):
        segment = SegmentBuilder()
        for _ in range(frames_before):
            segment.add(b"before")
        start = segment.add(LONG)
        segment.data[start + bit // 8] ^= 1 << bit % 8
        tail = judge(segment)
        assert tail.verdict is Verdict.REFUSE, bit
        assert tail.records_at_stake == 1


# Among them are ASCII letters and blanks, which a text tool would strip as well.
BYTES = [0x01, 0x09, 0x0A, 0x20, 0x30, 0x58, 0x80, 0xFF]


@pytest.mark.parametrize("byte", BYTES, ids=hex)
def test_one_byte_that_is_not_zero_shows_that_a_header_was_written(byte: int) -> None:
    segment = SegmentBuilder()
    start = segment.add(LONG)
    lose_header(segment.data, start, 0)
    segment.data[start + 30] = byte
    assert judge(segment).verdict is Verdict.REFUSE


@pytest.mark.parametrize("byte", BYTES, ids=hex)
@pytest.mark.parametrize("place", ["first", "last"])
def test_one_byte_that_is_not_zero_ends_a_clean_end(byte: int, place: str) -> None:
    segment = SegmentBuilder()
    segment.add(b"x")
    segment.data[segment.offset if place == "first" else -1] = byte
    assert judge(segment).verdict is not Verdict.CLEAN


def test_a_damaged_header_of_a_relaxed_frame_after_a_durable_one_is_damage() -> None:
    segment = SegmentBuilder()
    segment.add(b"durable")
    start = segment.add(LONG, flags=RELAXED)
    damage_header(segment.data, start, 0)
    assert judge(segment).verdict is Verdict.REFUSE


# -- the last two rows, after or in a relaxed frame or without atomic sectors ----------


def test_a_bad_body_in_a_relaxed_frame_is_cut_loudly() -> None:
    segment = SegmentBuilder()
    segment.add(b"durable")
    start = segment.add(LONG, flags=RELAXED)
    damage_body(segment.data, start, 0)
    tail = judge(segment)
    assert (tail.verdict, tail.doubtful) == (Verdict.CUT, True)


@pytest.mark.parametrize("damage", [damage_header, damage_body])
@pytest.mark.parametrize("flags", [RELAXED, Flag.NONE], ids=["relaxed", "durable"])
def test_damage_after_a_relaxed_frame_is_cut_loudly(
    damage: Callable[[bytearray, int, int], None], flags: Flag
) -> None:
    segment = SegmentBuilder()
    segment.add(b"relaxed", flags=RELAXED)
    start = segment.add(LONG, flags=flags)
    damage(segment.data, start, 0)
    tail = judge(segment)
    assert (tail.verdict, tail.doubtful) == (Verdict.CUT, True)


@pytest.mark.parametrize("damage", [damage_header, damage_body])
def test_damage_on_a_disk_that_tears_sectors_is_cut_loudly(
    damage: Callable[[bytearray, int, int], None],
) -> None:
    segment = SegmentBuilder()
    start = segment.add(LONG)
    damage(segment.data, start, 0)
    tail = judge(segment, atomic_sectors=False)
    assert (tail.verdict, tail.doubtful) == (Verdict.CUT, True)
    assert judge(segment).verdict is Verdict.REFUSE


# -- last good frame is CLOSE and anything follows: refuse -----------------------------


@pytest.mark.parametrize("atomic_sectors", [True, False])
@pytest.mark.parametrize("place", ["here", "far"])
def test_bytes_after_the_frame_that_closed_the_log_are_damage(
    place: str, atomic_sectors: bool
) -> None:
    segment = SegmentBuilder()
    segment.add(b"x", flags=RELAXED)
    segment.add(flags=Flag.CLOSE)
    segment.data[segment.offset if place == "here" else -1] = 1
    tail = judge(segment, atomic_sectors=atomic_sectors)
    assert tail.verdict is Verdict.REFUSE
    assert "closed the log" in tail.what


def test_a_good_frame_after_the_one_that_closed_the_log_is_damage() -> None:
    segment = SegmentBuilder()
    segment.add(flags=Flag.CLOSE)
    at = segment.add(b"x")
    tail = judge(segment)
    assert tail.verdict is Verdict.REFUSE
    assert tail.records_at_stake == 1
    assert at == SEGMENT_HEADER_BYTES + HEADER_BYTES


# -- frames that are good and do not follow --------------------------------------------


@pytest.mark.parametrize("first_lsn", [1, 3, 7])
def test_a_good_frame_with_another_number_is_damage(first_lsn: int) -> None:
    segment = SegmentBuilder()
    segment.add(b"1")
    segment.add(b"x", first_lsn=first_lsn, durable_lsn=0)
    tail = judge(segment)
    assert tail.verdict is Verdict.REFUSE
    assert f"starts at LSN {first_lsn} and does not follow" in tail.what


def test_a_good_frame_with_another_chain_is_damage() -> None:
    segment = SegmentBuilder()
    segment.add(b"1")
    segment.chain_crc ^= 1
    segment.add(b"2", flags=RELAXED)
    assert judge(segment).verdict is Verdict.REFUSE


# -- looking for later frames ----------------------------------------------------------


def test_frames_inside_a_payload_are_not_taken_for_later_ones() -> None:
    donor = SegmentBuilder()
    donor.add(b"1")
    at = donor.add(b"2")
    frame = bytes(donor.data[at : donor.offset])
    segment = SegmentBuilder()
    segment.add(b"1")
    # The very bytes of a frame of this segment, with its LSN, but at another offset.
    start = segment.add(b"x" * 60 + frame * 3 + MAGIC * 50)
    damage_header(segment.data, start, 0)
    found = later_headers(bytes(segment.data), start + 64, segment.header.seed)
    assert list(found) == []
    assert judge(segment).next_offset is None


def test_later_frames_are_found_in_order_behind_any_garbage() -> None:
    segment = SegmentBuilder()
    for _ in range(4):
        segment.add(b"TWgfTWgf")
    wipe(segment.data, segment.starts[0], segment.starts[1])
    segment.data[segment.starts[0] : segment.starts[0] + 4] = MAGIC
    seed = segment.header.seed
    found = later_headers(bytes(segment.data), SEGMENT_HEADER_BYTES, seed)
    assert [(at, header.first_lsn) for at, header in found] == [
        (at, place + 2) for place, at in enumerate(segment.starts[1:])
    ]


def test_a_newer_frame_behind_a_bad_one_is_not_judged_at_all() -> None:
    segment = SegmentBuilder()
    start = segment.add(LONG)
    damage_body(segment.data, start, 0)
    segment.add(b"newer", flags=Flag.NONE)
    at = segment.starts[1]
    segment.data[at + 58] = 2
    _seal(segment, at)
    with pytest.raises(FormatError, match="newer version"):
        judge(segment)


def _seal(segment: SegmentBuilder, at: int) -> None:
    crc = extend(segment.header.seed, struct.pack("<Q", at))
    crc = extend(crc, bytes(segment.data[at + 8 : at + 64]))
    segment.data[at + 4 : at + 8] = struct.pack("<I", crc)


# -- the same through Log.open ---------------------------------------------------------


def last_frame(disk: MemoryFileSystem) -> tuple[str, int, int]:
    """Name of the last segment, and where its last frame starts and ends."""
    name = segments_of(disk)[-1]
    at, header = frames_of(disk, name)[-1]
    return name, at, at + header.frame_bytes


def on_disk(
    disk: MemoryFileSystem, damage: Callable[[bytearray, int, int], None]
) -> None:
    """Damage the last frame of a store."""
    name, start, end = last_frame(disk)
    data = bytearray(disk.content(name))
    damage(data, start, end)
    disk.put(name, bytes(data))


def assert_cut(disk: MemoryFileSystem, kept: list[bytes], *, doubtful: bool) -> None:
    log = open_log(disk)
    assert [record.payload for record in log.read()] == kept
    report = log.start()
    assert report.torn_file is not None
    assert report.doubtful == doubtful
    log.append(b"next")
    log.close()
    assert payloads_of(disk) == [*kept, b"next"]


def assert_refused(disk: MemoryFileSystem, *, lsn: int) -> LogCorruptError:
    name = segments_of(disk)[-1]
    before = disk.snapshot_of_all()
    with pytest.raises(LogCorruptError) as caught, open_log(disk) as log:
        for _ in log.read():
            pass
    assert disk.snapshot_of_all() == before
    error = caught.value
    assert (error.path, error.file, error.expected_lsn) == (disk.path, name, lsn)
    assert f"python -m wal verify {disk.path}" in str(error)
    assert f"python -m wal repair {disk.path} --out NEWDIR" in str(error)
    return error


@pytest.mark.parametrize("damage", [lose_header, lose_sector], ids=["header", "sector"])
def test_a_torn_last_group_is_cut_and_the_log_goes_on(
    damage: Callable[[bytearray, int, int], None],
) -> None:
    disk = killed_store(b"kept", LONG)
    on_disk(disk, damage)
    assert_cut(disk, [b"kept"], doubtful=False)


def test_a_last_group_lost_whole_leaves_a_clean_end() -> None:
    disk = killed_store(b"kept", LONG)
    on_disk(disk, lose_frame)
    with open_log(disk) as log:
        assert [record.payload for record in log.read()] == [b"kept"]
        assert log.start().torn_file is None


@pytest.mark.parametrize("damage", [damage_header, damage_body], ids=["header", "body"])
def test_a_damaged_last_group_is_refused_with_all_that_is_known(
    damage: Callable[[bytearray, int, int], None],
) -> None:
    disk = killed_store(b"kept", LONG)
    _, start, _ = last_frame(disk)
    on_disk(disk, damage)
    error = assert_refused(disk, lsn=2)
    assert error.offset == start
    assert error.records_at_stake == 1
    assert error.next_offset is None


def test_a_damaged_middle_group_is_refused_and_says_where_it_goes_on() -> None:
    disk = killed_store(b"1", LONG, b"3", b"4")
    name = segments_of(disk)[-1]
    frames = frames_of(disk, name)
    disk.flip_bit(name, 8 * (frames[1][0] + 300))
    error = assert_refused(disk, lsn=2)
    assert error.offset == frames[1][0]
    assert (error.next_offset, error.next_lsn) == (frames[2][0], 3)
    assert error.records_at_stake == 3
    assert f"offset {frames[2][0]} (LSN 3)" in str(error)


@pytest.mark.parametrize("damage", [damage_header, damage_body], ids=["header", "body"])
def test_damage_after_a_relaxed_group_is_cut_loudly_at_open(
    damage: Callable[[bytearray, int, int], None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = MemoryFileSystem()
    log = open_log(disk, durability="interval")
    for payload in (b"kept", LONG):
        log.sync(log.append(payload))
    disk = disk.killed()
    on_disk(disk, damage)
    assert_cut(disk, [b"kept"], doubtful=True)
    loud = [r for r in caplog.records if r.levelname == "ERROR"]
    assert len(loud) == 1
    assert "torn tail after LSN 1 cut" in loud[0].getMessage()


def test_damage_is_cut_loudly_at_open_without_atomic_sectors() -> None:
    disk = killed_store(b"kept", LONG)
    on_disk(disk, damage_body)
    log = open_log(disk, atomic_sectors=False)
    assert [record.payload for record in log.read()] == [b"kept"]
    assert log.start().doubtful
    log.close()


def test_a_byte_after_the_close_is_refused_at_open() -> None:
    disk = closed_store(b"kept")
    name = segments_of(disk)[-1]
    disk.put(name, disk.content(name) + b"\1")
    assert_refused(disk, lsn=2)


@pytest.mark.parametrize("cut_bytes", [1, 64, 512, 2048])
def test_a_last_segment_that_was_cut_short_is_refused(cut_bytes: int) -> None:
    # No crash makes it shorter: it was full-size and synced before it had its name.
    disk = killed_store(b"1", b"2")
    name = segments_of(disk)[-1]
    data = disk.content(name)
    disk.put(name, data[:-cut_bytes])
    error = assert_refused(disk, lsn=3)
    assert f"the file has {len(data) - cut_bytes} bytes of {len(data)}" in error.what


def test_a_copy_cut_at_a_frame_border_does_not_lose_records_silently() -> None:
    disk = killed_store(b"1", b"2", b"3")
    name = segments_of(disk)[-1]
    third = frames_of(disk, name)[2][0]
    disk.put(name, disk.content(name)[:third])
    assert assert_refused(disk, lsn=3).records_at_stake >= 1


def test_a_closed_segment_that_lost_its_close_frame_is_refused() -> None:
    disk = closed_store(b"1", b"2")
    name, start, _ = last_frame(disk)
    disk.put(name, disk.content(name)[:start])
    assert_refused(disk, lsn=3)
