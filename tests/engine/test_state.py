"""What the records add up to, and what of them a fuzzy snapshot makes superfluous."""

from __future__ import annotations

import random

import pytest

from timingwheel.clock import Reading
from timingwheel.engine.records import (
    Base,
    TimerId,
    clock_stepped,
    timer_acknowledged,
    timer_cancelled,
    timer_fired,
    timer_rescheduled,
    timer_scheduled,
    timers_acknowledged,
    timers_fired,
)
from timingwheel.engine.state import ELAPSED_MIN_NS, EngineState
from timingwheel.engine.table import NO_HANDLE, Row, State
from timingwheel.engine.timeline import PASSED_HANDLE, TICK_BITS, TICK_NS, Now
from timingwheel.errors import TimingWheelError
from timingwheel.wheel_arguments import DEADLINE_MAX
from wal.frame import FormatError, encode_records

WALL_NS = 1_700_000_000 * 10**9
READING = Reading(WALL_NS, 55 * 10**9)
SECOND_NS = 10**9


class Stage:
    """A state with the owner's records and the wake-ups that it asked for."""

    def __init__(self, *, reach_lsn: int = 0, gaps_allowed: bool = False) -> None:
        self.owned: list[list[tuple[int, bytes]]] = []
        self.woken_ns: list[int] = []
        self.state = EngineState(
            self.owned.append, reach_lsn=reach_lsn, gaps_allowed=gaps_allowed
        )

    def begin(self, last_wall_ns: int = WALL_NS) -> EngineState:
        self.state.begin(
            READING, last_wall_ns=last_wall_ns, on_insert=self.woken_ns.append
        )
        return self.state

    def now(self, passed_s: float = 0, *, step_ns: int = 0) -> Now:
        passed_ns = int(passed_s * SECOND_NS)
        return self.state.timeline.now(
            Reading(
                READING.wall_ns + passed_ns + step_ns, READING.monotonic_ns + passed_ns
            )
        )

    def due(self, passed_s: float = 0, limit: int = 1000) -> list[int]:
        return [*self.state.take_due(self.now(passed_s), limit)[0]]


@pytest.fixture
def stage() -> Stage:
    return Stage()


def delay(seconds: float, payload: bytes = b"") -> bytes:
    return timer_scheduled(Base.ELAPSED, WALL_NS + int(seconds * SECOND_NS), payload)


def moved(timer_id: int, seconds: float, *, attempt: int = 0) -> bytes:
    return timer_rescheduled(
        timer_id,
        base=Base.ELAPSED,
        deadline_ns=WALL_NS + int(seconds * SECOND_NS),
        attempt=attempt,
    )


def test_a_timers_id_is_the_number_of_its_record(stage: Stage) -> None:
    stage.state.apply(7, [delay(1, b"a"), delay(2, b"b")])
    row = stage.state.table.row(stage.state.slot_of(8))
    assert (row.timer_id, row.last_lsn, row.payload) == (8, 8, b"b")
    assert stage.state.table.timer_ids() == [7, 8]


def test_each_record_changes_its_timer(stage: Stage) -> None:
    state = stage.begin()
    state.apply(1, [delay(1), delay(1), delay(1)])
    assert stage.due(2) == [1, 2, 3]
    state.apply(4, [timer_fired(1, 1), timer_fired(2, 1), timer_cancelled(3)])
    state.check()
    assert state.table.row(state.slot_of(1)).state == State.FIRED
    assert state.table.attempt(state.slot_of(1)) == 1
    state.apply(7, [timer_acknowledged(1), moved(2, 9, attempt=1)])
    state.check()
    row = state.table.row(state.slot_of(2))
    assert (row.state, row.attempt, row.last_lsn) == (State.WAITING, 1, 8)
    assert state.table.timer_ids() == [2]
    assert stage.due(8.9) == []
    assert stage.due(9.1) == [2]


def test_a_reschedule_takes_the_timer_out_of_the_wheel_it_is_in(stage: Stage) -> None:
    state = stage.begin()
    state.apply(1, [timer_scheduled(Base.WALL, WALL_NS + SECOND_NS, b""), moved(1, 5)])
    assert len(state.timeline) == 1
    assert stage.due(4.9) == []
    assert stage.due(5.1) == [1]
    assert stage.due(9) == []


