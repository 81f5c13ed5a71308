"""The embedded store's state as decisions see it. Plain jobs are none of it."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Final

from timingwheel.jobs.calendars import NamedCalendar
from timingwheel.jobs.model import Job, JobId
from timingwheel.jobs.schedule import Schedule
from timingwheel.stores.deciding.firing import schedule_now
from timingwheel.stores.deciding.live import LiveRun, RunKey
from timingwheel.stores.state import StoreState

_NONE: Final[AbstractSet[JobId]] = frozenset()


class StateView:
    """A View of a StoreState; the core's lock is held.

    Args:
        state: what is seen.
    """

    def __init__(self, state: StoreState) -> None:
        self._state = state

    @property
    def calendars(self) -> Mapping[str, NamedCalendar]:
        """All named calendars."""
        return self._state.calendars

    @property
    def steps_ns(self) -> int:
        """How far the wall clock is ahead of elapsed time."""
        return self._state.steps_ns

    def job(self, job_id: JobId) -> Job | None:
        """Return a live job."""
        entry = self._state.jobs.get(job_id)
        return entry.job if entry is not None else None

    def named(self, name: str) -> JobId | None:
        """Return the live job that has a name."""
        return self._state.names.get(name)

    def runs(self, job_id: JobId) -> dict[RunKey, LiveRun]:
        """Return the live runs of a job."""
        entry = self._state.jobs.get(job_id)
        if entry is None:
            return {}
        return {key: run.live for key, run in entry.runs.items()}

    def run(self, job_id: JobId, key: RunKey) -> LiveRun | None:
        """Return a live run."""
        entry = self._state.jobs.get(job_id)
        run = None if entry is None else entry.runs.get(key)
        return None if run is None else run.live

    def dependents(self, job_id: JobId) -> AbstractSet[JobId]:
        """Return the live jobs that come after a job."""
        return self._state.dependents.get(job_id, _NONE)

    def schedule(self, job: Job) -> Schedule:
        """Return the schedule of a recurring job; as it is in the state, made once."""
        entry = self._state.jobs.get(job.id)
        if entry is None or entry.job is not job:
            return schedule_now(job, self._state.calendars)
        if entry.schedule is None:
            entry.schedule = schedule_now(job, self._state.calendars)
        return entry.schedule
