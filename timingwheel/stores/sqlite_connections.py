"""Who may use a database when: one writer at a time, readers beside it.

In SQLite's write-ahead mode a reader sees the moment at which its statement began and
neither waits for a commit nor holds one up. A connection serves one thread at a time, so
readers borrow one and give it back.

SQLite opens by path. Where that leads to another file by now, since a directory was
swapped, or to none, or no descriptor is left, readers take turns on the writer, which has
its files open.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from timingwheel.errors import TimingWheelError
from timingwheel.stores.sqlite_files import (
    IN_MEMORY,
    Connection,
    Schema,
    identity_of,
    open_reader,
    open_writer,
    refusal,
)


class Connections:
    """The connections to one database; what SQLite refuses is told as the
    schema says.

    Invariant: a connection is either lent to one thread, or idle, or closed; all are of
    one file. In memory there is one alone, and all take turns.

    Args:
        path: of the database file, made if there is none; ":memory:" for none.
        schema: what it is.

    Raises:
        TimingWheelError: the schema's own, here and everywhere: the file is damaged,
            foreign or newer.
    """

    def __init__(self, path: str, schema: Schema) -> None:
        self.path = path
        self._schema = schema
        self.writing = threading.RLock()  # held by whoever writes
        self.writer = open_writer(path, schema)
        self._file = identity_of(path)
        self.idle_readers: list[Connection] = []
        self._pool = threading.Lock()
        self._closed = False

    @contextmanager
    def reader(self) -> Iterator[Connection]:
        """Lend a connection to read by."""
        reader = self._borrowed()
        if reader is None:
            with self.writing, self._told():
                self._require_open()
                yield self.writer
            return
        try:
            with self._told():
                yield reader
        finally:
            with self._pool:
                is_kept = not self._closed
                if is_kept:
                    self.idle_readers.append(reader)
            if not is_kept:
                reader.close()

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """Lend the writer; all that is done by it is committed, or nothing is."""
        with self.writing, self._told():
            self._require_open()
            writer = self.writer
            writer.execute("BEGIN IMMEDIATE")
            try:
                yield writer
                writer.execute("COMMIT")
            except BaseException:
                # A full disk ends the transaction by itself; a failed COMMIT does not.
                if writer.in_transaction:
                    writer.execute("ROLLBACK")
                raise

    @contextmanager
    def preview(self, change: Callable[[Connection], None]) -> Iterator[Connection]:
        """Lend the writer as it is after a change, which is undone in the end.

        Needs no room on the disk: until a commit, what is new lies in SQLite's cache.

        Args:
            change: called in the transaction, before the connection is lent.
        """
        with self.writing, self._told():
            self._require_open()
            writer = self.writer
            writer.execute("PRAGMA cache_spill = OFF")  # a large change, too
            writer.execute("BEGIN IMMEDIATE")
            try:
                change(writer)
                yield writer
            finally:
                if writer.in_transaction:
                    writer.execute("ROLLBACK")
                writer.execute("PRAGMA cache_spill = ON")

    def close(self) -> None:
        """Close all; one that is lent closes when it comes back. Idempotent."""
        with self._pool:
            self._closed = True
            readers, self.idle_readers = self.idle_readers, []
        for reader in readers:
            reader.close()
        with self.writing:
            self.writer.close()

    def _borrowed(self) -> Connection | None:
        """Return a connection of the readers'; None if there can be none."""
        if self.path == IN_MEMORY:
            return None
        with self._pool:
            self._require_open()
            if self.idle_readers:
                return self.idle_readers.pop()
        if identity_of(self.path) != self._file:
            return None  # not even to be opened: SQLite would write beside it
        try:
            reader = open_reader(self.path, self._schema)
        except TimingWheelError:
            return None  # the writer says it, unless it can be read all the same
        if identity_of(self.path) == self._file:
            return reader
        reader.close()
        return None

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise refusal(self.path, self._schema, error) from error
        except MemoryError as error:
            raise self._schema.refuse(
                self.path, "found no memory", "free some; it is tried again"
            ) from error

    def _require_open(self) -> None:
        if self._closed:
            raise self._schema.refuse(self.path, "is closed", "open it again")
