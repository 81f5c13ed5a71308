"""Frames read in a row, on both bodies: how far it goes, and what it joins."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.wal.codec_bodies import (
    CODECS,
    COMPILED,
    PLAIN,
    Codec,
    needs_the_compiled_codec,
)
from tests.wal.stores import WALL_NS, SegmentBuilder
from wal.checksum import extend
from wal.frame import (
    HEADER_BYTES,
    LSN_MAX,
    Flag,
    FormatError,
    Group,
    Lsn,
    encode_records,
)
from wal.runs import Place
from wal.segment import SEGMENT_HEADER_BYTES


@pytest.fixture(params=CODECS)
def codec(request: pytest.FixtureRequest) -> Codec:
    found = request.param
    assert isinstance(found, Codec)
    return found


def beginning(segment: SegmentBuilder) -> Place:
    """Where reading a segment begins."""
    return Place(
        SEGMENT_HEADER_BYTES,
        Lsn(segment.header.first_lsn - 1),
        segment.header.predecessor.chain_crc,
        Flag.NONE,
        0,
    )


def read(
    codec: Codec,
    segment: SegmentBuilder,
    *,
    place: Place | None = None,
    until: int | None = None,
    after_lsn: int = 0,
    bytes_max: int = 1 << 20,
) -> tuple[Place, Group | None]:
    data = bytes(segment.data)
    result: tuple[Place, Group | None] = codec.read_frames(
        data,
        beginning(segment) if place is None else place,
        seed=segment.header.seed,
        until=len(data) if until is None else until,
        after_lsn=after_lsn,
        bytes_max=bytes_max,
    )
    return result


def three_frames() -> SegmentBuilder:
    segment = SegmentBuilder()
    segment.add(b"1", b"22")
    segment.add(b"333", flags=Flag.RELAXED)
    segment.add(b"4444", bytes(1200))
    return segment


def test_frames_in_a_row_come_as_one_group(codec: Codec) -> None:
    segment = three_frames()
    place, group = read(codec, segment)
    assert place == Place(
        segment.offset,
        Lsn(5),
        segment.chain_crc,
        Flag.ATOMIC | Flag.MASKED,
        WALL_NS + 4,
    )
    body = encode_records([b"1", b"22", b"333", b"4444", bytes(1200)])
    assert group == Group(Lsn(1), 5, body, WALL_NS + 4, Flag.ATOMIC | Flag.MASKED)
    assert isinstance(place.flags, Flag)
    assert read(codec, segment, place=place) == (place, None)


def test_no_more_is_joined_than_was_asked_for_but_one_frame_is(codec: Codec) -> None:
    segment = three_frames()
    sizes = [len(encode_records(each)) for each in ([b"1", b"22"], [b"333"])]
    for bytes_max, count in [
        (0, 2),
        (sizes[0], 2),
        (sum(sizes) - 1, 2),
        (sum(sizes), 3),
    ]:
        _, group = read(codec, segment, bytes_max=bytes_max)
        assert group is not None
        assert group.record_count == count, bytes_max


def test_it_ends_at_a_frame_that_starts_there(codec: Codec) -> None:
    segment = three_frames()
    _, second, third = segment.starts
    assert read(codec, segment, until=third)[0].offset == third
    assert read(codec, segment, until=third + 1)[0].offset == segment.offset
    place, group = read(codec, segment, until=second)
    assert (place.last_lsn, place.wall_ns) == (2, WALL_NS + 1)
    assert group is not None
    assert group.body == encode_records([b"1", b"22"])
    assert read(codec, segment, until=SEGMENT_HEADER_BYTES)[1] is None


def test_what_a_snapshot_covers_is_verified_and_left_out(codec: Codec) -> None:
    segment = three_frames()
    for after_lsn, first in [(0, 1), (1, 1), (2, 3), (3, 4), (4, 4)]:
        place, group = read(codec, segment, after_lsn=after_lsn)
        assert place.offset == segment.offset
        assert group is not None
        assert (group.first_lsn, group.record_count) == (first, 6 - first)
    assert read(codec, segment, after_lsn=5) == (read(codec, segment)[0], None)
    segment.data[segment.starts[1] + HEADER_BYTES] ^= 1
    assert read(codec, segment, after_lsn=5)[0].offset == segment.starts[1]


def test_nothing_follows_a_frame_that_closed_the_log(codec: Codec) -> None:
    segment = SegmentBuilder()
    segment.add(b"1")
    segment.add(flags=Flag.CLOSE)
    end = segment.offset
    segment.add(b"2")
    place, group = read(codec, segment)
    assert (place.offset, place.flags) == (end, Flag.CLOSE | Flag.ATOMIC)
    assert group is not None
    assert group.record_count == 1
    assert read(codec, segment, place=place) == (place, None)


def test_a_frame_without_records_gives_no_group(codec: Codec) -> None:
    segment = SegmentBuilder()
    segment.add(flags=Flag.CLOSE)
    place, group = read(codec, segment)
    assert (place.offset, place.last_lsn, group) == (segment.offset, 0, None)


@pytest.mark.parametrize("change", ["chain", "lsn"])
def test_a_frame_that_does_not_follow_is_not_read(codec: Codec, change: str) -> None:
    segment = SegmentBuilder()
    segment.add(b"1")
    end = segment.offset
    segment.chain_crc ^= change == "chain"
    segment.last_lsn += change == "lsn"
    segment.add(b"2")
    assert read(codec, segment)[0].offset == end


def test_numbers_go_to_the_largest_and_no_further(codec: Codec) -> None:
    last = SegmentBuilder(first_lsn=LSN_MAX)
    last.add(b"1")
    place, group = read(codec, last)
    assert place.last_lsn == LSN_MAX
    assert group is not None
    assert group.first_lsn == LSN_MAX
    last.add(b"2")
    assert read(codec, last, place=place) == (place, None)


def put_field(segment: SegmentBuilder, at: int, value: int) -> None:
    """Change a byte of a frame's header, and make its sum right again."""
    segment.data[at] = value
    start = at - at % 64
    seeded = extend(segment.header.seed, start.to_bytes(8, "little"))
    crc = extend(seeded, bytes(segment.data[start + 8 : start + 64]))
    segment.data[start + 4 : start + 8] = crc.to_bytes(4, "little")


