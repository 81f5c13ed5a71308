"""docs/wal-format.md is true: its hex is what the code reads and writes."""

from __future__ import annotations

import importlib
import re
import struct
from pathlib import Path

import pytest

from wal import log, pool
from wal.checksum import portable_extend
from wal.frame import Flag, Lsn, chain_of, encode_frame, encode_records
from wal.reader import SegmentReader
from wal.segment import (
    FORMAT_MAJOR,
    FORMAT_MINOR,
    NO_PREDECESSOR,
    SEGMENT_HEADER_BYTES,
    SegmentHeader,
    decode_segment_header,
    segment_name,
)
from wal.tail import Verdict

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "wal-format.md").read_text(encoding="utf-8")

UUID = bytes(range(16))
SALT = 0x1122334455667788
BORN_NS = 1_767_225_600_000_000_000
COMMITTED_NS = BORN_NS + 500_000_000
CLOSED_NS = BORN_NS + 1_000_000_000
SIZE_BYTES = 5120


def blocks(kind: str) -> list[tuple[str, str]]:
    """The fenced blocks of a kind, each with what stands behind the kind."""
    return re.findall(
        rf"^```{kind} ?([^\n]*)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL
    )


def bytes_of(dump: str) -> bytes:
    """The bytes of a hex dump whose `*` lines stand for zeros."""
    data = b""
    lines = dump.splitlines()
    for line in lines:
        if line == "*":
            continue
        offset, _, rest = line.partition("  ")
        data = data.ljust(int(offset, 16), b"\0")
        data += bytes.fromhex(rest.partition("|")[0])
    assert len(data) == int(lines[-1], 16)
    return data


@pytest.fixture
def segment() -> bytes:
    ((_, dump),) = blocks("hex")
    return bytes_of(dump)


def test_the_segment_of_the_page_reads_as_the_page_says(segment: bytes) -> None:
    header = decode_segment_header(segment[:SEGMENT_HEADER_BYTES], "page")
    assert header == SegmentHeader(
        store_uuid=UUID,
        segment_id=1,
        first_lsn=Lsn(1),
        salt=SALT,
        size_bytes=SIZE_BYTES,
        created_ns=BORN_NS,
        predecessor=NO_PREDECESSOR,
    )

    reader = SegmentReader(segment, header)
    (group,) = reader.groups()

    assert group.body == encode_records([b"hello", b"world!"])
    assert (group.first_lsn, group.record_count) == (1, 2)
    assert group.wall_ns == COMMITTED_NS
    assert group.flags == Flag.ATOMIC
    assert reader.last_flags == Flag.ATOMIC | Flag.CLOSE
    assert reader.last_wall_ns == CLOSED_NS
    assert reader.offset == len(segment)
    assert reader.tail(atomic_sectors=True).verdict is Verdict.CLEAN


def test_the_code_writes_the_segment_of_the_page(segment: bytes) -> None:
    header = SegmentHeader(
        store_uuid=UUID,
        segment_id=1,
        first_lsn=Lsn(1),
        salt=SALT,
        size_bytes=SIZE_BYTES,
        created_ns=BORN_NS,
        predecessor=NO_PREDECESSOR,
    )
    group = encode_frame(
        encode_records([b"hello", b"world!"]),
        record_count=2,
        first_lsn=1,
        durable_lsn=0,
        wall_ns=COMMITTED_NS,
        chain_crc=0,
        flags=Flag.NONE,
        seed=header.seed,
        offset=SEGMENT_HEADER_BYTES,
    )
    close = encode_frame(
        b"",
        record_count=0,
        first_lsn=3,
        durable_lsn=2,
        wall_ns=CLOSED_NS,
        chain_crc=chain_of(group),
        flags=Flag.CLOSE,
        seed=header.seed,
        offset=SEGMENT_HEADER_BYTES + len(group),
    )

    assert header.encode() + group + close == segment


