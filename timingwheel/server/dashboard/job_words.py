"""A job in the few words of a row or a head."""

from __future__ import annotations

from typing import Final
from zoneinfo import ZoneInfo

from timingwheel.jobs.every import duration_words
from timingwheel.jobs.model import Job, JobState
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
from timingwheel.server.dashboard.words import exact_words, full_time_words

_TO_COME: Final = (JobState.ACTIVE, JobState.PAUSED)


def when_words(trigger: Trigger, zone: ZoneInfo) -> str:
    """Return when a job runs, in the few words of a cell."""
    match trigger.when:
        case Delay(delay_ns=delay_ns):
            return f"once, after {exact_words(delay_ns)}"
        case At(at_ns=at_ns):
            return f"once, {full_time_words(at_ns, zone)[:16]}"
        case EveryPeriod(period_ns=period_ns):
            return f"every {duration_words(period_ns)}"
        case EveryCalendar(interval=interval, unit=unit, at=at, tz=tz):
            amount = unit[:-1] if interval == 1 else f"{interval} {unit}"
            return f"every {amount} at {at} {tz}"
        case CronRule(expression=expression, tz=tz):
            return f"{expression}  {tz}"
        case RRule(rule=rule, tz=tz):
            return f"{rule}  {tz}"
        case AfterJobs(jobs=jobs, on=on):
            before = "a job" if len(jobs) == 1 else f"{len(jobs)} jobs"
            return f"after {before} ({on.value})"


def next_ns(job: Job) -> int | None:
    """Return the nominal time that a job is due at next; None if none is known.

    That of a job that runs once stays until it has ended, also when it has passed.
    """
    if job.trigger.is_recurring or job.state not in _TO_COME:
        return job.next_ns
    return job.reached_ns if job.next_ns is None else job.next_ns


def label(job: Job) -> str:
    """Return what a job is called by: its name, else the first part of its id."""
    return job.name or job.id.partition("-")[0]
