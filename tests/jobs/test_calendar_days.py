"""The days of a calendar as spans of time, where its clock is moved and where not."""

from __future__ import annotations

from datetime import datetime

from timingwheel.jobs.calendar_days import CalendarDays
from timingwheel.jobs.calendars import NamedCalendar
from timingwheel.jobs.schedule import DstMark, Firing, instant_ns


def ns(text: str) -> int:
    return instant_ns(datetime.fromisoformat(text), "text")


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
