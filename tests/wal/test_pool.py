"""Segments to come: made whole before they are claimed, held back, and never used twice."""

from __future__ import annotations

import errno
import threading
from collections.abc import Iterator

import pytest

from tests.wal.stores import PATIENCE_SECONDS, HookedDisk, Worker
from wal.errors import DiskFullError
from wal.filesystem import FileSystem, Handle
from wal.pool import (
    FILL_PAUSE_SECONDS,
    OPEN_AHEAD,
    SegmentPool,
    ready_names,
    zero_fill,
)
from wal.testing import MemoryFileSystem

SIZE = 8192


@pytest.fixture
def disk() -> MemoryFileSystem:
    disk = MemoryFileSystem("the/store")
    disk.make_directory()
    return disk


def pool_on(
    disk: FileSystem,
    *,
    reserve: int = 1,
    background: bool = False,
    found: list[str] | None = None,
) -> SegmentPool:
    pool = SegmentPool(disk, size_bytes=SIZE, reserve=reserve, background=background)
    pool.start(found if found is not None else [])
    return pool


@pytest.fixture
def running(disk: MemoryFileSystem) -> Iterator[SegmentPool]:
    """A pool whose thread fills it."""
    pool = pool_on(disk, reserve=2, background=True)
    yield pool
    pool.stop()


class Announced(threading.Condition):
    """Tells when somebody waits on it."""

    def __init__(self, lock: threading.Lock, waits: threading.Event) -> None:
        super().__init__(lock)
        self._waits = waits

    def wait(self, timeout: float | None = None) -> bool:
        self._waits.set()
        return super().wait(timeout)


def test_of_two_callers_one_makes_the_segment_and_both_get_on() -> None:
    disk = HookedDisk()
    disk.make_directory()
    pool = pool_on(disk)
    second_got_on = threading.Event()  # it waits, or it is through
    pool._changed = Announced(pool._lock, second_got_on)
    second: list[Worker] = []

    def wait_too() -> None:
        pool.wait(urgent=False)
        second_got_on.set()

    def at_disk_call(op: str, name: str, done: bool) -> None:
        if op == "rename" and not done and not second:
            second.append(Worker(wait_too))
            assert second_got_on.wait(PATIENCE_SECONDS)

    disk.hook = at_disk_call
    pool.wait(urgent=False)
    second[0].outcome()
    assert ready_names(disk) == ["ready-00000001.tmp", "ready-00000002.tmp"]
    pool.check()


# -- claiming and taking ---------------------------------------------------------------


def test_an_empty_pool_gives_nothing_and_never_waits(disk: MemoryFileSystem) -> None:
    pool = pool_on(disk)
    assert not pool.claim(urgent=False)
    assert not pool.claim(urgent=True)


def test_ordinary_records_leave_the_reserve_and_urgent_ones_use_it_up(
    disk: MemoryFileSystem,
) -> None:
    pool = pool_on(disk, reserve=2)
    pool.wait(urgent=False)
    assert pool.ready == 3
    assert pool.claim(urgent=False)
    assert not pool.claim(urgent=False)
    assert pool.claim(urgent=True)
    pool.wait(urgent=True)  # opens the last
    assert pool.claim(urgent=True)
    assert not pool.claim(urgent=True)
    assert pool.ready == 0
    pool.check()


def test_waiting_for_an_urgent_record_makes_no_more_than_it_needs(
    disk: MemoryFileSystem,
) -> None:
    pool = pool_on(disk, reserve=5)
    pool.wait(urgent=True)
    assert pool.ready == 1
    pool.wait(urgent=True)
    assert pool.ready == 1


def test_what_is_taken_is_what_was_claimed_first(disk: MemoryFileSystem) -> None:
    pool = pool_on(disk, reserve=1)
    pool.wait(urgent=False)
    names = ready_names(disk)
    assert len(names) == 2
    for name in names:
        pool.wait(urgent=True)
        assert pool.claim(urgent=True)
        taken, handle = pool.take()
        assert taken == name
        assert disk.size_bytes(handle) == SIZE
        pool.in_hand = None  # used
        pool.check()


def test_what_was_taken_and_not_used_is_given_again(disk: MemoryFileSystem) -> None:
    # Ctrl-C may come between `take` and the line that would have stored its answer.
    pool = pool_on(disk)
    pool.wait(urgent=False)
    pool.claim(urgent=False)
    first = pool.take()
    assert pool.take() == first
    pool.check()
    pool.in_hand = None
    pool.wait(urgent=True)
    pool.claim(urgent=True)
    assert pool.take() != first


# -- open before they are claimed ------------------------------------------------------


