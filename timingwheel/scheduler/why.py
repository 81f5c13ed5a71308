"""Why an occurrence ran, did not run, or waits: one sentence from stored facts.

    app.why("nightly", datetime(2026, 3, 29, 1, tzinfo=UTC))
    'It was skipped: a previous run was still active (overlap="skip"), one of 3 ...'

Nothing here is guessed: each sentence rests on a run, a skip range, the job or its
trigger, in that order.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from timingwheel.jobs.error_line import error_line
from timingwheel.jobs.every import duration_words
from timingwheel.jobs.model import (
    Job,
    JobState,
    Run,
    RunState,
    SkipRange,
    SkipReason,
    run_id,
)
from timingwheel.jobs.schedule import Schedule
from timingwheel.jobs.scheduling import removed_between
from timingwheel.jobs.store import JobStore, RunQuery
from timingwheel.jobs.triggers import AfterJobs
from timingwheel.scheduler.moments import by_whom, shown

_SECOND_NS: Final = 1_000_000_000
_RUNNING: Final = frozenset({RunState.RUNNING})
_RUNS_SHOWN: Final = 100
_ERROR_CHARS: Final = 200

_SKIPPED: Final = {
    SkipReason.OVERLAP: "a previous run was still active, and its overlap policy skips",
    SkipReason.MISFIRE: "its time passed while no scheduler served this store, and its "
    "misfire policy leaves it out",
    SkipReason.PAUSED: "the job was paused, and the resume did not catch it up",
    SkipReason.EXPIRED: "it could not start before its start deadline",
    SkipReason.UPSTREAM: "the job that it waits for did not end as wanted",
    SkipReason.CALENDAR: "its calendar excludes that day",
    SkipReason.DST: "the clock skipped that time of day",
}


class Explainer:
    """Says why, from the facts of one store.

    Args:
        store: where the facts are.
        tasks: names of the tasks that this program runs now; None: it runs nothing, and
            does not know what others can.
        is_served: whether anybody starts runs now.
    """

    def __init__(
        self, store: JobStore, *, tasks: Collection[str] | None, is_served: bool
    ) -> None:
        self._store = store
        self._tasks = tasks
        self._is_served = is_served

    def why(
        self,
        job: Job,
        nominal_ns: int,
        *,
        schedule: Schedule | None,
        once_ns: int | None,
    ) -> str:
        """Return why the occurrence of a job at an instant ran, did not, or waits.

        Args:
            job: whose.
            nominal_ns: the instant that its trigger names.
            schedule: the job's, None if it does not recur.
            once_ns: the only instant of a job that does not, if it is known.
        """
        runs = self._runs_at(job, nominal_ns)
        if runs:
            return " ".join(self._of_run(job, run) for run in runs)
        for skipped in self._store.skips(job.id):
            if skipped.first_ns <= nominal_ns <= skipped.last_ns and (
                schedule is None or _names(schedule, nominal_ns)
            ):
                return _of_skip(skipped)
        if schedule is not None and not _names(schedule, nominal_ns):
            removed = removed_between(
                job.trigger,
                nominal_ns,
                nominal_ns + 1,
                created_ns=job.since_ns,
                job_key=job.name or job.id,
                calendars=self._store.calendars(),
            )
            if removed:
                return f"It does not run: {_SKIPPED[removed[0].reason]}."
            return _of_no_occurrence(schedule, nominal_ns)
        return self._of_no_record(job, nominal_ns, once_ns=once_ns)

    def _now_ns(self, job: Job) -> int:
        now = self._store.now()
        return now.elapsed_ns if job.trigger.is_elapsed else now.wall_ns

    def _runs_at(self, job: Job, nominal_ns: int) -> list[Run]:
        """Return the scheduled run of an instant and the repeated ones, in order."""
        numbers = {n for at_ns, n in self._store.planned(job.id) if at_ns == nominal_ns}
        found = [
            self._store.run(run_id(job.id, nominal_ns, n))
            for n in sorted(numbers | {0})
        ]
        return [run for run in found if run is not None]

    def _of_run(self, job: Job, run: Run) -> str:
        what = "It" if run.n == 0 else f"Its repetition {run.n} ({run.reason.value})"
        match run.state:
            case RunState.SUCCEEDED | RunState.FAILED | RunState.LOST:
                return f"{what} {_ended(run)}."
            case RunState.CANCELLED:
                return f"{what} was cancelled at {shown(run.ended_ns)}{_tried(run)}."
            case RunState.SKIPPED:
                reason = run.skip_reason or SkipReason.MISFIRE
                return f"{what} was skipped: {_SKIPPED[reason]}."
            case RunState.RUNNING:
                started = shown(run.started_ns)
                return f"{what} runs: attempt {run.attempts} started at {started}."
            case RunState.RETRYING:
                error = _error(run)
                return f"{what} waits for its next attempt: {run.attempts} failed, {error}."
            case RunState.BLOCKED:
                return f"{what} waits for {_upstream(job)}."
            case RunState.PLANNED if run.due_ns > self._now_ns(job):
                return f"{what} is planned for {shown(run.due_ns)}{_held(job)}."
            case RunState.PLANNED | RunState.READY:
                return f"{what} is due since {shown(run.due_ns)} and waits: {self._wait(job, run)}."

    def _wait(self, job: Job, run: Run) -> str:
        """Return what a ready run waits for."""
        if job.state is JobState.QUARANTINED:
            return f"the job is quarantined ({job.fault}); mend it and rebind the task"
        if job.pause is not None:
            return f"the job is paused{by_whom(job.pause)}"
        queue = self._store.queue(run.queue)
        if queue.pause is not None:
            return f"the queue {queue.name!r} is paused{by_whom(queue.pause)}"
        if not self._is_served:
            return "the scheduler is not started"
        if self._tasks is not None and run.task not in self._tasks:
            return f"no worker here knows the task {run.task!r}"
        query = RunQuery(queue=run.queue, states=_RUNNING, limit=_RUNS_SHOWN)
        running = len(self._store.runs(query).runs)
        if queue.limit is not None and running >= queue.limit:
            return f"the queue {queue.name!r} runs {queue.limit} at once, as it may"
        reasons = []
        if job.cap is not None:
            reasons.append(f"its cap {job.cap.key!r} allows {job.cap.limit} at once")
        if queue.rate is not None:
            reasons.append(f"the queue {queue.name!r} starts {queue.rate:g} a second")
        reasons.append(f"all slots may be taken, {running} runs of its queue go on")
        return "; ".join(reasons)

    def _of_no_record(self, job: Job, nominal_ns: int, *, once_ns: int | None) -> str:
        now_ns = self._now_ns(job)
        if isinstance(job.trigger.when, AfterJobs) and job.state is JobState.ACTIVE:
            return f"It waits for {_upstream(job)}."
        if once_ns is not None and nominal_ns != once_ns:
            return f"The job runs once, at {shown(once_ns)}, and at no other time."
        if job.state is JobState.CANCELLED:
            return "It does not run: the job was cancelled."
        if job.state is JobState.QUARANTINED:
            return f"It does not run: the job is quarantined ({job.fault})."
        if nominal_ns > now_ns:
            if job.state is JobState.DONE:
                return "It does not run: the job is done."
            return f"It has not come yet: {shown(nominal_ns)}{_held(job)}."
        return _of_the_past(job, nominal_ns)


def _of_the_past(job: Job, nominal_ns: int) -> str:
    if nominal_ns < job.created_ns:
        return f"It did not run: the job was only made at {shown(job.created_ns)}."
    if nominal_ns < job.since_ns:
        return f"It did not run: the trigger is in force since {shown(job.since_ns)}."
    if job.reached_ns is None or nominal_ns > job.reached_ns:
        return f"It is due and the scheduler has not reached it yet{_held(job)}."
    return "It was dealt with, and its record is no longer kept."


def _ended(run: Run) -> str:
    assert run.ended_ns is not None, run
    late = "" if run.started_ns is None else f", {_late(run.started_ns - run.due_ns)}"
    ran = f"ran: started at {shown(run.started_ns)}{late}"
    match run.state:
        case RunState.SUCCEEDED:
            return f"{ran}, succeeded at {shown(run.ended_ns)}{_tried(run)}"
        case RunState.LOST:
            return f"{ran}, and its worker was lost at {shown(run.ended_ns)}"
    return f"{ran}, failed at {shown(run.ended_ns)}{_tried(run)}: {_error(run)}"


def _of_skip(skipped: SkipRange) -> str:
    text = f"It was skipped: {_SKIPPED[skipped.reason]}"
    if skipped.count > 1:
        text += (
            f"; one of {skipped.count:,} from {shown(skipped.first_ns)} to "
            f"{shown(skipped.last_ns)}"
        )
    return f"{text}."


def _of_no_occurrence(schedule: Schedule, nominal_ns: int) -> str:
    before, after = schedule.prev_ns(nominal_ns), schedule.next_ns(nominal_ns)
    near = [shown(firing.utc_ns) for firing in (before, after) if firing is not None]
    return f"The trigger names no such time; the nearest are {' and '.join(near)}."


def _names(schedule: Schedule, nominal_ns: int) -> bool:
    firing = schedule.next_ns(nominal_ns - 1)
    return firing is not None and firing.utc_ns == nominal_ns


def _upstream(job: Job) -> str:
    when = job.trigger.when
    if not isinstance(when, AfterJobs):
        return "another job"
    need = f"{when.need} of " if len(when.jobs) > 1 else ""
    ends = {"success": "to succeed", "failure": "to fail", "any": "to end"}[when.on]
    return f"{need}{', '.join(when.jobs)} {ends}"


def _held(job: Job) -> str:
    return "" if job.pause is None else f", but the job is paused{by_whom(job.pause)}"


def _tried(run: Run) -> str:
    return "" if run.attempts <= 1 else f" after {run.attempts} attempts"


def _late(lag_ns: int) -> str:
    if lag_ns < _SECOND_NS:
        return "on time"
    return f"{duration_words(lag_ns // _SECOND_NS * _SECOND_NS)} late"


def _error(run: Run) -> str:
    return error_line(run.error, _ERROR_CHARS) or "no error was kept"
