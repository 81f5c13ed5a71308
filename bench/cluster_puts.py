"""Making jobs in PostgreSQL, beside raw inserts of the same payload on the same server.

*raw INSERT* is one row (id, due, payload) a commit, prepared, on a connection a caller: what
a program does that writes its jobs into a table of its own. The baseline is the disk: it
writes and syncs what the server's log has grown by for one call of ours, in whole blocks as
the server does.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench.cluster_place import Database, Place, place_in
from bench.disk import Fdatasync
from bench.durable import OneCaller, Threads
from bench.postgres_server import connect_at_once
from bench.progress import Step
from bench.rounds import JOBS, OURS, Progress, Sustained, interleave
from bench.row import Row
from bench.schedulers import HOUR, NO_OP, NS, PAYLOAD, TASKS, draft_of
from timingwheel.jobs.triggers import Delay
from timingwheel.scheduler.scheduler import Scheduler

CALLERS = (1, 8)
BATCH = 1_000
_BLOCK_BYTES = 8_192
_WARM_UP_CALLS = 40
_PAYLOAD = PAYLOAD.encode()
_RAW_TABLE = """
CREATE TABLE IF NOT EXISTS raw (id bigserial PRIMARY KEY, due bigint NOT NULL, payload bytea NOT NULL)
"""
_RAW_INSERT = "INSERT INTO raw (due, payload) VALUES (%b, %b) RETURNING id"
_RAW_COPY = "COPY raw (due, payload) FROM STDIN (FORMAT BINARY)"


class Ours:
    """Scheduler on the database, as a client: it starts nothing."""

    peer = OURS
    equal = True
    note = ""

    def __init__(self, database: Database) -> None:
        self._app = Scheduler(database.url, tasks=TASKS)
        self._put = self._app.desk.store.put
        self._draft = draft_of(NO_OP.call(PAYLOAD), Delay(3_600 * NS))
        self._connection = connect_at_once(database.where)
        self._connection.execute(_RAW_TABLE, prepare=False)

    def schedule(self) -> object:
        return self._app.schedule(NO_OP.call(PAYLOAD), HOUR)

    def schedule_many(self) -> int:
        self._put([self._draft] * BATCH)
        return BATCH

    def schedule_within(self) -> int:
        """Make a job in a transaction of the caller's that writes a row, too."""
        connection = self._connection
        with connection.transaction():
            connection.execute(_RAW_INSERT, _raw_row())
            self._app.schedule(NO_OP.call(PAYLOAD), HOUR, conn=connection)
        return 1

    def close(self) -> None:
        self._connection.close()
        self._app.stop(grace=1)


class Raw:
    """A table of one's own, and a connection for each caller."""

    peer = "raw INSERT"
    equal = True
    note = ""

    def __init__(self, database: Database) -> None:
        self._free: queue.SimpleQueue = queue.SimpleQueue()
        for _ in range(max(CALLERS)):
            self._free.put(connect_at_once(database.where))
        one = self._free.get()
        one.execute(_RAW_TABLE, prepare=False)
        self._free.put(one)

    def schedule(self) -> object:
        connection = self._free.get()
        row = connection.execute(_RAW_INSERT, _raw_row())
        found = row.fetchone()
        self._free.put(connection)
        return found

    def schedule_many(self) -> int:
        connection = self._free.get()
        with connection.cursor() as cursor, cursor.copy(_RAW_COPY) as copy:
            copy.set_types(["int8", "bytea"])
            for _ in range(BATCH):
                copy.write_row(_raw_row())
        self._free.put(connection)
        return BATCH

    def schedule_within(self) -> int:
        """Write two rows in one transaction."""
        connection = self._free.get()
        with connection.transaction():
            connection.execute(_RAW_INSERT, _raw_row())
            connection.execute(_RAW_INSERT, _raw_row())
        self._free.put(connection)
        return 1

    def close(self) -> None:
        while not self._free.empty():
            self._free.get().close()


def _raw_row() -> tuple[int, bytes]:
    return time.time_ns() + 3_600 * NS, _PAYLOAD


