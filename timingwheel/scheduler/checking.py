"""The doctor: looks over a store and says what is wrong, and what to do about it.

Findings are facts that no later moment mends by itself: jobs that nobody can run, runs
that nobody works on, records that contradict each other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from typing import Final, Literal

import msgspec

from timingwheel.jobs.model import Job, JobState, Run, RunState
from timingwheel.jobs.states import FINAL
from timingwheel.jobs.store import JobQuery, JobStore, RunQuery

Kind = Literal[
    "quarantined",
    "unknown_task",
    "unknown_calendar",
    "stuck_run",
    "orphan_run",
    "expired_run",
    "dead_letter",
    "invariant",
]
_PAGE: Final = 1_000
_LIVE: Final = frozenset(RunState) - FINAL
_ENDED_BADLY: Final = frozenset({RunState.FAILED, RunState.LOST})


class Finding(msgspec.Struct, frozen=True):
    """One thing that is wrong.

    Attributes:
        kind: what kind of thing.
        subject: the id or the name of what it is about.
        message: what was found.
        fix: what to do.
    """

    kind: Kind
    subject: str
    message: str
    fix: str


class Doctor:
    """Looks over one store.

    Args:
        store: which.
        tasks: names of the tasks that this program can run.
        holds: whether this program works on the attempt of a lease's token; None: it
            serves no runs, so it cannot tell.
    """

    def __init__(
        self,
        store: JobStore,
        *,
        tasks: Collection[str],
        holds: Callable[[int], bool] | None,
    ) -> None:
        self._store = store
        self._tasks = tasks
        self._holds = holds

    def findings(self) -> list[Finding]:
        """Return all that is wrong, jobs first.

        Cost: reads every job and every live run.
        """
        return [*self._of_jobs(), *self._of_runs(), *self._of_the_dead()]

    # -- jobs ---------------------------------------------------------------------------

    def _of_jobs(self) -> Iterator[Finding]:
        calendars = self._store.calendars()
        unknown: Counter[str] = Counter()
        for job in self._jobs():
            if job.state is JobState.QUARANTINED:
                yield Finding(
                    "quarantined",
                    job.id,
                    f"its arguments do not fit task {job.task!r}: {job.fault}",
                    f"mend the task, then rebind({job.task!r}, {job.task!r}); the bytes "
                    "are kept",
                )
            if job.state not in {JobState.ACTIVE, JobState.PAUSED}:
                continue
            if job.task not in self._tasks:
                unknown[job.task] += 1
            name = job.trigger.calendar
            if name is not None and name not in calendars:
                yield Finding(
                    "unknown_calendar",
                    job.id,
                    f"its calendar {name!r} is not there, so no day is excluded",
                    f"set it: calendar({name!r}).set(...)",
                )
        for task, count in sorted(unknown.items()):
            yield Finding(
                "unknown_task",
                task,
                f"{count:,} jobs wait for this task, which this program does not have",
                "run a program that has it, or rebind it to one that is there",
            )

    def _jobs(self) -> Iterator[Job]:
        cursor: str | None = None
        while True:
            page = self._store.jobs(JobQuery(cursor=cursor, limit=_PAGE))
            yield from page.jobs
            cursor = page.cursor
            if cursor is None:
                return

    # -- runs ---------------------------------------------------------------------------

    def _of_runs(self) -> Iterator[Finding]:
        for run in self._runs(_LIVE):
            job = self._store.get(run.job_id)
            if job is None:
                yield Finding(
                    "orphan_run",
                    run.id,
                    f"it is {run.state.value}, and its job is not kept",
                    "report this with the store: a job is kept as long as its runs",
                )
                continue
            if run.state is RunState.RUNNING:
                yield from self._of_running(run)
            elif run.state is RunState.READY:
                yield from self._of_waiting(run, job)

    def _of_running(self, run: Run) -> Iterator[Finding]:
        if run.attempts < 1:
            yield Finding(
                "invariant", run.id, "it runs without an attempt", "report this"
            )
        if self._holds is None or self._is_held(run):
            return
        # It may have ended between the two looks; then the store says so by now.
        again = self._store.run(run.id)
        if again is None or (again.state, again.attempts) != (run.state, run.attempts):
            return
        if not self._is_held(run):
            yield Finding(
                "stuck_run",
                run.id,
                f"attempt {run.attempts} counts as running, and nobody works on it",
                "restart the scheduler: what nobody works on is lost and tried again",
            )

    def _is_held(self, run: Run) -> bool:
        attempts = self._store.attempts(run.id)
        assert self._holds is not None
        return bool(attempts) and self._holds(attempts[-1].token)

    def _of_waiting(self, run: Run, job: Job) -> Iterator[Finding]:
        deadline_ns = job.policy.start_deadline_ns
        if deadline_ns is None or run.task in self._tasks:
            return
        now = self._store.now()
        now_ns = now.elapsed_ns if job.trigger.is_elapsed else now.wall_ns
        if now_ns > run.due_ns + deadline_ns:
            yield Finding(
                "expired_run",
                run.id,
                f"its start deadline has passed and no worker knows task {run.task!r}",
                "run a program that has the task",
            )

    def _of_the_dead(self) -> Iterator[Finding]:
        dead = Counter(
            run.task for run in self._runs(_ENDED_BADLY) if not run.discarded
        )
        for task, count in sorted(dead.items()):
            yield Finding(
                "dead_letter",
                task,
                f"{count:,} runs of this task have failed for good or were lost",
                'see runs(state="failed"); retry(run) or discard(run)',
            )

    def _runs(self, states: frozenset[RunState]) -> Iterator[Run]:
        cursor: str | None = None
        while True:
            page = self._store.runs(
                RunQuery(states=states, cursor=cursor, limit=_PAGE, in_order=False)
            )
            yield from page.runs
            cursor = page.cursor
            if cursor is None:
                return
