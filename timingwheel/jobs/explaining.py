"""A trigger in words, and its next times with what the clocks do to them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo

from timingwheel.errors import ArgumentError
from timingwheel.jobs.calendars import NamedCalendar
from timingwheel.jobs.every import duration_words
from timingwheel.jobs.schedule import HORIZON_NS, DstMark, Firing, instant_datetime
from timingwheel.jobs.scheduling import schedule_of, zone_of
from timingwheel.jobs.triggers import AfterJobs, AfterOn, At, Delay, Trigger

TIMES_MAX: Final = 1_000
"""How many times `next_times` returns at most."""

_NO_CALENDARS: Final[Mapping[str, NamedCalendar]] = {}
_END_WORDS: Final = {
    AfterOn.SUCCESS: "succeeded",
    AfterOn.FAILURE: "failed",
    AfterOn.ANY: "ended",
}


class NextTime(NamedTuple):
    """One time of a trigger.

    Attributes:
        utc: when, in UTC.
        local: the same instant by the clock of the trigger's zone.
        mark: what a change of that clock does to it.
    """

    utc: datetime
    local: datetime
    mark: DstMark


def explain_trigger(
    trigger: Trigger,
    *,
    created_ns: int,
    job_key: str,
    calendars: Mapping[str, NamedCalendar] = _NO_CALENDARS,
) -> str:
    """Return a trigger in words.

    Args:
        trigger: any.
        created_ns: when its job was put, on the trigger's own scale of time.
        job_key: what `H` in cron fields is computed from.
        calendars: all that the trigger may name.

    Raises:
        ArgumentError, CronError, UnknownCalendarError: as `schedule_of`.
    """
    if trigger.is_recurring:
        schedule = schedule_of(
            trigger, created_ns=created_ns, job_key=job_key, calendars=calendars
        )
        sentences = [schedule.explain()]
        if trigger.calendar is not None:
            sentences.append(calendars[trigger.calendar].explain())
    else:
        sentences = [_once(trigger)]
    if trigger.runs_max is not None:
        times = "run" if trigger.runs_max == 1 else "runs"
        sentences.append(f"{trigger.runs_max:,} {times} in all.")
    if trigger.splay_ns:
        length = duration_words(trigger.splay_ns)
        sentences.append(f"Each run is due up to {length} later, always by the same.")
    if trigger.jitter_ns:
        length = duration_words(trigger.jitter_ns)
        sentences.append(f"Each run is due up to {length} later, at random.")
    return " ".join(sentences)


def next_times(
    trigger: Trigger,
    *,
    after_ns: int,
    n: int,
    created_ns: int,
    job_key: str,
    runs_made: int = 0,
    calendars: Mapping[str, NamedCalendar] = _NO_CALENDARS,
) -> list[NextTime]:
    """Return the first n times of a trigger strictly after an instant.

    Fewer if it ends before, by its bounds or by what `runs_made` leaves of its runs; none
    for one that waits for other jobs.

    Args:
        trigger: any.
        after_ns: the instant.
        n: how many, 1 to TIMES_MAX.
        created_ns: as for `explain_trigger`.
        job_key: as for `explain_trigger`.
        runs_made: scheduled runs so far.
        calendars: as for `explain_trigger`.

    Raises:
        ArgumentError: n is not such a number.
        ArgumentError, CronError, UnknownCalendarError: as `schedule_of`.
    """
    if type(n) is not int or not 1 <= n <= TIMES_MAX:
        raise ArgumentError(
            "n", n, f"pass how many times to return, 1 to {TIMES_MAX:,}"
        )
    if trigger.runs_max is not None:
        n = min(n, max(trigger.runs_max - runs_made, 0))
    zone = ZoneInfo(zone_of(trigger))
    found: list[Firing] = []
    if trigger.is_recurring:
        schedule = schedule_of(
            trigger, created_ns=created_ns, job_key=job_key, calendars=calendars
        )
        found = schedule.between_ns(after_ns + 1, HORIZON_NS + 1, limit=n)
    elif isinstance(trigger.when, At) and trigger.when.at_ns > after_ns:
        found = [Firing(trigger.when.at_ns)]
    elif isinstance(trigger.when, Delay):
        due_ns = created_ns + trigger.when.delay_ns
        found = [Firing(due_ns)] if due_ns > after_ns else []
    return [_next_time(firing, zone) for firing in found]


def _once(trigger: Trigger) -> str:
    match trigger.when:
        case Delay(delay_ns=delay_ns):
            length = duration_words(delay_ns)
            return f"Once, {length} after it was put. Elapsed time."
        case At(at_ns=at_ns):
            moment = instant_datetime(at_ns).replace(tzinfo=None)
            return f"Once, at {moment.isoformat(' ')} UTC."
        case AfterJobs(jobs=jobs, on=on, need=need):
            end = _END_WORDS[on]
            if len(jobs) == 1:
                return f"When job {jobs[0]} has {end}."
            names = ", ".join(jobs)
            if need == "all":
                return f"When all of the jobs {names} have {end}."
            return f"When one of the jobs {names} has {end}."
    raise AssertionError(f"{trigger} is a recurring trigger")


def _next_time(firing: Firing, zone: ZoneInfo) -> NextTime:
    utc = instant_datetime(firing.utc_ns)
    return NextTime(utc, utc.astimezone(zone), firing.mark)
