"""A store in a directory moves into a database, with all ids, ends and plans.

    make the tables, marked as arriving: nobody may serve them
    rows in batches; one that is there is left, so it can go on after a kill
    count; the directory is marked as moved; the mark of the tables goes

The new store has the uuid of the old one, so keys find the jobs that they found before, and
its numbers begin beyond those of the old one. What was running counts as running by a
worker that does not live: the first node tries it again, as after any crash.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final

from timingwheel.errors import TimingWheelError
from timingwheel.jobs.model import Job, JobState, RunState
from timingwheel.jobs.triggers import AfterJobs
from timingwheel.stores.deciding.live import LiveRun
from timingwheel.stores.history_entries import searched
from timingwheel.stores.leaving import Leaving
from timingwheel.stores.postgres.connections import Connections
from timingwheel.stores.postgres.making import is_arriving, make_ready
from timingwheel.stores.postgres.rows import (
    JOB_COLUMNS,
    PAST_COLUMNS,
    RUN_COLUMNS,
    LiveRow,
    job_values,
    live_values,
    past_values,
    shard_of,
)
from timingwheel.stores.postgres.schema import SHARDS
from timingwheel.stores.postgres.writing import (
    ATTEMPT_COLUMNS,
    DEPENDENCY_COLUMNS,
    NAME_COLUMNS,
    SKIP_COLUMNS,
    insertion,
)
from timingwheel.stores.records import encode

BATCH: Final = 500
NUMBER_STEP: Final = 1_024
"""As the sequence of numbers counts: see schema.py."""
_COUNTS: Final = {
    "jobs": "SELECT count(*) FROM timingwheel_job",
    "live runs": "SELECT count(*) FROM timingwheel_run",
    "ended runs": "SELECT count(*) FROM timingwheel_past",
    "attempts": "SELECT count(*) FROM timingwheel_attempt",
    "skip ranges": "SELECT count(*) FROM timingwheel_skips",
    "queues": "SELECT count(*) FROM timingwheel_queue",
    "calendars": "SELECT count(*) FROM timingwheel_calendar",
}
_QUEUE: Final = """
INSERT INTO timingwheel_queue (name, version, next_start_ns, body) VALUES (%s, 1, 0, %s)
ON CONFLICT DO NOTHING
"""
_CALENDAR: Final = """
INSERT INTO timingwheel_calendar (name, version, body) VALUES (%s, 1, %s)
ON CONFLICT DO NOTHING
"""
_NUMBERS: Final = """
SELECT setval('timingwheel_token', greatest(%s, 1)),
    setval('timingwheel_number', %s), setval('timingwheel_inc', 1)
