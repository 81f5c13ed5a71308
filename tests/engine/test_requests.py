"""How changes come in: in order, one at a time, and nobody waits for all of another's."""

from __future__ import annotations

import contextlib
import errno
import threading
from collections import deque
from collections.abc import Callable, Iterator

import pytest

from tests.engine.stage import PATIENCE_S, repeat_until
from tests.wal.stores import open_log
from timingwheel.engine.life import CLOSED
from timingwheel.engine.requests import Requests
from timingwheel.engine.state import EngineState
from timingwheel.engine.volatile import VolatileLog
from timingwheel.errors import EngineClosedError, EngineFailedError
from wal.errors import (
    CommitUnknownError,
    DiskFullError,
    LogClosedError,
)
from wal.frame import Lsn
from wal.log import Log, RoomNeededError
from wal.testing import MemoryFileSystem

Decide = Callable[[int], list[bytes]]


class Stage:
    """Requests that change nothing but an owner's state: a list of what it applied."""

    def __init__(self, log: Log | VolatileLog) -> None:
        self.applied: list[tuple[int, bytes]] = []
        state = EngineState(self.applied.extend, reach_lsn=0, gaps_allowed=False)
        self.requests = Requests(log, state)

    def group(self, *numbers: int, size: int = 0) -> Decide:
        """Return what decides a group of records with these numbers."""
        return lambda _: [bytes([64, number]) + bytes(size) for number in numbers]

    def numbers(self) -> list[int]:
        return [record[1] for _, record in self.applied]


@pytest.fixture
def stage() -> Stage:
    return Stage(VolatileLog())


@pytest.fixture
def on_disk(disk: MemoryFileSystem) -> Iterator[Stage]:
    with open_log(disk, segment_size_bytes=5120) as log:
        log.start()
        yield Stage(log)


def fill(stage: Stage, *, urgent: bool = False) -> None:
    """Fill the segment until one more of such groups needs another."""
    more = stage.group(9, size=500)
    repeat_until(
        RoomNeededError, lambda: stage.requests.submit_now(more, urgent=urgent)
    )


# -- several groups ------------------------------------------------------------------------


def test_of_several_groups_each_is_decided_when_those_before_it_are_applied(
    stage: Stage,
) -> None:
    seen: list[tuple[int, list[int], bool]] = []

    def deciding(*numbers: int) -> Decide:
        def decide(first_lsn: int) -> list[bytes]:
            locked = stage.requests.lock.locked()
            seen.append((first_lsn, stage.numbers(), locked))
            return stage.group(*numbers)(first_lsn)

        return decide

    groups = [deciding(1, 2), deciding(), deciding(3)]
    assert stage.requests.submit_each(groups) == 3
    assert seen == [(1, [], True), (3, [1, 2], True), (3, [1, 2], True)]
    assert stage.numbers() == [1, 2, 3]
    assert not stage.requests.lock.locked()


def test_the_iterator_goes_on_under_the_lock_right_after_its_group(
    stage: Stage,
) -> None:
    seen: list[tuple[list[int], bool]] = []

    def groups() -> Iterator[Decide]:
        for number in (1, 2):
            yield stage.group(number)
            seen.append((stage.numbers(), stage.requests.lock.locked()))

    stage.requests.submit_each(groups())
    assert seen == [([1], True), ([1, 2], True)]


def test_no_group_at_all_depends_on_what_was_appended_before(stage: Stage) -> None:
    stage.requests.submit(stage.group(1, 2))
    assert stage.requests.submit_each([]) == 2


def test_a_group_that_needs_a_segment_is_decided_again_and_none_is_left_out(
    on_disk: Stage,
) -> None:
    groups = (on_disk.group(number, size=500) for number in range(40))
    assert on_disk.requests.submit_each(groups) == 40
    assert on_disk.numbers() == list(range(40))


@pytest.mark.parametrize("urgent", [False, True])
def test_several_groups_may_use_the_reserve_if_they_remove_work(
    disk: MemoryFileSystem, *, urgent: bool
) -> None:
    with open_log(disk, segment_size_bytes=5120, reserve_bytes=1) as log:
        log.start()
        stage = Stage(log)
        stage.requests.make_room(urgent=False)  # one segment, and one in reserve
        disk.capacity_bytes = disk.used_bytes
        more = stage.group(1, size=500)
        repeat_until(DiskFullError, lambda: stage.requests.submit(more))
        if urgent:
            stage.requests.submit_each([more], urgent=True)
        else:
            with pytest.raises(DiskFullError):
                stage.requests.submit_each([more])


def test_an_iterator_without_memory_stops_the_engine(stage: Stage) -> None:
    """It changes more than what was appended, so nobody knows what it left undone."""
    error = MemoryError()

    def groups() -> Iterator[Decide]:
        yield stage.group(1)
        raise error

    with pytest.raises(MemoryError):
        stage.requests.submit_each(groups())
    with pytest.raises(EngineFailedError) as found:
        stage.requests.require_alive()
    assert found.value.__cause__ is error


