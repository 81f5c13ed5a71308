"""Which due runs a fire makes ready, and which it leaves to the workers of its process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from timingwheel.stores.postgres.connections import Connections, Ints
from timingwheel.stores.postgres.due import LOOSE
from timingwheel.stores.postgres.guard import Lease
from timingwheel.stores.postgres.limits import FireLimits
from timingwheel.stores.postgres.looking import Look
from timingwheel.stores.postgres.taking import Taking


class MakingReady:
    """Makes runs ready. Of one thread.

    Attributes:
        has_more: whether the last call may have left some that are to be ready.

    Args:
        connections: to the database.
        limits: how much is made ready.
        taking: what workers take directly.
    """

    def __init__(
        self, connections: Connections, limits: FireLimits, taking: Taking
    ) -> None:
        self.has_more = False
        self._connections = connections
        self._limits = limits
        self._taking = taking

    def run(
        self,
        seen: Look,
        leases: Mapping[int, Lease],
        bounds: Sequence[int],
        allowed: int,
    ) -> int | None:
        """Make due runs ready, but those that workers come for.

        Args:
            seen: what is due.
            leases: of the node's shards.
            bounds: the node's number, and an elapsed time after which nothing is due.
            allowed: how many at most.

        Returns:
            How many; None if the limits had no say in it: nothing was due, or the workers
            come for all but a few.
        """
        self.has_more = False
        direct = self._taking.direct(others_idle=seen.idle > 0)
        is_all = direct is not None and not direct
        due = {shard: leases[shard] for shard in seen.due}
        self._taking.leave({} if is_all else due)
        if direct is None or not due or not (is_all or self._taking.loose()):
            return None
        shards, epochs = zip(*due.values(), strict=True)
        own: list[object] = [Ints(shards), Ints(epochs), *bounds]
        if is_all:
            return len(self._connections.rows(*self._limits.statement(own)))
        values = [*own, 1 + allowed // len(due), direct, allowed]
        # There may be more behind those that were left.
        self.has_more = bool(self._connections.rows(LOOSE, values))
        return None
