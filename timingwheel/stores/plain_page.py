"""Plain jobs for a page, of what may be millions: the newest, or from a slot on.

A row is told by the part of its payload that a query can ask for, so a Run or a Job is made
for those of the page alone.
"""

from __future__ import annotations

from heapq import heappush, heappushpop
from typing import Final

from timingwheel.jobs.model import Run
from timingwheel.jobs.store import JobQuery, RunQuery
from timingwheel.stores.history_queries import parse_run_cursor
from timingwheel.stores.plain import decode_lane
from timingwheel.stores.reading import Reading, SeenRow
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
    before = None if query.cursor is None else parse_run_cursor(query.cursor)
    newest: list[tuple[_Place, SeenRow]] = []
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
                heappush(newest, (place, (row, is_due)))
            else:
                heappushpop(newest, (place, (row, is_due)))
            if len(newest) == count:
                least = newest[0][0]
    return [read.seen_run(seen) for _, seen in newest]


def plain_from(
    read: Reading, query: RunQuery | JobQuery, slot: int, *, count: int
) -> tuple[list[SeenRow], int | None]:
    """Return rows of plain jobs that a query means, in the order of slots.

    Args:
        read: the live part of the store.
        query: which; its limit and its cursor do not count.
        slot: where to begin.
        count: rows at most.

    Returns:
        They, and the slot of the next one; None: there is none.
    """
    found: list[SeenRow] = []
    states = query.states if isinstance(query, RunQuery) else None
    for rows in read.walk_rows(states, start=slot):
        for row, is_due in rows:
            if not _is_meant(query, decode_lane(row.payload)):
                continue
            if len(found) < count:
                found.append((row, is_due))
                continue
            next_slot = read.slot_of(row)
            if next_slot is not None:  # else it has ended since
                return found, next_slot
    return found, None


def _is_meant(query: RunQuery | JobQuery, lane: PlainLane) -> bool:
    if query.tags or query.task not in (None, lane.t):
        return False
    if query.queue not in (None, lane.q):
        return False
    return isinstance(query, JobQuery) or (
        not query.discarded
        and (query.since_ns is None or lane.n >= query.since_ns)
        and (query.until_ns is None or lane.n < query.until_ns)
    )
