"""From what a program names to an open store, and to the executors that run its tasks."""

from __future__ import annotations

import os
import platform
import uuid
from collections.abc import Callable
from importlib.util import find_spec
from typing import Final, Literal, TypeGuard, Unpack, cast
from urllib.parse import urlsplit, urlunsplit

from timingwheel.clock import Clock
from timingwheel.engine.arguments import check_log_options, checked_directory
from timingwheel.engine.volatile import MEMORY
from timingwheel.errors import ArgumentError
from timingwheel.jobs.store import JobStore
from timingwheel.scheduler.crew import MakeExecutor
from timingwheel.scheduler.executors.executor import Executor
from timingwheel.scheduler.options import require_known
from timingwheel.stores.door import open_door
from timingwheel.stores.embedded import EmbeddedStore, StoreOptions
from timingwheel.stores.fire_rate import FiresPerSecond, checked_rate
from timingwheel.stores.hints_option import HintsOption, checked_hints
from timingwheel.stores.shared_store import SharedStore
from wal.errors import StoreError, StoreInUseError
from wal.filesystem import FileSystem, read_whole, write_new_file
from wal.log import INTERVAL_MS, RESERVE_BYTES, SEGMENT_SIZE_BYTES

OpenStore = Callable[[Clock], JobStore]
StoreSource = str | os.PathLike[str] | FileSystem | OpenStore
"""A directory, ":memory:", a FileSystem, the URL of a PostgreSQL database, or a function
that opens a store."""


class SchedulerOptions(StoreOptions, total=False):
    """How a store is kept, and how a Scheduler works on it.

    Attributes:
        fires_per_second: on PostgreSQL, how many runs may become ready a second, by all
            nodes together. "auto", unless said otherwise: 5,000, and more as long as
            requests stay quick. None: as many as they can.
        hints: on PostgreSQL, how processes learn at once of what others do. "auto",
            unless said otherwise: by LISTEN and NOTIFY; a URL: by a listener there, past
            a pooler; "off": by polling alone, twice a second.
    """

    fires_per_second: FiresPerSecond
    hints: HintsOption


IfHeld = Literal["error", "client"]
"""What becomes of opening a directory that another process holds."""
_IN_USE: Final = (
    'ask it, by Scheduler(..., if_held="client"), or stop it first, or open another '
    "directory"
)
MOVED_NAME: Final = "moved.txt"
"""In a directory whose store has moved: where to."""
_SERVERS: Final = ("postgresql://", "postgres://")


def checked_source(source: StoreSource) -> StoreSource:
    """Return what names a store, a directory by its absolute path; nothing is opened.

    Raises:
        ArgumentError: it cannot name one.
    """
    if callable(source) or isinstance(source, FileSystem):
        return source
    if not isinstance(source, str | os.PathLike):
        raise ArgumentError("store", source, 'pass a directory, or ":memory:"')
    if source == MEMORY:
        return MEMORY
    if not is_database(source):
        return checked_directory(source, "store")
    if find_spec("psycopg") is None:
        raise ArgumentError(
            "store",
            "a PostgreSQL URL",
            "install what it needs: pip install 'timingwheel-engine[postgres]'",
        )
    return source


def checked_if_held(if_held: IfHeld, source: StoreSource) -> IfHeld:
    """Return what to do if another process holds the store.

    Raises:
        ArgumentError: it is no such thing, or the store is none that others can hold.
    """
    if if_held not in {"error", "client"}:
        raise ArgumentError("if_held", if_held, 'pass "error" or "client"')
    is_directory = isinstance(source, str | os.PathLike) and not is_database(source)
    if if_held == "client" and not is_directory:
        raise ArgumentError(
            "if_held", if_held, "only a directory can be held by another process"
        )
    return if_held


def is_database(source: StoreSource) -> TypeGuard[str]:
    """Return whether a source names a database, and no directory."""
    return isinstance(source, str) and source.startswith(_SERVERS)


def checked_log_options(
    options: SchedulerOptions, source: StoreSource
) -> SchedulerOptions:
    """Return options of a store's log.

    Raises:
        TypeError: one is unknown, as Python says of any keyword argument.
        ArgumentError: one is invalid.
    """
    require_known(options, SchedulerOptions, verb="Scheduler")
    if "fires_per_second" in options:
        checked_rate(options["fires_per_second"])
    if "hints" in options:
        checked_hints(options["hints"])
    of_databases = sorted(options.keys() & {"fires_per_second", "hints"})
    if of_databases and not is_database(source):
        raise ArgumentError(
            of_databases[0],
            options.get(of_databases[0]),
            "it is about a store in a database: leave it out for any other",
        )
    general = {"retention", "create", *of_databases}
    others = sorted(options.keys() - general)
    if others and is_database(source):
        raise ArgumentError(
            others[0],
            options.get(others[0]),
            "it is about a store in a directory: leave it out for one in a database",
        )
    check_log_options(
        durability=options.get("durability", "durable"),
        interval_ms=options.get("interval_ms", INTERVAL_MS),
        segment_size_bytes=options.get("segment_size_bytes", SEGMENT_SIZE_BYTES),
        reserve_bytes=options.get("reserve_bytes", RESERVE_BYTES),
    )
    return options


