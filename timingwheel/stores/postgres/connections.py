"""Connections to the database: lent to one thread at a time, each statement by itself.

Nothing here holds a transaction open between two messages, so it works behind a pooler
that gives the connection to another after each transaction.
"""

from __future__ import annotations

import contextlib
import select
import struct
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

import psycopg
from psycopg import errors, pq
from psycopg.adapt import AdaptersMap, Dumper
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from timingwheel.errors import EngineClosedError
from timingwheel.jobs.errors import DatabaseAwayError

_AWAY: Final = frozenset({"08", "53", "57"})
"""Classes of SQLSTATE: connections, resources, an operator's intervention."""
_RACED: Final = (errors.DeadlockDetected, errors.SerializationFailure)
_UNDONE: Final = (*_RACED, errors.LockNotAvailable)
"""What the server says when others were in the way: nothing of the statement was done."""
SENT_MAX: Final = 10
"""How often one statement is sent, if others are in its way each time."""
_CLOSED: Final = "the store is closed"
# What a role or a database says of it instead would have names come back as other names.
_ENCODING: Final = {"client_encoding": "UTF8"}
PATIENCE: Final[Mapping[str, int]] = {
    "connect_timeout": 10,
    "keepalives_idle": 5,
    "keepalives_interval": 5,
    "keepalives_count": 2,
    "tcp_user_timeout": 15_000,
}
"""When a network that is silent counts as gone, in seconds and at last in milliseconds.

Else a thread that waits for an answer could wait for a quarter of an hour, or for ever."""
# A statement here reads some rows by an index and takes a millisecond. What the planner
# knows of a table is old: it keeps the plan that it made when a vacuum had just found the
# table empty, and that plan reads all of it, for each of 256 shards, when 6,000 runs have
# come (1.4 s a look). Of new tables it expects many rows, and has a statement compiled first.
# So neither is left to it; what else it would join from end to end: keys.py.
_BY_INDEX: Final = "SET jit = off; SET enable_seqscan = off"
# Behind a pooler a session is others', too, so each message says it for itself: compiled, a
# look at new tables takes 2 s, else 10 ms.
_BY_INDEX_ONCE: Final = (
    "SELECT set_config('jit', 'off', true), set_config('enable_seqscan', 'off', true)"
)
Statement = tuple[str, Sequence[object]]
"""SQL and its parameters."""
_AnyStatement = tuple[str, Sequence[object] | Mapping[str, object]]
Rows = list[tuple[Any, ...]]


class InTheWayError(DatabaseAwayError):
    """Others were in a statement's way each time it was sent; nothing of it was done."""

    def __str__(self) -> str:
        return f"others were in the way {SENT_MAX} times ({self.reason}): try again"


class Connection(psycopg.Connection[tuple[Any, ...]]):
    """A connection of our own, with what each statement needs.

    Attributes:
        cursor_kept: for one statement after the other: a new one for each costs 7 us, as
            it learns anew how each type is written.
        heard: tells whether the server has said something that nobody asked for.
        is_pooled: whether a pooler stands between.
    """

    cursor_kept: psycopg.Cursor[tuple[Any, ...]]
    heard: select.poll
    is_pooled: bool

    def keep(self) -> None:
        """Make what is kept, once the adapters are known."""
        self.cursor_kept = self.cursor()
        self.heard = select.poll()
        self.heard.register(self.fileno(), select.POLLIN)


class Database(Protocol):
    """Where statements are run: on connections of our own, or on one of a caller's."""

    def rows(self, sql: str, values: Sequence[object] = ()) -> Rows:
        """Run one statement and return its rows."""

    def all(self, statements: Sequence[Statement]) -> list[Rows]:
        """Run statements in one message and return the rows of each."""


class Ints(list[int | None]):
    """A bigint[]; always of that type, so that one prepared statement serves."""


class Texts(list[str | None]):
    """A text[]."""


class Blobs(list[bytes]):
    """A bytea[]."""


class Bools(list[bool]):
    """A boolean[]."""


class Places(list[bytes]):
    """A tid[]: where rows stand, each as a binary result has told it."""


