"""The days of a year that a rule names, against the calendar of the standard library."""

from __future__ import annotations

import calendar
from datetime import date, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timingwheel.jobs.cron_days import (
    FIRST_YEAR,
    LAST_YEAR,
    YEAR_KINDS,
    YEAR_STARTS,
    DayRule,
    days_of,
    members,
)
from timingwheel.jobs.cron_fields import parse

SATURDAY, SUNDAY = 6, 7  # as date.isoweekday counts
DAY = timedelta(days=1)


def matches(rule: DayRule, day: date) -> bool:
    """What the words of DayRule say, for one date."""
    if not rule.months >> day.month & 1:
        return False
    length = calendar.monthrange(day.year, day.month)[1]
    weekday = day.isoweekday() % 7
    by_day = (
        day.day in members(rule.days)
        or length - day.day in members(rule.days_before_last)
        or any(day == nearest(day, n) for n in members(rule.weekdays_nearest))
        or (rule.last_weekday and day == nearest(day, length))
    )
    by_weekday = (
        weekday in members(rule.weekdays)
        or 7 * ((day.day - 1) // 7) + weekday in members(rule.nth_weekdays)
        or (weekday in members(rule.last_weekdays) and day.day + 7 > length)
    )
    return by_day and by_weekday if rule.needs_both else by_day or by_weekday


def nearest(month: date, number: int) -> date | None:
    """The Monday to Friday nearest to a day, by trying: no distance twice the same."""
    length = calendar.monthrange(month.year, month.month)[1]
    if number > length:
        return None
    day = month.replace(day=number)
    nearby = [day + n * DAY for n in (0, -1, 1, -2, 2)]
    return next(d for d in nearby if d.month == month.month and d.isoweekday() < 6)


RULES = st.builds(
    DayRule,
    months=st.integers(0, 2**13 - 1),
    days=st.integers(0, 2**32 - 1).map(lambda bits: bits & ~1),
    days_before_last=st.integers(0, 2**31 - 1),
    weekdays_nearest=st.integers(0, 2**32 - 1).map(lambda bits: bits & ~1),
    last_weekday=st.booleans(),
    weekdays=st.integers(0, 2**7 - 1),
    nth_weekdays=st.integers(0, 2**35 - 1),
    last_weekdays=st.integers(0, 2**7 - 1),
    needs_both=st.booleans(),
)
SPARSE = st.builds(
    DayRule,
    months=st.just(2**13 - 2),
    days=st.just(0) | st.integers(1, 31).map(lambda day: 1 << day),
    days_before_last=st.just(0) | st.integers(0, 30).map(lambda day: 1 << day),
    weekdays_nearest=st.just(0) | st.integers(1, 31).map(lambda day: 1 << day),
    last_weekday=st.booleans(),
    weekdays=st.just(0) | st.integers(0, 6).map(lambda day: 1 << day),
    nth_weekdays=st.just(0) | st.integers(0, 34).map(lambda day: 1 << day),
    last_weekdays=st.just(0) | st.integers(0, 6).map(lambda day: 1 << day),
    needs_both=st.booleans(),
)


@given(RULES | SPARSE, st.integers(FIRST_YEAR, LAST_YEAR))
def test_the_days_of_a_year_are_those_that_match_one_by_one(
    rule: DayRule, year: int
) -> None:
    first = date(year, 1, 1)
    length = 366 if calendar.isleap(year) else 365
    expected = [n for n in range(length) if matches(rule, first + n * DAY)]
    assert members(days_of(rule, YEAR_KINDS[year - FIRST_YEAR])) == expected


def test_years_begin_where_the_calendar_says_and_have_14_kinds() -> None:
    for n, start in enumerate(YEAR_STARTS):
        assert date(1970, 1, 1) + start * DAY == date(FIRST_YEAR + n, 1, 1)
    for n, kind in enumerate(YEAR_KINDS):
        year = FIRST_YEAR + n
        assert kind % 7 == date(year, 1, 1).isoweekday() % 7
        assert kind // 7 == calendar.isleap(year)
    assert set(YEAR_KINDS) == set(range(14))


def days_in(expression: str, year: int) -> list[str]:
    rule = parse(f"0 0 {expression}", None).days
    bits = days_of(rule, YEAR_KINDS[year - FIRST_YEAR])
    return [f"{date(year, 1, 1) + n * DAY:%m-%d}" for n in members(bits)]


@pytest.mark.parametrize(
    ("expression", "year", "days"),
    [
        ("L 2 *", 2028, ["02-29"]),
        ("L 2 *", 2100, ["02-28"]),
        ("L-1 2,4 *", 2026, ["02-27", "04-29"]),
        ("LW 1,2,5 *", 2026, ["01-30", "02-27", "05-29"]),
        ("1W 2,8 *", 2026, ["02-02", "08-03"]),  # a Sunday, a Saturday: never before
        ("2W 5 *", 2026, ["05-01"]),  # a Saturday, whose Friday is within the month
        ("15W 2,8 *", 2026, ["02-16", "08-14"]),
        ("31W 5,6 *", 2026, ["05-29"]),  # a Sunday, and no such day
        ("* * 1#5", 2026, ["03-30", "06-29", "08-31", "11-30"]),
        ("* 1-3 5L", 2026, ["01-30", "02-27", "03-27"]),
        ("13 * 5", 2026, None),
        ("13 2,3 ?", 2026, ["02-13", "03-13"]),
        ("*/10 2 FRI", 2026, []),
        ("*/12 2,3,11 FRI", 2026, ["02-13", "03-13", "11-13"]),
        ("29 2 *", 2026, []),
        ("29 2 *", 2028, ["02-29"]),
    ],
)
def test_an_expression_means_these_days(
    expression: str, year: int, days: list[str] | None
) -> None:
    if days is None:  # the 13th or a Friday
        first = date(year, 1, 1)
        every = [first + n * DAY for n in range(365)]
        days = [f"{d:%m-%d}" for d in every if d.day == 13 or d.isoweekday() == 5]
    assert days_in(expression, year) == days
