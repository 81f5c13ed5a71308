"""The line that every change follows, and the seam with whoever owns the timers."""

from __future__ import annotations

import errno
import functools
import threading
from collections.abc import Callable, Iterator

import pytest

from tests.engine.stage import (
    PATIENCE_S,
    SECOND_NS,
    SMALL,
    CountingClock,
    Door,
    GatedDisk,
    fill_up,
    repeat_until,
)
from timingwheel.engine.core import AWAKE, DISK_FULL_RETRY_NS, EngineCore
from timingwheel.engine.owner import Due
from timingwheel.engine.records import (
    Base,
    TimerId,
    timer_cancelled,
    timer_fired,
    timer_scheduled,
)
from timingwheel.engine.timeline import Now
from timingwheel.engine.volatile import VolatileLog
from timingwheel.errors import EngineClosedError, EngineFailedError
from wal.errors import (
    CommitUnknownError,
    DiskFullError,
    RecordTooLargeError,
    StoreInUseError,
)
from wal.frame import RECORD_OVERHEAD_BYTES
from wal.log import JOINED_BYTES, Log, RoomNeededError
from wal.testing import MemoryFileSystem


class Firing:
    """An owner that fires what is due, and notes what it was asked."""

    def __init__(self) -> None:
        self.asked: list[Due] = []
        self.applied: list[tuple[int, bytes]] = []
        self.refuse: Exception | None = None

    def decide_due(self, due: Due) -> list[bytes]:
        self.asked.append(due)
        if self.refuse is not None:
            raise self.refuse
        return [timer_fired(timer_id, 1) for timer_id in due.timers]

    def apply(self, records: list[tuple[int, bytes]]) -> None:
        self.applied += records

    def dump(self) -> Iterator[bytes]:
        return iter(())

    def load(self, blob: bytes) -> None:
        raise AssertionError(blob)


@pytest.fixture
def owner() -> Firing:
    return Firing()


OpenCore = Callable[..., EngineCore]


@pytest.fixture
def open_core(owner: Firing, clock: CountingClock) -> Iterator[OpenCore]:
    """Opens cores that step by hand; `background` gives the log its threads."""
    cores: list[EngineCore] = []

    def open_one(
        disk: MemoryFileSystem | None = None,
        *,
        segment_size_bytes: int = SMALL["segment_size_bytes"],
        background: bool = False,
    ) -> EngineCore:
        if disk is None:
            core = EngineCore(VolatileLog(), owner, clock)
        else:
            log = Log.open(
                disk,
                wall_ns=clock.wall_ns,
                segment_size_bytes=segment_size_bytes,
                reserve_bytes=1,
                background=background,
            )
            core = EngineCore(log, owner, clock)
        cores.append(core)
        return core

    yield open_one
    for core in cores:
        core.close()


def delay(core: EngineCore, seconds: float, payload: bytes = b"") -> bytes:
    deadline_ns = core.elapsed_ns() + int(seconds * SECOND_NS)
    return timer_scheduled(Base.ELAPSED, deadline_ns, payload)


def test_a_group_is_numbered_from_what_decide_was_told(open_core: OpenCore) -> None:
    core = open_core(MemoryFileSystem())
    told: list[int] = []

    def decide(first_lsn: int) -> list[bytes]:
        told.append(first_lsn)
        return [delay(core, 1), delay(core, 2)]

    assert core.transact(decide) == 2
    assert core.transact(decide) == 4
    assert told == [1, 3]
    assert core.state.table.timer_ids() == [1, 2, 3, 4]
    assert core.log.durable_lsn == 4
    core.check()


def test_submit_applies_at_once_and_leaves_the_disk_to_commit(
    open_core: OpenCore,
) -> None:
    disk = MemoryFileSystem()
    core = open_core(disk)
    calls = disk.calls
    lsn = core.submit(lambda _: [delay(core, 1)])
    assert (disk.calls, core.log.durable_lsn) == (calls, 0)
    assert len(core.state.table) == 1
    core.commit(lsn)
    assert core.log.durable_lsn == 1


def test_a_reply_without_events_depends_on_all_that_was_appended_before(
    open_core: OpenCore,
) -> None:
    """What was decided may rest on records that are not durable yet."""
    core = open_core(MemoryFileSystem())
    core.submit(lambda _: [delay(core, 1)])
    assert core.submit(lambda _: []) == 1
    assert core.transact(lambda _: []) == 1
    assert core.log.durable_lsn == 1


