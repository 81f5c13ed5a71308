"""The contract of the timing wheel, on every body of it.

The numbers in the docstrings are of public bug reports: what other wheels got wrong, with
the right value. Deadlines are in ticks; `now` is the wheel's, 0 at the start.
"""

from __future__ import annotations

import copy
import ctypes
import pickle
import random
import subprocess
import sys
from array import array
from collections.abc import Callable, Iterable
from itertools import pairwise

import pytest

from tests.wheel_bodies import WHEELS
from timingwheel.errors import ArgumentError, DeadlineError, TimingWheelError
from timingwheel.wheel import SLOTS, TimerWheel
from timingwheel.wheel_arguments import DEADLINE_MAX

MakeWheel = Callable[..., TimerWheel]

DAY_MS = 86_400_000


@pytest.fixture(params=WHEELS)
def make_wheel(request: pytest.FixtureRequest) -> MakeWheel:
    made: MakeWheel = request.param
    return made


def int64s(values: Iterable[int]) -> array[int]:
    return array("q", values)


def level_of(deadline: int, now: int) -> int:
    return ((deadline ^ now).bit_length() - 1) // 8


# ------------------------------------------------------------------ never early, in order


def test_an_empty_wheel_has_no_timers_and_nothing_due(make_wheel: MakeWheel) -> None:
    wheel = make_wheel()

    assert len(wheel) == 0
    assert wheel.next_due() is None
    assert wheel.now_tick == 0
    assert wheel.advance(10) == []
    assert wheel.now_tick == 10
    wheel.check()


def test_a_timer_fires_in_the_first_advance_that_reaches_it(
    make_wheel: MakeWheel,
) -> None:
    wheel = make_wheel()
    wheel.insert(5, 42)

    assert len(wheel) == 1
    assert wheel.advance(4) == []
    assert wheel.advance(5) == [42]
    assert wheel.advance(6) == []
    assert len(wheel) == 0
    wheel.check()


AROUND_POWERS = sorted(
    {
        tick
        for power in range(8)
        for factor in (1, 2, 127, 255)
        for tick in range(256**power * factor - 1, 256**power * factor + 2)
        if 0 <= tick <= DEADLINE_MAX
    }
    | {DEADLINE_MAX - 1, DEADLINE_MAX, 2**62, 2**31 - 1, 2**31, 2**32 + 5000}
)


@pytest.mark.parametrize("start", [0, 1, 255, 256, 257, 65_535, 2**40 - 1, 2**62 - 1])
def test_around_every_slot_boundary_a_timer_fires_at_its_tick_and_not_before(
    make_wheel: MakeWheel, start: int
) -> None:
    for deadline in AROUND_POWERS:
        if deadline <= start:
            continue
        wheel = make_wheel(start)
        wheel.insert(deadline, 7)
        assert wheel.advance(deadline - 1) == []
        wheel.check()
        assert wheel.next_due() == deadline
        assert wheel.advance(deadline) == [7]
        wheel.check()


def test_all_slot_boundaries_together_fire_in_order_step_by_step(
    make_wheel: MakeWheel,
) -> None:
    wheel = make_wheel()
    for key, deadline in reversed(list(enumerate(AROUND_POWERS))):
        wheel.insert(deadline, key)

    for key, deadline in enumerate(AROUND_POWERS):
        if deadline > 0:
            assert wheel.advance(deadline - 1) == []
        assert wheel.advance(deadline) == [key]
        wheel.check()


def test_all_slot_boundaries_together_fire_in_order_in_one_jump(
    make_wheel: MakeWheel,
) -> None:
    wheel = make_wheel()
    for key, deadline in reversed(list(enumerate(AROUND_POWERS))):
        wheel.insert(deadline, key)

    assert wheel.advance(DEADLINE_MAX) == list(range(len(AROUND_POWERS)))


def test_following_next_due_reaches_every_timer_at_its_deadline(
    make_wheel: MakeWheel,
) -> None:
    wheel = make_wheel()
    for key, deadline in enumerate(AROUND_POWERS):
        wheel.insert(deadline, key)

    fired = []
    wakes = 0
    while (tick := wheel.next_due()) is not None:
        wakes += 1
        fired += [(tick, key) for key in wheel.advance(tick)]
        wheel.check()

    assert fired == [(tick, key) for key, tick in enumerate(AROUND_POWERS)]
    assert wakes <= 8 * len(AROUND_POWERS)


@pytest.mark.parametrize("deadline", [3, 300, 70_000, 2**40])
def test_equal_deadlines_fire_first_in_first_out_over_any_cascade(
    make_wheel: MakeWheel, deadline: int
) -> None:
    wheel = make_wheel()
    keys = iter(range(1_000))
    inserted = []

    def insert() -> None:
        key = next(keys)
        wheel.insert(deadline, key)
        inserted.append(key)

    # Inserted from farther and farther down, so at first into higher and higher levels.
    for distance in (deadline, 2**39, 70_000, 65_536, 300, 256, 255, 3, 2, 1, 0):
        now = max(wheel.now_tick, deadline - distance)
        fired = wheel.advance(now) if now < deadline else []
        assert fired == []
        insert()
        wheel.insert(deadline + 1, -1)
        insert()
        wheel.check()

    assert wheel.advance(deadline) == inserted
    assert set(wheel.advance(deadline + 1)) == {-1}


def test_random_timers_fire_in_deadline_then_insertion_order(
    make_wheel: MakeWheel, rng: random.Random
) -> None:
    wheel = make_wheel()
    # Few enough ticks for many ties, and wide enough for three levels.
    timers = [(rng.randrange(1, 70_000, 7), key) for key in range(20_000)]
    for deadline, key in timers:
        wheel.insert(deadline, key)
    wheel.check()

    fired: list[int] = []
    while len(wheel):
        now = wheel.now_tick + rng.randrange(1, 3_000)
        due = wheel.advance(now)
        assert all(timers[key][0] <= now for key in due)
        fired += due

    assert fired == [key for _, key in sorted(timers)]


# -------------------------------------------------------------- cases from other wheels


