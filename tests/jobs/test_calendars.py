"""Named calendars as data: one form, however they are made, and days that are left."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import msgspec
import pytest

from timingwheel.errors import ArgumentError
from timingwheel.jobs.calendars import EXCLUDED_MAX, NamedCalendar

CHRISTMAS = date(2026, 12, 25)  # a Friday
BOXING_DAY = date(2026, 12, 26)
DAY = timedelta(days=1)


def test_dates_and_weekdays_are_kept_sorted_and_once() -> None:
    calendar = NamedCalendar(
        dates=[BOXING_DAY, CHRISTMAS, BOXING_DAY],  # type: ignore[arg-type]
        weekdays=("sun", "SAT", "SUN"),
        tz="Europe/Berlin",
    )
    assert calendar.dates == (CHRISTMAS, BOXING_DAY)
    assert calendar.weekdays == ("SAT", "SUN")
    assert calendar == NamedCalendar(
        dates=(CHRISTMAS, BOXING_DAY), weekdays=("SAT", "SUN"), tz="Europe/Berlin"
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
    ("arguments", "argument", "fix"),
    [
        ({"dates": ("2026-12-25",)}, "dates", "pass dates"),
        ({"dates": (datetime(2026, 12, 25, tzinfo=UTC),)}, "dates", "pass dates"),
        ({"dates": (date(1969, 12, 31),)}, "dates", "from 1970 to 2262"),
        ({"dates": (date(2263, 1, 1),)}, "dates", "from 1970 to 2262"),
        ({"dates": "2026-12-25"}, "dates", "pass a tuple"),
        ({"dates": 5}, "dates", "pass a tuple"),
        ({"weekdays": ("Saturday",)}, "weekdays", "MON, TUE, WED"),
        ({"weekdays": "SAT"}, "weekdays", "pass a tuple"),
        ({"weekdays": (6,)}, "weekdays", "MON, TUE, WED"),
        ({"tz": "Mars"}, "tz", "IANA"),
    ],
)
def test_what_is_no_calendar_is_refused_by_name(
    arguments: dict[str, object], argument: str, fix: str
) -> None:
    with pytest.raises(ArgumentError) as caught:
        NamedCalendar(**arguments)  # type: ignore[arg-type]
    assert caught.value.argument == argument
    assert fix in caught.value.fix


def test_a_calendar_that_excludes_every_day_is_refused() -> None:
    week = ("MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN")
    with pytest.raises(ArgumentError, match="at least one day"):
        NamedCalendar(weekdays=week)
    assert NamedCalendar(weekdays=week[1:]).is_excluded(CHRISTMAS)


def test_a_calendar_has_a_bounded_size() -> None:
    days = tuple(CHRISTMAS + n * DAY for n in range(EXCLUDED_MAX + 1))
    assert len(NamedCalendar(dates=days[1:]).dates) == EXCLUDED_MAX
    with pytest.raises(ArgumentError, match="at most 10,000"):
        NamedCalendar(dates=days)


@pytest.mark.parametrize(
    ("calendar", "words"),
    [
        (NamedCalendar(), "Excludes nothing."),
        (
            NamedCalendar(dates=(CHRISTMAS, BOXING_DAY), weekdays=("SAT", "SUN")),
            "Excludes every Saturday and Sunday, and 2026-12-25 and 2026-12-26.",
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
