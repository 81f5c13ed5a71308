"""What every store does with times that nobody could serve, and with clocks that step."""

from __future__ import annotations

import tracemalloc
from datetime import UTC, date, datetime
from itertools import pairwise

import pytest

from tests.stores.stage import (
    DAY,
    HOUR,
    MINUTE,
    SECOND,
    Stage,
    at,
    cron,
    every,
    misfire,
    nominals,
    overlap,
)
from timingwheel.jobs.calendars import NamedCalendar
from timingwheel.jobs.errors import UnknownCalendarError
from timingwheel.jobs.model import JobState, RunReason, RunState
from timingwheel.jobs.triggers import EveryCalendar, Trigger

RECURRING = pytest.mark.parametrize(
    "trigger", [every(60), cron("* * * * *")], ids=["elapsed", "cron"]
)


def wall(stage: Stage, moment: datetime) -> None:
    """Set the wall clock to a moment, before anything is put."""
    stage.step_wall((int(moment.timestamp()) * SECOND - stage.now_ns) / SECOND)


def shown(nominal_ns: int) -> str:
    """Return an instant in UTC, to the minute."""
    return f"{datetime.fromtimestamp(nominal_ns / SECOND, UTC):%m-%d %H:%M}"


# -- misfire: the store was down ----------------------------------------------------------------


@pytest.mark.parametrize("crash", [False, True], ids=["closed", "crashed"])
@RECURRING
def test_by_default_the_latest_missed_time_runs_and_one_record_tells_of_the_others(
    stage: Stage, trigger: Trigger, crash: bool
) -> None:
    job = stage.put(trigger)
    stage.restart(crash=crash, down=101 * 60 + 1)
    [run] = stage.step()
    assert run.reason is RunReason.CATCH_UP
    assert stage.skipped(job) == [("misfire", 100)]
    [skip] = stage.store.skips(job)
    assert skip.last_ns == run.nominal_ns - MINUTE
    assert skip.last_ns - skip.first_ns == 99 * MINUTE
    [on_time] = stage.work(60)
    assert on_time.nominal_ns == run.nominal_ns + MINUTE
    assert on_time.reason is RunReason.SCHEDULE


@RECURRING
def test_misfire_skip_runs_none_of_the_missed(stage: Stage, trigger: Trigger) -> None:
    job = stage.put(trigger, misfire=misfire("skip"))
    stage.restart(down=601)
    assert stage.step() == []
    assert stage.skipped(job) == [("misfire", 10)]
    assert len(stage.work(60)) == 1


@RECURRING
def test_misfire_first_runs_the_first_of_the_missed(
    stage: Stage, trigger: Trigger
) -> None:
    job = stage.put(trigger, misfire=misfire("first"))
    first_ns = stage.job(job).next_ns
    stage.restart(down=601)
    assert nominals(stage.step()) == [first_ns]
    assert stage.skipped(job) == [("misfire", 9)]


@RECURRING
def test_misfire_all_runs_as_many_as_its_limit_says_and_the_latest_of_them(
    stage: Stage, trigger: Trigger
) -> None:
    policy = misfire("all", limit=4)
    job = stage.put(trigger, misfire=policy, overlap=overlap("allow"))
    first_ns = stage.job(job).next_ns
    assert first_ns is not None
    stage.restart(down=601)
    runs = stage.step()
    assert nominals(runs) == [first_ns + n * MINUTE for n in range(6, 10)]
    assert stage.skipped(job) == [("misfire", 6)]


def test_misfire_all_goes_back_no_further_than_its_window(stage: Stage) -> None:
    policy = misfire("all", window_ns=3 * MINUTE)
    job = stage.put(every(60), misfire=policy, overlap=overlap("allow"))
    stage.restart(down=630)
    assert len(stage.step()) == 3
    assert stage.skipped(job) == [("misfire", 7)]


def test_misfire_all_makes_a_thousand_runs_and_no_more(stage: Stage) -> None:
    job = stage.put(every(1), misfire=misfire("all"), overlap=overlap("allow", 5_000))
    stage.restart(down=3000.5)
    stage.fire()
    assert len(stage.runs(job, states=frozenset({RunState.READY}))) == 1_000
    assert stage.skipped(job) == [("misfire", 2_000)]


