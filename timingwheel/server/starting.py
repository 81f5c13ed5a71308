"""From what a command line says to a server: the place of its jobs, its tokens, what is on it.

A place is a directory, or the URL of a database that any number of servers share.
"""

from __future__ import annotations

import os

from timingwheel.clock import Clock, SystemClock
from timingwheel.errors import ArgumentError
from timingwheel.jobs.durations import Duration
from timingwheel.scheduler.opening import (
    SchedulerOptions,
    checked_source,
    is_database,
    without_secret,
)
from timingwheel.scheduler.scheduler import GRACE_SECONDS, Scheduler
from timingwheel.scheduler.tasks import TaskRegistry
from timingwheel.server.operations import API_PATH
from timingwheel.server.serving import DEFAULT_HOST, DEFAULT_PORT, HttpServer
from timingwheel.server.tokens import DIRECTORY, TokenBook, TokenFile, TokenShelf
from timingwheel.stores.hints_option import HintsOption
from wal.filesystem import FileSystem


def make_server(
    place: str,
    *,
    tasks: TaskRegistry | None = None,
    host: str = DEFAULT_HOST,
    port: int = DEFAULT_PORT,
    demands_tokens: bool = False,
    rate_limit: float | None = None,
    grace: Duration = GRACE_SECONDS,
    clock: Clock | None = None,
    hints: HintsOption | None = None,
) -> HttpServer:
    """Return a server of a place; nothing is opened.

    Args:
        place: the directory, made if missing, or the database, likewise its tables.
        tasks: what it runs itself; None: all runs wait for workers.
        host: as for HttpServer.
        port: likewise.
        grace: likewise.
        demands_tokens: even where there are none yet; once there are, they are demanded.
        rate_limit: as for HttpServer.
        clock: where time comes from.
        hints: of a database, see SchedulerOptions; None: as by default.

    Raises:
        ArgumentError: one of them is invalid, or other machines could reach it and
            there are no tokens.
        DatabaseAwayError: the database does not answer.
    """
    options: SchedulerOptions = {} if hints is None else {"hints": hints}
    scheduler = Scheduler(place, tasks=tasks, clock=clock, **options)
    book = token_book(place, clock=scheduler.clock)
    demands = demands_tokens or bool(book.tokens())
    if not demands:
        book.close()
    return HttpServer(
        scheduler,
        host=host,
        port=port,
        tokens=book if demands else None,
        rate_limit=rate_limit,
        grace=grace,
    )


def token_book(place: str, *, clock: Clock | None = None) -> TokenBook:
    """Return the tokens of the servers of a place, which may be running."""
    shelf: TokenShelf
    if is_database(place):
        # Imported now: psycopg is an extra.
        from timingwheel.server.token_database import TokenTable

        shelf = TokenTable(place)
    else:
        shelf = TokenFile(FileSystem(os.path.join(place, DIRECTORY)))
    return TokenBook(shelf, SystemClock() if clock is None else clock)


def is_store(place: str) -> bool:
    """Return whether there is something in a place."""
    if is_database(place):
        from timingwheel.stores.postgres.making import is_there

        return is_there(place)
    files = FileSystem(place)
    return files.exists() and bool(files.names())


def make_store(place: str) -> None:
    """Make the store if it is not there: it begins with an empty directory or database.

    So a token can be made before the first start.
    """
    if not is_store(place):
        scheduler = Scheduler(place)
        scheduler.start()
        scheduler.stop(0)


def told(server: HttpServer, place: str, *, tasks: TaskRegistry | None) -> list[str]:
    """Return in words where a server is that is open, and what is on it."""
    runs = "no task runs here: runs wait for workers"
    if tasks is not None and tasks.names:
        runs = f"tasks that run here: {len(tasks.names)}"
    return [
        f"serving {without_secret(place)} on {server.url}; Ctrl-C ends it",
        "  / is the dashboard",
        f"  {API_PATH} is the API, /openapi.json describes it",
        "  /health and /ready are for supervisors, /metrics is for Prometheus",
        f"  {runs}",
    ]


def require_local(data: str) -> str:
    """Return a directory.

    Raises:
        ArgumentError: it is an address.
    """
    if "://" in data:
        raise ArgumentError(
            "data",
            without_secret(data),
            "it is no directory: name a database with --store, a server with --url",
        )
    return data


def require_database(store: str) -> str:
    """Return the URL of a database.

    Raises:
        ArgumentError: it is none, or what it needs is not installed.
    """
    if not is_database(store):
        raise ArgumentError(
            "store", store, 'pass "postgresql://…"; a directory is named by itself'
        )
    checked_source(store)
    return store
