"""What a node asks of the embedded store: fire, claim, begin, finish, and leases.

Nothing is logged when a run becomes due: that follows from the clock. Its start is one
record, whose LSN is the lease's token: it only grows, over the life of the store, and is
never given twice. Its end is one record that says all.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

import msgspec

from timingwheel.clock import WAIT_MAX_NS, Clock
from timingwheel.engine.records import Base
from timingwheel.jobs.errors import UnknownWorkerError
from timingwheel.jobs.model import Job, JobState, Outcome, RunId
from timingwheel.jobs.store import CatchUp, Claim, Finish, Request, Ticket, Verdict
from timingwheel.stores import changing
from timingwheel.stores.claiming import Claiming
from timingwheel.stores.decision import Decision
from timingwheel.stores.entries import (
    Due,
    JobEntry,
    LeaseEnd,
    LostPlain,
    QueueWake,
    ResumeDue,
    RunEntry,
    Running,
)
from timingwheel.stores.finishing import Finishing, end_running, promoted
from timingwheel.stores.firing import Unserved, fire_job, fire_run
from timingwheel.stores.outcomes import end_attempt, give_back
from timingwheel.stores.owner import StoreOwner
from timingwheel.stores.records import Kind, record
from timingwheel.stores.waits import Wait
from wal.errors import DiskFullError, RecordTooLargeError

replace = msgspec.structs.replace

_GONE: Final = -1
"""In place of the time to live of a worker that has not joined."""


FIRE_PART: Final = 256
"""Timers taken under one hold of the lock: some milliseconds in plain Python."""
CLAIM_PART: Final = 64
"""Runs claimed under one hold of the lock: two milliseconds."""


class Serving:
    """The node's side of a store. Thread-safe.

    Args:
        owner: whose state.
        clock: the store's.
    """

    def __init__(self, owner: StoreOwner, clock: Clock) -> None:
        self._owner = owner
        self._core = owner.core
        self._state = owner.state
        self._read = owner.read
        self._tag = owner.tag
        self._rng = owner.rng
        self._clock = clock
        self._workers: dict[str, int | None] = {}
        self._leases: dict[str, Wait] = {}
        self._rates: dict[str, int] = {}
        self._inherited_lsn = owner.core.log.appended_lsn

    @property
    def worker_count(self) -> int:
        """How many workers have joined and not left."""
        return len(self._workers)

    def join(self, worker: str, *, ttl_ns: int | None = None) -> None:
        """Announce a worker, before it claims; see JobStore."""
        with self._core.lock:
            self._core.require_alive()
            self._workers[worker] = ttl_ns
            self._arm_lease(worker)

    def beat(self, worker: str) -> bool:
        """Renew the leases of a worker; False if they ran out and are lost."""
        with self._core.lock:
            self._core.require_alive()
            if worker not in self._workers:
                return False
            self._arm_lease(worker)
            return True

    def _arm_lease(self, worker: str) -> None:
        ttl_ns = self._workers[worker]
        if ttl_ns is None:
            return
        former = self._leases.pop(worker, None)
        if former is not None:
            self._state.waits.disarm(former)
        until_ns = self._core.now().elapsed_ns + ttl_ns
        self._leases[worker] = self._state.waits.arm(
            LeaseEnd(worker), until_ns, Base.ELAPSED
        )

    def leave(self, worker: str) -> None:
        """Forget a worker; what it still has is lost."""
        with self._core.lock:
            self._workers.pop(worker, None)
            former = self._leases.pop(worker, None)
            if former is not None:
                self._state.waits.disarm(former)
            left = [run for run in self._state.running.values() if run.worker == worker]
        self._owner.commit(self._lose(left))

    def recover(self) -> int:
        """Begin to serve: what dead workers left is lost, what passed is missed."""
        with self._core.lock:
            self._core.require_alive()
            now = self._core.now()
            self._owner.unserved = Unserved(now.wall_ns, now.elapsed_ns)
            left = [run for run in self._state.running.values() if self._is_left(run)]
            fired = self._core.state.ahead_count
        self._lose(left)
        ticket = self.fire(fired)[1] if fired else Ticket(self._core.log.appended_lsn)
        self._owner.commit(ticket)
        return len(left) + fired

    def _is_left(self, running: Running) -> bool:
        """Return whether nobody works on an attempt any more."""
        ttl_ns = self._workers.get(running.worker, _GONE)
        if ttl_ns is None:
            # A worker of this process may have the name of one of the process before.
            return running.token <= self._inherited_lsn
        return ttl_ns == _GONE

    def _lose(self, left: Sequence[Running]) -> Ticket:
        """Write down that attempts are lost, and move their runs on."""
        ends = [
            Finish(
                run_id=running.run.id,
                token=running.token,
                outcome=Outcome.LOST,
                started_ns=running.run.started_ns or running.run.due_ns,
                error="its worker is gone: it died, or its lease ran out",
            )
            for running in left
        ]
        return self.finish(ends)[1]

    def fire(self, limit: int) -> tuple[int, Ticket]:
        """Make ready what is due; see JobStore."""
        self._core.require_alive()
        fired = 0
        lsn: int = self._core.log.appended_lsn
        while fired < limit:
            part = min(limit - fired, FIRE_PART)
            due, _, _ = self._core.take_due(part)
            lsn = self._core.submit_each(self._decides_due(), urgent=True)
            fired += len(due.timers) + len(due.armed)
            if len(due.timers) + len(due.armed) < part:
                break
            self._core.let_pass()
        with self._core.lock:
            # What is ready by now is there for the claims that follow. Not at a claim:
            # one for other tasks, or by another worker, would hide it from the node.
            self._state.news = False
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
        if row is None or not row.fired:
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
        lease = self._leases.get(worker)
        if lease is not None and lease in self._state.waits:
            return  # it has beaten, or joined anew, before we came to look
        self._leases.pop(worker, None)
        self._workers.pop(worker, None)
        for running in list(self._state.running.values()):
            if running.worker == worker:
                end = Finish(
                    run_id=running.run.id,
                    token=running.token,
                    outcome=Outcome.LOST,
                    started_ns=running.run.started_ns or running.run.due_ns,
                    error="the lease ran out: the worker gave no sign of life",
                )
                end_running(self._owner, decision, end, running)

    def claim(
        self,
        worker: str,
        *,
        tasks: frozenset[str],
        count: int,
        ahead: int = 0,
        queues: frozenset[str] | None = None,
    ) -> tuple[list[Claim], Ticket]:
        """Take runs in the order of their ranks; see JobStore."""
        self._core.require_alive()
        if worker not in self._workers:
            raise UnknownWorkerError(
                "worker", worker, "join first, or again: it was lost"
            )
        if self._owner.is_history_behind():
            return [], Ticket(self._core.log.appended_lsn)
        begin = functools.partial(
            Claiming,
            self._owner,
            worker,
            tasks=tasks,
            queues=queues,
            rates=self._rates,
        )
        claims: list[Claim] = []
        lsn: int = self._core.log.appended_lsn
        while count + ahead > 0:
            part = min(count + ahead, CLAIM_PART)
            now = min(count, part)
            try:
                got, lsn = begin(count=now, ahead=part - now).carry_out()
            except (DiskFullError, OSError):
                if claims:
                    break  # these are claimed; whoever asks next hears of the disk
                raise
            claims += got
            if len(got) < part:
                break
            count, ahead = count - now, ahead - (part - now)
            self._core.let_pass()
        return claims, Ticket(lsn)

    def begin(self, run_id: RunId, token: int) -> bool:  # noqa: ARG002 - the token says all
        """Note that the handler starts; False if the run was cancelled meanwhile."""
        with self._core.lock:
            running = self._state.running.get(token)
            if running is None:
                return False
            running.begun = True
            return True

    def give_back(self, claims: Iterable[tuple[RunId, int]]) -> Ticket:
        """Return runs that were claimed and never begun; see JobStore."""
        tokens = dict.fromkeys(token for _, token in claims)

        def decide(decision: Decision) -> None:
            for token in tokens:
                running = self._state.running.get(token)
                if running is not None:
                    give_back(decision, promoted(self._owner, decision, running))

        return self._owner.decide(decide, urgent=True)

    def finish(self, ends: Sequence[Finish]) -> tuple[list[Verdict], Ticket]:
        """Take in how attempts ended; see JobStore."""
        self._core.require_alive()
        with self._owner.remembering():
            finishing = Finishing(self._owner, ends)
            while True:
                try:
                    lsn = self._core.submit_each(finishing.decides(), urgent=True)
                except RecordTooLargeError as error:
                    if not finishing.refuse_follow_ups(error):
                        raise
                except (DiskFullError, OSError):
                    if not finishing.verdicts:
                        raise
                    return finishing.verdicts, Ticket(self._core.log.appended_lsn)
                else:
                    return finishing.verdicts, Ticket(lsn)

    def requests(self) -> list[Request]:
        """Return, once, the attempts of this process that are to be ended."""
        with self._core.lock:
            found, self._owner.requests = self._owner.requests, []
        return found

    @property
    def changed(self) -> threading.Condition:
        """Notified when there is earlier work, something ready, or a request."""
        return self._core.wake

    def wait(self, until_ns: int | None = None) -> None:
        """Wait, `changed` held, for what is due or `changed`; see JobStore."""
        if self._state.news or self._owner.requests or self._state.due:
            self._state.news = False
            return
        before_ns = self._clock.monotonic_ns()
        due_ns = self._core.state.next_due_ns()
        self._core.wait_for_due(until_ns)
        if due_ns is None:
            return
        expected_ns = max(min(due_ns, before_ns + WAIT_MAX_NS), before_ns)
        if self._clock.monotonic_ns() > expected_ns + WAIT_MAX_NS:
            # The machine slept, or this process was stopped: nobody could dispatch.
            now = self._core.now()
            self._owner.unserved = Unserved(now.wall_ns, now.elapsed_ns)


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
