"""How attempts ended, told to the server until it has heard: no end is lost on the way.

The server takes an end once: one that is told again, since its answer was lost, is
accepted again, and one that comes too late is refused and changes nothing. An end that the
server cannot take, such as one whose result is too large, is told as an error instead.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import msgspec

from timingwheel.clock import Clock
from timingwheel.errors import (
    ArgumentError,
    CronError,
    DeadlineError,
    TimingWheelError,
)
from timingwheel.jobs.errors import PayloadError
from timingwheel.jobs.model import Outcome, RunId
from timingwheel.jobs.store import Finish, Verdict
from timingwheel.scheduler.attempt_log import clean
from timingwheel.scheduler.in_hand import InHand
from timingwheel.scheduler.metrics import Metrics
from timingwheel.wire.problems import RefusedByServerError, make_problem
from timingwheel.wire.workers import EndBody, end_body
from timingwheel.worker.patience import Patience
from timingwheel.worker.requests import WorkerRequests

ENDS_MAX: Final = 500
"""Ends that one request tells."""
BYTES_MAX: Final = 1 << 20
"""Of one request, unless one end alone is longer."""
_ERROR_CHARS_MAX: Final = 2_000
_REFUSALS: Final = frozenset({400, 413, 422})
_logger = logging.getLogger("timingwheel.worker")


class Telling:
    """Tells ends, in order. `work` is for one thread.

    Args:
        requests: to the server.
        in_hand: where ends come from.
        clock: what to wait by.
        changed: notified when there is an end, or it is to stop.
        worker: returns the id by which the worker was known last.
        metrics: where to count.
    """

    def __init__(
        self,
        requests: WorkerRequests,
        in_hand: InHand,
        clock: Clock,
        changed: threading.Condition,
        *,
        worker: Callable[[], str],
        metrics: Metrics,
    ) -> None:
        self._requests = requests
        self._in_hand = in_hand
        self._clock = clock
        self._changed = changed
        self._worker = worker
        self._metrics = metrics
        self._patience = Patience(clock, changed)
        self._unbegun: list[EndBody] = []
        self._ended = False

    def give_back(self, claims: Iterable[tuple[RunId, int]]) -> None:
        """Have runs given back that were claimed and never begun."""
        with self._changed:
            self._unbegun += [
                EndBody(
                    run_id=run_id, token=token, outcome=Outcome.SHUTDOWN, begun=False
                )
                for run_id, token in claims
            ]
            self._changed.notify_all()

    def work(self) -> None:
        """Tell ends as they come, until `end`."""
        while self._rest():
            try:
                self._tell()
                self._patience.renew()
            except TimingWheelError as error:
                if self._patience.is_new:
                    _logger.warning("ends are told again: %s", error)
                self._patience.wait(lambda: self._ended)
            finally:
                with self._changed:
                    self._changed.notify_all()  # for `flush`

    def flush(self, until_ns: int) -> int:
        """Wait until all is told, or until a moment; how many ends are not told then.

        Call it when nothing is in hand any more that could still end.
        """
        with self._changed:
            while left := len(self._unbegun) + len(self._in_hand.tokens()):
                if self._clock.monotonic_ns() >= until_ns:
                    break
                self._clock.wait(self._changed, until_ns)
            return left

    def end(self) -> None:
        """Have `work` return; what is not told then never will be."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    # -- inside ---------------------------------------------------------------------------

    def _rest(self) -> bool:
        with self._changed:
            while not self._ended:
                if self._unbegun or self._in_hand.has_ends:
                    return True
                self._clock.wait(self._changed, None)
        return False

    def _tell(self) -> None:
        """Tell some of what there is."""
        with self._changed:
            unbegun = self._unbegun[:ENDS_MAX]
        if unbegun:
            encoded = [msgspec.Raw(msgspec.json.encode(one)) for one in unbegun]
            told = len(self._requests.end(self._worker(), encoded))
            with self._changed:
                del self._unbegun[:told]
        ends = self._in_hand.take_ends(ENDS_MAX)
        done = 0
        try:
            while done < len(ends):
                done += self._tell_some(ends[done:])
        finally:
            if done < len(ends):
                self._in_hand.put_back(ends[done:])
            else:
                self._in_hand.written()

    def _tell_some(self, ends: Sequence[Finish]) -> int:
        """Tell as many as fit into one request; how many were taken in.

        Raises:
            TimingWheelError: none of them was, and all are to be told again.
        """
        encoded = _fitting(ends)
        try:
            verdicts = self._requests.end(self._worker(), encoded)
        except TimingWheelError as error:
            if not _is_refusal(error):
                raise
            if len(encoded) > 1:
                # One of them is one that the server cannot take: halves show which.
                return self._tell_some(ends[: len(encoded) // 2])
            self._tell_refused(ends[0], error)
            return 1
        if not verdicts:
            raise RefusedByServerError(
                make_problem("disk-full", 507, "the server's disk is full")
            )
        for end, verdict in zip(ends, verdicts, strict=False):
            self._note(end, verdict)
        return len(verdicts)

    def _tell_refused(self, end: Finish, error: TimingWheelError) -> None:
        """Tell an end as an error that the server cannot take as it is."""
        words = clean(f"the server refused how it ended: {error}", _ERROR_CHARS_MAX)
        _logger.error("run %s: %s", end.run_id, words)
        plain = Finish(
            run_id=end.run_id,
            token=end.token,
            outcome=Outcome.ERROR,
            started_ns=end.started_ns,
            error=words,
        )
        for verdict in self._requests.end(self._worker(), _fitting([plain])):
            self._note(plain, verdict)

    def _note(self, end: Finish, verdict: Verdict) -> None:
        if verdict is Verdict.LEASE_LOST:
            self._metrics.count("lease_losses")
            _logger.warning(
                "run %s ended as %s, but was no longer ours: refused",
                end.run_id,
                end.outcome,
                extra={"run_id": end.run_id, "token": end.token},
            )


def _fitting(ends: Sequence[Finish]) -> list[msgspec.Raw]:
    """Return the first ends, encoded, that fit into one request: one at least."""
    encoded: list[msgspec.Raw] = []
    left_bytes = BYTES_MAX
    for end in ends:
        body = msgspec.json.encode(end_body(end))
        left_bytes -= len(body)
        if encoded and left_bytes < 0:
            break
        encoded.append(msgspec.Raw(body))
    return encoded


def _is_refusal(error: TimingWheelError) -> bool:
    """Return whether it is the end itself that the server cannot take, now or later."""
    if isinstance(error, RefusedByServerError):
        return error.problem.status in _REFUSALS
    return isinstance(error, (ArgumentError, CronError, DeadlineError, PayloadError))
