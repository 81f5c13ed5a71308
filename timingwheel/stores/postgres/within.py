"""Jobs put within a caller's transaction: they are there if, and only if, it commits.

The same reads, decisions and writes as everywhere, on the caller's connection, so a put
sees what the transaction has done before. Two things differ, since a transaction may stay
open for as long as its client likes:

    locks       no row is locked that others can see, so no node ever waits for a caller.
                What would change such a row is refused. Only who puts an equal key or
                name meanwhile waits, to learn whether it is taken
    conflicts   a transaction that sees the past (REPEATABLE READ) cannot look again: it
                is told so by a SerializationFailure, and its caller begins anew
"""

from __future__ import annotations

import threading
import uuid
import weakref
from collections.abc import Callable, Sequence
from typing import Final

from psycopg import errors

from timingwheel.errors import ArgumentError
from timingwheel.jobs.model import Draft, JobId
from timingwheel.jobs.store import IfExists, JobRef
from timingwheel.jobs.triggers import Delay
from timingwheel.stores.deciding.decision import Decision
from timingwheel.stores.deciding.putting import is_plain
from timingwheel.stores.postgres.borrowed import (
    MAY_WRITE,
    READ_ONLY,
    Borrowed,
    borrow,
)
from timingwheel.stores.postgres.changes import RowChanges
from timingwheel.stores.postgres.guard import Guard
from timingwheel.stores.postgres.loading import Loading
from timingwheel.stores.postgres.owner import TRIES_MAX, PostgresOwner
from timingwheel.stores.postgres.putting import put, wanted_by
from timingwheel.stores.postgres.view import LoadedView
from timingwheel.stores.postgres.writing import statement_of

FAR_NS: Final = 36_525 * 86_400 * 1_000_000_000
"""A delay of a hundred years."""
_SCHEMA: Final = """
SELECT relnamespace::regnamespace::text FROM pg_class
WHERE oid = to_regclass('timingwheel_meta')
"""
_STORE: Final = (
    "SELECT store, current_setting('transaction_read_only') FROM timingwheel_meta"
)
_ISOLATION: Final = "SELECT current_setting('transaction_isolation')"
_SEEN: Final = """
SELECT k.id FROM unnest(%s::bigint[], %s::text[]) AS k(shard, id) WHERE EXISTS (
    SELECT 1 FROM timingwheel_job j WHERE j.shard = k.shard AND j.id = k.id
) OR EXISTS (
    SELECT 1 FROM timingwheel_run r WHERE r.shard = k.shard AND r.job_id = k.id
) OR EXISTS (
    SELECT 1 FROM timingwheel_past r WHERE r.shard = k.shard AND r.job_id = k.id
)
"""
_ELSEWHERE: Final = (
    "it must lead to the database of this scheduler's store, where schema {schema} has "
    "its tables: pass a connection to that database"
)
_GRANT: Final = (
    "its role must be allowed to read and write the store's tables: GRANT USAGE ON SCHEMA "
    "{schema}, and SELECT, INSERT, UPDATE ON ALL TABLES IN SCHEMA {schema}, to that role"
)
_OTHERS: Final = (
    "the job is there already, and would change: its nodes would have to wait for your "
    "transaction. With a name: give it the same definition, or update it outside of the "
    "transaction. With after=: name a job that has ended, or that this very transaction "
    "has added"
)
_SERIALIZE: Final = (
    "could not serialize access: a job of the same key or name was added meanwhile; roll "
    "back and begin the transaction anew"
)


