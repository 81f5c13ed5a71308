"""What requests and questions of a client rest on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from timingwheel.client.handles import (
    RunHandle,
)
from timingwheel.client.sending import job_text
from timingwheel.client.transport import Ask, Transport
from timingwheel.errors import ArgumentError
from timingwheel.jobs.model import (
    Job,
    Run,
    RunId,
    parse_run_id,
)
from timingwheel.jobs.store import (
    JobRef,
)
from timingwheel.scheduler.options import checked_text
from timingwheel.scheduler.tasks import Task, TaskRegistry
from timingwheel.wire.answers import (
    ListAnswer,
    TextAnswer,
)

AnyJob = str | JobRef | Job
"""A job id, a name, what `add` returned, or the job itself."""
AnyRun = str | Run | RunHandle | JobRef
"""A run id, a run, a handle; or a one-time job, for its only run."""


class Asking:
    """A client's way to its server.

    Attributes:
        tasks: tasks that are known here, for the results of their runs.
    """

    tasks: TaskRegistry
    _transport: Transport

    def run(self, run: AnyRun) -> RunHandle:
        """Return a handle of a run. As Scheduler.run."""
        if isinstance(run, RunHandle):
            return run
        if isinstance(run, Run):
            return self._handle(run.id)
        if isinstance(run, JobRef) or (type(run) is str and "@" not in run):
            path = ("jobs", job_text(run), "only-run")
            answer: TextAnswer = self._get(path, TextAnswer)
            return self._handle(RunId(answer.text))
        try:
            parse_run_id(run)
        except (ValueError, AttributeError):
            raise ArgumentError(
                "run", run, "pass a run id, <job id>@<nominal ns>, or a run"
            ) from None
        return self._handle(RunId(run))

    def _get(
        self, path: tuple[str, ...], returns: Any, query: Mapping[str, Any] = {}
    ) -> Any:
        return self._transport.send(Ask("GET", path, query), returns)

    def _list(
        self, path: tuple[str, ...], row: Any, query: Mapping[str, Any] = {}
    ) -> list[Any]:
        answer: ListAnswer[Any] = self._get(path, ListAnswer[row], query)
        return answer.items

    def _text(self, path: tuple[str, ...], query: Mapping[str, Any]) -> str:
        answer: TextAnswer = self._get(path, TextAnswer, query)
        return answer.text

    def _post(self, path: tuple[str, ...], body: object, returns: Any) -> Any:
        ask = Ask("POST", path, body=body, is_repeatable=False)
        return self._transport.send(ask, returns)

    def _handle(self, run: RunId) -> RunHandle:
        return RunHandle(run, self._transport, decode=self._decode)

    def _decode(self, run: Run) -> object:
        task = self.tasks.get(run.task)
        if task is not None:
            return task.codec.decode_result(run.result)
        return None if run.result is None else msgspec.msgpack.decode(run.result)


def task_name(task: str | Task, argument: str) -> str:
    """Return the name of a task.

    Raises:
        ArgumentError: it is no text.
    """
    return task.name if isinstance(task, Task) else checked_text(task, argument)
