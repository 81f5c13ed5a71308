"""Two clocks and two wheels: what is due when, and what a step of the clock does."""

from __future__ import annotations

import random
from array import array

import pytest

from timingwheel.clock import Reading
from timingwheel.engine.records import DEADLINE_MAX_NS, Base
from timingwheel.engine.timeline import (
    PASSED_HANDLE,
    STEP_MIN_NS,
    TICK_BITS,
    TICK_NS,
    Now,
    Timeline,
    tick_of_deadline,
)

WALL_NS = 1_700_000_000 * 10**9
MONOTONIC_NS = 5 * 10**9
HOUR_NS = 3600 * 10**9


def reading(passed_ns: int = 0, *, step_ns: int = 0) -> Reading:
    """The clocks `passed_ns` after the start, the wall clock set by `step_ns`."""
    return Reading(WALL_NS + passed_ns + step_ns, MONOTONIC_NS + passed_ns)


def timeline(steps_ns: int = 0, *, start_ns: int = WALL_NS) -> Timeline:
    return Timeline(
        reading(),
        steps_ns=steps_ns,
        start_elapsed_ns=start_ns - steps_ns,
        start_wall_ns=start_ns,
    )


def keys_due(line: Timeline, now: Now, limit: int = 10**6) -> list[int]:
    elapsed, wall = line.advance(now, limit)
    return elapsed + wall


@pytest.mark.parametrize(
    ("deadline_ns", "tick"),
    [(0, 0), (1, 1), (TICK_NS, 1), (TICK_NS + 1, 2), (DEADLINE_MAX_NS, 1 << 47)],
)
def test_a_deadline_rounds_up_to_a_tick(deadline_ns: int, tick: int) -> None:
    assert tick_of_deadline(deadline_ns) == tick


@pytest.mark.parametrize("base", [Base.ELAPSED, Base.WALL])
@pytest.mark.parametrize("off_ns", [0, 1, TICK_NS - 1, TICK_NS, 3 * TICK_NS + 17])
def test_nothing_fires_before_its_deadline_and_none_a_tick_after(
    base: Base, off_ns: int
) -> None:
    line = timeline()
    deadline_ns = WALL_NS + HOUR_NS + off_ns
    line.insert(base, deadline_ns, 1)
    assert keys_due(line, line.now(reading(HOUR_NS + off_ns - 1))) == []
    assert keys_due(line, line.now(reading(HOUR_NS + off_ns + TICK_NS))) == [1]


def test_a_step_of_the_wall_clock_moves_no_delay_and_every_wall_timer() -> None:
    line = timeline()
    line.insert(Base.ELAPSED, WALL_NS + HOUR_NS, 1)
    line.insert(Base.WALL, WALL_NS + HOUR_NS, 2)
    forward = line.now(reading(0, step_ns=2 * HOUR_NS))
    assert keys_due(line, forward) == [2]
    assert keys_due(line, line.now(reading(HOUR_NS - 1))) == []
    back = line.now(reading(HOUR_NS + TICK_NS, step_ns=-9 * HOUR_NS))
    assert keys_due(line, back) == [1]


def test_elapsed_time_leaves_the_steps_so_far_out() -> None:
    line = timeline(steps_ns=HOUR_NS)
    now = line.now(reading(7))
    assert now.elapsed_ns == WALL_NS + 7 - HOUR_NS == line.elapsed_ns(MONOTONIC_NS + 7)
    assert now.wall_ns == WALL_NS + 7


@pytest.mark.parametrize(
    ("step_ns", "seen_ns"),
    [
        (0, 0),
        (STEP_MIN_NS - 1, 0),
        (-STEP_MIN_NS + 1, 0),
        (STEP_MIN_NS, STEP_MIN_NS),
        (-STEP_MIN_NS, -STEP_MIN_NS),
        (-5 * HOUR_NS, -5 * HOUR_NS),
    ],
)
def test_a_step_is_a_difference_that_noise_does_not_make(
    step_ns: int, seen_ns: int
) -> None:
    line = timeline(steps_ns=HOUR_NS)
    now = line.now(reading(12_345, step_ns=step_ns))
    assert line.step_ns(now, HOUR_NS) == seen_ns


def test_a_wall_timer_behind_the_wheel_waits_until_the_clock_gets_there() -> None:
    line = timeline()
    keys_due(line, line.now(reading(HOUR_NS)))
    back_ns = -2 * HOUR_NS
    handle = line.insert(Base.WALL, WALL_NS, 7)  # an hour ahead of the clock now
    assert handle == PASSED_HANDLE
    assert len(line) == 1
    assert keys_due(line, line.now(reading(2 * HOUR_NS - 1, step_ns=back_ns))) == []
    assert line.next_due_ns() == MONOTONIC_NS + 2 * HOUR_NS
    assert keys_due(line, line.now(reading(2 * HOUR_NS, step_ns=back_ns))) == [7]
    assert line.next_due_ns() is None


def test_many_timers_go_in_as_one_after_the_other() -> None:
    ticks = array("q", [tick_of_deadline(WALL_NS) + n for n in (3, 1, 2, 1)])
    for base in Base:
        line = timeline()
        handles = line.insert_many(base, ticks, array("q", [1, 2, 3, 4]))
        assert line.cancel(base, handles[2], deadline_ns=0, key=3)
        assert keys_due(line, line.now(reading(4 * TICK_NS))) == [2, 4, 1]


