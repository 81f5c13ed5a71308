"""Timers that survive: what a caller waits for, against the disk's own limit and peers.

The baseline writes the very bytes that one such commit of ours writes, and syncs them:
no store that syncs once a commit can be faster. With many callers, or many timers a call,
one sync serves them all, so figures go beyond it.

All rivals begin with equally many timers pending, and take turns (`bench.rounds`).
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench import beanstalk, lmdb_store, postgres, redis
from bench.beanstalk import INTERVAL_MS, AsyncBeanstalkStore, BeanstalkStore
from bench.disk import Fdatasync, work_directory
from bench.lmdb_store import AsyncLmdbStore, LmdbStore
from bench.peers import HERE, Kind, Opened, opened
from bench.postgres import AsyncPostgresStore, PostgresStore
from bench.progress import Step
from bench.redis import EVERYSEC, AsyncRedisStore, RedisStore
from bench.rounds import Progress, Sustained, interleave
from bench.row import Row
from bench.sqlite import NORMAL
from bench.stores import (
    AsyncEngineStore,
    AsyncSqliteStore,
    AsyncStore,
    EngineStore,
    Schedules,
    SqliteStore,
    Store,
    cancel_frame_bytes,
    schedule_frame_bytes,
)

GROUP = "durable"
CANCELS_A_ROUND_MAX = 4_096
_OPEN_SECONDS = 5.0
_LOAD_SECONDS = 100e-6  # a timer, in all rivals together
_RIVALS = 8.5
_CALLS_A_LOOK = 16
"""Calls between two looks at the time: a look must not show in the fastest figure."""


@dataclass(frozen=True, slots=True)
class Size:
    """How large a run is.

    Attributes:
        loaded: timers pending from the start.
        rounds: that a figure is the median of.
        seconds: that each rival works in a round; batches work `batch_seconds`.
        batch_seconds: see there.
        tries: see `interleave`.
    """

    loaded: int
    rounds: int
    seconds: float
    batch_seconds: float
    tries: int


NORMAL_SIZE = Size(loaded=100_000, rounds=5, seconds=0.3, batch_seconds=0.4, tries=2)
FULL_SIZE = Size(loaded=100_000, rounds=9, seconds=0.4, batch_seconds=0.8, tries=2)
SMOKE_SIZE = Size(loaded=1_000, rounds=2, seconds=0.05, batch_seconds=0.05, tries=1)

OpenRivals = Callable[[ExitStack, Path, int], list[Sustained]]


@dataclass(frozen=True, slots=True)
class Operation:
    """One line of the table: who is asked, and by how many callers."""

    name: str
    rivals: OpenRivals
    frame_bytes: int
    timers: int = 1
    batch: bool = False


class OneCaller(Sustained):
    """A loop around one request; each waits for the disk."""

    def __init__(self, store: Schedules) -> None:
        self.peer, self.equal, self.note = store.peer, store.equal, store.note
        self._store = store

    def run(self) -> float:
        return self.repeat(self._call)

    def _call(self) -> int:
        schedule = self._store.schedule
        for _ in range(_CALLS_A_LOOK):
            schedule()
        return _CALLS_A_LOOK


class Batches(OneCaller):
    """A loop around schedule_many."""

    def __init__(self, store: Store, timers: int) -> None:
        super().__init__(store)
        self._batches = store
        self._timers = timers

    def _call(self) -> int:
        self._batches.schedule_many(self._timers)
        return self._timers


class Cancels(OneCaller):
    """A loop around cancel, over timers in random order."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._timers = store
        self._ids: Iterator[int] = iter(())

    def prepare(self) -> None:
        self._ids = iter(self._timers.some_ids(CANCELS_A_ROUND_MAX))

    def run(self) -> float:
        start = now = time.perf_counter()
        done = 0
        for timer_id in self._ids:
            assert self._timers.cancel(timer_id)
            done += 1
            now = time.perf_counter()
            if now - start >= self.seconds:
                break
        return (now - start) / done


class Threads(OneCaller):
    """Many threads, each a loop around one request."""

    def __init__(self, store: Schedules, threads: int) -> None:
        super().__init__(store)
        self._threads = threads

    def run(self) -> float:
        begun, stopped = threading.Event(), threading.Event()

        def work() -> int:
            done = 0
            begun.wait()
            while not stopped.is_set():
                self._store.schedule()
                done += 1
            return done

        with ThreadPoolExecutor(self._threads) as pool:
            callers = [pool.submit(work) for _ in range(self._threads)]
            try:
                start = time.perf_counter()
                begun.set()
                stopped.wait(self.seconds)
            finally:
                stopped.set()
                begun.set()  # Ctrl-C before must leave none waiting
            done = sum(caller.result() for caller in callers)
            return (time.perf_counter() - start) / done


class Tasks(Sustained):
    """Many tasks of one event loop, each a loop around one request."""

    def __init__(self, store: AsyncStore, tasks: int) -> None:
        self.peer, self.equal, self.note = store.peer, store.equal, store.note
        self._store = store
        self._tasks = tasks

    def run(self) -> float:
        return self._store.runner.run(self._run())

    async def _run(self) -> float:
        done = 0
        start = time.perf_counter()
        end = start + self.seconds

        async def work() -> None:
            nonlocal done
            while time.perf_counter() < end:
                await self._store.schedule()
                done += 1

        await asyncio.gather(*[work() for _ in range(self._tasks)])
        return (time.perf_counter() - start) / done


Rivals = Sequence[tuple[Kind, str, Callable[[Path, int], Opened]]]
"""What each needs to be here, the name of its directory, and what opens it there."""