def test_each_new_deadline_is_told_on_the_monotonic_clock(stage: Stage) -> None:
    """The wall clock was set 5 s ahead once, so the elapsed time is 5 s behind it."""
    stage.state.apply(1, [clock_stepped(5 * SECOND_NS)])
    state = stage.begin()
    wall = timer_scheduled(Base.WALL, WALL_NS + SECOND_NS, b"")
    state.apply(2, [delay(1), moved(2, 3), wall])
    told_s = [round((ns - READING.monotonic_ns) / SECOND_NS) for ns in stage.woken_ns]
    assert told_s == [6, 8, 1]


def test_the_sum_of_the_steps_is_the_last_one_logged(stage: Stage) -> None:
    stage.state.apply(1, [clock_stepped(5), clock_stepped(-7)])
    assert (stage.state.steps_ns, stage.state.steps_lsn) == (-7, 2)
    stage.state.apply(1, [clock_stepped(5)])  # replayed over a newer snapshot
    assert (stage.state.steps_ns, stage.state.steps_lsn) == (-7, 2)


@pytest.mark.parametrize(
    ("elapsed_ns", "fits"),
    [
        (ELAPSED_MIN_NS, True),
        (ELAPSED_MIN_NS - 1, False),
        (DEADLINE_MAX, True),
        (DEADLINE_MAX + 1, False),
    ],
    ids=["least", "less", "most", "more"],
)
def test_steps_may_bring_engine_time_to_its_bounds_and_no_further(
    stage: Stage, elapsed_ns: int, *, fits: bool
) -> None:
    stage.state.apply(1, [clock_stepped(WALL_NS - elapsed_ns)])
    if fits:
        assert stage.begin().timeline.elapsed_ns(READING.monotonic_ns) == elapsed_ns
    else:
        with pytest.raises(TimingWheelError, match="is said to have been set by"):
            stage.begin()


def test_the_owners_records_come_in_runs_and_in_order_with_ours(stage: Stage) -> None:
    a, b, c = bytes([64, 1]), bytes([200, 2]), bytes([64, 3])
    stage.state.apply(1, [a, b, delay(1), c])
    assert stage.owned == [[(1, a), (2, b)], [(4, c)]]


def test_a_record_that_the_snapshot_has_already_is_skipped() -> None:
    stage = Stage(reach_lsn=10)
    table = stage.state.table
    slot = table.insert(
        2, last_lsn=6, deadline_ns=99, base=Base.WALL, payload=b"s", attempt=3
    )
    stage.state.apply(2, [delay(1, b"old"), moved(2, 5), moved(2, 6)])
    assert table.row(slot).last_lsn == 6
    assert table.payload(slot) == b"s"
    stage.state.apply(7, [moved(2, 7, attempt=4)])
    assert (table.row(slot).last_lsn, table.attempt(slot)) == (7, 4)


@pytest.mark.parametrize("as_group", [False, True], ids=["records", "group"])
def test_a_timer_that_a_snapshot_missed_comes_from_its_record(
    *, as_group: bool
) -> None:
    """Up to where the snapshot reaches it may have a timer, in a newer state, or not."""
    stage = Stage(reach_lsn=10)
    state = stage.state
    state.table.insert(
        10, last_lsn=10, deadline_ns=5, base=Base.WALL, payload=b"newer", attempt=3
    )
    records = [delay(1, b"missed"), delay(2, b"old"), delay(3, b"after")]
    if as_group:
        state.apply_group(9, encode_records(records))
    else:
        state.apply(9, records)
    payloads = [
        state.table.payload(state.slot_of(timer_id)) for timer_id in (9, 10, 11)
    ]
    assert payloads == [b"missed", b"newer", b"after"]


def test_up_to_where_a_snapshot_reaches_a_change_may_find_its_timer_gone() -> None:
    stage = Stage(reach_lsn=10)
    stage.state.apply(9, [timer_cancelled(1), timer_acknowledged(2)])
    with pytest.raises(TimingWheelError, match=r"LSN 11 changes timer 1\b.*report"):
        stage.state.apply(11, [timer_fired(1, 1)])


