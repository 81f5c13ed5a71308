"""From one schema to the next, by a migration that is made up for these tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import psycopg
import pytest

from tests.postgres import Postgres
from tests.stores.postgres_stage import PostgresStage
from timingwheel.errors import ArgumentError
from timingwheel.jobs.errors import NoStoreError
from timingwheel.stores.postgres.making import SchemaError
from timingwheel.stores.postgres.migrating import MigrationHeldUpError, Mover, Place
from timingwheel.stores.postgres.schema import VERSION, Migration

ROWS = 25
ADD_LENGTH = Migration(
    expand=("ALTER TABLE timingwheel_queue ADD COLUMN length int",),
    indexes=(("timingwheel_queue_length", "ON timingwheel_queue (length)"),),
    backfill="""
        UPDATE timingwheel_queue SET length = length(name) WHERE name IN (
            SELECT name FROM timingwheel_queue WHERE length IS NULL LIMIT %s)
        RETURNING name
    """,
    left="SELECT count(*) FROM timingwheel_queue WHERE length IS NULL",
    contract=("ALTER TABLE timingwheel_queue ALTER COLUMN length SET NOT NULL",),
)


class Killed(BaseException):
    """As a process that dies."""


@pytest.fixture
def stage(postgres: Postgres) -> Iterator[PostgresStage]:
    made = PostgresStage(postgres)
    made.sql(
        "INSERT INTO timingwheel_queue (name, version, next_start_ns, body) "
        "SELECT repeat('q', n), 1, 0, '' FROM generate_series(1, %s) n",
        [ROWS],
    )
    yield made
    made.end_all()


class Told(list[str]):
    """What a mover has said; it dies as it says what is in `dies_at`."""

    dies_at = ""

    def __call__(self, words: str) -> None:
        self.append(words)
        if self.dies_at and words.startswith(self.dies_at):
            raise Killed


def mover(stage: PostgresStage, **more: Any) -> closing[Mover]:
    options: dict[str, Any] = {"migrations": (ADD_LENGTH,), "batch_rows": 10}
    return closing(Mover(stage.where, **options | more))


def let_old_nodes_go(stage: PostgresStage) -> None:
    stage.sql("UPDATE timingwheel_member SET protocol_max = 2")


def length_of(stage: PostgresStage) -> list[Any]:
    return stage.sql("SELECT count(*), sum(length) FROM timingwheel_queue")


def test_a_migration_expands_fills_in_batches_and_contracts(
    stage: PostgresStage,
) -> None:
    let_old_nodes_go(stage)
    told = Told()
    with mover(stage, tell=told) as moves:
        assert moves.to_do() == ["schema 2: expand, backfill, contract"]
        assert moves.run() == Place(2, "done", 2)
        assert moves.to_do() == []
        assert moves.run() == Place(2, "done", 2)
    assert told == [
        "expand to schema 2",
        "index timingwheel_queue_length",
        *(f"backfill: {done} of {ROWS} rows" for done in (10, 20, 25)),
        "contract of schema 2",
    ]
    assert length_of(stage) == [(ROWS, sum(range(ROWS + 1)))]


@pytest.mark.parametrize(
    ("dies_at", "place"),
    [
        ("expand", Place(1, "done", 1)),
        ("index", Place(1, "indexes", 1)),
        ("backfill: 10", Place(1, "backfill", 1)),
        ("backfill: 25", Place(1, "backfill", 1)),
        ("contract", Place(2, "contract", 1)),
    ],
)
def test_a_mover_that_is_killed_goes_on_where_it_was(
    stage: PostgresStage, dies_at: str, place: Place
) -> None:
    let_old_nodes_go(stage)
    told = Told()
    told.dies_at = dies_at
    with mover(stage, tell=told) as moves, pytest.raises(Killed):
        moves.run()
    again = Told()
    with mover(stage, tell=again) as moves:
        assert moves.place() == place
        assert moves.run() == Place(2, "done", 2)
    if dies_at == "backfill: 10":  # what was done is not done again
        assert again[0] == "backfill: 10 of 15 rows"
    assert length_of(stage) == [(ROWS, sum(range(ROWS + 1)))]


def test_an_index_that_was_left_invalid_is_built_again(stage: PostgresStage) -> None:
    let_old_nodes_go(stage)
    told = Told()
    told.dies_at = "index"
    with mover(stage, tell=told) as moves, pytest.raises(Killed):
        moves.run()
    # What a mover that is killed while it builds one leaves behind.
    stage.sql("CREATE INDEX timingwheel_queue_length ON timingwheel_queue (length)")
    stage.sql(
        "UPDATE pg_index SET indisvalid = false "
        "WHERE indexrelid = 'timingwheel_queue_length'::regclass"
    )
    with mover(stage) as moves:
        moves.run()
    assert stage.sql(
        "SELECT indisvalid FROM pg_index "
        "WHERE indexrelid = 'timingwheel_queue_length'::regclass"
    ) == [(True,)]


def test_nothing_is_taken_away_while_older_versions_live(stage: PostgresStage) -> None:
    with mover(stage) as moves:
        with pytest.raises(MigrationHeldUpError, match="end or upgrade node:"):
            moves.run()
        assert moves.place() == Place(2, "contract", 1)
        # Which go on meanwhile, and write as they always did.
        stage.sql("INSERT INTO timingwheel_queue VALUES ('late', 1, 0, '')")
        let_old_nodes_go(stage)
        assert moves.run() == Place(2, "done", 2)
    assert length_of(stage)[0][0] == ROWS + 1


def test_a_migration_that_takes_nothing_away_is_done_beside_older_versions(
    stage: PostgresStage,
) -> None:
    with mover(stage, migrations=(ADD_LENGTH._replace(contract=()),)) as moves:
        assert moves.run() == Place(2, "done", 1)
    stage.restart()  # this version still opens it


def test_what_is_locked_is_tried_again_and_then_given_up(
    stage: PostgresStage,
) -> None:
    quick = {"lock_timeout_ms": 10, "tries_max": 3, "pause_ns": 1}
    told = Told()
    with psycopg.connect(stage.where) as holder:
        holder.execute("LOCK TABLE timingwheel_queue IN ACCESS SHARE MODE")
        with (
            mover(stage, tell=told, **quick) as moves,
            pytest.raises(MigrationHeldUpError, match="stays locked over 3 tries"),
        ):
            moves.run()
    assert [one for one in told if "locked" in one]
    with mover(stage) as moves:
        assert moves.place() == Place(1, "done", 1)


def test_a_node_that_meets_a_newer_schema_stops_and_says_so(
    stage: PostgresStage, caplog: pytest.LogCaptureFixture
) -> None:
    stage.put(0)
    stage.store.tend()
    stage.sql("UPDATE timingwheel_meta SET version = 2, oldest = 2")
    stage.store.tend()
    assert "fires nothing more" in caplog.text
    with pytest.raises(SchemaError, match="upgrade timingwheel"):
        stage.store.fire(10)
    assert stage.sql(
        "SELECT count(*) FROM timingwheel_shard WHERE owner_inc IS NOT NULL"
    ) == [(0,)]
    with pytest.raises(SchemaError, match="upgrade timingwheel"):
        stage.node()
    stage.sql("UPDATE timingwheel_meta SET version = 1, oldest = 1")


def test_tables_that_are_too_old_name_the_command(stage: PostgresStage) -> None:
    stage.sql("UPDATE timingwheel_meta SET version = 0, oldest = 0")
    with pytest.raises(SchemaError, match="timingwheel migrate"):
        stage.node()
    stage.sql("UPDATE timingwheel_meta SET version = 1, oldest = 1")


def test_a_mover_needs_tables_that_it_knows_and_a_version_that_there_is(
    stage: PostgresStage, postgres: Postgres
) -> None:
    with closing(Mover(postgres.new_schema())) as moves, pytest.raises(NoStoreError):
        moves.place()
    with mover(stage) as moves, pytest.raises(ArgumentError, match="1 to 2"):
        moves.run(3)
    with mover(stage) as moves:
        assert moves.run(1) == Place(1, "done", 1)
    stage.sql("UPDATE timingwheel_meta SET version = 9")
    with mover(stage) as moves, pytest.raises(SchemaError):
        moves.run()
    stage.sql("UPDATE timingwheel_meta SET version = %s", [VERSION])
