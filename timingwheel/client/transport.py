"""One request to the server: sent, sent again where that is safe, and its answer decoded.

A request that never left is tried again for `patience`, and so is one that was refused
because the server was busy. One that left and was not answered may have been served; only
what has the same effect twice is sent again, all else is told as it is: unknown.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import quote, urlsplit

import httpx
import msgspec

from timingwheel.clock import Clock
from timingwheel.errors import ArgumentError, TimingWheelError
from timingwheel.wire.problems import PROBLEM_TYPE, Problem, error_of, make_problem

API_PATH: Final = "/api/v1"
CONNECTIONS_MAX: Final = 100
_FIRST_WAIT_NS: Final = 50_000_000
_LONGEST_WAIT_NS: Final = 1_000_000_000
_LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "::1"})
_NEVER_LEFT: Final = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
_BUSY: Final = "busy"
_T = TypeVar("_T")


class ServerAwayError(TimingWheelError):
    """No server answers there; nothing has changed.

    Attributes:
        url: where.
    """

    def __init__(self, url: str, cause: str) -> None:
        super().__init__(url, cause)
        self.url = url
        self.cause = cause

    def __str__(self) -> str:
        return (
            f"no server answers at {self.url} ({self.cause}): start one, "
            "python -m timingwheel.server ./data"
        )


class UnansweredError(TimingWheelError):
    """The server was asked and went away before it answered: it may have done it.

    Look before asking again; an add with a key or a name can simply be asked again.

    Attributes:
        url: where.
    """

    def __init__(self, url: str, cause: str) -> None:
        super().__init__(url, cause)
        self.url = url
        self.cause = cause

    def __str__(self) -> str:
        return (
            f"{self.url} did not answer ({self.cause}), and may have done what it was "
            "asked: look before asking again"
        )


class Ask(NamedTuple):
    """A request.

    Attributes:
        method: of HTTP.
        path: parts of the path below API_PATH, unquoted.
        query: parameters; those that are None are left out.
        body: to be sent as JSON; None: no body.
        headers: beside those of every request.
        is_repeatable: whether it has the same effect and answer when it is sent twice.
        hold_s: how long the server may hold it on purpose.
    """

    method: str
    path: Sequence[str]
    query: Mapping[str, Any] = {}
    body: object = None
    headers: Mapping[str, str] = {}
    is_repeatable: bool = True
    hold_s: float = 0.0


class Transport:
    """Sends requests to one server. Thread-safe.

    Args:
        url: of the server, `http://host:port`.
        token: shown with every request.
        timeout_s: how long an answer may take.
        patience_ns: how long to try again where that is safe.
        clock: what to wait by.

    Raises:
        ArgumentError: the URL is none.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None,
        timeout_s: float,
        patience_ns: int,
        clock: Clock,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ArgumentError("url", url, "pass http://host:port of a server")
        self.url: Final = url.rstrip("/")
        self.clock: Final = clock
        self._timeout_s = timeout_s
        self._patience_ns = patience_ns
        headers = {"authorization": f"Bearer {token}"} if token else {}
        self._http = httpx.Client(
            headers=headers,
            timeout=timeout_s,
            limits=httpx.Limits(
                max_connections=CONNECTIONS_MAX,
                max_keepalive_connections=CONNECTIONS_MAX,
            ),
            # A proxy of the environment does not know this machine's own address.
            trust_env=parts.hostname not in _LOOPBACK,
        )

    def send(self, ask: Ask, returns: type[_T] | Any) -> Any:
        """Return the answer.

        Args:
            ask: what to send.
            returns: the type of the answer.

        Raises:
            ServerAwayError: no server answers there.
            UnansweredError: it went away before it answered.
            TimingWheelError: what the server refused, as a Scheduler would have.
        """
        until_ns = self.clock.monotonic_ns() + self._patience_ns
        wait_ns = _FIRST_WAIT_NS
        while True:
            response, failure = self._sent(ask)
            if response is not None:
                problem = _problem(response)
                if problem is None:
                    return msgspec.json.decode(response.content, type=returns)
                failure = error_of(problem)
                if problem.code != _BUSY:
                    raise failure
            assert failure is not None
            if self.clock.monotonic_ns() + wait_ns > until_ns or isinstance(
                failure, UnansweredError
            ):
                raise failure
            self._pause(wait_ns)
            wait_ns = min(2 * wait_ns, _LONGEST_WAIT_NS)

    def close(self) -> None:
        """Let go of all connections."""
        self._http.close()

    def _sent(self, ask: Ask) -> tuple[httpx.Response | None, Exception | None]:
        """Return the response, or why there is none: UnansweredError ends all tries."""
        path = "/".join(quote(part, safe="") for part in ask.path)
        headers = dict(ask.headers)
        content = None
        if ask.body is not None:
            headers["content-type"] = "application/json"
            content = msgspec.json.encode(ask.body)
        try:
            response = self._http.request(
                ask.method,
                f"{self.url}{API_PATH}/{path}",
                params={
                    name: value
                    for name, value in ask.query.items()
                    if value is not None
                },
                content=content,
                headers=headers,
                timeout=httpx.Timeout(self._timeout_s + ask.hold_s),
            )
        except _NEVER_LEFT as error:
            return None, ServerAwayError(self.url, _words(error))
        except httpx.TransportError as error:
            if ask.is_repeatable and not isinstance(error, httpx.TimeoutException):
                return None, ServerAwayError(self.url, _words(error))
            return None, UnansweredError(self.url, _words(error))
        return response, None

    def _pause(self, wait_ns: int) -> None:
        until_ns = self.clock.monotonic_ns() + wait_ns
        condition = threading.Condition()
        with condition:
            while self.clock.monotonic_ns() < until_ns:
                self.clock.wait(condition, until_ns)


def _problem(response: httpx.Response) -> Problem | None:
    """Return what the server refused; None if it did not."""
    if response.is_success:
        return None
    kind = response.headers.get("content-type", "")
    if kind.partition(";")[0] == PROBLEM_TYPE:
        try:
            return msgspec.json.decode(response.content, type=Problem)
        except msgspec.DecodeError:
            pass
    return make_problem(
        "no-api",
        response.status_code,
        f"{response.url} is no API of timingwheel: is that the server's address?",
    )


def _words(error: Exception) -> str:
    return str(error) or type(error).__name__
