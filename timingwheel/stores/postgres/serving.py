"""What a node asks of the store: fire, finish, give back, and whose work is lost.

fire    runs whose time has come become ready in one statement, with no decision; jobs
whose next occurrence has come, pauses that end, runs that are too late and
attempts whose worker is gone are decided, all in one step
finish  reads the runs that have ended, decides, and writes, as one step
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec

from timingwheel.engine.timeline import Now
from timingwheel.errors import TimingWheelError
from timingwheel.jobs.model import JobId, Outcome, Run, RunId, run_id
from timingwheel.jobs.store import CatchUp, Finish, Request, Verdict
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
from timingwheel.stores.deciding.live import LiveRun, RunKey
from timingwheel.stores.deciding.outcomes import end_attempt, give_back
from timingwheel.stores.identity import require_run_id
from timingwheel.stores.postgres.connections import Ints, Rows, Statement
from timingwheel.stores.postgres.due import (
    ASKED,
    DUE_JOBS,
    LATE_RUNS,
    ORPHANS,
)
from timingwheel.stores.postgres.guard import Lease
from timingwheel.stores.postgres.limits import FireLimits
from timingwheel.stores.postgres.looking import Look, look
from timingwheel.stores.postgres.making_ready import MakingReady
from timingwheel.stores.postgres.membership import Membership
from timingwheel.stores.postgres.owner import Item, PostgresOwner
from timingwheel.stores.postgres.putting import put
from timingwheel.stores.postgres.queue_pauses import QueuePauses
from timingwheel.stores.postgres.replanning import Replanning
from timingwheel.stores.postgres.steps import Steps
from timingwheel.stores.postgres.taking import Taking
from timingwheel.stores.postgres.trust import Trust
from timingwheel.stores.postgres.view import Wanted
from timingwheel.stores.postgres.writing import CONFLICTS

replace = msgspec.structs.replace

MISSED_STEP_NS: Final = 1_000_000_000
"""A wall clock set ahead by less misses nothing: what it passed over is merely late."""
REPLAN_STEPS: Final = 20
"""Of replanning, that come between two signs of life."""
_LOST: Final = "its worker is gone: it died, or its lease ran out"

HELD_BY: Final = """
SELECT r.job_id, r.nominal_ns, r.n, r.token FROM timingwheel_run r
WHERE r.state = 'running' AND r.inc = %s
"""
"""Attempts of a worker: its number."""


class Lost(NamedTuple):
    """An attempt whose worker is gone."""

    job_id: JobId
    key: RunKey
    token: int


class Serving:
    """The node's side of a store. Thread-safe.

    Args:
        owner: this process's part of it.
        members: who lives.
        trust: how long this process may act.
        steps: what it knows of the database's clock.
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
        limits: FireLimits,
        taking: Taking,
    ) -> None:
        self.next_ns: int | None = None
        self._owner = owner
        self._members = members
        self._trust = trust
        self._steps = steps
        self._limits = limits
        self._unserved: dict[int, Unserved] = {}
        self._ahead_ns: int | None = None
        self._told: set[int] = set()
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
        self._lose(lost)
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
            rows = self._owner.connections.rows(HELD_BY, [inc])
            self._lose([Lost(row[0], (row[1], row[2]), row[3]) for row in rows])

    def _orphans(self) -> list[Lost]:
        values = [Ints(self._members.leases), 100_000]
        rows = self._owner.connections.rows(ORPHANS, values)
        return [Lost(row[0], (row[1], row[2]), row[3]) for row in rows]

    def _lose(self, lost: Sequence[Lost]) -> None:
        """Write down that attempts are lost, and move their runs on."""
        items = [Item(one.job_id, partial(self._decide_lost, one)) for one in lost]
        self._owner.steps(items, {})

    def _decide_lost(self, lost: Lost, decision: Decision) -> None:
        live = _running(decision, lost.job_id, lost.key, lost.token)
        if live is None:
            return
        end = Finish(
            run_id=live.run.id,
            token=lost.token,
            outcome=Outcome.LOST,
            started_ns=live.run.started_ns or live.run.due_ns,
            error=_LOST,
        )
        self._end(decision, live, end)

    def _end(self, decision: Decision, live: LiveRun, end: Finish) -> None:
        job = decision.job(live.run.job_id)
        assert job is not None, "a live run belongs to a live job"
        policy = live.policy or job.policy
        draw = self._owner.rng.random()
        end_attempt(decision, live, end, policy=policy, draw=draw)

    # -- fire ---------------------------------------------------------------------------

    def fire(self, limit: int) -> int:
        """Make ready what is due: at most about `limit`. How many there were."""
        leases = self._members.leases
        if not leases or not self._trust.holds():
            return 0
        before_ns = self._steps.bounds_ns(self._trust.now_ns())[1]
        seen = look(self._owner.connections, list(leases), self._members.incs())
        now = Now(0, seen.wall_ns - seen.steps_ns, seen.wall_ns)
        self.next_ns = seen.next_ns
        if not self._steps.is_expected(now.elapsed_ns, before_ns):
            return 0
        with self._tending:
            self._note_step(now)
        allowed = self._limits.allowed(limit)
        try:
            ready = self._making_ready.run(
                seen, leases, [self._members.inc, before_ns], allowed
            )
            items, occurrences = self._items(seen, leases, limit, allowed)
        except CONFLICTS:
            self._owner.wake()  # so that it is tried again at once
            return 0
        self._limits.fired(ready, occurrences)
        if self._making_ready.has_more:
            self._owner.wake()
        woken = self._pauses.end(seen.queues, now.wall_ns)
        if items:
            lost = self._owner.steps(items, dict(leases))
            self._members.lose({leases[shard] for shard in lost})
        left = len(seen.due) if ready is None else 0
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
            Item(row[0], partial(self._decide_lost, Lost(row[0], row[1:3], row[3])))
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
        new = [row for row in rows if row[3] not in self._told]
        self._told = {row[3] for row in rows}
        self._owner.note_asked([_request(row) for row in new])

    # -- ends ---------------------------------------------------------------------------

    def begin(self, token: int) -> bool:
        """Note that a handler starts; False if its run was cancelled meanwhile."""
        with self._owner.starting:
            if token not in self._owner.claimed or not self._trust.may_begin(token):
                return False
            self._owner.claimed[token] = True
            return True

    def give_back(self, claims: Iterable[tuple[RunId, int]]) -> None:
        """Return runs that were claimed and never begun."""
        items: list[Item] = []
        for claimed, token in dict.fromkeys(claims):
            job_id, nominal_ns, n = require_run_id(claimed)
            key = nominal_ns, n
            decide = partial(self._decide_return, job_id, key, token)
            items.append(Item(job_id, decide))
        self._owner.steps(items, {})

    def _decide_return(
        self, job_id: JobId, key: RunKey, token: int, decision: Decision
    ) -> None:
        live = _running(decision, job_id, key, token)
        if live is not None:
            give_back(decision, live)

    def finish(self, ends: Sequence[Finish]) -> list[Verdict]:
        """Take in how attempts ended; one that is told again is accepted again."""
        verdicts = [Verdict.LEASE_LOST] * len(ends)
        together: list[Item] = []
        ended = self._end_plain(ends)
        for place, end in enumerate(ends):
            if end.token in ended:
                verdicts[place] = Verdict.ACCEPTED
                continue
            if end.follow_ups:
                self._owner.steps(together, {})
                together = []
                self._finish_with_more(end, verdicts, place)
                continue
            job_id, nominal_ns, n = require_run_id(end.run_id)
            key = nominal_ns, n
            decide = partial(self._decide_end, end, (job_id, key), verdicts, place)
            together.append(Item(job_id, decide))
        self._owner.steps(together, {})
        self._accept_again(ends, verdicts)
        for end in ends:  # also what was not ours any more
            self._owner.claimed.pop(end.token, None)
        return verdicts

    def _end_plain(self, ends: Sequence[Finish]) -> Mapping[int, Run]:
        try:
            ended = self._owner.plain_ends.end(ends)
        except CONFLICTS:
            return {}
        self._owner.tell(list(ended.values()))
        return ended

    def _accept_again(self, ends: Sequence[Finish], verdicts: list[Verdict]) -> None:
        """The answer to an end may be lost: then it comes again, and nothing is wrong."""
        places = [
            place
            for place, verdict in enumerate(verdicts)
            if verdict is Verdict.LEASE_LOST
        ]
        if places:
            refused = [ends[place] for place in places]
            keys = [require_run_id(end.run_id) for end in refused]
            known = self._owner.plain_ends.repeated(refused, keys)
            for place in places:
                if ends[place].token in known:
                    verdicts[place] = Verdict.ACCEPTED

    def _decide_end(
        self,
        end: Finish,
        run: tuple[JobId, RunKey],
        verdicts: list[Verdict],
        place: int,
        decision: Decision,
    ) -> None:
        live = _running(decision, *run, end.token)
        verdicts[place] = Verdict.LEASE_LOST if live is None else Verdict.ACCEPTED
        if live is not None:
            self._end(decision, live, end)

    def _finish_with_more(
        self, end: Finish, verdicts: list[Verdict], place: int
    ) -> None:
        """Take in an end and its follow-ups; one that is refused makes it an error."""
        job_id, nominal_ns, n = require_run_id(end.run_id)
        run = job_id, (nominal_ns, n)

        def decide(decision: Decision) -> None:
            live = _running(decision, *run, end.token)
            if live is not None and end.outcome is Outcome.OK:
                put(self._owner, decision, end.follow_ups)
            self._decide_end(end, run, verdicts, place, decision)

        wanted = Wanted()
        wanted.jobs.add(job_id)
        try:
            self._owner.step(decide, wanted)
        except TimingWheelError as error:
            refused = replace(
                end,
                outcome=Outcome.ERROR,
                result=None,
                error=f"a follow-up was refused: {error}",
                follow_ups=(),
            )
            alone = partial(self._decide_end, refused, run, verdicts, place)
            self._owner.step(alone, wanted)


def _running(
    decision: Decision, job_id: JobId, key: RunKey, token: int
) -> LiveRun | None:
    """Return a run if this token is that of its present attempt."""
    live = decision.run(job_id, *key)
    return live if live is not None and token and live.token == token else None


def _request(row: tuple[Any, ...]) -> Request:
    return Request(run_id(row[0], row[1], row[2]), row[3], row[4] > 1)
