"""The desk: where requests are put to an open store, and what they need to be decided.

A desk lasts from the opening of a store to its closing. `Requests` and `Questions` are
the words that people say to it; `Scheduler` opens and closes it.
"""

from __future__ import annotations

from datetime import datetime

import msgspec

from timingwheel.errors import ArgumentError
from timingwheel.jobs.errors import UnknownJobError
from timingwheel.jobs.letters import checked_letters
from timingwheel.jobs.model import Job, JobId, Run, RunId, parse_run_id, run_id
from timingwheel.jobs.schedule import HORIZON_NS, Schedule, instant_ns
from timingwheel.jobs.scheduling import schedule_of
from timingwheel.jobs.store import JobRef, JobStore, RunQuery
from timingwheel.jobs.triggers import AfterJobs
from timingwheel.scheduler.handles import RunHandle
from timingwheel.scheduler.moments import SHOWN_NS
from timingwheel.scheduler.options import is_job_id
from timingwheel.scheduler.tasks import TaskRegistry
from timingwheel.scheduler.watching import RunWatch

AnyJob = str | JobRef | Job
"""A job id, a name, what `add` returned, or the job itself."""
AnyRun = str | Run | RunHandle | JobRef
"""A run id, a run, a handle; or a one-time job, for its only run."""


class Desk:
    """An open store with what surrounds it.

    Attributes:
        store: the store.
        tasks: what this program can run.
        watch: tells of ends of runs.
    """

    def __init__(
        self, store: JobStore, *, tasks: TaskRegistry, watch: RunWatch
    ) -> None:
        self.store = store
        self.tasks = tasks
        self.watch = watch

    def find(self, job: AnyJob) -> Job | None:
        """Return the job that is meant; None if there is none.

        Raises:
            ArgumentError: it is nothing that could mean a job.
        """
        if isinstance(job, Job | JobRef):
            return self.store.get(job.id)
        if type(job) is not str or not job:
            raise ArgumentError(
                "job", job, "pass a job id, a name, or what add returned"
            )
        if is_job_id(job):
            return self.store.get(JobId(job))
        return self.store.find(checked_letters(job, "job"))

    def require(self, job: AnyJob) -> Job:
        """Return the job that is meant.

        Raises:
            UnknownJobError: there is none.
        """
        found = self.find(job)
        if found is None:
            shown = job.id if isinstance(job, Job | JobRef) else job
            raise UnknownJobError(
                "job", shown, "there is no such job; `jobs` lists those that are there"
            )
        return found

    def schedule(self, job: Job) -> Schedule | None:
        """Return when a job runs; None if it does not recur."""
        if not job.trigger.is_recurring:
            return None
        return schedule_of(
            job.trigger,
            created_ns=job.since_ns,
            job_key=job.name or job.id,
            calendars=self.store.calendars(),
        )

    def once_ns(self, job: Job) -> int | None:
        """Return the nominal time of a job that runs once; None if it never did."""
        for known_ns in (job.next_ns, job.reached_ns):
            if known_ns is not None:
                return known_ns
        runs = self.store.runs(RunQuery(job_id=job.id)).runs
        return min((run.nominal_ns for run in runs if run.n == 0), default=None)

    def nominal_ns(self, job: Job, moment: datetime) -> int:
        """Return the nominal time that a shown moment stands for; else the moment.

        Raises:
            ArgumentError: it is no aware datetime, or one that no job can have.
        """
        last_ns = instant_ns(moment, "nominal")
        if not 0 <= last_ns <= HORIZON_NS:
            raise ArgumentError(
                "nominal", moment.isoformat(), "times lie between 1970 and 2262"
            )
        first_ns = last_ns - SHOWN_NS
        for at_ns, _ in self.store.planned(job.id):
            if first_ns <= at_ns <= last_ns:
                return at_ns
        schedule = self.schedule(job)
        if schedule is not None:
            firing = schedule.next_ns(first_ns - 1)
            known_ns = None if firing is None else firing.utc_ns
        else:
            known_ns = self.once_ns(job)
        if known_ns is not None and first_ns <= known_ns <= last_ns:
            return known_ns
        return last_ns

    def now_ns(self, job: Job) -> int:
        """Return the present on the scale that a job's trigger lives on."""
        now = self.store.now()
        return now.elapsed_ns if job.trigger.is_elapsed else now.wall_ns

    def handle(self, run: RunId) -> RunHandle:
        """Return a handle of a run."""
        return RunHandle(run, self.store, self.watch, decode=self._decode)

    def run(self, run: AnyRun) -> RunHandle:
        """Return a handle of the run that is meant.

        Raises:
            ArgumentError: it is nothing that could mean a run.
            UnknownJobError: there is no such job.
        """
        if isinstance(run, RunHandle):
            return run
        if isinstance(run, Run):
            return self.handle(run.id)
        if isinstance(run, JobRef):
            return self.handle(self._only_run(self.require(run)))
        if type(run) is str and "@" not in run:
            return self.handle(self._only_run(self.require(run)))
        try:
            parse_run_id(run)
        except (ValueError, AttributeError):
            raise ArgumentError(
                "run", run, "pass a run id, <job id>@<nominal ns>, or a run"
            ) from None
        return self.handle(RunId(run))

    def _only_run(self, job: Job) -> RunId:
        """Return the run of a job that runs once."""
        when = job.trigger.when
        if job.trigger.is_recurring or (isinstance(when, AfterJobs) and when.each):
            raise ArgumentError(
                "run", job.id, "this job may have many runs; pass the id of one"
            )
        nominal_ns = self.once_ns(job)
        if nominal_ns is None:
            raise ArgumentError("run", job.id, "this job has no run, and gets none")
        return run_id(job.id, nominal_ns)

    def _decode(self, run: Run) -> object:
        # A task that is gone may still have left results; its default form reads them.
        task = self.tasks.get(run.task)
        if task is not None:
            return task.codec.decode_result(run.result)
        return None if run.result is None else msgspec.msgpack.decode(run.result)
