"""What a handler can ask and do while it runs: its `ctx`.

    def send(ctx, to: str) -> None:
        for part in parts:
            ctx.check()                          # stop here if somebody asked for it
            deliver(part, fence=ctx.token)
        ctx.add(confirm.call(to), delay="10m")   # only if this attempt succeeds

One context belongs to one attempt, and ends with it. Cancelled and Snooze are no errors,
so they derive from BaseException, as asyncio's CancelledError does: a handler's own
`except Exception` does not swallow them.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from datetime import datetime
from typing import TYPE_CHECKING, Final

from timingwheel.errors import TimingWheelError
from timingwheel.jobs.durations import Duration, duration_ns
from timingwheel.jobs.errors import TaskError
from timingwheel.jobs.model import Draft, JobId, Outcome, RunId
from timingwheel.jobs.schedule import instant_datetime
from timingwheel.jobs.store import Claim
from timingwheel.scheduler.attempt_log import AttemptLog

if TYPE_CHECKING:
    from timingwheel.scheduler.tasks import Call

FOLLOW_UPS_MAX: Final = 10_000
"""Jobs that one attempt may add."""

Drafter = Callable[["Call", Mapping[str, object]], Draft]
"""Turns a call and the options of `add` into a draft; raises ArgumentError."""


class Cancelled(BaseException):
    """The attempt was asked to end: by a cancel, a time-out or a stop.

    Clean up and let it pass on. A handler that returns nevertheless has succeeded.
    """


class LeaseLost(Cancelled):
    """The run belongs to somebody else by now; what this attempt still does is refused.

    Stop at once, and touch nothing that the new attempt may work on.
    """


class Snooze(BaseException):
    """The handler wants to run again later, without having used up an attempt.

    Attributes:
        delay_ns: how much later.
    """

    def __init__(self, delay_ns: int) -> None:
        super().__init__(delay_ns)
        self.delay_ns = delay_ns


class Context:
    """One attempt, as its handler sees it. Thread-safe.

    Attributes:
        job_id: the job's.
        run_id: stable over attempts: the idempotency token to hand to others.
        attempt: its number, 1 for the first.
        token: grows with every attempt of the whole store: whoever keeps the highest
            one seen, and refuses smaller ones, is safe from an attempt that was
            replaced and does not know (fencing).

    Args:
        claim: the attempt.
        beat: notes a sign of life; raises LeaseLost.
        drafter: turns what `add` is given into a draft.
        make_log: makes `log`, for the first who asks; most handlers log nothing.
    """

    def __init__(
        self,
        claim: Claim,
        *,
        beat: Callable[[], None],
        drafter: Drafter,
        make_log: Callable[[], AttemptLog],
    ) -> None:
        run = claim.run
        self.job_id: JobId = run.job_id
        self.run_id: RunId = run.id
        self.attempt: int = run.attempts
        self.token: int = claim.token
        self._run = run
        self._make_log = make_log
        self._log: AttemptLog | None = None
        self._beat = beat
        self._drafter = drafter
        self._lock = threading.Lock()
        self._drafts: list[Draft] = []
        self._asked: Outcome | None = None
        self._on_asked: Callable[[], object] | None = None
        self._has_ended = False

    @property
    def nominal(self) -> datetime:
        """The time that the trigger names, in UTC."""
        return instant_datetime(self._run.nominal_ns)

    @property
    def due(self) -> datetime:
        """When the run was to start, in UTC: nominal and splay."""
        return instant_datetime(self._run.due_ns)

    @property
    def log(self) -> AttemptLog:
        """A logger whose records carry the ids, and whose last lines are kept."""
        with self._lock:
            if self._log is None:
                self._log = self._make_log()
            return self._log

    def heartbeat(self) -> None:
        """Say that the handler is alive and gets on.

        Raises:
            Cancelled: the attempt was asked to end.
            LeaseLost: the run belongs to somebody else by now.
        """
        self.check()
        self._beat()

    def check(self) -> None:
        """Return unless the attempt was asked to end.

        Raises:
            Cancelled: it was.
            LeaseLost: since the run belongs to somebody else by now.
        """
        if self._asked is Outcome.LOST:
            raise LeaseLost("the run belongs to somebody else by now; end this attempt")
        if self._asked is not None:
            raise Cancelled(_ASKED_WORDS.get(self._asked, "it was asked to end"))

    def add(self, call: Call, **options: object) -> None:
        """Add a job if, and only if, this attempt succeeds: both become true at once.

        Args:
            call: what to do, as `task.call(...)` returns it.
            **options: when and how, as in `Scheduler.add`; none of them: at once.

        Raises:
            ArgumentError: an option is invalid, or there are too many jobs.
        """
        # By its parts, for tasks.py, which defines it, stands on this module.
        if not hasattr(call, "task") or not hasattr(call, "payload"):
            raise TaskError("call", call, "pass a call, as task.call(...) returns it")
        draft = self._drafter(call, options)
        with self._lock:
            if self._has_ended:
                raise TimingWheelError(
                    f"attempt {self.attempt} of run {self.run_id} has ended, and with "
                    "it what it could add: add jobs before the handler returns"
                )
            if len(self._drafts) >= FOLLOW_UPS_MAX:
                raise TimingWheelError(
                    f"an attempt may add {FOLLOW_UPS_MAX:,} jobs: add one that adds "
                    "the rest"
                )
            self._drafts.append(draft)

    def snooze(self, delay: Duration) -> None:
        """End here and run again after `delay`; no attempt is used up, nothing is added.

        Raises:
            Snooze: always; let it pass on.
            ArgumentError: it is no duration.
        """
        raise Snooze(duration_ns(delay, "delay"))

    # -- for executors ------------------------------------------------------------------

    @property
    def asked(self) -> Outcome | None:
        """With which outcome the attempt was asked to end, None if it was not."""
        return self._asked

    def ask(self, outcome: Outcome) -> None:
        """Ask the attempt to end; the first who asks says with which outcome."""
        with self._lock:
            if self._asked is not None or self._has_ended:
                return
            self._asked = outcome
            on_asked = self._on_asked
        if on_asked is not None:
            on_asked()

    def on_asked(self, callback: Callable[[], object]) -> None:
        """Call back when the attempt is asked to end, at once if it was already."""
        with self._lock:
            self._on_asked = callback
            asked = self._asked
        if asked is not None:
            callback()

    def close(self) -> tuple[Draft, ...]:
        """End the context: nothing can be added any more. Returns what was."""
        with self._lock:
            self._has_ended = True
            self._on_asked = None
            return tuple(self._drafts)


def current() -> Context:
    """Return the context of the attempt that is running here.

    For helpers that a handler calls, however deep, in its coroutines too.

    Raises:
        LookupError: no attempt is running in this thread or coroutine.
    """
    context = CURRENT.get()
    if context is None:
        raise LookupError(
            "no attempt is running here: current() works in a handler, and in what it "
            "calls in the same thread or coroutine"
        )
    return context


CURRENT: Final[ContextVar[Context | None]] = ContextVar(
    "timingwheel_context", default=None
)
"""Set by whoever calls a handler; ask `current()`."""

TASK_LOGGER: Final = logging.getLogger("timingwheel.task")
"""Where `ctx.log` writes, with the name of the task as a child of it."""

_ASKED_WORDS: Final = {
    Outcome.CANCELLED: "the run was cancelled",
    Outcome.TIMEOUT: "the attempt has used up its time",
    Outcome.SHUTDOWN: "the scheduler stops",
}
