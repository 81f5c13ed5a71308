"""Pauses of queues that were to end by now; the rows are read only when one has changed."""

from __future__ import annotations

from typing import Final

import msgspec

from timingwheel.jobs.model import Queue
from timingwheel.stores.postgres.connections import Connections
from timingwheel.stores.postgres.queues import decode_queue

_QUEUES: Final = "SELECT name, version, body FROM timingwheel_queue"
_UNPAUSE: Final = """
UPDATE timingwheel_queue SET version = version + 1, body = %s
WHERE name = %s AND version = %s
"""


class QueuePauses:
    """Ends pauses in time. Of one thread.

    Args:
        connections: to the database.
    """

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._changes: int | None = None
        self._paused: list[tuple[str, int, Queue]] = []

    def end(self, changes: int, wall_ns: int) -> int:
        """End those that were to end by now; return how many.

        Args:
            changes: another number whenever a queue has changed.
            wall_ns: the present.
        """
        over = self._over(changes, wall_ns)
        for name, version, queue in over:
            value = msgspec.msgpack.encode(msgspec.structs.replace(queue, pause=None))
            self._connections.rows(_UNPAUSE, [value, name, version])
        return len(over)

    def are_over(self, changes: int, wall_ns: int) -> bool:
        """Return whether `end` would end some."""
        return bool(self._over(changes, wall_ns))

    def _over(self, changes: int, wall_ns: int) -> list[tuple[str, int, Queue]]:
        if changes != self._changes:
            self._paused = [
                (name, version, queue)
                for name, version, body in self._connections.rows(_QUEUES)
                if (queue := decode_queue(body)).pause is not None
            ]
            self._changes = changes
        return [
            (name, version, queue)
            for name, version, queue in self._paused
            if queue.pause is not None
            and queue.pause.until_ns is not None
            and queue.pause.until_ns <= wall_ns
        ]
