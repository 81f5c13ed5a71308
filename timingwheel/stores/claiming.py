"""Which ready runs a worker gets: in order of rank, under queue limits, rates and caps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import NamedTuple

import msgspec

from timingwheel.engine.records import Base, TimerId, timer_fired
from timingwheel.jobs.model import (
    Cap,
    Delivery,
    Payload,
    Policy,
    Queue,
    Run,
    RunState,
)
from timingwheel.jobs.store import Claim
from timingwheel.stores.deciding.firing import is_expired
from timingwheel.stores.deciding.live import is_held
from timingwheel.stores.entries import ALONE_CAP, RunEntry, Running
from timingwheel.stores.owner import StoreOwner
from timingwheel.stores.plain import decode_plain
from timingwheel.stores.ready import Lane, Pick
from timingwheel.stores.records import Kind, PlainJob, record

replace = msgspec.structs.replace

NS = 1_000_000_000


class Picked(NamedTuple):
    """A ready run that a claim takes.

    Attributes:
        entry: its place in the order, should the claim fail.
        lane: likewise.
        seq: its sequence number.
        run: the run, None for a plain job.
        plain: the plain job, None for others.
        policy: its policy.
        cap: the cap of its job.
        caps: the caps it counts for.
    """

    entry: int
    lane: Lane
    seq: int
    run: RunEntry | None
    plain: PlainJob | None
    policy: Policy
    cap: Cap | None
    caps: tuple[str, ...]


class Claiming:
    """One claim: picks runs entry after entry, and starts them. Used once.

    Args:
        owner: whose state.
        worker: who claims.
        tasks: what it can run.
        count: how many may start now.
        ahead: how many more first attempts may be taken beyond.
        queues: of which queues; None: of all.
        rates: when each queue with a rate may start the next run, elapsed ns.

    """

    def __init__(
        self,
        owner: StoreOwner,
        worker: str,
        *,
        tasks: frozenset[str],
        count: int,
        ahead: int,
        queues: frozenset[str] | None,
        rates: dict[str, int],
    ) -> None:
        self._claims: list[Claim] = []
        self._runs_once = False
        self._owner = owner
        self._core = owner.core
        self._state = owner.state
        self._worker = worker
        self._tasks = tasks
        self._count = count
        self._ahead = ahead
        self._queues = queues
        self._rates = rates
        self._picked: list[Picked] = []
        self._plain: list[Running] = []
        self._waits_for_rate: dict[str, int] = {}

    def carry_out(self) -> tuple[list[Claim], int]:
        """Claim under one hold of the lock; what the worker gets, and the last LSN.

        Raises:
            DiskFullError: nothing is claimed.
        """

        def decides() -> Iterator[Callable[[int], list[bytes]]]:
            yield self._decide
            self._settle()

        try:
            lsn = self._core.submit_each(decides(), urgent=True)
        finally:
            self._close()
        if self._runs_once:
            self._core.sync(lsn)  # in every mode: after a loss it would run again
        return self._claims, lsn

    # -- under the lock -----------------------------------------------------------------

    def _decide(self, first_lsn: int) -> list[bytes]:
        """Pick runs and return the events that start them; may be asked again."""
        self._put_back()
        self._claims.clear()
        self._plain.clear()
        self._taken: set[int] = set()
        self._now = self._core.now()
        self._starts_at = dict(self._rates)
        self._by_queue = Counter(self._state.running_by_queue)
        self._by_cap = Counter(self._state.running_by_cap)
        self._state.ready.pick(self._judge, tasks=self._tasks, is_open=self._is_open)
        self._runs_once = any(
            pick.policy.delivery is Delivery.AT_MOST_ONCE for pick in self._picked
        )
        return [
            self._start_plain(pick, pick.plain, first_lsn + place)
            if pick.plain is not None
            else self._start(pick, first_lsn + place)
            for place, pick in enumerate(self._picked)
        ]

    def _settle(self) -> None:
        """The events are applied: count what runs, and wake up for queues with a rate."""
        self._picked.clear()
        self._rates.update(self._starts_at)
        for running in self._plain:
            self._state.start_running(running)
        for name, at_ns in self._waits_for_rate.items():
            self._state.wake_queue(name, at_ns, Base.ELAPSED)

    # -- without it ---------------------------------------------------------------------

    def _close(self) -> None:
        """Put back what was picked and could not be claimed."""
        if self._picked:
            with self._core.lock:
                self._put_back()

    # -- inside -------------------------------------------------------------------------

    def _put_back(self) -> None:
        self._state.ready.put_back(
            (pick.entry, pick.lane, pick.caps) for pick in self._picked
        )
        self._picked.clear()

    def _start_plain(self, pick: Picked, plain: PlainJob, token: int) -> bytes:
        """Return the event that a plain job's only attempt starts; note the claim."""
        run = plain.run(
            self._owner.tag.unkeyed(pick.seq),
            RunState.RUNNING,
            attempts=1,
            started_ns=self._now.wall_ns,
        )
        payload = Payload(plain.p, plain.v)
        self._plain.append(
            Running(
                run,
                payload=payload,
                policy=plain.o,
                seq=pick.seq,
                token=token,
                worker=self._worker,
                caps=pick.caps,
                plain=True,
            )
        )
        self._note_claim(run, payload, plain.o, token=token, tries=1)
        return timer_fired(TimerId(pick.seq), 1)

    def _start(self, pick: Picked, token: int) -> bytes:
        """Return the event that an attempt starts; note the claim."""
        assert pick.run is not None
        live = pick.run.live
        run = replace(
            live.run,
            state=RunState.RUNNING,
            attempts=live.run.attempts + 1,
            started_ns=self._now.wall_ns,
        )
        tries = run.attempts - live.uncounted
        payload, policy = pick.run.payload, pick.run.policy
        self._note_claim(run, payload, policy, token=token, tries=tries)
        live = replace(
            live, run=run, token=token, worker=self._worker, wait_ns=None, behind=False
        )
        return record(Kind.RUN_SAVED, live)

    def _note_claim(
        self, run: Run, payload: Payload, policy: Policy, *, token: int, tries: int
    ) -> None:
        once = policy.delivery is Delivery.AT_MOST_ONCE
        self._claims.append(
            Claim(
                run=run,
                payload=payload,
                token=token,
                timeout_ns=policy.timeout_ns,
                last=once or tries >= policy.retry.attempts,
            )
        )

    def _is_open(self, name: str) -> bool:
        if self._queues is not None and name not in self._queues:
            return False
        queue = self._state.queues.get(name)
        return queue is None or (queue.pause is None and self._has_room(queue))

    def _has_room(self, queue: Queue) -> bool:
        if queue.limit is not None and self._by_queue[queue.name] >= queue.limit:
            return False
        if queue.rate is None:
            return True
        at_ns = self._starts_at.get(queue.name, 0)
        if at_ns > self._now.elapsed_ns:
            self._waits_for_rate[queue.name] = at_ns
            return False
        return True

    def _judge(self, seq: int, entry: int, lane: Lane) -> Pick:
        if len(self._picked) >= self._count + self._ahead:
            return Pick.ENOUGH
        queue = self._state.queues.get(lane.queue)
        if queue is not None and not self._has_room(queue):
            return Pick.QUEUE_FULL
        candidate = self._candidate(seq, entry, lane)
        if candidate is None:
            return Pick.DROP
        if len(self._picked) >= self._count and not _may_wait(candidate):
            return Pick.ENOUGH
        full = self._full_cap(candidate)
        if full is not None:
            self._state.ready.set_aside(full, entry, lane)
            return Pick.ASIDE
        self._take(candidate, queue)
        return Pick.TAKE

    def _candidate(self, seq: int, entry: int, lane: Lane) -> Picked | None:
        """Return the run of an entry, None if it may not start any more."""
        if seq in self._taken:
            return None  # a change had lined it up once more
        run = self._state.runs.get(seq)
        if run is not None:
            if not self._may_start(run, lane):
                return None
            cap = run.job.job.cap
            name = None if cap is None else cap.key
            caps = self._state.caps_of(run.live.run, run.policy, name)
            return Picked(entry, lane, seq, run, None, run.policy, cap, caps)
        if not self._core.state.is_held(TimerId(seq)):
            return None
        table = self._core.state.table
        plain = decode_plain(table.payload(self._core.state.slot_of(seq)))
        caps = () if plain.k is None else (plain.k.key,)
        return Picked(entry, lane, seq, None, plain, plain.o, plain.k, caps)

    def _may_start(self, run: RunEntry, lane: Lane) -> bool:
        value = run.live.run
        return (
            value.state is RunState.READY
            and not is_held(run.job.job, value)
            and lane == (value.queue, value.task)  # else rebound: in another one, too
            and not is_expired(  # the next tick writes that down
                value,
                start_deadline_ns=run.policy.start_deadline_ns,
                wall_ns=self._now.wall_ns,
            )
        )

    def _full_cap(self, candidate: Picked) -> str | None:
        cap = candidate.cap
        for name in candidate.caps:
            limit = 1 if name == ALONE_CAP or cap is None else cap.limit
            if self._by_cap[name] >= limit:
                return name
        return None

    def _take(self, picked: Picked, queue: Queue | None) -> None:
        self._picked.append(picked)
        self._taken.add(picked.seq)
        self._by_queue[picked.lane.queue] += 1
        for name in picked.caps:
            self._by_cap[name] += 1
        if queue is not None and queue.rate is not None:
            # One start a period, none saved up: a queue that was idle does not burst.
            at_ns = max(self._starts_at.get(queue.name, 0), self._now.elapsed_ns)
            self._starts_at[queue.name] = at_ns + round(NS / queue.rate)


def _may_wait(candidate: Picked) -> bool:
    """Return whether a run may be claimed before a slot is free.

    Not if it may run only once, since what is claimed ahead is lost with the process; not
    a second attempt, so that what kills the process is soon alone; and not under a cap.
    """
    is_first = candidate.run is None or candidate.run.live.run.attempts == 0
    at_least_once = candidate.policy.delivery is Delivery.AT_LEAST_ONCE
    return is_first and at_least_once and not candidate.caps
