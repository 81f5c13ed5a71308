"""Parts of queries and bodies that several operations read."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from urllib.parse import unquote

from timingwheel.errors import ArgumentError, PayloadTooLargeError
from timingwheel.jobs.durations import Duration, duration_ns
from timingwheel.jobs.errors import TaskError
from timingwheel.scheduler.calling import call_by_name
from timingwheel.scheduler.tasks import Call, NamedTask
from timingwheel.server.operations import Asked
from timingwheel.wire.bodies import PauseBody
from timingwheel.wire.options import AddBody, UpdateBody


def tags_of(pairs: list[str]) -> Mapping[str, str] | None:
    """Return the tags of a query; a colon in the word is written %3A.

    Raises:
        ArgumentError: one is no `word:value`.
    """
    if not pairs:
        return None
    tags = {}
    for pair in pairs:
        word, colon, value = pair.partition(":")
        if not colon:
            raise ArgumentError("tag", pair, "pass word:value, such as tag=team:bi")
        tags[unquote(word)] = value
    return tags


def until_of(body: PauseBody) -> datetime | Duration | None:
    """Return until when a pause lasts.

    Raises:
        ArgumentError: it is said twice, or is no length of time.
    """
    if body.duration is None:
        return body.until
    if body.until is not None:
        raise ArgumentError("duration", body.duration, "pass it or until, not both")
    return f"{duration_ns(body.duration, 'duration', zero=False)}ns"


def added_call(asked: Asked, task: str, body: AddBody | UpdateBody) -> Call:
    """Return the call of a body.

    Raises:
        TaskError: the arguments do not fit a task that the server knows.
        ArgumentError: there are arguments and a payload.
        PayloadTooLargeError: the arguments are too long together.
    """
    if body.payload is None:
        try:
            return call_by_name(
                asked.scheduler.tasks, task, body.args or {}, version=body.version
            )
        except PayloadTooLargeError as error:
            raise PayloadTooLargeError("args", error.found, error.fix) from error
        except TaskError as error:
            if error.argument != "name":
                raise
            # The name of a job is something else.
            raise TaskError("task", error.found, error.fix) from error
    if body.args:
        raise ArgumentError("payload", "...", "pass it or args, not both")
    known = asked.scheduler.tasks.get(task)
    return Call(NamedTask(task) if known is None else known, body.payload)
