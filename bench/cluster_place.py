"""Where the cluster is measured: a durable PostgreSQL server, databases, and processes.

The server syncs before it answers, as it comes; all rivals of a step share it, each round
in a database of its own, so that nobody works in tables that another has filled. What
stands beside each other is vacuumed and analysed before the clock runs, and a checkpoint is
behind it: none of that is charged to whoever is next.

A node, ours or a peer's, is a process that is told by lines when to begin.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from bench.disk import work_directory
from bench.peers import Kind, PeerError, counted_as_ours
from bench.postgres_server import USER, PostgresServer, connect_at_once, connect_when_up

KIND = Kind(
    "PostgreSQL, for the cluster",
    modules=("psycopg",),
    programs=("initdb", "postgres"),
    install="apt-get install postgresql; pip install 'psycopg[binary]'",
)
SETTINGS = (
    "shared_buffers=256MB",
    "max_wal_size=2GB",
    "max_connections=100",
    # Durable: these are what PostgreSQL comes with, and they are what is measured.
    "fsync=on",
    "synchronous_commit=on",
    "full_page_writes=on",
)
ROOT = Path(__file__).resolve().parent.parent
READY = "ready"
_WORDS_MAX = 600


@dataclass(frozen=True, slots=True)
class Database:
    """An empty database.

    Attributes:
        name: of it.
        url: of it.
        where: as psycopg's words.
    """

    name: str
    url: str
    where: str

    def settle(self) -> None:
        """Vacuum and analyse what was loaded, and write it all back."""
        with closing(connect_at_once(self.where)) as connection:
            connection.execute("VACUUM ANALYZE", prepare=False)
            connection.execute("CHECKPOINT", prepare=False)

    def ask(self, query: str) -> Any:
        """Return the first column of the first row."""
        return self.column(query)[0]

    def column(self, query: str) -> list[Any]:
        """Return the first column of all rows."""
        return [row[0] for row in self.rows(query)]

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """Return all rows."""
        with closing(connect_at_once(self.where)) as connection:
            found: list[tuple[Any, ...]] = connection.execute(query).fetchall()
            return found


class Place:
    """A server that is up, and its databases.

    Attributes:
        directory: see below.
        where: how psycopg finds the database that is always there.

    Args:
        directory: of its data and what else is written; there already.
        settings: beside SETTINGS.
    """

    def __init__(self, directory: Path, settings: Sequence[str] = ()) -> None:
        self.directory = directory
        self._server = PostgresServer(directory / "server", [*SETTINGS, *settings])
        self.where = self._server.where
        try:
            connect_when_up(self.where).close()
        except BaseException:
            self._server.close()
            raise
        self._made = 0

    def new_database(self) -> Database:
        """Make one."""
        self._made += 1
        name = f"bench_{self._made}"
        self._admin(f"CREATE DATABASE {name}")
        sockets = self._server.server.sockets
        return Database(
            name,
            f"postgresql://{USER}@/{name}?host={quote(sockets, safe='')}",
            f"host={sockets} user={USER} dbname={name}",
        )

    def drop(self, database: Database) -> None:
        """Remove one, whoever is connected to it."""
        self._admin(f"DROP DATABASE {database.name} WITH (FORCE)")

    def wal_bytes(self) -> int:
        """Return how many bytes the server has written to its log so far."""
        return int(self._ask("SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')"))

    def close(self) -> None:
        """Stop it."""
        self._server.close()

    def _admin(self, statement: str) -> None:
        with closing(connect_at_once(self.where)) as connection:
            connection.execute(statement, prepare=False)

    def _ask(self, query: str) -> Any:
        with closing(connect_at_once(self.where)) as connection:
            return connection.execute(query).fetchone()[0]


@contextlib.contextmanager
def place_in(directory: Path, *settings: str) -> Iterator[Place]:
    """Start a server below a directory, for the block."""
    with work_directory(directory) as at, closing(Place(at, settings)) as place:
        yield place


class Program:
    """A process that is asked by lines; what it uses of the processors is ours.

    Args:
        words: of the command, after the interpreter.
        python: the interpreter.
    """

    def __init__(self, words: Sequence[str], *, python: str = sys.executable) -> None:
        self._words = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as this
        self._process = subprocess.Popen(
            [python, *words],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._words,
            text=True,
        )
        self._counted = contextlib.ExitStack()
        self._counted.enter_context(counted_as_ours(self._process.pid))

    def say(self, line: str) -> None:
        """Tell it something."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()

    def hear(self) -> str:
        """Wait for its next line.

        Raises:
            PeerError: it has ended instead; its last words are told.
        """
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise PeerError(self._last_words())
        return line.strip()

    def require_alive(self) -> None:
        """Go on unless it has ended.

        Raises:
            PeerError: see `hear`.
        """
        if self._process.poll() is not None:
            raise PeerError(self._last_words())

    def end(self) -> None:
        """Wait until it ends by itself.

        Raises:
            PeerError: it failed; see `hear`.
        """
        failed = self._process.wait()
        if failed:
            raise PeerError(self._last_words())
        self.kill()

    def kill(self) -> None:
        """End it at once, by SIGKILL. Idempotent."""
        self._process.kill()
        self._process.communicate()
        self._counted.close()
        self._words.close()

    def _last_words(self) -> str:
        self._process.wait()
        self._words.seek(0)
        words = self._words.read().decode(errors="replace").strip()
        return f"a process of it ended: {words[-_WORDS_MAX:]}"


@contextlib.contextmanager
def programs(
    commands: Sequence[Sequence[str]], *, python: str = sys.executable
) -> Iterator[list[Program]]:
    """Run processes in a block, ready in it and killed after it."""
    running: list[Program] = []
    try:
        running += [Program(words, python=python) for words in commands]
        for one in running:
            heard = one.hear()
            assert heard == READY, heard
        yield running
    finally:
        for one in running:
            one.kill()
