"""Threads beside the node's: one gives signs of life, one sees when that has failed.

They are two, since a beat may wait for its answer for longer than the lease lasts.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from timingwheel.clock import Clock
from timingwheel.errors import TimingWheelError
from timingwheel.stores.postgres.trust import Trust

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
        self._hurries = False
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

    def hurry(self) -> None:
        """Call at once, if it has begun."""
        with self._condition:
            self._hurries = True
            self._condition.notify_all()

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
                while not self._is_over(next_ns):
                    self._clock.wait(self._condition, next_ns)
                if self._is_stopped:
                    return
                self._hurries = False
            # From when it is sent, not from when it was answered.
            next_ns = self._clock.monotonic_ns() + self._every_ns
            try:
                self._tend()
            except TimingWheelError as error:
                _logger.warning("no sign of life could be given: %s", error)
            except Exception:
                # Without this thread the process would lose its lease, and never be a
                # node again while its other threads go on.
                _logger.exception("no sign of life could be given; it is tried again")

    def _is_over(self, next_ns: int) -> bool:
        is_due = self._clock.monotonic_ns() >= next_ns
        return self._is_stopped or self._hurries or is_due


class Watching:
    """Sees when trust ends, from `start` to `stop`, whatever hangs.

    Args:
        trust: whose end is to be seen.
        clock: to wait by.
    """

    def __init__(self, trust: Trust, clock: Clock) -> None:
        self._trust = trust
        self._clock = clock
        self._is_stopped = False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin, unless it has begun."""
        with self._trust.changed:
            if self._thread is not None or self._is_stopped:
                return
            self._thread = threading.Thread(
                target=self._run, name="timingwheel-trust", daemon=True
            )
        self._thread.start()

    def stop(self) -> None:
        """End."""
        with self._trust.changed:
            self._is_stopped = True
            self._trust.changed.notify_all()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        changed, trust = self._trust.changed, self._trust
        while True:
            with changed:
                while not self._is_stopped and not trust.is_over:
                    self._clock.wait(changed, trust.until_ns)
                if self._is_stopped:
                    return
            trust.holds()
