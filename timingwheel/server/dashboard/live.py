"""Pages that stay true while they are open: one stream of server-sent events a page.

The stream says only that something may have changed, once a second at most; the parts
of a page that care (`hx-trigger="live from:body"`) then ask for themselves anew. So
there is no second way to render, a page that was away catches up by one request, and a
busy server sends a byte a second, not a byte a run.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Final

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse

from timingwheel.errors import TimingWheelError
from timingwheel.jobs.store import Request as EndRequest
from timingwheel.scheduler.awaited import RequestThreads
from timingwheel.server.dashboard.vitals import Vitals

STREAMS_MAX: Final = 256
"""Open pages at once; one more is not live, and its reader can load it anew."""
LOOK_SECONDS: Final = 5.0
"""Between two looks at the counts, if no page asks: what ends meanwhile is put down to
the minute of the later one."""
BEAT_SECONDS: Final = 1.0
QUIET_BEATS_MAX: Final = 15
"""After so many beats without news a comment is sent, so that a dead way is noticed."""
_RETRY_MS: Final = 2_000


@contextlib.asynccontextmanager
async def looked_at(vitals: Vitals, threads: RequestThreads) -> AsyncIterator[None]:
    """Have the counts read every LOOK_SECONDS while the block lasts."""
    ended = asyncio.Event()

    async def look() -> None:
        while not ended.is_set():
            # The page says what is wrong with the store; this goes on meanwhile.
            with contextlib.suppress(TimingWheelError):
                await threads.call(vitals.look)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(ended.wait(), LOOK_SECONDS)

    task = asyncio.create_task(look())
    try:
        yield
    finally:
        ended.set()
        await task


class Pulse:
    """Counts the turns of the node; a NodeListener, called from the node's thread."""

    def __init__(self) -> None:
        self.turns = 0

    def turned(self) -> None:
        """Note that something may have changed."""
        self.turns += 1

    def asked_to_end(self, request: EndRequest) -> None:
        """Nothing to a page: the turn is told as well."""


class LiveStreams:
    """Serves the streams.

    Args:
        pulse: says whether something may have changed.
        stopping: ends them all.
    """

    def __init__(self, pulse: Pulse, stopping: asyncio.Event) -> None:
        self._pulse = pulse
        self._stopping = stopping
        self._open = 0

    async def serve(self, _: Request) -> Response:
        """Answer with a stream, or with 503 if there are too many."""
        if self._open >= STREAMS_MAX:
            return PlainTextResponse("too many open pages", 503)
        return StreamingResponse(
            self._events(),
            media_type="text/event-stream",
            headers={"cache-control": "no-store", "x-accel-buffering": "no"},
        )

    async def _events(self) -> AsyncIterator[str]:
        self._open += 1
        try:
            yield f"retry: {_RETRY_MS}\n\n"
            seen, quiet = self._pulse.turns, 0
            while not await self._stops_within(BEAT_SECONDS):
                turns, quiet = self._pulse.turns, quiet + 1
                if turns != seen:
                    seen, quiet = turns, 0
                    yield f"event: live\ndata: {turns}\n\n"
                elif quiet >= QUIET_BEATS_MAX:
                    quiet = 0
                    yield ": still here\n\n"
        finally:
            self._open -= 1

    async def _stops_within(self, seconds: float) -> bool:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), seconds)
        return self._stopping.is_set()
