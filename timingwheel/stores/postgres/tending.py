"""A thread that gives signs of life, whatever the node is busy with."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from timingwheel.clock import Clock
from timingwheel.errors import TimingWheelError

_logger = logging.getLogger("timingwheel")


class Tending:
    """Calls `tend` at even intervals, from `start` to `stop`.

    Args:
        tend: gives a sign of life; the database may be away.
        clock: to wait by.
        every_ns: how often.
    """

    def __init__(
        self, tend: Callable[[], None], clock: Clock, *, every_ns: int
    ) -> None:
        self._tend = tend
        self._clock = clock
        self._every_ns = every_ns
        self._condition = threading.Condition()
        self._is_stopped = False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin, unless it has begun."""
        with self._condition:
            if self._thread is not None or self._is_stopped:
                return
            self._thread = threading.Thread(
                target=self._run, name="timingwheel-tend", daemon=True
            )
        self._thread.start()

    def stop(self) -> None:
        """End, and wait for a call that goes on."""
        with self._condition:
            self._is_stopped = True
            self._condition.notify_all()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        next_ns = self._clock.monotonic_ns() + self._every_ns
        while True:
            with self._condition:
                while not self._is_stopped and self._clock.monotonic_ns() < next_ns:
                    self._clock.wait(self._condition, next_ns)
                if self._is_stopped:
                    return
            # From when it is sent, not from when it was answered.
            next_ns = self._clock.monotonic_ns() + self._every_ns
            try:
                self._tend()
            except TimingWheelError as error:
                _logger.warning("no sign of life could be given: %s", error)
