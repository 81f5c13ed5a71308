"""Partitions of the table of past runs: by the day on which a run ended, in UTC.

    timingwheel_past_20261130   what ended on that day. Made ahead, dropped as a whole
    timingwheel_past_kept       what outlives its day; its `day` is KEPT. Purged by rows
    timingwheel_past_default    days that had no partition when something ended. Likewise

Each is one message and one transaction that waits for a lock at most LOCK_WAIT_MS, since
whoever comes later waits behind it; what it does not get it tries again another time. So a
long read, a dump say, holds up a drop and nobody else. Nothing here decides who does it:
if two nodes do the same at once, one of them finds it done.

To make one is CREATE and ATTACH, which lets others write into the rest meanwhile; CREATE ...
PARTITION OF would not. To drop one locks the whole table, for as long as it takes to strike
it off the catalogue. DETACH CONCURRENTLY is no way: PostgreSQL refuses it beside a DEFAULT.
"""

from __future__ import annotations

import datetime as dt
import logging
from typing import Final

from psycopg import errors

from timingwheel.stores.postgres.connections import Connections
from timingwheel.stores.postgres.rows import DAY_NS

DAYS_AHEAD: Final = 2
"""Partitions are made for today and so many days after it."""
KEPT: Final = 0
"""The `day` of what has outlived its own; no run ends in 1970."""
LOCK_WAIT_MS: Final = 200
_NAME: Final = "timingwheel_past_"
_EPOCH: Final = dt.date(1970, 1, 1)

_PARTITIONS: Final = """
SELECT c.relname, c.oid::regclass::text FROM pg_inherits i
JOIN pg_class c ON c.oid = i.inhrelid
WHERE i.inhparent = 'timingwheel_past'::regclass
"""
# Beside the whole table, whichever schema comes first for who makes it; who has another
# search path would not find it.
_SCHEMA: Final = """
SELECT relnamespace::regnamespace::text FROM pg_class
WHERE oid = 'timingwheel_past'::regclass
"""
_MAKE: Final = """
SET LOCAL lock_timeout = '{wait_ms}ms';
CREATE TABLE {name} (LIKE timingwheel_past INCLUDING ALL);
ALTER TABLE timingwheel_past ATTACH PARTITION {name}
    FOR VALUES FROM ({first}) TO ({end});
"""
_DROP: Final = """
SET LOCAL lock_timeout = '{wait_ms}ms';
DROP TABLE IF EXISTS {name};
"""
_SOMEBODY_ELSE_DID: Final = (
    errors.DuplicateTable,
    errors.DuplicateObject,
    errors.UniqueViolation,
)
_NOT_NOW: Final = (errors.LockNotAvailable, errors.DeadlockDetected)
_logger = logging.getLogger("timingwheel")


def day_of(wall_ns: int) -> int:
    """Return the number of a moment's day, counted from 1970."""
    return wall_ns // DAY_NS


def partition_of(day: int) -> str:
    """Return the name of the partition of a day."""
    return f"{_NAME}{_EPOCH + dt.timedelta(days=day):%Y%m%d}"


class Partitions:
    """Makes and drops partitions. Thread-safe.

    Args:
        connections: to the database.
    """

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._warned: set[str] = set()

    def days(self) -> list[int]:
        """Return the days that have a partition, the oldest first."""
        found: list[int] = []
        for name, _ in self._connections.rows(_PARTITIONS):
            digits = name.removeprefix(_NAME)
            if digits.isdecimal():
                date = dt.date(int(digits[:-4]), int(digits[-4:-2]), int(digits[-2:]))
                found.append((date - _EPOCH).days)
        return sorted(found)

    def make_ahead(self, now_ns: int) -> None:
        """Make what is not there of today's partition and the next ones'.

        None of it must succeed: what ends on a day without one goes into the DEFAULT.

        Cost: a statement; once a day two more.
        """
        today = day_of(now_ns)
        days = range(today, today + DAYS_AHEAD + 1)
        for day in sorted(set(days) - set(self.days())):
            try:
                self._make(day)
            except errors.InsufficientPrivilege as error:
                self._warn(
                    "no partition can be made for what ends from now on, so it will be "
                    "deleted row by row: grant CREATE on the schema, and serve as the "
                    "tables' owner",
                    error,
                )
                return

    def _make(self, day: int) -> None:
        [(schema,)] = self._connections.rows(_SCHEMA)
        name = f"{schema}.{partition_of(day)}"
        sql = _MAKE.format(wait_ms=LOCK_WAIT_MS, name=name, first=day, end=day + 1)
        try:
            self._connections.script(sql)
        except (*_SOMEBODY_ELSE_DID, *_NOT_NOW):
            pass
        except errors.CheckViolation:
            pass  # something of that day is in the DEFAULT already: the rest goes there, too

    def drop(self, day: int) -> bool:
        """Drop the partition of a day, and all that is in it; False: not now, try again."""
        places: dict[str, str] = dict(self._connections.rows(_PARTITIONS))
        place = places.get(partition_of(day))
        if place is None:
            return True  # somebody else did
        try:
            self._connections.script(_DROP.format(wait_ms=LOCK_WAIT_MS, name=place))
        except _NOT_NOW:
            return False
        except errors.InsufficientPrivilege as error:
            self._warn(
                "what is old cannot be dropped: serve as the tables' owner", error
            )
            return False
        return True

    def _warn(self, what: str, error: errors.InsufficientPrivilege) -> None:
        if what not in self._warned:
            self._warned.add(what)
            _logger.warning("%s (%s)", what, str(error).partition("\n")[0])
