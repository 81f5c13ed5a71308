"""The directory: what is a store, what may become one, what is neither, and the lock."""

from __future__ import annotations

import errno
import struct
from pathlib import Path

import pytest

from tests.wal.stores import SegmentBuilder
from wal.checksum import crc32c
from wal.errors import StoreError, StoreInUseError
from wal.filesystem import FileSystem
from wal.store import (
    LOCK_NAME,
    REPAIRED,
    STORE_NAME,
    StoreIdentity,
    clear_birth,
    clear_holder,
    is_store,
    new_identity,
    read_identity,
    take_lock,
    write_holder,
    write_identity,
)
from wal.testing import MemoryFileSystem

IDENTITY = StoreIdentity(uuid=bytes(range(16)), created_ns=1_700_000_000_000_000_000)


@pytest.fixture
def disk() -> MemoryFileSystem:
    disk = MemoryFileSystem("the/store")
    disk.make_directory()
    return disk


def changed(at: int, form: str, value: int) -> bytes:
    field = struct.pack(form, value)
    data = IDENTITY.encode()
    fields = (data[:at] + field + data[at + len(field) :])[:-4]
    return fields + struct.pack("<I", crc32c(fields))


# -- STORE -----------------------------------------------------------------------------


def test_an_identity_comes_back_as_it_was(disk: MemoryFileSystem) -> None:
    write_identity(disk, IDENTITY)
    assert read_identity(disk) == IDENTITY
    assert not IDENTITY.repaired


def test_two_new_stores_differ(disk: MemoryFileSystem) -> None:
    one, other = new_identity(disk, 5), new_identity(disk, 5)
    assert one.created_ns == 5
    assert one.uuid != other.uuid
    assert len(one.uuid) == 16


def test_a_repaired_store_says_so(disk: MemoryFileSystem) -> None:
    repaired = StoreIdentity(IDENTITY.uuid, IDENTITY.created_ns, compatible=REPAIRED)
    write_identity(disk, repaired)
    assert read_identity(disk).repaired


def test_the_bytes_are_those_of_the_drawing() -> None:
    data = IDENTITY.encode()
    assert data[:8] == b"TWSTORE\0"
    assert data[8:12] == struct.pack("<HH", 1, 0)
    assert data[12:24] == bytes(12)
    assert data[24:40] == bytes(range(16))
    assert data[40:48] == struct.pack("<Q", 1_700_000_000_000_000_000)
    assert data[48:] == struct.pack("<I", crc32c(data[:48]))


def test_a_flipped_bit_in_store_is_refused(disk: MemoryFileSystem) -> None:
    write_identity(disk, IDENTITY)
    for bit in range(8 * len(IDENTITY.encode())):
        disk.flip_bit(STORE_NAME, bit)
        found = "bytes that are not" if bit < 8 * 8 else "its checksum does not hold"
        with pytest.raises(StoreError, match=f"the/store/STORE: .*{found}"):
            read_identity(disk)
        disk.flip_bit(STORE_NAME, bit)
    assert read_identity(disk) == IDENTITY


@pytest.mark.parametrize(
    "data",
    [b"", b"\0", IDENTITY.encode()[:-1], IDENTITY.encode() + b"\0", bytes(52), b"text"],
    ids=["empty", "one byte", "short", "long", "zeros", "other"],
)
def test_a_file_that_is_no_identity_is_never_an_empty_store(
    disk: MemoryFileSystem, data: bytes
) -> None:
    disk.put(STORE_NAME, data)
    assert is_store(disk, create=True)  # so nobody makes a new one in its place
    found = rf"the/store/STORE: {len(data)} bytes that are not the identity.*backup"
    with pytest.raises(StoreError, match=found):
        read_identity(disk)


@pytest.mark.parametrize(
    ("at", "form", "value", "found"),
    [
        (8, "<H", 2, r"format 2\.0"),
        (12, "<I", 1, "feature bits 0x1"),
        (16, "<I", 2, "feature bits 0x2"),
    ],
    ids=["major", "incompatible", "read-only"],
)
def test_a_newer_store_is_refused_by_name(
    disk: MemoryFileSystem, at: int, form: str, value: int, found: str
) -> None:
    disk.put(STORE_NAME, changed(at, form, value))
    with pytest.raises(StoreError, match=rf"the/store/STORE: {found}.*newer version"):
        read_identity(disk)


def test_a_newer_minor_and_compatible_bits_are_passed_over(
    disk: MemoryFileSystem,
) -> None:
    disk.put(STORE_NAME, changed(10, "<H", 7))
    assert read_identity(disk) == IDENTITY
    disk.put(STORE_NAME, changed(20, "<I", 8))
    assert read_identity(disk).uuid == IDENTITY.uuid


# -- is it one? ------------------------------------------------------------------------


def test_a_file_is_no_directory(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"text")
    with pytest.raises(StoreError, match="is a file, not a directory; pass the path"):
        is_store(FileSystem(tmp_path / "file"), create=True)


