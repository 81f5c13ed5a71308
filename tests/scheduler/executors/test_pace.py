"""How much work may wait inside an executor."""

from __future__ import annotations

import pytest

from timingwheel.scheduler.executors.pace import (
    AHEAD_BYTES_MAX,
    AHEAD_MAX,
    SHORT_NS,
    Pace,
)


def test_nothing_waits_before_a_handler_has_proved_short() -> None:
    assert Pace().ahead(8) == 0


@pytest.mark.parametrize("mean_ns", [SHORT_NS, SHORT_NS + 1, 60_000_000_000])
def test_nothing_waits_behind_handlers_of_a_millisecond_and_more(mean_ns: int) -> None:
    pace = Pace()
    pace.note(mean_ns)
    assert pace.ahead(32) == 0


def test_as_much_waits_as_a_few_milliseconds_hold() -> None:
    pace = Pace()
    pace.note(500_000)
    assert pace.ahead(1) == 10
    assert pace.ahead(4) == 40


@pytest.mark.parametrize("duration_ns", [0, 1, 10])
def test_never_more_waits_than_the_limit(duration_ns: int) -> None:
    pace = Pace()
    pace.note(duration_ns)
    assert pace.ahead(32) == AHEAD_MAX


def test_of_large_payloads_no_more_wait_than_fit() -> None:
    pace = Pace()
    for _ in range(100):
        pace.note(1, 1 << 20)
    assert pace.ahead(32) == AHEAD_BYTES_MAX >> 20
    for _ in range(100):
        pace.note(1, 100)
    assert pace.ahead(32) == AHEAD_MAX


def test_one_long_handler_is_enough_and_is_forgotten_after_many_short_ones() -> None:
    pace = Pace()
    for _ in range(1_000):
        pace.note(10_000)
    pace.note(1_000_000_000)
    assert pace.ahead(1) == 0
    for _ in range(100):
        pace.note(10_000)
    assert pace.ahead(1) > 0
