"""Coming back: opening a store full of timers, and firing many that are due at once.

*Open* is what a restart waits for: from the directory on disk to an engine that would fire.
Its baseline is the disk's own time to read the same files, with the page cache dropped
first for both. SQLite has two lines against it: reading all timers into memory, which is
the equal job, and finding the first due, where a database on disk need not read the rest.

*Fire* is from `start` to the moment when every handler has run and every acknowledgement is
durable: a crash after it delivers nothing twice. Its baseline writes and syncs the bytes
of those events in frames of 4,096 timers.
"""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path

from bench import beanstalk, lmdb_store, postgres, redis
from bench.disk import Fdatasync, forget, work_directory
from bench.lmdb_store import LmdbStore
from bench.peers import HERE, Kind, opened
from bench.progress import Step
from bench.recovery_peers import (
    BatchFire,
    BeanstalkFire,
    BeanstalkOpen,
    LmdbFirstDue,
    LmdbOpen,
    PostgresFire,
    PostgresFirstDue,
    RedisOpen,
)
from bench.redis import EVERYSEC, RedisStore
from bench.rounds import (
    BASELINE,
    OURS,
    SECONDS,
    Case,
    Progress,
    interleave,
)
from bench.row import Row
from bench.sqlite import FULL, NORMAL, SqliteTimers
from bench.stores import DELAYS, PAYLOADS, SqliteStore, load_steps
from timingwheel.engine.dispatcher import QUEUE_MAX
from timingwheel.engine.engine import TimerEngine
from timingwheel.engine.records import timers_acknowledged, timers_fired
from wal import filesystem
from wal.bodies import encode_records
from wal.filesystem import FileSystem
from wal.frame import frame_bytes

GROUP = "recovery"
FROM_LOG = "open from the log"
FROM_SNAPSHOT = "open from a snapshot"
FIRST_DUE = "open until the first due is known"
FIRED_AT_ONCE = 100_000
SQLITE_BATCH = 1_000
"""Timers that SQLite hands out and acknowledges in one transaction: its best of several."""
_NEVER_BYTES = 1 << 40
_OPEN_SECONDS = 2.0
_OPEN_EACH_SECONDS = 40e-6  # a timer and round, in all rivals together
_FIRE_EACH_SECONDS = 300e-6  # likewise
_POLL_SECONDS = 0.001


@dataclass(frozen=True, slots=True)
class Size:
    """How large a run is.

    Attributes:
        timers: pending, at each open.
        fired: due at once.
        rounds: that a figure is the median of.
        tries: see `interleave`.
    """

    timers: Sequence[int]
    fired: int
    rounds: int
    tries: int


FULL_SIZE = Size(timers=(100_000, 1_000_000), fired=FIRED_AT_ONCE, rounds=3, tries=3)
NORMAL_SIZE = Size(timers=(100_000,), fired=FIRED_AT_ONCE, rounds=3, tries=2)
SMOKE_SIZE = Size(timers=(5_000,), fired=5_000, rounds=1, tries=1)


class ReadBack(Case):
    """The disk's own time to read the files that an open reads.

    Args:
        directory: of the store.
        suffix: ".seg" for an open from the log; ".snap" where a snapshot covers it.
    """

    peer = BASELINE

    def __init__(self, directory: Path, suffix: str) -> None:
        self._directory = directory
        self._files = FileSystem(directory)
        self._names = [name for name in self._files.names() if name.endswith(suffix)]
        total = sum((directory / name).stat().st_size for name in self._names)
        self.note = f"reads {total / (1 << 20):,.0f} MiB"

    def prepare(self) -> None:
        forget(self._directory)

    def run(self) -> float:
        start = time.perf_counter()
        for name in self._names:
            with filesystem.opened(self._files, name) as handle:
                offset = 0
                while piece := os.pread(handle, 1 << 20, offset):
                    offset += len(piece)
        return time.perf_counter() - start


class Open(Case):
    """Opens an engine on a directory, counts, and closes it."""

    peer = OURS

    def __init__(self, directory: Path, timers: int) -> None:
        self._directory = directory
        self._timers = timers

    def prepare(self) -> None:
        forget(self._directory)

    def run(self) -> float:
        start = time.perf_counter()
        engine = TimerEngine(
            self._directory,
            _ignore,
            autostart=False,
            snapshot_every_bytes=_NEVER_BYTES,
        )
        took = time.perf_counter() - start
        with engine:
            assert len(engine) == self._timers, f"{len(engine)} of {self._timers}"
        return took


