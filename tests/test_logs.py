"""A log for machines: one line of JSON a record, with its ids."""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.scheduler import program
from timingwheel.logs import JsonFormatter
from timingwheel.testing import Sim


def line_of(record: logging.LogRecord) -> dict[str, Any]:
    text = JsonFormatter().format(record)
    assert "\n" not in text
    found: dict[str, Any] = json.loads(text)
    return found


def record(msg: object, *args: object, **extra: object) -> logging.LogRecord:
    logger = logging.getLogger("timingwheel")
    return logger.makeRecord("timingwheel", 30, "f.py", 1, msg, args, None, extra=extra)


def test_a_line_has_time_level_logger_message_and_the_ids() -> None:
    line = line_of(record("run %s ended", "r", run_id="r", token=7, worker=None))

    assert (line["level"], line["logger"]) == ("WARNING", "timingwheel")
    assert line["message"] == "run r ended"
    assert (line["run_id"], line["token"]) == ("r", 7)
    assert line["time"].endswith("Z")
    assert set(line) == {"time", "level", "logger", "message", "run_id", "token"}


def test_an_exception_is_in_the_line_with_its_traceback() -> None:
    try:
        raise ValueError("it fails")
    except ValueError:
        failed = record("sent")
        failed.exc_info = sys.exc_info()

    assert "ValueError: it fails" in line_of(failed)["error"]


@pytest.mark.parametrize(
    "odd",
    [Path("p"), {1, 2}, object(), b"\xff", "two\nlines", "\ud800", float("nan")],
    ids=["path", "set", "object", "bytes", "two lines", "lone surrogate", "nan"],
)
def test_whatever_is_logged_makes_one_line(odd: object) -> None:
    line_of(record("it is %s", odd, about=odd if odd != "\ud800" else None))


def test_a_message_that_cannot_be_formatted_is_still_a_line() -> None:
    assert "cannot be formatted" in line_of(record("%d and %d", "one"))["message"]


def test_an_extra_never_takes_the_place_of_what_each_line_has() -> None:
    assert line_of(record("said", level="none"))["level"] == "WARNING"


def test_what_a_handler_logs_has_the_ids_of_its_attempt(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with Sim(tasks=program.app) as sim, caplog.at_level(logging.INFO):
        sim.app.task(log_something)
        job = sim.app.add(sim.app.tasks.tasks()[-1].call(), delay=0).id
        sim.advance("1m")
    (said,) = [one for one in caplog.records if one.getMessage() == "something"]
    line = line_of(said)
    assert (line["job_id"], line["attempt"]) == (job, 1)
    assert line["run_id"].startswith(job)
    assert line["task"].endswith("log_something")


def log_something(ctx: Any) -> None:
    """Log a line."""
    ctx.log.info("something")
