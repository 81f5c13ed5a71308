"""The rate of fires: a bucket by a clock of the test, and the rate that "auto" finds."""

from __future__ import annotations

import pytest

from timingwheel.errors import ArgumentError
from timingwheel.stores.fire_rate import (
    BITE_S,
    P99_MAX_NS,
    PERIOD_NS,
    RATE_CUT,
    RATE_MAX,
    RATE_MIN,
    RATE_STEP,
    FireRate,
    FiresPerSecond,
    checked_rate,
)
from timingwheel.testing import ManualClock

QUICK_NS = P99_MAX_NS // 10
SLOW_NS = P99_MAX_NS * 2
LIMIT = 4_096


class Herd:
    """So much is due that the rate alone bounds what becomes ready."""

    def __init__(self, rate: FiresPerSecond = "auto", *, share: float = 1.0) -> None:
        self.clock = ManualClock()
        self.rate = FireRate(rate, self.clock)
        self.share = share

    def fire(self) -> int:
        """Make ready what the rate allows, in as many turns as that takes."""
        fired = 0
        while allowed := self.rate.take(LIMIT, self.share):
            self.rate.used(allowed, is_held_up=allowed < LIMIT)
            fired += allowed
        self.rate.used(0, is_held_up=True)
        return fired

    def period(self, took_ns: int | None) -> float:
        """Let a period pass in small bites; return the rate of the next."""
        for _ in range(10):
            self.clock.advance(PERIOD_NS / 10 / 1e9)
            if took_ns is not None:
                self.rate.note(took_ns)
            self.fire()
        assert self.rate.rate is not None
        return self.rate.rate


@pytest.mark.parametrize("share", [1.0, 0.25])
def test_a_fixed_rate_is_kept_over_any_time_that_is_longer_than_the_bucket(
    share: float,
) -> None:
    herd = Herd(2_000, share=share)
    assert herd.fire() == 2_000 * share  # what was saved up
    fired = 0
    for _ in range(300):
        herd.clock.advance(0.01)
        fired += herd.fire()
    assert fired == pytest.approx(3 * 2_000 * share, abs=1)


def test_without_a_rate_nothing_is_bounded_and_nothing_is_counted() -> None:
    herd = Herd(None)
    assert herd.rate.take(10**9, 1.0) == 10**9
    herd.rate.used(10**9, is_held_up=False)
    assert herd.rate.take(10**9, 1.0) == 10**9
    assert herd.rate.rest_ns == 0


def test_more_than_was_allowed_is_a_debt() -> None:
    herd = Herd(1_000)
    assert herd.rate.take(LIMIT, 1.0) == 1_000
    herd.rate.used(2_000, is_held_up=True)
    herd.clock.advance(0.9)
    assert herd.rate.take(LIMIT, 1.0) == 0
    herd.clock.advance(0.2)
    assert herd.rate.take(LIMIT, 1.0) == 100


def test_who_is_held_up_rests_until_there_are_tokens_for_a_bite() -> None:
    herd = Herd(1_000)
    herd.fire()
    assert herd.rate.is_held_up
    assert herd.rate.rest_ns == pytest.approx(BITE_S * 1e9)
    herd.clock.advance(herd.rate.rest_ns / 1e9)
    assert herd.rate.rest_ns == 0
    assert herd.fire() == pytest.approx(BITE_S * 1_000, abs=1)


@pytest.mark.parametrize("took_ns", [QUICK_NS, SLOW_NS, None])
def test_what_comes_at_less_than_five_thousand_a_second_is_never_held_up(
    took_ns: int | None,
) -> None:
    herd = Herd()
    for _ in range(20):  # once a second, all at once
        herd.clock.advance(1)
        wanted = int(RATE_MIN)
        while wanted:
            if took_ns is not None:
                herd.rate.note(took_ns)
            allowed = herd.rate.take(LIMIT, 1.0)
            assert allowed >= min(wanted, LIMIT) or allowed == wanted
            count = min(wanted, allowed)
            herd.rate.used(count, is_held_up=False)
            wanted -= count


