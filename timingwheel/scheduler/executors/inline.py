"""Runs handlers in the thread that submits them: for simulations, tests and tiny jobs.

Nothing runs beside anything else, so a long handler holds up the node that submitted it.
A handler cannot be killed here: what is given up on goes on in its thread, and the thread
with it. Whoever wants time-outs that hold uses processes. Ctrl-C in the middle of a
handler is that handler's error, so a program that runs jobs inline in its main thread
handles SIGINT itself, as `run_forever` does.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from timingwheel.jobs.model import Outcome
from timingwheel.scheduler.executors.attempt import Attempt, attempt_for
from timingwheel.scheduler.executors.executor import Work
from timingwheel.scheduler.executors.slotted import SlottedExecutor


class InlineExecutor(SlottedExecutor[Attempt]):
    """One slot: the submitting thread. See Executor for what each method promises."""

    def __init__(self) -> None:
        super().__init__(1)
        self._thread = 0

    def submit(self, works: Sequence[Work]) -> None:
        """Run the works in this thread, one after the other, and return."""
        with self._lock:
            self._waiting.extend(works)
            if self._running:
                return  # a handler that submits: the loop below goes on with it
        while (work := self._next()) is not None:
            self._run(work)

    def interrupt(self, token: int, outcome: Outcome, *, kill: bool) -> None:
        """Ask an attempt to end, or give it up."""
        with self._lock:
            attempt = self._running.get(token)
            if attempt is not None and kill:
                del self._running[token]
                self._reports.announce()
        if attempt is None:
            return
        attempt.context.ask(outcome)
        if kill:
            name = attempt.task.name
            self._host.alert(
                f"{name} cannot be killed in the thread of the node: it goes on there, "
                'and nothing else runs until it ends; give the task executor="process"'
            )
            self._reports.tell(
                self._host,
                attempt.abandoned(outcome, "given up: it goes on in the node's thread"),
            )

    def _may_wait(self) -> bool:
        return threading.get_ident() != self._thread  # it would wait for itself

    def _next(self) -> Work | None:
        with self._lock:
            if self._stopped or not self._waiting:
                return None
            return self._waiting.popleft()

    def _run(self, work: Work) -> None:
        attempt = attempt_for(work, self._host)
        with self._lock:
            self._thread = threading.get_ident()
            self._enter(work.claim.token, attempt)
        self._see_through(work, attempt, attempt, Attempt.run)