class SqliteOpen(Case):
    """Opens the database and reads every timer into memory."""

    def __init__(self, directory: Path, timers: int) -> None:
        self.peer = SqliteTimers.names[FULL]
        self._directory = directory
        self._timers = timers

    def prepare(self) -> None:
        forget(self._directory)

    def run(self) -> float:
        start = time.perf_counter()
        with closing(SqliteTimers(self._directory / "timers.sqlite", FULL)) as timers:
            loaded = self._read(timers)
            took = time.perf_counter() - start
        assert loaded == self._timers
        return took

    def _read(self, timers: SqliteTimers) -> int:
        return len(timers.read_all())


class SqliteFirstDue(SqliteOpen):
    """Opens the database and asks for the first due: the rest stays on disk."""

    def _read(self, timers: SqliteTimers) -> int:
        assert timers.first_due() is not None
        return self._timers


class Fire(Case):
    """Starts an engine in which all is due; ends when every handler is acknowledged."""

    peer = OURS

    def __init__(self, directory: Path, timers: int) -> None:
        self._directory = directory
        self._timers = timers
        self._engine: TimerEngine | None = None

    def prepare(self) -> None:
        self.close()
        shutil.rmtree(self._directory, ignore_errors=True)
        called = count(1)
        self._all_called = threading.Event()

        def handler(_timer_id: int, _payload: bytes) -> None:
            if next(called) == self._timers:
                self._all_called.set()

        self._engine = TimerEngine(
            self._directory, handler, autostart=False, snapshot_every_bytes=_NEVER_BYTES
        )
        for step in load_steps(self._timers):
            self._engine.schedule_many([0.0] * step, PAYLOADS[:step])

    def run(self) -> float:
        engine = self._engine
        assert engine is not None
        start = time.perf_counter()
        engine.start()
        self._all_called.wait()
        while len(engine):  # the last handlers have yet to be acknowledged
            time.sleep(_POLL_SECONDS)
        assert not engine.cancel(1)  # a reply waits for all that was appended before it
        return time.perf_counter() - start

    def close(self) -> None:
        if self._engine is not None:
            self._engine.close()


class SqliteFire(Case):
    """Takes what is due in batches, runs the handler, and deletes them, each durably."""

    def __init__(self, directory: Path, timers: int, synchronous: str) -> None:
        self.peer = SqliteTimers.names[synchronous]
        self.equal = synchronous == FULL
        self.note = "" if self.equal else "not durable"
        directory.mkdir()
        self._timers = timers
        self._store = SqliteTimers(directory / "timers.sqlite", synchronous)

    def prepare(self) -> None:
        for step in load_steps(self._timers):
            self._store.schedule_many(
                (due, payload) for due, payload in enumerate(PAYLOADS[:step])
            )

    def run(self) -> float:
        start = time.perf_counter()
        fired = 0
        while batch := self._store.take_due(SQLITE_BATCH):
            for timer_id, payload in batch:
                _ignore(timer_id, payload)
            self._store.acknowledge_many(timer_id for timer_id, _ in batch)
            fired += len(batch)
        assert fired == self._timers
        return time.perf_counter() - start

    def close(self) -> None:
        self._store.close()


class FireWrites(Case):
    """The disk's own time for the bytes of all fires and acknowledgements."""

    peer = BASELINE

    def __init__(self, directory: Path, timers: int) -> None:
        step = min(timers, QUEUE_MAX)
        ids = range(step)
        events = [timers_fired(ids, 1), timers_acknowledged(ids)]
        self._timers = timers
        self._disk = Fdatasync(
            directory,
            size_bytes=frame_bytes(len(encode_records(events))),
            timers=step,
        )
        self.note = self._disk.note

    def run(self) -> float:
        start = time.perf_counter()
        written = 0
        while written < self._timers:
            written += self._disk.write()
        return time.perf_counter() - start

    def close(self) -> None:
        self._disk.close()


def steps(size: Size, directory: Path) -> list[Step]:
    """Return the steps that measure opens and a fire of many at once.

    Args:
        size: how many timers, how often.
        directory: on the disk in question; left empty again.
    """
    fired = size.fired
    return [
        *(
            Step(
                GROUP,
                f"open with {timers:,} pending",
                _OPEN_SECONDS + timers * _OPEN_EACH_SECONDS * (1 + size.rounds),
                partial(measure_opens, timers, size, directory),
            )
            for timers in size.timers
        ),
        Step(
            GROUP,
            f"{fired:,} due at once",
            _OPEN_SECONDS + fired * _FIRE_EACH_SECONDS * size.rounds,
            partial(measure_fires, fired, size, directory),
        ),
    ]


