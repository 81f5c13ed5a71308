"""Tables that are there, made, or not such as this version can work with."""

from __future__ import annotations

import contextlib
import uuid
from typing import Final

from psycopg import Connection, errors

from timingwheel.errors import TimingWheelError
from timingwheel.jobs.errors import NoStoreError
from timingwheel.stores.postgres.connections import Connections
from timingwheel.stores.postgres.schema import MIGRATIONS, SCHEMA_1, SCHEMA_MIN, VERSION

_ENCODINGS: Final = ("UTF8", "SQL_ASCII")
"""Of a database: such as have room for every text."""
_THERE: Final = "SELECT to_regclass('timingwheel_meta')"
_META: Final = "SELECT store, shards, version, oldest, arriving FROM timingwheel_meta"
_FIRST_META: Final = (
    "INSERT INTO timingwheel_meta (id, version, oldest, store, shards, arriving) "
    "VALUES (1, %s, %s, %s, %s, %s)"
)
_FIRST_SHARDS: Final = (
    "INSERT INTO timingwheel_shard SELECT s, NULL, 0 FROM generate_series(0, %s) s"
)


class SchemaError(TimingWheelError):
    """The tables are not such as this version can work with; nothing was changed.

    Attributes:
        found: their version.
        fix: what to do, as a phrase for the message.
    """

    def __init__(self, found: int, fix: str) -> None:
        super().__init__(found, fix)
        self.found = found
        self.fix = fix

    def __str__(self) -> str:
        return (
            f"the job store has schema {self.found}, and this version of timingwheel "
            f"knows {SCHEMA_MIN} to {VERSION}: {self.fix}"
        )


class UnfitDatabaseError(TimingWheelError):
    """A store cannot be made in this database, by this role; nothing was changed."""


class StillArrivingError(TimingWheelError):
    """A store in a directory is on its way into these tables; nobody may serve them."""

    def __str__(self) -> str:
        return (
            "a store is on its way into this database: end that first, by `timingwheel "
            "migrate-store --resume` with the same directory"
        )


def is_there(where: str) -> bool:
    """Return whether a database has a store.

    Raises:
        DatabaseAwayError: it does not answer.
    """
    connections = Connections(where)
    try:
        return connections.rows(_THERE) != [(None,)]
    finally:
        connections.close()


def require_tables(connection: Connection[tuple[object, ...]]) -> None:
    """Check that there is a store.

    Raises:
        NoStoreError: there is none.
    """
    if connection.execute(_THERE).fetchone() == (None,):
        raise NoStoreError


def require_fitting(version: int, oldest: int) -> None:
    """Check that this version of timingwheel works with tables as they are.

    Args:
        version: of the tables.
        oldest: the version that a process has to know at least.

    Raises:
        SchemaError: it does not.
    """
    if oldest > VERSION:
        raise SchemaError(version, "upgrade timingwheel")
    if version < SCHEMA_MIN:
        raise SchemaError(version, "bring it up by `timingwheel migrate --store URL`")


def make_ready(
    connection: Connection[tuple[object, ...]],
    *,
    shards: int,
    arriving: uuid.UUID | None = None,
) -> tuple[uuid.UUID, int]:
    """Make the tables if there are none; leave those that are there as they are.

    Several nodes may do so at once: one works, the others find it done.

    Args:
        connection: in autocommit mode.
        shards: of a new store.
        arriving: the uuid of a store that is to move in; nobody may serve it before.

    Returns:
        The store's uuid, and how many shards it has.

    Raises:
        SchemaError: the tables are not such as this version works with.
        StillArrivingError: a store is on its way into them.
        UnfitDatabaseError: there are none, and none can be made here.
    """
    # Else another node was quicker, and is done.
    with contextlib.suppress(errors.DuplicateTable, errors.UniqueViolation):
        try:
            _make(connection, shards, arriving)
        except (errors.InsufficientPrivilege, errors.InvalidSchemaName) as error:
            reason = str(error).partition("\n")[0]
            raise UnfitDatabaseError(
                f"the job store's tables cannot be made ({reason}): give the role a schema "
                f"that is first in its search path, by CREATE SCHEMA jobs AUTHORIZATION "
                f"{connection.info.user}; ALTER ROLE {connection.info.user} SET "
                "search_path = jobs"
            ) from error
    row = connection.execute(_META).fetchone()
    assert row is not None
    store, found, version, oldest, on_its_way = row
    assert isinstance(store, uuid.UUID)
    assert isinstance(found, int)
    assert isinstance(version, int)
    assert isinstance(oldest, int)
    require_fitting(version, oldest)
    if on_its_way != arriving:
        raise StillArrivingError
    return store, found


def is_arriving(connection: Connection[tuple[object, ...]]) -> uuid.UUID | None:
    """Return the store that is on its way into the tables; None: there are no tables.

    Tables of a store that has arrived, or was made there, are told by the nil UUID.
    """
    if connection.execute(_THERE).fetchone() == (None,):
        return None
    row = connection.execute(_META).fetchone()
    assert row is not None
    return row[-1] if isinstance(row[-1], uuid.UUID) else uuid.UUID(int=0)


def _make(
    connection: Connection[tuple[object, ...]], shards: int, arriving: uuid.UUID | None
) -> None:
    with connection.transaction():
        if connection.execute(_THERE).fetchone() != (None,):
            return
        encoding = connection.info.parameter_status("server_encoding")
        if encoding not in _ENCODINGS:
            raise UnfitDatabaseError(
                f"the database's encoding is {encoding}, which has no room for every text: "
                "CREATE DATABASE jobs ENCODING 'UTF8' TEMPLATE template0"
            )
        store = uuid.uuid4() if arriving is None else arriving
        connection.execute(SCHEMA_1.encode())
        connection.execute(_FIRST_META, [VERSION, VERSION, store, shards, arriving])
        connection.execute(_FIRST_SHARDS, [shards - 1])
        for migration in MIGRATIONS:  # nothing is there that could be in the way
            indexes = (
                f"CREATE INDEX {name} {rest}" for name, rest in migration.indexes
            )
            for statement in (*migration.expand, *indexes, *migration.contract):
                connection.execute(statement.encode())
