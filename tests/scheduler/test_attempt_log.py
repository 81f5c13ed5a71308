"""ctx.log: two ways out, both bounded."""

from __future__ import annotations

import logging

import pytest

from timingwheel.scheduler.attempt_log import (
    LINE_CHARS_MAX,
    TAIL_LINES_MAX,
    AttemptLog,
    LogTail,
    clean,
)
from timingwheel.testing import ManualClock

IDS: dict[str, object] = {"run_id": "job@1", "token": 7}


@pytest.fixture
def tail() -> LogTail:
    return LogTail(ManualClock(wall_ns=1_700_000_000_123_456_789).wall_ns)


@pytest.fixture
def log(tail: LogTail) -> AttemptLog:
    return AttemptLog(logging.getLogger("test.task"), ids=IDS, sink=tail.add)


def test_a_line_has_its_time_its_level_and_its_text(
    log: AttemptLog, tail: LogTail
) -> None:
    log.info("%s of %d", "one", 3)
    assert tail.read() == "2023-11-14T22:13:20.123Z INFO one of 3"


def test_a_line_is_kept_whatever_the_programs_levels_are(
    log: AttemptLog, tail: LogTail, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR, "test.task")
    log.debug("kept")
    log.error("both")
    assert [line.rpartition("Z ")[2] for line in tail.read().splitlines()] == [
        "DEBUG kept",
        "ERROR both",
    ]
    assert [record.getMessage() for record in caplog.records] == ["both"]


def test_a_record_has_the_ids_the_callers_extra_and_the_callers_line(
    log: AttemptLog, caplog: pytest.LogCaptureFixture
) -> None:
    log.warning("look", extra={"mine": 1})
    (record,) = caplog.records
    assert vars(record).items() >= {"run_id": "job@1", "token": 7, "mine": 1}.items()
    assert record.filename == "test_attempt_log.py"
    assert (
        record.funcName
        == test_a_record_has_the_ids_the_callers_extra_and_the_callers_line.__name__
    )


def test_an_exception_is_kept_with_its_traceback(
    log: AttemptLog, tail: LogTail
) -> None:
    try:
        raise ValueError("inside")
    except ValueError as error:
        log.exception("failed")
        log.warning("again", exc_info=error)
    assert tail.read().count("ValueError: inside") == 2
    assert "ERROR failed\nTraceback" in tail.read()


def test_the_oldest_lines_go_first(log: AttemptLog, tail: LogTail) -> None:
    for number in range(TAIL_LINES_MAX + 5):
        log.info("%d", number)
    lines = tail.read().splitlines()
    assert len(lines) == TAIL_LINES_MAX
    assert lines[0].endswith(" 5")


def test_a_long_line_keeps_its_two_ends(log: AttemptLog, tail: LogTail) -> None:
    log.info("begin %s end", "x" * 1_000_000)
    assert len(tail.read()) < LINE_CHARS_MAX + 200
    assert "begin x" in tail.read()
    assert tail.read().endswith("x end")


class Unshowable:
    def __str__(self) -> str:
        raise RuntimeError("no words")

    __repr__ = __str__


def test_a_line_that_cannot_be_formatted_does_not_raise_in_the_handler(
    tail: LogTail,
) -> None:
    log = AttemptLog(None, ids=IDS, sink=tail.add)
    log.info("%d", "not a number")
    log.info("%s", Unshowable())
    log.info(Unshowable())
    assert tail.read().count("cannot be formatted") == 3


def test_text_that_has_no_bytes_is_made_to_have_some() -> None:
    assert clean("a\ud800b") == "a\\ud800b"
    assert clean("plain") == "plain"
