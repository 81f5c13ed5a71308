"""Which ready runs a worker gets: read in order of rank, chosen under queues and caps.

What bounds a choice (a queue's limit or rate, a cap) has a row with a version; a claim
that it bounds locks that row, finds the version unchanged, and raises it. So the counts of
what runs, read with the candidates, hold when the claim is written; an end only makes room.
A run itself is taken by whoever changes its row first: the others get the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from timingwheel.jobs.errors import UnknownWorkerError
from timingwheel.jobs.model import (
    Delivery,
    Run,
    RunState,
)
from timingwheel.jobs.store import Claim
from timingwheel.stores.history_entries import searched
from timingwheel.stores.postgres.candidates import ALONE, Candidate, read
from timingwheel.stores.postgres.connections import Ints, Statement, Texts
from timingwheel.stores.postgres.keys import same_key
from timingwheel.stores.postgres.membership import Membership
from timingwheel.stores.postgres.owner import PostgresOwner
from timingwheel.stores.postgres.plain_end import Place
from timingwheel.stores.postgres.rows import (
    shard_of,
    texts,
)
from timingwheel.stores.postgres.taking import Taking
from timingwheel.stores.postgres.writing import CONFLICTS

replace = msgspec.structs.replace

NS: Final = 1_000_000_000
CLAIM_PART: Final = 1_000
"""Runs that one statement claims at most."""
PARTS_MAX: Final = 200

_NEW_CAPS: Final = """
INSERT INTO timingwheel_cap (name, version) SELECT c, 1 FROM unnest(%s::text[]) AS c
ON CONFLICT DO NOTHING
"""
_CLAIM: Final = f"""
WITH worker AS MATERIALIZED (
    SELECT inc FROM timingwheel_member
    WHERE inc = %s AND until_ns > timingwheel_elapsed() FOR SHARE
),
guard_queue AS MATERIALIZED (
    SELECT q.name FROM unnest(%s::text[], %s::bigint[]) AS g(name, version)
    JOIN timingwheel_queue q ON q.name = g.name AND q.version = g.version
    ORDER BY q.name FOR UPDATE OF q
),
shared_queue AS MATERIALIZED (
    SELECT q.name FROM unnest(%s::text[], %s::bigint[]) AS g(name, version)
    JOIN timingwheel_queue q ON q.name = g.name AND q.version = g.version
    ORDER BY q.name FOR SHARE OF q
),
guard_cap AS MATERIALIZED (
    SELECT c.name FROM unnest(%s::text[], %s::bigint[]) AS g(name, version)
    JOIN timingwheel_cap c ON c.name = g.name AND c.version = g.version
    ORDER BY c.name FOR UPDATE OF c
),
ok AS MATERIALIZED (
    SELECT (SELECT count(*) FROM guard_queue) = %s
    AND (SELECT count(*) FROM shared_queue) = %s
    AND (SELECT count(*) FROM guard_cap) = %s AS ok,
    EXISTS (SELECT 1 FROM worker) AS alive
),
queues AS (
    UPDATE timingwheel_queue q
    SET version = q.version + 1, next_start_ns = u.next_start_ns
    FROM ok, unnest(%s::text[], %s::bigint[]) AS u(name, next_start_ns)
    WHERE ok.ok AND ok.alive AND q.name = u.name
),
caps AS (
    UPDATE timingwheel_cap c SET version = c.version + 1
    FROM ok, unnest(%s::text[]) AS u(name) WHERE ok.ok AND ok.alive AND c.name = u.name
),
numbered AS MATERIALIZED (
    SELECT o.*, nextval('timingwheel_token') AS token FROM (
        SELECT u.* FROM ok, unnest(
            %s::bigint[], %s::text[], %s::bigint[], %s::bigint[], %s::bigint[],
            %s::text[]
        ) WITH ORDINALITY AS u(shard, job_id, nominal_ns, n, version, caps, place)
        WHERE ok.ok AND ok.alive ORDER BY u.place
    ) AS o
),
locked AS MATERIALIZED (
    SELECT u.place, u.token, u.caps, r.shard, r.job_id, r.nominal_ns, r.n
    FROM numbered u JOIN timingwheel_run r ON {same_key("r", "u")}
    AND r.version = u.version
    ORDER BY u.shard, u.job_id, u.nominal_ns, u.n FOR UPDATE OF r
),
taken AS (
    UPDATE timingwheel_run r SET state = 'running', version = r.version + 1,
        attempts = r.attempts + 1, started_ns = %s, token = u.token, worker = %s,
        inc = %s, caps = u.caps::text[], asked = 0,
        wake_ns = NULL
    FROM locked u WHERE {same_key("r", "u")}
    RETURNING u.place, u.token, r.ctid AS at
)
SELECT ok.ok, ok.alive, taken.place, taken.token, taken.at FROM ok LEFT JOIN taken ON true
ORDER BY taken.place
"""


class Claiming:
    """One claim. Used once.

    Args:
        owner: this process's part of the store.
        members: who lives.
        worker: who claims.
        tasks: what it can run.
        count: how many may start now.
        ahead: how many more first attempts may be taken beyond.
        queues: of which queues; None: of all.
        taking: takes first what needs no weighing; None: all is weighed.

    Attributes:
        claims: what the worker gets.
        inc: the number under which it claims.
    """

    def __init__(
        self,
        owner: PostgresOwner,
        members: Membership,
        worker: str,
        *,
        tasks: frozenset[str],
        count: int,
        ahead: int,
        queues: frozenset[str] | None,
        taking: Taking | None = None,
    ) -> None:
        self.claims: list[Claim] = []
        self._owner = owner
        self._members = members
        self._worker = worker
        self.inc = members.inc_of(worker)
        self._taking = taking if queues is None else None
        self._tasks = Texts(map(searched, sorted(tasks)))
        self._queues = None if queues is None else Texts(map(searched, sorted(queues)))
        self._count = count
        self._ahead = ahead
        self._closed: set[str] = set()
        self._full: set[str] = set()

    def run(self) -> None:
        """Claim until there is enough, or no more.

        Raises:
            UnknownWorkerError: the worker's lease is past.
        """
        if self._taking is not None and not self._take_directly(self._taking):
            return
        for _ in range(PARTS_MAX):
            wanted = min(self._count + self._ahead, CLAIM_PART)
            if wanted <= 0 or not self._claim_part(wanted):
                return

    def _take_directly(self, taking: Taking) -> bool:
        """Take what may be taken directly; return whether there may be more to claim."""
        for _ in range(PARTS_MAX):
            wanted = min(self._count + self._ahead, CLAIM_PART)
            if wanted <= 0:
                return False
            took = taking.take(self._worker, self.inc, tasks=self._tasks, count=wanted)
            for claim in took.claims:
                self._add(claim)
            if took.has_loose:
                self._owner.wake()  # fire makes them ready
            if took.missed and not took.is_alive:
                raise self._lost()
            if not took.missed and len(took.claims) < wanted:
                return took.is_blocked
        return True

    def _claim_part(self, wanted: int) -> bool:
        """Read, choose and write once; False: there is no more to be had."""
        candidates = self._read(wanted)
        if not candidates:
            return False
        names = {name for candidate in candidates for name in candidate.caps}
        unknown = names - self._caps.keys()
        if unknown:
            self._owner.connections.rows(_NEW_CAPS, [Texts(sorted(unknown))])
            return True
        picked, held_back = self._choose(candidates, wanted)
        if picked:
            if not self._write(picked):
                return True
            return len(candidates) == wanted or held_back
        # Those that were held back are left out of the next look, if there are others.
        return held_back

    def _read(self, wanted: int) -> list[Candidate]:
        """Read candidates, and what bounds them."""
        found = read(
            self._owner.connections,
            tasks=self._tasks,
            queues=self._queues,
            closed=self._closed,
            full=self._full,
            limit=wanted,
        )
        self._wall_ns, self._elapsed_ns = found.wall_ns, found.elapsed_ns
        self._bounds, self._caps = found.bounds, found.caps
        self._by_queue, self._by_cap = found.by_queue, found.by_cap
        return found.candidates

    def _choose(
        self, candidates: Sequence[Candidate], wanted: int
    ) -> tuple[list[Candidate], bool]:
        """Return those that may start, and whether others were held back."""
        picked: list[Candidate] = []
        held_back = False
        self._starts_at = {
            name: bound.next_start_ns for name, bound in self._bounds.items()
        }
        for candidate in candidates:
            if len(picked) >= wanted:
                break
            run = candidate.row.live.run
            queue = searched(run.queue)
            if queue in self._closed:
                continue
            if not self._has_room(queue):
                self._closed.add(queue)
                held_back = True
                continue
            if len(picked) >= self._count and not candidate.may_wait:
                self._ahead = 0
                break
            full = self._full_cap(candidate)
            if full is not None:
                self._full.add(full)
                held_back = True
                continue
            self._take(candidate, queue)
            picked.append(candidate)
        return picked, held_back

    def _has_room(self, name: str) -> bool:
        bound = self._bounds.get(name)
        if bound is None:
            return True
        queue = bound.queue
        if queue.pause is not None:
            return False
        if queue.limit is not None and self._by_queue[name] >= queue.limit:
            return False
        return queue.rate is None or self._starts_at[name] <= self._elapsed_ns

    def _full_cap(self, candidate: Candidate) -> str | None:
        for name in candidate.caps:
            is_alone = name == ALONE or candidate.cap is None
            limit = 1 if is_alone or candidate.cap is None else candidate.cap.limit
            if self._by_cap[name] >= limit:
                return name
        return None

    def _take(self, candidate: Candidate, queue: str) -> None:
        self._by_queue[queue] += 1
        for name in candidate.caps:
            self._by_cap[name] += 1
        bound = self._bounds.get(queue)
        if bound is not None and bound.queue.rate is not None:
            # One start a period, none saved up: a queue that was idle does not burst.
            at_ns = max(self._starts_at[queue], self._elapsed_ns)
            self._starts_at[queue] = at_ns + round(NS / bound.queue.rate)

    def _write(self, picked: Sequence[Candidate]) -> bool:
        """Start the runs that were chosen; False: a bound has changed meanwhile.

        Raises:
            UnknownWorkerError: the worker's lease is past.
        """
        [(sql, values)] = [self._statement(picked)]
        try:
            rows = self._owner.connections.rows(sql, values, binary=True)
        except CONFLICTS:
            return False
        is_ok, is_alive = rows[0][:2]
        if not is_alive:
            raise self._lost()
        if not is_ok:
            return False
        for _, _, place, token, at in rows:
            if place is not None:
                self._note(picked[place - 1], token, at)
        return True

    def _lost(self) -> UnknownWorkerError:
        return UnknownWorkerError(
            "worker", self._worker, "join first, or again: it was lost"
        )

    def _statement(self, picked: Sequence[Candidate]) -> Statement:
        runs = [candidate.row.live.run for candidate in picked]
        used = sorted({searched(run.queue) for run in runs} & self._bounds.keys())
        bounded = [name for name in used if self._bounds[name].is_bounded]
        shared = [name for name in used if name not in bounded]
        caps = sorted({name for candidate in picked for name in candidate.caps})
        versions = self._bounds
        return _CLAIM, [
            self.inc,
            *(Texts(bounded), Ints(versions[name].version for name in bounded)),
            *(Texts(shared), Ints(versions[name].version for name in shared)),
            *(Texts(caps), Ints(self._caps[name] for name in caps)),
            *(len(bounded), len(shared), len(caps)),
            *(Texts(bounded), Ints(self._starts_at[name] for name in bounded)),
            Texts(caps),
            Ints(shard_of(run.job_id, self._owner.shards) for run in runs),
            Texts(run.job_id for run in runs),
            Ints(run.nominal_ns for run in runs),
            Ints(run.n for run in runs),
            Ints(candidate.row.version for candidate in picked),
            Texts(texts(candidate.caps) for candidate in picked),
            *(self._wall_ns, self._worker, self.inc),
        ]

    def _note(self, candidate: Candidate, token: int, at: bytes) -> None:
        live, policy = candidate.row.live, candidate.policy
        run: Run = replace(
            live.run,
            state=RunState.RUNNING,
            attempts=live.run.attempts + 1,
            started_ns=self._wall_ns,
        )
        once = policy.delivery is Delivery.AT_MOST_ONCE
        tries = run.attempts - live.uncounted
        claim = Claim(
            run=run,
            payload=candidate.payload,
            token=token,
            timeout_ns=policy.timeout_ns,
            last=once or tries >= policy.retry.attempts,
        )
        if candidate.row.plain is not None:
            shard = shard_of(run.job_id, self._owner.shards)
            place = Place(at, shard, self._worker, self.inc)
            self._owner.plain_ends.note(claim, policy, place)
        self._add(claim)

    def _add(self, claim: Claim) -> None:
        self._owner.claimed[claim.token] = False
        self.claims.append(claim)
        if self._count > 0:
            self._count -= 1
        else:
            self._ahead -= 1
