"""What one client may ask of a server, so that none takes it from the others.

    head of a request    HEAD_BYTES_MAX                                 431, 400
                         within HEAD_SECONDS_MAX                        cut off
    its URL              URL_BYTES_MAX                                  414
    its body             BODY_BYTES_MAX (api.py)                        413
                         within BODY_SECONDS_MAX                        408
    requests a second    a token bucket for each token, or peer         429
    requests at once     REQUESTS_MAX, of them HELD_MAX held (api.py)   503
    connections at once  CONNECTIONS_MAX                                503

On the loopback address nobody is slowed down unless it is asked for.
"""

from __future__ import annotations

import asyncio
import math
from collections import OrderedDict
from typing import Any, Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from timingwheel.clock import Clock
from timingwheel.errors import ArgumentError
from timingwheel.server.responses import problem_response
from timingwheel.wire.problems import Problem, make_problem

HEAD_BYTES_MAX: Final = 32 << 10
"""Of headers together. One that is far too long never gets as far as an answer that says
so: uvicorn stops reading and answers 400."""
HEAD_SECONDS_MAX: Final = 15.0
URL_BYTES_MAX: Final = 8 << 10
BODY_SECONDS_MAX: Final = 30.0
"""2 MiB in this time are 70 kB a second: a slow line, and not one that means it ill."""
CONNECTIONS_MAX: Final = 2_000
RATE_DEFAULT: Final = 500.0
"""Requests a second of one client where other machines can reach the server. A worker at
full speed makes some hundred; a page makes ten."""
BURST_SECONDS: Final = 2.0
"""A client that was quiet may ask for so many seconds' worth at once."""
CLIENTS_MAX: Final = 10_000
"""Clients that are remembered; who has been quiet longest is forgotten first."""
SLOW: Final = "timingwheel.slow"
"""In a disconnect: it is the server that has had enough of waiting."""


class RateLimiter:
    """A token bucket for each client. For one event loop.

    Args:
        rate: requests a second that each may make for ever.
        clock: by which buckets fill.

    Raises:
        ArgumentError: the rate is no number above 0.
    """

    def __init__(self, rate: float, clock: Clock) -> None:
        if not (rate > 0 and math.isfinite(rate)):
            raise ArgumentError("rate_limit", rate, "pass requests a second, above 0")
        self._rate = rate
        self._burst = max(rate * BURST_SECONDS, 1.0)
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, int]] = OrderedDict()

    def wait_s(self, client: str) -> float:
        """Take one request from a client's bucket.

        Returns:
            0.0 if it may go; else the seconds until the next one may, and none was taken.

        Cost: O(1).
        """
        now_ns = self._clock.monotonic_ns()
        left, at_ns = self._buckets.pop(client, (self._burst, now_ns))
        left = min(self._burst, left + (now_ns - at_ns) / 1e9 * self._rate)
        goes = left >= 1.0
        self._buckets[client] = (left - 1.0 if goes else left, now_ns)
        if len(self._buckets) > CLIENTS_MAX:
            self._buckets.popitem(last=False)
        return 0.0 if goes else (1.0 - left) / self._rate


class Limited:
    """Refuses a URL that is too long, and waits for no body for ever.

    Args:
        app: what it stands before.
        body_seconds_max: how long a request may take to arrive.
    """

    def __init__(
        self, app: ASGIApp, *, body_seconds_max: float = BODY_SECONDS_MAX
    ) -> None:
        self._app = app
        self._body_seconds_max = body_seconds_max

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        problem = _too_long(scope)
        if problem is not None:
            await problem_response(problem)(scope, receive, send)
            return
        until_s = asyncio.get_running_loop().time() + self._body_seconds_max
        arrived = False

        async def receive_in_time() -> Message:
            nonlocal arrived
            if arrived:  # from now on it tells of a disconnect alone
                return await receive()
            try:
                async with asyncio.timeout_at(until_s):
                    message = await receive()
            except TimeoutError:
                return {"type": "http.disconnect", SLOW: True}
            arrived = not message.get("more_body", False)
            return message

        await self._app(scope, receive_in_time, send)


def _too_long(scope: Scope) -> Problem | None:
    path = scope.get("raw_path") or scope["path"].encode()
    if len(path) + len(scope["query_string"]) > URL_BYTES_MAX:
        said = f"a URL holds at most {URL_BYTES_MAX:,} bytes"
        return make_problem("url-too-long", 414, said)
    if sum(len(name) + len(value) for name, value in scope["headers"]) > HEAD_BYTES_MAX:
        said = f"headers hold at most {HEAD_BYTES_MAX:,} bytes together"
        return make_problem("headers-too-large", 431, said)
    return None


class PatientProtocol(H11Protocol):
    """HTTP for clients that begin to speak: one whose head does not come is cut off."""

    head_seconds_max = HEAD_SECONDS_MAX

    def connection_made(self, transport: Any) -> None:
        """Begin to wait for the first head."""
        super().connection_made(transport)
        self._timer: asyncio.TimerHandle | None = None
        self._await_head()

    def data_received(self, data: bytes) -> None:
        """Take bytes in; wait no longer for a head that is there, or anew for one."""
        super().data_received(data)
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is not None and not cycle.response_complete:
            self._forget_timer()
        elif self._timer is None:
            self._await_head()

    def on_response_complete(self) -> None:
        """Leave the pause between two requests to uvicorn's own time-out."""
        self._forget_timer()
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait for nothing more."""
        self._forget_timer()
        super().connection_lost(exc)

    def _await_head(self) -> None:
        self._timer = self.loop.call_later(self.head_seconds_max, self._cut_off)

    def _forget_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _cut_off(self) -> None:
        if not self.transport.is_closing():
            self.transport.close()
