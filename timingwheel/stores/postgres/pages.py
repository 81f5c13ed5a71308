"""Pages of what is listed, as SQL: their conditions, and the parts that a page of runs has.

A page of runs is one statement over what waits, what runs and what has ended, since a run
may go from one to the next meanwhile: it is found once.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from typing import Final

import msgspec

from timingwheel.errors import ArgumentError
from timingwheel.jobs.model import RunState
from timingwheel.stores.history_entries import searched
from timingwheel.stores.history_queries import LIMIT_MAX
from timingwheel.stores.postgres.connections import Statement
from timingwheel.stores.postgres.rows import SHOWN_LIVE, SHOWN_PAST

IN_ORDER: Final = "{table}.shard >= 0"
"""Always so; who says it may read along an index of pages: see schema.py."""


class Wanted:
    """The conditions of a WHERE, with their values in the same order.

    Args:
        table: its alias.
        limit: of rows in a page, 1 to LIMIT_MAX.

    Raises:
        ArgumentError: the limit is none.
    """

    def __init__(self, table: str, limit: int) -> None:
        if not 1 <= limit <= LIMIT_MAX:
            raise ArgumentError("limit", limit, f"pass 1 to {LIMIT_MAX}")
        self._table = table
        self._limit = limit
        self._terms: list[str] = []
        self._values: list[object] = []

    def page(self, columns: str, source: str, order: str) -> Statement:
        """Return the question for a page, and one more row: is there another?"""
        where = " AND ".join(self._terms) or "true"
        sql = f"SELECT {columns} FROM {source} WHERE {where} ORDER BY {order} LIMIT %s"
        return sql, [*self._values, self._limit + 1]

    def and_(self, term: str, *values: object) -> Wanted:
        """Return these conditions and one more."""
        more = copy(self)
        more.add(term, *values)
        return more

    def add(self, term: str, *values: object) -> None:
        """Add a condition."""
        self._terms, self._values = [*self._terms, term], [*self._values, *values]

    def equal(self, column: str, value: str | None) -> None:
        """Add that a column is as given, unless that does not matter: None."""
        if value is not None:
            self.add(f"{self._table}.{column} = %s", searched(value))

    def tags(self, tags: Mapping[str, str] | None) -> None:
        """Add that all these tags are there."""
        if tags:
            clean = {searched(name): searched(value) for name, value in tags.items()}
            text = msgspec.json.encode(clean).decode()
            self.add(f"{self._table}.tags @> %s::jsonb", text)


def page_of_runs(
    live: Wanted,
    past: Wanted,
    order: str,
    *,
    states: frozenset[RunState] | None = None,
    of_job: bool = False,
) -> Statement:
    """Return the question for a page of runs: what waits, what runs, and what is past.

    Args:
        live: which live runs.
        past: which past ones.
        order: of the page.
        states: the only ones that are asked for, as `live` says already; None: any.
        of_job: whether they are those of one job, which are found by their key.
    """
    in_order = "true" if of_job else IN_ORDER.format(table="r")
    # Not in order: it is read by the index of what runs, from end to end.
    running = live.and_("r.state = 'running'")
    waiting = live.and_(f"{in_order} AND r.state <> 'running'")
    if states is not None and RunState.RUNNING not in states:
        running = running.and_("false")
    if states == frozenset({RunState.RUNNING}):
        waiting = waiting.and_("false")
    parts = (
        waiting.page(SHOWN_LIVE, "timingwheel_run r", order),
        running.page(SHOWN_LIVE, "timingwheel_run r", order),
        past.and_(in_order).page(SHOWN_PAST, "timingwheel_past r", order),
    )
    sql = " UNION ALL ".join(f"({part})" for part, _ in parts)
    values = [value for _, some in parts for value in some]
    return f"{sql} ORDER BY {order} LIMIT %s", [*values, values[-1]]
