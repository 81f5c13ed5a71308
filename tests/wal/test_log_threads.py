"""Many threads at one log, its own threads, and the mode that relies on them."""

from __future__ import annotations

import errno
import threading
from functools import partial

import pytest

from tests.wal.stores import (
    PATIENCE_SECONDS,
    HookedDisk,
    Worker,
    commit_each,
    frames_of,
    lsns_of,
    open_log,
    payloads_of,
    segments_of,
)
from wal.errors import LogClosedError, LogFailedError
from wal.frame import Flag
from wal.log import Log
from wal.testing import MemoryFileSystem


@pytest.fixture
def disk() -> MemoryFileSystem:
    return MemoryFileSystem("the/store")


@pytest.fixture
def log(disk: MemoryFileSystem) -> Log:
    log = open_log(disk)
    log.start()
    return log


def wait_until(event: threading.Event) -> None:
    assert event.wait(PATIENCE_SECONDS), "it never came"


# -- threads ---------------------------------------------------------------------------


@pytest.mark.parametrize("background", [False, True])
def test_sixteen_writers_lose_nothing_and_write_nothing_twice(background: bool) -> None:
    disk = MemoryFileSystem()
    log = open_log(disk, background=background, segment_size_bytes=16_384)
    log.start()
    lsns: dict[int, bytes] = {}
    mutex = threading.Lock()

    def write(writer: int) -> None:
        for number in range(40):
            payload = b"%d-%d" % (writer, number) + bytes(writer * 10)
            lsn = log.append(payload)
            log.commit(lsn)
            assert log.durable_lsn >= lsn
            with mutex:
                assert lsn not in lsns
                lsns[lsn] = payload

    workers = [Worker(partial(write, writer)) for writer in range(16)]
    for worker in workers:
        worker.outcome()
    log.check()
    assert payloads_of(disk.crashed()) == [lsns[lsn] for lsn in sorted(lsns)]
    log.close()
    assert sorted(lsns) == lsns_of(disk) == list(range(1, 641))


def test_closing_while_others_write_keeps_what_they_were_told(
    disk: MemoryFileSystem,
) -> None:
    log = open_log(disk)
    log.start()
    told: list[bytes] = []
    begun = threading.Semaphore(0)

    def write(writer: int) -> None:
        for number in range(100_000):
            payload = b"%d-%d" % (writer, number)
            try:
                log.commit(log.append(payload))
            except LogClosedError:
                return
            told.append(payload)
            begun.release()

    workers = [Worker(partial(write, writer)) for writer in range(4)]
    for _ in range(20):
        assert begun.acquire(timeout=PATIENCE_SECONDS)
    log.close()
    for worker in workers:
        worker.outcome()
    found = payloads_of(disk)
    assert set(told) <= set(found)
    assert len(found) == len(set(found))
    with open_log(disk) as again:
        assert again.start().clean


def test_a_record_appended_before_a_close_may_still_be_committed_after_it(
    log: Log, disk: MemoryFileSystem
) -> None:
    lsn = log.append(b"1")
    log.close()
    log.commit(lsn)
    assert payloads_of(disk) == [b"1"]


def test_the_commit_thread_commits_for_those_who_must_not_wait(
    disk: MemoryFileSystem,
) -> None:
    with open_log(disk, background=True) as log:
        log.start()
        durable = threading.Event()
        log.add_listener(lambda: durable.set() if log.durable_lsn >= 2 else None)
        log.append(b"1")
        log.commit_soon(log.append(b"2"))
        wait_until(durable)
        assert payloads_of(disk.crashed()) == [b"1", b"2"]
        log.commit_soon(1)  # long since done


class Resting(threading.Condition):
    """Tells each time somebody begins to wait on it."""

    def __init__(self, log: Log) -> None:
        super().__init__(log._mutex)
        self.rests = threading.Event()
        log._work = self

    def wait(self, timeout: float | None = None) -> bool:
        self.rests.set()
        return super().wait(timeout)


def test_the_commit_thread_rests_when_all_that_was_asked_for_is_durable(
    disk: MemoryFileSystem,
) -> None:
    log = open_log(disk, background=True)
    resting = Resting(log)
    with log:
        log.start()
        wait_until(resting.rests)
        resting.rests.clear()
        log.commit_soon(log.append(b"1"))
        wait_until(resting.rests)
        assert log.durable_lsn == 1


def test_the_commit_thread_tries_again_after_a_lack_of_memory() -> None:
    disk = HookedDisk()
    failed, durable = threading.Event(), threading.Event()

    def at_disk_call(op: str, name: str, done: bool) -> None:
        if op == "datasync" and name.startswith("wal-") and not failed.is_set():
            failed.set()
            raise MemoryError

    with open_log(disk, background=True) as log:
        log.start()
        log.add_listener(durable.set)
        disk.hook = at_disk_call
        log.commit_soon(log.append(b"1"))
        wait_until(failed)
        wait_until(durable)
        assert log.durable_lsn == 1
    assert payloads_of(disk) == [b"1"]


def test_the_threads_of_a_log_keep_no_process_alive(disk: MemoryFileSystem) -> None:
    with open_log(disk, background=True) as log:
        log.start()
        threads = [log._committer, log._pool._thread]
        assert [each.name for each in threads if each] == ["wal-commit", "wal-pool"]
        assert all(each.daemon for each in threads if each)


