"""A node without a thread, and an executor whose handlers the test begins and ends."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, cast

from tests.engine.stage import SMALL
from tests.scheduler import program
from timingwheel.clock import Clock
from timingwheel.jobs.model import Outcome, RunId
from timingwheel.jobs.store import Finish, JobStore
from timingwheel.scheduler.adding import make_draft
from timingwheel.scheduler.crew import Crew
from timingwheel.scheduler.executors.executor import Host, Work
from timingwheel.scheduler.metrics import Metrics
from timingwheel.scheduler.node import NodeLoop
from timingwheel.scheduler.options import AddOptions
from timingwheel.scheduler.tasks import Call
from timingwheel.stores.embedded import EmbeddedStore
from timingwheel.stores.history import History
from timingwheel.testing import ManualClock
from wal.filesystem import FileSystem
from wal.log import Log

NS = 10**9


class HandExecutor:
    """Takes work and leaves it to the test when it begins and how it ends."""

    def __init__(self, slots: int = 2, ahead: int = 0) -> None:
        self.slots = slots
        self.ahead = ahead
        self.works: list[Work] = []
        self.interrupts: list[tuple[int, Outcome, bool]] = []
        self.refuses: Exception | None = None
        self.held_up = False
        self.host: Host

    def start(self, host: Host) -> None:
        self.host = host

    @property
    def free(self) -> int:
        return self.slots - len(self.works)

    def submit(self, works: Sequence[Work]) -> None:
        if self.refuses is not None:
            raise self.refuses
        self.works += works

    def take_back(self) -> list[Work]:
        left = self.works[self.slots :] if self.held_up else []
        del self.works[len(self.works) - len(left) :]
        return left

    def interrupt(self, token: int, outcome: Outcome, *, kill: bool) -> None:
        self.interrupts.append((token, outcome, kill))

    def stop(self, grace_s: float) -> list[Work]:
        left, self.works = self.works, []
        return left

    # -- for tests ----------------------------------------------------------------------

    def begin(self, place: int = 0) -> bool:
        return self.host.begin(self.works[place])

    def end(
        self, outcome: Outcome = Outcome.OK, place: int = 0, **facts: Any
    ) -> Finish:
        work = self.works.pop(place)
        finish = Finish(
            run_id=work.claim.run.id,
            token=work.claim.token,
            outcome=outcome,
            started_ns=self.host.clock.wall_ns(),
            **facts,
        )
        self.host.ended(finish)
        return finish

    @property
    def waiting(self) -> list[RunId]:
        return [work.claim.run.id for work in self.works]


class Stage:
    """A store, a node, a hand-moved executor, and a clock."""

    def __init__(
        self,
        *,
        disk: FileSystem | None = None,
        clock: ManualClock | None = None,
        executor: HandExecutor | None = None,
    ) -> None:
        self.clock = clock or ManualClock()
        self.executor = executor or HandExecutor()
        self.store: JobStore = open_store(disk, self.clock)
        self.metrics = Metrics()
        self.failures: list[BaseException] = []
        self.node = NodeLoop(
            self.store,
            self.clock,
            worker="w",
            crew=Crew(program.app.tasks, {"hand": lambda: self.executor}, "hand"),
            metrics=self.metrics,
            on_failed=self.failures.append,
        )

    def add(self, call: Call, **options: Any) -> str:
        """Put a job; due at once unless told otherwise."""
        (ref,) = self.store.put(
            [make_draft(call, cast("AddOptions", {"delay": 0, **options}))]
        )
        self.clock.advance(0.001)
        return ref.id

    def turns(self) -> None:
        """Take turns until there is nothing more to do."""
        while self.node.step():
            pass

    def close(self) -> None:
        self.store.close()


def open_store(disk: FileSystem | None, clock: Clock) -> EmbeddedStore:
    """Open a store on small segments, or in memory."""
    rng = random.Random(1)
    if disk is None:
        return EmbeddedStore.open(":memory:", clock=clock, rng=rng)
    log = Log.open(disk, wall_ns=clock.wall_ns, background=False, **SMALL)
    return EmbeddedStore(log, History(":memory:"), clock=clock, rng=rng)
