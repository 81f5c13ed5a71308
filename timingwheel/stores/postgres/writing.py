"""Writes what a step has decided, in one statement, if all that it read is unchanged.

The statement locks the rows that were read and compares their versions; only if all are
the same does it write. So it needs no transaction of several messages, and no step can be
half done.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from psycopg import errors

from timingwheel.stores.postgres.changes import RowChanges, Values
from timingwheel.stores.postgres.connections import (
    Blobs,
    Bools,
    Database,
    InTheWayError,
    Ints,
    Statement,
    Texts,
)
from timingwheel.stores.postgres.guard import Guard, Stale
from timingwheel.stores.postgres.keys import JOB_KEY, RUN_KEY, same_key
from timingwheel.stores.postgres.rows import (
    JOB_COLUMNS,
    PAST_COLUMNS,
    RUN_COLUMNS,
    TYPES,
)

ATTEMPT_COLUMNS: Final = ("shard", "job_id", "nominal_ns", "n", "number", "body")
SKIP_COLUMNS: Final = ("shard", "job_id", "first_ns", "reason", "last_ns", "count")
DEPENDENCY_COLUMNS: Final = ("shard", "before_id", "job_id")
NAME_COLUMNS: Final = ("shard", "name", "job_id")
_CASTS: Final = {"tags": "::jsonb", "caps": "::text[]"}
_FOLD: Final = """
SELECT shard, job_id, nominal_ns, n,
    string_agg(int4send(octet_length(body)) || body, ''::bytea ORDER BY number) AS tries
