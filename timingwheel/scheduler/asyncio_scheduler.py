"""AsyncScheduler: the same names, awaited, for a program that lives on an event loop.

    app = AsyncScheduler("./data")

    @app.task
    async def send(ctx, to: str) -> None: ...

    async with app:
        await app.schedule(send.call("a@x"), 30)

The loop never waits for the disk: requests are made on a few threads of their own, and
waiting for a run takes no thread at all. Coroutine tasks run on the program's own loop,
so they share its connections; plain functions run in threads.
"""

from __future__ import annotations

import asyncio
import functools
import signal
from collections.abc import Callable
from types import TracebackType
from typing import (
    Any,
    Final,
    Self,
    Unpack,
    overload,
)

from timingwheel.clock import Clock
from timingwheel.errors import EngineFailedError
from timingwheel.jobs.durations import Duration
from timingwheel.jobs.store import JobRef
from timingwheel.scheduler.awaited import RequestThreads
from timingwheel.scheduler.awaited_requests import AwaitedRequests
from timingwheel.scheduler.crew import MakeExecutor
from timingwheel.scheduler.executors.event_loop import AsyncioExecutor
from timingwheel.scheduler.executors.executor import Executor
from timingwheel.scheduler.joining import joined
from timingwheel.scheduler.metrics import MetricsSnapshot
from timingwheel.scheduler.node import NodeListener
from timingwheel.scheduler.opening import IfHeld, SchedulerOptions, StoreSource
from timingwheel.scheduler.options import AddOptions
from timingwheel.scheduler.scheduler import (
    GRACE_SECONDS,
    FailureListener,
    Function,
    Scheduler,
)
from timingwheel.scheduler.tasks import Call, Task, TaskRegistry


class _LoopScheduler(Scheduler):
    """The twin: its coroutine tasks run on the program's loop."""

    loop: asyncio.AbstractEventLoop | None = None

    def _make_executors(self) -> dict[str, MakeExecutor]:
        def event_loop() -> Executor:
            return AsyncioExecutor(loop=self.loop)

        return {**super()._make_executors(), "asyncio": event_loop}


class AsyncScheduler(AwaitedRequests):
    """`Scheduler` for one event loop: the same names, awaited.

    Args:
        store: as Scheduler; all other arguments too.

    Raises:
        ArgumentError: an argument is invalid. The store's own errors come when it
            is opened.
    """

    def __init__(
        self,
        store: StoreSource = "./data",
        *,
        if_held: IfHeld = "error",
        clock: Clock | None = None,
        slots: int | None = None,
        executor: str = "thread",
        worker: str | None = None,
        actor: str | None = None,
        tasks: TaskRegistry | None = None,
        **log_options: Unpack[SchedulerOptions],
    ) -> None:
        self._twin: _LoopScheduler = _LoopScheduler(
            store,
            if_held=if_held,
            clock=clock,
            slots=slots,
            executor=executor,
            worker=worker,
            actor=actor,
            tasks=tasks,
            **log_options,
        )
        self._threads = RequestThreads()
        self.tasks: Final = self._twin.tasks
        self.clock: Final = self._twin.clock

    # -- tasks ----------------------------------------------------------------------------

    @overload
    def task(self, function: Function, /) -> Task: ...

    @overload
    def task(
        self, function: None = None, /, **options: Any
    ) -> Callable[[Function], Task]: ...

    def task(
        self, function: Function | None = None, /, **options: Any
    ) -> Task | Callable[[Function], Task]:
        """Declare a function as a task. As Scheduler.task, and not awaited."""
        if function is not None:
            return self._twin.task(function)
        return self._twin.task(**options)

    # -- life -----------------------------------------------------------------------------

    async def start(self) -> Self:
        """Open the store and begin to run what is due. As Scheduler.start."""
        self._twin.loop = asyncio.get_running_loop()
        starting = asyncio.ensure_future(self._threads.call(self._twin.start))
        try:
            await asyncio.shield(starting)
        except asyncio.CancelledError:
            # The thread cannot be stopped, and nobody else would close what it opens.
            await asyncio.wait([starting])
            await self.stop(0)
            raise
        return self

    async def stop(self, grace: Duration = GRACE_SECONDS) -> None:
        """Start nothing more, let what runs end, and close. As Scheduler.stop.

        Cancelled, it ends all the same before it passes the cancellation on.
        """
        stopping = asyncio.ensure_future(
            self._threads.call(functools.partial(self._twin.stop, grace))
        )
        try:
            await asyncio.shield(stopping)
        except asyncio.CancelledError:
            await asyncio.wait([stopping])
            raise

    async def run_forever(self, grace: Duration = GRACE_SECONDS) -> None:
        """Start, and return after SIGINT or SIGTERM and a clean stop.

        Cancelling it stops the scheduler too.

        Raises:
            EngineFailedError: the log failed.
        """
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[BaseException | None] = loop.create_future()

        def end(why: BaseException | None = None) -> None:
            if not ended.done():
                ended.set_result(why)

        def fail(why: BaseException) -> None:
            loop.call_soon_threadsafe(end, why)

        self._twin.add_failure_listener(fail)
        signals = (signal.SIGINT, signal.SIGTERM)
        for number in signals:
            loop.add_signal_handler(number, end)
        try:
            await self.start()
            why = await ended
        finally:
            for number in signals:
                loop.remove_signal_handler(number)
            self._twin.remove_failure_listener(fail)
            await self.stop(grace)
        if why is not None:
            raise EngineFailedError(
                "the scheduler stopped for good: mend the cause and start again"
            ) from why

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()

    def add_failure_listener(self, listener: FailureListener) -> None:
        """Call with the error if it stops for good, from a thread; not awaited."""
        self._twin.add_failure_listener(listener)

    def remove_failure_listener(self, listener: FailureListener) -> None:
        """Call it no more; not awaited."""
        self._twin.remove_failure_listener(listener)

    def add_node_listener(self, listener: NodeListener) -> None:
        """Have a listener hear of each turn of the node, from its thread; not awaited."""
        self._twin.add_node_listener(listener)

    def snapshot_metrics(self) -> MetricsSnapshot:
        """Return what this process has counted; not awaited."""
        return self._twin.snapshot_metrics()

    # -- requests with a connection of the caller's; all others: see AwaitedRequests ---------

    async def schedule(self, job: Call, delay: Duration, *, conn: object = None) -> str:
        """Make a job that runs once, after a delay. As Scheduler.schedule."""
        twin = self._twin
        return await joined(
            self._threads, conn, lambda lent: twin.schedule(job, delay, conn=lent)
        )

    async def add(
        self, call: Call, *, conn: object = None, **options: Unpack[AddOptions]
    ) -> JobRef:
        """Make a job. As Scheduler.add; `conn` is a psycopg AsyncConnection."""
        twin = self._twin
        return await joined(
            self._threads, conn, lambda lent: twin.add(call, conn=lent, **options)
        )
