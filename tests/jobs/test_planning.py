"""Which occurrences run after a time in which nobody could dispatch."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timingwheel.jobs.every import Every
from timingwheel.jobs.model import Misfire, MisfirePolicy, RunReason, SkipReason
from timingwheel.jobs.planning import RUNS_A_PLAN, Plan, PlannedRun, plan_due
from timingwheel.jobs.schedule import NS, Firing, Schedule

MINUTE = 60 * NS
BEGIN = 1_000_000 * MINUTE


def every_minute() -> Every:
    return Every(MINUTE, BEGIN)


def planned(
    policy: MisfirePolicy,
    *,
    first: int,
    now: int,
    unserved_until: int,
    schedule: Schedule | None = None,
) -> Plan:
    """Plan in whole minutes after BEGIN."""
    return plan_due(
        schedule if schedule is not None else every_minute(),
        policy,
        first=Firing(BEGIN + first * MINUTE),
        now_ns=BEGIN + now * MINUTE,
        unserved_until_ns=BEGIN + unserved_until * MINUTE,
    )


def minutes(plan: Plan) -> list[int]:
    return [(run.firing.utc_ns - BEGIN) // MINUTE for run in plan.runs]


def skipped(plan: Plan) -> list[tuple[int, int, int]]:
    return [
        ((s.first_ns - BEGIN) // MINUTE, (s.last_ns - BEGIN) // MINUTE, s.count)
        for s in plan.skips
    ]


def test_an_occurrence_on_time_is_one_run_and_nothing_is_skipped() -> None:
    plan = planned(MisfirePolicy(), first=5, now=5, unserved_until=0)

    assert minutes(plan) == [5]
    assert plan.runs[0].reason is RunReason.SCHEDULE
    assert plan.skips == []
    assert plan.next == Firing(BEGIN + 6 * MINUTE)


def test_a_backlog_of_our_own_is_never_dropped() -> None:
    """The loop was slow for five minutes, but somebody was there: no misfire."""
    plan = planned(MisfirePolicy(), first=5, now=9, unserved_until=4)

    assert minutes(plan) == [5, 6, 7, 8, 9]
    assert plan.skips == []


def test_a_long_backlog_of_our_own_comes_in_bounded_plans_too() -> None:
    plan = planned(MisfirePolicy(), first=1, now=1_000, unserved_until=0)

    assert minutes(plan) == list(range(1, RUNS_A_PLAN + 1))
    assert plan.next == Firing(BEGIN + (RUNS_A_PLAN + 1) * MINUTE)


def test_latest_runs_the_last_missed_one_and_notes_the_rest_in_one_range() -> None:
    """An hour down with a period of a minute: one run, the others in one record."""
    plan = planned(MisfirePolicy(), first=1, now=60, unserved_until=60)

    assert minutes(plan) == [60]
    assert plan.runs[0].reason is RunReason.CATCH_UP
    assert skipped(plan) == [(1, 59, 59)]
    assert plan.skips[0].reason is SkipReason.MISFIRE
    assert plan.next == Firing(BEGIN + 61 * MINUTE)


def test_skip_runs_none_of_the_missed() -> None:
    plan = planned(MisfirePolicy(rule=Misfire.SKIP), first=1, now=60, unserved_until=60)

    assert plan.runs == []
    assert skipped(plan) == [(1, 60, 60)]
    assert plan.next == Firing(BEGIN + 61 * MINUTE)


def test_first_runs_the_first_missed_one() -> None:
    plan = planned(
        MisfirePolicy(rule=Misfire.FIRST), first=1, now=60, unserved_until=60
    )

    assert minutes(plan) == [1]
    assert skipped(plan) == [(2, 60, 59)]


def test_all_runs_every_missed_one_within_its_limit_the_newest_first_kept() -> None:
    policy = MisfirePolicy(rule=Misfire.ALL, limit=10)
    plan = planned(policy, first=1, now=60, unserved_until=60)

    assert minutes(plan) == list(range(51, 61))
    assert skipped(plan) == [(1, 50, 50)]


def test_all_goes_back_no_further_than_its_window() -> None:
    policy = MisfirePolicy(rule=Misfire.ALL, window_ns=5 * MINUTE)
    plan = planned(policy, first=1, now=60, unserved_until=60)

    assert minutes(plan) == list(range(55, 61))
    assert skipped(plan) == [(1, 54, 54)]


@pytest.mark.parametrize(("older_ns", "oldest"), [(0, 55), (1, 56)])
def test_the_window_holds_what_is_exactly_as_old_as_it_and_nothing_older(
    older_ns: int, oldest: int
) -> None:
    end_ns = BEGIN + 60 * MINUTE + older_ns
    plan = plan_due(
        every_minute(),
        MisfirePolicy(rule=Misfire.ALL, window_ns=5 * MINUTE),
        first=Firing(BEGIN + MINUTE),
        now_ns=end_ns,
        unserved_until_ns=end_ns,
    )

    assert minutes(plan)[0] == oldest


def test_of_times_a_nanosecond_apart_none_is_left_out() -> None:
    plan = plan_due(
        Every(1, BEGIN),
        MisfirePolicy(rule=Misfire.FIRST),
        first=Firing(BEGIN),
        now_ns=BEGIN + 10,
        unserved_until_ns=BEGIN + 6,
    )

    assert [run.firing.utc_ns - BEGIN for run in plan.runs] == [0, 7, 8, 9, 10]
    [skip] = plan.skips
    assert (skip.first_ns, skip.last_ns, skip.count) == (BEGIN + 1, BEGIN + 6, 6)
    assert plan.next == Firing(BEGIN + 11)


@pytest.mark.parametrize("rule", Misfire)
def test_what_comes_due_the_nanosecond_after_the_gap_was_not_missed(
    rule: Misfire,
) -> None:
    plan = plan_due(
        every_minute(),
        MisfirePolicy(rule=rule),
        first=Firing(BEGIN),
        now_ns=BEGIN,
        unserved_until_ns=BEGIN - 1,
    )

    assert plan.runs == [PlannedRun(Firing(BEGIN), RunReason.SCHEDULE)]
    assert plan.skips == []
    assert plan.next == Firing(BEGIN + MINUTE)


def test_what_came_due_after_the_gap_runs_beside_the_catch_up() -> None:
    plan = planned(MisfirePolicy(), first=1, now=63, unserved_until=60)

    assert minutes(plan) == [60, 61, 62, 63]
    assert [run.reason for run in plan.runs] == [
        RunReason.CATCH_UP,
        RunReason.SCHEDULE,
        RunReason.SCHEDULE,
        RunReason.SCHEDULE,
    ]
    assert skipped(plan) == [(1, 59, 59)]


def test_a_long_catch_up_comes_in_bounded_plans_that_follow_each_other() -> None:
    policy = MisfirePolicy(rule=Misfire.ALL, limit=3_600)
    found: list[int] = []
    first, plans = 1, 0
    while True:
        plan = planned(policy, first=first, now=3_600, unserved_until=3_600)
        assert len(plan.runs) <= RUNS_A_PLAN
        assert plan.skips == []
        found += minutes(plan)
        plans += 1
        assert plan.next is not None
        first = (plan.next.utc_ns - BEGIN) // MINUTE
        if first > 3_600:
            break

    assert found == list(range(1, 3_601))
    assert plans == -(-3_600 // RUNS_A_PLAN)


def test_ten_missed_years_cost_one_range() -> None:
    schedule = Every(NS, BEGIN)
    years = 10 * 366 * 86_400
    plan = plan_due(
        schedule,
        MisfirePolicy(),
        first=Firing(BEGIN),
        now_ns=BEGIN + years * NS,
        unserved_until_ns=BEGIN + years * NS,
    )

    assert [run.firing.utc_ns for run in plan.runs] == [BEGIN + years * NS]
    assert [s.count for s in plan.skips] == [years]


def test_another_reason_is_written_down_for_a_pause() -> None:
    plan = plan_due(
        every_minute(),
        MisfirePolicy(rule=Misfire.SKIP),
        first=Firing(BEGIN),
        now_ns=BEGIN + 4 * MINUTE,
        unserved_until_ns=BEGIN + 4 * MINUTE,
        skip_reason=SkipReason.PAUSED,
    )

    assert [(s.reason, s.count) for s in plan.skips] == [(SkipReason.PAUSED, 5)]


def test_an_occurrence_that_is_not_due_is_our_bug() -> None:
    with pytest.raises(AssertionError):
        planned(MisfirePolicy(), first=6, now=5, unserved_until=0)


@given(
    first=st.integers(0, 40),
    late=st.integers(0, 40),
    unserved_until=st.integers(-5, 90),
    rule=st.sampled_from(Misfire),
    limit=st.integers(1, 50),
    window=st.none() | st.integers(0, 50),
)
def test_runs_and_skips_together_are_every_occurrence_once(
    *,
    first: int,
    late: int,
    unserved_until: int,
    rule: Misfire,
    limit: int,
    window: int | None,
) -> None:
    policy = MisfirePolicy(
        rule=rule,
        limit=limit,
        window_ns=None if window is None else window * MINUTE,
    )
    now = first + late
    plan = planned(policy, first=first, now=now, unserved_until=unserved_until)

    ranges = skipped(plan)
    runs = minutes(plan)
    covered = sorted([m for a, b, _ in ranges for m in range(a, b + 1)] + runs)
    assert covered == list(range(first, now + 1))
    assert all(count == b - a + 1 for a, b, count in ranges)
    assert all(a < b for a, b in pairwise(runs))
    # Nothing that came due while somebody could dispatch is ever skipped.
    assert all(b <= unserved_until for _, b, _ in ranges)
    assert plan.next == Firing(BEGIN + (now + 1) * MINUTE)
