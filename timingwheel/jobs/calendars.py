"""Named calendars: days on which jobs do not run, such as the holidays of a country.

A calendar is data: a store keeps it under a name, and triggers name it. It says of a day
whether work is done on it; what an occurrence on an excluded day does (left out, moved
to the next or the previous business day) is the trigger's `roll`.

A day is a civil date, and an instant belongs to the date that some zone's clock shows.
"""

from __future__ import annotations

from bisect import bisect_left
from calendar import day_name
from collections.abc import Iterable
from datetime import date, datetime, timedelta
from typing import Final

import msgspec

from timingwheel.errors import ArgumentError
from timingwheel.jobs.zones import zone_named

EXCLUDED_MAX: Final = 10_000
"""Dates that one calendar may exclude: 27 years of days, 900 of public holidays."""

WEEKDAYS: Final = ("MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN")
"""The names of weekdays, as in cron expressions, in the order of date.weekday()."""

_WEEKDAY_NAMES: Final = dict(zip(WEEKDAYS, day_name, strict=True))
_FIRST_YEAR: Final = 1970
_LAST_YEAR: Final = 2262
_DAY: Final = timedelta(days=1)
_DATES_SHOWN: Final = 3


class NamedCalendar(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The days on which nothing that uses the calendar runs.

    However it is made, even from stored bytes: dates and weekdays come sorted, none
    comes twice, and at least one weekday is left.

    Attributes:
        dates: excluded days, 1970 to 2262, at most EXCLUDED_MAX.
        weekdays: excluded weekdays, of WEEKDAYS; ("SAT", "SUN") for weekends.
        tz: the IANA zone in whose days an instant is counted; None: the zone of the job
            that uses the calendar, which for elapsed time is UTC.

    Raises:
        ArgumentError: one of them is none of that.
    """

    dates: tuple[date, ...] = ()
    weekdays: tuple[str, ...] = ()
    tz: str | None = None

    def __post_init__(self) -> None:
        # Frozen for everybody else; what is kept is the one form of what was meant.
        msgspec.structs.force_setattr(self, "dates", _sorted_dates(self.dates))
        msgspec.structs.force_setattr(self, "weekdays", _sorted_weekdays(self.weekdays))
        if self.tz is not None:
            msgspec.structs.force_setattr(self, "tz", zone_named(self.tz).name)

    def is_excluded(self, day: date) -> bool:
        """Return whether nothing runs on a day."""
        if WEEKDAYS[day.weekday()] in self.weekdays:
            return True
        place = bisect_left(self.dates, day)
        return place < len(self.dates) and self.dates[place] == day

    def next_business_day(self, day: date) -> date | None:
        """Return the first day after `day` that is not excluded; None past 2262."""
        return self._step(day, _DAY)

    def previous_business_day(self, day: date) -> date | None:
        """Return the last day before `day` that is not excluded; None before 1970."""
        return self._step(day, -_DAY)

    def explain(self) -> str:
        """Return the calendar in words."""
        parts = []
        if self.weekdays:
            names = [_WEEKDAY_NAMES[name] for name in self.weekdays]
            parts.append(f"every {_listed(names)}")
        if len(self.dates) > _DATES_SHOWN:
            first, last = self.dates[0].isoformat(), self.dates[-1].isoformat()
            parts.append(f"{len(self.dates):,} dates from {first} to {last}")
        elif self.dates:
            parts.append(_listed([day.isoformat() for day in self.dates]))
        if not parts:
            return "Excludes nothing."
        zone = "" if self.tz is None else f", in days of {self.tz}"
        return f"Excludes {', and '.join(parts)}{zone}."

    def _step(self, day: date, step: timedelta) -> date | None:
        # From a year outside no step leads inside, but for one from its rim.
        while _FIRST_YEAR - 1 <= day.year <= _LAST_YEAR + 1:
            day += step
            if not self.is_excluded(day):
                return day if _FIRST_YEAR <= day.year <= _LAST_YEAR else None
        return None


def _sorted_dates(dates: Iterable[date]) -> tuple[date, ...]:
    days: set[date] = set()
    for day in _items("dates", dates, "date(2026, 12, 25)"):
        if not isinstance(day, date) or isinstance(day, datetime):
            raise ArgumentError("dates", day, "pass dates, such as date(2026, 12, 25)")
        if not _FIRST_YEAR <= day.year <= _LAST_YEAR:
            raise ArgumentError(
                "dates",
                day.isoformat(),
                f"pass dates from {_FIRST_YEAR} to {_LAST_YEAR}",
            )
        days.add(day)
    if len(days) > EXCLUDED_MAX:
        raise ArgumentError(
            "dates",
            f"{len(days):,} dates",
            f"pass at most {EXCLUDED_MAX:,}; exclude what comes weekly by `weekdays`",
        )
    return tuple(sorted(days))


def _sorted_weekdays(weekdays: Iterable[str]) -> tuple[str, ...]:
    known = ", ".join(WEEKDAYS)
    names = set()
    for name in _items("weekdays", weekdays, '"SAT"'):
        if not isinstance(name, str) or name.upper() not in WEEKDAYS:
            raise ArgumentError("weekdays", name, f"pass names of weekdays: {known}")
        names.add(name.upper())
    if len(names) == len(WEEKDAYS):
        raise ArgumentError(
            "weekdays", "all seven", "leave at least one day on which jobs may run"
        )
    return tuple(sorted(names, key=WEEKDAYS.index))


def _items(argument: str, items: object, example: str) -> Iterable[object]:
    if isinstance(items, str) or not isinstance(items, Iterable):
        raise ArgumentError(
            argument, items, f"pass a tuple of them, such as ({example},)"
        )
    return items


def _listed(names: Iterable[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last
