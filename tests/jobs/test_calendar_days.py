"""The days of a calendar as spans of time, where its clock is moved and where not."""

from __future__ import annotations

from datetime import date, datetime, timedelta

import pytest

from timingwheel.jobs.calendar_days import CalendarDays, DayRun
from timingwheel.jobs.calendars import NamedCalendar
from timingwheel.jobs.schedule import NS, DstMark, Firing, instant_ns

HOUR_NS = 3_600 * NS


def ns(text: str) -> int:
    return instant_ns(datetime.fromisoformat(text), "text")


def number(day: date) -> int:
    """How calendar_days counts a day: from 1970-01-01."""
    return (day - date(1970, 1, 1)).days


CHRISTMAS = number(date(2026, 12, 25))  # a Friday
WEEKEND = ("SAT", "SUN")


def test_a_day_is_excluded_by_its_date_or_by_its_weekday() -> None:
    calendar = NamedCalendar(dates=(date(2026, 12, 25),), weekdays=("MON", "SUN"))
    days = CalendarDays(calendar, "UTC")
    for offset in range(-400, 400):
        day = date(2026, 12, 25) + timedelta(days=offset)
        assert days.is_excluded(number(day)) == calendar.is_excluded(day)
        assert days.is_open(number(day)) != calendar.is_excluded(day)


@pytest.mark.parametrize(
    ("tz", "start"),
    [
        ("UTC", "2026-12-25T00:00+00:00"),
        ("Europe/Berlin", "2026-12-25T00:00+01:00"),
        ("America/Los_Angeles", "2026-12-25T00:00-08:00"),
        ("Pacific/Kiritimati", "2026-12-25T00:00+14:00"),
    ],
)
def test_a_day_begins_with_the_midnight_of_its_zone(tz: str, start: str) -> None:
    days = CalendarDays(NamedCalendar(), tz)
    assert days.start_ns(CHRISTMAS) == ns(start)
    for offset_ns, day in (
        (-1, CHRISTMAS - 1),
        (0, CHRISTMAS),
        (1, CHRISTMAS),
        (24 * HOUR_NS - 1, CHRISTMAS),
        (24 * HOUR_NS, CHRISTMAS + 1),
    ):
        assert days.day_of(ns(start) + offset_ns) == day


def test_a_day_whose_midnight_the_clock_skips_or_shows_twice_has_one_start() -> None:
    beirut = CalendarDays(NamedCalendar(), "Asia/Beirut")
    sunday = number(date(2026, 3, 29))  # 00:00 becomes 01:00
    assert beirut.start_ns(sunday) == ns("2026-03-29T01:00+03:00")
    assert beirut.day_of(ns("2026-03-29T01:00+03:00")) == sunday
    assert beirut.day_of(ns("2026-03-29T01:00+03:00") - 1) == sunday - 1
    sunday = number(date(2026, 10, 25))  # 24:00 of Saturday becomes 23:00
    assert beirut.start_ns(sunday) == ns("2026-10-25T00:00+02:00")
    assert beirut.start_ns(sunday - 1) == ns("2026-10-25T00:00+02:00") - 25 * HOUR_NS
    havana = CalendarDays(NamedCalendar(), "America/Havana")
    sunday = number(date(2026, 11, 1))  # 01:00 becomes 00:00
    assert havana.start_ns(sunday) == ns("2026-11-01T00:00-04:00")
    assert havana.day_of(ns("2026-11-01T00:00-05:00")) == sunday
    assert havana.start_ns(sunday + 1) == ns("2026-11-01T00:00-04:00") + 25 * HOUR_NS


def test_an_hour_shown_again_after_midnight_belongs_to_the_new_day() -> None:
    """In St John's of 2006 the clock went from 00:01 back to 23:01."""
    tz = "America/St_Johns"
    days = CalendarDays(NamedCalendar(dates=(date(2006, 10, 29),)), tz)
    midnight_ns = ns("2006-10-29T00:00-02:30")
    sunday = days.day_of(midnight_ns)
    assert days.start_ns(sunday) == midnight_ns
    assert days.is_excluded(sunday)
    assert days.day_of(midnight_ns - 1) == sunday - 1
    assert days.day_of(midnight_ns + 30 * 60 * NS) == sunday  # 23:30 once more
    assert days.start_ns(sunday + 1) == midnight_ns + 25 * HOUR_NS


def test_days_follow_each_other_without_a_hole() -> None:
    for tz in ("Asia/Beirut", "America/St_Johns", "Pacific/Apia", "America/Havana"):
        days = CalendarDays(NamedCalendar(), tz)
        first = days.day_of(ns("2006-01-01T12:00Z"))
        for day in range(first, first + 3_000):
            start_ns, end_ns = days.start_ns(day), days.start_ns(day + 1)
            assert start_ns <= end_ns
            if start_ns < end_ns:
                assert days.day_of(start_ns) == days.day_of(end_ns - 1) == day


def test_a_calendar_with_a_zone_of_its_own_counts_days_there() -> None:
    tokyo = CalendarDays(NamedCalendar(tz="Asia/Tokyo"), "Europe/Berlin")
    assert tokyo.start_ns(CHRISTMAS) == ns("2026-12-25T00:00+09:00")


def test_a_day_that_a_country_left_out_is_empty_and_not_open() -> None:
    """Samoa went from Thursday 29 to Saturday 31 December 2011."""
    days = CalendarDays(NamedCalendar(dates=(date(2011, 12, 29),)), "Pacific/Apia")
    friday = number(date(2011, 12, 30))
    assert days.start_ns(friday) == days.start_ns(friday + 1)
    assert not days.is_excluded(friday)
    assert not days.is_open(friday)
    assert days.next_open(friday) == friday + 1
    assert days.prev_open(friday) == friday - 2
    [run] = days.closed_runs(friday - 5, friday + 5)
    assert run == DayRun(friday - 1, friday + 1)


