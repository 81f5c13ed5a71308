"""A call of a task by name, with arguments as JSON has them: how other programs ask."""

from __future__ import annotations

from collections.abc import Mapping

from timingwheel.jobs.errors import PayloadError, TaskError
from timingwheel.jobs.model import Payload
from timingwheel.scheduler.secrets import masked_arguments
from timingwheel.scheduler.tasks import Call, NamedTask, TaskRegistry


def call_by_name(
    tasks: TaskRegistry,
    name: str,
    arguments: Mapping[str, object],
    *,
    version: int | None = None,
) -> Call:
    """Return a call of a task, checked if its function is known here.

    Args:
        tasks: those that are known.
        name: of the task.
        arguments: by name; where the function is known a text becomes the date or the
            enum that it stands for, as a worker would read it.
        version: of the arguments; None: the one that the task has now, else 1.

    Raises:
        TaskError: the arguments do not fit the function, or cannot be stored.
        PayloadTooLargeError: they are too long together.
    """
    known = tasks.get(name)
    if known is None:
        return NamedTask(name, 1 if version is None else version).call(**arguments)
    call = NamedTask(name, known.version if version is None else version).call(
        **arguments
    )
    try:
        found = known.codec.decode(Payload(call.payload.body, call.payload.version))
    except PayloadError as error:
        shown = masked_arguments(arguments, known.secret)
        raise TaskError("args", shown, str(error.__cause__)) from error
    return known.call(*found.args, **found.kwargs)
