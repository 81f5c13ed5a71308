"""AsyncClient: the words of Client, awaited, for a program that lives on an event loop.

    async with AsyncClient("http://127.0.0.1:8765") as app:
        ref = await app.add(send.call("a@x"), delay=30)
        await (await app.run(ref)).wait()

Requests are made on threads of their own, so the loop never waits; a wait for the end of
a run takes one of them for as long as it lasts.
"""

from __future__ import annotations

import asyncio
import functools
from types import TracebackType
from typing import Any, Final, Self, Unpack

from timingwheel.client.asking import AnyJob, AnyRun
from timingwheel.client.client import Client
from timingwheel.client.handles import (
    HOLD_SECONDS,
    CalendarHandle,
    QueueHandle,
    RunHandle,
)
from timingwheel.jobs.durations import Duration, duration_ns
from timingwheel.jobs.model import Run, RunId
from timingwheel.jobs.store import CancelResult, CatchUp, Resumption, Running
from timingwheel.scheduler.asyncio_scheduler import PauseOptions
from timingwheel.scheduler.awaited import Awaited, RequestThreads, awaited

THREADS: Final = 64
"""Requests at once, and runs waited for at once."""


class AsyncRunHandle(Awaited):
    """One run, for an event loop. As client.handles.RunHandle, awaited.

    Attributes:
        id: its identity as text.
    """

    def __init__(self, twin: RunHandle, threads: RequestThreads) -> None:
        self.id: Final[RunId] = twin.id
        self._twin = twin
        self._threads = threads

    def __repr__(self) -> str:
        return f"<run {self.id}>"

    get = awaited(RunHandle.get)
    attempts = awaited(RunHandle.attempts)
    discard = awaited(RunHandle.discard)
    cancel = awaited(RunHandle.cancel)

    async def retry(self) -> AsyncRunHandle:
        """Make it ready again if it has failed or was lost."""
        await self._threads.call(self._twin.retry)
        return self

    async def wait(self, timeout: Duration | None = None) -> Run:  # noqa: ASYNC109 - as RunHandle
        """Return the run once it has ended. As client.handles.RunHandle.wait."""
        loop = asyncio.get_running_loop()
        until_s = None
        if timeout is not None:
            until_s = loop.time() + duration_ns(timeout, "timeout") / 1e9
        while True:
            hold_s = HOLD_SECONDS
            if until_s is not None:
                hold_s = min(hold_s, max(until_s - loop.time(), 0))
            look = functools.partial(self._twin.look, hold_s)
            run: Run | None = await self._threads.call(look)
            if run is not None:
                return run
            if until_s is not None and loop.time() >= until_s:
                raise TimeoutError(f"run {self.id} has not ended yet; it goes on")

    async def result(self, timeout: Duration | None = None) -> object:  # noqa: ASYNC109 - as RunHandle
        """Return what the handler returned. As client.handles.RunHandle.result."""
        found: object = self._twin.decoded(await self.wait(timeout))
        return found


class AsyncQueueHandle(Awaited):
    """One queue, for an event loop. As client.handles.QueueHandle, awaited.

    Attributes:
        name: its name.
        twin: the same for threads: what `pause` and `resume` of a client take.
    """

    def __init__(self, twin: QueueHandle, threads: RequestThreads) -> None:
        self.name: Final = twin.name
        self.twin: Final = twin
        self._twin = twin
        self._threads = threads

    get = awaited(QueueHandle.get)
    set = awaited(QueueHandle.set)
    pause = awaited(QueueHandle.pause)
    resume = awaited(QueueHandle.resume)


class AsyncCalendarHandle(Awaited):
    """One named calendar, for an event loop. As client.handles.CalendarHandle, awaited.

    Attributes:
        name: its name.
    """

    def __init__(self, twin: CalendarHandle, threads: RequestThreads) -> None:
        self.name: Final = twin.name
        self._twin = twin
        self._threads = threads

    get = awaited(CalendarHandle.get)
    set = awaited(CalendarHandle.set)
    exclude = awaited(CalendarHandle.exclude)
    include = awaited(CalendarHandle.include)


