"""What there is to do for a node, seen in one statement; most often it is nothing.

Each turn of a node begins with this look, and ends with it if all is quiet. It tells which
shards have something due and when the next thing will be, so a node that looks seldom is
not late; and of rarer work only whether there is some: that is then read.
Every part is a probe or two of an index, so a look costs the same whatever waits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from timingwheel.engine.records import Base
from timingwheel.stores.postgres.connections import Connections, Ints
from timingwheel.stores.postgres.lanes import IS_WAITING, LEAD

SOON_NS: Final = 3_000_000_000
"""How far ahead a look sees; a node looks again before that is over."""
_LOOK: Final = f"""
WITH RECURSIVE clock AS MATERIALIZED (
    SELECT timingwheel_now() AS wall_ns, steps_ns FROM timingwheel_meta
),
bases AS MATERIALIZED (
    SELECT {int(Base.ELAPSED)} AS base, wall_ns - steps_ns AS now_ns FROM clock
    UNION ALL SELECT {int(Base.WALL)}, wall_ns FROM clock
),
run AS MATERIALIZED (
    SELECT own.shard, d.wake_ns - bases.now_ns AS in_ns
    FROM unnest(%s::bigint[]) AS own(shard), bases, LATERAL (
        SELECT r.wake_ns FROM timingwheel_run r
        WHERE r.shard = own.shard AND r.wake_base = bases.base
        AND r.wake_ns <= bases.now_ns + {SOON_NS} AND r.wake_ns IS NOT NULL
        AND r.state IN ('planned', 'retrying')
        ORDER BY r.wake_ns LIMIT 1
    ) AS d
),
job AS MATERIALIZED (
    SELECT d.wake_ns - bases.now_ns AS in_ns
    FROM unnest(%s::bigint[]) AS own(shard), bases, LATERAL (
        SELECT j.wake_ns FROM timingwheel_job j
        WHERE j.shard = own.shard AND j.wake_base = bases.base
        AND j.wake_ns <= bases.now_ns + {SOON_NS} AND j.wake_ns IS NOT NULL
        ORDER BY j.wake_ns LIMIT 1
    ) AS d
),
lead AS MATERIALIZED (
    SELECT d.lead_ns FROM bases, LATERAL (
        (
            SELECT {LEAD} AS lead_ns FROM timingwheel_run r
            WHERE {IS_WAITING} AND r.wake_base = bases.base ORDER BY {LEAD} LIMIT 1
        ) UNION ALL (
            SELECT {LEAD} FROM timingwheel_run r
            WHERE {IS_WAITING} AND r.wake_base = bases.base ORDER BY {LEAD} DESC LIMIT 1
        )
    ) AS d
),
holder(inc) AS (
    (
        SELECT r.inc FROM timingwheel_run r WHERE r.state = 'running'
        ORDER BY r.inc LIMIT 1
    ) UNION ALL SELECT (
        SELECT r.inc FROM timingwheel_run r WHERE r.state = 'running'
        AND r.inc > holder.inc ORDER BY r.inc LIMIT 1
    ) FROM holder WHERE holder.inc IS NOT NULL
)
SELECT c.wall_ns, c.steps_ns,
    ARRAY(SELECT DISTINCT shard FROM run WHERE in_ns <= 0),
    EXISTS (SELECT 1 FROM job WHERE in_ns <= 0),
    EXISTS (SELECT 1 FROM timingwheel_run r WHERE r.state = 'ready' AND NOT r.held),
    EXISTS (
        SELECT 1 FROM timingwheel_run r WHERE r.expires_ns <= c.wall_ns
        AND r.expires_ns IS NOT NULL AND r.state = 'ready' AND r.attempts = 0
    ),
    EXISTS (
        SELECT 1 FROM holder WHERE holder.inc IS NOT NULL AND NOT EXISTS (
            SELECT 1 FROM timingwheel_member m
            WHERE m.inc = holder.inc AND m.until_ns > c.wall_ns - c.steps_ns
        )
    ),
    EXISTS (
        SELECT 1 FROM timingwheel_run r
        WHERE r.inc = ANY(%s) AND r.asked > 0 AND r.state = 'running'
    ),
    (SELECT count(*) + coalesce(sum(version), 0) FROM timingwheel_queue)::bigint,
    (
        SELECT coalesce(sum(m.idle), 0) FROM timingwheel_member m
        WHERE m.until_ns > c.wall_ns - c.steps_ns AND NOT m.inc = ANY(%s)
    )::bigint,
    (
        SELECT min(in_ns) FROM (
            SELECT in_ns FROM run UNION ALL SELECT in_ns FROM job
        ) AS n WHERE in_ns > 0
    ),
    (SELECT coalesce(min(lead_ns) < max(lead_ns), false) FROM lead)
FROM clock c
"""


class Look(NamedTuple):
    """What a node's shards hold at one moment.

    Attributes:
        wall_ns, steps_ns: the present, and how far it is ahead of elapsed time.
        due: shards with runs whose time has come.
        has_jobs, has_ready, has_late, has_orphans, has_asked: whether there are jobs to be
            fired; in any shard ready runs, ready runs too late to start, and attempts
            without a living worker; attempts of this process that are to be ended.
        queues: another number whenever a queue has changed.
        idle: how many runs the workers of other processes could take besides.
        next_ns: how long until the next thing is due, if that is soon.
        has_ranks: whether runs that wait for their time differ in priority, in any shard.
    """

    wall_ns: int
    steps_ns: int
    due: list[int]
    has_jobs: bool
    has_ready: bool
    has_late: bool
    has_orphans: bool
    has_asked: bool
    queues: int
    idle: int
    next_ns: int | None
    has_ranks: bool

    @property
    def has_work(self) -> bool:
        """Whether a turn would find something, pauses of queues apart."""
        some = self.has_jobs or self.has_ready or self.has_late
        return bool(self.due) or some or self.has_orphans or self.has_asked


def look(connections: Connections, shards: Sequence[int], incs: Sequence[int]) -> Look:
    """Return what there is to do.

    Args:
        connections: to the database.
        shards: of this node.
        incs: the numbers of the workers of this process.

    Cost: one statement, two probes of two indexes a shard and some more.
    """
    own = Ints(shards)
    values = [own, own, Ints(incs), Ints(incs)]
    [row] = connections.rows(_LOOK, values)
    return Look(*row)
