"""What a schedule loses in the gaps of a clock, gap by gap."""

from __future__ import annotations

from datetime import datetime

import pytest

from timingwheel.jobs.clock_gaps import skipped_by_clock
from timingwheel.jobs.cron import Cron
from timingwheel.jobs.model import SkipReason
from timingwheel.jobs.planning import PlannedSkip
from timingwheel.jobs.schedule import HORIZON_NS, instant_ns

BERLIN = "Europe/Berlin"


def ns(text: str) -> int:
    return instant_ns(datetime.fromisoformat(text), "text")


CHANGE_NS = ns("2026-03-29T01:00Z")  # the clock goes from 02:00 to 03:00


def lost(expression: str, start_ns: int, end_ns: int) -> list[PlannedSkip]:
    return list(skipped_by_clock(Cron(expression), BERLIN, start_ns, end_ns))


def test_each_gap_is_told_by_itself_with_its_first_and_last_time() -> None:
    found = lost("*/20 2 * * *", ns("2026-01-01T00:00Z"), ns("2028-01-01T00:00Z"))
    assert found == [
        PlannedSkip(SkipReason.DST, CHANGE_NS, ns("2026-03-29T01:40Z"), 3),
        PlannedSkip(
            SkipReason.DST, ns("2027-03-28T01:00Z"), ns("2027-03-28T01:40Z"), 3
        ),
    ]


def test_a_gap_belongs_to_the_instant_of_its_change_to_the_nanosecond() -> None:
    assert len(lost("30 2 * * *", CHANGE_NS, CHANGE_NS + 1)) == 1
    assert lost("30 2 * * *", CHANGE_NS - 10**9, CHANGE_NS) == []
    assert lost("30 2 * * *", CHANGE_NS + 1, CHANGE_NS + 10**9) == []


@pytest.mark.parametrize(
    ("expression", "count"),
    [
        ("59 59 1 * * *", 0),  # the last second before the gap
        ("0 0 2 * * *", 1),  # the first that the clock skips
        ("59 59 2 * * *", 1),  # the last one
        ("0 0 3 * * *", 0),  # the gap's end, which it shows
        ("* * 2 * * *", 3_600),
    ],
)
def test_what_the_clock_skips_is_from_the_first_second_of_the_gap_to_its_last(
    expression: str, count: int
) -> None:
    found = lost(expression, CHANGE_NS, CHANGE_NS + 1)
    assert [skip.count for skip in found] == [count] * (count > 0)


def test_all_of_time_can_be_asked_for() -> None:
    """The clock of Berlin has skipped an hour each spring since 1980."""
    found = lost("30 2 * * *", -(1 << 70), 1 << 70)
    assert len(found) == 2262 - 1980 + 1
    assert found[0].first_ns == ns("1980-04-06T01:30Z")
    assert found[-1].last_ns < HORIZON_NS
