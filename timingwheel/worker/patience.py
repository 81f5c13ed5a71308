"""How long to wait before a server that is away is asked again: longer each time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from timingwheel.clock import Clock

FIRST_NS: Final = 100_000_000
LONGEST_NS: Final = 5_000_000_000


class Patience:
    """Waits of one thread, from FIRST_NS doubled to LONGEST_NS.

    Args:
        clock: what to wait by.
        changed: waited on, so that whoever is to end is told.
    """

    def __init__(self, clock: Clock, changed: threading.Condition) -> None:
        self._clock = clock
        self._changed = changed
        self._next_ns = FIRST_NS

    @property
    def is_new(self) -> bool:
        """Whether nothing has failed since the last `renew`."""
        return self._next_ns == FIRST_NS

    def renew(self) -> None:
        """Begin anew: it has worked."""
        self._next_ns = FIRST_NS

    def wait(self, is_over: Callable[[], bool]) -> None:
        """Wait a while, or until it is over; asked whenever `changed` is notified."""
        until_ns = self._clock.monotonic_ns() + self._next_ns
        self._next_ns = min(2 * self._next_ns, LONGEST_NS)
        with self._changed:
            while not is_over() and self._clock.monotonic_ns() < until_ns:
                self._clock.wait(self._changed, until_ns)