def test_what_decides_a_group_may_refuse_it_and_the_engine_goes_on(
    stage: Stage,
) -> None:
    def refuse(_: int) -> list[bytes]:
        raise LookupError("no")

    with pytest.raises(LookupError):
        stage.requests.submit_each([stage.group(1), refuse, stage.group(2)])
    assert stage.numbers() == [1]
    assert stage.requests.submit(stage.group(3)) == 2


def test_without_memory_for_the_very_first_change_the_engine_ends_too() -> None:
    """Its record has a number, and nobody can say what memory has of it."""

    def apply(records: object) -> None:
        raise MemoryError

    state = EngineState(apply, reach_lsn=0, gaps_allowed=False)
    requests = Requests(VolatileLog(), state)
    with pytest.raises(MemoryError):
        requests.submit(lambda _: [b"\x40"])
    with pytest.raises(EngineFailedError):
        requests.require_alive()


class FullMemory(VolatileLog):
    """A log that can be told to find no memory for a group."""

    has_memory = True

    def append_group(
        self, body: bytes, record_count: int, *, urgent: bool = False
    ) -> Lsn:
        if not self.has_memory:
            raise MemoryError
        return super().append_group(body, record_count, urgent=urgent)


def test_a_change_that_no_memory_was_found_to_log_ends_nothing() -> None:
    """Whatever changes came before it, all of them are applied."""
    log = FullMemory()
    stage = Stage(log)
    for numbers in ((1, 2), (3, 4, 5)):
        stage.requests.submit(stage.group(*numbers))
        log.has_memory = False
        with pytest.raises(MemoryError):
            stage.requests.submit(stage.group(9))
        log.has_memory = True
        stage.requests.require_alive()
    assert stage.numbers() == [1, 2, 3, 4, 5]


def test_after_the_end_none_of_several_groups_is_decided(stage: Stage) -> None:
    stage.requests.life.close()
    with pytest.raises(EngineClosedError):
        stage.requests.submit_each([stage.group(1)])
    assert stage.applied == []


# -- who lets whom pass --------------------------------------------------------------------


class Queue(deque[object]):
    """A queue of requests that tells when one has come."""

    def __init__(self) -> None:
        super().__init__()
        self.came = threading.Event()

    def append(self, request: object) -> None:
        super().append(request)
        self.came.set()


class Passer:
    """A thread with one request; as the lock is held, it is queued when this returns."""

    def __init__(self, stage: Stage) -> None:
        self.passed = threading.Event()
        self._requests = stage.requests
        assert self._requests.lock.locked()
        queue = self._requests._queued = Queue()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        assert queue.came.wait(PATIENCE_S)

    def _run(self) -> None:
        with contextlib.suppress(EngineFailedError):
            self._requests.submit(self._decide)

    def _decide(self, _: int) -> list[bytes]:
        self.passed.set()
        return []

    def join(self) -> None:
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()
        assert not self._requests._queued, "it has passed and is still in the queue"
        assert not self._requests.letting_pass


TURNS = 10_000
"""So often somebody may let others pass, a millisecond at most, before a test fails."""


def test_between_two_of_many_groups_a_lone_request_passes(stage: Stage) -> None:
    passers: list[Passer] = []

    def begin(_: int) -> list[bytes]:
        passers.append(Passer(stage))
        return []

    def groups() -> Iterator[Decide]:
        yield begin
        for _ in range(TURNS):
            if passers[0].passed.is_set():
                return
            yield stage.group()

    stage.requests.submit_each(groups())
    assert passers[0].passed.is_set()
    passers[0].join()


def test_who_has_much_to_do_lets_a_lone_request_pass(stage: Stage) -> None:
    """A thread that frees a lock gets it again before the woken one has run."""
    with stage.requests.lock:
        passer = Passer(stage)
    for _ in range(TURNS):
        if passer.passed.is_set():
            break
        stage.requests.let_pass()
    assert passer.passed.is_set()
    passer.join()


def test_who_does_not_come_is_not_waited_for(stage: Stage) -> None:
    stage.requests._queued.append(object())
    stage.requests.let_pass()
    assert not stage.requests.letting_pass
    assert not stage.requests.lock.locked()


def test_where_nobody_waits_nobody_is_let_pass(stage: Stage) -> None:
    with stage.requests.lock:
        stage.requests.let_pass()  # else it would wait for the lock, for ever


def test_who_lets_others_pass_counts_beside_those_who_do_already(stage: Stage) -> None:
    stage.requests.letting_pass = 1  # somebody else waits until a request has passed
    stage.requests._queued.append(object())
    stage.requests.let_pass()
    assert stage.requests.letting_pass == 1


class InterruptedLock:
    """A lock that is held; a signal's handler raises in whoever waits for it."""

    def locked(self) -> bool:
        return True

    def __enter__(self) -> None:
        raise KeyboardInterrupt

    def __exit__(self, *_: object) -> None:
        raise AssertionError("it was never held")


