"""Where the audit of a store in a database is kept: the table `timingwheel_audit`.

All servers of the database write to it, so each shows what any of them was asked. Entries
of one server stand in the order in which it noted them; those of several servers about
in the order of their times.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
import psycopg

from timingwheel.server.audit import AuditError, AuditFilter
from timingwheel.stores.postgres.connections import Connections
from timingwheel.wire.audit import AuditEntry

# One statement a batch, and its order is kept by the numbers that the rows get.
_INSERT: Final = """
INSERT INTO timingwheel_audit (time_ns, actor, operation, target, outcome, body)
SELECT (e.value ->> 'time_ns')::bigint, e.value ->> 'actor', e.value ->> 'operation',
    e.value ->> 'target', e.value ->> 'outcome', e.value::text
FROM json_array_elements(%s::json) WITH ORDINALITY AS e(value, place) ORDER BY e.place
"""
_TRIM: Final = """
DELETE FROM timingwheel_audit
WHERE id <= (SELECT max(id) FROM timingwheel_audit) - %s
"""
_SELECT: Final = """
SELECT id, body FROM timingwheel_audit
WHERE (%(before)s::bigint IS NULL OR id < %(before)s)
  AND (%(actor)s::text IS NULL OR actor = %(actor)s)
  AND (%(operation)s::text IS NULL OR operation = %(operation)s)
  AND (%(target)s::text IS NULL OR target = %(target)s)
  AND (%(outcome)s::text IS NULL OR outcome = %(outcome)s)
  AND (%(since_ns)s::bigint IS NULL OR time_ns >= %(since_ns)s)
  AND (%(until_ns)s::bigint IS NULL OR time_ns < %(until_ns)s)
ORDER BY id DESC LIMIT %(count)s
"""
_NUL: Final = "\\u0000"
"""How JSON spells the one character that a text of PostgreSQL cannot hold."""
_SUBSTITUTE: Final = "\\ufffd"


class AuditTable:
    """An AuditShelf in the database of a store.

    Args:
        where: the database, as the store's.
    """

    def __init__(self, where: str) -> None:
        self._where = where
        self._connections: Connections | None = None

    def open(self) -> None:
        """Make ready; the database is asked when there is something to write."""
        self._connections = Connections(self._where)

    def close(self) -> None:
        """Close what is open. Idempotent."""
        connections, self._connections = self._connections, None
        if connections is not None:
            connections.close()

    def write(self, entries: Sequence[AuditEntry], *, kept_max: int) -> None:
        """Write entries in one message, and forget the oldest beyond about `kept_max`.

        Raises:
            DatabaseAwayError: the database does not answer.
            AuditError: it refuses.
        """
        text = msgspec.json.encode(entries).decode().replace(_NUL, _SUBSTITUTE)
        try:
            self._open().all([(_INSERT, [text]), (_TRIM, [kept_max])])
        except psycopg.Error as error:
            raise AuditError(
                "timingwheel_audit",
                f"does not take what is written ({error})",
                "see to its rights and its room; what is not written waits in memory",
            ) from error

    def read(self, wanted: AuditFilter, count: int) -> list[AuditEntry]:
        """Return entries, newest first, at most `count`.

        Raises:
            DatabaseAwayError: the database does not answer.
        """
        values = {**wanted._asdict(), "count": count}
        rows = self._open().named_rows(_SELECT, values)
        return [
            msgspec.structs.replace(
                msgspec.json.decode(body, type=AuditEntry), id=entry_id
            )
            for entry_id, body in rows
        ]

    def _open(self) -> Connections:
        assert self._connections is not None, "it is open"
        return self._connections
