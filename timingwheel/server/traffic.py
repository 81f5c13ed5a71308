"""What passes: each request is counted, timed and logged, refused ones too.

Stands before everything else. The route of a request is the path of its operation, with
names in braces, so that neither counts nor their labels grow with what people ask for.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from timingwheel.clock import Clock
from timingwheel.server.access import CALLER_KEY, OPEN_PATHS
from wal.histogram import Histogram

ROUTE_KEY: Final = "timingwheel.route"
"""In the scope: the path of the operation that answers, with names in braces."""
NAMES_KEY: Final = "timingwheel.names"
"""In the scope: the names in the path, such as {"job": "nightly"}."""
PLAIN_PATHS: Final = OPEN_PATHS | {"/metrics", "/openapi.json"}
"""Paths that are routes as they stand."""
PAGE_ROUTE: Final = "(page)"
"""Route of whatever else answers, such as a dashboard."""
NO_ROUTE: Final = "(none)"
"""Route of a request that nobody answers: refused before, or no such path."""
BOUNDS_NS: Final = tuple(
    milliseconds * 1_000_000
    for milliseconds in (1, 2, 5, 10, 25, 50, 100, 250, 500, 1_000, 5_000, 30_000)
)
_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"})
_QUIET: Final = OPEN_PATHS | {"/metrics"}
_logger = logging.getLogger("timingwheel.access")


class RequestKind(NamedTuple):
    """What requests are counted by."""

    method: str
    route: str
    status: int


class Traffic:
    """The counts of one server. The loop counts; any thread may read."""

    def __init__(self) -> None:
        self._requests: Counter[RequestKind] = Counter()
        self._durations: dict[str, Histogram] = {}

    def note(self, kind: RequestKind, duration_ns: int) -> None:
        """Count a request that has been answered."""
        self._requests[kind] += 1
        durations = self._durations.get(kind.route)
        if durations is None:
            durations = self._durations[kind.route] = Histogram(BOUNDS_NS)
        durations.add(duration_ns)

    def requests(self) -> Mapping[RequestKind, int]:
        """Return how many there were of each kind."""
        return self._requests.copy()

    def durations(self) -> Mapping[str, Histogram]:
        """Return how long they took, by route."""
        return self._durations.copy()


class Watched:
    """Lets every request through, counts it, and writes a line about it.

    Args:
        app: what it stands before.
        traffic: where to count.
        clock: how long requests take is measured by it.
    """

    def __init__(self, app: ASGIApp, *, traffic: Traffic, clock: Clock) -> None:
        self._app = app
        self._traffic = traffic
        self._clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status = 500  # of a request whose answer never begins

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        begun_ns = self._clock.monotonic_ns()
        try:
            await self._app(scope, receive, noting)
        finally:
            duration_ns = self._clock.monotonic_ns() - begun_ns
            method = scope["method"] if scope["method"] in _METHODS else "(other)"
            kind = RequestKind(method, _route_of(scope), status)
            self._traffic.note(kind, duration_ns)
            _log(scope, kind, duration_ns)


def _route_of(scope: Scope) -> str:
    route: str | None = scope.get(ROUTE_KEY)
    if route is not None:
        return route
    if scope["path"] in PLAIN_PATHS:
        return str(scope["path"])
    return PAGE_ROUTE if "endpoint" in scope else NO_ROUTE


def _log(scope: Scope, kind: RequestKind, duration_ns: int) -> None:
    level = logging.DEBUG if kind.route in _QUIET else logging.INFO
    if not _logger.isEnabledFor(level):
        return
    peer, caller = scope.get("client"), scope.get(CALLER_KEY)
    # As it came, still quoted: no byte of it can break the line. Without the query.
    path = bytes(scope.get("raw_path") or b"").partition(b"?")[0].decode("latin-1")
    facts: dict[str, Any] = {
        "method": kind.method,
        "path": path,
        "route": kind.route,
        "status": kind.status,
        "duration_ms": round(duration_ns / 1e6, 3),
        "peer": peer[0] if peer else None,
        "caller": getattr(caller, "name", None),
        **scope.get(NAMES_KEY, {}),
    }
    _logger.log(
        level,
        "%s %s %d %.1f ms",
        kind.method,
        path,
        kind.status,
        duration_ns / 1e6,
        extra=facts,
    )
