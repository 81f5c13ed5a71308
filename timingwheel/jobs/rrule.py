"""Recurrence rules of iCalendar (RFC 5545) as schedules of the wall clock.

    FREQ=MONTHLY;BYDAY=-1FR                 the last Friday of each month
    FREQ=WEEKLY;INTERVAL=2;BYDAY=TU,TH      Tuesdays and Thursdays of every second week

A rule is cut in two: times of the day, which are the same on every day it has, and days,
kept as bits of a year. So next, prev and count are searches in bits and no walk through
all occurrences, and what a clock change does is decided where it is for every other
schedule of wall times. python-dateutil, the extra `[rrule]`, expands the days.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from datetime import date, datetime
from functools import lru_cache
from typing import Final

from timingwheel.errors import ArgumentError
from timingwheel.jobs.cron_days import FIRST_YEAR, LAST_YEAR, YEAR_STARTS
from timingwheel.jobs.cron_times import next_bit, prev_bit
from timingwheel.jobs.rrule_days import RuleDays
from timingwheel.jobs.rrule_fields import RuleFields, Until, read_rule, refused
from timingwheel.jobs.schedule import HORIZON_NS, NS, Firing
from timingwheel.jobs.wall_schedule import NEVER_S, WallSchedule
from timingwheel.jobs.zones import DAY_S, zone_named

_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
_START_FIX: Final = 'pass a wall time from 1970 on, as "2026-03-02T09:00"'
_RULES_KEPT: Final = 256
_BITS_A_YEAR: Final = 366


class RecurrenceRule(WallSchedule):
    """The instants of a recurrence rule, with clock changes as for Cron.

    Rules of hours, minutes and seconds follow the clock; the others have fixed times.
    As in dateutil, the start is an occurrence only if the rule says so.

    Args:
        rule: the text, with or without "RRULE:" before it.
        start: DTSTART as an ISO wall time of the zone, to the second.
        tz: an IANA zone name.

    Raises:
        ArgumentError: the rule or the start is invalid, or never comes.
        MissingExtraError: python-dateutil is not installed.

    Cost: the first question about a year expands its days, some 0.2 ms; none grows with
    the occurrences between. Building one with COUNT expands the years that it spans.
    """

    __slots__ = ("_end_ns", "rule", "start")

    def __init__(self, rule: str, *, start: str, tz: str = "UTC") -> None:
        fields, times = _times_of(rule, start)
        super().__init__(
            times,
            zone_named(tz),
            gap="after",
            overlap="first",
            follows_clock=fields.is_within_days,
        )
        self.rule = fields.text
        self.start = start
        self._end_ns = _end_ns(fields.until)
        if self.next_ns(-1) is None:
            raise refused(
                rule,
                f"no time matches it from {start} on; correct its days, or its end",
            )

    def next_ns(self, after_ns: int) -> Firing | None:
        """Return the first firing strictly after an instant; None if there is none."""
        firing = super().next_ns(after_ns)
        return firing if firing is not None and firing.utc_ns < self._end_ns else None

    def prev_ns(self, before_ns: int) -> Firing | None:
        """Return the last firing strictly before an instant; None if there is none."""
        return super().prev_ns(min(before_ns, self._end_ns))

    def count_ns(self, start_ns: int, end_ns: int) -> int:
        """Return how many firings there are from start up to, but not at, end.

        Cost: grows with the years between, not with what is counted.
        """
        return super().count_ns(start_ns, min(end_ns, self._end_ns))

    def explain(self) -> str:
        """Return the schedule in words, with its rule for clock changes."""
        return (
            f"By the recurrence rule {self.rule}, counted from "
            f"{self.start.replace('T', ' ')}, {self.clock_words()}"
        )

    def __repr__(self) -> str:
        return f"RecurrenceRule({self.rule!r}, start={self.start!r}, tz={self.tz!r})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RecurrenceRule):
            return NotImplemented
        return self._definition() == other._definition()

    def __hash__(self) -> int:
        return hash(self._definition())

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuilt, self._definition()

    def _definition(self) -> tuple[str, str, str]:
        return self.rule, self.start, self.tz


class _RuleTimes:
    """Wall times of a rule, from its start to where it ends."""

    __slots__ = ("_days", "_end_s", "_first_s", "_first_year", "_times")

    def __init__(self, fields: RuleFields, start: datetime) -> None:
        self._days = RuleDays(fields, start)
        self._times = fields.times
        self._first_s = _wall_s(start)
        self._first_year = start.year
        self._end_s = NEVER_S
        if fields.until is not None and not fields.until.is_utc:
            self._end_s = _wall_s(fields.until.wall) + 1
        if fields.count is not None:
            self._end_s = self._wall_of(fields.count) + 1

    def next_wall(self, wall_s: int) -> int:
        day, second = divmod(max(wall_s, self._first_s), DAY_S)
        place = bisect_left(self._times, second)
        # On a later day, or with nothing left of this one, its first time is meant.
        found = self._next_day(day if place < len(self._times) else day + 1)
        if found is None:
            return NEVER_S
        time_s = self._times[place] if found == day else self._times[0]
        wall_s = found * DAY_S + time_s
        return wall_s if wall_s < self._end_s else NEVER_S

    def prev_wall(self, wall_s: int) -> int:
        day, second = divmod(min(wall_s, self._end_s - 1), DAY_S)
        place = bisect_right(self._times, second) - 1
        found = self._prev_day(day if place >= 0 else day - 1)
        if found is None:
            return -NEVER_S
        time_s = self._times[place] if found == day else self._times[-1]
        wall_s = found * DAY_S + time_s
        return wall_s if wall_s >= self._first_s else -NEVER_S

    def count_walls(self, start_s: int, end_s: int) -> int:
        start_s, end_s = max(start_s, self._first_s), min(end_s, self._end_s)
        return self._count(start_s, end_s) if start_s < end_s else 0

    def _count(self, start_s: int, end_s: int) -> int:
        """Return how many times there are between, whatever the bounds of the rule."""
        start_day, start_second = divmod(start_s, DAY_S)
        end_day, end_second = divmod(end_s, DAY_S)
        total = self._count_days(start_day, end_day) * len(self._times)
        if self._next_day(start_day) == start_day:
            total -= bisect_left(self._times, start_second)
        if self._next_day(end_day) == end_day:
            total += bisect_left(self._times, end_second)
        return total

    def _count_days(self, start_day: int, end_day: int) -> int:
        total = 0
        for year in range(_year_of(start_day), _year_of(end_day) + 1):
            days, first = self._days.of_year(year), _year_start(year)
            if end_day < first + _BITS_A_YEAR:
                days &= (1 << (end_day - first)) - 1
            total += (days >> max(start_day - first, 0)).bit_count()
        return total

    def _next_day(self, day: int) -> int | None:
        """Return the first day of the rule from a day on."""
        for year in range(_year_of(day), LAST_YEAR + 1):
            first = _year_start(year)
            if first * DAY_S >= self._end_s:
                break
            found = next_bit(self._days.of_year(year), max(day - first, 0))
            if found >= 0:
                return first + found
        return None

    def _prev_day(self, day: int) -> int | None:
        """Return the last day of the rule up to a day."""
        for year in range(_year_of(day), self._first_year - 1, -1):
            first = _year_start(year)
            days = self._days.of_year(year)
            found = prev_bit(days, min(day - first, _BITS_A_YEAR))
            if found >= 0:
                return first + found
        return None

    def _wall_of(self, count: int) -> int:
        """Return the n-th time from the start on; NEVER_S if there are not so many."""
        new_year = _year_start(self._first_year)
        left = count - 1 + self._count(new_year * DAY_S, self._first_s)
        for year in range(self._first_year, LAST_YEAR + 1):
            days = self._days.of_year(year)
            total = days.bit_count() * len(self._times)
            if left < total:
                before, place = divmod(left, len(self._times))
                for _ in range(before):
                    days &= days - 1  # without its lowest bit
                day = _year_start(year) + next_bit(days, 0)
                return day * DAY_S + self._times[place]
            left -= total
        return NEVER_S


@lru_cache(_RULES_KEPT)  # a store asks for the schedule of a job each time it runs
def _times_of(rule: str, start: str) -> tuple[RuleFields, _RuleTimes]:
    wall = _start_wall(start)
    fields = read_rule(rule, wall)
    return fields, _RuleTimes(fields, wall)


def _start_wall(start: str) -> datetime:
    try:
        wall = datetime.fromisoformat(start)
    except (TypeError, ValueError):
        raise ArgumentError("start", start, _START_FIX) from None
    if wall.tzinfo is not None:
        raise ArgumentError("start", start, f"leave out the offset; {_START_FIX}")
    if wall.microsecond:
        raise ArgumentError("start", start, "a rule knows no fractions of a second")
    if not 1970 <= wall.year < LAST_YEAR:
        raise ArgumentError("start", start, _START_FIX)
    return wall


def _end_ns(until: Until | None) -> int:
    """Return the first instant after an UNTIL in UTC; others end the wall times."""
    if until is None or not until.is_utc:
        return HORIZON_NS + 1
    return min((_wall_s(until.wall) + 1) * NS, HORIZON_NS + 1)


def _wall_s(wall: datetime) -> int:
    day = wall.toordinal() - _EPOCH_DAY
    return day * DAY_S + wall.hour * 3_600 + wall.minute * 60 + wall.second


def _year_of(day: int) -> int:
    place = bisect_right(YEAR_STARTS, day) - 1
    return FIRST_YEAR + min(max(place, 0), LAST_YEAR - FIRST_YEAR)


def _year_start(year: int) -> int:
    return YEAR_STARTS[year - FIRST_YEAR]


def _rebuilt(rule: str, start: str, tz: str) -> RecurrenceRule:
    return RecurrenceRule(rule, start=start, tz=tz)
