"""What a step has read, as rows to be found unchanged, and locked, when it writes.

Rows are locked in the order of their keys, so steps wait for each other and rarely get in
each other's way. The shards of a node that fires are locked against their next owner: a
node that has lost one writes nothing of it, however late its statement comes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from timingwheel.jobs.model import JobId
from timingwheel.stores.deciding.live import RunKey
from timingwheel.stores.postgres.connections import Ints, Texts
from timingwheel.stores.postgres.keys import JOB_KEY, RUN_KEY, same_key
from timingwheel.stores.postgres.rows import shard_of
from timingwheel.stores.postgres.view import LoadedView

# FOR SHARE, not FOR KEY SHARE: who takes a shard over changes no key of it.
_SHARDS: Final = """
SELECT s.shard FROM unnest(%s::bigint[], %s::bigint[]) AS g(shard, epoch)
JOIN timingwheel_shard s ON s.shard = g.shard AND s.epoch = g.epoch AND s.owner_inc = %s
ORDER BY s.shard FOR SHARE OF s
"""
# In the order of what names the rows: in that of the table's key the planner would read all
# of it, to save the sort.
_JOBS: Final = f"""
SELECT j.id FROM unnest(%s::bigint[], %s::text[], %s::bigint[]) AS g(shard, id, version)
JOIN timingwheel_job j ON {same_key("j", "g", (*JOB_KEY, "version"))}
ORDER BY g.shard, g.id COLLATE "C" FOR UPDATE OF j
"""
_RUNS: Final = f"""
SELECT r.job_id FROM unnest(
    %s::bigint[], %s::text[], %s::bigint[], %s::bigint[], %s::bigint[]
) AS g(shard, job_id, nominal_ns, n, version)
JOIN timingwheel_run r ON {same_key("r", "g", (*RUN_KEY, "version"))}
ORDER BY g.shard, g.job_id COLLATE "C", g.nominal_ns, g.n FOR UPDATE OF r
"""
_PAST: Final = _RUNS.replace("timingwheel_run", "timingwheel_past")
# Whoever sets a calendar plans those jobs anew that he finds then: none may come later by
# the former one.
_CALENDARS: Final = """
SELECT c.name FROM unnest(%s::text[], %s::bigint[]) AS g(name, version)
JOIN timingwheel_calendar c ON c.name = g.name AND c.version = g.version
ORDER BY c.name FOR SHARE OF c
"""


class Part(NamedTuple):
    """Rows of one table that are to be found.

    Attributes:
        name: in the statement.
        column: that names the rows.
        sql: finds and locks them.
        values: its parameters.
        rows: how many there must be.
    """

    name: str
    column: str
    sql: str
    values: list[object]
    rows: int


class Lease(NamedTuple):
    """The right to fire the jobs of a shard.

    Attributes:
        shard: which.
        epoch: of this ownership.
    """

    shard: int
    epoch: int


class Stale(NamedTuple):
    """What has changed since it was read; nothing was written.

    Attributes:
        jobs: whose rows, or runs, are other ones now.
        shards: which are not this node's any more.
    """

    jobs: set[JobId]
    shards: set[int]


class Guard:
    """What must be unchanged for a step to be written.

    Args:
        view: what it has read.
        shards: of the store.
        inc: of the node, if it acts as the owner of shards.
        leases: on which it acts.
    """

    def __init__(
        self,
        view: LoadedView,
        shards: int,
        *,
        inc: int = 0,
        leases: Sequence[Lease] = (),
    ) -> None:
        self.inc = inc
        self.leases = leases
        self.jobs: dict[JobId, int] = {
            job_id: row.version for job_id, row in view.jobs.items() if row is not None
        }
        self.runs: dict[tuple[JobId, RunKey], int] = {
            (job_id, key): row.version
            for job_id, rows in view.live_runs.items()
            for key, row in rows.items()
        }
        self.past: dict[tuple[JobId, RunKey], int] = {
            key: row.version for key, row in view.dead.items() if row is not None
        }
        self.calendars = view.used_calendars
        self._shards = shards

    def parts(self) -> list[Part]:
        """Return what is to be looked for."""
        parts: list[Part] = []
        if self.leases:
            shards = Ints(lease.shard for lease in self.leases)
            epochs = Ints(lease.epoch for lease in self.leases)
            values: list[object] = [shards, epochs, self.inc]
            parts.append(Part("guard_shard", "shard", _SHARDS, values, len(shards)))
        if self.calendars:
            names = sorted(self.calendars)
            values = [Texts(names), Ints(self.calendars[name] for name in names)]
            parts.append(Part("guard_calendar", "name", _CALENDARS, values, len(names)))
        if self.jobs:
            ids = list(self.jobs)
            values = [self._shards_of(ids), Texts(ids), Ints(self.jobs.values())]
            parts.append(Part("guard_job", "id", _JOBS, values, len(ids)))
        if self.runs:
            values = self._runs_of(self.runs)
            parts.append(Part("guard_run", "job_id", _RUNS, values, len(self.runs)))
        if self.past:
            values = self._runs_of(self.past)
            parts.append(Part("guard_past", "job_id", _PAST, values, len(self.past)))
        return parts

    def _runs_of(self, runs: Mapping[tuple[JobId, RunKey], int]) -> list[object]:
        jobs = [job_id for job_id, _ in runs]
        return [
            self._shards_of(jobs),
            Texts(jobs),
            Ints(nominal_ns for _, (nominal_ns, _) in runs),
            Ints(n for _, (_, n) in runs),
            Ints(runs.values()),
        ]

    def _shards_of(self, ids: Sequence[JobId]) -> Ints:
        return Ints(shard_of(job_id, self._shards) for job_id in ids)

    def stale(self, found: dict[str, list[Any]]) -> Stale:
        """Return what the parts have not found as it was."""
        jobs = self.jobs.keys() - set(found.get("guard_job", ()))
        for name, runs in (("guard_run", self.runs), ("guard_past", self.past)):
            left = list(found.get(name, ()))
            for job_id, _ in runs:
                if job_id in left:
                    left.remove(job_id)
                else:
                    jobs.add(job_id)
        shards = {lease.shard for lease in self.leases}
        return Stale(jobs, shards - set(found.get("guard_shard", ())))
