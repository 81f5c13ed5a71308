"""What bounds how much a node makes ready: the window, and the rate of fires.

A store of one's own, opened by PostgresStore.open, has neither unless it is asked for;
a Scheduler asks for both. Workers are not bounded by it: it is about how quickly what is
due moves from planned to ready, so that a million due at once are no burst of a million
writes in front of everybody's requests.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from timingwheel.clock import Clock
from timingwheel.stores.fire_rate import FireRate, FiresPerSecond
from timingwheel.stores.postgres.connections import Connections, Statement
from timingwheel.stores.postgres.due import READY
from timingwheel.stores.postgres.membership import Membership
from timingwheel.stores.postgres.probing import Probing
from timingwheel.stores.postgres.window import REST_MAX_NS, REST_MIN_NS, Window

_PROBE: Final = "UPDATE timingwheel_member SET places = places WHERE inc = %s"


class FireLimits:
    """A node's bounds. The node's thread calls `statement`, then `fired`.

    Args:
        connections: to the database.
        members: who lives here.
        clock: to measure by.
        shards: of the store.
        fires_per_second: of the whole store; see FireRate.
        window_min: see Window; None: there is none.
    """

    def __init__(
        self,
        connections: Connections,
        members: Membership,
        clock: Clock,
        *,
        shards: int,
        fires_per_second: FiresPerSecond,
        window_min: int | None,
    ) -> None:
        self._connections = connections
        self._members = members
        self._clock = clock
        self._shards = shards
        self.rate: Final = FireRate(fires_per_second, clock)
        self._window = (
            None
            if window_min is None
            else Window(connections, clock, size_min=window_min)
        )
        self._probing = Probing(self._probe, self.rate.note, clock)
        self._limit = self._allowed = 0

    # -- a fire -------------------------------------------------------------------------

    def allowed(self, limit: int) -> int:
        """Return how many runs, and how many occurrences, this fire may make ready."""
        self._limit = limit
        share = len(self._members.leases) / self._shards
        self._allowed = self.rate.take(limit, share)
        return self._allowed

    def statement(self, own: Sequence[object]) -> Statement:
        """Return the statement that makes runs ready; see Window.statement."""
        if self._window is None or not self._allowed:
            return READY, [*own, self._allowed, self._allowed]
        return self._window.statement(own, self._allowed)

    def fired(self, ready: int | None, occurrences: int, *, is_left: bool) -> None:
        """Take in what came of it.

        Args:
            ready: how many runs became ready; None: the statement was not asked for.
            occurrences: how many jobs fired.
            is_left: whether something was due, and is left to workers.
        """
        if self._window is not None and self._allowed:
            if ready is None and is_left:
                self._window.left()
            elif ready is None:
                self._window.idle()
            else:
                self._window.fired(ready)
        most = max(ready or 0, occurrences)
        self.rate.used(
            (ready or 0) + occurrences,
            is_held_up=self._allowed < self._limit and most >= self._allowed,
        )
        if self.rate.is_held_up and self.rate.is_found:
            self._probing.want()

    @property
    def rest_ns(self) -> int:
        """How long the node may rest before it looks whether it may go on."""
        if self.rate.is_held_up:
            return max(self.rate.rest_ns, REST_MIN_NS)
        return REST_MAX_NS if self._window is None else self._window.rest_ns

    # -- beside it ----------------------------------------------------------------------

    def note_request(self, start_ns: int) -> None:
        """Note that a request, begun then by the clock's monotonic time, is done."""
        if self.rate.is_found:
            self.rate.note(self._clock.monotonic_ns() - start_ns)

    def note_claim(self, inc: int, asked: int) -> None:
        """Note for how many runs a worker of that number has asked."""
        if self._window is not None:
            self._window.note_claim(inc, asked)

    def tend(self) -> None:
        """Tell all nodes how many runs the workers of this process take."""
        if self._window is not None:
            self._window.publish(self._members.incs())

    def stop(self) -> None:
        """End the probe's thread."""
        self._probing.stop()

    def _probe(self) -> None:
        self._connections.rows(_PROBE, [self._members.inc])
