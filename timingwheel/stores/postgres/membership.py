"""Who lives: nodes and workers, by numbers that are never given again.

A member lives until its lease is past on the database's clock; whoever finds a run whose
holder's number is not among the living may give it to another. A member is its number: it
may have any name, and others the same. All of one process, its node and its own workers,
are renewed by one beat and live and die together (trust.py); a remote worker by its own
beats, through whichever server, which know it by its name.

A node fires its share of the shards. It takes what nobody fires once it has given a beat,
and lets go of what is beyond its share only for nodes that have given several, and a few
a beat: a node that comes and goes moves little.
"""

from __future__ import annotations

import os
import platform
import threading
import uuid
from collections.abc import Collection, Sequence
from typing import Final

from timingwheel.jobs.errors import UnknownWorkerError
from timingwheel.jobs.model import run_id
from timingwheel.jobs.store import Request, TakenOn
from timingwheel.stores.postgres.connections import (
    Bools,
    Connections,
    Ints,
    Texts,
)
from timingwheel.stores.postgres.guard import Lease
from timingwheel.stores.postgres.schema import PROTOCOL_MAX, PROTOCOL_MIN
from timingwheel.stores.postgres.sharing import (
    RELEASE,
    RELEASE_PART,
    SETTLED_BEATS,
    SHARE,
    TAKE,
    Taken,
)
from timingwheel.stores.postgres.steps import ANY, Steps
from timingwheel.stores.postgres.trust import Trust

_JOIN: Final = f"""
WITH former AS (DELETE FROM timingwheel_member WHERE inc = ANY(%s))
INSERT INTO timingwheel_member
    (inc, name, is_node, is_far, ttl_ns, until_ns, beats, step_ns,
    protocol_min, protocol_max)
SELECT nextval('timingwheel_inc'), u.name, u.is_node, false, %s,
    timingwheel_elapsed() + %s, 0, %s, {PROTOCOL_MIN}, {PROTOCOL_MAX}
FROM unnest(%s::text[], %s::boolean[]) AS u(name, is_node)
RETURNING name, inc
"""
_JOIN_FAR: Final = """
INSERT INTO timingwheel_member AS m
    (inc, name, is_node, is_far, ttl_ns, until_ns, beats, step_ns)
VALUES (
    nextval('timingwheel_inc'), %s, false, true, %s, timingwheel_elapsed() + %s, 0, 0
)
ON CONFLICT (name) WHERE is_far DO UPDATE SET
    inc = CASE WHEN m.until_ns > timingwheel_elapsed() THEN m.inc ELSE excluded.inc END,
    ttl_ns = excluded.ttl_ns, until_ns = excluded.until_ns
RETURNING inc
"""
# Nobody is judged by a clock that reads otherwise than it should: see steps.py.
_BEAT: Final = """
WITH clock AS MATERIALIZED (
    SELECT timingwheel_elapsed() AS elapsed_ns, steps_ns FROM timingwheel_meta
),
beaten AS (
    UPDATE timingwheel_member m
    SET until_ns = c.elapsed_ns + m.ttl_ns + %s, beats = m.beats + 1, step_ns = %s
    FROM clock c WHERE c.elapsed_ns BETWEEN %s AND %s
    AND inc = ANY(%s) AND until_ns > timingwheel_elapsed()
    RETURNING m.inc
)
SELECT elapsed_ns, steps_ns, (SELECT count(*) FROM beaten) FROM clock
"""
_FIND: Final = """
SELECT inc FROM timingwheel_member
WHERE name = %s AND is_far AND until_ns > timingwheel_elapsed()
"""
_FAR: Final = "SELECT inc FROM timingwheel_member WHERE is_far AND inc = ANY(%s)"
_TAKE_ON: Final = """
SELECT m.ttl_ns, r.job_id, r.nominal_ns, r.n, r.token, r.asked
FROM timingwheel_member m
LEFT JOIN timingwheel_run r ON r.inc = m.inc AND r.state = 'running'
WHERE m.inc = %s AND m.until_ns > timingwheel_elapsed()
"""
_LEAVE: Final = "DELETE FROM timingwheel_member WHERE inc = ANY(%s)"
PRUNE_AFTER_NS: Final = 3_600_000_000_000
"""A dead member's row is shown so long; nothing needs it."""
PRUNE: Final = f"""
DELETE FROM timingwheel_member
WHERE until_ns < timingwheel_elapsed() - {PRUNE_AFTER_NS}
"""


