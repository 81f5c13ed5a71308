"""The history: finished runs, attempts, ended jobs and skip ranges, in SQLite.

It follows the log. Entries come in LSN order and durable ones only; each batch is one
transaction that also notes the LSN it reaches, so after a crash the same entries can be
offered again and those that are in are passed over: never lost, never twice.

Why one statement a table and batch: a Python thread gives up the GIL at every step of
SQLite, and beside a busy thread waits 5 ms to get it back. The columns go in as one JSON
array and the bodies as one blob that SQL cuts up; bodies as hex text took 1.6 times as
long, and so much more room. Measured on two cores with batches of 1,000 runs, all
indexes and synchronous=FULL: 43,000 rows a second alone (30,000 with a tag each), 12,000
beside a thread that never rests.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from heapq import merge
from typing import Any, Final

import msgspec

from timingwheel.jobs.model import (
    Attempt,
    Job,
    JobId,
    Run,
    RunId,
    SkipRange,
    SkipReason,
)
from timingwheel.jobs.store import JobPage, JobQuery, RunPage, RunQuery
from timingwheel.stores.history_apply import apply, require_order
from timingwheel.stores.history_entries import (
    Entry,
    HistoryRun,
    decode_attempt,
    decode_job,
    decode_run,
    encode,
    plain_attempt,
    plain_job,
)
from timingwheel.stores.history_errors import HistoryError
from timingwheel.stores.history_queries import (
    job_cursor,
    job_order,
    jobs_question,
    parse_run_cursor,
    plain_jobs_question,
    run_cursor,
    run_order,
    runs_question,
)
from timingwheel.stores.history_retention import Purge, Retention
from timingwheel.stores.history_schema import HISTORY
from timingwheel.stores.identity import require_run_id
from timingwheel.stores.sqlite_connections import Connections
from timingwheel.stores.sqlite_files import Connection

__all__ = [
    "Entry",
    "History",
    "HistoryError",
    "HistoryRun",
    "Retention",
    "encode",
    "parse_run_cursor",
    "run_cursor",
    "run_order",
]


_RUN: Final = "SELECT body FROM runs WHERE job_id = ? AND nominal_ns = ? AND n = ?"
_PLAIN_RUN: Final = _RUN + " AND plain"


class History:
    """A history database, open.

    Every method may be called from any thread. Writers take turns; readers have
    connections of their own, see what is committed, and hold up nobody. In memory there
    is one connection, and all take turns.

    Args:
        path: of the database file, made if there is none; ":memory:" for none.

    Raises:
        HistoryError: here and in every method: the file is damaged, foreign, newer, or
            cannot be written now.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.unwritten: Callable[[], Sequence[Entry]] = tuple
        """Returns what is final, cannot be written now, and is to be shown all the
        same; in LSN order."""
        self._connections = Connections(path, HISTORY)
        try:
            row = self.rows("SELECT reached_lsn FROM progress", [])[0]
        except HistoryError:
            self._connections.close()
            raise
        self._reached_lsn: int = row[0]

    @property
    def reached_lsn(self) -> int:
        """The highest LSN whose entries are in and committed; 0 before the first."""
        return self._reached_lsn

    def close(self) -> None:
        """Close the database; who reads just now may end. Idempotent."""
        self._connections.close()

    # -- writing ------------------------------------------------------------------------

    def write(self, entries: Sequence[Entry], *, now_ns: int = 0) -> None:
        """Take in entries, all or none; those up to reached_lsn are in already.

        Args:
            entries: in LSN order; all that share an LSN come in one call.
            now_ns: the present, wall: when the jobs among them ended, about.

        Raises:
            ArgumentError: entries are out of order, or a body is not what its kind says.
        """
        with self._connections.writing:
            new = [entry for entry in entries if entry.lsn > self._reached_lsn]
            if not new:
                return
            require_order(new)
            with self._connections.transaction() as connection:
                apply(connection, new, now_ns)
            self._reached_lsn = new[-1].lsn

    def purge(self, now_ns: int, retention: Retention) -> int:
        """Forget what is old enough; return how many runs, jobs and skip ranges.

        Others can write between its steps.
        """
        walk = Purge(now_ns, retention)
        deleted = 0
        while not walk.is_done:
            deleted += self.purge_step(walk)
        return deleted

    def purge_step(self, walk: Purge) -> int:
        """Go on with a purge by one transaction; return as purge does."""
        with self._connections.transaction() as connection:
            return walk.step(connection)

    # -- runs ---------------------------------------------------------------------------

    def run(self, run_id: RunId) -> HistoryRun | None:
        """Return a finished run, with what a retry needs.

        Raises:
            ArgumentError: the text is no run id.
        """
        body = self._body(_RUN, require_run_id(run_id))
        return None if body is None else decode_run(body)

    def runs(self, query: RunQuery) -> RunPage:
        """Return a page of finished runs, newest nominal time first.

        Raises:
            ArgumentError: limit or cursor is invalid.
        """
        bodies = self.bodies(*runs_question(query))
        runs = [_decode_run_alone(body).run for body in bodies[: query.limit]]
        more = len(bodies) > query.limit
        return RunPage(runs, run_cursor(runs[-1]) if more else None)

    def attempts(self, run_id: RunId) -> list[Attempt]:
        """Return the ended attempts of a run, also of one that is live, in order."""
        question = "SELECT body FROM attempts WHERE run_id = ? ORDER BY number"
        attempts = [decode_attempt(body) for body in self.bodies(question, [run_id])]
        if not attempts:
            body = self._body(_PLAIN_RUN, require_run_id(run_id))
            if body is not None:
                value = decode_run(body)
                attempts = [value.attempt or plain_attempt(value.run)]
        return attempts

    def planned(self, job_id: JobId) -> list[tuple[int, int]]:
        """Return (nominal_ns, n) of each finished run of a job, oldest first."""
        rows = self.rows(
            "SELECT json_group_array(json_array(nominal_ns, n)) FROM (SELECT nominal_ns,"
            " n FROM runs WHERE job_id = ? ORDER BY nominal_ns, n)",
            [job_id],
        )
        return [(nominal_ns, n) for nominal_ns, n in json.loads(rows[0][0])]

    def skips(self, job_id: JobId, since_ns: int = 0) -> list[SkipRange]:
        """Return the skip ranges of a job that reach past an instant, oldest first."""
        rows = self.rows(
            "SELECT json_group_array(json_array(reason, first_ns, last_ns, count)) FROM "
            "(SELECT * FROM skips WHERE job_id = ? AND last_ns >= ? ORDER BY first_ns)",
            [job_id, since_ns],
        )
        return [
            SkipRange(job_id, SkipReason(reason), first_ns, last_ns, count)
            for reason, first_ns, last_ns, count in json.loads(rows[0][0])
        ]

    def count_dead(self, limit: int) -> int:
        """Return how many runs are on the dead-letter list, at most `limit`.

        Cost: O(result), in the index on the dead letter.
        """
        question = (
            "SELECT count(*) FROM (SELECT 1 FROM runs WHERE state IN ('failed', 'lost')"
            " AND NOT discarded LIMIT ?)"
        )
        count: int = self.rows(question, [limit])[0][0]
        return count

    # -- jobs ---------------------------------------------------------------------------

    def job(self, job_id: JobId) -> Job | None:
        """Return an ended job."""
        body = self._body("SELECT body FROM jobs WHERE id = ?", [job_id])
        if body is not None:
            return decode_job(body)
        body = self._body("SELECT body FROM runs WHERE job_id = ? AND plain", [job_id])
        return None if body is None else plain_job(decode_run(body))

    def has_job(self, job_id: JobId) -> bool:
        """Return whether an ended job is kept."""
        question = (
            "SELECT EXISTS (SELECT 1 FROM jobs WHERE id = ?) "
            "OR EXISTS (SELECT 1 FROM runs WHERE job_id = ? AND plain)"
        )
        return bool(self.rows(question, [job_id, job_id])[0][0])

    def jobs(self, query: JobQuery) -> JobPage:
        """Return a page of ended jobs, newest first. A job with a live run is left out.

        Raises:
            ArgumentError: limit or cursor is invalid.
        """
        jobs = [decode_job(body) for body in self.bodies(*jobs_question(query))]
        plain_question = plain_jobs_question(query)
        if plain_question is not None:
            bodies = self.bodies(*plain_question)
            plain = [plain_job(decode_run(body)) for body in bodies]
            jobs = list(merge(jobs, plain, key=job_order, reverse=True))
        more = len(jobs) > query.limit
        del jobs[query.limit :]
        return JobPage(jobs, job_cursor(jobs[-1]) if more else None)

    # -- the file -----------------------------------------------------------------------

    def check(self) -> None:
        """Check that the whole file is sound and its tables agree with each other.

        Cost: reads all of it.

        Raises:
            HistoryError: it is not; the message says what SQLite found.
        """
        found = self.rows("PRAGMA integrity_check(1)", [])[0][0]
        stray = self.rows(
            "SELECT count(*) FROM run_tags WHERE (job_id, nominal_ns, n) NOT IN "
            "(SELECT job_id, nominal_ns, n FROM runs)",
            [],
        )[0][0]
        if stray:
            found = f"{stray} tags belong to no run"
        if found != "ok":
            raise HistoryError(self.path, f"is damaged ({found})", "restore a backup")

    def _body(self, question: str, values: Sequence[object]) -> bytes | None:
        bodies = self.bodies(question, values)
        return bodies[0] if bodies else None

    def bodies(self, question: str, values: Sequence[object]) -> list[bytes]:
        """Return the only column of what a question finds."""
        return [body for (body,) in self.rows(question, values)]

    def rows(self, question: str, values: Sequence[object]) -> list[Any]:
        """Return what a question finds.

        Cost: while something is unwritten, that of writing all of it.
        """
        if self.unwritten():
            with self._connections.preview(self._show_unwritten) as connection:
                return connection.execute(question, values).fetchall()
        with self._connections.reader() as connection:
            return connection.execute(question, values).fetchall()

    def _show_unwritten(self, connection: Connection) -> None:
        new = [entry for entry in self.unwritten() if entry.lsn > self._reached_lsn]
        if new:
            apply(connection, new, 0)  # when jobs ended matters to a purge alone


class _RunAlone(msgspec.Struct):
    """A HistoryRun without what a list does not show; the rest is not even decoded."""

    run: Run


_decode_run_alone: Final = msgspec.msgpack.Decoder(_RunAlone).decode
