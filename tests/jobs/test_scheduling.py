"""From triggers to schedules: anchors, bounds, calendars, and what is removed."""

from __future__ import annotations

from datetime import UTC, date, datetime
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest

from timingwheel.errors import ArgumentError
from timingwheel.jobs.after import After
from timingwheel.jobs.building import make_trigger
from timingwheel.jobs.calendars import NamedCalendar
from timingwheel.jobs.cron import Cron
from timingwheel.jobs.errors import UnknownCalendarError
from timingwheel.jobs.every import CalendarEvery, Every
from timingwheel.jobs.intervals import every
from timingwheel.jobs.model import SkipReason
from timingwheel.jobs.planning import PlannedSkip
from timingwheel.jobs.rrule import RecurrenceRule
from timingwheel.jobs.schedule import NS, Schedule, instant_datetime, instant_ns
from timingwheel.jobs.scheduling import removed_between, schedule_of, zone_of
from timingwheel.jobs.triggers import At, CronRule, Delay, Trigger

BERLIN = "Europe/Berlin"
HOUR_NS = 3_600 * NS
HOLIDAYS = {
    "holidays": NamedCalendar(
        dates=(date(2026, 12, 25), date(2026, 12, 26)), weekdays=("SAT", "SUN")
    )
}


def at(text: str) -> datetime:
    return datetime.fromisoformat(text)


def ns(text: str) -> int:
    return instant_ns(at(text), "text")


CREATED_NS = ns("2026-03-02T23:30:15Z")  # a Monday; Tuesday in Berlin


def made(trigger: Trigger) -> Schedule:
    return schedule_of(
        trigger, created_ns=CREATED_NS, job_key="nightly", calendars=HOLIDAYS
    )


def in_berlin(schedule: Schedule, start: str, end: str) -> list[str]:
    firings = schedule.between_ns(ns(start), ns(end), limit=1_000)
    return [
        f"{instant_datetime(f.utc_ns).astimezone(ZoneInfo(BERLIN)):%m-%d %H:%M}"
        for f in firings
    ]


def test_a_period_is_counted_from_one_period_after_the_job_was_put() -> None:
    assert made(make_trigger(every="6h")) == Every(
        6 * HOUR_NS, CREATED_NS + 6 * HOUR_NS
    )


def test_a_period_with_a_start_begins_with_the_start() -> None:
    schedule = made(make_trigger(every="6h", start=at("2026-05-01T00:00Z")))
    first = schedule.next_ns(0)
    assert first is not None
    assert first.utc_ns == ns("2026-05-01T00:00Z")


def test_a_period_with_an_anchor_keeps_it() -> None:
    anchor = datetime(2026, 1, 1, tzinfo=UTC)
    trigger = make_trigger(every=every(hours=6, anchor=anchor))
    assert made(trigger) == Every(6 * HOUR_NS, ns("2026-01-01T00:00Z"))


def test_a_calendar_interval_is_counted_from_the_day_of_its_zone() -> None:
    trigger = make_trigger(every=every(days=7, at="16:00", tz=BERLIN))
    tuesday = date(2026, 3, 3)
    assert made(trigger) == CalendarEvery(
        7, "days", at="16:00", anchor=tuesday, tz=BERLIN
    )


def test_a_calendar_interval_with_a_start_is_counted_from_its_day() -> None:
    schedule = made(
        make_trigger(
            every=every(days=7, at="16:00", tz=BERLIN), start=at("2026-05-01T12:00Z")
        )
    )
    found = in_berlin(schedule, "2026-01-01T00:00Z", "2026-05-09T00:00Z")
    assert found == ["05-01 16:00", "05-08 16:00"]


def test_case_8_every_7_days_stays_at_16_and_168_hours_do_not() -> None:
    """Over the change of 29 March, from a Tuesday on."""
    start, end = "2026-03-20T00:00Z", "2026-04-05T00:00Z"
    by_calendar = made(make_trigger(every=every(days=7, at="16:00", tz=BERLIN)))
    assert in_berlin(by_calendar, start, end) == ["03-24 16:00", "03-31 16:00"]
    anchor = at("2026-03-03T16:00+01:00")
    elapsed = made(make_trigger(every=every(hours=168, anchor=anchor)))
    assert in_berlin(elapsed, start, end) == ["03-24 16:00", "03-31 17:00"]
    assert made(make_trigger(every="7d")) == made(make_trigger(every=every(hours=168)))


def test_case_6_berlin_0230_runs_once_in_spring_and_once_in_autumn() -> None:
    schedule = made(make_trigger(cron="30 2 * * *", tz=BERLIN))
    spring = in_berlin(schedule, "2026-03-28T23:00Z", "2026-03-29T22:00Z")
    assert spring == ["03-29 03:00"]
    firing = schedule.next_ns(ns("2026-03-28T23:00Z"))
    assert firing is not None
    assert firing.mark == "shifted"
    assert schedule.count_ns(ns("2026-10-24T22:00Z"), ns("2026-10-25T23:00Z")) == 1


