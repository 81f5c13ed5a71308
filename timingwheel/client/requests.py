"""What people ask a client to do: add, cancel, pause, resume, update, trigger, mend.

Each as the request of the same name in scheduler/requests.py.
"""

from __future__ import annotations

from abc import abstractmethod
from datetime import datetime
from typing import Unpack
from zoneinfo import ZoneInfo

import msgspec

from timingwheel.client.asking import AnyJob, AnyRun, Asking, task_name
from timingwheel.client.handles import (
    CalendarHandle,
    QueueHandle,
    RunHandle,
    pause_body,
)
from timingwheel.client.sending import (
    add_body,
    job_text,
    moment_text,
    update_body,
)
from timingwheel.client.transport import Ask
from timingwheel.errors import ArgumentError
from timingwheel.jobs.durations import Duration
from timingwheel.jobs.errors import UnknownJobError
from timingwheel.jobs.explaining import NextTime
from timingwheel.jobs.model import (
    Job,
    JobId,
    Run,
    RunId,
)
from timingwheel.jobs.schedule import DstMark
from timingwheel.jobs.scheduling import zone_of
from timingwheel.jobs.store import (
    CancelResult,
    CatchUp,
    JobRef,
    Resumption,
    Running,
)
from timingwheel.scheduler.backfilling import BackfillMode
from timingwheel.scheduler.changing import JobUpdate
from timingwheel.scheduler.options import AddOptions, ChangeOptions, checked_text
from timingwheel.scheduler.requests import Backfill
from timingwheel.scheduler.tasks import Call, Task
from timingwheel.wire.answers import (
    CancelAnswer,
    CountAnswer,
    DoneAnswer,
    JobRefAnswer,
    ResumeAnswer,
)


class _Time(msgspec.Struct, frozen=True):
    utc: datetime
    local: datetime
    mark: DstMark


class _Update(msgspec.Struct, frozen=True):
    job: Job
    before: list[_Time]
    after: list[_Time]


class _Backfill(msgspec.Struct, frozen=True):
    nominals: list[datetime]
    runs: list[RunId]
    present: int