class AsyncClient(Awaited):
    """`Client` for one event loop: the same names, awaited.

    Args:
        url: as Client.
        **options: as Client.

    Raises:
        ArgumentError: an argument cannot be meant. Nothing is sent yet.
    """

    def __init__(self, url: str, **options: Any) -> None:
        self._twin: Client = Client(url, **options)
        self._threads = RequestThreads(THREADS)
        self.url: Final = url
        self.tasks: Final = self._twin.tasks

    async def close(self) -> None:
        """Let go of all connections. Idempotent."""
        await self._threads.call(self._twin.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    # -- requests and questions: see Scheduler ------------------------------------------------

    schedule = awaited(Client.schedule)
    add = awaited(Client.add)
    cancel = awaited(Client.cancel)
    update = awaited(Client.update)
    backfill = awaited(Client.backfill)
    rebind = awaited(Client.rebind)
    job = awaited(Client.job)
    jobs = awaited(Client.jobs)
    runs = awaited(Client.runs)
    followers = awaited(Client.followers)
    next_times = awaited(Client.next_times)
    explain = awaited(Client.explain)
    why = awaited(Client.why)
    skips = awaited(Client.skips)
    load_ahead = awaited(Client.load_ahead)
    storage = awaited(Client.storage)
    cluster = awaited(Client.cluster)
    audit = awaited(Client.audit)
    queues = awaited(Client.queues)
    calendars = awaited(Client.calendars)
    workers = awaited(Client.workers)
    known_tasks = awaited(Client.known_tasks)
    check = awaited(Client.check)
    snapshot_metrics = awaited(Client.snapshot_metrics)
    now = awaited(Client.now)

    async def pause(
        self, job: AnyJob | AsyncQueueHandle, **options: Unpack[PauseOptions]
    ) -> bool:
        """Start nothing of a job or a queue any more. As Client.pause."""
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
        """Let a paused job or queue go on. As Client.resume."""
        which = job.twin if isinstance(job, AsyncQueueHandle) else job
        return await self._threads.call(
            functools.partial(
                self._twin.resume, which, catch_up=catch_up, dry_run=dry_run
            )
        )

    async def trigger(self, job: AnyJob) -> AsyncRunHandle:
        """Run a job now, once more. As Client.trigger."""
        twin = await self._threads.call(functools.partial(self._twin.trigger, job))
        return AsyncRunHandle(twin, self._threads)

    async def run(self, run: AnyRun | AsyncRunHandle) -> AsyncRunHandle:
        """Return a handle of a run. As Client.run."""
        which = run.id if isinstance(run, AsyncRunHandle) else run
        twin = await self._threads.call(functools.partial(self._twin.run, which))
        return AsyncRunHandle(twin, self._threads)

    async def retry(self, run: AnyRun | AsyncRunHandle) -> AsyncRunHandle:
        """Make a failed or lost run ready again. As Client.retry."""
        return await (await self.run(run)).retry()

    async def cancel_run(
        self, run: AnyRun | AsyncRunHandle, *, running: Running = "leave"
    ) -> CancelResult:
        """End one run alone; its job goes on. As Client.cancel_run."""
        return await (await self.run(run)).cancel(running=running)

    async def discard(self, run: AnyRun | AsyncRunHandle) -> Run:
        """Take a run off the dead-letter list. As Client.discard."""
        return await (await self.run(run)).discard()

    async def queue(self, name: str) -> AsyncQueueHandle:
        """Return a handle of a queue. As Client.queue."""
        return AsyncQueueHandle(self._twin.queue(name), self._threads)

    async def calendar(self, name: str) -> AsyncCalendarHandle:
        """Return a handle of a named calendar. As Client.calendar."""
        return AsyncCalendarHandle(self._twin.calendar(name), self._threads)