# In binary: for hundreds of rows half the time of text, at either end.
class _ArrayDumper(Dumper):
    """Dumps an array of one dimension: a header, and each item behind its length."""

    format = pq.Format.BINARY
    item_oid: int

    def _framed(self, items: Sequence[bytes | None]) -> bytes:
        parts = [_ARRAY.pack(1, None in items, self.item_oid, len(items), 1)]
        for item in items:
            if item is None:
                parts.append(_NULL)
            else:
                parts += (_LENGTH.pack(len(item)), item)
        return b"".join(parts) if items else _ARRAY_EMPTY.pack(0, 0, self.item_oid)


class _IntsDumper(_ArrayDumper):
    oid, item_oid = 1016, 20

    def dump(self, obj: Ints) -> bytes:
        if not obj or None in obj:
            ints = [None if item is None else _INT.pack(item) for item in obj]
            return self._framed(ints)
        size = len(obj)
        flat: list[Any] = [_INT.size] * (2 * size)
        flat[1::2] = obj
        header = _ARRAY.pack(1, 0, self.item_oid, size, 1)
        return header + struct.pack("!" + "iq" * size, *flat)


class _TextsDumper(_ArrayDumper):
    oid, item_oid = 1009, 25

    def dump(self, obj: Texts) -> bytes:
        return self._framed([None if item is None else item.encode() for item in obj])


class _BlobsDumper(_ArrayDumper):
    oid, item_oid = 1001, 17

    def dump(self, obj: Blobs) -> bytes:
        return self._framed(obj)


class _PlacesDumper(_ArrayDumper):
    oid, item_oid = 1010, 27

    def dump(self, obj: Places) -> bytes:
        return self._framed(obj)


class _BoolsDumper(_ArrayDumper):
    oid, item_oid = 1000, 16

    def dump(self, obj: Bools) -> bytes:
        return self._framed([b"\1" if item else b"\0" for item in obj])


_ARRAY: Final = struct.Struct("!iiIii")
"""Dimensions, whether there are nulls, the type of items, how many, the first index."""
_ARRAY_EMPTY: Final = struct.Struct("!iiI")
_LENGTH: Final = struct.Struct("!i")
_NULL: Final = _LENGTH.pack(-1)
_INT: Final = struct.Struct("!q")


