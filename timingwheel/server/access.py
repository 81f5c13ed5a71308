"""Who may ask: what stands before every request, those of a dashboard too.

A browser on this machine reaches a server on the loopback address, and any page that it
shows may try. So without tokens the Host must be one of this machine's own names (a
foreign name that resolves to it is refused), and with or without, a request that changes
something must not come from another Origin.
"""

from __future__ import annotations

import asyncio
import math
from typing import Final, NamedTuple
from urllib.parse import quote, urlsplit

from starlette.datastructures import Headers
from starlette.requests import cookie_parser
from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from timingwheel.errors import TimingWheelError
from timingwheel.server.limits import RateLimiter
from timingwheel.server.operations import API_PATH, Role
from timingwheel.server.responses import problem_response
from timingwheel.server.tokens import TokenBook
from timingwheel.wire.problems import make_problem, problem_of

LOOPBACK_NAMES: Final = frozenset({"127.0.0.1", "localhost", "::1"})
OPEN_PATHS: Final = frozenset({"/health", "/ready"})
LOGIN_PATH: Final = "/login"
STATIC_PATH: Final = "/static"
CALLER_KEY: Final = "timingwheel.caller"
TOKEN_COOKIE: Final = "timingwheel_token"  # noqa: S105 - the name of the cookie
"""Where a browser has its token; it opens the pages, never the API."""

_SAFE: Final = frozenset({"GET", "HEAD"})


class Caller(NamedTuple):
    """Who asks.

    Attributes:
        name: of the token; None where none is needed.
        role: what it may.
    """

    name: str | None
    role: Role


class Guard:
    """Lets a request through with its caller in the scope, or refuses it.

    Args:
        app: what it stands before.
        tokens: who is known; None: everybody may do everything, on this machine alone.
        hosts: without tokens, which Host names are this machine's.
        rates: bounds what each token, or each peer without one, asks a second.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        tokens: TokenBook | None,
        hosts: frozenset[str] = LOOPBACK_NAMES,
        rates: RateLimiter | None = None,
    ) -> None:
        self._app = app
        self._rates = rates
        self._tokens = tokens
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http" or scope["path"] in OPEN_PATHS:
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        refusal = self._refusal(scope["method"], headers)
        caller = None
        if refusal is None:
            try:
                await self._read_tokens()
            except TimingWheelError as error:
                problem = problem_of(error) or make_problem("access", 503, str(error))
                await problem_response(problem)(scope, receive, send)
                return
            caller = self._caller(scope["path"], headers)
        wait_s = (
            0.0 if self._rates is None else self._rates.wait_s(_client(scope, caller))
        )
        if wait_s:
            problem = make_problem(
                "too-many-requests", 429, "too many requests; ask later"
            )
            later = {"retry-after": str(math.ceil(wait_s))}
            await problem_response(problem, headers=later)(scope, receive, send)
            return
        if refusal is None and caller is None and not is_public(scope["path"]):
            if _is_visit(scope, headers):
                await _to_login(scope)(scope, receive, send)
                return
            refusal = (
                401,
                "pass a token that this server knows: Authorization: Bearer tw_...",
            )
        if refusal is not None:
            status, detail = refusal
            response = problem_response(make_problem("access", status, detail))
            if status == 401:
                response.headers["www-authenticate"] = 'Bearer realm="timingwheel"'
            await response(scope, receive, send)
            return
        scope[CALLER_KEY] = caller
        await self._app(scope, receive, send)

    def _refusal(self, method: str, headers: Headers) -> tuple[int, str] | None:
        host = headers.get("host", "")
        if self._tokens is None and _name_of(host) not in self._hosts:
            detail = (
                f"the Host is {host!r}, which is no name of this machine: ask "
                "http://127.0.0.1, or start the server with tokens"
            )
            return 403, detail
        origin = headers.get("origin")
        if method not in _SAFE and origin and urlsplit(origin).netloc != host:
            return 403, f"the Origin {origin!r} may not change anything here"
        return None

    async def _read_tokens(self) -> None:
        """Have what is known of tokens be new; not on the loop, which must not wait."""
        if self._tokens is not None and not self._tokens.is_fresh:
            await asyncio.to_thread(self._tokens.tokens)

    def _caller(self, path: str, headers: Headers) -> Caller | None:
        if self._tokens is None:
            return Caller(None, Role.ADMIN)
        scheme, _, secret = headers.get("authorization", "").partition(" ")
        if not secret and not _is_api(path):
            cookies = cookie_parser(headers.get("cookie", ""))
            scheme, secret = "bearer", cookies.get(TOKEN_COOKIE, "")
        if scheme.lower() != "bearer" or not secret:
            return None
        token = self._tokens.find(secret.strip())
        return None if token is None else Caller(token.name, token.allows)


def _client(scope: Scope, caller: Caller | None) -> str:
    """Return whose requests are counted together: a token's, else an address's."""
    if caller is not None and caller.name is not None:
        return f"token {caller.name}"
    peer = scope.get("client")
    return f"peer {peer[0] if peer else ''}"


def is_public(path: str) -> bool:
    """Return whether a path is for everybody: what the page to sign in is made of."""
    return path == LOGIN_PATH or path.startswith(f"{STATIC_PATH}/")


def _is_api(path: str) -> bool:
    return path == API_PATH or path.startswith(f"{API_PATH}/")


def _is_visit(scope: Scope, headers: Headers) -> bool:
    """Return whether a person asks, who can be shown a page to sign in."""
    return not _is_api(scope["path"]) and "text/html" in headers.get("accept", "")


def _to_login(scope: Scope) -> RedirectResponse:
    here = "/"
    if scope["method"] in _SAFE:
        query = scope["query_string"].decode("latin-1")
        here = f"{quote(scope['path'])}?{query}".rstrip("?")
    return RedirectResponse(f"{LOGIN_PATH}?next={quote(here, safe='')}", 303)


def _name_of(host: str) -> str:
    """Return a Host without its port."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""
