"""Due plain runs go to a free slot in one statement: planned, and running at once.

A plain run that nothing bounds need not be made ready first: the node that fires its shard
hands it to a worker of its own when it is due, as long as the shard is its own, and finds
the row as it was seen, with its version, or leaves it. Nothing is taken while a ready run
that the worker could be given has a better rank; what this statement does not know how to
weigh (queues that were set, caps, runs that may start only once) is left to claiming.py.

    fire     leaves such runs alone as long as workers come for them, see `Taking.direct`
    claim    first takes, then claims what is ready
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from timingwheel.clock import Clock
from timingwheel.jobs.model import Payload, Policy, Run, RunState
from timingwheel.jobs.store import Claim
from timingwheel.stores.plain import decode_plain
from timingwheel.stores.postgres.connections import Connections, Ints, Texts
from timingwheel.stores.postgres.due import DIRECT, OWN_AND_CLOCK
from timingwheel.stores.postgres.guard import Lease
from timingwheel.stores.postgres.lanes import IN_LANE, IS_WAITING, LANE
from timingwheel.stores.postgres.membership import Membership
from timingwheel.stores.postgres.plain_end import Place, PlainEnds
from timingwheel.stores.postgres.steps import Steps

HOLD_NS: Final = 10_000_000_000
"""How long due runs are left to workers that do not get through them.

After this time they are made ready, as all others are, and workers of other nodes may have
them, too."""
TAKEN_LANES_MAX: Final = 32
"""With more lanes, the earliest of each shard are taken; if workers do not get through
them, what is due becomes ready, and goes by rank."""
PART_MORE: Final = 2
"""Of each shard its part of what is wanted is looked at, and so many runs more."""

_TELL: Final = """
UPDATE timingwheel_member m SET idle = u.idle
FROM unnest(%s::bigint[], %s::bigint[]) AS u(inc, idle) WHERE m.inc = u.inc
"""
# A run is found, locked and changed where it stands: its place is read, compared and used in
# this one statement. A row that somebody changes meanwhile stands elsewhere, with another
# version, and is left.
# SKIP LOCKED is no guard: a row that another worker takes just now would be found changed
# after the wait; this only saves that wait, and as nothing waits, no order is needed.
_TAKE_OF: Final = f"""
WITH RECURSIVE worker AS MATERIALIZED (
    SELECT inc FROM timingwheel_member
    WHERE inc = %s AND until_ns > timingwheel_elapsed() FOR SHARE
),
{OWN_AND_CLOCK},
{{due}},
ready AS MATERIALIZED (
    SELECT r.ctid AS at, r.version, r.rank, r.seq,
        r.plain AND r.cap IS NULL AND NOT r.once AND NOT EXISTS (
            SELECT 1 FROM timingwheel_queue q WHERE q.name = r.queue
        ) AS direct
    FROM timingwheel_run r
    WHERE r.state = 'ready' AND NOT r.held AND r.task = ANY(%s)
    ORDER BY r.rank, r.seq LIMIT %s
),
barrier AS MATERIALIZED (
    SELECT rank, seq FROM ready WHERE NOT direct ORDER BY rank, seq LIMIT 1
),
chosen AS MATERIALIZED (
    SELECT f.* FROM (SELECT * FROM due UNION ALL SELECT * FROM ready) AS f
    WHERE f.direct AND NOT EXISTS (
        SELECT 1 FROM barrier b WHERE (b.rank, b.seq) < (f.rank, f.seq)
    ) ORDER BY f.rank, f.seq LIMIT %s
),
locked AS MATERIALIZED (
    SELECT r.ctid AS at FROM chosen c
    JOIN timingwheel_run r ON r.ctid = c.at AND r.version = c.version
    WHERE EXISTS (SELECT 1 FROM worker) FOR UPDATE OF r SKIP LOCKED
),
taken AS (
    UPDATE timingwheel_run r SET state = 'running', version = r.version + 1,
        attempts = 1, started_ns = timingwheel_now(),
        token = nextval('timingwheel_token'), worker = %s, inc = %s, caps = NULL,
        asked = 0, wake_ns = NULL
    FROM locked u WHERE r.ctid = u.at
    RETURNING r.ctid AS at, r.shard, r.job_id, r.nominal_ns, r.token, r.started_ns, r.created_ns, r.body,
        r.rank, r.seq
)
SELECT EXISTS (SELECT 1 FROM worker), (SELECT count(*) FROM chosen),
    EXISTS (SELECT 1 FROM barrier), EXISTS (SELECT 1 FROM due WHERE NOT direct),
    {{has_many}}, t.*
