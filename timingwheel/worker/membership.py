"""Being a worker of a server: joined under an id, kept alive by beats, joined again.

    away ──join──▶ joined ──beat──▶ joined ...
      ▲              │ the server knows it no more, or none of its beats arrived for
      └──────────────┘ the time to live: what it had in hand is lost

Whoever loses the membership loses what it has in hand: the server gives those runs to
others, so their handlers are asked to end.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence

from timingwheel.clock import Clock
from timingwheel.errors import TimingWheelError
from timingwheel.jobs.errors import UnknownWorkerError
from timingwheel.jobs.leases import trusted_ns
from timingwheel.jobs.store import Request
from timingwheel.worker.patience import Patience
from timingwheel.worker.requests import WorkerRequests

_logger = logging.getLogger("timingwheel.worker")


class Membership:
    """Keeps one worker known to its server. `keep` is for one thread, the rest for all.

    Args:
        requests: to the server.
        clock: when to beat.
        changed: notified when it joins, is lost, or is to end; the clock waits on it.
        name: of the worker, for people.
        ttl_ns: how long the server waits for a beat.
        tokens: returns those of the attempts in hand.
        on_requests: called with the attempts that are to end, at each beat until they
            have.
        on_lost: called when what is in hand is somebody else's.
    """

    def __init__(
        self,
        requests: WorkerRequests,
        clock: Clock,
        changed: threading.Condition,
        *,
        name: str,
        ttl_ns: int,
        tokens: Callable[[], Sequence[int]],
        on_requests: Callable[[Sequence[Request]], None],
        on_lost: Callable[[], None],
    ) -> None:
        self._requests = requests
        self._clock = clock
        self._changed = changed
        self._name = name
        self._ttl_ns = ttl_ns
        self._tokens = tokens
        self._on_requests = on_requests
        self._on_lost = on_lost
        self._patience = Patience(clock, changed)
        self._id: str | None = None
        self._last_id = ""
        self._alive_ns = 0
        self._beat_every_ns = ttl_ns
        self._drains = False
        self._must_beat = False
        self._ended = False

    @property
    def id(self) -> str | None:
        """How the server names this worker; None: it has to join first."""
        return self._id

    @property
    def last_id(self) -> str:
        """How the server has named this worker last; empty before the first time."""
        return self._last_id

    def join(self) -> None:
        """Join once.

        Raises:
            ServerAwayError: no server answers; `keep` tries again.
            AccessError: the token may not work here.
        """
        asked_ns = self._clock.monotonic_ns()
        joined = self._requests.join(self._name, ttl_ns=self._ttl_ns)
        with self._changed:
            self._id = self._last_id = joined.id
            self._ttl_ns, self._beat_every_ns = joined.ttl_ns, joined.beat_ns
            self._alive_ns = asked_ns
            self._changed.notify_all()
        _logger.info("joined as %s", joined.id)

    def keep(self) -> None:
        """Join, beat, and join again, until `end`."""
        while self._rest():
            try:
                if self._id is None:
                    self.join()
                else:
                    self._beat(self._id)
                self._patience.renew()
            except TimingWheelError as error:
                self.lose_by_time()
                if self._patience.is_new:
                    _logger.warning("the server does not answer: %s", error)
                self._patience.wait(lambda: self._ended)

    @property
    def trusted_until_ns(self) -> int | None:
        """Until when what is in hand is its own for sure, unless a beat is answered."""
        if self._id is None:
            return None
        return self._alive_ns + trusted_ns(self._ttl_ns)

    def lose_by_time(self) -> None:
        """Let go of what is in hand if it may be somebody else's by now."""
        worker, until_ns = self._id, self.trusted_until_ns
        if worker is None or until_ns is None:
            return
        if self._clock.monotonic_ns() >= until_ns:
            self.lose(worker)

    def drain(self) -> None:
        """Have the server answer claims that it holds with none, and claim no more."""
        with self._changed:
            self._drains = self._must_beat = True
            self._changed.notify_all()

    def end(self) -> None:
        """Have `keep` return."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def lose(self, worker: str) -> None:
        """Note that the server knows this worker no more under that id."""
        with self._changed:
            if self._id != worker:
                return  # joined anew meanwhile
            self._id = None
            self._changed.notify_all()
        _logger.warning("%s is known no more: what it has in hand is lost", worker)
        self._on_lost()

    # -- inside ---------------------------------------------------------------------------

    def _rest(self) -> bool:
        """Wait until it is time to join or beat; False when it is to end."""
        with self._changed:
            while not self._ended:
                next_ns = self._alive_ns + self._beat_every_ns
                is_due = self._clock.monotonic_ns() >= next_ns
                if self._id is None or self._must_beat or is_due:
                    self._must_beat = False
                    return True
                self._clock.wait(self._changed, next_ns)
        return False

    def _beat(self, worker: str) -> None:
        asked_ns = self._clock.monotonic_ns()
        try:
            asked = self._requests.beat(worker, self._tokens(), drain=self._drains)
        except UnknownWorkerError:
            self.lose(worker)
            return
        self._alive_ns = asked_ns
        self._on_requests(asked)
