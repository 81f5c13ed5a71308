"""What the API can be asked: one table, from which requests are routed and documented.

An operation says its method and path, who may call it, and the types of its query, body
and answer. The router decodes by them, and the OpenAPI document is made of them, so the
two cannot differ.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import unquote_to_bytes

import msgspec

from timingwheel.scheduler.awaited import RequestThreads
from timingwheel.scheduler.scheduler import Scheduler
from timingwheel.server.audit import AuditBook
from timingwheel.server.hub import WorkerHub

API_PATH: Final = "/api/v1"
_NAME: Final = re.compile(r"\{(\w+)\}")
_Part = TypeVar("_Part")


class Role(IntEnum):
    """What a caller may do; each role includes those before it."""

    READ = 1
    OPERATE = 2
    ADMIN = 3


class Asked(NamedTuple):
    """A request, checked and decoded.

    Attributes:
        scheduler: which is asked.
        path: the names in the path, such as {"job": "nightly"}.
        query: of the operation's query type.
        body: of the operation's body type.
        headers: lower-case names.
        caller: whose token it came with; None where none is needed.
        threads: where calls wait for the disk, for an operation that is awaited.
        stopping: set when the server is to end: who is held should be answered.
        hub: the workers that work from afar.
        audit: who did what.
    """

    scheduler: Scheduler
    path: Mapping[str, str]
    query: Any
    body: Any
    headers: Mapping[str, str]
    caller: str | None
    threads: RequestThreads
    stopping: asyncio.Event
    hub: WorkerHub
    audit: AuditBook

    def the_query(self, kind: type[_Part]) -> _Part:
        """Return the query; the operation has it of this type."""
        assert isinstance(self.query, kind), self.query
        return self.query

    def the_body(self, kind: type[_Part]) -> _Part:
        """Return the body; the operation has it of this type."""
        assert isinstance(self.body, kind), self.body
        return self.body

    def actor(self, said: str | None = None) -> str | None:
        """Return who asks: the token's name where there is one, else what is said."""
        if self.caller is None:
            return said
        return self.caller if said is None else f"{self.caller} ({said})"


class Reply(NamedTuple):
    """An answer that is more than a value.

    Attributes:
        value: the value.
        headers: of the response.
        status: of the response; None: the operation's.
    """

    value: object
    headers: Mapping[str, str]
    status: int | None = None


class Operation(NamedTuple):
    """One thing that the API can be asked.

    Attributes:
        method: of HTTP.
        path: below API_PATH, with names in braces.
        answer: makes the answer; it is called on a thread and may wait for the disk,
            but for one that is awaited, on the loop.
        returns: the answer's type.
        summary: in words.
        query: the type of its query; None: it has none.
        body: the type of its body; None: it has none.
        role: who may.
        status: of a success.
        needs_body: whether a request without one is refused.
        awaits: whether `answer` is a coroutine function.
        headers: of the request, that it reads: their names, and the schema of each.
        sends: the same of the response.
        example: a body that it takes.
        is_routine: what a program does all the time, and no person decides: it has no
            entry in the audit, though its method is one that changes something.
    """

    method: str
    path: str
    answer: Callable[[Asked], object] | Callable[[Asked], Awaitable[object]]
    returns: Any
    summary: str
    query: type[msgspec.Struct] | None = None
    body: type[msgspec.Struct] | None = None
    role: Role = Role.READ
    status: int = 200
    needs_body: bool = True
    awaits: bool = False
    headers: Mapping[str, Mapping[str, str]] = MappingProxyType({})
    sends: Mapping[str, Mapping[str, str]] = MappingProxyType({})
    example: Mapping[str, Any] | None = None
    is_routine: bool = False

    @property
    def name(self) -> str:
        """The operation's id: its function's name."""
        return self.answer.__name__

    @property
    def is_audited(self) -> bool:
        """Whether who does it is recorded."""
        return self.method != "GET" and not self.is_routine

    @property
    def names(self) -> list[str]:
        """The names in its path, in order."""
        return _NAME.findall(self.path)


class Routes:
    """Finds the operation of a request.

    A name in a path may hold any character: it is parted at the slashes as it came, and
    each part is unquoted afterwards.
    """

    def __init__(self, operations: tuple[Operation, ...]) -> None:
        self.operations: Final = operations
        self._by_shape: dict[tuple[str, ...], dict[str, Operation]] = {}
        for one in operations:
            shape = tuple(
                "{}" if part.startswith("{") else part
                for part in one.path.strip("/").split("/")
            )
            methods = self._by_shape.setdefault(shape, {})
            assert one.method not in methods, one
            methods[one.method] = one

    def find(self, raw_path: bytes) -> tuple[dict[str, Operation], list[str]]:
        """Return the operations of a path by method, and the names that it holds.

        Args:
            raw_path: below API_PATH, as it came.

        Returns:
            No operations if there is no such path.

        Raises:
            UnicodeDecodeError: a name is no UTF-8.
        """
        parts = [
            unquote_to_bytes(part).decode() for part in raw_path.strip(b"/").split(b"/")
        ]
        best: tuple[int, dict[str, Operation], list[str]] = (-1, {}, [])
        for shape, methods in self._by_shape.items():
            if len(shape) != len(parts):
                continue
            pairs = list(zip(shape, parts, strict=True))
            if all(one in {"{}", part} and part for one, part in pairs):
                names = [part for one, part in pairs if one == "{}"]
                exact = len(parts) - len(names)
                if exact > best[0]:
                    best = exact, methods, names
        return best[1], best[2]
