"""Triggers that can never run, or whose due times would leave their order."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

import msgspec
import pytest

from timingwheel.errors import ArgumentError
from timingwheel.jobs.building import make_trigger
from timingwheel.jobs.calendars import NamedCalendar
from timingwheel.jobs.cron import Cron
from timingwheel.jobs.errors import UnknownCalendarError
from timingwheel.jobs.feasibility import (
    NEAR_GAPS,
    ROLLED_A_DAY_MAX,
    require_apart,
    require_possible,
)
from timingwheel.jobs.intervals import every
from timingwheel.jobs.schedule import NS, Firing, Schedule, instant_ns
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
        {"cron": "0 0 9 2 3 * 2026", "splay": "1d"},  # once: there is no gap
        {"cron": "H H * * *"},
        {"cron": "H 9 * * *", "calendar": "weekend", "roll": "next"},
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


def test_what_was_found_is_shown_as_it_was_meant() -> None:
    past = make_trigger(cron="0 9 * * *", end=at("2026-03-02T09:00Z"))
    often = make_trigger(cron="* * * * *", calendar="weekend", roll="previous")
    for trigger, found in (
        (
            past,
            "At 09:00 every day, UTC time. Nothing from 2026-03-02 09:00:00 UTC on.",
        ),
        (often, "previous"),
    ):
        with pytest.raises(ArgumentError) as caught:
            put(trigger)
        assert caught.value.found == found
    with pytest.raises(ArgumentError, match="are 1 minute apart") as caught:
        make_trigger(cron="* * * * *", splay="30s", jitter="40s")
    assert caught.value.found == "1 minute 10 seconds"


def test_a_time_a_nanosecond_ago_is_none_to_come() -> None:
    hourly = EveryPeriod(3_600 * NS, NOW_NS - 1)
    with pytest.raises(ArgumentError, match="its end has passed"):
        put(Trigger(when=hourly, end_ns=NOW_NS))
    put(Trigger(when=EveryPeriod(3_600 * NS, NOW_NS), end_ns=NOW_NS + 1))


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


class Instants(Schedule):
    """Those that are listed."""

    def __init__(self, instants: list[int]) -> None:
        self.instants = instants

    def next_ns(self, after_ns: int) -> Firing | None:
        return next((Firing(i) for i in self.instants if i > after_ns), None)

    def prev_ns(self, before_ns: int) -> Firing | None:
        raise NotImplementedError

    def count_ns(self, start_ns: int, end_ns: int) -> int:
        raise NotImplementedError

    def explain(self) -> str:
        raise NotImplementedError


def is_apart(schedule: Schedule, after_ns: int, splay_ns: int) -> bool:
    trigger = Trigger(when=EveryPeriod(NS), splay_ns=splay_ns)
    try:
        require_apart(trigger, schedule, after_ns=after_ns)
    except ArgumentError:
        return False
    return True


def test_the_gaps_that_count_lie_between_the_next_times_and_are_so_many() -> None:
    assert is_apart(Instants([5, 6, 16, 26]), 5, splay_ns=9)
    assert not is_apart(Instants([5, 6, 16, 26]), 5, splay_ns=10)
    assert not is_apart(Instants([5, 6, 16, 26]), 4, splay_ns=9)
    near = [10 * n for n in range(NEAR_GAPS)]
    assert not is_apart(Instants([*near, near[-1] + 5]), -1, splay_ns=5)
    assert is_apart(Instants([*near, near[-1] + 10, near[-1] + 15]), -1, splay_ns=5)


def test_the_time_that_is_now_is_the_first_of_the_next() -> None:
    twice = make_trigger(cron="0 0,30 9 2 3 * 2026")
    put(msgspec.structs.replace(twice, splay_ns=1_800 * NS - 1))
    with pytest.raises(ArgumentError, match="30 minutes apart"):
        put(msgspec.structs.replace(twice, splay_ns=1_800 * NS))
    weekend: dict[str, Any] = {"calendar": "weekend", "roll": "next"}
    rule = f"FREQ=MINUTELY;COUNT={ROLLED_A_DAY_MAX}"
    start = datetime(2026, 3, 2, 9, tzinfo=UTC)
    put(make_trigger(rrule=rule, start=start, **weekend))
    with pytest.raises(ArgumentError, match="101 occurrences a day"):
        put(make_trigger(rrule=f"{rule[:-1]}1", start=start, **weekend))


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
