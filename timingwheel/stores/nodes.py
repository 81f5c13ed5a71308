"""The nodes that serve one store: of this process, and of others by the store's door.

A node alone in its process waits on the store itself. Several cannot: what is news to one
is none to the other. So each says how much it has seen (`rest`) and is told once there is
more: something became ready, an attempt is to be ended, or something has come due, which
is then made ready here before anybody is told.

    node      fire ─▶ claim ─▶ finish        tickets, as in JobStore
      └─rest─▶ teller ─ waits for news and for what is due ─▶ tells
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Final

from timingwheel.clock import Clock
from timingwheel.errors import ArgumentError, TimingWheelError
from timingwheel.jobs.model import RunId
from timingwheel.jobs.store import Claim, Finish, Request, Ticket, Verdict
from timingwheel.stores.owner import StoreOwner
from timingwheel.stores.serving import Serving
from timingwheel.stores.workers import InHand
from wal.errors import WalError

LEASE_TTL_NS: Final = 30_000_000_000
"""How long a node of another process lives without a sign of life. Each turn is one, and
it takes a turn at least every ten seconds. If it dies, that is seen at once."""
PATIENCE_NS: Final = 3_000_000_000
"""How long such nodes have to come to a new holder, before what they had is lost."""
FIRE_LIMIT: Final = 4_096

_logger = logging.getLogger("timingwheel")


class Node:
    """One node's side of a store. Thread-safe.

    Args:
        nodes: where it belongs.
        life: a text that no other process has, nor a former life of its own.
        ttl_ns: of its leases; None: it is of this process.
        on_news: called, from the teller's thread, when a rest is over.
    """

    def __init__(
        self,
        nodes: Nodes,
        *,
        life: str,
        ttl_ns: int | None,
        on_news: Callable[[], None],
    ) -> None:
        self.life: Final = life
        self.on_news: Final = on_news
        self.workers: set[str] = set()
        self.own_workers: set[str] = set()
        self.is_resting = False
        self.seen = 0
        self._nodes = nodes
        self._serving = nodes.serving
        self._ttl_ns = ttl_ns
        self._services = 0

    @property
    def is_away(self) -> bool:
        """Whether it works in another process."""
        return self._ttl_ns is not None

    def join(self, worker: str, ttl_ns: int | None) -> None:
        """Announce a worker, before it claims.

        Args:
            worker: its name.
            ttl_ns: its leases run out this long after its last `beat`; None: it lives as
                long as the node, whose every turn is a sign of life.

        Raises:
            ArgumentError: another process that lives has a worker of that name.
        """
        self._nodes.take_name(self, worker)
        is_own = ttl_ns is None
        self._serving.join(
            worker,
            ttl_ns=self._ttl_ns if is_own else ttl_ns,
            away=self.is_away,
            tells=is_own,
        )
        self.workers.add(worker)
        if is_own:
            self.own_workers.add(worker)
        self._nodes.add(self)

    def beat(self, worker: str) -> bool:
        """Renew the leases of a worker; False if they ran out and are lost."""
        return self._serving.beat(worker)

    def adopt(self, worker: str, held: Sequence[InHand]) -> None:
        """Let a worker that had joined a former holder go on with what it has in hand."""
        self._serving.adopt(worker, held)

    def recover(self) -> int:
        """Begin to serve; nodes that served under a former holder may still come."""
        self._services += 1
        return self._serving.recover(patience_ns=self._nodes.patience_ns)

    def fire(self, limit: int) -> tuple[int, Ticket, int]:
        """Make ready what is due.

        Returns:
            How much there was, the ticket, and what `rest` takes as seen.
        """
        if self.is_away:
            for worker in tuple(self.own_workers):
                self._serving.beat(worker)
        fired, ticket = self._serving.make_ready(limit)
        return fired, ticket, self._nodes.news_count

    def claim(
        self,
        worker: str,
        tasks: frozenset[str],
        count: int,
        ahead: int,
        queues: frozenset[str] | None,
    ) -> tuple[list[Claim], Ticket]:
        """Take runs in the order of their ranks; see JobStore."""
        return self._serving.claim(
            worker, tasks=tasks, count=count, ahead=ahead, queues=queues
        )

    def begin(self, run_id: RunId, token: int) -> bool:
        """Note that the handler starts; False if the run was cancelled meanwhile."""
        return self._serving.begin(run_id, token)

    def give_back(self, claims: list[tuple[RunId, int]]) -> Ticket:
        """Return runs that were claimed and never begun."""
        return self._serving.give_back(claims)

    def finish(self, ends: list[Finish]) -> tuple[list[Verdict], Ticket]:
        """Take in how attempts ended; see JobStore."""
        return self._serving.finish(ends)

    def requests(self) -> list[Request]:
        """Return, once, the attempts of this node that are to be ended."""
        return self._serving.requests(self.workers if self.is_away else None)

    def leave(self, worker: str) -> None:
        """Forget a worker; what it still has is lost."""
        self.workers.discard(worker)
        self.own_workers.discard(worker)
        self._serving.leave(worker)

    def rest(self, seen: int) -> None:
        """Call `on_news` once there is more than was seen, or something is due."""
        self._nodes.rest(self, seen)

    def gone(self) -> None:
        """It is no more: what its workers had is lost, but for what had not begun."""
        self._nodes.remove(self)
        for worker in tuple(self.workers):
            self._serving.give_back_unbegun(worker)
            self.leave(worker)
        for _ in range(self._services):
            self._serving.end_service()
        self._services = 0


class Nodes:
    """The nodes of a store, and the teller: a thread, once there is a node.

    Args:
        owner: whose state.
        serving: what nodes ask.
        clock: the store's.

    Attributes:
        serving: see above.
        patience_ns: how long nodes of other processes have to come to this holder.
    """

    def __init__(self, owner: StoreOwner, serving: Serving, clock: Clock) -> None:
        self.serving: Final = serving
        self.patience_ns = PATIENCE_NS
        self._core = owner.core
        self._owner = owner
        self._state = owner.state
        self._clock = clock
        self._nodes: list[Node] = []
        self._closed = False
        self._thread: threading.Thread | None = None

    @property
    def news_count(self) -> int:
        """Grows with everything that a node may have to look at."""
        return self._state.news_count

    def add(self, node: Node) -> None:
        """Let a node rest from now on."""
        with self._core.lock:
            if node not in self._nodes:
                self._nodes.append(node)
            if self._thread is not None or self._closed:
                return
            self._thread = threading.Thread(
                target=self._run, name="timingwheel-teller", daemon=True
            )
        self._thread.start()

    def take_name(self, node: Node, worker: str) -> None:
        """See to it that no other node has a worker of that name.

        Raises:
            ArgumentError: one of another process does.
        """
        with self._core.lock:
            others = [
                one for one in self._nodes if one is not node and worker in one.workers
            ]
            is_known = worker in self.serving.workers and worker not in node.workers
            if (not others and is_known) or any(
                one.life != node.life for one in others
            ):
                raise ArgumentError(
                    "worker",
                    worker,
                    "another process of this directory has that name: leave it out, or "
                    "have it differ in each",
                )
            for one in others:  # a line of the same process that was cut
                one.workers.discard(worker)
                one.own_workers.discard(worker)

    def remove(self, node: Node) -> None:
        """Tell a node nothing any more."""
        with self._core.lock:
            if node in self._nodes:
                self._nodes.remove(node)

    def rest(self, node: Node, seen: int) -> None:
        """Tell a node, once, as soon as there is more than it has seen."""
        with self._core.lock:
            was_quiet = not any(other.is_resting for other in self._nodes)
            node.seen, node.is_resting = seen, True
            if was_quiet or seen != self._state.news_count:
                self._core.wake.notify_all()  # the teller waits for nothing due as yet

    def close(self) -> None:
        """End the teller. Idempotent."""
        with self._core.lock:
            self._closed = True
            self._core.wake.notify_all()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    # -- the teller -----------------------------------------------------------------------

    def _run(self) -> None:
        with self._core.lock:
            while not self._closed:
                if news := self._take_news():
                    self._tell(news)
                elif self._is_due():
                    self._make_ready()
                elif any(node.is_resting for node in self._nodes):
                    self._core.wait_for_due()
                else:
                    self._clock.wait(self._core.wake, None)

    def _take_news(self) -> list[Node]:
        """Return those whose rest is over."""
        count = self._state.news_count
        told = [node for node in self._nodes if node.is_resting and node.seen != count]
        for node in told:
            node.is_resting = False
        if told and not self.serving.has_own_loop:
            self._state.news = False  # nobody else would ever say that it is none
        return told

    def _is_due(self) -> bool:
        if not any(node.is_resting for node in self._nodes):
            return False
        if self._state.due:
            return True
        due_ns = self._core.state.next_due_ns()
        return due_ns is not None and due_ns <= self._clock.monotonic_ns()

    def _tell(self, news: list[Node]) -> None:
        self._core.lock.release()
        try:
            for node in news:
                node.on_news()
        finally:
            self._core.lock.acquire()

    def _make_ready(self) -> None:
        self._core.lock.release()
        failed = True
        try:
            self.serving.make_ready(FIRE_LIMIT)
            failed = False
        except (TimingWheelError, WalError, OSError) as error:
            # Each node hears the same when it fires by itself, and knows what to do.
            _logger.debug("nothing is made ready for nodes: %s", error)
        finally:
            self._core.lock.acquire()
        if failed:
            resting = [node for node in self._nodes if node.is_resting]
            for node in resting:
                node.is_resting = False
            self._tell(resting)
