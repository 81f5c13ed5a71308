"""A line to the process that holds a directory: one connection, for all threads.

A thread asks and waits for its own answer; one more thread reads what comes. When the
line is cut, whoever waits hears whether its call can have been done.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from concurrent.futures import Future
from typing import Any, Final, Protocol

import msgspec

from timingwheel.errors import EngineClosedError
from timingwheel.jobs.errors import UNREADABLE
from timingwheel.jobs.model import Run
from timingwheel.stores.door_calls import CALLS, shape
from timingwheel.stores.door_errors import error_of
from timingwheel.stores.door_frames import (
    MAGIC,
    READ_BYTES,
    Answer,
    Ask,
    Bye,
    Ended,
    Failure,
    FrameError,
    FrameReader,
    Hello,
    News,
    decode_holder,
    decode_welcome,
    frame,
    raw,
)
from timingwheel.stores.door_socket import NoDoorError, connect
from wal.errors import StoreError
from wal.forking import register_at_fork, unregister_at_fork

HELLO_PATIENCE_S: Final = 30.0
"""A holder that does not say Welcome for so long hangs, or is no holder."""
FORKED: Final = (
    "this process is a fork of the one that opened the store: open it after forking, or "
    "talk to the parent"
)


class LineCutError(Exception):
    """The holder has gone.

    Attributes:
        is_unknown: the call may have been done; False: it was not.
    """

    def __init__(self, *, is_unknown: bool) -> None:
        super().__init__(is_unknown)
        self.is_unknown = is_unknown


class LineListener(Protocol):
    """Who hears what the holder says unasked; called by the reading thread."""

    def news(self) -> None:
        """Note that a rest is over."""

    def ended(self, runs: list[Run]) -> None:
        """Note that runs have ended."""

    def cut(self, line: Line) -> None:
        """Note that the line is cut; the thread is free to see to that."""


class Line:
    """A connection to a holder. Thread-safe. Use `Line.to`.

    Attributes:
        pid: of the holder.

    Args:
        connection: greeted.
        reader: with what has come after the greeting.
        pid: see above.
        listener: who hears what comes unasked.
    """

    def __init__(
        self,
        connection: socket.socket,
        reader: FrameReader,
        *,
        pid: int,
        listener: LineListener,
    ) -> None:
        self.pid: Final = pid
        self._connection = connection
        self._reader = reader
        self._listener = listener
        self._lock = threading.Lock()
        self._number = 0
        self._asked: dict[int, tuple[str, Future[Any]]] = {}
        self._taken: int | None = None
        self._cut = False
        self._forked = False
        self._thread = threading.Thread(
            target=self._read, name="timingwheel-line", daemon=True
        )
        register_at_fork(self)

    @classmethod
    def to(cls, directory: str, listener: LineListener, *, life: str) -> Line:
        """Return a line to the holder of a directory; `start` it.

        Args:
            directory: its path.
            listener: who hears what comes unasked.
            life: see Hello.

        Raises:
            NoDoorError: nobody answers.
            StoreError: the holder refuses, being of another version or full.
        """
        connection = connect(directory)
        try:
            connection.settimeout(HELLO_PATIENCE_S)
            hello = Hello(magic=MAGIC, shape=shape(), pid=os.getpid(), life=life)
            connection.sendall(frame(hello))
            reader = FrameReader()
            body = _first(connection, reader)
            welcome = decode_welcome(body)
            if welcome.refused:
                raise StoreError(
                    directory,
                    f"process {welcome.pid} holds it and refuses this one: "
                    f"{welcome.refused} ({welcome.shape}, here {shape()})",
                    "run one version of timingwheel in all processes of a directory",
                )
            connection.settimeout(None)
            return cls(connection, reader, pid=welcome.pid, listener=listener)
        except (OSError, FrameError) as error:
            connection.close()
            raise NoDoorError(f"{directory}: no welcome: {error}") from error
        except BaseException:
            connection.close()
            raise

    @property
    def is_cut(self) -> bool:
        """Whether the holder has gone; before anybody hears of it."""
        return self._cut

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def ask(self, call: str, *arguments: Any) -> Any:
        """Return what a call gives.

        Raises:
            LineCutError: the holder has gone.
            What the call raises there.
        """
        body = raw(arguments)
        answer: Future[Any] = Future()
        with self._lock:
            self._require_open()
            number = self._number = self._number + 1
            self._asked[number] = call, answer
            if not self._send(Ask(number, call, body)):
                # Half a frame at most: nobody can have understood it.
                self._asked.pop(number, None)
                raise LineCutError(is_unknown=False)
        return answer.result()

    def say(self, message: msgspec.Struct) -> None:
        """Send what has no answer.

        Raises:
            LineCutError: the holder has gone.
        """
        with self._lock:
            self._require_open()
            if not self._send(message):
                raise LineCutError(is_unknown=False)

    def close(self) -> None:
        """Hang up; who waits hears that the line is cut. Idempotent."""
        unregister_at_fork(self)
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        if self._thread is not threading.current_thread() and self._thread.ident:
            self._thread.join()
        self._connection.close()

    def leave_to_parent(self) -> None:
        """In a forked child: the line is the parent's."""
        self._forked = True
        self._lock = threading.Lock()
        self._connection.close()

    def _require_open(self) -> None:
        if self._forked:
            raise EngineClosedError(FORKED)
        if self._cut:
            raise LineCutError(is_unknown=False)

    def _send(self, message: msgspec.Struct) -> bool:
        try:
            self._connection.sendall(frame(message))
        except OSError:
            with contextlib.suppress(OSError):
                self._connection.shutdown(socket.SHUT_RDWR)  # the reader sees to it
            return False
        return True

    # -- the reading thread -----------------------------------------------------------------

    def _read(self) -> None:
        try:
            while data := self._connection.recv(READ_BYTES):
                for body in self._reader.feed(data):
                    self._take(body)
        except (OSError, FrameError):
            pass
        with self._lock:
            self._cut = True
            asked, self._asked = self._asked, {}
        for number, (_, answer) in asked.items():
            is_unknown = self._taken is None or number <= self._taken
            answer.set_exception(LineCutError(is_unknown=is_unknown))
        self._listener.cut(self)

    def _take(self, body: bytes) -> None:
        message = decode_holder(body)
        match message:
            case Answer(number, value):
                call, answer = self._take_asked(number)
                try:
                    answer.set_result(CALLS[call].answer(value))
                except UNREADABLE as error:
                    answer.set_exception(error)
            case Failure(number, fault):
                _, answer = self._take_asked(number)
                answer.set_exception(error_of(fault))
            case News():
                self._listener.news()
            case Ended(runs):
                self._listener.ended(runs)
            case Bye(taken):
                self._taken = taken

    def _take_asked(self, number: int) -> tuple[str, Future[Any]]:
        with self._lock:
            asked = self._asked.pop(number, None)
        if asked is None:
            raise FrameError(f"an answer to call {number}, which nobody has asked")
        return asked


def _first(connection: socket.socket, reader: FrameReader) -> bytes:
    """Return the first message; no more than it has come by then."""
    while data := connection.recv(READ_BYTES):
        for body in reader.feed(data):
            return body
    raise FrameError("the other side has hung up")
