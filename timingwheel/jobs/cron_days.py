"""On which days a cron expression fires: its day, month and weekday fields together.

A rule depends on nothing of a year but its length and the weekday it begins with, so
fourteen kinds of year settle every rule, for ever. Each kind's days are one integer, bit
n for the n-th day of the year, and a search over centuries is a few bit operations.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from functools import lru_cache
from itertools import pairwise
from typing import Final

FIRST_YEAR: Final = 1969  # in the west, 1970 in UTC begins in the year before
LAST_YEAR: Final = 2263

_EPOCH: Final = date(1970, 1, 1).toordinal()
_MONTH_DAYS: Final = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_SATURDAY: Final = 6
_FEBRUARY: Final = 2
_WEEKLY: Final = sum(1 << 7 * week for week in range(5))

YEAR_STARTS: Final = tuple(
    date(year, 1, 1).toordinal() - _EPOCH for year in range(FIRST_YEAR, LAST_YEAR + 2)
)
"""The first day of each year, in days since 1970, and of the one after the last."""

_LEAP: Final = 7
YEAR_KINDS: Final = tuple(
    # 1970 began with a Thursday, and weekdays are counted from Sunday.
    (start + 4) % 7 + (_LEAP if following - start == 366 else 0)
    for start, following in pairwise(YEAR_STARTS)
)
"""Each year's kind: the weekday of its first day, Sunday being 0, and 7 more if leap."""


@dataclass(frozen=True, slots=True)
class DayRule:
    """Which days of a year match. All sets are integers of one bit a member.

    Attributes:
        months: bits 1 to 12.
        days: days of the month by number, bits 1 to 31.
        days_before_last: bit n for the day n days before the last one (`L-n`).
        weekdays_nearest: bits 1 to 31, for the Monday to Friday nearest to that day
            and within its month (`15W`); months without that day have none.
        last_weekday: whether the last Monday to Friday matches (`LW`).
        weekdays: bits 0 (Sunday) to 6.
        nth_weekdays: bit 7 * (n - 1) + weekday for the n-th of the month (`5#2`).
        last_weekdays: bits 0 to 6, for the last of the month (`5L`).
        needs_both: the day field and the weekday field must both match, as one of
            them begins with `*`; otherwise either will do.
    """

    months: int
    days: int
    days_before_last: int
    weekdays_nearest: int
    last_weekday: bool
    weekdays: int
    nth_weekdays: int
    last_weekdays: int
    needs_both: bool

    def in_month(self, length: int, first_weekday: int) -> int:
        """Return the matching days of a month, bits 1 to its length.

        Args:
            length: how many days it has.
            first_weekday: the weekday of its first day, Sunday being 0.
        """
        days = self._by_day(length, first_weekday)
        weekdays = self._by_weekday(length, first_weekday)
        found = days & weekdays if self.needs_both else days | weekdays
        return found & ((2 << length) - 2)

    def _by_day(self, length: int, first_weekday: int) -> int:
        found = self.days
        for before in members(self.days_before_last):
            if before < length:
                found |= 1 << (length - before)
        for day in members(self.weekdays_nearest):
            if day <= length:
                found |= 1 << _nearest_weekday(day, length, first_weekday)
        if self.last_weekday:
            found |= 1 << _nearest_weekday(length, length, first_weekday)
        return found

    def _by_weekday(self, length: int, first_weekday: int) -> int:
        # Days past the month's end are cut off by the caller.
        found = 0
        for weekday in members(self.weekdays):
            found |= _WEEKLY << _first_of(weekday, first_weekday)
        for bit in members(self.nth_weekdays):
            nth, weekday = divmod(bit, 7)
            found |= 1 << (_first_of(weekday, first_weekday) + 7 * nth)
        for weekday in members(self.last_weekdays):
            fifth = _first_of(weekday, first_weekday) + 28
            found |= 1 << (fifth if fifth <= length else fifth - 7)
        return found


@lru_cache(maxsize=4_096)  # a thousand jobs have a dozen day rules between them
def days_of(rule: DayRule, kind: int) -> int:
    """Return the matching days in a year of a kind, bit 0 for 1 January."""
    is_leap = kind >= _LEAP
    found = day_of_year = 0
    for month, length in enumerate(_MONTH_DAYS, 1):
        days = length + (is_leap and month == _FEBRUARY)
        if rule.months >> month & 1:
            # Bit 1 is the first of a month, bit 0 the first of a year.
            in_month = rule.in_month(days, (kind + day_of_year) % 7)
            found |= in_month >> 1 << day_of_year
        day_of_year += days
    return found


def _first_of(weekday: int, first_weekday: int) -> int:
    """Return the first day that is a weekday, in a month that begins with another."""
    return 1 + (weekday - first_weekday) % 7


def _nearest_weekday(day: int, length: int, first_weekday: int) -> int:
    """Return the Monday to Friday nearest to a day, without leaving its month."""
    weekday = (first_weekday + day - 1) % 7
    if weekday == _SATURDAY:
        return day - 1 if day > 1 else day + 2
    if weekday == 0:
        return day + 1 if day < length else day - 2
    return day


def members(bits: int) -> list[int]:
    """Return the members of a set of small ints that is kept as one integer."""
    return [member for member in range(bits.bit_length()) if bits >> member & 1]
