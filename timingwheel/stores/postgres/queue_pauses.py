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
        if changes != self._changes:
            self._paused = [
                (name, version, queue)
                for name, version, body in self._connections.rows(_QUEUES)
                if (queue := decode_queue(body)).pause is not None
            ]
            self._changes = changes
        woken = 0
        for name, version, queue in self._paused:
            until_ns = None if queue.pause is None else queue.pause.until_ns
            if until_ns is not None and until_ns <= wall_ns:
                value = msgspec.msgpack.encode(
                    msgspec.structs.replace(queue, pause=None)
                )
                self._connections.rows(_UNPAUSE, [value, name, version])
                woken += 1
        return woken
