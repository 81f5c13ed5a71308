"""When a job runs, as a value: what is stored, shown and sent.

A trigger is one *moment rule* (delay, at, every, calendar, cron, rrule, after another
job) with bounds around it. It is data alone: `schedule_of` makes the Schedule that
answers when, with the named calendars applied.

Two scales of time, as in the engine: a delay and an elapsed interval are measured on
elapsed time, which no step of the wall clock moves; everything else is wall time. Without
a step the two are equal.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

import msgspec

from timingwheel.jobs.every import ShortMonth, Unit
from timingwheel.jobs.wall_schedule import GapRule, OverlapRule

Roll = Literal["skip", "next", "previous"]
"""What an occurrence on an excluded day does: it is left out, or moved to the next or
the previous business day."""


class AfterOn(StrEnum):
    """Which end of the job before lets the job after it run."""

    SUCCESS = "success"
    FAILURE = "failure"
    ANY = "any"


class Delay(msgspec.Struct, frozen=True, tag="delay"):
    """Once, this long after it was put. Elapsed time."""

    delay_ns: int


class At(msgspec.Struct, frozen=True, tag="at"):
    """Once, when the wall clock shows this instant."""

    at_ns: int


class EveryPeriod(msgspec.Struct, frozen=True, tag="every"):
    """Again and again, a period of elapsed time apart.

    Attributes:
        period_ns: from one to the next.
        anchor_ns: the first; None: one period after it was put.
    """

    period_ns: int
    anchor_ns: int | None = None


class EveryCalendar(msgspec.Struct, frozen=True, kw_only=True, tag="calendar"):
    """Every so many days, weeks or months at a time of the wall clock.

    Attributes: as the arguments of jobs.every.CalendarEvery; `anchor` is an ISO date,
    None: the day it was put, in its zone.
    """

    interval: int
    unit: Unit
    at: str
    tz: str = "UTC"
    anchor: str | None = None
    short_month: ShortMonth = "skip"
    gap: GapRule = "after"
    overlap: OverlapRule = "first"


class CronRule(msgspec.Struct, frozen=True, kw_only=True, tag="cron"):
    """By cron fields; attributes as the arguments of jobs.cron.Cron."""

    expression: str
    tz: str = "UTC"
    gap: GapRule = "after"
    overlap: OverlapRule = "first"
    hash_key: str | None = None


class RRule(msgspec.Struct, frozen=True, kw_only=True, tag="rrule"):
    """By an iCalendar recurrence rule (RFC 5545), at wall times of a zone.

    Attributes:
        rule: the RRULE text.
        start: DTSTART as an ISO wall time without zone; None: when it was put.
        tz: an IANA zone name.
    """

    rule: str
    tz: str = "UTC"
    start: str | None = None


class AfterJobs(msgspec.Struct, frozen=True, kw_only=True, tag="after"):
    """When other jobs have ended.

    Attributes:
        jobs: ids of the jobs before.
        on: which end counts.
        need: all of them, or any one.
        each: the job before recurs, and each run of it makes one of this job, with its
            nominal time. The store sees to that.
    """

    jobs: tuple[str, ...]
    on: AfterOn = AfterOn.SUCCESS
    need: Literal["all", "any"] = "all"
    each: bool = False


Moment = Delay | At | EveryPeriod | EveryCalendar | CronRule | RRule | AfterJobs


class Trigger(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A moment rule with its bounds.

    Attributes:
        when: the rule.
        start_ns: no occurrence before; None for no bound.
        end_ns: no occurrence at or after; None for no bound.
        runs_max: scheduled runs in all; None for no bound.
        calendar: name of a calendar whose excluded days are left out.
        roll: what an occurrence on an excluded day does.
        splay_ns: the due time lies up to this much after the nominal one, always by the
            same share, taken from the job's id.
        jitter_ns: the same, drawn anew for each run.
    """

    when: Moment
    start_ns: int | None = None
    end_ns: int | None = None
    runs_max: int | None = None
    calendar: str | None = None
    roll: Roll = "skip"
    splay_ns: int = 0
    jitter_ns: int = 0

    @property
    def is_recurring(self) -> bool:
        """Whether it names more than one instant of its own."""
        return isinstance(self.when, EveryPeriod | EveryCalendar | CronRule | RRule)

    @property
    def is_elapsed(self) -> bool:
        """Whether its instants are on the elapsed scale."""
        return isinstance(self.when, Delay | EveryPeriod)
