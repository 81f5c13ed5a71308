"""Times and lengths in words."""

from __future__ import annotations

from zoneinfo import ZoneInfo

import pytest

from timingwheel.jobs.durations import duration_ns
from timingwheel.server.dashboard.words import (
    count_words,
    exact_words,
    length_words,
    relative_words,
    time_words,
)

NS = 1_000_000_000
NOON_NS = 1_767_268_800 * NS  # 2026-01-01 12:00 UTC
UTC, TOKYO = ZoneInfo("UTC"), ZoneInfo("Asia/Tokyo")


def test_a_time_of_today_is_a_clock_and_others_say_their_day() -> None:
    assert time_words(NOON_NS, UTC, now_ns=NOON_NS + 5) == "12:00:00"
    assert time_words(NOON_NS, TOKYO, now_ns=NOON_NS) == "21:00:00"
    in_march = NOON_NS + 60 * 86_400 * NS
    assert time_words(in_march, UTC, now_ns=NOON_NS) == "2 Mar 12:00:00"
    last_year = NOON_NS - 86_400 * NS
    assert time_words(last_year, UTC, now_ns=NOON_NS) == "2025-12-31 12:00:00"
    # Four hours later it is another day in Tokyo.
    assert (
        time_words(NOON_NS, TOKYO, now_ns=NOON_NS + 4 * 3_600 * NS) == "1 Jan 21:00:00"
    )


@pytest.mark.parametrize(
    ("apart_ns", "words"),
    [
        (0, "now"),
        (-NS // 2, "now"),
        (90 * NS, "in 1 m"),
        (-3 * 3_600 * NS, "3 h ago"),
        (400 * 86_400 * NS, "in 400 d"),
    ],
)
def test_how_far_away_an_instant_is(apart_ns: int, words: str) -> None:
    assert relative_words(NOON_NS + apart_ns, now_ns=NOON_NS) == words


@pytest.mark.parametrize(
    ("length_ns", "words"),
    [
        (0, "0 ms"),
        (170_000, "0.17 ms"),
        (5_570_000, "5.57 ms"),
        (999_999_999, "1 s"),
        (1_240_000_000, "1.24 s"),
        (59_990_000_000, "60 s"),
        (200 * NS, "3 m 20 s"),
        (3_600 * NS, "1 h"),
        (90_061 * NS, "1 d 1 h"),
    ],
)
def test_lengths_have_about_three_digits(length_ns: int, words: str) -> None:
    assert length_words(length_ns) == words


@pytest.mark.parametrize("text", ["0s", "250ms", "1h30m", "2d", "1s500ms", "1us1ns"])
def test_an_exact_length_reads_as_it_was_typed(text: str) -> None:
    assert exact_words(duration_ns(text, "text")) == text


def test_counts_agree_with_their_noun() -> None:
    assert count_words(1, "run") == "1 run"
    assert count_words(1_200, "run") == "1,200 runs"
