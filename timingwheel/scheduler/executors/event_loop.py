"""Runs coroutines on an event loop: its own, in a thread, or one that is running.

A coroutine is cancelled when its attempt is asked to end. One that does not end then is
*stuck*: its slot is replaced and what it still returns is dropped. One that blocks the
executor's own loop, so that its neighbours make no progress, loses the loop as well: new
work starts on a new one, and what was on the old one goes on once the loop is free.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from timingwheel.clock import await_memory
from timingwheel.jobs.model import Outcome
from timingwheel.jobs.store import Finish
from timingwheel.scheduler.executors.attempt import Attempt, attempt_for, canceller
from timingwheel.scheduler.executors.executor import Work
from timingwheel.scheduler.executors.slotted import SlottedExecutor, Stay

SLOTS_DEFAULT: Final = 100
_TIDY_S: Final = 0.2


@dataclass(slots=True, eq=False)
class _Slot:
    work: Work
    attempt: Attempt
    loop: asyncio.AbstractEventLoop
    handler: asyncio.Task[Finish] | None = None


class AsyncioExecutor(SlottedExecutor[_Slot]):
    """At most `slots` coroutines at once.

    Args:
        slots: how many at once, 1 or more.
        loop: a running one to use; None: its own, in a thread.
    """

    def __init__(
        self,
        slots: int = SLOTS_DEFAULT,
        *,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(slots)
        self._given_loop = loop
        self._thread: _LoopThread | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._stuck = 0

    def submit(self, works: Sequence[Work]) -> None:
        """Queue works, and start them as slots allow."""
        with self._lock:
            self._waiting.extend(works)
            loop = None if self._stopped else self._loop()
        if loop is not None:
            self._call(loop, self._fill)

    def interrupt(self, token: int, outcome: Outcome, *, kill: bool) -> None:
        """Cancel an attempt's coroutine, or give it up."""
        with self._lock:
            slot = self._running.get(token)
        if slot is None:
            return
        slot.attempt.context.ask(outcome)
        if kill:
            self._give_up(slot, outcome)

    def stop(self, grace_s: float) -> list[Work]:
        """Start nothing more; see Executor. On its own loop it does not wait."""
        left = super().stop(grace_s)
        with self._lock:
            thread, self._thread = self._thread, None
        if thread is not None:
            thread.end()
        return left

    # -- on the loop ----------------------------------------------------------------------

    def _fill(self) -> None:
        """Start what waits, as slots allow."""
        while True:
            try:
                while (slot := self._next()) is not None:
                    self._start(slot)
            except MemoryError:
                await_memory()
            else:
                return

    def _start(self, slot: _Slot) -> None:
        run = self._run(slot)
        try:
            task = slot.loop.create_task(run)
        except MemoryError:
            run.close()
            with self._lock:  # whoever starts it later finds it where it was
                del self._running[slot.work.claim.token]
                self._waiting.appendleft(slot.work)
            raise
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _next(self) -> _Slot | None:
        loop = asyncio.get_running_loop()
        with self._lock:
            has_slot = len(self._running) < self.slots
            if self._stopped or not self._waiting or not has_slot:
                return None
            if loop is not self._loop():
                return None  # given up; the new one is called as well
            work = self._waiting[0]
            slot = _Slot(work, attempt_for(work, self._host), loop)
            self._enter(work.claim.token, slot)
            self._waiting.popleft()  # last, as all else may find no memory
            return slot

    async def _run(self, slot: _Slot) -> None:
        stay = Stay(slot.work, slot, slot.attempt)
        try:
            while self._begins(stay):
                try:
                    self._note_end(stay, await self._finish(slot))
                except MemoryError:
                    await_memory()
        finally:
            is_ours = self._see_out(stay)
        with self._lock:
            if not is_ours:
                self._stuck -= 1
            loop = slot.loop if self._stopped else self._loop()
        if loop is slot.loop:
            self._fill()
        else:
            self._call(loop, self._fill)

    async def _finish(self, slot: _Slot) -> Finish:
        attempt = slot.attempt
        if not attempt.task.is_async:
            return attempt.abandoned(
                Outcome.ERROR,
                f"{attempt.task.name} is a plain function, and would hold up all others "
                'on the event loop: make it async def, or give it executor="thread"',
            )
        # A task of its own, so that a cancel ends the handler and never our accounts.
        handler = slot.loop.create_task(attempt.run_async(), name=attempt.task.name)
        slot.handler = handler
        attempt.context.on_asked(canceller(handler))
        try:
            return await handler
        except asyncio.CancelledError:  # before its first step
            outcome = attempt.context.asked or Outcome.CANCELLED
            return attempt.abandoned(outcome, "cancelled before it had begun")

    # -- inside ---------------------------------------------------------------------------

    @property
    def _side_by_side(self) -> int:
        return 1  # they take turns on one thread

    def _loop(self) -> asyncio.AbstractEventLoop:
        """Return the loop for new work, with the lock held."""
        if self._given_loop is not None:
            return self._given_loop
        if self._thread is None:
            self._thread = _LoopThread()
        return self._thread.loop

    def _may_wait(self) -> bool:
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            return True
        # In a coroutine or a callback of that loop: nothing could end while it waits.
        own = None if self._thread is None else self._thread.loop
        return running is not self._given_loop and running is not own

    def _call(self, loop: asyncio.AbstractEventLoop, callback: Any) -> None:
        with contextlib.suppress(RuntimeError):  # closed: nothing starts there any more
            loop.call_soon_threadsafe(callback)

    def _give_up(self, slot: _Slot, outcome: Outcome) -> None:
        finish = slot.attempt.abandoned(
            outcome, "given up: its coroutine did not end when it was cancelled"
        )
        words = "its slot is replaced"
        with self._lock:
            if self._running.get(finish.token) is not slot:
                return  # it ended after all, a moment ago
            del self._running[finish.token]
            self._reports.announce()
            self._stuck += 1
            if self._is_blocking(slot):
                words = "it blocks the event loop, so new work starts on a new one"
                assert self._thread is not None
                self._thread.retire()
                self._thread = None
            loop = None if self._stopped else self._loop()
            self._done.notify_all()
        if loop is not None:
            self._call(loop, self._fill)
        self._host.alert(
            f"{slot.work.task.name} of run {finish.run_id} did not end when it was "
            f"cancelled: {words}, {self._stuck} stuck coroutine(s) go on"
        )
        self._reports.tell(self._host, finish)

    def _is_blocking(self, slot: _Slot) -> bool:
        """Whether the attempt holds up our own loop at this moment."""
        if self._thread is None or self._thread.loop is not slot.loop:
            return False
        running = asyncio.current_task(slot.loop)
        return running is not None and running is slot.handler


class _LoopThread:
    """An event loop in a thread of its own, which ends with what runs on it."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._run, name="timingwheel-coroutines", daemon=True
        )
        self._thread.start()

    def end(self) -> None:
        """End the loop as soon as it gets to it; what still runs there is cancelled."""
        with contextlib.suppress(RuntimeError):
            self.loop.call_soon_threadsafe(self.loop.stop)
        if threading.current_thread() is not self._thread:
            self._thread.join(_TIDY_S)  # one that is blocked is left behind

    def retire(self) -> None:
        """Take no more, and end when what runs there has ended by itself."""

        async def drain() -> None:
            rest = asyncio.all_tasks() - {asyncio.current_task()}
            await asyncio.gather(*rest, return_exceptions=True)
            self.loop.stop()

        def begin() -> None:
            self._draining = self.loop.create_task(drain())

        self.loop.call_soon_threadsafe(begin)

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
        finally:
            pending = asyncio.all_tasks(self.loop)
            for task in pending:
                task.cancel()
            if pending:
                rest = asyncio.gather(*pending, return_exceptions=True)
                self.loop.run_until_complete(rest)
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
            self.loop.close()