def measure_opens(
    timers: int, size: Size, directory: Path, progress: Progress
) -> list[Row]:
    """Measure opening a store from its log, from a snapshot, and the peers."""
    group = f"{GROUP}, {timers:,} pending"
    with work_directory(directory) as place, ExitStack() as stack:
        progress(f"{group}: loading all rivals")
        fill(place / "log", timers)
        shutil.copytree(place / "log", place / "snapshot")
        take_snapshot(place / "snapshot")
        SqliteStore(place / "sqlite", timers).close()
        peers = _peers_that_open(stack, place, timers)
        log, snapshot = place / "log", place / "snapshot"
        rows = [
            row
            for name, store, suffix in (
                (FROM_LOG, log, ".seg"),
                (FROM_SNAPSHOT, snapshot, ".snap"),
            )
            for row in interleave(
                ReadBack(store, suffix),
                [Open(store, timers), *peers[name]],
                group=group,
                name=name,
                rounds=size.rounds,
                tries=size.tries,
                unit=SECONDS,
                progress=progress,
            )
        ]
        return rows + interleave(
            None,
            [Open(snapshot, timers), *peers[FIRST_DUE]],
            group=group,
            name=FIRST_DUE,
            rounds=size.rounds,
            tries=size.tries,
            unit=SECONDS,
            progress=progress,
        )


def measure_fires(
    timers: int, size: Size, directory: Path, progress: Progress
) -> list[Row]:
    """Measure many timers that are due at once, until all are acknowledged."""
    group = f"{GROUP}, {timers:,} due at once"
    with work_directory(directory) as place, ExitStack() as stack:

        def of(kind: Kind, case: Callable[[], Case]) -> list[Case]:
            return list(opened(stack, kind, case))

        def everysec() -> Case:
            store = RedisStore(at("everysec"), 0, fsync=EVERYSEC, equal=False)
            return BatchFire(store, timers)

        at = place.joinpath
        cases = [
            *of(HERE, lambda: FireWrites(place, timers)),
            *of(HERE, lambda: Fire(at("ours"), timers)),
            *of(HERE, lambda: SqliteFire(at("full"), timers, FULL)),
            *of(lmdb_store.KIND, lambda: BatchFire(LmdbStore(at("lmdb"), 0), timers)),
            *of(redis.KIND, lambda: BatchFire(RedisStore(at("always"), 0), timers)),
            *of(beanstalk.KIND, lambda: BeanstalkFire(at("beanstalk"), timers)),
            *of(postgres.KIND, lambda: PostgresFire(at("postgres"), timers)),
            *of(HERE, lambda: SqliteFire(at("normal"), timers, NORMAL)),
            *of(redis.KIND, everysec),
        ]
        return interleave(
            cases[0],
            cases[1:],
            group=group,
            name="handlers run, acknowledged durably",
            rounds=size.rounds,
            tries=size.tries,
            unit=SECONDS,
            progress=progress,
        )


def _peers_that_open(
    stack: ExitStack, place: Path, timers: int
) -> dict[str, list[Case]]:
    """Return who opens, by the line of the table; their files are made."""

    def of(kind: Kind, case: Callable[[], Case]) -> list[Case]:
        return list(opened(stack, kind, case))

    at = place.joinpath
    sqlite = SqliteOpen(at("sqlite"), timers)
    lmdb = of(lmdb_store.KIND, lambda: LmdbOpen(at("lmdb"), timers))
    return {
        FROM_LOG: [
            sqlite,
            *lmdb,
            *of(redis.KIND, lambda: RedisOpen(at("aof"), timers, snapshot=False)),
            *of(beanstalk.KIND, lambda: BeanstalkOpen(at("binlog"), timers)),
        ],
        FROM_SNAPSHOT: [
            sqlite,
            *lmdb,
            *of(redis.KIND, lambda: RedisOpen(at("rdb"), timers, snapshot=True)),
        ],
        FIRST_DUE: [
            SqliteFirstDue(at("sqlite"), timers),
            *of(lmdb_store.KIND, lambda: LmdbFirstDue(at("lmdb"), timers)),
            *of(postgres.KIND, lambda: PostgresFirstDue(at("postgres"), timers)),
        ],
    }


def fill(directory: Path, timers: int) -> None:
    """Make a store of so many timers whose log holds all and which has no snapshot."""
    with TimerEngine(
        directory, _ignore, autostart=False, snapshot_every_bytes=_NEVER_BYTES
    ) as engine:
        for step in load_steps(timers):
            engine.schedule_many(DELAYS[:step], PAYLOADS[:step])


def take_snapshot(directory: Path) -> None:
    """Add a snapshot of all its timers to a store."""
    with TimerEngine(directory, _ignore, autostart=False) as engine:
        engine.snapshot()


def _ignore(_timer_id: int, _payload: bytes) -> None:
    return None
