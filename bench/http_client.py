"""HTTP/1.1 with as little as it takes: the same client for us and for the bare framework.

A client that parses more than it must would be measured with the server, on the same two
cores. This one keeps a connection, reads one answer a request, and knows only answers
with a Content-Length, which all of them have.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, Final, NamedTuple, Self
from urllib.parse import urlsplit

import msgspec

_END: Final = b"\r\n\r\n"
_LENGTH: Final = b"content-length:"


class Answer(NamedTuple):
    """What came back."""

    status: int
    body: bytes

    @property
    def value(self) -> Any:
        """The body, which is JSON."""
        return msgspec.json.decode(self.body)


class Connection:
    """One kept connection to a server; one request at a time.

    Args:
        url: of the server.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        assert parts.hostname is not None
        assert parts.port is not None
        self._address = (parts.hostname, parts.port)
        self._host = parts.netloc.encode()
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def __aenter__(self) -> Self:
        self._reader, self._writer = await asyncio.open_connection(*self._address)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._writer is not None:
            self._writer.close()
            with contextlib.suppress(OSError):
                await self._writer.wait_closed()

    async def ask(self, method: str, path: str, body: object = None) -> Answer:
        """Send a request and return its answer.

        Raises:
            OSError, asyncio.IncompleteReadError: the server has gone.
        """
        assert self._reader is not None
        assert self._writer is not None
        content = b"" if body is None else msgspec.json.encode(body)
        head = f"{method} {path} HTTP/1.1\r\ncontent-length: {len(content)}\r\n"
        kind = b"content-type: application/json\r\n" if content else b""
        self._writer.write(
            head.encode() + kind + b"host: " + self._host + _END + content
        )
        found = await self._reader.readuntil(_END)
        at = found.lower().find(_LENGTH) + len(_LENGTH)
        length = int(found[at : found.index(b"\r", at)])
        return Answer(int(found[9:12]), await self._reader.readexactly(length))
