"""The short way of a request, on both bodies: the same as the general way, or nothing."""

from __future__ import annotations

import functools
import inspect
import math
import random
from collections.abc import Callable
from typing import Any

import pytest

from tests.engine.lane_bodies import LANES, CompiledLane, needs_the_compiled_lane
from tests.engine.stage import (
    SECOND_NS,
    SMALL,
    CountingClock,
    fill_up,
    repeat_until,
)
from timingwheel.engine.arguments import (
    BATCH_BYTES_MAX,
    BATCH_TIMERS_MAX,
    PAYLOAD_BYTES_MAX,
)
from timingwheel.engine.core import EngineCore
from timingwheel.engine.lane import DELAY_MAX_S, Lane
from timingwheel.engine.records import (
    DEADLINE_MAX_NS,
    Base,
    clock_stepped,
    timer_scheduled,
)
from timingwheel.engine.timers import Timers
from timingwheel.engine.volatile import VolatileLog
from wal.errors import DiskFullError
from wal.frame import decode_records
from wal.log import Log
from wal.testing import MemoryFileSystem

MakeLane = type[Lane]


@pytest.fixture(params=LANES)
def make_lane(request: pytest.FixtureRequest) -> MakeLane:
    made: MakeLane = request.param
    return made


def opened(disk: MemoryFileSystem, clock: CountingClock) -> Timers:
    log = Log.open(disk, wall_ns=clock.wall_ns, **SMALL, background=False)
    return Timers(log, clock, may_wait=True)


def written(disk: MemoryFileSystem, clock: CountingClock) -> list[bytes]:
    """Return the records that a killed process left."""
    log = Log.open(disk, wall_ns=clock.wall_ns, **SMALL, background=False)
    found = [one for group in log.groups() for one in decode_records(group.body)]
    log.close()
    return found


def test_what_the_lane_does_is_what_the_general_way_does(
    make_lane: MakeLane, clock: CountingClock, rng: random.Random
) -> None:
    disks = MemoryFileSystem(), MemoryFileSystem()
    general, quick = (opened(disk, clock) for disk in disks)
    lane = make_lane(quick.core)
    for _ in range(60):
        delays: list[Any] = [rng.choice([0, 0.0, -0.0, 3, 1e-9, rng.random() * 1e4])]
        payloads = [rng.randbytes(rng.choice((0, 1, 100, 700)))]
        if rng.random() < 0.5:
            timer_id, lsn = general.schedule(delays[0], payloads[0])
            assert lane.schedule(delays[0], payloads[0]) == timer_id == lsn
        else:
            delays += [rng.random() for _ in range(rng.randrange(9))]
            payloads += [rng.randbytes(9) for _ in delays[1:]]
            ids, lsn = general.schedule_many(delays, payloads)
            assert lane.schedule_many(delays, payloads) == ids[0]
        clock.advance(0.1)
        assert quick.core.applied_lsn == lsn
    assert quick.first(999) == general.first(999)
    for timers in (general, quick):
        timers.core.commit(timers.core.log.appended_lsn)
        timers.core.check()
    assert general.core.step(999).timers == quick.core.step(999).timers
    quick.core.check()
    left = [written(disk.crashed("none"), clock) for disk in disks]
    assert left[0] == left[1]


def test_a_change_by_the_lane_is_what_the_general_way_makes_of_it(
    make_lane: MakeLane, clock: CountingClock, rng: random.Random
) -> None:
    """Timers that wait, have fired, follow the wall clock, are gone or never were."""
    disks = MemoryFileSystem(), MemoryFileSystem()
    general, quick = (opened(disk, clock) for disk in disks)
    lane = make_lane(quick.core)
    ids: list[int] = []
    went = 0
    for _ in range(400):
        if rng.random() < 0.5:
            delay, is_wall = rng.random() * 9, rng.random() < 0.2
            at_ns = clock.wall_ns() + rng.randrange(-SECOND_NS, 9 * SECOND_NS)
            for timers in (general, quick):
                if is_wall:
                    timer_id, _ = timers.schedule_at(at_ns, b"wall")
                else:
                    timer_id, _ = timers.schedule(delay, b"p")
            ids.append(timer_id)
        else:
            some_id = rng.choice([10**9, *ids])
            if rng.random() < 0.5:
                expected = general.cancel(some_id)
                lsn = lane.cancel(some_id)
                if not lsn:
                    assert quick.cancel(some_id) == expected
            else:
                delay = rng.choice([0, rng.random() * 9])
                expected = general.reschedule(some_id, delay)
                lsn = lane.reschedule(some_id, delay)
                if not lsn:
                    assert quick.reschedule(some_id, delay) == expected
            if lsn:
                went += 1
                assert expected == (True, lsn)
                assert quick.core.applied_lsn == lsn
        if rng.random() < 0.2:
            clock.advance(rng.random())
            due = general.core.step(9).timers
            assert quick.core.step(9).timers == due
            for timer_id in due[::2]:
                assert general.begin(timer_id) == quick.begin(timer_id)
    assert went > 20, "the lane refused nearly all"
    assert quick.first(999) == general.first(999)
    for timers in (general, quick):
        timers.core.commit(timers.core.log.appended_lsn)
        timers.core.check()
    left = [written(disk.crashed("none"), clock) for disk in disks]
    assert left[0] == left[1]


