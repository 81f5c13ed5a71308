"""The context: its facts, and what it raises."""

from __future__ import annotations

import datetime as dt
import threading

import pytest

from tests.scheduler import task_functions as functions
from timingwheel.errors import ArgumentError, TimingWheelError
from timingwheel.jobs.model import Draft, JobId, Outcome, Payload, Run
from timingwheel.jobs.store import Claim
from timingwheel.jobs.triggers import Delay, Trigger
from timingwheel.scheduler import context as contexts
from timingwheel.scheduler.attempt_log import AttemptLog
from timingwheel.scheduler.context import (
    FOLLOW_UPS_MAX,
    Cancelled,
    Context,
    LeaseLost,
    Snooze,
    current,
)

DRAFT = Draft(task="t", payload=Payload(b""), trigger=Trigger(when=Delay(0)))
CALL = functions.v1.call("a")


def nothing(*_: object) -> None:
    """Stands where something could happen."""


@pytest.fixture
def beats() -> list[int]:
    return []


@pytest.fixture
def ctx(beats: list[int]) -> Context:
    run = Run(
        job_id=JobId("job"),
        nominal_ns=1_700_000_000 * 10**9,
        due_ns=1_700_000_060 * 10**9,
        task="t",
        attempts=2,
    )
    claim = Claim(run=run, payload=Payload(b""), token=9, timeout_ns=None, last=False)
    return Context(
        claim,
        beat=lambda: beats.append(1),
        drafter=lambda call, options: DRAFT,
        make_log=lambda: AttemptLog(None, ids={}, sink=nothing),
    )


def test_times_are_aware_and_in_utc(ctx: Context) -> None:
    assert ctx.nominal == dt.datetime(2023, 11, 14, 22, 13, 20, tzinfo=dt.UTC)
    assert ctx.due - ctx.nominal == dt.timedelta(minutes=1)
    assert (ctx.run_id, ctx.attempt, ctx.token) == (
        "job@1700000000000000000",
        2,
        9,
    )


@pytest.mark.parametrize(
    ("outcome", "words"),
    [
        (Outcome.CANCELLED, "the run was cancelled"),
        (Outcome.TIMEOUT, "has used up its time"),
        (Outcome.SHUTDOWN, "the scheduler stops"),
    ],
)
def test_a_check_raises_once_somebody_has_asked(
    ctx: Context, beats: list[int], outcome: Outcome, words: str
) -> None:
    ctx.check()
    ctx.heartbeat()
    ctx.ask(outcome)
    with pytest.raises(Cancelled, match=words):
        ctx.check()
    with pytest.raises(Cancelled, match=words):
        ctx.heartbeat()
    assert len(beats) == 1


def test_who_asks_first_says_with_which_outcome(ctx: Context) -> None:
    calls: list[int] = []
    ctx.on_asked(lambda: calls.append(1))
    ctx.ask(Outcome.TIMEOUT)
    ctx.ask(Outcome.CANCELLED)
    assert ctx.asked is Outcome.TIMEOUT
    assert calls == [1]


def test_whoever_comes_after_the_asking_is_called_at_once(ctx: Context) -> None:
    ctx.ask(Outcome.CANCELLED)
    calls: list[int] = []
    ctx.on_asked(lambda: calls.append(1))
    assert calls == [1]


def test_to_stop_is_no_error_that_a_handler_would_catch_by_accident() -> None:
    assert not issubclass(Cancelled, Exception)
    assert not issubclass(Snooze, Exception)
    assert issubclass(LeaseLost, Cancelled)


def test_a_snooze_raises_how_long(ctx: Context) -> None:
    with pytest.raises(Snooze) as caught:
        ctx.snooze("1m30s")
    assert caught.value.delay_ns == 90 * 10**9


@pytest.mark.parametrize("delay", [-1, "soon", None])
def test_a_snooze_that_cannot_be_meant_is_refused(ctx: Context, delay: object) -> None:
    with pytest.raises(ArgumentError, match="delay is"):
        ctx.snooze(delay)  # type: ignore[arg-type]


def test_what_is_added_is_there_at_the_end(ctx: Context) -> None:
    ctx.add(CALL)
    ctx.add(CALL, delay=3)
    assert ctx.close() == (DRAFT, DRAFT)


def test_after_its_end_a_context_takes_nothing(ctx: Context) -> None:
    ctx.close()
    with pytest.raises(TimingWheelError, match=r"attempt 2 of run .* has ended"):
        ctx.add(CALL)
    ctx.ask(Outcome.CANCELLED)
    ctx.check()


def test_what_one_attempt_may_add_is_bounded(ctx: Context) -> None:
    for _ in range(FOLLOW_UPS_MAX):
        ctx.add(CALL)
    with pytest.raises(TimingWheelError, match="add one that adds the rest"):
        ctx.add(CALL)


def test_what_is_no_call_is_refused_with_what_to_pass(ctx: Context) -> None:
    with pytest.raises(ArgumentError, match=r"call is .*task\.call"):
        ctx.add(functions.v1)  # type: ignore[arg-type]


def test_the_current_context_is_that_of_the_handler_that_runs_here(
    ctx: Context,
) -> None:
    with pytest.raises(LookupError, match="no attempt is running here"):
        current()
    token = contexts.CURRENT.set(ctx)
    try:
        assert current() is ctx
        found: list[object] = []
        thread = threading.Thread(
            target=lambda: found.append(contexts.CURRENT.get()), daemon=True
        )
        thread.start()
        thread.join()
        assert found == [None]  # another thread is not this handler
    finally:
        contexts.CURRENT.reset(token)
