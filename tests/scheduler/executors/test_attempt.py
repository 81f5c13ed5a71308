"""One attempt: what is told of an error, whatever the error is."""

from __future__ import annotations

import asyncio
import os
import sys
import weakref
from collections.abc import Callable

import msgspec
import pytest

from tests.scheduler.executors import handlers
from tests.scheduler.executors.stage import RecordingHost, work_of
from timingwheel.jobs.error_line import error_line
from timingwheel.jobs.model import Outcome
from timingwheel.scheduler.context import Context
from timingwheel.scheduler.executors.attempt import (
    ERROR_CHARS_MAX,
    attempt_for,
    error_text,
)
from timingwheel.scheduler.tasks import Task
from timingwheel.testing import ManualClock


def test_an_attempt_begins_when_the_hosts_clock_says() -> None:
    clock = ManualClock(wall_ns=1_700_000_000 * 10**9)
    work = work_of(handlers.add.call(1))
    finish = attempt_for(work, RecordingHost(clock)).run()
    assert (finish.outcome, finish.started_ns) == (Outcome.OK, 1_700_000_000 * 10**9)


def test_an_error_is_told_with_its_causes() -> None:
    try:
        try:
            raise KeyError("cause")
        except KeyError as cause:
            raise ValueError("effect") from cause
    except ValueError as error:
        text = error_text(error)
    assert "KeyError: 'cause'" in text
    assert "The above exception was the direct cause" in text
    assert text.endswith("ValueError: effect")


def test_a_long_error_keeps_its_two_ends() -> None:
    text = error_text(ValueError("begin" + "x" * 1_000_000 + "end"))
    assert len(text) < ERROR_CHARS_MAX + 100
    assert text.startswith("ValueError: begin")
    assert text.endswith("end")


def test_a_deep_recursion_is_told_in_bounds() -> None:
    def deeper() -> None:
        deeper()

    try:
        deeper()
    except RecursionError as error:
        text = error_text(error)
    assert "RecursionError" in text
    assert len(text) < ERROR_CHARS_MAX + 100


def test_an_error_whose_text_has_no_bytes_can_still_be_stored() -> None:
    msgspec.msgpack.encode(error_text(ValueError("\ud800")))


def test_an_attempt_that_is_given_up_can_add_nothing_more() -> None:
    attempt = attempt_for(work_of(handlers.add.call(1)), RecordingHost())
    attempt.context.add(handlers.add.call(2))
    finish = attempt.abandoned(Outcome.TIMEOUT, "given up")
    assert (finish.outcome, finish.error) == (Outcome.TIMEOUT, "timed out: given up")
    assert finish.follow_ups == ()


def check_or_raise(ctx: Context) -> None:
    ctx.check()
    raise AssertionError


async def sleep_or_raise() -> None:
    await asyncio.get_running_loop().create_future()
    raise AssertionError


@pytest.mark.parametrize("handler", [check_or_raise, sleep_or_raise])
def test_an_attempt_that_timed_out_says_so_before_it_shows_where_it_was(
    handler: Callable[..., object],
) -> None:
    work = work_of(Task(handler).call())
    work = work._replace(
        claim=msgspec.structs.replace(work.claim, timeout_ns=500_000_000)
    )
    attempt = attempt_for(work, RecordingHost())
    attempt.context.ask(Outcome.TIMEOUT)

    finish = attempt.run()

    assert finish.outcome is Outcome.TIMEOUT
    assert finish.error is not None
    assert finish.error.startswith(
        "timed out after 500 milliseconds\n\nTraceback (most recent call last):\n"
    )
    assert error_line(finish.error, 100) == "timed out after 500 milliseconds"


class Vast:
    """Takes more memory than there is to be written, or to be read."""

    def __init__(self, *, is_read: bool) -> None:
        self.is_read = is_read

    def __reduce__(self) -> tuple[object, ...]:
        if not self.is_read:
            raise MemoryError
        return (no_memory, ())


def no_memory() -> None:
    raise MemoryError


def make_vast() -> object:
    return Vast(is_read=False)


class Held:
    """Is let go of, or not."""


HELD: list[weakref.ref[Held]] = []


def fail_holding() -> None:
    held = Held()
    HELD.append(weakref.ref(held))
    raise ValueError("broken")


def take_anything(thing: object) -> None:
    """Is never called with what cannot be read."""


def test_without_memory_for_its_result_an_attempt_is_an_error_that_may_be_retried() -> (
    None
):
    task = Task(make_vast, pickle=True)
    finish = attempt_for(work_of(task.call(), task=task), RecordingHost()).run()
    assert (finish.outcome, finish.gives_up) == (Outcome.ERROR, False)
    assert finish.error == "how it ended cannot be told: MemoryError"


def test_without_memory_for_its_payload_an_attempt_is_an_error_and_no_quarantine() -> (
    None
):
    task = Task(take_anything, pickle=True)
    call = task.call(Vast(is_read=True))
    finish = attempt_for(work_of(call, task=task), RecordingHost()).run()
    assert (finish.outcome, finish.undecodable) == (Outcome.ERROR, False)
    assert finish.error == "no memory for its payload"


def test_what_cannot_be_told_as_it_was_gives_back_what_the_handler_held() -> None:
    task = Task(fail_holding)
    attempt = attempt_for(work_of(task.call(), task=task), RecordingHost())
    texts = iter([no_memory, lambda: HELD.pop()() is None and "let go"])
    attempt._log_text = lambda: str(next(texts)())
    finish = attempt.run()
    assert finish.log == "let go"
    assert finish.error == "how it ended cannot be told: MemoryError"


def fork(how: str) -> int:
    """Return the exit code of a child that leaves the handler in some way."""
    pid = os.fork()
    if pid == 0:
        if how == "exit":
            sys.exit(7)
        if how == "raise":
            raise ValueError("in the child")
        return 0
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
@pytest.mark.parametrize(("how", "code"), [("exit", 7), ("raise", 1), ("return", 0)])
def test_a_fork_that_comes_back_from_the_handler_ends_there(
    how: str, code: int
) -> None:
    finish = attempt_for(work_of(Task(fork).call(how)), RecordingHost()).run()
    assert finish.result is not None
    assert msgspec.msgpack.decode(finish.result) == code
