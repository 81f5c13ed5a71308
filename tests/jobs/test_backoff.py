"""The wait between attempts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timingwheel.jobs.backoff import backoff_ns
from timingwheel.jobs.model import RetryPolicy

SECOND_NS = 1_000_000_000
MIDDLE = 0.5
"""The draw that leaves the wait as it is."""


def test_the_wait_doubles_from_the_first_to_the_longest() -> None:
    waits_s = [backoff_ns(RetryPolicy(), n, MIDDLE) / SECOND_NS for n in range(1, 13)]
    assert waits_s == [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 600, 600]


def test_the_jitter_is_a_share_of_the_wait_to_both_sides() -> None:
    policy = RetryPolicy(first_ns=1_000, jitter=0.2)
    assert backoff_ns(policy, 1, 0.0) == 800
    assert backoff_ns(policy, 1, 0.75) == 1_100
    assert backoff_ns(policy, 4, 0.0) == 6_400


def test_a_jitter_of_the_whole_wait_may_leave_nothing_of_it() -> None:
    policy = RetryPolicy(first_ns=1_000, jitter=1.0)
    assert backoff_ns(policy, 1, 0.0) == 0
    assert backoff_ns(policy, 1, 0.999) == 1_998


def test_without_jitter_the_draw_does_not_matter() -> None:
    policy = RetryPolicy(jitter=0.0)
    assert {backoff_ns(policy, 3, draw) for draw in (0.0, 0.3, 0.999)} == {
        4 * SECOND_NS
    }


def test_no_wait_stays_no_wait() -> None:
    policy = RetryPolicy(first_ns=0, max_ns=0)
    assert backoff_ns(policy, 1, 0.9) == backoff_ns(policy, 100, 0.1) == 0


def test_a_first_wait_of_nothing_has_nothing_to_double() -> None:
    policy = RetryPolicy(first_ns=0, max_ns=600 * SECOND_NS)
    assert backoff_ns(policy, 1, 0.9) == backoff_ns(policy, 1_000, 0.1) == 0


@pytest.mark.parametrize("attempt", [64, 1_000, 10**9])
def test_many_attempts_cost_no_large_numbers(attempt: int) -> None:
    assert backoff_ns(RetryPolicy(), attempt, MIDDLE) == 600 * SECOND_NS


@given(
    first_ns=st.integers(0, 10**13),
    more_ns=st.integers(0, 10**15),
    jitter=st.floats(0, 1),
    attempt=st.integers(1, 10**6),
    draw=st.floats(0, 1, exclude_max=True),
)
def test_a_wait_is_never_negative_and_never_beyond_the_longest_and_its_jitter(
    first_ns: int, more_ns: int, jitter: float, attempt: int, draw: float
) -> None:
    max_ns = first_ns + more_ns
    policy = RetryPolicy(first_ns=first_ns, max_ns=max_ns, jitter=jitter)
    wait_ns = backoff_ns(policy, attempt, draw)
    assert 0 <= wait_ns <= max_ns * (1 + jitter) + 1
    exact_ns = first_ns if attempt == 1 else backoff_ns(policy, attempt, MIDDLE)
    assert abs(wait_ns - exact_ns) <= exact_ns * jitter + 1
