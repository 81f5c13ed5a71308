"""What people ask a scheduler to do: add, cancel, pause, resume, update, trigger, mend.

Every request has become durable when it returns.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from datetime import datetime
from typing import NamedTuple, Unpack

from timingwheel.errors import ArgumentError
from timingwheel.jobs.durations import Duration
from timingwheel.jobs.errors import RevisionConflictError
from timingwheel.jobs.model import Run, RunId, RunReason
from timingwheel.jobs.schedule import instant_datetime
from timingwheel.jobs.store import (
    CancelResult,
    CatchUp,
    JobRef,
    NewRun,
    Resumption,
    Running,
)
from timingwheel.scheduler.adding import checked_if_exists, make_draft
from timingwheel.scheduler.backfilling import BackfillMode, plan_backfill
from timingwheel.scheduler.changing import JobUpdate, changed_job, make_change
from timingwheel.scheduler.describing import upcoming
from timingwheel.scheduler.desk import AnyJob, AnyRun, Desk
from timingwheel.scheduler.handles import CalendarHandle, QueueHandle, RunHandle
from timingwheel.scheduler.joining import put_one
from timingwheel.scheduler.moments import bound_ns
from timingwheel.scheduler.options import AddOptions, ChangeOptions, checked_text
from timingwheel.scheduler.pausing import make_pause
from timingwheel.scheduler.policies import catch_up_rule, check_running
from timingwheel.scheduler.tasks import Call, Task

TIMES_SHOWN = 10
"""Next times that an update shows, before and after."""
_logger = logging.getLogger("timingwheel")


class Backfill(NamedTuple):
    """What a backfill made, or with `dry_run` would make.

    Attributes:
        nominals: the occurrences that get a run, oldest first, in UTC.
        runs: ids of the runs; empty with `dry_run`.
        present: occurrences left alone, since they have a run.
    """

    nominals: list[datetime]
    runs: list[RunId]
    present: int


class Requests:
    """The requests of a scheduler; see Scheduler for where they go."""

    @property
    @abstractmethod
    def desk(self) -> Desk:
        """The open store; opened by the first who asks."""

    @property
    @abstractmethod
    def actor(self) -> str:
        """Who asks, unless a call says so."""

    # -- adding ---------------------------------------------------------------------------

    def schedule(self, job: Call, delay: Duration, *, conn: object = None) -> str:
        """Make a job that runs once, after a delay; when this returns it survives.

        Args:
            job: what to do, as `task.call(...)` returns it.
            delay: seconds, a timedelta, or text such as "10m".
            conn: as `add`.

        Returns:
            The job's id.

        Raises:
            TaskError: `job` is no call of a task.
            ArgumentError: `delay` is invalid.
            DiskFullError: nothing has changed; it heals by itself.
        """
        if delay is None:  # an option that is None is left out, and this one cannot be
            raise ArgumentError("delay", None, 'pass seconds, or text such as "10m"')
        draft = make_draft(job, {"delay": delay}, argument="job")
        return put_one(self.desk.store, draft, conn=conn).id

    def add(
        self, call: Call, *, conn: object = None, **options: Unpack[AddOptions]
    ) -> JobRef:
        """Make a job; when this returns it survives.

        Args:
            call: what to do, as `task.call(...)` returns it.
            conn: a psycopg Connection to the store's own database, with a transaction
                open: the job is there if, and only if, that commits. For a store in
                PostgreSQL; see docs/howto/transactional-jobs.md.
            **options: when (exactly one of `delay`, `at`, `every`, `cron`, `rrule`,
                `after`, `trigger`), within which bounds, and how its runs are treated.
                All of them: timingwheel/scheduler/options.py.

        Returns:
            The job's id, and whether this call has made it. A `key` or a `name` that is
            there finds its job; another definition under a name updates it, without
            catching up.

        Raises:
            TaskError: `call` is no call of a task.
            ArgumentError: an option is invalid; it is named.
            CronError: the cron expression is invalid.
            DeadlineError: a time beyond 2262.
            KeyConflictError: the key is there with other arguments.
            NameTakenError: the name is there, and `if_exists="error"`.
            UnknownJobError: `after` names a job that is not kept.
            UnknownCalendarError: there is no such calendar.
            DiskFullError: nothing has changed; it heals by itself.
        """
        if_exists = checked_if_exists(options.get("if_exists"))
        draft = make_draft(call, options)
        return put_one(self.desk.store, draft, conn=conn, if_exists=if_exists)

    # -- the life of a job ------------------------------------------------------------------

    def cancel(
        self, job: AnyJob, *, running: Running = "leave", actor: str | None = None
    ) -> CancelResult:
        """End a job: none of its runs starts any more.

        Args:
            job: which.
            running: what becomes of attempts that run: they are left to end, asked to
                end ("signal"), or ended ("kill").
            actor: who; for the log.

        Returns:
            What it did. True if, and only if, this call prevented a start that was
            still to come; then that is durable.
        """
        check_running(running)
        found = self.desk.find(job)
        if found is None:
            return CancelResult.NOT_FOUND
        result = self.desk.store.cancel(found.id, running=running)
        _logger.info(
            "job %s: cancel by %s: %s",
            found.id,
            actor or self.actor,
            result.value,
            extra={"job_id": found.id},
        )
        return result

    def pause(
        self,
        job: AnyJob | QueueHandle,
        *,
        note: str = "",
        until: datetime | Duration | None = None,
        running: Running = "leave",
        actor: str | None = None,
    ) -> bool:
        """Start no more runs of a job, or from a queue; survives a restart.

        What runs goes on, or is ended as `running` says; what was to start is held. A
        manual `trigger` still works.

        Args:
            job: which; or `queue(name)`, for all that waits there.
            note: why, for whoever finds it paused.
            until: when it resumes by itself: an aware datetime, or this long from now.
            running: as in `cancel`; for a job.
            actor: who; the user of this process by default.

        Returns:
            Whether it was not paused before; if it was, note, until and actor are new.

        Raises:
            UnknownJobError: there is no such job.
            ArgumentError: `until` is past or no moment.
        """
        check_running(running)
        desk = self.desk
        if isinstance(job, QueueHandle):
            return job.pause(note=note, until=until, actor=actor)
        pause = make_pause(
            desk.store.now(), actor=actor or self.actor, note=note, until=until
        )
        return desk.store.hold(desk.require(job).id, pause, running=running)

    def resume(
        self,
        job: AnyJob | QueueHandle,
        *,
        catch_up: str | CatchUp = "skip",
        dry_run: bool = False,
    ) -> Resumption:
        """Let a paused job or queue go on.

        Args:
            job: which; or `queue(name)`.
            catch_up: what becomes of the occurrences that the pause has passed over:
                "skip", "latest", "all" or "since(2h)". Held one-time runs start at once.
            dry_run: change nothing, and say what would start.

        Returns:
            What starts, what is skipped and what is released; nothing for a job that is
            not paused.

        Raises:
            UnknownJobError: there is no such job.
            ArgumentError: `catch_up` is invalid.
        """
        rule = catch_up_rule(catch_up)
        desk = self.desk
        if isinstance(job, QueueHandle):
            if not dry_run:
                job.resume()
            return Resumption([], 0, 0)
        return desk.store.unhold(desk.require(job).id, rule, dry_run=dry_run)

    def update(
        self,
        job: AnyJob,
        *,
        if_revision: int | None = None,
        dry_run: bool = False,
        **changes: Unpack[ChangeOptions],
    ) -> JobUpdate:
        """Change a job; past runs keep what they had, and nothing is caught up.

        Args:
            job: which.
            if_revision: change it only if it still has this revision.
            dry_run: change nothing, and show what would come.
            **changes: as the options of `add`; what is left out stays, None takes a
                bound away, and `call=` gives it other arguments.

        Returns:
            The job, and its next ten times before and after.

        Raises:
            RevisionConflictError: somebody else has changed it meanwhile.
            UnknownJobError: there is no such job, or it has ended.
            ArgumentError: a change is invalid; it is named.
        """
        desk = self.desk
        found = desk.require(job)
        change = make_change(found, changes)
        if if_revision is not None and if_revision != found.revision:
            raise RevisionConflictError(found.id, if_revision, found.revision)
        before = upcoming(desk, found, TIMES_SHOWN)
        if dry_run:
            after_job = changed_job(found, change, now_ns=desk.now_ns(found))
        else:
            after_job = desk.store.update(found.id, change, if_revision=if_revision)
        return JobUpdate(after_job, before, upcoming(desk, after_job, TIMES_SHOWN))

    def trigger(self, job: AnyJob) -> RunHandle:
        """Run a job now, once more and apart from its trigger, even if it is paused.

        Raises:
            UnknownJobError: there is no such job, or it has ended.
        """
        desk = self.desk
        found = desk.require(job)
        new = NewRun(desk.now_ns(found), RunReason.MANUAL)
        (run,) = desk.store.create_runs(found.id, [new])
        return desk.handle(run.id)

    def backfill(
        self,
        job: AnyJob,
        start: datetime,
        end: datetime,
        *,
        mode: BackfillMode = "missing",
        again: bool = False,
        dry_run: bool = False,
    ) -> Backfill:
        """Make runs for occurrences of the past.

        Args:
            job: a recurring one.
            start: the first instant that counts.
            end: the first that does not any more; up to now.
            mode: "missing" makes runs for occurrences that have none, "all" makes one
                more for each.
            again: even where it is no longer known what has run.
            dry_run: make nothing, and say what would be made.

        Raises:
            UnknownJobError: there is no such job, or it has ended.
            ArgumentError: the job does not recur, the stretch is no stretch of the past,
                holds too many, or reaches where nobody knows what has run.
        """
        desk = self.desk
        found = desk.require(job)
        schedule = desk.schedule(found)
        if schedule is None:
            raise ArgumentError(
                "job", found.id, "it does not recur; trigger it instead"
            )
        if mode not in {"missing", "all"}:
            raise ArgumentError("mode", mode, 'pass "missing" or "all"')
        start_ns, end_ns = bound_ns(start, "start"), bound_ns(end, "end")
        if end_ns <= start_ns:
            raise ArgumentError("end", end.isoformat(), "pass an end after the start")
        if end_ns > desk.now_ns(found):
            raise ArgumentError(
                "end",
                end.isoformat(),
                "pass an end up to now: what comes, comes by itself",
            )
        plan = plan_backfill(
            found,
            schedule,
            desk.store.planned(found.id),
            start_ns=start_ns,
            end_ns=end_ns,
            mode=mode,
            again=again,
        )
        runs: list[Run] = []
        if plan.runs and not dry_run:
            runs = desk.store.create_runs(found.id, plan.runs)
        nominals = [instant_datetime(run.nominal_ns) for run in plan.runs]
        return Backfill(nominals, [run.id for run in runs], plan.present)

    # -- mending ----------------------------------------------------------------------------

    def rebind(self, old: str | Task, new: str | Task) -> int:
        """Give the jobs of one task to another, and revive those in quarantine.

        Args:
            old: the task that is gone, or whose payloads could not be read.
            new: the task that takes over; it may be the same, once it is mended.

        Returns:
            How many jobs it was.

        Raises:
            UnknownTaskError: this program has no task `new`.
        """
        desk = self.desk
        new_name = desk.tasks.require(_task_name(new, "new"), "new").name
        return desk.store.rebind(_task_name(old, "old"), new_name)

    def retry(self, run: AnyRun) -> RunHandle:
        """Make a failed or lost run ready again; it keeps its identity.

        Raises:
            UnknownRunError: there is no such run.
            RunStateError: it is neither failed nor lost.
        """
        return self.desk.run(run).retry()

    def discard(self, run: AnyRun) -> Run:
        """Take a run off the dead-letter list, or end one that waits for a retry.

        Raises:
            UnknownRunError: there is no such run.
            RunStateError: it is in another state.
        """
        return self.desk.run(run).discard()

    def cancel_run(self, run: AnyRun, *, running: Running = "leave") -> CancelResult:
        """End one run alone; its job goes on. As RunHandle.cancel.

        Raises:
            ArgumentError: it names no run.
        """
        return self.desk.run(run).cancel(running=running)

    def queue(self, name: str) -> QueueHandle:
        """Return a handle of a queue, to see and set its bounds and to pause it."""
        name = checked_text(name, "name")
        return QueueHandle(name, self.desk.store, actor=self.actor)

    def calendar(self, name: str) -> CalendarHandle:
        """Return a handle of a named calendar, to see it and to set its days."""
        return CalendarHandle(checked_text(name, "name"), self.desk.store)


def _task_name(task: str | Task, argument: str) -> str:
    return task.name if isinstance(task, Task) else checked_text(task, argument)
