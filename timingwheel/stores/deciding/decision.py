"""One atomic group in the making: its changes, and the values they will leave behind.

A request that touches several jobs and runs decides about each in turn, and the later
ones must see what was decided about the earlier. `Decision` collects the changes and
answers with the values as they will be; nothing changes until the store has taken in the
group.
"""

from __future__ import annotations

from collections.abc import Callable
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
from timingwheel.stores.deciding.live import LiveRun, RunKey
from timingwheel.stores.deciding.view import Change, Changed, Value, View
from timingwheel.stores.history_entries import HistoryRun
from timingwheel.stores.history_queries import DEAD

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
    """Collects the changes of a group.

    Args:
        view: of the store, as it is before the group.
        now: the present.
        number: gives a number to the change of a place in the group; it is never given
            again, and over the store's life numbers grow. Asked at most once a place.
    """

    def __init__(self, view: View, now: Now, number: Callable[[int], int]) -> None:
        self.view = view
        self.now = now
        self.changes: list[Change] = []
        self.requests: list[Request] = []
        """Attempts that are to be ended once the group is taken in."""
        self._number = number
        self._jobs: dict[JobId, Job | None] = {}
        self._names: dict[str, JobId] = {}
        self._dependents: dict[str, set[JobId]] = {}
        self._runs: dict[JobId, dict[RunKey, LiveRun | None]] = {}
        self._counts: dict[JobId, _Count] = {}

    def next_number(self) -> int:
        """Return the number of the next change."""
        return self._number(len(self.changes))

    # -- values as they will be -----------------------------------------------------------

    def job(self, job_id: JobId) -> Job | None:
        """Return a live job."""
        if job_id in self._jobs:
            return self._jobs[job_id]
        return self.view.job(job_id)

    def named(self, name: str) -> JobId | None:
        """Return the job that has a name, if it lives."""
        return self._names.get(name) or self.view.named(name)

    def run(self, job_id: JobId, nominal_ns: int, n: int) -> LiveRun | None:
        """Return a live run."""
        for live in self.runs(job_id):
            if (live.run.nominal_ns, live.run.n) == (nominal_ns, n):
                return live
        return None

    def dependents(self, job_id: JobId) -> list[JobId]:
        """Return the jobs that come after a job."""
        found = self.view.dependents(job_id)
        return sorted(found | self._dependents.get(job_id, set()))

    def runs(self, job_id: JobId) -> list[LiveRun]:
        """Return the live runs of a job, in the order in which they were made."""
        merged: dict[RunKey, LiveRun | None] = {
            **self.view.runs(job_id),
            **self._runs.get(job_id, {}),
        }
        lives = [live for live in merged.values() if live is not None]
        return sorted(lives, key=lambda live: live.seq)

    def active_count(self, job_id: JobId) -> int:
        """Return how many runs count as "still running". O(runs) at first, then O(1)."""
        return self._count(job_id).active

    def behind_count(self, job_id: JobId) -> int:
        """Return how many wait for a previous one to end. Cost: as active_count."""
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
            former = runs[key] if key in runs else self.view.run(job_id, key)
            if former is not None:
                count.add(former, -1)
            if value is not None:
                count.add(value, 1)
        runs[key] = value

    def behind(self, job_id: JobId) -> list[LiveRun]:
        """Return the runs that wait for a previous one to end."""
        return [live for live in self.runs(job_id) if live.behind]

    # -- changes --------------------------------------------------------------------------

    def add(self, kind: int, value: Value) -> None:
        """Add a change of a kind that has no method here."""
        self.changes.append((kind, value))

    def save_job(self, job: Job) -> None:
        """A live job has this value now."""
        self._jobs[job.id] = job
        if job.name is not None:
            self._names[job.name] = job.id
        if isinstance(job.trigger.when, AfterJobs):
            for before in job.trigger.when.jobs:
                self._dependents.setdefault(before, set()).add(job.id)
        self.changes.append((Changed.JOB, job))

    def end_job(self, job: Job, state: JobState) -> None:
        """A job leaves for the history."""
        job = msgspec.structs.replace(job, state=state, next_ns=None, pause=None)
        self._jobs[job.id] = None
        self.add(Changed.JOB_ENDED, job)

    def save_run(self, live: LiveRun) -> None:
        """A live run has this value now."""
        self._set_run(live, live)
        self.changes.append((Changed.RUN, live))

    def new_run(self, run: Run, **more: object) -> LiveRun:
        """A run comes into being."""
        live = LiveRun(run=run, seq=self.next_number(), **more)  # type: ignore[arg-type]
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
        self.add(Changed.RUN_ENDED, value)
        return run

    def end_attempt(self, attempt: Attempt) -> None:
        """An attempt is over."""
        self.add(Changed.ATTEMPT_ENDED, attempt)

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
        self.add(Changed.SKIPS, value)
