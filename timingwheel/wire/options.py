"""The options of `add` and `update` as JSON, to and fro.

Durations are seconds or texts such as "10m", moments RFC 3339 with an offset. What JSON
has no form for has one here: a Cron with its rules is the rule as data, a Retry its
bounds, an After the ids it waits for.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final, get_args
from zoneinfo import ZoneInfo

import msgspec
from msgspec import UNSET, UnsetType

from timingwheel.errors import ArgumentError
from timingwheel.jobs.after import After
from timingwheel.jobs.building import make_trigger
from timingwheel.jobs.cron import Cron
from timingwheel.jobs.model import (
    Cap,
    Delivery,
    Misfire,
    MisfirePolicy,
    Overlap,
    OverlapPolicy,
    Payload,
    RetryPolicy,
)
from timingwheel.jobs.schedule import HORIZON_NS
from timingwheel.jobs.store import IfExists, JobRef
from timingwheel.jobs.triggers import (
    AfterJobs,
    CronRule,
    EveryCalendar,
    EveryPeriod,
    Moment,
    Roll,
    Trigger,
)
from timingwheel.scheduler.options import retry_policy
from timingwheel.scheduler.retrying import Retry
from timingwheel.wire.fields import Bound, Length, Text, When
from timingwheel.wire.problems import within

_RULES: Final = get_args(Moment)


class RetryBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How often and how soon a failed run is tried again.

    Attributes:
        attempts: in all, 1 or more.
        backoff: the first wait and the longest, "1s..10m"; else the next two.
        first_ns: the first wait; doubled each time.
        max_ns: the longest.
        jitter: share of a wait that is random, 0 to 1.
    """

    attempts: int = 5
    backoff: str | None = None
    first_ns: int = 1_000_000_000
    max_ns: int = 600_000_000_000
    jitter: float = 0.2

    @classmethod
    def of(cls, policy: RetryPolicy) -> RetryBody:
        """Return a policy as it travels."""
        return cls(
            attempts=policy.attempts,
            first_ns=policy.first_ns,
            max_ns=policy.max_ns,
            jitter=policy.jitter,
        )

    def policy(self) -> RetryPolicy:
        """Return the policy that is meant.

        Raises:
            ArgumentError: one of them is invalid.
        """
        # A Retry judges them all; bounds in ns have passed no text.
        checked = Retry(
            self.attempts, backoff=self.backoff or "1s..10m", jitter=self.jitter
        )
        if self.backoff is not None:
            return checked.policy
        if not 0 <= self.first_ns <= self.max_ns <= HORIZON_NS:
            raise ArgumentError(
                "first_ns", self.first_ns, "pass ns from 0 to max_ns, of 63 bits"
            )
        return RetryPolicy(
            attempts=self.attempts,
            first_ns=self.first_ns,
            max_ns=self.max_ns,
            jitter=self.jitter,
        )


