"""What one thread waits for: what its children say, and orders from other threads.

One selector over all children's sockets and a socket pair that wakes it, so nothing
polls. All methods but `order` belong to the thread that waits.
"""

from __future__ import annotations

import contextlib
import logging
import selectors
import socket
from collections import deque
from collections.abc import Callable
from typing import Final

from timingwheel.clock import await_memory
from timingwheel.scheduler.executors.process_slot import ProcessSlot

_logger: Final = logging.getLogger("timingwheel")


class Switchboard:
    """The sockets of the children that live, and orders that wait to be carried out."""

    def __init__(self) -> None:
        self._orders: deque[Callable[[], None]] = deque()
        self._selector = selectors.DefaultSelector()
        self._wake, self._woken = socket.socketpair()
        self._wake.settimeout(0)
        self._woken.settimeout(0)
        self._selector.register(self._woken, selectors.EVENT_READ)

    def order(self, order: Callable[[], None]) -> None:
        """Have the thread carry out something soon. Thread-safe, and never waits."""
        self._orders.append(order)
        # Full: so many wake-ups are on their way that one more would not be missed.
        # Closed: nobody carries out anything any more.
        with contextlib.suppress(OSError):
            self._wake.send(b"\0")

    def watch(self, slot: ProcessSlot) -> None:
        """Wait for what a child says too."""
        self._selector.register(slot.connection, selectors.EVENT_READ, slot)

    def unwatch(self, slot: ProcessSlot) -> None:
        """Do not wait for a child any more; twice does no harm."""
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(slot.connection)

    def wait(self) -> list[ProcessSlot]:
        """Wait until there is something to do; send on what children take now.

        Returns:
            The children that have said something, or have closed the line.
        """
        said = []
        self._watch_writes()
        for key, events in self._selector.select():
            slot: ProcessSlot | None = key.data
            if slot is None:
                self._woken.recv(4_096)
                continue
            if events & selectors.EVENT_WRITE:
                slot.flush()
            if events & selectors.EVENT_READ:
                said.append(slot)
        return said

    def obey(self) -> None:
        """Carry out what has been ordered, in order."""
        while self._orders:
            self.obey_one(self._orders.popleft())

    def obey_one(self, order: Callable[[], None]) -> None:
        """Carry out something; a fault in it does not end the thread.

        What finds no memory is ordered again.
        """
        try:
            order()
        except MemoryError:
            await_memory()
            self.order(order)
        except Exception:
            # The host's, or a filter of the program's logging; all children depend on us.
            _logger.exception("the thread of the processes goes on after a fault")

    def close(self) -> None:
        """Let go of the sockets that are its own."""
        self._selector.close()
        self._wake.close()
        self._woken.close()

    def _watch_writes(self) -> None:
        """Wait for a child to take more only while there is more for it."""
        for key in list(self._selector.get_map().values()):
            slot: ProcessSlot | None = key.data
            if slot is None:
                continue
            events = selectors.EVENT_READ
            if slot.has_unsent:
                events |= selectors.EVENT_WRITE
            if events != key.events:
                self._selector.modify(slot.connection, events, slot)
