"""The inside of a process slot: takes an attempt, runs it, says how it ended, waits.

The main thread runs handlers, so that a signal can interrupt one that waits in a system
call. A second thread reads what the executor says; when that ends, the executor is gone,
and so is this process at once. It opens no store and holds no file of its parent but its
end of the socket pair.

SIGINT and SIGTERM from outside are ignored: Ctrl-C and service managers signal the whole
group, and it is the parent who decides what becomes of its work. When the parent asks,
this process sends SIGTERM to itself, which raises Cancelled in the handler.
"""

from __future__ import annotations

import contextlib
import importlib.machinery
import importlib.util
import itertools
import os
import pickle
import queue
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from types import FrameType
from typing import Any, Final

import msgspec

from timingwheel.jobs.errors import TaskError
from timingwheel.jobs.model import Draft, Outcome
from timingwheel.jobs.store import Finish
from timingwheel.scheduler.attempt_log import AttemptLog, clean
from timingwheel.scheduler.context import Context, LeaseLost
from timingwheel.scheduler.executors.attempt import (
    ERROR_CHARS_MAX,
    Attempt,
    error_text,
)
from timingwheel.scheduler.executors.messages import (
    FRAME_BYTES_MAX,
    Add,
    Answer,
    Ask,
    Beat,
    Ended,
    Frames,
    Line,
    Ready,
    Start,
    ToChild,
    ToExecutor,
    framed,
)
from timingwheel.scheduler.places import MAIN, MAIN_IN_CHILD
from timingwheel.scheduler.tasks import (
    Call,
    Task,
    import_task,
)

EXIT_ORPHANED: Final = 3
"""Exit code of a child whose parent went away in the middle of an attempt."""

_READ_BYTES: Final = 1 << 16
_PR_SET_PDEATHSIG: Final = 1


def main(socket_fd: int, parent_pid: int) -> None:
    """Be a process slot until the executor closes the socket."""
    _die_with(parent_pid)
    with socket.socket(fileno=socket_fd) as connection:
        # What a handler starts must not hold the line to the executor.
        connection.set_inheritable(False)
        Child(connection).run()


class ChildAttempt(Attempt):
    """An attempt in the main thread, which a signal can interrupt."""

    is_interruptible = False
    is_asked = False

    def interrupt(self) -> None:
        """Raise in the handler if it was asked to end, once. For the signal's handler."""
        if self.is_asked and self.is_interruptible:
            self.is_asked = False
            self.context.check()

    @contextlib.contextmanager
    def shielded(self) -> Iterator[None]:
        """Put off an interrupt until the end of the block."""
        was, self.is_interruptible = self.is_interruptible, False
        try:
            yield
        finally:
            self.is_interruptible = was
        self.interrupt()

    def _call(self, call: Callable[[], Any]) -> Any:
        self.is_interruptible = True
        try:
            # Asked a moment too early, the signal has found nothing to interrupt.
            self.context.check()
            return call()
        finally:
            self.is_interruptible = False