def test_the_open_day_from_an_open_one_on_is_that_day() -> None:
    days = CalendarDays(NamedCalendar(weekdays=WEEKEND), "UTC")
    assert days.next_open(CHRISTMAS) == days.prev_open(CHRISTMAS) == CHRISTMAS
    for weekend in (CHRISTMAS + 1, CHRISTMAS + 2):
        assert days.next_open(weekend) == CHRISTMAS + 3
        assert days.prev_open(weekend) == CHRISTMAS


@pytest.mark.parametrize(
    ("first", "last", "expected"),
    [
        (-9, -3, []),
        (-9, -2, [(-2, 0)]),
        (-1, -1, [(-2, 0)]),
        (0, 2, []),
        (0, 3, [(3, 4)]),
        (3, 3, [(3, 4)]),
        (-9, 99, [(-2, 0), (3, 4), (6, 9)]),
        (8, 99, [(6, 9)]),
        (9, 99, []),
        (5, 4, []),
    ],
)
def test_the_runs_of_closed_days_that_touch_a_span_are_told_whole(
    first: int, last: int, expected: list[tuple[int, int]]
) -> None:
    """Days are counted from Christmas here."""
    dates = (-2, -1, 3, 6, 7, 8)
    calendar = NamedCalendar(
        dates=tuple(date(2026, 12, 25) + timedelta(days=n) for n in dates)
    )
    found = CalendarDays(calendar, "UTC").closed_runs(
        CHRISTMAS + first, CHRISTMAS + last
    )
    assert [(run.first - CHRISTMAS, run.end - CHRISTMAS) for run in found] == expected


def test_dates_beside_a_weekend_make_one_run_with_it() -> None:
    calendar = NamedCalendar(
        dates=(date(2026, 12, 25), date(2026, 12, 30)), weekdays=WEEKEND
    )
    found = CalendarDays(calendar, "UTC").closed_runs(CHRISTMAS - 6, CHRISTMAS + 9)
    assert [(run.first - CHRISTMAS, run.end - CHRISTMAS) for run in found] == [
        *((-6, -4), (0, 3), (5, 6), (8, 10)),
    ]


def test_one_weekday_is_a_run_of_each_week() -> None:
    days = CalendarDays(NamedCalendar(weekdays=("SUN",)), "UTC")
    found = days.closed_runs(CHRISTMAS + 1, CHRISTMAS + 20)
    assert [(run.first - CHRISTMAS, run.end - CHRISTMAS) for run in found] == [
        *((2, 3), (9, 10), (16, 17)),
    ]
    assert list(days.closed_runs(CHRISTMAS + 3, CHRISTMAS + 8)) == []


def test_the_first_copy_of_a_time_that_is_shown_twice_is_meant_and_marked() -> None:
    berlin = CalendarDays(NamedCalendar(), "Europe/Berlin")
    sunday = berlin.day_of(ns("2026-10-25T12:00Z"))
    for at, expected, mark in (
        ("01:59:59", "2026-10-25T01:59:59+02:00", DstMark.NONE),
        ("02:00", "2026-10-25T02:00+02:00", DstMark.FIRST),
        ("02:59:59", "2026-10-25T02:59:59+02:00", DstMark.FIRST),
        ("03:00", "2026-10-25T03:00+01:00", DstMark.NONE),
        ("23:59:59", "2026-10-25T23:59:59+01:00", DstMark.NONE),
        ("00:00", "2026-10-25T00:00+02:00", DstMark.NONE),
    ):
        like_ns = ns(f"2026-10-21T{at}+02:00") + 5
        assert berlin.instant_on(sunday, like_ns) == Firing(ns(expected) + 5, mark)


def test_a_time_that_the_clock_skips_becomes_the_end_of_the_gap() -> None:
    berlin = CalendarDays(NamedCalendar(), "Europe/Berlin")
    sunday = berlin.day_of(ns("2026-03-29T12:00Z"))
    end_ns = ns("2026-03-29T03:00+02:00")
    for at, expected in (
        ("01:59:59", Firing(end_ns - 10**9)),
        ("02:00", Firing(end_ns, DstMark.SHIFTED)),
        ("02:59:59", Firing(end_ns, DstMark.SHIFTED)),
        ("03:00", Firing(end_ns)),
    ):
        assert berlin.instant_on(sunday, ns(f"2026-03-25T{at}+01:00")) == expected


def test_a_time_is_moved_with_all_its_nanoseconds_unless_a_gap_takes_it() -> None:
    berlin = CalendarDays(NamedCalendar(), "Europe/Berlin")
    sunday = berlin.day_of(ns("2026-03-29T12:00Z"))
    late, night = ns("2026-03-28T12:00+01:00") + 7, ns("2026-03-28T02:30+01:00") + 7
    assert berlin.instant_on(sunday, late) == Firing(ns("2026-03-29T12:00+02:00") + 7)
    assert berlin.instant_on(sunday, night) == Firing(
        ns("2026-03-29T03:00+02:00"), DstMark.SHIFTED
    )
    # In Scoresbysund the clock jumps from Saturday 23:00 to Sunday 00:00.
    far_north = CalendarDays(NamedCalendar(), "America/Scoresbysund")
    saturday = far_north.day_of(ns("2026-03-28T12:00Z"))
    before = ns("2026-03-27T23:30-02:00") + 7
    assert far_north.instant_on(saturday, before) == Firing(
        ns("2026-03-28T22:30-02:00") + 7, DstMark.SHIFTED
    )
