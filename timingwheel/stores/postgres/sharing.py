"""Which node fires which shard, as SQL: what is taken, let go, and a fair share.

A shard's row changes with its owner alone, and its epoch grows each time.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from timingwheel.stores.postgres.guard import Lease

SETTLED_BEATS: Final = 2
"""A node must have given so many before others make room for it."""
RELEASE_PART: Final = 16
"""A node lets go of one in so many of all shards a beat, at most."""

# The epoch is compared anew once a row is locked. That it has no owner who lives is not:
# of one that came in between, what this statement sees knows nothing.
TAKE: Final = """
WITH seen AS MATERIALIZED (
    SELECT s.shard, s.epoch, s.owner_inc IS NULL AND s.epoch > 0 AS was_released,
        (SELECT p.zone_rules FROM timingwheel_planned p WHERE p.shard = s.shard)
    FROM timingwheel_shard s WHERE NOT EXISTS (
        SELECT 1 FROM timingwheel_member m
        WHERE m.inc = s.owner_inc AND m.until_ns > timingwheel_elapsed()
    )
),
free AS MATERIALIZED (
    SELECT s.shard, seen.was_released, seen.zone_rules FROM seen JOIN timingwheel_shard s
    ON s.shard = seen.shard AND s.epoch = seen.epoch
    ORDER BY s.shard LIMIT %s FOR UPDATE OF s SKIP LOCKED
)
UPDATE timingwheel_shard s SET owner_inc = taker.inc, epoch = s.epoch + 1
FROM free, timingwheel_member taker
WHERE s.shard = free.shard AND taker.inc = %s AND taker.until_ns > timingwheel_elapsed()
RETURNING s.shard, s.epoch, free.was_released, free.zone_rules
"""
"""Takes shards that nobody fires: how many at most, the node's number."""

RELEASE: Final = """
WITH going AS MATERIALIZED (
    SELECT s.shard FROM timingwheel_shard s WHERE s.owner_inc = %s AND s.shard = ANY(%s)
    ORDER BY s.shard FOR UPDATE OF s
)
UPDATE timingwheel_shard s SET owner_inc = NULL, epoch = s.epoch + 1
FROM going WHERE s.shard = going.shard
"""
"""Lets shards go: the node's number, which. In the order in which all who fire lock them:
an UPDATE alone goes by where the rows stand."""

SHARE: Final = """
SELECT count(*), count(*) FILTER (WHERE beats >= %s),
    (SELECT count(*) FROM timingwheel_shard),
    (
        SELECT coalesce(array_agg(ARRAY[shard, epoch]), '{}'::bigint[])
        FROM timingwheel_shard WHERE owner_inc = %s
    )
FROM timingwheel_member WHERE is_node AND until_ns > timingwheel_elapsed()
"""
"""How many nodes live, and of them have settled, how many shards there are, and which are
a node's: beats, its number."""


class Taken(NamedTuple):
    """A shard that is new here.

    Attributes:
        lease: the right to fire it.
        is_handed_over: a node let it go while others lived: somebody could dispatch all
            the time.
        zone_rules: under which its jobs were planned, as far as is known.
    """

    lease: Lease
    is_handed_over: bool
    zone_rules: str | None