def test_a_repaired_store_may_miss_timers() -> None:
    stage = Stage(gaps_allowed=True)
    stage.state.apply(11, [timer_fired(1, 1), moved(2, 1), timer_cancelled(3)])
    assert len(stage.state.table) == 0


@pytest.mark.parametrize("kind", [0, 9, 63])
def test_a_record_of_an_unknown_kind_is_refused(stage: Stage, kind: int) -> None:
    with pytest.raises(TimingWheelError, match=f"LSN 5 has kind {kind}.*version"):
        stage.state.apply(5, [bytes([kind]) + bytes(16)])


def test_a_record_of_many_changes_what_each_of_them_would(stage: Stage) -> None:
    """In a log that is read back, and in an engine that runs."""
    state = stage.state
    state.apply(1, [delay(s) for s in (1, 2, 3, 4)])
    state.apply(5, [timers_fired([1, 2, 3], 1), timers_acknowledged([1, 3])])
    assert state.table.timer_ids() == [2, 4]
    assert state.table.row(state.slot_of(2))[1:5] == (
        5,
        WALL_NS + 2 * SECOND_NS,
        1,
        State.FIRED,
    )
    state = stage.begin()
    assert stage.due(0) == [2]
    state.apply(7, [timers_fired([2], 2)])
    state.check()
    # Those that wait are taken out of the wheel, those put back out of their order.
    state.apply(8, [delay(1), delay(1)])
    state.put_back(state.take_due(stage.now(1.5), 1)[0], [], stage.now(1.5))
    state.apply(10, [timers_fired([8, 9], 1)])
    state.check()
    assert stage.due(3) == []
    state.apply(11, [timers_acknowledged([9, 2, 8])])
    state.check()
    assert len(state.table) == 1


def test_a_record_of_many_skips_what_a_snapshot_has_and_what_it_missed() -> None:
    stage = Stage(reach_lsn=20)
    stage.state.table.insert(
        3, last_lsn=11, deadline_ns=5, base=Base.ELAPSED, payload=b""
    )
    stage.state.apply(10, [timers_fired([2, 3], 1), timers_acknowledged([2, 3])])
    assert len(stage.state.table) == 1
    stage.state.apply(12, [timers_fired([2, 3], 4), timers_acknowledged([2])])
    assert stage.state.table.attempts([3]) == [4]
    with pytest.raises(
        TimingWheelError, match="LSN 21 changes timer 2, which does not"
    ):
        stage.state.apply(21, [timers_acknowledged([3, 2])])
    with pytest.raises(
        TimingWheelError, match="LSN 22 changes timer 2, which does not"
    ):
        stage.state.apply(22, [timers_fired([2], 1)])


def test_what_was_fired_comes_first_then_the_overdue_in_order(stage: Stage) -> None:
    """Fired before the restart and never acknowledged; then (deadline, id)."""
    stage.state.apply(1, [delay(s) for s in (-10, -30, -20, -20, -50, -40, 60)])
    stage.state.apply(8, [timer_fired(1, 1), timer_fired(4, 1)])
    stage.begin(last_wall_ns=WALL_NS - 100 * SECOND_NS)
    assert stage.state.next_due_ns() == 0
    assert stage.due(0, limit=3) == [4, 1, 5]
    assert stage.due(0) == [6, 2, 3]
    assert stage.due(61) == [7]


def test_what_was_taken_out_and_put_back_is_overtaken_by_nobody(stage: Stage) -> None:
    state = stage.state
    state.apply(1, [delay(-9), *[delay(1)] * 6, timer_fired(1, 1)])
    stage.begin()
    now = stage.now(2)
    timers, armed = state.take_due(now, 4)
    assert [*timers] == [1, 2, 3, 4]
    state.put_back(timers, armed, now)
    state.check()
    assert state.next_due_ns() == 0
    assert stage.due(2, limit=3) == [1, 2, 3]
    assert stage.due(2) == [4, 5, 6, 7]


def test_undelivered_timers_that_were_put_back_keep_their_place_among_all(
    stage: Stage,
) -> None:
    state = stage.state
    state.apply(1, [delay(-1)] * 5)
    state.apply(6, [timer_fired(timer_id, 1) for timer_id in (1, 2, 3, 4)])
    stage.begin()
    now = stage.now()
    state.put_back(*state.take_due(now, 2), now)
    state.check()
    assert stage.due() == [1, 2, 3, 4, 5]


