"""Functions of the module level, as tasks need them, and some that cannot be tasks."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import functools
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from typing import TYPE_CHECKING, Any, Literal

import msgspec

import timingwheel.scheduler.context as contexts
from timingwheel.scheduler.context import Context
from timingwheel.scheduler.tasks import Task

if TYPE_CHECKING:
    from decimal import Decimal


class Colour(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Point:
    x: int
    y: float = 0.0


class Address(msgspec.Struct):
    street: str
    number: int | None = None


class Foreign:
    """A class that nobody can store."""


class Unpicklable:
    def __reduce__(self) -> str:
        raise RuntimeError("not this one")


def send(to: str, n: int = 1) -> str:
    return f"{to} {n}"


def send_with_ctx(ctx, to: str) -> str:
    return to


def send_with_context(attempt: Context, to: str) -> str:
    return to


def send_with_dotted_context(attempt: contexts.Context, to: str) -> str:
    return to


def send_with_late_ctx(to: str, ctx: str) -> str:
    return to + ctx


def send_to_context(to: str, context: Context) -> str:
    return to


async def send_async(to: str) -> str:
    return to


def anything(x, y=None):
    return x, y


def everything(  # noqa: PLR0917 - one of each kind
    when: dt.datetime,
    key: uuid.UUID,
    colour: Colour,
    point: Point,
    address: Address,
    size: Literal["s", "m"],
    data: bytes,
    days: set[int],
    pair: tuple[int, str],
    maybe: float | None,
) -> tuple[Any, ...]:
    return when, key, colour, point, address, size, data, days, pair, maybe


def shaped(first: int, /, second: int, *rest: int, third: int = 3, **more: str) -> Any:
    return first, second, rest, third, more


def foreign(thing: Foreign) -> None: ...


def deeply_foreign(things: dict[str, list[Foreign | None]]) -> None: ...


def unresolvable(amount: Decimal) -> None: ...


def generate() -> Iterator[int]:
    yield 1


async def generate_async() -> AsyncIterator[int]:
    yield 1


def traced(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper


@traced
def decorated(to: str) -> str:
    return to


class Sender:
    def send(self, to: str) -> None: ...

    @staticmethod
    def send_static(to: str) -> str:
        return to


def nested() -> Callable[[], None]:
    def inner() -> None: ...

    return inner


anonymous = lambda: None  # noqa: E731 - that is what is refused

# The versions of one function, as a program changes.
v1 = Task(send, name="mail")


def send_v2(to: str, subject: str = "none", n: int = 1) -> tuple[str, str, int]:
    return to, subject, n


def send_v3(address: str, subject: str) -> tuple[str, str]:
    return address, subject


def at(when: dt.datetime) -> dt.datetime:
    return when


module_task = Task(send, name="module_task")


def sets(words: set[str]) -> int:
    return len(words)
