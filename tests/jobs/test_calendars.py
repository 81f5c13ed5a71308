"""Named calendars as data: one form, however they are made, and days that are left."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import msgspec
import pytest

from timingwheel.errors import ArgumentError
from timingwheel.jobs.calendars import EXCLUDED_MAX, WEEKDAYS, NamedCalendar

CHRISTMAS = date(2026, 12, 25)  # a Friday
BOXING_DAY = date(2026, 12, 26)
CHRISTMAS_NOON = datetime(2026, 12, 25, 12, tzinfo=UTC)
DAY = timedelta(days=1)


def test_dates_and_weekdays_are_kept_sorted_and_once() -> None:
    calendar = NamedCalendar(
        dates=[BOXING_DAY, CHRISTMAS, BOXING_DAY],  # type: ignore[arg-type]
        weekdays=("fri", "MON", "FRI"),
        tz="Europe/Berlin",
    )
    assert calendar.dates == (CHRISTMAS, BOXING_DAY)
    assert calendar.weekdays == ("MON", "FRI")  # in the order of the week
    assert calendar == NamedCalendar(
        dates=(CHRISTMAS, BOXING_DAY), weekdays=("MON", "FRI"), tz="Europe/Berlin"
    )


@pytest.mark.parametrize("codec", [msgspec.json, msgspec.msgpack])
def test_a_calendar_survives_being_stored(codec: object) -> None:
    calendar = NamedCalendar(dates=(CHRISTMAS,), weekdays=("SAT",), tz="Asia/Tokyo")
    stored = codec.encode(calendar)  # type: ignore[attr-defined]
    assert codec.decode(stored, type=NamedCalendar) == calendar  # type: ignore[attr-defined]


def test_stored_bytes_are_checked_as_arguments_are() -> None:
    with pytest.raises(msgspec.ValidationError, match="weekdays"):
        msgspec.json.decode(b'{"weekdays": ["Caturday"]}', type=NamedCalendar)


def test_the_next_business_day_is_after_all_that_is_excluded() -> None:
    calendar = NamedCalendar(dates=(CHRISTMAS, BOXING_DAY), weekdays=("SAT", "SUN"))
    assert calendar.is_excluded(CHRISTMAS)
    assert not calendar.is_excluded(CHRISTMAS - DAY)
    assert calendar.is_excluded(date(2026, 12, 27))
    assert calendar.next_business_day(CHRISTMAS - DAY) == date(2026, 12, 28)
    assert calendar.previous_business_day(date(2026, 12, 28)) == CHRISTMAS - DAY
    assert calendar.next_business_day(date(2026, 12, 28)) == date(2026, 12, 29)


def test_there_is_no_business_day_beyond_the_time_of_schedules() -> None:
    assert NamedCalendar().next_business_day(date(2262, 12, 31)) is None
    assert NamedCalendar().previous_business_day(date(1970, 1, 1)) is None
    assert NamedCalendar().next_business_day(date.max) is None
    assert NamedCalendar().previous_business_day(date.min) is None
    sundays = NamedCalendar(weekdays=("SUN",))
    assert sundays.next_business_day(date(2262, 12, 30)) == date(2262, 12, 31)
    assert sundays.next_business_day(date(1969, 12, 31)) == date(1970, 1, 1)
    assert sundays.previous_business_day(date(2263, 1, 1)) == date(2262, 12, 31)
    assert sundays.previous_business_day(date(1970, 1, 2)) == date(1970, 1, 1)


@pytest.mark.parametrize(
    ("argument", "passed", "found", "fix"),
    [
        ("dates", (CHRISTMAS, "2026-12-25"), "2026-12-25", "pass dates"),
        ("dates", (CHRISTMAS_NOON,), CHRISTMAS_NOON, "pass dates"),
        ("dates", (date(1969, 12, 31),), "1969-12-31", "from 1970 to 2262"),
        ("dates", (date(2263, 1, 1),), "2263-01-01", "from 1970 to 2262"),
        ("dates", "2026-12-25", "2026-12-25", "such as (date(2026, 12, 25),)"),
        ("dates", 5, 5, "such as (date(2026, 12, 25),)"),
        ("weekdays", ("SAT", "Saturday"), "Saturday", "MON, TUE, WED"),
        ("weekdays", "SAT", "SAT", 'such as ("SAT",)'),
        ("weekdays", (6,), 6, "MON, TUE, WED"),
        ("weekdays", WEEKDAYS, "all seven", "at least one day"),
        ("tz", "Mars", "Mars", "IANA"),
    ],
)
def test_what_is_no_calendar_is_refused_by_name(
    argument: str, passed: object, found: object, fix: str
) -> None:
    with pytest.raises(ArgumentError) as caught:
        NamedCalendar(**{argument: passed})  # type: ignore[arg-type]
    assert caught.value.argument == argument
    assert caught.value.found == found
    assert fix in caught.value.fix


def test_all_but_one_weekday_and_the_first_and_the_last_day_can_be_excluded() -> None:
    calendar = NamedCalendar(
        dates=(date(1970, 1, 1), date(2262, 12, 31)), weekdays=WEEKDAYS[1:]
    )
    assert not calendar.is_excluded(date(2026, 12, 28))  # a Monday
    assert calendar.is_excluded(CHRISTMAS)
    assert calendar.is_excluded(date(1970, 1, 1))
    assert calendar.is_excluded(date(2262, 12, 31))


def test_a_calendar_has_a_bounded_size() -> None:
    days = tuple(CHRISTMAS + n * DAY for n in range(EXCLUDED_MAX + 1))
    assert len(NamedCalendar(dates=days[1:]).dates) == EXCLUDED_MAX
    with pytest.raises(ArgumentError, match="at most 10,000") as caught:
        NamedCalendar(dates=days)
    assert (caught.value.argument, caught.value.found) == ("dates", "10,001 dates")


@pytest.mark.parametrize(
    ("calendar", "words"),
    [
        (NamedCalendar(), "Excludes nothing."),
        (NamedCalendar(weekdays=("SUN",)), "Excludes every Sunday."),
        (
            NamedCalendar(dates=(CHRISTMAS, BOXING_DAY), weekdays=("SAT", "SUN")),
            "Excludes every Saturday and Sunday, and 2026-12-25 and 2026-12-26.",
        ),
        (
            NamedCalendar(dates=tuple(CHRISTMAS + n * DAY for n in range(3))),
            "Excludes 2026-12-25, 2026-12-26 and 2026-12-27.",
        ),
        (
            NamedCalendar(
                dates=tuple(CHRISTMAS + n * DAY for n in range(4)), tz="Asia/Tokyo"
            ),
            "Excludes 4 dates from 2026-12-25 to 2026-12-28, in days of Asia/Tokyo.",
        ),
    ],
)
def test_a_calendar_in_words(calendar: NamedCalendar, words: str) -> None:
    assert calendar.explain() == words