class ClientRequests(Asking):
    """The requests of a client."""

    @property
    @abstractmethod
    def actor(self) -> str:
        """Who asks, unless a call says so."""

    def schedule(self, job: Call, delay: Duration) -> str:
        """Make a job that runs once, after a delay. As Scheduler.schedule."""
        if delay is None:
            raise ArgumentError("delay", None, 'pass seconds, or text such as "10m"')
        return self._added(job, {"delay": delay}, argument="job").id

    def add(self, call: Call, **options: Unpack[AddOptions]) -> JobRef:
        """Make a job; when this returns it survives. As Scheduler.add.

        Raises:
            UnansweredError: the server went away meanwhile, and the job may be there.
                With a key or a name it is asked again, and this does not happen.
        """
        return self._added(call, options, argument="call")

    def cancel(
        self, job: AnyJob, *, running: Running = "leave", actor: str | None = None
    ) -> CancelResult:
        """End a job: none of its runs starts any more. As Scheduler.cancel."""
        body = {"running": running, "actor": actor or self.actor}
        try:
            answer: CancelAnswer = self._post(
                ("jobs", job_text(job), "cancel"), body, CancelAnswer
            )
        except UnknownJobError:
            return CancelResult.NOT_FOUND
        return answer.result

    def pause(
        self,
        job: AnyJob | QueueHandle,
        *,
        note: str = "",
        until: datetime | Duration | None = None,
        running: Running = "leave",
        actor: str | None = None,
    ) -> bool:
        """Start no more runs of a job, or from a queue. As Scheduler.pause."""
        who = actor or self.actor
        if isinstance(job, QueueHandle):
            return job.pause(note=note, until=until, actor=who)
        body = pause_body(note=note, until=until, actor=who) | {"running": running}
        answer: DoneAnswer = self._post(
            ("jobs", job_text(job), "pause"), body, DoneAnswer
        )
        return answer.changed

    def resume(
        self,
        job: AnyJob | QueueHandle,
        *,
        catch_up: str | CatchUp = "skip",
        dry_run: bool = False,
    ) -> Resumption:
        """Let a paused job or queue go on. As Scheduler.resume."""
        if isinstance(job, QueueHandle):
            if not dry_run:
                job.resume()
            return Resumption([], 0, 0)
        if isinstance(catch_up, CatchUp):
            window = f"({catch_up.window_ns}ns)" if catch_up.window_ns else ""
            catch_up = f"{catch_up.rule}{window}"
        body = {"catch_up": catch_up, "dry_run": dry_run}
        answer: ResumeAnswer = self._post(
            ("jobs", job_text(job), "resume"), body, ResumeAnswer
        )
        return Resumption(answer.starts, answer.skipped, answer.released)

    def update(
        self,
        job: AnyJob,
        *,
        if_revision: int | None = None,
        dry_run: bool = False,
        **changes: Unpack[ChangeOptions],
    ) -> JobUpdate:
        """Change a job; past runs keep what they had. As Scheduler.update."""
        ask = Ask(
            "PATCH",
            ("jobs", job_text(job)),
            body=update_body(changes, dry_run=dry_run),
            headers={} if if_revision is None else {"if-match": f'"{if_revision}"'},
            is_repeatable=dry_run,
        )
        made: _Update = self._transport.send(ask, _Update)
        zone = ZoneInfo(zone_of(made.job.trigger))
        return JobUpdate(
            made.job,
            [_next_time(one, zone) for one in made.before],
            [_next_time(one, zone) for one in made.after],
        )

    def trigger(self, job: AnyJob) -> RunHandle:
        """Run a job now, once more and apart from its trigger. As Scheduler.trigger."""
        run: Run = self._post(("jobs", job_text(job), "trigger"), None, Run)
        return self._handle(run.id)

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
        """Make runs for occurrences of the past. As Scheduler.backfill."""
        body = {
            "start": moment_text(start, "start"),
            "end": moment_text(end, "end"),
            "mode": mode,
            "again": again,
            "dry_run": dry_run,
        }
        made: _Backfill = self._post(
            ("jobs", job_text(job), "backfill"), body, _Backfill
        )
        return Backfill(made.nominals, made.runs, made.present)

    def rebind(self, old: str | Task, new: str | Task) -> int:
        """Give the jobs of one task to another, which the server knows."""
        body = {"old": task_name(old, "old"), "new": task_name(new, "new")}
        answer: CountAnswer = self._post(("tasks", "rebind"), body, CountAnswer)
        return answer.count

    def retry(self, run: AnyRun) -> RunHandle:
        """Make a failed or lost run ready again. As Scheduler.retry."""
        return self.run(run).retry()

    def discard(self, run: AnyRun) -> Run:
        """Take a run off the dead-letter list. As Scheduler.discard."""
        return self.run(run).discard()

    def cancel_run(self, run: AnyRun, *, running: Running = "leave") -> CancelResult:
        """End one run alone; its job goes on. As Scheduler.cancel_run."""
        return self.run(run).cancel(running=running)

    def queue(self, name: str) -> QueueHandle:
        """Return a handle of a queue. As Scheduler.queue."""
        return QueueHandle(
            checked_text(name, "name"), self._transport, actor=self.actor
        )

    def calendar(self, name: str) -> CalendarHandle:
        """Return a handle of a named calendar. As Scheduler.calendar."""
        return CalendarHandle(checked_text(name, "name"), self._transport)

    def _added(self, call: Call, options: AddOptions, *, argument: str) -> JobRef:
        body = add_body(call, options, argument=argument)
        ask = Ask(
            "POST",
            ("jobs",),
            body=body,
            # Who asks again with the same key or name finds the job that is there.
            is_repeatable="key" in body or "name" in body,
        )
        ref: JobRefAnswer = self._transport.send(ask, JobRefAnswer)
        return JobRef(JobId(ref.id), ref.created, ref.updated)


def _next_time(one: _Time, zone: ZoneInfo) -> NextTime:
    return NextTime(one.utc, one.utc.astimezone(zone), one.mark)
