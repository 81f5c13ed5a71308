"""Small writes of a node that is held up by its rate: how long do requests take just now?

A program that only fires has no requests of its own by which the rate could be found. The
probe writes a row and commits, as any request does, on a thread of its own: what it waits
for while the node fires is what others wait for.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final

from timingwheel.clock import Clock
from timingwheel.errors import TimingWheelError

PROBE_EVERY_NS: Final = 25_000_000
PROBE_FOR_NS: Final = 1_000_000_000
"""So long it goes on after it was wanted last."""

_logger = logging.getLogger("timingwheel")


class Probing:
    """Calls `probe` at even intervals as long as that is wanted.

    Args:
        probe: writes something small; the database may be away.
        note: takes how long that has taken, ns.
        clock: to measure and to wait by.
    """

    def __init__(
        self, probe: Callable[[], None], note: Callable[[int], None], clock: Clock
    ) -> None:
        self._probe = probe
        self._note = note
        self._clock = clock
        self._condition = threading.Condition()
        self._until_ns = 0
        self._is_stopped = False
        self._thread: threading.Thread | None = None

    def want(self) -> None:
        """Probe for a while, from now on."""
        with self._condition:
            if self._is_stopped:
                return
            now_ns = self._clock.monotonic_ns()
            self._until_ns = now_ns + PROBE_FOR_NS
            if self._thread is not None:
                self._condition.notify_all()
                return
            self._thread = threading.Thread(
                target=self._run, name="timingwheel-probe", daemon=True
            )
            self._thread.start()

    def stop(self) -> None:
        """End, and wait for a call that goes on."""
        with self._condition:
            self._is_stopped = True
            self._condition.notify_all()
        if self._thread is not None:
            self._thread.join()

    def step(self) -> None:
        """Probe once."""
        start_ns = self._clock.monotonic_ns()
        try:
            self._probe()
        except TimingWheelError as error:
            _logger.debug("no probe: %s", error)
            return
        self._note(self._clock.monotonic_ns() - start_ns)

    def _run(self) -> None:
        next_ns = self._clock.monotonic_ns()
        while True:
            with self._condition:
                while not self._is_stopped:
                    now_ns = self._clock.monotonic_ns()
                    if next_ns <= now_ns < self._until_ns:
                        break
                    is_wanted = next_ns < self._until_ns
                    self._clock.wait(self._condition, next_ns if is_wanted else None)
                if self._is_stopped:
                    return
            next_ns = self._clock.monotonic_ns() + PROBE_EVERY_NS
            self.step()
