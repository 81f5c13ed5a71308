"""A caller's connection: what is written there belongs to the caller's transaction.

It is left as it was found: no setting is changed, nothing is committed or rolled back, and
what may fail is done behind a savepoint. Tables are named with their schema, since the
caller's search path may be another; values are read and written by adapters of our own,
whatever the caller has registered.
"""

from __future__ import annotations

import functools
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Final

import psycopg
from psycopg.adapt import AdaptersMap
from psycopg.pq import PipelineStatus, TransactionStatus
from psycopg.rows import tuple_row

from timingwheel.errors import ArgumentError
from timingwheel.stores.on_loop import OnLoop
from timingwheel.stores.postgres.connections import (
    Rows,
    Statement,
    fetched,
    know_arrays,
)

_NAMES: Final = re.compile(r"\btimingwheel_(?=\w)")
_SAVE: Final = ("SAVEPOINT job_put", ())
_RELEASE: Final = ("RELEASE SAVEPOINT job_put", ())
_BACK: Final = ("ROLLBACK TO SAVEPOINT job_put", ())
_OF_SAVEPOINTS: Final = frozenset(sql for sql, _ in (_SAVE, _RELEASE, _BACK))
_ENCODING: Final = "utf-8"
READ_ONLY: Final = "a read-only transaction"
MAY_WRITE: Final = "pass a connection that may write, to the primary"

_OPEN_ONE: Final = (
    "it is in autocommit mode and no transaction is open, so the job would not belong to "
    "anything: open one, `with conn.transaction(): app.add(..., conn=conn)`, or leave "
    "conn= out"
)
_UNWRAP: Final = {
    "sqlalchemy": "pass what it wraps: "
    "conn=session.connection().connection.driver_connection",
    "django": "pass what it wraps: conn=connection.connection, inside "
    "transaction.atomic() and after a first query, or connection.ensure_connection()",
}
_PLAIN: Final = (
    "pass a psycopg Connection with an open transaction (an AsyncScheduler takes an "
    "AsyncConnection too)"
)
_AWAIT: Final = (
    "an AsyncConnection lives on an event loop: pass it to an AsyncScheduler, `await "
    "app.add(..., conn=conn)`, or a psycopg Connection to this one"
)


def _adapters() -> AdaptersMap:
    found = AdaptersMap(psycopg.adapters)
    know_arrays(found)
    return found


_ADAPTERS: Final = _adapters()


class _Cursor(psycopg.Cursor[tuple[Any, ...]]):
    """Reads and writes as the store's own connections do."""

    @property
    def adapters(self) -> AdaptersMap:
        return _ADAPTERS


class _AsyncCursor(psycopg.AsyncCursor[tuple[Any, ...]]):
    """As _Cursor."""

    @property
    def adapters(self) -> AdaptersMap:
        return _ADAPTERS


class Borrowed(ABC):
    """A connection of a caller's, for one request.

    Attributes:
        connection: which.

    Args:
        schema: where the store's tables are, quoted for SQL.
    """

    connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]

    def __init__(self, schema: str) -> None:
        self._schema = schema

    @property
    def database(self) -> str:
        """The name of the database it leads to."""
        return self.connection.info.dbname

    @property
    def user(self) -> str:
        """The role it acts as."""
        return self.connection.info.user

    def rows(self, sql: str, values: Sequence[object] = ()) -> Rows:
        """Run one statement and return its rows."""
        return self.all([(sql, values)])[0]

    def all(self, statements: Sequence[Statement]) -> list[Rows]:
        """Run statements in one message and return the rows of each."""
        return self._run([(self._qualified(sql), values) for sql, values in statements])

    def saved(self, statements: Sequence[Statement]) -> list[Rows]:
        """Run statements; if one fails, the transaction goes on as if none had been.

        Raises:
            psycopg.Error: one has failed.
        """
        try:
            return self.all([_SAVE, *statements, _RELEASE])[1:-1]
        except psycopg.Error:
            if not self.connection.closed:
                self.all([_BACK, _RELEASE])
            raise

    def require_transaction(self) -> None:
        """Check that a transaction is open, or begins with the next statement.

        Raises:
            ArgumentError: there is none that a job could belong to.
        """
        connection = self.connection
        if connection.closed:
            raise _refused("a closed connection", "pass one that is open")
        if connection.info.pipeline_status != PipelineStatus.OFF:
            self._settle()  # else what has been asked for has not happened yet
        status = connection.info.transaction_status
        if status == TransactionStatus.INERROR:
            raise _refused(
                "a transaction that has failed", "roll it back and begin another"
            )
        if status == TransactionStatus.ACTIVE:
            raise _refused(
                "a connection that is busy", "let its statement, or its COPY, end first"
            )
        if status == TransactionStatus.IDLE and connection.autocommit:
            raise _refused("a connection without a transaction", _OPEN_ONE)
        if connection.read_only:
            raise _refused(READ_ONLY, MAY_WRITE)
        if connection.info.encoding != _ENCODING:
            raise _refused(
                f"client_encoding {connection.info.encoding}",
                "the store's texts are UTF-8: set client_encoding to UTF8",
            )

    @abstractmethod
    def _run(self, statements: Sequence[Statement]) -> list[Rows]:
        """Run statements in one message."""

    @abstractmethod
    def _settle(self) -> None:
        """Wait for what was sent in pipeline mode."""

    def _qualified(self, sql: str) -> str:
        return _qualified(sql, self._schema)


