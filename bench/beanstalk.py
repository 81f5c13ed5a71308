"""beanstalkd as a timer store: a delayed job is a timer.

`-f 0` syncs its log at every job, as we do; `-f 50` at most every 50 ms, as our interval mode.
It has no batch: those lines send 128 requests before they read the replies.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Sequence
from pathlib import Path

from bench.peers import Connections, Kind, Server
from bench.pipeline import Pipeline
from bench.stores import DELAYS, PAYLOAD, load_steps

KIND = Kind(
    "beanstalkd", programs=("beanstalkd",), install="apt-get install beanstalkd"
)
ALWAYS_MS = 0
INTERVAL_MS = 50
NEVER = None
_LOG_FILE_BYTES = 16 << 20
IN_FLIGHT_MAX = 128
"""Requests sent before their replies are read: a socket holds some hundred replies, and
both sides would wait for each other."""


class BeanstalkServer:
    """A server with its log in a directory, made.

    Args:
        directory: of its log.
        fsync_ms: at most so often; NEVER to load it.
    """

    def __init__(self, directory: Path, fsync_ms: int | None) -> None:
        directory.mkdir(exist_ok=True)
        sync = ["-F"] if fsync_ms is None else ["-f", str(fsync_ms)]
        self.server = Server(
            [
                *("beanstalkd", "-l", "unix:{socket}", "-b", str(directory.resolve())),
                *("-s", str(_LOG_FILE_BYTES), *sync),
            ],
            directory,
        )

    def close(self) -> None:
        self.server.close()


class BeanstalkStore:
    """beanstalkd for threads, a connection each; as `Store`.

    Args:
        directory: where its log goes.
        loaded: timers that are pending from the start.
        fsync_ms: ALWAYS_MS or INTERVAL_MS.
        equal: whether that promises as much as the engine it is compared with.
        delays: of the timers, in turn, s.
    """

    def __init__(
        self,
        directory: Path,
        loaded: int,
        *,
        fsync_ms: int = ALWAYS_MS,
        equal: bool = True,
        delays: Sequence[float] = DELAYS,
    ) -> None:
        self.peer = f"beanstalkd -f {fsync_ms}"
        self.equal = equal
        self.note = "" if equal else "not durable"
        self._next_delay = itertools.cycle(delays).__next__
        self._load(directory, loaded)
        self._beanstalk = BeanstalkServer(directory, fsync_ms)
        self.server = self._beanstalk.server
        self._connections = Connections(self.server.connect)

    def schedule(self) -> int:
        reply = self._connections.ask(self.next_request(), 1)
        return _id_of(reply)

    def schedule_many(self, timers: int) -> list[int]:
        ids = []
        for start in range(0, timers, IN_FLIGHT_MAX):
            number = min(IN_FLIGHT_MAX, timers - start)
            request = b"".join([self.next_request() for _ in range(number)])
            replies = self._connections.ask(request, number)
            ids += [_id_of(line) for line in replies.splitlines()]
        return ids

    def cancel(self, timer_id: int) -> bool:
        reply = self._connections.ask(b"delete %d\r\n" % timer_id, 1)
        return reply == b"DELETED\r\n"

    def take_due(self, size: int) -> list[tuple[int, bytes]]:
        """Reserve so many jobs that are due; return their ids and payloads."""
        lines = size * (2 + PAYLOAD.count(b"\n"))
        reply = self._connections.ask(b"reserve\r\n" * size, lines)
        due, start = [], 0
        while start < len(reply):
            body = reply.index(b"\n", start) + 1
            word, timer_id, _ = reply[start:body].split(b" ")
            assert word == b"RESERVED", reply[start:body]
            due.append((int(timer_id), reply[body : body + len(PAYLOAD)]))
            start = body + len(PAYLOAD) + 2
        return due

    def remove_many(self, ids: list[int]) -> None:
        """Remove timers, each by itself."""
        request = b"".join([b"delete %d\r\n" % timer_id for timer_id in ids])
        reply = self._connections.ask(request, len(ids))
        assert reply == b"DELETED\r\n" * len(ids), reply

    def some_ids(self, timers: int) -> list[int]:
        ids = [one for step in load_steps(timers) for one in self.schedule_many(step)]
        random.Random(timers).shuffle(ids)
        return ids

    def close(self) -> None:
        self._connections.close()
        self._beanstalk.close()

    def next_request(self) -> bytes:
        """Return what makes one timer."""
        head = b"put 0 %d 60 %d\r\n" % (self._next_delay(), len(PAYLOAD))
        return b"%b%b\r\n" % (head, PAYLOAD)

    def _load(self, directory: Path, timers: int) -> None:
        # A sync a job would make this the longest part: it starts anew for what counts.
        self._beanstalk = BeanstalkServer(directory, NEVER)
        self._connections = Connections(self._beanstalk.server.connect)
        try:
            for step in load_steps(timers):
                self.schedule_many(step)
        finally:
            self.close()


class AsyncBeanstalkStore:
    """beanstalkd for a loop's tasks, one connection for all; as `AsyncStore`."""

    def __init__(self, directory: Path, loaded: int) -> None:
        self.runner = asyncio.Runner()
        self._store = BeanstalkStore(directory, loaded)
        self.peer, self.equal = self._store.peer, self._store.equal
        self.note = self._store.note
        self._pipeline = self.runner.run(self._connect())

    async def schedule(self) -> None:
        await self._pipeline.ask(self._store.next_request())

    def close(self) -> None:
        self.runner.get_loop().call_soon(self._pipeline.close)
        self.runner.close()
        self._store.close()

    async def _connect(self) -> Pipeline:
        loop = asyncio.get_running_loop()
        _, pipeline = await loop.create_unix_connection(
            lambda: Pipeline(lines=1, failure=b"_"),  # as OUT_OF_MEMORY
            self._store.server.socket_path,
        )
        return pipeline


def _id_of(reply: bytes) -> int:
    word, _, number = reply.partition(b" ")
    assert word == b"INSERTED", reply
    return int(number)
