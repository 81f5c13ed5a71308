"""The days of a calendar as spans of the time line.

A day begins at the first instant at which the zone's clock shows its midnight, or a later
time, and ends where the next one begins. So days follow each other without a hole, also
where a clock goes back over midnight (what it shows a second time belongs to the new day),
and a day that a country left out is empty.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from datetime import date
from typing import Final, NamedTuple

from timingwheel.jobs.calendars import WEEKDAYS, NamedCalendar
from timingwheel.jobs.schedule import NS, DstMark, Firing
from timingwheel.jobs.zones import DAY_S, zone_named

_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
_EPOCH_WEEKDAY: Final = date(1970, 1, 1).weekday()
_NEVER: Final = 1 << 40  # a day past all others


class DayRun(NamedTuple):
    """Days in a row: from `first` up to, but not at, `end`."""

    first: int
    end: int


class CalendarDays:
    """Which days a calendar excludes, in a zone; a day is counted from 1970-01-01.

    A day is *open* if it is not excluded and not empty.

    Args:
        calendar: what is excluded.
        tz: the zone, unless the calendar has its own.
    """

    __slots__ = ("_dates", "_dates_sorted", "_weekdays", "_zone")

    def __init__(self, calendar: NamedCalendar, tz: str) -> None:
        self._zone = zone_named(tz if calendar.tz is None else calendar.tz)
        self._dates_sorted = [day.toordinal() - _EPOCH_DAY for day in calendar.dates]
        self._dates = frozenset(self._dates_sorted)
        names = calendar.weekdays
        self._weekdays = tuple(name in names for name in WEEKDAYS)

    def day_of(self, utc_ns: int) -> int:
        """Return the day that holds an instant."""
        utc_s = utc_ns // NS
        day = (utc_s + self._zone.stretch_at(utc_s).offset_s) // DAY_S
        # The clock may have gone back over midnight: then the new day has begun.
        return day + 1 if self.start_ns(day + 1) <= utc_ns else day

    def start_ns(self, day: int) -> int:
        """Return the first instant of a day."""
        return self._start_s(day) * NS

    def is_excluded(self, day: int) -> bool:
        """Return whether the calendar excludes a day."""
        return day in self._dates or self._weekdays[(day + _EPOCH_WEEKDAY) % 7]

    def is_open(self, day: int) -> bool:
        """Return whether something can run on a day."""
        return not self.is_excluded(day) and self.start_ns(day) < self.start_ns(day + 1)

    def next_open(self, day: int) -> int:
        """Return the first open day from a day on."""
        while not self.is_open(day):
            day += 1
        return day

    def prev_open(self, day: int) -> int:
        """Return the last open day up to a day."""
        while not self.is_open(day):
            day -= 1
        return day

    def closed_runs(self, first: int, last: int) -> Iterator[DayRun]:
        """Return the longest runs of days without an open one that touch first .. last.

        Only runs that hold an excluded day: on an empty one there is nothing anyway.

        Cost: grows with the excluded days between first and last; where weekdays are
        excluded, with the weeks.
        """
        day = self._next_excluded(first)
        while day <= last:
            run = DayRun(self.prev_open(day) + 1, self.next_open(day))
            yield run
            day = self._next_excluded(run.end)

    def instant_on(self, day: int, like_ns: int) -> Firing:
        """Return when the clock shows on an open day what it shows at an instant.

        A time that it skips there becomes the gap's end, or, where the gap ends the
        day, is moved before it by the gap's length. Of two copies it is the first.
        """
        like_s, rest_ns = divmod(like_ns, NS)
        second = (like_s + self._zone.stretch_at(like_s).offset_s) % DAY_S
        wall_s = day * DAY_S + second
        stretch = self._zone.stretch_at(self._start_s(day))
        while wall_s - stretch.offset_s >= stretch.end_s:
            stretch = self._zone.stretch_at(stretch.end_s)
        utc_s = wall_s - stretch.offset_s
        if utc_s < stretch.start_s:
            # Here the clock does not show the time: the stretch began with a gap.
            ends_the_day = stretch.start_s >= self._start_s(day + 1)
            at_ns = utc_s * NS + rest_ns if ends_the_day else stretch.start_s * NS
            return Firing(at_ns, DstMark.SHIFTED)
        mark = DstMark.FIRST if wall_s >= stretch.again_wall_s else DstMark.NONE
        return Firing(utc_s * NS + rest_ns, mark)

    def _start_s(self, day: int) -> int:
        midnight_s = day * DAY_S
        # No clock is a day ahead of UTC: here it shows an earlier time for certain.
        stretch = self._zone.stretch_at(midnight_s - DAY_S)
        while stretch.end_s + stretch.offset_s <= midnight_s:
            stretch = self._zone.stretch_at(stretch.end_s)
        return max(stretch.start_s, midnight_s - stretch.offset_s)

    def _next_excluded(self, day: int) -> int:
        """Return the first excluded day from a day on."""
        place = bisect_left(self._dates_sorted, day)
        dated = self._dates_sorted[place] if place < len(self._dates_sorted) else _NEVER
        if True in self._weekdays:
            while not self._weekdays[(day + _EPOCH_WEEKDAY) % 7] and day < dated:
                day += 1
            return day
        return dated
