"""The API as an ASGI application: find the operation, decode, call, encode.

Whatever waits for the disk is called on a few threads, never on the loop; more requests
than REQUESTS_MAX at once are refused, so that a flood costs neither memory nor order.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, cast

import msgspec
from starlette.datastructures import Headers, QueryParams
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from timingwheel.errors import ArgumentError
from timingwheel.jobs.errors import UNREADABLE
from timingwheel.scheduler.awaited import RequestThreads
from timingwheel.scheduler.scheduler import Scheduler
from timingwheel.server.access import CALLER_KEY, Caller
from timingwheel.server.audit import AuditBook
from timingwheel.server.audit_operations import entry_of
from timingwheel.server.hub import WorkerHub
from timingwheel.server.limits import SLOW
from timingwheel.server.operations import API_PATH, Asked, Operation, Reply, Routes
from timingwheel.server.responses import problem_response, value_response
from timingwheel.server.traffic import NAMES_KEY, ROUTE_KEY
from timingwheel.wire.problems import Problem, make_problem, problem_of

REQUESTS_MAX: Final = 1_000
"""Requests in hand at once, those that wait for a run too."""
HELD_MAX: Final = 800
"""Of them those that are held until something happens: the others need room, too."""
BODY_BYTES_MAX: Final = 2 << 20
"""Of a request: a payload of the largest size fits, even as Base64."""

_FIELD: Final = re.compile(r"(?s)(.*?) - at `(?:key in )?\$(.*)`")
_UNKNOWN: Final = re.compile(r"Object contains unknown field `(.*)`")
_MISSING: Final = re.compile(r"Object missing required field `(.*)`")
_LONG_NUMBER: Final = re.compile(rb"[0-9]{19}")
_JSON: Final = "application/json"
_logger = logging.getLogger("timingwheel.server")


class _RefusedError(Exception):
    """Ends a request with a problem."""

    def __init__(
        self, problem: Problem, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(problem)
        self.problem = problem
        self.headers = headers


class Api:
    """Answers requests below API_PATH.

    Args:
        scheduler: which is asked.
        operations: what can be asked.
        threads: where calls wait for the disk.
        stopping: set when the server is to end.
        hub: the workers that work from afar.
        audit: who did what.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        operations: tuple[Operation, ...],
        *,
        threads: RequestThreads,
        stopping: asyncio.Event,
        hub: WorkerHub,
        audit: AuditBook,
    ) -> None:
        self._scheduler = scheduler
        self._routes = Routes(operations)
        self._threads = threads
        self._stopping = stopping
        self._hub = hub
        self._audit = audit
        self._in_hand = 0
        self._held = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if self._in_hand >= REQUESTS_MAX:
            busy = make_problem("busy", 503, "too many requests at once; ask again")
            await problem_response(busy)(scope, receive, send)
            return
        self._in_hand += 1
        try:
            response = await self._response(scope, receive)
        finally:
            self._in_hand -= 1
        await response(scope, receive, send)

    async def _response(self, scope: Scope, receive: Receive) -> Response:
        try:
            operation, path = self._found(scope)
        except _RefusedError as refused:
            return problem_response(refused.problem, headers=refused.headers)
        scope[ROUTE_KEY], scope[NAMES_KEY] = API_PATH + operation.path, path
        caller = cast("Caller", scope[CALLER_KEY])
        asked: Asked | None = None
        answer: object = None
        problem: Problem | None = None
        headers: Mapping[str, str] | None = None
        try:
            _check_role(operation, caller)
            asked = Asked(
                scheduler=self._scheduler,
                path=path,
                query=_query(operation, scope),
                body=_body(operation, scope, await _received(receive)),
                headers=Headers(scope=scope),
                caller=caller.name,
                threads=self._threads,
                stopping=self._stopping,
                hub=self._hub,
                audit=self._audit,
            )
            answer = await self._call(operation, asked)
            response = _answered(operation, answer)
        except Exception as error:
            if isinstance(error, _RefusedError):
                problem, headers = error.problem, error.headers
            else:
                problem = problem_of(error, place=path)
            if problem is None:
                _logger.exception("%s %s failed", scope["method"], scope["path"])
                problem = make_problem(
                    "internal", 500, "the server has a fault; its log tells more"
                )
            response = problem_response(problem, headers=headers)
        if operation.is_audited:
            entry = entry_of(
                operation,
                caller,
                path=path,
                asked=asked,
                answer=answer,
                status=response.status_code,
                problem=problem,
                time_ns=self._scheduler.clock.wall_ns(),
            )
            self._audit.note(entry)
        return response

    async def _call(self, operation: Operation, asked: Asked) -> object:
        if operation.awaits:
            if self._held >= HELD_MAX:
                raise _RefusedError(
                    make_problem("busy", 503, "too many requests are held; ask again")
                )
            self._held += 1
            try:
                return await cast("Any", operation.answer)(asked)
            finally:
                self._held -= 1
        return await self._threads.call(lambda: operation.answer(asked))

    def _found(self, scope: Scope) -> tuple[Operation, dict[str, str]]:
        raw = scope.get("raw_path") or scope["path"].encode()
        below = raw.partition(b"?")[0].partition(API_PATH.encode())[2]
        try:
            methods, names = self._routes.find(below)
        except UnicodeDecodeError:
            methods, names = {}, []
        if not methods:
            raise _RefusedError(
                make_problem(
                    "no-such-path",
                    404,
                    f"{scope['path']!r} is no path of this API; /openapi.json lists them",
                )
            )
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        operation = methods.get(method)
        if operation is None:
            raise _RefusedError(
                make_problem(
                    "no-such-method",
                    405,
                    f"{scope['method']} is not for this path: {', '.join(methods)} are",
                ),
                {"allow": ", ".join(methods)},
            )
        return operation, dict(zip(operation.names, names, strict=True))


