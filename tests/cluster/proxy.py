"""A wire between a node and its server that a test can cut, slow down and break.

It listens on a unix socket of its own and passes bytes on, a thread for each direction of
each connection. Bytes that are held back are not lost, as on a network that is away for a
while; a connection that is broken is at an end for both sides.
"""

from __future__ import annotations

import contextlib
import shutil
import socket
import tempfile
import threading
import time
from pathlib import Path
from typing import Literal

SOCKET = ".s.PGSQL.5432"
_PIECE_BYTES = 1 << 16
Way = Literal["requests", "replies"]


class Proxy:
    """Passes on what a node and a server say to each other.

    Attributes:
        directory: of its socket.

    Args:
        server: the directory of the server's socket.
    """

    def __init__(self, server: str) -> None:
        self.directory = tempfile.mkdtemp(prefix="timingwheel-proxy-")
        self.server = server
        self._changed = threading.Condition()
        self._held: set[Way] = set()
        self._delay_s = 0.0
        self._breaks: tuple[Way, int] | None = None
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._is_closed = False
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(Path(self.directory) / SOCKET))
        self._listener.listen()
        self._start(self._listen)

    # -- faults ---------------------------------------------------------------------------

    def cut(self, *ways: Way) -> None:
        """Hold back what goes these ways: requests, replies, or both."""
        with self._changed:
            self._held.update(ways)

    def mend(self) -> None:
        """Pass on all that was held back, and what comes."""
        with self._changed:
            self._held.clear()
            self._delay_s = 0.0
            self._changed.notify_all()

    def delay_replies(self, seconds: float) -> None:
        """Pass replies on this much later."""
        with self._changed:
            self._delay_s = seconds

    def break_all(self) -> None:
        """End all connections there are; what was held back is lost."""
        with self._changed:
            pairs, self._pairs = self._pairs, []
            self._changed.notify_all()
        for pair in pairs:
            _hang_up(*pair)

    def break_next(self, way: Way, sent_bytes: int) -> None:
        """End the connection that next says something that way, after so many bytes."""
        with self._changed:
            self._breaks = way, sent_bytes

    @property
    def has_broken(self) -> bool:
        """Whether what `break_next` asked for has come to pass."""
        return self._breaks is None

    def close(self) -> None:
        self._is_closed = True
        self._listener.close()
        self.break_all()
        shutil.rmtree(self.directory, ignore_errors=True)

    # -- inside ---------------------------------------------------------------------------

    def _start(self, run: object, *args: object) -> None:
        threading.Thread(target=run, args=args, daemon=True).start()  # type: ignore[arg-type]

    def _listen(self) -> None:
        while not self._is_closed:
            try:
                node, _ = self._listener.accept()
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX)
            try:
                server.connect(str(Path(self.server) / SOCKET))
            except OSError:
                node.close()
                continue
            with self._changed:
                self._pairs.append((node, server))
            self._start(self._pass_on, node, server, "requests")
            self._start(self._pass_on, server, node, "replies")

    def _pass_on(self, source: socket.socket, sink: socket.socket, way: Way) -> None:
        with contextlib.suppress(OSError):
            while piece := source.recv(_PIECE_BYTES):
                if not self._may_pass(sink, way):
                    return
                size = self._size_to_pass(way, piece)
                sink.sendall(piece[:size])
                if size < len(piece):
                    break
        _hang_up(source, sink)

    def _may_pass(self, sink: socket.socket, way: Way) -> bool:
        """Wait until bytes may go; False: there is nowhere to go any more."""
        at = time.monotonic() + (self._delay_s if way == "replies" else 0.0)
        with self._changed:
            while way in self._held and sink.fileno() >= 0:
                self._changed.wait()
            while (rest := at - time.monotonic()) > 0 and self._delay_s:
                self._changed.wait(rest)
        return sink.fileno() >= 0

    def _size_to_pass(self, way: Way, piece: bytes) -> int:
        with self._changed:
            if self._breaks is None or self._breaks[0] != way:
                return len(piece)
            size = min(self._breaks[1], len(piece) - 1)
            self._breaks = None
            return size


def _hang_up(*sockets: socket.socket) -> None:
    for one in sockets:
        with contextlib.suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
        one.close()
