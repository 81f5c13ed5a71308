"""Scheduler: durable jobs that run functions. Start here.

    app = Scheduler("./data")

    @app.task(retry=Retry(5, backoff="1s..10m"), timeout="5m")
    def send(ctx, to: str) -> None: ...

    with app:
        app.schedule(send.call("a@x"), 30)
        app.add(send.call("b@x"), cron="30 2 * * *", tz="Europe/Berlin", name="nightly")

What holds: when `schedule` or `add` returns, the job survives a kill and a power loss; an
occurrence has exactly one run, over restarts, resumes and clock changes; nothing starts
early, and nothing that was missed is dropped in silence.

Building a Scheduler opens nothing, since a spawned child imports the module again. It
opens at `start`, `with`, or the first request; what is due waits for `start`, when all
tasks are known.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue as queues
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Self, Unpack, overload

from timingwheel.clock import Clock, SystemClock
from timingwheel.errors import EngineClosedError, EngineFailedError
from timingwheel.jobs.durations import Duration, duration_ns
from timingwheel.jobs.errors import TaskError
from timingwheel.jobs.model import DEFAULT_QUEUE, Delivery
from timingwheel.jobs.store import JobStore
from timingwheel.scheduler.crew import Crew, MakeExecutor, checked_slots, runnable
from timingwheel.scheduler.desk import Desk
from timingwheel.scheduler.metrics import Metrics, MetricsSnapshot
from timingwheel.scheduler.node import NodeListener, NodeLoop
from timingwheel.scheduler.opening import (
    IfHeld,
    SchedulerOptions,
    StoreSource,
    executor_makers,
    place_of,
    store_opener,
    worker_name,
)
from timingwheel.scheduler.options import checked_text
from timingwheel.scheduler.pausing import user_name
from timingwheel.scheduler.payloads import Form, Upgrade
from timingwheel.scheduler.questions import Questions
from timingwheel.scheduler.requests import Requests
from timingwheel.scheduler.retrying import Retry
from timingwheel.scheduler.signals import require_main_thread, signals_put
from timingwheel.scheduler.tasks import Task, TaskRegistry, checked_registry
from timingwheel.scheduler.watching import RunWatch

Function = Callable[..., Any]
FailureListener = Callable[[BaseException], object]

GRACE_SECONDS: Final = 10.0
_CLOSED: Final = "the scheduler was stopped: start() it again, or build another"
_FAILED: Final = (
    "the scheduler stopped for good, and what was acknowledged is safe: mend the cause, "
    "stop() it and start again"
)
_FORKED: Final = (
    "this process is a fork of the one that started the scheduler, whose threads it does "
    "not have: start it after forking, or stop() it here and build another"
)
_logger = logging.getLogger("timingwheel")


class Scheduler(Requests, Questions):
    """Durable jobs in a directory or a database, run by this process. Thread-safe.

    Args:
        store: a directory, made if missing; ":memory:" keeps nothing; "postgresql://…"
            is a database that many processes share; a FileSystem is for tests; or a
            function that opens a JobStore by a Clock.
        if_held: if another process holds the directory, "error" raises StoreInUseError;
            "client" asks that process, and takes over when it ends.
        clock: where time comes from; `timingwheel.testing.ManualClock` for tests.
        slots: handlers that may run at once; default min(32, cores + 4). 0: it makes
            ready what is due and leaves running it to others.
        executor: what runs plain functions that name none: "thread", "process" or
            "inline"; coroutine functions run on "asyncio".
        worker: how this process is named in attempts; host, process and start by default.
        actor: who pauses and cancels, unless a call says so; the user by default.
        tasks: tasks that are known already, such as those of another Scheduler.
        **log_options: of the store's log. durability="interval" acknowledges at once,
            and a kill or a power loss can take the last `interval_ms`; create=False
            refuses a directory where no store is yet; retention=Retention(...) says how
            long what has ended is kept; fires_per_second=None has nodes on PostgreSQL go
            as fast as they can; all others: see SchedulerOptions.

    Raises:
        ArgumentError: an argument is invalid. The store's own errors come when it
            is opened: StoreError, StoreInUseError, LogCorruptError.
    """

    def __init__(
        self,
        store: StoreSource = "./data",
        *,
        if_held: IfHeld = "error",
        clock: Clock | None = None,
        slots: int | None = None,
        executor: str = "thread",
        worker: str | None = None,
        actor: str | None = None,
        tasks: TaskRegistry | None = None,
        **log_options: Unpack[SchedulerOptions],
    ) -> None:
        self.tasks: Final = checked_registry(tasks)
        self.clock: Final[Clock] = SystemClock() if clock is None else clock
        self.metrics: Final = Metrics()
        self._open_store = store_opener(store, if_held=if_held, options=log_options)
        self.directory, self.database = place_of(store)
        self.slots: Final = checked_slots(slots, least=0)
        self._makers = self._make_executors()
        self._executor = self._checked_executor(executor, "executor")
        self._worker = None if worker is None else checked_text(worker, "worker")
        self._actor = None if actor is None else checked_text(actor, "actor")
        # Starting and stopping take turns, as a whole; opening and closing exclude each
        # other, and any request may have to open.
        self._turn = threading.RLock()
        self._life = threading.RLock()
        self._desk: Desk | None = None
        self._node: NodeLoop | None = None
        self._was_stopped = False
        self._opened_by = 0
        self._failure_listeners: list[FailureListener] = []
        self._node_listeners: list[NodeListener] = []

    # -- tasks ----------------------------------------------------------------------------

    @overload
    def task(self, function: Function, /) -> Task: ...

    @overload
    def task(
        self,
        function: None = None,
        /,
        *,
        name: str | None = None,
        version: int = 1,
        upgrade: Mapping[int, Upgrade] | None = None,
        form: Form = "msgpack",
        pickle: bool = False,
        retry: Retry | None = None,
        timeout: Duration | None = None,
        delivery: Delivery | str = Delivery.AT_LEAST_ONCE,
        executor: str | None = None,
        queue: str = DEFAULT_QUEUE,
        priority: int = 0,
        secret: Sequence[str] = (),
    ) -> Callable[[Function], Task]: ...

    def task(
        self, function: Function | None = None, /, **options: Any
    ) -> Task | Callable[[Function], Task]:
        """Declare a function as a task, with `@app.task` or `@app.task(timeout="5m")`.

        Its first parameter gets the Context if it is named ctx. Calling the task runs
        the function here and now; `task.call(...)` says what to do, for `add`.

        Args:
            function: made by def or async def at the top level of a module.
            **options: name, version, upgrade, form, pickle, retry, timeout, delivery,
                executor, queue, priority, secret: see Task.

        Raises:
            TaskError: the function cannot be a task, or another has its name.
        """
        if function is not None:
            return self._register(function, options)
        if options.get("executor") is not None:
            self._checked_executor(options["executor"], "executor")
        return lambda function: self._register(function, options)

    def _register(self, function: Function, options: Mapping[str, Any]) -> Task:
        task = self.tasks.register(Task(function, **options))
        node = self._node
        if node is not None:
            node.wake()  # runs may wait for this very task
        return task

    def _checked_executor(self, executor: str, argument: str) -> str:
        if executor not in self._makers:
            known = ", ".join(f'"{name}"' for name in self._makers)
            raise TaskError(argument, executor, f"pass one of {known}")
        return executor

    # -- life -----------------------------------------------------------------------------

    def start(self) -> Self:
        """Open the store and begin to run what is due. Idempotent.

        What a former process left running is lost and tried again; what it left due
        runs now, and missed occurrences are treated as their misfire policies say.

        Raises:
            StoreInUseError: another process holds the directory; it is named.
            StoreError: the path is no store and cannot become one.
            LogCorruptError: acknowledged data is damaged; no byte was changed.
            EngineFailedError: it stopped for good before; see its cause, and stop it.
            EngineClosedError: this process is a fork of the one that started it.
        """
        with self._turn, self._life:
            node = self._node
            if node is not None and self._opened_by != os.getpid():
                raise EngineClosedError(_FORKED)
            if node is not None and node.failure is not None:
                raise EngineFailedError(_FAILED) from node.failure
            if node is None:
                was_open = self._desk is not None
                try:
                    node = self._make_node(self._open())
                    self._begin(node)
                except BaseException:
                    if not was_open:
                        self._close()  # else nobody would ever free the directory
                    raise
                self._node = node
        return self

    def stop(self, grace: Duration = GRACE_SECONDS) -> None:
        """Start nothing more, let what runs end, and close the store. Idempotent.

        Args:
            grace: how long to wait for what runs. What takes longer ends as `shutdown`
                and starts again with the next process; that uses up no attempt. So does
                a handler that stops its own scheduler.

        In a forked child it only lets go of what belongs to the parent.
        """
        grace_s = duration_ns(grace, "grace") / 1e9
        with self._turn:
            if self._desk is not None and self._opened_by != os.getpid():
                self._desk, self._node, self._was_stopped = None, None, True
                return
            try:
                # Without the lock of life: handlers that end may still add jobs.
                if self._node is not None:
                    self._node.stop(grace_s)
            finally:
                self._close()

    def run_forever(self, grace: Duration = GRACE_SECONDS) -> None:
        """Start, and return after SIGINT (Ctrl-C) or SIGTERM and a clean stop.

        A second signal during the stop acts as it did before: Ctrl-C interrupts.

        Args:
            grace: as `stop`.

        Raises:
            EngineFailedError: the log failed, so that a supervisor sees a bad end.
            ArgumentError: it is not called in the main thread, where signals arrive.
        """
        require_main_thread()
        # A queue whose put is safe in a signal handler, unlike an Event's set.
        ends: queues.SimpleQueue[int | BaseException] = queues.SimpleQueue()
        self.add_failure_listener(ends.put)
        try:
            with signals_put(ends):
                self.start()
                ended = ends.get()
            if isinstance(ended, int):
                _logger.info("%s: stopping", signal.Signals(ended).name)
        finally:
            self.remove_failure_listener(ends.put)
            self.stop(grace)
        if isinstance(ended, BaseException):
            raise EngineFailedError(_FAILED) from ended

    def add_failure_listener(self, listener: FailureListener) -> None:
        """Call with the error, from the node's thread, if it stops for good.

        That is when the log has failed: nothing starts any more then. A supervisor
        should end the program and start it again.
        """
        self._failure_listeners.append(listener)

    def remove_failure_listener(self, listener: FailureListener) -> None:
        """Call it no more; one that was never added does no harm."""
        with contextlib.suppress(ValueError):
            self._failure_listeners.remove(listener)

    def add_node_listener(self, listener: NodeListener) -> None:
        """Have a listener hear of each turn of the node that serves the store here."""
        self._node_listeners.append(listener)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    # -- what the requests and questions rest on --------------------------------------------

    @property
    def desk(self) -> Desk:
        """The open store; opened by the first who asks.

        Raises:
            EngineClosedError: the scheduler was stopped.
            StoreInUseError: as `start`.
        """
        desk = self._desk
        if desk is not None:
            return desk
        with self._life:
            if self._desk is None and self._was_stopped:
                raise EngineClosedError(_CLOSED)
            return self._open()

    @property
    def actor(self) -> str:
        """Who pauses and cancels, unless a call says so."""
        if self._actor is None:
            self._actor = user_name()
        return self._actor

    @property
    def is_serving(self) -> bool:
        """Whether this program starts runs now."""
        return self._node is not None and self._node.failure is None

    def holds(self, token: int) -> bool:
        """Whether this program works on the attempt of that lease."""
        node = self._node
        return node is not None and node.in_hand.holds(token)

    def snapshot_metrics(self) -> MetricsSnapshot:
        """Return what this process has counted: lags, attempts, ends, and so on."""
        return self.metrics.snapshot()

    # -- inside ---------------------------------------------------------------------------

    def _open(self) -> Desk:
        if self._desk is None:
            store = self._open_store(self.clock)
            watch = self._make_watch(store)
            self._desk = Desk(store, tasks=self.tasks, watch=watch)
            self._was_stopped = False
            self._opened_by = os.getpid()
        return self._desk

    def _close(self) -> None:
        with self._life:
            desk, self._desk, self._node = self._desk, None, None
            if desk is None:
                return
            self._was_stopped = True
        desk.watch.close(EngineClosedError(_CLOSED))
        desk.store.close()

    def _make_watch(self, store: JobStore) -> RunWatch:
        """Return what tells of ends of runs. A simulation has one that never waits."""
        return RunWatch(store, self.clock, is_serving=lambda: self.is_serving)

    def _make_node(self, desk: Desk) -> NodeLoop:
        return NodeLoop(
            desk.store,
            self.clock,
            worker=self._worker or worker_name(),
            crew=Crew(runnable(self.tasks, self.slots), self._makers, self._executor),
            metrics=self.metrics,
            on_failed=self._note_failure,
            listeners=self._node_listeners,
        )

    def _begin(self, node: NodeLoop) -> None:
        """Have a node serve. A simulation does it without a thread."""
        node.start()

    def _make_executors(self) -> dict[str, MakeExecutor]:
        """Return how to make each kind of executor."""
        return executor_makers(self.slots)

    def _note_failure(self, error: BaseException) -> None:
        desk = self._desk
        if desk is not None:
            failed = EngineFailedError(f"the scheduler stopped for good: {error}")
            failed.__cause__ = error
            desk.watch.close(failed)
        for listener in list(self._failure_listeners):
            listener(error)
