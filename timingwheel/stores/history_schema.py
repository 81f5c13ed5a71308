"""The history database as a file: its tables, its versions, and what is refused.

    progress     reached_lsn: all entries up to it are in the tables, in one commit
    runs         finished runs by identity; the body is a HistoryRun. A plain one stands
                 for its job and its attempt too, which have no rows
    run_tags     a run once for each of its tags, in the order of pages
    revived      runs that were final and are live again
    attempts     by run and number; the body is an Attempt
    jobs         ended jobs; the body is a Job
    skips        skip ranges, wholly in columns

`application_id` says that a file is ours and `user_version` which schema it has; both
stand in SQLite's file header. A newer schema, another program's database and a damaged
file are refused before anything is changed.

Why these indexes: pages go by nominal time, of all, of one job, of one task, of one tag
and of the dead letter; the purge goes by the time of the end. States and queues are few,
so a page of one is soon found by looking through all. Tables are clustered by what
identifies a row, and every index ends with it, so a page needs no sorting.
"""

from __future__ import annotations

import sqlite3
from typing import Final

from timingwheel.stores.history_errors import HistoryError

Connection = sqlite3.Connection

APPLICATION_ID: Final = 0x54574849
"""In ASCII: TWHI."""

IN_MEMORY: Final = ":memory:"
_BUSY_SECONDS: Final = 5.0
_CHECKPOINT_PAGES: Final = 4_000  # 16 MiB: hot pages are copied back less often
_SCHEMA_1: Final = """
CREATE TABLE progress (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    reached_lsn INTEGER NOT NULL
);
INSERT INTO progress VALUES (1, 0);

CREATE TABLE runs (
    job_id TEXT NOT NULL,
    nominal_ns INTEGER NOT NULL,
    n INTEGER NOT NULL,
    state TEXT NOT NULL,
    task TEXT NOT NULL,
    queue TEXT NOT NULL,
    created_ns INTEGER NOT NULL,
    ended_ns INTEGER NOT NULL,
    plain INTEGER NOT NULL,
    discarded INTEGER NOT NULL,
    tags TEXT,
    body BLOB NOT NULL,
    PRIMARY KEY (job_id, nominal_ns, n)
) WITHOUT ROWID;
CREATE INDEX runs_by_nominal ON runs (nominal_ns, job_id, n);
CREATE INDEX runs_by_task ON runs (task, nominal_ns, job_id, n);
CREATE INDEX runs_by_end ON runs (ended_ns, job_id, nominal_ns, n);
CREATE INDEX runs_dead ON runs (nominal_ns, job_id, n)
    WHERE state IN ('failed', 'lost');
CREATE INDEX runs_plain ON runs (created_ns, job_id) WHERE plain;

CREATE TABLE run_tags (
    name TEXT NOT NULL,
    value TEXT NOT NULL,
    nominal_ns INTEGER NOT NULL,
    job_id TEXT NOT NULL,
    n INTEGER NOT NULL,
    PRIMARY KEY (name, value, nominal_ns, job_id, n)
) WITHOUT ROWID;
CREATE TRIGGER runs_untag AFTER DELETE ON runs WHEN old.tags IS NOT NULL BEGIN
    DELETE FROM run_tags WHERE (name, value, nominal_ns, job_id, n) IN (
        SELECT key, value, old.nominal_ns, old.job_id, old.n FROM json_each(old.tags)
    );
END;

CREATE TABLE revived (
    job_id TEXT NOT NULL,
    nominal_ns INTEGER NOT NULL,
    n INTEGER NOT NULL,
    PRIMARY KEY (job_id, nominal_ns, n)
) WITHOUT ROWID;

CREATE TABLE attempts (
    run_id TEXT NOT NULL,
    number INTEGER NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (run_id, number)
) WITHOUT ROWID;

CREATE TABLE jobs (
    id TEXT NOT NULL PRIMARY KEY,
    created_ns INTEGER NOT NULL,
    ended_ns INTEGER NOT NULL,
    recurring INTEGER NOT NULL,
    state TEXT NOT NULL,
    task TEXT NOT NULL,
    queue TEXT NOT NULL,
    name TEXT,
    tags TEXT,
    body BLOB NOT NULL
) WITHOUT ROWID;
CREATE INDEX jobs_by_creation ON jobs (created_ns, id);
CREATE INDEX jobs_by_end ON jobs (ended_ns, id);
CREATE INDEX jobs_by_name ON jobs (name, created_ns, id) WHERE name IS NOT NULL;

CREATE TABLE skips (
    job_id TEXT NOT NULL,
    first_ns INTEGER NOT NULL,
    reason TEXT NOT NULL,
    last_ns INTEGER NOT NULL,
    count INTEGER NOT NULL,
    PRIMARY KEY (job_id, first_ns, reason, last_ns)
) WITHOUT ROWID;
CREATE INDEX skips_by_last ON skips (last_ns, job_id, first_ns);
"""
MIGRATIONS: Final = (_SCHEMA_1,)
"""MIGRATIONS[v] leads from schema v to v + 1; one that is published never changes."""


