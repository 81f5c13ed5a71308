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
from timingwheel.jobs.model import Job, JobState, Outcome
from timingwheel.jobs.store import CatchUp, Finish, Ticket
from timingwheel.stores import changing
from timingwheel.stores.decision import Decision
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
from timingwheel.stores.firing import fire_job, fire_run
from timingwheel.stores.outcomes import end_attempt
from timingwheel.stores.owner import StoreOwner
from timingwheel.stores.records import Kind, record
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
                decision = Decision(self._state, first_lsn, self._core.now())
                self._decide_due(decision, target)
                decisions[:] = [decision]
                return decision.events

            yield decide
            # Only now: what could not be appended stays to be looked at again.
            pending.popleft()
            self._owner.requests.extend(decisions[0].requests)
            if isinstance(target, LeaseEnd):
                kinds = [event[0] for event in decisions[0].events]
                self._state.leases_expired += kinds.count(Kind.ATTEMPT_ENDED)
            if not decisions[0].events:
                self._state.wait_again(target)  # the clock was set back meanwhile

    def _decide_due(self, decision: Decision, target: Due) -> None:
        state = self._state
        match target:
            case JobEntry():
                if state.jobs.get(target.job.id) is target and _is_due(
                    target, decision
                ):
                    fire_job(
                        decision, target, unserved=self._owner.unserved, rng=self._rng
                    )
            case RunEntry():
                if state.runs.get(target.live.seq) is target:
                    fire_run(decision, target)
            case LostPlain(timer_id):
                self._lose_plain(decision, timer_id)
            case LeaseEnd(worker):
                self._end_leases(decision, worker)
            case ResumeDue(job=entry):
                job = decision.job(entry.job.id)
                if job is not None and _is_pause_over(job, decision):
                    changing.unhold(decision, job, CatchUp(), rng=self._rng)
            case QueueWake(name):
                queue = state.queues.get(name)
                if queue is not None and queue.pause is not None:
                    until_ns = queue.pause.until_ns
                    if until_ns is not None and until_ns <= decision.now.wall_ns:
                        value = replace(queue, pause=None)
                        decision.events.append(record(Kind.QUEUE_SET, value))
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


def _is_pause_over(job: Job, decision: Decision) -> bool:
    if job.state is not JobState.PAUSED or job.pause is None:
        return False
    until_ns = job.pause.until_ns
    return until_ns is not None and until_ns <= decision.now.wall_ns


def _is_due(entry: JobEntry, decision: Decision) -> bool:
    job = entry.job
    if job.state is not JobState.ACTIVE or job.next_ns is None:
        return False
    now = decision.now
    return job.next_ns <= (now.elapsed_ns if job.trigger.is_elapsed else now.wall_ns)
