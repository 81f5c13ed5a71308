"""What every executor does alike: it counts its slots, queues work, and stops.

    submit ─▶ _waiting ─▶ _running ─▶ out of _running and announced ─▶ told to the host

A subclass says how work gets from the queue into a slot, and how an attempt is ended that
does not end by itself.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from timingwheel.clock import await_memory
from timingwheel.jobs.model import Outcome
from timingwheel.jobs.store import Finish
from timingwheel.scheduler.executors.attempt import Attempt, may_begin
from timingwheel.scheduler.executors.executor import HEED_S, Host, Work
from timingwheel.scheduler.executors.pace import HELD_UP_NS, Pace
from timingwheel.scheduler.executors.reports import Reports

Running = TypeVar("Running")
"""What a kind of executor notes of an attempt that has a slot."""


@dataclass(slots=True, eq=False)
class Stay(Generic[Running]):
    """An attempt's time in its slot, for those whose handlers run in this process.

    Attributes:
        work: what it does.
        running: what its executor notes of it.
        attempt: the attempt.
        began_ns: when its handler was called, monotonic.
        finish: how the handler ended; None: it has not.
        duration_ns: how long it took.
    """

    work: Work
    running: Running
    attempt: Attempt
    began_ns: int = 0
    finish: Finish | None = None
    duration_ns: int = 0


class SlottedExecutor(ABC, Generic[Running]):
    """At most `slots` handlers at once; see Executor for what each method promises.

    Invariant: each attempt is reported by whoever takes it out of `_running`, so once.

    Args:
        slots: how many handlers at once, 1 or more.
    """

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self._lock = threading.Lock()
        self._done = threading.Condition(self._lock)
        self._waiting: deque[Work] = deque()
        self._running: dict[int, Running] = {}
        self._reports = Reports(self._lock, self._done)
        self._pace = Pace()
        self._moved_ns = 0
        self._stopped = False

    def start(self, host: Host) -> None:
        """Make ready; nothing else is started before there is work."""
        self._host = host

    @property
    def free(self) -> int:
        """How many handlers could start at once."""
        with self._lock:
            return max(self._free(), 0)

    @property
    def ahead(self) -> int:
        """How much more it would get through soon."""
        with self._lock:
            if self._is_held_up():
                return 0
            behind = max(-self._free(), 0)
            return max(self._pace.ahead(self._side_by_side) - behind, 0)

    @abstractmethod
    def submit(self, works: Sequence[Work]) -> None:
        """Queue works, and start them as slots allow."""

    def take_back(self) -> list[Work]:
        """Return what waits behind handlers that are not short at all."""
        with self._lock:
            if not self._waiting or not self._is_held_up():
                return []
            left = list(self._waiting)
            self._waiting.clear()
            return left

    @abstractmethod
    def interrupt(self, token: int, outcome: Outcome, *, kill: bool) -> None:
        """Ask an attempt to end, or end it."""

    def stop(self, grace_s: float) -> list[Work]:
        """Start nothing more; wait up to `grace_s`, ask what runs, and end what is left."""
        with self._lock:
            self._stopped = self._reports.is_awaited = True
            left = list(self._waiting)
            self._waiting.clear()
            self._note_stopped()
            waits = self._may_wait()
            if waits:
                self._done.wait_for(self._is_quiet, timeout=grace_s)
            late = list(self._running)
        for token in late:
            self.interrupt(token, Outcome.SHUTDOWN, kill=False)
        with self._lock:
            if waits:
                self._done.wait_for(self._is_quiet, timeout=HEED_S)
            stuck = list(self._running)
        for token in stuck:
            self.interrupt(token, Outcome.SHUTDOWN, kill=True)
        with self._lock:
            if waits:
                self._done.wait_for(lambda: self._reports.are_told)
        return left

    # -- what a kind of executor may do otherwise -------------------------------------------

    @property
    def _side_by_side(self) -> int:
        """How many short handlers get on at the same time."""
        return self.slots

    def _note_stopped(self) -> None:
        """Have those that wait for work look again; the lock is held."""

    def _may_wait(self) -> bool:
        """Whether what runs can end while the caller of `stop` waits; the lock is held."""
        return True

    def _is_quiet(self) -> bool:
        """Whether nothing is left that `stop` could wait for; the lock is held."""
        return not self._running and self._reports.are_told

    # -- for subclasses ---------------------------------------------------------------------

    def _free(self) -> int:
        """Return how many could start at once, less what waits; the lock is held."""
        return self.slots - len(self._running) - len(self._waiting)

    def _enter(self, token: int, running: Running) -> None:
        """Put an attempt into a slot; the lock is held."""
        self._moved_ns = self._host.clock.monotonic_ns()
        self._running[token] = running

    def _is_held_up(self) -> bool:
        """Whether all slots have been taken for long, by the same; the lock is held."""
        if len(self._running) < self.slots:
            return False
        return self._host.clock.monotonic_ns() - self._moved_ns >= HELD_UP_NS

    def _leave(
        self, work: Work, running: Running, finish: Finish | None, duration_ns: int
    ) -> bool:
        """Take an attempt out whose handler is over; False: it was given up before.

        Args:
            work: the attempt.
            running: what was noted of it.
            finish: how it ended, to be told next; None: it never began.
            duration_ns: how long the handler took.
        """
        is_ours = False
        token, size_bytes = work.claim.token, len(work.claim.payload.body)
        while True:
            try:
                with self._lock:
                    if self._running.get(token) is running:
                        if finish is not None:
                            self._pace.note(duration_ns, size_bytes)
                            self._reports.announce()
                        del self._running[token]
                        is_ours = True
                    if self._stopped:  # nobody waits before
                        self._done.notify_all()
            except MemoryError:
                await_memory()
            else:
                return is_ours

    def _see_through(
        self,
        work: Work,
        running: Running,
        attempt: Attempt,
        execute: Callable[[Attempt], Finish],
    ) -> bool:
        """Run an attempt in this thread, from its begin to the word of its end.

        Args:
            work: what it does.
            running: what is noted of it.
            attempt: the attempt.
            execute: runs it to its end, and raises nothing once the handler has begun.

        Returns:
            Whether it was ours to the end; False: it was given up, and told as such.
        """
        stay = Stay(work, running, attempt)
        try:
            while self._begins(stay):
                try:
                    self._note_end(stay, execute(attempt))
                except MemoryError:
                    await_memory()
        finally:
            is_ours = self._see_out(stay)
        return is_ours

    def _begins(self, stay: Stay[Running]) -> bool:
        """Whether the handler is to be run now: it may begin, and has not ended."""
        host, work = self._host, stay.work
        while stay.finish is None:
            try:
                # Given up before it began, it has been told and must not start.
                if not may_begin(work, host) or work.claim.token not in self._running:
                    return False
                stay.began_ns = host.clock.monotonic_ns()
                stay.attempt.started_ns = host.clock.wall_ns()
            except MemoryError:
                await_memory()
            else:
                return True
        return False

    def _note_end(self, stay: Stay[Running], finish: Finish) -> None:
        """Note that the handler has ended now."""
        stay.finish = finish
        stay.duration_ns = self._host.clock.monotonic_ns() - stay.began_ns

    def _see_out(self, stay: Stay[Running]) -> bool:
        """Free the slot and tell the host; return whether it was ours to the end."""
        finish = stay.finish
        is_ours = self._leave(stay.work, stay.running, finish, stay.duration_ns)
        if is_ours and finish is not None:
            self._reports.tell(self._host, finish)
        return is_ours