def test_a_newer_frame_is_an_error_once_those_before_it_are_read(codec: Codec) -> None:
    segment = three_frames()
    second = segment.starts[1]
    put_field(segment, second + 58, 2)
    place, group = read(codec, segment)
    assert place.offset == second
    assert group is not None
    with pytest.raises(FormatError, match="frame version 2, flags 0x3"):
        read(codec, segment, place=place)


def test_every_flipped_bit_ends_it_where_it_is(codec: Codec) -> None:
    segment = SegmentBuilder()
    segment.add(b"1", bytes(600))
    segment.add(b"2")
    good = bytes(segment.data)
    for bit in range(8 * SEGMENT_HEADER_BYTES, 8 * segment.offset, 3):
        segment.data[:] = good
        segment.data[bit // 8] ^= 1 << bit % 8
        bad = max(start for start in segment.starts if start <= bit // 8)
        assert read(codec, segment)[0].offset == bad, bit


# -- both bodies at once ---------------------------------------------------------------

PAYLOADS = st.one_of(
    st.binary(max_size=40),
    st.integers(0, 1100).map(bytes),
    st.tuples(st.integers(0, 700), st.binary(max_size=3)).map(
        lambda p: bytes(p[0]) + p[1]
    ),
)
FRAMES = st.lists(
    st.tuples(st.lists(PAYLOADS, max_size=4), st.sampled_from([0, 2, 2, 8])), max_size=6
)
DAMAGE = st.lists(
    st.tuples(st.integers(0, 4095), st.sampled_from([1, 0x80, 0xFF, 0])), max_size=2
)


def outcome(read: partial[tuple[Place, Group | None]]) -> object:
    try:
        return read()
    except FormatError as error:
        return str(error)


@needs_the_compiled_codec
@settings(max_examples=200)
@given(FRAMES, DAMAGE, st.integers(0, 4200), st.integers(-1, 9), st.integers(0, 3000))
def test_both_bodies_read_the_same(
    frames: list[tuple[list[bytes], int]],
    damage: list[tuple[int, int]],
    until: int,
    after_lsn: int,
    bytes_max: int,
) -> None:
    assert COMPILED is not None
    segment = SegmentBuilder(size_bytes=3 * 8192)
    for payloads, flags in frames:
        if payloads or flags == Flag.CLOSE:
            segment.add(*payloads, flags=Flag(flags))
    for at, pattern in damage:
        place = SEGMENT_HEADER_BYTES + at % max(
            segment.offset - SEGMENT_HEADER_BYTES, 1
        )
        segment.data[place] = segment.data[place] ^ pattern if pattern else 0
    standing = beginning(segment)
    while True:
        arguments: dict[str, Any] = {
            "place": standing,
            "until": SEGMENT_HEADER_BYTES + until,
            "after_lsn": after_lsn,
            "bytes_max": bytes_max,
        }
        plain = outcome(partial(read, PLAIN, segment, **arguments))
        assert outcome(partial(read, COMPILED, segment, **arguments)) == plain
        if isinstance(plain, str):
            return
        assert isinstance(plain, tuple)
        if plain[0] == standing:
            return
        standing = plain[0]


@needs_the_compiled_codec
@pytest.mark.parametrize("size", range(0, 260, 13))
def test_both_bodies_read_the_same_of_half_a_file(size: int) -> None:
    assert COMPILED is not None
    segment = three_frames()
    segment.data = segment.data[: SEGMENT_HEADER_BYTES + size]
    assert read(COMPILED, segment) == read(PLAIN, segment)


@needs_the_compiled_codec
@pytest.mark.parametrize(("at", "value"), [(58, 0), (58, 7), (56, 0x1F), (57, 1)])
def test_both_bodies_refuse_a_newer_frame_in_the_same_words(
    at: int, value: int
) -> None:
    assert COMPILED is not None
    segment = three_frames()
    put_field(segment, segment.starts[0] + at, value)
    plain = outcome(partial(read, PLAIN, segment))
    assert isinstance(plain, str)
    assert outcome(partial(read, COMPILED, segment)) == plain
