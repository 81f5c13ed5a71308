"""The segment's header and name: bytes, damage, and formats that are not ours."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wal.checksum import crc32c
from wal.errors import StoreError
from wal.frame import Lsn, segment_seed
from wal.segment import (
    FORMAT_MAJOR,
    FORMAT_MINOR,
    NO_PREDECESSOR,
    SEGMENT_HEADER_BYTES,
    SegmentEnd,
    SegmentHeader,
    claims_of_damaged_header,
    decode_segment_header,
    parse_segment_name,
    segment_name,
)

U64 = st.integers(0, 2**64 - 1)
U63 = st.integers(0, 2**63 - 1)
HEADER = SegmentHeader(
    store_uuid=bytes(range(16)),
    segment_id=3,
    first_lsn=Lsn(500),
    salt=0xDEAD_BEEF_CAFE_F00D,
    size_bytes=16 << 20,
    created_ns=1_700_000_000_000_000_000,
    predecessor=SegmentEnd(2, 8192, Lsn(499), 0x1234_5678),
)


def sealed(block: bytes) -> bytes:
    """The block with its checksum made right again."""
    return block[:-4] + struct.pack("<I", crc32c(block[:-4]))


def changed(at: int, form: str, value: int) -> bytes:
    field = struct.pack(form, value)
    block = HEADER.encode()
    return sealed(block[:at] + field + block[at + len(field) :])


# -- names -----------------------------------------------------------------------------


@given(U64, st.integers(0, 2**63 - 1))
def test_a_name_tells_id_and_first_lsn(segment_id: int, first_lsn: int) -> None:
    assert parse_segment_name(segment_name(segment_id, first_lsn)) == (
        segment_id,
        first_lsn,
    )


@given(st.lists(st.tuples(U64, U64), unique_by=lambda pair: pair[0]))
def test_sorted_names_are_sorted_by_id(pairs: list[tuple[int, int]]) -> None:
    names = sorted(segment_name(*pair) for pair in pairs)
    assert names == [segment_name(*pair) for pair in sorted(pairs)]


@pytest.mark.parametrize(
    "name",
    [
        "LOCK",
        "STORE",
        "wal-1-1.seg",
        "wal-0000000000000001-0000000000000001.seg.tmp",
        "wal-0000000000000001-0000000000000001.seg.00001000.torn",
        "wal-000000000000000A-0000000000000001.seg",
        "xwal-0000000000000001-0000000000000001.seg",
        "wal-0000000000000001-0000000000000001.seg\n",
    ],
)
def test_other_names_are_no_segments(name: str) -> None:
    assert parse_segment_name(name) is None


# -- the header ------------------------------------------------------------------------


@given(
    st.binary(min_size=16, max_size=16),
    st.lists(U63, min_size=9, max_size=9),
    st.integers(0, 2**32 - 1),
)
def test_a_header_comes_back_as_it_was(uuid: bytes, n: list[int], chain: int) -> None:
    before = SegmentEnd(n[5], n[6], Lsn(n[7]), chain)
    header = SegmentHeader(uuid, n[0], Lsn(n[1]), n[2], n[3], n[4], before)
    block = header.encode()
    assert len(block) == SEGMENT_HEADER_BYTES == 4096
    assert decode_segment_header(block, "path") == header
    assert parse_segment_name(header.name) == (n[0], n[1])
    assert header.seed == segment_seed(n[2], n[0])


@pytest.mark.parametrize("place", range(6))
def test_a_header_with_a_number_beyond_63_bits_is_a_damaged_one(place: int) -> None:
    """Sums with it would not fit where the log's numbers are kept."""
    n = [1] * 6
    n[place] = 2**63
    before = SegmentEnd(n[3], n[4], Lsn(n[5]), 0)
    header = SegmentHeader(bytes(16), n[0], Lsn(n[1]), 2**64 - 1, n[2], 0, before)
    assert decode_segment_header(header.encode(), "path") is None


