"""The text of a recurrence rule, taken apart: each field, its bounds and its refusal."""

from __future__ import annotations

from array import array
from datetime import datetime

import pytest

from timingwheel.errors import ArgumentError
from timingwheel.jobs.rrule_fields import (
    NUMBER_MAX,
    RULE_CHARS_MAX,
    RuleFields,
    Until,
    read_rule,
)

START = datetime(2026, 3, 2, 9, 30, 15)  # noqa: DTZ001 - a wall time


def seconds(*texts: str) -> array[int]:
    parts = [[int(part) for part in text.split(":")] for text in texts]
    return array("l", [h * 3_600 + m * 60 + s for h, m, s in parts])


def fields(text: str, **facts: object) -> RuleFields:
    """What a rule without any of the facts says of itself."""
    plain: dict[str, object] = {
        "text": text,
        "frequency": "DAILY",
        "interval": 1,
        "day_fields": {},
        "week_start": 0,
        "positions": "",
        "times": seconds("9:30:15"),
        "count": None,
        "until": None,
    }
    return RuleFields(**(plain | facts))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        ("FREQ=DAILY", {}),
        ("FREQ=DAILY;", {}),
        ("FREQ=YEARLY", {"frequency": "YEARLY"}),
        ("FREQ=DAILY;INTERVAL=1000000", {"interval": NUMBER_MAX}),
        ("FREQ=DAILY;COUNT=1", {"count": 1}),
        ("FREQ=DAILY;COUNT=1000000", {"count": NUMBER_MAX}),
        ("FREQ=WEEKLY;WKST=SU", {"frequency": "WEEKLY", "week_start": 6}),
        ("FREQ=DAILY;BYHOUR=23,0,23", {"times": seconds("0:30:15", "23:30:15")}),
        (
            "FREQ=DAILY;BYMINUTE=59,0;BYSECOND=59,0",
            {"times": seconds("9:0:0", "9:0:59", "9:59:0", "9:59:59")},
        ),
        (
            "FREQ=MONTHLY;BYMONTH=1,12;BYMONTHDAY=31,-31;BYDAY=1MO,5MO,-5TU,WE",
            {
                "frequency": "MONTHLY",
                "day_fields": {
                    "BYMONTH": "1,12",
                    "BYMONTHDAY": "31,-31",
                    "BYDAY": "1MO,5MO,-5TU,WE",
                },
            },
        ),
        (
            "FREQ=YEARLY;BYYEARDAY=1,+366,-366;BYWEEKNO=53,-53;BYDAY=53MO;BYSETPOS=366",
            {
                "frequency": "YEARLY",
                "day_fields": {
                    "BYYEARDAY": "1,+366,-366",
                    "BYWEEKNO": "53,-53",
                    "BYDAY": "53MO",
                },
                "positions": "366",
            },
        ),
        (
            "FREQ=MONTHLY;BYDAY=MO;BYSETPOS=-366,1",
            {
                "frequency": "MONTHLY",
                "day_fields": {"BYDAY": "MO"},
                "positions": "-366,1",
            },
        ),
        (
            "FREQ=DAILY;UNTIL=20261231",
            {"until": Until(datetime(2026, 12, 31, 23, 59, 59), is_utc=False)},  # noqa: DTZ001
        ),
        (
            "FREQ=DAILY;UNTIL=20261231T080910",
            {"until": Until(datetime(2026, 12, 31, 8, 9, 10), is_utc=False)},  # noqa: DTZ001
        ),
        (
            "FREQ=DAILY;UNTIL=20261231T080910Z",
            {"until": Until(datetime(2026, 12, 31, 8, 9, 10), is_utc=True)},  # noqa: DTZ001
        ),
        (
            "FREQ=HOURLY;INTERVAL=6",
            {
                "frequency": "HOURLY",
                "interval": 6,
                "times": seconds("3:30:15", "9:30:15", "15:30:15", "21:30:15"),
            },
        ),
        (
            "FREQ=HOURLY;INTERVAL=24;BYMINUTE=5",
            {"frequency": "HOURLY", "interval": 24, "times": seconds("9:5:15")},
        ),
        (
            "FREQ=MINUTELY;INTERVAL=20;BYHOUR=8",
            {
                "frequency": "MINUTELY",
                "interval": 20,
                "times": seconds("8:10:15", "8:30:15", "8:50:15"),
            },
        ),
        (
            "FREQ=SECONDLY;INTERVAL=25;BYHOUR=9;BYMINUTE=30",
            {
                "frequency": "SECONDLY",
                "interval": 25,
                "times": seconds("9:30:15", "9:30:40"),
            },
        ),
    ],
)
def test_a_rule_says_this_of_itself(text: str, facts: dict[str, object]) -> None:
    found = read_rule(text, START)
    assert found == fields(text, **facts)
    assert found.is_within_days == (text[5:9] in ("HOUR", "MINU", "SECO"))