class _Blocking(Borrowed):
    def __init__(self, connection: psycopg.Connection[Any], schema: str) -> None:
        super().__init__(schema)
        self.connection = self._here = connection

    def _run(self, statements: Sequence[Statement]) -> list[Rows]:
        cursors = []
        with self._here.pipeline():
            for sql, values in statements:
                cursor = _Cursor(self._here, row_factory=tuple_row)
                prepare = _may_prepare(sql)
                cursors.append(cursor.execute(sql.encode(), values, prepare=prepare))
        return [fetched(cursor) for cursor in cursors]

    def _settle(self) -> None:
        with self._here.pipeline() as pipeline:
            pipeline.sync()


class _Awaiting(Borrowed):
    def __init__(
        self, connection: psycopg.AsyncConnection[Any], lent: OnLoop, schema: str
    ) -> None:
        super().__init__(schema)
        self.connection = self._there = connection
        self._lent = lent

    def _run(self, statements: Sequence[Statement]) -> list[Rows]:
        return self._lent.run(self._run_there(statements))

    async def _run_there(self, statements: Sequence[Statement]) -> list[Rows]:
        cursors = []
        async with self._there.pipeline():
            for sql, values in statements:
                cursor = _AsyncCursor(self._there, row_factory=tuple_row)
                prepare = _may_prepare(sql)
                cursors.append(
                    await cursor.execute(sql.encode(), values, prepare=prepare)
                )
        return [
            await cursor.fetchall() if cursor.description is not None else []
            for cursor in cursors
        ]

    def _settle(self) -> None:
        self._lent.run(self._settle_there())

    async def _settle_there(self) -> None:
        async with self._there.pipeline() as pipeline:
            await pipeline.sync()


def borrow(conn: object, schema: str) -> Borrowed:
    """Return a caller's connection, as a request uses it.

    Args:
        conn: a psycopg Connection; or an OnLoop with one of either kind.
        schema: where the store's tables are, quoted for SQL.

    Raises:
        ArgumentError: it is none; the message says what to pass instead.
    """
    thing = conn.thing if isinstance(conn, OnLoop) else conn
    if isinstance(thing, psycopg.Connection):
        return _Blocking(thing, schema)
    if isinstance(thing, psycopg.AsyncConnection):
        if not isinstance(conn, OnLoop):
            raise ArgumentError("conn", "an AsyncConnection", _AWAIT)
        return _Awaiting(thing, conn, schema)
    package = type(thing).__module__.partition(".")[0]
    raise ArgumentError("conn", type(thing).__name__, _UNWRAP.get(package, _PLAIN))


def _refused(found: str, fix: str) -> ArgumentError:
    return ArgumentError("conn", found, fix)


def _may_prepare(sql: str) -> bool | None:
    """Return whether a statement may be prepared; None: as the connection has it.

    Of several in one message, what stands behind one that fails the driver would take for
    prepared, and the server has skipped it. When a transaction is rolled back the driver
    forgets all; but behind a savepoint it goes on.
    """
    return False if sql in _OF_SAVEPOINTS else None


@functools.lru_cache(maxsize=512)
def _qualified(sql: str, schema: str) -> str:
    """Return SQL with the schema in front of whatever is the store's."""
    name = schema.replace("%", "%%")  # the driver reads the whole for its parameters
    return _NAMES.sub(lambda _: f"{name}.timingwheel_", sql)
