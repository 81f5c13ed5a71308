"""Hints between processes: what one has done another does at once; lost ones harm nothing.

The clocks of these nodes stand still, so nothing is ever found by polling.
"""

from __future__ import annotations

import contextlib
import logging
import re
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import psycopg
import pytest

import timingwheel.stores.postgres as package
from tests.postgres import Postgres
from tests.stores.postgres_stage import CLOCK
from timingwheel import Scheduler
from timingwheel.clock import Clock
from timingwheel.errors import ArgumentError
from timingwheel.jobs.store import CancelResult, JobStore
from timingwheel.stores.postgres.connections import Connections, Rows, Statement
from timingwheel.stores.postgres.hints import _SEND, Heard, Hints
from timingwheel.stores.postgres.making import make_ready
from timingwheel.stores.postgres.store import PostgresStore
from timingwheel.testing import ManualClock

HOUR_NS = 3_600_000_000_000


class Works:
    """What handlers of a test do and wait for."""

    def __init__(self) -> None:
        self.started = threading.Semaphore(0)
        self.may_end = threading.Event()


WORKS = Works()


def work(n: int) -> int:
    WORKS.started.release()
    return n


def work_long(ctx: Any) -> None:
    WORKS.started.release()
    while not WORKS.may_end.wait(0.01):
        ctx.check()


class Nodes:
    """Schedulers on one database, whose clocks never move.

    Args:
        where: the URL.
    """

    def __init__(self, where: str, ends: contextlib.ExitStack) -> None:
        self.where = where
        self._ends = ends
        self.clocks: list[ManualClock] = []

    def node(self, *, hints: str = "auto", tasks: bool = True) -> Scheduler:
        """Build one; it does not serve yet."""
        clock = ManualClock()
        self.clocks.append(clock)

        def opened(_: Clock) -> JobStore:
            return PostgresStore.open(
                self.where, clock=clock, ttl_ns=HOUR_NS, shards=8, hints=hints
            )

        app = Scheduler(opened, clock=clock, slots=1)
        if tasks:
            app.task(name="work")(work)
            app.task(name="long")(work_long)
        self._ends.callback(app.stop, 0)
        return app

    def serving(self, **more: Any) -> Scheduler:
        """Build one that serves and hears."""
        app = self.node(**more)
        app.start()
        if more.get("hints") != "off":
            wait_until(lambda: hints_of(app)._is_live)
        return app

    def sql(self, sql: str) -> list[Any]:
        with psycopg.connect(self.where, autocommit=True) as connection:
            cursor = connection.execute(sql.encode())
            return cursor.fetchall() if cursor.description is not None else []


def store_of(app: Scheduler) -> PostgresStore:
    store = app.desk.store
    assert isinstance(store, PostgresStore)
    return store


def hints_of(app: Scheduler) -> Any:
    return store_of(app)._hints


def wait_until(is_so: Callable[[], bool]) -> None:
    """The test's own time-out ends it."""
    pause = threading.Event()
    while not is_so():
        pause.wait(0.005)


def poll_until_started(clock: ManualClock) -> None:
    """Let time pass until a handler has started."""
    while not WORKS.started.acquire(timeout=0.05):
        clock.advance(ns=500_000_000)


@pytest.fixture
def nodes(postgres: Postgres) -> Iterator[Nodes]:
    WORKS.__init__()  # type: ignore[misc]
    with contextlib.ExitStack() as ends:
        yield Nodes(postgres.new_schema(), ends)


def test_what_one_process_puts_another_starts_at_once(nodes: Nodes) -> None:
    planner, _ = nodes.node(), nodes.serving()
    task = planner.tasks.require("work", "task")
    kinds: list[dict[str, Any]] = [{}, {"key": "k"}, {"name": "n"}]
    for options in kinds:
        planner.add(task.call(1), delay=0, **options)
        assert WORKS.started.acquire(timeout=60)
    planner.trigger(planner.add(task.call(1), every="1h", name="recurring"))
    assert WORKS.started.acquire(timeout=60)


def test_who_waits_for_a_run_is_told_at_once_wherever_it_ends(nodes: Nodes) -> None:
    planner, _ = nodes.node(), nodes.serving()
    task = planner.tasks.require("work", "task")
    for _ in range(3):
        ref = planner.add(task.call(7), delay=0)
        assert planner.run(ref).wait().result == b"\x07"


def test_a_run_that_is_to_end_is_asked_at_once_wherever_it_runs(nodes: Nodes) -> None:
    planner, _ = nodes.node(), nodes.serving()
    ref = planner.add(planner.tasks.require("long", "task").call(), delay=0)
    assert WORKS.started.acquire(timeout=60)
    assert planner.cancel(ref, running="signal") is CancelResult.REQUESTED
    assert planner.run(ref).wait().state == "cancelled"


def test_what_one_node_has_no_slot_for_another_takes_at_once(nodes: Nodes) -> None:
    first = nodes.serving()
    owned = lambda app: len(app.desk.store._members.leases)  # noqa: E731
    assert owned(first) == 8
    second = nodes.serving()
    store_of(first).tend()  # and knows of the second; it keeps all shards for now
    assert owned(second) == 0
    long = first.tasks.require("long", "task")
    for _ in range(2):
        first.add(long.call(), delay=0)
    for _ in range(2):
        assert WORKS.started.acquire(timeout=60)
    running = {run.worker for run in nodes_running(first)}
    assert len(running) == 2
    WORKS.may_end.set()


def nodes_running(app: Scheduler) -> list[Any]:
    runs = app.runs(state="running")
    return [app.run(run.id).attempts()[-1] for run in runs]


