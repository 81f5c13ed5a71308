"""Others are in the way of a statement: it is sent again, and whoever sent it goes on."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import psycopg
import pytest

from tests.postgres import Postgres
from tests.stores.postgres_stage import PostgresStage
from tests.stores.stage import SECOND
from timingwheel.jobs.errors import DatabaseAwayError
from timingwheel.stores.postgres.connections import SENT_MAX
from timingwheel.stores.postgres.tending import Tending
from timingwheel.testing import ManualClock

# What a sequence has given stays given when the statement is undone.
UNDO = """
CREATE SEQUENCE test_undone;
CREATE FUNCTION test_undo() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF nextval('{schema}.test_undone') <= {times} THEN
        RAISE EXCEPTION 'others were in the way' USING ERRCODE = '{code}';
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER test_undo AFTER UPDATE ON {table} FOR EACH STATEMENT
EXECUTE FUNCTION test_undo();
"""
CODES = {"deadlock": "40P01", "not serializable": "40001", "lock timeout": "55P03"}


@pytest.fixture
def stage(postgres: Postgres) -> Iterator[PostgresStage]:
    """A node that serves, one worker joined."""
    made = PostgresStage(postgres)
    yield made
    made.end_all()


def undo(stage: PostgresStage, table: str, code: str, times: int = 1) -> None:
    """Have the server undo the next changes of a table, so many times."""
    [(schema,)] = stage.sql("SELECT current_schema()")
    sql = UNDO.format(schema=schema, table=table, code=code, times=times)
    with psycopg.connect(stage.where, autocommit=True) as connection:
        connection.execute(sql.encode(), prepare=False)


@pytest.mark.parametrize("code", CODES.values(), ids=CODES)
def test_a_claim_that_the_server_undoes_is_sent_again(
    stage: PostgresStage, code: str
) -> None:
    job = stage.put(0)
    stage.advance(1)
    stage.store.fire(100)
    undo(stage, "timingwheel_run", code)
    [claim] = stage.claim()
    assert claim.run.job_id == job
    assert stage.states(job) == ["running"]


def test_a_sign_of_life_that_the_server_undoes_is_sent_again(
    stage: PostgresStage,
) -> None:
    inc = stage.store._members.inc
    undo(stage, "timingwheel_member", CODES["deadlock"])
    stage.store.tend()
    assert stage.store._members.inc == inc
    assert stage.sql("SELECT beats FROM timingwheel_member WHERE is_node") == [(2,)]


@pytest.mark.parametrize("code", CODES.values(), ids=CODES)
def test_what_the_server_always_undoes_is_not_sent_for_ever(
    stage: PostgresStage, code: str
) -> None:
    """It is as if the database were away: a node waits, and goes on."""
    stage.put(0)
    stage.advance(1)
    undo(stage, "timingwheel_run", code, times=1_000)
    with pytest.raises(DatabaseAwayError, match="others were in the way"):
        stage.claim()
    assert stage.sql("SELECT last_value FROM test_undone") == [(SENT_MAX,)]


def test_a_database_that_only_reads_is_away_until_another_connection_writes(
    stage: PostgresStage,
) -> None:
    with stage.store._connections.lent() as connection:
        connection.execute("SET default_transaction_read_only = on", prepare=False)
    with pytest.raises(DatabaseAwayError, match="read-only"):
        stage.put(0)
    assert stage.states(stage.put(0)) == ["planned"]


def test_signs_of_life_go_on_whatever_was_wrong_with_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    given = threading.Semaphore(0)

    def tend() -> None:
        given.release()
        raise AssertionError("others were quicker too often")

    tending = Tending(tend, ManualClock(), every_ns=SECOND)
    tending.start()
    for _ in range(2):
        tending.hurry()
        assert given.acquire(timeout=30)
    tending.stop()
    assert "it is tried again" in caplog.text


def test_a_node_lets_shards_go_in_the_order_in_which_those_who_fire_lock_them(
    stage: PostgresStage,
) -> None:
    """Wherever their rows stand: here the first is the last of its page."""
    stage.sql(
        "WITH gone AS (DELETE FROM timingwheel_shard WHERE shard = 0 RETURNING *) "
        "INSERT INTO timingwheel_shard SELECT * FROM gone RETURNING shard"
    )
    members = stage.store._members
    with members._connections.lent() as connection:
        connection.execute("SET enable_indexscan = off", prepare=False)
    last = max(members.leases)
    lock = "SELECT 1 FROM timingwheel_shard WHERE shard = ANY(%s) FOR SHARE NOWAIT"
    with psycopg.connect(stage.where) as firing:
        firing.execute(lock, [[0]])
        leaving = threading.Thread(target=members.hand_over)
        leaving.start()
        while not stage.sql("SELECT 1 FROM pg_locks WHERE NOT granted"):
            pass
        firing.execute(lock, [[last]])
    leaving.join()
    assert stage.sql(
        "SELECT count(*) FROM timingwheel_shard WHERE owner_inc IS NOT NULL"
    ) == [(0,)]
