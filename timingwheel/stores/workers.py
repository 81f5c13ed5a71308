"""Who works on the runs of a store, and until when: workers, their leases, their requests.

A worker of this process lives as long as the store is open. All others have a time to
live, which each sign of life renews; when it has run out, what they had is lost. One that
works from another process may outlive this one: whoever holds the directory next lets it
come back with what it has in hand (`adopt`), for a while, before that counts as lost.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from timingwheel.engine.records import Base
from timingwheel.jobs.model import JobId, Payload, RunId, RunState, parse_run_id
from timingwheel.jobs.store import Request
from timingwheel.stores.entries import LeaseEnd, Running
from timingwheel.stores.owner import StoreOwner
from timingwheel.stores.waits import Wait

_GONE: Final = -1
"""In place of the time to live of a worker that has not joined."""


class InHand(NamedTuple):
    """An attempt that a worker has, as it says itself.

    Attributes:
        run_id: of which run.
        token: of its lease.
        begun: whether the handler has started.
    """

    run_id: RunId
    token: int
    begun: bool


class Workers:
    """The workers of a store. The core's lock guards it: it is held by all who call.

    Args:
        owner: whose runs.
    """

    def __init__(self, owner: StoreOwner) -> None:
        self._owner = owner
        self._core = owner.core
        self._state = owner.state
        self._ttls: dict[str, int | None] = {}
        self._leases: dict[str, Wait] = {}
        self._away: dict[str, list[Request]] = {}
        self._telling: set[str] = set()
        self._adopted: set[int] = set()
        self._inherited_lsn = owner.core.log.appended_lsn

    def join(
        self,
        worker: str,
        *,
        ttl_ns: int | None,
        away: bool = False,
        tells: bool = False,
    ) -> None:
        """Let a worker in.

        Args:
            worker: its name.
            ttl_ns: how long it lives without a sign of life; None: with this process.
            away: whether requests are fetched for it from another process.
            tells: whether it says itself what it still has: see `adopt`.
        """
        self._ttls[worker] = ttl_ns
        if away:
            self._away.setdefault(worker, [])
        if tells:
            self._telling.add(worker)
        self.renew(worker)

    def renew(self, worker: str) -> bool:
        """Renew the leases of a worker; False if it is not known, or known no more."""
        if worker not in self._ttls:
            return False
        ttl_ns = self._ttls[worker]
        if ttl_ns is not None:
            self._arm(worker, ttl_ns)
        return True

    def drop(self, worker: str) -> list[Running]:
        """Forget a worker; return what it still has."""
        self._forget(worker)
        former = self._leases.pop(worker, None)
        if former is not None:
            self._state.waits.disarm(former)
        return self.has(worker)

    def has(self, worker: str) -> list[Running]:
        """Return the attempts of a worker."""
        return [run for run in self._state.running.values() if run.worker == worker]

    def end_lease(self, worker: str) -> list[Running]:
        """The lease of a worker has come due; return what is lost by that."""
        lease = self._leases.get(worker)
        if lease is not None and lease in self._state.waits:
            return []  # it has beaten, or joined anew, before we came to look
        self._leases.pop(worker, None)
        self._forget(worker)
        return self.has(worker)

    def _forget(self, worker: str) -> None:
        self._ttls.pop(worker, None)
        self._away.pop(worker, None)
        self._telling.discard(worker)

    def __contains__(self, worker: str) -> bool:
        return worker in self._ttls

    def __len__(self) -> int:
        return len(self._ttls)

    # -- what a former process has left ---------------------------------------------------

    def left(self) -> list[Running]:
        """Return the attempts on which nobody works any more."""
        return [run for run in self._state.running.values() if self._is_left(run)]

    def _is_left(self, running: Running) -> bool:
        ttl_ns = self._ttls.get(running.worker, _GONE)
        if ttl_ns is None or running.worker in self._telling:
            # A worker may have the name of one that has died with the former holder.
            return (
                running.token <= self._inherited_lsn
                and running.token not in self._adopted
            )
        return ttl_ns == _GONE

    def expect(self, workers: Iterable[str], patience_ns: int) -> None:
        """Give workers that have not joined yet so long to do so."""
        for worker in {*workers} - self._ttls.keys():
            self._arm(worker, patience_ns)

    def adopt(self, worker: str, held: Iterable[InHand]) -> list[Running]:
        """Let a worker that has joined go on with what it has in hand.

        Returns:
            Attempts that were given to it under a former holder and that it has never
            heard of: they are to be given back.
        """
        begun = {one.token: one.begun for one in held}
        for one in held:
            running = self._state.running.get(one.token)
            if running is None:
                self._adopt_plain(worker, one)
            elif running.worker == worker:
                running.begun = one.begun
                self._adopted.add(one.token)
        return [running for running in self.has(worker) if running.token not in begun]

    def _adopt_plain(self, worker: str, one: InHand) -> None:
        """Take up a plain job's attempt, of which only its timer was known."""
        try:
            job_id, _, _ = parse_run_id(one.run_id)
        except ValueError:
            return
        row = self._owner.read.plain_row(JobId(job_id))
        if row is None or not row.fired or row.token != one.token:
            return
        plain = row.plain
        running = Running(
            plain.run(
                row.job_id,
                RunState.RUNNING,
                attempts=1,
                started_ns=self._core.now().wall_ns,
            ),
            payload=Payload(plain.p, plain.v),
            policy=plain.o,
            seq=row.timer_id,
            token=row.token,
            worker=worker,
            caps=() if plain.k is None else (plain.k.key,),
            plain=True,
        )
        self._state.start_running(running)
        running.begun = one.begun
        self._adopted.add(one.token)

    # -- requests -------------------------------------------------------------------------

    def requests(self, workers: Iterable[str] | None) -> list[Request]:
        """Return, once, attempts to be ended: of workers elsewhere; None: of this process."""
        self.sort_requests()
        if workers is None:
            found, self._owner.requests = self._owner.requests, []
            return found
        found = []
        for worker in workers:
            found += self._away.get(worker, ())
            if worker in self._away:
                self._away[worker] = []
        return found

    def sort_requests(self) -> None:
        """Lay aside what is for workers elsewhere."""
        if not self._away or not self._owner.requests:
            return
        here: list[Request] = []
        for request in self._owner.requests:
            running = self._state.running.get(request.token)
            of = None if running is None else self._away.get(running.worker)
            (here if of is None else of).append(request)
        self._owner.requests = here

    def _arm(self, worker: str, ttl_ns: int) -> None:
        former = self._leases.pop(worker, None)
        if former is not None:
            self._state.waits.disarm(former)
        until_ns = self._core.now().elapsed_ns + ttl_ns
        self._leases[worker] = self._state.waits.arm(
            LeaseEnd(worker), until_ns, Base.ELAPSED
        )
