"""Questions to the embedded store: live values from memory, finished ones from history.

Whoever asks has had the history written up first, so nothing falls between the two.
Methods that say so are called under the core's lock; the others take it for short steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from heapq import nlargest
from typing import Final

import msgspec

from timingwheel.engine.core import EngineCore
from timingwheel.engine.records import Base, TimerId
from timingwheel.engine.table import State
from timingwheel.jobs.errors import UnknownJobError
from timingwheel.jobs.model import (
    Attempt,
    Draft,
    Job,
    JobId,
    JobState,
    Payload,
    Run,
    RunId,
    RunState,
    parse_run_id,
)
from timingwheel.jobs.offsets import splay_ns
from timingwheel.jobs.states import FINAL
from timingwheel.jobs.store import JobPage, JobQuery, Load, RunPage, RunQuery
from timingwheel.jobs.triggers import AfterJobs
from timingwheel.stores.entries import RecentEnd
from timingwheel.stores.firing import schedule_for
from timingwheel.stores.history import History
from timingwheel.stores.history_queries import parse_run_cursor, run_cursor, run_order
from timingwheel.stores.identity import StoreTag
from timingwheel.stores.plain import PlainRow, decode_plain
from timingwheel.stores.state import StoreState

WALK_SLOTS: Final = 1_024
STEPS_MAX: Final = 100_000
_LIVE_STATES: Final = frozenset(RunState) - FINAL


class Reading:
    """Reads a store.

    Args:
        core: whose plain jobs.
        state: whose jobs and runs.
        history: what has ended.
        tag: reads job ids.
    """

    def __init__(
        self, core: EngineCore, state: StoreState, history: History, *, tag: StoreTag
    ) -> None:
        self._core = core
        self._state = state
        self._history = history
        self._tag = tag

    # -- one thing; the lock is held --------------------------------------------------------

    def plain_row(self, job_id: str) -> PlainRow | None:
        """Return a plain job of an id; the lock is held."""
        number = self._tag.number(job_id)
        return None if number is None else self.plain_row_of(number)

    def plain_row_of(self, timer_id: int) -> PlainRow | None:
        """Return the plain job of a timer; the lock is held."""
        table = self._core.state.table
        slot = table.slot(timer_id)
        if slot is None:
            return None
        row = table.row(slot)
        return PlainRow(
            TimerId(timer_id),
            self._tag.unkeyed(timer_id),
            base=Base(row.base),
            deadline_ns=row.deadline_ns,
            fired=row.state is State.FIRED,
            token=row.last_lsn,
            plain=decode_plain(row.payload),
        )

    def plain_run(self, row: PlainRow) -> Run:
        """Return the run of a plain job; the lock is held."""
        running = self._state.running.get(row.token) if row.fired else None
        if running is not None:
            return running.run
        return row.run(is_due=self._core.state.is_held(row.timer_id))

    def recent(self, job_id: JobId) -> RecentEnd | None:
        """Return how a job ended a moment ago; the lock is held."""
        return self._state.recent.get(job_id)

    def live_job(self, job_id: JobId) -> Job | None:
        """Return a live job; the lock is held."""
        entry = self._state.jobs.get(job_id)
        if entry is not None:
            return entry.job
        row = self.plain_row(job_id)
        return None if row is None else row.plain.job(job_id, row.base)

    def live_runs_of(self, job_id: JobId) -> list[Run]:
        """Return the live runs of a job; the lock is held."""
        entry = self._state.jobs.get(job_id)
        if entry is not None:
            return [run.live.run for run in entry.runs.values()]
        row = self.plain_row(job_id)
        return [] if row is None else [self.plain_run(row)]

    def live_run(self, run_id: RunId) -> Run | None:
        """Return a live run; the lock is held."""
        job_id, nominal_ns, n = parse_run_id(run_id)
        for run in self.live_runs_of(job_id):
            if (run.nominal_ns, run.n) == (nominal_ns, n):
                return run
        return None

    # -- many -------------------------------------------------------------------------------

    def plain_rows(self) -> Iterator[PlainRow]:
        """Yield all plain jobs; the lock is held. Cost: O(n)."""
        for timer_id in self._core.state.table.timer_ids():
            row = self.plain_row_of(timer_id)
            if row is not None:
                yield row

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
            ]
        return self._history.attempts(run_id) + going_on

    def runs(self, query: RunQuery) -> RunPage:
        """Return a page of runs, live and finished, newest nominal time first."""
        page = self._history.runs(query)  # also checks limit and cursor
        live = self._live_runs(query)
        if not live:
            return page
        both = sorted([*live, *page.runs], key=run_order, reverse=True)
        more = len(both) > query.limit or page.cursor is not None
        runs = both[: query.limit]
        return RunPage(runs, run_cursor(runs[-1]) if more else None)

    def _live_runs(self, query: RunQuery) -> list[Run]:
        """Return the first live runs that a query means, in page order."""
        if query.states is not None and not query.states & _LIVE_STATES:
            return []
        found = (run for run in self._walk_runs(query.job_id) if _is_meant(query, run))
        if query.tags:
            found = (run for run in found if self._has_tags(run, query.tags))
        return nlargest(query.limit + 1, found, key=run_order)

    def _walk_runs(self, job_id: JobId | None) -> Iterator[Run]:
        if job_id is not None:
            with self._core.lock:
                runs = self.live_runs_of(job_id)
            yield from runs
            return
        with self._core.lock:
            runs = [entry.live.run for entry in self._state.runs.values()]
        yield from runs
        for rows in self._walk_plain():
            with self._core.lock:
                runs = [self.plain_run(row) for row in rows]
            yield from runs

    def _walk_plain(self) -> Iterator[list[PlainRow]]:
        slot, table = 0, self._core.state.table
        while slot < table.slot_count:
            with self._core.lock:
                timers = [row.timer_id for row in table.walk(slot, slot + WALK_SLOTS)]
                rows = [self.plain_row_of(timer_id) for timer_id in timers]
            yield [row for row in rows if row is not None]
            slot += WALK_SLOTS

    def _has_tags(self, run: Run, tags: Mapping[str, str]) -> bool:
        entry = self._state.jobs.get(run.job_id)
        return entry is not None and tags.items() <= entry.job.tags.items()

    def jobs(self, query: JobQuery) -> JobPage:
        """Return a page of jobs: live ones, plain ones, then those that are over."""
        phase, _, rest = (query.cursor or "").partition(":")
        found: list[Job] = []
        if phase in ("", "live"):
            start = int(rest) if phase else 0
            found, place = self._live_jobs(query, start)
            if place is not None:
                return JobPage(found, f"live:{place}")
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
        older = msgspec.structs.replace(query, cursor=rest or None, limit=left)
        page = self._history.jobs(older)
        cursor = None if page.cursor is None else f"over:{page.cursor}"
        return JobPage(found + page.jobs, cursor)

    def _live_jobs(self, query: JobQuery, start: int) -> tuple[list[Job], int | None]:
        with self._core.lock:
            jobs = [entry.job for entry in self._state.jobs.values()]
        found: list[Job] = []
        for place in range(start, len(jobs)):
            if _is_wanted(query, jobs[place]):
                if len(found) == query.limit:
                    return found, place
                found.append(jobs[place])
        return found, None

    def _plain_jobs(
        self, query: JobQuery, slot: int, limit: int
    ) -> tuple[list[Job], int | None]:
        if query.name is not None or query.tags:
            return [], None
        if query.state not in (None, JobState.ACTIVE):
            return [], None
        table = self._core.state.table
        found: list[Job] = []
        while slot < table.slot_count:
            with self._core.lock:
                for row in table.walk(slot, slot + 1):
                    plain = self.plain_row_of(row.timer_id)
                    assert plain is not None
                    job = plain.plain.job(plain.job_id, plain.base)
                    if _is_wanted(query, job):
                        if len(found) >= limit:
                            return found, slot
                        found.append(job)
            slot += 1
        return found, None

    # -- the past, for puts -------------------------------------------------------------------

    def past(self, drafts: Sequence[Draft]) -> KnownPast:
        """Look up what drafts refer to that is over; without the lock."""
        payloads: dict[JobId, Payload] = {}
        ends: dict[JobId, RunState] = {}
        for draft in drafts:
            if draft.key is not None:
                job_id = self._tag.keyed(draft.task, draft.key)
                job = self._history.job(job_id)
                if job is not None:
                    payloads[job_id] = job.payload
            if isinstance(draft.trigger.when, AfterJobs):
                for before in map(JobId, draft.trigger.when.jobs):
                    page = self._history.runs(RunQuery(job_id=before, limit=1))
                    if page.runs:
                        ends[before] = page.runs[0].state
        return KnownPast(self, payloads, ends)

    # -- what is to come ------------------------------------------------------------------------

    def load_ahead(self, until_ns: int, step_ns: int) -> list[Load]:
        """Return how many starts are planned in each step from now until then."""
        with self._core.lock:
            now = self._core.now()
            entries = list(self._state.jobs.values())
            planned = [
                run.live.run
                for run in self._state.runs.values()
                if run.live.run.state is RunState.PLANNED
            ]
        start_ns = now.wall_ns
        steps = min(max(-(-(until_ns - start_ns) // step_ns), 0), STEPS_MAX)
        nominal, due = [0] * steps, [0] * steps

        def count(into: list[int], at_ns: int) -> None:
            place = (at_ns - start_ns) // step_ns
            if 0 <= place < steps:
                into[place] += 1

        for rows in self._walk_plain():
            for row in rows:
                count(nominal, row.plain.n)
                count(due, row.plain.n)
        for run in planned:
            count(nominal, run.nominal_ns)
            count(due, run.due_ns)
        end_ns = start_ns + steps * step_ns
        for entry in entries:
            job = entry.job
            if job.next_ns is None or job.state is not JobState.ACTIVE:
                continue
            ahead_ns = now.wall_ns - now.elapsed_ns if job.trigger.is_elapsed else 0
            schedule = schedule_for(self._state, entry)
            offset_ns = splay_ns(job.id, job.trigger.splay_ns)
            for firing in schedule.between_ns(
                job.next_ns, end_ns - ahead_ns, limit=STEPS_MAX
            ):
                count(nominal, firing.utc_ns + ahead_ns)
                count(due, firing.utc_ns + ahead_ns + offset_ns)
        return [
            Load(start_ns + place * step_ns, nominal[place], due[place])
            for place in range(steps)
        ]


class KnownPast:
    """What was looked up before a put, and what has ended since.

    Args:
        reading: sees plain jobs.
        payloads: of keyed jobs that are over.
        ends: of jobs that are over.
    """

    def __init__(
        self,
        reading: Reading,
        payloads: dict[JobId, Payload],
        ends: dict[JobId, RunState],
    ) -> None:
        self._reading = reading
        self._payloads = payloads
        self._ends = ends

    def payload(self, job_id: JobId) -> Payload | None:
        """Return the payload of a job that is over and still kept."""
        recent = self._reading.recent(job_id)
        if recent is not None and recent.payload is not None:
            return recent.payload
        return self._payloads.get(job_id)

    def end(self, job_id: JobId) -> RunState | None:
        """Return how a job ended, None if it is a plain one that has not."""
        if self._reading.plain_row(job_id) is not None:
            return None
        recent = self._reading.recent(job_id)
        if recent is not None and recent.state is not None:
            return recent.state
        if job_id not in self._ends:
            raise UnknownJobError(
                "after", job_id, "pass the id of a job that lives or is still kept"
            )
        return self._ends[job_id]


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
        and (query.tags is None or query.tags.items() <= job.tags.items())
    )