def test_the_page_is_enough_to_write_the_segment_without_the_code(
    segment: bytes,
) -> None:
    """Every byte put together by hand, with the other body of the checksum."""
    extend = portable_extend()
    block = b"TWLOGSEG" + struct.pack("<HHIII", 1, 0, 0, 0, 0) + UUID
    block += struct.pack("<QQQ", 1, 1, SALT)
    block += struct.pack("<BBHI", 1, 0, 512, 0)
    block += struct.pack("<QQ", SIZE_BYTES, BORN_NS)
    block = block.ljust(4092, b"\0")
    block += struct.pack("<I", extend(0, block))

    seed = extend(0, struct.pack("<QQ", SALT, 1))
    chain = 0
    for payloads, first, durable, wall_ns, flags in (
        ([b"hello", b"world!"], 1, 0, COMMITTED_NS, 1),
        ([], 3, 2, CLOSED_NS, 1 | 8),
    ):
        body = b"".join(struct.pack("<I", len(p)) + p for p in payloads)
        stored = body + bytes(-len(body) % 64)
        here = extend(seed, struct.pack("<Q", len(block)))
        rest = struct.pack("<II", len(body), len(payloads))
        rest += struct.pack("<QQ", first, first + len(payloads) - 1)
        rest += struct.pack("<QQ", durable, wall_ns)
        rest += struct.pack("<II", extend(here, stored), chain)
        rest += struct.pack("<HBBI", flags, 1, 0, 0)
        header = b"TWgf" + struct.pack("<I", extend(here, rest)) + rest
        chain = extend(0, header)
        block += header + stored

    assert block == segment


def test_the_ascii_beside_the_hex_is_that_of_the_bytes() -> None:
    ((_, dump),) = blocks("hex")
    for line in dump.splitlines():
        if "|" not in line:
            continue
        row = bytes.fromhex(line.partition("  ")[2].partition("|")[0])
        shown = "".join(chr(b) if 32 <= b < 127 else "." for b in row)
        assert line.endswith(f"|{shown}|")


@pytest.mark.parametrize(("module", "drawing"), blocks("layout"))
def test_bytes_are_drawn_as_in_the_module_that_packs_them(
    module: str, drawing: str
) -> None:
    name = module.removesuffix(".py").replace("/", ".")
    text = importlib.import_module(name).__doc__ or ""
    lines = [line.strip() for line in text.splitlines()]

    start = lines.index(drawing.splitlines()[0].strip())
    expected = lines[start : start + len(drawing.splitlines())]
    assert [line.strip() for line in drawing.splitlines()] == expected


def test_every_kind_of_file_is_drawn() -> None:
    assert sorted({module for module, _ in blocks("layout")}) == [
        "wal/frame.py",
        "wal/segment.py",
        "wal/snapshot.py",
        "wal/store.py",
    ]


def test_the_figures_of_the_page_are_those_of_the_code() -> None:
    assert f"format {FORMAT_MAJOR}.{FORMAT_MINOR}" in PAGE
    assert segment_name(1, 1) == f"wal-{1:016x}-{1:016x}.seg"
    mebibyte = 1 << 20
    assert f"A segment is {log.SEGMENT_SIZE_BYTES // mebibyte} MiB" in PAGE
    assert f"the reserve {log.RESERVE_BYTES // mebibyte} MiB" in PAGE
    assert f"{pool.FILL_STEP_BYTES // mebibyte} MiB at a time" in PAGE
    waiting = f"{log.UNSYNCED_BYTES_MAX // mebibyte} MiB or "
    assert f"At most {waiting}{log.UNSYNCED_RECORDS_MAX:,} records wait" in PAGE


def test_every_link_of_the_page_leads_somewhere() -> None:
    headings = re.findall(r"^#+ (.*)$", PAGE, re.MULTILINE)
    anchors = {
        re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        for heading in headings
    }
    links = re.findall(r"\]\(([^)]+)\)", PAGE)
    assert len(links) > 10
    for link in links:
        if link.startswith("#"):
            assert link[1:] in anchors
        else:
            assert (ROOT / "docs" / link).is_file(), link
