"""How much is made ready at once: what workers will soon take, and no more.

What is due and does not fit stays planned; it costs nothing there. As long as all that is
due fits, it is made ready as it comes (READY in due.py). Once something is left over, the
store is *crowded*, and a node looks at it lane by lane (lanes.py).

Each task of each queue has a window of its own, because what nobody may start (a task
that no worker knows, a queue that is paused or full) fills its own and takes no room of
the others. Runs under a concurrency cap do not count, since the cap may be full: so work
never stalls for the window. And what has a better rank than the last run in a full window
becomes ready nevertheless, so order does not suffer.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

from timingwheel.clock import Clock
from timingwheel.stores.postgres.connections import (
    Connections,
    Ints,
    Statement,
    Texts,
)
from timingwheel.stores.postgres.due import MADE_READY, OWN_AND_CLOCK, READY
from timingwheel.stores.postgres.lanes import (
    IN_LANE,
    IS_WAITING,
    LANES,
    LANES_MAX,
    Lane,
)

WINDOW_MIN: Final = 1_024
"""The least size of a Scheduler's window."""
SEEN_WINDOWS: Final = 4
"""So many windows' worth of ready runs are looked at: those with the best ranks."""
PART_MIN: Final = 4
"""Due runs that are looked at in each lane and shard, at least."""
REST_MIN_NS: Final = 20_000_000
"""Between two looks of a node whose window others empty quickly."""
REST_MAX_NS: Final = 1_000_000_000

_WAITING: Final = """
SELECT first.queue, first.task, count(*),
    (array_agg(first.rank ORDER BY first.rank))[%s::int]
FROM (
    SELECT r.queue, r.task, r.rank, r.cap IS NULL AND NOT r.alone AS counts
    FROM timingwheel_run r WHERE r.state = 'ready' AND NOT r.held
    ORDER BY r.rank, r.seq LIMIT %s
) AS first WHERE first.counts GROUP BY first.queue, first.task
"""
"""Ready runs that count: queue, task, how many, the rank of the last one in the window."""

_PLACES: Final = """
SELECT coalesce(sum(places), 0)::bigint FROM timingwheel_member
WHERE until_ns > timingwheel_elapsed()
"""
_PUBLISH: Final = """
UPDATE timingwheel_member m SET places = u.places
FROM unnest(%s::bigint[], %s::bigint[]) AS u(inc, places)
WHERE m.inc = u.inc AND m.places <> u.places
"""
_CROWDED: Final = f"""
WITH {OWN_AND_CLOCK},
lane AS MATERIALIZED (
    SELECT * FROM unnest(
        %s::text[], %s::text[], %s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[]
    ) AS u(queue, task, base, lead_ns, room, last_rank)
),
found AS MATERIALIZED (
    SELECT d.*, lane.queue, lane.task, lane.room, lane.last_rank
    FROM lane JOIN clock ON clock.base = lane.base, own, LATERAL (
        SELECT r.shard, r.job_id, r.nominal_ns, r.n, r.version, r.rank, r.seq
        FROM timingwheel_run r
        WHERE {IN_LANE} AND r.shard = own.shard
        AND r.wake_ns <= clock.now_ns AND {IS_WAITING}
        ORDER BY r.wake_ns LIMIT %s
    ) AS d
),
placed AS (
    SELECT f.*, row_number() OVER (
        PARTITION BY f.queue, f.task ORDER BY f.rank, f.seq
    ) AS place FROM found f
),
due AS MATERIALIZED (
    SELECT * FROM placed p WHERE p.place <= p.room OR p.rank < p.last_rank
    ORDER BY p.rank, p.seq LIMIT %s
),
{MADE_READY}"""
"""As READY, by rank, and of each lane what there is room for.

Values: those of OWN_AND_CLOCK, queues, tasks, bases, leads, rooms, ranks of
the last in each window, how many of a lane and shard, how many."""


class Waiting(NamedTuple):
    """Ready runs of one task in one queue.

    Attributes:
        runs: how many.
        last_rank: of the last one in the window; None if that is not full.
    """

    runs: int
    last_rank: int | None


