"""Stores that earlier versions wrote are still read, and this one writes the same."""

from __future__ import annotations

import itertools
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.golden.make import HERE, NAME, golden_life
from wal.filesystem import FileSystem
from wal.frame import Flag, decode_records
from wal.inspection import verify
from wal.log import Log
from wal.salvage import Frame
from wal.scan import Scan
from wal.store import read_identity

GOLDEN = sorted(path for path in HERE.glob("format-*") if path.is_dir())


@pytest.fixture(params=GOLDEN, ids=lambda path: path.name)
def golden(request: pytest.FixtureRequest) -> Path:
    path: Path = request.param
    return path


@pytest.fixture
def copied(golden: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(golden, tmp_path / "store"))


def holdings(golden: Path) -> dict[str, Any]:
    text = (HERE / f"{golden.name}.json").read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(text)
    return found


def expected_records(golden: Path) -> dict[int, bytes]:
    records = holdings(golden)["records"].items()
    return {int(lsn): bytes.fromhex(payload) for lsn, payload in records}


def opened(path: Path) -> Log:
    times = itertools.count(2_000_000_000_000_000_000)
    return Log.open(path, wall_ns=lambda: next(times), create=False)


def test_the_present_format_has_a_golden_store() -> None:
    assert NAME in [path.name for path in GOLDEN]


def test_a_golden_store_has_no_fault(golden: Path) -> None:
    found = verify(FileSystem(golden))

    assert found.faults == ()
    assert found.closed == holdings(golden)["closed"]
    assert found.records == len(expected_records(golden))


def test_every_record_of_a_golden_store_is_read(golden: Path) -> None:
    files = FileSystem(golden)
    frames = [
        item
        for item in Scan(files, read_identity(files).uuid).items()
        if isinstance(item, Frame)
    ]

    assert {
        lsn: payload
        for frame in frames
        for lsn, payload in enumerate(
            decode_records(frame.body), frame.header.first_lsn
        )
    } == expected_records(golden)
    flags = Flag.NONE
    for frame in frames:
        flags |= frame.header.flags
    assert flags == Flag.ATOMIC | Flag.RELAXED | Flag.MASKED | Flag.CLOSE


def test_a_golden_store_opens_from_its_snapshot_and_goes_on(
    golden: Path, copied: Path
) -> None:
    expected = expected_records(golden)
    with opened(copied) as log:
        assert log.snapshot is not None
        pin_lsn = log.snapshot.pin_lsn
        blocks = [block.hex() for block in log.snapshot_blocks()]
        assert blocks == holdings(golden)["snapshot"]
        read = {record.lsn: record.payload for record in log.read()}
        assert read == {n: p for n, p in expected.items() if n > pin_lsn}
        report = log.start()
        assert report.clean
        assert log.append(b"one more") == max(expected) + 1
    with opened(copied) as log:
        assert [record.payload for record in log.read()][-1] == b"one more"


def test_a_golden_store_opens_without_its_snapshot(golden: Path, copied: Path) -> None:
    for path in copied.glob("*.snap"):
        path.unlink()

    with opened(copied) as log:
        read = {record.lsn: record.payload for record in log.read()}

    assert read == expected_records(golden)


def test_the_golden_store_of_the_present_format_is_what_the_writer_still_writes() -> (
    None
):
    files, holds = golden_life()
    kept = {path.name: path.read_bytes() for path in (HERE / NAME).iterdir()}

    # A difference is a change of the format, unless only the writer's choices changed:
    # read tests/golden/make.py before you make it anew.
    assert sorted(files) == sorted(kept)
    for name, data in files.items():
        assert data == kept[name], name
    assert holds == holdings(HERE / NAME)