def test_a_far_timer_never_hides_a_near_one(make_wheel: MakeWheel) -> None:
    """Case 1: a far timer wrapped into the top slot hid the near ones."""
    wheel = make_wheel()
    wheel.insert(2**36, 1)
    assert wheel.advance(2**30 - 100) == []
    wheel.insert(2**30 + 233, 2)

    next_due = wheel.next_due()
    assert next_due is not None
    assert next_due <= 2**30 + 233
    assert wheel.advance(2**30 + 233) == [2]
    assert len(wheel) == 1
    assert wheel.advance(2**36) == [1]
    wheel.check()


def test_an_old_wheel_and_a_far_deadline_know_no_horizon(make_wheel: MakeWheel) -> None:
    """Case 2: panics once the queue was older, or a delay longer, than 2**36 ms."""
    wheel = make_wheel()
    wheel.advance(2**36 + 5)
    wheel.insert(2**36 + 10_005, 1)
    assert wheel.advance(2**36 + 10_004) == []
    assert wheel.advance(2**36 + 10_005) == [1]

    wheel.insert(2**62, 2)
    assert len(wheel) == 1
    next_due = wheel.next_due()
    assert next_due is not None
    assert next_due <= 2**62
    assert wheel.advance(2**62 - 1) == []
    assert wheel.advance(2**62) == [2]


def test_huge_delays_fire_once_at_their_own_tick(make_wheel: MakeWheel) -> None:
    """Case 3: delays of 2**31 and more overflowed and fired at once, or often."""
    delays = [2**31 - 1, 2**31, 2**32 - 5_000, 2**32 + 5_000]
    wheel = make_wheel(7)
    for delay in delays:
        wheel.insert(7 + delay, delay)

    for delay in delays:
        assert wheel.advance(7 + delay - 1) == []
        assert wheel.advance(7 + delay) == [delay]
    assert wheel.advance(2**40) == []


@pytest.mark.parametrize("deadline", [2**63, 2**64 + 1, 10**30, -(2**63) - 1])
def test_a_deadline_beyond_int64_is_refused_by_value_and_limit(
    make_wheel: MakeWheel, deadline: int
) -> None:
    """Case 3: what cannot be held must not be held as something else."""
    wheel = make_wheel(7)
    wheel.insert(100, 1)

    with pytest.raises(DeadlineError) as caught:
        wheel.insert(deadline, 2)

    assert isinstance(caught.value, TimingWheelError)
    assert isinstance(caught.value, OverflowError)
    assert caught.value.argument == "deadline_tick"
    assert caught.value.found == deadline
    assert str(deadline)[:10] in str(caught.value)
    assert str(2**63 - 1) in str(caught.value)
    assert len(wheel) == 1
    assert wheel.next_due() == 100
    wheel.check()
    assert wheel.advance(100) == [1]


def test_a_deadline_in_the_past_is_due_at_the_next_advance(
    make_wheel: MakeWheel,
) -> None:
    """Case 4: a negative delay fired one turn of the wheel late."""
    wheel = make_wheel(1_000)
    wheel.insert(954, 1)
    wheel.insert(-(2**63), 2)
    wheel.insert(0, 3)

    assert wheel.next_due() == -(2**63)
    assert wheel.advance(1_000) == [2, 3, 1]
    wheel.check()


