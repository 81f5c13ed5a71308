"""Redis as a timer store: a sorted set of due times, a hash of payloads, in one MULTI.

The append-only file is synced before a reply with `appendfsync always`, as we do, and once a
second with `everysec`. The client writes the protocol itself, which is quicker than any
library for it, so that the server is what is measured.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from pathlib import Path

from bench.peers import Connections, Kind, Server
from bench.pipeline import Pipeline
from bench.stores import DELAYS, PAYLOAD, load_steps

KIND = Kind("Redis", programs=("redis-server",), install="apt-get install redis-server")
ALWAYS = "always"
EVERYSEC = "everysec"
_REPLY_LINES = 6  # OK, QUEUED twice, and an array of two integers
_BEGIN = b"*1\r\n$5\r\nMULTI\r\n"
_EXEC = b"*1\r\n$4\r\nEXEC\r\n"


def command(*words: bytes) -> bytes:
    """Return a command in the server's protocol."""
    return b"*%d\r\n%b" % (
        len(words),
        b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words),
    )


def transaction(*commands: bytes) -> bytes:
    """Return what carries out commands all or none; its reply has 3 lines and more."""
    return b"".join([_BEGIN, *commands, _EXEC])


class RedisServer:
    """A server with an append-only file in a directory, made.

    Args:
        directory: of its data.
        fsync: ALWAYS or EVERYSEC.
        snapshot: it has no such file, and loads what `RedisStore.save` has left.
    """

    def __init__(self, directory: Path, fsync: str, *, snapshot: bool = False) -> None:
        directory.mkdir(exist_ok=True)
        append_only = "no" if snapshot else "yes"
        self.server = Server(
            [
                "redis-server",
                *("--port", "0", "--unixsocket", "{socket}", "--daemonize", "no"),
                *("--appendonly", append_only, "--appendfsync", fsync, "--save", ""),
                *("--auto-aof-rewrite-percentage", "0"),
            ],
            directory,
        )

    def close(self) -> None:
        self.server.close()


class RedisStore:
    """Redis for threads, a connection each; as `Store`.

    Args:
        directory: where its files go.
        loaded: timers that are pending from the start.
        fsync: ALWAYS or EVERYSEC.
        equal: whether that promises as much as the engine it is compared with.
    """

    def __init__(
        self, directory: Path, loaded: int, *, fsync: str = ALWAYS, equal: bool = True
    ) -> None:
        self.peer = f"Redis {fsync}"
        self.equal = equal
        self.note = "" if equal else "a crash takes the last second"
        self._redis = RedisServer(directory, fsync)
        self.server = self._redis.server
        self._connections = Connections(self.server.connect)
        self._next_id = itertools.count(1).__next__
        self._next_delay = itertools.cycle(DELAYS).__next__
        try:
            for timers in load_steps(loaded):
                self.schedule_many(timers)
        except BaseException:
            self.close()
            raise

    def schedule(self) -> int:
        timer_id = self._next_id()
        self._transact(self.request([timer_id]))
        return timer_id

    def schedule_many(self, timers: int) -> list[int]:
        ids = [self._next_id() for _ in range(timers)]
        self._transact(self.request(ids))
        return ids

    def cancel(self, timer_id: int) -> bool:
        key = b"%d" % timer_id
        reply = self._transact(
            transaction(
                command(b"ZREM", b"due", key), command(b"HDEL", b"payload", key)
            )
        )
        return reply.endswith(b":1\r\n:1\r\n")

    def some_ids(self, timers: int) -> list[int]:
        ids = [one for step in load_steps(timers) for one in self.schedule_many(step)]
        random.Random(timers).shuffle(ids)
        return ids

    def close(self) -> None:
        self._connections.close()
        self._redis.close()

    def request(self, ids: list[int]) -> bytes:
        """Return what makes timers of these ids, all or none."""
        dues, payloads = [b"ZADD", b"due"], [b"HSET", b"payload"]
        now = time.time()
        for timer_id in ids:
            key = b"%d" % timer_id
            dues += [b"%.3f" % (now + self._next_delay()), key]
            payloads += [key, PAYLOAD]
        return transaction(command(*dues), command(*payloads))

    def next_request(self) -> tuple[int, bytes]:
        """Return a new id and what makes a timer of it."""
        timer_id = self._next_id()
        return timer_id, self.request([timer_id])

    def take_due(self, size: int) -> list[tuple[bytes, bytes]]:
        """Return the ids and payloads of so many timers that are due first."""
        request = command(b"ZRANGE", b"due", b"0", b"%d" % (size - 1))
        ids = self._connections.ask(request, 1 + 2 * size).split(b"\r\n")[2::2]
        head, each = len(b"*%d\r\n" % size), len(b"$%d\r\n" % len(PAYLOAD))
        step = each + len(PAYLOAD) + 2
        reply = self._connections.ask_sized(
            command(b"HMGET", b"payload", *ids), head + size * step
        )
        starts = range(head + each, len(reply), step)
        payloads = [reply[start : start + len(PAYLOAD)] for start in starts]
        return list(zip(ids, payloads, strict=True))

    def remove_many(self, ids: list[bytes]) -> None:
        """Remove timers, all or none."""
        due, payload = (
            command(b"ZREM", b"due", *ids),
            command(b"HDEL", b"payload", *ids),
        )
        reply = self._connections.ask(transaction(due, payload), _REPLY_LINES)
        assert reply.endswith((b":%d\r\n" % len(ids)) * 2), reply

    def save(self) -> None:
        """Write a snapshot of all."""
        reply = self._connections.ask(command(b"SAVE"), 1)
        assert reply == b"+OK\r\n", reply

    def _transact(self, request: bytes) -> bytes:
        reply = self._connections.ask(request, _REPLY_LINES)
        assert reply.startswith(b"+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n"), reply
        return reply


class AsyncRedisStore:
    """Redis for a loop's tasks, one connection for all; as `AsyncStore`."""

    def __init__(
        self, directory: Path, loaded: int, *, fsync: str = ALWAYS, equal: bool = True
    ) -> None:
        self.runner = asyncio.Runner()
        self._store = RedisStore(directory, loaded, fsync=fsync, equal=equal)
        self.peer, self.equal, self.note = self._store.peer, equal, self._store.note
        self._pipeline = self.runner.run(self._connect())

    async def schedule(self) -> int:
        timer_id, request = self._store.next_request()
        await self._pipeline.ask(request)
        return timer_id

    def close(self) -> None:
        self.runner.get_loop().call_soon(self._pipeline.close)
        self.runner.close()
        self._store.close()

    async def _connect(self) -> Pipeline:
        loop = asyncio.get_running_loop()
        _, pipeline = await loop.create_unix_connection(
            lambda: Pipeline(lines=_REPLY_LINES, failure=b"ERR"),
            self._store.server.socket_path,
        )
        return pipeline
