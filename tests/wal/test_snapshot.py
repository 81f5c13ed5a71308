"""Snapshots: blocks come back, damage is found, and nothing half made is ever found."""

from __future__ import annotations

import errno
import struct

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.wal.stores import UUID, power_losses
from wal.checksum import crc32c, extend
from wal.errors import StoreError
from wal.filesystem import Handle
from wal.frame import LSN_MAX
from wal.snapshot import (
    BLOCK_BYTES_MAX,
    SNAPSHOT_HEADER_BYTES,
    SYNC_EVERY_BYTES,
    SnapshotDamagedError,
    SnapshotInfo,
    SnapshotWriter,
    parse_snapshot_name,
    read_snapshot,
    snapshot_name,
    snapshot_names,
    verify_snapshot,
)
from wal.testing import MemoryFileSystem, SimulatedCrash

NAME = snapshot_name(40)


@pytest.fixture
def disk() -> MemoryFileSystem:
    disk = MemoryFileSystem("the/store")
    disk.make_directory()
    return disk


def write(
    disk: MemoryFileSystem, *blocks: bytes, pin_lsn: int = 40, reach_lsn: int = 45
) -> SnapshotInfo:
    writer = SnapshotWriter(disk, UUID, pin_lsn=pin_lsn, wall_ns=777)
    for block in blocks:
        writer.add(block)
    return writer.finish(reach_lsn=reach_lsn)


def assert_damaged(disk: MemoryFileSystem, name: str = NAME) -> SnapshotDamagedError:
    with pytest.raises(SnapshotDamagedError) as caught:
        verify_snapshot(disk, name, UUID)
    assert caught.value.path == f"the/store/{name}"
    return caught.value


# -- a snapshot and back ---------------------------------------------------------------


@given(
    st.lists(st.binary(min_size=1, max_size=2000), max_size=8),
    st.integers(0, LSN_MAX),
    st.integers(0, LSN_MAX),
)
@example(blocks=[b"the last number of all"], pin_lsn=LSN_MAX, reach_lsn=LSN_MAX)
def test_blocks_come_back_in_order_as_they_were(
    blocks: list[bytes], pin_lsn: int, reach_lsn: int
) -> None:
    disk = MemoryFileSystem()
    disk.make_directory()
    info = write(disk, *blocks, pin_lsn=pin_lsn, reach_lsn=reach_lsn)
    assert (info.pin_lsn, info.reach_lsn) == (pin_lsn, reach_lsn)
    assert info.block_count == len(blocks)
    assert info.size_bytes == len(disk.content(info.name))
    assert info.created_ns == 777
    assert list(read_snapshot(disk, info.name, UUID)) == blocks
    assert verify_snapshot(disk, info.name, UUID) == info


def test_the_largest_block_comes_back(disk: MemoryFileSystem) -> None:
    block = b"x" * BLOCK_BYTES_MAX
    info = write(disk, block)
    assert list(read_snapshot(disk, info.name, UUID)) == [block]


def test_the_bytes_are_those_of_the_drawing(disk: MemoryFileSystem) -> None:
    write(disk, b"first block", b"second")
    data = disk.content(NAME)
    assert data[:8] == b"TWSNAPSH"
    assert data[8:24] == struct.pack("<HHIII", 1, 0, 0, 0, 0)
    assert data[24:40] == UUID
    assert data[40:48] == struct.pack("<Q", 40)
    salt = data[48:56]
    assert data[56:64] == struct.pack("<Q", 777)
    assert data[64:4092] == bytes(4092 - 64)
    assert data[4092:4096] == struct.pack("<I", crc32c(data[:4092]))

    seed, at, crcs = crc32c(salt), 4096, b""
    for index, body in enumerate((b"first block", b"second")):
        fields = struct.pack("<II", index, len(body)) + body
        crc = struct.pack("<I", extend(seed, fields))
        assert data[at : at + 8 + len(fields)] == b"TWsb" + crc + fields
        at += 8 + len(fields)
        crcs += crc

    fields = struct.pack("<QQQI4x", 2, 40, 45, crc32c(crcs))
    crc = struct.pack("<I", extend(seed, fields))
    assert data[at:] == b"TWsf" + crc + fields


@given(st.integers(0, 2**64 - 1))
def test_a_name_tells_the_pin(pin_lsn: int) -> None:
    assert parse_snapshot_name(snapshot_name(pin_lsn)) == pin_lsn


@pytest.mark.parametrize(
    "name", ["snapshot.tmp", "snap-1.snap", NAME + ".damaged", "x" + NAME, "STORE"]
)
def test_other_names_are_no_snapshots(name: str) -> None:
    assert parse_snapshot_name(name) is None


def test_snapshots_are_listed_newest_first(disk: MemoryFileSystem) -> None:
    for pin_lsn in (9, 300, 40, 0):
        write(disk, b"x", pin_lsn=pin_lsn)
    disk.put("STORE", b"")
    assert [parse_snapshot_name(name) for name in snapshot_names(disk)] == [
        300,
        40,
        9,
        0,
    ]


