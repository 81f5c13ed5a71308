"""Runs handlers in the thread that submits them: for simulations, tests and tiny jobs.

Nothing runs beside anything else, so a long handler holds up the node that submitted it.
A handler cannot be killed here: what is given up on goes on in its thread, and the thread
with it. Whoever wants time-outs that hold uses processes. Ctrl-C in the middle of a
handler is that handler's error, so a program that runs jobs inline in its main thread
handles SIGINT itself, as `run_forever` does.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence

from timingwheel.jobs.model import Outcome
from timingwheel.jobs.store import Finish
from timingwheel.scheduler.executors.attempt import Attempt, attempt_for, may_begin
from timingwheel.scheduler.executors.executor import HEED_S, Host, Work
from timingwheel.scheduler.executors.pace import Pace
from timingwheel.scheduler.executors.reports import Reports


class InlineExecutor:
    """One slot: the submitting thread. See Executor for what each method promises."""

    slots = 1

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._running: dict[int, Attempt] = {}
        self._waiting: deque[Work] = deque()
        self._reports = Reports(self._changed)
        self._pace = Pace()
        self._stopped = False
        self._thread = 0

    def start(self, host: Host) -> None:
        """Make ready."""
        self._host = host

    @property
    def free(self) -> int:
        """1 unless something runs or waits."""
        with self._lock:
            return 0 if self._running or self._waiting else 1

    @property
    def ahead(self) -> int:
        """How much more it would get through soon."""
        with self._lock:
            return max(self._pace.ahead(1) - len(self._waiting), 0)

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

    def stop(self, grace_s: float) -> list[Work]:
        """Start nothing more; see Executor."""
        with self._changed:
            self._stopped = True
            left = list(self._waiting)
            self._waiting.clear()
            is_own = threading.get_ident() == self._thread  # it would wait for itself
            if not is_own:
                self._changed.wait_for(self._is_quiet, timeout=grace_s)
            late = list(self._running)
        for token in late:
            self.interrupt(token, Outcome.SHUTDOWN, kill=False)
        with self._changed:
            if not is_own:
                self._changed.wait_for(self._is_quiet, timeout=HEED_S)
            stuck = list(self._running)
        for token in stuck:
            self.interrupt(token, Outcome.SHUTDOWN, kill=True)
        return left

    def _is_quiet(self) -> bool:
        return not self._running and self._reports.are_told

    def _next(self) -> Work | None:
        with self._lock:
            if self._stopped or not self._waiting:
                return None
            return self._waiting.popleft()

    def _run(self, work: Work) -> None:
        host, token = self._host, work.claim.token
        duration_ns = 0
        attempt = attempt_for(work, host)
        finish: Finish | None = None
        with self._lock:
            self._thread = threading.get_ident()
            self._running[token] = attempt
        try:
            # Given up before it began, it has been reported and must not start any more.
            if may_begin(work, host) and token in self._running:
                began_ns = host.clock.monotonic_ns()
                attempt.started_ns = host.clock.wall_ns()
                finish = attempt.run()
                duration_ns = host.clock.monotonic_ns() - began_ns
        finally:
            with self._lock:
                is_ours = self._running.pop(token, None) is not None
                if finish is not None:
                    self._pace.note(duration_ns)
                if is_ours and finish is not None:
                    self._reports.announce()
                else:  # nothing more will be told that `stop` could wait for
                    self._changed.notify_all()
        if is_ours and finish is not None:
            self._reports.tell(host, finish)
