"""SQLite databases as files: opened, brought to their schema, or refused.

`application_id` says that a file is ours and `user_version` which schema it has; both
stand in SQLite's file header. A newer schema, another program's database and a damaged
file are refused before anything is changed.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from typing import Final, NamedTuple
from urllib.parse import quote

from timingwheel.errors import TimingWheelError

Connection = sqlite3.Connection

IN_MEMORY: Final = ":memory:"
NO_ROOM: Final = "has no room on the disk"
_BUSY_SECONDS: Final = 5.0
_COPY_PAGES: Final = 256
_CHECKPOINT_PAGES: Final = 4_000  # 16 MiB: hot pages are copied back less often


class Schema(NamedTuple):
    """What a database is, and how its refusals read.

    Attributes:
        application_id: says that a file is one of these.
        migrations: migrations[v] leads from schema v to v + 1; one that is published
            never changes.
        refuse: makes the error of a path, what was found, and what to do.
        move_away: what to do about a damaged file.
        unwritten: where that is what could not be written.
    """

    application_id: int
    migrations: tuple[str, ...]
    refuse: Callable[[str, str, str], TimingWheelError]
    move_away: str
    unwritten: str


def open_writer(path: str, schema: Schema) -> Connection:
    """Open a database to write, made anew or brought to the newest schema.

    Raises:
        TimingWheelError: the schema's own: it is damaged, newer, or another's.
    """
    try:
        connection = _connect(path)
    except sqlite3.Error as error:
        raise refusal(path, schema, error) from error
    try:
        _require_ours(path, schema, connection)
        _migrate(schema, connection)
        # Only now: a foreign file must not even change its journal mode.
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
    except sqlite3.Error as error:
        connection.close()
        raise refusal(path, schema, error) from error
    except TimingWheelError:
        connection.close()
        raise
    return connection


def copy_database(
    path: str,
    to: str,
    *,
    between: Callable[[], None],
    refuse: Callable[[str, str, str], TimingWheelError],
) -> None:
    """Copy a database that may be in use, as of one moment, and look the copy over.

    Args:
        path: of the database; it is only read, and nobody waits for it.
        to: of the copy, which does not exist yet.
        between: called after each MiB.
        refuse: makes the error of a path, what was found, and what to do.

    Raises:
        TimingWheelError: by `refuse`: one of the two could not be read or written, or
            is damaged.
    """
    try:
        _copy(path, to, between=between)
    except sqlite3.Error as error:
        fix = "see that it can be read and that there is space; then try again"
        raise refuse(path, f"cannot be copied ({error})", fix) from error


def _copy(path: str, to: str, *, between: Callable[[], None]) -> None:
    address = f"file:{quote(path)}?mode=ro"
    with (
        closing(sqlite3.connect(address, uri=True, isolation_level=None)) as source,
        closing(sqlite3.connect(to, isolation_level=None)) as copy,
    ):
        source.execute(f"PRAGMA busy_timeout = {int(_BUSY_SECONDS * 1_000)}")
        # In one transaction of the reader: else each commit of the owner would make the
        # copy begin anew, and on a busy store it would never end.
        source.execute("BEGIN")
        source.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        copy.execute("PRAGMA synchronous = FULL")
        source.backup(copy, pages=_COPY_PAGES, progress=lambda *_: between())
        (found,) = copy.execute("PRAGMA quick_check(1)").fetchone()
        if found != "ok":
            raise sqlite3.DatabaseError(f"{path}: {found}")


def find_damage(path: str) -> str | None:
    """Return what is wrong with a database that may be in use; None if all is well.

    Reads every page, and writes nothing but SQLite's own index of the log beside it.

    Raises:
        OSError: it could not be read, so nobody knows: the disk fails, or this user may
            not write that index, as on a read-only file system.
    """
    address = f"file:{quote(path)}?mode=ro"
    try:
        with closing(sqlite3.connect(address, uri=True)) as connection:
            connection.execute(f"PRAGMA busy_timeout = {int(_BUSY_SECONDS * 1_000)}")
            (found,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
        if code not in _DAMAGED:
            raise OSError(str(error)) from error
        return str(error)
    return None if found == "ok" else str(found)


def open_reader(path: str, schema: Schema) -> Connection:
    """Open the database again, to read what is committed."""
    try:
        connection = _connect(path)
        connection.execute("PRAGMA query_only = ON")
    except sqlite3.Error as error:
        raise refusal(path, schema, error) from error
    return connection


def identity_of(path: str) -> tuple[int, int] | None:
    """Return which file a path leads to, as device and inode; None if to none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def refusal(path: str, schema: Schema, error: sqlite3.Error) -> TimingWheelError:
    """Return what to tell of an error of SQLite's."""
    whole = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
    # The file that readers share could not grow.
    code = (
        sqlite3.SQLITE_FULL if whole == sqlite3.SQLITE_IOERR_SHMSIZE else whole & 0xFF
    )
    if code in _DAMAGED:
        found, fix = _DAMAGED[code], schema.move_away
    else:
        found, fix = _WORDS.get(
            code, ("failed", f"see what SQLite says; {schema.unwritten}")
        )
    return schema.refuse(path, f"{found} ({error})", fix)


_DAMAGED: Final = {
    sqlite3.SQLITE_CORRUPT: "is damaged",
    sqlite3.SQLITE_NOTADB: "is not an SQLite database, or damaged",
}
_WORDS: Final = {
    sqlite3.SQLITE_FULL: (NO_ROOM, "make room; it is tried again"),
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


def _require_ours(path: str, schema: Schema, connection: Connection) -> None:
    application_id = _number(connection, "PRAGMA application_id")
    version = _number(connection, "PRAGMA user_version")
    tables = _number(connection, "SELECT count(*) FROM sqlite_schema")
    if application_id == version == tables == 0:
        return  # new
    if application_id != schema.application_id:
        raise schema.refuse(
            path,
            f"is another program's database (application id {application_id:#x}, "
            f"expected {schema.application_id:#x})",
            "move it away, or use another directory",
        )
    if version > len(schema.migrations):
        raise schema.refuse(
            path,
            f"has schema {version}, and this release knows up to {len(schema.migrations)}",
            "use the release that wrote it, or a newer one",
        )
    if not version or not tables:
        raise schema.refuse(path, "has lost its tables", schema.move_away)


def _migrate(schema: Schema, connection: Connection) -> None:
    for version in range(
        _number(connection, "PRAGMA user_version"), len(schema.migrations)
    ):
        # All or nothing: a crash leaves the schema before, whole.
        connection.executescript(
            f"BEGIN IMMEDIATE;\n{schema.migrations[version]}\n"
            f"PRAGMA application_id = {schema.application_id};\n"
            f"PRAGMA user_version = {version + 1};\nCOMMIT;"
        )
