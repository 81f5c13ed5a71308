"""`every`: what makes an interval one of elapsed time or of the calendar."""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from zoneinfo import ZoneInfo

import pytest

from timingwheel.errors import ArgumentError
from timingwheel.jobs.intervals import PERIOD_MIN_NS, every
from timingwheel.jobs.schedule import HORIZON_NS, NS
from timingwheel.jobs.triggers import EveryCalendar, EveryPeriod

HOUR_NS = 3_600 * NS
DAY = date(2026, 3, 2)


@pytest.mark.parametrize(
    ("amounts", "period_ns"),
    [
        ({"hours": 168}, 168 * HOUR_NS),
        ({"days": 7}, 168 * HOUR_NS),
        ({"weeks": 1}, 168 * HOUR_NS),
        ({"hours": 1, "minutes": 30}, HOUR_NS * 3 // 2),
        ({"seconds": 0.25}, NS // 4),
        ({"hours": 1.5}, HOUR_NS * 3 // 2),
        ({"minutes": 0, "seconds": 1}, NS),
        ({"seconds": 0.001}, PERIOD_MIN_NS),
        ({"days": 36_500, "seconds": 1}, 36_500 * 24 * HOUR_NS + NS),
    ],
)
def test_without_a_time_of_day_an_interval_is_elapsed_time(
    amounts: dict[str, float], period_ns: int
) -> None:
    assert every(**amounts) == EveryPeriod(period_ns)  # type: ignore[arg-type]


def test_a_period_can_be_counted_from_an_instant() -> None:
    anchor = datetime(1970, 1, 1, 0, 0, 5, tzinfo=UTC)
    assert every(hours=1, anchor=anchor) == EveryPeriod(HOUR_NS, 5 * NS)


def test_with_a_time_of_day_an_interval_is_one_of_the_calendar() -> None:
    assert every(days=7, at="16:00", tz="Europe/Berlin") == EveryCalendar(
        interval=7, unit="days", at="16:00:00", tz="Europe/Berlin"
    )
    assert every(weeks=2, at=time(9, 30), anchor=DAY) == EveryCalendar(
        interval=2, unit="weeks", at="09:30:00", anchor="2026-03-02"
    )
    assert every(
        months=1,
        at="23:59:59",
        tz=ZoneInfo("Asia/Tokyo"),
        anchor=date(2026, 1, 31),
        short_month="clamp",
        gap="skip",
        overlap="both",
    ) == EveryCalendar(
        interval=1,
        unit="months",
        at="23:59:59",
        tz="Asia/Tokyo",
        anchor="2026-01-31",
        short_month="clamp",
        gap="skip",
        overlap="both",
    )


@pytest.mark.parametrize(
    ("arguments", "argument", "fix"),
    [
        ({}, "every", "pass how often"),
        ({"at": "09:00"}, "every", "pass how often"),
        ({"hours": -1}, "hours", "a number, 0 or more"),
        ({"hours": True}, "hours", "a number, 0 or more"),
        ({"hours": "5m"}, "hours", "a number, 0 or more"),
        ({"hours": float("nan")}, "hours", "a number, 0 or more"),
        ({"hours": float("inf")}, "hours", "2262"),
        ({"hours": 10**5_000, "minutes": 0.5}, "hours", "2262"),
        ({"hours": 0}, "every", "at least 1 ms"),
        ({"seconds": 1e-6}, "every", "at least 1 ms"),
        ({"weeks": 100_000}, "every", "2262"),
        ({"months": 1}, "months", 'add at="HH:MM"'),
        ({"days": 1, "tz": "Europe/Berlin"}, "tz", "it needs at="),
        ({"days": 1, "gap": "skip"}, "gap", "it needs at="),
        ({"days": 1, "overlap": "both"}, "overlap", "it needs at="),
        ({"days": 1, "short_month": "clamp"}, "short_month", "it needs at="),
        ({"days": 1, "anchor": DAY}, "anchor", "pass an aware datetime"),
        (
            {"days": 1, "anchor": datetime(2026, 3, 2)},  # noqa: DTZ001 - naive, so refused
            *("anchor", "naive datetime"),
        ),
        ({"days": 1, "weeks": 1, "at": "09:00"}, "every", "one of months="),
        ({"hours": 24, "at": "09:00"}, "every", "one of months="),
        ({"days": 1.5, "at": "09:00"}, "days", "a whole number"),
        ({"days": 0, "at": "09:00"}, "interval", "pass 1 to"),
        ({"days": 1, "at": "24:00"}, "at", 'pass "HH:MM"'),
        ({"days": 1, "at": "09:00", "tz": "Mars"}, "tz", "IANA"),
        (
            {"days": 1, "at": "09:00", "anchor": datetime(2026, 3, 2, tzinfo=UTC)},
            *("anchor", "pass the date"),
        ),
        ({"days": 1, "at": "09:00", "gap": "later"}, "gap", "pass one of"),
        ({"days": 1, "at": "09:00", "overlap": "none"}, "overlap", "pass one of"),
        (
            {"months": 1, "at": "09:00", "short_month": "roll"},
            *("short_month", "pass one of"),
        ),
    ],
)
def test_what_is_no_interval_is_refused_by_name(
    arguments: dict[str, object], argument: str, fix: str
) -> None:
    with pytest.raises(ArgumentError) as caught:
        every(**arguments)  # type: ignore[arg-type]
    assert caught.value.argument == argument
    assert fix in caught.value.fix
    if argument in arguments:
        passed = arguments[argument]
        forms = [passed, passed.isoformat()] if isinstance(passed, date) else [passed]
        assert caught.value.found in forms


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ({}, None),
        ({"minutes": 0, "seconds": 1e-6}, "minutes=0, seconds=1e-06"),
        ({"weeks": 1, "days": 1, "at": "09:00"}, "weeks, days"),
        ({"hours": 24, "at": "09:00"}, "hours"),
    ],
)
def test_of_an_interval_refused_as_a_whole_all_that_was_given_is_shown(
    arguments: dict[str, object], found: object
) -> None:
    with pytest.raises(ArgumentError) as caught:
        every(**arguments)  # type: ignore[arg-type]
    assert caught.value.argument == "every"
    assert caught.value.found == found


def test_the_longest_period_serves_in_whole_seconds() -> None:
    longest_s = HORIZON_NS // NS
    assert every(seconds=longest_s) == EveryPeriod(longest_s * NS)
    with pytest.raises(ArgumentError, match="2262"):
        every(seconds=longest_s + 1)
