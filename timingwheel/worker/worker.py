"""Worker: the tasks of this program, run for a server. Start here.

    app = Scheduler()                     # its tasks alone; it is never started

    @app.task
    def send(ctx, to: str) -> None: ...

    Worker("http://jobs:8765", app.tasks, slots=8).run_forever()

It asks the server for as many runs as it can start, says that it is alive, and tells how
they ended until the server has heard. A handler sees what it sees under a Scheduler: the
same `ctx`, time-outs, requests to end. Docs: docs/workers.md.
"""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Iterable
from queue import SimpleQueue
from types import TracebackType
from typing import Final, Self

from timingwheel.client.transport import Transport
from timingwheel.clock import Clock, SystemClock
from timingwheel.errors import ArgumentError
from timingwheel.jobs.durations import Duration, duration_ns
from timingwheel.scheduler.crew import Crew, checked_slots
from timingwheel.scheduler.metrics import Metrics, MetricsSnapshot
from timingwheel.scheduler.opening import executor_makers, worker_name
from timingwheel.scheduler.options import checked_text
from timingwheel.scheduler.scheduler import GRACE_SECONDS
from timingwheel.scheduler.signals import require_main_thread, signals_put
from timingwheel.scheduler.tasks import TaskRegistry, checked_registry
from timingwheel.worker.service import Service

TTL: Final = "30s"
TIMEOUT_SECONDS: Final = 10.0
_logger = logging.getLogger("timingwheel.worker")


class Worker:
    """Runs the tasks of this program for a server. Thread-safe.

    Args:
        url: of the server, such as "http://127.0.0.1:8765".
        tasks: what it can run: `app.tasks` of a Scheduler, all declared before `start`.
        token: what the server knows this program by; its role is "operate".
        slots: handlers that may run at once; default min(32, cores + 4).
        queues: of which queues it takes runs; None: of all.
        name: how people tell this worker from others; host and process by default.
        ttl: its runs start again elsewhere this long after its last sign of life, 1 s to
            1 h. A third of it, 5 s at most, is how soon a handler hears of a request to
            end.
        executor: as for Scheduler.
        timeout: how long an answer may take.
        clock: what to wait by.

    Raises:
        ArgumentError: an argument is invalid. Nothing is sent yet.
    """

    def __init__(
        self,
        url: str,
        tasks: TaskRegistry,
        *,
        token: str | None = None,
        slots: int | None = None,
        queues: Iterable[str] | None = None,
        name: str | None = None,
        ttl: Duration = TTL,
        executor: str = "thread",
        timeout: Duration = TIMEOUT_SECONDS,
        clock: Clock | None = None,
    ) -> None:
        self.url: Final = url
        self.tasks: Final = checked_registry(tasks)
        self.metrics: Final = Metrics()
        self._token = token
        self._slots = checked_slots(slots)
        self._queues = _checked_queues(queues)
        self._name = worker_name() if name is None else checked_text(name, "name")
        self._ttl_ns = duration_ns(ttl, "ttl", zero=False)
        self._timeout_s = duration_ns(timeout, "timeout", zero=False) / 1e9
        self._clock = SystemClock() if clock is None else clock
        self._executor = executor
        if executor not in executor_makers(1):
            known = ", ".join(f'"{one}"' for one in executor_makers(1))
            raise ArgumentError("executor", executor, f"pass one of {known}")
        self._transport().close()  # judges the URL
        self.failure: BaseException | None = None
        """What ended a thread of it: it claims nothing more, start the program again."""
        self._ends: SimpleQueue[int | BaseException] = SimpleQueue()
        self._turn = threading.Lock()
        self._service: Service | None = None

    @property
    def id(self) -> str | None:
        """How the server names this worker now; None while it is not joined."""
        service = self._service
        return None if service is None else service.membership.id

    def start(self) -> Self:
        """Join the server and begin to run what is due. Idempotent.

        A server that is away is waited for, now and later.

        Raises:
            ArgumentError: there are no tasks, or the server refuses an argument.
            AccessError: the token may not work there.
        """
        with self._turn:
            if self._service is not None:
                return self
            if not self.tasks.names:
                raise ArgumentError(
                    "tasks", [], "there are none: import the module that declares them"
                )
            service = Service(
                self._transport(),
                Crew(self.tasks, executor_makers(self._slots), self._executor),
                self._clock,
                metrics=self.metrics,
                name=self._name,
                ttl_ns=self._ttl_ns,
                queues=self._queues,
                on_failed=self._fail,
            )
            self.failure = None
            try:
                service.start()
            except BaseException:
                service.abandon()
                raise
            self._service = service
        return self

    def stop(self, grace: Duration = GRACE_SECONDS) -> None:
        """Take nothing more, let what runs end, tell the server, and leave. Idempotent.

        Args:
            grace: how long to wait for what runs. What takes longer ends as `shutdown`
                and starts again elsewhere; that uses up no attempt.
        """
        grace_s = duration_ns(grace, "grace") / 1e9
        with self._turn:
            service, self._service = self._service, None
            if service is not None:
                service.stop(grace_s)

    def run_forever(self, grace: Duration = GRACE_SECONDS) -> None:
        """Start, and return after SIGINT (Ctrl-C) or SIGTERM and a clean stop.

        A second signal during the stop acts as it did before: Ctrl-C interrupts.

        Args:
            grace: as `stop`.

        Raises:
            ArgumentError: as `start`, or it is not called in the main thread, where
                signals arrive.
            AccessError: as `start`.
            BaseException: what ended a thread of it, so that a supervisor sees a bad end.
        """
        require_main_thread()
        ends = self._ends = SimpleQueue()
        try:
            with signals_put(ends):
                self.start()
                ended = ends.get()
            if isinstance(ended, int):
                _logger.info("%s: stopping", signal.Signals(ended).name)
        finally:
            self.stop(grace)
        if isinstance(ended, BaseException):
            raise ended

    def snapshot_metrics(self) -> MetricsSnapshot:
        """Return what this worker has counted: attempts, ends, refused ones, and so on."""
        return self.metrics.snapshot()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _fail(self, error: BaseException) -> None:
        self.failure = error
        self._ends.put(error)

    def _transport(self) -> Transport:
        return Transport(
            self.url,
            token=self._token,
            timeout_s=self._timeout_s,
            # Each thread has its own patience, which a stop can end.
            patience_ns=0,
            clock=self._clock,
        )


def _checked_queues(names: Iterable[str] | None) -> frozenset[str] | None:
    if names is None:
        return None
    if isinstance(names, str):  # else its letters would count as names
        raise ArgumentError("queues", names, 'pass a list, such as ["mail"]')
    checked = frozenset(checked_text(name, "queues") for name in names)
    if not checked:
        raise ArgumentError("queues", [], "name one at least, or pass None for all")
    return checked
