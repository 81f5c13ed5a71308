"""Every so often, by elapsed time and by the calendar."""

from __future__ import annotations

import calendar
import pickle
import random
from datetime import UTC, date, datetime, time, timedelta
from itertools import count, pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timingwheel.errors import ArgumentError
from timingwheel.jobs.every import CalendarEvery, Every, duration_words
from timingwheel.jobs.schedule import HORIZON_NS, NS, DstMark, Firing, Schedule

HOUR_NS = 3_600 * NS
DAY = timedelta(days=1)


def at(text: str) -> datetime:
    return datetime.fromisoformat(text)


def ns(text: str) -> int:
    return int(at(text).timestamp()) * NS


def nexts(schedule: Schedule, after: str, number: int) -> list[str]:
    found = []
    moment: datetime | None = at(after)
    for _ in range(number):
        assert moment is not None
        moment = schedule.next(moment)
        assert moment is not None
        found.append(f"{moment:%Y-%m-%dT%H:%MZ}")
    return found


# ------------------------------------------------------------------ elapsed


@given(
    period=st.integers(1, 100),
    anchor=st.integers(0, 1_000),
    asked=st.integers(-500, 3_000),
    width=st.integers(0, 500),
)
def test_every_equals_its_definition(
    period: int, anchor: int, asked: int, width: int
) -> None:
    every = Every(period, anchor)
    instants = range(anchor, 5_000, period)
    later = next(i for i in instants if i > asked)
    earlier = [i for i in instants if i < asked]
    assert every.next_ns(asked) == Firing(later)
    assert every.prev_ns(asked) == (Firing(earlier[-1]) if earlier else None)
    inside = [i for i in instants if asked <= i < asked + width]
    assert every.count_ns(asked, asked + width) == len(inside)
    found = every.between_ns(asked, asked + width, limit=10_000)
    assert [firing.utc_ns for firing in found] == inside


def test_ninety_minutes_stay_ninety_minutes_over_a_clock_change() -> None:
    every = Every(90 * 60 * NS, ns("2026-03-08T05:00Z"))
    assert nexts(every, "2026-03-08T04:00Z", 4) == [
        *("2026-03-08T05:00Z", "2026-03-08T06:30Z"),
        *("2026-03-08T08:00Z", "2026-03-08T09:30Z"),
    ]


def test_there_is_no_drift_in_two_hundred_years() -> None:
    period_ns = NS // 3  # no whole number of anything
    every = Every(period_ns, 7)
    far_ns = 6_311_390_400 * NS
    firing = every.next_ns(far_ns)
    assert firing is not None
    assert (firing.utc_ns - 7) % period_ns == 0
    assert 0 < firing.utc_ns - far_ns <= period_ns
    assert every.count_ns(7, firing.utc_ns) == (firing.utc_ns - 7) // period_ns


def test_every_ends_with_the_horizon() -> None:
    every = Every(HOUR_NS, 0)
    last = every.prev_ns(1 << 80)
    assert last is not None
    assert HORIZON_NS - HOUR_NS < last.utc_ns <= HORIZON_NS
    assert every.next_ns(last.utc_ns) is None
    assert every.count_ns(last.utc_ns, 1 << 80) == 1
    assert every.count_ns(10, 5) == 0


def test_datetimes_rise_also_where_a_period_is_finer_than_they_are() -> None:
    every = Every(1_500, 100)
    start = at("1970-01-01T00:00Z")
    found = every.between(start, start + timedelta(microseconds=30), limit=100)
    assert found == sorted(set(found))
    assert len(found) == every.count(start, start + timedelta(microseconds=30)) == 20
    for earlier, later in pairwise(found):
        assert every.next(earlier) == later
        assert every.prev(later) == earlier


@pytest.mark.parametrize("period", [0, -1, 1.5, HORIZON_NS + 1, True, None])
def test_a_period_must_be_a_positive_int(period: object) -> None:
    with pytest.raises(ArgumentError, match="period_ns") as refused:
        Every(period, 0)  # type: ignore[arg-type]
    assert refused.value.found == period
    assert "a positive number of nanoseconds" in refused.value.fix


@pytest.mark.parametrize("anchor", [-1, 1.5, HORIZON_NS + 1, None])
def test_an_anchor_must_be_an_instant(anchor: object) -> None:
    with pytest.raises(ArgumentError, match="anchor_ns") as refused:
        Every(1, anchor)  # type: ignore[arg-type]
    assert refused.value.found == anchor
    assert "nanoseconds since 1970" in refused.value.fix


