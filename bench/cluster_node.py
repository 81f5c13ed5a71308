"""A node of ours as a process: python -m bench.cluster_node WHAT URL ARGUMENT...

    run URL TALLY PLACE WORKERS     runs no-ops; adds durable ends to the tally
    stamp URL                       runs what notes how late it was
    sink URL NAME TTL_MS            runs what writes each start into the table `sink`
    fire URL                        fires alone, by the store, no run starts
    idle URL HINTS                  has nothing to do; with hints of others, or without

Each says "ready" when its store is open, and begins at the next line. Those that run on are
killed, but for `stamp`, which tells what it has noted at the line after that; `fire` hears
"tend" and "go".
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg

from bench.cluster_place import READY
from bench.cluster_tally import Tally
from bench.schedulers import LAGS, TASKS
from timingwheel.clock import Clock
from timingwheel.jobs.store import JobStore
from timingwheel.scheduler.scheduler import Scheduler
from timingwheel.stores.postgres.store import PostgresStore

SINK = """
CREATE TABLE sink (
    run_id text, attempt int, token bigint, node text,
    at_ns bigint DEFAULT (extract(epoch FROM clock_timestamp()) * 1000000000)::bigint
)
"""
"""No unique key: what starts twice is seen."""
SINKS: list[tuple[psycopg.Connection, str]] = []
WRITE = "write"
_WRITE = b"INSERT INTO sink (run_id, attempt, token, node) VALUES (%s, %s, %s, %s)"
FIRE_LIMIT = 4_096
SLOTS = 8
NS_A_MS = 1_000_000


def run(url: str, tally_path: str, place: str, workers: str) -> None:
    """Run no-ops until killed, one after the other or in threads."""
    tally, mine, slots = Tally(Path(tally_path)), int(place), int(workers)
    app = _scheduler(url, slots)
    app.desk.store.add_listener(lambda runs: tally.add(mine, len(runs)))
    _wait_for_word()
    app.start()
    sys.stdin.readline()


def stamp(url: str) -> None:
    """Note how late each run starts; tell it all when asked."""
    app = _scheduler(url, SLOTS)
    app.jobs(limit=1)
    _wait_for_word()
    app.start()
    sys.stdin.readline()
    print(json.dumps(LAGS), flush=True)
    app.stop(grace=1)


def sink(url: str, name: str, ttl_ms: str) -> None:
    """Write each start down until killed."""
    SINKS.append((psycopg.connect(url, autocommit=True), name))

    def open_store(clock: Clock) -> JobStore:
        ttl_ns = int(ttl_ms) * NS_A_MS
        return PostgresStore.open(url, clock=clock, ttl_ns=ttl_ns, hints="auto")

    app = Scheduler(open_store, slots=1, executor="inline", tasks=TASKS)
    app.task(name=WRITE)(write_start)
    app.jobs(limit=1)
    _wait_for_word()
    app.start()
    sys.stdin.readline()


def write_start(ctx: Any) -> None:
    """The handler: a row for a start."""
    connection, name = SINKS[0]
    connection.execute(_WRITE, [ctx.run_id, ctx.attempt, ctx.token, name])


def fire(url: str) -> None:
    """Fire what is due whenever it is told to, and say how many there were."""
    store = PostgresStore.open(url)
    store.recover()
    print(READY, flush=True)
    for line in sys.stdin:
        if line.strip() == "tend":
            store.tend()
            print("tended", flush=True)
            continue
        fired = found = store.fire(FIRE_LIMIT)[0]
        while found:
            found = store.fire(FIRE_LIMIT)[0]
            fired += found
        print(fired, flush=True)
    store.close()


def idle(url: str, hints: str) -> None:
    """Serve, with nothing that is due."""
    app = Scheduler(url, slots=SLOTS, tasks=TASKS, hints=hints)
    app.jobs(limit=1)
    _wait_for_word()
    app.start()
    sys.stdin.readline()
    app.stop(grace=1)


def _scheduler(url: str, slots: int) -> Scheduler:
    # Nodes of one machine share its name; what tells them apart is the process.
    return Scheduler(
        url,
        slots=slots,
        executor="thread" if slots > 1 else "inline",
        worker=f"bench-{os.getpid()}",
        tasks=TASKS,
    )


def _wait_for_word() -> None:
    print(READY, flush=True)
    sys.stdin.readline()


WHAT: dict[str, Callable[..., None]] = {
    "run": run,
    "stamp": stamp,
    "sink": sink,
    "fire": fire,
    "idle": idle,
}

if __name__ == "__main__":
    what, *more = sys.argv[1:]
    WHAT[what](*more)
