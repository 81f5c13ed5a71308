"""Who lives: nodes and workers, by numbers that are never given again.

A member lives until its lease is past on the database's clock; whoever finds a run whose
holder's number is not among the living may give it to another. A worker of this process
(`ttl_ns=None`) and the node itself are renewed by `tend`; a remote worker by its own beats,
through whichever server.
"""

from __future__ import annotations

import threading
import uuid
from typing import Final, NamedTuple

from timingwheel.jobs.errors import UnknownWorkerError
from timingwheel.stores.postgres.connections import Connections, Ints, Texts
from timingwheel.stores.postgres.guard import Lease

_JOIN: Final = """
INSERT INTO timingwheel_member AS m (name, inc, is_node, ttl_ns, until_ns)
VALUES (%s, nextval('timingwheel_inc'), %s, %s, timingwheel_elapsed() + %s)
ON CONFLICT (name) DO UPDATE SET
    inc = CASE WHEN %s AND m.until_ns > timingwheel_elapsed()
        THEN m.inc ELSE excluded.inc END,
    ttl_ns = excluded.ttl_ns, until_ns = excluded.until_ns
RETURNING inc
"""
_BEAT: Final = """
UPDATE timingwheel_member SET until_ns = timingwheel_elapsed() + ttl_ns
WHERE name = ANY(%s) AND inc = ANY(%s) AND until_ns > timingwheel_elapsed()
RETURNING name
"""
_FIND: Final = """
SELECT inc FROM timingwheel_member
WHERE name = %s AND NOT is_node AND until_ns > timingwheel_elapsed()
"""
_LEAVE: Final = "DELETE FROM timingwheel_member WHERE name = ANY(%s) AND inc = ANY(%s)"
_TAKE: Final = """
WITH free AS (
    SELECT s.shard, s.owner_inc IS NULL AND s.epoch > 0 AS was_released
    FROM timingwheel_shard s WHERE NOT EXISTS (
        SELECT 1 FROM timingwheel_member m
        WHERE m.inc = s.owner_inc AND m.until_ns > timingwheel_elapsed()
    ) ORDER BY s.shard LIMIT %s FOR UPDATE OF s SKIP LOCKED
)
UPDATE timingwheel_shard s SET owner_inc = %s, epoch = s.epoch + 1
FROM free WHERE s.shard = free.shard
RETURNING s.shard, s.epoch, free.was_released
"""
_RELEASE: Final = """
UPDATE timingwheel_shard SET owner_inc = NULL, epoch = epoch + 1
WHERE owner_inc = %s AND shard = ANY(%s)
"""
_SHARE: Final = """
SELECT count(*), (SELECT count(*) FROM timingwheel_shard) FROM timingwheel_member
WHERE is_node AND until_ns > timingwheel_elapsed()
"""


class Taken(NamedTuple):
    """A shard that is new here.

    Attributes:
        shard: which.
        is_handed_over: a node let it go while others lived: somebody could dispatch all
            the time.
    """

    shard: int
    is_handed_over: bool


