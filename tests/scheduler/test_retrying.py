"""Retry: what a store is told of it, and which errors are worth another try."""

from __future__ import annotations

import pytest

from timingwheel.errors import ArgumentError
from timingwheel.jobs.model import RetryPolicy
from timingwheel.scheduler.retrying import Retry


def test_the_default_is_five_attempts_from_a_second_to_ten_minutes() -> None:
    assert (
        Retry().policy
        == RetryPolicy()
        == RetryPolicy(attempts=5, first_ns=10**9, max_ns=600 * 10**9, jitter=0.2)
    )


def test_the_policy_is_what_was_asked_for() -> None:
    assert Retry(3, backoff="250ms..1h", jitter=0).policy == RetryPolicy(
        attempts=3, first_ns=250_000_000, max_ns=3_600 * 10**9, jitter=0.0
    )


@pytest.mark.parametrize(
    ("error", "gives_up"),
    [
        (ValueError(), False),
        (LookupError(), True),
        (KeyError(), True),
        (SystemExit(1), False),
        (KeyboardInterrupt(), False),
    ],
)
def test_what_is_given_up_on_is_not_tried_again(
    error: BaseException, gives_up: bool
) -> None:
    assert Retry(give_up_on=LookupError).gives_up(error) is gives_up


@pytest.mark.parametrize(
    ("error", "gives_up"),
    [
        (ConnectionError(), False),
        (TimeoutError(), False),
        (ValueError(), True),
        (SystemExit(1), True),
    ],
)
def test_what_is_not_in_retry_on_is_given_up_on(
    error: BaseException, gives_up: bool
) -> None:
    retry = Retry(retry_on=(ConnectionError, TimeoutError))
    assert retry.gives_up(error) is gives_up


def test_give_up_on_goes_before_retry_on() -> None:
    retry = Retry(retry_on=OSError, give_up_on=FileNotFoundError)
    assert retry.gives_up(FileNotFoundError())
    assert not retry.gives_up(PermissionError())


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"attempts": 0}, "attempts"),
        ({"attempts": True}, "attempts"),
        ({"attempts": 2.0}, "attempts"),
        ({"jitter": -0.1}, "jitter"),
        ({"jitter": 1.1}, "jitter"),
        ({"jitter": float("nan")}, "jitter"),
        ({"jitter": "much"}, "jitter"),
        ({"backoff": "10m..1s"}, "backoff"),
        ({"backoff": "soon"}, "backoff"),
        ({"retry_on": ValueError()}, "retry_on"),
        ({"give_up_on": (ValueError, "KeyError")}, "give_up_on"),
        ({"give_up_on": int}, "give_up_on"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_name(
    arguments: dict[str, object], named: str
) -> None:
    with pytest.raises(ArgumentError) as caught:
        Retry(**arguments)  # type: ignore[arg-type]
    assert caught.value.argument == named


def test_two_that_say_the_same_are_equal() -> None:
    assert Retry(3) == Retry(3)
    assert Retry(3) != Retry(4)
