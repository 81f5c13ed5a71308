"""A disk that fails, which is final, and a disk that is full, which is not."""

from __future__ import annotations

import errno
from collections.abc import Callable
from functools import partial

import pytest

from tests.wal.stores import (
    SEGMENT_BYTES,
    HookedDisk,
    Signalled,
    Worker,
    commit_each,
    open_log,
    payloads_of,
)
from wal.errors import CommitUnknownError, DiskFullError, LogFailedError
from wal.filesystem import Handle
from wal.frame import encode_records
from wal.log import Log, RoomNeededError
from wal.recovery import LSN_SKIP
from wal.testing import MemoryFileSystem


@pytest.fixture
def disk() -> MemoryFileSystem:
    return MemoryFileSystem("the/store")


@pytest.fixture
def log(disk: MemoryFileSystem) -> Log:
    log = open_log(disk)
    log.start()
    return log


# -- failure is final ------------------------------------------------------------------


class Counting(MemoryFileSystem):
    """Counts the syncs of each file after one of them failed."""

    def __init__(self) -> None:
        super().__init__()
        self.failed: set[str] = set()
        self.again: list[str] = []

    def _counted(self, handle: Handle, sync: Callable[[Handle], None]) -> None:
        name = self._machine.opened(handle).name
        if name in self.failed:
            self.again.append(name)
        try:
            sync(handle)
        except OSError:
            self.failed.add(name)
            raise

    def datasync(self, handle: Handle) -> None:
        self._counted(handle, super().datasync)

    def sync(self, handle: Handle) -> None:
        self._counted(handle, super().sync)


@pytest.mark.parametrize(
    ("op", "nth"),
    [
        ("pwrite", 1),  # the header of the new segment
        ("pwrite", 2),  # the frame
        ("datasync", 1),  # of the old segment
        ("datasync", 2),  # of the frame
        ("sync", 1),  # of the new header
        ("rename", 1),
        ("sync_dir", 1),
    ],
)
@pytest.mark.parametrize("durability", ["durable", "interval"])
def test_an_error_at_any_disk_call_of_a_commit_is_final(
    op: str, nth: int, durability: str
) -> None:
    disk = Counting()
    log = open_log(disk, durability=durability)
    log.sync(log.append(b"1" * 3000))
    log.make_room()
    lsn = log.append(b"2" * 3000)
    heard: list[object] = []
    log.add_listener(lambda: heard.append(log.failure))
    disk.fail(op, errno.EIO, after=nth)
    with pytest.raises(CommitUnknownError) as caught:
        log.sync(lsn)
    assert caught.value.lsn == 2
    assert heard == [log.failure]
    assert isinstance(log.failure, OSError)
    calls = disk.calls
    assert_failed(log)
    log.close()
    syncs = [call for call in disk.trace[calls:] if "sync" in call.op]
    assert syncs == []
    assert disk.again == []
    log.check()
    found = payloads_of(disk)
    assert found in ([b"1" * 3000], [b"1" * 3000, b"2" * 3000])


@pytest.mark.parametrize("op", ["open", "create", "names"])
def test_a_commit_that_begins_a_segment_needs_no_descriptor(op: str) -> None:
    disk = Counting()
    log = open_log(disk)
    log.sync(log.append(b"1" * 3000))
    log.make_room()
    lsn = log.append(b"2" * 3000)
    disk.fail(op, errno.EMFILE, times=None)
    log.sync(lsn)
    disk.heal()
    log.close()
    assert payloads_of(disk) == [b"1" * 3000, b"2" * 3000]


def assert_failed(log: Log) -> None:
    """Every later call says so, but what is durable stays committed."""
    with pytest.raises(LogFailedError, match="Close it and open it again"):
        log.append(b"x")
    with pytest.raises(LogFailedError):
        log.append_group(encode_records([b"x"]), 1, urgent=True)
    with pytest.raises(LogFailedError):
        log.make_room()
    with pytest.raises(LogFailedError):
        log.begin_snapshot()
    with pytest.raises(CommitUnknownError):
        log.sync()
    if log.durability == "interval":
        with pytest.raises(LogFailedError):
            log.commit()
    else:
        with pytest.raises(CommitUnknownError):
            log.commit()
        log.commit(1)


def test_only_a_new_open_clears_a_failure(log: Log, disk: MemoryFileSystem) -> None:
    disk.fail("datasync", errno.EIO)
    with pytest.raises(CommitUnknownError):
        commit_each(log, b"unknown")
    disk.heal()
    with pytest.raises(LogFailedError):
        log.append(b"x")
    log.close()
    with open_log(disk) as again:
        commit_each(again, b"2")
    assert payloads_of(disk) == [b"2"]  # the failed sync had lost the first


def test_all_who_wait_learn_of_the_failure() -> None:
    disk = HookedDisk()
    log = open_log(disk)
    log.start()
    waiters = Signalled()
    log._commits._waiters = waiters
    workers: list[Worker] = []

    def wait_then_fail(op: str, name: str, done: bool) -> None:
        if op == "datasync" and not workers:
            for _ in range(4):
                workers.append(Worker(partial(log.commit, log.append(b"x"))))
                waiters.wait_for(len(workers))
            raise OSError(errno.EIO, "broken", name)

    disk.hook = wait_then_fail
    with pytest.raises(CommitUnknownError):
        commit_each(log, b"leader")
    for worker in workers:
        with pytest.raises(CommitUnknownError):
            worker.outcome()