@pytest.mark.parametrize("there", [False, True], ids=["missing", "empty"])
def test_nothing_is_a_store_only_if_one_may_be_made(there: bool) -> None:
    disk = MemoryFileSystem("the/store")
    if there:
        disk.make_directory()
    assert not is_store(disk, create=True)
    found = "is empty" if there else "does not exist"
    with pytest.raises(StoreError, match=f"the/store: {found}.*no store was made"):
        is_store(disk, create=False)
    assert disk.exists() == there


def test_a_directory_with_other_things_is_refused(disk: MemoryFileSystem) -> None:
    for name in ("a.txt", "b.txt", "c.txt", "d.txt"):
        disk.put(name, b"")
    with pytest.raises(StoreError, match=r"it holds a\.txt, b\.txt, c\.txt, \.\.\."):
        is_store(disk, create=True)


def test_up_to_three_other_things_are_all_named(disk: MemoryFileSystem) -> None:
    for name in ("a.txt", "b.txt", "c.txt"):
        disk.put(name, b"")
    with pytest.raises(StoreError, match=r"it holds a\.txt, b\.txt, c\.txt;"):
        is_store(disk, create=True)


def test_temporary_files_of_others_are_not_taken_for_ours(
    disk: MemoryFileSystem,
) -> None:
    disk.put("thesis.tmp", b"three years of work")
    with pytest.raises(StoreError, match=r"it holds thesis\.tmp"):
        is_store(disk, create=True)


def test_a_log_without_its_store_file_is_not_an_empty_store(
    disk: MemoryFileSystem,
) -> None:
    segment = SegmentBuilder()
    segment.add(b"record")
    name = segment.put(disk)
    disk.put(LOCK_NAME, b"")
    with pytest.raises(StoreError, match=f"holds a log .{name}. but no STORE.*backup"):
        is_store(disk, create=True)


def test_a_second_segment_without_the_store_file_is_no_birth(
    disk: MemoryFileSystem,
) -> None:
    SegmentBuilder(segment_id=2, first_lsn=9).put(disk)
    with pytest.raises(StoreError, match="no STORE"):
        is_store(disk, create=True)


def test_what_a_cut_off_birth_leaves_may_become_a_store(disk: MemoryFileSystem) -> None:
    SegmentBuilder().put(disk)
    for name in (LOCK_NAME, "opening.tmp", "STORE.tmp"):
        disk.put(name, b"half")
    assert not is_store(disk, create=True)
    clear_birth(disk)
    assert disk.names() == [LOCK_NAME]


# -- the lock --------------------------------------------------------------------------


def test_a_second_owner_is_told_who_the_first_one_is(disk: MemoryFileSystem) -> None:
    lock = take_lock(disk)
    write_holder(disk, lock, 1_700_000_000_999_999_999)
    with pytest.raises(StoreInUseError) as caught:
        take_lock(disk.other_process())
    assert caught.value.path == "the/store"
    assert caught.value.holder == "process 1, open since 2023-11-14 22:13:20 UTC"
    assert "stop that one first" in str(caught.value)
    disk.close(lock)
    disk.close(take_lock(disk.other_process()))


def test_a_holder_that_has_not_written_its_name_yet_is_still_one(
    disk: MemoryFileSystem,
) -> None:
    take_lock(disk)
    with pytest.raises(
        StoreInUseError, match="another process that is just opening it"
    ):
        take_lock(disk.other_process())


def test_a_holder_whose_text_is_damaged_is_still_one(disk: MemoryFileSystem) -> None:
    lock = take_lock(disk)
    disk.pwrite(lock, b"process \xff\xfe", 0)
    with pytest.raises(StoreInUseError, match="process \N{REPLACEMENT CHARACTER}"):
        take_lock(disk.other_process())


def test_a_lock_file_that_cannot_be_read_is_still_held(disk: MemoryFileSystem) -> None:
    take_lock(disk)
    disk.fail("open", errno.EIO, name=LOCK_NAME)
    with pytest.raises(StoreInUseError, match="another process"):
        take_lock(disk.other_process())


def test_the_holder_replaces_a_longer_text_and_takes_its_own_out_again(
    disk: MemoryFileSystem,
) -> None:
    disk.put(LOCK_NAME, b"process 4194304 of a former and much longer life" * 3)
    lock = take_lock(disk)
    write_holder(disk, lock, 0)
    assert disk.content(LOCK_NAME) == b"process 1, open since 1970-01-01 00:00:00 UTC\n"
    clear_holder(disk, lock)
    assert disk.content(LOCK_NAME) == b""


def test_a_text_that_cannot_be_written_stops_nobody(disk: MemoryFileSystem) -> None:
    lock = take_lock(disk)
    disk.fail("truncate", errno.EIO, times=None)
    disk.fail("pwrite", errno.ENOSPC, times=None)
    write_holder(disk, lock, 0)
    clear_holder(disk, lock)