def test_the_longest_period_and_the_last_anchor_serve() -> None:
    assert Every(HORIZON_NS, 0).next_ns(0) == Firing(HORIZON_NS)
    assert Every(1, HORIZON_NS).next_ns(-1) == Firing(HORIZON_NS)
    assert Every(1, HORIZON_NS).next_ns(HORIZON_NS) is None


def test_every_in_words() -> None:
    assert Every(90 * 60 * NS, ns("2026-03-08T05:00Z")).explain() == (
        "Every 1 hour 30 minutes, counted from 2026-03-08 05:00:00 UTC. Elapsed time: a "
        "clock change does not move it."
    )


@pytest.mark.parametrize(
    ("duration_ns", "words"),
    [
        (0, "0 seconds"),
        (1, "1 nanosecond"),
        (200_000_000, "200 milliseconds"),
        (NS, "1 second"),
        (2 * HOUR_NS, "2 hours"),
        (36 * HOUR_NS + 5_000, "1 day 12 hours 5 microseconds"),
    ],
)
def test_a_duration_in_words(duration_ns: int, words: str) -> None:
    assert duration_words(duration_ns) == words


# ------------------------------------------------------------------ the calendar


def test_case_8_seven_days_at_1600_stay_at_1600_and_168_hours_do_not() -> None:
    weekly = CalendarEvery(
        7, "days", at="16:00", anchor=date(2026, 10, 20), tz="Europe/Berlin"
    )
    assert nexts(weekly, "2026-10-20T00:00Z", 2) == [
        "2026-10-20T14:00Z",
        "2026-10-27T15:00Z",  # 16:00 by the winter clock
    ]
    elapsed = Every(168 * HOUR_NS, ns("2026-10-20T14:00Z"))
    assert nexts(elapsed, "2026-10-20T00:00Z", 2) == [
        "2026-10-20T14:00Z",
        "2026-10-27T14:00Z",
    ]


def test_every_second_tuesday() -> None:
    biweekly = CalendarEvery(
        2, "weeks", at="09:00", anchor=date(2026, 2, 24), tz="America/New_York"
    )
    assert nexts(biweekly, "2026-01-01T00:00Z", 3) == [
        *("2026-02-24T14:00Z", "2026-03-10T13:00Z", "2026-03-24T13:00Z"),
    ]


def test_day_31_is_skipped_in_short_months_or_clamped() -> None:
    anchor = date(2026, 1, 31)
    skips = CalendarEvery(1, "months", at="00:00", anchor=anchor)
    clamps = CalendarEvery(1, "months", at="00:00", anchor=anchor, short_month="clamp")
    assert nexts(skips, "2026-01-01T00:00Z", 3) == [
        *("2026-01-31T00:00Z", "2026-03-31T00:00Z", "2026-05-31T00:00Z"),
    ]
    assert nexts(clamps, "2026-01-01T00:00Z", 3) == [
        *("2026-01-31T00:00Z", "2026-02-28T00:00Z", "2026-03-31T00:00Z"),
    ]


def test_a_leap_day_every_twelve_months_waits_for_leap_years() -> None:
    yearly = CalendarEvery(12, "months", at="00:00", anchor=date(2096, 2, 29))
    assert nexts(yearly, "2090-01-01T00:00Z", 3) == [
        *("2096-02-29T00:00Z", "2104-02-29T00:00Z", "2108-02-29T00:00Z"),
    ]


def test_the_rule_for_clock_changes_is_that_of_fixed_times() -> None:
    daily = CalendarEvery(
        1, "days", at="02:30", anchor=date(2026, 3, 1), tz="Europe/Berlin"
    )
    shifted = daily.next_ns(ns("2026-03-28T12:00Z"))
    assert shifted == Firing(ns("2026-03-29T01:00Z"), DstMark.SHIFTED)
    first = daily.next_ns(ns("2026-10-24T12:00Z"))
    assert first == Firing(ns("2026-10-25T00:30Z"), DstMark.FIRST)
    skips = CalendarEvery(
        *(1, "days"),
        at="02:30",
        anchor=date(2026, 3, 1),
        tz="Europe/Berlin",
        gap="skip",
        overlap="both",
    )
    assert nexts(skips, "2026-03-28T12:00Z", 1) == ["2026-03-30T00:30Z"]
    assert nexts(skips, "2026-10-24T12:00Z", 2) == [
        *("2026-10-25T00:30Z", "2026-10-25T01:30Z"),
    ]


