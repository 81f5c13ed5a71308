"""What is refused at opening, and that refusing changes nothing."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from tests.stores.history_samples import entries_of
from timingwheel.errors import TimingWheelError
from timingwheel.jobs.store import RunQuery
from timingwheel.stores.history import History, HistoryError
from timingwheel.stores.history_schema import MIGRATIONS


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "history.db"


@pytest.fixture
def filled(path: Path) -> Path:
    history = History(str(path))
    history.write([entry for lsn in range(1, 500) for entry in entries_of(lsn)])
    history.close()
    return path


def refused(path: Path, words: str) -> None:
    before = path.read_bytes()
    with pytest.raises(HistoryError, match=words) as caught:
        History(str(path))
    assert caught.value.path == str(path)
    assert str(path) in str(caught.value)
    assert caught.value.fix in str(caught.value)
    assert isinstance(caught.value, TimingWheelError)
    assert path.read_bytes() == before, "a refused file must stay as it was"


def test_a_new_file_has_the_newest_schema_and_opens_again(path: Path) -> None:
    History(str(path)).close()
    History(str(path)).close()
    with sqlite3.connect(path) as connection:
        version = connection.execute("PRAGMA user_version").fetchone()
        assert version == (len(MIGRATIONS),)
    connection.close()


def test_commits_are_synced_and_readers_are_apart(path: Path) -> None:
    history = History(str(path))
    ask = history._connections.writer.execute
    assert ask("PRAGMA journal_mode").fetchone() == ("wal",)
    assert ask("PRAGMA synchronous").fetchone() == (2,)
    with (
        history._connections.reader() as reader,
        pytest.raises(sqlite3.OperationalError),
    ):
        reader.execute("DELETE FROM runs")
    history.close()


def test_another_programs_database_is_refused(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE runs (id)")
    connection.close()
    refused(path, "another program's database")


def test_a_database_with_another_application_id_is_refused(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA application_id = 7")
    connection.close()
    refused(path, "application id 0x7")


def test_a_newer_schema_is_refused(filled: Path) -> None:
    newer = len(MIGRATIONS) + 1
    with sqlite3.connect(filled) as connection:
        connection.execute(f"PRAGMA user_version = {newer}")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    refused(filled, f"schema {newer}.*up to {len(MIGRATIONS)}")


def test_a_file_that_is_no_database_is_refused(path: Path) -> None:
    path.write_text("no database at all, but long enough to look at\n" * 100)
    refused(path, "not an SQLite database")


def test_a_truncated_file_is_refused(filled: Path) -> None:
    whole = filled.read_bytes()
    filled.write_bytes(whole[: len(whole) // 2])
    refused(filled, "is damaged")


def test_a_damaged_page_is_found_by_check(filled: Path) -> None:
    data = bytearray(filled.read_bytes())
    for place in range(8 * 4096, len(data), 4096):
        data[place : place + 64] = b"\xa5" * 64
    filled.write_bytes(data)
    history = History(str(filled))
    with pytest.raises(HistoryError, match="damaged"):
        history.check()
    with pytest.raises(HistoryError, match="damaged"):
        history.runs(RunQuery(limit=1_000))
    history.close()


def test_a_missing_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(HistoryError, match="its directory exists"):
        History(str(tmp_path / "nowhere" / "history.db"))


def test_a_database_that_has_lost_its_tables_is_refused(filled: Path) -> None:
    with sqlite3.connect(filled) as connection:
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute("DELETE FROM sqlite_schema")
    connection.close()
    with pytest.raises(HistoryError, match="lost its tables"):
        History(str(filled))


def test_a_migration_that_is_cut_short_leaves_nothing(path: Path) -> None:
    with sqlite3.connect(path, isolation_level=None) as connection:
        connection.executescript(f"BEGIN;{MIGRATIONS[0]}")
        connection.rollback()
    connection.close()
    history = History(str(path))
    assert history.reached_lsn == 0
    history.close()