@pytest.mark.parametrize(
    "timer_id", [0, -1, 2, 3, 4, 2**70, -(2**70), True, 1.0, "1", None]
)
def test_what_does_not_wait_in_the_wheel_is_not_changed_by_the_lane(
    make_lane: MakeLane, clock: CountingClock, timer_id: Any
) -> None:
    timers = Timers(VolatileLog(), clock, may_wait=True)
    lane, core = make_lane(timers.core), timers.core
    for delay in (5, 0, 0):
        timers.schedule(delay, b"")
    timers.schedule_at(clock.wall_ns() + SECOND_NS, b"")
    clock.advance(0.01)
    assert core.step(9).timers == [2, 3]
    before = core.log.appended_lsn
    assert lane.cancel(timer_id) == 0
    assert lane.reschedule(timer_id, 9) == 0
    assert core.log.appended_lsn == before
    core.check()


def test_a_timer_that_goes_ahead_or_is_held_is_not_changed_by_the_lane(
    make_lane: MakeLane, clock: CountingClock
) -> None:
    timers = Timers(VolatileLog(), clock, may_wait=True)
    lane, core = make_lane(timers.core), timers.core
    ids = [timers.schedule(0, b"")[0] for _ in range(2)]
    clock.advance(0.01)
    now = core.now()
    taken, armed = core.state.take_due(now, 9)
    core.state.put_back(taken[:1], armed, now)
    core.state.hold(taken[1])
    assert [lane.cancel(timer_id) for timer_id in ids] == [0, 0]
    assert [lane.reschedule(timer_id, 1) for timer_id in ids] == [0, 0]
    core.check()


@pytest.mark.parametrize("delay", [-1, math.nan, DELAY_MAX_S, 1 << 70, True, "1"])
def test_an_unusual_delay_reschedules_nothing(
    make_lane: MakeLane, clock: CountingClock, delay: Any
) -> None:
    timers = Timers(VolatileLog(), clock, may_wait=True)
    lane = make_lane(timers.core)
    assert lane.schedule(5, b"") == 1
    assert lane.reschedule(1, delay) == 0
    assert timers.core.log.appended_lsn == 1
    assert lane.reschedule(1, 7) == 2


@pytest.mark.parametrize(
    ("delay", "payload"),
    [
        (-1, b""),
        (-0.1, b""),
        (math.nan, b""),
        (math.inf, b""),
        (DELAY_MAX_S + 1, b""),
        (float(DELAY_MAX_S) * 2, b""),
        (DELAY_MAX_S, b""),  # beyond 2262 from where the clock stands
        (1 << 70, b""),
        (True, b""),
        ("1", b""),
        (None, b""),
        (1, "p"),
        (1, bytearray(b"p")),
        (1, None),
        (1, bytes(PAYLOAD_BYTES_MAX + 1)),
    ],
)
def test_what_is_unusual_goes_the_general_way_and_nothing_has_changed(
    make_lane: MakeLane, clock: CountingClock, delay: Any, payload: Any
) -> None:
    timers = Timers(VolatileLog(), clock, may_wait=True)
    lane = make_lane(timers.core)
    assert lane.schedule(delay, payload) == 0
    assert lane.schedule_many([1, delay], [b"", payload]) == 0
    assert timers.core.log.appended_lsn == 0
    assert lane.schedule(5, b"p") == 1
    timers.core.check()


