"""Entries into tables: the only place that changes what the history tells.

One statement a table and batch. Entries that take others back (`revive`, `discard_run`)
are rare, made by people; they split a batch, so that order holds across tables as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Final

from timingwheel.errors import ArgumentError
from timingwheel.jobs.model import parse_run_id
from timingwheel.stores.history_entries import (
    Entry,
    attempt_rows,
    decode_id,
    job_rows,
    run_rows,
    skip_rows,
)
from timingwheel.stores.sqlite_files import Connection


def _insert(table: str, columns: int, *, body: bool) -> str:
    values = [f"json_extract(value, '$[{place}]')" for place in range(columns)]
    if body:
        first, size = (f"json_extract(value, '$[{columns + at}]')" for at in (0, 1))
        values.append(f"substr(:bodies, {first}, {size})")
    into = ("INSERT OR REPLACE INTO", table, "SELECT", ", ".join(values))
    return " ".join((*into, "FROM json_each(:columns)"))


_INSERT_RUNS: Final = _insert("runs", 11, body=True)
_INSERT_ATTEMPTS: Final = _insert("attempts", 2, body=True)
_INSERT_JOBS: Final = _insert("jobs", 9, body=True)
_INSERT_SKIPS: Final = _insert("skips", 5, body=False)
_INSERT_TAGS: Final = """
INSERT OR REPLACE INTO run_tags
SELECT tag.key, tag.value, json_extract(run.value, '$[1]'),
    json_extract(run.value, '$[0]'), json_extract(run.value, '$[2]')
FROM json_each(:columns) AS run, json_each(run.value, '$[3]') AS tag
"""
# The table of the revived is nearly empty, so looking through it costs nothing.
_SETTLE_REVIVED: Final = """
DELETE FROM revived WHERE (job_id, nominal_ns, n) IN (
    SELECT runs.job_id, runs.nominal_ns, runs.n FROM revived JOIN runs
    USING (job_id, nominal_ns, n)
)
"""
_TABLE_OF: Final = {
    "run": "runs",
    "plain": "runs",
    "attempt": "attempts",
    "job": "jobs",
    "skips": "skips",
}
_DELETE_RUN: Final = "DELETE FROM runs WHERE job_id = ? AND nominal_ns = ? AND n = ?"
_DELETE_REVIVED: Final = (
    "DELETE FROM revived WHERE job_id = ? AND nominal_ns = ? AND n = ?"
)


def require_order(entries: Sequence[Entry]) -> None:
    """Check that entries can be applied.

    Raises:
        ArgumentError: they are out of order, or of a kind that there is not.
    """
    former_lsn = 0
    for entry in entries:
        if entry.lsn < former_lsn:
            raise ArgumentError(
                "entries", entry.lsn, f"pass them in LSN order; {former_lsn} was before"
            )
        if entry.kind not in _TABLE_OF and not _takes_back(entry):
            raise ArgumentError("entries", entry.kind, "pass a kind that Kind lists")
        former_lsn = entry.lsn


def apply(connection: Connection, entries: Sequence[Entry], now_ns: int) -> None:
    """Bring entries into the tables; the caller has begun a transaction and commits it.

    Args:
        connection: to write by.
        entries: in LSN order.
        now_ns: about when the jobs among them ended.
    """
    for is_taken_back, part in groupby(entries, _takes_back):
        if is_taken_back:
            for entry in part:
                _take_back(connection, entry)
        else:
            _take_in(connection, list(part), now_ns)
    connection.execute("UPDATE progress SET reached_lsn = ?", (entries[-1].lsn,))


def _takes_back(entry: Entry) -> bool:
    return entry.kind in {"revive", "discard_run"}


def _take_in(connection: Connection, entries: Sequence[Entry], now_ns: int) -> None:
    """Insert entries, of which none takes back another: each table by itself."""
    by_table: dict[str, list[Entry]] = {}
    for entry in entries:
        by_table.setdefault(_TABLE_OF[entry.kind], []).append(entry)
    if runs := by_table.get("runs"):
        rows, tags = run_rows(runs)
        connection.execute(_INSERT_RUNS, rows._asdict())
        if tags:
            connection.execute(_INSERT_TAGS, {"columns": tags})
        connection.execute(_SETTLE_REVIVED)
    if attempts := by_table.get("attempts"):
        rows = attempt_rows([entry.body for entry in attempts])
        connection.execute(_INSERT_ATTEMPTS, rows._asdict())
    if jobs := by_table.get("jobs"):
        rows = job_rows([entry.body for entry in jobs], now_ns)
        connection.execute(_INSERT_JOBS, rows._asdict())
    if skips := by_table.get("skips"):
        rows = skip_rows([entry.body for entry in skips])
        connection.execute(_INSERT_SKIPS, {"columns": rows.columns})


def _take_back(connection: Connection, entry: Entry) -> None:
    run_id = decode_id(entry.body)
    identity = parse_run_id(run_id)
    connection.execute(_DELETE_RUN, identity)
    if entry.kind == "revive":
        connection.execute("INSERT OR REPLACE INTO revived VALUES (?, ?, ?)", identity)
    else:
        connection.execute(_DELETE_REVIVED, identity)
        connection.execute("DELETE FROM attempts WHERE run_id = ?", (run_id,))
