"""A glance: one statement that tells an idle node whether a turn would find anything.

A turn asks many things, and most of the turns of a node that rests find nothing. So it
glances first, and goes on resting if all is quiet; a glance also says when the next thing
is due, so a node that looks seldom is not late.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from timingwheel.engine.records import Base
from timingwheel.stores.postgres.connections import Connections, Ints
from timingwheel.stores.postgres.queues import decode_queue

AHEAD_NS: Final = 3_000_000_000
"""How far a glance sees; a node glances again before that is over."""
_GLANCE: Final = f"""
WITH clock AS MATERIALIZED (
    SELECT timingwheel_now() AS wall_ns, steps_ns FROM timingwheel_meta
),
base AS MATERIALIZED (
    SELECT {int(Base.ELAPSED)} AS base, wall_ns - steps_ns AS now_ns FROM clock
    UNION ALL SELECT {int(Base.WALL)}, wall_ns FROM clock
),
next AS (
    SELECT d.wake_ns - base.now_ns AS in_ns
    FROM unnest(%s::bigint[]) AS own(shard), base, LATERAL (
        (
            SELECT r.wake_ns FROM timingwheel_run r
            WHERE r.shard = own.shard AND r.wake_base = base.base
            AND r.wake_ns <= base.now_ns + {AHEAD_NS} AND r.wake_ns IS NOT NULL
            AND r.state IN ('planned', 'retrying') ORDER BY r.wake_ns LIMIT 1
        ) UNION ALL (
            SELECT j.wake_ns FROM timingwheel_job j
            WHERE j.shard = own.shard AND j.wake_base = base.base
            AND j.wake_ns <= base.now_ns + {AHEAD_NS} AND j.wake_ns IS NOT NULL
            ORDER BY j.wake_ns LIMIT 1
        )
    ) AS d
)
SELECT (SELECT min(in_ns) FROM next), EXISTS (
    SELECT 1 FROM timingwheel_run r WHERE r.state = 'ready' AND NOT r.held
) OR EXISTS (
    SELECT 1 FROM timingwheel_run r WHERE r.state = 'running' AND (
        r.asked > 0 AND r.inc = ANY(%s) OR NOT EXISTS (
            SELECT 1 FROM timingwheel_member m
            WHERE m.inc = r.inc AND m.until_ns > c.wall_ns - c.steps_ns
        )
    )
), c.wall_ns, (SELECT array_agg(body) FROM timingwheel_queue) FROM clock c
"""


class Glance(NamedTuple):
    """What one has shown.

    Attributes:
        is_quiet: nothing is due, ready, lost, or to be ended.
        next_ns: how long until the next thing is due, if that is soon.
    """

    is_quiet: bool
    next_ns: int | None


def glance(
    connections: Connections, shards: Sequence[int], incs: Sequence[int]
) -> Glance:
    """Return whether there is something to do.

    Args:
        connections: to the database.
        shards: of this node.
        incs: the numbers of the workers of this process.

    Cost: one statement: two probes of two indexes a shard, and what runs is read.
    """
    [row] = connections.rows(_GLANCE, [Ints(shards), Ints(incs)])
    next_ns, is_busy, wall_ns, queues = row
    is_due = next_ns is not None and next_ns <= 0
    has_woken = any(_is_pause_over(body, wall_ns) for body in queues or ())
    return Glance(not (is_due or is_busy or has_woken), next_ns)


def _is_pause_over(body: Any, wall_ns: int) -> bool:
    pause = decode_queue(body).pause
    return (
        pause is not None and pause.until_ns is not None and (pause.until_ns <= wall_ns)
    )
