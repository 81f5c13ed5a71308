"""What workers that work from afar and the server say to each other."""

from __future__ import annotations

from typing import Any

import msgspec

from timingwheel.jobs.model import Draft, Outcome, Payload, RunId
from timingwheel.jobs.store import Claim, Finish, Request
from timingwheel.wire.answers import RunAnswer, plain_arguments, run_answer
from timingwheel.wire.bodies import Body
from timingwheel.wire.fields import Count, Hold, Length, Text
from timingwheel.wire.options import AddBody, RetryBody


class JoinBody(Body):
    """A worker that begins.

    Attributes:
        name: for people; the server makes an id of it.
        ttl: its runs count as lost this long after its last beat.
    """

    name: Text
    ttl: Length = "15s"


class ClaimBody(Body):
    """What a worker can take.

    Attributes:
        tasks: names of the tasks that it can run.
        queues: of which queues; null: of all.
        count: runs that it can start now.
        wait: seconds that the server may hold the request while nothing is ready.
    """

    tasks: list[str]
    queues: list[str] | None = None
    count: Count = 1
    wait: Hold = 20.0


class BeatBody(Body):
    """A sign of life.

    Attributes:
        tokens: of the attempts that the worker has in hand.
        drain: it takes no more: a claim that is held is answered with none, at once.
    """

    tokens: list[int]
    drain: bool = False


class EndBody(Body):
    """How an attempt ended; see jobs.store.Finish.

    Attributes:
        run_id, token: as the claim had them.
        outcome: "shutdown" gives the run back, and that uses up no attempt.
        begun: false: the handler was never called; the run is ready again, as if it had
            not been claimed, even one that may run only once.
        value: what the handler returned.
        result: instead of it: encoded by who knows the task.
        started_ns: when the handler began; null: when the run was claimed.
        error, log, gives_up, undecodable: as for Finish.
        snooze: not an end: run again this much later.
        follow_ups: jobs made if, and only if, this success is accepted.
    """

    run_id: RunId
    token: int
    outcome: Outcome
    begun: bool = True
    value: Any = None
    result: bytes | None = None
    started_ns: int | None = None
    error: str | None = None
    log: str = ""
    gives_up: bool = False
    undecodable: bool = False
    snooze: Length | None = None
    follow_ups: tuple[AddBody, ...] = ()


class EndsBody(Body):
    """How attempts ended."""

    ends: list[EndBody]


class JoinAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A worker that may claim.

    Attributes:
        id: names it in all that follows.
        ttl_ns: its runs count as lost this long after its last beat.
        beat_ns: how often to beat.
    """

    id: str
    ttl_ns: int
    beat_ns: int


class ClaimAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt to begin; attributes as jobs.store.Claim.

    Attributes:
        args: the arguments as plain values; null if they are a pickle.
    """

    run: RunAnswer
    args: Any
    payload: Payload
    token: int
    timeout_ns: int | None
    last: bool


class BeatAnswer(msgspec.Struct, frozen=True):
    """What a worker should know.

    Attributes:
        requests: attempts that are to end; told with each beat until they have.
    """

    requests: list[Request]


def follow_up_body(draft: Draft) -> AddBody:
    """Return a job that an attempt adds, as it travels: nothing of it is left open."""
    policy = draft.policy
    return AddBody(
        task=draft.task,
        payload=draft.payload,
        name=draft.name,
        key=draft.key,
        trigger=draft.trigger,
        overlap=policy.overlap,
        misfire=policy.misfire,
        retry=RetryBody.of(policy.retry),
        timeout=_length(policy.timeout_ns),
        delivery=policy.delivery.value,
        start_deadline=_length(policy.start_deadline_ns),
        max_lost=policy.lost_max,
        queue=draft.queue,
        priority=draft.priority,
        concurrency=draft.cap,
        tags=draft.tags,
    )


def end_body(finish: Finish) -> EndBody:
    """Return how an attempt ended, as a worker that knows the task tells it."""
    return EndBody(
        run_id=finish.run_id,
        token=finish.token,
        outcome=finish.outcome,
        result=finish.result,
        started_ns=finish.started_ns,
        error=finish.error,
        log=finish.log,
        gives_up=finish.gives_up,
        undecodable=finish.undecodable,
        snooze=_length(finish.snooze_ns),
        follow_ups=tuple(map(follow_up_body, finish.follow_ups)),
    )


def _length(length_ns: int | None) -> str | None:
    return None if length_ns is None else f"{length_ns}ns"


def claim_answer(claim: Claim) -> ClaimAnswer:
    """Return an attempt to begin as it travels."""
    return ClaimAnswer(
        run=run_answer(claim.run),
        args=plain_arguments(claim.payload, secrets=True),
        payload=claim.payload,
        token=claim.token,
        timeout_ns=claim.timeout_ns,
        last=claim.last,
    )
