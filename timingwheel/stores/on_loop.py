"""What lives on an event loop, lent to a thread for as long as somebody waits for it.

A store decides on a thread, since it may wait; a connection of asyncio's works only on its
own loop. So its coroutines run there, as the program's own do, and the thread waits for
each of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

_T = TypeVar("_T")


class OnLoop:
    """A thing and the loop it lives on. Thread-safe.

    Invariant: once `let_go` has returned, no coroutine is under way, and none begins.

    Attributes:
        thing: what is lent.

    Args:
        thing: see above.
        loop: that runs now, in another thread than the one that calls `run`.
    """

    def __init__(self, thing: object, loop: asyncio.AbstractEventLoop) -> None:
        self.thing: Final = thing
        self._loop = loop
        self._is_over = False
        self._task: asyncio.Task[Any] | None = None

    def run(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        """Run a coroutine on the loop and wait for what it returns. From a thread.

        Raises:
            CancelledError: nobody waits for it any more.
        """
        return asyncio.run_coroutine_threadsafe(
            self._noted(coroutine), self._loop
        ).result()

    async def _noted(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        if self._is_over:
            coroutine.close()
            raise asyncio.CancelledError
        task = asyncio.ensure_future(coroutine)
        self._task = task
        return await task

    async def let_go(self) -> None:
        """End what is under way, and begin nothing more. On the loop."""
        self._is_over = True
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.wait([self._task])
