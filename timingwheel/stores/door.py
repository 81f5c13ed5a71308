"""The door of a store: how other processes ask the one that holds its directory.

One thread listens for all visitors; calls are answered on a few threads, which come with
the first of them, so durable calls of many processes share commits as those of threads
do. A visitor that goes, however its process ended, is noticed at once: what its node had
in hand is lost, and ready again or final as its delivery says.
"""

from __future__ import annotations

import contextlib
import logging
import os
import selectors
import socket
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import msgspec

from timingwheel.errors import ArgumentError, TimingWheelError
from timingwheel.jobs.model import Run, RunId
from timingwheel.stores.door_calls import CALLS, shape
from timingwheel.stores.door_errors import fault_of
from timingwheel.stores.door_frames import (
    FRAME_MAX,
    MAGIC,
    READ_BYTES,
    Answer,
    Ask,
    Bye,
    Ended,
    Expect,
    Failure,
    Forget,
    FrameError,
    FrameReader,
    News,
    Rest,
    Welcome,
    decode_hello,
    decode_visitor,
    frame,
)
from timingwheel.stores.door_socket import NoDoorError, is_ours, listen, remove
from timingwheel.stores.embedded import EmbeddedStore
from timingwheel.stores.nodes import LEASE_TTL_NS, Node
from wal.errors import WalError
from wal.forking import register_at_fork, unregister_at_fork

VISITORS_MAX: Final = 256
CALLS_AT_ONCE: Final = 32
"""Calls that are answered at once; more of them share the same commits anyway."""
SEND_PATIENCE_S: Final = 5.0
"""A visitor that does not take its answers for so long is let go."""

_logger = logging.getLogger("timingwheel")


class _Visitor:
    """One connection.

    Attributes:
        node: its node; None before it is welcome.

    Invariant: its node is gone only when none of its calls is in hand any more, so
    nothing is claimed for a node that is gone.
    """

    def __init__(self, connection: socket.socket) -> None:
        self.connection: Final = connection
        self.reader: Final = FrameReader()
        self.expected: Final[set[RunId]] = set()
        self.node: Node | None = None
        self.is_gone = False
        self.taken = 0
        self.in_hand = 0
        self._sending = threading.Lock()

    def send(self, message: msgspec.Struct) -> None:
        """Send a message; one that cannot be sent ends the connection.

        Raises:
            FrameError: it is too large; nothing was sent.
        """
        data = frame(message)
        try:
            with self._sending:
                self.connection.sendall(data)
        except OSError:
            # The listening thread hears of it and does the rest.
            with contextlib.suppress(OSError):
                self.connection.shutdown(socket.SHUT_RDWR)


