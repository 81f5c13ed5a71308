"""From a directory to a writable log: birth, what an unclean end leaves, snapshots."""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.wal.stores import (
    SEGMENT_BYTES,
    WALL_NS,
    closed_store,
    commit_each,
    frames_of,
    killed_store,
    lsns_of,
    open_log,
    payloads_of,
    power_losses,
    segment_header,
    segments_of,
)
from wal.checksum import crc32c
from wal.errors import (
    DiskFullError,
    LogClosedError,
    LogCorruptError,
    StoreError,
    StoreInUseError,
)
from wal.filesystem import Handle
from wal.frame import Flag, Lsn
from wal.log import Log
from wal.recovery import LSN_SKIP, OPENING_SEGMENT_BYTES, Report
from wal.segment import segment_name
from wal.snapshot import snapshot_name, snapshot_names
from wal.store import LOCK_NAME, OPENING_NAME, STORE_NAME
from wal.testing import MemoryFileSystem, SimulatedCrash

Breakage = Callable[[MemoryFileSystem], None]


def ops_of(disk: MemoryFileSystem, since: int = 0) -> list[tuple[str, str]]:
    return [(call.op, call.name) for call in disk.trace[since:]]


def checkpoint(log: Log, *, reach_lsn: int | None = None) -> str:
    writer = log.begin_snapshot()
    writer.add(b"state at %d" % log.durable_lsn)
    reach = log.appended_lsn if reach_lsn is None else reach_lsn
    info, _ = log.finish_snapshot(writer, reach_lsn=reach)
    return info.name


def store_with_snapshots(count: int, **options: Any) -> MemoryFileSystem:
    """A closed store: two records, a snapshot, two records, a snapshot, ..., a record."""
    disk = MemoryFileSystem()
    with open_log(disk, **options) as log:
        log.start()
        for number in range(count):
            commit_each(log, b"%d-1" % number * 300, b"%d-2" % number * 300)
            checkpoint(log)
        commit_each(log, b"last")
    return disk


def state_and_log(disk: MemoryFileSystem) -> tuple[list[bytes], list[bytes]]:
    with open_log(disk) as log:
        blocks = list(log.snapshot_blocks())
        return blocks, [record.payload for record in log.read()]


# -- birth -----------------------------------------------------------------------------


def test_a_store_is_born_with_its_first_segment_and_store_comes_last() -> None:
    disk = MemoryFileSystem()
    log = open_log(disk)
    assert ops_of(disk) == [("make_directory", ""), ("lock", LOCK_NAME)]
    report = log.start()
    first = segments_of(disk)[0]
    assert ops_of(disk, 2) == [
        ("create", OPENING_NAME),
        ("pwrite", OPENING_NAME),
        ("pwrite", OPENING_NAME),
        ("sync", OPENING_NAME),
        ("rename", OPENING_NAME),
        ("sync_dir", ""),
        ("create", "STORE.tmp"),
        ("pwrite", "STORE.tmp"),
        ("sync", "STORE.tmp"),
        ("rename", "STORE.tmp"),
        ("sync_dir", ""),
        ("truncate", LOCK_NAME),
        ("pwrite", LOCK_NAME),
    ]
    assert disk.names() == [LOCK_NAME, STORE_NAME, first]
    assert report == Report(
        clean=True,
        last_lsn=Lsn(0),
        last_wall_ns=0,
        snapshot=None,
        damaged_snapshots=(),
    )
    header = segment_header(disk, first)
    assert (header.segment_id, header.first_lsn) == (1, 1)
    assert header.store_uuid == log.identity.uuid
    log.close()
    assert open_log(disk).identity == log.identity


def test_two_stores_have_two_identities() -> None:
    one, other = MemoryFileSystem(seed=1), MemoryFileSystem(seed=2)
    assert open_log(one).identity.uuid != open_log(other).identity.uuid


