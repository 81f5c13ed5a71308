"""Lengths of time: what each form means, and what is refused with which words."""

from __future__ import annotations

from datetime import timedelta
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timingwheel.errors import ArgumentError
from timingwheel.jobs.durations import backoff_range, duration_ns
from timingwheel.jobs.schedule import HORIZON_NS, NS

MINUTE_NS = 60 * NS
UNITS = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": NS, "m": MINUTE_NS}


@pytest.mark.parametrize(
    ("value", "expected_ns"),
    [
        (0, 0),
        (30, 30 * NS),
        (0.2, 200_000_000),
        (0.07, 70_000_000),
        (timedelta(minutes=5, microseconds=1), 5 * MINUTE_NS + 1_000),
        (timedelta(days=2), 48 * 60 * MINUTE_NS),
        (f"{'0' * 97}10s", 10 * NS),  # a hundred characters
        ("0.2s", 200_000_000),
        ("250ms", 250_000_000),
        ("10m", 10 * MINUTE_NS),
        ("1h30m", 90 * MINUTE_NS),
        (" 1h 30m ", 90 * MINUTE_NS),
        ("7d", 7 * 24 * 60 * MINUTE_NS),
        ("2w", 14 * 24 * 60 * MINUTE_NS),
        ("1us1ns", 1_001),
        ("0s", 0),
    ],
)
def test_a_duration_means_what_it_says(value: object, expected_ns: int) -> None:
    assert duration_ns(value, "delay") == expected_ns  # type: ignore[arg-type]


@given(
    number=st.decimals(0, 1_000, places=3),
    unit=st.sampled_from(sorted(UNITS)),
)
def test_a_text_is_exact_or_refused(number: object, unit: str) -> None:
    exact = Fraction(str(number)) * UNITS[unit]
    text = f"{number}{unit}"
    if exact.denominator == 1:
        assert duration_ns(text, "delay") == exact
    else:
        with pytest.raises(ArgumentError, match="finer than a nanosecond"):
            duration_ns(text, "delay")


@pytest.mark.parametrize(
    ("value", "fix"),
    [
        (-1, "pass 0 or more"),
        (-0.5, "pass 0 or more"),
        (timedelta(seconds=-1), "pass 0 or more"),
        ("-5s", "pass 0 or more"),
        (float("nan"), "pass seconds, a timedelta"),
        (float("inf"), "pass a shorter duration"),
        (10**10, "pass a shorter duration"),
        ("300000d", "pass a shorter duration"),
        (True, "pass seconds, a timedelta"),
        (None, "pass seconds, a timedelta"),
        (b"5s", "pass seconds, a timedelta"),
        ("", "pass seconds, a timedelta"),
        ("soon", "pass seconds, a timedelta"),
        ("s", "pass seconds, a timedelta"),
        ("1e3s", '"e" is no unit'),
        ("5", 'such as "5s"'),
        ("1h30", 'such as "30s"'),
        ("3y", '"y" is no unit of time; units are ns, us, ms, s, m, h, d, w'),
        ("1M", '"M" is no unit'),
        ("1" * 101 + "s", "pass seconds, a timedelta"),
        ("1h0." + "0" * 40 + "1s", "nothing is finer than a nanosecond"),
        ("1.0" + "0" * 40 + "1s", "nothing is finer than a nanosecond"),
    ],
)
def test_what_is_no_duration_is_refused_with_the_argument_and_the_fix(
    value: object, fix: str
) -> None:
    with pytest.raises(ArgumentError) as caught:
        duration_ns(value, "patience")  # type: ignore[arg-type]
    assert caught.value.argument == "patience"
    assert caught.value.found is value
    assert fix in caught.value.fix


def test_a_text_of_any_length_is_refused_before_it_is_read() -> None:
    for text in ("1" * 2_000_000 + "s", "1s" * 1_000_000):
        with pytest.raises(ArgumentError, match="pass seconds, a timedelta"):
            duration_ns(text, "patience")


def test_nothing_at_all_is_refused_where_it_makes_no_sense() -> None:
    assert duration_ns(0, "period") == 0
    for nothing in (0, 0.0, "0s", timedelta(0), 1e-12):
        with pytest.raises(ArgumentError, match="at least one nanosecond") as caught:
            duration_ns(nothing, "period", zero=False)
        assert (caught.value.argument, caught.value.found) == ("period", nothing)


def test_the_longest_duration_is_that_of_all_time() -> None:
    assert duration_ns(f"{HORIZON_NS}ns", "delay") == HORIZON_NS
    with pytest.raises(ArgumentError, match="2262"):
        duration_ns(f"{HORIZON_NS + 1}ns", "delay")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1s..10m", (NS, 10 * MINUTE_NS)),
        ("500ms .. 1h", (NS // 2, 60 * MINUTE_NS)),
        ("30s", (30 * NS, 30 * NS)),
        ("0s..0s", (0, 0)),
    ],
)
def test_a_backoff_is_the_first_wait_and_the_longest(
    text: str, expected: tuple[int, int]
) -> None:
    assert backoff_range(text) == expected


@pytest.mark.parametrize(
    ("text", "found", "fix"),
    [
        ("10m..1s", "10m..1s", "pass the first wait before the longest"),
        ("1s..", "", "pass seconds, a timedelta"),
        ("..1s", "", "pass seconds, a timedelta"),
        ("1s...2s", ".2s", "pass seconds, a timedelta"),
        ("", "", "pass seconds, a timedelta"),
        (5, 5, "pass the first wait and the longest"),
        (None, None, "pass the first wait and the longest"),
    ],
)
def test_what_is_no_backoff_is_refused(text: object, found: object, fix: str) -> None:
    with pytest.raises(ArgumentError, match=fix) as caught:
        backoff_range(text, "patience")  # type: ignore[arg-type]
    assert (caught.value.argument, caught.value.found) == ("patience", found)
    with pytest.raises(ArgumentError, match="backoff is"):
        backoff_range(text)  # type: ignore[arg-type]
