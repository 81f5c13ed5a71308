"""From what a caller writes to what travels: names, moments, calls."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final
from urllib.parse import quote

import msgspec

from timingwheel.errors import ArgumentError
from timingwheel.jobs.durations import Duration, duration_ns
from timingwheel.jobs.letters import checked_letters
from timingwheel.jobs.model import Job
from timingwheel.jobs.store import JobRef
from timingwheel.scheduler.adding import checked_call
from timingwheel.scheduler.options import (
    AddOptions,
    ChangeOptions,
    checked_tags,
    require_known,
)
from timingwheel.scheduler.tasks import Call, NamedTask, Task
from timingwheel.wire.options import sent_options

_NOT_OPTIONS: Final = frozenset({"call", "name", "key", "if_exists"})


def job_text(job: str | JobRef | Job) -> str:
    """Return the id or the name of the job that is meant.

    Raises:
        ArgumentError: it is nothing that could mean a job.
    """
    if isinstance(job, Job | JobRef):
        return job.id
    if type(job) is not str or not job:
        raise ArgumentError("job", job, "pass a job id, a name, or what add returned")
    return checked_letters(job, "job")


def tag_texts(tags: Mapping[str, str] | None) -> list[str] | None:
    """Return tags as a query has them.

    Raises:
        ArgumentError: they are none.
    """
    if tags is None:
        return None
    checked = checked_tags(tags)
    return [f"{quote(word, safe='')}:{value}" for word, value in checked.items()]


def moment_text(moment: datetime | None, argument: str) -> str | None:
    """Return a moment by RFC 3339.

    Raises:
        ArgumentError: it is no datetime.
    """
    if moment is None:
        return None
    if not isinstance(moment, datetime):
        raise ArgumentError(argument, moment, "pass an aware datetime")
    return moment.isoformat()


def length_text(length: Duration, argument: str) -> str:
    """Return a length of time with all its digits.

    Raises:
        ArgumentError: it is none.
    """
    return f"{duration_ns(length, argument)}ns"


def add_body(call: object, options: AddOptions, *, argument: str) -> dict[str, Any]:
    """Return the body of an add; see wire.options.AddBody.

    Raises:
        TaskError: the call is none.
        ArgumentError: an option cannot be sent.
        TypeError: an option is unknown.
    """
    require_known(options, AddOptions, verb="add")
    made = checked_call(call, argument)
    given: Any = {name: value for name, value in options.items() if value is not None}
    body = {name: given.pop(name) for name in _NOT_OPTIONS & given.keys()}
    body |= sent_options(_defaults(made.task) | given)
    return _encodable(body | _called(made))


def update_body(changes: ChangeOptions, *, dry_run: bool) -> dict[str, Any]:
    """Return the body of an update; see wire.options.UpdateBody.

    Raises:
        TaskError: the call is none.
        ArgumentError: a change cannot be sent.
        TypeError: a change is unknown.
    """
    require_known(changes, ChangeOptions, verb="update")
    given: Any = dict(changes)
    body: dict[str, Any] = {"dry_run": dry_run}
    if "call" in given:
        body |= _called(checked_call(given.pop("call")))
    return _encodable(body | sent_options(given))


def _called(call: Call) -> dict[str, Any]:
    task = call.task
    if isinstance(task, NamedTask):
        # As it stands: the server checks it if it knows the task.
        args = msgspec.json.decode(call.payload.body)
        version = None if task.version == 1 else task.version
        return {"task": task.name, "args": args, "version": version}
    return {"task": task.name, "payload": call.payload}


def _defaults(task: Task | NamedTask) -> dict[str, Any]:
    """Return what a task that is known here says about its jobs."""
    plain = NamedTask(task.name)
    said: dict[str, Any] = {}
    for name in ("retry", "timeout_ns", "delivery", "queue", "priority"):
        value = getattr(task, name)
        if isinstance(task, NamedTask) and value == getattr(plain, name):
            continue  # the server may know better
        said[name] = value
    if "retry" in said:
        said["retry"] = said["retry"].policy
    timeout_ns = said.pop("timeout_ns", None)
    if timeout_ns is not None:
        said["timeout"] = f"{timeout_ns}ns"
    return said


def _encodable(body: dict[str, Any]) -> dict[str, Any]:
    for name, value in body.items():
        try:
            msgspec.json.encode(value)
        except (TypeError, ValueError, OverflowError) as error:
            raise ArgumentError(name, value, f"it cannot be sent: {error}") from error
    return body
