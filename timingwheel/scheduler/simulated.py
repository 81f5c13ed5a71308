"""What a simulation puts in place of a scheduler's threads, waits and executors."""

from __future__ import annotations

import threading
from collections.abc import Callable

from timingwheel.clock import Clock
from timingwheel.jobs.model import Run, RunId
from timingwheel.jobs.store import JobStore
from timingwheel.manual_clock import ManualClock
from timingwheel.scheduler.crew import MakeExecutor
from timingwheel.scheduler.executors.inline import InlineExecutor
from timingwheel.scheduler.node import NodeLoop
from timingwheel.scheduler.scheduler import Scheduler
from timingwheel.scheduler.tasks import TaskRegistry
from timingwheel.scheduler.watching import RunWatch
from timingwheel.stores.embedded import EmbeddedStore
from timingwheel.stores.history import History


class SimScheduler(Scheduler):
    """A scheduler whose node has no thread: the simulation takes its turns."""

    def __init__(
        self,
        source: Callable[[Clock], JobStore],
        *,
        clock: Clock,
        tasks: TaskRegistry | None,
    ) -> None:
        super().__init__(
            source,
            clock=clock,
            executor="inline",
            tasks=tasks,
            worker="sim",
            actor="sim",
        )

    def _make_executors(self) -> dict[str, MakeExecutor]:
        # Whatever a task names: a simulation has one thread and starts no process.
        return dict.fromkeys(super()._make_executors(), InlineExecutor)

    def _make_watch(self, store: JobStore) -> RunWatch:
        return SimWatch(store, self.clock)

    def _begin(self, node: NodeLoop) -> None:
        node.begin_service()

    def require_node(self) -> NodeLoop:
        """Return the node, which serves."""
        assert self._node is not None
        return self._node

    def abandon(self) -> None:
        """Let go of the store without another word to it."""
        desk, self._desk, self._node = self._desk, None, None
        if desk is not None:
            assert isinstance(desk.store, EmbeddedStore)
            desk.store.abandon()


class SimWatch(RunWatch):
    """Tells of ends, and never waits for one."""

    def wait(self, run_id: RunId, timeout_ns: int | None) -> Run:  # noqa: ARG002 - no wait
        """Return a run that has ended."""
        run = self.final(run_id)
        if run is None:
            raise RuntimeError(
                f"run {run_id} has not ended, and in a simulation nothing happens while "
                "one waits: advance() the time first"
            )
        return run


class SimClock(ManualClock):
    """A ManualClock that can say until when its owner would wait."""

    def __init__(self, *, wall_ns: int) -> None:
        super().__init__(wall_ns=wall_ns)
        self._owner = threading.get_ident()
        self._asked: list[int | None] | None = None

    def asked_in(self, rest: Callable[[], object]) -> list[int | None]:
        """Return until when `rest` would wait; None: for ever. Empty: not at all."""
        asked: list[int | None] = []
        self._asked = asked
        try:
            rest()
        finally:
            self._asked = None
        return asked

    def wait(self, condition: threading.Condition, until_ns: int | None) -> None:
        """Wait as a ManualClock does; in `asked_in` note until when, and go on."""
        asked = self._asked
        if asked is not None and threading.get_ident() == self._owner:
            asked.append(until_ns)
        else:
            super().wait(condition, until_ns)


class KeptHistory(History):
    """A history in memory that outlives the store which closes it."""

    def close(self) -> None:
        """Stay."""

    def fork(self) -> KeptHistory:
        """Return it as it is now, for a life after a crash."""
        twin = KeptHistory(":memory:")
        connections = self._connections
        with connections.writing:
            connections.writer.backup(twin._connections.writer)
            twin._reached_lsn = self._reached_lsn
        return twin

    def end(self) -> None:
        """Close it in truth."""
        super().close()