def dates(unit: str, interval: int, anchor: date, *, clamps: bool) -> list[date]:
    """The days of a CalendarEvery until 2032, by going through them."""
    found: list[date] = []
    for n in count():
        if unit == "months":
            months = anchor.month - 1 + n * interval
            year, month = anchor.year + months // 12, months % 12 + 1
            length = calendar.monthrange(year, month)[1]
            day = date(year, month, min(anchor.day, length))
            if anchor.day > length and not clamps:
                continue
        else:
            day = anchor + n * interval * (7 * DAY if unit == "weeks" else DAY)
        if day.year >= 2032:
            return found
        found.append(day)
    raise AssertionError


@pytest.mark.parametrize("unit", ["days", "weeks", "months"])
@pytest.mark.parametrize("short_month", ["skip", "clamp"])
def test_the_calendar_equals_going_through_it(
    unit: str, short_month: str, rng: random.Random
) -> None:
    zone = ZoneInfo("Asia/Kolkata")  # no clock changes: those are tested elsewhere
    for _ in range(20):
        anchor = date(2024, 1, 1) + rng.randrange(1_000) * DAY
        interval = rng.choice([1, 2, 3, 5, 12, 40])
        moment = time(rng.randrange(24), rng.randrange(60), rng.randrange(60))
        schedule = CalendarEvery(
            interval,
            unit,  # type: ignore[arg-type]
            at=moment,
            anchor=anchor,
            tz="Asia/Kolkata",
            short_month=short_month,  # type: ignore[arg-type]
        )
        expected = [
            datetime.combine(day, moment, tzinfo=zone).astimezone(UTC)
            for day in dates(unit, interval, anchor, clamps=short_month == "clamp")
        ]
        start, end = at("2023-01-01T00:00Z"), at("2031-12-31T12:00Z")
        expected = [moment for moment in expected if moment < end]
        assert schedule.between(start, end, limit=5_000) == expected
        assert schedule.count(start, end) == len(expected)
        assert schedule.prev(expected[0]) is None
        for _ in range(10):
            asked = start + (end - start) * rng.random()
            earlier = [m for m in expected if m < asked]
            later = [m for m in expected if m > asked]
            assert schedule.prev(asked) == (earlier[-1] if earlier else None)
            assert not later or schedule.next(asked) == later[0]
            assert schedule.count(start, asked) == len(earlier)


@pytest.mark.parametrize("unit", ["days", "weeks", "months"])
def test_a_question_that_names_a_time_to_the_second_tells_both_sides_of_it(
    unit: str,
) -> None:
    schedule = CalendarEvery(1, unit, at="09:00", anchor=date(2026, 1, 1))  # type: ignore[arg-type]
    second = schedule.next_ns(ns("2026-01-01T09:00Z"))
    assert second is not None
    first_s, second_s = ns("2026-01-01T09:00Z") // NS, second.utc_ns // NS
    for start_s in (first_s - 1, first_s, first_s + 1, first_s + 2):
        for end_s in (second_s - 1, second_s, second_s + 1, second_s + 2):
            expected = (start_s <= first_s) + (second_s < end_s)
            assert schedule.count_ns(start_s * NS, end_s * NS) == expected
    assert schedule.next_ns(first_s * NS - 1) == Firing(first_s * NS)
    assert schedule.prev_ns(first_s * NS + 1) == Firing(first_s * NS)
    assert schedule.prev_ns(second.utc_ns + 1) == second
    assert schedule.prev_ns(second.utc_ns) == Firing(first_s * NS)


@pytest.mark.parametrize(
    ("unit", "interval"), [("days", 100_000), ("weeks", 100_000), ("months", 100_000)]
)
def test_a_step_past_the_horizon_comes_once(unit: str, interval: int) -> None:
    schedule = CalendarEvery(interval, unit, at="00:00", anchor=date(2026, 1, 1))  # type: ignore[arg-type]
    only = at("2026-01-01T00:00Z")
    assert schedule.next(at("2000-01-01T00:00Z")) == only
    assert schedule.next(only) is None or unit == "days"
    assert schedule.prev(at("2200-01-01T00:00Z")) == only


def test_an_anchor_long_ago_serves() -> None:
    schedule = CalendarEvery(1, "months", at="12:00", anchor=date(1, 1, 1))
    assert schedule.next(at("1900-01-01T00:00Z")) == at("1970-01-01T12:00Z")
    assert schedule.prev(at("1970-01-01T12:00Z")) is None


