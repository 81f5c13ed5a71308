"""The tick thread: sleeps until something is due, steps the core, hands on what fired.

    while open: step, hand on, wait until the next deadline or an earlier one arrives

It runs no handler and knows no payload. With nothing due it wakes every ten seconds, to
see whether the wall clock was set or the machine slept.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from timingwheel.clock import Clock
from timingwheel.engine.core import EngineCore
from timingwheel.engine.records import TimerId
from timingwheel.errors import EngineClosedError
from wal.errors import DiskFullError

_logger = logging.getLogger("timingwheel")


class Ticker:
    """One thread that calls `core.step`.

    Args:
        core: whose timers.
        clock: what to wait by.
        room: how many timers `deliver` can take now; at 0 the ticker waits to be woken.
        deliver: takes fired timers, durably fired, in order; must not wait.
    """

    def __init__(
        self,
        core: EngineCore,
        clock: Clock,
        *,
        room: Callable[[], int],
        deliver: Callable[[list[TimerId]], None],
    ) -> None:
        self._core = core
        self._clock = clock
        self._room = room
        self._deliver = deliver
        self._stopped = False
        self._checked_in = threading.Event()
        self._thread = threading.Thread(
            target=self._run, name="timingwheel-tick", daemon=True
        )

    def start(self) -> None:
        """Begin to tick."""
        self._thread.start()
        self._checked_in.wait()

    def wake(self) -> None:
        """Have it look again now: there is room, or it is to stop."""
        with self._core.lock:
            self._core.wake.notify_all()

    def stop(self) -> None:
        """End the thread; what it has taken out is handed on before."""
        self._stopped = True
        if self._thread.ident is not None:
            self.wake()
            self._thread.join()

    @property
    def alive(self) -> bool:
        """Whether timers are being fired."""
        return self._thread.is_alive()

    def tick(self) -> None:
        """Step once and hand on what fired; then the thread waits."""
        room = self._room()
        if room:
            self._deliver(self._core.step(room).timers)

    def _run(self) -> None:
        core = self._core
        try:
            with core.lock:
                # So the clock knows this thread before `start` returns.
                self._clock.wait(core.wake, 0)
        finally:
            self._checked_in.set()
        paused = False
        while True:
            try:
                self.tick()
                paused = False
            except (DiskFullError, OSError) as error:
                # No segment can be made just now; the log itself has not failed.
                if not paused:
                    _logger.error("firing pauses: %s", error)  # noqa: TRY400
                paused = True
            except EngineClosedError:
                return
            except Exception:
                # Nothing may end this thread silently: no timer would fire again.
                _logger.critical("firing stopped for good", exc_info=True)
                return
            if paused and not self._stopped:
                core.wait_for_space()
                continue
            with core.lock:
                if self._stopped:
                    return
                if self._room():
                    core.wait_for_due()
                else:
                    self._clock.wait(core.wake, None)
