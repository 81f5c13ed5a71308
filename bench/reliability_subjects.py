"""Stores that faults are tried on, ours and peers, each behind the same few requests.

A timer is a number, and its payload follows from it, so that whatever is found can be held
against what was acknowledged. All promise the same: what is acknowledged survives a kill
and a power loss (SQLite `synchronous=FULL`, Redis `appendfsync always`, beanstalkd `-f 0`).
Ours and SQLite are libraries: they live in a process of their own, which can be killed.
"""

from __future__ import annotations

import contextlib
import hashlib
import multiprocessing
import os
import signal
import socket
import sqlite3
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import BinaryIO, Final, Protocol

from bench.beanstalk import ALWAYS_MS, BeanstalkServer
from bench.peers import PeerError, Server
from bench.redis import ALWAYS, RedisServer, command, transaction
from timingwheel import TimerEngine

DELAY_S: Final = 86_400.0
ANSWER_S: Final = 30.0
_SEGMENT_BYTES: Final = 1 << 20
"""Small, so that most of a try is not the making of segments."""
_LOADS_S: Final = 0.01


class RefusedError(Exception):
    """The store said no, and why: an open, a read or a request."""


def payload_of(number: int, size_bytes: int) -> bytes:
    """Return what a timer carries: its number and bytes that follow from it."""
    head = b"%010d" % number
    digest = hashlib.sha256(head).digest()
    return (head + digest * (size_bytes // len(digest) + 1))[:size_bytes]


class Subject(ABC):
    """A store in a directory. Opened, asked, closed or killed, and opened again.

    Args:
        directory: of its files; made if missing.
    """

    name: str

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    @abstractmethod
    def open(self) -> None:
        """Open or start it. Raises RefusedError."""

    @abstractmethod
    def put(self, number: int, payload: bytes) -> None:
        """Make a timer; it is acknowledged when this returns. Raises RefusedError."""

    @abstractmethod
    def cancel(self, number: int) -> bool:
        """Remove a timer. Raises RefusedError."""

    @abstractmethod
    def everything(self) -> list[bytes]:
        """Return the payloads of all timers. Raises RefusedError."""

    @abstractmethod
    def close(self) -> None:
        """End it in good order."""

    @abstractmethod
    def kill(self) -> None:
        """End it by SIGKILL, from any thread."""

    @abstractmethod
    def end(self) -> None:
        """End all that runs, whatever became of it."""

    def data_files(self) -> list[Path]:
        """Return the files that hold timers."""
        return sorted(
            path
            for path in self.directory.rglob("*")
            if path.is_file() and path.name not in {"messages", "LOCK", "lock"}
        )


class _Library(Protocol):
    """A store that lives in whoever opens it."""

    def put(self, number: int, payload: bytes) -> None: ...
    def cancel(self, number: int) -> bool: ...
    def everything(self) -> list[bytes]: ...
    def close(self) -> None: ...


class _Engine:
    def __init__(self, directory: str) -> None:
        self._engine = TimerEngine(
            directory,
            lambda _id, _payload: None,
            segment_size_bytes=_SEGMENT_BYTES,
            reserve_bytes=4 * _SEGMENT_BYTES,
        )
        self._ids = {
            int(timer.payload[:10]): timer.id for timer in self._engine.timers(1 << 20)
        }

    def put(self, number: int, payload: bytes) -> None:
        self._ids[number] = self._engine.schedule(DELAY_S, payload)

    def cancel(self, number: int) -> bool:
        return self._engine.cancel(self._ids[number])

    def everything(self) -> list[bytes]:
        return [timer.payload for timer in self._engine.timers(1 << 20)]

    def close(self) -> None:
        self._engine.close()


_TABLE: Final = (
    "CREATE TABLE IF NOT EXISTS timer (id INTEGER PRIMARY KEY, "
    "due INTEGER NOT NULL, payload BLOB NOT NULL)"
)


class _Sqlite:
    """As a careful program would use it: a write-ahead log, and a sync each commit."""

    def __init__(self, directory: str) -> None:
        os.makedirs(directory, exist_ok=True)
        self._db = sqlite3.connect(
            os.path.join(directory, "timers.sqlite"), isolation_level=None
        )
        for statement in (
            "PRAGMA journal_mode=WAL",
            "PRAGMA synchronous=FULL",
            _TABLE,
            "CREATE INDEX IF NOT EXISTS timer_due ON timer (due)",
        ):
            self._db.execute(statement)

    def put(self, number: int, payload: bytes) -> None:
        due = time.time_ns() + int(DELAY_S * 1e9)
        self._db.execute("INSERT INTO timer VALUES (?, ?, ?)", (number, due, payload))

    def cancel(self, number: int) -> bool:
        found = self._db.execute("DELETE FROM timer WHERE id = ?", (number,))
        return found.rowcount == 1

    def everything(self) -> list[bytes]:
        return [row[0] for row in self._db.execute("SELECT payload FROM timer")]

    def close(self) -> None:
        self._db.close()


def _serve(pipe: Connection, make: Callable[[str], _Library]) -> None:
    """Do what is asked until the pipe is closed: for a process of its own."""
    store: _Library | None = None
    while True:
        try:
            call, *values = pipe.recv()
        except EOFError:
            return
        try:
            if call == "open":
                store, answer = make(*values), None
            else:
                answer = getattr(store, call)(*values)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is told
            pipe.send((False, f"{type(error).__name__}: {error}"))
        else:
            pipe.send((True, answer))


class LibrarySubject(Subject):
    """A library in a process of its own; as Subject."""

    make: Callable[[str], _Library]

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._process: multiprocessing.process.BaseProcess | None = None

    def open(self) -> None:
        if self._process is None:
            start = multiprocessing.get_context("spawn")
            self._pipe, theirs = start.Pipe()
            self._process = start.Process(
                target=_serve, args=(theirs, type(self).make), daemon=True
            )
            self._process.start()
            theirs.close()
        self._ask("open", str(self.directory))

    def put(self, number: int, payload: bytes) -> None:
        self._ask("put", number, payload)

    def cancel(self, number: int) -> bool:
        return bool(self._ask("cancel", number))

    def everything(self) -> list[bytes]:
        found = self._ask("everything")
        assert isinstance(found, list)
        return found

    def close(self) -> None:
        if self._process is not None:
            self._ask("close")

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()

    def end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.join()
            self._pipe.close()

    def _ask(self, *words: object) -> object:
        try:
            self._pipe.send(words)
            if not self._pipe.poll(ANSWER_S):
                raise RefusedError(f"no answer to {words[0]} within {ANSWER_S} s")
            done, answer = self._pipe.recv()
        except (OSError, EOFError) as error:
            raise RefusedError("its process has ended") from error
        if not done:
            raise RefusedError(str(answer))
        return answer


class Ours(LibrarySubject):
    """A TimerEngine."""

    name = "timingwheel"
    make = _Engine


class Sqlite(LibrarySubject):
    """SQLite."""

    name = "SQLite FULL"
    make = _Sqlite

    def data_files(self) -> list[Path]:
        # The index of the log is made anew from it.
        return [path for path in super().data_files() if path.suffix != ".sqlite-shm"]


class _Process(Protocol):
    server: Server

    def close(self) -> None: ...


class ServerSubject(Subject):
    """A server on a socket; as Subject."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._running: _Process | None = None

    @abstractmethod
    def start(self) -> _Process:
        """Start it."""

    def open(self) -> None:
        self.directory.mkdir(exist_ok=True)
        try:
            self._running = self.start()
        except PeerError as error:
            raise RefusedError(str(error)) from error
        self._socket = self._running.server.connect()
        self._socket.settimeout(ANSWER_S)
        self._lines: BinaryIO = self._socket.makefile("rb")

    def close(self) -> None:
        if self._running is not None:
            self._hang_up()
            self._running.close()
            self._running = None

    def kill(self) -> None:
        if self._running is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._running.server.pid, signal.SIGKILL)

    def end(self) -> None:
        self.close()

    def _hang_up(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._lines.close()
        self._socket.close()

    def _send(self, request: bytes) -> None:
        try:
            self._socket.sendall(request)
        except OSError as error:
            raise RefusedError(f"the server is gone: {error}") from error

    def _line(self) -> bytes:
        try:
            line = self._lines.readline()
        except OSError as error:
            raise RefusedError(f"the server is gone: {error}") from error
        if not line.endswith(b"\n"):
            raise RefusedError("the server has ended")
        return line[:-2]

    def _bytes(self, size: int) -> bytes:
        found = self._lines.read(size + 2)
        if len(found) < size + 2:
            raise RefusedError("the server has ended")
        return found[:-2]


class Redis(ServerSubject):
    """Redis: a sorted set and a hash, changed in one MULTI."""

    name = "Redis always"

    def start(self) -> _Process:
        return RedisServer(self.directory, ALWAYS)

    def put(self, number: int, payload: bytes) -> None:
        key = b"%d" % number
        due = b"%.3f" % (time.time() + DELAY_S)
        self._transact(
            command(b"ZADD", b"due", due, key),
            command(b"HSET", b"payload", key, payload),
        )

    def cancel(self, number: int) -> bool:
        key = b"%d" % number
        return self._transact(
            command(b"ZREM", b"due", key), command(b"HDEL", b"payload", key)
        ) == [b":1", b":1"]

    def everything(self) -> list[bytes]:
        while True:
            self._send(command(b"HVALS", b"payload"))
            head = self._line()
            if not head.startswith(b"-LOADING"):
                break
            time.sleep(_LOADS_S)
        if not head.startswith(b"*"):
            raise RefusedError(head.decode(errors="replace"))
        return [self._bytes(int(self._line()[1:])) for _ in range(int(head[1:]))]

    def _transact(self, *commands: bytes) -> list[bytes]:
        self._send(transaction(*commands))
        heads = [self._line() for _ in range(2 + len(commands))]
        if wrong := [head for head in heads if head.startswith(b"-")]:
            raise RefusedError(wrong[0].decode(errors="replace"))
        return [self._line() for _ in commands]


class Beanstalkd(ServerSubject):
    """beanstalkd: a delayed job."""

    name = "beanstalkd -f 0"

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._ids: dict[int, int] = {}

    def start(self) -> _Process:
        return BeanstalkServer(self.directory, ALWAYS_MS)

    def put(self, number: int, payload: bytes) -> None:
        self._send(b"put 0 %d 60 %d\r\n%b\r\n" % (int(DELAY_S), len(payload), payload))
        reply = self._line()
        if not reply.startswith(b"INSERTED"):
            raise RefusedError(reply.decode(errors="replace"))
        self._ids[number] = int(reply.split()[1])

    def cancel(self, number: int) -> bool:
        self._send(b"delete %d\r\n" % self._ids[number])
        return self._line() == b"DELETED"

    def everything(self) -> list[bytes]:
        return list(self._peek())

    def _peek(self) -> Iterator[bytes]:
        # It lists none; but ids are given out one by one.
        for job in range(1, max(self._ids.values(), default=0) + 2):
            self._send(b"peek %d\r\n" % job)
            words = self._line().split()
            if words and words[0] == b"FOUND":
                yield self._bytes(int(words[2]))


SUBJECTS: Final[tuple[type[Subject], ...]] = (Ours, Sqlite, Redis, Beanstalkd)
