"""An event loop's share of the group commit: it waits, and never leads.

The loop hands each LSN to the log's commit thread and parks a future. Whichever thread
led a commit wakes the loop once, however many futures it covers; the loop resolves them.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque

from timingwheel.engine.core import EngineCore
from wal.errors import CommitUnknownError


class LoopCommits:
    """Futures of one loop that wait for LSNs; one wake-up of the loop per commit.

    Invariant: a future that waits is woken by the first commit or failure after it was
    made. All methods but the listener belong to the loop's thread.

    Args:
        core: whose log.
        loop: the loop.
    """

    def __init__(self, core: EngineCore, loop: asyncio.AbstractEventLoop) -> None:
        self._core = core
        self._log = core.log
        self._loop = loop
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._woken = False
        self._log.add_listener(self._on_commit)

    def wait(self, lsn: int) -> asyncio.Future[None]:
        """Return a future, done when `lsn` is as safe as the engine promises.

        Cancelling the wait leaves the record in. (Not a coroutine: one more to begin and
        to resume costs each request a microsecond of the loop's time.)

        Raises:
            CommitUnknownError: the disk failed first; by the call, or by the future.
        """
        log = self._log
        future: asyncio.Future[None] = self._loop.create_future()
        if log.durability == "interval" or log.durable_lsn >= lsn:
            self._core.commit(lsn)
            future.set_result(None)
            return future
        self._waiting.append((lsn, future))
        self._core.commit_soon(lsn)
        if log.durable_lsn >= lsn or log.failure is not None:
            self._resolve()  # the commit came before the future was there to see it
        return future

    def _on_commit(self) -> None:
        """Have the loop look, once. Called by whichever thread led the commit."""
        if self._waiting and not self._woken:
            self._woken = True
            # A closed loop has nobody left to tell.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._resolve)

    def _resolve(self) -> None:
        self._woken = False
        durable_lsn = self._log.durable_lsn
        failure = self._log.failure
        still: deque[tuple[int, asyncio.Future[None]]] = deque()
        for lsn, future in self._waiting:
            if future.done():
                continue
            if lsn <= durable_lsn:
                future.set_result(None)
            elif failure is not None:
                future.set_exception(CommitUnknownError(self._log.path, lsn, failure))
            else:
                still.append((lsn, future))
        self._waiting = still
