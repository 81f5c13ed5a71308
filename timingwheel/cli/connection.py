"""The seam between commands and jobs: a directory of this machine, or a server.

Commands speak the words of Scheduler, which a server's client has as well, so they never
know which of the two it is. What Scheduler has no word for is here.
"""

from __future__ import annotations

import importlib
import os
import sys
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from timingwheel.cli.refusal import MisuseError, RefusedError
from timingwheel.cli.settings import Settings
from timingwheel.clock import Clock
from timingwheel.errors import MissingExtraError
from timingwheel.jobs.calendars import NamedCalendar
from timingwheel.jobs.errors import PayloadError
from timingwheel.jobs.model import Payload, Queue
from timingwheel.scheduler.asyncio_scheduler import AsyncScheduler
from timingwheel.scheduler.desk import Desk
from timingwheel.scheduler.scheduler import Scheduler
from timingwheel.scheduler.signatures import Signature
from timingwheel.scheduler.tasks import Call, NamedTask, TaskRegistry
from wal.errors import StoreError
from wal.filesystem import FileSystem

UNKNOWN: Final = "unknown"
"""Who had the run of a plain job, once that process is gone: claims of it are not logged."""
_PAGE: Final = 1_000
_CLIENT: Final = "timingwheel.client"


class Worker(NamedTuple):
    """Who works on runs.

    Attributes:
        name: of the worker.
        running: attempts that it has in hand.
        since_ns: when the oldest of them began.
    """

    name: str
    running: int
    since_ns: int


class TaskFacts(NamedTuple):
    """A task, as far as it is known here.

    Attributes:
        name: by which jobs know it.
        signature: of its function; "" where the function is not known.
        jobs: live jobs of it.
    """

    name: str
    signature: str
    jobs: int


class Connection(Protocol):
    """A way to jobs.

    Attributes:
        app: what is asked; a Scheduler, or what has its names.
        place: where the jobs are, for messages.
        is_served: whether a running scheduler answers, so that what is due starts.
    """

    app: Scheduler
    place: str
    is_served: bool

    @abstractmethod
    def queues(self) -> list[Queue]:
        """Return all queues that were set or have runs."""

    @abstractmethod
    def calendars(self) -> dict[str, NamedCalendar]:
        """Return all calendars by name."""

    @abstractmethod
    def workers(self) -> list[Worker]:
        """Return who has attempts in hand."""

    @abstractmethod
    def call(self, task: str, arguments: Mapping[str, object], *, version: int) -> Call:
        """Return a call of a task by name.

        Raises:
            MisuseError: the arguments do not fit.
        """

    @abstractmethod
    def tasks(self) -> list[TaskFacts]:
        """Return the tasks that are known, and those that jobs name."""

    @abstractmethod
    def now_ns(self) -> int:
        """Return the present, on the wall clock of the store."""


class DirectoryConnection(Connection):
    """A directory of this machine, opened by this command and not served.

    Args:
        app: opened.
        place: the directory.
        knows_tasks: whether the program of the jobs was named.
    """

    def __init__(self, app: Scheduler, place: str, *, knows_tasks: bool) -> None:
        self.app = app
        self.place = place
        self.is_served = False
        self.knows_tasks = knows_tasks

    def queues(self) -> list[Queue]:
        """Return all queues that were set or have runs."""
        return self.app.desk.store.queues()

    def calendars(self) -> dict[str, NamedCalendar]:
        """Return all calendars by name."""
        return self.app.desk.store.calendars()

    def workers(self) -> list[Worker]:
        """Return whom running attempts name: a process that ended without a word."""
        return workers_of(self.app)

    def call(self, task: str, arguments: Mapping[str, object], *, version: int) -> Call:
        """Return a call of a task, checked if its program is known."""
        return checked_call(
            self.app.tasks,
            task,
            arguments,
            version=version,
            knows_tasks=self.knows_tasks,
        )

    def tasks(self) -> list[TaskFacts]:
        """Return the tasks of the program and those that jobs name."""
        return tasks_of(self.app, self.app.tasks)

    def now_ns(self) -> int:
        """Return the present, on the wall clock of the store."""
        return self.app.desk.store.now().wall_ns


class ServerConnection(Connection):
    """A server that has jobs, through its client.

    Args:
        client: has the names of Scheduler, and queues() and calendars().
        place: the server's address.
        tasks: of the program, if it was named.
        clock: the present, here.
    """

    def __init__(
        self, client: Any, place: str, *, tasks: TaskRegistry | None, clock: Clock
    ) -> None:
        self.app = client
        self.place = place
        self.is_served = True
        self._client = client
        self._tasks = tasks
        self._clock = clock

    def queues(self) -> list[Queue]:
        """Return all queues that were set or have runs."""
        return list(self._client.queues())

    def calendars(self) -> dict[str, NamedCalendar]:
        """Return all calendars by name."""
        return dict(self._client.calendars())

    def workers(self) -> list[Worker]:
        """Return who has attempts in hand."""
        return workers_of(self.app)

    def call(self, task: str, arguments: Mapping[str, object], *, version: int) -> Call:
        """Return a call of a task, checked if its program is known here, too."""
        return checked_call(
            self._tasks or TaskRegistry(),
            task,
            arguments,
            version=version,
            knows_tasks=self._tasks is not None,
        )

    def tasks(self) -> list[TaskFacts]:
        """Return the tasks of the program, if it was named, and those of live jobs."""
        return tasks_of(self.app, self._tasks or TaskRegistry())

    def now_ns(self) -> int:
        """Return the present by the clock of this machine."""
        return self._clock.wall_ns()