def test_committing_soon_asks_for_no_record_that_is_not_there_yet(
    disk: MemoryFileSystem,
) -> None:
    with open_log(disk, background=True) as log:
        log.start()
        with pytest.raises(ValueError, match="lsn=1: the last record appended is 0"):
            log.commit_soon(1)


def test_without_threads_committing_soon_does_not_wait_for_later_ones(log: Log) -> None:
    first = log.append(b"x" * 3000)
    log.make_room()
    log.append(b"y" * 3000)  # another frame, in another segment
    log.commit_soon(first)
    assert log.durable_lsn == 1


def test_without_threads_committing_soon_is_at_once(log: Log) -> None:
    log.commit_soon(log.append(b"1"))
    assert log.durable_lsn == 1


def test_the_commit_thread_tells_of_a_failure_and_ends(disk: MemoryFileSystem) -> None:
    log = open_log(disk, background=True)
    log.start()
    failed = threading.Event()
    log.add_listener(lambda: failed.set() if log.failure else None)
    disk.fail("datasync", errno.EIO, name=segments_of(disk)[0])
    log.commit_soon(log.append(b"1"))
    wait_until(failed)
    with pytest.raises(LogFailedError):
        log.append(b"2")
    log.close()
    assert payloads_of(disk) == []


# -- interval mode ---------------------------------------------------------------------


@pytest.fixture
def relaxed(disk: MemoryFileSystem) -> Log:
    log = open_log(disk, durability="interval")
    log.start()
    return log


def test_in_interval_mode_commit_returns_before_the_disk_has_it(
    relaxed: Log, disk: MemoryFileSystem
) -> None:
    calls = disk.calls
    relaxed.commit(relaxed.append(b"1"))
    relaxed.commit_soon(1)
    assert disk.calls == calls
    assert relaxed.durable_lsn == 0
    assert payloads_of(disk.killed()) == []


def test_in_interval_mode_sync_makes_it_durable(
    relaxed: Log, disk: MemoryFileSystem
) -> None:
    commit_each(relaxed, b"1", b"2")
    relaxed.sync()
    assert relaxed.durable_lsn == 2
    assert payloads_of(disk.crashed()) == [b"1", b"2"]


def test_frames_of_interval_mode_say_that_they_are_relaxed(
    relaxed: Log, disk: MemoryFileSystem
) -> None:
    commit_each(relaxed, b"1")
    relaxed.sync()
    commit_each(relaxed, b"2" * 3000, b"3" * 3000)  # in two segments
    calls = disk.calls
    relaxed.sync()
    ops = [call.op for call in disk.trace[calls:] if call.name.startswith("wal-")]
    assert ops == ["pwrite", "datasync", "truncate", "pwrite", "datasync"]
    first, second = segments_of(disk)
    frames = [h for name in (first, second) for _, h in frames_of(disk, name)]
    assert [frame.durable_lsn for frame in frames] == [0, 1, 1]
    assert all(Flag.RELAXED in frame.flags for frame in frames)


def test_a_thread_writes_in_interval_mode_without_being_asked(
    disk: MemoryFileSystem,
) -> None:
    with open_log(disk, durability="interval", interval_ms=1, background=True) as log:
        log.start()
        written = threading.Semaphore(0)
        log.add_listener(written.release)
        for number in range(3):
            log.commit(log.append(b"%d" % number))
            assert written.acquire(timeout=PATIENCE_SECONDS)
        assert log.durable_lsn == 3
        assert payloads_of(disk.crashed()) == [b"0", b"1", b"2"]


def test_a_record_wakes_the_thread_that_writes_in_interval_mode(
    disk: MemoryFileSystem,
) -> None:
    log = open_log(disk, durability="interval", interval_ms=1, background=True)
    resting, written = Resting(log), threading.Event()
    with log:
        log.start()
        wait_until(resting.rests)
        log.add_listener(written.set)
        log.append(b"1")
        wait_until(written)
        assert log.durable_lsn == 1


def test_closing_in_interval_mode_loses_nothing(disk: MemoryFileSystem) -> None:
    for background in (False, True):
        with open_log(disk, durability="interval", background=background) as log:
            log.commit(log.append(b"x"))
    assert payloads_of(disk.crashed()) == [b"x", b"x"]


def test_a_failure_in_interval_mode_is_told_by_the_next_call(
    disk: MemoryFileSystem,
) -> None:
    log = open_log(disk, durability="interval", interval_ms=1, background=True)
    log.start()
    failed = threading.Event()
    log.add_listener(failed.set)
    disk.fail("datasync", errno.EIO, name=segments_of(disk)[0])
    log.commit(log.append(b"x"))
    wait_until(failed)
    with pytest.raises(LogFailedError):
        log.commit()
    log.close()


def test_the_modes_may_change_from_open_to_open(disk: MemoryFileSystem) -> None:
    for number, durability in enumerate(["durable", "interval", "durable"]):
        with open_log(disk, durability=durability) as log:
            commit_each(log, b"%d" % number)
    assert payloads_of(disk) == [b"0", b"1", b"2"]
