"""What a node asks of the embedded store: fire, claim, begin, finish, and leases.

Nothing is logged when a run becomes due: that follows from the clock. Its start is one
record, whose LSN is the lease's token: it only grows, over the life of the store, and is
never given twice. Its end is one record that says all.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import Final

from timingwheel.clock import WAIT_MAX_NS, Clock
from timingwheel.jobs.errors import UnknownWorkerError
from timingwheel.jobs.model import Outcome, RunId
from timingwheel.jobs.store import Claim, Finish, Request, Ticket, Verdict
from timingwheel.stores.claiming import Claiming
from timingwheel.stores.deciding.decision import Decision
from timingwheel.stores.deciding.firing import Unserved
from timingwheel.stores.deciding.outcomes import give_back
from timingwheel.stores.entries import (
    Running,
)
from timingwheel.stores.finishing import Finishing, promoted
from timingwheel.stores.making_ready import MakingReady
from timingwheel.stores.owner import StoreOwner
from timingwheel.stores.workers import InHand, Workers
from wal.errors import DiskFullError, RecordTooLargeError

UNKNOWN_WORKER: Final = ""
"""Who had a plain job that was promoted after its process had died."""
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
        self._rates: dict[str, int] = {}
        self._services = 0
        self.workers = Workers(owner)
        self._due = MakingReady(owner, self.workers)
        self.has_own_loop = False
        """Whether a node of this process waits on the store itself."""

    @property
    def worker_count(self) -> int:
        """How many workers have joined and not left."""
        return len(self.workers)

    def join(
        self,
        worker: str,
        *,
        ttl_ns: int | None = None,
        away: bool = False,
        tells: bool = False,
    ) -> None:
        """Announce a worker, before it claims; see JobStore and Workers.join."""
        with self._core.lock:
            self._core.require_alive()
            self.workers.join(worker, ttl_ns=ttl_ns, away=away, tells=tells)

    def beat(self, worker: str) -> bool:
        """Renew the leases of a worker; False if they ran out and are lost."""
        with self._core.lock:
            self._core.require_alive()
            return self.workers.renew(worker)

    def leave(self, worker: str) -> None:
        """Forget a worker; what it still has is lost."""
        with self._core.lock:
            left = self.workers.drop(worker)
        self._owner.commit(self._lose(left))

    def recover(self, *, patience_ns: int = 0) -> int:
        """Begin to serve: what dead workers left is lost, what passed is missed.

        Args:
            patience_ns: how long workers of other processes have to come back first.
        """
        with self._core.lock:
            self._core.require_alive()
            now = self._core.now()
            if not self._services:
                self._owner.unserved = Unserved(now.wall_ns, now.elapsed_ns)
            self._services += 1
            left = self.workers.left()
            if patience_ns:
                self._due.patient_until_ns = now.elapsed_ns + patience_ns
                # And for what is promoted meanwhile, of which nobody knows who had it.
                names = {UNKNOWN_WORKER, *(running.worker for running in left)}
                self.workers.expect(names, patience_ns)
                left = [running for running in left if running.worker in self.workers]
            fired = self._core.state.ahead_count
        self._lose(left)
        self.make_ready(fired)
        self._owner.commit(self._core.log.appended_lsn)
        return len(left) + (0 if patience_ns else fired)

    def end_service(self) -> None:
        """A node that had called `recover` serves no more; the store goes on."""
        with self._core.lock:
            self._services -= 1

    def adopt(self, worker: str, held: Sequence[InHand]) -> None:
        """Let a worker that has joined go on with what it has in hand, and no more."""
        with self._core.lock:
            self._core.require_alive()
            strays = self.workers.adopt(worker, held)
        if strays:
            given = [(stray.run.id, stray.token) for stray in strays]
            self._owner.commit(self.give_back(given))

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
        self.has_own_loop = True
        fired, ticket = self.make_ready(limit)
        with self._core.lock:
            # What is ready by now is there for the claims that follow. Not at a claim:
            # one for other tasks, or by another worker, would hide it from the node.
            self._state.news = False
        return fired, ticket

    def make_ready(self, limit: int) -> tuple[int, Ticket]:
        """Do as `fire` for a node elsewhere: what is news to the one here stays so."""
        return self._due.make_ready(limit)

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
        if worker not in self.workers:
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

    def give_back_unbegun(self, worker: str) -> None:
        """Return what a worker has claimed and never begun."""
        with self._core.lock:
            unbegun = [run for run in self.workers.has(worker) if not run.begun]
        self._owner.commit(self.give_back((one.run.id, one.token) for one in unbegun))

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

    def requests(self, workers: Iterable[str] | None = None) -> list[Request]:
        """Return, once, attempts to be ended: of workers elsewhere, or of this process."""
        with self._core.lock:
            return self.workers.requests(workers)

    def wait(self, until_ns: int | None = None) -> None:
        """Wait, `changed` held, for what is due or `changed`; see JobStore."""
        self.workers.sort_requests()
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
