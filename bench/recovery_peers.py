"""Peers that come back, and fire many at once, as `recovery` asks.

*Open* starts a server's process on its files and ends when it answers with all timers
loaded, or, for PostgreSQL, with the first due; LMDB is a library and reads them itself.
*Fire* takes what is due in batches, runs the handler and removes them, so that a crash in
between delivers again, as ours does: for Redis three requests a batch, for PostgreSQL one
statement whose commit follows the handlers.
"""

from __future__ import annotations

import shutil
import time
from contextlib import closing
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from bench import postgres
from bench.beanstalk import (
    ALWAYS_MS,
    IN_FLIGHT_MAX,
    BeanstalkServer,
    BeanstalkStore,
)
from bench.disk import forget
from bench.lmdb_store import LmdbStore
from bench.peers import Connections
from bench.postgres import PostgresStore
from bench.postgres_server import PostgresServer
from bench.redis import EVERYSEC, RedisServer, RedisStore, command
from bench.rounds import Case
from bench.stores import load_steps

BATCH = 1_000
Key = TypeVar("Key")
_POLL_SECONDS = 0.002
_STATS_LINES = 8
"""Of `stats`: the counts of jobs are in the first."""


class RedisOpen(Case):
    """Starts a server and waits until it answers how many timers it has.

    Args:
        directory: for its files, made; empty.
        timers: that it is to have.
        snapshot: it loads an RDB file, and not its append-only file.
    """

    def __init__(self, directory: Path, timers: int, *, snapshot: bool) -> None:
        self.peer = "Redis"
        self.note = "an RDB file" if snapshot else "an append-only file"
        self._directory = directory
        self._timers = timers
        self._snapshot = snapshot
        with closing(RedisStore(directory, timers, fsync=EVERYSEC)) as store:
            if snapshot:
                store.save()

    def prepare(self) -> None:
        forget(self._directory)

    def run(self) -> float:
        start = time.perf_counter()
        server = RedisServer(self._directory, EVERYSEC, snapshot=self._snapshot)
        with closing(server), closing(Connections(server.server.connect)) as asked:
            wanted = b":%d\r\n" % self._timers
            while (reply := asked.ask(command(b"ZCARD", b"due"), 1)) != wanted:
                assert reply.startswith(b"-LOADING"), reply
                time.sleep(_POLL_SECONDS)
            return time.perf_counter() - start


class BeanstalkOpen(Case):
    """Starts a server, which listens at once, and answers when it has read its log.

    Args:
        directory: for its log, made; empty.
        timers: that it is to have.
    """

    peer = "beanstalkd"

    def __init__(self, directory: Path, timers: int) -> None:
        self._directory = directory
        self._timers = timers
        BeanstalkStore(directory, timers).close()

    def prepare(self) -> None:
        forget(self._directory)

    def run(self) -> float:
        start = time.perf_counter()
        server = BeanstalkServer(self._directory, ALWAYS_MS)
        with closing(server), closing(Connections(server.server.connect)) as asked:
            reply = asked.ask(b"stats\r\n", _STATS_LINES)
            took = time.perf_counter() - start
        assert b"\ncurrent-jobs-delayed: %d\n" % self._timers in reply, reply
        return took


class LmdbOpen(Case):
    """Opens the file and reads every timer into memory.

    Args:
        directory: of its file; made, with the timers, if it is not there.
        timers: that it is to have.
    """

    peer = "LMDB"

    def __init__(self, directory: Path, timers: int) -> None:
        self._directory = directory
        self._timers = timers
        if not directory.exists():
            LmdbStore(directory, timers).close()

    def prepare(self) -> None:
        forget(self._directory)

    def run(self) -> float:
        start = time.perf_counter()
        with closing(LmdbStore(self._directory, 0)) as store:
            loaded = self._read(store)
            took = time.perf_counter() - start
        assert loaded == self._timers
        return took

    def _read(self, store: LmdbStore) -> int:
        return len(store.read_all())


