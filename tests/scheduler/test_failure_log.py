"""Failed attempts in Python's logging: one line if it is tried again, else all of it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from tests.scheduler import program
from tests.scheduler.node_stage import NS, Stage
from timingwheel.jobs.model import Outcome
from timingwheel.scheduler.retrying import Retry
from timingwheel.scheduler.scheduler import Scheduler
from timingwheel.testing import Sim

TRACEBACK = "Traceback (most recent call last):\n  File\nValueError: no stock\nof any"
LOGGER = "timingwheel.task.tests.scheduler.program:note"


@pytest.fixture
def stage() -> Iterator[Stage]:
    made = Stage()
    made.node.begin_service()
    yield made
    made.close()


def _records(caplog: pytest.LogCaptureFixture) -> list[tuple[str, int, str]]:
    return [
        one for one in caplog.record_tuples if one[0].startswith("timingwheel.task")
    ]


def _end(stage: Stage, outcome: Outcome, **facts: Any) -> str:
    """Have the only attempt end; return its run."""
    stage.turns()
    run = stage.executor.works[0].claim.run.id
    stage.executor.begin()
    stage.executor.end(outcome, **facts)
    return run


def test_a_failed_attempt_is_a_warning_of_one_line_and_the_last_one_an_error(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    retry = Retry(2, backoff="1s..1s", jitter=0)
    job_id = stage.add(program.note.call("a"), retry=retry)

    run = _end(stage, Outcome.ERROR, error=TRACEBACK)

    task = "tests.scheduler.program:note"
    words = f"{task} failed and is tried again: run {run}, attempt 1: "
    assert _records(caplog) == [
        (LOGGER, logging.WARNING, words + "ValueError: no stock")
    ]
    stage.turns()
    stage.clock.advance(2)
    _end(stage, Outcome.ERROR, error=TRACEBACK)
    words = f"{task} failed for good: run {run}, attempt 2: "
    assert _records(caplog)[1:] == [(LOGGER, logging.ERROR, words + TRACEBACK)]
    last = caplog.records[-1]
    assert (last.job_id, last.attempt) == (job_id, 2)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("outcome", "facts", "level"),
    [
        (Outcome.TIMEOUT, {"error": "timed out"}, logging.WARNING),
        (Outcome.ERROR, {"error": "no", "gives_up": True}, logging.ERROR),
        (Outcome.ERROR, {}, logging.WARNING),
        (Outcome.OK, {}, None),
        (Outcome.OK, {"snooze_ns": NS}, None),
        (Outcome.CANCELLED, {"error": "asked to"}, None),
        (Outcome.SHUTDOWN, {"error": "asked to"}, None),
    ],
    ids=["time-out", "gives-up", "nothing-kept", "ok", "snooze", "cancel", "shutdown"],
)
def test_what_failed_is_logged_and_what_was_asked_to_end_is_not(
    stage: Stage,
    caplog: pytest.LogCaptureFixture,
    outcome: Outcome,
    facts: dict[str, Any],
    level: int | None,
) -> None:
    stage.add(program.note.call("a"))

    _end(stage, outcome, **facts)

    levels = [one[1] for one in _records(caplog)]
    assert levels == ([] if level is None else [level])


def test_a_program_that_wants_none_of_it_sets_the_level(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "timingwheel.task")
    stage.add(program.note.call("a"))

    _end(stage, Outcome.ERROR, error="no")

    assert _records(caplog) == []


def test_a_filter_that_fails_harms_no_attempt(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(record: logging.LogRecord) -> bool:
        raise RuntimeError(record.msg)

    logging.getLogger(LOGGER).addFilter(broken)
    try:
        stage.add(program.note.call("a"))
        _end(stage, Outcome.ERROR, error="no")
    finally:
        logging.getLogger(LOGGER).removeFilter(broken)
    assert stage.node.in_hand.has_ends


app = Scheduler("never-opened")


@app.task(retry=Retry(1))
def break_down() -> None:
    raise ValueError("no stock")


def test_a_handler_that_raises_is_in_the_log_with_its_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with Sim(tasks=app) as sim:
        sim.app.schedule(break_down.call(), 1)
        sim.advance(2)

    (_, level, text), *others = _records(caplog)
    assert (level, others) == (logging.ERROR, [])
    assert 'raise ValueError("no stock")' in text
    assert text.endswith("ValueError: no stock")
