"""The line that every change of an engine follows.

**Decide → append → apply → commit → release.** A request is decided against the state
under one short lock; its events are appended to the log; `apply`, which recovery uses too,
changes the state; the lock is released; the commit makes it durable, shared with whoever
else is waiting; only then does a reply or a fire leave. So recovery is not a second
program, and nothing is ever seen that a crash can undo.

What an error amid a change leaves is judged in `life.py`.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from timingwheel.engine.life import Life
from timingwheel.engine.records import Kind
from timingwheel.engine.state import BATCH_MIN, EngineState
from timingwheel.engine.volatile import VolatileLog
from wal.bodies import encode_records
from wal.errors import LogClosedError, LogFailedError
from wal.log import Log, RoomNeededError

LET_PASS_SECONDS: Final = 0.001


class Requests:
    """One lock, one log and one state, and how all that changes the state comes in.

    Thread-safe.

    Args:
        log: that gets each event before the state.
        state: that the events change.
    """

    def __init__(self, log: Log | VolatileLog, state: EngineState) -> None:
        self.lock = threading.Lock()
        self._passed = threading.Condition(self.lock)
        self._queued: deque[object] = deque()
        """One for each request that waits for the lock."""
        self.letting_pass = 0
        """How many threads wait until somebody has had the lock."""
        self.applied_lsn = 0
        """Of the last record applied. A commit that another leads can make records
        durable that are appended and not applied yet."""
        self._log = log
        self.state = state
        self.life = Life(log)
        """Whether anything may be asked still, and what ended that."""
        self.require_alive = self.life.require_alive
        """Raise if the engine is closed or failed; reads ask this too."""

    @property
    def log(self) -> Log | VolatileLog:
        """The log."""
        return self._log

    def submit(
        self, decide: Callable[[int], list[bytes]], *, urgent: bool = False
    ) -> int:
        """Decide, append and apply one atomic group; `commit` it before you reply.

        Args:
            decide: called under the lock with the LSN that its first event will get;
                returns the events. It may be called again if the disk makes it wait.
                What it raises is raised here, and nothing has changed then.
            urgent: may use the log's reserve on a full disk: for what removes work.

        Returns:
            The LSN that the reply depends on, even when there are no events: what was
            decided may rest on records that are not durable yet.

        Raises:
            DiskFullError: there is no room; nothing has changed.
            EngineFailedError: the disk failed before.
            EngineClosedError: the engine is closed.
        """
        while True:
            try:
                return self.submit_now(decide, urgent=urgent)
            except RoomNeededError:
                self.make_room(urgent=urgent)

    def submit_now(
        self, decide: Callable[[int], list[bytes]], *, urgent: bool = False
    ) -> int:
        """Do as `submit` without ever waiting for the disk: for event loops.

        Raises:
            RoomNeededError: `make_room` on a thread, then call again.
        """
        waiting: object = None
        try:
            if self.lock.locked():
                waiting = object()
                self._queued.append(waiting)  # so that who has much to do lets us pass
            # Not `acquire`: a signal's handler can raise between it and a `try`.
            with self.lock:
                if waiting is not None:
                    self._queued.remove(waiting)
                    waiting = None
                try:
                    self.require_alive()
                    events = decide(self._log.next_lsn)
                    if events:
                        self._append(events, urgent=urgent)
                    return self._log.appended_lsn
                finally:
                    self.pass_on()
        finally:
            if waiting is not None:
                with contextlib.suppress(ValueError):
                    self._queued.remove(waiting)

    def pass_on(self) -> None:
        """Let those go on who waited for a request to pass; the lock is held."""
        if self.letting_pass:
            self._passed.notify()

    def make_room(self, *, urgent: bool) -> None:
        """Wait until the log has a segment; raises as `submit`."""
        try:
            self._log.make_room(urgent=urgent)
        except (LogFailedError, LogClosedError) as error:
            raise self.life.in_engine_words(error) from error

    def submit_each(
        self, decides: Iterable[Callable[[int], list[bytes]]], *, urgent: bool = False
    ) -> int:
        """`submit` several groups, in order; other requests come in between.

        Each is atomic by itself and decided when those before it have been applied. The
        iterator goes on under the lock, right after its last group was applied.
        """
        pending = iter(decides)
        decide = next(pending, None)
        while decide is not None:
            try:
                with self.lock:
                    while decide is not None:
                        self.require_alive()
                        events = decide(self._log.next_lsn)
                        if events:
                            self._append(events, urgent=urgent)
                        decide = next(pending, None)
                        self._let_pass()
            except RoomNeededError:
                self.make_room(urgent=urgent)
            except MemoryError as error:
                # Its iterator changes more than what was appended.
                self.life.fail(error)
                raise
        with self.lock:
            return self._log.appended_lsn

    def let_pass(self) -> None:
        """Let those go first who wait with a request; for who has much to do."""
        if self._queued:
            with self.lock:
                self._let_pass()

    def _let_pass(self) -> None:
        if self._queued:
            # A thread that frees a lock gets it again before the woken one has run, so
            # it has to wait until somebody has passed; they may all have by now.
            self.letting_pass += 1
            self._passed.wait(LET_PASS_SECONDS)
            self.letting_pass -= 1

    def transact(
        self, decide: Callable[[int], list[bytes]], *, urgent: bool = False
    ) -> int:
        """`submit` one atomic group and `commit` it. Returns the LSN it reaches."""
        if not urgent:
            self.admit()
        lsn = self.submit(decide, urgent=urgent)
        self.commit(lsn)
        return lsn

    def admit(self) -> None:
        """Wait while too much is un-synced: before `submit` of what adds work."""
        self.require_alive()
        try:
            self._log.admit()
        except (LogFailedError, LogClosedError) as error:
            raise self.life.in_engine_words(error) from error

    @property
    def congested(self) -> bool:
        """Whether `admit` would wait."""
        return self._log.congested

    def commit(self, lsn: int) -> None:
        """Return when the records up to `lsn` are as safe as the engine promises.

        Raises:
            CommitUnknownError: the disk failed before they were.
        """
        try:
            self._log.commit(lsn)
        except (LogFailedError, LogClosedError) as error:
            raise self.life.in_engine_words(error) from error

    def sync(self, lsn: int) -> None:
        """Return when the records up to `lsn` are on the disk, whatever `commit` promises.

        Raises:
            CommitUnknownError: the disk failed before they were.
        """
        if not isinstance(self._log, Log):
            self._log.commit(lsn)
            return
        try:
            self._log.sync(lsn)
        except (LogFailedError, LogClosedError) as error:
            raise self.life.in_engine_words(error) from error

    def commit_soon(self, lsn: int) -> None:
        """Have the log's own thread commit, and return at once."""
        try:
            self._log.commit_soon(lsn)
        except (LogFailedError, LogClosedError) as error:
            raise self.life.in_engine_words(error) from error

    def _append(self, events: list[bytes], *, urgent: bool) -> None:
        body = encode_records(events)
        try:
            first = self._log.append_group(body, len(events), urgent=urgent)
            if len(events) >= BATCH_MIN and events[0][0] == Kind.TIMER_SCHEDULED:
                self.state.apply_group(first, body)
            else:
                self.state.apply(first, events)
            self.applied_lsn = first + len(events) - 1
        except (LogFailedError, LogClosedError) as error:
            raise self.life.in_engine_words(error) from error
        except BaseException as error:
            self.life.broke_off(error, applied_lsn=self.applied_lsn)
            raise

    def leave_to_parent(self) -> None:
        """In a forked child: the parent owns the engine; every call here raises."""
        # Another thread of the parent may have held it at the moment of the fork.
        self.lock = threading.Lock()
        self._passed = threading.Condition(self.lock)
        self.letting_pass = 0
        self.life.leave_to_parent()