def test_what_was_put_back_can_be_cancelled_and_moved(stage: Stage) -> None:
    state = stage.begin()
    state.apply(1, [delay(1)] * 4)
    now = stage.now(2)
    state.put_back(*state.take_due(now, 9), now)
    state.apply(5, [timer_cancelled(1), moved(3, 50)])
    state.check()
    assert stage.due(2) == [2, 4]
    assert stage.due(51) == [3]


def test_of_what_is_put_back_only_what_nothing_became_of_is_due_again(
    stage: Stage,
) -> None:
    state = stage.begin()
    state.apply(1, [delay(1)] * 4)
    now = stage.now(2)
    timers, armed = state.take_due(now, 9)
    state.apply(5, [timer_cancelled(1), moved(3, 50)])
    state.put_back(timers, armed, now)
    state.check()
    assert stage.due(2) == [2, 4]
    assert stage.due(51) == [3]


def test_a_due_timer_is_held_until_something_becomes_of_it(stage: Stage) -> None:
    state = stage.begin()
    state.apply(1, [delay(1)] * 4)
    assert not state.is_held(1)
    assert stage.due(2) == [1, 2, 3, 4]
    assert not state.is_held(1)
    for timer_id in (1, 2, 3):
        state.hold(timer_id)
    assert [state.is_held(timer_id) for timer_id in range(1, 6)] == [
        *[True] * 3,
        *[False] * 2,
    ]
    state.apply(5, [timer_fired(1, 1), timer_cancelled(2), moved(3, 9), moved(4, 9)])
    state.check()
    assert not any(state.is_held(timer_id) for timer_id in range(1, 5))


def test_a_wall_timer_that_was_put_back_waits_again_if_the_clock_is_set_back(
    stage: Stage,
) -> None:
    state = stage.begin()
    state.apply(1, [timer_scheduled(Base.WALL, WALL_NS + SECOND_NS, b"")])
    now = stage.now(2)
    state.put_back(*state.take_due(now, 9), now)
    back = stage.now(3, step_ns=-10 * SECOND_NS)
    assert state.take_due(back, 9) == ([], [])
    state.check()
    assert state.take_due(stage.now(11.1, step_ns=-10 * SECOND_NS), 9) == ([1], [])


def test_a_wall_timer_that_was_put_back_keeps_its_place_at_its_very_deadline(
    stage: Stage,
) -> None:
    state = stage.begin()
    wall = timer_scheduled(Base.WALL, WALL_NS + SECOND_NS, b"")
    state.apply(1, [wall, delay(0.5), delay(0.5)])
    now = stage.now(2)
    timers, _ = state.take_due(now, 1)
    assert timers == [1]  # the wheels take turns, and its was the first
    state.put_back(timers, [], now)
    back = stage.now(2, step_ns=-SECOND_NS)
    assert state.take_due(back, 9) == ([1, 2, 3], [])


def test_a_delay_that_was_put_back_keeps_its_place_if_the_clock_is_set_back(
    stage: Stage,
) -> None:
    state = stage.begin()
    state.apply(1, [delay(1)] * 2)
    now = stage.now(2)
    state.put_back(*state.take_due(now, 1), now)
    back = stage.now(2, step_ns=-60 * SECOND_NS)
    assert state.take_due(back, 1) == ([1], [])
    assert state.take_due(back, 1) == ([2], [])


def test_what_had_fired_is_delivered_again_wherever_the_clock_is(stage: Stage) -> None:
    wall = timer_scheduled(Base.WALL, WALL_NS + SECOND_NS, b"")
    stage.state.apply(1, [wall, timer_fired(1, 1)])
    state = stage.begin(last_wall_ns=WALL_NS + 2 * SECOND_NS)
    assert state.take_due(stage.now(0), 9) == ([1], [])
    assert state.table.row(state.slot_of(1)).state == State.FIRED


