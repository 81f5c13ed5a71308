"""From a call and its options to a draft that a store can keep."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

from timingwheel.errors import ArgumentError
from timingwheel.jobs.building import make_trigger
from timingwheel.jobs.errors import TaskError
from timingwheel.jobs.model import Draft, Policy
from timingwheel.jobs.store import IfExists
from timingwheel.scheduler.options import (
    MOMENT_OPTIONS,
    POLICY_OPTIONS,
    TRIGGER_OPTIONS,
    AddOptions,
    changed_policy,
    checked_cap,
    checked_name,
    checked_priority,
    checked_tags,
    checked_text,
    require_known,
)
from timingwheel.scheduler.tasks import Call, NamedTask, Task

VERSION_MAX: Final = 2**31 - 1


def make_draft(call: object, options: AddOptions, *, argument: str = "call") -> Draft:
    """Return a job as its caller asks for it; what it leaves out, its task says.

    Args:
        call: what `task.call(...)` returned.
        options: of `add`.
        argument: what messages call the first.

    Raises:
        TaskError: the call is none.
        ArgumentError: an option is invalid; it is named.
        DeadlineError: a time beyond 2262.
        CronError: the cron expression is invalid.
        TypeError: an option is unknown.
    """
    require_known(options, AddOptions, verb="add")
    made = checked_call(call, argument)
    given = {name: value for name, value in options.items() if value is not None}
    name, key = given.get("name"), given.get("key")
    if "if_exists" in given and name is None:
        raise ArgumentError(
            "if_exists", given["if_exists"], "pass name= with it: it is about names"
        )
    cap = given.get("concurrency")
    return Draft(
        task=made.task.name,
        payload=made.payload,
        trigger=make_trigger(**cast("Any", _only(given, TRIGGER_OPTIONS))),
        policy=changed_policy(default_policy(made.task), _only(given, POLICY_OPTIONS)),
        queue=checked_text(given.get("queue", made.task.queue), "queue"),
        priority=checked_priority(given.get("priority", made.task.priority)),
        cap=None if cap is None else checked_cap(cap),
        key=None if key is None else checked_text(key, "key"),
        name=None if name is None else checked_name(name),
        tags=checked_tags(given.get("tags", {})),
    )


def make_follow_up(call: object, options: Mapping[str, object]) -> Draft:
    """Return a job as a handler asks for it by `ctx.add`; without a moment: at once.

    Raises:
        As make_draft.
    """
    if not any(options.get(moment) is not None for moment in MOMENT_OPTIONS):
        options = {**options, "delay": 0}
    return make_draft(call, cast("AddOptions", options))


def checked_call(call: object, argument: str = "call") -> Call:
    """Return a call.

    Raises:
        TaskError: it is anything else, such as a function or a task without arguments,
            or its version is no number that can be stored.
    """
    if isinstance(call, Call):
        version = call.payload.version
        if type(version) is not int or not 1 <= version <= VERSION_MAX:
            raise TaskError("version", version, f"pass 1 to {VERSION_MAX:,}")
        return call
    if isinstance(call, Task):
        fix = f"pass {call.name.rpartition(':')[2]}.call(...), with its arguments"
    elif callable(call):
        fix = (
            "a job is stored, so it names a task: put @app.task on a function of a "
            "module and pass function.call(...)"
        )
    else:
        fix = "pass what task.call(...) returns"
    raise TaskError(argument, call, fix)


def checked_if_exists(value: object) -> IfExists:
    """Return what a name that is there with another definition does.

    Raises:
        ArgumentError: it is neither "update" nor "error".
    """
    if value is None or value == "update":
        return "update"
    if value == "error":
        return "error"
    raise ArgumentError("if_exists", value, 'pass "update" or "error"')


def default_policy(task: Task | NamedTask) -> Policy:
    """Return how runs of a task are treated unless the job says otherwise."""
    return Policy(
        retry=task.retry.policy, timeout_ns=task.timeout_ns, delivery=task.delivery
    )


def _only(given: Mapping[str, object], names: frozenset[str]) -> dict[str, object]:
    return {name: value for name, value in given.items() if name in names}
