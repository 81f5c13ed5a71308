"""Serve a directory or a database without the command line's libraries.

    python -m timingwheel.server ./data --app mymodule:app
    python -m timingwheel.server --store postgresql://jobs@db/jobs

`timingwheel serve` does the same, and has settings, help and completion.
"""

from __future__ import annotations

import argparse
import sys

from timingwheel.errors import TimingWheelError
from timingwheel.logs import configure_logs
from timingwheel.scheduler.programs import program_tasks
from timingwheel.scheduler.scheduler import GRACE_SECONDS
from timingwheel.server.serving import DEFAULT_HOST, DEFAULT_PORT
from timingwheel.server.starting import (
    make_server,
    make_store,
    require_database,
    require_local,
    token_book,
    told,
)
from wal.errors import WalError


def main(arguments: list[str]) -> int:
    """Serve until Ctrl-C or SIGTERM. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m timingwheel.server")
    parser.add_argument("data", nargs="?", default="./data", help="the directory")
    parser.add_argument("--store", help="or the database: postgresql://...")
    parser.add_argument(
        "--hints", metavar="HOW", help="with --store: auto, off, or a URL past a pooler"
    )
    parser.add_argument("--app", help="module:name of a Scheduler, whose tasks it runs")
    parser.add_argument("--host", default=DEFAULT_HOST)
    parser.add_argument("--port", type=int, default=DEFAULT_PORT, help="0: a free one")
    parser.add_argument("--grace", default=f"{GRACE_SECONDS:g}s")
    parser.add_argument(
        "--rate-limit", type=float, metavar="N", help="requests a second of a client"
    )
    parser.add_argument(
        "--tokens", action="store_true", help="demand tokens on this machine as well"
    )
    parser.add_argument(
        "--json-logs", action="store_true", help="each line of the log as JSON"
    )
    parser.add_argument(
        "--add-token",
        metavar="NAME:ROLE",
        help="make a token (read, operate or admin), print it this once, and end",
    )
    asked = parser.parse_args(arguments)
    configure_logs("json" if asked.json_logs else "text")
    try:
        place = (
            require_local(asked.data)
            if asked.store is None
            else require_database(asked.store)
        )
        if asked.add_token is not None:
            name, _, role = asked.add_token.rpartition(":")
            make_store(place)
            print(token_book(place).add(name, role))
            return 0
        tasks = None if asked.app is None else program_tasks(asked.app)
        server = make_server(
            place,
            tasks=tasks,
            host=asked.host,
            port=asked.port,
            demands_tokens=asked.tokens,
            rate_limit=asked.rate_limit,
            grace=asked.grace,
            hints=asked.hints,
        )
        server.open()
        print("\n".join(told(server, place, tasks=tasks)), flush=True)
        server.run()
    except (TimingWheelError, WalError) as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
