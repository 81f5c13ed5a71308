"""The files of a log as they stand: listed whatever became of them, sized, read whole."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from tests.wal.example_stores import segments_of, snapshots_of, store
from wal.checksum import crc32c
from wal.errors import StoreError
from wal.filesystem import FileSystem, Handle
from wal.segment import SEGMENT_HEADER_BYTES
from wal.segment_files import (
    LISTINGS_MAX,
    is_of_a_log,
    is_segment,
    list_segments,
    read_file,
    sizes_of,
)
from wal.testing import MemoryFileSystem

SEGMENT = "wal-0000000000000002-000000000000000b.seg"
SNAPSHOT = "snap-000000000000000b.snap"


@pytest.fixture
def disk() -> MemoryFileSystem:
    return store(30, snapshots_at=(10, 20))


def test_segments_are_told_by_name_and_files_of_a_log_with_its_snapshots() -> None:
    assert [is_segment(name) for name in (SEGMENT, SNAPSHOT, "STORE")] == [
        True,
        False,
        False,
    ]
    assert [is_of_a_log(name) for name in (SEGMENT, SNAPSHOT, "STORE")] == [
        True,
        True,
        False,
    ]


# -- segments --------------------------------------------------------------------------


def test_each_segment_is_listed_by_what_its_header_says(disk: MemoryFileSystem) -> None:
    found = list_segments(disk)
    assert [segment.name for segment in found] == segments_of(disk)
    assert len(found) > 1
    for segment in found:
        data = disk.content(segment.name)
        assert segment.header is not None
        assert segment.block == data[:SEGMENT_HEADER_BYTES]
        assert segment.size_bytes == len(data)
        assert (segment.segment_id, segment.first_lsn) == (
            segment.header.segment_id,
            segment.header.first_lsn,
        )
        assert not segment.is_renamed


def test_a_damaged_header_leaves_the_place_that_the_name_tells(
    disk: MemoryFileSystem,
) -> None:
    *_, before = list_segments(disk)
    disk.flip_bit(before.name, 8 * 20)
    *_, damaged = list_segments(disk)
    assert (damaged.header, damaged.is_renamed) == (None, False)
    assert (damaged.name, damaged.segment_id, damaged.first_lsn) == (
        before.name,
        before.segment_id,
        before.first_lsn,
    )


def test_of_two_files_of_one_segment_the_one_with_the_right_name_comes_first(
    disk: MemoryFileSystem,
) -> None:
    first, second, *_ = list_segments(disk)
    disk.put("wal-0000000000000001-0000000000000000.seg", disk.content(second.name))
    found = list_segments(disk)
    assert [segment.segment_id for segment in found[:3]] == [
        first.segment_id,
        second.segment_id,
        second.segment_id,
    ]
    assert [segment.is_renamed for segment in found[:3]] == [False, False, True]
    assert found[2].first_lsn == second.first_lsn


def test_a_segment_of_a_newer_format_is_refused_with_its_path(
    disk: MemoryFileSystem,
) -> None:
    name = segments_of(disk)[0]
    block = bytearray(disk.content(name)[: SEGMENT_HEADER_BYTES - 4])
    block[8] = 9
    disk.overwrite(name, 0, bytes(block) + crc32c(bytes(block)).to_bytes(4, "little"))
    with pytest.raises(StoreError, match=f"{disk.path}/{name}"):
        list_segments(disk)


def test_the_names_are_read_anew_if_a_file_is_gone_when_it_is_opened(
    disk: MemoryFileSystem,
) -> None:
    first, *rest = segments_of(disk)
    disk.fail("open", errno.ENOENT, name=first, times=LISTINGS_MAX - 1)
    assert [segment.name for segment in list_segments(disk)] == [first, *rest]
    disk.fail("open", errno.ENOENT, name=first, times=LISTINGS_MAX)
    assert [segment.name for segment in list_segments(disk)] == rest
    assert [segment.name for segment in list_segments(disk)] == [first, *rest]


# -- sizes -----------------------------------------------------------------------------


def test_files_are_told_with_their_sizes_all_or_those_that_are_wanted(
    disk: MemoryFileSystem,
) -> None:
    sizes = {name: len(disk.content(name)) for name in disk.names()}
    assert sizes_of(disk) == sizes
    names = [*segments_of(disk), *snapshots_of(disk)]
    assert sizes_of(disk, is_of_a_log) == {name: sizes[name] for name in sorted(names)}
    disk.fail("open", errno.EIO, name="STORE", times=None)
    assert len(sizes_of(disk, is_segment)) == len(segments_of(disk))


def test_a_place_that_is_no_directory_has_no_files(tmp_path: Path) -> None:
    assert sizes_of(FileSystem(tmp_path / "missing")) == {}
    (tmp_path / "file").touch()
    assert sizes_of(FileSystem(tmp_path / "file")) == {}
    assert sizes_of(MemoryFileSystem()) == {}


@pytest.mark.parametrize("code", [errno.ENOENT, errno.EISDIR, errno.ENXIO])
def test_what_is_gone_or_is_no_file_is_passed_over_and_all_else_is_told(
    disk: MemoryFileSystem, code: int
) -> None:
    first, *rest = disk.names()
    disk.fail("open", code, name=first)
    assert list(sizes_of(disk)) == rest


def test_a_file_that_cannot_be_opened_for_another_reason_is_an_error(
    disk: MemoryFileSystem,
) -> None:
    disk.fail("open", errno.EACCES, name="STORE")
    with pytest.raises(PermissionError, match="STORE"):
        sizes_of(disk)


# -- a whole file ----------------------------------------------------------------------


def test_a_file_is_read_whole(disk: MemoryFileSystem) -> None:
    assert read_file(disk, "STORE") == disk.content("STORE")


class Nameless(MemoryFileSystem):
    """A disk whose reads fail as the system's do: without the name of the file."""

    def pread(self, handle: Handle, size_bytes: int, offset: int) -> bytes:
        raise OSError(errno.EIO, "the disk is broken")


def test_an_error_in_a_file_names_it_once() -> None:
    disk = Nameless("the/store")
    disk.make_directory()
    disk.put("STORE", b"x")
    with pytest.raises(OSError, match="broken") as caught:
        read_file(disk, "STORE")
    error = caught.value
    assert (error.errno, error.strerror) == (errno.EIO, "the disk is broken")
    assert error.filename == "the/store/STORE"
    assert isinstance(error.__cause__, OSError)
    with pytest.raises(FileNotFoundError) as caught:
        read_file(disk, "LOCK")
    assert caught.value.filename == "the/store/LOCK"
    assert caught.value.__cause__ is None
