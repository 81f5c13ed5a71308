"""The system calls of a real directory, and the small programs made of them."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from wal.filesystem import (
    FileSystem,
    Handle,
    opened,
    read_whole,
    write_fully,
    write_new_file,
)
from wal.testing import MemoryFileSystem, SimulatedCrash


@pytest.fixture
def files(tmp_path: Path) -> FileSystem:
    return FileSystem(tmp_path)


class Reluctant(FileSystem):
    """Writes a few bytes at a time, and none after the limit."""

    def __init__(self, path: Path, *, step_bytes: int, limit_bytes: int) -> None:
        super().__init__(path)
        self._step = step_bytes
        self._left = limit_bytes

    def pwrite(self, handle: Handle, data: bytes, offset: int) -> int:
        part = data[: min(self._step, self._left)]
        self._left -= len(part)
        return super().pwrite(handle, part, offset) if part else 0


# -- the directory ---------------------------------------------------------------------


def test_a_directory_is_made_with_its_parents(tmp_path: Path) -> None:
    files = FileSystem(tmp_path / "a" / "b" / "c")
    assert not files.exists()
    files.make_directory()
    assert files.exists()
    files.make_directory()
    assert files.names() == []


def test_a_file_in_place_of_the_directory_is_an_error_not_an_absence(
    tmp_path: Path,
) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(NotADirectoryError) as caught:
        FileSystem(tmp_path / "file").exists()
    assert caught.value.filename == str(tmp_path / "file")


def test_names_are_sorted_and_follow_create_rename_and_unlink(
    files: FileSystem,
) -> None:
    for name in ("b", "c", "a"):
        files.close(files.create(name))
    files.rename("c", "0")
    files.unlink("b")
    files.sync_dir()
    assert files.names() == ["0", "a"]


def test_a_rename_replaces_what_had_the_name(files: FileSystem) -> None:
    write_new_file(files, "old", b"old")
    write_new_file(files, "new", b"new")
    files.rename("new", "old")
    assert files.names() == ["old"]
    assert read_whole(files, "old") == b"new"


# -- files -----------------------------------------------------------------------------


def test_create_empties_a_file_that_is_there(files: FileSystem) -> None:
    write_new_file(files, "f", b"before")
    files.close(files.create("f"))
    assert read_whole(files, "f") == b""


def test_a_read_is_short_only_at_the_end_of_the_file(files: FileSystem) -> None:
    write_new_file(files, "f", b"0123456789")
    with opened(files, "f") as handle:
        assert files.size_bytes(handle) == 10
        assert files.pread(handle, 4, 3) == b"3456"
        assert files.pread(handle, 100, 8) == b"89"
        assert files.pread(handle, 100, 10) == b""


def test_a_file_opened_to_read_cannot_be_written(files: FileSystem) -> None:
    write_new_file(files, "f", b"kept")
    with opened(files, "f") as handle, pytest.raises(OSError) as caught:
        files.pwrite(handle, b"x", 0)
    assert caught.value.errno == errno.EBADF
    assert read_whole(files, "f") == b"kept"


def test_truncate_and_the_syncs_and_the_hint_work_on_a_real_file(
    files: FileSystem,
) -> None:
    write_new_file(files, "f", b"0123456789")
    with opened(files, "f", writable=True) as handle:
        files.truncate(handle, 4)
        files.datasync(handle)
        files.sync(handle)
        files.forget_cache(handle)
    assert read_whole(files, "f") == b"0123"


def test_an_error_names_the_file(files: FileSystem) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        files.open("missing")
    assert caught.value.filename == os.path.join(files.path, "missing")


def test_opened_closes_the_file_when_the_block_raises(files: FileSystem) -> None:
    write_new_file(files, "f", b"x")
    with pytest.raises(KeyError), opened(files, "f") as handle:
        raise KeyError
    with pytest.raises(OSError):
        files.size_bytes(handle)


# -- the lock --------------------------------------------------------------------------


def test_a_lock_has_one_holder_until_it_is_closed(tmp_path: Path) -> None:
    one, other = FileSystem(tmp_path), FileSystem(tmp_path)
    held = one.lock("LOCK")
    assert held is not None
    assert other.lock("LOCK") is None
    assert one.lock("LOCK") is None
    one.close(held)
    taken = other.lock("LOCK")
    assert taken is not None
    other.close(taken)


def test_reading_the_lock_file_does_not_lose_the_lock(files: FileSystem) -> None:
    held = files.lock("LOCK")
    assert held is not None
    assert read_whole(files, "LOCK") == b""
    assert files.lock("LOCK") is None
    files.close(held)


# -- the rest --------------------------------------------------------------------------


def test_entropy_has_the_asked_size_and_differs(files: FileSystem) -> None:
    assert len(files.entropy(16)) == 16
    assert files.entropy(16) != files.entropy(16)


def test_the_process_is_named_by_its_id(files: FileSystem) -> None:
    assert str(os.getpid()) in files.process_label()


def test_write_fully_goes_on_after_short_writes(tmp_path: Path) -> None:
    files = Reluctant(tmp_path, step_bytes=3, limit_bytes=100)
    handle = files.create("f")
    write_fully(files, handle, b"0123456789", offset=5)
    files.close(handle)
    assert read_whole(files, "f") == bytes(5) + b"0123456789"


def test_write_fully_gives_up_when_nothing_goes_any_more(tmp_path: Path) -> None:
    files = Reluctant(tmp_path, step_bytes=3, limit_bytes=5)
    handle = files.create("f")
    with pytest.raises(OSError) as caught:
        write_fully(files, handle, b"0123456789", offset=0)
    assert caught.value.errno == errno.EIO
    files.close(handle)


def test_a_new_file_is_synced_before_it_gets_its_name_and_the_name_after() -> None:
    disk = MemoryFileSystem()
    disk.make_directory()
    write_new_file(disk, "f", b"bytes")
    assert [(call.op, call.name) for call in disk.trace[1:]] == [
        ("create", "f.tmp"),
        ("pwrite", "f.tmp"),
        ("sync", "f.tmp"),
        ("rename", "f.tmp"),
        ("sync_dir", ""),
    ]


def test_a_new_file_that_a_crash_cuts_off_is_old_or_new_and_never_half() -> None:
    for index in range(2, 7):  # the five calls after the directory was made
        for after in (False, True):
            disk = MemoryFileSystem()
            disk.make_directory()
            disk.put("f", b"old")
            disk.crash_at(index, after=after)
            with pytest.raises(SimulatedCrash):
                write_new_file(disk, "f", b"new" * 1000)
            for state in disk.crash_states():
                assert state.content("f") in (b"old", b"new" * 1000), state.label
