"""Runs of plain jobs for a page: the newest of what may be millions.

A row is told by the part of its payload that a query can ask for, and kept only while no
`count` newer ones are found; so a Run is made for those of the page alone.
"""

from __future__ import annotations

from heapq import heappush, heappushpop
from typing import Final

from timingwheel.engine.table import Row
from timingwheel.jobs.model import Run
from timingwheel.jobs.store import JobQuery, RunQuery
from timingwheel.stores.history_queries import parse_run_cursor
from timingwheel.stores.plain import decode_lane
from timingwheel.stores.reading import Reading
from timingwheel.stores.records import PlainLane

_INT64_MIN: Final = -(1 << 63)
_Place = tuple[int, int]
"""(nominal_ns, timer id): the order of pages, as the ids of a store's plain jobs grow."""


def newest_plain(read: Reading, query: RunQuery, count: int) -> list[Run]:
    """Return the newest runs of plain jobs that a query means, in no order.

    Takes the lock in short steps. Cost: that of Reading.walk_rows, and about 0.5 us a row
    to read what it says.

    Args:
        read: the live part of the store.
        query: which; its limit does not count.
        count: runs at most, 1 or more.
    """
    if query.tags or query.discarded:
        return []  # which no plain job is that lives
    before = None if query.cursor is None else parse_run_cursor(query.cursor)
    newest: list[tuple[_Place, Row, bool]] = []
    least: _Place = (_INT64_MIN, 0)
    for rows in read.walk_rows(query.states):
        for row, is_due in rows:
            lane = decode_lane(row.payload)
            place = lane.n, row.timer_id
            if place < least or not _is_meant(query, lane):
                continue
            # The id is made for those alone whose time does not tell.
            if before is not None and lane.n >= before[0]:  # noqa: SIM102
                if (lane.n, read.plain_id(row), 0) >= before:
                    continue
            if len(newest) < count:
                heappush(newest, (place, row, is_due))
            else:
                heappushpop(newest, (place, row, is_due))
            if len(newest) == count:
                least = newest[0][0]
    return [
        read.plain_run(read.plain_row_in(row), is_due=is_due)
        for _, row, is_due in newest
    ]


def is_in_lane(query: RunQuery | JobQuery, lane: PlainLane) -> bool:
    """Return whether a plain job is of the task and the queue that a query asks for."""
    return query.task in (None, lane.t) and query.queue in (None, lane.q)


def _is_meant(query: RunQuery, lane: PlainLane) -> bool:
    return (
        is_in_lane(query, lane)
        and (query.since_ns is None or lane.n >= query.since_ns)
        and (query.until_ns is None or lane.n < query.until_ns)
    )
