"""One segment read past its faults: what is wrong there, and where reading goes on."""

from __future__ import annotations

import pytest

from tests.wal.stores import UUID, WALL_NS, SegmentBuilder
from wal.faults import Fault, Lost
from wal.frame import HEADER_BYTES, Flag, chain_of, encode_frame
from wal.salvage import Frame, SegmentSalvage, rescue_header
from wal.segment import (
    NO_PREDECESSOR,
    SEGMENT_HEADER_BYTES,
    SegmentEnd,
    SegmentHeader,
    segment_name,
)


@pytest.fixture
def built() -> SegmentBuilder:
    """Three frames: records 1, 2 and 3, and 4."""
    segment = SegmentBuilder()
    segment.add(b"1")
    segment.add(b"2", b"3")
    segment.add(b"4")
    return segment


def flip(segment: SegmentBuilder, at: int) -> None:
    segment.data[at] ^= 1


def salvage(
    segment: SegmentBuilder, *, end: SegmentEnd | None = None, is_last: bool = True
) -> SegmentSalvage:
    return SegmentSalvage(
        segment.header.name,
        bytes(segment.data),
        header=segment.header,
        end=end,
        is_last=is_last,
    )


def lsns(salvage: SegmentSalvage) -> list[int]:
    """The first numbers of the frames that hold from where reading stands."""
    frames = list(salvage.frames())
    assert all(isinstance(frame, Frame) for frame in frames)
    return [int(f.header.first_lsn) for f in frames if isinstance(f, Frame)]


# -- what holds ------------------------------------------------------------------------


def test_frames_come_with_their_place_and_their_body(built: SegmentBuilder) -> None:
    reading = salvage(built)

    frames = list(reading.frames())

    assert [(f.file, f.offset) for f in frames] == [
        (built.header.name, at) for at in built.starts
    ]
    assert [f.body for f in frames if isinstance(f, Frame)] == [
        b"\1\0\0\0" + b"1",
        b"\1\0\0\0" + b"2" + b"\1\0\0\0" + b"3",
        b"\1\0\0\0" + b"4",
    ]
    assert reading.offset == built.offset
    assert not reading.closed
    assert reading.fault() is None


def test_a_frame_that_closes_the_log_is_a_frame_without_a_body(
    built: SegmentBuilder,
) -> None:
    at = built.add(flags=Flag.CLOSE)
    reading = salvage(built)

    *_, close = reading.frames()

    assert isinstance(close, Frame)
    assert (close.offset, close.header.record_count, close.body) == (at, 0, b"")
    assert reading.closed
    assert reading.fault() is None


def test_a_good_frame_past_the_end_that_the_successor_names_is_not_read() -> None:
    segment = SegmentBuilder()
    segment.add(b"1")
    end = segment.end()
    segment.add(b"2")
    reading = salvage(segment, end=end, is_last=False)

    assert lsns(reading) == [1]
    assert not reading.is_suspicious()
    assert reading.fault() is None


# -- what does not ---------------------------------------------------------------------


def test_of_a_torn_tail_nothing_is_lost_and_one_record_at_least_is_at_stake(
    built: SegmentBuilder,
) -> None:
    at = built.starts[-1]
    built.data[at : at + HEADER_BYTES] = bytes(HEADER_BYTES)
    reading = salvage(built)
    assert lsns(reading) == [1, 2]
    assert reading.is_suspicious()

    assert reading.fault() == Fault(
        built.header.name,
        at,
        4,
        "a torn frame: its header was never written",
        torn=True,
        records_at_stake=1,
    )
    assert reading.offset == at


def test_a_tail_that_damage_may_have_left_too_is_torn_and_doubtful(
    built: SegmentBuilder,
) -> None:
    at = built.add(b"5", b"6", flags=Flag.RELAXED)
    flip(built, at + HEADER_BYTES)
    reading = salvage(built)
    assert lsns(reading) == [1, 2, 4]

    fault = reading.fault()

    assert fault is not None
    assert (fault.torn, fault.doubtful, fault.lost) == (True, True, None)
    assert fault.records_at_stake == 2


def test_a_damaged_header_at_the_end_loses_nobody_knows_how_many(
    built: SegmentBuilder,
) -> None:
    at = built.starts[-1]
    flip(built, at + 8)
    reading = salvage(built)
    assert lsns(reading) == [1, 2]

    fault = reading.fault()

    assert fault is not None
    assert (fault.offset, fault.expected_lsn, fault.torn) == (at, 4, False)
    assert (fault.lost, fault.records_at_stake) == (Lost(4, None), 1)
    assert (fault.next_offset, fault.next_lsn) == (None, None)


def test_without_its_successor_a_segment_is_judged_by_the_frames_behind_the_damage(
    built: SegmentBuilder,
) -> None:
    flip(built, built.starts[1] + HEADER_BYTES)
    reading = salvage(built, is_last=False)
    assert lsns(reading) == [1]

    assert reading.fault() == Fault(
        built.header.name,
        built.starts[1],
        2,
        "a frame that does not hold",
        next_offset=built.starts[2],
        next_lsn=built.header.first_lsn + 3,
        records_at_stake=2,
        lost=Lost(2, 3),
    )
    assert reading.offset == built.starts[2]
    assert lsns(reading) == [4]
    assert reading.fault() is None