def open_writer(path: str) -> Connection:
    """Open the database to write, made anew or brought to the newest schema.

    Raises:
        HistoryError: it is damaged, newer, or not a history database.
    """
    try:
        connection = _connect(path)
    except sqlite3.Error as error:
        raise refusal(path, error) from error
    try:
        _require_ours(path, connection)
        _migrate(connection)
        # Only now: a foreign file must not even change its journal mode.
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
    except sqlite3.Error as error:
        connection.close()
        raise refusal(path, error) from error
    except HistoryError:
        connection.close()
        raise
    return connection


def open_reader(path: str) -> Connection:
    """Open the database again, to read what is committed."""
    try:
        connection = _connect(path)
        connection.execute("PRAGMA query_only = ON")
    except sqlite3.Error as error:
        raise refusal(path, error) from error
    return connection


def refusal(path: str, error: sqlite3.Error) -> HistoryError:
    """Return what to tell of an error of SQLite's."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
    found, fix = _WORDS.get(
        code, ("failed", "see what SQLite says; what is not written is in the log")
    )
    return HistoryError(path, f"{found} ({error})", fix)


_MOVE_AWAY: Final = (
    "restore it from a backup, or move it and its -wal file away: a new one is begun, "
    "without the runs that have left the log"
)
_WORDS: Final = {
    sqlite3.SQLITE_CORRUPT: ("is damaged", _MOVE_AWAY),
    sqlite3.SQLITE_NOTADB: ("is not an SQLite database, or damaged", _MOVE_AWAY),
    sqlite3.SQLITE_FULL: ("has no room on the disk", "make room; it is tried again"),
    sqlite3.SQLITE_BUSY: (
        "is locked by another program",
        "end that program's transaction; it is tried again",
    ),
    sqlite3.SQLITE_CANTOPEN: (
        "cannot be opened",
        "see that its directory exists and may be written to",
    ),
    sqlite3.SQLITE_READONLY: ("may not be written to", "give this user the right"),
    sqlite3.SQLITE_IOERR: ("could not be read or written", "look after the disk"),
}


def _connect(path: str) -> Connection:
    connection = sqlite3.connect(
        path,
        timeout=_BUSY_SECONDS,
        isolation_level=None,  # we say where a transaction begins
        check_same_thread=False,  # a lock or a pool hands connections on
    )
    try:
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA recursive_triggers = ON")  # a REPLACE unties tags
        connection.execute("PRAGMA temp_store = MEMORY")
        connection.execute("PRAGMA secure_delete = OFF")  # some systems have it on
        connection.execute("PRAGMA trusted_schema = OFF")
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def _number(connection: Connection, question: str) -> int:
    number: int = connection.execute(question).fetchone()[0]
    return number


def _require_ours(path: str, connection: Connection) -> None:
    application_id = _number(connection, "PRAGMA application_id")
    version = _number(connection, "PRAGMA user_version")
    tables = _number(connection, "SELECT count(*) FROM sqlite_schema")
    if application_id == version == tables == 0:
        return  # new
    if application_id != APPLICATION_ID:
        raise HistoryError(
            path,
            f"is another program's database (application id {application_id:#x}, "
            f"expected {APPLICATION_ID:#x})",
            "move it away, or use another directory",
        )
    if version > len(MIGRATIONS):
        raise HistoryError(
            path,
            f"has schema {version}, and this release knows up to {len(MIGRATIONS)}",
            "use the release that wrote it, or a newer one",
        )
    if not version or not tables:
        raise HistoryError(path, "has lost its tables", _MOVE_AWAY)


def _migrate(connection: Connection) -> None:
    for version in range(_number(connection, "PRAGMA user_version"), len(MIGRATIONS)):
        # All or nothing: a crash leaves the schema before, whole.
        connection.executescript(
            f"BEGIN IMMEDIATE;\n{MIGRATIONS[version]}\n"
            f"PRAGMA application_id = {APPLICATION_ID};\n"
            f"PRAGMA user_version = {version + 1};\nCOMMIT;"
        )