def test_what_decide_raises_is_raised_and_nothing_has_changed(
    open_core: OpenCore,
) -> None:
    core = open_core(MemoryFileSystem())

    def decide(_: int) -> list[bytes]:
        raise LookupError("no")

    with pytest.raises(LookupError):
        core.transact(decide)
    assert core.log.appended_lsn == 0
    assert core.transact(lambda _: [delay(core, 1)]) == 1


def test_when_the_segment_is_full_decide_is_asked_again(open_core: OpenCore) -> None:
    core = open_core(MemoryFileSystem(), segment_size_bytes=5120)
    asked: list[int] = []

    def decide(first_lsn: int) -> list[bytes]:
        asked.append(first_lsn)
        return [delay(core, 9, bytes(500))]

    for lsn in range(1, 10):
        assert core.transact(decide) == lsn
    assert len(asked) > 9, "no segment was ever full"
    assert sorted(set(asked)) == list(range(1, 10))
    assert core.state.table.timer_ids() == list(range(1, 10))
    # For event loops, which must not wait:
    repeat_until(RoomNeededError, lambda: core.commit(core.submit_now(decide)))


def test_a_step_fires_what_is_due_and_says_so_when_it_is_durable(
    open_core: OpenCore, owner: Firing, clock: CountingClock
) -> None:
    core = open_core(MemoryFileSystem())
    core.transact(lambda _: [delay(core, 1), delay(core, 2), delay(core, 1)])
    assert core.step(10) == Due([], [], 4, owner_now(core, clock))
    assert owner.asked == []
    clock.advance(1.1)
    due = core.step(10)
    assert due == Due([TimerId(1), TimerId(3)], [], 4, owner_now(core, clock))
    assert owner.asked == [due]
    assert core.log.durable_lsn == 5
    core.check()


def owner_now(core: EngineCore, clock: CountingClock) -> Now:
    return core.state.timeline.now(clock.read())


def test_a_step_takes_no_more_than_its_limit(
    open_core: OpenCore, clock: CountingClock
) -> None:
    core = open_core()
    core.transact(lambda _: [delay(core, 1)] * 5)
    clock.advance(2)
    assert core.step(2).timers == [1, 2]
    assert core.step(0).timers == []
    assert core.step(9).timers == [3, 4, 5]


def test_a_step_whose_events_fit_no_frame_fires_fewer_at_a_time(
    open_core: OpenCore, clock: CountingClock
) -> None:
    core = open_core(MemoryFileSystem(), segment_size_bytes=5120)
    for _ in range(10):
        core.transact(lambda _: [delay(core, 1)] * 20)
    clock.advance(2)
    fired: list[int] = []
    while timers := core.step(4096).timers:
        fired += timers
    assert fired == list(range(1, 201))
    core.check()


def test_a_single_event_that_fits_no_frame_is_an_error_and_stays_due(
    open_core: OpenCore, owner: Firing, clock: CountingClock
) -> None:
    core = open_core(MemoryFileSystem(), segment_size_bytes=5120)
    core.transact(lambda _: [delay(core, 1)] * 2)
    owner.decide_due = lambda due: [bytes(2000)]  # type: ignore[method-assign]
    clock.advance(2)
    with pytest.raises(RecordTooLargeError):
        core.step(9)
    del owner.decide_due
    assert core.step(9).timers == [1, 2]


def test_a_step_goes_down_to_one_timer_if_the_events_of_two_fit_no_frame(
    open_core: OpenCore, owner: Firing, clock: CountingClock
) -> None:
    core = open_core(MemoryFileSystem(), segment_size_bytes=5120)
    owner.decide_due = lambda due: [  # type: ignore[method-assign]
        event
        for timer_id in due.timers
        for event in (timer_fired(timer_id, 1), bytes([64]) + bytes(500))
    ]
    core.transact(lambda _: [delay(core, 1)] * 2)
    clock.advance(2)
    assert [core.step(2).timers for _ in range(3)] == [[1], [2], []]
    assert len(owner.applied) == 2


