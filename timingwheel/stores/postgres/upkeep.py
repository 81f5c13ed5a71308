"""What a node does for the tables now and then: partitions ahead, and what is old away.

Every node that tends makes partitions, so that no one node must; only the one that fires
the first shard purges by itself, so that not all walk at once. Neither is needed for what
the other does to be right.
"""

from __future__ import annotations

from typing import Final

from timingwheel.clock import Clock
from timingwheel.stores.history_retention import Retention
from timingwheel.stores.postgres.connections import Connections
from timingwheel.stores.postgres.loading import Loading
from timingwheel.stores.postgres.membership import PRUNE
from timingwheel.stores.postgres.past import Partitions
from timingwheel.stores.postgres.retention import Purge

EVERY_NS: Final = 3_600_000_000_000
PURGE_STEPS: Final = 10
PURGE_NS: Final = 500_000_000
"""How many steps, and how long, come between two signs of life; the last may end later."""


class Upkeep:
    """The upkeep of one process. Its calls come from one thread, but for `purge`.

    Args:
        connections: to the database.
        loading: tells the time.
        clock: for how often.
        retention: what stays.
    """

    def __init__(
        self,
        connections: Connections,
        loading: Loading,
        clock: Clock,
        retention: Retention,
    ) -> None:
        self._connections = connections
        self._loading = loading
        self._clock = clock
        self._retention = retention
        self._partitions = Partitions(connections)
        self._done_ns = clock.monotonic_ns()
        self._purge: Purge | None = None

    def prepare(self) -> None:
        """Make the partitions of today and the next days."""
        self._partitions.make_ahead(self._loading.now().wall_ns)

    def tend(self, *, purges: bool) -> None:
        """Do a little of what is to be done; never long.

        Args:
            purges: whether this node is to begin a purge when it is time.
        """
        now_ns = self._clock.monotonic_ns()
        if now_ns - self._done_ns >= EVERY_NS:
            self._done_ns = now_ns
            self.prepare()
            self._connections.rows(PRUNE)
            if purges and self._purge is None:
                self._purge = self._new_purge()
        for _ in range(PURGE_STEPS):
            if self._purge is None or self._clock.monotonic_ns() - now_ns > PURGE_NS:
                return
            self._purge.step()
            if self._purge.is_done:
                self._purge = None

    def purge(self) -> int:
        """Forget all that is old enough; how many days, runs, jobs and skip ranges went."""
        walk = self._new_purge()
        gone = 0
        while not walk.is_done:
            gone += walk.step()
        return gone

    def _new_purge(self) -> Purge:
        now_ns = self._loading.now().wall_ns
        return Purge(self._connections, self._partitions, now_ns, self._retention)