def test_an_acknowledgement_of_many_leaves_the_others_to_be_delivered(
    stage: Stage,
) -> None:
    stage.state.apply(1, [delay(-1)] * 4)
    stage.state.apply(5, [timers_fired([1, 2, 3, 4], 1)])
    state = stage.begin()
    state.apply(6, [timers_acknowledged([1, 3])])
    state.check()
    assert stage.due() == [2, 4]


def test_an_undelivered_timer_that_is_moved_fires_at_its_new_deadline_alone(
    stage: Stage,
) -> None:
    stage.state.apply(1, [delay(-1), delay(-1)])
    stage.state.apply(3, [timer_fired(1, 1), timer_fired(2, 1)])
    state = stage.begin()
    state.apply(5, [moved(1, 5, attempt=1), timer_cancelled(2)])
    assert stage.due(4) == []
    assert stage.due(6) == [1]


def test_a_group_does_the_same_as_its_records_one_by_one(rng: random.Random) -> None:
    """Timers in a row go in as a batch; wall timers that are passed already wait."""
    for begun in (True, False):
        alone, group = Stage(gaps_allowed=True), Stage(gaps_allowed=True)
        stages = (alone, group)
        if begun:
            for stage in stages:
                stage.begin()
        lsn = 1
        for _ in range(30):
            records = [record for _ in range(9) for record in run_of(rng, lsn)]
            alone.state.apply(lsn, records)
            group.state.apply_group(lsn, encode_records(records))
            lsn += len(records)
        assert rows_of(group) == rows_of(alone)
        assert group.state.steps_ns == alone.state.steps_ns
        assert group.owned == alone.owned
        if begun:
            assert min(group.woken_ns) == min(alone.woken_ns)
        else:
            for stage in stages:
                stage.begin()
        for stage in stages:
            stage.state.check()
        for passed_s in (0, 1, 50, 99, 101):
            assert group.due(passed_s) == alone.due(passed_s)


def run_of(rng: random.Random, first_lsn: int) -> list[bytes]:
    """Some records of one kind, as a group may have them."""

    def deadline_ns() -> int:
        return WALL_NS + rng.randrange(-20, 100) * SECOND_NS

    match rng.randrange(5):
        case 0:
            return [timer_scheduled(Base.WALL, deadline_ns(), rng.randbytes(3))]
        case 1:
            return [clock_stepped(rng.randrange(9)), bytes([70, rng.randrange(9)])]
        case 2:
            # Nobody has this id yet, or no more: only where gaps are allowed.
            return [moved(rng.randrange(1, 500), 7), timer_cancelled(first_lsn + 2)]
    return [
        timer_scheduled(rng.choice([*Base]), deadline_ns(), rng.randbytes(9))
        for _ in range(rng.randrange(20))
    ]


def rows_of(stage: Stage) -> list[Row]:
    table = stage.state.table
    return sorted(table.walk(0, table.slot_count))


@pytest.mark.parametrize(("base", "after_s"), [(Base.ELAPSED, 8), (Base.WALL, 3)])
def test_the_earliest_of_a_group_is_told_on_the_monotonic_clock(
    stage: Stage, base: Base, after_s: int
) -> None:
    """The wall clock was set 5 s ahead once, so the elapsed time is 5 s behind it."""
    stage.state.apply(1, [clock_stepped(5 * SECOND_NS)])
    records = [
        timer_scheduled(base, WALL_NS + second * SECOND_NS, b"")
        for second in (9, 3, 7, 5, 4)
    ]
    stage.begin().apply_group(2, encode_records(records))
    (woken_ns,) = stage.woken_ns
    assert 0 <= woken_ns - READING.monotonic_ns - after_s * SECOND_NS < TICK_NS


def test_wall_timers_of_a_group_that_their_wheel_has_passed_wait_for_the_clock(
    stage: Stage,
) -> None:
    state = stage.begin()
    assert stage.due(100) == []
    wall = [
        timer_scheduled(Base.WALL, WALL_NS + second * SECOND_NS, b"")
        for second in (90, 130, 70, 110, 80)
    ]
    state.apply_group(1, encode_records(wall))
    state.check()
    handles = [state.table.handle(state.slot_of(timer_id)) for timer_id in range(1, 6)]
    assert [handle == PASSED_HANDLE for handle in handles] == [True, False] * 2 + [True]
    found = [
        state.take_due(stage.now(passed_s, step_ns=-50 * SECOND_NS), 9)[0]
        for passed_s in (101, 119, 121, 141, 161, 181)
    ]
    assert found == [[], [], [3], [5, 1], [4], [2]]