def test_what_an_owner_cannot_decide_stays_due_in_its_order(
    open_core: OpenCore, owner: Firing, clock: CountingClock
) -> None:
    core = open_core()
    core.transact(lambda _: [delay(core, 1)] * 4)
    clock.advance(2)
    owner.refuse = LookupError("not now")
    with pytest.raises(LookupError):
        core.step(2)
    core.check()
    owner.refuse = None
    assert core.step(9).timers == [1, 2, 3, 4]


def test_an_owner_that_forgets_a_due_timer_is_a_bug_that_shows(
    open_core: OpenCore, owner: Firing, clock: CountingClock
) -> None:
    core = open_core()
    core.transact(lambda _: [delay(core, 1)])
    owner.decide_due = lambda due: []  # type: ignore[method-assign]
    clock.advance(2)
    with pytest.raises(AssertionError, match=r"nothing was decided for \[1\]"):
        core.step(9)


def test_a_step_of_the_clock_is_logged_in_one_group_with_what_came_due(
    open_core: OpenCore, owner: Firing, clock: CountingClock
) -> None:
    core = open_core(MemoryFileSystem())
    core.transact(lambda _: [delay(core, 1)])
    clock.advance(2)
    clock.step(1800 * SECOND_NS)
    assert core.step(9).timers == [1]
    assert owner.asked[0].first_lsn == 3  # behind the record of the step
    assert core.state.steps_ns == 1800 * SECOND_NS
    assert core.log.appended_lsn == 3


def test_how_late_a_tick_was_counts_since_what_was_due_or_the_tick_before(
    open_core: OpenCore, clock: CountingClock
) -> None:
    core = open_core()
    core.step(9)
    core.transact(lambda _: [delay(core, 10), delay(core, 20), delay(core, 20)])
    core.step(9)
    assert sum(core.tick_lag.counts) == 0  # nothing was due

    def until_due_ns() -> int:
        due_ns = core.state.next_due_ns()
        assert due_ns is not None
        return due_ns - clock.monotonic_ns()

    while not core.step(9).timers:
        clock.advance(ns=until_due_ns())
    assert sum(core.tick_lag.counts) > 0
    assert core.tick_lag.sum_ns == 0
    early_ns = until_due_ns()
    clock.advance(20)
    assert len(core.step(1).timers) == 1
    late_ns = 20 * SECOND_NS - early_ns
    assert core.tick_lag.sum_ns == late_ns
    clock.advance(1)
    assert len(core.step(1).timers) == 1  # due by the tick before, whose limit left it
    assert core.tick_lag.sum_ns == late_ns + SECOND_NS


# -- unlogged timers -----------------------------------------------------------------------


def test_an_armed_timer_comes_as_its_token_and_no_crash_survives_it(
    open_core: OpenCore, clock: CountingClock
) -> None:
    disk = MemoryFileSystem()
    core = open_core(disk)
    with core.lock:
        core.arm(core.elapsed_ns() + SECOND_NS, 0)
        core.arm(core.elapsed_ns() + SECOND_NS, 77)
        gone = core.arm(core.elapsed_ns() + SECOND_NS, 5)
        assert core.disarm(gone)
        assert not core.disarm(gone)
    core.check()
    clock.advance(1.1)
    assert core.step(9).armed == [0, 77]
    with core.lock:
        core.arm(core.elapsed_ns(), 6)
    heir = open_core(disk.killed())
    clock.advance(9)
    assert heir.step(9).armed == []


def test_an_armed_wall_timer_that_the_clock_has_passed_is_disarmed_by_its_names(
    open_core: OpenCore, clock: CountingClock
) -> None:
    core = open_core()
    passed_ns = clock.wall_ns() - SECOND_NS
    core.step(9)
    with core.lock:
        handles = [core.arm(passed_ns, token, base=Base.WALL) for token in (5, 0, 6)]
        disarm = functools.partial(
            core.disarm, handles[0], base=Base.WALL, deadline_ns=passed_ns
        )
        assert not disarm(token=7)
        assert disarm(token=5)
        assert not disarm(token=5)
    assert core.step(9).armed == [6, 0]


# -- time ----------------------------------------------------------------------------------


