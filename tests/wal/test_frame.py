"""The group frame: what its bytes are, what cannot pass for one, and its two promises.

The promises to the tail rule: a header never straddles a sector, and no sector of a
frame after its first can be taken for one that was never written.
"""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.wal.codec_bodies import CODECS, COMPILED, PLAIN, Codec
from wal.checksum import crc32c, extend
from wal.filesystem import SECTOR_BYTES
from wal.frame import (
    ALIGN_BYTES,
    BODY_BYTES_MAX,
    FRAME_VERSION,
    HEADER_BYTES,
    LSN_MAX,
    MAGIC,
    Flag,
    FormatError,
    Header,
    decode_body,
    decode_header,
    decode_records,
    frame_bytes,
    has_unwritten_sector,
    padded,
    segment_seed,
)

BODIES = [PLAIN, *filter(None, [COMPILED])]
SEED = segment_seed(salt=0x0123_4567_89AB_CDEF, segment_id=7)
PATTERN = (0xA5C3_5A3C).to_bytes(4, "little")
OFFSETS = st.integers(0, 200).map(lambda n: n * ALIGN_BYTES)


def encode_records(payloads: list[bytes]) -> bytes:
    """What each body makes of them, which has to be the same."""
    bodies = [codec.encode_records(payloads) for codec in BODIES]
    assert all(body == bodies[0] for body in bodies)
    return bytes(bodies[0])


def encode_frame(body: bytes, **fields: Any) -> bytes:
    """As `encode_records`."""
    frames = [codec.encode_frame(body, **fields) for codec in BODIES]
    assert all(frame == frames[0] for frame in frames)
    return bytes(frames[0])


def chain_of(frame: bytes, offset: int = 0) -> int:
    """As `encode_records`."""
    chains = [codec.chain_of(frame, offset) for codec in BODIES]
    assert all(chain == chains[0] for chain in chains)
    return int(chains[0])


def frame_at(offset: int, body: bytes, **changes: int) -> bytes:
    """A frame of one record or more, with bytes before it so that it stands there."""
    fields = {
        "record_count": 1,
        "first_lsn": 100,
        "durable_lsn": 99,
        "wall_ns": 1_700_000_000_000_000_000,
        "chain_crc": 0xC0FF_EE00,
        "seed": SEED,
    } | changes
    flags = Flag(fields.pop("flags", 0))
    return bytes(offset) + encode_frame(body, flags=flags, offset=offset, **fields)


def header_of(data: bytes, offset: int) -> Header:
    header = decode_header(data, offset, SEED)
    assert header is not None
    return header


def sealed(data: bytes, offset: int) -> bytes:
    """The bytes with the header's checksum made right again."""
    seeded = extend(SEED, struct.pack("<Q", offset))
    crc = extend(seeded, data[offset + 8 : offset + HEADER_BYTES])
    return data[: offset + 4] + struct.pack("<I", crc) + data[offset + 8 :]


def with_field(data: bytes, at: int, form: str, value: int) -> bytes:
    field = struct.pack(form, value)
    return data[:at] + field + data[at + len(field) :]


# -- records ---------------------------------------------------------------------------


@given(st.lists(st.binary(max_size=300), max_size=20))
def test_records_come_back_as_they_were(payloads: list[bytes]) -> None:
    assert list(decode_records(encode_records(payloads))) == payloads


@pytest.mark.parametrize(
    ("body", "what"),
    [
        (b"\x01\x00", "half a record size"),
        (b"\x05\x00\x00\x00four", "a record of 5 bytes"),
        (b"\x01\x00\x00\x00x\xff\xff\xff\xff", "a record of 4294967295 bytes"),
    ],
)
def test_sizes_that_do_not_add_up_are_an_error(body: bytes, what: str) -> None:
    with pytest.raises(FormatError, match=what):
        list(decode_records(body))


@pytest.mark.parametrize("codec", CODECS)
def test_records_may_come_from_anything_that_holds_bytes(codec: Codec) -> None:
    expected = encode_records([b"1", b"22", b""])
    assert codec.encode_records(iter([b"1", b"22", b""])) == expected
    assert codec.encode_records([bytearray(b"1"), b"22", memoryview(b"")]) == expected
    for nonsense in ("text", 5, None):
        with pytest.raises(TypeError):
            codec.encode_records([b"1", nonsense])