def _check_role(operation: Operation, caller: Caller) -> None:
    if caller.role < operation.role:
        needed = operation.role.name.lower()
        raise _RefusedError(
            make_problem(
                "access",
                403,
                f"{caller.name} may {caller.role.name.lower()}, and this needs the role "
                f"{needed}",
            )
        )


def _answered(operation: Operation, answer: object) -> Response:
    if isinstance(answer, Reply):
        return value_response(
            answer.value,
            status=answer.status or operation.status,
            headers=answer.headers,
        )
    return value_response(answer, status=operation.status)


async def _received(receive: Receive) -> bytes:
    """Return a request's body.

    Raises:
        _RefusedError: it is too long, or its sender has gone.
    """
    parts, size_bytes, more = [], 0, True
    while more:
        message: Message = await receive()
        if message["type"] == "http.disconnect":
            if message.get(SLOW):
                raise _RefusedError(
                    make_problem("too-slow", 408, "the body did not arrive in time")
                )
            raise _RefusedError(make_problem("gone", 400, "the sender has gone"))
        parts.append(message.get("body", b""))
        size_bytes += len(parts[-1])
        if size_bytes > BODY_BYTES_MAX:
            raise _RefusedError(
                make_problem(
                    "body-too-large",
                    413,
                    f"a body holds at most {BODY_BYTES_MAX:,} bytes; keep the bulk "
                    "elsewhere and pass its key",
                )
            )
        more = message.get("more_body", False)
    return b"".join(parts)