class JobOptions(
    msgspec.Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """When a job runs, within which bounds, and how its runs are treated.

    As the options of Scheduler.add, see timingwheel/scheduler/options.py; null means the
    default, or in an update that a bound is taken away.
    """

    delay: Length | UnsetType | None = UNSET
    at: When | UnsetType | None = UNSET
    every: Length | EveryPeriod | EveryCalendar | UnsetType | None = UNSET
    cron: Text | CronRule | UnsetType | None = UNSET
    rrule: Text | UnsetType | None = UNSET
    after: Text | AfterJobs | UnsetType | None = UNSET
    trigger: Trigger | UnsetType | None = UNSET
    tz: Text | UnsetType | None = UNSET
    start: When | UnsetType | None = UNSET
    end: When | UnsetType | None = UNSET
    max_runs: Bound | UnsetType | None = UNSET
    calendar: Text | UnsetType | None = UNSET
    roll: Roll | UnsetType = UNSET
    splay: Length | UnsetType | None = UNSET
    jitter: Length | UnsetType | None = UNSET
    overlap: str | OverlapPolicy | UnsetType | None = UNSET
    misfire: str | MisfirePolicy | UnsetType | None = UNSET
    retry: Bound | RetryBody | UnsetType | None = UNSET
    timeout: Length | UnsetType | None = UNSET
    delivery: str | UnsetType | None = UNSET
    start_deadline: Length | UnsetType | None = UNSET
    max_lost: int | UnsetType | None = UNSET
    queue: Text | UnsetType | None = UNSET
    priority: int | UnsetType | None = UNSET
    concurrency: Cap | UnsetType | None = UNSET
    tags: dict[str, str] | UnsetType | None = UNSET

    def options(self) -> dict[str, Any]:
        """Return what is said, as Scheduler.add and Scheduler.update take it.

        Raises:
            ArgumentError: the retry policy or the wait is invalid.
        """
        said = {
            name: value
            for name in JobOptions.__struct_fields__
            if (value := getattr(self, name)) is not UNSET
        }
        trigger = said.get("trigger")
        if isinstance(trigger, Trigger) and trigger == Trigger(when=trigger.when):
            said["trigger"] = trigger.when  # a bare rule, which may be given bounds
        match said.get("cron"):
            case CronRule() as rule:
                said["cron"] = Cron(
                    rule.expression,
                    tz=rule.tz,
                    gap=rule.gap,
                    overlap=rule.overlap,
                    hash_key=rule.hash_key,
                )
        match said.get("after"):
            case AfterJobs() as wait:
                made = After.all_of if wait.need == "all" else After.any_of
                with within("after"):
                    said["after"] = made(*wait.jobs, on=wait.on)
        match said.get("retry"):
            case RetryBody() as retry:
                with within("retry"):
                    said["retry"] = retry.policy()
        return said


class AddBody(JobOptions, kw_only=True):
    """A job to be made.

    Attributes:
        task: name of the task.
        args: its arguments by name, checked if the server knows the task.
        version: of the arguments; null: the task's present one.
        payload: instead of args: encoded by who knows the task.
        name: unique in the store; adding it again finds or updates the job.
        key: idempotency key; its scope is the task.
        if_exists: what a name that is there with another definition does.
    """

    task: Text
    args: dict[str, Any] = {}
    version: int | None = None
    payload: Payload | None = None
    name: Text | None = None
    key: Text | None = None
    if_exists: IfExists | None = None


class UpdateBody(JobOptions, kw_only=True):
    """What changes of a job; what is left out stays, null takes a bound away.

    Attributes:
        args: its new arguments by name; the task stays.
        version: of the arguments.
        task: the task that the payload is of, which must be the job's.
        payload: instead of args: encoded by who knows the task.
        dry_run: change nothing, and show what would come.
    """

    args: dict[str, Any] | None = None
    version: int | None = None
    task: Text | None = None
    payload: Payload | None = None
    dry_run: bool = False


def sent_options(options: Mapping[str, object]) -> dict[str, Any]:
    """Return options of `add` or `update` in the forms that JSON has for them.

    Args:
        options: but `call`, `name`, `key` and `if_exists`.

    Raises:
        ArgumentError: a value has no such form, or is invalid.
    """
    sent: dict[str, Any] = {}
    for name, value in options.items():
        match name, value:
            case "trigger", _ if isinstance(value, _RULES):
                sent[name] = Trigger(when=value)
            case "retry", _ if value is not None and type(value) is not int:
                sent[name] = msgspec.to_builtins(RetryBody.of(retry_policy(value)))
            case _:
                sent[name] = _sent(value)
    return sent


def _sent(value: object) -> object:
    match value:
        case Cron():
            return make_trigger(cron=value).when
        case After():
            return value.rule
        case JobRef():
            return value.id
        case timedelta():
            # By whole microseconds, of which a float would lose some.
            return f"{value // timedelta(microseconds=1)}us"
        case ZoneInfo():
            return value.key
        case Overlap() | Misfire() | Delivery():
            return value.value
        case Mapping():
            return dict(value)
    return value
