"""What is live in the embedded store, one thing at a time; plain jobs as jobs like others.

Methods that say so are called under the core's lock; the others take it for short steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from timingwheel.engine.core import EngineCore
from timingwheel.engine.records import Base
from timingwheel.engine.table import Row, State
from timingwheel.jobs.model import (
    Job,
    JobId,
    Run,
    RunId,
    RunState,
)
from timingwheel.stores.entries import RecentEnd
from timingwheel.stores.identity import StoreTag, require_run_id
from timingwheel.stores.plain import PlainRow, decode_plain
from timingwheel.stores.state import StoreState

SeenRow = tuple[Row, bool]
"""A row of the engine's table, and whether it was held when it was read."""
_WALK_SLOTS: Final = 1_024
_PASS_SLOTS: Final = 65_536
"""Slots of one step that passes by what waits in a wheel: some 0.2 ms."""


class Reading:
    """Reads the live part of a store.

    Args:
        core: whose plain jobs.
        state: whose jobs and runs.
        tag: reads job ids.
    """

    def __init__(self, core: EngineCore, state: StoreState, *, tag: StoreTag) -> None:
        self._core = core
        self._state = state
        self._tag = tag

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
        return self.plain_row_in(table.row(slot))

    def plain_id(self, row: Row) -> JobId:
        """Return the id of the plain job of a row."""
        return self._tag.unkeyed(row.timer_id)

    def slot_of(self, row: Row) -> int | None:
        """Return where a row stands now; None: it has ended since it was read."""
        return self._core.state.table.slot(row.timer_id)

    def plain_row_in(self, row: Row) -> PlainRow:
        """Return a row of the engine's table as the plain job that it is."""
        return PlainRow(
            row.timer_id,
            self.plain_id(row),
            base=Base(row.base),
            deadline_ns=row.deadline_ns,
            fired=row.state is State.FIRED,
            token=row.last_lsn,
            plain=decode_plain(row.payload),
        )

    def seen_run(self, seen: SeenRow) -> Run:
        """Return the run of a plain job by its row."""
        row, is_due = seen
        return self.plain_run(self.plain_row_in(row), is_due=is_due)

    def plain_run(self, row: PlainRow, *, is_due: bool) -> Run:
        """Return the run of a plain job.

        Args:
            row: the job's.
            is_due: whether it was held when the row was read.
        """
        running = self._state.running.get(row.token) if row.fired else None
        return row.run(is_due=is_due) if running is None else running.run

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
        if row is None:
            return []
        return [self.plain_run(row, is_due=self._core.state.is_held(row.timer_id))]

    def live_run(self, run_id: RunId) -> Run | None:
        """Return a live run; the lock is held.

        Raises:
            ArgumentError: the text is no run id.
        """
        job_id, nominal_ns, n = require_run_id(run_id)
        for run in self.live_runs_of(job_id):
            if (run.nominal_ns, run.n) == (nominal_ns, n):
                return run
        return None

    def walk_plain(self) -> Iterator[list[PlainRow]]:
        """Yield plain jobs, a few at a time; takes the lock for each step."""
        for rows in self.walk_rows():
            yield [self.plain_row_in(row) for row, _ in rows]

    def walk_rows(
        self, states: frozenset[RunState] | None = None, *, start: int = 0
    ) -> Iterator[list[SeenRow]]:
        """Yield rows of plain jobs and whether each is due, a few at a time.

        Takes the lock for each step. Cost: about 1 us a row, and some ns for one that
        waits in a wheel if nothing planned is wanted.

        Args:
            states: only those whose run is in one of these; None: all.
            start: the slot to begin at.
        """
        table, is_held = self._core.state.table, self._core.state.is_held
        in_wheels = states is None or RunState.PLANNED in states
        slot, step = start, _WALK_SLOTS if in_wheels else _PASS_SLOTS
        while slot < table.slot_count:
            with self._core.lock:
                rows = [
                    (row, is_held(row.timer_id))
                    for row in table.walk(slot, slot + step, in_wheels=in_wheels)
                ]
            if states is not None:
                rows = [seen for seen in rows if plain_state(*seen) in states]
            yield rows
            slot += step


def plain_state(row: Row, is_due: bool) -> RunState:  # noqa: FBT001 - a pair's parts
    """Return the state of a plain job's run, by its row and whether it is held."""
    if row.state is State.FIRED:
        return RunState.RUNNING
    return RunState.READY if is_due else RunState.PLANNED
