"""What is live in the embedded store, one thing at a time; plain jobs as jobs like others.

Methods that say so are called under the core's lock; the others take it for short steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from timingwheel.engine.core import EngineCore
from timingwheel.engine.records import Base, TimerId
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

WALK_SLOTS: Final = 1_024


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
        """Return a live run; the lock is held.

        Raises:
            ArgumentError: the text is no run id.
        """
        job_id, nominal_ns, n = require_run_id(run_id)
        for run in self.live_runs_of(job_id):
            if (run.nominal_ns, run.n) == (nominal_ns, n):
                return run
        return None

    def walk_plain(
        self, states: frozenset[RunState] | None = None
    ) -> Iterator[list[PlainRow]]:
        """Yield plain jobs, a few at a time; takes the lock for each step.

        Args:
            states: only those whose run is in one of these; None: all. A row that is
                not wanted is told by its state alone, which costs a tenth.
        """
        slot, table = 0, self._core.state.table
        while slot < table.slot_count:
            with self._core.lock:
                timers = [
                    row.timer_id
                    for row in table.walk(slot, slot + WALK_SLOTS)
                    if states is None or self._may_be(row, states)
                ]
                rows = [self.plain_row_of(timer_id) for timer_id in timers]
            yield [row for row in rows if row is not None]
            slot += WALK_SLOTS

    def _may_be(self, row: Row, states: frozenset[RunState]) -> bool:
        if row.state is State.FIRED:
            return RunState.RUNNING in states
        if RunState.PLANNED in states and RunState.READY in states:
            return True
        is_due = self._core.state.is_held(row.timer_id)
        return (RunState.READY if is_due else RunState.PLANNED) in states