class PutWithin:
    """Puts jobs within transactions of callers. Thread-safe.

    Args:
        owner: this process's part of the store.
        store: its uuid.
        tell: called when a put is written, and its transaction goes on.
    """

    def __init__(
        self, owner: PostgresOwner, store: uuid.UUID, tell: Callable[[], None]
    ) -> None:
        self._tell = tell
        self._owner = owner
        self._store = store
        self._lock = threading.Lock()
        self._schema: str | None = None
        self._known: weakref.WeakSet[object] = weakref.WeakSet()

    def put(
        self, conn: object, drafts: Sequence[Draft], *, if_exists: IfExists
    ) -> list[JobRef]:
        """Make jobs, all or none of them; see PutsWithin.

        Cost: one message on the caller's connection for a plain job, else two; one more
        for the first on it.
        """
        borrowed = borrow(conn, self._place())
        borrowed.require_transaction()
        self._require_store(borrowed)
        if len(drafts) == 1 and _is_plain_and_near(drafts[0]):
            ref = self._owner.put_plain(drafts[0], on=borrowed)
            assert ref is not None, "it is far from the end of time"
            self._tell()
            return [ref]
        loading = Loading(borrowed, self._owner.shards, known=self._owner.loading)
        wanted = wanted_by(self._owner.tag, drafts)
        refs: list[JobRef] = []

        def decide(decision: Decision) -> None:
            refs[:] = put(self._owner, decision, drafts, if_exists=if_exists)

        # Of plain jobs nothing can be there already; savepoints that write are not free.
        may_fail = not all(map(is_plain, drafts))
        for _ in range(TRIES_MAX):
            view = loading.view(wanted)
            changes, _ = self._owner.decided(view, [decide], loading)
            if not changes:
                return refs
            if self._write(borrowed, view, changes, may_fail=may_fail):
                self._tell()
                return refs
            if borrowed.rows(_ISOLATION) != [("read committed",)]:
                raise errors.SerializationFailure(_SERIALIZE)
        raise AssertionError("others were quicker too often")

    def _place(self) -> str:
        """Return the schema of the store, quoted for SQL."""
        if self._schema is None:
            self._schema = str(self._owner.connections.rows(_SCHEMA)[0][0])
        return self._schema

    def _require_store(self, borrowed: Borrowed) -> None:
        """Check that a connection leads to this store, and may write there.

        Raises:
            ArgumentError: it does not, or may not.
        """
        connection = borrowed.connection
        with self._lock:
            is_known = connection in self._known
        if is_known:
            return
        place = self._place()
        elsewhere = _ELSEWHERE.format(schema=place)
        try:
            [found] = borrowed.saved([(_STORE, ())])
        except (errors.UndefinedTable, errors.InvalidSchemaName) as error:
            raise ArgumentError(
                "conn", f"database {borrowed.database!r}", elsewhere
            ) from error
        except errors.InsufficientPrivilege as error:
            raise ArgumentError(
                "conn", f"role {borrowed.user!r}", _GRANT.format(schema=place)
            ) from error
        [(store, read_only)] = found
        if store != self._store:
            raise ArgumentError("conn", f"another store, {store}", elsewhere)
        if read_only == "on":
            raise ArgumentError("conn", READ_ONLY, MAY_WRITE)
        with self._lock:
            self._known.add(connection)

    def _write(
        self,
        borrowed: Borrowed,
        view: LoadedView,
        changes: RowChanges,
        *,
        may_fail: bool,
    ) -> bool:
        """Write; False: somebody else was quicker, and nothing was written.

        Raises:
            ArgumentError: rows would change that others see.
        """
        guard = self._guard(view, changes)
        sql, values, _ = statement_of(guard, changes)
        if not may_fail:
            return bool(borrowed.rows(sql, values)[0][0])
        try:
            return bool(borrowed.saved([(sql, values)])[0][0][0])
        except errors.UniqueViolation:
            return False

    def _guard(self, view: LoadedView, changes: RowChanges) -> Guard:
        """Return what must be unchanged: rows that the transaction itself has made."""
        rows = (*changes.jobs, *changes.runs, *changes.touched)
        ids = {JobId(row[1]) for row in rows}  # after the shard: JOB_, RUN_COLUMNS
        if ids:
            # What is not there for others is this transaction's own.
            found = self._owner.connections.rows(
                _SEEN, self._owner.loading.ids(sorted(ids))
            )
            if found:
                raise ArgumentError("conn", f"job {found[0][0]}", _OTHERS)
        guard = Guard(view, self._owner.shards)
        guard.jobs = {key: guard.jobs[key] for key in guard.jobs.keys() & ids}
        guard.runs = {key: row for key, row in guard.runs.items() if key[0] in ids}
        return guard


def _is_plain_and_near(draft: Draft) -> bool:
    """Return whether one statement puts it, and cannot fail for a time beyond 2262."""
    when = draft.trigger.when
    return is_plain(draft) and not (isinstance(when, Delay) and when.delay_ns > FAR_NS)