def test_up_to_the_last_deadline_the_lane_goes_and_no_further(
    make_lane: MakeLane, clock: CountingClock
) -> None:
    timers = Timers(VolatileLog(), clock, may_wait=True)
    lane, core = make_lane(timers.core), timers.core
    clock.advance(ns=(DEADLINE_MAX_NS - core.elapsed_ns()) % SECOND_NS)
    delay = (DEADLINE_MAX_NS - core.elapsed_ns()) // SECOND_NS
    assert lane.schedule(delay, b"") == 1
    assert lane.schedule_many([1, delay], [b"", b""]) == 2
    assert lane.reschedule(1, delay) == 4
    clock.advance(ns=1)
    assert lane.schedule(delay, b"") == 0
    assert lane.schedule_many([1, delay], [b"", b""]) == 0
    assert lane.reschedule(1, delay) == 0
    slots = [core.state.slot_of(timer_id) for timer_id in (1, 3)]
    assert [core.state.table.deadline_ns(slot) for slot in slots] == [
        DEADLINE_MAX_NS
    ] * 2
    core.check()


@pytest.mark.parametrize("delay", [0, 0.0, DELAY_MAX_S, float(DELAY_MAX_S)])
def test_no_delay_and_the_longest_of_all_go_by_the_lane(
    make_lane: MakeLane, delay: float
) -> None:
    early = CountingClock(wall_ns=SECOND_NS)
    timers = Timers(VolatileLog(), early, may_wait=True)
    lane = make_lane(timers.core)
    assert lane.schedule(delay, b"") == 1
    assert lane.schedule_many([delay], [b""]) == 2
    assert lane.reschedule(1, delay) == 3
    deadline_ns = SECOND_NS + int(delay) * SECOND_NS
    assert [timer.deadline_ns for timer in timers.first(9)] == [deadline_ns] * 2


def test_the_largest_payload_and_the_largest_batch_go_by_the_lane(
    make_lane: MakeLane, clock: CountingClock
) -> None:
    timers = Timers(VolatileLog(), clock, may_wait=True)
    lane = make_lane(timers.core)
    largest = bytes(PAYLOAD_BYTES_MAX)
    assert lane.schedule(1, largest) == 1
    assert lane.schedule_many([1], [largest]) == 2
    parts, left = divmod(BATCH_BYTES_MAX, PAYLOAD_BYTES_MAX)
    payloads = [largest] * parts + [bytes(left)]
    assert lane.schedule_many([1] * len(payloads), payloads) == 3
    assert (
        lane.schedule_many([1] * len(payloads), [*payloads[:-1], bytes(left + 1)]) == 0
    )
    most = [1] * BATCH_TIMERS_MAX
    assert lane.schedule_many(most, [b""] * len(most)) == 3 + len(payloads)


def test_while_too_much_is_unsynced_the_lane_takes_only_what_removes_work(
    make_lane: MakeLane, clock: CountingClock
) -> None:
    """And what moves it; new timers have to wait, which the general way does."""
    log = Log.open(
        MemoryFileSystem(),
        wall_ns=clock.wall_ns,
        segment_size_bytes=4 << 20,
        durability="interval",
        background=False,
    )
    timers = Timers(log, clock, may_wait=True)
    lane, core = make_lane(timers.core), timers.core
    first = lane.schedule(9, b"")
    while not log.congested:
        core.submit(lambda _: [clock_stepped(0)] * 22_000)
    assert (lane.schedule(1, b""), lane.schedule_many([1], [b""])) == (0, 0)
    before = log.appended_lsn
    assert lane.reschedule(first, 7) == before + 1
    assert lane.cancel(first) == before + 2
    log.sync()
    assert lane.schedule(1, b"") == before + 3
    core.close()


def _transact(core: EngineCore, record: bytes) -> None:
    core.transact(lambda _: [record])


@pytest.mark.parametrize(
    "change",
    [lambda lane: lane.cancel(1), lambda lane: lane.reschedule(1, 7)],
    ids=["cancel", "reschedule"],
)
def test_on_a_full_disk_the_lane_leaves_the_reserve_to_what_removes_work(
    make_lane: MakeLane, clock: CountingClock, change: Callable[[Lane], int]
) -> None:
    disk = MemoryFileSystem()
    log = Log.open(
        disk,
        wall_ns=clock.wall_ns,
        segment_size_bytes=5120,
        reserve_bytes=1,
        background=False,
    )
    timers = Timers(log, clock, may_wait=True)
    lane, core = make_lane(timers.core), timers.core
    assert lane.schedule(9, b"") == 1
    core.make_room(urgent=False)  # one segment, and one in reserve
    disk.capacity_bytes = disk.used_bytes
    for size in (500, 20, 0):
        record = timer_scheduled(Base.WALL, 1 << 62, bytes(size))
        repeat_until(DiskFullError, functools.partial(_transact, core, record))
    assert (lane.schedule(9, b""), lane.schedule_many([9], [b""])) == (0, 0)
    before = log.appended_lsn
    assert change(lane) == before + 1
    core.check()
    disk.capacity_bytes = None
    core.close()


