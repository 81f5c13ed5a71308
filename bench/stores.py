"""The stores that durable benchmarks compare, each behind the same few requests.

Every store holds equal timers: 100 random bytes of payload, due in one to two hours, so
that none fires meanwhile.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from bench.rounds import OURS
from bench.sqlite import FULL, SqliteTimers
from timingwheel.engine.arguments import BATCH_TIMERS_MAX
from timingwheel.engine.asyncio_engine import AsyncTimerEngine
from timingwheel.engine.engine import TimerEngine
from timingwheel.engine.records import Base, timer_cancelled, timer_scheduled
from wal.bodies import encode_records
from wal.frame import frame_bytes
from wal.log import RESERVE_BYTES, SEGMENT_SIZE_BYTES, Durability, LogStats

PAYLOAD = os.urandom(100)
PAYLOADS = [PAYLOAD] * 4_096
DELAYS = [random.Random(1).uniform(3_600, 7_200) for _ in PAYLOADS]
LOAD_STEP = len(PAYLOADS)
assert LOAD_STEP <= BATCH_TIMERS_MAX
_WARM_UP_STEP_SECONDS = 0.02
_SEGMENTS_AHEAD = RESERVE_BYTES // SEGMENT_SIZE_BYTES + 1


class Schedules(Protocol):
    """Whoever makes one thing a call, and returns when it is durable."""

    peer: str
    equal: bool
    note: str

    def schedule(self) -> object:
        """Make one."""


class Store(Protocol):
    """What a benchmark asks of a store; each call returns when it is durable."""

    peer: str
    equal: bool
    note: str

    def schedule(self) -> int:
        """Add a timer; return its id."""

    def schedule_many(self, timers: int) -> object:
        """Add up to LOAD_STEP timers, all or none."""

    def cancel(self, timer_id: int) -> bool:
        """Remove a timer."""

    def some_ids(self, timers: int) -> list[int]:
        """Add timers; return their ids in random order."""

    def close(self) -> None:
        """Close it."""


class AsyncStore(Protocol):
    """A store that an event loop asks."""

    peer: str
    equal: bool
    note: str
    runner: asyncio.Runner

    async def schedule(self) -> object:
        """Add a timer."""

    def close(self) -> None:
        """Close it, and its loop."""


class EngineStore:
    """A TimerEngine, warm: its segments to come are ready.

    Args:
        directory: where it lives.
        loaded: timers that are pending from the start.
        durability: as TimerEngine.
    """

    peer = OURS
    equal = True
    note = ""

    def __init__(
        self, directory: Path, loaded: int, *, durability: Durability = "durable"
    ) -> None:
        self.engine = TimerEngine(
            directory, lambda _timer_id, _payload: None, durability=durability
        )
        self._next_delay = itertools.cycle(DELAYS).__next__
        with _closed_on_error(self):
            for timers in load_steps(loaded):
                self.schedule_many(timers)
            wait_until_warm(self.engine.log_stats)

    def schedule(self) -> int:
        return self.engine.schedule(self._next_delay(), PAYLOAD)

    def schedule_many(self, timers: int) -> Sequence[int]:
        return self.engine.schedule_many(DELAYS[:timers], PAYLOADS[:timers])

    def cancel(self, timer_id: int) -> bool:
        return self.engine.cancel(timer_id)

    def some_ids(self, timers: int) -> list[int]:
        ids = [one for step in load_steps(timers) for one in self.schedule_many(step)]
        random.Random(timers).shuffle(ids)
        return ids

    def close(self) -> None:
        self.engine.close()


class AsyncEngineStore:
    """An AsyncTimerEngine with a loop of its own; else as EngineStore."""

    peer = OURS
    equal = True
    note = ""

    def __init__(self, directory: Path, loaded: int) -> None:
        self.runner = asyncio.Runner()
        self._next_delay = itertools.cycle(DELAYS).__next__
        self.engine = AsyncTimerEngine(directory, _never_called)
        with _closed_on_error(self):
            self.runner.run(self._open(loaded))
            wait_until_warm(self.engine.log_stats)

    async def schedule(self) -> int:
        return await self.engine.schedule(self._next_delay(), PAYLOAD)

    def close(self) -> None:
        try:
            self.runner.run(self.engine.close())
        finally:
            self.runner.close()

    async def _open(self, loaded: int) -> None:
        await self.engine.open()
        for timers in load_steps(loaded):
            await self.engine.schedule_many(DELAYS[:timers], PAYLOADS[:timers])


class SqliteStore:
    """SQLite, an index on the due time.

    Args:
        directory: where its files go.
        loaded: timers that are pending from the start.
        synchronous: FULL or NORMAL.
        equal: whether that promises as much as the engine it is compared with.
    """

    def __init__(
        self,
        directory: Path,
        loaded: int,
        *,
        synchronous: str = FULL,
        equal: bool = True,
    ) -> None:
        directory.mkdir(exist_ok=True)
        self.peer = SqliteTimers.names[synchronous]
        self.equal = equal
        self.note = "" if equal else "not durable: a power loss takes the last commits"
        self.timers = SqliteTimers(directory / "timers.sqlite", synchronous)
        self._next_delay = itertools.cycle(DELAYS).__next__
        for timers in load_steps(loaded):
            self.schedule_many(timers)

    def schedule(self) -> int:
        return self.timers.schedule(self._due(), PAYLOAD)

    def schedule_many(self, timers: int) -> None:
        self.timers.schedule_many([(self._due(), PAYLOAD) for _ in range(timers)])

    def cancel(self, timer_id: int) -> bool:
        return self.timers.cancel(timer_id)

    def some_ids(self, timers: int) -> list[int]:
        for step in load_steps(timers):
            self.schedule_many(step)
        return self.timers.all_ids(random.Random(timers))[:timers]

    def close(self) -> None:
        self.timers.close()

    def _due(self) -> int:
        return time.time_ns() + int(self._next_delay() * 1e9)


class AsyncSqliteStore:
    """SQLite on the one thread that a loop hands its requests to."""

    def __init__(
        self,
        directory: Path,
        loaded: int,
        *,
        synchronous: str = FULL,
        equal: bool = True,
    ) -> None:
        self.runner = asyncio.Runner()
        self._store = SqliteStore(
            directory, loaded, synchronous=synchronous, equal=equal
        )
        self.peer, self.equal = self._store.peer, equal
        self.note = self._store.note

    async def schedule(self) -> int:
        return await self._store.timers.schedule_async(self._store._due(), PAYLOAD)

    def close(self) -> None:
        self._store.close()
        self.runner.close()


@contextmanager
def _closed_on_error(store: EngineStore | AsyncEngineStore) -> Iterator[None]:
    # Its threads would go on writing into a directory that is being removed.
    try:
        yield
    except BaseException:
        store.close()
        raise


def load_steps(timers: int) -> list[int]:
    """Return the sizes of the batches that make up so many timers."""
    whole, rest = divmod(timers, LOAD_STEP)
    return [LOAD_STEP] * whole + ([rest] if rest else [])


def wait_until_warm(log_stats: Callable[[], LogStats | None]) -> None:
    """Return when a log has made all the segments that it keeps ahead.

    Making them is most of the disk's work in an engine's first second, and none later.
    """
    while (stats := log_stats()) and stats.segments_ready < _SEGMENTS_AHEAD:
        assert not stats.disk_full, "the disk became full while benchmarks ran"
        time.sleep(_WARM_UP_STEP_SECONDS)


def schedule_frame_bytes(timers: int) -> int:
    """Return what the engine writes to make so many timers in one commit."""
    record = timer_scheduled(Base.ELAPSED, 0, PAYLOAD)
    return frame_bytes(len(encode_records([record] * timers)))


def cancel_frame_bytes() -> int:
    """Return what the engine writes to cancel a timer."""
    return frame_bytes(len(encode_records([timer_cancelled(0)])))


async def _never_called(_timer_id: int, _payload: bytes) -> None:
    return None
