"""Runs handlers in processes of their own: they can be killed, and they share no GIL.

    submit ─▶ waiting ─▶ a ready child: begin, Start ─▶ Line, Beat, Add … Ended ─▶ ended
                              │                                │
                              └─ killed: its outcome           └─ died: LOST, replaced

One child is one slot, started when work waits and kept for the next. One thread talks to
all of them: it never waits for a single child, so one that hangs, floods its log or dies
hurts no other. A handler is imported by its name, so it has to stand at the top level of
a module; a module with tasks is imported once more in each child.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import sys
import threading
from collections.abc import Sequence
from functools import partial
from typing import Final

import msgspec

from timingwheel.jobs.model import Outcome
from timingwheel.jobs.store import Finish
from timingwheel.scheduler.attempt_log import LogTail
from timingwheel.scheduler.context import TASK_LOGGER, LeaseLost
from timingwheel.scheduler.executors.attempt import may_begin
from timingwheel.scheduler.executors.commands import exit_words
from timingwheel.scheduler.executors.executor import Host, Work, log_ids
from timingwheel.scheduler.executors.messages import (
    Add,
    Answer,
    Ask,
    Beat,
    Ended,
    Line,
    Ready,
    Start,
    ToExecutor,
    pickled_error,
    pickled_options,
)
from timingwheel.scheduler.executors.process_slot import ProcessSlot
from timingwheel.scheduler.executors.slotted import SlottedExecutor
from timingwheel.scheduler.executors.switchboard import Switchboard
from timingwheel.scheduler.places import MAIN
from timingwheel.scheduler.tasks import Task

_TIDY_S: Final = 0.2


class _Running:
    """An attempt in a child."""

    def __init__(self, work: Work, slot: ProcessSlot, host: Host) -> None:
        self.work = work
        self.slot = slot
        self.tail = LogTail(host.clock.wall_ns)
        self.logger = TASK_LOGGER.getChild(work.task.name)
        self.ids = log_ids(work)
        self.started_ns = host.clock.wall_ns()
        self.began_ns = host.clock.monotonic_ns()

    def finish(self, outcome: Outcome, error: str) -> Finish:
        """Return the end of an attempt that cannot speak for itself."""
        return Finish(
            run_id=self.work.claim.run.id,
            token=self.work.claim.token,
            outcome=outcome,
            started_ns=self.started_ns,
            error=error,
            log=self.tail.read(),
        )

    def finish_as_told(self, told: Finish) -> Finish:
        """Return the end that a child has told, with what only this side knows."""
        return msgspec.structs.replace(
            told,
            run_id=self.work.claim.run.id,
            token=self.work.claim.token,
            started_ns=self.started_ns,
            log=self.tail.read(),
        )


class ProcessExecutor(SlottedExecutor[_Running]):
    """At most `slots` handlers at once, each in a process of its own.

    Invariant: the children, their sockets and the selector belong to the manager thread
    alone.

    Args:
        slots: how many at once, 1 or more.
        python: the interpreter of the children; None: the one that runs this program.
    """

    def __init__(self, slots: int, *, python: str | None = None) -> None:
        super().__init__(slots)
        self._python = python or sys.executable
        self._manager: threading.Thread | None = None
        self._board: Switchboard | None = None
        self._children: dict[ProcessSlot, _Running | None] = {}
        self._options: dict[Task, bytes] = {}
        self._has_ended = False

    def start(self, host: Host) -> None:
        """Make ready; no process is started before there is work."""
        super().start(host)
        path = getattr(sys.modules.get(MAIN), "__file__", None)
        self._main = None if path is None else os.path.abspath(path)

    def submit(self, works: Sequence[Work]) -> None:
        """Queue works, and start children for them as slots allow."""
        with self._lock:
            if self._manager is None:
                self._start_manager()
            self._waiting.extend(works)
            assert self._board is not None
            self._board.order(_nothing)

    def interrupt(self, token: int, outcome: Outcome, *, kill: bool) -> None:
        """Ask an attempt to end, or kill its process."""
        with self._lock:
            running = self._running.get(token)
            board = self._board
            if running is None or board is None:
                return
            if kill:
                del self._running[token]
                running.slot.is_killed = True
                self._reports.announce()
                self._done.notify_all()
        if not kill:
            board.order(lambda: self._ask(running, outcome))
            return
        running.slot.kill()
        finish = running.finish(outcome, "its process was killed")
        self._host.alert(
            f"process {running.slot.pid} was killed: {running.work.task.name} of run "
            f"{finish.run_id} did not end when asked"
        )
        self._reports.tell(self._host, finish)

    def stop(self, grace_s: float) -> list[Work]:
        """Start nothing more; see Executor. No child is left when it returns."""
        left = super().stop(grace_s)
        if self._board is not None and self._manager is not None:
            self._board.order(self._end)
            self._manager.join()
        return left

    # -- the manager thread ---------------------------------------------------------------

    def _start_manager(self) -> None:
        self._board = Switchboard()
        self._manager = threading.Thread(
            target=self._manage,
            args=(self._board,),
            name="timingwheel-processes",
            daemon=True,
        )
        self._manager.start()

    def _manage(self, board: Switchboard) -> None:
        with contextlib.closing(board):
            while not self._has_ended:
                for slot in board.wait():
                    board.obey_one(partial(self._hear, board, slot))
                board.obey()
                board.obey_one(partial(self._assign, board))

    def _hear(self, board: Switchboard, slot: ProcessSlot) -> None:
        try:
            messages = slot.receive()
        except ValueError as error:
            self._host.alert(f"process {slot.pid} was killed: it said {error}")
            slot.kill()
            messages = None
        if messages is None:
            board.unwatch(slot)  # its end comes as an order
            return
        try:
            for message in messages:
                self._take(slot, message)
        except MemoryError:
            slot.kill()  # what it said is gone: its end says that the attempt is lost
            raise

    def _take(self, slot: ProcessSlot, message: ToExecutor) -> None:
        if slot.is_killed:
            return
        if isinstance(message, Ready):
            slot.is_ready = True
            return
        running = self._children.get(slot)
        if running is None:
            return
        if isinstance(message, Line):
            running.tail.add(message.level, message.text)
            running.logger.log(message.level, "%s", message.text, extra=running.ids)
        elif isinstance(message, Beat):
            slot.send(self._beaten(running, message))
        elif isinstance(message, Add):
            slot.send(self._drafted(message))
        elif isinstance(message, Ended):
            self._report(running, running.finish_as_told(message.finish))
            self._children[slot] = None

    def _beaten(self, running: _Running, beat: Beat) -> Answer:
        try:
            self._host.heartbeat(running.work)
        except LeaseLost:
            return Answer(beat.number, lease_lost=True)
        except Exception as error:  # noqa: BLE001 - it is the handler's, who is to see it
            return Answer(beat.number, error=pickled_error(error))
        return Answer(beat.number)

    def _drafted(self, add: Add) -> Answer:
        try:
            call, options = pickle.loads(add.call)  # noqa: S301 - from our own child
            draft = self._host.draft(call, options)
            return Answer(add.number, draft=msgspec.msgpack.encode(draft))
        except Exception as error:  # noqa: BLE001 - it is the handler's, who is to see it
            return Answer(add.number, error=pickled_error(error))

    def _ask(self, running: _Running, outcome: Outcome) -> None:
        token = running.work.claim.token
        if self._running.get(token) is running:
            running.slot.send(Ask(token, outcome.value))

    def _assign(self, board: Switchboard) -> None:
        """Give waiting work to children that are ready, and start more for the rest."""
        for slot, running in list(self._children.items()):
            if running is None and slot.is_ready and not slot.is_killed:
                self._begin_next(slot)
        with self._lock:
            wanted = len(self._waiting)
        alive = [slot for slot in self._children if not slot.is_killed]
        booting = sum(not slot.is_ready for slot in alive)
        for _ in range(min(wanted - booting, self.slots - len(alive))):
            self._start_child(board)

    def _begin_next(self, slot: ProcessSlot) -> None:
        """Begin the next work that still may in a child."""
        while (running := self._next(slot)) is not None:
            token = running.work.claim.token
            if not may_begin(running.work, self._host):
                with self._lock:
                    self._running.pop(token, None)
                    self._done.notify_all()
                continue
            # Killed before it began, it has been reported and must not start any more.
            if self._running.get(token) is running:
                try:
                    running.started_ns = self._host.clock.wall_ns()
                    running.began_ns = self._host.clock.monotonic_ns()
                    slot.send(self._start_message(running.work))
                except Exception as error:  # noqa: BLE001 - nothing may pass by unreported
                    slot.kill()  # it may have got a part
                    words = f"it could not be given to its process: {error!r}"
                    self._report(running, running.finish(Outcome.ERROR, words))
                    return
                self._children[slot] = running
            return

    def _next(self, slot: ProcessSlot) -> _Running | None:
        with self._lock:
            if self._stopped or not self._waiting:
                return None
            work = self._waiting[0]
            running = _Running(work, slot, self._host)
            self._enter(work.claim.token, running)
            self._waiting.popleft()  # last, as all else may find no memory
            return running

    def _start_message(self, work: Work) -> Start:
        task = work.task
        if task not in self._options:
            self._options[task] = pickled_options(task)
        return Start(
            claim=work.claim,
            place=task.place,
            name=task.name,
            options=self._options[task],
            main=self._main,
        )

    def _start_child(self, board: Switchboard) -> None:
        def on_exit(slot: ProcessSlot) -> None:
            board.order(lambda: self._bury(board, slot))

        try:
            slot = ProcessSlot(on_exit, self._python)
        except OSError as error:
            self._fail_next(f"no process could be started: {error}")
            board.order(_nothing)  # no child's end will have us look at the rest
            return
        self._children[slot] = None
        board.watch(slot)

    def _bury(self, board: Switchboard, slot: ProcessSlot) -> None:
        """Take leave of a child that has ended, expected or not."""
        for message in slot.drain():
            self._take(slot, message)
        running = self._children.get(slot)
        words = exit_words(slot.exit_code or 0)
        if running is not None and running in self._running.values():
            self._host.alert(
                f"process {slot.pid} died with {words} in {running.work.task.name} of "
                f"run {running.work.claim.run.id}"
            )
            error = f"its process died with {words}"
            self._report(running, running.finish(Outcome.LOST, error))
        elif slot in self._children and not (
            slot.is_ready or slot.is_killed or self._stopped
        ):
            self._fail_next(f"a new process died with {words} before it was ready")
        self._children.pop(slot, None)  # last: what finds no memory is done again
        board.unwatch(slot)
        slot.connection.close()

    def _fail_next(self, words: str) -> None:
        """End one waiting attempt for want of a process, so that we do not try for ever."""
        self._host.alert(words)
        with self._lock:
            work = self._waiting[0] if self._waiting else None
        if work is not None and may_begin(work, self._host):
            run = work.claim.run
            self._host.ended(
                Finish(
                    run_id=run.id,
                    token=work.claim.token,
                    outcome=Outcome.ERROR,
                    started_ns=self._host.clock.wall_ns(),
                    error=f"{words}; standard error of this program may say why",
                )
            )
        with self._lock:
            if self._waiting and self._waiting[0] is work:
                self._waiting.popleft()

    def _end(self) -> None:
        for slot in self._children:
            slot.connection.close()  # all at once, so that they end side by side
        patience_s = _TIDY_S
        for slot in self._children:
            if not slot.close(patience_s):
                patience_s = 0  # the others have had the same time by now
        self._children.clear()
        self._has_ended = True

    # -- inside ---------------------------------------------------------------------------

    def _report(self, running: _Running, finish: Finish) -> None:
        duration_ns = self._host.clock.monotonic_ns() - running.began_ns
        if self._leave(running.work, running, finish, duration_ns):
            self._reports.tell(self._host, finish)


def _nothing() -> None:
    """Only wakes."""
