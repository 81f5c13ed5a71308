"""What may be said about a job when it is added or updated, and what each word means.

The options are written down once, as typed dictionaries; `add`, `update`, their awaited
twins and `ctx.add` all take them as keyword arguments.
"""

from __future__ import annotations

import difflib
import uuid
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Final, TypedDict
from zoneinfo import ZoneInfo

from timingwheel.errors import ArgumentError
from timingwheel.jobs.after import After
from timingwheel.jobs.cron import Cron
from timingwheel.jobs.durations import Duration, duration_ns
from timingwheel.jobs.letters import checked_letters
from timingwheel.jobs.model import (
    Cap,
    Delivery,
    Misfire,
    MisfirePolicy,
    Overlap,
    OverlapPolicy,
    Policy,
    RetryPolicy,
)
from timingwheel.jobs.store import IfExists, JobRef
from timingwheel.jobs.triggers import (
    EveryCalendar,
    EveryPeriod,
    Moment,
    Roll,
    Trigger,
)
from timingwheel.scheduler.policies import delivery_kind, misfire_policy, overlap_policy
from timingwheel.scheduler.retrying import ATTEMPTS_MAX, Retry

TEXT_CHARS_MAX: Final = 512
"""Of a name, a key, a queue's name or one word of a tag."""
TAGS_MAX: Final = 64
PRIORITY_MAX: Final = 1_000_000
LOST_MAX: Final = 1_000
CAP_LIMIT_MAX: Final = 1_000_000


class TriggerOptions(TypedDict, total=False):
    """When a job runs: exactly one of the first seven, and bounds around it.

    Attributes:
        delay: once, this long from now.
        at: once, at an aware datetime.
        every: again and again, a duration or `every(days=7, at="16:00", tz=...)`.
        cron: an expression, or a Cron for rules about clock changes.
        rrule: an iCalendar recurrence rule.
        after: when other jobs have ended: an After(...), or one job.
        trigger: a Trigger, as another job has it, or a bare rule.
        tz: the IANA zone of cron, rrule and calendars; UTC by default.
        start, end: no occurrence before start, none at or after end.
        max_runs: scheduled runs in all.
        calendar: name of a calendar whose days are left out.
        roll: what an occurrence on such a day does: "skip", "next" or "previous".
        splay: due up to this much after the nominal time, always by the same share.
        jitter: the same, drawn anew for each run.
    """

    delay: Duration | None
    at: datetime | None
    every: Duration | EveryPeriod | EveryCalendar | None
    cron: str | Cron | None
    rrule: str | None
    after: After | JobRef | str | None
    trigger: Trigger | Moment | None
    tz: str | ZoneInfo | None
    start: datetime | None
    end: datetime | None
    max_runs: int | None
    calendar: str | None
    roll: Roll
    splay: Duration | None
    jitter: Duration | None


class PolicyOptions(TypedDict, total=False):
    """How the runs of a job are treated.

    Attributes:
        overlap: when a previous run is still active: "skip", "buffer_one",
            "buffer_all(50)", "cancel_other", "kill_other", "allow(3)".
        misfire: when occurrences passed unserved: "latest", "skip", "first",
            "all(100, 1h)".
        retry: a Retry, or how many attempts in all.
        timeout: of an attempt.
        delivery: "at_least_once" or "at_most_once".
        start_deadline: a run not started this long after due is skipped.
        max_lost: attempts that may be lost before the run counts as failed.
    """

    overlap: str | Overlap | OverlapPolicy | None
    misfire: str | Misfire | MisfirePolicy | None
    retry: Retry | RetryPolicy | int | None
    timeout: Duration | None
    delivery: str | Delivery | None
    start_deadline: Duration | None
    max_lost: int | None


class PlaceOptions(TypedDict, total=False):
    """Where the runs of a job wait, and how they are found.

    Attributes:
        queue: its name.
        priority: higher is sooner; each step is worth a minute of waiting.
        concurrency: a Cap(key, limit) shared by all jobs that name the same key.
        tags: words for searching.
    """

    queue: str | None
    priority: int | None
    concurrency: Cap | None
    tags: Mapping[str, str] | None


class ChangeOptions(TriggerOptions, PolicyOptions, PlaceOptions, total=False):
    """What an update may change; what is left out stays, None takes a bound away."""

    call: object


class AddOptions(TriggerOptions, PolicyOptions, PlaceOptions, total=False):
    """What an add may say.

    Attributes:
        name: unique in the store; adding it again finds the job, or updates it.
        key: idempotency key; its scope is the task.
        if_exists: what a name that is there with another definition does.
    """

    name: str | None
    key: str | None
    if_exists: IfExists


