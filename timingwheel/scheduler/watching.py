"""Waiting for runs to end, without asking again and again.

A store tells its listeners of runs that have reached a final state, once that is durable.
Whoever waits subscribes first and looks at the store afterwards, so an end that comes in
between is not missed.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from timingwheel.clock import Clock
from timingwheel.jobs.model import Run, RunId
from timingwheel.jobs.states import FINAL
from timingwheel.jobs.store import JobStore, TellsOfExpected
from timingwheel.scheduler.surveying import is_served

_logger = logging.getLogger("timingwheel")
_IDLE: Final = "no scheduler is started that could run it: call start()"

Tell = Callable[[Run | BaseException], None]
"""Takes the run that has ended, or the reason why nobody will ever tell. Must not wait."""


class RunWatch:
    """Tells of ends of runs. Thread-safe.

    Args:
        store: whose runs.
        clock: what to wait by.
        is_serving: whether this process starts runs of the store now.
    """

    def __init__(
        self,
        store: JobStore,
        clock: Clock,
        *,
        is_serving: Callable[[], bool] = lambda: True,
    ) -> None:
        self._store = store
        self._is_serving = is_serving
        self._warned = False
        self._expecting = store if isinstance(store, TellsOfExpected) else None
        self._clock = clock
        self._lock = threading.Lock()
        self._tells: dict[RunId, list[Tell]] = {}
        self._ended: BaseException | None = None
        store.add_listener(self._hear)

    @contextmanager
    def subscribed(self, run_id: RunId, tell: Tell) -> Iterator[None]:
        """Have `tell` called when a run ends, for as long as the block lasts."""
        with self._lock:
            ended = self._ended
            if ended is None:
                self._tells.setdefault(run_id, []).append(tell)
        if ended is not None:
            raise ended
        try:
            if self._expecting is not None:
                self._expecting.expect(run_id)
            yield
        finally:
            with self._lock:
                tells = self._tells.get(run_id, [])
                if tell in tells:
                    tells.remove(tell)
                is_last = not tells
                if is_last:
                    self._tells.pop(run_id, None)
            if is_last and self._expecting is not None:
                self._expecting.expect_no_more(run_id)

    def final(self, run_id: RunId) -> Run | None:
        """Return a run if it has ended already, else None.

        Logs, once, if nobody runs what somebody is about to wait for.
        """
        run = self._store.run(run_id)
        if run is not None and run.state in FINAL:
            return run
        # Of a database it would be one more question for each wait, and another process
        # may begin to serve it at any time.
        if not self._warned and self._expecting is None and not self._is_served():
            self._warned = True
            _logger.warning("run %s is waited for, but %s", run_id, _IDLE)
        return None

    def wait(self, run_id: RunId, timeout_ns: int | None) -> Run:
        """Return a run once it has ended.

        Args:
            run_id: of a run that is there or will be.
            timeout_ns: how long to wait at most; None for no bound.

        Raises:
            TimeoutError: it has not ended within the time; it goes on.
            EngineClosedError: the scheduler was stopped meanwhile.
            EngineFailedError: the log failed meanwhile.
        """
        told: list[Run | BaseException] = []
        changed = threading.Condition()

        def tell(what: Run | BaseException) -> None:
            with changed:
                told.append(what)
                changed.notify_all()

        with self.subscribed(run_id, tell):
            run = self.final(run_id)
            if run is not None:
                return run
            until_ns = None
            if timeout_ns is not None:
                until_ns = self._clock.monotonic_ns() + timeout_ns
            with changed:
                while not told:
                    if until_ns is not None and self._clock.monotonic_ns() >= until_ns:
                        why = "it goes on" if self._is_served() else _IDLE
                        raise TimeoutError(f"run {run_id} has not ended yet; {why}")
                    self._clock.wait(changed, until_ns)
        if isinstance(told[0], BaseException):
            raise told[0]
        return told[0]

    def _is_served(self) -> bool:
        return self._is_serving() or is_served(self._store)

    def close(self, why: BaseException) -> None:
        """Tell all who wait that nothing will come any more. Idempotent."""
        with self._lock:
            if self._ended is not None:
                return
            self._ended = why
            tells = [tell for waiting in self._tells.values() for tell in waiting]
            self._tells.clear()
        for tell in tells:
            tell(why)

    def _hear(self, runs: Sequence[Run]) -> None:
        if not self._tells:
            return  # the usual case, and this is called for every run there is
        heard: list[tuple[Tell, Run]] = []
        with self._lock:
            for run in runs:
                heard += [(tell, run) for tell in self._tells.get(run.id, ())]
        for tell, run in heard:
            tell(run)
