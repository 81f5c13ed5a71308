"""The node loop: fires, claims, commits once, hands out, and takes in how attempts ended.

    loop:  ends of attempts ─▶ finish ┐
           what is due      ─▶ fire   ├─▶ one commit ─▶ handlers start, waiters are told
           free slots       ─▶ claim  ┘
           nothing to do    ─▶ rest until something is due, ready, ended, or to be ended

`step` is one turn and needs no thread: a simulation calls it by hand. The loop is written
against the JobStore protocol alone, so it is the same on every store. No handler starts
before its claim is committed, and nobody is told of an end before that is.

A full disk pauses it, and it goes on by itself when there is space again; handlers that
run meanwhile end as always, and their ends are kept. A failure of the log stops it for
good: nobody knows then what the disk holds.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from timingwheel.clock import Clock
from timingwheel.errors import EngineClosedError, TimingWheelError
from timingwheel.jobs.model import Outcome, RunId
from timingwheel.jobs.store import (
    Clustered,
    Finish,
    JobStore,
    Request,
    TellsOfQuiet,
    Ticket,
    Verdict,
)
from timingwheel.scheduler.crew import Crew
from timingwheel.scheduler.executors.executor import Executor, Work
from timingwheel.scheduler.in_hand import InHand
from timingwheel.scheduler.metrics import Metrics
from wal.errors import DiskFullError

FIRE_LIMIT: Final = 4_096
"""Timers that one turn makes ready at most; the next turn goes on where it ended."""
FINISH_LIMIT: Final = 1_024
"""Ends that one turn takes in at most."""
DISK_FULL_RETRY_NS: Final = 1_000_000_000
_STEP_NOISE_NS: Final = 1_000_000
"""Two clocks are never read at quite the same moment."""

_logger = logging.getLogger("timingwheel")


class NodeListener(Protocol):
    """Hears what a node does for others, such as a server that has remote workers.

    Both are called from the node's thread and must not wait.
    """

    def turned(self) -> None:
        """Note that a turn has ended: something may have become ready."""

    def asked_to_end(self, request: Request) -> None:
        """Note that an attempt is to end on which this process does not work."""


class _Turn:
    """What one turn has got from the store and may release once it is committed."""

    def __init__(self) -> None:
        self.ticket: Ticket | None = None
        self.ends: list[tuple[Finish, Verdict]] = []
        self.handouts: list[tuple[Executor, list[Work]]] = []
        self.more = False

    def covers(self, ticket: Ticket) -> None:
        """Note that the commit must reach this far."""
        self.ticket = ticket if self.ticket is None else max(self.ticket, ticket)


class NodeLoop:
    """Runs the jobs of one store in this process.

    Args:
        store: whose jobs; it is closed by whoever opened it.
        clock: the store's.
        worker: how this process is named in attempts and leases.
        crew: the tasks and the executors that run them.
        metrics: where to count.
        on_failed: called once, from the loop's thread, if it stops for good.
        listeners: who hears of its turns; the list may grow.
    """

    def __init__(
        self,
        store: JobStore,
        clock: Clock,
        *,
        worker: str,
        crew: Crew,
        metrics: Metrics,
        on_failed: Callable[[BaseException], None],
        listeners: Sequence[NodeListener] = (),
    ) -> None:
        self.failure: BaseException | None = None
        self.in_hand: Final = InHand(
            store.begin, clock, metrics=metrics, wake=self._wake_if_asleep
        )
        self._store = store
        self._clustered = store if isinstance(store, Clustered) else None
        if self._clustered is not None:
            self._clustered.add_loss_listener(self._lose)
        self._clock = clock
        self._worker = worker
        self._crew = crew
        self._metrics = metrics
        self._on_failed = on_failed
        self._listeners = listeners
        self._unbegun: list[tuple[RunId, int]] = []
        self._serving = False
        self._stopped = False
        self._asleep = False
        self._paused = False
        self._knows_offset = False
        self._checked_in = threading.Event()
        self._thread = threading.Thread(
            target=self._run, name="timingwheel-node", daemon=True
        )

    # -- life ---------------------------------------------------------------------------

    def begin_service(self) -> None:
        """Join the store and clear up what a former life left; then `step` serves."""
        self._store.join(self._worker)
        lost = self._store.recover()
        if lost:
            _logger.warning("%d attempts were lost with a former process", lost)
        self._serving = True

    def start(self) -> None:
        """Begin to serve on a thread of its own."""
        self.begin_service()
        self._thread.start()
        self._checked_in.wait()

    def stop(self, grace_s: float) -> None:
        """Claim nothing more, let what runs end within the grace, and leave the store.

        What has not ended by then ends as `shutdown`: it uses up no attempt, and whoever
        serves the store next starts it again.
        """
        self._serving = False
        self.wake()
        self._hand_over()
        unbegun = self._crew.stop(grace_s)
        self._stopped = True
        if self._thread.ident is not None:
            self.wake()
            self._thread.join()
        if self.failure is None:
            self._leave(unbegun)

    def _hand_over(self) -> None:
        """Have others fire while what runs here ends, if there are others."""
        if self._clustered is None:
            return
        try:
            self._clustered.hand_over()
        except TimingWheelError as error:  # then others find out by themselves
            _logger.warning("nothing could be handed over: %s", error)

    def _leave(self, unbegun: Sequence[Work]) -> None:
        """Have the store know all ends, and take back what was never begun."""
        claims = [*self._unbegun, *self.in_hand.drop(unbegun)]
        try:
            if claims:
                self._store.commit(self._store.give_back(claims))
            while self.in_hand.has_ends:
                self.step()
            self._store.leave(self._worker)
        except (DiskFullError, OSError) as error:
            _logger.error(  # noqa: TRY400 - the disk's fault, and where is known
                "the disk is full, and how the last attempts ended is not written down; "
                "they count as lost: %s",
                error,
            )

    @property
    def alive(self) -> bool:
        """Whether the loop's thread runs."""
        return self._thread.is_alive()

    def wake(self) -> None:
        """Have the loop look again now."""
        with self._store.changed:
            self._store.changed.notify_all()

    # -- one turn -----------------------------------------------------------------------

    def step(self) -> bool:
        """Do once all there is to do now.

        Returns:
            Whether there may be more to do at once.

        Raises:
            DiskFullError, OSError: there is no room; what was got before is released,
                the rest stays as it was.
            EngineFailedError, CommitUnknownError: the log failed.
        """
        self.in_hand.end_overdue()
        if self._clustered is not None and self._serving:
            self._give_back()
        if self._is_quiet():
            return False
        self._watch_the_clock()
        for request in self._store.requests():
            self._pass_on(request)
        turn = _Turn()
        refused: Exception | None = None
        try:
            self._collect(turn)
        except (DiskFullError, OSError) as error:
            refused = error
        if turn.ticket is not None:
            self._store.commit(turn.ticket)
        self._release(turn)
        for listener in self._listeners:
            listener.turned()
        if refused is not None:
            raise refused
        return turn.more or self.in_hand.has_ends

    def _give_back(self) -> None:
        """Let others have what was taken ahead and waits behind handlers that are long."""
        for executor, _ in self._crew.teams(self.in_hand):
            self._unbegun += self.in_hand.drop(executor.take_back())
        if self._unbegun:
            self._store.commit(self._store.give_back(self._unbegun))
            self._unbegun = []

    def _is_quiet(self) -> bool:
        """Return whether a store that can tell says that there is nothing to do."""
        store = self._store
        return (
            isinstance(store, TellsOfQuiet)
            and self._serving
            and not self.in_hand.has_ends
            and store.is_quiet()
        )

    def turn(self) -> bool:
        """Step once; on a full disk note that nothing starts until there is room.

        Returns:
            Whether there may be more to do at once; else `rest`.

        Raises:
            EngineFailedError: as `step`, and all others that end the service.
        """
        try:
            more = self.step()
        except (DiskFullError, OSError) as error:
            if not self._paused:
                self._metrics.count("pauses")
                _logger.error(  # noqa: TRY400 - the disk's fault, and where is known
                    "nothing starts until the store can be written again: %s", error
                )
            self._paused = True
            return False
        self._paused = False
        return more

    def rest(self) -> None:
        """Wait until there is something to do."""
        changed = self._store.changed
        with changed:
            self._asleep = True
            try:
                if self._stopped or (self.in_hand.has_ends and not self._paused):
                    return
                until_ns = self.in_hand.next_deadline_ns()
                if self._paused:
                    retry_ns = self._clock.monotonic_ns() + DISK_FULL_RETRY_NS
                    until_ns = retry_ns if until_ns is None else min(until_ns, retry_ns)
                if self._paused or not self._serving:
                    # What is due stays so: waiting for it would not be waiting.
                    self._clock.wait(changed, until_ns)
                else:
                    self._store.wait(until_ns)
            finally:
                self._asleep = False

    # -- inside: a turn -------------------------------------------------------------------

    def _collect(self, turn: _Turn) -> None:
        """Finish, fire and claim: everything that the turn's commit will cover."""
        ends = self.in_hand.take_ends(FINISH_LIMIT)
        if ends:
            try:
                verdicts, ticket = self._store.finish(ends)
            except (DiskFullError, OSError):
                self.in_hand.put_back(ends)
                raise
            turn.covers(ticket)
            if len(verdicts) < len(ends):  # the disk filled up on the way
                self.in_hand.put_back(ends[len(verdicts) :])
            turn.ends = list(zip(ends, verdicts, strict=False))
        if not self._serving:
            return
        fired, ticket = self._store.fire(FIRE_LIMIT)
        if fired:
            turn.covers(ticket)
            turn.more = fired >= FIRE_LIMIT
        for executor, tasks in self._crew.teams(self.in_hand):
            self._claim(turn, executor, tasks)

    def _claim(self, turn: _Turn, executor: Executor, tasks: frozenset[str]) -> None:
        free, ahead = self.in_hand.free(executor), max(executor.ahead, 0)
        if not free and not ahead:
            return
        claims, ticket = self._store.claim(
            self._worker, tasks=tasks, count=free, ahead=ahead
        )
        if claims:
            turn.covers(ticket)
            turn.more = turn.more or len(claims) >= free + ahead
            works = [Work(claim, self._crew.task(claim.run.task)) for claim in claims]
            turn.handouts.append((executor, works))

    def _release(self, turn: _Turn) -> None:
        """Do what had to wait for the commit."""
        self.in_hand.written()
        for finish, verdict in turn.ends:
            if verdict is Verdict.LEASE_LOST:
                self._metrics.count("lease_losses")
                _logger.warning(
                    "run %s ended as %s, but was no longer ours: refused",
                    finish.run_id,
                    finish.outcome,
                    extra={"run_id": finish.run_id, "token": finish.token},
                )
        for executor, works in turn.handouts:
            self.in_hand.hand_out(executor, works)

    def _pass_on(self, request: Request) -> None:
        if self.in_hand.holds(request.token):
            self.in_hand.interrupt(request.token, Outcome.CANCELLED, kill=request.kill)
            return
        for listener in self._listeners:
            listener.asked_to_end(request)

    def _lose(self, tokens: Sequence[int]) -> None:
        """Ask attempts to end that are somebody else's by now; called by any thread."""
        for token in tokens:
            self.in_hand.interrupt(token, Outcome.LOST, kill=False)

    def _watch_the_clock(self) -> None:
        now = self._store.now()
        ahead_ns = now.wall_ns - now.elapsed_ns
        moved_ns = ahead_ns - self.in_hand.wall_ahead_ns
        self.in_hand.wall_ahead_ns = ahead_ns
        if self._knows_offset and abs(moved_ns) > _STEP_NOISE_NS:
            self._metrics.count("clock_steps")
            _logger.warning("the wall clock was set by %+.3f s", moved_ns / 1e9)
        self._knows_offset = True

    # -- inside: the thread ---------------------------------------------------------------

    def _wake_if_asleep(self) -> None:
        # The loop says that it falls asleep before it looks at the ends for the last
        # time, so an end that it has not seen finds it asleep here.
        if self._asleep:
            self.wake()

    def _run(self) -> None:
        try:
            with self._store.changed:
                # So the clock knows this thread before `start` returns.
                self._clock.wait(self._store.changed, 0)
        finally:
            self._checked_in.set()
        try:
            while not self._stopped:
                if not self.turn():
                    self.rest()
        except EngineClosedError:
            return
        except BaseException as error:  # noqa: BLE001 - it may not end in silence
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        self.failure = error
        _logger.critical(
            "the scheduler stopped for good: nothing starts any more, and ends of "
            "attempts are lost. Mend the cause and start the program again",
            exc_info=error,
        )
        self._on_failed(error)
        if self._clustered is not None:
            self._clustered.withdraw()