def store_opener(
    source: StoreSource, *, if_held: IfHeld, options: SchedulerOptions
) -> OpenStore:
    """Return what opens a store by a clock, as `open_store`; everything is checked now.

    Raises:
        TypeError: an option is unknown, as Python says of any keyword argument.
        ArgumentError: one of them is invalid.
    """
    source = checked_source(source)
    if_held = checked_if_held(if_held, source)
    options = checked_log_options(options, source)
    return lambda clock: open_store(source, clock, if_held=if_held, **options)


def open_store(
    source: StoreSource,
    clock: Clock,
    *,
    if_held: IfHeld = "error",
    **options: Unpack[SchedulerOptions],
) -> JobStore:
    """Open a store and recover what it holds; nothing is fired.

    A directory that this process holds gets a door, at which others can ask.

    Args:
        source: what names it.
        clock: where time comes from.
        if_held: "client": ask the process that holds it, if one does.
        options: see SchedulerOptions.

    Raises:
        StoreError: the path is no store and cannot become one; or the process that
            holds it is of another version.
        StoreInUseError: another process holds it; it is named.
        LogCorruptError: acknowledged data is damaged; no byte was changed.
        HistoryError: the history is damaged, or not of this log.
        DatabaseAwayError: the database cannot be reached.
        SchemaError: its tables are newer than this version.
    """
    if callable(source):
        return source(clock)
    if is_database(source):
        # Imported now: psycopg is an extra.
        from timingwheel.stores.postgres.store import PostgresStore
        from timingwheel.stores.postgres.window import WINDOW_MIN

        return PostgresStore.open(
            source,
            clock=clock,
            retention=options.get("retention"),
            fires_per_second=options.get("fires_per_second", "auto"),
            window_min=WINDOW_MIN,
            hints=options.get("hints", "auto"),
            create=options.get("create", True),
        )
    kept = cast("StoreOptions", options)  # what is about a database is not there
    if isinstance(source, FileSystem) or source == MEMORY:
        return EmbeddedStore.open(source, clock=clock, **kept)
    require_here(os.fspath(source))
    if if_held == "client":
        return SharedStore.open(source, clock=clock, **kept)
    try:
        store = EmbeddedStore.open(source, clock=clock, **kept)
    except StoreInUseError as error:
        raise StoreInUseError(error.path, error.holder, remedy=_IN_USE) from None
    open_door(store, os.fspath(source))
    return store


def require_here(directory: str) -> None:
    """Check that the store of a directory has not moved into a database.

    Raises:
        StoreError: it has; the message says where to.
    """
    files = FileSystem(directory)
    if files.exists() and MOVED_NAME in files.names():
        where = read_whole(files, MOVED_NAME).decode()
        raise StoreError(
            directory,
            f"has moved to {where}",
            f"open that; or, if it is to go on here, remove the file {MOVED_NAME}",
        )


def mark_moved(directory: str, where: str) -> None:
    """Have nobody open the store of a directory again: it is in a database now."""
    write_new_file(FileSystem(directory), MOVED_NAME, without_secret(where).encode())


def place_of(source: StoreSource) -> tuple[str | None, str | None]:
    """Return the directory of a store, or the URL of its database; None: it has none."""
    if is_database(source):
        return None, source
    if isinstance(source, FileSystem):
        return source.path if type(source) is FileSystem else None, None
    if callable(source) or source == MEMORY:
        return None, None
    return checked_directory(source, "store"), None


def without_secret(place: str) -> str:
    """Return a place as people may read it: no password of a URL is shown."""
    if "://" not in place:
        return place
    parts = urlsplit(place)
    who, at, where = parts.netloc.rpartition("@")
    user, colon, _ = who.partition(":")
    query = "&".join(
        "password=***" if word.lower().startswith("password=") else word
        for word in parts.query.split("&")
    )
    netloc = f"{user}{colon and ':***'}{at}{where}"
    return urlunsplit(parts._replace(netloc=netloc, query=query))


def executor_makers(slots: int) -> dict[str, MakeExecutor]:
    """Return how to make each kind of executor.

    Args:
        slots: handlers at once, for those that have slots.
    """

    # Imported when made: most programs need one or two kinds, and some are large.
    def inline() -> Executor:
        from timingwheel.scheduler.executors.inline import InlineExecutor

        return InlineExecutor()

    def thread() -> Executor:
        from timingwheel.scheduler.executors.thread import ThreadExecutor

        return ThreadExecutor(slots)

    def event_loop() -> Executor:
        from timingwheel.scheduler.executors.event_loop import AsyncioExecutor

        return AsyncioExecutor()

    def process() -> Executor:
        from timingwheel.scheduler.executors.process import ProcessExecutor

        return ProcessExecutor(min(slots, os.cpu_count() or 1))

    def subprocess() -> Executor:
        from timingwheel.scheduler.executors.commands import SubprocessExecutor

        return SubprocessExecutor(slots)

    return {
        "inline": inline,
        "thread": thread,
        "asyncio": event_loop,
        "process": process,
        "subprocess": subprocess,
    }


def worker_name() -> str:
    """Return how this process is named: host, process, and a part that is never reused."""
    return f"{_process()}:{uuid.uuid4().hex[:8]}"


def is_of_this_process(worker: str) -> bool:
    """Return whether a worker's name is one that `worker_name` gives here."""
    return worker.rpartition(":")[0] == _process()


def _process() -> str:
    return f"{platform.node() or 'host'}:{os.getpid()}"