@pytest.mark.parametrize("codec", CODECS)
def test_a_body_may_still_be_the_buffer_that_it_grew_in(codec: Codec) -> None:
    buffer = bytearray(b"x" * 100)
    fields = {
        "record_count": 1,
        "first_lsn": 1,
        "durable_lsn": 0,
        "wall_ns": 0,
        "chain_crc": 0,
        "flags": Flag.NONE,
        "seed": SEED,
        "offset": 0,
    }
    frame = codec.encode_frame(buffer, **fields)
    assert type(frame) is bytes
    assert frame == encode_frame(bytes(buffer), **fields)
    buffer += b"nobody holds on to it"


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(
    ("body", "offset"), [(bytes(BODY_BYTES_MAX + 1), 0), (b"", 32)]
)
def test_no_frame_is_made_that_could_not_be_read(
    codec: Codec, body: bytes, offset: int
) -> None:
    with pytest.raises(AssertionError):
        codec.encode_frame(
            body,
            record_count=1,
            first_lsn=1,
            durable_lsn=0,
            wall_ns=0,
            chain_crc=0,
            flags=Flag.NONE,
            seed=SEED,
            offset=offset,
        )


# -- a frame and back ------------------------------------------------------------------


@given(st.lists(st.binary(max_size=700), min_size=1, max_size=8), OFFSETS)
def test_a_frame_comes_back_as_it_was(payloads: list[bytes], offset: int) -> None:
    body = encode_records(payloads)
    count = len(payloads)
    data = frame_at(offset, body, record_count=count, first_lsn=5, durable_lsn=3)
    header = header_of(data, offset)
    assert (header.first_lsn, header.last_lsn) == (5, 4 + count)
    assert (header.durable_lsn, header.record_count) == (3, count)
    assert header.chain_crc == 0xC0FF_EE00
    assert header.wall_ns == 1_700_000_000_000_000_000
    assert offset + header.frame_bytes == len(data) == offset + frame_bytes(len(body))
    assert decode_body(data, offset, header=header, seed=SEED) == body


def test_the_bytes_are_those_of_the_drawing() -> None:
    body = encode_records([b"one", b"two"])
    offset = 4096
    frame = frame_at(offset, body, record_count=2, flags=Flag.RELAXED)[offset:]
    seeded = extend(SEED, struct.pack("<Q", offset))
    assert frame[0:4] == b"TWgf" == MAGIC
    assert frame[4:8] == struct.pack("<I", extend(seeded, frame[8:64]))
    assert frame[8:12] == struct.pack("<I", len(body))
    assert frame[12:16] == struct.pack("<I", 2)
    assert frame[16:32] == struct.pack("<QQ", 100, 101)
    assert frame[32:40] == struct.pack("<Q", 99)
    assert frame[40:48] == struct.pack("<Q", 1_700_000_000_000_000_000)
    assert frame[48:52] == struct.pack("<I", extend(seeded, frame[64:]))
    assert frame[52:56] == struct.pack("<I", 0xC0FF_EE00)
    assert frame[56:58] == struct.pack("<H", Flag.ATOMIC | Flag.RELAXED)
    assert frame[58:60] == bytes([FRAME_VERSION, 0])
    assert frame[60:64] == bytes(4)
    assert frame[64:] == body.ljust(64, b"\0")


def test_the_seed_is_the_sum_of_salt_and_segment_id() -> None:
    assert segment_seed(1, 2) == crc32c(struct.pack("<QQ", 1, 2))


@given(st.integers(0, 10_000))
def test_a_frame_takes_whole_sixty_fours(length: int) -> None:
    assert padded(length) % ALIGN_BYTES == 0
    assert length <= padded(length) < length + ALIGN_BYTES
    assert frame_bytes(length) == HEADER_BYTES + padded(length)


