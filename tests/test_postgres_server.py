"""The server that tests are given: a schema each, skipped loudly, an error in CI."""

from __future__ import annotations

import psycopg
import pytest

from tests.postgres import Postgres, require_server


def test_each_schema_is_empty_and_sees_no_other(postgres: Postgres) -> None:
    first, second = postgres.new_schema(), postgres.new_schema()
    with psycopg.connect(first) as connection:
        connection.execute("CREATE TABLE only_here ()")
    with psycopg.connect(second) as connection:
        row = connection.execute("SELECT to_regclass('only_here')").fetchone()
    assert row == (None,)


NOWHERE = ["no-such-server"]


def test_without_a_server_the_tests_are_skipped_and_say_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="apt-get install postgresql"):
        require_server(NOWHERE)


def test_without_a_server_ci_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="NOT tested"):
        require_server(NOWHERE)