@pytest.mark.parametrize(
    ("argument", "value", "fix"),
    [
        ("interval", 0, "pass 1 to 100,000"),
        ("interval", 1.5, "pass 1 to 100,000"),
        ("interval", 100_001, "pass 1 to 100,000"),
        ("unit", "years", 'pass one of "days", "weeks", "months"'),
        ("short_month", "roll", 'pass one of "skip", "clamp"'),
        ("anchor", "2026-01-01", "pass the date of the first day"),
        ("anchor", datetime(2026, 1, 1, tzinfo=UTC), "pass the date of the first day"),
        ("at", "9:00", 'pass "HH:MM"'),
        ("at", "24:00", 'pass "HH:MM"'),
        ("at", "09:60", 'pass "HH:MM"'),
        ("at", "\u0660\u0669:00", 'pass "HH:MM"'),
        ("at", time(9, tzinfo=UTC), 'pass "HH:MM"'),
        ("at", time(9, 0, 0, 1), 'pass "HH:MM"'),
        ("at", 9, 'pass "HH:MM"'),
        ("tz", "Nowhere", "IANA"),
        ("gap", "before", 'pass one of "after"'),
        ("overlap", "none", 'pass one of "first"'),
    ],
)
def test_what_cannot_be_meant_is_refused_by_name(
    argument: str, value: object, fix: str
) -> None:
    arguments: dict[str, object] = {
        "interval": 1,
        "unit": "days",
        "at": "09:00",
        "anchor": date(2026, 1, 1),
    }
    arguments[argument] = value
    with pytest.raises(ArgumentError, match=f"^{argument} is") as refused:
        CalendarEvery(**arguments)  # type: ignore[arg-type]
    assert refused.value.argument == argument
    assert refused.value.found == value
    assert fix in refused.value.fix


def test_the_calendar_in_words() -> None:
    weekly = CalendarEvery(2, "weeks", at="09:00", anchor=date(2026, 2, 24))
    assert weekly.explain() == (
        "Every 2 weeks at 09:00, counted from Tuesday, 2026-02-24, UTC time."
    )
    daily = CalendarEvery(1, "days", at="08:00", anchor=date(2026, 1, 31))
    assert daily.explain() == (
        "Every day at 08:00, counted from Saturday, 2026-01-31, UTC time."
    )
    quarterly = CalendarEvery(3, "months", at="08:00", anchor=date(2026, 1, 15))
    assert quarterly.explain() == (
        "Every 3 months at 08:00, counted from Thursday, 2026-01-15, UTC time."
    )
    monthly = CalendarEvery(1, "months", at="09:00:30", anchor=date(2026, 1, 31))
    assert monthly.explain() == (
        "Every month at 09:00:30, counted from Saturday, 2026-01-31, skipping months "
        "without a day 31, UTC time."
    )
    clamped = CalendarEvery(
        1, "months", at="00:00", anchor=date(2026, 1, 31), short_month="clamp"
    )
    assert "on the last day of months without a day 31" in clamped.explain()
    common = CalendarEvery(1, "months", at="08:00", anchor=date(2026, 1, 28))
    assert "months without" not in common.explain()  # every month has that day
    rarer = CalendarEvery(1, "months", at="08:00", anchor=date(2026, 1, 29))
    assert "months without a day 29" in rarer.explain()
    berlin = CalendarEvery(
        1, "days", at="00:00", anchor=date(2026, 1, 4), tz="Europe/Berlin"
    )
    assert berlin.explain().startswith(
        "Every day at 00:00, counted from Sunday, 2026-01-04, Europe/Berlin time. A time"
    )


def test_equal_arguments_make_equal_schedules_that_survive_pickling() -> None:
    schedules: list[Schedule] = [
        Every(1, 2),
        Every(2, 1),
        CalendarEvery(1, "days", at="09:00", anchor=date(2026, 1, 1)),
        CalendarEvery(1, "days", at="09:00", anchor=date(2026, 1, 1), gap="skip"),
        CalendarEvery(1, "months", at="09:00", anchor=date(2026, 1, 1)),
    ]
    copies = [pickle.loads(pickle.dumps(schedule)) for schedule in schedules]
    assert copies == schedules
    assert len({*schedules, *copies}) == len(schedules)
    assert schedules[0] != schedules[2]
    assert schedules[2] != schedules[0]
    assert [eval(repr(s), None, names()) for s in schedules] == schedules


def names() -> dict[str, object]:
    import datetime as dt

    return {"Every": Every, "CalendarEvery": CalendarEvery, "datetime": dt}