@pytest.mark.parametrize("named", [{}, {"name": "n"}], ids=["plain", "named"])
def test_a_one_time_job_that_was_missed_runs(stage: Stage, named: dict) -> None:
    job = stage.put(at(stage.now_ns + MINUTE), misfire=misfire("skip"), **named)
    stage.restart(crash=True, down=10 * 86_400)
    assert len(stage.step()) == 1
    assert stage.states(job) == ["succeeded"]


def test_what_was_due_while_the_store_was_up_is_late_and_not_missed(
    stage: Stage,
) -> None:
    job = stage.put(every(60), misfire=misfire("skip"), overlap=overlap("allow"))
    stage.advance(601)
    assert len(stage.step()) == 10
    assert stage.skipped(job) == []


def test_missed_times_are_dealt_with_once(stage: Stage) -> None:
    job = stage.put(every(60))
    stage.restart(down=601)
    stage.step()
    for crash in (True, False):
        stage.restart(crash=crash)
        assert stage.step() == []
    assert stage.skipped(job) == [("misfire", 9)]


# -- misfire: the wall clock was set ahead --------------------------------------------------------


def test_ten_years_ahead_on_a_one_second_cron_cost_one_run_and_one_record(
    stage: Stage,
) -> None:
    job = stage.put(cron("* * * * * *"))
    stage.work(1.5)
    years_s = 10 * 365 * 86_400
    tracemalloc.start()
    stage.step_wall(years_s)
    runs = stage.step()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert [run.reason for run in runs] == [RunReason.CATCH_UP]
    [(reason, count)] = stage.skipped(job)
    assert reason == "misfire"
    assert abs(count - years_s) <= 2
    assert peak < 2 << 20  # ten missed seconds take as much
    assert len(stage.work(1, times=3)) == 3


def test_ten_years_down_on_a_one_second_interval_cost_one_run_and_one_record(
    stage: Stage,
) -> None:
    job = stage.put(every(1))
    stage.restart(down=10 * 365 * 86_400 + 0.5)
    assert len(stage.step()) == 1
    assert stage.skipped(job) == [("misfire", 10 * 365 * 86_400 - 1)]


@pytest.mark.parametrize("rule", ["skip", "first", "latest", "all"])
def test_every_time_that_a_step_ahead_passed_is_a_run_or_in_one_skip_range(
    stage: Stage, rule: str
) -> None:
    job = stage.put(
        cron("* * * * *"), misfire=misfire(rule, limit=7), overlap=overlap("allow")
    )
    first_ns = stage.job(job).next_ns
    assert first_ns is not None
    stage.step_wall(3600)
    stage.step()
    stage.work(60, times=3)
    next_ns = stage.job(job).next_ns
    assert next_ns is not None
    runs, skips = stage.runs(job), stage.store.skips(job)
    assert len(runs) + sum(s.count for s in skips) == (next_ns - first_ns) // MINUTE
    for run in runs:
        assert not any(s.first_ns <= run.nominal_ns <= s.last_ns for s in skips)
    for earlier, later in pairwise(skips):
        assert earlier.last_ns < later.first_ns


def test_a_step_ahead_of_less_than_a_second_misses_nothing(stage: Stage) -> None:
    job = stage.put(cron("* * * * * *"), misfire=misfire("skip"))
    stage.step()
    stage.step_wall(0.9)
    stage.advance(0.2)
    assert len(stage.step()) == 1
    assert stage.skipped(job) == []


# -- steps of the wall clock ----------------------------------------------------------------------


@pytest.mark.parametrize("step", [-7200, 7200, -86_400 * 400])
def test_an_interval_of_elapsed_time_does_not_see_the_wall_clock_step(
    stage: Stage, step: int
) -> None:
    job = stage.put(every(10))
    assert len(stage.work(10, times=3)) == 3
    stage.step_wall(step)
    assert len(stage.work(10, times=4)) == 4
    stage.restart(crash=True)
    assert len(stage.work(10, times=4)) == 4
    stage.step_wall(-step)
    assert len(stage.work(10, times=3)) == 3
    assert stage.skipped(job) == []
    assert [b - a for a, b in pairwise(nominals(stage.runs(job)))] == [10 * SECOND] * 13