def test_a_birth_that_was_cut_off_begins_anew() -> None:
    for index in range(1, 20):
        for after in (False, True):
            disk = MemoryFileSystem()
            disk.crash_at(index, after=after)
            try:
                open_log(disk).start()
            except SimulatedCrash:
                pass
            else:
                assert index == 16
                return
            for state in power_losses(disk):
                with open_log(state) as log:
                    assert list(log.read()) == []
                    assert log.append(b"x") in (1, 1 + LSN_SKIP), state.label
                assert len(payloads_of(state)) == 1
                names = [name for name in state.names() if name.endswith(".tmp")]
                assert names == []
    raise AssertionError("it was never born")


class Slow(MemoryFileSystem):
    """Somebody else gives birth between this one's look and its lock."""

    def lock(self, name: str) -> Handle | None:
        if not self.names():
            with open_log(self.other_process()) as first:
                first.append(b"of the first one")
        return super().lock(name)


def test_a_birth_that_another_process_won_is_not_repeated() -> None:
    assert payloads_of(Slow()) == [b"of the first one"]


# -- the segment that an open begins ---------------------------------------------------


def test_a_clean_end_goes_on_with_the_next_number_in_a_new_segment() -> None:
    disk = closed_store(b"1", b"2")
    with open_log(disk) as log:
        report = log.start()
        assert report.clean
        assert report.last_lsn == 2
        assert report.last_wall_ns == WALL_NS
        assert log.append(b"3") == 3
    first, second = segments_of(disk)
    assert frames_of(disk, first)[-1][1].flags == Flag.ATOMIC | Flag.CLOSE
    assert len(frames_of(disk, second)) == 2
    assert lsns_of(disk) == [1, 2, 3]


def test_after_an_unclean_end_no_number_that_may_have_been_cut_returns() -> None:
    disk = killed_store(b"1", b"2")
    with open_log(disk) as log:
        report = log.start()
        assert not report.clean
        assert report.last_lsn == 2
        torn = report.torn_file, report.torn_bytes, report.torn_what, report.doubtful
        assert torn == (None, 0, "", False)
        assert log.append(b"3") == 3 + LSN_SKIP
    assert lsns_of(disk) == [1, 2, 3 + LSN_SKIP]


def test_nothing_is_appended_to_an_old_tail() -> None:
    disk = killed_store(b"1", b"2")
    old = segments_of(disk)[0]
    end = sum(h.frame_bytes for _, h in frames_of(disk, old)) + 4096
    before = disk.content(old)
    with open_log(disk) as log:
        log.append(b"3")
    assert disk.content(old) == before[:end]  # cut to its length, and else the same
    header = segment_header(disk, segments_of(disk)[1])
    assert header.predecessor.offset == end
    assert header.predecessor.last_lsn == 2
    assert header.first_lsn == 3 + LSN_SKIP


def test_the_successor_has_its_name_before_the_old_tail_is_cut() -> None:
    disk = killed_store(b"1")
    old = segments_of(disk)[0]
    open_log(disk).start()
    ops = ops_of(disk)
    cut = ops.index(("truncate", old))
    assert ("rename", OPENING_NAME) in ops[: cut - 1]
    assert ops[cut - 1] == ("sync_dir", "")


def test_an_old_tail_that_cannot_be_cut_stops_nothing() -> None:
    disk = killed_store(b"1")
    disk.fail("truncate", errno.EIO, name=segments_of(disk)[0])
    with open_log(disk) as log:
        log.append(b"2")
    assert payloads_of(disk) == [b"1", b"2"]


def test_the_opening_segment_is_small_so_that_an_open_is_quick() -> None:
    disk = MemoryFileSystem()
    with open_log(disk, segment_size_bytes=16 << 20) as log:
        log.start()
        (name,) = segments_of(disk)
        assert len(disk.content(name)) == OPENING_SEGMENT_BYTES
    with open_log(disk, segment_size_bytes=SEGMENT_BYTES) as log:
        log.start()
        assert len(disk.content(segments_of(disk)[1])) == SEGMENT_BYTES


