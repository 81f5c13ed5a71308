"""The worker pool: fired timers wait here for a thread that runs the handler.

The tick thread only puts; handlers run on workers, at most so many at once, so a slow or
failing one delays nobody but those who wait for the same pool. Threads start when they
are needed and end when they have had nothing to do for a while, so an idle engine has
none to wake.

Workers wait by the engine's clock, so a test that turns a manual one can wait until the
handlers, too, are done.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from timingwheel.clock import WAIT_MAX_NS, Clock
from timingwheel.engine.records import TimerId

QUEUE_MAX: Final = 4_096
"""Fired timers that may wait for a worker; then the tick thread waits."""
_REFILL_AT: Final = QUEUE_MAX // 2


class Dispatcher:
    """A bounded queue and the workers that empty it.

    Args:
        deliver: runs one handler to its end; never raises.
        clock: what idle workers wait by.
        workers: how many may run at once, 1 or more.
        on_space: called by a worker when the queue has drained to half, so that the
            tick thread refills it in one go and not timer by timer.
    """

    def __init__(
        self,
        deliver: Callable[[TimerId], None],
        clock: Clock,
        *,
        workers: int,
        on_space: Callable[[], None],
    ) -> None:
        self._deliver = deliver
        self._clock = clock
        self._workers = workers
        self._on_space = on_space
        mutex = threading.Lock()
        self._changed = threading.Condition(mutex)
        self._done = threading.Condition(mutex)
        self._queue: deque[TimerId] = deque()
        self._threads: set[threading.Thread] = set()
        self._started = 0
        self._checked_in = threading.Semaphore(0)
        self._idle = 0
        self._busy = 0
        self._refill = False
        """The queue was full, and nobody has told yet that half of it is free."""
        self._stopped = False

    @property
    def room(self) -> int:
        """How many timers `put` may bring; 0 until the queue has drained to half."""
        waiting = len(self._queue)
        return 0 if waiting > _REFILL_AT else QUEUE_MAX - waiting

    def put(self, timer_ids: Iterable[TimerId]) -> None:
        """Queue fired timers, in order."""
        with self._changed:
            if self._stopped:
                return
            self._queue.extend(timer_ids)
            wanted = len(self._queue)
            # Only now: set before the queue is full, it would be taken down at once, and
            # then nobody would tell.
            self._refill = wanted > _REFILL_AT
            self._changed.notify(wanted)
            missing = min(wanted - self._idle, self._workers - len(self._threads))
            for _ in range(missing):
                self._start_worker()
        for _ in range(missing):
            # Else the clock does not know the worker yet when the caller rests.
            self._checked_in.acquire()

    def stop(self, grace_s: float) -> bool:
        """Start no more handlers; wait up to `grace_s` for those that run.

        Returns:
            Whether all have ended. A caller that is itself a handler is not waited for.
        """
        own = threading.current_thread() in self._threads
        with self._changed:
            self._stopped = True
            self._queue.clear()
            self._changed.notify_all()
            return self._done.wait_for(lambda: self._busy <= own, timeout=grace_s)

    def _start_worker(self) -> None:
        thread = threading.Thread(
            target=self._run, name=f"timingwheel-worker-{self._started}", daemon=True
        )
        self._started += 1
        self._threads.add(thread)
        thread.start()

    def _run(self) -> None:
        try:
            with self._changed:
                self._clock.wait(self._changed, 0)
        finally:
            self._checked_in.release()
        while self._has_work():
            try:
                self._work()
            finally:
                with self._changed:
                    self._busy -= 1
                    self._done.notify_all()

    def _work(self) -> None:
        """Deliver what is queued, timer by timer, until the queue is empty.

        Without the lock, which would cost more than all else here: other workers do the
        same, and to take one from a deque is atomic.
        """
        queue, deliver = self._queue, self._deliver
        with contextlib.suppress(IndexError):
            while True:
                timer_id = queue.popleft()
                if self._refill and len(queue) <= _REFILL_AT:
                    self._refill = False
                    self._on_space()
                deliver(timer_id)

    def _has_work(self) -> bool:
        """Wait for a timer, and count as busy then; False if the worker is to end."""
        with self._changed:
            idle_since_ns: int | None = None
            while not self._queue:
                now_ns = self._clock.monotonic_ns()
                if idle_since_ns is None:
                    idle_since_ns = now_ns
                if self._stopped or now_ns - idle_since_ns >= WAIT_MAX_NS:
                    self._threads.discard(threading.current_thread())
                    return False
                self._idle += 1
                self._clock.wait(self._changed, None)
                self._idle -= 1
            self._busy += 1
            return True
