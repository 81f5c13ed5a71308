"""From what a caller writes to a trigger: `delay=30`, `cron="0 3 * * *"`, `every="10m"`.

Exactly one of seven says when; the rest bounds it. All that can be judged without knowing
the time and the calendars is judged here, where the caller's own words are still known;
the rest is for `feasibility.require_possible`, when the job is put.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, get_args
from zoneinfo import ZoneInfo

import msgspec

from timingwheel.errors import ArgumentError, DeadlineError
from timingwheel.jobs.after import After
from timingwheel.jobs.cron import Cron
from timingwheel.jobs.durations import Duration, duration_ns
from timingwheel.jobs.feasibility import require_apart
from timingwheel.jobs.intervals import period_rule
from timingwheel.jobs.schedule import HORIZON_NS, instant_datetime, instant_ns
from timingwheel.jobs.scheduling import schedule_of
from timingwheel.jobs.store import JobRef
from timingwheel.jobs.triggers import (
    At,
    CronRule,
    Delay,
    EveryCalendar,
    EveryPeriod,
    Moment,
    Roll,
    RRule,
    Trigger,
)
from timingwheel.jobs.zones import zone_named

RUNS_MAX: Final = (1 << 53) - 1
"""The largest max_runs: a whole number that every JSON reader keeps."""

_WAYS: Final = "delay=, at=, every=, cron=, rrule=, after= or trigger="
_NAME_CHARS_MAX: Final = 200


def make_trigger(
    *,
    delay: Duration | None = None,
    at: datetime | None = None,
    every: Duration | EveryPeriod | EveryCalendar | None = None,
    cron: str | Cron | None = None,
    rrule: str | None = None,
    after: After | JobRef | str | None = None,
    trigger: Trigger | Moment | None = None,
    tz: str | ZoneInfo | None = None,
    start: datetime | None = None,
    end: datetime | None = None,
    max_runs: int | None = None,
    calendar: str | None = None,
    roll: Roll = "skip",
    splay: Duration | None = None,
    jitter: Duration | None = None,
) -> Trigger:
    """Return the trigger that the arguments describe.

    Args:
        delay: once, this long after it is put.
        at: once, at an aware datetime; one that has passed runs at once.
        every: again and again: a period of elapsed time, or what `intervals.every`
            returns.
        cron: again and again: an expression, or a Cron where gap= and overlap= matter.
        rrule: again and again: an iCalendar rule; its DTSTART is `start`.
        after: when other jobs have ended: an After, or one job for `After(job)`.
        trigger: one that is made already; only a bare rule can be given bounds.
        tz: the IANA zone of cron, rrule, and every with a wall time; None: UTC.
        start: no occurrence before. For a period the first one; for a calendar interval
            its day is the first.
        end: no occurrence at or after.
        max_runs: scheduled runs in all.
        calendar: the name of a calendar whose excluded days are left out.
        roll: what an occurrence on an excluded day does: "skip", "next" or "previous".
        splay: spreads jobs: the due time is up to this much later, each time by the same.
        jitter: the same, drawn anew for each run.

    Raises:
        ArgumentError: an argument is invalid, or does not go with another; the
            message names it and what to pass instead.
        CronError: the cron expression is invalid.
        DeadlineError: a time lies beyond 2262.
        MissingExtraError: rrule= needs an extra that is not installed.
    """
    ways = {
        "delay": delay,
        "at": at,
        "every": every,
        "cron": cron,
        "rrule": rrule,
        "after": after,
        "trigger": trigger,
    }
    way, value = _the_one(ways)
    bounds = {
        "tz": tz,
        "start": start,
        "end": end,
        "max_runs": max_runs,
        "calendar": calendar,
        "splay": splay,
        "jitter": jitter,
        "roll": None if roll == "skip" else roll,
    }
    if isinstance(value, Trigger):
        _refuse_given(bounds, "the trigger has its own; make it anew with it")
        return _checked(value)
    when = _with_zone(_moment(way, value, tz), way, tz)
    built = Trigger(
        when=when,
        start_ns=_bound_ns(start, "start"),
        end_ns=_bound_ns(end, "end"),
        runs_max=max_runs,
        calendar=calendar,
        roll=roll,
        splay_ns=0 if splay is None else duration_ns(splay, "splay"),
        jitter_ns=0 if jitter is None else duration_ns(jitter, "jitter"),
    )
    if isinstance(when, RRule) and when.start is None and start is not None:
        wall = start.astimezone(ZoneInfo(when.tz)).replace(tzinfo=None)
        built = msgspec.structs.replace(
            built, when=msgspec.structs.replace(when, start=wall.isoformat())
        )
    return _checked(built)


def _the_one(ways: Mapping[str, object]) -> tuple[str, Any]:
    given = [name for name, value in ways.items() if value is not None]
    if len(given) != 1:
        found = " and ".join(f"{name}=" for name in given) or "missing"
        raise ArgumentError("the time to run", found, f"pass exactly one of {_WAYS}")
    return given[0], ways[given[0]]


def _moment(way: str, value: Any, tz: str | ZoneInfo | None) -> Moment:
    match way:
        case "delay":
            return Delay(duration_ns(value, "delay"))
        case "at":
            return At(_instant_ns(value, "at"))
        case "every":
            if isinstance(value, EveryPeriod | EveryCalendar):
                return value
            return period_rule(duration_ns(value, "every"), value)
        case "cron":
            return _cron_rule(value, tz)
        case "rrule":
            return RRule(rule=value)
        case "after":
            return (value if isinstance(value, After) else After(value)).rule
    if not isinstance(value, get_args(Moment)):
        raise ArgumentError(
            "trigger", value, "pass a Trigger, or a rule of timingwheel.jobs.triggers"
        )
    moment: Moment = value
    return moment


def _cron_rule(cron: object, tz: str | ZoneInfo | None) -> CronRule:
    if not isinstance(cron, Cron):
        if not isinstance(cron, str):
            raise ArgumentError("cron", cron, 'pass an expression, as "0 3 * * *"')
        return CronRule(expression=cron)
    if tz is not None and zone_named(tz).name != cron.tz:
        raise ArgumentError("tz", tz, f"the Cron has {cron.tz!r}; pass it there only")
    return CronRule(
        expression=cron.expression,
        tz=cron.tz,
        gap=cron.gap,
        overlap=cron.overlap,
        hash_key=cron.hash_key,
    )


def _with_zone(when: Moment, way: str, tz: str | ZoneInfo | None) -> Moment:
    """Return a rule in the zone that was passed beside it."""
    if tz is None:
        return when
    name = zone_named(tz).name
    if not isinstance(when, CronRule | EveryCalendar | RRule):
        raise ArgumentError(
            "tz", name, f"{way}= has no time of the wall clock; leave tz out"
        )
    if when.tz not in ("UTC", name):
        raise ArgumentError("tz", name, f"{way}= has {when.tz!r}; pass it there only")
    return msgspec.structs.replace(when, tz=name)


def _checked(trigger: Trigger) -> Trigger:
    """Return a trigger whose parts go together and whose rule is valid."""
    if not trigger.is_recurring:
        once = {
            "start": trigger.start_ns,
            "end": trigger.end_ns,
            "max_runs": trigger.runs_max,
            "calendar": trigger.calendar,
        }
        _refuse_given(once, "it runs once; only every=, cron= and rrule= take it")
    runs_max = trigger.runs_max
    if runs_max is not None and (
        type(runs_max) is not int or not 1 <= runs_max <= RUNS_MAX
    ):
        raise ArgumentError("max_runs", runs_max, "pass a whole number from 1")
    start_ns, end_ns = trigger.start_ns, trigger.end_ns
    if end_ns is not None and end_ns <= (start_ns or 0):
        raise ArgumentError(
            "end", instant_datetime(end_ns).isoformat(), "pass an end after the start"
        )
    _check_calendar(trigger)
    if trigger.is_recurring:
        _check_rule(trigger)
    return trigger


def _check_calendar(trigger: Trigger) -> None:
    name = trigger.calendar
    if trigger.roll not in get_args(Roll):
        known = ", ".join(f'"{word}"' for word in get_args(Roll))
        raise ArgumentError("roll", trigger.roll, f"pass one of {known}")
    if name is None:
        if trigger.roll != "skip":
            raise ArgumentError("roll", trigger.roll, "it needs calendar=")
    elif type(name) is not str or not 1 <= len(name) <= _NAME_CHARS_MAX:
        raise ArgumentError(
            "calendar", name, f"pass its name, of 1 to {_NAME_CHARS_MAX} characters"
        )


def _check_rule(trigger: Trigger) -> None:
    """Build the schedule once, so that what is invalid is refused here.

    Neither the present nor the calendar is known: it is put at its start, or in 1970.
    """
    origin_ns = trigger.start_ns or 0
    plain = msgspec.structs.replace(trigger, calendar=None, roll="skip")
    schedule = schedule_of(plain, created_ns=origin_ns, job_key="job")
    if schedule.next_ns(-1) is None:
        raise ArgumentError(
            "end" if trigger.end_ns is not None else "start",
            schedule.explain(),
            "no time is left between start and end; pass wider bounds",
        )
    require_apart(plain, schedule, after_ns=origin_ns - 1)


def _refuse_given(values: Mapping[str, object], fix: str) -> None:
    for name, value in values.items():
        if value is not None:
            raise ArgumentError(name, value, fix)


def _bound_ns(moment: datetime | None, argument: str) -> int | None:
    return None if moment is None else _instant_ns(moment, argument)


def _instant_ns(moment: datetime, argument: str) -> int:
    found_ns = instant_ns(moment, argument)
    if found_ns < 0:
        raise ArgumentError(argument, moment.isoformat(), "pass a time from 1970 on")
    if found_ns > HORIZON_NS:
        raise DeadlineError(
            argument,
            moment.isoformat(),
            "times end in the year 2262; pass an earlier one",
        )
    return found_ns