def test_a_failed_close_frame_is_an_unclean_end_and_loses_nothing(
    log: Log, disk: MemoryFileSystem
) -> None:
    commit_each(log, b"1")
    disk.fail("pwrite", errno.EIO)
    with pytest.raises(OSError):
        log.close()
    log.close()
    with open_log(disk) as again:
        assert [record.lsn for record in again.read()] == [1]
        assert not again.start().clean
        assert again.append(b"2") == 2 + LSN_SKIP


def test_a_commit_that_fails_in_close_is_reported_and_the_lock_given_back(
    log: Log, disk: MemoryFileSystem
) -> None:
    log.append(b"1")
    disk.fail("datasync", errno.EIO)
    with pytest.raises(CommitUnknownError):
        log.close()
    assert payloads_of(disk) == []


def test_short_writes_are_no_failure(disk: MemoryFileSystem) -> None:
    disk.short_writes(333)
    payloads = [bytes([n]) * 1500 for n in range(1, 9)]
    with open_log(disk) as log:
        commit_each(log, *payloads)
    assert payloads_of(disk) == payloads


# -- a full disk -----------------------------------------------------------------------


def fill(log: Log, payload: bytes = b"x" * 1500) -> int:
    """Append and commit until the disk is full; return how many went."""
    count = 0
    while True:
        try:
            commit_each(log, payload)
        except DiskFullError:
            return count
        count += 1


def append_urgent(log: Log, payload: bytes) -> int:
    """Append as cancels and fires do."""
    body = encode_records([payload])
    while True:
        try:
            lsn = log.append_group(body, 1, urgent=True)
        except RoomNeededError as error:
            log.make_room(urgent=error.urgent)
        else:
            log.commit(lsn)
            return lsn


@pytest.mark.parametrize("background", [False, True])
def test_a_full_disk_stops_ordinary_records_then_urgent_ones_and_heals(
    background: bool,
) -> None:
    disk = MemoryFileSystem()
    disk.capacity_bytes = 12 * SEGMENT_BYTES
    log = open_log(disk, reserve_bytes=3 * SEGMENT_BYTES, background=background)
    log.start()
    expected = [b"x" * 1500] * fill(log)
    assert len(expected) > 2
    assert log.stats().segments_ready == 3
    assert log.failure is None

    urgent = 0
    with pytest.raises(DiskFullError, match="the log notices by itself"):  # noqa: PT012
        while True:
            append_urgent(log, b"u" * 1500)
            urgent += 1
    assert urgent >= 6  # three segments of the reserve, two or more records each
    assert log.stats().segments_ready == 0
    assert log.stats().disk_full
    expected += [b"u" * 1500] * urgent
    assert payloads_of(disk.crashed()) == expected

    disk.capacity_bytes = None
    commit_each(log, b"o" * 1500)
    append_urgent(log, b"v" * 1500)
    expected += [b"o" * 1500, b"v" * 1500]
    log.check()
    log.close()
    assert payloads_of(disk) == expected


def test_a_refused_record_leaves_no_trace(disk: MemoryFileSystem) -> None:
    disk.capacity_bytes = 6 * SEGMENT_BYTES
    log = open_log(disk)
    fill(log)
    before = log.appended_lsn, log.stats().bytes_waiting
    for _ in range(3):
        with pytest.raises(DiskFullError) as caught:
            log.append(b"x" * 3000)
        assert caught.value.path == "the/store"
    assert (log.appended_lsn, log.stats().bytes_waiting) == before
    log.close()
    assert len(payloads_of(disk)) == before[0]


def test_small_records_still_fit_where_a_large_one_was_refused(
    disk: MemoryFileSystem,
) -> None:
    disk.capacity_bytes = 6 * SEGMENT_BYTES
    log = open_log(disk)
    count = fill(log, b"x" * 2500)
    commit_each(log, b"small")
    log.close()
    assert payloads_of(disk) == [b"x" * 2500] * count + [b"small"]


def test_a_commit_never_meets_a_full_disk(disk: MemoryFileSystem) -> None:
    # Whatever was appended has its blocks already.
    log = open_log(disk)
    log.start()
    log.make_room()
    log.append(b"x" * 3000)
    log.append(b"y" * 3000)
    disk.capacity_bytes = disk.used_bytes
    log.commit()
    assert payloads_of(disk.crashed()) == [b"x" * 3000, b"y" * 3000]


def test_a_snapshot_that_finds_the_disk_full_harms_nothing(
    log: Log, disk: MemoryFileSystem
) -> None:
    commit_each(log, b"1")
    disk.capacity_bytes = disk.used_bytes + 8192
    writer = log.begin_snapshot()
    with pytest.raises(OSError) as caught:
        writer.add(b"x" * 20_000)
    assert caught.value.errno == errno.ENOSPC
    writer.abandon()
    assert disk.used_bytes < disk.capacity_bytes
    commit_each(log, b"2")
    log.close()
    assert payloads_of(disk) == [b"1", b"2"]
