"""One atomic group in the making: its events, and the values they will leave behind.

A request that touches several jobs and runs decides about each in turn, and the later
ones must see what was decided about the earlier. `Decision` collects the events and
answers with the values as they will be; nothing changes until the group is appended and
applied.
"""

from __future__ import annotations

from typing import Final

import msgspec

from timingwheel.engine.timeline import Now
from timingwheel.jobs.model import (
    Attempt,
    Job,
    JobId,
    JobState,
    Payload,
    Run,
    RunState,
    SkipRange,
    SkipReason,
)
from timingwheel.jobs.states import ACTIVE, FINAL, require_step
from timingwheel.jobs.store import Request
from timingwheel.jobs.triggers import AfterJobs
from timingwheel.stores.entries import RunKey
from timingwheel.stores.history_entries import HistoryRun
from timingwheel.stores.history_queries import DEAD
from timingwheel.stores.records import Kind, LiveRun, record
from timingwheel.stores.state import StoreState

NO_PAYLOAD: Final = Payload(b"")


class _Count:
    """How many runs of a job are active, and how many wait for one to end."""

    __slots__ = ("active", "behind")

    def __init__(self) -> None:
        self.active = 0
        self.behind = 0

    def add(self, live: LiveRun, times: int) -> None:
        """Count a run, or with -1 count it no more."""
        state = live.run.state
        if state in ACTIVE or (state is RunState.PLANNED and not live.behind):
            self.active += times
        if live.behind:
            self.behind += times


class Decision:
    """Collects the events of a group.

    Args:
        state: as it is before the group.
        first_lsn: the LSN that the first event gets.
        now: the present.
    """

    def __init__(self, state: StoreState, first_lsn: int, now: Now) -> None:
        self.state = state
        self.now = now
        self.events: list[bytes] = []
        self.requests: list[Request] = []
        """Attempts that are to be ended once the group is appended."""
        self._first_lsn = first_lsn
        self._jobs: dict[JobId, Job | None] = {}
        self._dependents: dict[str, set[JobId]] = {}
        self._runs: dict[JobId, dict[RunKey, LiveRun | None]] = {}
        self._counts: dict[JobId, _Count] = {}

    @property
    def next_lsn(self) -> int:
        """The LSN that the next event gets."""
        return self._first_lsn + len(self.events)

    # -- values as they will be -----------------------------------------------------------

    def job(self, job_id: JobId) -> Job | None:
        """Return a live job."""
        if job_id in self._jobs:
            return self._jobs[job_id]
        entry = self.state.jobs.get(job_id)
        return entry.job if entry is not None else None

    def run(self, job_id: JobId, nominal_ns: int, n: int) -> LiveRun | None:
        """Return a live run."""
        for live in self.runs(job_id):
            if (live.run.nominal_ns, live.run.n) == (nominal_ns, n):
                return live
        return None

    def dependents(self, job_id: JobId) -> list[JobId]:
        """Return the jobs that come after a job."""
        found = self.state.dependents.get(job_id, set())
        return sorted(found | self._dependents.get(job_id, set()))

    def runs(self, job_id: JobId) -> list[LiveRun]:
        """Return the live runs of a job, in the order in which they were made."""
        entry = self.state.jobs.get(job_id)
        found = (
            {key: run.live for key, run in entry.runs.items()}
            if entry is not None
            else {}
        )
        merged: dict[RunKey, LiveRun | None] = {**found, **self._runs.get(job_id, {})}
        lives = [live for live in merged.values() if live is not None]
        return sorted(lives, key=lambda live: live.seq)

    def active_count(self, job_id: JobId) -> int:
        """Return how many runs count as "still running". O(runs) at first, then O(1)."""
        return self._count(job_id).active

    def behind_count(self, job_id: JobId) -> int:
        """Return how many wait for a former one to end. Cost: as active_count."""
        return self._count(job_id).behind

    def _count(self, job_id: JobId) -> _Count:
        count = self._counts.get(job_id)
        if count is None:
            count = self._counts[job_id] = _Count()
            for live in self.runs(job_id):
                count.add(live, 1)
        return count

    def _set_run(self, live: LiveRun, value: LiveRun | None) -> None:
        """Note what a run will be, and keep the counts of its job right."""
        job_id, key = live.run.job_id, (live.run.nominal_ns, live.run.n)
        runs = self._runs.setdefault(job_id, {})
        count = self._counts.get(job_id)
        if count is not None:
            former = runs.get(key)
            entry = self.state.jobs.get(job_id)
            if key not in runs and entry is not None and key in entry.runs:
                former = entry.runs[key].live
            if former is not None:
                count.add(former, -1)
            if value is not None:
                count.add(value, 1)
        runs[key] = value

    def behind(self, job_id: JobId) -> list[LiveRun]:
        """Return the runs that wait for a former one to end."""
        return [live for live in self.runs(job_id) if live.behind]

    # -- events ---------------------------------------------------------------------------

    def save_job(self, job: Job) -> None:
        """A live job has this value now."""
        self._jobs[job.id] = job
        if isinstance(job.trigger.when, AfterJobs):
            for before in job.trigger.when.jobs:
                self._dependents.setdefault(before, set()).add(job.id)
        self.events.append(record(Kind.JOB_SAVED, job))

    def end_job(self, job: Job, state: JobState) -> None:
        """A job leaves for the history."""
        job = msgspec.structs.replace(job, state=state, next_ns=None, pause=None)
        self._jobs[job.id] = None
        self.events.append(record(Kind.JOB_ENDED, job))

    def save_run(self, live: LiveRun) -> None:
        """A live run has this value now."""
        self._set_run(live, live)
        self.events.append(record(Kind.RUN_SAVED, live))

    def new_run(self, run: Run, **more: object) -> LiveRun:
        """A run comes into being."""
        live = LiveRun(run=run, seq=self.next_lsn, **more)  # type: ignore[arg-type]
        self.save_run(live)
        return live

    def move_run(self, live: LiveRun, run: Run, **more: object) -> LiveRun:
        """A live run takes a step of the table."""
        require_step(live.run.state, run.state)
        cleared: dict[str, object] = {
            "token": 0,
            "worker": "",
            "wait_ns": None,
            "behind": False,
        }
        live = msgspec.structs.replace(live, run=run, **(cleared | more))
        self.save_run(live)
        return live

    def end_run(self, live: LiveRun, run: Run) -> Run:
        """A run reaches a final state and leaves for the history."""
        require_step(live.run.state, run.state)
        assert run.state in FINAL
        job = self.job(run.job_id)
        assert job is not None, "a live run belongs to a live job"
        self._set_run(live, None)
        value = HistoryRun(
            run=run,
            tags=job.tags,
            # For a retry by hand. A cancel may end a thousand others, in one group.
            payload=live.payload or job.payload if run.state in DEAD else NO_PAYLOAD,
            policy=live.policy or job.policy,
        )
        self.events.append(record(Kind.RUN_ENDED, value))
        return run

    def end_attempt(self, attempt: Attempt) -> None:
        """An attempt is over."""
        self.events.append(record(Kind.ATTEMPT_ENDED, attempt))

    def note_skips(
        self,
        job_id: JobId,
        reason: SkipReason,
        *,
        first_ns: int,
        last_ns: int,
        count: int,
    ) -> None:
        """Occurrences in a row do not run."""
        value = SkipRange(job_id, reason, first_ns, last_ns, count)
        self.events.append(record(Kind.SKIPS_NOTED, value))