class Membership:
    """This process's members, and the shards it fires. Thread-safe.

    Attributes:
        inc: of the node; 0 until it serves.
        leases: the shards it fires, by number.

    Args:
        connections: to the database.
        ttl_ns: how long the node and its own workers live after the last `tend`.
    """

    def __init__(self, connections: Connections, *, ttl_ns: int) -> None:
        self.inc = 0
        self.leases: dict[int, Lease] = {}
        self._connections = connections
        self._ttl_ns = ttl_ns
        self._lock = threading.Lock()
        self._own: dict[str, int] = {}
        self._remote: dict[str, int] = {}
        self._is_fresh = True
        self._node = f"node:{uuid.uuid4()}"

    def join(self, worker: str, *, ttl_ns: int | None) -> None:
        """Announce a worker; a remote one that lives is the same one still."""
        is_remote = ttl_ns is not None
        inc = self._join(worker, ttl_ns=ttl_ns or self._ttl_ns, keeps=is_remote)
        with self._lock:
            (self._remote if is_remote else self._own)[worker] = inc
            (self._own if is_remote else self._remote).pop(worker, None)

    def _join(self, name: str, *, ttl_ns: int, keeps: bool) -> int:
        is_node = name == self._node
        values = (name, is_node, ttl_ns, ttl_ns, keeps)
        return int(self._connections.rows(_JOIN, values)[0][0])

    def serve(self) -> None:
        """Become a node, or go on to be one."""
        if not self.inc:
            self.inc = self._join(self._node, ttl_ns=self._ttl_ns, keeps=False)
            self._is_fresh = True

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

    def renew(self, worker: str) -> bool:
        """Have a worker of this process, which was lost, begin anew; False: it is none.

        What it had is another's now: whatever it still reports of that is refused.
        """
        with self._lock:
            if worker not in self._own:
                return False
        inc = self._join(worker, ttl_ns=self._ttl_ns, keeps=False)
        with self._lock:
            self._own[worker] = inc
        return True

    def forget(self, worker: str) -> None:
        """It was lost."""
        with self._lock:
            self._own.pop(worker, None)
            self._remote.pop(worker, None)

    def beat(self, worker: str) -> bool:
        """Renew the lease of a worker; False: it is past."""
        try:
            inc = self.inc_of(worker)
        except UnknownWorkerError:
            return False
        if self._connections.rows(_BEAT, [Texts([worker]), Ints([inc])]):
            return True
        self.forget(worker)
        return False

    def tend(self) -> bool:
        """Renew the node and its own workers; False: the node's lease is past."""
        with self._lock:
            own = dict(self._own)
        if self.inc:
            own[self._node] = self.inc
        if not own:
            return True
        values = [Texts(own), Ints(own.values())]
        alive = {name for (name,) in self._connections.rows(_BEAT, values)}
        for worker in own.keys() - alive - {self._node}:
            self.renew(worker)
        if not self.inc or self._node in alive:
            return True
        self.inc = 0
        self.leases = {}
        return False

    def leave(self, worker: str) -> int | None:
        """Forget a worker; return its number, None if there was none."""
        try:
            inc = self.inc_of(worker)
        except UnknownWorkerError:
            return None
        self._connections.rows(_LEAVE, [Texts([worker]), Ints([inc])])
        self.forget(worker)
        return inc

    def balance(self) -> list[Taken]:
        """Take shards that nobody fires, up to a fair share; release what is beyond it."""
        if not self.inc:
            return []
        nodes, shards = self._connections.rows(_SHARE)[0]
        share = -(-shards // max(nodes, 1))
        if len(self.leases) > share:
            self._release(sorted(self.leases)[share:])
        elif len(self.leases) < share:
            values = [share - len(self.leases), self.inc]
            taken = self._connections.rows(_TAKE, values)
            new = {shard: Lease(shard, epoch) for shard, epoch, _ in taken}
            self.leases = {**self.leases, **new}
            somebody_lived = nodes > 1 or not self._is_fresh
            self._is_fresh = False
            return [
                Taken(shard, released and somebody_lived)
                for shard, _, released in taken
            ]
        return []

    def lose(self, shards: set[int]) -> None:
        """Another node fires them now."""
        self.leases = {
            shard: lease for shard, lease in self.leases.items() if shard not in shards
        }

    def _release(self, shards: list[int]) -> None:
        self.lose(set(shards))
        self._connections.rows(_RELEASE, [self.inc, Ints(shards)])

    def close(self) -> None:
        """Hand over all shards, and let the node and its own workers go."""
        with self._lock:
            own, self._own = self._own, {}
        if self.inc:
            self._release(list(self.leases))
            own[self._node] = self.inc
        self.inc = 0
        if own:
            self._connections.rows(_LEAVE, [Texts(own), Ints(own.values())])
