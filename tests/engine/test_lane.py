"""The short way of a request, on both bodies: the same as the general way, or nothing."""

from __future__ import annotations

import inspect
import math
import random
from typing import Any

import pytest

from tests.engine.lane_bodies import LANES, CompiledLane, needs_the_compiled_lane
from tests.engine.stage import SECOND_NS, SMALL, CountingClock, fill_up
from timingwheel.engine.arguments import (
    BATCH_BYTES_MAX,
    BATCH_TIMERS_MAX,
    PAYLOAD_BYTES_MAX,
)
from timingwheel.engine.lane import DELAY_MAX_S, Lane
from timingwheel.engine.records import Base
from timingwheel.engine.timers import Timers
from timingwheel.engine.volatile import VolatileLog
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
    with core.lock:
        assert (lane.schedule(1, b""), lane.schedule_many([1], [b""])) == (0, 0)
    many = fill_up(core, disk)
    assert lane.schedule(1, bytes(9_999)) == 0
    assert lane.schedule_many([1] * 99, [bytes(999)] * 99) == 0
    assert not core.lock.locked()
    assert len(timers) == many
    disk.capacity_bytes = None
    core.close()
    assert (lane.schedule(1, b""), lane.schedule_many([1], [b""])) == (0, 0)
    assert not core.lock.locked()


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


@needs_the_compiled_lane
@pytest.mark.parametrize("name", ["schedule", "schedule_many"])
def test_a_method_takes_the_same_arguments_on_both_bodies(name: str) -> None:
    plain, compiled = (
        [*inspect.signature(getattr(body, name)).parameters]
        for body in (Lane, CompiledLane)
    )
    assert compiled == plain
    assert inspect.getdoc(getattr(CompiledLane, name))
