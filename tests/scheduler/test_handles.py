"""Handles, pages and errors: what people hold on to."""

from __future__ import annotations

import pickle

import pytest

from tests.scheduler import program
from timingwheel.jobs.errors import UnknownRunError
from timingwheel.jobs.model import JobId, Run, RunState, SkipReason
from timingwheel.scheduler.handles import Page, RunFailedError
from timingwheel.scheduler.simulation import Sim


def test_a_page_is_a_list_with_a_cursor() -> None:
    page = Page(iter([1, 2]), "next")
    assert page == [1, 2]
    assert page.cursor == "next"


def test_a_failed_run_is_an_error_in_one_line_that_can_be_pickled() -> None:
    run = Run(
        job_id=JobId("j"),
        nominal_ns=5,
        due_ns=5,
        task="t",
        state=RunState.FAILED,
        error="Traceback (most recent call last):\n  ...\nValueError: out of ink\n",
    )
    error = RunFailedError(run)
    assert str(error) == "run j@5 is failed: ValueError: out of ink"
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.run) == (str(error), run)


def test_a_skipped_run_says_why() -> None:
    run = Run(
        job_id=JobId("j"),
        nominal_ns=5,
        due_ns=5,
        task="t",
        state=RunState.SKIPPED,
        skip_reason=SkipReason.EXPIRED,
    )
    assert str(RunFailedError(run)) == "run j@5 is skipped (expired)"


def test_a_handle_shows_what_it_names(sim: Sim) -> None:
    handle = sim.app.run(sim.app.schedule(program.note.call("x"), 1))
    assert repr(handle) == f"<run {handle.id}>"
    assert repr(sim.app.queue("mail")) == "<queue mail>"
    assert repr(sim.app.calendar("days")) == "<calendar days>"
    assert sim.app.run(handle) is handle
    assert sim.app.run(handle.get()).id == handle.id


def test_a_result_of_a_task_that_is_gone_can_still_be_read(sim: Sim) -> None:
    handle = sim.app.run(sim.app.schedule(program.note_ctx.call("x"), 1))
    sim.advance(2)
    before = handle.result()
    name = program.note_ctx.name
    task = sim.app.tasks._tasks.pop(name)
    try:
        assert handle.result() == before
    finally:
        sim.app.tasks._tasks[name] = task


def test_a_run_of_a_job_that_recurs_must_be_named(sim: Sim) -> None:
    ref = sim.app.add(program.note.call("x"), every="10s")
    with pytest.raises(ValueError, match="many runs"):
        sim.app.run(ref)


def test_get_of_a_run_to_come_says_that_it_is_not_there_yet(sim: Sim) -> None:
    ref = sim.app.add(program.note.call("x"), every="10s")
    at_ns = (sim.app.job(ref).next_ns or 0) + 10**10
    with pytest.raises(UnknownRunError, match="yet"):
        sim.app.run(f"{ref.id}@{at_ns}").get()
