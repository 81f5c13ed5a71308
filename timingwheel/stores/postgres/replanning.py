"""Plans made under other rules of time zones, made anew by whoever fires their shards.

For each shard it is noted under which rules its jobs were looked through last
(jobs/zone_rules.py). A node that takes one over and has others looks through them, some at
a time beside its work: what it finds stale it writes as any step, so only while the shard
and the job are what they were. Data that does not say its version is taken for another
each time.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Final

from timingwheel.engine.records import Base
from timingwheel.jobs.model import JobId
from timingwheel.stores.deciding import changing
from timingwheel.stores.deciding.decision import Decision
from timingwheel.stores.postgres.connections import Ints
from timingwheel.stores.postgres.guard import Lease
from timingwheel.stores.postgres.owner import Item, PostgresOwner

PART: Final = 256
"""Jobs that are looked at in one step."""
_PAGE: Final = f"""
SELECT shard, id FROM timingwheel_job
WHERE shard = ANY(%s) AND (shard, id) > (%s, %s) AND live AND recurring
AND wake_base = {int(Base.WALL)} AND wake_ns IS NOT NULL
ORDER BY shard, id LIMIT %s
"""
_DONE: Final = """
WITH own AS MATERIALIZED (
    SELECT s.shard FROM unnest(%s::bigint[], %s::bigint[]) AS u(shard, epoch)
    JOIN timingwheel_shard s ON s.shard = u.shard AND s.epoch = u.epoch
    ORDER BY s.shard FOR SHARE OF s
)
INSERT INTO timingwheel_planned (shard, zone_rules) SELECT shard, %s FROM own
ON CONFLICT (shard) DO UPDATE SET zone_rules = excluded.zone_rules
"""


class Replanning:
    """Looks through the jobs of shards that are new here. For one thread.

    Args:
        owner: this process's part of the store.
        rules: what it has.
    """

    def __init__(self, owner: PostgresOwner, rules: str | None) -> None:
        self._owner = owner
        self._rules = rules
        self._next: dict[int, Lease] = {}
        self._now: dict[int, Lease] = {}
        self._after: tuple[int, str] = (-1, "")

    def add(self, leases: Iterable[tuple[Lease, str | None]]) -> None:
        """Have shards looked through, unless that was done under the same rules.

        Args:
            leases: the shards, each with its rules.
        """
        for lease, rules in leases:
            if rules is None or rules != self._rules:
                self._next[lease.shard] = lease

    def step(self, leases: dict[int, Lease]) -> bool:
        """Look at some; whether there are more.

        Args:
            leases: the shards that this node fires still.
        """
        if not self._now:
            self._now, self._next = self._next, {}
            self._after = (-1, "")
        mine = {
            shard: lease
            for shard, lease in self._now.items()
            if leases.get(shard) == lease
        }
        self._now = mine
        if not mine:
            return bool(self._next)
        values = [Ints(mine), *self._after, PART]
        found = self._owner.connections.rows(_PAGE, values)
        if found:
            items = [Item(row[1], partial(_replan, row[1])) for row in found]
            self._owner.steps(items, mine)
        if len(found) < PART:
            self._now = {}
            if self._rules is not None:
                epochs = Ints(lease.epoch for lease in mine.values())
                values = [Ints(mine), epochs, self._rules]
                self._owner.connections.rows(_DONE, values)
            return bool(self._next)
        self._after = found[-1]
        return True


def _replan(job_id: JobId, decision: Decision) -> None:
    job = decision.job(job_id)
    if job is not None:
        changing.replan_by_zones(decision, job)
