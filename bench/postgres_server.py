"""A PostgreSQL server of one's own, for benchmarks and tests: its data, its socket, its end.

The server refuses root: then it runs as the user that Debian's package made.
"""

from __future__ import annotations

import importlib
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

from bench.peers import START_SECONDS, PeerError, Server, program_path

USER = "postgres"
PROGRAMS = ("initdb", "postgres")
_POLL_SECONDS = 0.005
_SOCKET_NAME = ".s.PGSQL.5432"


class PostgresServer:
    """A cluster in a directory, with no password: its socket is its own.

    Args:
        directory: of its data; made, with a new cluster, if it is not there.
        options: settings, as "name=value".
        keeps_data: False: it ends without writing down what it has in memory.
    """

    def __init__(
        self, directory: Path, options: list[str], *, keeps_data: bool = True
    ) -> None:
        data = directory.resolve() / "data"
        user = USER if os.geteuid() == 0 else None
        if not directory.exists():
            make_cluster(directory, data, user)
        settings = [word for option in options for word in ("-c", option)]
        self.server = Server(
            [
                *(str(program_path("postgres")), "-D", str(data), "-k", "{sockets}"),
                *("-c", "listen_addresses=", *settings),
            ],
            directory,
            socket_name=_SOCKET_NAME,
            user=user,
            stop_signal=signal.SIGINT if keeps_data else signal.SIGQUIT,
        )
        self.where = f"host={self.server.sockets} user={USER} dbname=postgres"

    def close(self) -> None:
        self.server.close()


def make_cluster(directory: Path, data: Path, user: str | None) -> None:
    """Make a directory with an empty cluster in it.

    Args:
        directory: of the cluster; not there yet.
        data: below it.
        user: whose it is; None: of whoever runs this.

    Raises:
        PeerError: it cannot be made.
    """
    directory.mkdir()
    if user is not None:
        try:
            shutil.chown(directory, user)
        except LookupError:
            raise PeerError(f"refuses root, and there is no user {user}") from None
    made = subprocess.run(
        [
            *(str(program_path("initdb")), "-D", str(data), "-A", "trust"),
            *("-U", USER, "-E", "UTF8", "--locale=C", "--no-sync"),
        ],
        cwd="/",
        capture_output=True,
        text=True,
        user=user,
        check=False,
    )
    if made.returncode:
        raise PeerError(f"initdb fails: {made.stderr.strip()[-300:]}")


def connect_when_up(where: str) -> Any:
    """Return a connection to a server whose socket is there before it lets anybody in."""
    psycopg: Any = importlib.import_module("psycopg")
    end = time.monotonic() + START_SECONDS
    while True:
        try:
            return connect_at_once(where)
        except psycopg.OperationalError:
            if time.monotonic() > end:
                raise
            time.sleep(_POLL_SECONDS)


def connect_at_once(where: str) -> Any:
    """Return a connection to a server that is up; each statement is a transaction."""
    psycopg: Any = importlib.import_module("psycopg")
    connection = psycopg.connect(where, autocommit=True)
    connection.prepare_threshold = 0  # at once, as a pool's connections have it
    return connection
