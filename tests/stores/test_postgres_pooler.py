"""The store behind pgbouncer in transaction mode, a real one, with few connections."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from bench.postgres_server import USER
from tests.postgres import FAST, SMALL, Postgres, running_postgres
from tests.stores.stage import SECOND
from timingwheel import Scheduler
from timingwheel.clock import Clock
from timingwheel.stores.postgres.connections import Connections
from timingwheel.stores.postgres.store import PostgresStore
from timingwheel.stores.postgres.window import WINDOW_MIN

PGBOUNCER = shutil.which("pgbouncer") or "/usr/sbin/pgbouncer"
JOBS = 60
SETTINGS = """
[databases]
postgres = host={sockets} dbname=postgres user={user}
[pgbouncer]
unix_socket_dir = {directory}
listen_addr =
listen_port = 6432
auth_type = any
pool_mode = transaction
default_pool_size = 3
ignore_startup_parameters = extra_float_digits
logfile = {directory}/log
"""


def double(n: int) -> int:
    return 2 * n


@pytest.fixture
def pooled() -> Iterator[str]:
    """The URL of a pooler with three connections to a server of its own."""
    if not Path(PGBOUNCER).exists():
        pytest.skip("no pgbouncer: the store behind a pooler is NOT tested")
    with (
        running_postgres(*FAST, *SMALL) as postgres,
        tempfile.TemporaryDirectory(prefix="timingwheel-pooler-") as name,
    ):
        directory = Path(name)
        settings = directory / "settings.ini"
        settings.write_text(
            SETTINGS.format(sockets=postgres.sockets, user=USER, directory=directory)
        )
        user = None
        if os.geteuid() == 0:
            user = USER
            for path in (directory, settings):
                os.chown(path, pwd.getpwnam(USER).pw_uid, -1)
        process = subprocess.Popen(
            [PGBOUNCER, str(settings)],
            user=user,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            where = f"postgresql://{USER}@/postgres?host={directory}&port=6432"
            wait_for(where)
            yield where
        finally:
            process.kill()
            process.wait()


def wait_for(where: str) -> None:
    tick = threading.Event()
    for _ in range(500):
        with contextlib.suppress(psycopg.OperationalError):
            psycopg.connect(where).close()
            return
        tick.wait(0.02)
    raise AssertionError("pgbouncer does not answer")


def test_jobs_run_behind_a_pooler_in_transaction_mode(pooled: str) -> None:
    """Two nodes, more connections than the pooler has: each statement may go elsewhere."""

    def open_store(clock: Clock) -> PostgresStore:
        # As a URL does, but that it takes no six seconds to share the shards.
        return PostgresStore.open(
            pooled,
            clock=clock,
            ttl_ns=SECOND,
            fires_per_second="auto",
            window_min=WINDOW_MIN,
            hints="auto",
        )

    nodes = [Scheduler(open_store) for _ in range(2)]
    calls = [node.task(double) for node in nodes]
    with nodes[0], nodes[1]:
        refs = [
            nodes[n % 2].add(
                calls[n % 2].call(n), delay=0, key=f"k{n}" if n % 3 else None
            )
            for n in range(JOBS)
        ]
        results = [nodes[0].run(ref).result(30) for ref in refs]
        nodes[0].add(calls[0].call(1), every="1h", name="hourly")
        nodes[1].pause("hourly")
        assert nodes[0].job("hourly").state == "paused"
    assert results == [2 * n for n in range(JOBS)]


def test_behind_a_pooler_statements_are_planned_as_elsewhere_and_nobody_elses_are(
    pooled: str,
) -> None:
    """Compiled, a look at new tables takes two seconds."""
    sql = "SELECT current_setting('jit'), current_setting('enable_seqscan')"
    connections = Connections(pooled)
    assert connections.rows(sql) == [("off", "off")]
    assert connections.named_rows(sql, {}) == [("off", "off")]
    assert connections.all([(sql, ()), (sql, ())]) == [[("off", "off")]] * 2
    with psycopg.connect(pooled, autocommit=True) as other:
        for _ in range(10):  # whichever session it gets
            assert other.execute(sql.encode()).fetchall() == [("on", "on")]
    connections.close()


def test_statements_are_prepared_unless_a_pooler_stands_between(
    pooled: str, postgres: Postgres
) -> None:
    found = []
    for where in (pooled, postgres.where):
        connections = Connections(where)
        with connections.lent() as connection:
            found.append(connection.prepare_threshold is not None)
        connections.close()
    assert found == [False, True]