@pytest.mark.parametrize(
    "text", ["RRULE:FREQ=DAILY", " FREQ=DAILY\t", "rrule:freq=daily"]
)
def test_case_blanks_and_the_name_of_the_property_say_nothing(text: str) -> None:
    found = read_rule(text, START)
    assert (found.frequency, found.interval) == ("DAILY", 1)
    assert read_rule(found.text, START) == found
    assert "RRULE" not in found.text


def test_every_hour_minute_and_second_counts_where_nothing_is_said_of_it() -> None:
    assert len(read_rule("FREQ=HOURLY", START).times) == 24
    assert len(read_rule("FREQ=MINUTELY", START).times) == 24 * 60
    assert len(read_rule("FREQ=SECONDLY", START).times) == 86_400


def test_a_rule_has_a_bounded_length() -> None:
    longest = "FREQ=DAILY".ljust(RULE_CHARS_MAX)
    assert read_rule(longest, START).text == "FREQ=DAILY"
    with pytest.raises(ArgumentError, match="at most 1,000 characters") as caught:
        read_rule(longest + " ", START)
    assert caught.value.found == longest + " "


FREQUENCY_FIX = (
    "write FREQ= one of YEARLY, MONTHLY, WEEKLY, DAILY, HOURLY, MINUTELY, SECONDLY"
)


