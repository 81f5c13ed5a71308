"""Connections to the database: how long a silent network is waited for."""

from __future__ import annotations

import psycopg
import pytest

from tests.postgres import Postgres
from timingwheel.stores.postgres.connections import (
    PATIENCE,
    Blobs,
    Bools,
    Connections,
    Ints,
    Places,
    Texts,
)


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


def test_texts_are_utf_8_whatever_a_role_or_a_url_says(postgres: Postgres) -> None:
    connections = Connections(f"{postgres.new_schema()}&client_encoding=LATIN1")
    try:
        with connections.lent() as connection:
            assert connection.info.encoding == "utf-8"
    finally:
        connections.close()


@pytest.mark.parametrize("fails", range(4, 7))
def test_a_message_that_fails_leaves_no_statement_that_only_the_driver_takes_for_prepared(
    postgres: Postgres, fails: int
) -> None:
    """What stands behind a statement that fails the server skips."""
    connections = Connections(postgres.new_schema())
    message = "SELECT 1 / %s::bigint"
    try:
        for turn in range(10):
            two = [(message, [turn - fails]), ("SELECT %s::bigint", [turn])]
            if turn == fails:
                with pytest.raises(psycopg.errors.DivisionByZero):
                    connections.all(two)
            else:
                assert connections.all(two)[1] == [(turn,)]
    finally:
        connections.close()


def test_no_statement_is_compiled_before_it_runs(postgres: Postgres) -> None:
    connections = Connections(postgres.new_schema())
    try:
        assert connections.rows("SHOW jit") == [("off",)]
    finally:
        connections.close()


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("bigint", Ints()),
        ("bigint", Ints([0, -(1 << 63), (1 << 63) - 1])),
        ("bigint", Ints([None, 1, None])),
        ("text", Texts()),
        ("text", Texts(["", None, 'a "b" {c, \\d} NULL', "\u00e9\U0001f600"])),
        ("bytea", Blobs()),
        ("bytea", Blobs([b"", bytes(range(256))])),
        ("boolean", Bools([True, False])),
        ("tid", Places([b"\0\0\0\7\0\1", b"\1\0\0\0\0\2"])),
    ],
    ids=lambda value: value if isinstance(value, str) else str(len(value)),
)
@pytest.mark.parametrize("binary", [False, True], ids=["text", "binary"])
def test_an_array_arrives_as_it_was_passed(
    postgres: Postgres, kind: str, values: list[object], binary: bool
) -> None:
    connections = Connections(postgres.new_schema())
    try:
        found = connections.rows(
            f"SELECT item::{kind} FROM unnest(%s) AS item", [values], binary=binary
        )
    finally:
        connections.close()
    told = [row[0] for row in found]
    if kind == "tid" and not binary:
        assert told == ["(7,1)", "(16777216,2)"]
    else:
        assert told == values
