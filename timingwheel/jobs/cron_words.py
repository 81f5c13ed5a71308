"""A cron expression in words, made from what it was read as and not from its text.

So `*/15`, `0-59/15` and `0,15,30,45` read the same, and what a reader sees is what the
schedule does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count, product
from typing import Final

from timingwheel.jobs.cron_days import FIRST_YEAR, LAST_YEAR, DayRule, members
from timingwheel.jobs.cron_fields import DAY, MONTH, CronFields

_TIMES_SPELLED_MAX: Final = 6
_STEPPED_MIN: Final = 4
_RUN_MIN: Final = 3  # shorter runs are listed: "1 and 2", not "1 to 2"
WEEKDAY_NAMES: Final = (
    *("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"),
)
_MONTHS: Final = (
    *("January", "February", "March", "April", "May", "June", "July", "August"),
    *("September", "October", "November", "December"),
)
_WORKDAY: Final = "weekday (Monday to Friday)"
_NTH: Final = ("first", "second", "third", "fourth", "fifth")
_EVERY: Final = "every"
_EVERY_DAY: Final = "every day"
_ALL_DAYS: Final = (2 << DAY.high) - 2
_ALL_MONTHS: Final = (2 << MONTH.high) - 2
_ALL_WEEKDAYS: Final = (1 << 7) - 1


def words(fields: CronFields) -> str:
    """Return when an expression fires, such as "At 02:30 on Monday to Friday"."""
    text = _time(fields)
    day = _day(fields)
    if day != _EVERY_DAY or _EVERY not in text:
        text += f" {day}"
    if fields.days.months != _ALL_MONTHS:
        months = _list(members(fields.days.months), lambda m: _MONTHS[m - 1])
        text += f", in {months} only"
    if not fields.any_year:
        text += f", in {_years([FIRST_YEAR + n for n in members(fields.years)])}"
    return text[0].upper() + text[1:]


def _time(fields: CronFields) -> str:
    seconds, minutes, hours = (
        members(bits) for bits in (fields.seconds, fields.minutes, fields.hours)
    )
    has_seconds = seconds != [0]
    if len(seconds) * len(minutes) * len(hours) <= _TIMES_SPELLED_MAX:
        spelled = [
            f"{hour:02}:{minute:02}" + (f":{second:02}" if has_seconds else "")
            for hour, minute, second in product(hours, minutes, seconds)
        ]
        return f"at {_and(spelled)}"
    parts = []
    if has_seconds:
        parts.append(_often(seconds, "second", 60))
    if len(minutes) < 60 or not parts or not parts[-1].startswith(_EVERY):
        parts.append((_which if parts else _often)(minutes, "minute", 60))
    if len(hours) < 24:
        parts.append(_which(hours, "hour", 24))
    elif not parts[-1].startswith(_EVERY):
        parts.append("every hour")
    text = " of ".join(parts)
    return text if text.startswith(_EVERY) else f"at {text}"


def _often(values: Sequence[int], unit: str, size: int) -> str:
    """Return the finest field of the time: every so often, or at which values."""
    step = size // len(values)
    # Only a step that divides the unit is even: `*/7` has a short one each hour.
    if len(values) > 1 and list(values) == list(range(0, size, step)):
        return f"every {step} {unit}s" if step > 1 else f"every {unit}"
    return _named(values, unit)


def _which(values: Sequence[int], unit: str, size: int) -> str:
    """Return a field within which a finer one counts: which of its values.

    Never how often: "every second of every 12 hours" reads as every second of the day.
    """
    if len(values) == size:
        return f"every {unit}"
    if step := _step(values, size - 1):
        return f"every {_ordinal(step)} {unit} from {values[0]}"
    return _named(values, unit)


def _named(values: Sequence[int], unit: str) -> str:
    return f"{unit}{'s' if len(values) > 1 else ''} {_list(values, str)}"


def _step(values: Sequence[int], last: int) -> int:
    """Return the even step in which many values go on to the last one; 0 if none."""
    if len(values) < _STEPPED_MIN:
        return 0
    step = values[1] - values[0]
    is_stepped = step > 1 and list(values) == list(range(values[0], last + 1, step))
    return step if is_stepped else 0


def _day(fields: CronFields) -> str:
    rule = fields.days
    days = [] if rule.days == _ALL_DAYS else _days(rule)
    weekdays = [] if rule.weekdays == _ALL_WEEKDAYS else _weekdays(rule)
    if rule.needs_both:
        if not days and not weekdays:
            return _EVERY_DAY
        if not days or not weekdays:
            return f"on {_or(days or weekdays)}"
        return f"on {_or(days)} if that is {_or(weekdays)}"
    if not days or not weekdays:
        return _EVERY_DAY  # either matches, and one of them always does
    return f"on {_or(days)} or on {_or(weekdays)}"


def _years(years: Sequence[int]) -> str:
    if step := _step(years, LAST_YEAR - 1):
        return f"every {_ordinal(step)} year from {years[0]}"
    return f"{_list(years, str)} only"


def _days(rule: DayRule) -> list[str]:
    found = []
    days = members(rule.days)
    if step := _step(days, DAY.high):
        first = _ordinal(days[0])
        found.append(f"every {_ordinal(step)} day of the month from the {first}")
    elif days:
        found.append(f"the {_list(days, _ordinal)} of the month")
    for before in members(rule.days_before_last):
        if before == 0:
            found.append("the last day of the month")
        else:
            plural = "s" if before > 1 else ""
            found.append(f"the day {before} day{plural} before the last of the month")
    if rule.weekdays_nearest:
        nearest = _list(members(rule.weekdays_nearest), _ordinal)
        found.append(f"the {_WORKDAY} nearest to the {nearest} of the month")
    if rule.last_weekday:
        found.append(f"the last {_WORKDAY} of the month")
    return found


def _weekdays(rule: DayRule) -> list[str]:
    found = []
    if rule.weekdays:
        found.append(_list(_week(rule.weekdays), lambda day: WEEKDAY_NAMES[day % 7]))
    for bit in members(rule.nth_weekdays):
        nth, weekday = divmod(bit, 7)
        found.append(f"the {_NTH[nth]} {WEEKDAY_NAMES[weekday]} of the month")
    found += [
        f"the last {WEEKDAY_NAMES[weekday]} of the month"
        for weekday in members(rule.last_weekdays)
    ]
    return found


def _week(weekdays: int) -> list[int]:
    """Return weekdays in the order in which they are said: runs over the weekend too."""
    first = next(day for day in count(1) if not weekdays >> (day - 1) & 1)
    return [day for day in range(first, first + 7) if weekdays >> day % 7 & 1]


def _list(values: Sequence[int], name: Callable[[int], str]) -> str:
    """Return values in words, with runs of three and more as "a to b"."""
    runs: list[list[int]] = []
    for value in values:
        if runs and runs[-1][-1] == value - 1:
            runs[-1].append(value)
        else:
            runs.append([value])
    texts: list[str] = []
    for run in runs:
        if len(run) < _RUN_MIN:
            texts += map(name, run)
        else:
            texts.append(f"{name(run[0])} to {name(run[-1])}")
    return _and(texts)


def _and(texts: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(texts[:-1]), texts[-1])))


def _or(texts: Sequence[str]) -> str:
    return " or ".join(filter(None, (", ".join(texts[:-1]), texts[-1])))


def _ordinal(number: int) -> str:
    """Return a number up to 99 with its ending; a step of years is no longer."""
    is_teen = number // 10 == 1
    ending = "th" if is_teen else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"
