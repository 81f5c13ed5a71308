"""Whether a trigger is valid, judged when a job is put: it must have a time to come.

What is refused here would else be stored, answered with an id, and never run; or its
due times would leave the order of their occurrences.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Final

from timingwheel.errors import ArgumentError
from timingwheel.jobs.calendars import NamedCalendar
from timingwheel.jobs.every import duration_words
from timingwheel.jobs.schedule import HORIZON_NS, NS, Schedule
from timingwheel.jobs.scheduling import rule_of, schedule_of
from timingwheel.jobs.triggers import Trigger
from timingwheel.jobs.zones import DAY_S

NEAR_GAPS: Final = 64
"""From how many occurrences the shortest gap is taken that splay must stay below."""

ROLLED_A_DAY_MAX: Final = 100
"""Occurrences a day that may be rolled: each is moved singly."""

_NO_CALENDARS: Final[Mapping[str, NamedCalendar]] = {}


def require_possible(
    trigger: Trigger,
    *,
    now_ns: int,
    job_key: str,
    calendars: Mapping[str, NamedCalendar] = _NO_CALENDARS,
) -> None:
    """Check that a trigger put now has a run to come; what a store checks first.

    One-time triggers always have one, as their time may have passed.

    Raises:
        ArgumentError: it never comes again, its splay and jitter reach the next time,
            or it rolls more than ROLLED_A_DAY_MAX times a day.
        CronError, UnknownCalendarError: as `schedule_of`.

    Cost: NEAR_GAPS questions to the schedule.
    """
    if not trigger.is_recurring:
        return
    schedule = schedule_of(
        trigger, created_ns=now_ns, job_key=job_key, calendars=calendars
    )
    if trigger.calendar is not None and trigger.roll != "skip":
        # First of all, as what follows would move each of them.
        rule = rule_of(trigger, created_ns=now_ns, job_key=job_key)
        _require_rare(trigger.roll, rule, after_ns=now_ns - 1)
    # A time that is now has not passed: the job may still start with it.
    if schedule.next_ns(now_ns - 1) is None:
        raise ArgumentError(
            "trigger", schedule.explain(), _never_fix(trigger, now_ns=now_ns)
        )
    require_apart(trigger, schedule, after_ns=now_ns - 1)


def require_apart(trigger: Trigger, schedule: Schedule, *, after_ns: int) -> None:
    """Check that splay and jitter stay below the gaps between the next occurrences.

    Raises:
        ArgumentError: they do not.
    """
    offset_ns = trigger.splay_ns + trigger.jitter_ns
    if not offset_ns:
        return
    near = schedule.between_ns(after_ns + 1, HORIZON_NS, limit=NEAR_GAPS + 1)
    gaps = [later.utc_ns - earlier.utc_ns for earlier, later in pairwise(near)]
    shortest_ns = min(gaps, default=HORIZON_NS)
    if offset_ns >= shortest_ns:
        both = trigger.splay_ns and trigger.jitter_ns
        name = "splay" if trigger.splay_ns else "jitter"
        raise ArgumentError(
            "splay and jitter" if both else name,
            duration_words(offset_ns),
            f"occurrences are {duration_words(shortest_ns)} apart; pass less than that",
        )


def _require_rare(roll: str, rule: Schedule, *, after_ns: int) -> None:
    """Check that a rule has so few occurrences a day that each can be rolled."""
    firing = rule.next_ns(after_ns)
    if firing is None:
        return
    day_ns = DAY_S * NS
    found = rule.count_ns(firing.utc_ns, firing.utc_ns + day_ns)
    if found > ROLLED_A_DAY_MAX:
        raise ArgumentError(
            "roll",
            roll,
            f"it has {found:,} occurrences a day, and at most {ROLLED_A_DAY_MAX} can be "
            'moved to another one; pass roll="skip"',
        )


def _never_fix(trigger: Trigger, *, now_ns: int) -> str:
    if trigger.end_ns is not None and trigger.end_ns <= now_ns:
        return "its end has passed; pass a later one"
    if trigger.calendar is not None:
        return (
            f'it never comes again: the calendar "{trigger.calendar}" and the bounds '
            "leave no time; change one of them"
        )
    return "it never comes again; pass one that does, or other bounds"
