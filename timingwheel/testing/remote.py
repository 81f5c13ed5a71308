"""Workers of a simulation that are not the scheduler: they take time, stall and die.

Each is what a remote worker is to a store: it joins with a time to live, beats, claims,
and reports ends; what it reports too late must be refused, and nothing else may be.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Final

from timingwheel.jobs.errors import UnknownWorkerError
from timingwheel.jobs.model import Outcome, Run, RunState
from timingwheel.jobs.store import Claim, Finish, JobStore, RunQuery, Verdict
from timingwheel.testing.invariants import meet
from timingwheel.testing.programs import FAR, NARROW, SECOND_NS, fault_of
from timingwheel.testing.promises import BrokenPromiseError, Close, Ledger, Start

RANK_NS: Final = 60 * SECOND_NS
"""What a step of priority is worth."""


@dataclass
class Held:
    """An attempt that a worker has."""

    claim: Claim
    plan: str
    ends_ns: int
    asked: bool = False


@dataclass
class RemoteWorker:
    """One worker; its acts are called when time has passed.

    Attributes:
        name: in the store.
        ttl_ns: its time to live.
        slots: attempts at once.
        quickness_ns: how long an attempt takes at most.
        held: what it has, by token.
        beat_ns: when it beats next, monotonic.
        silent_until_ns: until then it does nothing at all.
        lease_ns: until when its leases live, elapsed, if it does not beat again.
        life: of the scheduler that it has joined; 0: none.
    """

    name: str
    ttl_ns: int
    slots: int
    quickness_ns: int
    held: dict[int, Held] = field(default_factory=dict)
    beat_ns: int = 0
    silent_until_ns: int = 0
    lease_ns: int = 0
    life: int = 0
    is_joined: bool = False

    def next_ns(self) -> int:
        """Return when it does something next by itself, monotonic."""
        ends = [held.ends_ns for held in self.held.values()]
        return max(min([self.beat_ns, *ends]), self.silent_until_ns)

    def act(
        self, store: JobStore, ledger: Ledger, *, now_ns: int, rng: random.Random
    ) -> None:
        """Beat if it is time, report what has ended, and claim.

        Raises:
            BrokenPromiseError: the store did not treat it as it must.
        """
        if now_ns < self.silent_until_ns:
            return
        # After a silence it may report before it has heard that all is lost.
        if not (self.held and rng.random() < 0.5):
            self._be_there(store, ledger, now_ns=now_ns)
        self._report(store, ledger, now_ns=now_ns)
        self._be_there(store, ledger, now_ns=now_ns)
        self._claim(store, ledger, now_ns=now_ns, rng=rng)

    def leave(self, store: JobStore, ledger: Ledger) -> None:
        """Say that it goes; what it has is lost."""
        if self.is_joined and self.life == ledger.life:
            store.leave(self.name)
        self._lose_all(ledger)
        self.is_joined = False

    # -- inside --------------------------------------------------------------------------------

    def _be_there(self, store: JobStore, ledger: Ledger, *, now_ns: int) -> None:
        if self.life != ledger.life:
            self.is_joined = False
            self._lose_all(ledger)  # the scheduler starts anew with what it left
        if self.is_joined:
            elapsed_ns = store.now().elapsed_ns
            if store.beat(self.name):
                self._renew(store, ledger, now_ns)
                return
            if elapsed_ns < self.lease_ns:
                raise BrokenPromiseError(
                    f"{self.name} beat {self.lease_ns - elapsed_ns:,} ns before its "
                    "lease was over, and was not known"
                )
            self._lose_all(ledger)
        store.join(self.name, ttl_ns=self.ttl_ns)
        self.is_joined, self.life = True, ledger.life
        self._renew(store, ledger, now_ns)

    def _renew(self, store: JobStore, ledger: Ledger, now_ns: int) -> None:
        self.beat_ns = now_ns + self.ttl_ns // 3
        self.lease_ns = store.now().elapsed_ns + self.ttl_ns
        for held in self.held.values():
            for start in ledger.starts[held.claim.run.id]:
                if start.token == held.claim.token:
                    start.lease_ns = self.lease_ns

    def _lose_all(self, ledger: Ledger) -> None:
        for token, held in self.held.items():
            ledger.close(held.claim.run.id, token, "lost")
        self.held.clear()

    def _report(self, store: JobStore, ledger: Ledger, *, now_ns: int) -> None:
        over = [t for t, h in self.held.items() if h.ends_ns <= now_ns or h.asked]
        for token in over:
            held = self.held.pop(token)
            self._report_one(store, ledger, held)

    def _report_one(self, store: JobStore, ledger: Ledger, held: Held) -> None:
        run, token = held.claim.run, held.claim.token
        alive = (
            self.life == ledger.life
            and self.is_joined
            and store.now().elapsed_ns < self.lease_ns
        )
        end = self._end_of(store, held)
        verdicts, ticket = store.finish([end])
        # The end counts from here on, though nobody has been told so yet.
        how: Close = "ok" if end.outcome is Outcome.OK else "error"
        ledger.close(run.id, token, how if verdicts == [Verdict.ACCEPTED] else "lost")
        store.commit(ticket)
        newest = ledger.starts[run.id][-1].token
        if verdicts == [Verdict.LEASE_LOST] and alive and newest == token:
            raise BrokenPromiseError(f"the end of {run.id} was refused, and in time")
        if verdicts == [Verdict.ACCEPTED]:
            self._accepted(store, ledger, held, is_ours=newest == token)

    def _accepted(
        self, store: JobStore, ledger: Ledger, held: Held, *, is_ours: bool
    ) -> None:
        run = held.claim.run
        if not is_ours or self.life != ledger.life:
            raise BrokenPromiseError(f"a late end of {run.id} was accepted")
        kept = store.run(run.id)
        if kept is None:
            raise BrokenPromiseError(f"run {run.id} is gone, and its end was accepted")
        if kept.state in (RunState.SUCCEEDED, RunState.FAILED, RunState.CANCELLED):
            ledger.heard([kept])

    def _end_of(self, store: JobStore, held: Held) -> Finish:
        run = held.claim.run
        fault = fault_of(held.plan, run.attempts)
        outcome = Outcome.ERROR if fault else Outcome.OK
        if held.asked:
            outcome, fault = Outcome.CANCELLED, "asked to end"
        return Finish(
            run_id=run.id,
            token=held.claim.token,
            outcome=outcome,
            started_ns=run.started_ns or store.now().wall_ns,
            error=fault or None,
        )

    def _claim(
        self, store: JobStore, ledger: Ledger, *, now_ns: int, rng: random.Random
    ) -> None:
        free = self.slots - len(self.held)
        if free <= 0:
            return
        waiting = store.runs(
            RunQuery(states=frozenset({RunState.READY}), task=FAR, limit=1_000)
        ).runs
        try:
            claims, ticket = store.claim(self.name, tasks=frozenset({FAR}), count=free)
        except UnknownWorkerError as error:
            raise BrokenPromiseError(f"{self.name} has just joined: {error}") from error
        store.commit(ticket)
        _check_order(store, ledger, waiting, claims, free)
        for claim in claims:
            if rng.random() < 0.05:
                store.commit(store.give_back([(claim.run.id, claim.token)]))
            elif store.begin(claim.run.id, claim.token):
                self._begin(store, ledger, claim, now_ns=now_ns, rng=rng)
            else:
                raise BrokenPromiseError(
                    f"{claim.run.id} was claimed, and cannot begin"
                )

    def _begin(
        self,
        store: JobStore,
        ledger: Ledger,
        claim: Claim,
        *,
        now_ns: int,
        rng: random.Random,
    ) -> None:
        job = store.get(claim.run.job_id)
        if job is None:
            raise BrokenPromiseError(f"{claim.run.id} begins, and its job is gone")
        if job.id not in ledger.labels:
            meet(store, ledger)
        start = Start(claim.token, ledger.life, self.name, self.lease_ns)
        ledger.began(start, claim.run, job, store.now())
        plan = ledger.wish_of(job.id).plan
        ends_ns = now_ns + rng.randint(0, self.quickness_ns)
        self.held[claim.token] = Held(claim, plan, ends_ns)


def _check_order(
    store: JobStore, ledger: Ledger, waiting: list[Run], claims: list[Claim], free: int
) -> None:
    """Hold a claim to the order of ranks.

    Raises:
        BrokenPromiseError: a later one went first, or one that was free to go did not.
    """
    ranks = [_rank(claim.run) for claim in claims]
    if ranks != sorted(ranks):
        raise BrokenPromiseError(f"runs were claimed out of order: {ranks}")
    got = {claim.run.id for claim in claims}
    for run in waiting:
        if run.id in got or not _is_free(store, ledger, run):
            continue
        if len(claims) < free:
            raise BrokenPromiseError(f"{run.id} is ready, and was not given")
        if _rank(run) < max(ranks):
            raise BrokenPromiseError(f"{run.id} is first, and was passed over")


def _rank(run: Run) -> int:
    return run.due_ns - run.priority * RANK_NS


def _is_free(store: JobStore, ledger: Ledger, run: Run) -> bool:
    """Return whether nothing but its rank holds a ready run back."""
    job = store.get(run.job_id)
    return (
        job is not None
        and run.queue != NARROW
        and job.cap is None
        and job.pause is None
        and job.policy.start_deadline_ns is None
        and run.lost == 0
        and job.id in ledger.labels
    )
