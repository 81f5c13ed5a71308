"""Ends that are being told to the host, so that a stop does not overtake them.

An attempt leaves its executor's table first and is told after that, outside of the lock.
In between a stop must not return: the host would close its store, and the end of a
handler that has done its work would be lost.
"""

from __future__ import annotations

import threading

from timingwheel.clock import await_memory
from timingwheel.jobs.store import Finish
from timingwheel.scheduler.executors.executor import Host


class Reports:
    """How many ends are on their way.

    Args:
        lock: the executor's.
        done: its condition of that lock, notified when one has been told.
    """

    def __init__(self, lock: threading.Lock, done: threading.Condition) -> None:
        self.is_awaited = False
        """Whether somebody waits, or will, until all are told; set with the lock held."""
        # Not by the condition: its own `with` asks for memory before it lets go.
        self._lock = lock
        self._done = done
        self._count = 0

    @property
    def are_told(self) -> bool:
        """Whether none is on its way; ask with the lock held."""
        return self._count == 0

    def announce(self) -> None:
        """Say, with the lock held, that an end will be told."""
        self._count += 1

    def tell(self, host: Host, finish: Finish) -> None:
        """Tell an end that was announced, without the lock; without memory, again."""
        try:
            while True:
                try:
                    host.ended(finish)
                except MemoryError:
                    await_memory()
                else:
                    return
        finally:
            self._count_down()

    def _count_down(self) -> None:
        with self._lock:
            self._count -= 1
            while self._count == 0 and self.is_awaited:
                try:
                    self._done.notify_all()
                except MemoryError:
                    await_memory()
                else:
                    return
