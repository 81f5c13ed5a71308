"""What a node asks of the store: fire, and whose work is lost.

Runs whose time has come become ready in one statement, with no decision. Jobs whose next
occurrence has come, pauses that end, runs that are too late and attempts whose worker is
gone are decided, all in one step.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import msgspec

from timingwheel.engine.timeline import Now
from timingwheel.jobs.model import JobId, run_id
from timingwheel.jobs.store import CatchUp, Request
from timingwheel.jobs.zone_rules import zone_rules
from timingwheel.stores.deciding import changing
from timingwheel.stores.deciding.decision import Decision
from timingwheel.stores.deciding.firing import (
    Unserved,
    fire_job,
    fire_run,
    is_due,
    is_pause_over,
)
from timingwheel.stores.deciding.live import RunKey
from timingwheel.stores.postgres.connections import Ints, Rows, Statement
from timingwheel.stores.postgres.due import (
    ASKED,
    DUE_JOBS,
    LATE_RUNS,
    ORPHANS,
)
from timingwheel.stores.postgres.ends import Ends, Held
from timingwheel.stores.postgres.guard import Lease
from timingwheel.stores.postgres.limits import FireLimits
from timingwheel.stores.postgres.looking import Look, look
from timingwheel.stores.postgres.making_ready import MakingReady
from timingwheel.stores.postgres.membership import Membership
from timingwheel.stores.postgres.owner import Item, PostgresOwner
from timingwheel.stores.postgres.queue_pauses import QueuePauses
from timingwheel.stores.postgres.replanning import Replanning
from timingwheel.stores.postgres.steps import Steps
from timingwheel.stores.postgres.taking import Taking
from timingwheel.stores.postgres.trust import Trust
from timingwheel.stores.postgres.writing import CONFLICTS

replace = msgspec.structs.replace

MISSED_STEP_NS: Final = 1_000_000_000
"""A wall clock set ahead by less misses nothing: what it passed over is merely late."""
REPLAN_STEPS: Final = 20
"""Of replanning, that come between two signs of life."""


class Serving:
    """The node's side of a store. Thread-safe.

    Args:
        owner: this process's part of it.
        members: who lives.
        trust: how long this process may act.
        steps: what it knows of the database's clock.
        ends: what becomes of attempts.
        limits: how much is made ready.
        taking: what workers take directly.

    Attributes:
        next_ns: how long after the last fire something will be due, if that is soon.
    """

    def __init__(
        self,
        owner: PostgresOwner,
        members: Membership,
        trust: Trust,
        steps: Steps,
        *,
        ends: Ends,
        limits: FireLimits,
        taking: Taking,
    ) -> None:
        self.next_ns: int | None = None
        self._owner = owner
        self._members = members
        self._trust = trust
        self._steps = steps
        self._ends = ends
        self._limits = limits
        self._unserved: dict[int, Unserved] = {}
        self._ahead_ns: int | None = None
        self._told: set[Request] = set()
        self._pauses = QueuePauses(owner.connections)
        self._making_ready = MakingReady(owner.connections, limits, taking)
        self._tending = threading.RLock()
        self._replanning = Replanning(owner, zone_rules())

    # -- life ---------------------------------------------------------------------------

    def recover(self) -> int:
        """Begin to serve: what dead workers left is lost, what passed is missed."""
        now = self._owner.loading.now()
        self._ahead_ns = now.wall_ns - now.elapsed_ns
        missed = Unserved(now.wall_ns, now.elapsed_ns)
        self._unserved = dict.fromkeys(self._members.leases, missed)
        self._members.serve()
        self.tend()
        lost = self._orphans()
        self._ends.lose(lost)
        return len(lost)

    def tend(self) -> None:
        """Renew what lives here, and take or hand over shards."""
        with self._tending:
            self._tend()

    def _tend(self) -> None:
        was_suspect = self._steps.is_suspect
        self._members.tend()
        if was_suspect and not self._steps.is_suspect:
            self._owner.wake()  # a fire did nothing, since it did not believe the clock
        self._owner.inc = self._members.inc
        self._members.forget_departed()
        taken = self._members.balance()
        if taken:
            now = self._owner.loading.now()
            missed = Unserved(now.wall_ns, now.elapsed_ns)
            new = {
                one.lease.shard: Unserved(0, 0) if one.is_handed_over else missed
                for one in taken
            }
            self._unserved = {**self._unserved, **new}
            self._replanning.add((one.lease, one.zone_rules) for one in taken)
            self._owner.wake()
        for _ in range(REPLAN_STEPS):
            if not self._replanning.step(self._members.leases):
                break

    def hand_over(self) -> None:
        """Fire nothing more, and let others."""
        with self._tending:
            self._members.hand_over()
            self._owner.inc = 0

    def leave(self, worker: str) -> None:
        """Forget a worker; what it still has is lost."""
        inc = self._members.leave(worker)
        if inc is not None:
            self._ends.lose(self._ends.held_by(inc))

    def _orphans(self) -> list[Held]:
        values = [Ints(self._members.leases), 100_000]
        rows = self._owner.connections.rows(ORPHANS, values)
        return [Held(row[0], (row[1], row[2]), row[3]) for row in rows]

    # -- fire ---------------------------------------------------------------------------

    def is_quiet(self) -> bool:
        """Return whether a turn would find nothing to do."""
        seen = self._look(self._members.leases)
        return not (seen.has_work or self._pauses.are_over(seen.queues, seen.wall_ns))

    def _look(self, leases: Mapping[int, Lease]) -> Look:
        incs = self._members.incs()
        seen = look(self._owner.connections, list(leases), incs)
        self.next_ns = seen.next_ns
        return seen

    def fire(self, limit: int) -> int:
        """Make ready what is due: at most about `limit`. How many there were."""
        leases = self._members.leases
        if not leases or not self._trust.holds():
            return 0
        before_ns = self._steps.bounds_ns(self._trust.now_ns())[1]
        seen = self._look(leases)
        now = Now(0, seen.wall_ns - seen.steps_ns, seen.wall_ns)
        if not self._steps.is_expected(now.elapsed_ns, before_ns):
            return 0
        with self._tending:
            self._note_step(now)
        allowed = self._limits.allowed(limit)
        try:
            ready = self._making_ready.run(seen, leases, [self._members.inc, before_ns])
            items, occurrences = self._items(seen, leases, limit, allowed)
        except CONFLICTS:
            self._owner.wake()  # so that it is tried again at once
            return 0
        is_left = ready is None and bool(seen.due)
        self._limits.fired(ready, occurrences, is_left=is_left)
        woken = self._pauses.end(seen.queues, now.wall_ns)
        if items:
            lost = self._owner.steps(items, dict(leases))
            self._members.lose({leases[shard] for shard in lost})
        left = len(seen.due) if is_left else 0
        return (ready or 0) + left + len(items) + woken

    def _items(
        self, seen: Look, leases: Mapping[int, Lease], limit: int, allowed: int
    ) -> tuple[list[Item], int]:
        """Read what is to be decided, as far as there is some; and how many jobs fire."""
        shards = Ints(leases)
        wanted: list[tuple[str, list[object], Callable[[Rows], list[Item]]]] = []
        if seen.has_jobs:
            wanted.append((DUE_JOBS, [shards, allowed, allowed], self._jobs_due))
        if seen.has_late:
            wanted.append((LATE_RUNS, [shards, limit], self._runs_late))
        if seen.has_orphans:
            wanted.append((ORPHANS, [shards, limit], self._attempts_lost))
        statements: list[Statement] = [(sql, values) for sql, values, _ in wanted]
        if seen.has_asked:
            statements.append((ASKED, [Ints(self._members.incs())]))
        found = self._owner.connections.all(statements) if statements else []
        self._note_asked(found.pop() if seen.has_asked else [])
        items = [
            item
            for rows, (_, _, made) in zip(found, wanted, strict=True)
            for item in made(rows)
        ]
        return items, len(found[0]) if seen.has_jobs else 0

    def _jobs_due(self, rows: Rows) -> list[Item]:
        return [Item(job_id, partial(self._decide_job, job_id)) for (job_id,) in rows]

    def _runs_late(self, rows: Rows) -> list[Item]:
        return [
            Item(row[0], partial(self._decide_run, row[0], (row[1], row[2])))
            for row in rows
        ]

    def _attempts_lost(self, rows: Rows) -> list[Item]:
        return [
            Item(
                row[0], partial(self._ends.decide_lost, Held(row[0], row[1:3], row[3]))
            )
            for row in rows
        ]

    def _decide_job(self, job_id: JobId, decision: Decision) -> None:
        job = decision.job(job_id)
        if job is None:
            return
        if is_due(job, decision.now):
            shard = self._owner.shard(job_id)
            unserved = self._unserved.get(shard, Unserved(0, 0))
            fire_job(decision, job, unserved=unserved, rng=self._owner.rng)
        elif is_pause_over(job, decision.now):
            changing.unhold(decision, job, CatchUp(), rng=self._owner.rng)

    def _decide_run(self, job_id: JobId, key: RunKey, decision: Decision) -> None:
        job, live = decision.job(job_id), decision.run(job_id, *key)
        if job is not None and live is not None:
            fire_run(decision, job, live)

    def _note_step(self, now: Now) -> None:
        """A wall clock set far ahead has passed over times that nobody could serve."""
        ahead_ns = now.wall_ns - now.elapsed_ns
        step_ns = 0 if self._ahead_ns is None else ahead_ns - self._ahead_ns
        self._ahead_ns = ahead_ns
        if step_ns >= MISSED_STEP_NS:
            self._unserved = {
                shard: Unserved(now.wall_ns, one.elapsed_ns)
                for shard, one in self._unserved.items()
            }
        elif step_ns < 0:
            # The same moment by the new clock: what follows it is served.
            self._unserved = {
                shard: Unserved(one.wall_ns + step_ns, one.elapsed_ns)
                for shard, one in self._unserved.items()
            }

    def _note_asked(self, rows: Rows) -> None:
        asked = {_request(row) for row in rows}
        new, self._told = asked - self._told, asked
        self._owner.note_asked(sorted(new, key=lambda one: one.token))


def _request(row: tuple[Any, ...]) -> Request:
    return Request(run_id(row[0], row[1], row[2]), row[3], row[4] > 1)
