"""The server process: a scheduler and its API on a socket, until somebody ends it.

    HttpServer(Scheduler("./data")).run()               until Ctrl-C or SIGTERM
    with HttpServer(scheduler, port=0) as server:       beside a program, on threads
        print(server.url)

It ends in order: no new connections, requests in hand are answered, what runs may end
within the grace, the log is closed. What was acknowledged is safe in any case.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import signal
import socket
import threading
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Final, Self

import uvicorn
from starlette.routing import BaseRoute

from timingwheel.errors import ArgumentError, EngineFailedError
from timingwheel.jobs.durations import Duration
from timingwheel.scheduler.scheduler import GRACE_SECONDS, Scheduler
from timingwheel.server.app import create_app
from timingwheel.server.audit import AuditBook
from timingwheel.server.hub import WorkerHub
from timingwheel.server.limits import (
    CONNECTIONS_MAX,
    HEAD_BYTES_MAX,
    RATE_DEFAULT,
    PatientProtocol,
    RateLimiter,
)
from timingwheel.server.tokens import TokenBook

DEFAULT_HOST: Final = "127.0.0.1"
DEFAULT_PORT: Final = 8765
ANSWER_SECONDS_MAX: Final = 5
"""How long requests in hand may take to be answered once the server is to end."""

_BACKLOG: Final = 2_048
_logger = logging.getLogger("timingwheel.server")


class _Uvicorn(uvicorn.Server):
    """Ends by a flag, or by a signal after which the program goes on to its own end."""

    takes_signals = False
    stopping: asyncio.Event

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Take SIGINT and SIGTERM for as long as it serves."""
        if not self.takes_signals:
            yield
            return
        numbers = (signal.SIGINT, signal.SIGTERM)
        former = {number: signal.signal(number, self.handle_exit) for number in numbers}
        try:
            yield
        finally:
            for number, handler in former.items():
                signal.signal(number, handler)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Let requests in hand be answered; those that are held are, at once."""
        self.stopping.set()
        await super().shutdown(sockets)


class HttpServer:
    """A scheduler and its API on one address.

    Args:
        scheduler: started and stopped with the server.
        host: where to listen; any other than this machine alone needs tokens.
        port: where; 0 takes a free one.
        tokens: who may ask; None: everybody on this machine.
        routes: more of them; see create_app.
        grace: how long what runs may take to end.
        rate_limit: requests a second that each token, or each peer without one, may
            make; by default 500 where other machines can reach it, and on the loopback
            address no bound. 0: none anywhere.

    Raises:
        ArgumentError: other machines could reach it, and there are no tokens.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        *,
        host: str = DEFAULT_HOST,
        port: int = DEFAULT_PORT,
        tokens: TokenBook | None = None,
        routes: Sequence[BaseRoute] = (),
        grace: Duration = GRACE_SECONDS,
        rate_limit: float | None = None,
    ) -> None:
        if rate_limit is None:
            rate_limit = 0 if is_loopback(host) else RATE_DEFAULT
        rates = RateLimiter(rate_limit, scheduler.clock) if rate_limit else None
        if not is_loopback(host) and (tokens is None or not tokens.tokens()):
            raise ArgumentError(
                "host",
                host,
                "other machines could reach it: make a token first, or serve on "
                f"{DEFAULT_HOST}",
            )
        self.host: Final = host
        self._port = port
        self._scheduler = scheduler
        self._app = create_app(
            scheduler, tokens=tokens, routes=routes, grace=grace, rates=rates
        )
        self._server: _Uvicorn | None = None
        self._thread: threading.Thread | None = None
        self._socket: socket.socket | None = None
        self._failure: BaseException | None = None

    @property
    def hub(self) -> WorkerHub:
        """The workers that work from afar."""
        hub: WorkerHub = self._app.state.hub
        return hub

    @property
    def audit(self) -> AuditBook:
        """Who did what."""
        audit: AuditBook = self._app.state.audit
        return audit

    @property
    def url(self) -> str:
        """Where it listens; with port 0 only once it does."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self._port}"

    def open(self) -> None:
        """Take the address and start the scheduler; then `url` is known. Idempotent.

        `run` and `start` do so by themselves.

        Raises:
            ArgumentError: the address is taken, or none of this machine.
            StoreInUseError, StoreError, LogCorruptError: as Scheduler.start.
            AuditError: the record of who did what cannot be opened.
        """
        if self._socket is not None:
            return
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        try:
            taken = socket.create_server(
                (self.host, self._port), family=family, backlog=_BACKLOG
            )
        except OSError as error:
            raise ArgumentError(
                "port",
                self._port,
                f"{self.host} does not give it ({error.strerror}): pass another, or 0",
            ) from error
        try:
            # Here, and not by the application: its errors belong to who asks.
            self._scheduler.start()
            self.audit.open()
        except BaseException:
            taken.close()
            self._scheduler.stop(0)
            raise
        self._socket = taken
        self._port = taken.getsockname()[1]

    def run(self) -> None:
        """Serve until Ctrl-C, SIGTERM or `stop`, in the main thread.

        Raises:
            EngineFailedError: the log failed, so that a supervisor sees a bad end.
            As `open`.
        """
        self._serve(takes_signals=True)

    def start(self) -> Self:
        """Serve on a thread; the address is open when this returns.

        Raises:
            As `open`.
        """
        self.open()
        self._thread = threading.Thread(
            target=self._serve,
            kwargs={"takes_signals": False},
            name="timingwheel-http",
        )
        self._thread.start()
        return self

    def stop(self) -> None:
        """End in order, and return when it has. Idempotent."""
        server, thread = self._server, self._thread
        if server is not None:
            server.should_exit = True
        if thread is not None:
            thread.join()
        self._thread = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _serve(self, *, takes_signals: bool) -> None:
        self.open()
        assert self._socket is not None
        config = uvicorn.Config(
            self._app,
            log_config=None,
            access_log=False,
            lifespan="on",
            http=PatientProtocol,
            h11_max_incomplete_event_size=HEAD_BYTES_MAX,
            limit_concurrency=CONNECTIONS_MAX,
            proxy_headers=False,
            server_header=False,
            timeout_graceful_shutdown=ANSWER_SECONDS_MAX,
        )
        server = self._server = _Uvicorn(config)
        server.takes_signals = takes_signals
        server.stopping = self._app.state.stopping
        self._scheduler.add_failure_listener(self._fail)
        try:
            server.run(sockets=[self._socket])
        finally:
            self._scheduler.remove_failure_listener(self._fail)
            self._socket.close()
            self._socket = None
            self._scheduler.stop()
        if self._failure is not None and takes_signals:
            raise EngineFailedError(
                "the scheduler stopped for good: mend the cause and start again"
            ) from self._failure

    def _fail(self, error: BaseException) -> None:
        self._failure = error
        if self._server is not None:
            self._server.should_exit = True


def is_loopback(host: str) -> bool:
    """Return whether an address is reached from this machine alone."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
