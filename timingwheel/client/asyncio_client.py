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
from typing import Any, Final, Self

from timingwheel.client.client import Client
from timingwheel.client.handles import HOLD_SECONDS
from timingwheel.jobs.durations import Duration, duration_ns
from timingwheel.jobs.model import Run
from timingwheel.scheduler.asyncio_handles import AsyncRunHandle
from timingwheel.scheduler.awaited import RequestThreads, awaited
from timingwheel.scheduler.awaited_requests import AwaitedRequests

THREADS: Final = 64
"""Requests at once, and runs waited for at once."""


class AsyncClientRunHandle(AsyncRunHandle):
    """One run at a server, for an event loop. As client.handles.RunHandle, awaited."""

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


class AsyncClient(AwaitedRequests):
    """`Client` for one event loop: the same names, awaited.

    Args:
        url: as Client.
        **options: as Client.

    Raises:
        ArgumentError: an argument is invalid. Nothing is sent yet.
    """

    _handle = AsyncClientRunHandle

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

    # -- those that only a client has, or that it answers otherwise: see AwaitedRequests ------

    schedule = awaited(Client.schedule)
    add = awaited(Client.add)
    audit = awaited(Client.audit)
    snapshot_metrics = awaited(Client.snapshot_metrics)
    now = awaited(Client.now)