def test_what_is_claimed_is_open_so_taking_it_cannot_fail(
    disk: MemoryFileSystem,
) -> None:
    pool = pool_on(disk, reserve=9)
    pool.wait(urgent=False)
    disk.fail("open", errno.EMFILE, times=None)
    claims = 0
    while pool.claim(urgent=True):
        claims += 1
    assert claims == OPEN_AHEAD
    for _ in range(claims):
        pool.take()
        pool.in_hand = None
    with pytest.raises(OSError, match="Too many open files"):
        pool.wait(urgent=True)
    assert not pool.full
    disk.heal()
    pool.check()
    pool.wait(urgent=True)
    assert pool.claim(urgent=True)


def test_no_more_are_open_than_are_needed_soon(disk: MemoryFileSystem) -> None:
    pool = pool_on(disk, reserve=9)
    pool.wait(urgent=False)
    assert pool.ready == 10
    assert len(disk._machine.handles) <= OPEN_AHEAD
    pool.stop()
    assert not disk._machine.handles


def test_a_full_disk_does_not_keep_the_reserve_from_being_opened(
    running: SegmentPool, disk: MemoryFileSystem
) -> None:
    running.wait(urgent=False)
    disk.capacity_bytes = disk.used_bytes
    while running.ready:
        running.wait(urgent=True)
        assert running.claim(urgent=True)
    with pytest.raises(DiskFullError):
        running.wait(urgent=True)


def test_a_ready_segment_that_somebody_removed_is_made_anew(
    disk: MemoryFileSystem,
) -> None:
    pool = pool_on(disk, reserve=OPEN_AHEAD)
    pool.wait(urgent=False)
    gone = ready_names(disk)[OPEN_AHEAD]
    disk.unlink(gone)
    pool.claim(urgent=True)
    with pytest.raises(FileNotFoundError, match=gone):
        pool.wait(urgent=False)
    pool.wait(urgent=False)
    pool.check()
    assert gone not in ready_names(disk)


def test_a_found_segment_is_not_forgotten_for_want_of_a_descriptor(
    disk: MemoryFileSystem,
) -> None:
    disk.put("ready-00000001.tmp", bytes(SIZE))
    disk.fail("open", errno.EMFILE)
    pool = pool_on(disk, found=ready_names(disk))
    with pytest.raises(OSError, match="Too many open files"):
        pool.wait(urgent=True)
    pool.wait(urgent=True)
    assert ready_names(disk) == ["ready-00000001.tmp"]


def test_a_ready_segment_is_not_forgotten_for_want_of_a_descriptor(
    disk: MemoryFileSystem,
) -> None:
    pool = pool_on(disk, reserve=OPEN_AHEAD)
    pool.wait(urgent=False)
    ready = ready_names(disk)
    disk.fail("open", errno.EMFILE, name=ready[OPEN_AHEAD])
    assert pool.claim(urgent=True)
    with pytest.raises(OSError, match="Too many open files"):
        pool.wait(urgent=False)
    pool.wait(urgent=True)
    assert pool.ready == len(ready) - 1
    assert ready_names(disk) == ready


# -- making ----------------------------------------------------------------------------


def test_a_segment_is_full_size_zero_and_synced_before_it_is_ready(
    disk: MemoryFileSystem,
) -> None:
    calls = disk.calls
    pool_on(disk).wait(urgent=True)
    assert [(call.op, call.name) for call in disk.trace[calls:]] == [
        ("create", "filling.tmp"),
        ("pwrite", "filling.tmp"),
        ("datasync", "filling.tmp"),
        ("sync", "filling.tmp"),
        ("rename", "filling.tmp"),
    ]
    (name,) = ready_names(disk)
    assert disk.content(name) == bytes(SIZE)
    for state in disk.crash_states():
        for found in ready_names(state):
            assert state.content(found) == bytes(SIZE), state.label


def test_zeros_are_written_in_steps(disk: MemoryFileSystem) -> None:
    handle = disk.create("f")
    size = (2 << 20) + 512
    assert list(zero_fill(disk, handle, size)) == [0, 1 << 20, 2 << 20]
    assert disk.size_bytes(handle) == size


def test_short_writes_fill_a_segment_too(disk: MemoryFileSystem) -> None:
    disk.short_writes(1000)
    pool_on(disk).wait(urgent=True)
    (name,) = ready_names(disk)
    assert disk.content(name) == bytes(SIZE)


# -- what a former owner left ----------------------------------------------------------


def test_segments_of_a_former_owner_are_used_again(disk: MemoryFileSystem) -> None:
    pool_on(disk).wait(urgent=False)
    names = ready_names(disk)
    calls = disk.calls
    pool = pool_on(disk, found=names)
    pool.wait(urgent=False)
    assert disk.calls == calls
    assert ready_names(disk) == names
    pool.check()


