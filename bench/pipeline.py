"""A connection that many tasks share: requests in a row, replies in the same order."""

from __future__ import annotations

import asyncio
from collections import deque


class Pipeline(asyncio.Protocol):
    """Sends each request at once and gives the replies to who asked, first come first.

    It counts lines and looks at nothing else, which is the least that a client can do.

    Args:
        lines: of every reply.
        failure: bytes that are in a reply only if it tells of an error.
    """

    def __init__(self, *, lines: int, failure: bytes) -> None:
        self._lines = lines
        self._failure = failure
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._arrived = 0
        self._unsent: list[bytes] = []
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._arrived += data.count(b"\n")
        error = ConnectionError(data) if self._failure in data else None
        while self._arrived >= self._lines:
            self._arrived -= self._lines
            caller = self._waiting.popleft()
            if error is None:
                caller.set_result(None)
            else:
                caller.set_exception(error)

    def connection_lost(self, error: Exception | None) -> None:
        for caller in self._waiting:
            if not caller.done():
                caller.set_exception(error or ConnectionError("the server hung up"))
        self._waiting.clear()

    async def ask(self, request: bytes) -> None:
        """Send a request; return when its reply has come."""
        caller = self._loop.create_future()
        self._waiting.append(caller)
        if not self._unsent:
            # What all tasks send in one turn of the loop goes in one system call.
            self._loop.call_soon(self._send)
        self._unsent.append(request)
        await caller

    def close(self) -> None:
        """Hang up."""
        if self._transport is not None:
            self._transport.close()

    def _send(self) -> None:
        assert self._transport is not None
        self._transport.write(b"".join(self._unsent))
        self._unsent.clear()