@pytest.mark.parametrize("closed", [False, True])
def test_where_the_successor_names_the_end_what_is_missing_there_is_counted(
    built: SegmentBuilder, closed: bool
) -> None:
    at = built.add(flags=Flag.CLOSE) if closed else built.starts[-1]
    flip(built, at + 8)
    reading = salvage(built, end=built.end(), is_last=False)
    assert lsns(reading)[-1] == (4 if closed else 2)

    assert reading.fault() == Fault(
        built.header.name,
        at,
        5 if closed else 4,
        f"its successor says that it ends at offset {built.offset} with LSN 4, and the "
        "frame here does not hold",
        records_at_stake=1,
        lost=None if closed else Lost(4, 4),
    )


def test_a_frame_that_holds_and_does_not_follow_is_where_reading_goes_on(
    built: SegmentBuilder,
) -> None:
    at = built.add(b"9", first_lsn=9)
    behind = built.add(b"10")
    reading = salvage(built)
    assert lsns(reading) == [1, 2, 4]

    fault = reading.fault()

    assert fault is not None
    assert (fault.offset, fault.next_offset, fault.next_lsn) == (at, at, 9)
    assert fault.lost == Lost(5, 8)
    assert lsns(reading) == [9, 10]
    assert reading.offset == behind + 128
    assert reading.fault() is None


def test_reading_does_not_go_on_past_the_end_that_the_successor_names() -> None:
    segment = SegmentBuilder()
    segment.add(b"1")
    at = segment.add(b"2", b"3")
    end = segment.end()
    segment.add(b"4")
    flip(segment, at + HEADER_BYTES)
    reading = salvage(segment, end=end, is_last=False)
    assert lsns(reading) == [1]

    fault = reading.fault()

    assert fault is not None
    assert (fault.lost, fault.next_offset) == (Lost(2, 3), None)
    assert reading.offset == at


@pytest.mark.parametrize("body", [b"\1\0\0\0" + b"4", b"\2\0\0\0" + b"4"])
def test_a_sound_frame_whose_records_do_not_add_up_is_a_fault_and_is_passed(
    built: SegmentBuilder, body: bytes
) -> None:
    """One record where two are counted; and one that is longer than its frame."""
    at = built.offset
    frame = encode_frame(
        body,
        record_count=2,
        first_lsn=5,
        durable_lsn=4,
        wall_ns=WALL_NS,
        chain_crc=built.chain_crc,
        flags=Flag.NONE,
        seed=built.header.seed,
        offset=at,
    )
    built.data[at : at + len(frame)] = frame
    built.offset += len(frame)
    built.last_lsn, built.chain_crc = 6, chain_of(frame)
    built.add(b"7")

    *_, nonsense, behind = salvage(built).frames()

    assert nonsense == Fault(
        built.header.name,
        at,
        5,
        "a frame that holds, but whose records do not add up: a faulty program wrote it",
        next_offset=at + len(frame),
        next_lsn=7,
        records_at_stake=2,
        lost=Lost(5, 6),
    )
    assert isinstance(behind, Frame)
    assert behind.header.first_lsn == 7


# -- a damaged header ------------------------------------------------------------------


def second_segment() -> SegmentBuilder:
    before = SegmentEnd(1, 4224, 7, 0xABCD)  # type: ignore[arg-type]
    segment = SegmentBuilder(segment_id=2, first_lsn=8, predecessor=before)
    segment.add(b"8")
    segment.add(b"9")
    return segment


def rescued(segment: SegmentBuilder, name: str | None = None) -> SegmentHeader | None:
    data = bytes(segment.data)
    return rescue_header(
        name or segment.header.name,
        data,
        uuid=UUID,
        block=data[:SEGMENT_HEADER_BYTES],
    )


def salt_at(segment: SegmentBuilder) -> int:
    """Where the salt stands in a segment's bytes."""
    return bytes(segment.data).index(segment.header.salt.to_bytes(8, "little"))


@pytest.mark.parametrize("bit", [None, 0, 17, 63])
def test_a_header_is_rescued_by_the_frames_that_hold_under_its_salt(
    bit: int | None,
) -> None:
    segment = second_segment()
    if bit is not None:
        segment.data[salt_at(segment) + bit // 8] ^= 1 << bit % 8

    assert rescued(segment) == SegmentHeader(
        store_uuid=UUID,
        segment_id=2,
        first_lsn=8,  # type: ignore[arg-type]
        salt=segment.header.salt,
        size_bytes=len(segment.data),
        created_ns=WALL_NS + 8,
        predecessor=SegmentEnd(1, 0, 7, 0xABCD),  # type: ignore[arg-type]
    )


@pytest.mark.parametrize("first_lsn", [1, 15])
def test_a_rescued_header_of_the_first_segment_names_no_predecessor(
    first_lsn: int,
) -> None:
    """The first one of a repaired store may begin at any record."""
    segment = SegmentBuilder(first_lsn=first_lsn)
    segment.add(b"x")

    header = rescued(segment)

    assert header is not None
    assert header.predecessor == NO_PREDECESSOR


def test_the_chain_is_unknown_if_the_first_frame_does_not_hold() -> None:
    segment = second_segment()
    flip(segment, segment.starts[0] + 8)

    header = rescued(segment)

    assert header is not None
    assert header.created_ns == WALL_NS + 9
    assert header.predecessor == SegmentEnd(1, 0, 7, 0)  # type: ignore[arg-type]


def test_what_tells_no_name_or_no_salt_gives_no_header() -> None:
    segment = second_segment()
    assert rescued(segment, "segment.txt") is None
    assert rescued(segment, segment_name(3, 8)) is None  # another seed
    segment.data[salt_at(segment)] ^= 3  # two bits
    assert rescued(segment) is None
    del segment.data[salt_at(second_segment()) + 7 :]
    assert rescued(segment) is None
