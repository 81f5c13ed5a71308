"""Serve a directory: `python -m timingwheel.server ./data --app mymodule:app`."""

from __future__ import annotations

import argparse
import logging
import os
import sys

from timingwheel.clock import SystemClock
from timingwheel.errors import TimingWheelError
from timingwheel.scheduler.programs import program_tasks
from timingwheel.scheduler.scheduler import GRACE_SECONDS, Scheduler
from timingwheel.server.serving import DEFAULT_HOST, DEFAULT_PORT, HttpServer
from timingwheel.server.tokens import DIRECTORY, TokenBook
from wal.errors import WalError
from wal.filesystem import FileSystem


def main(arguments: list[str]) -> int:
    """Serve until Ctrl-C or SIGTERM. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m timingwheel.server")
    parser.add_argument("data", nargs="?", default="./data", help="the directory")
    parser.add_argument("--app", help="module:name of a Scheduler, whose tasks it runs")
    parser.add_argument("--host", default=DEFAULT_HOST)
    parser.add_argument("--port", type=int, default=DEFAULT_PORT, help="0: a free one")
    parser.add_argument("--grace", default=f"{GRACE_SECONDS:g}s")
    parser.add_argument(
        "--tokens", action="store_true", help="demand tokens on this machine as well"
    )
    parser.add_argument(
        "--add-token",
        metavar="NAME:ROLE",
        help="make a token (read, operate or admin), print it this once, and end",
    )
    asked = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s %(message)s")
    book = TokenBook(FileSystem(os.path.join(asked.data, DIRECTORY)), SystemClock())
    try:
        if asked.add_token is not None:
            name, _, role = asked.add_token.rpartition(":")
            _make_store(asked.data)
            print(book.add(name, role))
            return 0
        tasks = None if asked.app is None else program_tasks(asked.app)
        server = HttpServer(
            Scheduler(asked.data, tasks=tasks),
            host=asked.host,
            port=asked.port,
            tokens=book if asked.tokens or book.tokens() else None,
            grace=asked.grace,
        )
        server.open()
        print(f"serving {asked.data} on {server.url}; Ctrl-C ends it", flush=True)
        server.run()
    except (TimingWheelError, WalError) as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 1
    return 0


def _make_store(data: str) -> None:
    """Make the store if it is not there: it begins with an empty directory."""
    files = FileSystem(data)
    if files.exists() and files.names():
        return
    scheduler = Scheduler(data)
    scheduler.start()
    scheduler.stop(0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
