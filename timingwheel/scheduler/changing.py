"""From the options of an update to the change that a store makes.

What an update leaves out stays as it is, down to the single bound: `cron="0 3 * * *"`
keeps the job's zone and splay, and `tz=...` alone keeps its expression. None takes a
bound away.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any, NamedTuple, cast

import msgspec

from timingwheel.errors import ArgumentError
from timingwheel.jobs.building import make_trigger
from timingwheel.jobs.explaining import NextTime
from timingwheel.jobs.model import DEFAULT_QUEUE, Job
from timingwheel.jobs.schedule import instant_datetime
from timingwheel.jobs.store import Change
from timingwheel.jobs.triggers import CronRule, EveryCalendar, RRule, Trigger
from timingwheel.jobs.zones import zone_named
from timingwheel.scheduler.adding import checked_call
from timingwheel.scheduler.options import (
    MOMENT_OPTIONS,
    POLICY_OPTIONS,
    TRIGGER_OPTIONS,
    ChangeOptions,
    changed_policy,
    checked_cap,
    checked_priority,
    checked_tags,
    checked_text,
    require_known,
)
from timingwheel.scheduler.secrets import with_kept_secrets


class JobUpdate(NamedTuple):
    """What an update did, or with `dry_run` would do.

    Attributes:
        job: as it is afterwards.
        before: its next ten times without the change.
        after: its next ten times with it.
    """

    job: Job
    before: list[NextTime]
    after: list[NextTime]


def make_change(job: Job, options: ChangeOptions) -> Change:
    """Return what an update changes of a job.

    Args:
        job: as it is.
        options: of `update`.

    Raises:
        ArgumentError: an option is invalid, or there is none; it is named.
        TaskError: `call` is of another task, or none.
        CronError: the cron expression is invalid.
        TypeError: an option is unknown.
    """
    require_known(options, ChangeOptions, verb="update")
    if not options:
        raise ArgumentError(
            "changes", {}, 'say what changes, such as cron="0 3 * * *" or priority=5'
        )
    changes: dict[str, object] = {}
    if "call" in options:
        call = checked_call(options["call"])
        if call.task.name != job.task:
            raise ArgumentError(
                "call",
                call.task.name,
                f"the job is of task {job.task!r}: cancel it and add another, or rebind",
            )
        changes["payload"] = with_kept_secrets(call.payload, job.payload)
    given = dict(options)
    if TRIGGER_OPTIONS & given.keys():
        changes["trigger"] = _changed_trigger(job.trigger, given)
    policy_options = {name: given[name] for name in POLICY_OPTIONS & given.keys()}
    if policy_options:
        changes["policy"] = changed_policy(job.policy, policy_options)
    if "queue" in given:
        changes["queue"] = checked_text(given["queue"] or DEFAULT_QUEUE, "queue")
    if "priority" in given:
        changes["priority"] = checked_priority(given["priority"] or 0)
    if "concurrency" in given:
        cap = given["concurrency"]
        changes["cap"] = None if cap is None else checked_cap(cap)
    if "tags" in given:
        changes["tags"] = checked_tags(given["tags"] or {})
    return Change(**cast("Any", changes))


def changed_job(job: Job, change: Change, *, now_ns: int) -> Job:
    """Return a job as it would be with a change.

    Args:
        job: as it is.
        change: what changes.
        now_ns: the present on the scale of its trigger, from which a new trigger counts.
    """
    fields = {
        name: getattr(change, name)
        for name in Change.__struct_fields__
        if getattr(change, name) is not msgspec.UNSET
    }
    if "trigger" in fields:
        fields |= {"since_ns": now_ns, "next_ns": None}
    return msgspec.structs.replace(job, revision=job.revision + 1, **fields)


def _changed_trigger(trigger: Trigger, given: dict[str, Any]) -> Trigger:
    """Return a trigger with what is given; it is checked as a new one would be."""
    said = {name: given[name] for name in TRIGGER_OPTIONS & given.keys()}
    if not any(said.get(name) is not None for name in MOMENT_OPTIONS):
        when = trigger.when
        if "tz" in said:
            if not isinstance(when, CronRule | EveryCalendar | RRule):
                raise ArgumentError(
                    "tz", said["tz"], "the job has no times of the wall clock"
                )
            when = msgspec.structs.replace(when, tz=zone_named(said.pop("tz")).name)
        said["trigger"] = when
    recurs = any(said.get(name) is not None for name in ("every", "cron", "rrule"))
    if recurs or said.get("trigger") is not None:
        said = {**_bounds_of(trigger), **said}
    if isinstance(said.get("cron"), str) or said.get("rrule") is not None:
        zone = getattr(trigger.when, "tz", None)
        said = {"tz": zone, **said}
    return make_trigger(**said)


def _bounds_of(trigger: Trigger) -> dict[str, Any]:
    """Return the bounds of a trigger as the options that make them."""
    bounds: dict[str, Any] = {"max_runs": trigger.runs_max}
    if trigger.calendar is not None:
        bounds |= {"calendar": trigger.calendar, "roll": trigger.roll}
    if trigger.start_ns is not None:
        bounds["start"] = instant_datetime(trigger.start_ns)
    if trigger.end_ns is not None:
        bounds["end"] = instant_datetime(trigger.end_ns)
    for name, length_ns in (("splay", trigger.splay_ns), ("jitter", trigger.jitter_ns)):
        if length_ns:
            bounds[name] = timedelta(microseconds=length_ns / 1_000)
    return bounds
