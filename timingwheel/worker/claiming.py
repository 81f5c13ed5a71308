"""Claims for one executor: as many runs as it can start now, held while none is ready."""

from __future__ import annotations

import logging
import threading

from timingwheel.clock import Clock
from timingwheel.errors import TimingWheelError
from timingwheel.jobs.errors import UnknownWorkerError
from timingwheel.jobs.store import Claim
from timingwheel.scheduler.crew import Crew, Team
from timingwheel.scheduler.executors.executor import Work
from timingwheel.scheduler.in_hand import InHand
from timingwheel.worker.membership import Membership
from timingwheel.worker.patience import Patience
from timingwheel.worker.requests import WorkerRequests
from timingwheel.worker.telling import Telling

_logger = logging.getLogger("timingwheel.worker")


class Claiming:
    """Claims, and hands out, on one thread.

    Free slots grow while a claim is held and never shrink, since nobody else hands out
    to this executor; so it never has more than it can start.

    Args:
        requests: to the server.
        team: the executor, and the names of its tasks.
        crew: knows the tasks.
        in_hand: counts what the executor has.
        membership: as whom it claims.
        telling: takes what comes too late to begin.
        clock: what to wait by.
        changed: notified when a slot is free, it has joined, or it is to end.
        queues: of which queues; None: of all.
    """

    def __init__(
        self,
        requests: WorkerRequests,
        team: Team,
        *,
        crew: Crew,
        in_hand: InHand,
        membership: Membership,
        telling: Telling,
        clock: Clock,
        changed: threading.Condition,
        queues: frozenset[str] | None,
    ) -> None:
        self._requests = requests
        self._executor, self._tasks = team
        self._crew = crew
        self._in_hand = in_hand
        self._membership = membership
        self._telling = telling
        self._clock = clock
        self._changed = changed
        self._queues = queues
        self._patience = Patience(clock, changed)
        self._ended = False

    def work(self) -> None:
        """Claim whenever there is room, until `end`."""
        while (found := self._rest()) is not None:
            worker, free = found
            try:
                claims = self._requests.claim(
                    worker, tasks=self._tasks, count=free, queues=self._queues
                )
            except UnknownWorkerError:
                self._membership.lose(worker)
            except TimingWheelError as error:
                if self._patience.is_new:
                    _logger.warning("claims are asked for again: %s", error)
                self._patience.wait(lambda: self._ended)
            else:
                self._patience.renew()
                self._take(claims)

    def end(self) -> None:
        """Have `work` return; what a claim still brings is given back."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def _rest(self) -> tuple[str, int] | None:
        """Wait for room and a membership; None when it is to end."""
        with self._changed:
            while not self._ended:
                worker = self._membership.id
                free = self._in_hand.free(self._executor)
                if worker is not None and free:
                    return worker, free
                self._clock.wait(self._changed, None)
        return None

    def _take(self, claims: list[Claim]) -> None:
        if self._ended:
            self._telling.give_back((one.run.id, one.token) for one in claims)
        elif claims:
            works = [Work(claim, self._crew.task(claim.run.task)) for claim in claims]
            self._in_hand.hand_out(self._executor, works)