# -- damage ----------------------------------------------------------------------------


def test_a_flipped_bit_in_any_byte_is_damage(disk: MemoryFileSystem) -> None:
    write(disk, b"first block", b"second")
    good = disk.content(NAME)
    for at in range(len(good)):
        damaged = bytearray(good)
        damaged[at] ^= 1 << at % 8
        disk.put(NAME, bytes(damaged))
        offset = assert_damaged(disk).offset
        assert (offset == 0) == (at < SNAPSHOT_HEADER_BYTES)


def test_a_snapshot_cut_anywhere_is_damage(disk: MemoryFileSystem) -> None:
    write(disk, b"first block", b"second")
    good = disk.content(NAME)
    sizes = [0, 1, 4095, *range(SNAPSHOT_HEADER_BYTES, len(good))]
    for size in sizes:
        disk.put(NAME, good[:size])
        assert_damaged(disk)


def test_bytes_after_the_footer_are_damage(disk: MemoryFileSystem) -> None:
    write(disk, b"block")
    disk.put(NAME, disk.content(NAME) + b"\0")
    assert "footer" in assert_damaged(disk).what


def test_blocks_in_another_order_are_damage(disk: MemoryFileSystem) -> None:
    write(disk, b"aaaa", b"bbbb")
    data = disk.content(NAME)
    one, other = data[4096:4116], data[4116:4136]
    disk.put(NAME, data[:4096] + other + one + data[4136:])
    assert assert_damaged(disk).offset == 4096


def test_a_block_left_out_is_damage(disk: MemoryFileSystem) -> None:
    write(disk, b"aaaa", b"bbbb")
    data = disk.content(NAME)
    disk.put(NAME, data[:4116] + data[4136:])
    assert "footer" in assert_damaged(disk).what


def test_the_snapshot_of_another_store_is_damage(disk: MemoryFileSystem) -> None:
    write(disk, b"block")
    with pytest.raises(SnapshotDamagedError, match="belongs to another store"):
        verify_snapshot(disk, NAME, bytes(16))


def test_a_renamed_snapshot_is_damage(disk: MemoryFileSystem) -> None:
    write(disk, b"block")
    disk.rename(NAME, snapshot_name(41))
    error = assert_damaged(disk, snapshot_name(41))
    assert "renamed" in error.what
    assert error.offset == 0


def test_a_length_is_bounded_before_anything_is_read(disk: MemoryFileSystem) -> None:
    write(disk, b"block")
    data = bytearray(disk.content(NAME))
    data[4096 + 12 : 4096 + 16] = struct.pack("<I", BLOCK_BYTES_MAX + 1)
    disk.put(NAME, bytes(data))
    assert "no block and no footer" in assert_damaged(disk).what


@pytest.mark.parametrize(
    ("at", "form", "found"),
    [(8, "<H", r"format 3\.0"), (12, "<I", "bits 0x3"), (16, "<I", "bits 0x3")],
)
def test_a_newer_snapshot_is_refused_as_newer_not_as_damaged(
    disk: MemoryFileSystem, at: int, form: str, found: str
) -> None:
    write(disk, b"block")
    data = bytearray(disk.content(NAME))
    field = struct.pack(form, 3)
    data[at : at + len(field)] = field
    data[4092:4096] = struct.pack("<I", crc32c(bytes(data[:4092])))
    disk.put(NAME, bytes(data))
    with pytest.raises(StoreError, match=found):
        verify_snapshot(disk, NAME, UUID)


def test_an_error_while_reading_is_no_verdict(disk: MemoryFileSystem) -> None:
    write(disk, b"block")
    disk.fail("pread", errno.EIO, name=NAME, after=2)
    with pytest.raises(OSError) as caught:
        verify_snapshot(disk, NAME, UUID)
    assert caught.value.errno == errno.EIO


def test_reading_gives_blocks_up_to_the_damage_and_then_says_so(
    disk: MemoryFileSystem,
) -> None:
    write(disk, b"aaaa", b"bbbb")
    disk.flip_bit(NAME, 8 * (4116 + 18))
    blocks = read_snapshot(disk, NAME, UUID)
    assert next(blocks) == b"aaaa"
    with pytest.raises(SnapshotDamagedError, match="block 1"):
        next(blocks)


# -- writing ---------------------------------------------------------------------------


def test_nothing_can_be_found_before_it_is_finished(disk: MemoryFileSystem) -> None:
    writer = SnapshotWriter(disk, UUID, pin_lsn=40, wall_ns=0)
    writer.add(b"block")
    assert snapshot_names(disk) == []
    writer.finish(reach_lsn=40)
    assert snapshot_names(disk) == [NAME]
    assert disk.names() == [NAME]


def test_it_is_synced_then_named_then_read_back(disk: MemoryFileSystem) -> None:
    writer = SnapshotWriter(disk, UUID, pin_lsn=40, wall_ns=0)
    writer.add(b"block")
    calls = disk.calls
    writer.finish(reach_lsn=40)
    assert [call.op for call in disk.trace[calls:]] == [
        "pwrite",
        "sync",
        "rename",
        "sync_dir",
    ]
    assert disk.unsynced() == []


