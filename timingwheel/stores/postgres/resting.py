"""When a node takes a turn: once a minute, and else only if a look shows something to do."""

from __future__ import annotations

from typing import Final

from timingwheel.clock import Clock
from timingwheel.stores.postgres.owner import PostgresOwner
from timingwheel.stores.postgres.serving import Serving

TURN_EVERY_NS: Final = 60_000_000_000
"""However quiet all is, a node takes a whole turn so often."""


class Resting:
    """A node's rest. Of one thread.

    Attributes:
        quiet_until_ns: when it looks again, monotonic, if the last look showed nothing.

    Args:
        owner: this process's part of the store.
        serving: looks.
        clock: to rest by.
    """

    def __init__(self, owner: PostgresOwner, serving: Serving, clock: Clock) -> None:
        self.quiet_until_ns: int | None = None
        self._owner = owner
        self._serving = serving
        self._clock = clock
        self._turn_by_ns = clock.monotonic_ns()

    def is_quiet(self, rest_ns: int) -> bool:
        """Return whether there is nothing to do; then a node rests so long at most."""
        self.quiet_until_ns = None
        owner, now_ns = self._owner, self._clock.monotonic_ns()
        if owner.news or owner.has_requests or now_ns >= self._turn_by_ns:
            return False
        is_quiet = self._serving.is_quiet()
        if is_quiet:
            next_ns = self._serving.next_ns
            self.quiet_until_ns = now_ns + min(rest_ns, next_ns or rest_ns)
        return is_quiet

    def note_turn(self) -> None:
        """Note that a whole turn is taken."""
        self._turn_by_ns = self._clock.monotonic_ns() + TURN_EVERY_NS
