"""LMDB as a timer store: a tree from id to timer, a tree ordered by due time.

It has one writer at a time, so threads take turns and a loop's tasks share one thread. Synced,
a commit is as durable as ours; the other way is unsynced commits and a sync every 50 ms.
"""

from __future__ import annotations

import asyncio
import importlib
import itertools
import random
import struct
import threading
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from bench.peers import Kind
from bench.stores import DELAYS, PAYLOAD, load_steps

KIND = Kind("LMDB", modules=("lmdb",), install="pip install lmdb")
INTERVAL_SECONDS = 0.05
_MAP_BYTES = 64 << 30  # of address space
_DUE = struct.Struct(">QQ")  # big-endian, so that the bytes sort as the numbers
_ID = struct.Struct(">Q")


class LmdbStore:
    """LMDB; as `Store`.

    Args:
        directory: where its file goes, or is already.
        loaded: timers that are made at the start.
        sync: at every commit, or every 50 ms.
    """

    equal = True

    def __init__(self, directory: Path, loaded: int, *, sync: bool = True) -> None:
        lmdb: Any = importlib.import_module("lmdb")
        self.peer = "LMDB" if sync else "LMDB, sync each 50 ms"
        self.note = ""
        directory.mkdir(exist_ok=True)
        self.environment = lmdb.open(
            str(directory), map_size=_MAP_BYTES, max_dbs=2, sync=sync, metasync=sync
        )
        self._timers = self.environment.open_db(b"timers")
        self._dues = self.environment.open_db(b"dues")
        self._next_id = itertools.count(1).__next__
        self._next_delay = itertools.cycle(DELAYS).__next__
        self._rng = random.Random(1)
        self._thread: ThreadPoolExecutor | None = None
        self._stopped = threading.Event()
        self._syncer = threading.Thread(target=self._sync_often, daemon=True)
        for timers in load_steps(loaded):
            self.schedule_many(timers)
        if not sync:
            self._syncer.start()

    def schedule(self) -> int:
        return self.schedule_many(1)[0]

    async def schedule_async(self) -> int:
        """Add a timer from an event loop, on the thread that writes."""
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self.schedule)

    def schedule_many(self, timers: int) -> list[int]:
        now_ns = time.time_ns()
        ids = []
        with self.environment.begin(write=True) as transaction:
            put = transaction.put
            for _ in range(timers):
                timer_id = self._next_id()
                due_ns = now_ns + int(self._next_delay() * 1e9)
                key = _ID.pack(timer_id)
                put(key, _ID.pack(due_ns) + PAYLOAD, db=self._timers)
                put(_DUE.pack(due_ns, timer_id), b"", db=self._dues)
                ids.append(timer_id)
        return ids

    def cancel(self, timer_id: int) -> bool:
        key = _ID.pack(timer_id)
        with self.environment.begin(write=True) as transaction:
            timer = transaction.pop(key, db=self._timers)
            if timer is None:
                return False
            transaction.delete(timer[: _ID.size] + key, db=self._dues)
        return True

    def some_ids(self, timers: int) -> list[int]:
        ids = [one for step in load_steps(timers) for one in self.schedule_many(step)]
        self._rng.shuffle(ids)
        return ids

    def take_due(self, size: int) -> list[tuple[bytes, bytes]]:
        """Return the due times and payloads of so many timers that are due first."""
        with self.environment.begin() as transaction:
            dues = itertools.islice(
                transaction.cursor(self._dues).iternext(values=False), size
            )
            return [
                (due, transaction.get(due[_ID.size :], db=self._timers)[_ID.size :])
                for due in dues
            ]

    def remove_many(self, dues: Iterable[bytes]) -> None:
        """Remove timers, all or none, by what `take_due` returned."""
        with self.environment.begin(write=True) as transaction:
            for due in dues:
                assert transaction.delete(due, db=self._dues)
                assert transaction.delete(due[_ID.size :], db=self._timers)

    def first_due(self) -> int | None:
        """Return when the next timer is due, None without one."""
        with self.environment.begin() as transaction:
            cursor = transaction.cursor(self._dues)
            return _DUE.unpack(cursor.key())[0] if cursor.first() else None

    def read_all(self) -> dict[int, tuple[int, bytes]]:
        """Bring all timers into memory, as a program that needs them there does."""
        number = _ID.unpack
        with self.environment.begin() as transaction:
            return {
                number(key)[0]: (number(timer[: _ID.size])[0], timer[_ID.size :])
                for key, timer in transaction.cursor(self._timers)
            }

    def close(self) -> None:
        self._stopped.set()
        if self._syncer.ident is not None:
            self._syncer.join()
        if self._thread is not None:
            self._thread.shutdown()
        self.environment.close()

    def _sync_often(self) -> None:
        while not self._stopped.wait(INTERVAL_SECONDS):
            self.environment.sync(True)


class AsyncLmdbStore:
    """LMDB for a loop's tasks; as `AsyncStore`."""

    equal = True

    def __init__(self, directory: Path, loaded: int) -> None:
        self.runner = asyncio.Runner()
        self._store = LmdbStore(directory, loaded)
        self.peer, self.note = self._store.peer, self._store.note

    async def schedule(self) -> int:
        return await self._store.schedule_async()

    def close(self) -> None:
        self._store.close()
        self.runner.close()
