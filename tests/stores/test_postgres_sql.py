"""What the SQL of the store may not do, so that it is right on other servers, too."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.postgres import Postgres
from timingwheel.stores.postgres.store import PostgresStore

PLACE = Path(__file__).resolve().parents[2] / "timingwheel/stores/postgres"

# -- exceptions, each with its reason; one that is not needed any more fails as well -----------

SKIPS_LOCKED = {
    ("sharing.py", "TAKE"): (
        "two nodes that take at once need not wait for each other: what one skips the "
        "other has taken; that a shard has one owner its row alone says"
    ),
    ("taking.py", "_TAKE_OF"): (
        "a run that somebody changes just then would be found changed after the wait: its "
        "version says so, and this only saves the wait"
    ),
}
TELLS = {
    "hints.py": "hints: they may be lost, and carry no truth",
}
WITHOUT_SHARD = {
    "timingwheel_meta": "one row: the store itself",
    "timingwheel_shard": "the shards: its key is the shard, and nothing else",
    "timingwheel_planned": "likewise",
    "timingwheel_member": "nodes and workers, few; they belong to no job",
    "timingwheel_queue": "named by people, few; a bound over all shards",
    "timingwheel_cap": "likewise",
    "timingwheel_calendar": "named by people, few",
    "timingwheel_audit": "what was asked of servers, in its order",
    "timingwheel_access": "tokens, few; they belong to no job",
}


def statements() -> Iterator[tuple[str, str, str]]:
    """Each text in the code that is no docstring: file, the name it is given, text."""
    for path in sorted(PLACE.glob("*.py")):
        tree = ast.parse(path.read_text())
        docs = {
            id(node.value)
            for node in ast.walk(tree)
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        }
        for top in tree.body:
            name = getattr(getattr(top, "target", None), "id", "")
            for node in ast.walk(top):
                if isinstance(node, ast.Constant) and id(node) not in docs:
                    yield path.name, name, str(node.value)


def test_no_statement_takes_an_advisory_lock() -> None:
    found = [where[:2] for where in statements() if "advisory" in where[2].lower()]
    assert found == []


def test_only_hints_are_told_by_notify() -> None:
    word = re.compile(r"\b(NOTIFY|LISTEN|UNLISTEN|pg_notify)\b")
    found = {where[0] for where in statements() if word.search(where[2])}
    assert found <= TELLS.keys()
    assert {name for name in TELLS if (PLACE / name).exists()} == found


def test_locked_rows_are_skipped_only_where_that_saves_time_and_decides_nothing() -> (
    None
):
    found = {where[:2] for where in statements() if "SKIP LOCKED" in where[2]}
    assert found == SKIPS_LOCKED.keys()


def test_nothing_waits_for_a_lock_of_a_table() -> None:
    word = re.compile(r"\bLOCK\s+TABLE\b|\bTEMP(ORARY)?\s+TABLE\b|\bSET\s+SESSION\b")
    found = [where[:2] for where in statements() if word.search(where[2])]
    assert found == []


@pytest.fixture
def where(postgres: Postgres) -> str:
    url = postgres.new_schema()
    PostgresStore.open(url).close()
    return url


def test_every_key_starts_with_the_shard(where: str) -> None:
    store = PostgresStore.open(where)
    rows = store._connections.rows(
        "SELECT c.relname, ("
        " SELECT a.attname FROM pg_index i JOIN pg_attribute a"
        " ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]"
        " WHERE i.indrelid = c.oid AND i.indisprimary"
        ") FROM pg_class c WHERE c.relkind IN ('r', 'p')"
        " AND c.relnamespace = current_schema()::regnamespace"
    )
    store.close()
    first: dict[str, str] = dict(rows)
    assert {"timingwheel_run", "timingwheel_job"} <= first.keys()
    others = {table for table, column in first.items() if column != "shard"}
    by_shard = {"timingwheel_shard", "timingwheel_planned"}
    assert others | by_shard == WITHOUT_SHARD.keys()