@pytest.mark.parametrize(
    ("tick_ms", "deadline_ms", "polls_ms", "fires_at_ms"),
    [
        (10, 12, [10, 20, 30], 20),
        (2_000, 11_000, range(1_800, 20_000, 1_800), 12_600),
        (100, 110, [100, 200, 300], 200),
    ],
)
def test_rounded_up_to_a_tick_a_timer_fires_late_by_less_than_a_tick_and_never_early(
    make_wheel: MakeWheel,
    tick_ms: int,
    deadline_ms: int,
    polls_ms: Iterable[int],
    fires_at_ms: int,
) -> None:
    """Cases 6 and 10: dropped or early when deadline and polls are off the tick."""
    wheel = make_wheel()
    wheel.insert(-(-deadline_ms // tick_ms), 1)

    fired = [poll for poll in polls_ms for _ in wheel.advance(poll // tick_ms)]

    assert fired == [fires_at_ms]


def test_after_a_stall_everything_passed_is_fired_in_order(
    make_wheel: MakeWheel,
) -> None:
    """Case 7: only the current tick was handled after a stall."""
    wheel = make_wheel()
    for deadline in range(100, 0, -1):
        wheel.insert(deadline, deadline)

    assert wheel.advance(100) == list(range(1, 101))


@pytest.mark.parametrize("deadline", [4_097, 257, 65_537])
def test_the_slot_at_the_cursors_own_place_is_not_passed_over(
    make_wheel: MakeWheel, deadline: int
) -> None:
    """Case 8: the slot with the cursor's own index was looked at one unit late."""
    wheel = make_wheel()
    wheel.insert(deadline, 1)

    assert wheel.advance(deadline) == [1]


def test_a_coarse_earlier_timer_is_not_hidden_by_a_fine_later_one(
    make_wheel: MakeWheel,
) -> None:
    """Case 11: the finer level was asked first though the coarser was due sooner."""
    for unit in (1, 4, 256):
        wheel = make_wheel()
        wheel.insert(70 * unit, 1)
        wheel.advance(40 * unit)
        wheel.insert(100 * unit, 2)
        next_due = wheel.next_due()
        assert next_due is not None
        assert next_due <= 70 * unit
        assert wheel.advance(70 * unit) == [1]

    for boundary in (64, 256, 65_536):
        wheel = make_wheel(boundary - 1)
        wheel.insert(boundary, 3)
        assert wheel.next_due() == boundary
        assert wheel.advance(boundary) == [3]


def test_an_empty_wheel_jumps_over_any_time_without_walking_it(
    make_wheel: MakeWheel,
) -> None:
    """Case 13: O(ticks) for a jump; at 2**50 ticks this test would never end."""
    wheel = make_wheel()

    assert wheel.advance(2**50) == []
    assert wheel.advance(DEADLINE_MAX) == []
    assert wheel.now_tick == DEADLINE_MAX
    wheel.check()


def test_a_jump_of_thirty_days_fires_everything_in_order_and_iteratively(
    make_wheel: MakeWheel, rng: random.Random
) -> None:
    """Case 13: a stack overflow, or one step a tick."""
    wheel = make_wheel()
    deadlines = int64s(rng.randrange(1, 30 * DAY_MS) for _ in range(100_000))
    wheel.insert_many(deadlines, int64s(range(len(deadlines))))

    fired = wheel.advance(30 * DAY_MS)

    assert fired == sorted(range(len(deadlines)), key=deadlines.__getitem__)
    wheel.check()


def test_a_clock_that_steps_back_moves_nothing_and_fires_nothing(
    make_wheel: MakeWheel,
) -> None:
    """Case 15: an assertion killed the worker when the clock went back by one."""
    wheel = make_wheel()
    wheel.advance(100)

    assert wheel.advance(99) == []
    assert wheel.now_tick == 100
    assert wheel.advance(-1) == []
    wheel.insert(wheel.now_tick + 10, 1)
    assert wheel.advance(99) == []
    assert wheel.advance(109) == []
    assert wheel.advance(110) == [1]
    wheel.check()


def test_nanoseconds_of_today_are_held_to_the_last_digit(make_wheel: MakeWheel) -> None:
    """Case 19: a float or a coarser clock made it loop at the deadline or fire early."""
    now = 1_700_000_000_000_000_000
    wheel = make_wheel(now)
    wheel.insert(now + 1, 1)

    assert wheel.next_due() == now + 1
    assert wheel.advance(now) == []
    assert wheel.advance(now + 1) == [1]


def test_next_due_follows_the_head_when_it_comes_earlier_or_goes(
    make_wheel: MakeWheel,
) -> None:
    """Case 20: the sleeper was not armed anew when the head moved."""
    wheel = make_wheel()
    wheel.insert(200, 1)
    assert wheel.next_due() == 200
    head = wheel.insert(6, 2)
    assert wheel.next_due() == 6
    wheel.cancel(head)
    assert wheel.next_due() == 200


def test_next_due_is_none_once_the_last_timer_is_gone(make_wheel: MakeWheel) -> None:
    """Case 21: the waiter slept on for a timer that was cancelled or cleared."""
    wheel = make_wheel()
    handle = wheel.insert(10_000, 1)
    wheel.cancel(handle)
    assert wheel.next_due() is None

    stale = [wheel.insert(deadline, 1) for deadline in (-5, 10, 10_000, 2**40)]
    assert wheel.clear() == 4
    assert wheel.next_due() is None
    assert len(wheel) == 0
    assert wheel.now_tick == 0
    assert [wheel.cancel(handle) for handle in stale] == [False] * 4
    assert wheel.advance(2**41) == []
    assert wheel.clear() == 0
    wheel.check()


def test_the_slots_that_hold_timers_can_be_seen(make_wheel: MakeWheel) -> None:
    wheel = make_wheel(now_tick=3)
    assert wheel.occupied_slots() == 0
    wheel.insert(2, 0)  # due already: in no slot
    for deadline in (5, 255, 0x0300, 0x03FF, 2**62):
        wheel.insert(deadline, 0)
    slots = {5, 255, SLOTS + 3, 7 * SLOTS + 64}
    assert wheel.occupied_slots() == sum(1 << slot for slot in slots)
    assert len(wheel.advance(0x0300)) == 4
    assert wheel.occupied_slots() == 1 << 0xFF | 1 << 7 * SLOTS + 64
    wheel.clear()
    assert wheel.occupied_slots() == 0


def test_a_timer_can_be_cancelled_between_the_parts_of_one_batch(
    make_wheel: MakeWheel,
) -> None:
    """Case 23: the batch had been grabbed, so the later one ran though cancelled."""
    wheel = make_wheel()
    wheel.insert(10, 1)
    second = wheel.insert(10, 2)
    wheel.insert(10, 3)

    assert wheel.advance(10, 1) == [1]
    assert wheel.cancel(second) is True
    assert wheel.advance(10) == [3]
    assert len(wheel) == 0
    wheel.check()


def test_cancelling_a_slots_timers_and_re_adding_while_it_fires_keeps_it_whole(
    make_wheel: MakeWheel,
) -> None:
    """Case 24: cancel and re-add inside a callback corrupted the slot."""
    for distance in (64, SLOTS, SLOTS**2):
        wheel = make_wheel()
        wheel.insert(1_000, 0)
        others = [wheel.insert(1_000, key) for key in range(1, 11)]

        assert wheel.advance(1_000, 1) == [0]
        assert all(wheel.cancel(handle) for handle in others)
        wheel.insert(1_000 + distance, 0)

        assert len(wheel) == 1
        next_due = wheel.next_due()
        assert next_due is not None
        assert next_due <= 1_000 + distance
        assert wheel.advance(1_000 + distance - 1) == []
        assert wheel.advance(1_000 + distance) == [0]
        wheel.check()


def test_a_zero_delay_re_arm_fires_once_an_advance_and_lets_others_have_their_turn(
    make_wheel: MakeWheel,
) -> None:
    """Case 25: a re-arm with delay 0 ran in the same pass for ever."""
    wheel = make_wheel(50)
    wheel.insert(50, 1)
    for _ in range(100):
        assert wheel.advance(50) == [1]
        wheel.insert(wheel.now_tick, 1)
    assert len(wheel) == 1

    for key in (2, 3, 4):
        wheel.insert(50, key)
    order = []
    for _ in range(8):
        (key,) = wheel.advance(50, 1)
        order.append(key)
        if key == 1:
            wheel.insert(wheel.now_tick, 1)
    assert order == [1, 2, 3, 4, 1, 1, 1, 1]
    wheel.check()


def test_a_stale_handle_never_hits_the_next_tenant_of_its_place(
    make_wheel: MakeWheel,
) -> None:
    """Case 27: a late cancel removed the timer that had taken the place."""
    wheel = make_wheel()
    stale = wheel.insert(10, 1)
    assert wheel.cancel(stale) is True
    tenant = wheel.insert(10, 2)

    assert tenant != stale
    assert wheel.cancel(stale) is False
    assert wheel.advance(10) == [2]
    assert wheel.cancel(tenant) is False
    wheel.check()


@pytest.mark.parametrize("end", ["cancel", "cancel_many", "fire", "fire late", "clear"])
def test_a_place_whose_generations_are_used_up_is_retired(
    make_wheel: MakeWheel, end: str
) -> None:
    """Case 27: also when the generation wraps, here after 7 tenants of a place."""
    wheel = make_wheel(generation_bits=3)
    handles: list[int] = []
    for turn in range(2_000):
        late = end == "fire late"
        handle = wheel.insert(wheel.now_tick + (0 if late else 5), turn)
        assert handle not in handles[-40:]
        handles.append(handle)
        assert not any(wheel.cancel(stale) for stale in handles[-40:-1])
        if end == "cancel":
            assert wheel.cancel(handle)
        elif end == "cancel_many":
            assert wheel.cancel_many(int64s([handle])) == 1
        elif end == "clear":
            assert wheel.clear() == 1
        else:
            assert wheel.advance(wheel.now_tick + 5) == [turn]
    wheel.check()

    assert len(set(handles)) == len(handles)
    tenants: dict[int, int] = {}
    for handle in handles:
        index = handle & (2**32 - 1)
        tenants[index] = tenants.get(index, 0) + 1
    assert max(tenants.values()) == 7
    assert wheel.cancel_many(int64s(handles)) == 0


CHILD_MEMORY = """
import sys
from array import array
from importlib import import_module

def resident_bytes():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * 4096

count, rounds = 100_000, 10
deadlines, keys = array("q", [30 * 86_400_000]) * count, array("q", range(count))
wheel = getattr(import_module(sys.argv[1]), "TimerWheel")()
empty = resident_bytes()
handles = wheel.insert_many(deadlines, keys)
one_live_set = resident_bytes() - empty
for _ in range(rounds):
    assert wheel.cancel_many(handles) == count
    assert wheel.next_due() is None and len(wheel) == 0
    del handles
    handles = wheel.insert_many(deadlines, keys)
wheel.cancel_many(handles)
print(one_live_set, resident_bytes() - empty)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc/self/statm")
def test_cancelled_timers_do_not_keep_their_memory(make_wheel: MakeWheel) -> None:
    """Case 28: cancelled timers kept their memory until their deadline, 30 days off."""
    child = subprocess.run(
        [sys.executable, "-c", CHILD_MEMORY, make_wheel.__module__],
        capture_output=True,
        text=True,
        check=True,
    )
    one_live_set, after_ten = map(int, child.stdout.split())

    assert after_ten <= 2 * one_live_set


@pytest.mark.parametrize("delay", [64, 4_096, SLOTS, SLOTS**2])
def test_delays_of_exactly_one_turn_all_fire_while_the_wheel_turns(
    make_wheel: MakeWheel, delay: int
) -> None:
    """Case 31: an insert of exactly one turn, in the midst of a flush, was stuck."""
    wheel = make_wheel()
    for now in range(0, 3 * delay, max(1, delay // 64)):
        fired = wheel.advance(now)
        expected = now - delay
        assert all(key <= expected for key in fired)
        wheel.insert(now + delay, now)
    wheel.check()
    pending = len(wheel)

    assert len(wheel.advance(5 * delay)) == pending


# ------------------------------------------------------------------ budgets, going back


def test_a_budget_cuts_an_advance_and_the_next_one_resumes_it(
    make_wheel: MakeWheel,
) -> None:
    wheel = make_wheel()
    deadlines = [1, 1, 2, 300, 300, 70_000, 70_001, 2**40]
    for key, deadline in enumerate(deadlines):
        wheel.insert(deadline, key)

    fired = []
    sizes = []
    while (tick := wheel.next_due()) is not None and tick <= 80_000:
        due = wheel.advance(80_000, 3)
        fired += due
        sizes.append(len(due))
        wheel.check()

    assert fired == [0, 1, 2, 3, 4, 5, 6]
    assert sizes == [3, 3, 1]
    assert len(wheel) == 1


@pytest.mark.parametrize("left", [0, 1, 2])
def test_after_a_budget_next_due_says_whether_due_timers_are_left(
    make_wheel: MakeWheel, left: int
) -> None:
    wheel = make_wheel()
    for deadline in (10, 300, 66_000):
        wheel.insert(deadline, deadline)
    # Its slot starts before 66,001 and it does not: it must not count as due.
    wheel.insert(66_040, 66_040)

    wheel.advance(66_001, 3 - left)

    next_due = wheel.next_due()
    assert next_due is not None
    assert (next_due <= wheel.now_tick) == (left > 0)
    assert len(wheel.advance(66_001)) == left
    wheel.check()


def test_a_budget_left_over_by_cancels_leaves_nothing_due(
    make_wheel: MakeWheel,
) -> None:
    wheel = make_wheel()
    handles = [wheel.insert(deadline, deadline) for deadline in (10, 10, 10, 300)]
    far = wheel.insert(400, 400)

    assert wheel.advance(350, 1) == [10]
    assert all(wheel.cancel(handle) for handle in handles[1:])

    assert wheel.now_tick == 350
    next_due = wheel.next_due()
    assert next_due is not None
    assert 350 < next_due <= 400
    assert wheel.advance(350) == []
    assert wheel.cancel(far)
    wheel.check()


def test_what_is_inserted_between_two_parts_takes_its_place_in_the_order(
    make_wheel: MakeWheel,
) -> None:
    wheel = make_wheel()
    for deadline in (10, 20, 20, 500, 900):
        wheel.insert(deadline, deadline)
    assert wheel.advance(1_000, 2) == [10, 20]

    wheel.insert(20, 21)  # behind the other timer of that tick
    wheel.insert(5, 5)  # in front of all
    wheel.insert(500, 501)
    wheel.insert(499, 499)
    wheel.insert(1_000, 1_000)
    wheel.insert(1_001, 1_001)
    wheel.check()

    fired: list[int] = []
    while due := wheel.advance(1_000, 1):
        fired += due
        wheel.check()
    assert fired == [5, 20, 21, 499, 500, 501, 900, 1_000]
    assert wheel.advance(1_001) == [1_001]


def test_a_budget_of_none_at_all_only_moves_the_clock(make_wheel: MakeWheel) -> None:
    wheel = make_wheel()
    wheel.insert(10, 1)

    assert wheel.advance(20, 0) == []
    assert wheel.now_tick == 20
    assert len(wheel) == 1
    assert wheel.next_due() == 10
    assert wheel.advance(20, 5) == [1]


def test_going_back_gives_only_what_is_due_at_the_earlier_tick(
    make_wheel: MakeWheel,
) -> None:
    wheel = make_wheel()
    for deadline in (50, 60, 100):
        wheel.insert(deadline, deadline)
    assert wheel.advance(100, 1) == [50]
    wheel.insert(99, 99)
    wheel.insert(-7, -7)

    assert wheel.next_due() == -7
    assert wheel.advance(-8) == []
    assert wheel.advance(-7) == [-7]
    assert wheel.advance(98) == [60]
    assert wheel.now_tick == 100
    assert wheel.advance(99) == [99]
    assert wheel.advance(99) == []
    assert wheel.advance(100) == [100]
    wheel.check()


def test_of_what_a_budget_left_going_back_gives_nothing_early(
    make_wheel: MakeWheel,
) -> None:
    wheel = make_wheel()
    for deadline in (300, 310, 320, 330):
        wheel.insert(deadline, deadline)
    assert wheel.advance(600, 1) == [300]

    assert wheel.advance(309) == []
    assert wheel.advance(310) == [310]
    wheel.insert(319, 319)
    assert wheel.advance(318) == []
    assert wheel.advance(320, 1) == [319]
    assert wheel.advance(329) == [320]
    assert wheel.advance(600) == [330]
    wheel.check()


def test_a_sweep_keeps_the_order_of_what_a_budget_left(
    make_wheel: MakeWheel, rng: random.Random
) -> None:
    wheel = make_wheel()
    timers = [(rng.randrange(256, 512), key) for key in range(3_000)]
    handles = [wheel.insert(*timer) for timer in timers]
    assert wheel.advance(600, 1) == [min(timers)[1]]
    late = [(rng.randrange(256, 512), key) for key in range(3_000, 6_000)]
    handles += [wheel.insert(*timer) for timer in late]
    timers += late

    gone = set(rng.sample(range(6_000), 4_500)) | {min(timers)[1]}
    for key in gone:
        wheel.cancel(handles[key])
    wheel.check()

    expected = [key for _, key in sorted(timers) if key not in gone]
    assert wheel.advance(600, 10) == expected[:10]
    assert wheel.advance(600) == expected[10:]
    wheel.check()


def test_overdue_timers_fire_by_deadline_then_insertion(
    make_wheel: MakeWheel, rng: random.Random
) -> None:
    wheel = make_wheel(10_000)
    timers = [(rng.randrange(-50, 10_050), key) for key in range(5_000)]
    handles = [wheel.insert(deadline, key) for deadline, key in timers]
    gone = set(rng.sample(range(5_000), 1_500))
    for key in gone:
        assert wheel.cancel(handles[key])
    wheel.check()

    expected = [key for _, key in sorted(timers) if key not in gone]
    fired: list[int] = []
    while len(fired) < len(expected):
        fired += wheel.advance(10_050, rng.randrange(1, 100))
    assert fired == expected
    wheel.check()


# ------------------------------------------------------------------- cancel and handles


def test_cancel_says_whether_there_was_a_timer(make_wheel: MakeWheel) -> None:
    wheel = make_wheel()
    kept, gone = wheel.insert(10, 1), wheel.insert(10, 2)

    assert wheel.cancel(gone) is True
    assert wheel.cancel(gone) is False
    assert len(wheel) == 1
    assert wheel.advance(10) == [1]
    assert wheel.cancel(kept) is False


def test_handles_are_below_2_to_the_60_and_above_all_small_integers(
    make_wheel: MakeWheel,
) -> None:
    wheel = make_wheel()
    handles = [wheel.insert(deadline, 0) for deadline in range(5_000)]

    assert all(type(handle) is int for handle in handles)
    assert all(2**32 <= handle < 2**60 for handle in handles)
    assert len(set(handles)) == len(handles)


@pytest.mark.parametrize(
    "handle",
    [-1, 0, 1, True, False, -(2**32), 2**32 - 1, 2**60, 2**63, 2**64, -(2**80), 10**40],
)
def test_an_integer_that_is_no_handle_cancels_nothing(
    make_wheel: MakeWheel, handle: int
) -> None:
    wheel = make_wheel()
    live = wheel.insert(10, 1)

    assert wheel.cancel(handle) is False
    # Handles that the same places have had or may have later are none either.
    for generations in range(-3, 4):
        other = live + generations * 2**32
        if other != live:
            assert wheel.cancel(other) is False
    for index in range(1, 70):
        assert wheel.cancel(live + index) is False
    # Nor is one that is a handle but for a bit that no handle has.
    high = [live + 2**60, live + 2**62, live - 2**63]
    assert not any(map(wheel.cancel, high))
    assert wheel.cancel_many(int64s(high)) == 0
    assert len(wheel) == 1
    wheel.check()


@pytest.mark.parametrize("handle", [None, 1.5, "5", 2.0**33, [1]])
def test_a_handle_that_is_no_integer_is_a_type_error(
    make_wheel: MakeWheel, handle: int
) -> None:
    wheel = make_wheel()
    wheel.insert(10, 1)

    with pytest.raises(TypeError, match="handle"):
        wheel.cancel(handle)
    assert len(wheel) == 1


def test_the_next_handle_of_a_free_place_is_not_yet_a_timers(
    make_wheel: MakeWheel,
) -> None:
    """The handle of another wheel can name a place that is free in this one."""
    here, there = make_wheel(), make_wheel()
    there.cancel(there.insert(1, 1))
    elsewhere = there.insert(1, 1)
    here.cancel(here.insert(1, 1))

    assert here.cancel(elsewhere) is False
    assert here.cancel_many(int64s([elsewhere, -1, 0, 2**62])) == 0
    here.check()
    assert len(here) == 0


def test_dead_entries_never_outnumber_the_living_for_long(
    make_wheel: MakeWheel, rng: random.Random
) -> None:
    wheel = make_wheel()
    live: list[int] = []
    for turn in range(20_000):
        live.append(wheel.insert(wheel.now_tick + rng.randrange(-5, 10**9), turn))
        if len(live) > 500:
            place = rng.randrange(len(live))
            live[place], live[-1] = live[-1], live[place]
            assert wheel.cancel(live.pop())
        if turn % 500 == 0:
            wheel.check()  # asserts the bound
    for handle in live:
        assert wheel.cancel(handle)
    wheel.check()
    assert wheel.advance(DEADLINE_MAX) == []


def test_firing_the_last_live_timers_lets_the_dead_go_too(
    make_wheel: MakeWheel,
) -> None:
    wheel = make_wheel()
    for key in range(3_000):
        wheel.insert(10, key)
    for handle in [wheel.insert(10**12, 0) for _ in range(2_900)]:
        wheel.cancel(handle)
    wheel.check()

    assert len(wheel.advance(10)) == 3_000

    wheel.check()  # dead entries would now be 2,900 to none alive
    assert wheel.next_due() is None


def test_next_due_passes_over_cancelled_timers(make_wheel: MakeWheel) -> None:
    wheel = make_wheel(1_000)
    first = [wheel.insert(deadline, 0) for deadline in (900, 1_005, 1_005, 1_010)]
    second = wheel.insert(1_020, 0)
    wheel.insert(1_020, 0)
    wheel.insert(2_000, 0)
    for handle in first:
        wheel.cancel(handle)
    wheel.cancel(second)

    assert wheel.next_due() == 1_020
    wheel.check()


# ---------------------------------------------------------------------------- batch forms


def test_insert_many_is_as_insert_one_after_the_other(
    make_wheel: MakeWheel, rng: random.Random
) -> None:
    single, batch = make_wheel(1_000), make_wheel(1_000)
    fired: list[list[int]] = [[], []]
    for turn in range(30):
        deadlines = [
            single.now_tick
            + rng.choice((-3, 0, 1, 255, 256, 70_000)) * rng.randrange(9)
            for _ in range(rng.randrange(200))
        ]
        keys = [turn * 1_000 + key for key in range(len(deadlines))]
        one_by_one = [
            single.insert(*timer) for timer in zip(deadlines, keys, strict=True)
        ]
        together = batch.insert_many(int64s(deadlines), int64s(keys))
        assert len(together) == len(one_by_one)
        gone = rng.sample(range(len(keys)), len(keys) // 3)
        assert all(single.cancel(one_by_one[place]) for place in gone)
        repeated = int64s([together[place] for place in gone] * 2)
        assert batch.cancel_many(repeated) == len(gone)
        assert len(single) == len(batch)
        batch.check()

        now, budget = single.now_tick + rng.randrange(300), rng.randrange(1, 100)
        fired[0] += single.advance(now, budget)
        out = int64s([0] * budget)
        fired[1] += out[: batch.advance_into(now, out)]
        assert fired[0] == fired[1]
    assert single.advance(10**9) == batch.advance(10**9)


def test_handles_of_a_batch_come_in_its_order(make_wheel: MakeWheel) -> None:
    wheel = make_wheel()
    handles = wheel.insert_many(int64s([30, 10, -20]), int64s([3, 1, 2]))

    assert isinstance(handles, array)
    assert handles.typecode == "q"
    assert wheel.cancel(handles[1]) is True
    assert wheel.advance(30) == [2, 3]


def test_advance_into_fills_the_front_and_resumes(make_wheel: MakeWheel) -> None:
    wheel = make_wheel()
    wheel.insert_many(int64s(range(1, 8)), int64s(range(11, 18)))
    out = int64s([-1] * 3)

    assert wheel.advance_into(100, out) == 3
    assert out.tolist() == [11, 12, 13]
    assert wheel.advance_into(100, out) == 3
    assert wheel.advance_into(100, out) == 1
    assert out.tolist() == [17, 15, 16]
    assert wheel.advance_into(100, out) == 0
    assert wheel.advance_into(101, int64s([])) == 0
    assert wheel.now_tick == 101


def test_empty_batches_do_nothing(make_wheel: MakeWheel) -> None:
    wheel = make_wheel()

    assert len(wheel.insert_many(int64s([]), int64s([]))) == 0
    assert wheel.cancel_many(int64s([])) == 0
    assert len(wheel) == 0
    wheel.check()


def buffers_of_int64() -> list[Callable[[list[int]], object]]:
    return [
        lambda values: array("q", values),
        lambda values: memoryview(array("q", values)),
        lambda values: memoryview(array("q", values)).cast("B").cast("q"),
        lambda values: (ctypes.c_int64 * len(values))(*values),
        lambda values: memoryview(array("q", [9, *values, 9]))[1:-1],
    ]


@pytest.mark.parametrize("buffer_of", buffers_of_int64())
def test_any_buffer_of_int64_will_do(
    make_wheel: MakeWheel, buffer_of: Callable[[list[int]], array[int]]
) -> None:
    wheel = make_wheel()

    handles = wheel.insert_many(buffer_of([5, 6, 7]), buffer_of([-1, -(2**63), 3]))
    assert wheel.cancel_many(buffer_of([handles[2]])) == 1
    out = buffer_of([0, 0, 0])
    assert wheel.advance_into(10, out) == 2
    assert list(out)[:2] == [-1, -(2**63)]


def test_numpy_arrays_of_int64_will_do(make_wheel: MakeWheel) -> None:
    numpy = pytest.importorskip("numpy")
    wheel = make_wheel()

    handles = wheel.insert_many(numpy.array([5, 6, 7]), numpy.arange(3))
    assert wheel.cancel(numpy.asarray(handles)[1])
    out = numpy.zeros(3, dtype=numpy.int64)
    assert wheel.advance_into(10, out) == 2
    assert out.tolist() == [0, 2, 0]


@pytest.mark.parametrize(
    "buffer",
    [
        array("i", [1, 2]),
        array("Q", [1, 2]),
        array("d", [1.0, 2.0]),
        b"12345678abcdefgh",
        memoryview(array("q", [1, 0, 2, 0]))[::2],
        memoryview(array("q", [1, 2])).cast("B").cast("q", (1, 2)),
    ],
    ids=["int32", "uint64", "double", "bytes", "with gaps", "two dimensions"],
)
def test_a_buffer_of_something_else_is_refused_and_nothing_changes(
    make_wheel: MakeWheel, buffer: array[int]
) -> None:
    wheel = make_wheel()
    good = int64s([1, 2])
    live = wheel.insert_many(good, good)

    with pytest.raises(ArgumentError, match="deadlines"):
        wheel.insert_many(buffer, good)
    with pytest.raises(ArgumentError, match="keys"):
        wheel.insert_many(good, buffer)
    with pytest.raises(ArgumentError, match="handles"):
        wheel.cancel_many(buffer)
    with pytest.raises(ArgumentError, match="out"):
        wheel.advance_into(10, buffer)
    assert len(wheel) == 2
    assert wheel.now_tick == 0
    wheel.check()
    assert wheel.cancel_many(live) == 2


@pytest.mark.parametrize("not_a_buffer", [[1, 2], 5, None, "12345678"])
def test_what_is_no_buffer_is_a_type_error_that_says_what_to_pass(
    make_wheel: MakeWheel, not_a_buffer: array[int]
) -> None:
    wheel = make_wheel()

    with pytest.raises(TypeError, match=r"deadlines.*array\('q'"):
        wheel.insert_many(not_a_buffer, int64s([1]))
    with pytest.raises(TypeError, match="keys"):
        wheel.insert_many(int64s([1]), not_a_buffer)
    with pytest.raises(TypeError, match="handles"):
        wheel.cancel_many(not_a_buffer)
    with pytest.raises(TypeError, match="out"):
        wheel.advance_into(10, not_a_buffer)
    assert len(wheel) == 0


def test_batches_of_unequal_lengths_are_refused(make_wheel: MakeWheel) -> None:
    wheel = make_wheel()

    with pytest.raises(ArgumentError, match="keys"):
        wheel.insert_many(int64s([1, 2, 3]), int64s([1, 2]))
    assert len(wheel) == 0
    wheel.check()


def test_a_read_only_buffer_cannot_be_advanced_into(make_wheel: MakeWheel) -> None:
    wheel = make_wheel()
    wheel.insert(1, 1)

    with pytest.raises(ArgumentError, match="out"):
        wheel.advance_into(10, memoryview(int64s([0])).toreadonly())
    assert len(wheel) == 1
    assert wheel.now_tick == 0


# ------------------------------------------------------------------------------ bad input


@pytest.mark.parametrize("key", [-(2**63), -1, 0, 2**63 - 1])
def test_a_key_is_any_int64(make_wheel: MakeWheel, key: int) -> None:
    wheel = make_wheel()
    wheel.insert(10, key)

    assert wheel.advance(10) == [key]


@pytest.mark.parametrize("key", [2**63, -(2**63) - 1, 10**30])
def test_a_key_beyond_int64_is_refused(make_wheel: MakeWheel, key: int) -> None:
    wheel = make_wheel()

    with pytest.raises(ArgumentError) as caught:
        wheel.insert(10, key)
    assert caught.value.argument == "key"
    assert caught.value.found == key
    assert len(wheel) == 0
    wheel.check()


@pytest.mark.parametrize("wrong", [1.0, float("nan"), float("inf"), "7", None, 2 + 0j])
def test_what_is_no_integer_is_a_type_error_that_names_the_argument(
    make_wheel: MakeWheel, wrong: int
) -> None:
    wheel = make_wheel()

    with pytest.raises(TypeError, match="deadline_tick"):
        wheel.insert(wrong, 1)
    with pytest.raises(TypeError, match="key"):
        wheel.insert(1, wrong)
    with pytest.raises(TypeError, match="now_tick"):
        wheel.advance(wrong)
    with pytest.raises(TypeError, match="now_tick"):
        wheel.advance_into(wrong, int64s([0]))
    with pytest.raises(TypeError, match="now_tick"):
        make_wheel(wrong)
    if wrong is not None:
        with pytest.raises(TypeError, match="max_fire"):
            wheel.advance(1, wrong)
    assert len(wheel) == 0
    assert wheel.now_tick == 0
    wheel.check()


class OtherInteger:
    """An integer type that is no int, such as those of NumPy."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __index__(self) -> int:
        return self.value


def test_other_integer_types_are_taken_for_what_they_stand_for(
    make_wheel: MakeWheel,
) -> None:
    wheel = make_wheel(OtherInteger(5))

    wheel.insert(OtherInteger(7), OtherInteger(70))  # type: ignore[arg-type]
    gone = wheel.insert(OtherInteger(6), OtherInteger(60))  # type: ignore[arg-type]
    assert wheel.cancel(OtherInteger(gone + 2**80)) is False  # type: ignore[arg-type]
    assert wheel.cancel(OtherInteger(gone)) is True  # type: ignore[arg-type]
    assert wheel.next_due() == 7
    keys = wheel.advance(OtherInteger(7), OtherInteger(1))  # type: ignore[arg-type]
    assert keys == [70]
    assert type(keys[0]) is int
    assert type(wheel.now_tick) is int


def test_an_argument_that_raises_by_itself_leaves_the_wheel_as_it_was(
    make_wheel: MakeWheel,
) -> None:
    class Broken:
        def __index__(self) -> int:
            raise LookupError("of its own")

    wheel = make_wheel(timers_max=1)  # so that a lost place would be missed
    with pytest.raises(LookupError):
        wheel.insert(1, Broken())  # type: ignore[arg-type]
    with pytest.raises(LookupError):
        wheel.insert(Broken(), 1)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        wheel.insert(1, None)  # type: ignore[arg-type]
    with pytest.raises(DeadlineError):
        wheel.insert(2**63, 1)
    wheel.check()
    assert len(wheel) == 0

    wheel.insert(1, 1)
    assert wheel.advance(1) == [1]


@pytest.mark.parametrize("tick", [2**63, 10**30])
def test_ticks_end_at_2_to_the_63(make_wheel: MakeWheel, tick: int) -> None:
    wheel = make_wheel(3)
    wheel.insert(5, 5)

    with pytest.raises(DeadlineError, match="now_tick"):
        wheel.advance(tick)
    with pytest.raises(DeadlineError, match="now_tick"):
        wheel.advance_into(tick, int64s([0]))
    with pytest.raises(DeadlineError, match="now_tick"):
        make_wheel(tick)
    assert wheel.now_tick == 3
    assert len(wheel) == 1


def test_a_wheel_starts_at_0_or_later(make_wheel: MakeWheel) -> None:
    with pytest.raises(DeadlineError, match="now_tick"):
        make_wheel(-1)


@pytest.mark.parametrize("bits", [0, -1, 29])
def test_generation_bits_are_1_to_28(make_wheel: MakeWheel, bits: int) -> None:
    with pytest.raises(ArgumentError, match="generation_bits"):
        make_wheel(generation_bits=bits)


@pytest.mark.parametrize("timers_max", [0, -1, 2**32])
def test_timers_max_is_1_to_2_to_the_32(make_wheel: MakeWheel, timers_max: int) -> None:
    with pytest.raises(ArgumentError, match="timers_max"):
        make_wheel(timers_max=timers_max)


def test_a_negative_budget_is_refused(make_wheel: MakeWheel) -> None:
    wheel = make_wheel()
    wheel.insert(1, 1)

    with pytest.raises(ArgumentError, match="max_fire"):
        wheel.advance(10, -1)
    assert wheel.now_tick == 0
    assert len(wheel) == 1


def test_a_full_wheel_refuses_more_and_has_room_again_after_a_cancel(
    make_wheel: MakeWheel,
) -> None:
    wheel = make_wheel(timers_max=100)
    handles = [wheel.insert(deadline, deadline) for deadline in range(1, 101)]

    with pytest.raises(TimingWheelError, match="timers_max=100"):
        wheel.insert(5, 0)
    with pytest.raises(TimingWheelError, match="timers_max=100"):
        wheel.insert_many(int64s([5]), int64s([0]))
    assert len(wheel) == 100
    wheel.check()

    wheel.cancel(handles[0])
    with pytest.raises(TimingWheelError, match="timers_max=100"):
        wheel.insert_many(int64s([5, 6]), int64s([0, 0]))
    wheel.insert(101, 101)
    assert wheel.advance(200) == list(range(2, 102))


def test_a_wheel_says_what_it_is(make_wheel: MakeWheel) -> None:
    wheel = make_wheel(12)
    wheel.insert(20, 1)

    assert repr(wheel) == "<TimerWheel at tick 12, 1 timers>"


@pytest.mark.parametrize("copying", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_wheel_is_not_copied_for_its_handles_would_be_good_for_one_only(
    make_wheel: MakeWheel, copying: Callable[[object], object]
) -> None:
    with pytest.raises(TypeError, match="TimerWheel"):
        copying(make_wheel())


def test_a_wheel_that_is_started_anew_is_empty(make_wheel: MakeWheel) -> None:
    wheel = make_wheel(5)
    stale = wheel.insert(10, 1)
    wheel.insert(-10, 1)

    wheel.__init__(7)  # type: ignore[misc]

    assert wheel.now_tick == 7
    assert len(wheel) == 0
    assert wheel.cancel(stale) is False
    assert wheel.advance(DEADLINE_MAX) == []
    wheel.check()


def test_a_subclass_can_add_to_a_wheel(make_wheel: MakeWheel) -> None:
    class Named(make_wheel):  # type: ignore[misc,valid-type]
        def __init__(self, name: str) -> None:
            super().__init__(40)
            self.name = name

    wheel = Named("a")
    wheel.insert(41, 1)

    assert repr(wheel) == "<Named at tick 40, 1 timers>"
    assert wheel.advance(41) == [1]


@pytest.mark.parametrize("tick", [-(2**63), -(2**63) - 1, -(2**90)])
def test_before_all_ticks_nothing_is_due(make_wheel: MakeWheel, tick: int) -> None:
    wheel = make_wheel()
    wheel.insert(-(2**63), 1)
    out = int64s([0])

    expected = [1] if tick == -(2**63) else []
    assert wheel.advance(tick, 2**80) == expected
    assert wheel.advance_into(tick, out) == 0
    assert len(wheel) == 1 - len(expected)
    with pytest.raises(ArgumentError, match="max_fire"):
        wheel.advance(tick, -(2**80))
    assert wheel.now_tick == 0
    wheel.check()


# --------------------------------------------------------------- long and random programs


def test_a_long_random_program_agrees_with_a_sorted_list(
    make_wheel: MakeWheel, rng: random.Random
) -> None:
    wheel = make_wheel(generation_bits=4)
    pending: dict[int, tuple[int, int]] = {}  # handle -> (deadline, key)
    now, keys = 0, 0
    for turn in range(4_000):
        choice = rng.random()
        if choice < 0.45:
            for _ in range(rng.randrange(8)):
                unit = rng.choice((1, 10, 300, 70_000, 2**30))
                distance = unit * rng.randrange(-1, 9)
                handle = wheel.insert(now + distance, keys)
                assert handle not in pending
                pending[handle] = (now + distance, keys)
                keys += 1
        elif choice < 0.65 and pending:
            for handle in rng.sample(list(pending), min(len(pending), 5)):
                del pending[handle]
                assert wheel.cancel(handle) is True
                assert wheel.cancel(handle) is False
        else:
            now += rng.choice((0, 1, 5, 300, 70_000, 2**20))
            budget = rng.choice((None, 1, 10))
            by_order = sorted((*timer, handle) for handle, timer in pending.items())
            due = [timer for timer in by_order if timer[0] <= now][:budget]
            assert wheel.advance(now, budget) == [key for _, key, _ in due]
            for _, _, handle in due:
                del pending[handle]
        assert len(wheel) == len(pending)
        if turn % 100 == 0:
            wheel.check()
    wheel.check()


def test_every_level_is_left_in_time_by_single_steps(make_wheel: MakeWheel) -> None:
    start = 256**3 - 300
    wheel = make_wheel(start)
    for deadline in range(start, start + 900):
        wheel.insert(deadline, deadline)
    levels = {level_of(deadline, start) for deadline in range(start + 1, start + 900)}
    assert len(levels) >= 3

    for now, after in pairwise(range(start, start + 900)):
        assert wheel.advance(now) == [now]
        assert wheel.next_due() is not None
        if now % 100 == 0:
            wheel.check()
        assert len(wheel) == start + 900 - after
