"""The checksum: the known sums of CRC32C, and two bodies that agree on all others."""

from __future__ import annotations

import ctypes

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wal import checksum
from wal.checksum import (
    Extend,
    crc32c,
    extend,
    hardware_extend,
    native_address,
    portable_extend,
)

CRCS = st.integers(0, 0xFFFF_FFFF)


@pytest.fixture(scope="module")
def hardware() -> Extend:
    body = hardware_extend()
    if body is None:
        pytest.skip("no extension for this processor")
    return body


# RFC 3720, appendix B.4, and the check value of the CRC catalogue.
@pytest.mark.parametrize(
    ("data", "crc"),
    [
        (b"", 0),
        (b"123456789", 0xE306_9283),
        (bytes(32), 0x8A91_36AA),
        (b"\xff" * 32, 0x62A8_AB43),
        (bytes(range(32)), 0x46DD_794E),
        (bytes(range(31, -1, -1)), 0x113F_DB5C),
    ],
)
def test_the_sums_are_those_of_the_standard(data: bytes, crc: int) -> None:
    assert crc32c(data) == crc
    assert portable_extend()(0, data) == crc


@given(CRCS, st.binary(max_size=5000))
def test_the_portable_body_gives_what_the_processor_gives(
    hardware: Extend, crc: int, data: bytes
) -> None:
    assert portable_extend()(crc, data) == hardware(crc, data)


@given(st.binary(max_size=500), st.binary(max_size=500))
def test_a_sum_can_be_taken_in_parts(head: bytes, rest: bytes) -> None:
    assert extend(crc32c(head), rest) == crc32c(head + rest)


@given(CRCS, st.binary(min_size=1, max_size=64), st.data())
def test_one_flipped_bit_changes_the_sum(
    crc: int, data: bytes, draw: st.DataObject
) -> None:
    place = draw.draw(st.integers(0, 8 * len(data) - 1))
    flipped = bytearray(data)
    flipped[place // 8] ^= 1 << place % 8
    assert extend(crc, bytes(flipped)) != extend(crc, data)


def test_the_function_behind_the_address_gives_the_same_sums(hardware: Extend) -> None:
    address = native_address()
    assert address
    words = (ctypes.c_uint32, ctypes.c_uint32, ctypes.c_char_p, ctypes.c_size_t)
    function = ctypes.CFUNCTYPE(*words)(address)
    for crc, data in ((0, b"123456789"), (7, bytes(range(64)))):
        assert function(crc, data, len(data)) == hardware(crc, data)


def test_the_module_says_which_body_runs() -> None:
    expected = "portable" if hardware_extend() is None else "hardware"
    assert expected == checksum.IMPLEMENTATION