_STORES: Rivals[Store] = (
    (HERE, "ours", EngineStore),
    (HERE, "full", SqliteStore),
    (lmdb_store.KIND, "lmdb", LmdbStore),
    (redis.KIND, "redis", RedisStore),
    (beanstalk.KIND, "beanstalk", BeanstalkStore),
    (postgres.KIND, "postgres", PostgresStore),
    (HERE, "normal", partial(SqliteStore, synchronous=NORMAL, equal=False)),
    (redis.KIND, "everysec", partial(RedisStore, fsync=EVERYSEC, equal=False)),
)
_ASYNC_STORES: Rivals[AsyncStore] = (
    (HERE, "ours", AsyncEngineStore),
    (HERE, "full", AsyncSqliteStore),
    (lmdb_store.KIND, "lmdb", AsyncLmdbStore),
    (redis.KIND, "redis", AsyncRedisStore),
    (beanstalk.KIND, "beanstalk", AsyncBeanstalkStore),
    (postgres.KIND, "postgres", AsyncPostgresStore),
    (HERE, "normal", partial(AsyncSqliteStore, synchronous=NORMAL, equal=False)),
    (redis.KIND, "everysec", partial(AsyncRedisStore, fsync=EVERYSEC, equal=False)),
)
_RELAXED: Rivals[Store] = (
    (HERE, "ours", partial(EngineStore, durability="interval")),
    (HERE, "normal", partial(SqliteStore, synchronous=NORMAL)),
    (lmdb_store.KIND, "lmdb", partial(LmdbStore, sync=False)),
    (beanstalk.KIND, "beanstalk", partial(BeanstalkStore, fsync_ms=INTERVAL_MS)),
    (redis.KIND, "everysec", partial(RedisStore, fsync=EVERYSEC, equal=False)),
    (postgres.KIND, "async", partial(PostgresStore, sync=False)),
)


def _by(make: Callable[[Opened], Sustained], rivals: Rivals[Opened]) -> OpenRivals:
    """Return what opens those of the rivals that are here, each in a case."""

    def opens(stack: ExitStack, directory: Path, loaded: int) -> list[Sustained]:
        return [
            make(store)
            for kind, name, open_store in rivals
            for store in opened(
                stack, kind, partial(open_store, directory / name, loaded)
            )
        ]

    return opens


_ONE = schedule_frame_bytes(1)

OPERATIONS: tuple[Operation, ...] = (
    Operation("schedule, 1 caller", _by(OneCaller, _STORES), _ONE),
    Operation("schedule, 16 threads", _by(partial(Threads, threads=16), _STORES), _ONE),
    Operation(
        "schedule, 16 asyncio tasks", _by(partial(Tasks, tasks=16), _ASYNC_STORES), _ONE
    ),
    Operation(
        "schedule, 256 asyncio tasks",
        _by(partial(Tasks, tasks=256), _ASYNC_STORES),
        _ONE,
    ),
    Operation(
        "schedule_many(256)",
        _by(partial(Batches, timers=256), _STORES),
        schedule_frame_bytes(256),
        timers=256,
        batch=True,
    ),
    Operation(
        "schedule_many(4096)",
        _by(partial(Batches, timers=4_096), _STORES),
        schedule_frame_bytes(4_096),
        timers=4_096,
        batch=True,
    ),
    Operation("cancel, 1 caller", _by(Cancels, _STORES), cancel_frame_bytes()),
    Operation("schedule, interval 50 ms", _by(OneCaller, _RELAXED), _ONE, batch=True),
)


def steps(size: Size, directory: Path) -> list[Step]:
    """Return the steps that measure every operation.

    Args:
        size: how large and how long.
        directory: on the disk in question; left empty again.
    """
    return [
        Step(
            GROUP,
            operation.name,
            _estimate_seconds(operation, size),
            partial(measure, operation, size, directory),
        )
        for operation in OPERATIONS
    ]


def measure(
    operation: Operation, size: Size, directory: Path, progress: Progress
) -> list[Row]:
    """Measure an operation against the disk's limit and against the peers.

    Args:
        operation: a line of the table.
        size: how large and how long.
        directory: on the disk in question; left empty again.
        progress: called with a line of text before each round.

    Returns:
        Rows of wall time a timer, grouped under what was pending.
    """
    group = f"{GROUP}, 100-byte payloads, {size.loaded:,} pending at first"
    progress(f"{group}: {operation.name}, loading")
    with opened_rivals(operation, size, directory) as (baseline, rivals):
        seconds = size.batch_seconds if operation.batch else size.seconds
        baseline.seconds = seconds / 2
        for rival in rivals:
            rival.seconds = seconds
        return interleave(
            baseline,
            rivals,
            group=group,
            name=operation.name,
            rounds=size.rounds,
            progress=progress,
            tries=size.tries,
        )


@contextmanager
def opened_rivals(
    operation: Operation, size: Size, directory: Path
) -> Iterator[tuple[Sustained, list[Sustained]]]:
    """Open the baseline and all rivals of an operation; close and remove them after."""
    with work_directory(directory) as place, ExitStack() as stack:
        baseline = stack.enter_context(
            closing(
                Fdatasync(
                    place, size_bytes=operation.frame_bytes, timers=operation.timers
                )
            )
        )
        yield baseline, operation.rivals(stack, place, size.loaded)


def _estimate_seconds(operation: Operation, size: Size) -> float:
    seconds = size.batch_seconds if operation.batch else size.seconds
    return _OPEN_SECONDS + size.loaded * _LOAD_SECONDS + _RIVALS * seconds * size.rounds
