"""Runs handlers in threads: the default, good for all that waits for the world.

Threads start when work comes and end when they have had none for a while, so an idle
scheduler has none to wake. A thread cannot be killed. One whose handler does not end when
asked is *stuck*: its slot gets a new thread, the operator is told, and what the handler
returns in the end is dropped.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence
from typing import NamedTuple

from timingwheel.clock import WAIT_MAX_NS, await_memory
from timingwheel.jobs.model import Outcome
from timingwheel.jobs.store import Finish
from timingwheel.scheduler.executors.attempt import Attempt, attempt_for
from timingwheel.scheduler.executors.executor import Work
from timingwheel.scheduler.executors.slotted import SlottedExecutor


class _Slot(NamedTuple):
    work: Work
    attempt: Attempt
    thread: threading.Thread


class ThreadExecutor(SlottedExecutor[_Slot]):
    """At most `slots` handlers at once, each in a thread of its own.

    Invariant: at most `slots` threads are not stuck.

    Args:
        slots: how many handlers at once, 1 or more.
        name: of the threads.
    """

    def __init__(self, slots: int, *, name: str = "timingwheel-handler") -> None:
        super().__init__(slots)
        self._name = name
        self._changed = threading.Condition(self._lock)
        self._threads: set[threading.Thread] = set()
        self._idle = 0
        self._started = 0
        self._stuck = 0

    def submit(self, works: Sequence[Work]) -> None:
        """Queue works, and start threads for them as slots allow.

        Raises:
            RuntimeError: no thread can be started, and there is none. Nothing is queued.
            MemoryError: likewise.
        """
        new: list[threading.Semaphore] = []
        with self._lock:
            self._waiting.extend(works)
            wanted = len(self._waiting)
            self._changed.notify(wanted)
            missing = min(wanted - self._idle, self.slots - len(self._threads))
            try:
                while len(new) < missing:
                    new.append(self._start_thread())
            except (RuntimeError, MemoryError):
                if not self._threads:  # else those that there are get to it in time
                    for _ in works:
                        self._waiting.pop()
                    raise
        for check_in in new:
            # Else a clock turned by hand does not know the thread when the caller rests.
            check_in.acquire()

    def interrupt(self, token: int, outcome: Outcome, *, kill: bool) -> None:
        """Ask an attempt to end, or give up its slot as stuck."""
        with self._lock:
            slot = self._running.get(token)
        if slot is None:
            return
        slot.attempt.context.ask(outcome)
        was_outside = self._end_work_outside(slot.attempt, kill=kill)
        if kill:
            self._give_up(slot, outcome, was_outside=was_outside)

    # -- what a kind of thread executor may do otherwise ----------------------------------

    def _execute(self, attempt: Attempt) -> Finish:
        """Run an attempt to its end, in a slot's thread. Never raises."""
        return attempt.run()

    def _end_work_outside(self, attempt: Attempt, *, kill: bool) -> bool:  # noqa: ARG002
        """End what the attempt has started outside of this process, if it has."""
        return False

    # -- inside ---------------------------------------------------------------------------

    def _note_stopped(self) -> None:
        self._changed.notify_all()

    def _is_quiet(self) -> bool:
        # A handler that stops its own scheduler would wait for itself.
        own = threading.current_thread()
        return self._reports.are_told and all(
            slot.thread is own for slot in self._running.values()
        )

    def _start_thread(self) -> threading.Semaphore:
        """Start one more, with the lock held; acquire what is returned without it."""
        check_in = threading.Semaphore(0)
        thread = threading.Thread(
            target=self._work,
            args=(check_in,),
            name=f"{self._name}-{self._started}",
            daemon=True,
        )
        self._started += 1
        self._threads.add(thread)
        try:
            thread.start()
        except BaseException:  # the system has none left: it may have one later
            self._threads.discard(thread)
            raise
        return check_in

    def _work(self, check_in: threading.Semaphore) -> None:
        try:
            with contextlib.suppress(MemoryError):
                try:
                    with self._changed:
                        self._host.clock.wait(self._changed, 0)
                finally:
                    check_in.release()
            while True:
                try:
                    if (slot := self._next()) is None:
                        return
                    self._run(slot)
                except MemoryError:
                    await_memory()
        finally:
            with self._lock:  # else a fault of the host would cost a slot
                self._threads.discard(threading.current_thread())

    def _next(self) -> _Slot | None:
        """Return the next attempt, entered as running; None when the thread is to end."""
        clock = self._host.clock
        thread = threading.current_thread()
        with self._lock:
            idle_since_ns: int | None = None
            while thread in self._threads and not self._stopped:
                if self._waiting:
                    work = self._waiting[0]
                    attempt = attempt_for(work, self._host)
                    slot = _Slot(work, attempt, thread)
                    self._enter(work.claim.token, slot)
                    self._waiting.popleft()  # last, as all else may find no memory
                    return slot
                now_ns = clock.monotonic_ns()
                if idle_since_ns is None:
                    idle_since_ns = now_ns
                if now_ns - idle_since_ns >= WAIT_MAX_NS:
                    break
                self._idle += 1
                try:
                    clock.wait(self._changed, None)
                finally:
                    self._idle -= 1
            self._threads.discard(thread)
            return None

    def _run(self, slot: _Slot) -> None:
        if not self._see_through(slot.work, slot, slot.attempt, self._execute):
            with self._lock:
                self._stuck -= 1

    def _give_up(self, slot: _Slot, outcome: Outcome, *, was_outside: bool) -> None:
        finish = slot.attempt.abandoned(
            outcome,
            "its program was killed"
            if was_outside
            else "given up: its thread did not end when asked",
        )
        check_in: threading.Semaphore | None = None
        with self._lock:
            if self._running.get(finish.token) is not slot:
                return  # it ended after all, a moment ago
            del self._running[finish.token]
            self._threads.discard(slot.thread)
            self._reports.announce()
            self._stuck += 1
            stuck = self._stuck
            if self._waiting and len(self._threads) < self.slots:
                check_in = self._start_thread()
            self._done.notify_all()
        if check_in is not None:
            check_in.acquire()
        name = f"{slot.work.task.name} of run {finish.run_id}"
        self._host.alert(
            f"the program of {name} was killed"
            if was_outside
            else f"{name} did not end when asked, and a thread cannot be killed: its "
            f"slot is replaced, {stuck} stuck thread(s) go on; give the task "
            'executor="process", or have it call ctx.check()'
        )
        self._reports.tell(self._host, finish)
