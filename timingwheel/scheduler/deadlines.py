"""When running attempts must have ended: a heap of moments of the monotonic clock.

A time-out has two stages: the attempt is asked to end, and if it has not ended a grace
later it is ended without asking. The store knows nothing of either, since only the node
that runs a handler can do something about it.
"""

from __future__ import annotations

import heapq
import threading
from typing import Final, NamedTuple

KILL_GRACE_NS: Final = 10_000_000_000
"""From asking an attempt to end until it is ended without asking."""


class Deadline(NamedTuple):
    """A moment at which an attempt is to be ended.

    Attributes:
        at_ns: on the clock's monotonic scale.
        token: of the attempt's lease.
        kill: the second stage: do not ask.
    """

    at_ns: int
    token: int
    kill: bool


class Deadlines:
    """Deadlines of attempts, soonest first. Thread-safe.

    An attempt that has ended keeps its entry until its time comes: its token is gone by
    then, and that is what the node looks at. So the heap holds what was begun within one
    time-out at most.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._heap: list[Deadline] = []

    def add(self, deadline: Deadline) -> bool:
        """Take in a deadline; whether it is now the soonest."""
        with self._lock:
            heapq.heappush(self._heap, deadline)
            return self._heap[0] is deadline

    def next_ns(self) -> int | None:
        """Return the soonest, or None."""
        with self._lock:
            return self._heap[0].at_ns if self._heap else None

    def take_due(self, now_ns: int) -> list[Deadline]:
        """Take out those whose time has come, soonest first."""
        due: list[Deadline] = []
        with self._lock:
            while self._heap and self._heap[0].at_ns <= now_ns:
                due.append(heapq.heappop(self._heap))
        return due