@pytest.mark.parametrize("step", [-7200, 7200])
@pytest.mark.parametrize("named", [{}, {"name": "n"}], ids=["plain", "named"])
def test_a_delay_does_not_see_the_wall_clock_step(
    stage: Stage, step: int, named: dict
) -> None:
    stage.put(100, **named)
    stage.advance(50)
    stage.step_wall(step)
    stage.advance(49.9)
    assert stage.step() == []
    stage.advance(0.1)
    assert len(stage.step()) == 1


@pytest.mark.parametrize("step", [-7200, 7200])
def test_a_backoff_does_not_see_the_wall_clock_step(stage: Stage, step: int) -> None:
    stage.put(0)
    stage.fail(stage.start_one())
    stage.step_wall(step)
    stage.advance(0.7)
    assert stage.step() == []
    stage.advance(0.6)
    assert len(stage.step()) == 1


def test_a_wall_time_follows_the_wall_clock(stage: Stage) -> None:
    job = stage.put(at(stage.now_ns + HOUR))
    stage.step_wall(-3600)
    stage.advance(3601)
    assert stage.step() == []
    stage.step_wall(3600)
    assert len(stage.step()) == 1
    assert stage.states(job) == ["succeeded"]


def test_a_nominal_time_that_fired_does_not_fire_again_after_a_step_back(
    stage: Stage,
) -> None:
    job = stage.put(cron("* * * * *"))
    before = stage.work(60, times=5)
    assert len(before) == 5
    stage.step_wall(-180)
    stage.restart(crash=True)
    assert stage.work(58, times=3) == []
    after = stage.work(60, times=3)
    times = nominals(before + after)
    assert times == sorted(set(times))
    assert [b - a for a, b in pairwise(times)] == [MINUTE] * (len(times) - 1)
    assert stage.skipped(job) == []


def test_after_a_step_back_nothing_on_time_counts_as_missed(stage: Stage) -> None:
    stage.step_wall(-7200)
    job = stage.put(cron("* * * * *"), misfire=misfire("skip"))
    assert len(stage.work(60, times=3)) == 3
    assert {run.reason for run in stage.runs(job)} == {RunReason.SCHEDULE}
    assert stage.skipped(job) == []


def test_a_clock_that_is_set_while_the_store_is_down_fires_nothing_twice(
    stage: Stage,
) -> None:
    job = stage.put(cron("* * * * *"))
    stage.work(60, times=3)
    stage.restart(step=-150)
    assert stage.work(40, times=3) == []
    stage.work(60, times=3)
    times = nominals(stage.runs(job))
    assert [b - a for a, b in pairwise(times)] == [MINUTE] * (len(times) - 1)


# -- start deadline -------------------------------------------------------------------------------


def test_a_run_that_was_not_started_by_its_deadline_is_skipped(stage: Stage) -> None:
    job = stage.put(10, start_deadline_ns=5 * SECOND)
    stage.advance(10)
    stage.fire()
    stage.advance(5.1)
    assert stage.step() == []
    run = stage.run(job)
    assert (run.state, run.skip_reason) == (RunState.SKIPPED, "expired")
    assert stage.job(job).state is JobState.DONE


def test_a_claim_does_not_start_what_has_expired(stage: Stage) -> None:
    job = stage.put(10, start_deadline_ns=5 * SECOND)
    stage.advance(10)
    stage.fire()
    stage.advance(5.1)
    assert stage.claim() == []
    stage.fire()
    assert stage.states(job) == ["skipped"]


def test_a_run_that_started_in_time_goes_on_after_its_deadline(stage: Stage) -> None:
    job = stage.put(10, start_deadline_ns=5 * SECOND)
    stage.advance(14)
    claim = stage.start_one()
    stage.advance(100)
    stage.fire()
    stage.fail(claim)
    stage.advance(100)
    stage.step()
    assert stage.states(job) == ["succeeded"]


