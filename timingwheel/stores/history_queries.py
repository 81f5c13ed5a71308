"""Questions to the history as SQL: filters, order and cursors.

Runs go by (nominal_ns, job id, n) and jobs by (created_ns, job id), greatest first; text
is compared by code points, as Python does. A cursor names the last row of its page, so
a page begins right after it, whatever has been written or purged meanwhile; and whoever
mixes these rows with others in the same order can cut a page anywhere: `run_cursor`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from timingwheel.errors import ArgumentError
from timingwheel.jobs.model import Job, JobState, Run, RunState, parse_run_id
from timingwheel.jobs.store import JobQuery, RunQuery
from timingwheel.stores.history_entries import searched

LIMIT_MAX: Final = 1_000
DEAD: Final = frozenset({RunState.FAILED, RunState.LOST})
"""States of the dead letter."""

Question = tuple[str, list[object]]
"""A statement and its parameters."""

_CURSOR_FIX: Final = "pass the cursor of the page before, or None for the first"


def run_order(run: Run) -> tuple[int, str, int]:
    """Return a run's place in the order of pages, which go from the greatest down."""
    return run.nominal_ns, run.job_id, run.n


def run_cursor(run: Run) -> str:
    """Return the cursor of a page whose last run this is."""
    return run.id


def parse_run_cursor(cursor: str) -> tuple[int, str, int]:
    """Return the place of a cursor, as run_order gives it.

    Raises:
        ArgumentError: it is none.
    """
    try:
        job_id, nominal_ns, n = parse_run_id(cursor)
    except ValueError as error:
        raise ArgumentError("cursor", cursor, _CURSOR_FIX) from error
    return nominal_ns, job_id, n


def job_order(job: Job) -> tuple[int, str]:
    """Return a job's place in the order of pages, which go from the greatest down."""
    return job.created_ns, job.id


def job_cursor(job: Job) -> str:
    """Return the cursor of a page whose last job this is."""
    return f"{job.created_ns}@{job.id}"


def parse_job_cursor(cursor: str) -> tuple[int, str]:
    """Return the place of a cursor, as job_order gives it.

    Raises:
        ArgumentError: it is none.
    """
    created, at, job_id = cursor.partition("@")
    if not at or not job_id or not created.isdecimal():
        raise ArgumentError("cursor", cursor, _CURSOR_FIX)
    return int(created), job_id


def runs_question(query: RunQuery) -> Question:
    """Return the question for the bodies of a page of runs, and one more.

    Raises:
        ArgumentError: limit or cursor is invalid.
    """
    wanted = _Wanted("r")
    source = "runs AS r"
    order = "r"
    tags = dict(query.tags or {})
    if tags and query.job_id is None:
        # The rarest tag would be the best guide; the first is as good a guess as any.
        name = next(iter(tags))
        source = (
            "run_tags AS t CROSS JOIN runs AS r ON r.job_id = t.job_id "
            "AND r.nominal_ns = t.nominal_ns AND r.n = t.n"
        )
        order = "t"
        value = tags.pop(name)
        wanted.add("t.name = ? AND t.value = ?", searched(name), searched(value))
    wanted.tags(tags)
    wanted.equal("job_id", query.job_id)
    # A plus keeps SQLite from an index that is worse than that of the job or the tag.
    wanted.equal("task", query.task, guides=source == "runs AS r" and not query.job_id)
    wanted.equal("queue", query.queue)
    if query.states is not None:
        wanted.states(query.states)
    if query.discarded is not None:
        wanted.add("r.discarded = ?", int(query.discarded))
    if query.since_ns is not None:
        wanted.add(f"{order}.nominal_ns >= ?", query.since_ns)
    if query.until_ns is not None:
        wanted.add(f"{order}.nominal_ns < ?", query.until_ns)
    place = f"({order}.nominal_ns, {order}.job_id, {order}.n)"
    if query.cursor is not None:
        wanted.add(f"{place} < (?, ?, ?)", *parse_run_cursor(query.cursor))
    by = [f"{order}.{column}" for column in ("nominal_ns", "job_id", "n")]
    return wanted.page(source, by, limit=query.limit)


def jobs_question(query: JobQuery) -> Question:
    """Return the question for the bodies of a page of jobs with a row, and one more.

    Raises:
        ArgumentError: limit or cursor is invalid.
    """
    wanted = _Wanted("j")
    wanted.equal("state", query.state)
    wanted.equal("task", query.task)
    wanted.equal("queue", query.queue)
    wanted.equal("name", query.name)
    if query.search is not None:
        wanted.add("instr(lower(j.name), lower(?)) > 0", searched(query.search))
    wanted.tags(query.tags or {})
    wanted.add("NOT EXISTS (SELECT 1 FROM revived WHERE revived.job_id = j.id)")
    if query.cursor is not None:
        place = parse_job_cursor(query.cursor)
        wanted.add("(j.created_ns, j.id) < (?, ?)", *place)
    return wanted.page("jobs AS j", ["j.created_ns", "j.id"], limit=query.limit)


def plain_jobs_question(query: JobQuery) -> Question | None:
    """Return the same for jobs that stand in their only run; None: no such can match."""
    if query.state not in {None, JobState.DONE}:
        return None
    if query.name is not None or query.search is not None or query.tags:
        return None
    wanted = _Wanted("r")
    wanted.add("r.plain")
    wanted.equal("task", query.task, guides=False)
    wanted.equal("queue", query.queue)
    if query.cursor is not None:
        place = parse_job_cursor(query.cursor)
        wanted.add("(r.created_ns, r.job_id) < (?, ?)", *place)
    return wanted.page("runs AS r", ["r.created_ns", "r.job_id"], limit=query.limit)


class _Wanted:
    """The conditions of a WHERE, with their values in the same order.

    Column names come from this module alone; all that a caller gives is a value.
    """

    def __init__(self, table: str) -> None:
        self._table = table
        self._terms: list[str] = []
        self._values: list[object] = []

    def page(self, source: str, order: list[str], *, limit: int) -> Question:
        """Return the question for a page's bodies, and one more: is there another?"""
        if not 1 <= limit <= LIMIT_MAX:
            raise ArgumentError("limit", limit, f"pass 1 to {LIMIT_MAX}")
        select = (f"SELECT {self._table}.body FROM", source)
        where = ("WHERE", " AND ".join(self._terms) or "TRUE")
        by = ("ORDER BY", ", ".join(f"{column} DESC" for column in order), "LIMIT ?")
        return " ".join((*select, *where, *by)), [*self._values, limit + 1]

    def add(self, term: str, *values: object) -> None:
        self._terms.append(term)
        self._values += values

    def equal(self, column: str, value: str | None, *, guides: bool = True) -> None:
        if value is not None:
            plus = "" if guides else "+"
            # str, because the sqlite3 module would not take a StrEnum for a str.
            self.add(f"{plus}{self._table}.{column} = ?", searched(str(value)))

    def states(self, states: frozenset[RunState]) -> None:
        if states and states <= DEAD:
            # In the very words of the index on the dead letter.
            self.add(f"{self._table}.state IN ('failed', 'lost')")
        marks = ", ".join("?" * len(states))
        self.add(f"+{self._table}.state IN ({marks})", *sorted(map(str, states)))

    def tags(self, tags: Mapping[str, str]) -> None:
        for name, value in tags.items():
            each = f"json_each({self._table}.tags)"
            tag = ("SELECT 1 FROM", each, "AS e WHERE e.key = ? AND e.value = ?")
            self.add(f"EXISTS ({' '.join(tag)})", searched(name), searched(value))