class Repeated(Sustained):
    """A loop around one call.

    Args:
        one: whose.
        call: makes some jobs and returns how many.
        note: what one must know.
    """

    def __init__(self, one: Ours | Raw, call: Callable[[], int], note: str) -> None:
        self.peer, self.equal, self.note = one.peer, one.equal, note
        self._call = call

    def run(self) -> float:
        return self.repeat(self._call)


@dataclass(frozen=True, slots=True)
class PutSizes:
    """How large these are.

    Attributes:
        seconds: that each works in a round.
        rounds: that a figure is the median of.
        tries: see `interleave`.
    """

    seconds: float
    rounds: int
    tries: int


FULL = PutSizes(seconds=0.5, rounds=7, tries=2)
NORMAL = PutSizes(seconds=0.5, rounds=3, tries=2)
SMOKE = PutSizes(seconds=0.05, rounds=1, tries=1)


def _callers(number: int, ours: Ours, raw: Raw) -> list[Sustained]:
    if number == 1:
        return [OneCaller(ours), OneCaller(raw)]
    return [Threads(ours, number), Threads(raw, number)]


def _batches(ours: Ours, raw: Raw) -> list[Sustained]:
    many = f"{BATCH:,} drafts in one call of the store"
    return [
        Repeated(ours, ours.schedule_many, many),
        Repeated(raw, raw.schedule_many, f"COPY of {BATCH:,} rows"),
    ]


def _within(ours: Ours, raw: Raw) -> list[Sustained]:
    return [
        Repeated(
            ours, ours.schedule_within, "a row of the caller's, and a job by conn="
        ),
        Repeated(raw, raw.schedule_within, "two rows"),
    ]


@dataclass(frozen=True, slots=True)
class _Load:
    """One line: who works, what one call of ours is, and how many jobs it makes."""

    cases: Callable[[Ours, Raw], list[Sustained]]
    call: Callable[[Ours], object] = Ours.schedule
    jobs: int = 1
    warm_up_calls: int = _WARM_UP_CALLS


_LOADS = {
    "schedule, 1 caller": _Load(partial(_callers, 1)),
    f"schedule, {CALLERS[1]} threads": _Load(partial(_callers, CALLERS[1])),
    "schedule, in a transaction": _Load(_within, Ours.schedule_within),
    f"put ({BATCH:,})": _Load(_batches, Ours.schedule_many, BATCH, 4),
}


def steps(group: str, sizes: PutSizes, directory: Path) -> list[Step]:
    """Return the steps that measure puts.

    Args:
        group: of the steps.
        sizes: how large they are.
        directory: on the disk in question; left empty again.
    """
    return [
        Step(
            group,
            "schedule, and put",
            4 + len(_LOADS) * (1 + 3 * sizes.seconds * sizes.rounds),
            partial(_measure, group, sizes, directory),
        )
    ]


def _measure(
    group: str, sizes: PutSizes, directory: Path, progress: Progress
) -> list[Row]:
    with place_in(directory) as place:
        return [
            row
            for name in _LOADS
            for row in _measure_one(name, group, place, sizes, progress)
        ]


def _measure_one(
    name: str, group: str, place: Place, sizes: PutSizes, progress: Progress
) -> list[Row]:
    load = _LOADS[name]
    with ExitStack() as stack:
        database = place.new_database()
        ours = stack.enter_context(closing(Ours(database)))
        raw = stack.enter_context(closing(Raw(database)))
        size_bytes = _written_bytes(place, ours, load)
        disk = stack.enter_context(
            closing(Fdatasync(place.directory, size_bytes=size_bytes, timers=load.jobs))
        )
        cases = load.cases(ours, raw)
        for case in (disk, *cases):
            case.seconds = sizes.seconds
        return interleave(
            disk,
            cases,
            group=f"{group}, 60-byte payloads",
            name=name,
            rounds=sizes.rounds,
            tries=sizes.tries,
            unit=JOBS,
            progress=progress,
        )


def _written_bytes(place: Place, ours: Ours, load: _Load) -> int:
    """Return what one call adds to the server's log, in whole blocks."""
    for _ in range(load.warm_up_calls):
        load.call(ours)
    before = place.wal_bytes()
    for _ in range(load.warm_up_calls):
        load.call(ours)
    each = (place.wal_bytes() - before) / load.warm_up_calls
    return max(1, -(-round(each) // _BLOCK_BYTES)) * _BLOCK_BYTES