FROM old_attempt GROUP BY shard, job_id, nominal_ns, n
"""

CONFLICTS: Final = (
    errors.UniqueViolation,
    errors.SerializationFailure,
    errors.DeadlockDetected,
    InTheWayError,
)
"""What the database says when somebody else was quicker."""


def write(connections: Database, guard: Guard, changes: RowChanges) -> Stale | None:
    """Write all changes, or none; None: it is done.

    Raises:
        CONFLICTS: somebody else was quicker; nothing was written.
    """
    sql, values, names = statement_of(guard, changes)
    [row] = connections.rows(sql, values)
    if row[0]:
        return None
    found = {name: ids or [] for name, ids in zip(names, row[1:], strict=True)}
    return guard.stale(found)


def statement_of(
    guard: Guard, changes: RowChanges
) -> tuple[str, list[object], list[str]]:
    """Return the statement, its parameters, and the names of the guard's parts.

    Its one row begins with whether it has written.
    """
    parts: list[str] = []
    values: list[object] = []
    names: list[str] = []
    tests: list[str] = []
    counts: list[object] = []
    shown: list[str] = []
    for name, column, sql, more, count in guard.parts():
        parts.append(f"{name} AS MATERIALIZED ({sql})")
        values += more
        names.append(name)
        tests.append(f"(SELECT count(*) FROM {name}) = %s")
        counts.append(count)
        found = f"(SELECT array_agg({column}) FROM {name})"
        shown.append(f", CASE WHEN ok THEN NULL ELSE {found} END")
    parts.append(f"ok AS MATERIALIZED (SELECT {' AND '.join(tests) or 'true'} AS ok)")
    values += counts
    for name, (sql, more_values) in _writes(changes):
        parts.append(f"{name} AS ({sql})")
        values += more_values
    return f"WITH {', '.join(parts)} SELECT ok{''.join(shown)} FROM ok", values, names


def _writes(changes: RowChanges) -> list[tuple[str, Statement]]:
    found: list[tuple[str, Statement]] = []
    for name, table, columns, rows in (
        ("new_job", "timingwheel_job", JOB_COLUMNS, changes.new_jobs),
        ("new_run", "timingwheel_run", RUN_COLUMNS, changes.new_runs),
        ("attempt", "timingwheel_attempt", ATTEMPT_COLUMNS, changes.attempts),
        ("past", "timingwheel_past", PAST_COLUMNS, changes.past),
        ("skips", "timingwheel_skips", SKIP_COLUMNS, changes.skips),
        ("name", "timingwheel_name", NAME_COLUMNS, changes.names),
        (
            "dependency",
            "timingwheel_dependency",
            DEPENDENCY_COLUMNS,
            changes.dependencies,
        ),
    ):
        if rows:
            found.append((name, _insert(table, columns, rows)))
    updates: list[tuple[str, str, Sequence[str], Sequence[str], list[Values]]] = [
        ("job", "timingwheel_job", JOB_COLUMNS, JOB_KEY, changes.jobs),
        ("run", "timingwheel_run", RUN_COLUMNS, RUN_KEY, changes.runs),
        (
            "touched",
            "timingwheel_job",
            (*JOB_KEY, "version"),
            JOB_KEY,
            changes.touched,
        ),
        (
            "past_change",
            "timingwheel_past",
            (*RUN_KEY, "discarded", "body"),
            RUN_KEY,
            changes.past_changes,
        ),
    ]
    found += [
        (name, _update(table, columns, key, rows))
        for name, table, columns, key, rows in updates
        if rows
    ]
    deletes: list[tuple[str, str, Sequence[str], list[Values]]] = [
        ("old_run", "timingwheel_run", RUN_KEY, changes.old_runs),
        ("old_past", "timingwheel_past", RUN_KEY, changes.old_past),
        ("old_name", "timingwheel_name", NAME_COLUMNS, changes.old_names),
        (
            "old_dependency",
            "timingwheel_dependency",
            DEPENDENCY_COLUMNS,
            changes.old_dependencies,
        ),
    ]
    found += [
        (name, _delete(table, columns, rows))
        for name, table, columns, rows in deletes
        if rows
    ]
    return found + _folded(changes.folded)


def _folded(rows: Sequence[Values]) -> list[tuple[str, Statement]]:
    """Return what takes rows of attempts into the row of their run, which has ended."""
    if not rows:
        return []
    at = [PAST_COLUMNS.index(name) for name in RUN_KEY]
    keys = [tuple(row[place] for place in at) for row in rows]
    delete, values = _delete("timingwheel_attempt", RUN_KEY, keys)
    chosen = ", ".join(
        "coalesce(f.tries, ''::bytea) || u.tries"
        if name == "tries"
        else f"u.{name}{_CASTS.get(name, '')}"
        for name in PAST_COLUMNS
    )
    source, more_values = _unnested(PAST_COLUMNS, rows)
    insert = (
        f"INSERT INTO timingwheel_past ({', '.join(PAST_COLUMNS)}) SELECT {chosen} "
        f"FROM ok, {source} LEFT JOIN fold f ON "
        f"{' AND '.join(f'f.{name} = u.{name}' for name in RUN_KEY)} WHERE ok.ok"
    )
    return [
        ("old_attempt", (f"{delete} RETURNING t.*", values)),
        ("fold", (_FOLD, [])),
        ("folded", (insert, more_values)),
    ]


def insertion(table: str, columns: Sequence[str], rows: Sequence[Values]) -> Statement:
    """Return what inserts rows, but for those that are there."""
    chosen = ", ".join(f"u.{name}{_CASTS.get(name, '')}" for name in columns)
    source, values = _unnested(columns, rows)
    return (
        f"INSERT INTO {table} ({', '.join(columns)}) SELECT {chosen} "
        f"FROM {source} ON CONFLICT DO NOTHING"
    ), values


def _insert(table: str, columns: Sequence[str], rows: Sequence[Values]) -> Statement:
    chosen = ", ".join(f"u.{name}{_CASTS.get(name, '')}" for name in columns)
    source, values = _unnested(columns, rows)
    # A skip range or a dependency may be there from before a retry by hand.
    again = table in ("timingwheel_skips", "timingwheel_dependency")
    rest = " ON CONFLICT DO NOTHING" if again else ""
    return (
        (
            f"INSERT INTO {table} ({', '.join(columns)}) SELECT {chosen} "
            f"FROM ok, {source} WHERE ok.ok{rest}"
        ),
        values,
    )


def _update(
    table: str, columns: Sequence[str], key: Sequence[str], rows: Sequence[Values]
) -> Statement:
    sets = [
        f"{name} = u.{name}{_CASTS.get(name, '')}"
        for name in columns
        if name not in key and name != "version"
    ]
    sets.append("version = t.version + 1")
    source, values = _unnested(columns, rows)
    return (
        (
            f"UPDATE {table} t SET {', '.join(sets)} FROM ok, {source} "
            f"WHERE ok.ok AND {same_key('t', 'u', key)}"
        ),
        values,
    )


def _delete(table: str, columns: Sequence[str], rows: Sequence[Values]) -> Statement:
    source, values = _unnested(columns, rows)
    where = same_key("t", "u", columns)
    return f"DELETE FROM {table} t USING ok, {source} WHERE ok.ok AND {where}", values


def _unnested(
    columns: Sequence[str], rows: Sequence[Values]
) -> tuple[str, list[object]]:
    """Return rows as a table u, and its parameters: an array a column."""
    marks: list[str] = []
    values: list[object] = []
    for name, column in zip(columns, zip(*rows, strict=True), strict=True):
        kind = TYPES.get(name, "bigint")
        marks.append(f"%s::{kind}[]")
        values.append(_ARRAYS[kind](column))
    return f"unnest({', '.join(marks)}) AS u({', '.join(columns)})", values


_ARRAYS: Final = {"bigint": Ints, "text": Texts, "bytea": Blobs, "boolean": Bools}
