"""The days of a recurrence rule, year by year."""

from __future__ import annotations

from datetime import date, datetime, timedelta

import pytest

from timingwheel.jobs.rrule_days import RuleDays
from timingwheel.jobs.rrule_fields import read_rule

MONDAY = datetime(2026, 3, 2, 9)  # noqa: DTZ001 - a wall time


def days_of(rule: str, year: int, start: datetime = MONDAY) -> list[str]:
    bits = RuleDays(read_rule(rule, start), start).of_year(year)
    new_year = date(year, 1, 1)
    days = [new_year + timedelta(days=n) for n in range(366) if bits >> n & 1]
    assert bits.bit_count() == len(days)
    return [f"{day:%m-%d}" for day in days]


@pytest.mark.parametrize(
    ("rule", "year", "expected"),
    [
        # What the rule does not say is taken from its start.
        ("FREQ=YEARLY", 2027, ["03-02"]),
        ("FREQ=YEARLY;INTERVAL=3", 2028, []),
        ("FREQ=YEARLY;INTERVAL=3", 2029, ["03-02"]),
        ("FREQ=YEARLY;INTERVAL=3", 2026, ["03-02"]),
        ("FREQ=YEARLY;BYMONTH=5,7", 2027, ["05-02", "07-02"]),
        ("FREQ=YEARLY;BYMONTHDAY=31;BYMONTH=1,2,3", 2027, ["01-31", "03-31"]),
        ("FREQ=YEARLY;BYYEARDAY=1,-1", 2028, ["01-01", "12-31"]),
        ("FREQ=YEARLY;BYDAY=1MO,-1SU", 2027, ["01-04", "12-26"]),
        ("FREQ=YEARLY;BYMONTH=11;BYDAY=4TH", 2026, ["11-26"]),
        ("FREQ=YEARLY;BYMONTH=3;BYDAY=MO;BYSETPOS=-1", 2026, ["03-30"]),
        ("FREQ=YEARLY;BYWEEKNO=20;BYDAY=MO", 2026, ["05-11"]),
        ("FREQ=MONTHLY;BYMONTH=2,4", 2027, ["02-02", "04-02"]),
        ("FREQ=MONTHLY;INTERVAL=4", 2027, ["03-02", "07-02", "11-02"]),
        ("FREQ=MONTHLY;BYMONTHDAY=1;BYMONTH=1,2", 2027, ["01-01", "02-01"]),
        ("FREQ=MONTHLY;INTERVAL=5", 2026, ["03-02", "08-02"]),
        ("FREQ=MONTHLY;INTERVAL=5", 2027, ["01-02", "06-02", "11-02"]),
        ("FREQ=MONTHLY;INTERVAL=6;BYDAY=2FR", 2026, ["03-13", "09-11"]),
        ("FREQ=MONTHLY;INTERVAL=6;BYDAY=MO;BYSETPOS=-1", 2027, ["03-29", "09-27"]),
        ("FREQ=WEEKLY;BYMONTH=6", 2026, ["06-01", "06-08", "06-15", "06-22", "06-29"]),
        ("FREQ=WEEKLY;INTERVAL=2;BYMONTH=6", 2026, ["06-08", "06-22"]),
        ("FREQ=WEEKLY;INTERVAL=2;BYMONTH=1", 2027, ["01-04", "01-18"]),
        ("FREQ=DAILY;BYMONTH=2;BYMONTHDAY=28,29", 2028, ["02-28", "02-29"]),
        ("FREQ=DAILY;INTERVAL=10;BYMONTH=3", 2026, ["03-02", "03-12", "03-22"]),
        ("FREQ=DAILY;INTERVAL=10;BYMONTH=1", 2027, ["01-06", "01-16", "01-26"]),
        (
            "FREQ=HOURLY;INTERVAL=6;BYMONTH=1;BYDAY=FR",
            2026,
            ["01-02", "01-09", "01-16", "01-23", "01-30"],
        ),
    ],
)
def test_a_rule_has_these_days_of_a_year(
    rule: str, year: int, expected: list[str]
) -> None:
    assert days_of(rule, year) == expected


def test_a_week_begins_with_the_weekday_that_the_rule_names() -> None:
    """The example of RFC 5545: from Tuesday on, every second week."""
    tuesday = datetime(1997, 8, 5, 9)  # noqa: DTZ001 - a wall time
    rule = "FREQ=WEEKLY;INTERVAL=2;BYDAY=TU,SU;BYMONTH=8"
    assert days_of(f"{rule};WKST=MO", 1997, tuesday) == [
        *("08-05", "08-10", "08-19", "08-24"),
    ]
    assert days_of(f"{rule};WKST=SU", 1997, tuesday) == [
        *("08-03", "08-05", "08-17", "08-19", "08-31"),
    ]


@pytest.mark.parametrize("year", [2027, 2028])
def test_a_rule_without_days_has_each_of_them(year: int) -> None:
    for rule in ("FREQ=DAILY", "FREQ=MINUTELY;INTERVAL=5"):
        found = days_of(rule, year)
        assert len(found) == (date(year + 1, 1, 1) - date(year, 1, 1)).days
        assert (found[0], found[-1]) == ("01-01", "12-31")


def test_a_year_is_expanded_once() -> None:
    asked: list[str] = []

    class Counted(RuleDays):
        def _expanded(self, year: int) -> int:
            asked.append(str(year))
            return super()._expanded(year)

    days = Counted(read_rule("FREQ=DAILY", MONDAY), MONDAY)
    first = days.of_year(2026)
    assert days.of_year(2026) == first
    assert days.of_year(2027) == first
    assert asked == ["2026", "2027"]
