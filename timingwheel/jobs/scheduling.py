"""From a trigger, which is data, to the schedule that answers when.

    rule ─▶ start and end ─▶ excluded days ─▶ start and end

The bounds come before the calendar, so that nothing outside of them is rolled in, and
after it, so that nothing is rolled out.

The times of a job depend on when it was put (an anchor, where its trigger names none), on
its key (`H` in cron fields) and on the calendars as they stand: all are passed in, so one
trigger gives one schedule wherever and whenever it is asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime, timedelta
from functools import lru_cache
from typing import Final

import msgspec

from timingwheel.errors import ArgumentError
from timingwheel.jobs.bounded import Bounded
from timingwheel.jobs.calendar_days import CalendarDays
from timingwheel.jobs.calendar_schedule import RollingCalendar, SkippingCalendar
from timingwheel.jobs.calendars import NamedCalendar
from timingwheel.jobs.clock_gaps import skipped_by_clock
from timingwheel.jobs.cron import Cron
from timingwheel.jobs.errors import UnknownCalendarError
from timingwheel.jobs.every import CalendarEvery, Every
from timingwheel.jobs.model import SkipReason
from timingwheel.jobs.planning import PlannedSkip
from timingwheel.jobs.rrule import RecurrenceRule
from timingwheel.jobs.schedule import HORIZON_NS, NS, Schedule
from timingwheel.jobs.triggers import (
    CronRule,
    EveryCalendar,
    EveryPeriod,
    RRule,
    Trigger,
)
from timingwheel.jobs.wall_schedule import WallSchedule
from timingwheel.jobs.zones import zone_named

RULES_KEPT: Final = 4_096
"""Schedules of rules that are remembered."""

_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - wall times have no zone

Recurring = EveryPeriod | EveryCalendar | CronRule | RRule
"""The rules that make a schedule."""

_NO_CALENDARS: Final[Mapping[str, NamedCalendar]] = {}


def schedule_of(
    trigger: Trigger,
    *,
    created_ns: int,
    job_key: str,
    calendars: Mapping[str, NamedCalendar] = _NO_CALENDARS,
) -> Schedule:
    """Return the schedule of a recurring trigger.

    Args:
        trigger: with `is_recurring`.
        created_ns: when its job was put, on the trigger's own scale of time.
        job_key: what `H` in cron fields is computed from, unless the trigger says.
        calendars: all that the trigger may name.

    Raises:
        ArgumentError: the trigger is not recurring, or is invalid.
        CronError: its cron expression is invalid.
        UnknownCalendarError: there is no calendar of its name.
    """
    rule = rule_of(trigger, created_ns=created_ns, job_key=job_key)
    schedule = _bounded(rule, trigger)
    if trigger.calendar is None:
        return schedule
    days = _days_of(trigger, calendars)
    if trigger.roll == "skip":
        return SkippingCalendar(schedule, days, name=trigger.calendar)
    rolling = RollingCalendar(schedule, days, roll=trigger.roll, name=trigger.calendar)
    return _bounded(rolling, trigger, is_said=False)


def zone_of(trigger: Trigger) -> str:
    """Return the name of the zone by whose clock a trigger runs; UTC for elapsed time."""
    when = trigger.when
    return when.tz if isinstance(when, CronRule | EveryCalendar | RRule) else "UTC"


def removed_between(
    trigger: Trigger,
    start_ns: int,
    end_ns: int,
    *,
    created_ns: int,
    job_key: str,
    calendars: Mapping[str, NamedCalendar] = _NO_CALENDARS,
) -> list[PlannedSkip]:
    """Return the occurrences that never are: what excluded days and clocks remove.

    Args:
        trigger: as for `schedule_of`.
        start_ns: nominal times from here
        end_ns: up to, but not at, here.
        created_ns: as for `schedule_of`.
        job_key: as for `schedule_of`.
        calendars: as for `schedule_of`.

    Returns:
        At most one range with reason CALENDAR, for `roll="skip"`, and one with reason
        DST, for `gap="skip"`: its times are what the clock would show had it not moved.

    Cost: grows with the excluded days and the changes of the clock between.
    """
    if trigger.start_ns is not None:
        start_ns = max(start_ns, trigger.start_ns)
    if trigger.end_ns is not None:
        end_ns = min(end_ns, trigger.end_ns)
    when = _anchored(trigger, created_ns=created_ns, job_key=job_key)
    removed = []
    if trigger.calendar is not None and trigger.roll == "skip":
        days = _days_of(trigger, calendars)
        skipping = SkippingCalendar(_rule(when), days, name=trigger.calendar)
        excluded = skipping.excluded(start_ns, end_ns)
        removed += [] if excluded is None else [excluded]
    if isinstance(when, CronRule | EveryCalendar) and when.gap == "skip":
        removed += _skipped_by_clock(when, start_ns, end_ns)
    return removed


def rule_of(trigger: Trigger, *, created_ns: int, job_key: str) -> Schedule:
    """Return the schedule of a trigger's rule alone, without bounds and calendar.

    Args and Raises: as `schedule_of`.
    """
    return _rule(_anchored(trigger, created_ns=created_ns, job_key=job_key))


def _anchored(trigger: Trigger, *, created_ns: int, job_key: str) -> Recurring:
    """Return the rule of a trigger with all that it leaves open filled in."""
    when = trigger.when
    origin_ns = created_ns if trigger.start_ns is None else trigger.start_ns
    if isinstance(when, EveryPeriod) and when.anchor_ns is None:
        # With a start, that is the first; without, one period has to pass.
        delay_ns = when.period_ns if trigger.start_ns is None else 0
        anchor_ns = min(origin_ns + delay_ns, HORIZON_NS)
        return msgspec.structs.replace(when, anchor_ns=anchor_ns)
    if isinstance(when, EveryCalendar) and when.anchor is None:
        day = _wall(origin_ns, when.tz).date()
        return msgspec.structs.replace(when, anchor=day.isoformat())
    if (
        isinstance(when, CronRule)
        and when.hash_key is None
        and "H" in when.expression.upper()
    ):
        # Any other letter H does no harm; without one, equal expressions stay equal.
        return msgspec.structs.replace(when, hash_key=job_key)
    if isinstance(when, RRule) and when.start is None:
        wall = _wall(origin_ns, when.tz).isoformat()
        return msgspec.structs.replace(when, start=wall)
    if isinstance(when, EveryPeriod | EveryCalendar | CronRule | RRule):
        return when
    kind = type(when).__name__
    raise ArgumentError("trigger", kind, "pass a recurring one: every, cron or rrule")


@lru_cache(RULES_KEPT)
def _rule(when: Recurring) -> Schedule:
    """Return the schedule of a rule that leaves nothing open.

    Equal rules share one: to read a cron expression takes as long as ten of its times,
    and ten thousand jobs often have few expressions between them.
    """
    match when:
        case EveryPeriod(period_ns=period_ns, anchor_ns=int(anchor_ns)):
            return Every(period_ns, anchor_ns)
        case EveryCalendar(anchor=str(anchor)):
            return CalendarEvery(
                when.interval,
                when.unit,
                at=when.at,
                anchor=_date(anchor),
                tz=when.tz,
                short_month=when.short_month,
                gap=when.gap,
                overlap=when.overlap,
            )
        case CronRule():
            return Cron(
                when.expression,
                when.tz,
                gap=when.gap,
                overlap=when.overlap,
                hash_key=when.hash_key,
            )
        case RRule(start=str(start)):
            return RecurrenceRule(when.rule, start=start, tz=when.tz)
    raise AssertionError(f"{when} leaves something open")


def _bounded(schedule: Schedule, trigger: Trigger, *, is_said: bool = True) -> Schedule:
    start_ns, end_ns = trigger.start_ns, trigger.end_ns
    if start_ns is None and end_ns is None:
        return schedule
    return Bounded(schedule, start_ns=start_ns, end_ns=end_ns, is_said=is_said)


def _days_of(trigger: Trigger, calendars: Mapping[str, NamedCalendar]) -> CalendarDays:
    name = trigger.calendar
    assert name is not None
    if name not in calendars:
        known = ", ".join(sorted(calendars)) or "none so far"
        raise UnknownCalendarError(
            "calendar", name, f"define it first; there are: {known}"
        )
    return CalendarDays(calendars[name], zone_of(trigger))


def _skipped_by_clock(
    when: CronRule | EveryCalendar, start_ns: int, end_ns: int
) -> list[PlannedSkip]:
    """Return what the clock has skipped, as one range."""
    rule = _rule(when)
    if isinstance(rule, WallSchedule) and rule.follows_clock:
        return []
    in_utc = _rule(msgspec.structs.replace(when, tz="UTC"))
    gaps = list(skipped_by_clock(in_utc, when.tz, start_ns, end_ns))
    if not gaps:
        return []
    count = sum(gap.count for gap in gaps)
    return [PlannedSkip(SkipReason.DST, gaps[0].first_ns, gaps[-1].last_ns, count)]


def _wall(utc_ns: int, tz: str) -> datetime:
    utc_s = utc_ns // NS
    wall_s = utc_s + zone_named(tz).stretch_at(utc_s).offset_s
    return _EPOCH + timedelta(seconds=wall_s)


def _date(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise ArgumentError(
            "anchor", text, 'pass the first day as "2026-03-02"'
        ) from None