class Connections:
    """Connections to one database, opened when they are needed.

    Invariant: a connection is lent to one thread, or idle, or closed.

    Args:
        where: what psycopg takes: a URL, or words.
    """

    def __init__(self, where: str) -> None:
        self._where = where
        self._lock = threading.Lock()
        self._idle: list[Connection] = []
        self._is_closed = False

    @contextlib.contextmanager
    def lent(self) -> Iterator[Connection]:
        """Lend a connection; one that broke is not lent again.

        Raises:
            DatabaseAwayError: the database does not answer.
        """
        with self._lock:
            if self._is_closed:
                raise EngineClosedError(_CLOSED)
            connection = None
            while self._idle and connection is None:
                connection = _unless_ended(self._idle.pop())
        try:
            if connection is None:
                connection = self._open()
            yield connection
        except psycopg.Error as error:
            if not _is_away(error):
                raise
            self._forget_idle()
            if connection is not None:
                connection.close()
            raise DatabaseAwayError(_reason(error)) from error
        finally:
            self._take_back(connection)

    def _take_back(self, connection: Connection | None) -> None:
        if connection is not None:
            is_broken = connection.closed
            with self._lock:
                is_kept = not (is_broken or self._is_closed)
                if is_kept:
                    self._idle.append(connection)
            if not is_kept:
                connection.close()

    def rows(
        self, sql: str, values: Sequence[object] = (), *, binary: bool = False
    ) -> Rows:
        """Run one statement and return its rows.

        Args:
            sql: the statement.
            values: its parameters.
            binary: whether the server sends values in binary: quicker for many rows. A
                type that Python does not know, such as tid, comes as bytes.
        """
        return self.all([(sql, values)], binary=binary)[0]

    def named_rows(self, sql: str, values: Mapping[str, object]) -> Rows:
        """Run one statement whose parameters have names."""
        with self.lent() as connection:
            return _sent(connection, [(sql, values)])[0]

    def all(
        self, statements: Sequence[Statement], *, binary: bool = False
    ) -> list[Rows]:
        """Run statements in one message and return the rows of each; see `rows`.

        Each sees what is committed when it begins; they are one transaction. What the
        server has undone is sent again: whatever has changed, statements look for
        themselves.

        Raises:
            DatabaseAwayError: it does not answer, or somebody holds a lock for long.
            InTheWayError: it was undone each time.
        """
        for _ in range(SENT_MAX - 1):
            with contextlib.suppress(*_UNDONE):
                return self._all(statements, binary=binary)
        try:
            return self._all(statements, binary=binary)
        except _RACED as error:
            raise InTheWayError(_reason(error)) from error
        except errors.LockNotAvailable as error:
            # A role may wait for a moment only; a VACUUM FULL, say, ends some time.
            raise DatabaseAwayError(_reason(error)) from error

    def _all(self, statements: Sequence[Statement], *, binary: bool) -> list[Rows]:
        with self.lent() as connection:
            return _sent(connection, statements, binary=binary)

    def script(self, sql: str) -> None:
        """Run statements without parameters as one message and one transaction."""
        with self.lent() as connection:
            connection.execute(sql.encode(), prepare=False)

    def close(self) -> None:
        """Close all; one that is lent closes when it comes back. Idempotent."""
        with self._lock:
            self._is_closed = True
        self._forget_idle()

    def _forget_idle(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _open(self) -> Connection:
        connection = Connection.connect(patient(self._where), autocommit=True)
        know_arrays(connection.adapters)
        connection.keep()
        connection.is_pooled = _is_pooled(connection)
        if connection.is_pooled:
            # Another's statement may have the name of ours where the pooler sends us.
            connection.prepare_threshold = None
        else:
            connection.execute(_BY_INDEX.encode(), prepare=False)
        return connection


def _sent(
    connection: Connection, statements: Sequence[_AnyStatement], *, binary: bool = False
) -> list[Rows]:
    """Run statements in one message and return the rows of each."""
    if len(statements) == 1 and not connection.is_pooled:
        [(sql, values)] = statements
        cursor = connection.cursor_kept
        cursor.execute(sql.encode(), values, binary=binary)
        return [fetched(cursor)]
    try:
        with connection.pipeline():
            if connection.is_pooled:
                connection.execute(_BY_INDEX_ONCE.encode())
            cursors = [
                connection.execute(sql.encode(), values, binary=binary)
                for sql, values in statements
            ]
    except psycopg.Error:
        if not connection.is_pooled:
            # What stands behind the one that failed the driver may take for prepared, and
            # the server has skipped it.
            connection.close()
        raise
    return [fetched(cursor) for cursor in cursors]


def _is_pooled(connection: Connection) -> bool:
    """Return whether a pooler stands between: it makes up the number of the process."""
    row = connection.execute("SELECT pg_backend_pid()", prepare=False).fetchone()
    return row != (connection.info.backend_pid,)


def patient(where: str) -> str:
    """Return what psycopg takes, with PATIENCE where it does not say so, and UTF-8."""
    said = conninfo_to_dict(where)
    more = {name: value for name, value in PATIENCE.items() if name not in said}
    return make_conninfo(where, **more, **_ENCODING)


_DUMPERS: Final = (
    (Ints, _IntsDumper),
    (Texts, _TextsDumper),
    (Blobs, _BlobsDumper),
    (Places, _PlacesDumper),
    (Bools, _BoolsDumper),
)


def know_arrays(adapters: AdaptersMap) -> None:
    """Have a connection, or a cursor, know the arrays of this module."""
    for kind, dumper in _DUMPERS:
        adapters.register_dumper(kind, dumper)


def _unless_ended(connection: Connection) -> Connection | None:
    """Return an idle connection, unless the server has said something: that is its end."""
    if not connection.heard.poll(0):
        return connection
    connection.close()
    return None


def _reason(error: psycopg.Error) -> str:
    return str(error).strip().partition("\n")[0]


def _is_away(error: psycopg.Error) -> bool:
    """Return whether it is the server that is away, and not a statement that failed.

    One that only reads is no primary any more, or has no room: another connection may find
    the one that writes.
    """
    if isinstance(error, errors.ReadOnlySqlTransaction):
        return True
    is_operational = isinstance(error, psycopg.OperationalError)
    return is_operational and (error.sqlstate is None or error.sqlstate[:2] in _AWAY)


def fetched(cursor: psycopg.Cursor[tuple[Any, ...]]) -> Rows:
    """Return the rows that a statement has given, if it gives any."""
    # Not by the cursor's description, which is made anew, column by column, when asked for.
    given = cursor.pgresult
    if given is None or given.status != pq.ExecStatus.TUPLES_OK:
        return []
    return cursor.fetchall()