class Door:
    """Lets other processes ask a store. Thread-safe. Use `open_door`.

    Args:
        store: which.
        directory: of the store; its lock is held.

    Raises:
        NoDoorError: there can be no socket.
    """

    def __init__(self, store: EmbeddedStore, directory: str) -> None:
        self._store = store
        self._directory = directory
        self._listener = listen(directory)
        self._waker, self._wakened = socket.socketpair()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._wakened, selectors.EVENT_READ)
        self._visitors: set[_Visitor] = set()
        self._expected: dict[RunId, set[_Visitor]] = {}
        self._lock = threading.Lock()
        self._closing = False
        self._pool = ThreadPoolExecutor(
            CALLS_AT_ONCE, thread_name_prefix="timingwheel-door"
        )
        self._thread = threading.Thread(
            target=self._listen, name="timingwheel-door", daemon=True
        )
        register_at_fork(self)
        store.add_listener(self._hear)
        self._thread.start()

    def close(self) -> None:
        """Answer what was taken in, say so, and let all visitors go. Idempotent."""
        if self._closing:
            return
        self._closing = True
        self._waker.send(b"\0")
        self._thread.join()
        self._pool.shutdown()
        for visitor in self._visitors:
            visitor.send(Bye(visitor.taken))
        # While the lock of the directory is held: the next holder makes its own.
        remove(self._directory)
        self._close_handles()

    def leave_to_parent(self) -> None:
        """In a forked child: the connections are the parent's, and end with it alone."""
        self._closing = True
        self._close_handles()

    def _close_handles(self) -> None:
        unregister_at_fork(self)
        for visitor in self._visitors:
            visitor.connection.close()
        for handle in (self._listener, self._waker, self._wakened):
            handle.close()
        self._selector.close()

    # -- the listening thread ---------------------------------------------------------------

    def _listen(self) -> None:
        while not self._closing:
            for key, _ in self._selector.select():
                if key.fileobj is self._listener:
                    self._let_in()
                elif isinstance(key.data, _Visitor):
                    self._read(key.data)

    def _let_in(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError as error:
            _logger.warning("a visitor could not come in: %s", error)
            return
        if not is_ours(connection):
            connection.close()
            return
        connection.settimeout(SEND_PATIENCE_S)
        visitor = _Visitor(connection)
        self._visitors.add(visitor)
        self._selector.register(connection, selectors.EVENT_READ, visitor)

    def _read(self, visitor: _Visitor) -> None:
        try:
            data = visitor.connection.recv(READ_BYTES)
            for body in visitor.reader.feed(data):
                self._take(visitor, body)
        except (OSError, FrameError) as error:
            _logger.debug("a visitor is let go: %s", error)
            data = b""
        if not data:
            self._part(visitor)

    def _take(self, visitor: _Visitor, body: bytes) -> None:
        """Take one message in; what may wait goes to another thread."""
        node = visitor.node
        if node is None:
            self._welcome(visitor, body)
            return
        message = decode_visitor(body)
        match message:
            case Ask():
                with self._lock:
                    visitor.in_hand += 1
                self._submit(self._answer, visitor, message)
                visitor.taken = message.number
            case Rest(seen):
                node.rest(seen)
            case Expect(run_id):
                with self._lock:
                    visitor.expected.add(run_id)
                    self._expected.setdefault(run_id, set()).add(visitor)
            case Forget(run_id):
                with self._lock:
                    self._forget(visitor, run_id)

    def _welcome(self, visitor: _Visitor, body: bytes) -> None:
        hello = decode_hello(body)
        refused = ""
        if hello.magic != MAGIC or hello.shape != shape():
            refused = "it is of another version of timingwheel"
        elif len(self._visitors) > VISITORS_MAX:
            refused = f"it has {VISITORS_MAX} visitors, and no room for more"
        visitor.node = Node(
            self._store.nodes,
            life=hello.life,
            ttl_ns=LEASE_TTL_NS,
            on_news=lambda: visitor.send(News()),
        )
        visitor.send(
            Welcome(magic=MAGIC, shape=shape(), pid=os.getpid(), refused=refused)
        )
        if refused:
            raise FrameError(f"process {hello.pid} was refused: {refused}")

    def _part(self, visitor: _Visitor) -> None:
        """A visitor has gone; so does its node, once none of its calls is in hand."""
        self._selector.unregister(visitor.connection)
        self._visitors.discard(visitor)
        with self._lock:
            for run_id in tuple(visitor.expected):
                self._forget(visitor, run_id)
            visitor.is_gone = True
            is_idle = not visitor.in_hand
        if is_idle:
            self._submit(self._let_go, visitor)

    def _forget(self, visitor: _Visitor, run_id: RunId) -> None:
        visitor.expected.discard(run_id)
        waiting = self._expected.get(run_id)
        if waiting is not None:
            waiting.discard(visitor)
            if not waiting:
                del self._expected[run_id]

    def _submit(self, step: Callable[..., None], *arguments: object) -> None:
        # Refused only when the door or the whole process ends: then visitors go
        # elsewhere, and look there again.
        with contextlib.suppress(RuntimeError):
            self._pool.submit(step, *arguments)

    # -- the answering threads --------------------------------------------------------------

    def _answer(self, visitor: _Visitor, ask: Ask) -> None:
        try:
            if not visitor.is_gone:
                self._send_answer(visitor, ask)
        finally:
            with self._lock:
                visitor.in_hand -= 1
                is_over = visitor.is_gone and not visitor.in_hand
            if is_over:
                self._let_go(visitor)

    def _send_answer(self, visitor: _Visitor, ask: Ask) -> None:
        try:
            answer: msgspec.Struct = Answer(ask.number, self._called(visitor, ask))
        except (TimingWheelError, WalError, OSError) as error:
            answer = Failure(ask.number, fault_of(error))
        except Exception as error:
            _logger.exception("a call of another process failed: %s", ask.call)
            answer = Failure(ask.number, fault_of(error))
        try:
            visitor.send(answer)
        except FrameError:
            too_large = ArgumentError(
                "limit",
                f"an answer of more than {FRAME_MAX:,} bytes",
                "ask for fewer rows at once, and page on",
            )
            visitor.send(Failure(ask.number, fault_of(too_large)))

    def _called(self, visitor: _Visitor, ask: Ask) -> msgspec.Raw:
        call = CALLS[ask.call]
        asked = visitor.node if call.of_node else self._store
        value: Any = getattr(asked, call.name)(**call.arguments(ask.arguments))
        if call.commits:
            self._store.commit(value[-1] if isinstance(value, tuple) else value)
        return call.sent(value)

    def _let_go(self, visitor: _Visitor) -> None:
        try:
            if visitor.node is not None:
                visitor.node.gone()
        except (TimingWheelError, WalError, OSError) as error:
            # What it had is running for nobody until the next opening.
            _logger.error("a node of another process is gone: %s", error)  # noqa: TRY400
        finally:
            visitor.connection.close()

    # -- ends of runs ---------------------------------------------------------------------

    def _hear(self, runs: Sequence[Run]) -> None:
        if not self._expected:
            return  # the usual case, and this is called for every run there is
        with self._lock:
            told: dict[_Visitor, list[Run]] = {}
            for run in runs:
                for visitor in self._expected.get(run.id, ()):
                    told.setdefault(visitor, []).append(run)
        for visitor, ended in told.items():
            self._submit(visitor.send, Ended(ended))


def open_door(store: EmbeddedStore, directory: str) -> None:
    """Let other processes ask a store until it closes, if the place allows for a door.

    Args:
        store: of this process, which holds the directory.
        directory: its path.
    """
    try:
        door = Door(store, os.path.abspath(directory))
    except NoDoorError as error:
        _logger.warning("no other process can ask for jobs in %s", error)
        return
    store.before_close.append(door.close)