def test_a_long_snapshot_is_synced_as_it_goes(disk: MemoryFileSystem) -> None:
    writer = SnapshotWriter(disk, UUID, pin_lsn=40, wall_ns=0)
    for _ in range(5):
        writer.add(b"x" * (SYNC_EVERY_BYTES // 2))
    assert [call.op for call in disk.trace].count("datasync") == 2


def test_each_full_mebibyte_is_synced_and_no_byte_before(
    disk: MemoryFileSystem,
) -> None:
    writer = SnapshotWriter(disk, UUID, pin_lsn=40, wall_ns=0)
    head, half = 16, SYNC_EVERY_BYTES // 2
    synced = []
    for size in (half, half - 1, 1 + head, half, half, half, half - 1):
        writer.add(b"x" * (size - head))
        synced.append([call.op for call in disk.trace].count("datasync"))
    assert synced == [0, 0, 1, 1, 2, 2, 2]


class Forgetful(MemoryFileSystem):
    """A disk that stores one byte wrong."""

    def pwrite(self, handle: Handle, data: bytes, offset: int) -> int:
        return super().pwrite(handle, data.replace(b"right", b"wrong"), offset)


def test_what_does_not_come_back_as_written_is_reported() -> None:
    disk = Forgetful()
    disk.make_directory()
    with pytest.raises(SnapshotDamagedError, match="block 0 does not hold"):
        write(disk, b"right")


def test_abandon_removes_it_and_may_come_at_any_time(disk: MemoryFileSystem) -> None:
    writer = SnapshotWriter(disk, UUID, pin_lsn=40, wall_ns=0)
    writer.add(b"block")
    writer.abandon()
    assert disk.names() == []
    writer.abandon()


@pytest.mark.parametrize("ends", ["finish", "abandon"])
def test_the_file_is_closed_in_the_end(disk: MemoryFileSystem, ends: str) -> None:
    writer = SnapshotWriter(disk, UUID, pin_lsn=40, wall_ns=0)
    if ends == "finish":
        writer.finish(reach_lsn=40)
    else:
        writer.abandon()
    with pytest.raises(OSError) as caught:
        disk.size_bytes(writer._handle)
    assert caught.value.errno == errno.EBADF


def test_abandon_after_finish_harms_neither_the_snapshot_nor_other_files(
    disk: MemoryFileSystem,
) -> None:
    closed: list[Handle] = []

    class Watched(MemoryFileSystem):
        def close(self, handle: Handle) -> None:
            closed.append(handle)
            super().close(handle)

    watched = Watched()
    watched.make_directory()
    writer = SnapshotWriter(watched, UUID, pin_lsn=40, wall_ns=0)
    writer.finish(reach_lsn=40)
    writer.abandon()
    # A handle is a number that another file may have by now: it is closed once.
    assert len(closed) == len(set(closed))
    assert watched.names() == [NAME]


@pytest.mark.parametrize("op", ["create", "pwrite"])
def test_a_writer_that_could_not_begin_leaves_nothing(
    disk: MemoryFileSystem, op: str
) -> None:
    disk.fail(op, errno.ENOSPC)
    with pytest.raises(OSError):
        SnapshotWriter(disk, UUID, pin_lsn=40, wall_ns=0)
    assert disk.names() == []


@pytest.mark.parametrize("op", ["pwrite", "datasync", "sync", "rename", "sync_dir"])
def test_an_error_of_the_disk_passes_through_and_leaves_no_half_snapshot(
    disk: MemoryFileSystem, op: str
) -> None:
    writer = SnapshotWriter(disk, UUID, pin_lsn=40, wall_ns=0)
    disk.fail(op, errno.EIO)
    with pytest.raises(OSError):  # noqa: PT012 - whichever of the two comes to it
        writer.add(b"x" * SYNC_EVERY_BYTES)
        writer.finish(reach_lsn=40)
    writer.abandon()
    assert "snapshot.tmp" not in disk.names()
    for name in snapshot_names(disk):
        verify_snapshot(disk, name, UUID)


def test_a_crash_at_any_step_leaves_the_old_one_and_the_new_one_whole_or_absent() -> (
    None
):
    for index in range(1, 100):
        for after in (False, True):
            disk = MemoryFileSystem()
            disk.make_directory()
            write(disk, b"old", pin_lsn=10)
            old = snapshot_name(10)
            first = disk.calls + index
            disk.crash_at(first, after=after)
            try:
                write(disk, b"new" * 300, b"newer", pin_lsn=40)
            except SimulatedCrash:
                pass
            else:
                assert index > 5  # it was over before: every step has been tried
                return
            for state in power_losses(disk):
                assert list(read_snapshot(state, old, UUID)) == [b"old"]
                if NAME in state.names():
                    found = list(read_snapshot(state, NAME, UUID))
                    assert found == [b"new" * 300, b"newer"], state.label
    raise AssertionError("the snapshot never ended")
