"""Pages of jobs and runs: live ones from memory, those that are over from the history.

What is live is read first, then the history is written up and read: whatever ends in
between is found there, and nothing falls between the two.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from heapq import nlargest
from typing import Final

from msgspec.structs import replace

from timingwheel.errors import ArgumentError
from timingwheel.jobs.model import (
    Attempt,
    Job,
    JobState,
    Run,
    RunId,
    RunState,
)
from timingwheel.jobs.states import FINAL
from timingwheel.jobs.store import JobPage, JobQuery, RunPage, RunQuery
from timingwheel.stores.history_queries import (
    job_cursor,
    job_order,
    jobs_question,
    parse_job_cursor,
    parse_run_cursor,
    run_cursor,
    run_order,
    runs_question,
)
from timingwheel.stores.identity import require_run_id
from timingwheel.stores.owner import StoreOwner
from timingwheel.stores.plain_page import newest_plain, plain_from

_LIVE_STATES: Final = frozenset(RunState) - FINAL
_RUNNING: Final = frozenset({RunState.RUNNING})


class Listing:
    """Answers queries about a store.

    Args:
        owner: whose.
    """

    def __init__(self, owner: StoreOwner) -> None:
        self._owner = owner
        self._core = owner.core
        self._state = owner.state
        self._read = owner.read
        self._history = owner.history

    def attempts(self, run_id: RunId) -> list[Attempt]:
        """Return the attempts of a run, the one that goes on last."""
        with self._core.lock:
            going_on = [
                Attempt(
                    run_id=run_id,
                    number=running.run.attempts,
                    worker=running.worker,
                    token=running.token,
                    started_ns=running.run.started_ns or 0,
                )
                for running in self._state.running.values()
                if running.run.id == run_id
            ] or self._left_behind(run_id)
        self._owner.flush()
        ended = self._history.attempts(run_id)
        numbers = {attempt.number for attempt in ended}
        return ended + [found for found in going_on if found.number not in numbers]

    def _left_behind(self, run_id: RunId) -> list[Attempt]:
        """Return the attempt at a plain job's run that a dead process has left.

        The log says that it started; by whom and when exactly died with the process.
        """
        row = self._read.plain_row(require_run_id(run_id)[0])
        if row is None or not row.fired or row.token in self._state.running:
            return []
        run = row.run(is_due=True)
        if run.id != run_id:
            return []
        return [
            Attempt(
                run_id=run_id,
                number=run.attempts,
                worker="",
                token=row.token,
                started_ns=run.due_ns,
            )
        ]

    def runs(self, query: RunQuery) -> RunPage:
        """Return a page of runs, live and finished, newest nominal time first."""
        if not query.in_order and query.job_id is None:
            return self._runs_by_place(query)
        live = self._live_runs(query)
        self._owner.flush()
        page = self._history.runs(query)
        if not live:
            return page
        ended = {run.id for run in page.runs}
        both = [run for run in live if run.id not in ended] + page.runs
        both.sort(key=run_order, reverse=True)
        more = len(both) > query.limit or page.cursor is not None
        runs = both[: query.limit]
        return RunPage(runs, run_cursor(runs[-1]) if more else None)

    def _live_runs(self, query: RunQuery) -> list[Run]:
        """Return the first live runs that a query means, in page order."""
        if query.states is not None and not query.states & _LIVE_STATES:
            return []
        count = query.limit + 1
        few = self._few_runs(query)
        if few is not None:
            return self._newest(query, few)
        # Plain ones first: one that becomes a job like others in between is then seen
        # twice, and not missed.
        plain = newest_plain(self._read, query, count)
        once = {run.id: run for run in (*plain, *self._newest(query, self._others()))}
        return nlargest(count, once.values(), key=run_order)

    def _few_runs(self, query: RunQuery) -> list[Run] | None:
        """Return all live runs that a query can mean; None: that needs a walk."""
        with self._core.lock:
            if query.job_id is not None:
                return self._read.live_runs_of(query.job_id)
            # What had fired before a restart runs and is not known to, until nodes are
            # served again: that is found by the long way.
            is_known = not self._core.state.ahead_count
            states = query.states
            if is_known and states is not None and states & _LIVE_STATES == _RUNNING:
                return [one.run for one in self._state.running.values()]
        return None

    def _others(self) -> Iterator[Run]:
        """Yield the live runs of jobs that are not plain."""
        with self._core.lock:  # for the copy alone: there may be a million
            entries = list(self._state.runs.values())
        return (entry.live.run for entry in entries)

    def _newest(self, query: RunQuery, runs: Iterable[Run]) -> list[Run]:
        """Return those of some runs that a page may show, and one more, in its order."""
        meant = (run for run in runs if _is_meant(query, run))
        if query.tags:
            meant = (run for run in meant if self._has_tags(run, query.tags))
        return nlargest(query.limit + 1, meant, key=run_order)

    def _runs_by_place(self, query: RunQuery) -> RunPage:
        """Return a page of runs: plain ones, others that live, then those that are over.

        In this order, one that becomes another kind meanwhile may come twice, and is not
        missed.
        """
        runs_question(replace(query, cursor=None))  # checks the limit
        phase, rest = _parse_cursor(query.cursor or "plain:0")
        found: list[Run] = []
        if phase == "plain":
            rows, slot = plain_from(self._read, query, int(rest), count=query.limit)
            found = [self._read.seen_run(seen) for seen in rows]
            if slot is not None:
                return RunPage(found, f"plain:{slot}")
            phase, rest = "live", ""
        room = query.limit - len(found)
        if phase == "live" and room:
            others = replace(query, cursor=rest or None, limit=room)
            more = self._newest(others, self._others())
            found += more[:room]
            if len(more) > room:
                return RunPage(found, f"live:{run_cursor(found[-1])}")
            phase, rest = "over", ""
        room = query.limit - len(found)
        if not room:
            return RunPage(found, f"{phase}:{rest}")
        self._owner.flush()
        page = self._history.runs(replace(query, cursor=rest or None, limit=room))
        live = {run.id for run in found}  # and may have ended since it was read
        found += [run for run in page.runs if run.id not in live]
        return RunPage(found, None if page.cursor is None else f"over:{page.cursor}")

    def _has_tags(self, run: Run, tags: Mapping[str, str]) -> bool:
        entry = self._state.jobs.get(run.job_id)
        return entry is not None and tags.items() <= entry.job.tags.items()

    def jobs(self, query: JobQuery) -> JobPage:
        """Return a page of jobs: live ones, plain ones, then those that are over."""
        jobs_question(replace(query, cursor=None))  # checks the limit
        phase, rest = _parse_cursor(query.cursor or "live:")
        found: list[Job] = []
        if phase == "live":
            found, more = self._live_jobs(query, rest)
            if more:
                return JobPage(found, f"live:{job_cursor(found[-1])}")
            phase, rest = "plain", "0"
        if phase == "plain":
            plain, slot = self._plain_jobs(query, int(rest), query.limit - len(found))
            found += plain
            if slot is not None:
                return JobPage(found, f"plain:{slot}")
            phase, rest = "over", ""
        left = query.limit - len(found)
        if left <= 0:
            return JobPage(found, "over:")
        self._owner.flush()
        older = replace(query, cursor=rest or None, limit=left)
        page = self._history.jobs(older)
        listed = {job.id for job in found}  # it may have ended since it was read alive
        with self._core.lock:  # one that a retry by hand has revived lives
            alive = self._state.jobs
            found += [j for j in page.jobs if j.id not in alive and j.id not in listed]
        cursor = None if page.cursor is None else f"over:{page.cursor}"
        return JobPage(found, cursor)

    def _live_jobs(self, query: JobQuery, cursor: str) -> tuple[list[Job], bool]:
        """Return the next live jobs, newest first, and whether there are more."""
        # By value and not by place: others end and begin between two pages.
        before = parse_job_cursor(cursor) if cursor else None
        with self._core.lock:  # for the copy alone
            entries = list(self._state.jobs.values())
        jobs = (entry.job for entry in entries)
        wanted = (
            job
            for job in jobs
            if _is_wanted(query, job) and (before is None or job_order(job) < before)
        )
        found = nlargest(query.limit + 1, wanted, key=job_order)
        return found[: query.limit], len(found) > query.limit

    def _plain_jobs(
        self, query: JobQuery, slot: int, limit: int
    ) -> tuple[list[Job], int | None]:
        if query.name is not None or query.search is not None or query.tags:
            return [], None
        if query.state not in (None, JobState.ACTIVE):
            return [], None
        rows, next_slot = plain_from(self._read, query, slot, count=limit)
        plain = [self._read.plain_row_in(row) for row, _ in rows]
        return [row.plain.job(row.job_id, row.base) for row in plain], next_slot


def _parse_cursor(cursor: str) -> tuple[str, str]:
    """Return the part of what is asked for that a page is in, and where in it.

    Raises:
        ArgumentError: it is invalid.
    """
    phase, colon, rest = cursor.partition(":")
    is_known = colon and phase in ("live", "plain", "over")
    if not is_known or (phase == "plain" and not rest.isdecimal()):
        raise ArgumentError("cursor", cursor, "pass the one of the page before")
    return phase, rest


def _is_meant(query: RunQuery, run: Run) -> bool:
    return (
        (query.states is None or run.state in query.states)
        and query.task in (None, run.task)
        and query.queue in (None, run.queue)
        and query.discarded in (None, run.discarded)
        and (query.since_ns is None or run.nominal_ns >= query.since_ns)
        and (query.until_ns is None or run.nominal_ns < query.until_ns)
        and (query.cursor is None or run_order(run) < parse_run_cursor(query.cursor))
    )


def _is_wanted(query: JobQuery, job: Job) -> bool:
    return (
        query.state in (None, job.state)
        and query.task in (None, job.task)
        and query.queue in (None, job.queue)
        and query.name in (None, job.name)
        and (query.search is None or _is_part(query.search, job.name))
        and (query.tags is None or query.tags.items() <= job.tags.items())
    )


def _is_part(search: str, name: str | None) -> bool:
    """Return whether a name has a part, as the history's `instr(lower(...))` has it."""
    return name is not None and search.encode().lower() in name.encode().lower()