@pytest.mark.parametrize(
    ("text", "fix"),
    [
        ("BYHOUR=9", FREQUENCY_FIX),
        ("FREQ=FORTNIGHTLY", FREQUENCY_FIX),
        ("FREQ=DAILY;BYEASTER=0", '"BYEASTER=0" is no part of a rule; write NAME='),
        (
            "FREQ=MONTHLY;BYDAY=MO;BYHOUR=1,2;BYSETPOS=1",
            "BYSETPOS is served with FREQ=MONTHLY or YEARLY and one time a day;",
        ),
        (
            "FREQ=DAILY;INTERVAL=1000001",
            "write INTERVAL as a number from 1 to 1,000,000",
        ),
        ("FREQ=DAILY;INTERVAL=1,2", "write INTERVAL as a number from 1 to 1,000,000"),
        ("FREQ=DAILY;COUNT=0", "write COUNT as a number from 1 to 1,000,000"),
        ("FREQ=DAILY;BYMONTH=0", "write BYMONTH as numbers from 1 to 12"),
        ("FREQ=DAILY;BYMONTH=+1", "write BYMONTH as numbers from 1 to 12"),
        ("FREQ=DAILY;BYMONTH=13", "write BYMONTH as numbers from 1 to 12"),
        (
            "FREQ=DAILY;BYMONTHDAY=-32",
            "write BYMONTHDAY as numbers from 1 to 31, or below",
        ),
        (
            "FREQ=DAILY;BYMONTHDAY=1,X",
            "write BYMONTHDAY as numbers from 1 to 31, or below",
        ),
        (
            "FREQ=YEARLY;BYYEARDAY=367",
            "write BYYEARDAY as numbers from 1 to 366, or below",
        ),
        ("FREQ=YEARLY;BYWEEKNO=54", "write BYWEEKNO as numbers from 1 to 53, or below"),
        (
            "FREQ=MONTHLY;BYDAY=MO;BYSETPOS=367",
            "write BYSETPOS as numbers from 1 to 366, or below",
        ),
        ("FREQ=DAILY;BYDAY=MOX", "write BYDAY as MO, TU, WE, TH, FR, SA, SU; the"),
        (
            "FREQ=YEARLY;BYMONTH=1;BYDAY=6MO",
            "a number before a weekday of a month is 1 to 5,",
        ),
        ("FREQ=MONTHLY;BYDAY=6MO", "a number before a weekday of a month is 1 to 5,"),
        ("FREQ=MONTHLY;BYDAY=-6MO", "a number before a weekday of a month is 1 to 5,"),
        (
            "FREQ=YEARLY;BYDAY=MO,54MO",
            "a number before a weekday of a year is 1 to 53, or below 0",
        ),
        ("FREQ=DAILY;BYDAY=MO,1TU", "a number before a weekday needs FREQ=MONTHLY"),
        ("FREQ=DAILY;BYDAY=MON", "write BYDAY as MO, TU, WE, TH, FR, SA, SU; the"),
        ("FREQ=DAILY;BYHOUR=1,24", "write BYHOUR as numbers from 0 to 23"),
        ("FREQ=DAILY;BYHOUR=-1", "write BYHOUR as numbers from 0 to 23"),
        ("FREQ=DAILY;BYMINUTE=60", "write BYMINUTE as numbers from 0 to 59"),
        ("FREQ=DAILY;BYSECOND=60", "write BYSECOND as numbers from 0 to 59"),
        ("FREQ=DAILY;WKST=MON", "write WKST= one of MO, TU, WE, TH, FR, SA, SU"),
        ("FREQ=DAILY;COUNT=1;UNTIL=20270101", "write COUNT or UNTIL, not both"),
        (
            "FREQ=DAILY;UNTIL=20261231T080960",
            "write UNTIL as 20261231, 20261231T235959",
        ),
        ("FREQ=DAILY;UNTIL=20261231Z", "write UNTIL as 20261231, 20261231T235959"),
        ("FREQ=DAILY;COUNT=1;COUNT=1", "write COUNT once"),
        ("FREQ=DAILY;;COUNT=1", '"" is no part of a rule; write NAME=VALUE;...'),
        (
            "FREQ=DAILY;EXDATE=20260101",
            "pass one rule alone; its DTSTART is the start=",
        ),
        ("FREQ=WEEKLY;BYDAY=MO;BYSETPOS=1", "BYSETPOS is served with FREQ=MONTHLY or"),
        ("FREQ=HOURLY;INTERVAL=48", "an interval of 2 days, 0:00:00 does not divide"),
        ("FREQ=SECONDLY;INTERVAL=7", "an interval of 0:00:07 does not divide a day;"),
        ("FREQ=MINUTELY;INTERVAL=20;BYMINUTE=0", "its interval never meets its hours,"),
        (b"FREQ=DAILY", "pass the text of a rule, as"),
    ],
)
def test_what_a_rule_cannot_say_is_refused_with_the_fix(text: str, fix: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        read_rule(text, START)
    assert (caught.value.argument, caught.value.found) == ("rrule", text)
    assert caught.value.fix.startswith(fix)


@pytest.mark.parametrize(
    "text",
    [
        *("FREQ=DAILY;DTSTART=20260101", "FREQ=DAILY;EXDATE=20260101"),
        *("FREQ=DAILY;RDATE=20260101", "FREQ=DAILY;EXRULE=X", "FREQ=DAILY\nCOUNT=1"),
    ],
)
def test_a_rule_is_one_line_and_says_nothing_of_other_dates(text: str) -> None:
    with pytest.raises(ArgumentError, match="pass one rule alone; its DTSTART is"):
        read_rule(text, START)
