"""Plans on PostgreSQL: what a node asks goes by keys and indices, whatever is believed.

Each statement is prepared once a connection, and its plan is kept: one that was made when a
vacuum had just found the tables empty serves when a herd has come.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.postgres import Postgres
from tests.stores.postgres_stage import PostgresStage
from tests.stores.stage import NO_RETRY, WORKER, after, draft, end_of, every
from timingwheel.jobs.model import Outcome, Queue
from timingwheel.jobs.store import JobQuery, RunQuery
from timingwheel.stores.postgres.connections import Connection, Connections

LARGE = (
    "timingwheel_run",
    "timingwheel_job",
    "timingwheel_past",
    "timingwheel_attempt",
)
WHOLE_JOINS = {"Hash Join", "Merge Join"}
FIRST_COLUMNS = """
SELECT c.relname, pg_get_indexdef(i.indexrelid, 1, true)
FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
WHERE c.relnamespace = current_schema()::regnamespace
"""
PREPARED = """
SELECT name, statement, cardinality(parameter_types) FROM pg_prepared_statements
ORDER BY prepare_time
"""
Plan = dict[str, Any]


class KeepingConnections(Connections):
    """Connections that prepare each statement at once, and forget none."""

    def _open(self) -> Connection:
        connection = super()._open()
        connection.prepare_threshold, connection.prepared_max = 0, None
        return connection


@pytest.fixture
def stage(postgres: Postgres) -> Iterator[PostgresStage]:
    """A node with a small window, one worker joined."""
    made = PostgresStage(postgres, window_min=2)
    made.store._connections.__class__ = KeepingConnections
    made.store._connections._forget_idle()
    yield made
    made.end_all()


def serve(stage: PostgresStage) -> None:
    """Have all ways be gone: directly, by the window, under a queue, and by a step."""
    store = stage.store
    store.fire(1)
    store.set_queue(Queue(name="narrow", limit=2))
    store.put([draft(every(60)), *(draft(1, queue="narrow") for _ in range(9))])
    store.put([draft(1, priority=9), *(draft(1) for _ in range(4))])
    first = stage.put(1)
    stage.advance(61)
    for _ in range(5):
        store.fire(100)
        claims = stage.claim(1)
        for claim in claims:
            assert stage.begin(claim)
        store.finish([end_of(claim) for claim in claims] * 2)
    assert store.is_quiet() is False
    store.cancel(stage.put(after(first), name="n"))
    store.tend()


def look(stage: PostgresStage) -> None:
    """Fail, be lost, be retried by hand, and be looked at in every way."""
    store = stage.store
    job = stage.put(0, retry=NO_RETRY)
    [claim] = [one for one in stage.start_due() if one.run.job_id == job]
    store.finish([end_of(claim, Outcome.ERROR)] * 2)
    store.retry(claim.run.id)
    store.expect(claim.run.id)
    store.tend()
    assert store.get(job) is not None
    assert len(store.attempts(claim.run.id)) == 1
    assert store.planned(job)
    assert store.runs(RunQuery(job_id=job)).runs
    assert store.runs(RunQuery()).runs
    assert store.jobs(JobQuery()).jobs
    store.leave(WORKER)
    store.cancel_run(claim.run.id)
    store.purge()


def nodes(plan: Plan) -> Iterator[Plan]:
    """Each part of a plan."""
    yield plan
    for part in plan.get("Plans", ()):
        yield from nodes(part)


def is_large(table: str) -> bool:
    """Whether a table, or the one that it is a partition of, grows with what is put."""
    return table.startswith(LARGE)


def sources(plan: Plan) -> Iterator[Plan]:
    """Each part that a join reads to its end, itself not."""
    for part in plan.get("Plans", ()):
        if part["Parent Relationship"] in ("Outer", "Inner", "Member"):
            yield part
            if part["Node Type"] != "Limit":
                yield from sources(part)


def faults_of(plan: Plan, first_columns: dict[str, str]) -> list[str]:
    """What of a plan reads more of a large table, the larger it is."""
    found: list[str] = []
    for node in nodes(plan):
        kind, index = node["Node Type"], node.get("Index Name", "")
        table = str(node.get("Relation Name", index))
        condition = node.get("Index Cond", "")
        if kind == "Seq Scan" and is_large(table):
            found.append(f"reads {table} from end to end")
        if is_large(table) and condition and first_columns[index] not in condition:
            found.append(f"reads {index} from end to end for {condition}")
        if condition and "nominal_ns" in node.get("Filter", ""):
            found.append(f"reads all runs of a job: {node['Filter']}")
        if kind in WHOLE_JOINS or "Join Filter" in node:
            found += [
                f"{kind} reads all of {part['Relation Name']}"
                for part in sources(node)
                if is_large(part.get("Relation Name", "")) and "Index Cond" not in part
            ]
    return found


@pytest.mark.parametrize("rows", [0, 3])
@pytest.mark.parametrize("acts", [serve, look], ids=["nodes", "people"])
def test_what_is_asked_reads_no_whole_table_nor_index_though_a_vacuum_found_few_rows(
    stage: PostgresStage, acts: Any, rows: int
) -> None:
    acts(stage)
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
    first_columns = dict(stage.sql(FIRST_COLUMNS))
    found: dict[str, list[str]] = {}
    seen = 0
    with stage.store._connections.lent() as connection:
        connection.execute("SET plan_cache_mode = force_generic_plan", prepare=False)
        prepared = connection.execute(PREPARED, prepare=False).fetchall()
        for name, sql, count in prepared:
            if not any(table in sql for table in LARGE):
                continue
            seen += 1
            values = f"({', '.join(['NULL'] * count)})" if count else ""
            explain = f'EXPLAIN (FORMAT JSON) EXECUTE "{name}" {values}'
            row = connection.execute(explain.encode(), prepare=False).fetchone()
            assert row is not None
            faults = faults_of(row[0][0]["Plan"], first_columns)
            if faults:
                found[" ".join(sql.split())] = faults
    assert seen > 15
    assert found == {}