def test_while_requests_are_quick_the_rate_doubles_for_who_is_held_up() -> None:
    herd = Herd()
    herd.fire()
    assert [herd.period(QUICK_NS) for _ in range(3)] == [
        RATE_MIN * 2,
        RATE_MIN * 4,
        RATE_MIN * 8,
    ]
    for _ in range(5):
        herd.period(QUICK_NS)
    assert herd.rate.rate == RATE_MAX


def test_slow_requests_cut_the_rate_and_from_then_on_it_grows_by_steps() -> None:
    herd = Herd()
    herd.fire()
    for _ in range(3):
        high = herd.period(QUICK_NS)
    cut = herd.period(SLOW_NS)
    assert cut == high * RATE_CUT
    assert herd.period(QUICK_NS) == cut + RATE_STEP
    assert herd.period(QUICK_NS) == cut + 2 * RATE_STEP


def test_the_rate_never_falls_below_what_is_always_allowed() -> None:
    herd = Herd()
    herd.fire()
    herd.period(QUICK_NS)
    for _ in range(10):
        herd.period(SLOW_NS)
    assert herd.rate.rate == RATE_MIN


@pytest.mark.parametrize(
    ("slow", "of", "is_cut"),
    [(1, 5, False), (2, 5, True), (3, 300, False), (4, 300, True)],
)
def test_the_rate_is_cut_if_more_than_one_in_a_hundred_is_slow_and_more_than_one(
    slow: int, of: int, is_cut: bool
) -> None:
    herd = Herd()
    herd.fire()
    for n in range(of):
        herd.rate.note(SLOW_NS if n < slow else QUICK_NS)
    herd.clock.advance(PERIOD_NS / 1e9)
    herd.fire()
    assert (herd.rate.rate == RATE_MIN) is is_cut


def test_a_database_that_is_slow_for_other_reasons_does_not_lower_the_rate() -> None:
    herd = Herd()
    herd.fire()
    high = herd.period(QUICK_NS)
    for _ in range(4):  # little is fired
        for _ in range(5):
            herd.rate.note(SLOW_NS)
        herd.clock.advance(PERIOD_NS / 1e9)
        herd.rate.take(LIMIT, 1.0)
        herd.rate.used(10, is_held_up=False)
    # The first of these periods still has what the herd fired.
    assert herd.rate.rate in (high, high * RATE_CUT)


def test_who_is_not_held_up_gets_no_higher_rate_and_neither_who_measures_nothing() -> (
    None
):
    herd = Herd()
    for _ in range(4):
        herd.rate.note(QUICK_NS)
        herd.clock.advance(PERIOD_NS / 1e9)
        herd.rate.take(LIMIT, 1.0)
        herd.rate.used(100, is_held_up=False)
    assert herd.rate.rate == RATE_MIN
    held_up = Herd()
    assert held_up.period(None) == RATE_MIN


def test_a_share_of_the_shards_is_that_share_of_the_rate() -> None:
    nodes = [Herd(10_000, share=share) for share in (0.5, 0.3, 0.2)]
    for node in nodes:
        node.fire()
    fired = 0
    for node in nodes:
        for _ in range(100):
            node.clock.advance(0.01)
            fired += node.fire()
    assert fired == pytest.approx(10_000, abs=3)


@pytest.mark.parametrize("rate", [0, -1, True, "fast", float("nan")])
def test_what_is_no_rate_is_refused(rate: object) -> None:
    with pytest.raises(ArgumentError, match="fires_per_second"):
        checked_rate(rate)  # type: ignore[arg-type]


@pytest.mark.parametrize("rate", [None, "auto", 5, 0.5])
def test_a_rate_is_taken_as_it_is(rate: FiresPerSecond) -> None:
    assert checked_rate(rate) == rate
