"""A worker at work: its threads, and how they end.

    beat      joins, beats, joins again                         membership.py
    claim     one a kind of executor: asks for runs             claiming.py
    tell      tells how attempts ended                          telling.py
    timeouts  asks attempts to end whose time is up, or that may be somebody else's

What runs handlers is what a Scheduler has: the crew, its executors, and the attempts in
hand. All threads wait on one condition, which is notified when anything has changed.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Final

from timingwheel.client.transport import ServerAwayError, Transport
from timingwheel.clock import Clock
from timingwheel.errors import TimingWheelError
from timingwheel.jobs.model import Outcome, RunId
from timingwheel.jobs.store import Request
from timingwheel.scheduler.crew import Crew, Team
from timingwheel.scheduler.in_hand import InHand
from timingwheel.scheduler.metrics import Metrics
from timingwheel.worker.claiming import Claiming
from timingwheel.worker.membership import Membership
from timingwheel.worker.requests import WorkerRequests
from timingwheel.worker.telling import Telling

DRAIN_SECONDS: Final = 2.0
"""How long claims that the server holds may take to be answered at the end."""
TELL_SECONDS: Final = 10.0
"""How long a stop tries to tell the last ends while nobody answers."""
_END_SECONDS: Final = 1.0
_NS: Final = 1_000_000_000
_logger = logging.getLogger("timingwheel.worker")


class Service:
    """Runs the tasks of a crew for a server, from `start` to `stop`. Used once.

    Args:
        transport: to the server; it is closed at the end.
        crew: the tasks and their executors.
        clock: what to wait by.
        metrics: where to count.
        name: of the worker, for people.
        ttl_ns: its runs count as lost this long after its last beat.
        queues: of which queues it takes runs; None: of all.
        on_failed: called once, from the thread, if one of its threads fails.
    """

    def __init__(
        self,
        transport: Transport,
        crew: Crew,
        clock: Clock,
        *,
        metrics: Metrics,
        name: str,
        ttl_ns: int,
        queues: frozenset[str] | None,
        on_failed: Callable[[BaseException], None],
    ) -> None:
        self._on_failed = on_failed
        self._transport = transport
        self._crew = crew
        self._clock = clock
        self._requests = WorkerRequests(transport)
        self._changed = threading.Condition()
        self._in_hand = InHand(self._may_begin, clock, metrics=metrics, wake=self._wake)
        self._lost: frozenset[int] = frozenset()
        self.membership: Final = Membership(
            self._requests,
            clock,
            self._changed,
            name=name,
            ttl_ns=ttl_ns,
            tokens=self._in_hand.tokens,
            on_requests=self._pass_on,
            on_lost=self._lose,
        )
        self._telling = Telling(
            self._requests,
            self._in_hand,
            clock,
            self._changed,
            worker=lambda: self.membership.last_id,
            metrics=metrics,
        )
        self._claimings = [
            self._claiming(team, queues) for team in crew.teams(self._in_hand)
        ]
        self._claimers = [
            self._thread(one.work, f"claim-{n}")
            for n, one in enumerate(self._claimings)
        ]
        self._others = [
            self._thread(self.membership.keep, "beat"),
            self._thread(self._telling.work, "tell"),
            self._thread(self._mind_timeouts, "timeouts"),
        ]
        self._ended = False

    def start(self) -> None:
        """Join, and begin to claim; a server that is away is waited for.

        Raises:
            AccessError: the token may not work there.
            ArgumentError: the server refuses the name or the time to live.
        """
        try:
            self.membership.join()
        except ServerAwayError as error:
            _logger.warning("waiting for the server: %s", error)
        for thread in (*self._others, *self._claimers):
            thread.start()

    def stop(self, grace_s: float) -> None:
        """Claim nothing more, let what runs end, tell all ends, and leave.

        What has not ended within the grace ends as `shutdown`, and what was never begun
        is given back: neither uses up an attempt.
        """
        for claiming in self._claimings:
            claiming.end()
        self.membership.drain()
        for thread in self._claimers:
            thread.join(DRAIN_SECONDS)
        unbegun = self._crew.stop(grace_s)
        self._telling.give_back(self._in_hand.drop(unbegun))
        until_ns = self._clock.monotonic_ns() + round(TELL_SECONDS * _NS)
        left = self._telling.flush(until_ns)
        if left:
            _logger.error(
                "the server does not answer: how %d attempts ended is not told, and "
                "they count as lost",
                left,
            )
        elif self.membership.id is not None:
            self._leave(self.membership.id)
        self._end()

    def abandon(self) -> None:
        """Let go of everything after a start that failed."""
        self._crew.stop(0)
        self._end()

    # -- inside ---------------------------------------------------------------------------

    def _claiming(self, team: Team, queues: frozenset[str] | None) -> Claiming:
        return Claiming(
            self._requests,
            team,
            crew=self._crew,
            in_hand=self._in_hand,
            membership=self.membership,
            telling=self._telling,
            clock=self._clock,
            changed=self._changed,
            queues=queues,
        )

    def _leave(self, worker: str) -> None:
        try:
            self._requests.leave(worker)
        except TimingWheelError as error:
            # It has nothing in hand, so its time to live may as well run out.
            _logger.info("did not leave in form: %s", error)

    def _end(self) -> None:
        self._telling.end()
        self.membership.end()
        with self._changed:
            self._ended = True
            self._changed.notify_all()
        for thread in self._others:
            if thread.ident is not None:
                thread.join(_END_SECONDS)
        self._transport.close()

    def _thread(self, work: Callable[[], None], name: str) -> threading.Thread:
        return threading.Thread(
            target=self._work,
            args=(work,),
            name=f"timingwheel-{name}",
            daemon=True,
        )

    def _work(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - it may not end in silence
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        """Let all runs go: without one of its threads a worker would only look alive."""
        _logger.critical(
            "the worker stopped for good: it claims nothing more, and what it has in "
            "hand starts again elsewhere. Start the program again",
            exc_info=error,
        )
        for claiming in self._claimings:
            claiming.end()
        self.membership.end()
        self._on_failed(error)

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _may_begin(self, _: RunId, token: int) -> bool:
        return token not in self._lost

    def _pass_on(self, requests: Sequence[Request]) -> None:
        for one in requests:
            self._in_hand.interrupt(one.token, Outcome.CANCELLED, kill=one.kill)

    def _lose(self) -> None:
        """What is in hand is somebody else's by now: ask it to end."""
        tokens = self._in_hand.tokens()
        self._lost = frozenset(tokens)
        for token in tokens:
            self._in_hand.interrupt(token, Outcome.LOST, kill=False)

    def _mind_timeouts(self) -> None:
        while self._rest():
            self._in_hand.end_overdue()
            self.membership.lose_by_time()

    def _rest(self) -> bool:
        """Wait until an attempt's time is up, or trust ends; False when it is to end."""
        with self._changed:
            while not self._ended:
                until_ns = _earlier(
                    self._in_hand.next_deadline_ns(), self.membership.trusted_until_ns
                )
                if until_ns is not None and self._clock.monotonic_ns() >= until_ns:
                    return True
                self._clock.wait(self._changed, until_ns)
        return False


def _earlier(one: int | None, other: int | None) -> int | None:
    known = [moment for moment in (one, other) if moment is not None]
    return min(known) if known else None
