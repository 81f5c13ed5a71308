"""From what a command line says to a server: the directory, its tokens, what is on it."""

from __future__ import annotations

import os

from timingwheel.clock import Clock, SystemClock
from timingwheel.errors import ArgumentError
from timingwheel.jobs.durations import Duration
from timingwheel.scheduler.scheduler import GRACE_SECONDS, Scheduler
from timingwheel.scheduler.tasks import TaskRegistry
from timingwheel.server.operations import API_PATH
from timingwheel.server.serving import DEFAULT_HOST, DEFAULT_PORT, HttpServer
from timingwheel.server.tokens import DIRECTORY, TokenBook
from wal.filesystem import FileSystem


def make_server(
    data: str,
    *,
    tasks: TaskRegistry | None = None,
    host: str = DEFAULT_HOST,
    port: int = DEFAULT_PORT,
    demands_tokens: bool = False,
    grace: Duration = GRACE_SECONDS,
    clock: Clock | None = None,
) -> HttpServer:
    """Return a server of a directory; nothing is opened.

    Args:
        data: the directory, made if missing.
        tasks: what it runs itself; None: all runs wait for workers.
        host: as for HttpServer.
        port: likewise.
        grace: likewise.
        demands_tokens: also where there are none yet; once there are, they are demanded.
        clock: where time comes from.

    Raises:
        ArgumentError: one of them cannot be meant, or other machines could reach it and
            there are no tokens.
    """
    scheduler = Scheduler(data, tasks=tasks, clock=clock)
    book = token_book(data, clock=scheduler.clock)
    demands = demands_tokens or bool(book.tokens())
    return HttpServer(
        scheduler,
        host=host,
        port=port,
        tokens=book if demands else None,
        grace=grace,
    )


def token_book(data: str, *, clock: Clock | None = None) -> TokenBook:
    """Return the tokens of the server of a directory, which may be running."""
    files = FileSystem(os.path.join(data, DIRECTORY))
    return TokenBook(files, SystemClock() if clock is None else clock)


def is_store(data: str) -> bool:
    """Return whether there is something in a directory."""
    files = FileSystem(data)
    return files.exists() and bool(files.names())


def make_store(data: str) -> None:
    """Make the store if it is not there: it begins with an empty directory.

    So a token can be made before the first start.
    """
    if not is_store(data):
        scheduler = Scheduler(data)
        scheduler.start()
        scheduler.stop(0)


def told(server: HttpServer, data: str, *, tasks: TaskRegistry | None) -> list[str]:
    """Return in words where a server is that is open, and what is on it."""
    runs = "no task runs here: runs wait for workers"
    if tasks is not None and tasks.names:
        runs = f"tasks that run here: {len(tasks.names)}"
    return [
        f"serving {data} on {server.url}; Ctrl-C ends it",
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
            "data", data, "this version keeps jobs in a directory; pass its path"
        )
    return data
