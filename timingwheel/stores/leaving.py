"""All that a store in a directory holds, for another store to take over.

Plain jobs are told as jobs like others. Nothing else may happen to the store meanwhile:
it is opened for this alone, and serves nobody.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from timingwheel.jobs.calendars import NamedCalendar
from timingwheel.jobs.model import Attempt, Job, Queue, RunId, RunState, SkipRange
from timingwheel.stores.deciding.live import LiveRun
from timingwheel.stores.embedded import EmbeddedStore
from timingwheel.stores.history_entries import HistoryRun, decode_job, decode_run
from timingwheel.stores.plain import PlainRow

PAGE: Final = 500
_JOBS: Final = "SELECT body FROM jobs WHERE id > ? ORDER BY id LIMIT ?"
_RUNS: Final = """
SELECT body FROM runs WHERE (job_id, nominal_ns, n) > (?, ?, ?)
ORDER BY job_id, nominal_ns, n LIMIT ?
"""
_SKIPPED: Final = "SELECT DISTINCT job_id FROM skips ORDER BY job_id"


class Leaving:
    """Reads a store from end to end. Thread-safe only if nothing else uses the store.

    Args:
        store: open, and served by nobody.
    """

    def __init__(self, store: EmbeddedStore) -> None:
        self._owner = store._owner  # noqa: SLF001 - one store, read by another module
        self._owner.flush()
        self._history = self._owner.history

    @property
    def uuid(self) -> bytes:
        """Of the store: ids of keyed jobs are made with it."""
        return self._owner.tag.bytes

    @property
    def last_number(self) -> int:
        """No token, no job and no run of it has a greater one."""
        return int(self._owner.core.log.appended_lsn)

    @property
    def steps_ns(self) -> int:
        """How far the wall clock is ahead of elapsed time."""
        return self._owner.state.steps_ns

    def queues(self) -> list[Queue]:
        """Return the queues that were set."""
        return list(self._owner.state.queues.values())

    def calendars(self) -> dict[str, NamedCalendar]:
        """Return the calendars by name."""
        return dict(self._owner.state.calendars)

    def live_jobs(self) -> Iterator[tuple[Job, list[LiveRun]]]:
        """Yield live jobs, each with its live runs."""
        for entry in list(self._owner.state.jobs.values()):
            yield entry.job, [run.live for run in entry.runs.values()]
        for rows in self._owner.read.walk_plain():
            for row in rows:
                yield row.plain.job(row.job_id, row.base), [self._plain_run(row)]

    def _plain_run(self, row: PlainRow) -> LiveRun:
        running = self._owner.state.running.get(row.token) if row.fired else None
        run = row.run(is_due=False)
        waits = run.state is RunState.PLANNED
        worker = "" if running is None else running.worker
        return LiveRun(
            run=run if running is None else running.run,
            seq=row.timer_id,
            token=row.token if row.fired else 0,
            worker=worker or ("unknown" if row.fired else ""),
            wait_ns=row.deadline_ns if waits else None,
            base=row.base,
        )

    def attempts(self, run_id: RunId) -> list[Attempt]:
        """Return the attempts of a run that have ended."""
        return self._history.attempts(run_id)

    def ended_jobs(self) -> Iterator[Job]:
        """Yield jobs that have ended, but for plain ones: they are their only run."""
        last, bodies = "", [b""]
        while bodies:
            bodies = self._history.bodies(_JOBS, [last, PAGE])
            for body in bodies:
                job = decode_job(body)
                last = job.id
                if job.id not in self._owner.state.jobs:
                    yield job

    def ended_runs(self) -> Iterator[HistoryRun]:
        """Yield runs that have ended, by their keys."""
        last, bodies = ("", 0, 0), [b""]
        while bodies:
            bodies = self._history.bodies(_RUNS, [*last, PAGE])
            for body in bodies:
                value = decode_run(body)
                last = value.run.job_id, value.run.nominal_ns, value.run.n
                yield value

    def skips(self) -> Iterator[SkipRange]:
        """Yield what did not run and why."""
        for (job_id,) in self._history.rows(_SKIPPED, []):
            yield from self._history.skips(job_id)