class Membership:
    """This process's members, and the shards it fires. Thread-safe.

    Attributes:
        inc: of the node; 0 until it serves.
        leases: the shards it fires, by number.
        is_alone: whether there was no other node at the last beat.

    Args:
        connections: to the database.
        trust: how long this process may act.
        steps: what it knows of the database's clock.
        ttl_ns: how long the node and its own workers live after a beat.
    """

    def __init__(
        self, connections: Connections, trust: Trust, steps: Steps, *, ttl_ns: int
    ) -> None:
        self.inc = 0
        self.leases: dict[int, Lease] = {}
        self.is_alone = False
        self._connections = connections
        self._trust = trust
        self._steps = steps
        self._ttl_ns = ttl_ns
        self._lock = threading.Lock()
        self._own: dict[str, int] = {}
        self._remote: dict[str, int] = {}
        self._serves = False
        self._is_fresh = True
        self._node = (
            f"node:{platform.node() or 'host'}:{os.getpid()}:{uuid.uuid4().hex[:12]}"
        )

    # -- members ------------------------------------------------------------------------

    @property
    def ttl_ns(self) -> int:
        """How long the node and its own workers live after a beat."""
        return self._ttl_ns

    def join(self, worker: str, *, ttl_ns: int | None) -> None:
        """Announce a worker; a remote one that lives is the same one still."""
        if ttl_ns is None:
            with self._lock:
                former = self._own.get(worker)
            incs = self._join([worker], former=[] if former is None else [former])
            with self._lock:
                self._own.update(incs)
                self._remote.pop(worker, None)
            return
        [(inc,)] = self._connections.rows(_JOIN_FAR, [worker, ttl_ns, ttl_ns])
        with self._lock:
            self._remote[worker] = inc
            self._own.pop(worker, None)

    def serve(self) -> None:
        """Become a node, or go on to be one."""
        self._serves = True
        if not self.inc:
            self.inc = self._join([self._node])[self._node]
            self._is_fresh = True

    def _join(
        self, names: list[str], *, former: list[int] | None = None
    ) -> dict[str, int]:
        sent_ns = self._trust.now_ns()
        are_nodes = Bools(name == self._node for name in names)
        step_ns = self._steps.step_ns
        times = [self._ttl_ns, self._ttl_ns + max(-step_ns, 0), step_ns]
        values = [Ints(former or []), *times, Texts(names), are_nodes]
        found: dict[str, int] = dict(self._connections.rows(_JOIN, values))
        # Before anybody can act under these numbers: see Trust.kept.
        self._trust.begin(sent_ns, found.values())
        return found

    def is_own(self, worker: str) -> bool:
        """Return whether a worker is one of this process."""
        return worker in self._own

    def inc_of(self, worker: str) -> int:
        """Return the number of a worker.

        Raises:
            UnknownWorkerError: it has not joined, or was lost.
        """
        with self._lock:
            inc = self._own.get(worker) or self._remote.get(worker)
        if inc is None:
            found = self._connections.rows(_FIND, [worker])
            if not found:
                raise UnknownWorkerError(
                    "worker", worker, "join first, or again: it was lost"
                )
            inc = int(found[0][0])
            with self._lock:
                self._remote[worker] = inc
        return inc

    def incs(self) -> list[int]:
        """Return the numbers of the workers that have joined here."""
        with self._lock:
            return [*self._own.values(), *self._remote.values()]

    def forget(self, worker: str) -> None:
        """It was lost, or has left."""
        with self._lock:
            self._own.pop(worker, None)
            self._remote.pop(worker, None)

    def forget_departed(self) -> None:
        """Forget the remote workers that have left by way of another server.

        Cost: a statement if there are remote ones.
        """
        with self._lock:
            known = dict(self._remote)
        if not known:
            return
        rows = self._connections.rows(_FAR, [Ints(known.values())])
        there = {inc for (inc,) in rows}
        with self._lock:
            for worker, inc in known.items():
                # Unless it has joined again meanwhile.
                if inc not in there and self._remote.get(worker) == inc:
                    del self._remote[worker]

    def departed(self, workers: Collection[str]) -> set[str]:
        """Return those of some remote workers that have left; see Clustered."""
        self.forget_departed()
        with self._lock:
            return set(workers) - self._remote.keys()

    def beat(self, worker: str) -> bool:
        """Renew the lease of a worker; False: it is past."""
        try:
            inc = self.inc_of(worker)
        except UnknownWorkerError:
            return False
        if self._connections.rows(_BEAT, [0, 0, *ANY, Ints([inc])])[0][2]:
            return True
        self.forget(worker)
        return False

    def take_on(self, worker: str) -> TakenOn | None:
        """Return what a remote worker has, wherever it has joined; None: it died."""
        try:
            inc = self.inc_of(worker)
        except UnknownWorkerError:
            return None
        rows = self._connections.rows(_TAKE_ON, [inc])
        if not rows:
            self.forget(worker)
            return None
        held = {row[4]: run_id(*row[1:4]) for row in rows if row[4] is not None}
        asked = [
            Request(held[token], token, asked > 1)
            for *_, token, asked in rows
            if asked  # None where it has nothing
        ]
        return TakenOn(rows[0][0], held, asked)

    def tend(self) -> bool:
        """Renew the leases of this process; False: they were lost, and it is another now."""
        own = self._mine()
        if not own:
            return True
        if self._trust.holds():
            if self._beat_all(Ints(own.values())):
                return True
            self._trust.lose()
        with self._lock:
            self.leases = {}
        # One statement, so that a member is never both; what the former ones had is
        # nobody's from here on.
        incs = self._join(list(own), former=list(own.values()))
        self.inc = incs.pop(self._node, 0)
        self._is_fresh = True
        with self._lock:
            self._own.update(incs)
        return False

    def _beat_all(self, own: Ints) -> bool:
        """Renew these leases, and look at the database's clock; False: they were lost."""
        sent_ns = self._trust.now_ns()
        bounds = self._steps.bounds_ns(sent_ns)
        found = self._connections.rows(_BEAT, [0, 0, *bounds, own])[0]
        step_ns = self._steps.note(sent_ns, self._trust.now_ns(), found[0])
        is_settled = step_ns != 0 and self._steps.settle(found[1], own)
        if step_ns or not bounds[0] <= found[0] <= bounds[1]:
            sent_ns = self._trust.now_ns()
            step_ns = 0 if is_settled else step_ns
            # A lease lasts as long if a step back is noted soon: none is cut short by it.
            values = [max(-step_ns, 0), step_ns, *ANY, own]
            found = self._connections.rows(_BEAT, values)[0]
            if is_settled:
                self._steps.note(sent_ns, self._trust.now_ns(), found[0])
        return bool(found[2] == len(own)) and self._trust.renew(sent_ns)

    def _mine(self) -> dict[str, int]:
        with self._lock:
            own = dict(self._own)
        if self._serves:
            own[self._node] = self.inc
        return own

    def leave(self, worker: str) -> int | None:
        """Forget a worker; return its number, None if there was none."""
        try:
            inc = self.inc_of(worker)
        except UnknownWorkerError:
            return None
        self._connections.rows(_LEAVE, [Ints([inc])])
        self.forget(worker)
        self._end_trust()
        return inc

    def _end_trust(self) -> None:
        if not self._mine():
            self._trust.end()

    # -- shards -------------------------------------------------------------------------

    def balance(self) -> list[Taken]:
        """Take shards that nobody fires, up to a fair share; let go of a few beyond it."""
        if not self.inc:
            return []
        values = [SETTLED_BEATS, self.inc]
        [(nodes, settled, shards, own)] = self._connections.rows(SHARE, values)
        self.is_alone = nodes <= 1
        found = self._believe(own)
        share = -(-shards // max(nodes, 1))
        beyond = len(self.leases) - -(-shards // max(settled, 1))
        if beyond > 0:
            few = min(beyond, max(shards // RELEASE_PART, 1))
            self._release(sorted(self.leases)[-few:])
        elif len(self.leases) < share:
            found += self._take(share - len(self.leases), others=nodes > 1)
        return found

    def _believe(self, own: Sequence[Sequence[int]]) -> list[Taken]:
        """Have this node know what is its own; return what it did not know of.

        The answer to a take may be lost: nobody else would fire what it took, as long as
        this node lives.
        """
        with self._lock:
            known, self.leases = self.leases, {row[0]: Lease(*row) for row in own}
            return [
                Taken(self.leases[shard], is_handed_over=False, zone_rules=None)
                for shard in sorted(self.leases.keys() - known.keys())
            ]

    def _take(self, count: int, *, others: bool) -> list[Taken]:
        taken = self._connections.rows(TAKE, [count, self.inc])
        new = {row[0]: Lease(row[0], row[1]) for row in taken}
        with self._lock:
            self.leases = {**self.leases, **new}
        somebody_lived = others or not self._is_fresh
        self._is_fresh = False
        return [
            Taken(new[shard], released and somebody_lived, rules)
            for shard, _, released, rules in taken
        ]

    def lose(self, lost: Collection[Lease]) -> None:
        """Another node fires these now; a shard that was taken anew meanwhile stays."""
        with self._lock:
            self.leases = {
                shard: lease
                for shard, lease in self.leases.items()
                if lease not in lost
            }

    def _release(self, shards: list[int]) -> None:
        going = set(shards)
        self.lose({one for one in self.leases.values() if one.shard in going})
        self._connections.rows(RELEASE, [self.inc, Ints(shards)])

    def hand_over(self) -> None:
        """Be no node any more, and let others fire; the workers go on."""
        self._serves = False
        inc, self.inc = self.inc, 0
        shards, self.leases = list(self.leases), {}
        if inc:
            self._connections.all(
                [(RELEASE, [inc, Ints(shards)]), (_LEAVE, [Ints([inc])])]
            )
        self._end_trust()

    def close(self) -> None:
        """Hand over all shards, and let the node and its own workers go."""
        with self._lock:
            own, self._own = self._own, {}
        self.hand_over()
        if own:
            self._connections.rows(_LEAVE, [Ints(own.values())])