def test_a_step_of_the_clock_is_logged_durably_though_nothing_is_due(
    open_core: OpenCore, clock: CountingClock
) -> None:
    """Else a crash would forget it, and the restart would move every delay."""
    disk = MemoryFileSystem()
    core = open_core(disk)
    core.transact(lambda _: [delay(core, 3600)])
    clock.step(1800 * SECOND_NS)
    core.step(9)
    assert core.state.steps_ns == 1800 * SECOND_NS
    heir = open_core(disk.crashed("none"))
    clock.advance(3599)
    assert heir.step(9).timers == []
    clock.advance(1.1)
    assert heir.step(9).timers == [1]


def test_noise_between_the_clocks_is_not_logged(
    open_core: OpenCore, clock: CountingClock
) -> None:
    core = open_core(MemoryFileSystem())
    clock.step(999_999)
    core.step(9)
    clock.step(-1_999_998)
    core.step(9)
    assert core.log.appended_lsn == 0


def test_closing_logs_a_step_that_no_tick_has_seen(
    open_core: OpenCore, clock: CountingClock
) -> None:
    disk = MemoryFileSystem()
    core = open_core(disk)
    core.transact(lambda _: [delay(core, 3600)])
    clock.step(7200 * SECOND_NS)
    core.close()
    heir = open_core(disk)
    assert heir.step(9).timers == []
    clock.advance(3600.1)
    assert heir.step(9).timers == [1]


def test_a_clock_set_back_over_a_restart_lets_engine_time_go_on(
    open_core: OpenCore, clock: CountingClock
) -> None:
    disk = MemoryFileSystem()
    core = open_core(disk)
    core.transact(lambda _: [delay(core, 10)])
    core.close()
    clock.step(-3600 * SECOND_NS)
    heir = open_core(disk)
    clock.advance(9.9)
    assert heir.step(9).timers == []
    clock.advance(0.2)
    assert heir.step(9).timers == [1]


# -- who is woken --------------------------------------------------------------------------


def sleeper_on(core: EngineCore, clock: CountingClock) -> threading.Thread:
    """Return a thread that waits for what is due once, as the tick thread does."""

    def wait() -> None:
        with core.lock:
            core.wait_for_due()

    sleeper = threading.Thread(target=wait, daemon=True)
    sleeper.start()
    clock.settle(PATIENCE_S, threads=1)
    return sleeper


def test_only_an_earlier_timer_wakes_whoever_waits(
    open_core: OpenCore, clock: CountingClock
) -> None:
    core = open_core()
    core.transact(lambda _: [delay(core, 10)])
    sleeper = sleeper_on(core, clock)
    core.transact(lambda _: [delay(core, 20)])
    core.transact(lambda _: [timer_cancelled(1)])
    clock.settle(PATIENCE_S, threads=1)
    core.transact(lambda _: [delay(core, 1)])
    sleeper.join(PATIENCE_S)
    assert not sleeper.is_alive()


def test_an_earlier_armed_timer_wakes_too(
    open_core: OpenCore, clock: CountingClock
) -> None:
    core = open_core()
    sleeper = sleeper_on(core, clock)
    assert clock.untils == [None]
    with core.lock:
        core.arm(core.elapsed_ns() + SECOND_NS, 1)
    sleeper.join(PATIENCE_S)
    assert not sleeper.is_alive()


@pytest.mark.parametrize("later_s", [-1, 0, 1])
def test_a_wait_ends_with_what_is_due_or_at_the_moment_that_was_named(
    open_core: OpenCore, clock: CountingClock, later_s: int
) -> None:
    core = open_core()
    core.transact(lambda _: [delay(core, 100)])
    due_ns = core.state.next_due_ns()
    assert due_ns is not None
    clock.advance(200)  # so that no wait takes long
    with core.lock:
        core.wait_for_due()
        core.wait_for_due(due_ns + later_s * SECOND_NS)
    assert clock.untils == [due_ns, due_ns + min(later_s, 0) * SECOND_NS]


def test_where_nothing_is_due_a_wait_ends_at_the_moment_that_was_named(
    open_core: OpenCore, clock: CountingClock
) -> None:
    core = open_core()
    with core.lock:
        core.wait_for_due(clock.monotonic_ns())
    assert clock.untils == [clock.monotonic_ns()]