def test_a_log_may_be_opened_with_another_segment_size_each_time() -> None:
    disk = MemoryFileSystem()
    expected = []
    for number, size in enumerate((8192, 5120, 16384, 6144)):
        with open_log(disk, segment_size_bytes=size) as log:
            for _ in range(6):
                payload = b"%d" % number * 700
                commit_each(log, payload)
                expected.append(payload)
    assert payloads_of(disk) == expected


# -- torn tails ------------------------------------------------------------------------


def torn_store(end: bytes = b"x") -> tuple[MemoryFileSystem, str, int, bytes]:
    """A store whose last group lacks a sector: disk, segment, offset, bytes to cut.

    Args:
        end: the last byte of that group.
    """
    disk = killed_store(b"kept", b"x" * 1499 + end)
    (name,) = segments_of(disk)
    at, header = frames_of(disk, name)[-1]
    data = bytearray(disk.content(name))
    data[4608 + 512 : 4608 + 1024] = bytes(512)
    disk.put(name, bytes(data))
    return disk, name, at, bytes(data[at : at + header.frame_bytes]).rstrip(b"\0")


def test_what_is_cut_off_is_kept_for_a_person_to_look_at(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk, name, at, cut = torn_store()
    with open_log(disk) as log:
        report = log.start()
    assert report.torn_file == f"{name}.{at:08x}.torn"
    assert disk.content(report.torn_file) == cut
    assert report.torn_bytes == len(cut)
    assert report.torn_what == "a torn frame: part of it was never written"
    assert not report.clean
    assert not report.doubtful
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert record.getMessage() == (
        f"torn tail after LSN 1 cut: {report.torn_what}; {len(cut)} bytes kept as "
        f"{report.torn_file}"
    )
    assert record.__dict__["lsn"] == 1


@pytest.mark.parametrize(
    "end", [b"\1", b"\n", b" ", b"X", b"\\", b"\xff"], ids=bytes.hex
)
def test_a_torn_copy_lacks_zeros_at_its_end_and_nothing_else(end: bytes) -> None:
    disk, name, at, cut = torn_store(end)
    assert cut.endswith(end)
    open_log(disk).start()
    assert disk.content(f"{name}.{at:08x}.torn") == cut


def test_the_torn_copy_is_durable_before_the_tail_is_cut() -> None:
    disk, name, _, _ = torn_store()
    open_log(disk).start()
    ops = ops_of(disk)
    torn = next(i for i, (op, n) in enumerate(ops) if n.endswith(".torn.tmp"))
    assert ("sync_dir", "") in ops[torn : ops.index(("truncate", name))]


def test_a_torn_tail_stays_recovered_however_often_it_is_opened() -> None:
    disk, *_ = torn_store()
    for _ in range(5):
        assert payloads_of(disk) == [b"kept"]
        open_log(disk).start()
        disk = disk.killed()
    assert len([name for name in disk.names() if name.endswith(".torn")]) == 1


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_on_a_full_disk_a_torn_tail_stays_where_it_is_and_the_store_opens(
    code: int,
) -> None:
    disk, name, at, cut = torn_store()
    disk.put("ready-00000001.tmp", bytes(SEGMENT_BYTES))  # what the pool had made
    disk.fail("create", code, times=None)
    with open_log(disk) as log:
        report = log.start()
        assert log.append(b"more") > LSN_SKIP
    assert (report.torn_file, report.torn_bytes) == (name, len(cut))
    assert disk.content(name)[at : at + len(cut)] == cut
    assert not [name for name in disk.names() if name.endswith("torn.tmp")]
    for _ in range(3):
        disk.heal()
        assert payloads_of(disk) == [b"kept", b"more"]
        open_log(disk).start()
        disk = disk.killed()
    assert disk.content(name)[at : at + len(cut)] == cut


def test_a_torn_tail_that_cannot_be_set_aside_on_a_bad_disk_is_not_cut() -> None:
    disk, name, *_ = torn_store()
    before = disk.content(name)
    disk.fail("pwrite", errno.EIO)
    with open_log(disk) as log, pytest.raises(OSError, match="Input/output"):
        log.start()
    assert disk.content(name) == before
    assert payloads_of(disk) == [b"kept"]


def test_reading_alone_changes_nothing_of_a_torn_tail() -> None:
    disk, *_ = torn_store()
    before = disk.snapshot_of_all()
    assert payloads_of(disk) == [b"kept"]
    assert disk.snapshot_of_all() == before


# -- half made things ------------------------------------------------------------------


def test_half_made_files_are_removed_and_ready_segments_kept() -> None:
    disk = closed_store(b"1")
    for name in (
        "filling.tmp",
        "snapshot.tmp",
        "opening.tmp",
        "STORE.tmp",
        "x.torn.tmp",
    ):
        disk.put(name, b"half")
    for name in ("x.torn", "snap-1.damaged", "ready-00000001.tmp"):
        disk.put(name, bytes(SEGMENT_BYTES))
    open_log(disk).start()
    others = [
        n for n in disk.names() if not n.startswith(("wal-", LOCK_NAME, STORE_NAME))
    ]
    assert others == ["ready-00000001.tmp", "snap-1.damaged", "x.torn"]


def test_nothing_is_removed_before_the_log_was_read() -> None:
    disk = closed_store(b"1")
    disk.put("filling.tmp", b"half")
    assert payloads_of(disk) == [b"1"]
    assert "filling.tmp" in disk.names()


# -- a full disk -----------------------------------------------------------------------


def test_without_room_for_a_segment_nothing_is_opened_and_it_heals() -> None:
    disk = closed_store(b"1")
    disk.capacity_bytes = disk.used_bytes + 4096
    log = open_log(disk)
    for _ in range(2):
        with pytest.raises(DiskFullError, match=r"No space left.*Free space"):
            log.start()
    disk.capacity_bytes = None
    assert log.append(b"2") == 2
    log.close()
    assert payloads_of(disk) == [b"1", b"2"]
    assert not [name for name in disk.names() if name.endswith("tmp")]


def test_a_birth_on_a_full_disk_leaves_a_directory_that_may_be_born_later() -> None:
    disk = MemoryFileSystem()
    disk.capacity_bytes = 8192
    with open_log(disk) as log, pytest.raises(DiskFullError):
        log.start()
    assert STORE_NAME not in disk.names()
    disk.capacity_bytes = None
    with open_log(disk) as log:
        log.append(b"1")
    assert payloads_of(disk) == [b"1"]


def test_a_ready_segment_serves_to_open_on_a_disk_that_is_full_to_the_last_block() -> (
    None
):
    disk = MemoryFileSystem()
    with open_log(disk) as log:
        commit_each(log, *[b"x" * 3000] * 3)
    assert [name for name in disk.names() if name.startswith("ready")]
    disk.capacity_bytes = disk.used_bytes
    with open_log(disk) as log:
        log.append(b"still")
    assert payloads_of(disk)[-1] == b"still"


# -- snapshots -------------------------------------------------------------------------


def test_recovery_starts_from_the_newest_snapshot() -> None:
    disk = store_with_snapshots(3)
    with open_log(disk) as log:
        assert log.snapshot is not None
        assert log.snapshot.pin_lsn == 6
        assert list(log.snapshot_blocks()) == [b"state at 6"]
        assert [record.payload for record in log.read()] == [b"last"]
        report = log.start()
    assert report.snapshot == log.snapshot
    assert report.damaged_snapshots == ()


def test_a_store_without_a_snapshot_has_no_blocks() -> None:
    with open_log(closed_store(b"1")) as log:
        assert log.snapshot is None
        assert list(log.snapshot_blocks()) == []


def test_a_bad_snapshot_is_passed_over_for_the_older_one_and_its_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = store_with_snapshots(3)
    newest, older = snapshot_names(disk)
    disk.flip_bit(newest, 8 * 4100)
    blocks, payloads = state_and_log(disk)
    assert blocks == [b"state at 4"]
    assert payloads == [b"2-1" * 300, b"2-2" * 300, b"last"]
    assert "snapshot passed over" in caplog.text
    with open_log(disk) as log:
        report = log.start()
    assert report.damaged_snapshots == (newest,)
    assert report.snapshot is not None
    assert report.snapshot.name == older
    assert newest in disk.names()


def test_with_both_snapshots_bad_a_trimmed_log_is_refused_and_nothing_deleted() -> None:
    disk = store_with_snapshots(6)
    assert segments_of(disk)[0] != "wal-0000000000000001-0000000000000001.seg"
    for name in snapshot_names(disk):
        disk.flip_bit(name, 8 * 4100)
    before = disk.snapshot_of_all()
    log = open_log(disk)
    with pytest.raises(LogCorruptError, match="no valid snapshot") as caught:
        list(log.read())
    assert caught.value.records_at_stake > 0
    log.close()
    assert disk.snapshot_of_all() == before


def test_with_both_snapshots_bad_a_whole_log_is_replayed() -> None:
    disk = store_with_snapshots(2)
    for name in snapshot_names(disk):
        disk.flip_bit(name, 8 * 4100)
    blocks, payloads = state_and_log(disk)
    assert blocks == []
    assert len(payloads) == 5


def test_an_empty_snapshot_is_a_bad_one() -> None:
    disk = store_with_snapshots(2)
    disk.put(snapshot_names(disk)[0], b"")
    assert state_and_log(disk)[0] == [b"state at 2"]


def test_a_snapshot_that_cannot_be_read_is_not_passed_over() -> None:
    disk = store_with_snapshots(2)
    disk.fail("pread", errno.EIO, name=snapshot_names(disk)[0])
    with pytest.raises(OSError) as caught:
        open_log(disk)
    assert caught.value.errno == errno.EIO
    assert state_and_log(disk)[0] == [b"state at 4"]  # and the lock is free again


def test_a_log_that_ends_before_its_snapshot_was_whole_is_refused() -> None:
    disk = MemoryFileSystem()
    log = open_log(disk)
    commit_each(log, b"1", b"2")
    writer = log.begin_snapshot()  # pinned at 2
    commit_each(log, b"3", b"4")
    writer.add(b"fuzzy state, up to 4")
    log.finish_snapshot(writer, reach_lsn=4)
    disk = disk.killed()
    (name,) = segments_of(disk)
    third, _ = frames_of(disk, name)[2]
    disk.put(name, disk.content(name)[:third] + bytes(SEGMENT_BYTES - third))
    before = disk.snapshot_of_all()
    reader = open_log(disk)
    with pytest.raises(LogCorruptError, match="ends before LSN 4") as caught:
        list(reader.read())
    assert (caught.value.expected_lsn, caught.value.records_at_stake) == (3, 2)
    assert snapshot_name(2) in caught.value.what
    with pytest.raises(LogClosedError):
        reader.start()
    reader.close()
    assert disk.snapshot_of_all() == before


# -- refused, and what then ------------------------------------------------------------


def damaged_store() -> MemoryFileSystem:
    disk = killed_store(b"1", b"2", b"3")
    (name,) = segments_of(disk)
    disk.flip_bit(name, 8 * (frames_of(disk, name)[1][0] + 64 + 4))
    return disk


def test_a_refused_log_cannot_be_appended_to() -> None:
    disk = damaged_store()
    before = disk.snapshot_of_all()
    log = open_log(disk)
    with pytest.raises(LogCorruptError):
        list(log.read())
    for _ in range(2):
        with pytest.raises(LogClosedError, match="did not reach its end"):
            log.append(b"never")
        with pytest.raises(LogClosedError):
            log.start()
    log.close()
    assert disk.snapshot_of_all() == before


def test_starting_without_reading_verifies_just_as_much() -> None:
    disk = damaged_store()
    before = disk.snapshot_of_all()
    with open_log(disk) as log, pytest.raises(LogCorruptError):
        log.start()
    with open_log(disk) as log, pytest.raises(LogCorruptError):
        log.append(b"never")
    assert disk.snapshot_of_all() == before


def test_a_log_whose_reading_failed_cannot_be_appended_to() -> None:
    disk = killed_store(b"1", b"2")
    log = open_log(disk)
    disk.fail("pread", errno.EIO, name=segments_of(disk)[0])
    with pytest.raises(OSError):
        list(log.read())
    with pytest.raises(LogClosedError, match="open it again"):
        log.start()


def test_a_log_read_in_part_is_read_to_its_end_by_starting() -> None:
    disk = killed_store(b"1", b"2", b"3")
    log = open_log(disk)
    assert next(log.read()).payload == b"1"
    log.append(b"4")
    log.close()
    assert payloads_of(disk) == [b"1", b"2", b"3", b"4"]
    bad = damaged_store()
    log = open_log(bad)
    assert next(log.read()).payload == b"1"
    with pytest.raises(LogCorruptError):
        log.start()


def test_a_store_without_any_segment_is_refused() -> None:
    disk = closed_store(b"1")
    disk.remove(segments_of(disk)[0])
    with open_log(disk) as log, pytest.raises(StoreError, match="no segment of a log"):
        log.start()


def test_a_missing_last_segment_shows_in_the_length_of_the_one_before() -> None:
    disk = MemoryFileSystem()
    log = open_log(disk)
    commit_each(log, *[b"x" * 2000] * 6)
    disk = disk.killed()
    disk.remove(segments_of(disk)[-1])
    with open_log(disk) as log, pytest.raises(LogCorruptError, match="was cut off"):
        log.start()


def test_a_refused_or_failed_open_gives_the_lock_back() -> None:
    disk = closed_store(b"1")
    good = disk.content(STORE_NAME)
    disk.put(STORE_NAME, b"")
    for _ in range(2):
        with pytest.raises(StoreError):
            open_log(disk)
    disk.put(STORE_NAME, good)
    assert payloads_of(disk) == [b"1"]


# -- whatever is wrong, a failed open changes nothing ----------------------------------


def newest(disk: MemoryFileSystem, start: str) -> str:
    return [name for name in disk.names() if name.startswith(start)][-1]


def put(start: str, edit: Callable[[bytes], bytes]) -> Breakage:
    """Change the newest file whose name begins so."""

    def change(disk: MemoryFileSystem) -> None:
        name = newest(disk, start)
        disk.put(name, edit(disk.content(name)))

    return change


def sealed(at: int, value: int, end: int) -> Callable[[bytes], bytes]:
    """Change a byte, and make the checksum that stands at `end` right again."""

    def edit(data: bytes) -> bytes:
        fields = data[:at] + bytes([value]) + data[at + 1 : end]
        return fields + crc32c(fields).to_bytes(4, "little") + data[end + 4 :]

    return edit


def flip(at: int) -> Callable[[bytes], bytes]:
    return lambda data: data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def remove_all(start: str) -> Breakage:
    def remove(disk: MemoryFileSystem) -> None:
        for name in [name for name in disk.names() if name.startswith(start)]:
            disk.remove(name)

    return remove


def flip_all_snapshots(disk: MemoryFileSystem) -> None:
    for name in snapshot_names(disk):
        disk.flip_bit(name, 8 * 4100)


def rename_segment(disk: MemoryFileSystem) -> None:
    disk.put(segment_name(99, 99), disk.content(newest(disk, "wal-")))
    disk.remove(segments_of(disk)[-2])


BREAKAGES: dict[str, tuple[Breakage, type[Exception], str]] = {
    "STORE missing": (remove_all(STORE_NAME), StoreError, "no STORE"),
    "STORE empty": (put(STORE_NAME, lambda _: b""), StoreError, "backup"),
    "STORE damaged": (put(STORE_NAME, flip(30)), StoreError, "backup"),
    "STORE newer": (put(STORE_NAME, sealed(8, 9, 48)), StoreError, "newer version"),
    "STORE bits": (put(STORE_NAME, sealed(12, 1, 48)), StoreError, "newer version"),
    "segment newer": (put("wal", sealed(8, 9, 4092)), StoreError, "newer version"),
    "segment bits": (put("wal", sealed(16, 2, 4092)), StoreError, "newer version"),
    "snapshot newer": (put("snap", sealed(8, 9, 4092)), StoreError, "newer version"),
    "snapshots damaged": (flip_all_snapshots, LogCorruptError, "no valid snapshot"),
    "segment header": (put("wal", flip(50)), LogCorruptError, "segment header"),
    "segment empty": (put("wal", lambda _: b""), LogCorruptError, "segment header"),
    "segment short": (put("wal", lambda d: d[:-70]), LogCorruptError, "cut off"),
    "segment renamed": (rename_segment, LogCorruptError, "renamed"),
    "frame damaged": (put("wal", flip(4096 + 70)), LogCorruptError, "bad frame"),
    "no segments": (remove_all("wal"), StoreError, "no segment of a log"),
}


@pytest.mark.parametrize("breakage", BREAKAGES)
@pytest.mark.parametrize("create", [True, False])
def test_a_failed_open_changes_no_byte_and_names_the_path(
    breakage: str, create: bool
) -> None:
    disk = store_with_snapshots(6)
    change, kind, found = BREAKAGES[breakage]
    change(disk)
    before = disk.snapshot_of_all()
    for _ in range(2):
        with (
            pytest.raises(kind, match=found) as caught,
            open_log(disk, create=create) as log,
        ):
            log.start()
        assert str(caught.value).startswith("memory")
    assert disk.snapshot_of_all() == before


# -- directories that cannot be had ----------------------------------------------------


@pytest.mark.parametrize("code", [errno.EACCES, errno.EPERM, errno.EROFS])
@pytest.mark.parametrize("op", ["make_directory", "lock"])
def test_a_directory_that_is_not_writable_says_so(op: str, code: int) -> None:
    disk = MemoryFileSystem("the/store")
    disk.fail(op, code)
    with pytest.raises(StoreError, match=r"the/store: is not writable.*permissions"):
        open_log(disk)


def test_a_directory_that_may_not_be_listed_says_so() -> None:
    disk = closed_store(b"1")
    disk.fail("names", errno.EACCES)
    with pytest.raises(StoreError, match="not writable"):
        open_log(disk)


def test_another_error_of_the_disk_passes_through() -> None:
    disk = MemoryFileSystem()
    disk.fail("lock", errno.EIO)
    with pytest.raises(OSError) as caught:
        open_log(disk)
    assert caught.value.errno == errno.EIO


def test_a_path_below_a_file_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"text")
    path = str(tmp_path / "file" / "store")
    with pytest.raises(StoreError, match="a part of the path is a file") as caught:
        open_log(path)
    assert caught.value.path == path
    assert (tmp_path / "file").read_bytes() == b"text"


def test_a_held_directory_names_its_holder_and_stays_as_it_is() -> None:
    disk = MemoryFileSystem(process="process 77")
    log = open_log(disk)
    log.append(b"1")
    before = disk.snapshot_of_all()
    with pytest.raises(StoreInUseError) as caught:
        open_log(disk.other_process())
    assert caught.value.holder.startswith("process 77, open since 2023-11-14")
    assert disk.snapshot_of_all() == before
    log.close()
    assert payloads_of(disk.other_process()) == [b"1"]
    assert disk.content(LOCK_NAME) == b""
