"""A node as a process of its own: it writes each start of a run into a sink, and may die.

    node_program.py URL NAME KILL_AT UNTIL [unguarded]

KILL_AT counts the messages that it has got an answer to, from the first claim on: at that
one it kills itself. It says when it is ready, waits for a line, and ends when UNTIL runs
have succeeded. The sink has no unique key, so
what starts twice is seen.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Sequence
from typing import Any

import psycopg

from timingwheel import Scheduler
from timingwheel.clock import Clock
from timingwheel.jobs.store import JobStore
from timingwheel.stores.postgres import claiming, guard
from timingwheel.stores.postgres.connections import Connections, Rows, Statement
from timingwheel.stores.postgres.store import PostgresStore

TTL_NS = 1_000_000_000
SLOTS = 4


class DeadlyConnections(Connections):
    """Connections of a process that dies at the n-th message."""

    kill_at = 0
    count = 0
    counting = threading.Lock()

    def all(self, statements: Sequence[Statement]) -> list[Rows]:
        found = super().all(statements)
        with self.counting:
            type(self).count += 1
            if self.kill_at and self.count >= self.kill_at:
                os.kill(os.getpid(), signal.SIGKILL)
        return found


def remove_the_guards() -> None:
    """Believe what was read, whatever has become of it: the control of the harness."""
    claiming._CLAIM = claiming._CLAIM.replace("AND r.version = u.version", "")  # type: ignore[misc]
    guard._JOBS = guard._JOBS.replace("AND j.version = g.version", "")  # type: ignore[misc]
    guard._RUNS = guard._RUNS.replace("AND r.version = g.version", "")  # type: ignore[misc]


class Sink:
    """Where starts are written, one after the other.

    Args:
        url: of the database.
        node: who writes.
    """

    def __init__(self, url: str, node: str) -> None:
        self._connection = psycopg.connect(url, autocommit=True)
        self._writing = threading.Lock()
        self._node = node

    def write(self, run_id: str, attempt: int, token: int) -> None:
        with self._writing:
            self._connection.execute(
                "INSERT INTO sink VALUES (%s, %s, %s, %s)",
                [run_id, attempt, token, self._node],
            )

    def succeeded(self) -> int:
        """How many runs have succeeded."""
        with self._writing:
            row = self._connection.execute(
                "SELECT count(*) FROM timingwheel_past WHERE state = 'succeeded'"
            ).fetchone()
        return 0 if row is None else row[0]


SINKS: list[Sink] = []


def work(ctx: Any) -> None:
    SINKS[0].write(ctx.run_id, ctx.attempt, ctx.token)


def main(url: str, name: str, kill_at: str, until: str, *more: str) -> None:
    if more:
        remove_the_guards()
    SINKS.append(Sink(url, name))

    def open_store(clock: Clock) -> JobStore:
        store = PostgresStore.open(url, clock=clock, ttl_ns=TTL_NS)
        store._connections.__class__ = DeadlyConnections
        DeadlyConnections.kill_at = int(kill_at)
        return store

    app = Scheduler(open_store, slots=SLOTS)
    app.task(name="work")(work)
    app.jobs(limit=1)  # so it is open
    print("ready", flush=True)
    sys.stdin.readline()
    app.start()
    done = threading.Event()
    while SINKS[0].succeeded() < int(until):
        done.wait(0.05)
    app.stop(grace=1)


if __name__ == "__main__":
    main(*sys.argv[1:])
