"""Nodes are killed in the middle of their work; nothing is lost, nothing is done twice.

Real processes, a real server, and a sink without a unique key. An attempt that was under
way when its node died is on record as lost, and its run starts again; nothing else may
start twice.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import psycopg
import pytest

from tests.postgres import Postgres
from tests.stores.stage import draft, every, overlap
from timingwheel.jobs.model import Outcome, Payload, RunState
from timingwheel.jobs.store import RunQuery
from timingwheel.stores.postgres.store import PostgresStore

ROOT = Path(__file__).resolve().parents[2]
PLAIN = 60
NAMED = 20
RECURRING = 4
TIMES = 5
RUNS = PLAIN + NAMED + RECURRING * TIMES
END_SECONDS = 60


def prepare(url: str) -> None:
    """Make a store with jobs that are due, and the sink."""
    payload = Payload(b"\x80")  # no arguments
    store = PostgresStore.open(url, shards=16)
    more = {"task": "work", "payload": payload}
    store.put([draft(0, **more) for _ in range(PLAIN)])
    store.put([draft(0, tags={"n": str(n)}, **more) for n in range(NAMED)])
    trigger = every(0.2, runs_max=TIMES)
    allow = overlap("allow")
    store.put([draft(trigger, overlap=allow, **more) for _ in range(RECURRING)])
    store.close()
    with psycopg.connect(url) as connection:
        connection.execute(
            "CREATE TABLE sink (run_id text, attempt int, token bigint, node text)"
        )


def start_node(
    url: str, name: str, *more: str, kill_at: int = 0, until: int = RUNS
) -> subprocess.Popen:
    return subprocess.Popen(
        [
            *(sys.executable, "-m", "tests.cluster.node_program"),
            *(url, name, str(kill_at), str(until), *more),
        ],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def let_go(*nodes: subprocess.Popen) -> None:
    """Have nodes begin at one moment."""
    for node in nodes:
        assert node.stdout is not None
        assert node.stdout.readline() == "ready\n", node.communicate()
    for node in nodes:
        assert node.stdin is not None
        node.stdin.write("go\n")
        node.stdin.flush()


class Account(NamedTuple):
    """What came of it.

    Attributes:
        runs: how many there are.
        unfinished: those that have not succeeded.
        unstarted: runs of which the sink knows nothing.
        done_twice: runs of which two attempts succeeded.
        doubles: starts beside the one that succeeded, of no attempt that was lost.
        lost: attempts that were lost.
    """

    runs: int
    unfinished: int
    unstarted: int
    done_twice: int
    doubles: int
    lost: int


def account(url: str) -> Account:
    """Compare the store with the sink."""
    with psycopg.connect(url) as connection:
        rows = connection.execute("SELECT run_id, token FROM sink").fetchall()
    starts: dict[str, set[int]] = {}
    for run_id, token in rows:
        starts.setdefault(run_id, set()).add(token)
    unfinished = unstarted = done_twice = doubles = lost_count = 0
    with contextlib.closing(PostgresStore.open(url)) as store:
        runs = store.runs(RunQuery(limit=1_000)).runs
        for run in runs:
            attempts = store.attempts(run.id)
            done = [one.token for one in attempts if one.outcome is Outcome.OK]
            lost = {one.token for one in attempts if one.outcome is Outcome.LOST}
            started = starts.get(run.id, set())
            unfinished += run.state is not RunState.SUCCEEDED
            unstarted += not started
            done_twice += len(done) > 1
            doubles += len(started - lost - set(done[:1]))
            lost_count += len(lost)
    return Account(len(runs), unfinished, unstarted, done_twice, doubles, lost_count)


@pytest.mark.parametrize("kill_at", [6, 7, 8, 9, 10, 11, 12, 14, 16, 19])
def test_a_node_that_is_killed_loses_nothing_and_doubles_nothing(
    postgres: Postgres, kill_at: int
) -> None:
    url = postgres.new_schema()
    prepare(url)
    dies = start_node(url, "dies", kill_at=kill_at)
    lives = start_node(url, "lives")
    let_go(dies, lives)
    _, words = lives.communicate(timeout=END_SECONDS)
    dies.communicate(timeout=END_SECONDS)
    assert dies.returncode == -signal.SIGKILL
    assert lives.returncode == 0, words
    found = account(url)
    assert found == Account(RUNS, 0, 0, 0, 0, found.lost)


def test_without_the_guards_the_same_nodes_do_work_twice(postgres: Postgres) -> None:
    """The control: it shows that the harness would see it."""
    url = postgres.new_schema()
    prepare(url)
    # Not to the end, which such nodes may never reach: each waits for what both believe
    # to be the other's.
    nodes = [
        start_node(url, name, "unguarded", until=PLAIN // 2) for name in ("a", "b")
    ]
    let_go(*nodes)
    for node in nodes:
        node.communicate(timeout=END_SECONDS)
    assert account(url).doubles > 0
