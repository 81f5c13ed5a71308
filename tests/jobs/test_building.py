"""From what a caller writes to a trigger, and what is refused with which words."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from timingwheel.errors import ArgumentError, CronError, DeadlineError
from timingwheel.jobs.after import After
from timingwheel.jobs.building import RUNS_MAX, make_trigger
from timingwheel.jobs.cron import Cron
from timingwheel.jobs.intervals import every
from timingwheel.jobs.model import JobId
from timingwheel.jobs.schedule import NS
from timingwheel.jobs.store import JobRef
from timingwheel.jobs.triggers import (
    AfterJobs,
    At,
    CronRule,
    Delay,
    EveryCalendar,
    EveryPeriod,
    RRule,
    Trigger,
)

BERLIN = "Europe/Berlin"
SECOND_ONE = datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)


def day(number: int) -> datetime:
    return datetime(2026, 3, number, tzinfo=UTC)


@pytest.mark.parametrize(
    ("arguments", "when"),
    [
        ({"delay": 30}, Delay(30 * NS)),
        ({"delay": "0.2s"}, Delay(NS // 5)),
        ({"delay": 0}, Delay(0)),
        ({"delay": timedelta(minutes=1)}, Delay(60 * NS)),
        ({"at": SECOND_ONE}, At(NS)),
        (
            {"at": datetime(1970, 1, 1, 1, 0, 1, tzinfo=ZoneInfo(BERLIN))},
            At(NS),
        ),
        ({"every": "10m"}, EveryPeriod(600 * NS)),
        ({"every": every(hours=168)}, EveryPeriod(604_800 * NS)),
        (
            {"every": every(days=7, at="16:00", tz=BERLIN)},
            EveryCalendar(interval=7, unit="days", at="16:00:00", tz=BERLIN),
        ),
        (
            {"every": every(days=7, at="16:00"), "tz": BERLIN},
            EveryCalendar(interval=7, unit="days", at="16:00:00", tz=BERLIN),
        ),
        ({"cron": "0 3 * * *"}, CronRule(expression="0 3 * * *")),
        (
            {"cron": "0 3 * * *", "tz": ZoneInfo(BERLIN)},
            CronRule(expression="0 3 * * *", tz=BERLIN),
        ),
        (
            {
                "cron": Cron(
                    "0 3 * * *", BERLIN, gap="skip", overlap="both", hash_key="k"
                )
            },
            CronRule(
                expression="0 3 * * *",
                tz=BERLIN,
                gap="skip",
                overlap="both",
                hash_key="k",
            ),
        ),
        (
            {"cron": Cron("0 3 * * *", BERLIN), "tz": BERLIN},
            CronRule(expression="0 3 * * *", tz=BERLIN),
        ),
        ({"rrule": "FREQ=DAILY", "tz": BERLIN}, RRule(rule="FREQ=DAILY", tz=BERLIN)),
        ({"after": "a"}, AfterJobs(jobs=("a",))),
        ({"after": JobRef(JobId("a"), created=True)}, AfterJobs(jobs=("a",))),
        ({"after": After.any_of("a", "b")}, AfterJobs(jobs=("a", "b"), need="any")),
        ({"trigger": Delay(5)}, Delay(5)),
        ({"trigger": Trigger(when=At(5))}, At(5)),
    ],
)
def test_each_way_to_say_when_becomes_its_rule(
    arguments: dict[str, Any], when: object
) -> None:
    assert make_trigger(**arguments) == Trigger(when=when)  # type: ignore[arg-type]


def test_the_bounds_are_kept() -> None:
    assert make_trigger(
        cron="0 3 * * *",
        start=day(1),
        end=day(9),
        max_runs=3,
        calendar="holidays",
        roll="next",
        splay="10m",
        jitter=1.5,
    ) == Trigger(
        when=CronRule(expression="0 3 * * *"),
        start_ns=int(day(1).timestamp()) * NS,
        end_ns=int(day(9).timestamp()) * NS,
        runs_max=3,
        calendar="holidays",
        roll="next",
        splay_ns=600 * NS,
        jitter_ns=NS * 3 // 2,
    )


def test_the_start_of_a_recurrence_rule_is_its_dtstart_by_its_own_clock() -> None:
    trigger = make_trigger(rrule="FREQ=DAILY", tz=BERLIN, start=day(1))
    assert trigger.when == RRule(
        rule="FREQ=DAILY", tz=BERLIN, start="2026-03-01T01:00:00"
    )


def test_a_trigger_that_is_made_already_is_checked_as_one_that_is_not() -> None:
    with pytest.raises(CronError):
        make_trigger(trigger=CronRule(expression="0 25 * * *"))
    with pytest.raises(ArgumentError, match="max_runs is 0"):
        make_trigger(trigger=Trigger(when=EveryPeriod(NS), runs_max=0))
    bounded = make_trigger(trigger=EveryPeriod(NS), max_runs=3)
    assert bounded == Trigger(when=EveryPeriod(NS), runs_max=3)


def test_exactly_one_way_says_when() -> None:
    with pytest.raises(ArgumentError, match=r"missing.*exactly one of delay="):
        make_trigger()
    with pytest.raises(ArgumentError, match=r"delay= and cron=.*exactly one"):
        make_trigger(delay=1, cron="0 3 * * *")


@pytest.mark.parametrize(
    ("arguments", "argument", "fix"),
    [
        ({"delay": -1}, "delay", "pass 0 or more"),
        ({"delay": "10y"}, "delay", "units are"),
        ({"delay": "300000d"}, "delay", "2262"),
        ({"at": datetime(2026, 3, 2)}, "at", "tzinfo=ZoneInfo"),  # noqa: DTZ001 - refused
        ({"at": "2026-03-02T09:00Z"}, "at", "pass an aware datetime"),
        ({"at": datetime(1969, 12, 31, tzinfo=UTC)}, "at", "from 1970 on"),
        ({"every": 0}, "every", "at least 1 ms"),
        ({"every": "0.1ms"}, "every", "at least 1 ms"),
        ({"every": True}, "every", "pass seconds"),
        ({"cron": 5}, "cron", "pass an expression"),
        ({"cron": "0 3 * * *", "tz": "Mars"}, "tz", "IANA"),
        (
            {"cron": Cron("0 3 * * *", BERLIN), "tz": "UTC"},
            *("tz", "pass it there only"),
        ),
        (
            {"every": every(days=1, at="09:00", tz=BERLIN), "tz": "Asia/Tokyo"},
            *("tz", "pass it there only"),
        ),
        ({"rrule": "FREQ=NEVER"}, "rrule", "FREQ="),
        ({"rrule": 5}, "rrule", "pass the text of a rule"),
        (
            {"rrule": "FREQ=DAILY", "start": day(1) + timedelta(microseconds=1)},
            *("start", "no fractions of a second"),
        ),
        ({"after": 5}, "job", "pass a job id"),
        ({"trigger": "0 3 * * *"}, "trigger", "pass a Trigger"),
        (
            {"trigger": Trigger(when=Delay(5)), "end": day(1)},
            *("end", "the trigger has its own"),
        ),
        ({"delay": 5, "tz": "UTC"}, "tz", "no time of the wall clock"),
        ({"every": "1h", "tz": BERLIN}, "tz", "no time of the wall clock"),
        ({"delay": 5, "start": day(1)}, "start", "it runs once"),
        ({"at": day(1), "end": day(2)}, "end", "it runs once"),
        ({"after": "a", "max_runs": 2}, "max_runs", "it runs once"),
        ({"delay": 5, "calendar": "holidays"}, "calendar", "it runs once"),
        ({"every": 1, "start": day(2), "end": day(1)}, "end", "after the start"),
        ({"every": 1, "start": day(2), "end": day(2)}, "end", "after the start"),
        ({"every": 1, "start": datetime(2026, 3, 2)}, "start", "tzinfo="),  # noqa: DTZ001 - refused
        ({"every": 1, "max_runs": 0}, "max_runs", "from 1"),
        ({"every": 1, "max_runs": 2.0}, "max_runs", "from 1"),
        ({"every": 1, "max_runs": True}, "max_runs", "from 1"),
        ({"every": 1, "max_runs": RUNS_MAX + 1}, "max_runs", "from 1"),
        ({"every": 1, "calendar": ""}, "calendar", "1 to 200 characters"),
        ({"every": 1, "calendar": 5}, "calendar", "1 to 200 characters"),
        ({"every": 1, "roll": "next"}, "roll", "it needs calendar="),
        ({"every": 1, "calendar": "a", "roll": "back"}, "roll", '"skip", "next"'),
        ({"every": 1, "splay": "-1s"}, "splay", "pass 0 or more"),
        ({"every": 1, "jitter": "soon"}, "jitter", "pass seconds"),
        (
            {"cron": "0 3 1 1 *", "start": day(2), "end": day(3)},
            *("end", "no time is left between start and end"),
        ),
    ],
)
def test_what_cannot_be_meant_is_refused_with_the_argument_and_the_fix(
    arguments: dict[str, Any], argument: str, fix: str
) -> None:
    with pytest.raises(ArgumentError) as caught:
        make_trigger(**arguments)
    assert caught.value.argument == argument
    assert fix in caught.value.fix


@pytest.mark.parametrize("argument", ["at", "end"])
def test_a_time_beyond_2262_is_refused(argument: str) -> None:
    far = datetime(2262, 4, 12, tzinfo=UTC)
    more = {} if argument == "at" else {"every": 1}
    with pytest.raises(DeadlineError, match=f"{argument} is .*2262"):
        make_trigger(**{argument: far}, **more)  # type: ignore[arg-type]


def test_a_cron_that_never_matches_is_refused() -> None:
    with pytest.raises(CronError, match="never matches"):
        make_trigger(cron="0 0 30 2 *")
