"""The wall times of a cron expression, searched by bit operations.

Minutes of the day are one integer of 1,440 bits, days of a year one of 366, years one of
295: the next match is a shift and the lowest bit of what is left. Nothing is stepped
through, so the next 29 February costs what the next minute does.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Final

from timingwheel.jobs.cron_days import (
    YEAR_KINDS,
    YEAR_STARTS,
    DayRule,
    days_of,
    members,
)
from timingwheel.jobs.wall_schedule import NEVER_S
from timingwheel.jobs.zones import DAY_S

_YEARS: Final = len(YEAR_KINDS)
_LAST_DAY: Final = YEAR_STARTS[-1] - 1


class CronTimes:
    """Wall times that match the fields of a cron expression.

    Args:
        seconds: bits 0 to 59.
        minutes: bits 0 to 59.
        hours: bits 0 to 23.
        days: the rule for days within a year.
        years: bit n for the n-th year from cron_days.FIRST_YEAR on.
    """

    __slots__ = (
        "_by_kind",
        "_first_s",
        "_last_s",
        "_minutes",
        "_per_day",
        "_rule",
        "_seconds",
        "_years",
    )

    def __init__(
        self, seconds: int, minutes: int, *, hours: int, days: DayRule, years: int
    ) -> None:
        self._seconds = seconds
        self._minutes = sum(minutes << (60 * hour) for hour in members(hours))
        self._rule = days
        self._years = years
        self._by_kind: list[int | None] = [None] * 14
        self._first_s = 60 * next_bit(self._minutes, 0) + next_bit(seconds, 0)
        self._last_s = 60 * prev_bit(self._minutes, 1_439) + prev_bit(seconds, 59)
        self._per_day = seconds.bit_count() * self._minutes.bit_count()

    def next_wall(self, wall_s: int) -> int:
        """Return the first match at or after a wall time, else NEVER_S."""
        day, second = divmod(wall_s, DAY_S)
        if second > self._last_s:
            day += 1
        elif self._matches(day):
            if second <= self._first_s:
                return day * DAY_S + self._first_s
            return day * DAY_S + self._next_second(second)
        matching = self._next_day(day)
        return NEVER_S if matching is None else matching * DAY_S + self._first_s

    def prev_wall(self, wall_s: int) -> int:
        """Return the last match at or before a wall time, else -NEVER_S."""
        day, second = divmod(wall_s, DAY_S)
        if second < self._first_s:
            day -= 1
        elif self._matches(day):
            if second >= self._last_s:
                return day * DAY_S + self._last_s
            return day * DAY_S + self._prev_second(second)
        matching = self._prev_day(day)
        return -NEVER_S if matching is None else matching * DAY_S + self._last_s

    def count_walls(self, start_s: int, end_s: int) -> int:
        """Return how many matches there are from start up to, but not at, end."""
        if end_s <= start_s:
            return 0
        start_day, start_second = divmod(start_s, DAY_S)
        end_day, end_second = divmod(end_s, DAY_S)
        total = self._count_days(start_day, end_day) * self._per_day
        if self._matches(start_day):
            total -= self._count_seconds(start_second)
        if self._matches(end_day):
            total += self._count_seconds(end_second)
        return total

    def _next_second(self, second: int) -> int:
        """Return the first match of the day at or after a second; one is known to be."""
        minute, rest = divmod(second, 60)
        if (
            self._minutes >> minute & 1
            and (found := next_bit(self._seconds, rest)) >= 0
        ):
            return minute * 60 + found
        return 60 * next_bit(self._minutes, minute + 1) + next_bit(self._seconds, 0)

    def _prev_second(self, second: int) -> int:
        """Return the last match of the day at or before a second; one is known to be."""
        minute, rest = divmod(second, 60)
        if (
            self._minutes >> minute & 1
            and (found := prev_bit(self._seconds, rest)) >= 0
        ):
            return minute * 60 + found
        return 60 * prev_bit(self._minutes, minute - 1) + prev_bit(self._seconds, 59)

    def _count_seconds(self, second: int) -> int:
        """Return how many matches a day has before a second."""
        minute, rest = divmod(second, 60)
        before = self._minutes & ((1 << minute) - 1)
        total = before.bit_count() * self._seconds.bit_count()
        if self._minutes >> minute & 1:
            total += (self._seconds & ((1 << rest) - 1)).bit_count()
        return total

    def _matches(self, day: int) -> bool:
        year = bisect_right(YEAR_STARTS, day) - 1
        if year < 0 or not self._years >> year & 1:
            return False
        return self._days_of(year) >> (day - YEAR_STARTS[year]) & 1 == 1

    def _next_day(self, day: int) -> int | None:
        """Return the first matching day at or after one, in days since 1970."""
        day = max(day, YEAR_STARTS[0])
        year = bisect_right(YEAR_STARTS, day) - 1
        in_year = day - YEAR_STARTS[year]
        while (matching := next_bit(self._years, year)) >= 0:
            if matching != year:
                year, in_year = matching, 0
            found = next_bit(self._days_of(year), in_year)
            if found >= 0:
                return YEAR_STARTS[year] + found
            year, in_year = year + 1, 0
        return None

    def _prev_day(self, day: int) -> int | None:
        """Return the last matching day at or before one, in days since 1970."""
        day = min(day, _LAST_DAY)
        year = bisect_right(YEAR_STARTS, day) - 1
        in_year = day - YEAR_STARTS[max(year, 0)]
        while year >= 0 and (matching := prev_bit(self._years, year)) >= 0:
            if matching != year:
                year, in_year = matching, 365
            found = prev_bit(self._days_of(year), in_year)
            if found >= 0:
                return YEAR_STARTS[year] + found
            year, in_year = year - 1, 365
        return None

    def _count_days(self, start_day: int, end_day: int) -> int:
        """Return how many matching days there are from start up to, not at, end."""
        total = 0
        year = max(bisect_right(YEAR_STARTS, start_day) - 1, 0)
        while year < _YEARS and YEAR_STARTS[year] < end_day:
            if self._years >> year & 1:
                days = self._days_of(year)
                if end_day < YEAR_STARTS[year + 1]:
                    days &= (1 << (end_day - YEAR_STARTS[year])) - 1
                total += (days >> max(start_day - YEAR_STARTS[year], 0)).bit_count()
            year += 1
        return total

    def _days_of(self, year: int) -> int:
        kind = YEAR_KINDS[year]
        days = self._by_kind[kind]
        if days is None:
            days = self._by_kind[kind] = days_of(self._rule, kind)
        return days


def next_bit(bits: int, at: int) -> int:
    """Return the lowest member of a set of ints from `at` on; -1 if there is none."""
    rest = bits >> at
    return at + (rest & -rest).bit_length() - 1 if rest else -1


def prev_bit(bits: int, at: int) -> int:
    """Return the highest member of a set of ints up to `at`; -1 if there is none."""
    return (bits & ((2 << at) - 1)).bit_length() - 1
