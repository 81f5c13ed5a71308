"""What the errors of the log say, and carry."""

from __future__ import annotations

import errno
import os

import pytest

from wal.errors import (
    CommitUnknownError,
    DiskFullError,
    LogCorruptError,
    LogFailedError,
    RecordTooLargeError,
    StoreError,
    StoreInUseError,
)

FAILED = OSError(errno.EIO, os.strerror(errno.EIO))


@pytest.mark.parametrize(
    ("next_frame", "says"),
    [
        ({}, "; no valid frame follows in this file; at least 3 "),
        (
            {"next_offset": 8192, "next_lsn": 9},
            "; the next valid frame is at offset 8192 (LSN 9); at least 3 ",
        ),
    ],
    ids=["none", "one"],
)
def test_damage_is_told_with_its_place_and_the_frame_that_follows(
    next_frame: dict[str, int], says: str
) -> None:
    error = LogCorruptError(
        "the/store",
        "a.seg",
        offset=4096,
        expected_lsn=5,
        what="its checksum is wrong",
        records_at_stake=3,
        **next_frame,
    )
    assert str(error).startswith(
        "the/store/a.seg: damaged at offset 4096, where LSN 5 is expected: its checksum "
        f"is wrong{says}"
    )
    assert "python -m wal verify the/store;" in str(error)
    assert "python -m wal repair the/store --out NEWDIR" in str(error)
    assert (error.path, error.file, error.offset) == ("the/store", "a.seg", 4096)
    assert (error.expected_lsn, error.what) == (5, "its checksum is wrong")
    assert (error.next_offset, error.next_lsn) == (
        next_frame.get("next_offset"),
        next_frame.get("next_lsn"),
    )
    assert error.records_at_stake == 3


def test_of_damage_at_least_one_record_is_at_stake() -> None:
    error = LogCorruptError("s", "a.seg", offset=0, expected_lsn=1, what="x")
    assert error.records_at_stake == 1
    assert "at least 1 acknowledged record(s) at stake" in str(error)


def test_each_says_what_was_found_and_carries_it() -> None:
    store = StoreError("s", "it is empty", "pass create=True")
    assert str(store) == "s: it is empty; pass create=True"
    assert (store.path, store.found, store.remedy) == (
        "s",
        "it is empty",
        "pass create=True",
    )
    used = StoreInUseError("s", "process 7")
    assert str(used).startswith("s: in use by process 7;")
    assert str(used).endswith(": stop that one first, or open another directory")
    assert (used.path, used.holder) == ("s", "process 7")
    assert str(StoreInUseError("s", "x", remedy="wait")).endswith(": wait")
    own = StoreInUseError("s", f"process {os.getpid()}, open since noon")
    assert "open since noon (the number of this process: is it still open here?);" in (
        str(own)
    )
    large = RecordTooLargeError(9, 8)
    assert "9 bytes does not fit a frame of at most 8;" in str(large)
    assert (large.size_bytes, large.limit_bytes) == (9, 8)
    unknown = CommitUnknownError("s", 4, FAILED)
    assert f"while LSN 4 was being written ({FAILED})" in str(unknown)
    assert (unknown.path, unknown.lsn) == ("s", 4)
    for error in (DiskFullError("s", FAILED), LogFailedError("s", FAILED)):
        assert str(error).startswith("s: ")
        assert os.strerror(errno.EIO) in str(error)
        assert error.path == "s"
