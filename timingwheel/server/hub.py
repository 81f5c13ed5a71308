"""Workers that work from afar: what the server knows of them beside the store.

    join ─▶ claim ─▶ (beat)* ─▶ ends ─▶ leave

The store holds the truth: each worker is one of its workers with a time to live, and a
claim is a lease with a token. The hub adds what is the way's own: which worker a token
was given to, so that a request to end an attempt finds it; and an answer that was lost on
the way: a claim that two beats in a row do not name is given back, and uses up no attempt.

After a restart of the server no worker is known, all must join again, and what they had
is lost: their ends are refused, and the runs start again. Not so if the store is one of
several servers: whichever a worker comes to takes it on with what it has, so the death of
a server costs nothing. An end that was taken in is known by the attempt that it left in
the history, so it may be told again at any time.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import uuid
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from timingwheel.errors import ArgumentError
from timingwheel.jobs.errors import UnknownWorkerError
from timingwheel.jobs.model import Outcome, RunId
from timingwheel.jobs.store import Claim, Clustered, Finish, Request, Verdict
from timingwheel.scheduler.options import checked_text
from timingwheel.scheduler.scheduler import Scheduler

TTL_MIN_NS: Final = 1_000_000_000
TTL_MAX_NS: Final = 3_600_000_000_000
CLAIM_MAX: Final = 1_000
"""Runs that one request claims at most, and ends that one request tells."""
_MISSED_MAX: Final = 2


class _Given:
    """A claim that was given to a worker."""

    __slots__ = ("missed", "request", "run_id")

    def __init__(self, run_id: RunId) -> None:
        self.run_id = run_id
        self.missed = 0
        self.request: Request | None = None


class Joined(NamedTuple):
    """A worker that works from afar.

    Attributes:
        id: names it.
        name: for people.
        in_hand: attempts that it was given and has not ended.
        joined_ns: when it joined, on the wall clock.
        beat_ns: when it last beat.
        ttl_ns: its runs count as lost this long after that.
    """

    id: str
    name: str
    in_hand: int
    joined_ns: int
    beat_ns: int
    ttl_ns: int


class WorkerHub:
    """The remote workers of one scheduler. Thread-safe; calls may wait for the disk.

    Args:
        scheduler: whose store has the runs.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._lock = threading.Lock()
        self._given: dict[str, dict[int, _Given]] = {}
        self._drained: set[str] = set()
        self._joined: dict[str, Joined] = {}
        self._waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    # -- what workers ask -----------------------------------------------------------------

    def join(self, name: str, ttl_ns: int) -> str:
        """Announce a worker, and return the id that names it from now on.

        Raises:
            ArgumentError: the name is no short text, or the time to live no sensible one.
        """
        checked_text(name, "name")
        if not TTL_MIN_NS <= ttl_ns <= TTL_MAX_NS:
            raise ArgumentError("ttl", f"{ttl_ns}ns", "pass 1s to 1h")
        worker = f"{name}:{uuid.uuid4().hex[:12]}"
        self._scheduler.desk.store.join(worker, ttl_ns=ttl_ns)
        now_ns = self._scheduler.clock.wall_ns()
        with self._lock:
            self._given[worker] = {}
            self._joined[worker] = Joined(worker, name, 0, now_ns, now_ns, ttl_ns)
        return worker

    def claim(
        self,
        worker: str,
        *,
        tasks: frozenset[str],
        count: int,
        queues: frozenset[str] | None = None,
    ) -> list[Claim]:
        """Give a worker runs in the order of their ranks; they are durably its own.

        None to one that takes no more; see `beat`.

        Raises:
            UnknownWorkerError: it has not joined, or its leases ran out.
        """
        if not 1 <= count <= CLAIM_MAX:
            raise ArgumentError(
                "count", count, f"pass runs at most, 1 to {CLAIM_MAX:,}"
            )
        self._require(worker)
        if self.takes_no_more(worker):
            return []
        store = self._scheduler.desk.store
        claims, ticket = store.claim(worker, tasks=tasks, count=count, queues=queues)
        store.commit(ticket)
        begun = [claim for claim in claims if store.begin(claim.run.id, claim.token)]
        with self._lock:
            given = self._given.get(worker)
            if given is not None:
                given.update({one.token: _Given(one.run.id) for one in begun})
        now_ns = store.now().wall_ns
        for one in begun:
            self._scheduler.metrics.note_far_begin(
                now_ns - one.run.due_ns, attempt=one.run.attempts
            )
        return begun

    def takes_no_more(self, worker: str) -> bool:
        """Return whether a worker has said that it takes no more."""
        return worker in self._drained

    def beat(
        self, worker: str, tokens: Sequence[int], *, drain: bool = False
    ) -> list[Request]:
        """Renew the leases of a worker, and return which attempts are to end.

        Args:
            worker: which.
            tokens: of the attempts that it has in hand.
            drain: it takes no more.

        Raises:
            UnknownWorkerError: it has not joined, or its leases ran out.
        """
        self._require(worker)
        if drain:
            self._drained.add(worker)
            self.turned()  # its held claims look again
        store = self._scheduler.desk.store
        if not store.beat(worker):
            self._forget(worker)
            self._require(worker)
        self._take_on(worker)
        known = frozenset(tokens)
        now_ns = self._scheduler.clock.wall_ns()
        with self._lock:
            joined = self._joined.get(worker)
            if joined is not None:
                self._joined[worker] = joined._replace(beat_ns=now_ns)
            given = self._given.get(worker, {})
            for token, one in given.items():
                one.missed = 0 if token in known else one.missed + 1
            lost = [
                (one.run_id, token)
                for token, one in given.items()
                if one.missed >= _MISSED_MAX
            ]
            for _, token in lost:
                del given[token]
            requests = [one.request for one in given.values() if one.request]
        if lost:
            store.commit(store.give_back(lost))
        return requests

    def give_back(self, worker: str, claims: Sequence[tuple[RunId, int]]) -> None:
        """Return runs to the store that a worker has claimed and never begun."""
        store = self._scheduler.desk.store
        self._take_on(worker)
        with self._lock:
            given = self._given.get(worker, {})
            its_own = [one for one in claims if given.pop(one[1], None) is not None]
        store.commit(store.give_back(its_own))

    def finish(self, worker: str, ends: Sequence[Finish]) -> list[Verdict]:
        """Take in how attempts of a worker ended; durable when it returns.

        What comes too late is refused, even if the worker itself is no longer known. An
        end that is told again, since its verdict was lost on the way, is accepted again.

        Returns:
            A verdict for each, in order; fewer if the disk filled up on the way.
        """
        if len(ends) > CLAIM_MAX:
            raise ArgumentError("ends", len(ends), f"pass at most {CLAIM_MAX:,}")
        store = self._scheduler.desk.store
        verdicts, ticket = store.finish(ends)
        store.commit(ticket)
        with self._lock:
            given = self._given.get(worker, {})
            for end, _ in zip(ends, verdicts, strict=False):
                given.pop(end.token, None)
        answers: list[Verdict] = []
        for end, verdict in zip(ends, verdicts, strict=False):
            if verdict is Verdict.LEASE_LOST and self._was_told(end):
                answers.append(Verdict.ACCEPTED)
                continue
            self._count_end(end, verdict)
            answers.append(verdict)
        return answers

    def leave(self, worker: str) -> None:
        """Forget a worker; what it still has is lost."""
        self._require(worker)
        self._forget(worker)
        self._scheduler.desk.store.leave(worker)

    @contextlib.contextmanager
    def told(self, changed: asyncio.Event) -> Iterator[None]:
        """Have an event of the running loop set whenever something may be ready."""
        entry = (asyncio.get_running_loop(), changed)
        self._waiting.append(entry)
        try:
            yield
        finally:
            self._waiting.remove(entry)

    def workers(self) -> list[Joined]:
        """Return who has joined and not left, the longest first.

        One that was lost is known until it is heard of again. It may ask the store, by
        way of which a worker may have left another server.
        """
        store = self._scheduler.desk.store
        if isinstance(store, Clustered) and self._joined:
            with self._lock:
                known = list(self._joined)
            for worker in store.departed(known):
                self._forget(worker)
        with self._lock:
            return [
                one._replace(in_hand=len(self._given.get(one.id, ())))
                for one in self._joined.values()
            ]

    # -- what the node tells ----------------------------------------------------------------

    def turned(self) -> None:
        """Note that a turn has ended: something may have become ready."""
        for loop, changed in tuple(self._waiting):
            with contextlib.suppress(RuntimeError):  # the loop is closed by now
                loop.call_soon_threadsafe(changed.set)

    def asked_to_end(self, request: Request) -> None:
        """Note that an attempt is to end; its worker hears of it when it beats."""
        with self._lock:
            for given in self._given.values():
                one = given.get(request.token)
                if one is not None:
                    one.request = request

    # -- inside ---------------------------------------------------------------------------

    def _count_end(self, end: Finish, verdict: Verdict) -> None:
        metrics, now_ns = self._scheduler.metrics, self._scheduler.clock.wall_ns()
        if verdict is Verdict.LEASE_LOST:
            metrics.count("lease_losses")
            return
        snoozes = end.snooze_ns is not None
        begun_ns = end.started_ns or now_ns
        metrics.note_far_end(
            "snoozed" if snoozes else end.outcome.value, now_ns - begun_ns
        )

    def _require(self, worker: str) -> None:
        with self._lock:
            if worker in self._given:
                return
        if self._take_on(worker):
            return
        raise UnknownWorkerError(
            "worker", worker, "join first, or again: it is not known, or was lost"
        )

    def _take_on(self, worker: str) -> bool:
        """Learn what a worker has, if other servers may have given it some.

        False: there are none, or it is not among the living.
        """
        store = self._scheduler.desk.store
        taken_on = store.take_on(worker) if isinstance(store, Clustered) else None
        if taken_on is None:
            return False
        name, now_ns = worker.rpartition(":")[0], self._scheduler.clock.wall_ns()
        ttl_ns = taken_on.ttl_ns
        with self._lock:
            given = self._given.setdefault(worker, {})
            for token in given.keys() - taken_on.held.keys():
                del given[token]  # told elsewhere
            for token, run_id in taken_on.held.items():
                given.setdefault(token, _Given(run_id))
            for request in taken_on.requests:
                given[request.token].request = request
            joined = Joined(worker, name, 0, now_ns, now_ns, ttl_ns)
            self._joined.setdefault(worker, joined)
        return True

    def _forget(self, worker: str) -> None:
        with self._lock:
            self._given.pop(worker, None)
            self._drained.discard(worker)
            self._joined.pop(worker, None)

    def _was_told(self, end: Finish) -> bool:
        """Return whether a refused end is one that has been taken in before."""
        return any(
            one.token == end.token and one.outcome not in (None, Outcome.LOST)
            for one in self._scheduler.desk.store.attempts(end.run_id)
        )
