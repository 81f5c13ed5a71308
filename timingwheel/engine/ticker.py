"""The tick thread: sleeps until something is due, steps the core, hands on what fired.

    while open: step, hand on, wait until the next deadline or an earlier one arrives

It runs no handler and knows no payload. With nothing due it wakes every ten seconds, to
see whether the wall clock was set or the machine slept.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable

from timingwheel.clock import Clock
from timingwheel.engine.acknowledgements import Acknowledgements
from timingwheel.engine.core import EngineCore
from timingwheel.engine.records import TimerId
from timingwheel.errors import EngineClosedError, TimingWheelError
from wal.errors import DiskFullError, WalError

_logger = logging.getLogger("timingwheel")


class Ticker:
    """One thread that calls `core.step`.

    Args:
        core: whose timers.
        clock: what to wait by.
        room: how many timers `deliver` can take now; at 0 the ticker waits to be woken.
        deliver: takes fired timers, durably fired, in order; must not wait.
        ended: deliveries that are to be recorded.
    """

    def __init__(
        self,
        core: EngineCore,
        clock: Clock,
        *,
        room: Callable[[], int],
        deliver: Callable[[list[TimerId]], None],
        ended: Acknowledgements,
    ) -> None:
        self._core = core
        self._clock = clock
        self._room = room
        self._deliver = deliver
        self._ended = ended
        self._stopped = False
        self._over = False
        """Whether the thread will record no more deliveries."""
        self._resting = False
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

    def acknowledge(self, timer_id: TimerId) -> None:
        """Have it recorded that a timer was delivered; in the log only a little later.

        Any thread may call this. Once the tick thread has ended, it is recorded here.

        Raises:
            DiskFullError: there is no tick thread any more, and no space.
            OSError: likewise.
            EngineFailedError: nor any engine.
            EngineClosedError: likewise.
        """
        self._ended.add(timer_id)
        if self._resting:
            self._resting = False  # one is enough to wake it
            self.wake()
        elif self._over:
            self._record()

    def stop(self) -> None:
        """End the thread; what it has taken out is handed on before."""
        self._stopped = True
        if self._thread.ident is not None:
            self.wake()
            self._thread.join()

    @property
    def over(self) -> bool:
        """Whether `acknowledge` records by itself, which may wait for the disk."""
        return self._over

    @property
    def alive(self) -> bool:
        """Whether timers are being fired."""
        return self._thread.is_alive()

    def tick(self) -> None:
        """Record what was delivered, step once, hand on what fired; then it waits."""
        core = self._core
        lsn = self._ended.record()
        room = self._room()
        fired: list[TimerId] = []
        try:
            if room:
                due, due_lsn, changed = core.take_due(room)
                fired = due.timers
                if changed:
                    core.commit(due_lsn)
                    lsn = 0  # one commit for both
        finally:
            if lsn:
                core.commit_soon(lsn)
        self._deliver(fired)

    def _record(self) -> None:
        lsn = self._ended.record()
        if lsn:
            self._core.commit_soon(lsn)

    def _run(self) -> None:
        try:
            self._tick_until_stopped()
        finally:
            self._over = True  # first, so that nothing added from now on stays behind
            with contextlib.suppress(WalError, TimingWheelError, OSError):
                self._record()

    def _tick_until_stopped(self) -> None:
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
            except Exception as error:
                # Nothing may end this thread silently: no timer would fire again.
                _logger.critical("firing stopped for good", exc_info=True)
                core.life.fail(error)
                return
            if paused and not self._stopped:
                core.wait_for_space()
                continue
            with core.lock:
                if self._stopped:
                    return
                self._resting = True  # first: what is added later will wake it
                if not self._ended:
                    if self._room():
                        core.wait_for_due()
                    else:
                        self._clock.wait(core.wake, None)
                self._resting = False
