"""Plans on PostgreSQL: what a node asks goes by indices, whatever the planner believes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import pytest

from tests.postgres import Postgres
from tests.stores.postgres_stage import PostgresStage
from tests.stores.stage import draft, end_of, every
from timingwheel.jobs.model import Queue
from timingwheel.stores.postgres.connections import Connections, Rows, Statement

WHOLE = re.compile(
    r"Seq Scan on timingwheel_(run|job|past|attempt)"
    r"|(Hash|Merge) (\w+ )?Join(?=(.*\n){1,8}.* on timingwheel_run)"
    r"|Join Filter: \(.*\bjob_id\b"
)
LARGE = re.compile(r"timingwheel_(run|job|past|attempt)")


class NotedConnections(Connections):
    """Connections that note each statement about the large tables, with its values."""

    noted: dict[str, Sequence[object]]

    def all(
        self, statements: Sequence[Statement], *, binary: bool = False
    ) -> list[Rows]:
        self.noted |= {sql: values for sql, values in statements if LARGE.search(sql)}
        return super().all(statements, binary=binary)


@pytest.fixture
def stage(postgres: Postgres) -> Iterator[PostgresStage]:
    """A node with a small window, one worker joined."""
    made = PostgresStage(postgres, window_min=2)
    yield made
    made.end_all()


def serve(stage: PostgresStage) -> None:
    """Have all ways be gone: directly, by the window, under a queue, and by a step."""
    store = stage.store
    store.fire(1)
    store.set_queue(Queue(name="narrow", limit=2))
    store.put([draft(every(60)), *(draft(1, queue="narrow") for _ in range(9))])
    store.put([draft(1)])
    stage.advance(61)
    for _ in range(5):
        store.fire(100)
        claims = stage.claim(1)
        for claim in claims:
            assert stage.begin(claim)
        store.finish([end_of(claim) for claim in claims])
    assert store.is_quiet() is False


@pytest.mark.parametrize("rows", [0, 3])
def test_what_a_node_asks_reads_no_whole_table_though_a_vacuum_found_few_rows(
    stage: PostgresStage, rows: int
) -> None:
    """Its plans are kept: those of an empty table would serve when a herd has come."""
    connections = stage.store._connections
    connections.__class__ = NotedConnections
    assert isinstance(connections, NotedConnections)
    connections.noted = {}
    serve(stage)
    noted = dict(connections.noted)
    assert len(noted) > 10
    keys = "(shard, job_id, nominal_ns, n)"
    stage.sql(
        f"DELETE FROM timingwheel_run WHERE {keys} NOT IN "
        f"(SELECT shard, job_id, nominal_ns, n FROM timingwheel_run LIMIT {rows})"
    )
    tables = stage.sql(
        "SELECT relname FROM pg_class WHERE relkind IN ('r', 'p') "
        "AND relnamespace = current_schema()::regnamespace"
    )
    # Of these alone: the server is full of the schemas of other tests.
    stage.sql(f"VACUUM ANALYZE {', '.join(name for (name,) in tables)}")
    found = {}
    with connections.lent() as connection:
        for sql, values in noted.items():
            plan = connection.execute(b"EXPLAIN " + sql.encode(), values).fetchall()
            words = "\n".join(row[0] for row in plan)
            if WHOLE.search(words):
                found[sql] = words
    assert found == {}