class Window:
    """What this node may make ready now. `statement` and `fired` are of one thread.

    Args:
        connections: to the database.
        clock: for resting.
        size_min: ready runs that may wait for each task in each queue, however few
            workers there are.
    """

    def __init__(
        self, connections: Connections, clock: Clock, *, size_min: int
    ) -> None:
        self._connections = connections
        self._clock = clock
        self._size = self._size_min = size_min
        self._is_busy = False
        self._is_crowded = False
        self._asked = 0
        self._counted = 0
        self._looked_ns = clock.monotonic_ns()
        self._rest_ns = REST_MAX_NS
        self._lock = threading.Lock()
        self._asked_of_late: dict[int, int] = {}
        self._places: dict[int, int] = {}

    # -- making ready -------------------------------------------------------------------

    def statement(self, own: Sequence[object], limit: int) -> Statement:
        """Return the statement that makes ready what is due and fits.

        Args:
            own: values of OWN_AND_CLOCK.
            limit: how many at most; 1 and more.

        Cost: nothing, unless the last one has found something: then one message, or two.
        """
        if not self._is_busy:
            return self._as_it_comes(own, min(limit, self._size))
        waiting = self._look()
        room = self._size - self._counted
        if room > 0 and not self._is_crowded:
            return self._as_it_comes(own, min(limit, room))
        self._is_crowded = True
        rows = self._connections.rows(LANES, [LANES_MAX + 1])
        if len(rows) > LANES_MAX:
            return self._as_it_comes(own, min(limit, self._size))
        return self._lane_by_lane(own, limit, [Lane(*row) for row in rows], waiting)

    def _look(self) -> dict[tuple[str, str], Waiting]:
        """Learn what is ready, and how many runs workers take at once."""
        values = [self._size, SEEN_WINDOWS * self._size]
        rows, [(places,)] = self._connections.all([(_WAITING, values), (_PLACES, [])])
        self._counted = sum(count for _, _, count, _ in rows)
        with self._lock:
            here = sum(self._places.values())
        self._size = max(self._size_min, here + 2 * places)
        return {(row[0], row[1]): Waiting(row[2], row[3]) for row in rows}

    def _as_it_comes(self, own: Sequence[object], limit: int) -> Statement:
        self._asked = limit
        return READY, [*own, limit, limit]

    def _lane_by_lane(
        self,
        own: Sequence[object],
        limit: int,
        lanes: Sequence[Lane],
        waiting: Mapping[tuple[str, str], Waiting],
    ) -> Statement:
        none = Waiting(0, None)
        found = [waiting.get((lane.queue, lane.task), none) for lane in lanes]
        rooms = [max(self._size - one.runs, 0) for one in found]
        shards = own[0]
        assert isinstance(shards, Ints)
        # Twice a fair part of the room: shards are never quite even.
        part = -(-2 * min(max(rooms, default=0), limit) // max(len(shards), 1))
        return _CROWDED, [
            *own,
            Texts(lane.queue for lane in lanes),
            Texts(lane.task for lane in lanes),
            Ints(lane.base for lane in lanes),
            Ints(lane.lead_ns for lane in lanes),
            Ints(rooms),
            Ints(one.last_rank for one in found),
            max(part, PART_MIN),
            limit,
        ]

    def idle(self) -> None:
        """Take in that nothing was due."""
        self._is_busy = self._is_crowded = False
        self._rest_ns = REST_MAX_NS

    def left(self) -> None:
        """Take in that what is due is left to workers: what is ready stays as it was."""
        self._rest_ns = REST_MAX_NS

    def fired(self, count: int) -> None:
        """Take in how many runs the last statement has made ready."""
        now_ns = self._clock.monotonic_ns()
        since_ns, self._looked_ns = now_ns - self._looked_ns, now_ns
        self._rest_ns = REST_MAX_NS
        if not self._is_crowded:
            self._is_crowded = count == self._asked
        elif count:
            # Until half a window is empty, if others take as much as they have taken.
            rest_ns = since_ns * self._size // (2 * count)
            self._rest_ns = min(max(rest_ns, REST_MIN_NS), REST_MAX_NS)
        else:
            self._is_crowded = self._counted >= self._size
        self._is_busy = count > 0 or self._is_crowded

    @property
    def rest_ns(self) -> int:
        """How long the node may rest before it looks whether there is room again."""
        return self._rest_ns

    # -- places -------------------------------------------------------------------------

    def note_claim(self, inc: int, asked: int) -> None:
        """Note for how many runs a worker of that number has asked."""
        with self._lock:
            self._asked_of_late[inc] = max(self._asked_of_late.get(inc, 0), asked)

    def publish(self, incs: Collection[int]) -> None:
        """Tell all nodes how many runs the workers of this process take at once.

        Args:
            incs: numbers of those that live.

        Cost: a statement if that has changed.
        """
        with self._lock:
            # The most that each has asked for: what it takes when it has nothing.
            known = {
                inc: max(self._places.get(inc, 0), self._asked_of_late.get(inc, 0))
                for inc in self._places.keys() | self._asked_of_late.keys()
            }
            new = {inc: known[inc] for inc in incs if inc in known}
            former, self._places = self._places, new
            self._asked_of_late = {}
        changed = {inc: n for inc, n in new.items() if former.get(inc) != n}
        if changed:
            numbers = sorted(changed)  # as others who tell of the same remote workers
            values = [Ints(numbers), Ints(changed[inc] for inc in numbers)]
            self._connections.rows(_PUBLISH, values)