FROM (VALUES (1)) AS one LEFT JOIN taken t ON true ORDER BY t.rank, t.seq
"""
_DUE: Final = f"""SELECT r.at, r.version, r.rank, r.seq, {DIRECT} AS direct
FROM {{where}}, LATERAL (
    SELECT r.*, r.ctid AS at FROM timingwheel_run r
    WHERE r.shard = own.shard AND {{which}}
    AND r.wake_ns <= clock.now_ns AND {IS_WAITING} ORDER BY r.wake_ns LIMIT %s
) AS r"""
_DUE_OF_SHARDS: Final = _DUE.format(
    where="own, clock", which="r.wake_base = clock.base"
)
TAKE: Final = _TAKE_OF.format(
    due=f"due AS MATERIALIZED ({_DUE_OF_SHARDS})", has_many="false"
)
"""Of each shard the earliest: if all have one priority, those are the best by rank."""
_DUE_OF_LANES: Final = _DUE.format(
    where="""many JOIN lanes AS lane ON NOT many.are_many
    JOIN clock ON clock.base = lane.base CROSS JOIN own""",
    which=IN_LANE,
)
TAKE_BY_RANK: Final = _TAKE_OF.format(
    due=f"""{LANE},
lanes AS MATERIALIZED (SELECT * FROM lane LIMIT {TAKEN_LANES_MAX + 1}),
many AS MATERIALIZED (SELECT count(*) > {TAKEN_LANES_MAX} AS are_many FROM lanes),
due AS MATERIALIZED (
    {_DUE_OF_LANES} UNION ALL
    SELECT r.* FROM many, LATERAL ({_DUE_OF_SHARDS}) AS r WHERE many.are_many
)""",
    has_many="(SELECT are_many FROM many)",
)
"""Of each lane and shard the earliest; with many lanes, as TAKE.

