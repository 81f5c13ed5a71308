"""The operations of workers that work from afar; docs/workers.md is their protocol."""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec

from timingwheel.errors import ArgumentError
from timingwheel.jobs.durations import duration_ns
from timingwheel.jobs.store import Claim, Finish, Verdict
from timingwheel.scheduler.adding import make_follow_up
from timingwheel.server.operations import Asked, Operation, Role
from timingwheel.server.queries import added_call
from timingwheel.wire.answers import DoneAnswer, ListAnswer
from timingwheel.wire.problems import within
from timingwheel.wire.workers import (
    BeatAnswer,
    BeatBody,
    ClaimAnswer,
    ClaimBody,
    EndBody,
    EndsBody,
    JoinAnswer,
    JoinBody,
    claim_answer,
)

WAIT_SECONDS_MAX: Final = 60.0
BEATS_A_TTL: Final = 3
BEAT_NS_MAX: Final = 5_000_000_000
"""How late a worker hears of a request to end, however long it is to live."""
_PAUSE_SECONDS: Final = 0.02
"""Between two looks of a claim that waits: a busy node has many turns a second."""


def join(asked: Asked) -> JoinAnswer:
    """Announce a worker."""
    body = asked.the_body(JoinBody)
    ttl_ns = duration_ns(body.ttl, "ttl")
    worker = asked.hub.join(body.name, ttl_ns)
    return JoinAnswer(
        id=worker, ttl_ns=ttl_ns, beat_ns=min(ttl_ns // BEATS_A_TTL, BEAT_NS_MAX)
    )


async def claim_runs(asked: Asked) -> ListAnswer[ClaimAnswer]:
    """Give runs to a worker; while none is ready the request is held."""
    body = asked.the_body(ClaimBody)
    if not 0 <= body.wait <= WAIT_SECONDS_MAX:
        raise ArgumentError(
            "wait", body.wait, f"pass seconds, 0 to {WAIT_SECONDS_MAX:g}"
        )
    loop = asyncio.get_running_loop()
    until_s = loop.time() + body.wait
    changed = asyncio.Event()
    with asked.hub.told(changed):
        while True:
            changed.clear()
            claims = await asked.threads.call(lambda: _claim(asked, body))
            left_s = until_s - loop.time()
            is_over = left_s <= 0 or asked.stopping.is_set()
            if claims or is_over or asked.hub.takes_no_more(asked.path["worker"]):
                return ListAnswer([claim_answer(one) for one in claims])
            await _first(changed, asked.stopping, timeout_s=left_s)
            await _first(asked.stopping, timeout_s=_PAUSE_SECONDS)


def beat(asked: Asked) -> BeatAnswer:
    """Renew the leases of a worker, and tell which attempts are to end."""
    body = asked.the_body(BeatBody)
    return BeatAnswer(
        asked.hub.beat(asked.path["worker"], body.tokens, drain=body.drain)
    )


def finish_runs(asked: Asked) -> ListAnswer[Verdict]:
    """Take in how attempts ended; what comes too late is refused."""
    worker, ends = asked.path["worker"], asked.the_body(EndsBody).ends
    unbegun = [(end.run_id, end.token) for end in ends if not end.begun]
    if unbegun:
        asked.hub.give_back(worker, unbegun)
    finished = []
    for n, end in enumerate(ends):
        if end.begun:
            with within(f"ends[{n}]"):
                finished.append(_finish(asked, end))
    told = iter(asked.hub.finish(worker, finished))
    # What nobody has begun is nobody's loss, whoever has it by now.
    verdicts: list[Verdict] = []
    for end in ends:
        verdict = next(told, None) if end.begun else Verdict.ACCEPTED
        if verdict is None:
            break  # the disk filled up: from here on all is to be told again
        verdicts.append(verdict)
    return ListAnswer(verdicts)


def leave(asked: Asked) -> DoneAnswer:
    """Forget a worker; what it still has is lost."""
    asked.hub.leave(asked.path["worker"])
    return DoneAnswer(changed=True)


def _claim(asked: Asked, body: ClaimBody) -> list[Claim]:
    return asked.hub.claim(
        asked.path["worker"],
        tasks=frozenset(body.tasks),
        count=body.count,
        queues=None if body.queues is None else frozenset(body.queues),
    )


def _finish(asked: Asked, end: EndBody) -> Finish:
    started_ns = end.started_ns
    run = asked.scheduler.desk.store.run(end.run_id)
    if started_ns is None:
        started_ns = 0 if run is None or run.started_ns is None else run.started_ns
    result = end.result
    if result is None and end.value is not None:
        task = None if run is None else asked.scheduler.tasks.get(run.task)
        result = (
            msgspec.msgpack.encode(end.value, order="deterministic")
            if task is None
            else task.codec.encode_result(end.value)
        )
    follow_ups = []
    for n, body in enumerate(end.follow_ups):
        with within(f"follow_ups[{n}]"):
            options = body.options()
            for name in ("name", "key"):
                if (value := getattr(body, name)) is not None:
                    options[name] = value
            call = added_call(asked, body.task, body)
            follow_ups.append(make_follow_up(call, options))
    return Finish(
        run_id=end.run_id,
        token=end.token,
        outcome=end.outcome,
        started_ns=started_ns,
        result=result,
        error=end.error,
        log=end.log,
        gives_up=end.gives_up,
        undecodable=end.undecodable,
        snooze_ns=None if end.snooze is None else duration_ns(end.snooze, "snooze"),
        follow_ups=tuple(follow_ups),
    )


async def _first(*events: asyncio.Event, timeout_s: float) -> None:
    """Return when one of the events is set, or after the time."""
    waits = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(
            waits, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED
        )
    finally:
        for wait in waits:
            wait.cancel()


_ONE: Final = "/workers/{worker}"
WORKER_OPERATIONS: Final = (
    Operation(
        "POST",
        "/workers",
        join,
        JoinAnswer,
        "Join as a worker",
        body=JoinBody,
        example={"name": "mailer", "ttl": "15s"},
        role=Role.OPERATE,
    ),
    Operation(
        "POST",
        f"{_ONE}/claims",
        claim_runs,
        ListAnswer[ClaimAnswer],
        "Claim runs; held while none is ready",
        body=ClaimBody,
        example={"tasks": ["mail:send"], "count": 2, "wait": 0.1},
        role=Role.OPERATE,
        is_routine=True,
        awaits=True,
    ),
    Operation(
        "POST",
        f"{_ONE}/beat",
        beat,
        BeatAnswer,
        "Renew the leases of a worker",
        body=BeatBody,
        role=Role.OPERATE,
        is_routine=True,
    ),
    Operation(
        "POST",
        f"{_ONE}/ends",
        finish_runs,
        ListAnswer[Verdict],
        "Tell how attempts ended",
        body=EndsBody,
        example={
            "ends": [
                {
                    "run_id": "00000000-0000-8000-8000-000000000002@5",
                    "token": 7,
                    "outcome": "ok",
                    "value": {"sent": True},
                }
            ]
        },
        role=Role.OPERATE,
        is_routine=True,
    ),
    Operation("DELETE", _ONE, leave, DoneAnswer, "Leave", role=Role.OPERATE),
)