def test_of_many_who_wait_the_last_to_look_again_says_whom_a_timer_wakes(
    open_core: OpenCore, clock: CountingClock
) -> None:
    """What comes after it wakes nobody; and nobody is woken who does not wait."""
    core = open_core()
    assert core.wake_at_ns == AWAKE
    now_ns = clock.monotonic_ns()
    enough = threading.Event()

    def wait(until_ns: int) -> None:
        with core.lock:
            while clock.monotonic_ns() < until_ns and not enough.is_set():
                core.wait_for_due(until_ns)

    until = [now_ns + 10 * SECOND_NS, now_ns + 30 * SECOND_NS]
    sleepers = [
        threading.Thread(target=wait, args=(until_ns,), daemon=True)
        for until_ns in until
    ]
    for count, sleeper in enumerate(sleepers, 1):
        sleeper.start()
        clock.settle(PATIENCE_S, threads=count)
    assert core.wake_at_ns == until[1]
    core.transact(lambda _: [delay(core, 4000)])
    assert core.wake_at_ns == until[1]
    clock.advance(11)
    sleepers[0].join(PATIENCE_S)
    clock.settle(PATIENCE_S, threads=1)
    assert core.wake_at_ns == until[1]
    enough.set()
    core.transact(lambda _: [delay(core, 1)])
    sleepers[1].join(PATIENCE_S)
    assert not any(sleeper.is_alive() for sleeper in sleepers)
    assert core.wake_at_ns == AWAKE
    core.transact(lambda _: [delay(core, 0)])
    assert core.wake_at_ns == AWAKE


def test_waiting_for_space_takes_a_second(
    open_core: OpenCore, clock: CountingClock
) -> None:
    core = open_core()
    sleeper = threading.Thread(target=core.wait_for_space, daemon=True)
    sleeper.start()
    clock.settle(PATIENCE_S, threads=1)
    assert clock.untils == [clock.monotonic_ns() + DISK_FULL_RETRY_NS]
    clock.advance(1)
    sleeper.join(PATIENCE_S)
    assert not sleeper.is_alive()


# -- failures ------------------------------------------------------------------------------


def calls_of(core: EngineCore) -> list[Callable[[], object]]:
    """Return a call of each kind, none of which a core takes that has ended."""
    return [
        core.require_alive,
        core.admit,
        lambda: core.submit(lambda _: []),
        lambda: core.step(9),
        lambda: core.make_room(urgent=True),
        lambda: core.snapshot(pause=lambda: None),
    ]


def test_a_failed_sync_ends_everything_with_a_cause(
    open_core: OpenCore, clock: CountingClock
) -> None:
    disk = MemoryFileSystem()
    core = open_core(disk)
    core.transact(lambda _: [delay(core, 1)])
    lsn = core.submit(lambda _: [delay(core, 1)])
    disk.fail("datasync", errno.EIO)
    with pytest.raises(CommitUnknownError):
        core.commit(lsn)
    clock.advance(2)
    for call in calls_of(core):
        with pytest.raises(
            EngineFailedError, match="open the directory again"
        ) as found:
            call()
        assert found.value.__cause__ is not None
    core.close()


def test_after_close_every_call_says_so(open_core: OpenCore) -> None:
    core = open_core(MemoryFileSystem())
    core.close()
    core.close()
    for call in calls_of(core):
        with pytest.raises(EngineClosedError, match="closed"):
            call()


def test_a_full_disk_refuses_new_work_and_leaves_the_reserve_to_the_rest(
    open_core: OpenCore, clock: CountingClock
) -> None:
    disk = MemoryFileSystem()
    core = open_core(disk, segment_size_bytes=5120)
    core.transact(lambda _: [delay(core, 1)] * 3)
    core.make_room(urgent=False)  # one segment, and one in reserve
    disk.capacity_bytes = disk.used_bytes
    add = functools.partial(core.transact, lambda _: [delay(core, 99, bytes(200))])
    work = repeat_until(DiskFullError, add)
    assert work >= 4
    clock.advance(2)
    assert core.step(9).timers == [1, 2, 3]

    def remove_one(_: int) -> list[bytes]:
        return [timer_cancelled(core.state.table.timer_ids()[0])]

    removed = repeat_until(
        DiskFullError, lambda: core.transact(remove_one, urgent=True)
    )
    core.check()
    assert 3 <= removed < 3 + work
    disk.capacity_bytes = None
    core.transact(lambda _: [delay(core, 99)])
    core.check()


