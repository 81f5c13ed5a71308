"""How the store on PostgreSQL says that it stands."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import psycopg
import pytest

from tests.postgres import Postgres
from tests.stores.postgres_stage import LONG_TTL_NS, SHARDS, PostgresStage
from tests.stores.stage import SECOND, TASK
from timingwheel.stores.postgres.schema import VERSION


@pytest.fixture
def stage(postgres: Postgres) -> Iterator[PostgresStage]:
    made = PostgresStage(postgres)
    yield made
    made.end_all()


def test_nodes_workers_and_shards_are_told(stage: PostgresStage) -> None:
    stage.store.join("far", ttl_ns=30 * SECOND)
    facts = stage.store.cluster()
    (node,) = facts.nodes
    assert (node.shards, node.ttl_ns) == (SHARDS, LONG_TTL_NS)
    assert node.inc > 0
    assert (node.protocol_min, node.protocol_max, facts.protocol) == (1, 1, 1)
    far = {one.name: one for one in facts.members}["far"]
    assert (far.is_node, far.left_ns, far.shards) == (False, 30 * SECOND, 0)
    assert [one.shard for one in facts.shards] == list(range(SHARDS))
    assert {one.owner for one in facts.shards} == {node.name}
    assert facts.unowned == 0
    assert (facts.schema, facts.schema_known) == (VERSION, VERSION)
    assert sum(one.epoch for one in facts.shards) == SHARDS


def test_a_worker_is_told_with_all_its_slots_also_when_most_are_taken(
    stage: PostgresStage,
) -> None:
    worker = next(one for one in stage.store.cluster().members if not one.is_node)
    for free in (5, 2):
        stage.claim(free)
        stage.store.tend()
    stage.store.tend()
    [again] = [one for one in stage.store.cluster().members if one.inc == worker.inc]
    assert (worker.places, again.places) == (0, 5)


def test_a_node_that_died_owns_nothing_any_more(stage: PostgresStage) -> None:
    stage.let_die(stage.store)
    facts = stage.store.cluster()
    assert facts.nodes == []
    assert not facts.members[0].is_alive
    assert facts.unowned == SHARDS


def test_what_is_due_and_what_is_ready_is_told_with_its_lag(
    stage: PostgresStage,
) -> None:
    stage.put(1)
    stage.put(1)
    assert {one.late_ns for one in stage.store.cluster().shards} == {0}
    stage.advance(4)
    late = stage.store.cluster()
    assert max(one.late_ns for one in late.shards) == 3 * SECOND
    assert late.queues == ()
    stage.fire()
    ready = stage.store.cluster()
    assert {one.late_ns for one in ready.shards} == {0}
    [lag] = ready.queues
    assert (lag.queue, lag.ready) == ("default", 2)
    assert 3 * SECOND <= lag.lag_ns <= 3 * SECOND + stage.grain_ns


def test_attempts_in_hand_and_those_of_the_dead_are_counted(
    stage: PostgresStage,
) -> None:
    stage.put(0)
    stage.store.join("far", ttl_ns=30 * SECOND)
    stage.store.fire(10)
    stage.store.claim("far", tasks=frozenset({TASK}), count=1)
    facts = stage.store.cluster()
    far = {one.name: one for one in facts.members}["far"]
    assert (far.running, facts.database.orphans) == (1, 0)
    stage.advance(31)
    assert stage.store.cluster().database.orphans == 1


def test_the_database_is_told_of(stage: PostgresStage) -> None:
    offset_ns = stage.store.cluster().database.offset_ns
    stage.sql("UPDATE test_clock SET wall_ns = wall_ns + 5000000000")
    with psycopg.connect(stage.where) as connection:
        connection.execute("SELECT 1")  # its transaction goes on
        database = stage.store.cluster().database
    assert database.offset_ns - offset_ns == 5 * SECOND
    assert (database.is_standby, database.autovacuum) == (False, False)
    assert (database.synchronous_commit, database.synchronous_standbys) == ("off", "")
    assert 2 <= database.connections <= database.connections_max
    assert database.transaction_ns > 0
    names = {one.name for one in database.tables}
    assert names >= {"timingwheel_run", "timingwheel_job", "timingwheel_meta"}
    assert all(one.is_vacuumed for one in database.tables)


def test_what_a_commit_waits_for_is_told_when_a_node_begins_to_serve(
    postgres: Postgres, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "timingwheel")
    PostgresStage(postgres).end_all()
    assert "synchronous_commit is off" in caplog.text