def require_known(options: Mapping[str, object], kind: type, *, verb: str) -> None:
    """Check that all options are known.

    Raises:
        TypeError: one is not, as Python says of any unknown keyword argument.
        ArgumentError: one is `conn`, which only a scheduler can take.
    """
    if "conn" in options:
        raise ArgumentError(
            "conn",
            type(options["conn"]).__name__,
            "a transaction can be joined where the database is: pass it to add or "
            "schedule of a Scheduler on PostgreSQL; what ctx.add puts belongs to the "
            "success of its attempt anyway",
        )
    known = kind.__annotations__
    for option in options:
        if option not in known:
            near = difflib.get_close_matches(option, known, 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise TypeError(f"{verb}() got an unknown option {option!r}{hint}")


TRIGGER_OPTIONS: Final = frozenset(TriggerOptions.__annotations__)
MOMENT_OPTIONS: Final = ("delay", "at", "every", "cron", "rrule", "after", "trigger")


def changed_policy(policy: Policy, options: Mapping[str, object]) -> Policy:
    """Return a policy with what the options say; the others stay.

    Args:
        policy: where to begin.
        options: of PolicyOptions; None means the default, or no bound.

    Raises:
        ArgumentError: an option is invalid.
    """
    plain = Policy()
    fields = {name: getattr(policy, name) for name in Policy.__struct_fields__}
    for option, value in options.items():
        field, read = _POLICY_FIELDS[option]
        fields[field] = getattr(plain, field) if value is None else read(value, option)
    return Policy(**fields)


def retry_policy(value: object, argument: str = "retry") -> RetryPolicy:
    """Return a retry policy from a Retry, a RetryPolicy or a number of attempts.

    Raises:
        ArgumentError: it is none of those.
    """
    if isinstance(value, RetryPolicy):
        return value
    if isinstance(value, Retry):
        if value.retry_on != (Exception,) or value.give_up_on != ():
            raise ArgumentError(
                argument,
                value,
                "exceptions are known to the task, not to a stored job: put retry_on "
                "and give_up_on into @app.task(retry=...)",
            )
        return value.policy
    if type(value) is int and 1 <= value <= ATTEMPTS_MAX:
        return RetryPolicy(attempts=value)
    raise ArgumentError(
        argument,
        value,
        f'pass Retry(5, backoff="1s..10m"), or attempts in all, 1 to {ATTEMPTS_MAX:,}',
    )


def checked_text(value: object, argument: str) -> str:
    """Return a name, key or other short text.

    Raises:
        ArgumentError: it is empty, too long, or no text that can be stored.
    """
    if not isinstance(value, str) or not value.strip():
        raise ArgumentError(argument, value, "pass a text that is not empty")
    if len(value) > TEXT_CHARS_MAX:
        raise ArgumentError(
            argument, value, f"pass at most {TEXT_CHARS_MAX} characters"
        )
    return checked_letters(value, argument)


def checked_name(value: object) -> str:
    """Return the name of a job, which can be told from an id.

    Raises:
        ArgumentError: it cannot.
    """
    name = checked_text(value, "name")
    if is_job_id(name) or "@" in name:
        raise ArgumentError(
            "name",
            name,
            "a name has no @ and is no UUID: those mean runs and job ids",
        )
    return name


def is_job_id(text: str) -> bool:
    """Return whether a text is an id, not a name."""
    try:
        return str(uuid.UUID(text)) == text
    except ValueError:
        return False


def checked_priority(value: object) -> int:
    """Return a priority.

    Raises:
        ArgumentError: it is no whole number, or beyond any sense.
    """
    if type(value) is not int or abs(value) > PRIORITY_MAX:
        raise ArgumentError(
            "priority",
            value,
            f"pass a whole number from {-PRIORITY_MAX:,} to {PRIORITY_MAX:,}, higher is "
            "sooner; one step is worth a minute of waiting",
        )
    return value


def checked_cap(value: object) -> Cap:
    """Return a shared bound on runs at once.

    Raises:
        ArgumentError: it is none.
    """
    if not isinstance(value, Cap):
        raise ArgumentError("concurrency", value, 'pass Cap("tenant:7", 2)')
    checked_text(value.key, "concurrency.key")
    if type(value.limit) is not int or not 1 <= value.limit <= CAP_LIMIT_MAX:
        raise ArgumentError(
            "concurrency.limit", value.limit, "pass how many may run at once, from 1"
        )
    return value


def checked_tags(value: object) -> dict[str, str]:
    """Return tags.

    Raises:
        ArgumentError: they are no mapping of short texts to short texts.
    """
    if not isinstance(value, Mapping) or len(value) > TAGS_MAX:
        raise ArgumentError(
            "tags", value, f'pass at most {TAGS_MAX} of them, such as {{"team": "bi"}}'
        )
    for tag, word in value.items():
        checked_text(tag, "tags")
        checked_text(word, f"tags[{tag!r}]")
    return dict(value)


def _lost_max(value: object, argument: str) -> int:
    if type(value) is not int or not 1 <= value <= LOST_MAX:
        raise ArgumentError(
            argument, value, f"pass how many attempts may be lost, 1 to {LOST_MAX:,}"
        )
    return value


def _positive_ns(value: object, argument: str) -> int:
    return duration_ns(value, argument, zero=False)  # type: ignore[arg-type]  # it checks


_POLICY_FIELDS: Final[dict[str, tuple[str, Callable[[object, str], object]]]] = {
    "overlap": ("overlap", overlap_policy),
    "misfire": ("misfire", misfire_policy),
    "retry": ("retry", retry_policy),
    "timeout": ("timeout_ns", _positive_ns),
    "delivery": ("delivery", delivery_kind),
    "start_deadline": ("start_deadline_ns", _positive_ns),
    "max_lost": ("lost_max", _lost_max),
}
POLICY_OPTIONS: Final = frozenset(_POLICY_FIELDS)