class LmdbFirstDue(LmdbOpen):
    """Opens the file and asks for the first due: the rest stays on disk."""

    def _read(self, store: LmdbStore) -> int:
        assert store.first_due() is not None
        return self._timers


class PostgresFirstDue(Case):
    """Starts a server that was stopped in good order; asks for the first due.

    Args:
        directory: for its data, made; not there.
        timers: that it is to have.
    """

    peer = "PostgreSQL"
    note = "from the start of its server"

    def __init__(self, directory: Path, timers: int) -> None:
        self._directory = directory
        self._timers = timers
        PostgresStore(directory, timers).close()

    def prepare(self) -> None:
        forget(self._directory)

    def run(self) -> float:
        start = time.perf_counter()
        with closing(PostgresServer(self._directory, [])) as server:
            assert postgres.first_due(server.where) is not None
            took = time.perf_counter() - start
            assert postgres.count(server.where) == self._timers
        return took


class Takes(Protocol[Key]):
    """A store that hands out what is due, and keeps it until it is told."""

    peer: str
    equal: bool
    note: str

    def schedule_many(self, timers: int) -> object:
        """Add timers."""

    def take_due(self, size: int) -> list[tuple[Key, bytes]]:
        """Return what removes each of so many timers that are due first, and its payload."""

    def remove_many(self, keys: list[Key]) -> object:
        """Remove timers; returns when that is durable."""

    def close(self) -> None:
        """Close it."""


class BatchFire(Case, Generic[Key]):
    """Takes what is due in batches, runs the handler, and removes them.

    Args:
        store: empty; closed with this.
        timers: due at once.
        batch: of so many.
    """

    def __init__(self, store: Takes[Key], timers: int, *, batch: int = BATCH) -> None:
        self.peer, self.equal, self.note = store.peer, store.equal, store.note
        self._timers = timers
        self._batch = batch
        self._store = store

    def prepare(self) -> None:
        for step in load_steps(self._timers):
            self._store.schedule_many(step)

    def run(self) -> float:
        start = time.perf_counter()
        left = self._timers
        while left:
            due = self._store.take_due(min(self._batch, left))
            for key, payload in due:
                _handle(key, payload)
            self._store.remove_many([key for key, _ in due])
            left -= len(due)
        return time.perf_counter() - start

    def close(self) -> None:
        self._store.close()


class BeanstalkFire(BatchFire[int]):
    """As BatchFire; a batch is requests sent before their replies are read.

    Args:
        directory: for its log, made; not there.
        timers: due at once.
    """

    def __init__(self, directory: Path, timers: int) -> None:
        self._directory = directory
        super().__init__(self._due(0), timers, batch=IN_FLIGHT_MAX)
        self.note = "each is synced alone"

    def prepare(self) -> None:
        self._store.close()
        shutil.rmtree(self._directory)
        self._store = self._due(self._timers)  # it loads without a sync for each

    def _due(self, timers: int) -> BeanstalkStore:
        return BeanstalkStore(self._directory, timers, delays=[0])


class PostgresFire(Case):
    """Deletes what is due in batches, and runs the handler before each commit.

    Args:
        directory: for its data, made; not there.
        timers: due at once.
    """

    def __init__(self, directory: Path, timers: int) -> None:
        self._store = PostgresStore(directory, 0)
        self.peer = self._store.peer
        self._timers = timers

    def prepare(self) -> None:
        for step in load_steps(self._timers):
            self._store.schedule_many(step)

    def run(self) -> float:
        start = time.perf_counter()
        fired = 0
        while fired < self._timers:
            batch = self._store.fire(BATCH, _handle)
            assert batch, f"{fired} of {self._timers}"
            fired += batch
        return time.perf_counter() - start

    def close(self) -> None:
        self._store.close()


def _handle(_key: object, _payload: bytes) -> None:
    return None
