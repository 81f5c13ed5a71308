"""The text of an iCalendar recurrence rule (RFC 5545), taken apart and checked.

    FREQ=WEEKLY;INTERVAL=2;BYDAY=TU,TH;BYHOUR=9;UNTIL=20261231T235959Z

What is read here: how often, the times of the day, and where the rule ends. The fields
that choose days are checked here too, and expanded in rrule_days.py.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Final, NamedTuple

from timingwheel.errors import ArgumentError
from timingwheel.jobs.zones import DAY_S

FREQUENCIES: Final = (
    *("YEARLY", "MONTHLY", "WEEKLY", "DAILY"),
    *("HOURLY", "MINUTELY", "SECONDLY"),
)
DAY_FIELDS: Final[tuple[str, ...]] = (
    "BYMONTH",
    "BYMONTHDAY",
    "BYYEARDAY",
    "BYWEEKNO",
    "BYDAY",
)
WEEK_DAYS: Final = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")

RULE_CHARS_MAX: Final = 1_000
NUMBER_MAX: Final = 1_000_000
"""The largest INTERVAL and COUNT."""

_HOURLY: Final = FREQUENCIES.index("HOURLY")
_MINUTELY: Final = FREQUENCIES.index("MINUTELY")
_SECONDLY: Final = FREQUENCIES.index("SECONDLY")
_OTHER_FIELDS: Final = frozenset(
    {
        *("FREQ", "INTERVAL", "COUNT", "UNTIL", "WKST", "BYSETPOS"),
        *("BYHOUR", "BYMINUTE", "BYSECOND"),
    }
)
_UNIT_S: Final = {"HOURLY": 3_600, "MINUTELY": 60, "SECONDLY": 1}
_FIELD: Final = re.compile(r"([A-Z]+)=([A-Z0-9+,-]+)")
_NTH: Final = re.compile(r"([+-]?[0-9]+)?([A-Z]{2})")
_SIGNED: Final = re.compile(r"[+-]?[0-9]{1,3}")
_SIGNED_MAX: Final = {
    "BYMONTHDAY": 31,
    "BYYEARDAY": 366,
    "BYWEEKNO": 53,
    "BYSETPOS": 366,
}
_UNTIL: Final = re.compile(r"(\d{8})(?:T(\d{6})(Z?))?", re.ASCII)


class Until(NamedTuple):
    """Where a rule ends, that second included.

    Attributes:
        wall: the last time, as a clock shows it.
        is_utc: whether that is the clock of UTC, and not of the rule's zone.
    """

    wall: datetime
    is_utc: bool


@dataclass(frozen=True, slots=True)
class RuleFields:
    """A rule, taken apart.

    Attributes:
        text: the whole rule, as it is kept.
        frequency: one of FREQUENCIES.
        interval: how many of them there are from one time to the next.
        day_fields: those of DAY_FIELDS that it has, as text.
        week_start: weekday with which a week begins, Monday being 0.
        positions: BYSETPOS as text, "" for none.
        times: seconds of the day, in order; on each of its days the same.
        count: how many times there are; None for no bound.
        until: where it ends; None for no bound.
    """

    text: str
    frequency: str
    interval: int
    day_fields: Mapping[str, str]
    week_start: int
    positions: str
    times: array[int]
    count: int | None
    until: Until | None

    @property
    def is_within_days(self) -> bool:
        """Whether it counts hours, minutes or seconds."""
        return self.frequency in _UNIT_S


def read_rule(text: str, start: datetime) -> RuleFields:
    """Take a rule apart.

    Args:
        text: the rule, with or without "RRULE:" before.
        start: DTSTART, from which what the rule does not say is taken.

    Raises:
        ArgumentError: it is invalid, or is none that is served.
    """
    fields = _fields_of(text)
    frequency = fields.get("FREQ", "")
    if frequency not in FREQUENCIES:
        raise refused(text, f"write FREQ= one of {', '.join(FREQUENCIES)}")
    interval = _number(text, fields, "INTERVAL") or 1
    count = _number(text, fields, "COUNT")
    until = _until(text, fields.get("UNTIL"))
    if count is not None and until is not None:
        raise refused(text, "write COUNT or UNTIL, not both")
    week_start = fields.get("WKST", "MO")
    if week_start not in WEEK_DAYS:
        raise refused(text, f"write WKST= one of {', '.join(WEEK_DAYS)}")
    day_fields: dict[str, str] = {
        name: fields[name] for name in DAY_FIELDS if name in fields
    }
    monthly_at_most = frequency in ("YEARLY", "MONTHLY")
    _check_numbers(text, fields)
    _check_weekdays(text, fields, may_count=monthly_at_most)
    times = _times(text, fields, start, frequency=frequency, interval=interval)
    if "BYSETPOS" in fields and (not monthly_at_most or len(times) > 1):
        raise refused(
            text,
            "BYSETPOS is served with FREQ=MONTHLY or YEARLY and one time a day; "
            "name the days or times themselves",
        )
    return RuleFields(
        text.strip().removeprefix("RRULE:"),
        frequency,
        interval,
        day_fields,
        WEEK_DAYS.index(week_start),
        fields.get("BYSETPOS", ""),
        times,
        count,
        until,
    )


def refused(text: str, fix: str) -> ArgumentError:
    """Return the error that says what is wrong with a rule."""
    return ArgumentError("rrule", text, fix)


def _fields_of(text: str) -> dict[str, str]:
    if not isinstance(text, str):
        raise refused(text, 'pass the text of a rule, as "FREQ=DAILY;BYHOUR=9"')
    if len(text) > RULE_CHARS_MAX:
        raise refused(text, f"pass at most {RULE_CHARS_MAX:,} characters")
    whole = text.strip().upper().removeprefix("RRULE:")
    if any(word in whole for word in ("DTSTART", "EXDATE", "RDATE", "EXRULE", "\n")):
        raise refused(
            text,
            "pass one rule alone; its DTSTART is the start= of the trigger, and days "
            "are left out by calendar=",
        )
    fields: dict[str, str] = {}
    for part in whole.rstrip(";").split(";"):
        match = _FIELD.fullmatch(part.strip())
        name = match[1] if match else part
        if match is None or name not in {*DAY_FIELDS, *_OTHER_FIELDS}:
            raise refused(text, f'"{part}" is no part of a rule; write NAME=VALUE;...')
        if name in fields:
            raise refused(text, f"write {name} once")
        fields[name] = match[2]
    return fields


def _check_numbers(text: str, fields: Mapping[str, str]) -> None:
    if "BYMONTH" in fields:
        months = fields["BYMONTH"].split(",")
        if not all(month.isdecimal() and 1 <= int(month) <= 12 for month in months):
            raise refused(text, "write BYMONTH as numbers from 1 to 12")
    for name, number_max in _SIGNED_MAX.items():
        for number in fields[name].split(",") if name in fields else ():
            is_number = _SIGNED.fullmatch(number) is not None
            if not is_number or not 1 <= abs(int(number)) <= number_max:
                raise refused(
                    text, f"write {name} as numbers from 1 to {number_max}, or below 0"
                )


def _check_weekdays(text: str, fields: Mapping[str, str], *, may_count: bool) -> None:
    if "BYDAY" not in fields:
        return
    for day in fields["BYDAY"].split(","):
        match = _NTH.fullmatch(day)
        if match is None or match[2] not in WEEK_DAYS:
            raise refused(
                text, f"write BYDAY as {', '.join(WEEK_DAYS)}; the second is 2MO"
            )
        if match[1] is None:
            continue
        if not may_count:
            raise refused(
                text, "a number before a weekday needs FREQ=MONTHLY or YEARLY"
            )
        within = 5 if fields["FREQ"] == "MONTHLY" or "BYMONTH" in fields else 53
        if not 1 <= abs(int(match[1])) <= within:
            period = "month" if within == 5 else "year"
            raise refused(
                text,
                f"a number before a weekday of a {period} is 1 to {within}, or below 0",
            )


def _number(text: str, fields: Mapping[str, str], name: str) -> int | None:
    if name not in fields:
        return None
    value = fields[name]
    if not value.isdecimal() or not 1 <= int(value) <= NUMBER_MAX:
        raise refused(text, f"write {name} as a number from 1 to {NUMBER_MAX:,}")
    return int(value)


def _until(text: str, value: str | None) -> Until | None:
    if value is None:
        return None
    fix = "write UNTIL as 20261231, 20261231T235959 or 20261231T235959Z"
    match = _UNTIL.fullmatch(value)
    if match is None:
        raise refused(text, fix)
    day, time_of_day, zulu = match.groups()
    # A day alone ends with its last second, as calendars show it.
    stamp = f"{day}T{time_of_day or '235959'}"
    try:
        wall = datetime.strptime(stamp, "%Y%m%dT%H%M%S").replace(tzinfo=UTC)
    except ValueError:
        raise refused(text, fix) from None
    return Until(wall.replace(tzinfo=None), bool(zulu))


def _times(
    text: str,
    fields: Mapping[str, str],
    start: datetime,
    *,
    frequency: str,
    interval: int,
) -> array[int]:
    """Return the seconds of the day at which a rule has times, on each of its days."""
    rank = FREQUENCIES.index(frequency)
    hours = _set(text, fields, "BYHOUR", below=24)
    minutes = _set(text, fields, "BYMINUTE", below=60)
    seconds = _set(text, fields, "BYSECOND", below=60)
    hours = hours or ([start.hour] if rank < _HOURLY else range(24))
    minutes = minutes or ([start.minute] if rank < _MINUTELY else range(60))
    seconds = seconds or ([start.second] if rank < _SECONDLY else range(60))
    times = [h * 3_600 + m * 60 + s for h, m, s in product(hours, minutes, seconds)]
    if frequency in _UNIT_S:
        unit_s = _UNIT_S[frequency]
        if DAY_S % (interval * unit_s):
            every = timedelta(seconds=interval * unit_s)
            raise refused(
                text,
                f"an interval of {every} does not divide a day; use every= for elapsed "
                "time",
            )
        start_s = start.hour * 3_600 + start.minute * 60 + start.second
        times = [
            time_s
            for time_s in times
            if (time_s // unit_s - start_s // unit_s) % interval == 0
        ]
    if not times:
        raise refused(text, "its interval never meets its hours, minutes and seconds")
    return array("l", times)


def _set(
    text: str, fields: Mapping[str, str], name: str, *, below: int
) -> list[int] | range:
    if name not in fields:
        return []
    values = set()
    for value in fields[name].split(","):
        if not value.isdecimal() or int(value) >= below:
            raise refused(text, f"write {name} as numbers from 0 to {below - 1}")
        values.add(int(value))
    return sorted(values)
