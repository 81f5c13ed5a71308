"""The hash that stored schedules rest on."""

from __future__ import annotations

from timingwheel.jobs.stable_hash import stable_number


def test_the_number_of_a_text_is_the_same_for_ever() -> None:
    # Part of what stored schedules mean. If this fails, mend the code, not the test.
    assert stable_number("") == 0xE4A6A0577479B2B4
    assert stable_number("minute\0nightly report") == 15_751_050_552_250_277_593
    # A key out of a file name can hold a lone surrogate: that of the byte 0xff.
    assert stable_number("report-\udcff") == 1_570_833_934_774_488_336


def test_numbers_spread_evenly() -> None:
    buckets = [0] * 60
    for n in range(60_000):
        buckets[stable_number(f"job {n}") % 60] += 1
    assert 850 < min(buckets) <= max(buckets) < 1_150  # 1,000 within five deviations
