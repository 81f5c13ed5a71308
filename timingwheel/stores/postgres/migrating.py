"""From the schema that a database has to a newer one, while its nodes go on.

    expand ─▶ indexes ─▶ backfill ─▶ contract
                                   once no process lives that does not know the new form

Each step is a short transaction that first locks the row of `timingwheel_meta` and looks
what is still to do there, so a mover may be killed at any point, and two may work at once:
whoever comes next goes on. Indexes are built concurrently and so outside a transaction;
one that a killed mover has left invalid is dropped and built again. No statement waits for
a lock longer than LOCK_TIMEOUT_MS, since all others would wait behind it; it is tried again.

A mover needs a connection of its own, not one behind a pooler in transaction mode.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

import psycopg
from psycopg import errors

from timingwheel.clock import Clock, SystemClock
from timingwheel.errors import ArgumentError, TimingWheelError
from timingwheel.jobs.errors import DatabaseAwayError, NoStoreError
from timingwheel.stores.postgres.connections import Connections
from timingwheel.stores.postgres.making import SchemaError, require_fitting
from timingwheel.stores.postgres.schema import MIGRATIONS, Migration

LOCK_TIMEOUT_MS: Final = 2_000
TRIES_MAX: Final = 30
PAUSE_NS: Final = 500_000_000
BATCH_ROWS: Final = 1_000
_PLACE: Final = "SELECT version, phase, oldest FROM timingwheel_meta FOR UPDATE"
_READ: Final = "SELECT version, phase, oldest FROM timingwheel_meta"
_MOVE: Final = "UPDATE timingwheel_meta SET version = %s, phase = %s, oldest = %s"
_OLD_NODES: Final = """
SELECT name FROM timingwheel_member
WHERE protocol_max < %s AND until_ns > timingwheel_elapsed() ORDER BY name
"""
_INVALID: Final = """
SELECT 1 FROM pg_index WHERE indexrelid = to_regclass(%s) AND NOT indisvalid
"""
_IS_THERE: Final = "SELECT to_regclass(%s) IS NOT NULL"
Tell = Callable[[str], object]
Rows = list[tuple[Any, ...]]
T = TypeVar("T")


class MigrationHeldUpError(TimingWheelError):
    """A step cannot be taken now; what was done stays, and the next call goes on there."""


class Place(NamedTuple):
    """How far the tables are.

    Attributes:
        version: of the schema that is whole.
        phase: what is to do next: "indexes" or "backfill" of the version to come,
            "contract" of this one, or nothing: "done".
        oldest: the version that a process has to know at least.
    """

    version: int
    phase: str
    oldest: int


class Mover:
    """Brings the tables of one database to a newer schema. One thread at a time.

    Args:
        where: the database, as the store's.
        migrations: how; MIGRATIONS[v - 1] leads from schema v to v + 1.
        clock: to wait by, where something is locked.
        tell: is told in words what is done.
        batch_rows: how many rows one step of a backfill changes.
        tries_max: how often a step is tried where something is locked.
        lock_timeout_ms: how long each of them waits for it.
        pause_ns: between two of them, so that who was held up can go on.

    Raises:
        DatabaseAwayError: the database does not answer.
    """

    def __init__(
        self,
        where: str,
        *,
        migrations: Sequence[Migration] = MIGRATIONS,
        clock: Clock | None = None,
        tell: Tell = lambda _: None,
        batch_rows: int = BATCH_ROWS,
        tries_max: int = TRIES_MAX,
        lock_timeout_ms: int = LOCK_TIMEOUT_MS,
        pause_ns: int = PAUSE_NS,
    ) -> None:
        self._migrations = migrations
        self._clock = SystemClock() if clock is None else clock
        self._tell = tell
        self._batch_rows = batch_rows
        self._tries_max = tries_max
        self._pause_ns = pause_ns
        try:
            self._connection = psycopg.connect(where, autocommit=True)
            self._connection.execute(
                f"SET lock_timeout = {lock_timeout_ms}".encode(), prepare=False
            )
        except psycopg.OperationalError as error:
            raise DatabaseAwayError(str(error).partition("\n")[0]) from error

    def close(self) -> None:
        """Let go of the connection. Idempotent."""
        self._connection.close()

    @property
    def newest(self) -> int:
        """The newest version that it can bring the tables to."""
        return 1 + len(self._migrations)

    def place(self) -> Place:
        """Return how far the tables are.

        Raises:
            NoStoreError: there are none.
        """
        try:
            return Place(*self._rows(_READ)[0])
        except errors.UndefinedTable:
            raise NoStoreError from None

    def to_do(self, to: int | None = None) -> list[str]:
        """Return in words what `run` would do."""
        place, target = self.place(), self._target(to)
        begun = place.phase in ("indexes", "backfill")
        words = [] if place.phase == "done" else [f"{place.phase}, which has begun"]
        words += [
            f"schema {version}: expand, backfill, contract"
            for version in range(place.version + 1 + begun, target + 1)
        ]
        return words

    def run(self, to: int | None = None) -> Place:
        """Take all steps up to a version; return how far the tables are then.

        Args:
            to: the version; None: the newest.

        Raises:
            ArgumentError: there is no way to that version.
            SchemaError: the tables are newer than this version of timingwheel knows.
            MigrationHeldUpError: something stays locked, or older processes live that
                do not know the new form.
            NoStoreError: there are no tables.
        """
        target = self._target(to)
        steps = {
            "done": self._expand,
            "indexes": self._index,
            "backfill": self._backfill,
            "contract": self._contract,
        }
        while self._has_more(place := self.place(), target):
            steps[place.phase](place)
        return place

    # -- steps ----------------------------------------------------------------------------

    def _expand(self, place: Place) -> None:
        self._tell(f"expand to schema {place.version + 1}")
        after = place._replace(phase="indexes")
        self._locked(place, self._migration(place).expand, after)

    def _index(self, place: Place) -> None:
        for name, rest in self._migration(place).indexes:
            if self._rows(_INVALID, [name]):
                drop = f"DROP INDEX CONCURRENTLY IF EXISTS {name}"
                self._again(partial(self._rows, drop))
            if self._rows(_IS_THERE, [name]) == [(False,)]:
                self._tell(f"index {name}")
                make = f"CREATE INDEX CONCURRENTLY {name} {rest}"
                self._again(partial(self._rows, make))
        self._locked(place, (), place._replace(phase="backfill"))

    def _backfill(self, place: Place) -> None:
        migration = self._migration(place)
        self._fill(place, migration)
        phase = "contract" if migration.contract else "done"
        self._locked(place, (), Place(place.version + 1, phase, place.oldest))

    def _fill(self, place: Place, migration: Migration) -> None:
        left = self._rows(migration.left)[0][0] if migration.left else 0
        done = 0
        while migration.backfill:
            count = len(self._batch(place, migration.backfill))
            if count == 0:
                return
            done += count
            self._tell(f"backfill: {done:,} of {max(left, done):,} rows")

    def _batch(self, place: Place, statement: str) -> Rows:
        def step() -> Rows:
            with self._connection.transaction():
                if Place(*self._rows(_PLACE)[0]) != place:
                    return []  # another mover was quicker
                return self._rows(statement, [self._batch_rows])

        return self._again(step)

    def _contract(self, place: Place) -> None:
        old = self._rows(_OLD_NODES, [place.version])
        if old:
            names = ", ".join(name for (name,) in old)
            raise MigrationHeldUpError(
                f"schema {place.version} is in use, but for what older versions need: "
                f"end or upgrade {names}, and migrate again"
            )
        self._tell(f"contract of schema {place.version}")
        migration = self._migrations[place.version - 2]
        self._fill(place, migration)  # what older versions have written meanwhile
        after = Place(place.version, "done", place.version)
        self._locked(place, migration.contract, after)

    def _migration(self, place: Place) -> Migration:
        return self._migrations[place.version - 1]

    # -- inside ---------------------------------------------------------------------------

    def _has_more(self, place: Place, target: int) -> bool:
        if place.version > self.newest:
            raise SchemaError(place.version, "upgrade timingwheel")
        return place.phase != "done" or place.version < target

    def _target(self, to: int | None) -> int:
        if to is None:
            return self.newest
        if not 1 <= to <= self.newest:
            raise ArgumentError(
                "to", to, f"pass a version that this one knows, 1 to {self.newest}"
            )
        return to

    def _locked(self, before: Place, statements: Sequence[str], after: Place) -> None:
        """Take a step, if nobody has taken it meanwhile."""

        def step() -> None:
            with self._connection.transaction():
                if Place(*self._rows(_PLACE)[0]) != before:
                    return
                for statement in statements:
                    self._rows(statement)
                self._rows(_MOVE, list(after))

        self._again(step)

    def _again(self, step: Callable[[], T]) -> T:
        """Take a step, and again for as long as something is locked."""
        condition = threading.Condition()
        for n in range(self._tries_max):
            try:
                return step()
            except errors.LockNotAvailable:
                self._tell(f"something is locked, try {n + 1} of {self._tries_max}")
            with condition:
                until_ns = self._clock.monotonic_ns() + self._pause_ns
                while self._clock.monotonic_ns() < until_ns:
                    self._clock.wait(condition, until_ns)
        raise MigrationHeldUpError(
            f"something stays locked over {self._tries_max} tries: end long transactions, and "
            "migrate again"
        )

    def _rows(self, sql: str, values: Sequence[object] = ()) -> Rows:
        cursor = self._connection.execute(sql.encode(), values or None, prepare=False)
        return cursor.fetchall() if cursor.description is not None else []


def outdated(connections: Connections) -> SchemaError | None:
    """Return why this version of timingwheel may not go on with the tables; None: it may."""
    [(version, _, oldest)] = connections.rows(_READ)
    try:
        require_fitting(version, oldest)
    except SchemaError as error:
        return error
    return None