def _transact(core: EngineCore, records: list[bytes]) -> None:
    core.transact(lambda _: records)


def fill_but_the_reserve(core: EngineCore, disk: MemoryFileSystem) -> None:
    """Leave no room for one more record, but for what removes work."""
    core.make_room(urgent=False)  # one segment, and one in reserve
    disk.capacity_bytes = disk.used_bytes
    for size in (500, 20, 0):
        add = functools.partial(_transact, core, [bytes([64]) + bytes(size)])
        repeat_until(DiskFullError, add)


def test_what_is_due_fires_out_of_the_reserve_of_a_full_disk(
    open_core: OpenCore, clock: CountingClock
) -> None:
    disk = MemoryFileSystem()
    core = open_core(disk, segment_size_bytes=5120)
    core.transact(lambda _: [delay(core, 1)] * 20)
    fill_but_the_reserve(core, disk)
    clock.advance(2)
    assert core.step(20).timers == list(range(1, 21))


def test_the_one_segment_that_still_fits_the_disk_is_for_what_is_due(
    open_core: OpenCore, clock: CountingClock
) -> None:
    """New work would have to leave it in reserve."""
    disk = MemoryFileSystem()
    core = open_core(disk, segment_size_bytes=5120)
    core.transact(lambda _: [delay(core, 1)] * 4)
    fill_up(core, disk)
    disk.capacity_bytes = disk.used_bytes + 8192
    clock.advance(2)
    assert core.step(9).timers == [1, 2, 3, 4]


def test_closing_on_a_full_disk_logs_a_step_of_the_clock_out_of_the_reserve(
    open_core: OpenCore, clock: CountingClock
) -> None:
    disk = MemoryFileSystem()
    core = open_core(disk, segment_size_bytes=5120)
    core.transact(lambda _: [delay(core, 3600)])
    fill_but_the_reserve(core, disk)
    clock.step(7200 * SECOND_NS)
    core.close()
    disk.capacity_bytes = None
    assert open_core(disk).step(9).timers == []


def test_a_step_that_finds_the_disk_full_fires_the_same_later(
    open_core: OpenCore, clock: CountingClock
) -> None:
    disk = MemoryFileSystem()
    core = open_core(disk, segment_size_bytes=5120)
    core.transact(lambda _: [delay(core, 1)] * 4)
    fill_up(core, disk)
    clock.advance(2)
    for _ in range(2):
        with pytest.raises(DiskFullError):
            core.step(2)
        core.check()
    disk.capacity_bytes = None
    assert core.step(2).timers == [1, 2]
    assert core.step(2).timers == [3, 4]


def test_a_close_that_has_no_room_for_a_step_of_the_clock_closes_all_the_same(
    open_core: OpenCore, clock: CountingClock
) -> None:
    disk = MemoryFileSystem()
    core = open_core(disk, segment_size_bytes=5120)
    core.transact(lambda _: [delay(core, 1)])
    fill_up(core, disk)
    clock.step(7200 * SECOND_NS)
    core.close()
    with pytest.raises(EngineClosedError):
        core.require_alive()


def test_before_the_directory_is_let_go_all_is_durable(open_core: OpenCore) -> None:
    disk = MemoryFileSystem()
    core = open_core(disk)
    lsn = core.submit(lambda _: [delay(core, 1)])
    seen: list[int] = []

    def look() -> None:
        seen.append(core.log.durable_lsn)
        with pytest.raises(StoreInUseError):
            open_core(disk)

    core.close(before_release=look)
    assert seen == [lsn]
    open_core(disk)


def test_what_an_owner_keeps_elsewhere_is_closed_though_the_disk_fails(
    open_core: OpenCore,
) -> None:
    disk = MemoryFileSystem()
    core = open_core(disk)
    core.submit(lambda _: [delay(core, 1)])
    disk.fail("datasync", errno.EIO)
    told: list[int] = []
    with pytest.raises(CommitUnknownError):
        core.close(before_release=lambda: told.append(1))
    assert told == [1]
    core.close(before_release=lambda: told.append(2))
    assert told == [1]