def test_a_start_deadline_counts_over_a_restart(stage: Stage) -> None:
    kept = stage.put(10, start_deadline_ns=60 * SECOND)
    gone = stage.put(10, start_deadline_ns=5 * SECOND)
    stage.restart(crash=True, down=20)
    assert [run.job_id for run in stage.step()] == [kept]
    assert stage.states(gone) == ["skipped"]


def test_an_occurrence_that_expires_leaves_the_next_alone(stage: Stage) -> None:
    job = stage.put(every(60), start_deadline_ns=5 * SECOND)
    stage.advance(60)
    stage.fire()
    stage.advance(30)
    stage.fire()
    assert len(stage.work(30)) == 1
    assert stage.states(job) == ["skipped", "succeeded"]


# -- daylight saving time -------------------------------------------------------------------------

SPRING = datetime(2026, 3, 28, 12, tzinfo=UTC)
AUTUMN = datetime(2026, 10, 24, 12, tzinfo=UTC)


def test_a_daily_job_in_the_gap_runs_once_at_its_end_and_says_so(
    stage: Stage,
) -> None:
    wall(stage, SPRING)
    job = stage.put(cron("30 2 * * *", tz="Europe/Berlin"))
    stage.work(3600, times=60)
    runs = stage.runs(job)
    assert [shown(run.nominal_ns) for run in runs] == ["03-29 01:00", "03-30 00:30"]
    assert [run.mark.value for run in runs] == ["shifted", ""]


def test_a_daily_job_in_the_overlap_runs_once_at_the_first_copy(stage: Stage) -> None:
    wall(stage, AUTUMN)
    job = stage.put(cron("30 2 * * *", tz="Europe/Berlin"))
    stage.work(3600, times=60)
    runs = stage.runs(job)
    assert [shown(run.nominal_ns) for run in runs] == ["10-25 00:30", "10-26 01:30"]
    assert [run.mark.value for run in runs] == ["first of two", ""]


def test_a_job_of_every_quarter_hour_runs_through_the_overlap(stage: Stage) -> None:
    wall(stage, datetime(2026, 10, 24, 21, 59, 59, tzinfo=UTC))
    job = stage.put(cron("*/15 * * * *", tz="Europe/Berlin"))
    stage.work(900, times=100)
    times = nominals(stage.runs(job))
    assert len(times) == 100
    assert [b - a for a, b in pairwise(times)] == [15 * MINUTE] * 99


def test_a_gap_that_is_to_be_skipped_is_on_record(stage: Stage) -> None:
    wall(stage, SPRING)
    job = stage.put(cron("30 2 * * *", tz="Europe/Berlin", gap="skip"))
    stage.work(3600, times=60)
    assert [shown(run.nominal_ns) for run in stage.runs(job)] == ["03-30 00:30"]
    assert stage.skipped(job) == [("dst", 1)]


def test_seven_days_at_a_wall_time_stay_at_it_over_the_change(stage: Stage) -> None:
    wall(stage, SPRING)
    rule = EveryCalendar(interval=7, unit="days", at="16:00", tz="Europe/Berlin")
    job = stage.put(rule)
    hours = stage.put(every(168 * 3600))
    stage.work(6 * 3600, times=4 * 15)
    shown_times = [shown(ns) for ns in nominals(stage.runs(job))]
    assert shown_times == ["03-28 15:00", "04-04 14:00", "04-11 14:00"]
    first, second = nominals(stage.runs(hours))
    assert second - first == 7 * DAY


# -- bounds and calendars -------------------------------------------------------------------------


def test_a_job_ends_after_its_last_occurrence(stage: Stage) -> None:
    job = stage.put(every(10, end_ns=stage.now_ns + 35 * SECOND))
    assert len(stage.work(10, times=6)) == 3
    assert stage.job(job).state is JobState.DONE


def test_a_job_begins_at_its_start(stage: Stage) -> None:
    job = stage.put(every(10, start_ns=stage.now_ns + 100 * SECOND))
    assert stage.work(10, times=9) == []
    assert len(stage.work(10, times=2)) == 2
    assert stage.skipped(job) == []