def test_a_header_may_have_the_last_number_of_63_bits_in_each_place() -> None:
    last = 2**63 - 1
    before = SegmentEnd(last, last, Lsn(last), 2**32 - 1)
    header = SegmentHeader(bytes(16), last, Lsn(last), 2**64 - 1, last, 0, before)
    assert decode_segment_header(header.encode(), "path") == header


def test_the_bytes_are_those_of_the_drawing() -> None:
    block = HEADER.encode()
    assert block[0:8] == b"TWLOGSEG"
    assert block[8:12] == struct.pack("<HH", FORMAT_MAJOR, FORMAT_MINOR)
    assert block[12:24] == bytes(12)
    assert block[24:40] == bytes(range(16))
    assert block[40:64] == struct.pack("<QQQ", 3, 500, 0xDEAD_BEEF_CAFE_F00D)
    assert block[64:72] == struct.pack("<BxH4x", 1, 512)
    assert block[72:88] == struct.pack("<QQ", 16 << 20, 1_700_000_000_000_000_000)
    assert block[88:116] == struct.pack("<QQQI", 2, 8192, 499, 0x1234_5678)
    assert block[116:4092] == bytes(4092 - 116)
    assert block[4092:] == struct.pack("<I", crc32c(block[:4092]))


def test_a_first_segment_names_no_predecessor() -> None:
    assert SegmentEnd(0, 0, Lsn(0), 0) == NO_PREDECESSOR


def test_a_flipped_bit_in_any_byte_is_damage() -> None:
    block = HEADER.encode()
    for at in range(len(block)):
        damaged = bytearray(block)
        damaged[at] ^= 1 << at % 8
        assert decode_segment_header(bytes(damaged), "path") is None, at


@pytest.mark.parametrize("size", [0, 1, 8, 512, 4095])
def test_half_a_header_is_damage(size: int) -> None:
    assert decode_segment_header(HEADER.encode()[:size], "path") is None


def test_a_block_of_zeros_is_damage_not_an_old_format() -> None:
    assert decode_segment_header(bytes(4096), "path") is None


# -- other formats ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("at", "form", "value", "found"),
    [
        (8, "<H", FORMAT_MAJOR + 1, rf"format {FORMAT_MAJOR + 1}\.{FORMAT_MINOR}"),
        (12, "<I", 4, "feature bits 0x4"),
        (16, "<I", 8, "feature bits 0x8"),
        (64, "<B", 2, "checksum kind 2"),
        (66, "<H", 4096, "sectors of 4096 bytes"),
    ],
    ids=["major", "incompatible", "read-only", "checksum", "sector"],
)
def test_a_format_that_we_do_not_know_is_refused_by_name(
    at: int, form: str, value: int, found: str
) -> None:
    with pytest.raises(StoreError, match=found) as caught:
        decode_segment_header(changed(at, form, value), "dir/file")
    assert caught.value.path == "dir/file"
    assert "version" in caught.value.remedy


@pytest.mark.parametrize(
    ("at", "form"), [(10, "<H"), (20, "<I")], ids=["minor", "compatible"]
)
def test_what_only_informs_is_passed_over(at: int, form: str) -> None:
    assert decode_segment_header(changed(at, form, 9), "path") == HEADER


# -- salvage ---------------------------------------------------------------------------


def test_a_damaged_header_still_claims_its_store_and_salt() -> None:
    block = bytearray(HEADER.encode())
    block[4000] ^= 1
    assert decode_segment_header(bytes(block), "path") is None
    assert claims_of_damaged_header(bytes(block)) == (HEADER.store_uuid, HEADER.salt)


@pytest.mark.parametrize(("kept", "holds"), [(50, False), (115, False), (116, True)])
def test_a_header_that_was_cut_off_claims_something_if_its_fields_are_whole(
    kept: int, *, holds: bool
) -> None:
    claims = claims_of_damaged_header(HEADER.encode()[:kept])
    assert claims == ((HEADER.store_uuid, HEADER.salt) if holds else None)
