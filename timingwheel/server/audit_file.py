"""Where the audit of a store in a directory is kept: `server/audit.db` beside the store."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final

import msgspec

from timingwheel.server.audit import AuditError, AuditFilter
from timingwheel.stores.sqlite_connections import Connections
from timingwheel.stores.sqlite_files import IN_MEMORY, Schema
from timingwheel.wire.audit import AuditEntry
from wal.filesystem import FileSystem

FILE_NAME: Final = "audit.db"

_SCHEMA_1: Final = """
CREATE TABLE entries (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    time_ns INTEGER NOT NULL,
    actor TEXT,
    operation TEXT NOT NULL,
    target TEXT NOT NULL,
    outcome TEXT NOT NULL,
    body TEXT NOT NULL
);
"""
SCHEMA: Final = Schema(
    application_id=0x54574155,  # in ASCII: TWAU
    migrations=(_SCHEMA_1,),
    refuse=AuditError,
    move_away="move it and its -wal file away: a new one is begun",
    unwritten="what is not written waits in memory",
)
# One statement a batch: row by row a thread gives up the GIL at each.
_INSERT: Final = """
INSERT INTO entries (time_ns, actor, operation, target, outcome, body)
SELECT value ->> 'time_ns', value ->> 'actor', value ->> 'operation',
       value ->> 'target', value ->> 'outcome', value
FROM json_each(?) ORDER BY key
"""
_SELECT: Final = """
SELECT id, body FROM entries
WHERE (:before IS NULL OR id < :before)
  AND (:actor IS NULL OR actor = :actor)
  AND (:operation IS NULL OR operation = :operation)
  AND (:target IS NULL OR target = :target)
  AND (:outcome IS NULL OR outcome = :outcome)
  AND (:since_ns IS NULL OR time_ns >= :since_ns)
  AND (:until_ns IS NULL OR time_ns < :until_ns)
ORDER BY id DESC LIMIT :count
"""
_TRIM: Final = "DELETE FROM entries WHERE id <= (SELECT max(id) FROM entries) - ?"


class AuditFile:
    """An AuditShelf in a file of its own.

    Args:
        directory: where the file goes, made if missing; None: in memory.
    """

    def __init__(self, directory: str | None) -> None:
        self._directory = directory
        self._connections: Connections | None = None

    def open(self) -> None:
        """Open the file, made if missing.

        Raises:
            AuditError: the file is damaged, another program's, or cannot be made.
            OSError: its directory cannot be made.
        """
        path = IN_MEMORY
        if self._directory is not None:
            files = FileSystem(self._directory)
            files.make_directory()
            path = os.path.join(files.path, FILE_NAME)
        self._connections = Connections(path, SCHEMA)

    def close(self) -> None:
        """Close the file. Idempotent."""
        connections, self._connections = self._connections, None
        if connections is not None:
            connections.close()

    def write(self, entries: Sequence[AuditEntry], *, kept_max: int) -> None:
        """Write entries with one sync, and forget the oldest beyond `kept_max`."""
        with self._open().transaction() as writer:
            writer.execute(_INSERT, [msgspec.json.encode(entries).decode()])
            writer.execute(_TRIM, [kept_max])

    def read(self, wanted: AuditFilter, count: int) -> list[AuditEntry]:
        """Return entries, newest first, at most `count`."""
        with self._open().reader() as reader:
            rows = reader.execute(_SELECT, {**wanted._asdict(), "count": count})
            return [_entry(*row) for row in rows.fetchall()]

    def _open(self) -> Connections:
        assert self._connections is not None, "it is open"
        return self._connections


def _entry(entry_id: int, body: str) -> AuditEntry:
    entry = msgspec.json.decode(body, type=AuditEntry)
    return msgspec.structs.replace(entry, id=entry_id)