def test_a_job_with_a_bound_of_runs_makes_so_many(stage: Stage) -> None:
    job = stage.put(every(10, runs_max=3))
    stage.work(10, times=2)
    stage.restart(crash=True)
    assert len(stage.work(10, times=5)) == 1
    assert stage.job(job).state is JobState.DONE
    assert stage.job(job).runs_made == 3


def test_an_occurrence_that_overlap_skips_is_no_scheduled_run(stage: Stage) -> None:
    job = stage.put(every(10, runs_max=2))
    stage.advance(10)
    claim = stage.start_one()
    stage.work(10, times=3)
    stage.end(claim)
    assert len(stage.work(10, times=3)) == 1
    assert stage.skipped(job) == [("overlap", 1)] * 3
    assert stage.job(job).state is JobState.DONE


def test_what_a_calendar_excludes_does_not_run_and_is_on_record(stage: Stage) -> None:
    wall(stage, datetime(2026, 12, 23, 12, tzinfo=UTC))
    stage.store.set_calendar(
        "feast", NamedCalendar(dates=(date(2026, 12, 25), date(2026, 12, 26)))
    )
    job = stage.put(cron("0 9 * * *", calendar="feast"))
    stage.work(6 * 3600, times=20)
    times = [shown(ns) for ns in nominals(stage.runs(job))]
    assert times == ["12-24 09:00", "12-27 09:00", "12-28 09:00"]
    assert stage.skipped(job) == [("calendar", 2)]
    assert stage.store.calendars() == {"feast": stage.store.calendar("feast")}


def test_a_calendar_that_changes_moves_what_is_to_come(stage: Stage) -> None:
    wall(stage, datetime(2026, 12, 23, 12, tzinfo=UTC))
    stage.store.set_calendar("feast", NamedCalendar(dates=(date(2026, 12, 24),)))
    job = stage.put(cron("0 9 * * *", calendar="feast"))
    assert shown(stage.job(job).next_ns or 0) == "12-25 09:00"
    stage.store.set_calendar("feast", NamedCalendar(dates=(date(2026, 12, 25),)))
    assert shown(stage.job(job).next_ns or 0) == "12-24 09:00"
    stage.restart(crash=True)
    assert shown(stage.job(job).next_ns or 0) == "12-24 09:00"


def test_a_calendar_that_changes_brings_back_nothing_of_the_past(
    stage: Stage,
) -> None:
    wall(stage, datetime(2026, 12, 23, 12, tzinfo=UTC))
    stage.store.set_calendar("feast", NamedCalendar(dates=(date(2026, 12, 24),)))
    job = stage.put(cron("0 9 * * *", calendar="feast"))
    stage.advance(24 * 3600)
    stage.store.set_calendar("feast", NamedCalendar())
    assert stage.step() == []
    stage.restart(crash=True)
    assert stage.step() == []
    assert shown(stage.job(job).next_ns or 0) == "12-25 09:00"


def test_a_calendar_that_nobody_set_is_refused(stage: Stage) -> None:
    with pytest.raises(UnknownCalendarError, match="nowhere"):
        stage.put(cron("0 9 * * *", calendar="nowhere"))


# -- splay and jitter -----------------------------------------------------------------------------


def test_splay_moves_the_start_and_not_the_identity(stage: Stage) -> None:
    job = stage.put(cron("0 * * * *", splay_ns=30 * MINUTE), name="fixed")
    stage.work(60, times=226)  # the third is due, wherever in its half hour that lies
    runs = stage.runs(job)
    assert len(runs) == 3
    assert {run.nominal_ns % HOUR for run in runs} == {0}
    [offset_ns] = {run.due_ns - run.nominal_ns for run in runs}
    assert 0 < offset_ns < 30 * MINUTE
    for run in runs:
        assert run.started_ns is not None
        assert run.started_ns >= run.due_ns


def test_jitter_is_drawn_anew_for_each_run(stage: Stage) -> None:
    job = stage.put(every(3600, jitter_ns=30 * MINUTE))
    stage.work(60, times=60 * 7)
    offsets = {run.due_ns - run.nominal_ns for run in stage.runs(job)}
    assert len(offsets) >= 5
    assert all(0 <= offset_ns < 30 * MINUTE for offset_ns in offsets)