def test_a_group_whose_sizes_do_not_add_up_is_refused(stage: Stage) -> None:
    body = encode_records([delay(1), delay(2)])
    with pytest.raises(FormatError):
        stage.state.apply_group(1, body[:-1])
    with pytest.raises(FormatError):
        stage.state.apply_group(3, body + b"\1")


def test_armed_timers_come_as_tokens_beside_the_others(stage: Stage) -> None:
    state = stage.begin()
    deadline_ns = WALL_NS + SECOND_NS
    state.apply(1, [delay(1)])
    for token in (0, 5, 2**63 - 1):
        state.timeline.insert(Base.ELAPSED, deadline_ns, ~token)
    now = stage.now(2)
    assert state.take_due(now, 9) == ([TimerId(1)], [0, 5, 2**63 - 1])
    state.put_back([TimerId(1)], [0, 5], now)
    state.check()
    assert state.take_due(stage.now(2.1), 9) == ([TimerId(1)], [0, 5])


def test_armed_timers_of_both_wheels_come_beside_what_is_due_on_one(
    stage: Stage,
) -> None:
    state = stage.begin()
    state.apply(1, [delay(1)])
    for base, token in ((Base.ELAPSED, 5), (Base.WALL, 7)):
        state.timeline.insert(base, WALL_NS + SECOND_NS, ~token)
    assert state.take_due(stage.now(2), 9) == ([TimerId(1)], [5, 7])


def test_wall_timers_that_their_wheel_has_passed_fire_by_deadline(
    stage: Stage,
) -> None:
    """To the nanosecond, and whichever of them came first."""
    state = stage.begin()
    tick_ns = WALL_NS >> TICK_BITS << TICK_BITS
    for timer_id, before_ns in enumerate((5, 7, 6), 1):
        wall = timer_scheduled(Base.WALL, tick_ns - before_ns, b"")
        state.apply(timer_id, [wall])
    assert stage.due(1) == [2, 3, 1]


def test_two_wheels_timers_come_merged_by_deadline(stage: Stage) -> None:
    state = stage.begin()
    for seconds in (5, 1, 3):
        state.apply(2 * seconds, [delay(seconds)])
        wall = timer_scheduled(Base.WALL, WALL_NS + (seconds + 1) * SECOND_NS, b"")
        state.apply(2 * seconds + 1, [wall])
    assert stage.due(10) == [2, 3, 6, 7, 10, 11]


def test_a_timer_taken_out_is_settled_once_something_became_of_it(stage: Stage) -> None:
    state = stage.begin()
    state.apply(1, [delay(1)] * 3)
    assert stage.due(2) == [1, 2, 3]
    assert state.table.unsettled([1, 2, 3]) == [1, 2, 3]
    state.apply(4, [timer_fired(1, 1), moved(2, 9), timer_cancelled(3)])
    assert state.table.unsettled([1, 2, 3]) == []


def test_check_sees_a_waiting_timer_in_no_wheel(stage: Stage) -> None:
    state = stage.begin()
    state.apply(1, [delay(1)])
    state.check()
    state.table.set_handle(state.slot_of(1), NO_HANDLE)
    with pytest.raises(AssertionError):
        state.check()


def test_check_sees_that_a_wheel_has_fewer_timers_than_its_rows_say(
    stage: Stage,
) -> None:
    state = stage.begin()
    state.apply(1, [delay(1), delay(1)])
    state.check()
    handle = state.table.handle(state.slot_of(1))
    assert state.timeline.cancel(Base.ELAPSED, handle, deadline_ns=0, key=1)
    with pytest.raises(AssertionError):
        state.check()


def test_a_tick_is_what_a_deadline_may_be_late(stage: Stage) -> None:
    state = stage.begin()
    state.apply(1, [timer_scheduled(Base.ELAPSED, WALL_NS + 1, b"")])
    assert stage.due(0) == []
    assert [*state.take_due(stage.now(TICK_NS / SECOND_NS), 9)[0]] == [1]
