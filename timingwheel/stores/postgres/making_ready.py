"""Which due runs a fire makes ready, and which it leaves to the workers of its process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from timingwheel.stores.postgres.connections import Connections, Ints
from timingwheel.stores.postgres.guard import Lease
from timingwheel.stores.postgres.limits import FireLimits
from timingwheel.stores.postgres.looking import Look
from timingwheel.stores.postgres.taking import Taking


class MakingReady:
    """Makes runs ready. Of one thread.

    Args:
        connections: to the database.
        limits: how much is made ready.
        taking: what workers take directly.
    """

    def __init__(
        self, connections: Connections, limits: FireLimits, taking: Taking
    ) -> None:
        self._connections = connections
        self._limits = limits
        self._taking = taking

    def run(
        self,
        seen: Look,
        leases: Mapping[int, Lease],
        bounds: Sequence[int],
    ) -> int | None:
        """Make due runs ready, unless workers come for all of them.

        Args:
            seen: what is due.
            leases: of the node's shards.
            bounds: the node's number, and an elapsed time after which nothing is due.

        Returns:
            How many; None if the limits had no say in it: nothing was due, or the workers
            come for all of it.
        """
        direct = self._taking.direct(
            others_idle=seen.idle > 0, has_ranks=seen.has_ranks
        )
        is_left = direct is None or bool(direct)
        due = {shard: leases[shard] for shard in seen.due}
        self._taking.leave(due if is_left else {})
        if direct is None or not due or (is_left and not self._taking.loose()):
            return None
        shards, epochs = zip(*due.values(), strict=True)
        own: list[object] = [Ints(shards), Ints(epochs), *bounds]
        return len(self._connections.rows(*self._limits.statement(own)))