def test_the_wheels_are_shown_by_name() -> None:
    line = timeline()
    line.insert(Base.WALL, WALL_NS + HOUR_NS, 1)
    sizes = {name: len(wheel) for name, wheel in line.wheels().items()}
    assert sizes == {"elapsed": 0, "wall": 1}


def test_a_wall_tick_that_the_wheel_has_reached_is_passed_and_no_other() -> None:
    line = timeline()
    tick = WALL_NS >> TICK_BITS
    assert line.is_passed(Base.WALL, tick)
    assert not line.is_passed(Base.WALL, tick + 1)
    assert not line.is_passed(Base.ELAPSED, tick - 1)
    assert line.tick_due_ns(Base.WALL, tick) == line.due_ns(Base.WALL, tick * TICK_NS)


def test_passed_wall_timers_fire_in_the_order_of_their_deadlines() -> None:
    line = timeline()
    for key, before_ns in [(1, 5), (2, 90 * TICK_NS), (3, 5), (4, 6)]:
        line.insert(Base.WALL, WALL_NS - before_ns, key)
    assert keys_due(line, line.now(reading()), limit=3) == [2, 4, 1]
    assert keys_due(line, line.now(reading())) == [3]


@pytest.mark.parametrize(
    ("base", "off_ns"),
    [(Base.ELAPSED, HOUR_NS), (Base.WALL, HOUR_NS), (Base.WALL, -HOUR_NS)],
)
def test_a_timer_taken_out_is_gone_and_taken_out_once(base: Base, off_ns: int) -> None:
    line = timeline()
    deadline_ns = WALL_NS + off_ns
    handle = line.insert(base, deadline_ns, 1)
    assert line.cancel(base, handle, deadline_ns=deadline_ns, key=1)
    assert not line.cancel(base, handle, deadline_ns=deadline_ns, key=1)
    assert len(line) == 0
    assert keys_due(line, line.now(reading(2 * HOUR_NS))) == []


def test_the_clock_back_by_one_tick_fires_nothing_and_breaks_nothing() -> None:
    line = timeline()
    keys_due(line, line.now(reading(100 * TICK_NS)))
    line.insert(Base.WALL, WALL_NS + 100 * TICK_NS, 1)
    back = line.now(reading(100 * TICK_NS, step_ns=-TICK_NS))
    assert keys_due(line, back) == []
    line.check()
    assert keys_due(line, line.now(reading(100 * TICK_NS))) == [1]


@pytest.mark.parametrize("flooded", list(Base))
def test_a_flood_on_one_wheel_does_not_starve_the_other(flooded: Base) -> None:
    line = timeline()
    for key in range(1, 100):
        line.insert(flooded, WALL_NS + 1, key)
    (other,) = {*Base} - {flooded}
    line.insert(other, WALL_NS + 1, 1_000)
    now = line.now(reading(HOUR_NS))
    assert 1_000 in keys_due(line, now, limit=5) + keys_due(line, now, limit=5)


def test_the_limit_holds_for_both_wheels_and_those_passed_together() -> None:
    line = timeline()
    for key in range(1, 25):
        passed_ns = -5 if key % 3 == 0 else TICK_NS
        line.insert(Base.ELAPSED if key % 2 else Base.WALL, WALL_NS + passed_ns, key)
    now = line.now(reading(HOUR_NS))
    found = [keys_due(line, now, limit=limit) for limit in (5, 7, 7, 9, 9)]
    assert [len(keys) for keys in found] == [5, 7, 7, 5, 0]
    assert sorted(key for keys in found for key in keys) == list(range(1, 25))


def test_the_next_due_is_never_after_a_deadline_and_gets_there(
    rng: random.Random,
) -> None:
    line = timeline()
    deadlines = {
        key: (base, WALL_NS + rng.randrange(1, 1 << rng.randrange(1, 60)))
        for key, base in enumerate(rng.choices([Base.ELAPSED, Base.WALL], k=300), 1)
    }
    for key, (base, deadline_ns) in deadlines.items():
        line.insert(base, deadline_ns, key)
    looks = 0
    while deadlines:
        until_ns = line.next_due_ns()
        assert until_ns is not None
        first_ns = min(deadline for _, deadline in deadlines.values())
        passed_ns = until_ns - MONOTONIC_NS
        assert passed_ns <= tick_of_deadline(first_ns) * TICK_NS - WALL_NS
        for key in keys_due(line, line.now(reading(passed_ns))):
            assert deadlines.pop(key)[1] <= WALL_NS + passed_ns
        looks += 1
    assert line.next_due_ns() is None
    assert looks < 8 * 300
    line.check()


def test_what_is_due_on_the_monotonic_clock_follows_each_base() -> None:
    line = timeline()
    line.now(reading(0, step_ns=HOUR_NS))
    deadline_ns = tick_of_deadline(WALL_NS + 3 * HOUR_NS) * TICK_NS
    off_ns = deadline_ns - WALL_NS
    assert line.due_ns(Base.ELAPSED, deadline_ns) == MONOTONIC_NS + off_ns
    assert line.due_ns(Base.WALL, deadline_ns) == MONOTONIC_NS + off_ns - HOUR_NS


def test_what_fell_due_before_the_start_comes_out_in_order() -> None:
    line = timeline(start_ns=WALL_NS - HOUR_NS)
    for key, before_ns in [(1, 5), (2, 50 * 10**9), (3, 10**9), (4, 2 * HOUR_NS)]:
        line.insert(Base.ELAPSED, WALL_NS - before_ns, key)
    assert keys_due(line, line.now(reading(TICK_NS))) == [4, 2, 3, 1]