"""
_STEPS: Final = "UPDATE timingwheel_meta SET steps_ns = %s"
_ARRIVED: Final = "UPDATE timingwheel_meta SET arriving = NULL"
DEAD_INC: Final = 1
"""Of a worker that never lived: the first number, which nobody is given."""
_TABLES: Final = {
    "timingwheel_job": JOB_COLUMNS,
    "timingwheel_run": RUN_COLUMNS,
    "timingwheel_past": PAST_COLUMNS,
    "timingwheel_attempt": ATTEMPT_COLUMNS,
    "timingwheel_skips": SKIP_COLUMNS,
    "timingwheel_dependency": DEPENDENCY_COLUMNS,
    "timingwheel_name": NAME_COLUMNS,
}
Tell = Callable[[str], object]
Values = tuple[Any, ...]


class MoveRefusedError(TimingWheelError):
    """The target is not empty, or is not what is arriving; nothing was changed."""


class Arriving:
    """Takes a store that leaves its directory into a database. One thread at a time.

    Args:
        leaving: what comes.
        where: the database.
        tell: is told in words what is done.
        shards: of the new store.
    """

    def __init__(
        self,
        leaving: Leaving,
        where: str,
        *,
        tell: Tell = lambda _: None,
        shards: int = SHARDS,
    ) -> None:
        self._leaving = leaving
        self._connections = Connections(where)
        self._tell = tell
        self._shards = shards
        self._seen: Counter[str] = Counter()

    def close(self) -> None:
        """Let go of the connections. Idempotent."""
        self._connections.close()

    def prepare(self, *, resume: bool) -> None:
        """Make the tables, marked so that nobody serves them.

        Args:
            resume: they may be there, as a former call has left them.

        Raises:
            MoveRefusedError: there are tables, and this is not their store on its way.
        """
        store = uuid.UUID(bytes=self._leaving.uuid)
        with self._connections.lent() as connection:
            there = is_arriving(connection)
            if there is None:
                make_ready(connection, shards=self._shards, arriving=store)
                return
        if there != store:
            raise MoveRefusedError(
                "the database has a job store already: pass another database, or a role "
                "with another search_path"
            )
        if not resume:
            raise MoveRefusedError(
                "a move into this database was begun and has not ended: pass --resume"
            )

    def run(self) -> dict[str, int]:
        """Copy all, and compare counts; return them. It may be called again.

        Raises:
            MoveRefusedError: the counts differ.
        """
        self._seen.clear()
        for rows in self._batches("jobs", self._live()):
            self._insert(rows)
        for rows in self._batches("ended jobs", self._ended_jobs()):
            self._insert(rows)
        for rows in self._batches("ended runs", self._ended_runs()):
            self._insert(rows)
        for rows in self._batches("skip ranges", self._skips()):
            self._insert(rows)
        self._places()
        last = self._leaving.last_number
        beyond = (last // NUMBER_STEP + 1) * NUMBER_STEP
        self._connections.all(
            [(_NUMBERS, [last, beyond]), (_STEPS, [self._leaving.steps_ns])]
        )
        found = {
            name: int(self._connections.rows(sql)[0][0])
            for name, sql in _COUNTS.items()
        }
        expected = {name: self._seen[name] for name in _COUNTS}
        if found != expected:
            raise MoveRefusedError(
                f"the database has {found}, and the directory {expected}: the target is "
                "not to be used; make it anew and move again"
            )
        return found

    def end(self) -> None:
        """Let nodes serve the tables."""
        self._connections.rows(_ARRIVED)

    def counts(self) -> dict[str, int]:
        """Return how many of each there are to move; nothing is written."""
        self._seen.clear()
        for source in (
            self._live(),
            self._ended_jobs(),
            self._ended_runs(),
            self._skips(),
        ):
            for _ in source:
                pass
        self._seen["queues"] = len(self._leaving.queues())
        self._seen["calendars"] = len(self._leaving.calendars())
        return {name: self._seen[name] for name in _COUNTS}

    # -- rows -----------------------------------------------------------------------------

    def _live(self) -> Iterator[list[tuple[str, Values]]]:
        for job, runs in self._leaving.live_jobs():
            self._seen["jobs"] += 1
            self._seen["live runs"] += len(runs)
            rows = [("timingwheel_job", self._job(job, live=True))]
            for live in runs:
                rows += self._run(live, job)
            if job.name is not None and job.state is not JobState.CANCELLED:
                shard = shard_of(job.name, self._shards)
                rows.append(("timingwheel_name", (shard, job.name, job.id)))
            when = job.trigger.when
            if isinstance(when, AfterJobs):
                for before in dict.fromkeys(when.jobs):
                    shard = shard_of(before, self._shards)
                    rows.append(("timingwheel_dependency", (shard, before, job.id)))
            yield rows

    def _run(self, live: LiveRun, job: Job) -> Iterator[tuple[str, Values]]:
        run = live.run
        former = None
        if run.state is RunState.RUNNING:
            former = LiveRow(live, 1, inc=DEAD_INC)
        values = live_values(live, job, self._shards, version=1, former=former, asked=0)
        yield "timingwheel_run", values
        shard = shard_of(run.job_id, self._shards)
        for attempt in self._leaving.attempts(run.id):
            self._seen["attempts"] += 1
            key = (shard, run.job_id, run.nominal_ns, run.n)
            yield "timingwheel_attempt", (*key, attempt.number, encode(attempt))

    def _job(self, job: Job, *, live: bool) -> Values:
        return job_values(job, self._shards, now_ns=job.created_ns, live=live)

    def _ended_jobs(self) -> Iterator[list[tuple[str, Values]]]:
        for job in self._leaving.ended_jobs():
            self._seen["jobs"] += 1
            yield [("timingwheel_job", self._job(job, live=False))]

    def _ended_runs(self) -> Iterator[list[tuple[str, Values]]]:
        for value in self._leaving.ended_runs():
            self._seen["ended runs"] += 1
            attempts = []
            if value.attempt is None:
                attempts = self._leaving.attempts(value.run.id)
            values = past_values(value, self._shards, version=1, attempts=attempts)
            yield [("timingwheel_past", values)]

    def _skips(self) -> Iterator[list[tuple[str, Values]]]:
        for one in self._leaving.skips():
            self._seen["skip ranges"] += 1
            key = (shard_of(one.job_id, self._shards), one.job_id, one.first_ns)
            values = (*key, one.reason.value, one.last_ns, one.count)
            yield [("timingwheel_skips", values)]

    def _places(self) -> None:
        queues, calendars = self._leaving.queues(), self._leaving.calendars()
        self._seen["queues"], self._seen["calendars"] = len(queues), len(calendars)
        for queue in queues:
            self._connections.rows(_QUEUE, [searched(queue.name), encode(queue)])
        for name, calendar in calendars.items():
            self._connections.rows(_CALENDAR, [searched(name), encode(calendar)])

    # -- inside ---------------------------------------------------------------------------

    def _batches(
        self, what: str, source: Iterable[list[tuple[str, Values]]]
    ) -> Iterator[list[tuple[str, Values]]]:
        done, rest = 0, iter(source)
        while part := list(islice(rest, BATCH)):
            yield [row for rows in part for row in rows]
            done += len(part)
            self._tell(f"{what}: {done:,}")

    def _insert(self, rows: Sequence[tuple[str, Values]]) -> None:
        """Write rows of several tables in one message; those that are there stay."""
        by_table: dict[str, list[Values]] = {}
        for table, values in rows:
            by_table.setdefault(table, []).append(values)
        self._connections.all(
            [
                insertion(table, _TABLES[table], values)
                for table, values in by_table.items()
            ]
        )