@pytest.mark.parametrize(
    ("delays", "payloads"),
    [
        ([], []),
        ([1], []),
        ((1,), (b"",)),
        ([1] * (BATCH_TIMERS_MAX + 1), [b""] * (BATCH_TIMERS_MAX + 1)),
        ([1] * 5, [bytes(BATCH_BYTES_MAX // 5 + 1)] * 5),
        (None, None),
    ],
)
def test_a_batch_of_another_shape_goes_the_general_way(
    make_lane: MakeLane, clock: CountingClock, delays: Any, payloads: Any
) -> None:
    timers = Timers(VolatileLog(), clock, may_wait=True)
    assert make_lane(timers.core).schedule_many(delays, payloads) == 0
    assert timers.core.log.appended_lsn == 0


def test_who_has_to_wait_or_is_refused_goes_the_general_way(
    make_lane: MakeLane, clock: CountingClock
) -> None:
    disk = MemoryFileSystem()
    timers = opened(disk, clock)
    lane, core = make_lane(timers.core), timers.core
    first, _ = timers.schedule(9, b"")
    with core.lock:
        assert (lane.schedule(1, b""), lane.schedule_many([1], [b""])) == (0, 0)
        assert (lane.cancel(first), lane.reschedule(first, 1)) == (0, 0)
    many = fill_up(core, disk) + 1
    assert lane.schedule(1, bytes(9_999)) == 0
    assert lane.schedule_many([1] * 99, [bytes(999)] * 99) == 0
    assert not core.lock.locked()
    assert len(timers) == many
    assert lane.reschedule(first, 9) == 0
    assert lane.cancel(first) == 0
    assert not core.lock.locked()
    assert len(timers) == many
    disk.capacity_bytes = None
    core.close()
    assert (lane.schedule(1, b""), lane.schedule_many([1], [b""])) == (0, 0)
    assert (lane.cancel(first), lane.reschedule(first, 1)) == (0, 0)
    assert not core.lock.locked()


def test_after_an_engine_ended_the_lane_takes_nothing(
    make_lane: MakeLane, clock: CountingClock
) -> None:
    """Though its log would: a change was cut off, or the parent of a fork has it."""
    for end in (
        lambda core: core.life.fail(MemoryError()),
        lambda core: core.life.leave_to_parent(),
    ):
        timers = Timers(VolatileLog(), clock, may_wait=True)
        lane, core = make_lane(timers.core), timers.core
        first = lane.schedule(9, b"")
        end(core)
        assert (lane.schedule(1, b""), lane.schedule_many([1], [b""])) == (0, 0)
        assert (lane.cancel(first), lane.reschedule(first, 1)) == (0, 0)
        assert core.log.appended_lsn == 1


def test_the_tick_thread_is_woken_for_an_earlier_timer_alone(
    make_lane: MakeLane, clock: CountingClock
) -> None:
    timers = Timers(VolatileLog(), clock, may_wait=True)
    lane, core = make_lane(timers.core), timers.core
    assert lane.schedule(50, b"") == 1
    due_ns = core.state.timeline.due_ns(
        Base.ELAPSED, core.elapsed_ns() + 50 * SECOND_NS
    )
    for wake_at_ns, is_woken in (
        (None, True),
        (clock.monotonic_ns() + 90 * SECOND_NS, True),
        (clock.monotonic_ns() + 9 * SECOND_NS, False),
        (-1, False),  # it is awake
    ):
        core.wake_at_ns = wake_at_ns
        assert lane.schedule(50, b"")
        assert (core.wake_at_ns == due_ns) == is_woken
        core.wake_at_ns = wake_at_ns
        assert lane.reschedule(1, 50)
        assert (core.wake_at_ns == due_ns) == is_woken


@needs_the_compiled_lane
@pytest.mark.parametrize("name", ["schedule", "schedule_many", "reschedule", "cancel"])
def test_a_method_takes_the_same_arguments_on_both_bodies(name: str) -> None:
    plain, compiled = (
        [*inspect.signature(getattr(body, name)).parameters]
        for body in (Lane, CompiledLane)
    )
    assert compiled == plain
    assert inspect.getdoc(getattr(CompiledLane, name))
