"""Attempts in hand: which are with an executor, since when, and how they ended.

It is the Host that executors talk to, from any thread. It never waits for the disk: ends
are queued here until the node's next turn writes them down.
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from timingwheel.clock import Clock
from timingwheel.jobs.model import Draft, Outcome, RunId
from timingwheel.jobs.store import Finish
from timingwheel.scheduler.adding import make_follow_up
from timingwheel.scheduler.context import LeaseLost
from timingwheel.scheduler.deadlines import KILL_GRACE_NS, Deadline, Deadlines
from timingwheel.scheduler.executors.executor import Executor, Work
from timingwheel.scheduler.failure_log import log_failure
from timingwheel.scheduler.metrics import Metrics
from timingwheel.scheduler.tasks import Call

_logger = logging.getLogger("timingwheel")


class _Held(NamedTuple):
    """An attempt that is with an executor."""

    work: Work
    executor: Executor


class InHand:
    """The attempts that executors have, and the ends that the store does not know yet.

    Invariant: an attempt is with at most one executor, and it leaves exactly once: by
    its end, by a refused begin, or by being dropped.

    Args:
        may_begin: whether the run of a claim may still begin.
        clock: the store's.
        metrics: where to count.
        wake: called when there is something for the node to do.
    """

    def __init__(
        self,
        may_begin: Callable[[RunId, int], bool],
        clock: Clock,
        *,
        metrics: Metrics,
        wake: Callable[[], None],
    ) -> None:
        self.wall_ahead_ns = 0
        """How far the wall clock is ahead of the elapsed scale."""
        self._may_begin = may_begin
        self._clock = clock
        self._metrics = metrics
        self._wake = wake
        self._lock = threading.Lock()
        self._held: dict[int, _Held] = {}
        self._counts: Counter[Executor] = Counter()
        self._ends: deque[Finish] = deque()
        self._unwritten: frozenset[int] = frozenset()
        self._deadlines = Deadlines()

    # -- for the node -------------------------------------------------------------------

    def free(self, executor: Executor) -> int:
        """Return how many handlers an executor could start at once.

        Counted here and not asked of the executor: a begin that is refused frees its
        slot a moment after we hear of it, and nobody would say so again.
        """
        return max(executor.slots - self._counts[executor], 0)

    def hand_out(self, executor: Executor, works: list[Work]) -> None:
        """Give claimed and committed work to an executor."""
        with self._lock:
            for work in works:
                self._held[work.claim.token] = _Held(work, executor)
            self._counts[executor] += len(works)
        now_ns = self._clock.wall_ns()
        self._metrics.note_claims([self._lag_ns(work, now_ns) for work in works])
        try:
            executor.submit(works)
        except Exception as error:
            _logger.exception("an executor refused its work")
            for work in works:
                self.ended(
                    Finish(
                        run_id=work.claim.run.id,
                        token=work.claim.token,
                        # Not lost: that would be tried again at once, in a circle.
                        outcome=Outcome.ERROR,
                        started_ns=self._clock.wall_ns(),
                        error=f"the executor refused it: {error!r}",
                    )
                )

    def drop(self, works: Sequence[Work]) -> list[tuple[RunId, int]]:
        """Strike off work that was never begun; what `give_back` takes."""
        dropped = [work for work in works if self._let_go(work.claim.token) is not None]
        self._metrics.note_returns(len(dropped))
        return [(work.claim.run.id, work.claim.token) for work in dropped]

    def tokens(self) -> list[int]:
        """Return the attempts that are with an executor, or whose end is not known yet."""
        with self._lock:
            held = list(self._held)
        ends = [finish.token for finish in self._ends.copy()]
        return [*held, *self._unwritten, *ends]

    def holds(self, token: int) -> bool:
        """Whether an attempt is with an executor, or its end is not written down yet."""
        if token in self._held or token in self._unwritten:
            return True
        return any(finish.token == token for finish in self._ends.copy())

    @property
    def has_ends(self) -> bool:
        """Whether there are ends to be written down."""
        return bool(self._ends)

    def take_ends(self, limit: int) -> list[Finish]:
        """Take out ends, oldest first, at most `limit`; then `written` or `put_back`."""
        ends = list(itertools.islice(self._ends.copy(), limit))
        # Noted before they leave the queue, so that `holds` sees them all the time.
        self._unwritten = frozenset(finish.token for finish in ends)
        for _ in ends:
            self._ends.popleft()
        return ends

    def put_back(self, ends: list[Finish]) -> None:
        """Take ends back that could not be written down."""
        self._ends.extendleft(reversed(ends))
        self._unwritten = frozenset()

    def written(self) -> None:
        """Note that the ends that were taken out are durable."""
        self._unwritten = frozenset()

    def next_deadline_ns(self) -> int | None:
        """Return when the next attempt is to be ended, on the monotonic scale."""
        return self._deadlines.next_ns()

    def end_overdue(self) -> None:
        """Ask attempts to end whose time is up; end those that were asked long ago."""
        now_ns = self._clock.monotonic_ns()
        for deadline in self._deadlines.take_due(now_ns):
            if deadline.token not in self._held:
                continue
            self.interrupt(deadline.token, Outcome.TIMEOUT, kill=deadline.kill)
            if not deadline.kill:
                at_ns = now_ns + KILL_GRACE_NS
                self._deadlines.add(Deadline(at_ns, deadline.token, kill=True))

    def interrupt(self, token: int, outcome: Outcome, *, kill: bool) -> None:
        """End an attempt, if it is still here."""
        held = self._held.get(token)
        if held is not None:
            held.executor.interrupt(token, outcome, kill=kill)

    # -- for executors: see Host ----------------------------------------------------------

    @property
    def clock(self) -> Clock:
        """Where time comes from."""
        return self._clock

    def begin(self, work: Work) -> bool:
        """Say that the handler starts now; False: it was cancelled, drop it silently."""
        run, token = work.claim.run, work.claim.token
        if not self._may_begin(run.id, token):
            if self.drop([work]):
                self._wake()
            return False
        lag_ns = self._lag_ns(work, self._clock.wall_ns())
        self._metrics.note_begin(lag_ns, attempt=run.attempts)
        if work.claim.timeout_ns is not None:
            at_ns = self._clock.monotonic_ns() + work.claim.timeout_ns
            if self._deadlines.add(Deadline(at_ns, token, kill=False)):
                self._wake()
        return True

    def ended(self, finish: Finish) -> None:
        """Take in how an attempt ended. Never waits for the disk.

        Raises:
            MemoryError: tell it again.
        """
        if finish.token in self._held:
            snoozes = finish.snooze_ns is not None
            # By the wall clock, which its record shows too; one that was set counts as 0.
            self._metrics.note_end(
                "snoozed" if snoozes else finish.outcome.value,
                self._clock.wall_ns() - finish.started_ns,
            )
            held = self._let_go(finish.token, finish)
            if held is not None:
                log_failure(held.work, finish)
        self._wake()  # also when it is told again, as there was no memory for this

    def heartbeat(self, work: Work) -> None:
        """Note a sign of life of a handler.

        Raises:
            LeaseLost: the run belongs to somebody else by now.
        """
        if work.claim.token not in self._held:
            raise LeaseLost(
                f"run {work.claim.run.id}: this attempt was given up, and what it does "
                "now no longer counts; end it"
            )

    def draft(self, call: Call, options: Mapping[str, object]) -> Draft:
        """Turn what a handler passed to `ctx.add(call, **options)` into a draft.

        Raises:
            ArgumentError: the options are invalid.
        """
        return make_follow_up(call, options)

    def alert(self, message: str) -> None:
        """Tell the operator: a slot is stuck, a process was killed."""
        _logger.error("%s", message)
        self._metrics.count("alerts")

    # -- inside -------------------------------------------------------------------------

    def _let_go(self, token: int, finish: Finish | None = None) -> _Held | None:
        """Strike off an attempt, if it is here, and keep how it ended."""
        with self._lock:
            held = self._held.get(token)
            if held is not None:
                count = self._counts[held.executor] - 1
                if finish is not None:
                    self._ends.append(finish)
                # All that may find no memory is done: it leaves whole or not at all.
                self._counts[held.executor] = count
                del self._held[token]
        return held

    def _lag_ns(self, work: Work, now_ns: int) -> int:
        """Return how late it is, on the scale that its trigger lives on.

        The wall clock says `now_ns`. A run does not say on which scale its due time is.
        Without a step of the wall clock the two agree; after one the nearer is meant,
        since the other is off by the step.
        """
        wall_lag_ns = now_ns - work.claim.run.due_ns
        elapsed_lag_ns = wall_lag_ns - self.wall_ahead_ns
        return elapsed_lag_ns if abs(elapsed_lag_ns) < abs(wall_lag_ns) else wall_lag_ns