Values: those of TAKE; the tasks and how many of a shard a second time."""


class Took(NamedTuple):
    """What one statement has taken.

    Attributes:
        claims: in order of rank.
        is_alive: whether the worker's lease lasts; else there are none.
        missed: how many it has chosen and not got: others were quicker.
        is_blocked: whether a ready run is there that only claiming.py can weigh.
        has_loose: whether there are due runs that must be made ready first.
    """

    claims: list[Claim]
    is_alive: bool
    missed: int
    is_blocked: bool
    has_loose: bool


class Taking:
    """What the workers of this process take directly. Thread-safe.

    Args:
        connections: to the database.
        members: who lives, and which shards this node fires.
        steps: what is known of the database's clock.
        clock: for how long due runs have been left.
        ends: ends what is taken.
    """

    def __init__(
        self,
        connections: Connections,
        members: Membership,
        steps: Steps,
        clock: Clock,
        ends: PlainEnds,
    ) -> None:
        self._steps = steps
        self._ends = ends
        self._connections = connections
        self._members = members
        self._clock = clock
        self._lock = threading.Lock()
        self._tasks: set[str | None] = set()
        self._expects = False
        self._is_blocked = False
        self._is_full = False
        self._has_ranks = False
        self._has_loose = False
        self._left_since_ns: int | None = None
        self._due: Mapping[int, Lease] | None = None
        self._idle: dict[int, int] = {}
        self._told: dict[int, int] = {}

    # -- for fire -----------------------------------------------------------------------

    def expect(self) -> None:
        """Note that a worker has joined, and will soon come for the first time."""
        with self._lock:
            self._expects = True

    def direct(self, *, others_idle: bool, has_ranks: bool) -> Texts | None:
        """Return, once, for which tasks workers have come since the last call.

        There are none, if it is better that what is due becomes ready, and goes by rank
        and to all nodes: since workers could not take all that they saw, do not get through
        what is due, or have enough while workers of other nodes have nothing. None: what is
        due is left, this time, as nobody knows yet what the workers will come for.

        Args:
            others_idle: whether workers of other nodes could take more.
            has_ranks: whether runs that wait differ in priority; from now on that is minded.
        """
        now_ns = self._clock.monotonic_ns()
        with self._lock:
            self._has_ranks = has_ranks
            expects, self._expects = self._expects, False
            if expects:
                return None
            tasks, self._tasks = self._tasks, set()
            since_ns = self._left_since_ns
            is_late = since_ns is not None and now_ns - since_ns > HOLD_NS
            if is_late or self._is_blocked or (others_idle and self._is_full):
                return Texts()
            return Texts(tasks)

    def leave(self, due: Mapping[int, Lease]) -> None:
        """Note which shards of this node have due runs that are left to workers."""
        with self._lock:
            self._due = due
            if not due:
                self._left_since_ns = None
            elif self._left_since_ns is None:
                self._left_since_ns = self._clock.monotonic_ns()

    def loose(self) -> bool:
        """Return, once, whether some of what was left must be made ready first."""
        with self._lock:
            has_loose, self._has_loose = self._has_loose, False
        return has_loose

    # -- for claims ---------------------------------------------------------------------

    def take(self, worker: str, inc: int, *, tasks: Texts, count: int) -> Took:
        """Take due and ready runs, at most so many, and the best of those seen.

        Args:
            worker: who; it has joined.
            inc: under which number.
            tasks: what it can run.
            count: how many at most.

        Cost: one statement.
        """
        with self._lock:
            leases, self._due = self._due, None
            by_rank = self._has_ranks
        if leases is None:
            leases = self._members.leases
        shards, epochs = Ints(leases), Ints(lease.epoch for lease in leases.values())
        # More of each shard than its part, so that the best of all are among them.
        part = min(count, count // max(len(leases), 1) + PART_MORE)
        before_ns = self._steps.bounds_ns(self._clock.monotonic_ns())[1]
        values = [
            *(inc, shards, epochs, self._members.inc, before_ns),
            *((tasks, part) * (2 if by_rank else 1)),
            *(tasks, count, count, worker, inc),
        ]
        sql = TAKE_BY_RANK if by_rank else TAKE
        rows = self._connections.rows(sql, values, binary=True)
        is_alive, chosen, is_blocked, has_loose, has_many = rows[0][:5]
        claims: list[Claim] = []
        for row in rows:
            if row[5] is not None:
                claim, policy = _claim(row[7:])
                claims.append(claim)
                place = Place(row[5], row[6], worker, inc)
                self._ends.note(claim, policy, place)
        with self._lock:
            self._tasks.update(tasks)
            self._is_full = len(claims) >= count
            self._is_blocked = is_blocked or (has_many and self._is_full)
            self._has_loose = self._has_loose or has_loose
            self._idle[inc] = count - len(claims)
            is_news = not claims and not self._told.get(inc)
        if is_news:
            self._tell({inc: count})  # at once: there may be much for it elsewhere
        return Took(claims, is_alive, chosen - len(claims), is_blocked, has_loose)

    def tend(self) -> None:
        """Tell all nodes how much more the workers of this process could take.

        Cost: a statement if that has changed.
        """
        incs = self._members.incs()
        with self._lock:
            idle = {inc: self._idle.get(inc, 0) for inc in incs}
            self._idle = {}
        with self._lock:
            former, self._told = (
                self._told,
                {inc: self._told.get(inc, 0) for inc in idle},
            )
        changed = {inc: n for inc, n in idle.items() if former.get(inc, 0) != n}
        if changed:
            self._tell(changed)

    def _tell(self, idle: Mapping[int, int]) -> None:
        incs = sorted(idle)  # as others who tell of the same remote workers
        self._connections.rows(_TELL, [Ints(incs), Ints(idle[inc] for inc in incs)])
        with self._lock:
            self._told.update(idle)


def _claim(row: tuple[Any, ...]) -> tuple[Claim, Policy]:
    job_id, nominal_ns, token, started_ns, created_ns, body = row[:6]
    plain = decode_plain(body)
    run = Run(
        job_id=job_id,
        nominal_ns=nominal_ns,
        due_ns=nominal_ns,
        state=RunState.RUNNING,
        task=plain.t,
        queue=plain.q,
        priority=plain.r,
        attempts=1,
        created_ns=created_ns,
        started_ns=started_ns,
    )
    claim = Claim(
        run=run,
        payload=Payload(plain.p, plain.v),
        token=token,
        timeout_ns=plain.o.timeout_ns,
        last=plain.o.retry.attempts <= 1,
    )
    return claim, plain.o
