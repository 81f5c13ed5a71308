"""A job in the few words of a cell: a table of the command line, a row of the dashboard."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

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

_TO_COME: Final = frozenset({JobState.ACTIVE, JobState.PAUSED})


def when_words(
    trigger: Trigger,
    *,
    at_words: Callable[[int], str],
    jobs_words: Callable[[Sequence[str]], str],
) -> str:
    """Return when a job runs.

    Args:
        trigger: the job's.
        at_words: gives an instant, ns since 1970, in words.
        jobs_words: gives the jobs before it, by their ids.
    """
    match trigger.when:
        case Delay(delay_ns=delay_ns):
            return f"once, after {duration_words(delay_ns)}"
        case At(at_ns=at_ns):
            return f"once, at {at_words(at_ns)}"
        case EveryPeriod(period_ns=period_ns):
            return f"every {duration_words(period_ns)}"
        case EveryCalendar(interval=interval, unit=unit, at=at, tz=tz):
            amount = unit[:-1] if interval == 1 else f"{interval} {unit}"
            return f"every {amount} at {at} {tz}"
        case CronRule(expression=expression, tz=tz):
            return f"{expression} {tz}"
        case RRule(rule=rule, tz=tz):
            return f"{rule} {tz}"
        case AfterJobs(jobs=jobs, on=on):
            return f"after {jobs_words(jobs)} ({on.value})"


def next_ns(job: Job) -> int | None:
    """Return the nominal time that a job is due at next; None if none is known.

    That of a job that runs once stays until it has ended, even when it has passed.
    """
    if job.trigger.is_recurring or job.state not in _TO_COME:
        return job.next_ns
    return job.reached_ns if job.next_ns is None else job.next_ns
