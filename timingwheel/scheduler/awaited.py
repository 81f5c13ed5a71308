"""The awaited form of a synchronous request: on a thread, never on the loop.

Whatever waits for the disk does so on a few threads of its own, so that it neither holds
up the loop nor competes with what the program itself hands to the loop's threads.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

REQUEST_THREADS: Final = 8
"""Requests that wait for the disk at once; more of them share the same commits anyway."""

_P = ParamSpec("_P")
_T = TypeVar("_T")
_Twin = TypeVar("_Twin")


class RequestThreads:
    """The threads on which requests wait for the disk, or for a server.

    Args:
        count: how many there are at most.
    """

    def __init__(self, count: int = REQUEST_THREADS) -> None:
        self._pool = ThreadPoolExecutor(count, thread_name_prefix="timingwheel-request")

    async def call(self, function: Callable[[], _T]) -> _T:
        """Call on a thread; a cancelled wait leaves the call to its end."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, function)


class Awaited:
    """What stands beside a synchronous twin and calls it on threads."""

    _twin: Any
    _threads: RequestThreads


def awaited(
    method: Callable[Concatenate[_Twin, _P], _T],
) -> Callable[Concatenate[Awaited, _P], Coroutine[Any, Any, _T]]:
    """Return the awaited form of a twin's method: same arguments, docstring, errors.

    It is looked up in the twin by its name, so a twin may be another class that has the
    same words.
    """
    name = method.__name__

    @functools.wraps(method)
    async def call(self: Awaited, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        named = functools.partial(getattr(self._twin, name), *args, **kwargs)
        found: _T = await self._threads.call(named)
        return found

    return call
