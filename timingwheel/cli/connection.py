"""The seam between commands and jobs: a directory of this machine, a database, or a server.

Commands speak the words of Scheduler, which a server's client has as well, so they never
know which of the two it is. What Scheduler has no word for is here.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Protocol, cast

from timingwheel.cli.refusal import MisuseError, RefusedError
from timingwheel.cli.settings import Settings
from timingwheel.clock import Clock
from timingwheel.errors import ArgumentError, MissingExtraError
from timingwheel.jobs.calendars import NamedCalendar
from timingwheel.jobs.errors import NoStoreError, TaskError
from timingwheel.jobs.model import Queue
from timingwheel.scheduler import programs
from timingwheel.scheduler.calling import call_by_name
from timingwheel.scheduler.desk import Desk
from timingwheel.scheduler.opening import without_secret
from timingwheel.scheduler.scheduler import Scheduler
from timingwheel.scheduler.surveying import TaskFacts, Worker, is_served
from timingwheel.scheduler.tasks import Call, TaskRegistry
from wal.errors import StoreError, StoreInUseError
from wal.filesystem import FileSystem

PATIENCE: Final = "1s"
"""How long a server that is away is asked again: somebody looks on."""

if TYPE_CHECKING:
    from timingwheel.client.client import Client  # its library is an extra


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
    """A directory of this machine: opened by this command, or asked of who holds it.

    Args:
        app: opened.
        place: the directory.
        knows_tasks: whether the program of the jobs was named.
        is_served: whether another process holds it and starts what is due.
    """

    def __init__(
        self, app: Scheduler, place: str, *, knows_tasks: bool, is_served: bool = False
    ) -> None:
        self.app = app
        self.place = place
        self.is_served = is_served
        self.knows_tasks = knows_tasks

    def queues(self) -> list[Queue]:
        """Return all queues that were set or have runs."""
        return self.app.queues()

    def calendars(self) -> dict[str, NamedCalendar]:
        """Return all calendars by name."""
        return self.app.calendars()

    def workers(self) -> list[Worker]:
        """Return whom running attempts name: a process that ended without a word."""
        return self.app.workers()

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
        return self.app.known_tasks()

    def now_ns(self) -> int:
        """Return the present, on the wall clock of the store."""
        return self.app.desk.store.now().wall_ns


class DatabaseConnection(DirectoryConnection):
    """A database that any number of processes share; this command is none that serves.

    Args:
        app: opened.
        place: the database, without its password.
        knows_tasks: whether the program of the jobs was named.
    """

    def __init__(self, app: Scheduler, place: str, *, knows_tasks: bool) -> None:
        super().__init__(
            app, place, knows_tasks=knows_tasks, is_served=is_served(app.desk.store)
        )


class ServerConnection(Connection):
    """A server that has jobs, through its client.

    Args:
        client: has the names of Scheduler.
        place: the server's address.
        tasks: of the program, if it was named.
    """

    def __init__(
        self, client: Client, place: str, *, tasks: TaskRegistry | None
    ) -> None:
        # What the commands ask of a Scheduler a client answers as well.
        self.app = cast("Scheduler", client)
        self.place = place
        self._client = client
        self._tasks = tasks
        now = client.now()
        self.is_served = now.is_serving

    def queues(self) -> list[Queue]:
        """Return all queues that were set or have runs."""
        return self._client.queues()

    def calendars(self) -> dict[str, NamedCalendar]:
        """Return all calendars by name."""
        return self._client.calendars()

    def workers(self) -> list[Worker]:
        """Return who has attempts in hand."""
        return self._client.workers()

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
        """Return the tasks that the server knows, and those of live jobs."""
        return self._client.known_tasks()

    def now_ns(self) -> int:
        """Return the present, on the wall clock of the server's store."""
        return self._client.now().wall_ns


@contextmanager
def connected(
    settings: Settings, clock: Clock, *, create: bool
) -> Iterator[Connection]:
    """Open what the settings name for the length of the block.

    Args:
        settings: `url`, `store` or `data`, with `app` and `token`.
        clock: where time comes from.
        create: make the store if it is not there yet.

    Raises:
        RefusedError: it cannot be reached.
        StoreError, LogCorruptError: as opening a Scheduler.
        StoreInUseError: another process holds the directory and does not answer.
    """
    tasks = program_tasks(settings.text("app"))
    url = settings.url
    if url is not None:
        with _client(url, settings.text("token"), tasks) as connection:
            yield connection
    elif settings.store is None:
        with _in_directory(settings, clock, tasks, create=create) as connection:
            yield connection
    else:
        place = settings.store
        app = Scheduler(place, clock=clock, tasks=tasks, create=create)
        with _opened(app, settings, create=create):
            yield DatabaseConnection(
                app, without_secret(place), knows_tasks=tasks is not None
            )


def program_tasks(place: str | None) -> TaskRegistry | None:
    """Return the tasks of a program's scheduler; None if no program is named.

    Args:
        place: `module:name`; the module is imported, also from the current directory.

    Raises:
        MisuseError: there is no scheduler of that name.
    """
    if place is None:
        return None
    try:
        return programs.program_tasks(place, "--app")
    except ArgumentError as error:
        raise MisuseError(str(error)) from error


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
    given = version if known is None else None
    try:
        return call_by_name(tasks, task, arguments, version=given)
    except TaskError as error:
        if error.argument != "args":
            raise
        hint = ""
        if "got `str`" in error.fix:
            hint = "; name=5 passes a text, name:=5 a number, and so any JSON"
        raise MisuseError(f"the arguments of {task}: {error.fix}{hint}") from error


@contextmanager
def _in_directory(
    settings: Settings, clock: Clock, tasks: TaskRegistry | None, *, create: bool
) -> Iterator[Connection]:
    """Open a directory, or ask the process that holds it, for the length of the block."""
    place, is_held = settings.data, False
    app = Scheduler(place, clock=clock, tasks=tasks, create=create)
    try:
        _desk(app, settings, create=create)
    except StoreInUseError:
        # Not asked from the start: who holds a store alone can look deeper into it.
        is_held = True
        app = Scheduler(
            place, clock=clock, tasks=tasks, create=create, if_held="client"
        )
    with _opened(app, settings, create=create) as desk:
        yield DirectoryConnection(
            app,
            place,
            knows_tasks=tasks is not None,
            is_served=is_held and is_served(desk.store),
        )


@contextmanager
def _opened(app: Scheduler, settings: Settings, *, create: bool) -> Iterator[Desk]:
    """Open a scheduler that serves nothing, for the length of the block."""
    try:
        yield _desk(app, settings, create=create)
    finally:
        app.stop(0)


def _desk(app: Scheduler, settings: Settings, *, create: bool) -> Desk:
    try:
        return app.desk
    except NoStoreError as error:
        raise RefusedError(
            f"{error} ({settings.place.origin}): name another database with --store, or "
            "make the tables: timingwheel job add --create"
        ) from error
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
    url: str, token: str | None, tasks: TaskRegistry | None
) -> Iterator[Connection]:
    try:
        from timingwheel.client.client import Client
    except ImportError as error:
        raise MissingExtraError(
            f"--url needs the client, which is not here ({error}): "
            "pip install 'timingwheel-engine[client]'"
        ) from error
    with Client(url, token=token, tasks=tasks, patience=PATIENCE) as client:
        yield ServerConnection(client, url, tasks=tasks)
