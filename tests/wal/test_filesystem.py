"""The system calls of a real directory, and the small programs made of them."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from wal.filesystem import (
    REMOVED,
    FileSystem,
    Free,
    Handle,
    kind_at,
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


def test_a_directory_that_is_empty_is_removed(tmp_path: Path) -> None:
    files = FileSystem(tmp_path / "d")
    files.make_directory()
    files.remove_directory()
    assert not files.exists()


def test_a_link_that_leads_nowhere_is_no_directory_and_no_absence(
    tmp_path: Path,
) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "gone")
    with pytest.raises(NotADirectoryError) as caught:
        FileSystem(tmp_path / "link").exists()
    assert caught.value.errno == errno.ENOTDIR


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


def test_a_read_goes_on_where_the_system_gave_less() -> None:
    """The kernel gives the list of its symbols a page at a time."""
    files = FileSystem("/proc")
    if "kallsyms" not in files.names():
        pytest.skip("the kernel shows no symbols here")
    with opened(files, "kallsyms") as handle:
        first = os.pread(handle, 20_000, 10)
        assert len(first) < 20_000
        whole = files.pread(handle, 20_000, 10)
        assert len(whole) == 20_000
        assert whole[: len(first)] == first
        assert files.pread(handle, 10_000, 10_010) == whole[10_000:]


def test_a_read_goes_on_up_to_the_end_of_the_file() -> None:
    files = FileSystem("/proc/self")
    with opened(files, "maps") as handle:
        first = os.pread(handle, 1 << 20, 0)
        whole = files.pread(handle, 1 << 20, 0)
    assert len(first) < len(whole) < 1 << 20
    assert whole.endswith(b"\n")


def test_a_new_file_can_be_read_by_all_and_written_by_its_owner(
    files: FileSystem,
) -> None:
    before = os.umask(0)
    try:
        files.close(files.create("f"))
    finally:
        os.umask(before)
    assert os.stat(os.path.join(files.path, "f")).st_mode & 0o7777 == 0o644


def test_no_handle_goes_to_a_child(files: FileSystem) -> None:
    held = files.lock("LOCK")
    made = files.create("f")
    read = files.open("f")
    assert held is not None
    assert not any(map(os.get_inheritable, (held, made, read)))
    for handle in (made, read, held):
        files.close(handle)


@pytest.mark.parametrize("sync", ["datasync", "sync"])
def test_a_sync_of_a_file_that_was_removed_is_an_error(
    files: FileSystem, sync: str
) -> None:
    write_new_file(files, "another", b"kept")
    handle = files.create("f")
    getattr(files, sync)(handle)
    files.unlink("f")
    with pytest.raises(FileNotFoundError, match=REMOVED) as caught:
        getattr(files, sync)(handle)
    assert (caught.value.errno, caught.value.filename) == (errno.ENOENT, files.path)
    files.close(handle)


def test_a_sync_in_a_directory_that_was_removed_is_an_error(tmp_path: Path) -> None:
    files = FileSystem(tmp_path / "d")
    files.make_directory()
    handle = files.create("f")
    files.unlink("f")
    files.remove_directory()
    with pytest.raises(FileNotFoundError, match=REMOVED):
        files.sync(handle)
    files.close(handle)


@pytest.mark.parametrize("locked", [False, True])
def test_a_file_that_a_name_leads_to_passes_though_its_links_are_not_counted(
    files: FileSystem, locked: bool
) -> None:
    """As on some network file systems: there the names are looked through."""
    held = files.lock("LOCK") if locked else None
    (Path(files.path) / "dangling").symlink_to("nowhere")
    handle = files.create("f")
    files._require_name(handle)
    files.rename("f", "g")
    files._require_name(handle)
    files.close(handle)
    if held is not None:
        files.close(held)


def test_a_file_opened_to_read_cannot_be_written(files: FileSystem) -> None:
    write_new_file(files, "f", b"kept")
    for handle in (files.open("f"), files.open("f", writable=False)):
        with pytest.raises(OSError) as caught:
            files.pwrite(handle, b"x", 0)
        files.close(handle)
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


@pytest.fixture
def moved(tmp_path: Path) -> Iterator[tuple[FileSystem, Path]]:
    """A locked directory that was moved away, and where it is; another has its path."""
    files = FileSystem(tmp_path / "d")
    files.make_directory()
    held = files.lock("LOCK")
    assert held is not None
    (tmp_path / "d").rename(tmp_path / "moved")
    (tmp_path / "d").mkdir()
    yield files, tmp_path / "moved"
    assert os.listdir(tmp_path / "d") == []
    files.close(held)
    assert files.names() == []  # its path says again which it is


def test_a_locked_directory_is_followed_wherever_it_goes(
    moved: tuple[FileSystem, Path],
) -> None:
    files, place = moved
    write_new_file(files, "a", b"a")
    files.rename("a", "b")
    files.sync_dir()
    assert files.exists()
    assert files.names() == sorted(os.listdir(place)) == ["LOCK", "b"]
    assert read_whole(files, "b") == b"a"
    files.unlink("b")
    assert os.listdir(place) == ["LOCK"]
    assert files.free().size_bytes > 0


def test_a_locked_directory_that_is_removed_is_not_there(tmp_path: Path) -> None:
    files = FileSystem(tmp_path / "d")
    files.make_directory()
    held = files.lock("LOCK")
    assert held is not None
    files.unlink("LOCK")
    files.remove_directory()
    files.make_directory()  # another one
    assert not files.exists()
    with pytest.raises(FileNotFoundError) as caught:
        files.create("f")
    assert caught.value.filename == str(tmp_path / "d" / "f")
    files.close(held)
    assert files.exists()


@pytest.mark.parametrize(
    "call",
    [
        lambda files: files.open("gone"),
        lambda files: files.unlink("gone"),
        lambda files: files.rename("gone", "there"),
    ],
    ids=["open", "unlink", "rename"],
)
def test_an_error_in_a_locked_directory_names_the_file_by_its_path(
    files: FileSystem, call: Callable[[FileSystem], object]
) -> None:
    held = files.lock("LOCK")
    assert held is not None
    with pytest.raises(FileNotFoundError) as caught:
        call(files)
    assert caught.value.filename == os.path.join(files.path, "gone")
    files.close(held)


def test_a_lock_that_cannot_be_taken_leaves_no_descriptor_open(tmp_path: Path) -> None:
    holder = FileSystem(tmp_path)
    held = holder.lock("LOCK")
    assert held is not None
    before = os.listdir("/proc/self/fd")
    assert FileSystem(tmp_path).lock("LOCK") is None
    assert holder.lock("LOCK") is None
    with pytest.raises(FileNotFoundError):
        FileSystem(tmp_path / "gone").lock("LOCK")
    for other in (FileSystem(tmp_path), holder):
        with pytest.raises(IsADirectoryError):
            other.lock(".")
    assert os.listdir("/proc/self/fd") == before
    assert holder.names() == ["LOCK"]
    holder.close(held)


def test_a_second_lock_in_a_directory_does_not_end_the_first(tmp_path: Path) -> None:
    files = FileSystem(tmp_path / "d")
    files.make_directory()
    held, second = files.lock("LOCK"), files.lock("SECOND")
    assert held is not None
    assert second is not None
    files.close(second)
    (tmp_path / "d").rename(tmp_path / "moved")
    assert files.names() == ["LOCK", "SECOND"]
    files.close(held)
    assert not files.exists()


def test_no_call_in_a_locked_directory_needs_its_path(tmp_path: Path) -> None:
    files = FileSystem(tmp_path / "d")
    files.make_directory()
    held = files.lock("LOCK")
    assert held is not None
    (tmp_path / "d").rename(tmp_path / "moved")
    handle = files.create("f")
    files.sync_dir()
    files._require_name(handle)
    assert files.free().size_bytes > 0
    files.close(handle)
    files.close(held)


def test_listing_a_locked_directory_leaves_no_descriptor_open(
    files: FileSystem,
) -> None:
    held = files.lock("LOCK")
    assert held is not None
    before = os.listdir("/proc/self/fd")
    assert [files.names() for _ in range(2)] == [["LOCK"]] * 2
    assert os.listdir("/proc/self/fd") == before
    files.close(held)


# -- the rest --------------------------------------------------------------------------


def test_entropy_has_the_asked_size_and_differs(files: FileSystem) -> None:
    assert len(files.entropy(16)) == 16
    assert files.entropy(16) != files.entropy(16)


def test_the_process_is_named_by_its_id(files: FileSystem) -> None:
    assert files.process_label() == f"process {os.getpid()}"


@pytest.mark.parametrize("locked", [False, True])
def test_the_room_is_what_this_user_may_take(files: FileSystem, locked: bool) -> None:
    held = files.lock("LOCK") if locked else None
    while True:
        before, found = os.statvfs(files.path), files.free()
        if os.statvfs(files.path) == before:  # else others took or gave some
            break
    assert found == Free(before.f_bavail * before.f_frsize, before.f_favail)
    if held is not None:
        files.close(held)


def test_where_nobody_counts_files_their_number_is_not_told() -> None:
    assert FileSystem("/proc").free() == Free(0, None)


def test_the_kind_of_a_file_system_is_that_of_the_nearest_mount() -> None:
    assert FileSystem("/proc").kind() == "proc"
    assert FileSystem("/proc/self").kind() == "proc"
    assert FileSystem("/proc/not/there").kind() == "proc"
    assert FileSystem("/dev/shm/..").kind() == FileSystem("/dev").kind()
    assert FileSystem("/").kind() == FileSystem("/procession").kind() != ""


@pytest.mark.parametrize(
    ("place", "kind"),
    [
        ("/", "ext4"),
        ("/srv", "ext4"),
        ("/srvx/data", "ext4"),
        ("/srv/a b/data", "nfs4"),
        ("/srv/a", "ext4"),
        ("/srv/a\\b", "xfs"),
        ("/srv/c\xa0d/data", "zfs"),
        ("/srv/\udcff/data", "btrfs"),
        ("/twice", "overlay"),
    ],
)
def test_a_mount_is_found_by_its_name_whatever_stands_in_it(
    place: str, kind: str
) -> None:
    mounts = [
        "/dev/vda / ext4 rw,relatime 0 0\n",
        "host:/x /srv/a\\040b nfs4 rw 0 0\n",
        "/dev/vdb /srv/a\\134b xfs rw 0 0\n",
        "pool /srv/c\xa0d zfs rw 0 0\n",
        "/dev/vdc /srv/\udcff btrfs rw 0 0\n",
        "tmpfs /twice tmpfs rw 0 0\n",
        "overlay /twice overlay rw 0 0\n",
    ]
    assert kind_at(place, mounts) == kind
    assert kind_at(place, []) == ""


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
    assert caught.value.filename == str(tmp_path)
    files.close(handle)
    assert read_whole(files, "f") == b"01234"


def test_what_does_not_go_on_a_full_disk_leaves_no_half_made_file() -> None:
    disk = MemoryFileSystem()
    disk.make_directory()
    disk.capacity_bytes = 4096
    with pytest.raises(OSError) as caught:
        write_new_file(disk, "f", bytes(8192))
    assert caught.value.errno == errno.ENOSPC
    assert disk.names() == []


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
