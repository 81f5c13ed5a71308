"""Runs, queues and calendars by name, for an event loop. As handles.py, awaited.

A twin has the words of a handle: it is one of a scheduler, or one of a client.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final, Protocol, Self

from timingwheel.jobs.durations import Duration, duration_ns
from timingwheel.jobs.model import Run, RunId
from timingwheel.scheduler.awaited import Awaited, RequestThreads, awaited
from timingwheel.scheduler.handles import CalendarHandle, QueueHandle, RunHandle


class RunTwin(Protocol):
    """A handle of a run, for threads."""

    @property
    def id(self) -> RunId:
        """Its identity as text."""


class NamedTwin(Protocol):
    """A handle of a queue or a calendar, for threads."""

    @property
    def name(self) -> str:
        """Its name."""


class AsyncRunHandle(Awaited):
    """One run, for an event loop. As RunHandle, awaited.

    Attributes:
        id: its identity as text.
    """

    def __init__(self, twin: RunTwin, threads: RequestThreads) -> None:
        self.id: Final[RunId] = twin.id
        self._twin = twin
        self._threads = threads

    def __repr__(self) -> str:
        return f"<run {self.id}>"

    get = awaited(RunHandle.get)
    attempts = awaited(RunHandle.attempts)
    discard = awaited(RunHandle.discard)
    cancel = awaited(RunHandle.cancel)

    async def retry(self) -> Self:
        """Make it ready again if it has failed or was lost. As RunHandle.retry."""
        await self._threads.call(self._twin.retry)
        return self

    async def wait(self, timeout: Duration | None = None) -> Run:  # noqa: ASYNC109 - as RunHandle
        """Return the run once it has ended. As RunHandle.wait; takes no thread."""
        timeout_s = None if timeout is None else duration_ns(timeout, "timeout") / 1e9
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[Run] = loop.create_future()

        def settle(what: Run | BaseException) -> None:
            if ended.done():
                return
            if isinstance(what, BaseException):
                ended.set_exception(what)
            else:
                ended.set_result(what)

        def tell(what: Run | BaseException) -> None:
            # From the thread that committed; the loop may be closed by now.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(settle, what)

        twin: RunHandle = self._twin
        with twin.told(tell):
            final = await self._threads.call(twin.final)
            if final is not None:
                return final
            with contextlib.suppress(TimeoutError):
                return await asyncio.wait_for(ended, timeout_s)
            # It has ended at this very moment, or this says why it has not.
            return await self._threads.call(lambda: twin.wait(0))

    async def result(self, timeout: Duration | None = None) -> object:  # noqa: ASYNC109 - as RunHandle
        """Return what the handler returned. As RunHandle.result."""
        found: object = self._twin.decoded(await self.wait(timeout))
        return found


class AsyncQueueHandle(Awaited):
    """One queue, for an event loop. As QueueHandle, awaited.

    Attributes:
        name: its name.
        twin: the same for threads: what `pause` and `resume` of a scheduler take.
    """

    def __init__(self, twin: NamedTwin, threads: RequestThreads) -> None:
        self.name: Final = twin.name
        self.twin: Final = twin
        self._twin = twin
        self._threads = threads

    get = awaited(QueueHandle.get)
    set = awaited(QueueHandle.set)
    pause = awaited(QueueHandle.pause)
    resume = awaited(QueueHandle.resume)


class AsyncCalendarHandle(Awaited):
    """One named calendar, for an event loop. As CalendarHandle, awaited.

    Attributes:
        name: its name.
    """

    def __init__(self, twin: NamedTwin, threads: RequestThreads) -> None:
        self.name: Final = twin.name
        self._twin = twin
        self._threads = threads

    get = awaited(CalendarHandle.get)
    set = awaited(CalendarHandle.set)
    exclude = awaited(CalendarHandle.exclude)
    include = awaited(CalendarHandle.include)
