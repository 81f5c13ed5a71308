"""What has come due, made ready: one look at the wheels, and a group for each thing found.

Nothing is logged when a run becomes due: that follows from the clock. What it leads to is:
a run of a job with the next occurrence set, a retry that may go, a lease that ran out.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from timingwheel.engine.records import Base
from timingwheel.jobs.model import Outcome
from timingwheel.jobs.store import CatchUp, Finish, Ticket
from timingwheel.stores.deciding import changing
from timingwheel.stores.deciding.decision import Decision
from timingwheel.stores.deciding.firing import (
    fire_job,
    fire_run,
    is_due,
    is_pause_over,
)
from timingwheel.stores.deciding.outcomes import end_attempt
from timingwheel.stores.entries import (
    Due,
    JobEntry,
    LeaseEnd,
    LostPlain,
    QueueWake,
    ResumeDue,
    RunEntry,
)
from timingwheel.stores.finishing import end_running
from timingwheel.stores.owner import StoreOwner
from timingwheel.stores.records import Kind, records_of
from timingwheel.stores.workers import Workers

replace = msgspec.structs.replace

FIRE_PART: Final = 256
"""Timers taken under one hold of the lock: some milliseconds in plain Python."""


class MakingReady:
    """Makes ready what is due in a store. Thread-safe.

    Attributes:
        patient_until_ns: until then, on the elapsed scale, what a former holder's plain
            jobs were doing is not lost: their workers may come back.

    Args:
        owner: whose state.
        workers: whose leases.
    """

    def __init__(self, owner: StoreOwner, workers: Workers) -> None:
        self.patient_until_ns = 0
        self._owner = owner
        self._core = owner.core
        self._state = owner.state
        self._read = owner.read
        self._rng = owner.rng
        self._workers = workers
        self._firing = threading.Lock()

    def make_ready(self, limit: int) -> tuple[int, Ticket]:
        """Make ready what is due; see JobStore.fire."""
        self._core.require_alive()
        fired = 0
        lsn: int = self._core.log.appended_lsn
        with self._firing:  # nodes of several processes may serve one store
            while fired < limit:
                part = min(limit - fired, FIRE_PART)
                due, _, _ = self._core.take_due(part)
                lsn = self._core.submit_each(self._decides_due(), urgent=True)
                fired += len(due.timers) + len(due.armed)
                if len(due.timers) + len(due.armed) < part:
                    break
                self._core.let_pass()
        if fired:
            with self._core.lock:
                self._core.wake.notify_all()  # the others, who may claim it, too
        return fired, Ticket(lsn)

    def _decides_due(self) -> Iterator[Callable[[int], list[bytes]]]:
        """Yield a group for each thing whose wait is over."""
        pending = self._state.due
        while pending:
            target = pending[0]
            decisions: list[Decision] = []

            def decide(
                first_lsn: int,
                target: Due = target,
                decisions: list[Decision] = decisions,
            ) -> list[bytes]:
                decision = Decision(
                    self._owner.view, self._core.now(), first_lsn.__add__
                )
                self._decide_due(decision, target)
                decisions[:] = [decision]
                return records_of(decision.changes)

            yield decide
            # Only now: what could not be appended stays to be looked at again.
            pending.popleft()
            self._owner.requests.extend(decisions[0].requests)
            if isinstance(target, LeaseEnd):
                kinds = [kind for kind, _ in decisions[0].changes]
                self._state.leases_expired += kinds.count(Kind.ATTEMPT_ENDED)
            if not decisions[0].changes:
                self._state.wait_again(target)  # the clock was set back meanwhile

    def _decide_due(self, decision: Decision, target: Due) -> None:
        state = self._state
        match target:
            case JobEntry():
                if state.jobs.get(target.job.id) is target and is_due(
                    target.job, decision.now
                ):
                    fire_job(
                        decision,
                        target.job,
                        unserved=self._owner.unserved,
                        rng=self._rng,
                    )
            case RunEntry():
                if state.runs.get(target.live.seq) is target:
                    fire_run(decision, target.job.job, target.live)
            case LostPlain(timer_id):
                self._lose_plain(decision, timer_id)
            case LeaseEnd(worker):
                self._end_leases(decision, worker)
            case ResumeDue(job=entry):
                job = decision.job(entry.job.id)
                if job is not None and is_pause_over(job, decision.now):
                    changing.unhold(decision, job, CatchUp(), rng=self._rng)
            case QueueWake(name):
                queue = state.queues.get(name)
                if queue is not None and queue.pause is not None:
                    until_ns = queue.pause.until_ns
                    if until_ns is not None and until_ns <= decision.now.wall_ns:
                        value = replace(queue, pause=None)
                        decision.add(Kind.QUEUE_SET, value)
                state.news = True

    def _lose_plain(self, decision: Decision, timer_id: int) -> None:
        """A plain job was running when the process died."""
        row = self._read.plain_row_of(timer_id)
        if row is None or not row.fired or row.token in self._state.running:
            return
        if decision.now.elapsed_ns < self.patient_until_ns:
            self._state.waits.arm(
                LostPlain(timer_id), self.patient_until_ns, Base.ELAPSED
            )
            return
        live = row.promote(decision, worker="", is_due=True)
        end = Finish(
            run_id=live.run.id,
            token=row.token,
            outcome=Outcome.LOST,
            started_ns=live.run.due_ns,
            error="the process died while it ran",
        )
        end_attempt(decision, live, end, policy=row.plain.o, draw=self._rng.random())

    def _end_leases(self, decision: Decision, worker: str) -> None:
        """The leases of a worker have run out: whatever it still reports comes late."""
        for running in self._workers.end_lease(worker):
            end = Finish(
                run_id=running.run.id,
                token=running.token,
                outcome=Outcome.LOST,
                started_ns=running.run.started_ns or running.run.due_ns,
                error="the lease ran out: the worker gave no sign of life",
            )
            end_running(self._owner, decision, end, running)
