"""Servers that come back, and fire many at once: Redis and beanstalkd, as `recovery` asks.

*Open* starts the server's process on its files and ends when it answers with all timers
loaded. *Fire* takes what is due in batches, runs the handler and removes them, so that a
crash in between delivers again, as ours does; for Redis three requests a batch.
"""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path

from bench.beanstalk import ALWAYS_MS, BeanstalkServer, BeanstalkStore
from bench.disk import forget
from bench.peers import Connections
from bench.redis import ALWAYS, EVERYSEC, RedisServer, RedisStore, command
from bench.rounds import Case
from bench.stores import load_steps

BATCH = 1_000
_POLL_SECONDS = 0.002
_STATS_LINES = 8
"""Of `stats`: the counts of jobs are in the first."""


class RedisOpen(Case):
    """Starts a server and waits until it answers how many timers it has.

    Args:
        directory: for its files, made; empty.
        timers: that it is to have.
        snapshot: it loads an RDB file, and not its append-only file.
    """

    def __init__(self, directory: Path, timers: int, *, snapshot: bool) -> None:
        self.peer = "Redis"
        self.note = "an RDB file" if snapshot else "an append-only file"
        self._directory = directory
        self._timers = timers
        self._snapshot = snapshot
        with closing(RedisStore(directory, timers, fsync=EVERYSEC)) as store:
            if snapshot:
                store.save()

    def prepare(self) -> None:
        forget(self._directory)

    def run(self) -> float:
        start = time.perf_counter()
        server = RedisServer(self._directory, EVERYSEC, snapshot=self._snapshot)
        with closing(server), closing(Connections(server.server.connect)) as asked:
            wanted = b":%d\r\n" % self._timers
            while (reply := asked.ask(command(b"ZCARD", b"due"), 1)) != wanted:
                assert reply.startswith(b"-LOADING"), reply
                time.sleep(_POLL_SECONDS)
            return time.perf_counter() - start


class BeanstalkOpen(Case):
    """Starts a server, which listens at once, and answers when it has read its log.

    Args:
        directory: for its log, made; empty.
        timers: that it is to have.
    """

    peer = "beanstalkd"

    def __init__(self, directory: Path, timers: int) -> None:
        self._directory = directory
        self._timers = timers
        BeanstalkStore(directory, timers).close()

    def prepare(self) -> None:
        forget(self._directory)

    def run(self) -> float:
        start = time.perf_counter()
        server = BeanstalkServer(self._directory, ALWAYS_MS)
        with closing(server), closing(Connections(server.server.connect)) as asked:
            reply = asked.ask(b"stats\r\n", _STATS_LINES)
            took = time.perf_counter() - start
        assert b"\ncurrent-jobs-delayed: %d\n" % self._timers in reply, reply
        return took


class RedisFire(Case):
    """Takes what is due in batches, runs the handler, and removes them.

    Args:
        directory: for its files, made; empty.
        timers: due at once.
        fsync: ALWAYS or EVERYSEC.
    """

    def __init__(self, directory: Path, timers: int, fsync: str) -> None:
        self.peer = f"Redis {fsync}"
        self.equal = fsync == ALWAYS
        self.note = "" if self.equal else "a crash takes the last second"
        self._timers = timers
        self._store = RedisStore(directory, 0, fsync=fsync)

    def prepare(self) -> None:
        for step in load_steps(self._timers):
            self._store.schedule_many(step)

    def run(self) -> float:
        start = time.perf_counter()
        left = self._timers
        while left:
            due = self._store.take_due(min(BATCH, left))
            for timer_id, payload in due:
                _handle(timer_id, payload)
            self._store.remove_many([timer_id for timer_id, _ in due])
            left -= len(due)
        return time.perf_counter() - start

    def close(self) -> None:
        self._store.close()


def _handle(_timer_id: bytes, _payload: bytes) -> None:
    return None
