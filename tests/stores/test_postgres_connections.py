"""Connections to the database: how long a silent network is waited for."""

from __future__ import annotations

from tests.postgres import Postgres
from timingwheel.stores.postgres.connections import PATIENCE, Connections


def parameters(where: str) -> dict[str, str]:
    """What a connection says of itself."""
    connections = Connections(where)
    try:
        with connections.lent() as connection:
            return connection.info.get_parameters()
    finally:
        connections.close()


def test_a_silent_network_is_given_up_soon(postgres: Postgres) -> None:
    found = parameters(postgres.new_schema())
    assert {name: int(found[name]) for name in PATIENCE} == PATIENCE


def test_what_the_url_says_of_patience_holds(postgres: Postgres) -> None:
    url = f"{postgres.new_schema()}&tcp_user_timeout=60000&keepalives_idle=30"
    found = parameters(url)
    assert found["tcp_user_timeout"] == "60000"
    assert found["keepalives_idle"] == "30"
    assert int(found["keepalives_count"]) == PATIENCE["keepalives_count"]


def test_the_schema_of_the_url_is_the_schema(postgres: Postgres) -> None:
    where = postgres.new_schema()
    connections = Connections(where)
    try:
        [(schema,)] = connections.rows("SELECT current_schema()")
    finally:
        connections.close()
    assert schema in where


def test_no_statement_is_compiled_before_it_runs(postgres: Postgres) -> None:
    connections = Connections(postgres.new_schema())
    try:
        assert connections.rows("SHOW jit") == [("off",)]
    finally:
        connections.close()