def test_new_names_do_not_clash_with_found_ones(disk: MemoryFileSystem) -> None:
    disk.put("ready-0000000f.tmp", bytes(SIZE))
    pool_on(disk, found=ready_names(disk)).wait(urgent=False)
    assert ready_names(disk) == ["ready-0000000f.tmp", "ready-00000011.tmp"]


def test_a_header_that_was_never_used_does_not_spoil_a_found_segment(
    disk: MemoryFileSystem,
) -> None:
    disk.put("ready-00000001.tmp", b"\xff" * 4096 + bytes(SIZE - 4096))
    pool_on(disk, found=ready_names(disk)).wait(urgent=True)
    assert ready_names(disk) == ["ready-00000001.tmp"]


@pytest.mark.parametrize(
    "content",
    [
        bytes(SIZE // 2),
        bytes(2 * SIZE),
        b"",
        bytes(SIZE - 1) + b"\1",
        bytes(SIZE - 1) + b"X",
        bytes(4096) + b"\1" + bytes(SIZE - 4097),
    ],
    ids=["smaller", "larger", "empty", "not zero", "a letter", "the first byte"],
)
def test_a_found_file_that_is_no_blank_segment_is_removed(
    disk: MemoryFileSystem, content: bytes
) -> None:
    disk.put("ready-00000001.tmp", content)
    pool = pool_on(disk, found=ready_names(disk))
    pool.wait(urgent=True)
    (name,) = ready_names(disk)
    assert name != "ready-00000001.tmp"
    assert disk.content(name) == bytes(SIZE)
    assert pool.find_blank([name]) == name


def test_the_first_blank_of_some_files_is_found_or_none(disk: MemoryFileSystem) -> None:
    pool = pool_on(disk)
    disk.put("a", b"text")
    disk.put("b", bytes(SIZE))
    assert pool.find_blank([]) is None
    assert pool.find_blank(["a"]) is None
    assert pool.find_blank(["a", "b"]) == "b"


# -- a full or broken disk -------------------------------------------------------------


def test_a_full_disk_is_told_and_heals(disk: MemoryFileSystem) -> None:
    pool = pool_on(disk)
    disk.capacity_bytes = SIZE
    with pytest.raises(DiskFullError, match=r"the/store: .* \(No space left on device"):
        pool.wait(urgent=False)
    assert (pool.full, pool.ready) == (True, 1)
    pool.wait(urgent=True)  # the one that there was room for
    assert disk.names() == ready_names(disk)  # nothing half made stays in the way
    disk.capacity_bytes = 10 * SIZE
    pool.wait(urgent=False)
    assert (pool.full, pool.ready) == (False, 2)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_a_quota_and_a_file_size_limit_are_a_full_disk(
    disk: MemoryFileSystem, code: int
) -> None:
    disk.fail("pwrite", code)
    with pytest.raises(DiskFullError):
        pool_on(disk).wait(urgent=True)


@pytest.mark.parametrize("op", ["create", "pwrite", "datasync", "sync", "rename"])
def test_another_error_passes_through_and_the_next_try_may_do(
    disk: MemoryFileSystem, op: str
) -> None:
    pool = pool_on(disk)
    disk.fail(op, errno.EIO)
    with pytest.raises(OSError) as caught:
        pool.wait(urgent=True)
    assert caught.value.errno == errno.EIO
    assert not pool.full
    pool.wait(urgent=True)
    pool.check()


class ShortOfMemory(MemoryFileSystem):
    """Has none for the first write."""

    failed = False

    def pwrite(self, handle: Handle, data: bytes, offset: int) -> int:
        if not self.failed:
            self.failed = True
            raise MemoryError
        return super().pwrite(handle, data, offset)


def test_a_lack_of_memory_is_an_error_of_that_try_alone() -> None:
    disk = ShortOfMemory()
    disk.make_directory()
    pool = pool_on(disk)
    with pytest.raises(OSError, match=r"Cannot allocate memory: '\w+\.tmp'") as e:
        pool.wait(urgent=True)
    assert e.value.errno == errno.ENOMEM
    assert pool.ready == 0
    pool.wait(urgent=True)
    assert disk.names() == ready_names(disk)
    pool.check()


# -- the thread ------------------------------------------------------------------------


def test_the_thread_makes_one_more_than_the_reserve_ahead_of_need(
    disk: MemoryFileSystem, running: SegmentPool
) -> None:
    running.wait(urgent=False)
    assert running.claim(urgent=False)
    running.wait(urgent=False)  # it makes another by itself
    running.check()
    assert len(ready_names(disk)) >= 3


def test_the_thread_tells_of_a_full_disk_and_goes_on_when_there_is_room(
    disk: MemoryFileSystem, running: SegmentPool
) -> None:
    running.wait(urgent=False)
    disk.capacity_bytes = disk.used_bytes
    assert running.claim(urgent=False)
    with pytest.raises(DiskFullError):
        running.wait(urgent=False)
    disk.capacity_bytes = None
    running.wait(urgent=False)
    assert running.claim(urgent=False)


def test_a_try_that_began_before_the_call_says_nothing_of_the_disk_now() -> None:
    """Space may have come back meanwhile, and so may the reserve."""
    disk = HookedDisk()
    disk.make_directory()
    fails, waits = threading.Event(), threading.Event()

    def at_disk_call(op: str, name: str, done: bool) -> None:
        if op == "sync" and not done and not fails.is_set():
            fails.set()
            assert waits.wait(PATIENCE_SECONDS)
            raise OSError(errno.ENOSPC, "No space left on device", name)

    disk.hook = at_disk_call
    pool = SegmentPool(disk, size_bytes=SIZE, reserve=1, background=True)
    pool._changed = Announced(pool._lock, waits)
    pool.start([])
    try:
        assert fails.wait(PATIENCE_SECONDS)
        Worker(lambda: pool.wait(urgent=False)).outcome()
    finally:
        waits.set()
        pool.stop()
    pool.check()


class Paced(threading.Condition):
    """Counts the pauses, which end at once; tells of all other waits.

    Attributes:
        pauses: how many there were.
        waits: somebody waits for a segment.
        rests: the thread has nothing to do.
    """

    def __init__(self, lock: threading.Lock) -> None:
        super().__init__(lock)
        self.pauses = 0
        self.waits = threading.Event()
        self.rests = threading.Event()

    def wait(self, timeout: float | None = None) -> bool:
        if timeout == FILL_PAUSE_SECONDS:
            self.pauses += 1
            return False
        (self.rests if timeout is None else self.waits).set()
        return super().wait(timeout)


def test_the_thread_pauses_between_two_steps_unless_somebody_waits(
    disk: MemoryFileSystem,
) -> None:
    pool = SegmentPool(disk, size_bytes=SIZE, reserve=0, background=True)
    paced = pool._changed = Paced(pool._lock)
    waiting = Worker(lambda: pool.wait(urgent=False))
    assert paced.waits.wait(PATIENCE_SECONDS)
    pool.start([])
    waiting.outcome()
    assert paced.rests.wait(PATIENCE_SECONDS)
    assert paced.pauses == 0
    paced.rests.clear()
    assert pool.claim(urgent=False)  # in its place one is made that nobody waits for
    assert paced.rests.wait(PATIENCE_SECONDS)
    assert paced.pauses == 1
    pool.stop()


def test_who_makes_a_segment_without_a_thread_never_pauses(
    disk: MemoryFileSystem,
) -> None:
    pool = pool_on(disk)
    paced = pool._changed = Paced(pool._lock)
    pool.wait(urgent=False)
    assert len(ready_names(disk)) == 2
    assert paced.pauses == 0


def test_many_who_wait_all_get_room(running: SegmentPool) -> None:
    def claim() -> None:
        while not running.claim(urgent=False):
            running.wait(urgent=False)

    for worker in [Worker(claim) for _ in range(8)]:
        worker.outcome()
    running.check()


def test_stopping_ends_the_thread_and_those_who_wait(
    disk: MemoryFileSystem, running: SegmentPool
) -> None:
    disk.fail("create", errno.ENOSPC, times=None)
    while running.claim(urgent=True):
        pass
    stopped = threading.Event()

    def wait() -> None:
        while not stopped.is_set():
            try:
                running.wait(urgent=True)
            except DiskFullError:
                continue
            return

    waiting = Worker(wait)
    running.stop()
    running.stop()
    try:
        waiting.outcome()
    finally:
        stopped.set()
    running.wait(urgent=True)  # returns at once: the caller finds the log closed


def test_stopping_does_not_wait_for_a_segment_to_be_filled() -> None:
    filling = threading.Event()
    may_go_on = threading.Event()

    class Slow(MemoryFileSystem):
        def datasync(self, handle: object) -> None:
            filling.set()
            assert may_go_on.wait(PATIENCE_SECONDS)

    disk = Slow()
    disk.make_directory()
    size = 64 << 20
    pool = SegmentPool(disk, size_bytes=size, reserve=1, background=True)
    pool.start([])
    assert filling.wait(PATIENCE_SECONDS)
    stopping = Worker(pool.stop)
    may_go_on.set()
    stopping.outcome()
    written = [call for call in disk.trace if call.op == "pwrite"]
    assert len(written) < 64
    assert ready_names(disk) == []
