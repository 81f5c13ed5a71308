"""Requests and questions, awaited: of a scheduler in this process, or of a client."""

from __future__ import annotations

import functools
from datetime import datetime
from typing import ClassVar, TypedDict, Unpack

from timingwheel.jobs.durations import Duration
from timingwheel.jobs.model import Run
from timingwheel.jobs.store import CancelResult, CatchUp, Resumption, Running
from timingwheel.scheduler.asyncio_handles import (
    AsyncCalendarHandle,
    AsyncQueueHandle,
    AsyncRunHandle,
)
from timingwheel.scheduler.awaited import Awaited, awaited
from timingwheel.scheduler.desk import AnyJob, AnyRun
from timingwheel.scheduler.scheduler import Scheduler


class PauseOptions(TypedDict, total=False):
    """What `pause` takes beside the job; see Scheduler.pause."""

    note: str
    until: datetime | Duration | None
    running: Running
    actor: str | None


class AwaitedRequests(Awaited):
    """What a twin that has the words of Scheduler is asked, awaited."""

    _handle: ClassVar[type[AsyncRunHandle]] = AsyncRunHandle

    cancel = awaited(Scheduler.cancel)
    update = awaited(Scheduler.update)
    backfill = awaited(Scheduler.backfill)
    rebind = awaited(Scheduler.rebind)
    job = awaited(Scheduler.job)
    jobs = awaited(Scheduler.jobs)
    runs = awaited(Scheduler.runs)
    followers = awaited(Scheduler.followers)
    next_times = awaited(Scheduler.next_times)
    explain = awaited(Scheduler.explain)
    why = awaited(Scheduler.why)
    skips = awaited(Scheduler.skips)
    queues = awaited(Scheduler.queues)
    calendars = awaited(Scheduler.calendars)
    workers = awaited(Scheduler.workers)
    known_tasks = awaited(Scheduler.known_tasks)
    load_ahead = awaited(Scheduler.load_ahead)
    storage = awaited(Scheduler.storage)
    cluster = awaited(Scheduler.cluster)
    check = awaited(Scheduler.check)

    async def pause(
        self, job: AnyJob | AsyncQueueHandle, **options: Unpack[PauseOptions]
    ) -> bool:
        """Start no more runs of a job, or from a queue. As Scheduler.pause."""
        which = job.twin if isinstance(job, AsyncQueueHandle) else job
        return await self._threads.call(
            functools.partial(self._twin.pause, which, **options)
        )

    async def resume(
        self,
        job: AnyJob | AsyncQueueHandle,
        *,
        catch_up: str | CatchUp = "skip",
        dry_run: bool = False,
    ) -> Resumption:
        """Let a paused job or queue go on. As Scheduler.resume."""
        which = job.twin if isinstance(job, AsyncQueueHandle) else job
        return await self._threads.call(
            functools.partial(
                self._twin.resume, which, catch_up=catch_up, dry_run=dry_run
            )
        )

    async def trigger(self, job: AnyJob) -> AsyncRunHandle:
        """Run a job now, once more. As Scheduler.trigger."""
        twin = await self._threads.call(functools.partial(self._twin.trigger, job))
        return self._handle(twin, self._threads)

    async def run(self, run: AnyRun | AsyncRunHandle) -> AsyncRunHandle:
        """Return a handle of a run. As Scheduler.run."""
        which = run.id if isinstance(run, AsyncRunHandle) else run
        twin = await self._threads.call(functools.partial(self._twin.run, which))
        return self._handle(twin, self._threads)

    async def retry(self, run: AnyRun | AsyncRunHandle) -> AsyncRunHandle:
        """Make a failed or lost run ready again. As Scheduler.retry."""
        return await (await self.run(run)).retry()

    async def cancel_run(
        self, run: AnyRun | AsyncRunHandle, *, running: Running = "leave"
    ) -> CancelResult:
        """End one run alone; its job goes on. As Scheduler.cancel_run."""
        return await (await self.run(run)).cancel(running=running)

    async def discard(self, run: AnyRun | AsyncRunHandle) -> Run:
        """Take a run off the dead-letter list. As Scheduler.discard."""
        return await (await self.run(run)).discard()

    async def queue(self, name: str) -> AsyncQueueHandle:
        """Return a handle of a queue. As Scheduler.queue."""
        twin = await self._threads.call(functools.partial(self._twin.queue, name))
        return AsyncQueueHandle(twin, self._threads)

    async def calendar(self, name: str) -> AsyncCalendarHandle:
        """Return a handle of a named calendar. As Scheduler.calendar."""
        twin = await self._threads.call(functools.partial(self._twin.calendar, name))
        return AsyncCalendarHandle(twin, self._threads)
