"""The line that stands for an error, of errors as attempts keep them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from timingwheel.jobs.error_line import error_line
from timingwheel.scheduler.executors.attempt import error_text


def _raise(error: BaseException) -> None:
    raise error


def _raise_from(error: BaseException) -> None:
    try:
        raise KeyError("stock")
    except KeyError as cause:
        raise error from cause


def _raise_noted() -> None:
    error = ValueError("no such price")
    error.add_note("asked for at the till")
    raise error


def _kept(call: Callable[[], None]) -> str:
    """Return the text that is kept of what a call raises."""
    try:
        call()
    except BaseException as error:  # noqa: BLE001 - whatever a handler may raise
        return error_text(error)
    raise AssertionError("nothing was raised")


@pytest.mark.parametrize(
    ("call", "line"),
    [
        (lambda: _raise(ValueError("plain")), "ValueError: plain"),
        (lambda: _raise(ValueError("first\nsecond\n  third")), "ValueError: first"),
        (lambda: _raise(ValueError("\nLINE 1: ...")), "ValueError: LINE 1: ..."),
        (lambda: _raise(ValueError()), "ValueError"),
        (_raise_noted, "ValueError: no such price"),
        (lambda: _raise_from(ValueError("outer\nmore")), "ValueError: outer"),
        (
            lambda: _raise(ExceptionGroup("two", [ValueError(1), TypeError(2)])),
            "ExceptionGroup: two (2 sub-exceptions)",
        ),
        (
            lambda: _raise_from(ExceptionGroup("two", [ValueError(1)])),
            "ExceptionGroup: two (1 sub-exception)",
        ),
        (lambda: compile("x y", "s", "exec"), "SyntaxError: invalid syntax"),
    ],
    ids=[
        *("plain", "lines", "an-empty-line-first", "nothing-said", "noted", "caused"),
        *("group", "caused-group", "syntax"),
    ],
)
def test_the_line_names_the_last_exception_and_how_its_message_begins(
    call: Callable[[], None], line: str
) -> None:
    assert error_line(_kept(call), 100) == line


def test_a_message_longer_than_what_is_kept_still_shows_its_type() -> None:
    line = error_line(_kept(lambda: _raise(ValueError("x" * 100_000))), 40)

    assert line.startswith("ValueError: xxx")
    assert line.endswith("x ...")
    assert len(line) == 40


def test_words_without_a_traceback_stand_for_themselves() -> None:
    assert error_line("no memory for its payload", 100) == "no memory for its payload"
    assert error_line("timed out\n\nTraceback (most recent call last):", 100) == (
        "timed out"
    )
    assert error_line(None, 100) == ""
    broken = f"cannot be made in its process:\n{_kept(lambda: _raise(ValueError('a')))}"
    assert error_line(broken, 100) == "cannot be made in its process: ValueError: a"
    assert error_line(" \n", 100) == ""


def test_a_traceback_without_an_end_is_no_reason_to_fail() -> None:
    assert error_line("Traceback (most recent call last):\n  File", 100) == (
        "Traceback (most recent call last): File"
    )