def test_who_is_interrupted_while_it_waits_leaves_the_queue(stage: Stage) -> None:
    """Else whoever has much to do would let it pass for ever."""
    other = object()
    stage.requests._queued.append(other)
    stage.requests.lock = InterruptedLock()  # type: ignore[assignment]
    with pytest.raises(KeyboardInterrupt):
        stage.requests.submit(stage.group(1))
    assert list(stage.requests._queued) == [other]


def test_a_request_that_is_refused_leaves_the_queue_too(stage: Stage) -> None:
    with stage.requests.lock:
        passer = Passer(stage)
        stage.requests.life.fail(MemoryError())
    passer.join()
    assert not passer.passed.is_set()


# -- the disk ------------------------------------------------------------------------------


def test_without_a_disk_all_is_synced_at_once(stage: Stage) -> None:
    told: list[int] = []
    stage.requests.log.add_listener(lambda: told.append(1))
    stage.requests.sync(stage.requests.submit(stage.group(1)))
    assert told == [1]


def test_a_sync_reaches_the_disk_up_to_its_record_whatever_a_commit_promises(
    disk: MemoryFileSystem,
) -> None:
    with open_log(disk, durability="interval") as log:
        log.start()
        stage = Stage(log)
        lsn = stage.requests.submit(stage.group(1))
        stage.requests.commit(lsn)
        assert log.durable_lsn == 0
        stage.requests.sync(lsn)
        assert log.durable_lsn == lsn


def test_where_a_commit_waits_for_no_disk_it_says_that_the_disk_failed_before(
    disk: MemoryFileSystem,
) -> None:
    with open_log(disk, durability="interval") as log:
        log.start()
        requests = Stage(log).requests
        lsn = requests.submit(lambda _: [b"\x40"])
        disk.fail("datasync", errno.EIO)
        with pytest.raises(CommitUnknownError):
            requests.sync(lsn)
        for call in (lambda: requests.commit(lsn), requests.admit):
            with pytest.raises(EngineFailedError, match="the disk failed") as found:
                call()
            assert found.value.__cause__ is not None


def test_a_log_that_is_closed_under_a_caller_is_a_closed_engine(
    on_disk: Stage,
) -> None:
    requests = on_disk.requests
    lsn = requests.submit(on_disk.group(1))
    requests.log.close()
    for call in (
        lambda: requests.submit(on_disk.group(2)),
        lambda: requests.make_room(urgent=False),
    ):
        with pytest.raises(EngineClosedError, match=CLOSED) as found:
            call()
        assert isinstance(found.value.__cause__, LogClosedError)
    assert on_disk.numbers() == [1]
    for wait in (requests.commit, requests.sync, requests.commit_soon):
        wait(lsn)  # the close made it durable


def test_new_work_leaves_the_reserve_to_what_removes_work(
    disk: MemoryFileSystem,
) -> None:
    with open_log(disk, segment_size_bytes=5120, reserve_bytes=1) as log:
        log.start()
        stage = Stage(log)
        stage.requests.make_room(urgent=False)
        disk.capacity_bytes = disk.used_bytes
        fill(stage)
        with pytest.raises(DiskFullError):
            stage.requests.submit(stage.group(1, size=500))
        with pytest.raises(DiskFullError):
            stage.requests.transact(stage.group(1, size=500))
        with pytest.raises(RoomNeededError):
            stage.requests.submit_now(stage.group(1, size=500))
        stage.requests.transact(stage.group(2, size=500), urgent=True)
        assert stage.numbers()[-1] == 2


def test_new_work_waits_while_too_much_is_unsynced_and_what_removes_work_does_not(
    disk: MemoryFileSystem,
) -> None:
    with open_log(disk, segment_size_bytes=4 << 20, durability="interval") as log:
        log.start()
        requests = Stage(log).requests
        while not requests.congested:
            requests.submit(lambda _: [b"\x40"] * 22_000)
        requests.transact(lambda _: [b"\x40"], urgent=True)
        assert log.durable_lsn == 0
        lsn = requests.transact(lambda _: [b"\x40"])
        assert log.durable_lsn == lsn - 1


# -- a fork --------------------------------------------------------------------------------


def test_in_a_forked_child_all_is_refused_though_the_parent_held_the_lock(
    on_disk: Stage,
) -> None:
    requests, log = on_disk.requests, on_disk.requests.log
    assert isinstance(log, Log)
    lsn = requests.submit(on_disk.group(1))
    assert requests.lock.acquire(blocking=False)
    requests.letting_pass = 1
    requests.leave_to_parent()
    log.leave_to_parent()
    for call in (
        requests.require_alive,
        requests.admit,
        lambda: requests.submit(on_disk.group(2)),
        lambda: requests.submit_each([on_disk.group(2)]),
        lambda: requests.make_room(urgent=True),
        lambda: requests.commit(lsn),
        lambda: requests.sync(lsn),
        lambda: requests.commit_soon(lsn),
    ):
        with pytest.raises(EngineClosedError, match="a fork of the engine's owner"):
            call()
    assert on_disk.numbers() == [1]
    assert not requests.letting_pass
    requests._queued.append(object())
    requests.let_pass()
