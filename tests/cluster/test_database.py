"""The database is paused, killed under load, or lets nobody in; then it is back.

The sink is on a server that never fails, so what handlers do meanwhile is seen.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.cluster.bed import Bed
from tests.cluster.conftest import Keep
from tests.cluster.putter import Putter
from tests.cluster.servers import Instance, running_instance
from tests.postgres import Postgres

TTL_SECONDS = 1.0
_ALIVE = """
SELECT count(*) FROM timingwheel_member WHERE until_ns > timingwheel_elapsed()
"""
_RUNNING = "SELECT count(*) FROM timingwheel_run WHERE state = 'running'"


@pytest.fixture
def instance() -> Iterator[Instance]:
    with running_instance() as made:
        yield made


@pytest.fixture
def bed(instance: Instance, postgres: Postgres, tmp_path: Path) -> Iterator[Bed]:
    """A store on a server that the test may harm."""
    made = Bed(instance.url, postgres.new_schema(), tmp_path)
    yield made
    made.close()


def test_a_database_that_pauses_past_all_leases_starts_nothing_and_doubles_nothing(
    bed: Bed, keep: Keep, instance: Instance
) -> None:
    bed.put(times=25, period_s=0.1)
    busy = {"work_s": 0.02}
    nodes = bed.start(("a", busy), ("b", busy), ("c", busy))
    bed.wait_until(lambda: bed.started() > 0, *nodes)
    instance.pause()
    paused_ns = time.monotonic_ns()
    threading.Event().wait(2.5 * TTL_SECONDS)  # nobody sets it: time is the fault
    resumed_ns = time.monotonic_ns()
    instance.resume()
    bed.finish(*nodes)
    found = bed.account()
    keep("database paused past all leases", found)
    assert not found.faults
    all_lost_ns = paused_ns + round(TTL_SECONDS * 1e9)
    assert not bed.started(between=(all_lost_ns, resumed_ns))


@pytest.mark.parametrize(
    "how", ["kill -9", pytest.param("immediate stop", marks=pytest.mark.long)]
)
def test_a_database_that_crashes_under_load_loses_nothing(
    bed: Bed, keep: Keep, instance: Instance, how: str
) -> None:
    bed.put(times=25, period_s=0.1)
    busy = {"work_s": 0.02}
    nodes = bed.start(("a", busy), ("b", busy))
    putter = Putter(instance.url)
    bed.wait_until(lambda: bed.started() > 20, *nodes)
    in_flight = sum(bed.in_flight(node.name) for node in nodes)
    if how == "kill -9":
        instance.crash()
    else:
        instance.stop_at_once()
    instance.start()
    started = bed.started()
    bed.wait_until(lambda: bed.started() > started + 20, *nodes)
    putter.stop()
    bed.jobs.update(dict.fromkeys(putter.promised.values(), 1))
    bed.finish(*nodes)
    found = bed.account()
    keep(f"database restarted: {how}", found, in_flight)
    assert not found.faults
    assert putter.unknown


def test_a_database_without_a_free_connection_is_waited_for(
    bed: Bed, keep: Keep, instance: Instance
) -> None:
    bed.put(times=25, period_s=0.1)
    busy = {"work_s": 0.02}
    nodes = bed.start(("a", busy), ("b", busy))
    bed.wait_until(lambda: bed.started() > 0, *nodes)
    with contextlib.ExitStack() as hogs:
        first = hogs.enter_context(psycopg.connect(instance.url, autocommit=True))
        in_flight = 0
        while not (_fill(instance, hogs) and _lives_nobody(first)):
            in_flight = max(in_flight, _number(first, _RUNNING))
            first.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE application_name = ANY(%s)",
                [["a", "b"]],
            )
    bed.finish(*nodes)
    found = bed.account()
    keep("no connection to be had past all leases", found, in_flight)
    assert not found.faults
    assert found.started_twice <= in_flight + found.refused


def _fill(instance: Instance, hogs: contextlib.ExitStack) -> bool:
    """Take all connections that are to be had."""
    with contextlib.suppress(psycopg.OperationalError):
        while True:
            hogs.enter_context(psycopg.connect(instance.url, autocommit=True))
    return True


def _lives_nobody(connection: psycopg.Connection[tuple[int]]) -> bool:
    return _number(connection, _ALIVE) == 0


def _number(connection: psycopg.Connection[tuple[int]], sql: str) -> int:
    row = connection.execute(sql.encode()).fetchone()
    return 0 if row is None else row[0]
