"""The errors: what a caller can catch, and what they say."""

from __future__ import annotations

import pickle

import pytest

from timingwheel import errors
from timingwheel.errors import (
    ArgumentError,
    BatchTooLargeError,
    DeadlineError,
    PayloadTooLargeError,
    TimingWheelError,
)


def test_every_error_has_the_one_base() -> None:
    assert all(
        issubclass(getattr(errors, name), TimingWheelError) for name in errors.__all__
    )


def test_a_refused_value_is_named_with_what_was_found_and_what_to_do() -> None:
    error = ArgumentError("delay", -1.0, "pass 0 or more seconds")
    assert str(error) == "delay is -1.0: pass 0 or more seconds"
    assert (error.argument, error.found, error.fix) == (
        "delay",
        -1.0,
        "pass 0 or more seconds",
    )


def test_a_message_stays_short_however_large_the_value() -> None:
    error = PayloadTooLargeError("payload", b"x" * 2**21, "pass at most 1 MiB")
    assert len(str(error)) < 100


def test_an_int_of_more_digits_than_python_writes_is_told_by_its_bits() -> None:
    error = ArgumentError("delay", 1 << 49_999, "pass fewer seconds")
    assert str(error) == "delay is <an int of 50,000 bits>: pass fewer seconds"


@pytest.mark.parametrize("kind", [ArgumentError, PayloadTooLargeError, DeadlineError])
def test_a_refused_value_survives_pickling(kind: type[ArgumentError]) -> None:
    error = kind("ids", 7, "pass fewer")
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is kind
    assert (str(copy), copy.found) == ("ids is 7: pass fewer", 7)


def test_pythons_own_words_catch_them_too() -> None:
    assert issubclass(BatchTooLargeError, ValueError)
    assert issubclass(DeadlineError, OverflowError)
    assert not issubclass(DeadlineError, ValueError)