@contextmanager
def connected(
    settings: Settings, clock: Clock, *, create: bool
) -> Iterator[Connection]:
    """Open what the settings name for the length of the block.

    Args:
        settings: `url`, else `data`, with `app` and `token`.
        clock: where time comes from.
        create: make the directory if it is no store yet.

    Raises:
        RefusedError: it cannot be reached.
        StoreError, StoreInUseError, LogCorruptError: as opening a Scheduler.
    """
    tasks = program_tasks(settings.text("app"))
    url = settings.url
    if url is not None:
        with _client(url, settings.text("token"), tasks, clock) as connection:
            yield connection
        return
    app = Scheduler(settings.data, clock=clock, tasks=tasks, create=create)
    try:
        _opened(app, settings, create=create)
        yield DirectoryConnection(app, settings.data, knows_tasks=tasks is not None)
    finally:
        app.stop(0)


def program_tasks(place: str | None) -> TaskRegistry | None:
    """Return the tasks of a program's scheduler; None if no program is named.

    Args:
        place: `module:name`; the module is imported, also from the current directory.

    Raises:
        MisuseError: there is no scheduler of that name.
    """
    if place is None:
        return None
    module_name, _, name = place.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found: Any = importlib.import_module(module_name)
        for part in (name or "app").split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError) as error:
        raise MisuseError(
            f"--app is {place!r}: {error}; pass module:name of your Scheduler, and run "
            "this where that module can be imported"
        ) from error
    if not isinstance(found, Scheduler | AsyncScheduler):
        raise MisuseError(
            f"--app is {place!r}, which is a {type(found).__name__}: name a Scheduler"
        )
    return found.tasks


def checked_call(
    tasks: TaskRegistry,
    task: str,
    arguments: Mapping[str, object],
    *,
    version: int,
    knows_tasks: bool,
) -> Call:
    """Return a call of a task with arguments as JSON has them.

    Args:
        tasks: those that are known.
        task: the name.
        arguments: by name.
        version: of the arguments, where the function is not known.
        knows_tasks: whether a task that is not among them is a mistake.

    Raises:
        MisuseError: the arguments do not fit the function.
        UnknownTaskError: there is no such task in the program.
    """
    known = tasks.require(task) if knows_tasks else tasks.get(task)
    if known is None:
        return NamedTask(task, version).call(**arguments)
    body = msgspec.json.encode(dict(arguments))
    try:
        # As a worker would read them: a text becomes a datetime where one is wanted.
        found = known.codec.decode(Payload(body, known.version))
    except PayloadError as error:
        raise MisuseError(f"the arguments of {task}: {error.__cause__}") from error
    return known.call(*found.args, **found.kwargs)


def workers_of(app: Scheduler) -> list[Worker]:
    """Return whom the running attempts name."""
    found: dict[str, list[int]] = {}
    cursor: str | None = None
    while True:
        page = app.runs(state="running", limit=_PAGE, cursor=cursor)
        for run in page:
            attempts = app.run(run.id).attempts()
            name = attempts[-1].worker if attempts else UNKNOWN
            found.setdefault(name, []).append(run.started_ns or run.due_ns)
        cursor = page.cursor
        if cursor is None:
            break
    return [
        Worker(name, len(starts_ns), min(starts_ns))
        for name, starts_ns in sorted(found.items())
    ]


def tasks_of(app: Scheduler, known: TaskRegistry) -> list[TaskFacts]:
    """Return the tasks that are known and those that live jobs name.

    Cost: reads every live job.
    """
    counts: dict[str, int] = {}
    for state in ("active", "paused", "quarantined"):
        cursor: str | None = None
        while True:
            page = app.jobs(state=state, limit=_PAGE, cursor=cursor)
            for job in page:
                counts[job.task] = counts.get(job.task, 0) + 1
            cursor = page.cursor
            if cursor is None:
                break
    names = sorted(counts.keys() | known.names)
    return [
        TaskFacts(name, _signature(known, name), counts.get(name, 0)) for name in names
    ]


def _signature(known: TaskRegistry, name: str) -> str:
    task = known.get(name)
    return "" if task is None else Signature(task.function, name).text


def _opened(app: Scheduler, settings: Settings, *, create: bool) -> Desk:
    try:
        return app.desk
    except StoreError as error:
        if create or FileSystem(settings.data).exists():
            raise
        raise RefusedError(
            f"{settings.data} is no store yet ({settings.all['data'].origin}): name "
            "the directory with --data, or make one: "
            "timingwheel job add --create"
        ) from error


@contextmanager
def _client(
    url: str, token: str | None, tasks: TaskRegistry | None, clock: Clock
) -> Iterator[Connection]:
    try:
        made: Any = importlib.import_module(_CLIENT)
    except ImportError as error:
        raise MissingExtraError(
            "--url: this version has no server and no client yet; name the directory "
            "of the jobs with --data, while no process holds it"
        ) from error
    with made.Client(url, token=token) as client:
        yield ServerConnection(client, url, tasks=tasks, clock=clock)