def test_in_a_forked_child_who_waits_has_a_lock_that_is_free(
    open_core: OpenCore,
) -> None:
    core = open_core()
    parents = core.lock
    assert parents.acquire(blocking=False)
    core.leave_to_parent()
    with core.wake:
        assert core.lock.locked()
    assert not core.lock.locked()
    parents.release()


# -- snapshots and recovery ----------------------------------------------------------------


def test_a_snapshot_drops_the_log_that_two_of_them_cover(open_core: OpenCore) -> None:
    disk = MemoryFileSystem()
    core = open_core(disk, segment_size_bytes=5120)
    paused: list[int] = []
    for round_ in range(1, 4):
        for _ in range(20):
            core.transact(lambda _: [delay(core, 99, bytes(200))])
        info = core.snapshot(pause=lambda: paused.append(1))
        assert (info.pin_lsn, info.reach_lsn) == (20 * round_, 20 * round_)
    segments = [name for name in disk.names() if name.endswith(".seg")]
    assert len(segments) < 12
    assert len([name for name in disk.names() if name.endswith(".snap")]) == 2
    assert len(paused) >= 3
    heir = open_core(disk.crashed("none"))
    assert heir.state.table.timer_ids() == list(range(1, 61))
    assert heir.log.snapshot is not None
    assert heir.replayed_bytes == 0


def test_a_snapshot_that_is_stopped_leaves_nothing_behind(open_core: OpenCore) -> None:
    disk = MemoryFileSystem()
    core = open_core(disk)
    core.transact(lambda _: [delay(core, 99)])
    names = disk.names()

    def stop() -> None:
        raise LookupError("enough")

    with pytest.raises(LookupError):
        core.snapshot(pause=stop)
    assert disk.names() == names
    assert core.snapshot(pause=lambda: None).pin_lsn == 1


def test_a_snapshot_that_finds_the_disk_full_harms_nothing(open_core: OpenCore) -> None:
    disk = MemoryFileSystem()
    core = open_core(disk)
    core.transact(lambda _: [delay(core, 99)])
    names = disk.names()
    disk.fail("pwrite", errno.ENOSPC, name="snapshot.tmp", after=2)
    with pytest.raises(OSError, match="No space"):
        core.snapshot(pause=lambda: None)
    assert disk.names() == names
    core.transact(lambda _: [delay(core, 99)])
    assert core.snapshot(pause=lambda: None).pin_lsn == 2


def test_what_recovery_read_is_counted_over_all_of_the_log(
    open_core: OpenCore,
) -> None:
    """Bodies come joined up to JOINED_BYTES, so this log comes in three pieces."""
    disk = MemoryFileSystem()
    core = open_core(disk, segment_size_bytes=1 << 20)
    sizes = [JOINED_BYTES, JOINED_BYTES // 2, JOINED_BYTES]
    records = [delay(core, 60, bytes(size)) for size in sizes]
    left = [*records]
    while left:
        core.transact(lambda _: [left.pop(0)])
    core.close()
    body_bytes = sum(RECORD_OVERHEAD_BYTES + len(record) for record in records)
    assert open_core(disk).replayed_bytes == body_bytes


def test_how_long_recovery_took_is_counted_from_its_begin_to_its_end(
    open_core: OpenCore, owner: Firing, clock: CountingClock
) -> None:
    disk = MemoryFileSystem()
    core = open_core(disk)
    assert core.recovery_ns == 0
    core.transact(lambda _: [b"\x40"])
    core.close()
    owner.apply = lambda records: clock.advance(ns=3)  # type: ignore[method-assign]
    assert open_core(disk).recovery_ns == 3


def test_followers_share_the_sync_of_a_step(
    open_core: OpenCore, clock: CountingClock
) -> None:
    """A fire waits for the same commit as everybody, and leaves only then."""
    disk = GatedDisk()
    core = open_core(disk)
    core.transact(lambda _: [delay(core, 1)])
    clock.advance(2)
    gate = disk.gate = Door()
    fired: list[int] = []
    tick = threading.Thread(target=lambda: fired.extend(core.step(9).timers))
    tick.start()
    gate.await_somebody()
    assert fired == []
    assert core.log.durable_lsn == 1
    gate.open()
    tick.join(PATIENCE_S)
    assert fired == [1]
