"""The ASGI application: the API, its document, health, metrics, and the dashboard.

    app = create_app(Scheduler("./data"))           for any ASGI server

It starts the scheduler with its own life and stops it at the end.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match, Route
from starlette.types import Receive, Scope, Send

from timingwheel.jobs.durations import Duration
from timingwheel.scheduler.awaited import RequestThreads
from timingwheel.scheduler.scheduler import GRACE_SECONDS, Scheduler
from timingwheel.server.access import LOOPBACK_NAMES, Guard
from timingwheel.server.api import Api
from timingwheel.server.audit import AuditBook
from timingwheel.server.audit_file import AuditFile
from timingwheel.server.audit_operations import AUDIT_OPERATIONS
from timingwheel.server.dashboard.dashboard import dashboard_routes
from timingwheel.server.dashboard.live import LiveStreams, Pulse, looked_at
from timingwheel.server.dashboard.vitals import Vitals
from timingwheel.server.exposition import Exposition
from timingwheel.server.hub import WorkerHub
from timingwheel.server.job_operations import JOB_OPERATIONS
from timingwheel.server.limits import Limited, RateLimiter
from timingwheel.server.openapi import openapi_document
from timingwheel.server.operations import API_PATH, Operation
from timingwheel.server.place_operations import PLACE_OPERATIONS
from timingwheel.server.responses import value_response
from timingwheel.server.run_operations import RUN_OPERATIONS
from timingwheel.server.tokens import DIRECTORY, TokenBook
from timingwheel.server.traffic import Traffic, Watched
from timingwheel.server.worker_operations import WORKER_OPERATIONS
from timingwheel.wire.answers import StatusAnswer

OPERATIONS: Final[tuple[Operation, ...]] = (
    *JOB_OPERATIONS,
    *RUN_OPERATIONS,
    *PLACE_OPERATIONS,
    *WORKER_OPERATIONS,
    *AUDIT_OPERATIONS,
)
"""All that the API can be asked."""


class _ApiRoute(BaseRoute):
    """All paths of the API; a Mount would leave out names that hold a line's end."""

    def __init__(self, api: Api) -> None:
        self._api = api

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Return whether a path is one of them."""
        is_api = scope["type"] == "http" and scope["path"].startswith(f"{API_PATH}/")
        return (Match.FULL if is_api else Match.NONE), {}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        await self._api(scope, receive, send)


def create_app(
    scheduler: Scheduler,
    *,
    tokens: TokenBook | None = None,
    hosts: frozenset[str] = LOOPBACK_NAMES,
    routes: Sequence[BaseRoute] = (),
    grace: Duration = GRACE_SECONDS,
    rates: RateLimiter | None = None,
) -> Starlette:
    """Return the application.

    `app.state` has `scheduler`, `threads` (a RequestThreads, on which routes are to call
    what waits for the disk), `stopping` (an Event that ends requests that are held) and
    `audit` (an AuditBook, in which routes that change something are to note it).
    Routes find who asks in `scope[CALLER_KEY]`; see access.py.

    Args:
        scheduler: started when the application starts, and stopped with it.
        tokens: who may ask; None: everybody who reaches it by a name in `hosts`.
        hosts: names by which this machine is asked, where there are no tokens.
        routes: more of them; they come after those of the API, before the dashboard.
        grace: how long what runs may take to end when it stops.
        rates: bounds the requests of each client; None: nobody's.
    """
    threads = RequestThreads()
    stopping = asyncio.Event()
    pulse, vitals = Pulse(), Vitals(scheduler)
    scheduler.add_node_listener(pulse)
    live = LiveStreams(pulse, stopping)
    audit = audit_book(scheduler)

    @contextlib.asynccontextmanager
    async def life(_: Starlette) -> AsyncIterator[None]:
        await threads.call(scheduler.start)
        try:
            await threads.call(audit.open)
            async with looked_at(vitals, threads):
                yield
        finally:
            stopping.set()
            await threads.call(lambda: _end(scheduler, audit, tokens, grace=grace))

    traffic = Traffic()
    hub = WorkerHub(scheduler)
    scheduler.add_node_listener(hub)
    api = Api(
        scheduler,
        OPERATIONS,
        threads=threads,
        stopping=stopping,
        hub=hub,
        audit=audit,
    )
    app = Starlette(
        routes=[
            *_plain_routes(scheduler, stopping, needs_token=tokens is not None),
            _metrics_route(Exposition(scheduler, traffic), threads),
            _ApiRoute(api),
            *routes,
            *dashboard_routes(
                scheduler,
                hub=hub,
                vitals=vitals,
                threads=threads,
                live=live,
                tokens=tokens,
                audit=audit,
            ),
        ],
        middleware=[
            Middleware(Watched, traffic=traffic, clock=scheduler.clock),
            Middleware(Limited),
            Middleware(Guard, tokens=tokens, hosts=hosts, rates=rates),
        ],
        lifespan=life,
    )
    app.state.scheduler = scheduler
    app.state.threads = threads
    app.state.stopping = stopping
    app.state.audit = audit
    app.state.hub = hub
    return app


def _end(
    scheduler: Scheduler,
    audit: AuditBook,
    tokens: TokenBook | None,
    *,
    grace: Duration,
) -> None:
    audit.close()
    scheduler.stop(grace)
    if tokens is not None:
        tokens.close()


def audit_book(scheduler: Scheduler) -> AuditBook:
    """Return the record of who did what, beside a scheduler's store."""
    if scheduler.database is not None:
        # Imported now: psycopg is an extra.
        from timingwheel.server.audit_database import AuditTable

        return AuditBook(AuditTable(scheduler.database), scheduler.clock)
    directory = scheduler.directory
    if directory is not None:
        directory = os.path.join(directory, DIRECTORY)
    return AuditBook(AuditFile(directory), scheduler.clock)


def _metrics_route(exposition: Exposition, threads: RequestThreads) -> Route:
    """Return what Prometheus asks."""

    async def metrics(request: Request) -> Response:
        accept = request.headers.get("accept", "")
        text, media_type = await threads.call(lambda: exposition.render(accept))
        return Response(text, headers={"content-type": media_type})

    return Route("/metrics", metrics)


def _plain_routes(
    scheduler: Scheduler, stopping: asyncio.Event, *, needs_token: bool
) -> list[BaseRoute]:
    """Return the health of the server, and the document of its API."""
    document: dict[str, Any] = openapi_document(OPERATIONS, needs_token=needs_token)

    async def health(_: Request) -> Response:
        return value_response(StatusAnswer("ok"))

    async def ready(_: Request) -> Response:
        if stopping.is_set():
            return value_response(StatusAnswer("it is stopping"), status=503)
        if not scheduler.is_serving:
            return value_response(StatusAnswer("it starts no runs"), status=503)
        return value_response(StatusAnswer("ok"))

    async def openapi(_: Request) -> Response:
        return value_response(document)

    return [
        Route("/health", health),
        Route("/ready", ready),
        Route("/openapi.json", openapi),
    ]