def _query(operation: Operation, scope: Scope) -> msgspec.Struct | None:
    params = QueryParams(scope["query_string"])
    known = () if operation.query is None else operation.query.__struct_fields__
    given: dict[str, Any] = {}
    for name in params:
        if name not in known:
            shown = ", ".join(known) or "none"
            raise ArgumentError(name, params[name], f"parameters here are: {shown}")
        values = params.getlist(name)
        if name in _names_of(operation.query, msgspec.inspect.ListType):
            given[name] = values
        elif len(values) > 1:
            raise ArgumentError(name, values, "pass it once")
        else:
            given[name] = values[0]
    if operation.query is None:
        return None
    try:
        for name in _names_of(operation.query, msgspec.inspect.DateTimeType):
            if name in given:
                # Lax, as numbers in a query must be, a number would do for a moment.
                given[name] = _moment(name, given[name])
        return msgspec.convert(given, type=operation.query, strict=False)
    except msgspec.ValidationError as error:
        raise _misfit(error, given) from error


@functools.cache
def _names_of(query: type[msgspec.Struct] | None, kind: type) -> frozenset[str]:
    """Return which parameters are of a kind, or may be."""
    if query is None:
        return frozenset()
    found = set()
    for field in cast("Any", msgspec.inspect.type_info(query)).fields:
        kinds = getattr(field.type, "types", (field.type,))
        if any(isinstance(getattr(one, "type", one), kind) for one in kinds):
            found.add(field.name)
    return frozenset(found)


def _moment(name: str, text: str) -> datetime:
    try:
        return msgspec.convert(text, type=datetime)
    except msgspec.ValidationError as error:
        raise ArgumentError(
            name, text, "pass an instant by RFC 3339, such as 2030-01-01T00:00:00Z"
        ) from error


def _body(operation: Operation, scope: Scope, raw: bytes) -> msgspec.Struct | None:
    if operation.body is None:
        if raw.strip():
            raise ArgumentError("body", len(raw), "pass none: this takes no body")
        return None
    if not raw.strip():
        if operation.needs_body:
            raise ArgumentError("body", "", "pass an object as JSON")
        return operation.body()
    kind = Headers(scope=scope).get("content-type", "")
    if kind.partition(";")[0].strip().lower() != _JSON:
        # Also what keeps a page of another site from sending one unasked.
        raise _RefusedError(
            make_problem(
                "media-type", 415, f"the body is {kind!r}: send Content-Type: {_JSON}"
            )
        )
    try:
        return _decoded(operation.body, raw)
    except UNREADABLE as error:
        raise _RefusedError(
            make_problem("no-json", 400, f"the body is no JSON: {error}")
        ) from error


def _decoded(kind: type[msgspec.Struct], raw: bytes) -> msgspec.Struct:
    try:
        body: msgspec.Struct = msgspec.json.decode(raw, type=kind)
    except msgspec.ValidationError as error:
        # Thrown at the first misfit: what follows it may still be no JSON at all.
        raise _misfit(error, msgspec.json.decode(raw)) from error
    if _LONG_NUMBER.search(raw) is not None:
        _require_63_bits(msgspec.json.decode(raw), "")
    return body


def _require_63_bits(value: object, where: str) -> None:
    """Refuse whole numbers that the log cannot hold; arguments are kept as JSON.

    Raises:
        ArgumentError: there is one; it is named.
    """
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise ArgumentError(where or "body", value, "pass a number of at most 63 bits")
    if isinstance(value, list):
        for n, one in enumerate(value):
            _require_63_bits(one, f"{where}[{n}]")
    if isinstance(value, dict):
        for name, one in value.items():
            if name != "args":
                _require_63_bits(one, f"{where}.{name}" if where else name)


def _misfit(error: msgspec.ValidationError, given: Any) -> ArgumentError:
    """Return which field it is that does not fit, and why."""
    words, where = str(error), ""
    match = _FIELD.fullmatch(words)
    if match is not None:
        words, where = match[1], match[2].lstrip(".")
    for pattern in (_UNKNOWN, _MISSING):
        named = pattern.fullmatch(words)
        if named is not None:
            where = f"{where}.{named[1]}" if where else named[1]
    found = given
    for part in where.split("."):
        found = found.get(part) if isinstance(found, dict) else None
    return ArgumentError(where or "body", found, words[:1].lower() + words[1:])
