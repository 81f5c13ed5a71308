"""What the command line asks beside the words of Scheduler, at a server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from timingwheel.client.client import Client
from timingwheel.jobs.calendars import NamedCalendar
from timingwheel.jobs.model import Queue
from timingwheel.scheduler.calling import call_by_name
from timingwheel.scheduler.surveying import TaskFacts, Worker
from timingwheel.scheduler.tasks import Call, TaskRegistry


class ClientConnection:
    """A way to the jobs of a server.

    Attributes:
        app: the client.
        place: where the jobs are, for messages.

    Args:
        client: as `app`.
        tasks: of the program of the jobs, where it was named.
    """

    def __init__(self, client: Client, tasks: TaskRegistry | None) -> None:
        self.app: Final = client
        self.place: Final = client.url
        self._tasks = TaskRegistry() if tasks is None else tasks

    @property
    def is_served(self) -> bool:
        """Whether the server starts what is due."""
        return self.app.now().is_serving

    def queues(self) -> list[Queue]:
        """Return all queues that were set or have runs."""
        return self.app.queues()

    def calendars(self) -> dict[str, NamedCalendar]:
        """Return all calendars by name."""
        return self.app.calendars()

    def workers(self) -> list[Worker]:
        """Return who has attempts in hand."""
        return self.app.workers()

    def tasks(self) -> list[TaskFacts]:
        """Return the tasks that are known, and those that jobs name."""
        return self.app.known_tasks()

    def call(self, task: str, arguments: Mapping[str, object], *, version: int) -> Call:
        """Return a call of a task by name; the server checks it if it knows the task.

        Raises:
            TaskError: the arguments do not fit.
        """
        known = self._tasks.get(task)
        given = version if known is None else None
        return call_by_name(self._tasks, task, arguments, version=given)

    def now_ns(self) -> int:
        """Return the present, on the wall clock of the store."""
        return self.app.now().wall_ns


def connection(client: Client, tasks: TaskRegistry | None) -> ClientConnection:
    """Return the command line's way to the jobs of a server."""
    return ClientConnection(client, tasks)
