"""A PostgreSQL server for tests: one a process of pytest, and a schema a test.

Its data are worth nothing, so it never waits for the disk; tests that take its life start
one of their own.
"""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import pytest

from bench.peers import program_path
from bench.postgres_server import (
    PROGRAMS,
    USER,
    PostgresServer,
    connect_when_up,
)

FAST = (
    *("fsync=off", "synchronous_commit=off", "full_page_writes=off"),
    # Takes what is used of it. A million runs due at once in 32 MB: 1.6 times the work.
    "shared_buffers=512MB",
)
SMALL = ("max_connections=60", "autovacuum=off")
MEMORY = "/dev/shm"
MEMORY_BYTES = 4 << 30
"""Free at least; the whole suite fills half of it, in two servers."""


class Postgres:
    """A server that is up.

    Attributes:
        where: how psycopg finds it.
        sockets: the directory of its socket.
    """

    def __init__(self, server: PostgresServer) -> None:
        self.server = server
        self.where = server.where
        self.sockets = server.server.sockets
        self._numbers = itertools.count(1)

    def new_schema(self) -> str:
        """Make a schema and return its URL: nothing else is seen there."""
        name = f"test_{next(self._numbers)}"
        with connect_when_up(self.where) as connection:
            connection.execute(f"CREATE SCHEMA {name}", prepare=False)
        options = quote(f"-c search_path={name}")
        place = quote(self.sockets, safe="")
        return f"postgresql://{USER}@/postgres?host={place}&options={options}"


def require_server(programs: Sequence[str] = PROGRAMS) -> None:
    """Check that there is a server to start.

    Skips the test if there is none; where CI is set that is an error.
    """
    missing = [name for name in programs if program_path(name) is None]
    if not missing:
        return
    why = (
        f"no PostgreSQL server here ({', '.join(missing)} not found), so the store on it "
        "is NOT tested: apt-get install postgresql"
    )
    if os.environ.get("CI"):
        pytest.fail(why)
    pytest.skip(why)


def place_in_memory() -> str | None:
    """Return where files are kept in memory, if there is room for a server's.

    Each test makes and leaves a hundred small files, which is what disks are slow at: 250
    stages took 100 s and their removal 60 s more, on a disk that others used.
    """
    try:
        room = shutil.disk_usage(MEMORY).free
        pages = os.sysconf("SC_AVPHYS_PAGES")
    except (OSError, ValueError):
        return None
    has_room = min(room, pages * os.sysconf("SC_PAGE_SIZE")) >= MEMORY_BYTES
    return MEMORY if has_room and os.access(MEMORY, os.W_OK) else None


@contextmanager
def running_postgres(*settings: str, in_memory: bool = True) -> Iterator[Postgres]:
    """A server whose data go with it.

    Args:
        settings: "name=value".
        in_memory: False: its data are too large for that.
    """
    require_server()
    place = place_in_memory() if in_memory else None
    # Not pytest's own directory: the server's user may not look into that.
    directory = Path(tempfile.mkdtemp(prefix="timingwheel-postgres-", dir=place))
    try:
        directory.chmod(0o755)
        server = PostgresServer(directory / "cluster", list(settings), keeps_data=False)
        try:
            connect_when_up(server.where).close()
            yield Postgres(server)
        finally:
            server.close()
    finally:
        shutil.rmtree(directory, ignore_errors=True)