class Child:
    """One process slot, seen from inside.

    Args:
        connection: to the executor.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._sending = threading.Lock()
        self._starts: queue.SimpleQueue[Start | None] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[Answer] = queue.SimpleQueue()
        self._questions = itertools.count()
        self._questioning = threading.Lock()
        self._lock = threading.Lock()
        self._is_busy = False
        self._attempt: ChildAttempt | None = None
        self._ask: Ask | None = None

    def run(self) -> None:
        """Run attempts, one after the other, until the executor closes the socket."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, self._on_sigterm)
        threading.Thread(
            target=self._read, name="timingwheel-pipe", daemon=True
        ).start()
        self._send(Ready())
        while (start := self._starts.get()) is not None:
            finish = self._finish(start)
            with self._lock:
                self._attempt = None
                self._is_busy = False
            self._send(Ended(finish))

    # -- the main thread ------------------------------------------------------------------

    def _finish(self, start: Start) -> Finish:
        try:
            task = _task_of(start)
        except BaseException as error:  # noqa: BLE001 - a module can do anything at import
            return _unstarted(start, error)
        context = Context(
            start.claim,
            beat=self._beat,
            drafter=self._draft,
            make_log=lambda: AttemptLog(None, ids={}, sink=self._line),
        )
        attempt = ChildAttempt(task, start.claim, context=context)
        with self._lock:
            self._attempt = attempt
            ask = self._ask
        if ask is not None and ask.token == start.claim.token:
            outcome = Outcome(ask.outcome)
            return attempt.abandoned(outcome, "asked to end before it had begun")
        finish = attempt.run()
        if len(finish.follow_ups) and _size(finish) > FRAME_BYTES_MAX:
            return attempt.abandoned(
                Outcome.ERROR, "it added more than fits in a frame"
            )
        return finish

    def _on_sigterm(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        if self._attempt is not None:
            self._attempt.interrupt()

    # -- any thread -----------------------------------------------------------------------

    def _line(self, level: int, text: str) -> None:
        self._send(Line(level, clean(text)))

    def _beat(self) -> None:
        answer = self._answer(Beat(next(self._questions)))
        if answer.lease_lost:
            raise LeaseLost("the run belongs to somebody else by now")

    def _draft(self, call: Call, options: Mapping[str, object]) -> Draft:
        words = pickle.dumps((call, dict(options)))
        answer = self._answer(Add(next(self._questions), words))
        return msgspec.msgpack.decode(answer.draft, type=Draft)

    def _answer(self, question: Beat | Add) -> Answer:
        with self._questioning:
            self._send(question)
            while True:
                answer = self._answers.get()
                # One to a question whose asker was interrupted is nobody's any more.
                if answer.number == question.number:
                    break
        if answer.error:
            error = pickle.loads(answer.error)  # noqa: S301 - from our own parent
            raise error
        return answer

    def _send(self, message: ToExecutor) -> None:
        attempt = self._attempt
        is_main = threading.current_thread() is threading.main_thread()
        # Half a frame, because a signal came in between, would garble all that follow.
        shield = (
            attempt.shielded()
            if attempt is not None and is_main
            else contextlib.nullcontext()
        )
        with shield, self._sending:
            try:
                self._connection.sendall(framed(message))
            except OSError:
                os._exit(EXIT_ORPHANED)

    # -- the reading thread ---------------------------------------------------------------

    def _read(self) -> None:
        frames = Frames(ToChild)
        with contextlib.suppress(OSError):
            while piece := self._connection.recv(_READ_BYTES):
                for message in frames.feed(piece):
                    self._take(message)
        with self._lock:
            if self._is_busy:
                # Nobody waits for what the handler does, and somebody else may do it.
                os._exit(EXIT_ORPHANED)
        self._starts.put(None)

    def _take(self, message: ToChild) -> None:
        if isinstance(message, Start):
            with self._lock:
                self._is_busy = True
            self._starts.put(message)
        elif isinstance(message, Answer):
            self._answers.put(message)
        else:
            with self._lock:
                self._ask = message
                attempt = self._attempt
            if attempt is None or attempt.claim.token != message.token:
                return
            attempt.is_asked = True
            attempt.context.ask(Outcome(message.outcome))
            ident = threading.main_thread().ident
            assert ident is not None
            signal.pthread_kill(ident, signal.SIGTERM)


def _task_of(start: Start) -> Task:
    module = start.place.partition(":")[0]
    if module == MAIN:
        if start.main is None:
            raise TaskError(
                "place",
                start.place,
                "it was defined in an interactive session, which no other process can "
                "import; move it to a module",
            )
        _import_main(start.main)
    return import_task(
        start.place,
        start.name,
        lambda: pickle.loads(start.options),  # noqa: S301 - from our own parent
    )


def _import_main(path: str) -> None:
    """Import the parent's main module by its file, under the name that a child gives it.

    So what stands under `if __name__ == "__main__":` does not run here.
    """
    if MAIN_IN_CHILD in sys.modules:
        return
    loader = importlib.machinery.SourceFileLoader(MAIN_IN_CHILD, path)
    spec = importlib.util.spec_from_loader(MAIN_IN_CHILD, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    before = sys.modules[MAIN]
    sys.modules[MAIN_IN_CHILD] = sys.modules[MAIN] = module
    try:
        loader.exec_module(module)
    except BaseException:
        del sys.modules[MAIN_IN_CHILD]
        sys.modules[MAIN] = before
        raise


def _unstarted(start: Start, error: BaseException) -> Finish:
    run = start.claim.run
    return Finish(
        run_id=run.id,
        token=start.claim.token,
        outcome=Outcome.ERROR,
        started_ns=0,
        error=clean(
            f"task {start.name} cannot be made in its process:\n{error_text(error)}",
            ERROR_CHARS_MAX,
        ),
    )


def _size(finish: Finish) -> int:
    return len(msgspec.msgpack.encode(finish)) + 64


def _die_with(parent_pid: int) -> None:
    """Have the kernel kill this process when its parent dies, where it can (Linux).

    A handler that holds the interpreter in foreign code would not see the socket end.
    """
    with contextlib.suppress(ImportError, OSError, AttributeError):
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))
    if os.getppid() != parent_pid:
        os._exit(EXIT_ORPHANED)  # it died before we asked