def test_a_job_of_a_callers_transaction_is_looked_for_often_for_a_while(
    nodes: Nodes,
) -> None:
    planner, node = nodes.node(), nodes.serving()
    store = node.desk.store
    assert isinstance(store, PostgresStore)
    calm_ns = store._hinting.rest_ns()
    task = planner.tasks.require("work", "task")
    with psycopg.connect(nodes.where) as conn:
        planner.schedule(task.call(1), 0, conn=conn)
        wait_until(lambda: store._hinting.rest_ns() < calm_ns)
        assert store._hinting.rest_ns() <= 500_000_000
        conn.commit()
    # No hint comes with that commit: the next look finds it.
    poll_until_started(nodes.clocks[1])
    nodes.clocks[1].advance(ns=10_000_000_000)
    assert store._hinting.rest_ns() == calm_ns


def test_without_hints_and_when_they_are_lost_a_poll_finds_it(nodes: Nodes) -> None:
    planner = nodes.node(hints="off")
    nodes.serving()
    task = planner.tasks.require("work", "task")
    planner.add(task.call(1), delay=0)
    poll_until_started(nodes.clocks[1])


def test_a_listener_that_is_cut_is_made_again_and_looks_for_what_it_missed(
    nodes: Nodes,
) -> None:
    planner, node = nodes.node(hints="off"), nodes.serving()
    task = planner.tasks.require("work", "task")
    pid = hints_of(node)._listener.info.backend_pid
    planner.add(task.call(1), delay=0)  # and nobody hints at it
    nodes.sql(f"SELECT pg_terminate_backend({pid})")
    assert WORKS.started.acquire(timeout=60)


class Pooled(Hints):
    """As behind a pooler in transaction mode: LISTEN is answered, and forgotten."""

    echo_s = 0.05
    listens_by = "UNLISTEN {}"


def test_where_nothing_comes_back_one_line_says_so_and_hints_are_sent_all_the_same(
    nodes: Nodes, caplog: pytest.LogCaptureFixture
) -> None:
    node = nodes.serving()
    store = store_of(node)
    heard: list[Heard] = []
    pooled = Pooled(
        store._connections,
        uuid.UUID(hints_of(node)._channel.partition("_")[2]),
        nodes.where,
        nodes.clocks[0],
        heard.append,
    )
    with caplog.at_level(logging.INFO, logger="timingwheel"):
        pooled.listen()
        wait_until(lambda: "pooler" in caplog.text)
    told = [one for one in caplog.records if one.name == "timingwheel"]
    assert len([one for one in told if "hints" in one.getMessage()]) == 1
    assert not pooled.is_live
    planner = nodes.node(hints="off")
    planner.add(planner.tasks.require("work", "task").call(1), delay=0)
    pooled.soon(store._members.leases)
    assert WORKS.started.acquire(timeout=60)
    pooled.stop()
    assert heard == []


def test_hints_of_another_store_are_not_heard(nodes: Nodes, postgres: Postgres) -> None:
    with contextlib.ExitStack() as ends:
        others = Nodes(postgres.new_schema(), ends)
        mine, theirs = nodes.serving(), others.serving()
        channels = {hints_of(app)._channel for app in (mine, theirs)}
        assert len(channels) == 2


@pytest.mark.parametrize("value", ["on", True, None, "mysql://x"])
def test_the_option_is_checked(value: Any) -> None:
    with pytest.raises(ArgumentError, match="hints"):
        Scheduler("postgresql://nowhere", hints=value)
    with pytest.raises(ArgumentError, match="hints"):
        Scheduler(":memory:", hints="auto")


def test_no_statement_that_writes_notifies() -> None:
    """A NOTIFY takes a lock over the whole server until its transaction is over."""
    [directory] = package.__path__
    telling = {
        path.name
        for path in Path(directory).glob("*.py")
        if re.search(r"\bpg_notify\b|\bLISTEN \b", path.read_text())
    }
    assert telling == {"hints.py"}
    assert not re.search("INSERT|UPDATE|DELETE", _SEND)


class Counting(Connections):
    """Counts the statements that a process sends."""

    sent = 0

    def all(
        self, statements: Sequence[Statement], *, binary: bool = False
    ) -> list[Rows]:
        Counting.sent += len(statements)
        return super().all(statements, binary=binary)


@pytest.mark.parametrize(
    ("hints", "most", "seconds"), [("auto", 2, 62), ("off", 4, 15)], ids=["auto", "off"]
)
def test_an_idle_node_sends_few_statements(
    postgres: Postgres, hints: str, most: float, seconds: int
) -> None:
    """Also with jobs that are due much later; with hints fewer than without."""
    where, clock = postgres.new_schema(), ManualClock()
    app = Scheduler(
        lambda _: PostgresStore.open(where, clock=clock, hints=hints), clock=clock
    )
    with psycopg.connect(where, autocommit=True) as admin:
        make_ready(admin, shards=8)
        # Both clocks go alike, else there would be steps of one to look into.
        psycopg.ClientCursor(admin).execute(CLOCK, [clock.wall_ns()])
        task = app.task(name="work")(work)
        app.add(task.call(1), delay=86_400)
        app.add(task.call(1), cron="0 0 1 1 *", name="yearly")
        with app:
            if hints == "auto":
                wait_until(lambda: hints_of(app).is_live)
            store_of(app)._connections.__class__ = Counting
            clock.settle(threads=3)
            Counting.sent = 0
            for _ in range(seconds * 2):
                admin.execute("UPDATE test_clock SET wall_ns = wall_ns + 500000000")
                clock.advance(ns=500_000_000)
                clock.settle()
            assert 0 < Counting.sent <= most * seconds
