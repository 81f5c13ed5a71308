"""What a worker asks of its server, one request each; docs/workers.md is the protocol."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from timingwheel.client.transport import Ask, Transport
from timingwheel.jobs.store import Claim, Request, Verdict
from timingwheel.wire.answers import DoneAnswer, ListAnswer
from timingwheel.wire.workers import (
    BeatAnswer,
    BeatBody,
    ClaimBody,
    JoinAnswer,
    JoinBody,
)

HOLD_SECONDS = 20.0
"""How long the server may hold a claim while nothing is ready."""


class WorkerRequests:
    """Asks a server as a worker. Thread-safe; nothing is asked again by itself.

    All raise ServerAwayError and UnansweredError if nobody answers, AccessError if the
    token may not work here, and UnknownWorkerError if the worker has to join again.

    Args:
        transport: to the server.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def join(self, name: str, *, ttl_ns: int) -> JoinAnswer:
        """Announce a worker; what it is named from then on, and how often it is to beat."""
        body = JoinBody(name=name, ttl=f"{ttl_ns}ns")
        answer: JoinAnswer = self._post((), body, JoinAnswer)
        return answer

    def claim(
        self,
        worker: str,
        *,
        tasks: frozenset[str],
        count: int,
        queues: frozenset[str] | None,
    ) -> list[Claim]:
        """Return runs that are durably this worker's; waits while there are none."""
        body = ClaimBody(
            tasks=sorted(tasks),
            queues=None if queues is None else sorted(queues),
            count=count,
            wait=HOLD_SECONDS,
        )
        answer: ListAnswer[Claim] = self._post(
            (worker, "claims"), body, ListAnswer[Claim], hold_s=HOLD_SECONDS
        )
        return answer.items

    def beat(
        self, worker: str, tokens: Sequence[int], *, drain: bool = False
    ) -> list[Request]:
        """Renew the leases; which attempts somebody wants to end."""
        body = BeatBody(tokens=list(tokens), drain=drain)
        answer: BeatAnswer = self._post((worker, "beat"), body, BeatAnswer)
        return answer.requests

    def end(self, worker: str, ends: Sequence[msgspec.Raw]) -> list[Verdict]:
        """Tell how attempts ended, as `end_body` has them; durable when it returns.

        Returns:
            A verdict for each, in order; fewer if the server's disk filled up.
        """
        answer: ListAnswer[Verdict] = self._post(
            (worker, "ends"), {"ends": ends}, ListAnswer[Verdict]
        )
        return answer.items

    def leave(self, worker: str) -> None:
        """Say that this worker is gone."""
        self._transport.send(Ask("DELETE", ("workers", worker)), DoneAnswer)

    def _post(
        self, path: tuple[str, ...], body: object, returns: Any, hold_s: float = 0.0
    ) -> Any:
        ask = Ask("POST", ("workers", *path), body=body, hold_s=hold_s)
        return self._transport.send(ask, returns)