def test_case_7_every_15_minutes_runs_100_times_on_the_day_of_25_hours() -> None:
    schedule = made(make_trigger(cron="*/15 * * * *", tz=BERLIN))
    firings = schedule.between_ns(
        ns("2026-10-24T22:00Z"), ns("2026-10-25T23:00Z"), limit=200
    )
    assert len(firings) == 100
    gaps = {b.utc_ns - a.utc_ns for a, b in pairwise(firings)}
    assert gaps == {HOUR_NS // 4}


def test_case_27_weekdays_and_the_or_of_days_are_those_of_crontab() -> None:
    monday = made(make_trigger(cron="0 0 * * 1"))
    first = monday.next(at("2026-03-03T00:00Z"))
    assert first is not None
    assert first.isoweekday() == 1
    either = made(make_trigger(cron="0 0 13 * 5"))
    days = either.between(at("2026-02-01T00:00Z"), at("2026-03-01T00:00Z"))
    assert [day.day for day in days] == [6, 13, 20, 27]
    assert "on the 13th of the month or on Friday" in either.explain()
    for sunday in ("0 0 * * 0", "0 0 * * 7"):
        assert (
            made(make_trigger(cron=sunday)).explain() == "At 00:00 on Sunday, UTC time."
        )


def test_h_in_cron_is_computed_from_the_key_of_the_job_unless_it_has_its_own() -> None:
    assert made(make_trigger(cron="H H * * *")) == Cron("H H * * *", hash_key="nightly")
    own = Cron("H H * * *", hash_key="mine")
    assert made(make_trigger(cron=own)) == own


def test_a_cron_keeps_its_rule_for_clock_changes() -> None:
    cron = Cron("30 2 * * *", BERLIN, gap="shift", overlap="both", hash_key="key")
    assert made(make_trigger(cron=cron)) == cron


def test_the_start_of_a_recurrence_rule_is_that_of_the_trigger_else_of_the_job() -> (
    None
):
    plain = made(make_trigger(rrule="FREQ=DAILY", tz=BERLIN))
    assert plain == RecurrenceRule("FREQ=DAILY", start="2026-03-03T00:30:15", tz=BERLIN)
    start = at("2026-05-01T06:30Z")
    begun = made(make_trigger(rrule="FREQ=DAILY", tz=BERLIN, start=start))
    assert in_berlin(begun, "2026-01-01T00:00Z", "2026-05-02T00:00Z") == ["05-01 08:30"]


@pytest.mark.parametrize("roll", ["skip", "next", "previous"])
def test_nothing_is_rolled_into_the_bounds_or_out_of_them(roll: str) -> None:
    trigger = make_trigger(
        cron="0 9 * * *",
        tz=BERLIN,
        calendar="holidays",
        roll=roll,  # type: ignore[arg-type]
        start=at("2026-12-19T00:00Z"),  # a Saturday
        end=at("2026-12-27T00:00Z"),  # a Sunday
    )
    found = in_berlin(made(trigger), "2026-12-01T00:00Z", "2027-01-31T00:00Z")
    assert found == ["12-21 09:00", "12-22 09:00", "12-23 09:00", "12-24 09:00"]


def test_days_of_a_calendar_are_counted_in_the_zone_of_the_job() -> None:
    assert zone_of(make_trigger(cron="0 9 * * *", tz=BERLIN)) == BERLIN
    assert zone_of(make_trigger(every="1h")) == "UTC"
    trigger = make_trigger(cron="30 0 * * *", tz=BERLIN, calendar="holidays")
    found = in_berlin(made(trigger), "2026-12-23T23:00Z", "2026-12-28T23:00Z")
    assert found == ["12-24 00:30", "12-28 00:30"]


def test_a_calendar_that_is_not_there_is_named_with_those_that_are() -> None:
    trigger = make_trigger(cron="0 9 * * *", calendar="holidys")
    with pytest.raises(UnknownCalendarError, match=r"holidys.*there are: holidays"):
        made(trigger)
    with pytest.raises(UnknownCalendarError, match="none so far"):
        schedule_of(trigger, created_ns=0, job_key="")


@pytest.mark.parametrize("when", [Delay(5), At(5), After("a").rule])
def test_a_trigger_that_runs_once_has_no_schedule(when: object) -> None:
    with pytest.raises(ArgumentError, match="pass a recurring one"):
        made(Trigger(when=when))  # type: ignore[arg-type]


# ------------------------------------------------------------------ what is removed


def removed(trigger: Trigger, start: str, end: str) -> list[PlannedSkip]:
    return removed_between(
        trigger,
        ns(start),
        ns(end),
        created_ns=CREATED_NS,
        job_key="nightly",
        calendars=HOLIDAYS,
    )


def test_what_a_calendar_removes_can_be_told_with_its_reason() -> None:
    trigger = make_trigger(cron="0 9 * * *", tz=BERLIN, calendar="holidays")
    assert removed(trigger, "2026-12-24T00:00Z", "2026-12-29T00:00Z") == [
        PlannedSkip(
            SkipReason.CALENDAR,
            ns("2026-12-25T08:00Z"),
            ns("2026-12-27T08:00Z"),
            3,
        )
    ]


def test_what_is_rolled_is_not_removed() -> None:
    trigger = make_trigger(
        cron="0 9 * * *", tz=BERLIN, calendar="holidays", roll="next"
    )
    assert removed(trigger, "2026-12-24T00:00Z", "2026-12-29T00:00Z") == []


def test_only_what_lies_within_the_bounds_can_be_removed() -> None:
    trigger = make_trigger(
        cron="0 9 * * *",
        tz=BERLIN,
        calendar="holidays",
        start=at("2026-12-26T00:00Z"),
        end=at("2026-12-27T00:00Z"),
    )
    [skip] = removed(trigger, "2026-12-01T00:00Z", "2027-01-31T00:00Z")
    assert (skip.first_ns, skip.count) == (ns("2026-12-26T08:00Z"), 1)


def test_what_the_clock_skips_can_be_told_where_it_is_dropped() -> None:
    """In 2026 and 2027 Berlin skips two times of this cron each."""
    two = Cron("0,30 2 * * *", BERLIN, gap="skip")
    found = removed(make_trigger(cron=two), "2026-01-01T00:00Z", "2028-01-01T00:00Z")
    assert found == [
        PlannedSkip(SkipReason.DST, ns("2026-03-29T01:00Z"), ns("2027-03-28T01:30Z"), 4)
    ]
    in_utc = Cron("0,30 2 * * *").count_ns(
        ns("2026-01-01T00:00Z"), ns("2027-01-01T00:00Z")
    )
    ran = two.count_ns(ns("2025-12-31T23:00Z"), ns("2026-12-31T23:00Z"))
    assert ran == in_utc - 2


def test_a_calendar_interval_that_drops_skipped_times_tells_them_too() -> None:
    trigger = make_trigger(every=every(days=1, at="02:30", tz=BERLIN, gap="skip"))
    [skip] = removed(trigger, "2026-03-01T00:00Z", "2026-04-01T00:00Z")
    assert (skip.reason, skip.first_ns, skip.count) == (
        SkipReason.DST,
        ns("2026-03-29T01:30Z"),
        1,
    )


@pytest.mark.parametrize(
    "cron",
    [
        Cron("30 2 * * *", BERLIN),  # moved, not dropped
        Cron(
            "*/15 * * * *", BERLIN, gap="skip"
        ),  # follows the clock: it has no such time
        Cron("30 4 * * *", BERLIN, gap="skip"),
        Cron("30 2 * * *", gap="skip"),
    ],
)
def test_where_the_clock_drops_nothing_nothing_is_told(cron: Cron) -> None:
    trigger = make_trigger(cron=cron)
    assert removed(trigger, "2026-01-01T00:00Z", "2028-01-01T00:00Z") == []


def test_a_skipped_time_of_an_excluded_day_is_told_once() -> None:
    """29 March 2026 is a Sunday, which the calendar would exclude as well."""
    trigger = make_trigger(
        cron=Cron("30 2 * * *", BERLIN, gap="skip"), calendar="holidays"
    )
    [skip] = removed(trigger, "2026-03-28T23:00Z", "2026-03-29T22:00Z")
    assert (skip.reason, skip.count) == (SkipReason.DST, 1)


def test_a_gap_is_told_in_the_span_that_holds_the_change() -> None:
    trigger = make_trigger(cron=Cron("30 2 * * *", BERLIN, gap="skip"))
    change = "2026-03-29T01:00Z"
    assert removed(trigger, "2026-03-01T00:00Z", change) == []
    assert len(removed(trigger, change, "2026-03-29T01:00:01Z")) == 1
    assert removed(trigger, "2026-03-29T01:00:01Z", "2026-04-01T00:00Z") == []


@pytest.mark.parametrize("expression", ["H 3 * * *", "h 3 * * *", "0 3 * * H"])
def test_a_hash_in_a_cron_expression_is_that_of_the_job(expression: str) -> None:
    trigger = Trigger(when=CronRule(expression=expression))
    schedule = schedule_of(trigger, created_ns=0, job_key="nightly")
    assert schedule == Cron(expression, hash_key="nightly")


def test_jobs_of_one_expression_share_its_schedule() -> None:
    trigger = Trigger(when=CronRule(expression="30 2 * * *", tz="Europe/Berlin"))
    first, second = (
        schedule_of(trigger, created_ns=0, job_key=key) for key in ("a", "b")
    )
    assert first is second
