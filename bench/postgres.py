"""PostgreSQL as a timer store: the table of SQLite's, one statement a transaction.

`synchronous_commit=on` syncs before it answers, as we do; `off` writes every 50 ms at
the latest three times that later. A batch is one COPY.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import itertools
import queue
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.peers import Kind, PeerError
from bench.postgres_server import (
    PROGRAMS,
    PostgresServer,
    connect_at_once,
    connect_when_up,
)
from bench.stores import DELAYS, PAYLOAD, load_steps

KIND = Kind(
    "PostgreSQL",
    modules=("psycopg",),
    programs=PROGRAMS,
    install="apt-get install postgresql; pip install 'psycopg[binary]'",
)
CONNECTIONS = 16
INTERVAL_MS = 50
_SCHEMA = """
CREATE TABLE timer (id bigserial PRIMARY KEY, due bigint NOT NULL, payload bytea NOT NULL);
CREATE INDEX timer_due ON timer (due);
"""
_INSERT = "INSERT INTO timer (due, payload) VALUES (%b, %b) RETURNING id"
_FIRST_DUE = "SELECT min(due) FROM timer"
_COUNT = "SELECT count(*) FROM timer"
_TAKE_DUE = """
DELETE FROM timer WHERE id = ANY (ARRAY (SELECT id FROM timer ORDER BY due LIMIT %b))
RETURNING id, payload
"""
_COPY = "COPY timer (due, payload) FROM STDIN (FORMAT BINARY)"


def first_due(where: str) -> int | None:
    """Wait until a server answers; return when its next timer is due, None without one."""
    found: int | None = _ask(where, _FIRST_DUE)
    return found


def count(where: str) -> int:
    """Return how many timers a server has."""
    return int(_ask(where, _COUNT))


def _ask(where: str, query: str) -> Any:
    with contextlib.closing(connect_when_up(where)) as connection:
        return connection.execute(query).fetchone()[0]


class PostgresStore:
    """PostgreSQL for threads, a connection each; as `Store`.

    Args:
        directory: where its data go.
        loaded: timers that are pending from the start.
        sync: whether a commit waits for the disk.
    """

    def __init__(self, directory: Path, loaded: int, *, sync: bool = True) -> None:
        self.peer = "PostgreSQL" if sync else "PostgreSQL async"
        self.equal = sync
        self.note = "" if sync else "a crash takes up to 150 ms"
        psycopg: Any = importlib.import_module("psycopg")
        mode = "on" if sync else "off"
        self._postgres = PostgresServer(
            directory,
            [f"synchronous_commit={mode}", f"wal_writer_delay={INTERVAL_MS}ms"],
        )
        self.where = self._postgres.where
        self._free: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._next_delay = itertools.cycle(DELAYS).__next__
        try:
            self._free.put(connect_when_up(self.where))
            for _ in range(CONNECTIONS - 1):
                self._free.put(connect_at_once(self.where))
            one = self._free.get()
            one.execute(_SCHEMA, prepare=False)
            self._free.put(one)
            for timers in load_steps(loaded):
                self.schedule_many(timers)
        except psycopg.Error as error:
            self.close()
            raise PeerError(f"fails: {error}") from error
        except BaseException:
            self.close()
            raise

    def schedule(self) -> int:
        return int(self._one(_INSERT, (self.next_due(), PAYLOAD))[0])

    def schedule_many(self, timers: int) -> None:
        connection = self._free.get()
        with connection.cursor() as cursor, cursor.copy(_COPY) as copy:
            copy.set_types(["int8", "bytea"])
            for _ in range(timers):
                copy.write_row((self.next_due(), PAYLOAD))
        self._free.put(connection)

    def cancel(self, timer_id: int) -> bool:
        deleted = self._one("DELETE FROM timer WHERE id = %b RETURNING id", (timer_id,))
        return bool(deleted)

    def fire(self, size: int, handler: Callable[[int, bytes], None]) -> int:
        """Take so many timers that are due first and run the handler, in one transaction.

        A crash before its commit leaves them there.

        Returns:
            How many there were.
        """
        connection = self._free.get()
        with connection.transaction():
            due = connection.execute(_TAKE_DUE, (size,), binary=True).fetchall()
            for timer_id, payload in due:
                handler(timer_id, payload)
        self._free.put(connection)
        return len(due)

    def some_ids(self, timers: int) -> list[int]:
        for step in load_steps(timers):
            self.schedule_many(step)
        connection = self._free.get()
        found = connection.execute("SELECT id FROM timer").fetchall()
        self._free.put(connection)
        ids = [row[0] for row in found]
        random.Random(timers).shuffle(ids)
        return ids[:timers]

    def close(self) -> None:
        while not self._free.empty():
            self._free.get().close()
        self._postgres.close()

    def next_due(self) -> int:
        """Return when the next timer shall be due, ns."""
        return time.time_ns() + int(self._next_delay() * 1e9)

    def _one(self, statement: str, values: tuple[object, ...]) -> Any:
        connection = self._free.get()
        row = connection.execute(statement, values).fetchone()
        self._free.put(connection)
        return row


class AsyncPostgresStore:
    """PostgreSQL for a loop's tasks, which share its connections; as `AsyncStore`."""

    equal = True

    def __init__(self, directory: Path, loaded: int) -> None:
        self.runner = asyncio.Runner()
        self._store = PostgresStore(directory, loaded)
        self.peer = self._store.peer
        self.note = f"{CONNECTIONS} connections"
        self._free: asyncio.Queue[Any] = asyncio.Queue()
        self._connections: list[Any] = self.runner.run(self._connect())

    async def schedule(self) -> int:
        connection = await self._free.get()
        try:
            cursor = await connection.execute(
                _INSERT, (self._store.next_due(), PAYLOAD)
            )
            row = await cursor.fetchone()
        finally:
            self._free.put_nowait(connection)
        return int(row[0])

    def close(self) -> None:
        try:
            self.runner.run(self._hang_up())
        finally:
            self.runner.close()
            self._store.close()

    async def _connect(self) -> list[Any]:
        psycopg: Any = importlib.import_module("psycopg")
        connections = []
        for _ in range(CONNECTIONS):
            connection = await psycopg.AsyncConnection.connect(
                self._store.where, autocommit=True
            )
            connection.prepare_threshold = 0
            connections.append(connection)
            self._free.put_nowait(connection)
        return connections

    async def _hang_up(self) -> None:
        for connection in self._connections:
            await connection.close()
