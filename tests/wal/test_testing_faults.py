"""The disk in memory: the machine that goes off, faults, a full disk, locks and damage."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable

import pytest

from wal.filesystem import SECTOR_BYTES, Handle, read_whole, write_new_file
from wal.testing import MemoryFileSystem, SimulatedCrash

BLOCK = 4096


@pytest.fixture
def disk() -> MemoryFileSystem:
    disk = MemoryFileSystem()
    disk.make_directory()
    return disk


def contents(disk: MemoryFileSystem, name: str) -> set[bytes | None]:
    """What the crash states of this moment show under a name; None where it is absent."""
    return {state.snapshot_of_all().get(name) for state in disk.crash_states()}


def durable_file(disk: MemoryFileSystem, name: str, data: bytes = b"") -> Handle:
    disk.put(name, data)
    return disk.open(name, writable=True)


def sectors(*letters: str) -> bytes:
    return b"".join(letter.encode() * SECTOR_BYTES for letter in letters)


# -- the machine going off ---------------------------------------------------------------


def test_the_machine_stops_at_the_named_call_and_all_later_ones(
    disk: MemoryFileSystem,
) -> None:
    handle = durable_file(disk, "f", b"old")
    disk.crash_at(disk.calls + 2)
    disk.pwrite(handle, b"one", 0)
    with pytest.raises(SimulatedCrash):
        disk.pwrite(handle, b"two", 0)
    assert disk.off
    calls = disk.calls
    later: list[Callable[[], object]] = [
        disk.make_directory, disk.names, disk.exists, disk.sync_dir,
        lambda: disk.pread(handle, 1, 0), lambda: disk.close(handle),
        lambda: disk.datasync(handle), lambda: disk.create("g"),
        lambda: disk.lock("LOCK"), lambda: disk.open("f"), disk.other_process().names,
        lambda: disk.forget_cache(handle), lambda: disk.size_bytes(handle),
    ]  # fmt: skip
    for call in later:
        with pytest.raises(SimulatedCrash):
            call()
    assert disk.calls == calls
    assert disk.content("f") == b"one"
    assert {s.content("f") for s in disk.crash_states()} == {b"old", b"one"}


def test_the_crash_can_come_right_after_the_call(disk: MemoryFileSystem) -> None:
    handle = durable_file(disk, "f", b"old")
    disk.pwrite(handle, b"new", 0)
    disk.crash_at(disk.calls + 1, after=True)
    with pytest.raises(SimulatedCrash):
        disk.datasync(handle)
    assert contents(disk, "f") == {b"new"}


def test_the_crash_comes_after_a_call_that_failed_too(disk: MemoryFileSystem) -> None:
    disk.crash_at(disk.calls + 1, after=True)
    with pytest.raises(SimulatedCrash):
        disk.unlink("missing")


def test_a_crash_is_no_exception_that_a_handler_of_errors_takes() -> None:
    assert not issubclass(SimulatedCrash, Exception)


def test_a_crash_in_the_past_is_refused(disk: MemoryFileSystem) -> None:
    with pytest.raises(ValueError, match="past"):
        disk.crash_at(disk.calls)


def test_all_changing_calls_are_counted_and_named_and_reads_are_not() -> None:
    disk = MemoryFileSystem()
    disk.make_directory()
    handle = disk.create("f")
    disk.pwrite(handle, b"xyz", 7)
    disk.truncate(handle, 2)
    disk.datasync(handle)
    disk.sync(handle)
    disk.sync_dir()
    disk.rename("f", "g")
    disk.sync(handle)
    disk.unlink("g")
    disk.lock("LOCK")
    disk.names(), disk.exists(), disk.size_bytes(handle), disk.pread(handle, 1, 0)
    disk.close(disk.open("LOCK"))
    assert disk.calls == len(disk.trace) == 11
    assert [tuple(call) for call in disk.trace] == [
        (1, "make_directory", "", ""),
        (2, "create", "f", ""),
        (3, "pwrite", "f", "7+3"),
        (4, "truncate", "f", "2"),
        (5, "datasync", "f", ""),
        (6, "sync", "f", ""),
        (7, "sync_dir", "", ""),
        (8, "rename", "f", "to g"),
        (9, "sync", "g", ""),
        (10, "unlink", "g", ""),
        (11, "lock", "LOCK", ""),
    ]


def test_unsynced_operations_can_be_read(disk: MemoryFileSystem) -> None:
    handle = disk.create("f")
    disk.pwrite(handle, b"xyz", 600)
    disk.truncate(handle, 2)
    disk.rename("f", "g")
    disk.unlink("g")
    assert disk.unsynced() == [
        "create f",
        "write f 512-603",
        "truncate f 2",
        "rename f to g",
        "unlink g",
    ]


# -- faults -----------------------------------------------------------------------------


def test_a_fault_hits_the_call_it_counts_to_and_as_often_as_it_says(
    disk: MemoryFileSystem,
) -> None:
    handle = durable_file(disk, "f", b"abc")
    disk.fail("pread", errno.EIO, after=2, times=2)
    assert disk.pread(handle, 1, 0) == b"a"
    for _ in range(2):
        with pytest.raises(OSError, match="memory/f") as caught:
            disk.pread(handle, 1, 0)
        assert (caught.value.errno, caught.value.filename) == (errno.EIO, "memory/f")
    assert disk.pread(handle, 1, 0) == b"a"


def test_a_fault_without_end_lasts_until_it_is_healed(disk: MemoryFileSystem) -> None:
    disk.fail("names", PermissionError(errno.EACCES, "no entry"), times=None)
    for _ in range(3):
        with pytest.raises(PermissionError, match="no entry"):
            disk.names()
    disk.heal()
    assert disk.names() == []


def test_a_fault_can_be_for_one_file(disk: MemoryFileSystem) -> None:
    disk.put("a", b"")
    disk.put("b", b"")
    disk.fail("open", errno.EIO, name="b")
    disk.open("a")
    with pytest.raises(OSError):
        disk.open("b")


def test_a_call_that_fails_changes_nothing(disk: MemoryFileSystem) -> None:
    handle = durable_file(disk, "f", b"abc")
    calls: dict[str, Callable[[], object]] = {
        "pwrite": lambda: disk.pwrite(handle, b"x", 0),
        "truncate": lambda: disk.truncate(handle, 0),
        "create": lambda: disk.create("f"),
        "rename": lambda: disk.rename("f", "g"),
        "unlink": lambda: disk.unlink("f"),
        "lock": lambda: disk.lock("LOCK"),
        "sync_dir": disk.sync_dir,
    }
    for op, call in calls.items():
        disk.fail(op, errno.EIO)
        with pytest.raises(OSError):
            call()
    assert disk.snapshot_of_all() == {"f": b"abc"}
    assert disk.unsynced() == []


@pytest.mark.parametrize(
    ("op", "after", "times"), [("close", 1, 1), ("pread", 0, 1), ("pread", 1, 0)]
)
def test_a_fault_that_cannot_come_is_refused(
    disk: MemoryFileSystem, op: str, after: int, times: int
) -> None:
    with pytest.raises(ValueError):
        disk.fail(op, errno.EIO, after=after, times=times)


def test_after_a_failed_sync_the_next_one_succeeds_and_saves_nothing(
    disk: MemoryFileSystem,
) -> None:
    """fsyncgate: the kernel had marked the pages clean, and reads still show them."""
    handle = durable_file(disk, "f", sectors("a", "b"))
    disk.pwrite(handle, sectors("A"), 0)
    disk.fail("datasync", errno.EIO)
    with pytest.raises(OSError):
        disk.datasync(handle)
    assert contents(disk, "f") == {sectors("a", "b"), sectors("A", "b")}
    disk.pwrite(handle, sectors("B"), SECTOR_BYTES)
    disk.datasync(handle)
    assert contents(disk, "f") == {sectors("a", "B")}
    killed = disk.killed()
    assert killed.content("f") == sectors("A", "B")
    killed.forget_cache(killed.open("f"))
    assert killed.content("f") == sectors("a", "B")
    disk.forget_cache(handle)
    assert disk.content("f") == sectors("a", "B")


def test_a_killed_process_leaves_a_failed_sync_failed(disk: MemoryFileSystem) -> None:
    handle = durable_file(disk, "f", b"old")
    disk.pwrite(handle, b"new", 0)
    disk.fail("datasync", errno.EIO)
    with pytest.raises(OSError):
        disk.datasync(handle)
    after = disk.killed()
    after.datasync(after.open("f"))
    assert after.content("f") == b"new"
    assert contents(after, "f") == {b"old"}


def test_forgetting_the_cache_shows_what_a_failed_sync_lost_and_keeps_later_writes(
    disk: MemoryFileSystem,
) -> None:
    handle = durable_file(disk, "f", sectors("a", "b"))
    disk.pwrite(handle, sectors("A"), 0)
    disk.fail("sync", errno.EIO)
    with pytest.raises(OSError):
        disk.sync(handle)
    disk.pwrite(handle, sectors("B"), SECTOR_BYTES)
    disk.forget_cache(handle)
    assert disk.content("f") == sectors("a", "B")
    assert contents(disk, "f") == {sectors("a", "b"), sectors("a", "B")}


def test_capacity_blocks_growth_only(disk: MemoryFileSystem) -> None:
    handle = durable_file(disk, "f", bytes(2 * BLOCK - 10))
    disk.capacity_bytes = 2 * BLOCK
    assert disk.used_bytes == 2 * BLOCK
    assert disk.pwrite(handle, b"x" * 2 * BLOCK, 0) == 2 * BLOCK
    for call in (
        lambda: disk.pwrite(handle, b"x", 2 * BLOCK),
        lambda: disk.truncate(handle, 2 * BLOCK + 1),
        lambda: disk.create("g"),
        lambda: disk.lock("LOCK"),
    ):
        with pytest.raises(OSError, match="memory") as caught:
            call()
        assert caught.value.errno == errno.ENOSPC
    disk.capacity_bytes = BLOCK
    assert disk.pwrite(handle, b"y" * 2 * BLOCK, 0) == 2 * BLOCK
    assert disk.crashed("all").capacity_bytes == BLOCK


def test_the_last_block_can_be_filled_on_a_disk_that_is_too_full(
    disk: MemoryFileSystem,
) -> None:
    handle = durable_file(disk, "f", bytes(2 * BLOCK + 1))
    disk.capacity_bytes = 0
    assert disk.pwrite(handle, bytes(BLOCK), 2 * BLOCK + 1) == BLOCK - 1
    disk.truncate(handle, 0)
    disk.capacity_bytes = BLOCK
    disk.truncate(handle, BLOCK)


def test_a_write_that_fits_in_part_is_short_and_the_next_one_fails(
    disk: MemoryFileSystem,
) -> None:
    disk.capacity_bytes = BLOCK
    handle = disk.create("f")
    assert disk.pwrite(handle, bytes(BLOCK + 1), 0) == BLOCK
    with pytest.raises(OSError):
        disk.pwrite(handle, b"x", BLOCK)
    assert disk.pwrite(handle, b"", 2 * BLOCK) == 0


def test_space_returns_by_unlink_and_close_or_a_larger_disk(
    disk: MemoryFileSystem,
) -> None:
    disk.capacity_bytes = BLOCK
    handle = durable_file(disk, "f", b"x")
    disk.unlink("f")
    with pytest.raises(OSError):
        disk.create("g")
    disk.close(handle)
    other = disk.create("g")
    disk.pwrite(other, b"x", 0)
    with pytest.raises(OSError):
        disk.truncate(other, BLOCK + 1)
    disk.capacity_bytes = 2 * BLOCK
    disk.truncate(other, BLOCK + 1)


def test_short_writes_write_that_much(disk: MemoryFileSystem) -> None:
    handle = durable_file(disk, "f")
    disk.short_writes(3)
    assert disk.pwrite(handle, b"abcdef", 0) == 3
    assert disk.content("f") == b"abc"
    write_new_file(disk, "g", b"abcdefgh")
    assert read_whole(disk, "g") == b"abcdefgh"
    disk.short_writes(None)
    assert disk.pwrite(handle, b"abcdef", 0) == 6


# -- the lock, the verbs, threads --------------------------------------------------------


def test_the_lock_has_one_holder_over_all_processes_until_it_closes(
    disk: MemoryFileSystem,
) -> None:
    other = disk.other_process("the other one")
    held = disk.lock("LOCK")
    assert held is not None
    disk.close(disk.open("LOCK"))
    assert disk.lock("LOCK") is None
    assert other.lock("LOCK") is None
    assert other.lock("LOCK2") is not None
    disk.close(held)
    assert other.lock("LOCK") is not None
    assert disk.lock("LOCK") is None


def test_processes_share_the_disk_and_have_their_labels(disk: MemoryFileSystem) -> None:
    other, third = disk.other_process("the other one"), disk.other_process()
    disk.close(disk.create("f"))
    assert other.names() == third.names() == ["f"]
    labels = [each.process_label() for each in (disk, other, third)]
    assert labels == ["process 1", "the other one", "process 3"]
    assert MemoryFileSystem(process="me").process_label() == "me"


def test_damage_is_on_the_disk_at_once(disk: MemoryFileSystem) -> None:
    handle = disk.create("f")
    disk.pwrite(handle, b"\0\0\0\0", 0)
    disk.sync_dir()
    disk.flip_bit("f", 9)
    disk.overwrite("f", 5, b"z")
    assert contents(disk, "f") == {b"\0\2\0\0\0z"}
    disk.cut("f", 2)
    assert disk.crashed().content("f") == b"\0\2"
    assert disk.pread(handle, 9, 0) == b"\0\2"
    disk.put("g", b"g")
    disk.remove("f")
    assert disk.crashed().snapshot_of_all() == {"g": b"g"}
    with pytest.raises(ValueError):
        disk.flip_bit("g", 8)
    with pytest.raises(FileNotFoundError):
        disk.content("f")


def test_a_copy_is_independent_and_as_unsynced(disk: MemoryFileSystem) -> None:
    handle = durable_file(disk, "f", b"old")
    disk.pwrite(handle, b"new", 0)
    twin = disk.copy()
    disk.datasync(handle)
    assert contents(disk, "f") == {b"new"}
    assert contents(twin, "f") == {b"old", b"new"}
    twin.flip_bit("f", 0)
    assert (disk.content("f"), twin.content("f")) == (b"new", b"oew")
    assert disk.crashed().content("f") == b"new"


def test_calls_from_many_threads_are_all_counted(disk: MemoryFileSystem) -> None:
    handle = durable_file(disk, "f")
    before = disk.calls
    threads = [
        threading.Thread(
            target=lambda start: [
                disk.pwrite(handle, b"x", start + i) for i in range(500)
            ],
            args=(number * 500,),
        )
        for number in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert disk.calls == before + 2_000
    assert disk.content("f") == b"x" * 2_000
