"""SQLite as a timer store: what a careful program without an engine would write.

A table of (id, due, payload) with an index on due, write-ahead logging. `synchronous=FULL`
syncs before a commit returns, as we do; `NORMAL` does not, so a power loss takes the last
commits: that is the promise of our interval mode, and no durable one.

Threads share one connection: a connection each was no faster when the machine was quiet,
and many times slower when it was not, in SQLite's sleeping wait for the lock.
"""

from __future__ import annotations

import asyncio
import random
import sqlite3
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar

_INSERT = "INSERT INTO timer (due, payload) VALUES (?, ?)"
_SCHEMA = """
CREATE TABLE IF NOT EXISTS timer (
    id INTEGER PRIMARY KEY, due INTEGER NOT NULL, payload BLOB NOT NULL);
CREATE INDEX IF NOT EXISTS timer_due ON timer (due);
"""
FULL = "FULL"
NORMAL = "NORMAL"


class SqliteTimers:
    """The same requests as an engine's, each one transaction.

    Args:
        path: of the database; made if missing.
        synchronous: FULL or NORMAL.
    """

    names: ClassVar[dict[str, str]] = {FULL: "SQLite FULL", NORMAL: "SQLite NORMAL"}

    def __init__(self, path: Path, synchronous: str) -> None:
        self.connection = sqlite3.connect(
            path, isolation_level=None, check_same_thread=False
        )
        self.connection.execute("PRAGMA journal_mode=WAL")
        self.connection.execute(f"PRAGMA synchronous={synchronous}")
        self.connection.executescript(_SCHEMA)
        self._thread: ThreadPoolExecutor | None = None

    def schedule(self, due: int, payload: bytes) -> int:
        """Add a timer; return its id."""
        return self.connection.execute(_INSERT, (due, payload)).lastrowid or 0

    async def schedule_async(self, due: int, payload: bytes) -> int:
        """Add a timer from an event loop, on the thread that owns the connection."""
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self.schedule, due, payload)

    def schedule_many(self, rows: Iterable[tuple[int, bytes]]) -> None:
        """Add many timers in one transaction."""
        self._all_or_none(_INSERT, rows)

    def cancel(self, timer_id: int) -> bool:
        """Remove a timer."""
        return bool(self._delete(timer_id).rowcount)

    def take_due(self, limit: int) -> list[tuple[int, bytes]]:
        """Return what is due first; it stays until it is acknowledged."""
        return self.connection.execute(
            "SELECT id, payload FROM timer ORDER BY due, id LIMIT ?", (limit,)
        ).fetchall()

    def acknowledge_many(self, timer_ids: Iterable[int]) -> None:
        """Remove what was delivered, in one transaction."""
        self._all_or_none(
            "DELETE FROM timer WHERE id = ?", [(timer_id,) for timer_id in timer_ids]
        )

    def first_due(self) -> int | None:
        """Return when the next timer is due, None without one."""
        row: tuple[int | None] = self.connection.execute(
            "SELECT min(due) FROM timer"
        ).fetchone()
        return row[0]

    def all_ids(self, rng: random.Random) -> list[int]:
        """Return all ids in a random order."""
        ids = [row[0] for row in self.connection.execute("SELECT id FROM timer")]
        rng.shuffle(ids)
        return ids

    def read_all(self) -> dict[int, tuple[int, bytes]]:
        """Bring all timers into memory, as a program that needs them there does."""
        rows = self.connection.execute("SELECT id, due, payload FROM timer")
        return {timer_id: (due, payload) for timer_id, due, payload in rows}

    def close(self) -> None:
        """Close the database."""
        if self._thread is not None:
            self._thread.shutdown()
        self.connection.close()

    def _delete(self, timer_id: int) -> sqlite3.Cursor:
        return self.connection.execute("DELETE FROM timer WHERE id = ?", (timer_id,))

    def _all_or_none(self, statement: str, rows: Iterable[tuple[Any, ...]]) -> None:
        execute = self.connection.execute
        execute("BEGIN IMMEDIATE")
        try:
            self.connection.executemany(statement, rows)
        except BaseException:
            execute("ROLLBACK")
            raise
        execute("COMMIT")