def test_a_header_never_straddles_a_sector() -> None:
    for offset in range(0, 4 * SECTOR_BYTES, ALIGN_BYTES):
        last = offset + HEADER_BYTES - 1
        assert offset // SECTOR_BYTES == last // SECTOR_BYTES


def test_the_largest_body_fits() -> None:
    body = encode_records([b"x" * (BODY_BYTES_MAX - 4)])
    data = frame_at(0, body)
    assert decode_body(data, 0, header=header_of(data, 0), seed=SEED) == body


def test_a_close_frame_has_no_record_and_says_so() -> None:
    data = frame_at(0, b"", record_count=0, flags=Flag.CLOSE)
    header = header_of(data, 0)
    assert Flag.CLOSE in header.flags
    assert (header.first_lsn, header.last_lsn, header.record_count) == (100, 99, 0)
    assert decode_body(data, 0, header=header, seed=SEED) == b""


def test_the_chain_sum_covers_the_whole_header_and_no_more() -> None:
    data = frame_at(64, b"body")
    assert chain_of(data, 64) == crc32c(data[64:128])


# -- what cannot pass ------------------------------------------------------------------


@pytest.mark.parametrize(
    "body", [b"body of a frame", bytes(1200)], ids=["plain", "masked"]
)
def test_no_flipped_bit_passes(body: bytes) -> None:
    data = frame_at(64, body)
    good = header_of(data, 64)
    for bit in range(8 * 64, 8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        damaged = bytes(flipped)
        if bit < 8 * (64 + HEADER_BYTES):
            assert decode_header(damaged, 64, SEED) is None, bit
        else:
            assert header_of(damaged, 64) == good
            assert decode_body(damaged, 64, header=good, seed=SEED) is None, bit


def test_a_block_copied_to_another_place_does_not_pass() -> None:
    frame = frame_at(0, b"body")
    assert decode_header(bytes(64) + frame, 64, SEED) is None


@pytest.mark.parametrize(
    "seed",
    [segment_seed(0x0123_4567_89AB_CDEF, 8), segment_seed(0x0123_4567_89AB_CDEE, 7)],
    ids=["another segment", "another salt"],
)
def test_a_block_of_another_segment_does_not_pass(seed: int) -> None:
    assert decode_header(frame_at(0, b"body"), 0, seed) is None


def test_half_a_frame_does_not_pass() -> None:
    data = frame_at(0, b"body of a frame")
    good = header_of(data, 0)
    for size in range(len(data)):
        if size < HEADER_BYTES:
            assert decode_header(data[:size], 0, SEED) is None
        else:
            assert decode_body(data[:size], 0, header=good, seed=SEED) is None


@pytest.mark.parametrize(
    ("at", "form", "value"),
    [
        (8, "<I", BODY_BYTES_MAX + 1),
        (8, "<I", 0xFFFF_FFFF),
        (12, "<I", 2),
        (24, "<Q", 101),
        (16, "<Q", 101),
    ],
    ids=["too long", "much too long", "count", "last", "first"],
)
def test_fields_that_disagree_do_not_pass_even_under_a_good_sum(
    at: int, form: str, value: int
) -> None:
    data = frame_at(0, b"body")
    assert decode_header(sealed(data, 0), 0, SEED) == header_of(data, 0)
    assert decode_header(sealed(with_field(data, at, form, value), 0), 0, SEED) is None


def test_a_number_beyond_the_largest_does_not_pass() -> None:
    assert header_of(frame_at(0, b"", first_lsn=LSN_MAX), 0).last_lsn == LSN_MAX
    assert decode_header(frame_at(0, b"", first_lsn=LSN_MAX + 1), 0, SEED) is None


@pytest.mark.parametrize(
    ("at", "form", "value"),
    [(58, "<B", FRAME_VERSION + 1), (58, "<B", 0), (56, "<H", Flag.CLOSE << 1)],
    ids=["newer", "none", "unknown flag"],
)
def test_a_newer_version_or_flag_is_told_from_damage(
    at: int, form: str, value: int
) -> None:
    data = with_field(frame_at(0, b"body"), at, form, value)
    assert decode_header(data, 0, SEED) is None  # without a good sum it is damage
    with pytest.raises(FormatError, match="newer version"):
        decode_header(sealed(data, 0), 0, SEED)


# -- the mask --------------------------------------------------------------------------


def later_sectors(data: bytes, offset: int) -> list[bytes]:
    """The parts of a frame in each sector after the one that its header is in."""
    first = (offset // SECTOR_BYTES + 1) * SECTOR_BYTES
    return [
        data[at : at + SECTOR_BYTES] for at in range(first, len(data), SECTOR_BYTES)
    ]


SPARSE = st.lists(
    st.one_of(
        st.integers(1, 1500).map(bytes),
        st.integers(1, 400).map(lambda n: PATTERN * n),
        st.binary(min_size=1, max_size=3),
    ),
    min_size=1,
    max_size=6,
).map(b"".join)


@given(SPARSE, OFFSETS)
@example(bytes(4096), 0)
@example(bytes(5000), 64)
@example(PATTERN * 1024, 0)
@example(bytes(2048) + PATTERN * 1024, 0)
@example(b"x" * 448 + bytes(1), 0)  # the partial last sector
@example(b"x" * 448 + PATTERN * 4, 0)
@example(b"x" * 960 + b"\1" + bytes(511), 0)  # one byte away from zero
def test_no_sector_of_a_written_frame_can_be_taken_for_an_unwritten_one(
    body: bytes, offset: int
) -> None:
    data = frame_at(offset, body)
    header = header_of(data, offset)
    assert decode_body(data, offset, header=header, seed=SEED) == body
    assert not has_unwritten_sector(data, offset, header)
    for sector in later_sectors(data, offset):
        assert len(sector) - sector.count(0) >= 2  # nor by one damaged byte


def test_a_payload_of_zeros_is_masked_and_an_ordinary_one_is_not() -> None:
    zeros, text = frame_at(0, bytes(4096)), frame_at(0, b"text" * 1024)
    assert Flag.MASKED in header_of(zeros, 0).flags
    assert header_of(zeros, 0).mask != 0
    assert Flag.MASKED not in header_of(text, 0).flags
    assert header_of(text, 0).mask == 0
    assert text[HEADER_BYTES:] == b"text" * 1024


def test_a_short_body_beside_its_header_needs_no_mask() -> None:
    assert Flag.MASKED not in header_of(frame_at(0, bytes(448)), 0).flags
    assert Flag.MASKED in header_of(frame_at(448, bytes(64)), 448).flags


def test_a_body_of_the_pattern_itself_gets_another_one() -> None:
    data = frame_at(0, bytes(2048) + PATTERN * 1024)
    assert header_of(data, 0).mask not in (0, 0xA5C3_5A3C)


@given(OFFSETS, st.integers(600, 3000), st.data())
def test_a_sector_that_was_never_written_shows(
    offset: int, length: int, draw: st.DataObject
) -> None:
    data = bytearray(frame_at(offset, bytes([1]) * length))
    header = header_of(bytes(data), offset)
    first = (offset // SECTOR_BYTES + 1) * SECTOR_BYTES
    at = draw.draw(st.sampled_from(range(first, len(data), SECTOR_BYTES)))
    stop = min(at + SECTOR_BYTES, len(data))
    data[at:stop] = bytes(stop - at)
    assert has_unwritten_sector(bytes(data) + b"beyond" * 200, offset, header)


def test_a_frame_that_the_file_ends_in_has_an_unwritten_sector() -> None:
    data = frame_at(0, b"x" * 2000)
    header = header_of(data, 0)
    for size in range(HEADER_BYTES, len(data)):
        past = size < len(data) if size >= SECTOR_BYTES else True
        assert has_unwritten_sector(data[:size], 0, header) == past


def test_zeros_in_the_sector_of_the_header_are_no_unwritten_sector() -> None:
    data = bytearray(frame_at(0, b"x" * 2000))
    header = header_of(bytes(data), 0)
    data[HEADER_BYTES:SECTOR_BYTES] = bytes(SECTOR_BYTES - HEADER_BYTES)
    assert not has_unwritten_sector(bytes(data), 0, header)
