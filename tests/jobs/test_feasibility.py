"""Triggers that can never run, or whose due times would leave their order."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

import pytest

from timingwheel.errors import ArgumentError
from timingwheel.jobs.building import make_trigger
from timingwheel.jobs.calendars import NamedCalendar
from timingwheel.jobs.cron import Cron
from timingwheel.jobs.errors import UnknownCalendarError
from timingwheel.jobs.feasibility import ROLLED_A_DAY_MAX, require_possible
from timingwheel.jobs.intervals import every
from timingwheel.jobs.schedule import NS, instant_ns
from timingwheel.jobs.triggers import EveryPeriod, Trigger

CALENDARS = {
    "weekend": NamedCalendar(weekdays=("SAT", "SUN")),
    "may": NamedCalendar(dates=tuple(date(2026, 5, day) for day in range(1, 32))),
}


def at(text: str) -> datetime:
    return datetime.fromisoformat(text)


NOW_NS = instant_ns(datetime(2026, 3, 2, 9, tzinfo=UTC), "now")


def put(trigger: Trigger) -> None:
    require_possible(trigger, now_ns=NOW_NS, job_key="job", calendars=CALENDARS)


@pytest.mark.parametrize(
    "arguments",
    [
        {"delay": 5},
        {"at": at("2020-01-01T00:00Z")},  # overdue: runs at once
        {"after": "another"},
        {"every": "1h"},
        {"cron": "0 9 * * *", "calendar": "weekend", "roll": "next"},
        {"cron": "0 0 9 2 3 * 2026"},  # now, and never again
        {"cron": "0 9 * * *", "end": at("2026-03-02T09:00:00.000001Z")},  # now, once
        {"cron": "*/15 * * * *", "calendar": "weekend", "roll": "previous"},
        {"cron": "* * * * *", "calendar": "weekend"},
        {"cron": "* * * * *", "splay": "59s"},
        {"cron": "* * * * *", "splay": "30s", "jitter": "29s"},
        {"every": "1h", "jitter": 3_599},
        {"delay": 5, "splay": "1d"},
    ],
)
def test_what_has_a_time_to_come_is_taken(arguments: dict[str, Any]) -> None:
    put(make_trigger(**arguments))


@pytest.mark.parametrize(
    ("arguments", "argument", "fix"),
    [
        (
            {"cron": "0 9 * * *", "end": at("2026-03-02T09:00Z")},
            *("trigger", "its end has passed"),
        ),
        ({"cron": "0 0 9 1 1 * 2020"}, "trigger", "never comes again"),
        (
            {"cron": "0 9 * * SUN", "calendar": "weekend"},
            *("trigger", 'calendar "weekend"'),
        ),
        (
            {
                "cron": "0 9 * * *",
                "calendar": "may",
                "start": at("2026-05-02T00:00Z"),
                "end": at("2026-05-30T00:00Z"),
            },
            *("trigger", 'calendar "may"'),
        ),
        (
            {"cron": "* * * * *", "calendar": "weekend", "roll": "next"},
            *("roll", "1,440 occurrences a day"),
        ),
    ],
)
def test_what_can_never_run_is_refused_when_it_is_put(
    arguments: dict[str, Any], argument: str, fix: str
) -> None:
    trigger = make_trigger(**arguments)
    with pytest.raises(ArgumentError) as caught:
        put(trigger)
    assert caught.value.argument == argument
    assert fix in caught.value.fix


def test_a_calendar_that_is_not_there_is_refused_when_the_job_is_put() -> None:
    with pytest.raises(UnknownCalendarError, match="there are: may, weekend"):
        put(make_trigger(every="1d", calendar="holidays"))


@pytest.mark.parametrize(
    ("arguments", "argument"),
    [
        ({"cron": "* * * * *", "splay": "1m"}, "splay"),
        ({"cron": "* * * * *", "jitter": "1m"}, "jitter"),
        ({"cron": "* * * * *", "splay": "30s", "jitter": "30s"}, "splay and jitter"),
        ({"every": "10s", "splay": "10s"}, "splay"),
        ({"cron": "0,1 9 * * *", "splay": "5m"}, "splay"),  # the shorter of two gaps
        ({"every": every(days=1, at="09:00"), "jitter": "1d"}, "jitter"),
        ({"rrule": "FREQ=HOURLY", "splay": "1h"}, "splay"),
    ],
)
def test_splay_and_jitter_stay_below_the_gap_to_the_next_time(
    arguments: dict[str, Any], argument: str
) -> None:
    with pytest.raises(ArgumentError, match="pass less than that") as caught:
        make_trigger(**arguments)
    assert caught.value.argument == argument


def test_the_gap_is_that_of_the_days_to_come() -> None:
    """By UTC days are 24 hours long; the next change of this clock makes one 23."""
    cron = Cron("0 12 * * *", "Europe/Berlin")
    trigger = make_trigger(cron=cron, splay="23h30m", start=at("2026-05-01T00:00Z"))
    put(trigger)
    with pytest.raises(ArgumentError, match="23 hours apart"):
        put(make_trigger(cron=cron, splay="23h30m"))


def test_the_shortest_gap_may_be_one_that_a_calendar_makes() -> None:
    """Rolled to Monday, Saturday's 18:00 comes nine hours after Monday's 09:00."""
    cron = Cron("0 9 * * MON")
    both = {"calendar": "weekend", "splay": "10h"}
    put(make_trigger(cron=cron, roll="next", **both))  # type: ignore[arg-type]
    pair = "0 9,18 * * MON"
    with pytest.raises(ArgumentError, match="9 hours apart"):
        put(make_trigger(cron=pair, roll="next", **both))  # type: ignore[arg-type]


def test_so_many_occurrences_a_day_can_be_rolled_and_no_more() -> None:
    weekend = {"calendar": "weekend", "roll": "next"}
    day_ns = 86_400 * NS
    fits = EveryPeriod(day_ns // ROLLED_A_DAY_MAX)
    put(make_trigger(trigger=fits, **weekend))  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="at most 100"):
        put(make_trigger(trigger=EveryPeriod(fits.period_ns - NS), **weekend))  # type: ignore[arg-type]
