"""Every so often: by elapsed time from an anchor, or by the calendar at a wall time.

`Every` counts nanoseconds and knows no clock: 24 hours are 24 hours on the day the
clock changes too, and a late run moves none that follow. `CalendarEvery` counts days,
weeks or months and stays at its wall time, whatever the clock does.
"""

from __future__ import annotations

import re
from calendar import monthrange
from datetime import date, time
from functools import partial
from typing import Any, Final, Literal, get_args
from zoneinfo import ZoneInfo

from timingwheel.errors import ArgumentError
from timingwheel.jobs.cron_days import LAST_YEAR
from timingwheel.jobs.cron_words import WEEKDAY_NAMES
from timingwheel.jobs.schedule import (
    HORIZON_NS,
    NS,
    Firing,
    Schedule,
    instant_datetime,
)
from timingwheel.jobs.wall_schedule import NEVER_S, GapRule, OverlapRule, WallSchedule
from timingwheel.jobs.zones import DAY_S, zone_named

Unit = Literal["days", "weeks", "months"]
ShortMonth = Literal["skip", "clamp"]

INTERVAL_MAX: Final = 100_000
"""How many days, weeks or months there may be from one time to the next."""

_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
_UNIT_DAYS: Final = {"days": 1, "weeks": 7}
_COMMON_DAY_MAX: Final = 28  # every month has that one
_AT: Final = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])(?::([0-5][0-9]))?")
_LAST_DAY: Final = date.max.toordinal()
_END_MONTH: Final = (LAST_YEAR + 1) * 12
_WORD_UNITS: Final = (
    ("day", DAY_S * NS),
    ("hour", 3_600 * NS),
    ("minute", 60 * NS),
    ("second", NS),
    ("millisecond", 1_000_000),
    ("microsecond", 1_000),
    ("nanosecond", 1),
)


class Every(Schedule):
    """Instants one period apart: anchor, anchor + period, anchor + 2 x period, ...

    The n-th is computed, never added up, so there is no drift; nothing comes before the
    anchor. Every question costs the same, however far away.

    Args:
        period_ns: from one to the next, in nanoseconds; positive.
        anchor_ns: the first, in nanoseconds since 1970.

    Raises:
        ArgumentError: one of them is not such an int.
    """

    __slots__ = ("anchor_ns", "period_ns")

    def __init__(self, period_ns: int, anchor_ns: int) -> None:
        if type(period_ns) is not int or not 0 < period_ns <= HORIZON_NS:
            raise ArgumentError(
                "period_ns", period_ns, "pass a positive number of nanoseconds"
            )
        if type(anchor_ns) is not int or not 0 <= anchor_ns <= HORIZON_NS:
            raise ArgumentError(
                "anchor_ns", anchor_ns, "pass nanoseconds since 1970, before 2262"
            )
        self.period_ns = period_ns
        self.anchor_ns = anchor_ns

    def next_ns(self, after_ns: int) -> Firing | None:
        """Return the first firing strictly after an instant; None if there is none."""
        periods = max((after_ns - self.anchor_ns) // self.period_ns + 1, 0)
        utc_ns = self.anchor_ns + periods * self.period_ns
        return Firing(utc_ns) if utc_ns <= HORIZON_NS else None

    def prev_ns(self, before_ns: int) -> Firing | None:
        """Return the last firing strictly before an instant; None if there is none."""
        last_ns = min(before_ns - 1, HORIZON_NS)
        periods = (last_ns - self.anchor_ns) // self.period_ns
        return (
            Firing(self.anchor_ns + periods * self.period_ns) if periods >= 0 else None
        )

    def count_ns(self, start_ns: int, end_ns: int) -> int:
        """Return how many firings there are from start up to, but not at, end."""
        return max(self._count_before(end_ns) - self._count_before(start_ns), 0)

    def explain(self) -> str:
        """Return the schedule in words."""
        start = instant_datetime(self.anchor_ns).replace(tzinfo=None).isoformat(" ")
        return (
            f"Every {duration_words(self.period_ns)}, counted from {start} UTC. Elapsed "
            "time: a clock change does not move it."
        )

    def __repr__(self) -> str:
        return f"Every({self.period_ns}, {self.anchor_ns})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Every):
            return NotImplemented
        return (self.period_ns, self.anchor_ns) == (other.period_ns, other.anchor_ns)

    def __hash__(self) -> int:
        return hash((self.period_ns, self.anchor_ns))

    def _count_before(self, end_ns: int) -> int:
        last_ns = min(end_ns - 1, HORIZON_NS)
        return max((last_ns - self.anchor_ns) // self.period_ns + 1, 0)


class CalendarEvery(WallSchedule):
    """A wall time every n days, weeks or months, counted from the day of the anchor.

    Args:
        interval: how many units from one day to the next; at least 1.
        unit: "days", "weeks" or "months".
        at: the wall time as "HH:MM" or "HH:MM:SS", or a time without zone.
        anchor: the first day. Its weekday or day of the month is that of all others;
            nothing comes before it.
        tz: an IANA zone name, or a ZoneInfo that has one.
        short_month: what a month does that has no such day: "skip", as cron and
            RFC 5545 do, or "clamp" to its last day.
        gap: what becomes of a time that the clock skips, as for Cron.
        overlap: which copy of a time counts that the clock shows twice, as for Cron.

    Raises:
        ArgumentError: one of them is none of that.
    """

    __slots__ = ("anchor", "at", "interval", "short_month", "unit")

    def __init__(
        self,
        interval: int,
        unit: Unit,
        *,
        at: str | time,
        anchor: date,
        tz: str | ZoneInfo = "UTC",
        short_month: ShortMonth = "skip",
        gap: GapRule = "after",
        overlap: OverlapRule = "first",
    ) -> None:
        if type(interval) is not int or not 1 <= interval <= INTERVAL_MAX:
            raise ArgumentError("interval", interval, f"pass 1 to {INTERVAL_MAX:,}")
        _check_word("unit", unit, get_args(Unit))
        _check_word("short_month", short_month, get_args(ShortMonth))
        if type(anchor) is not date:  # a datetime is one too, with a zone to lose
            raise ArgumentError(
                "anchor", anchor, "pass the date of the first day, as date(2026, 3, 2)"
            )
        at_s = _second_of_day(at)
        times = (
            _MonthTimes(interval, at_s, anchor=anchor, clamps=short_month == "clamp")
            if unit == "months"
            else _DayTimes(interval * _UNIT_DAYS[unit], at_s, anchor=anchor)
        )
        super().__init__(
            times, zone_named(tz), gap=gap, overlap=overlap, follows_clock=False
        )
        self.interval = interval
        self.unit = unit
        self.at = f"{at_s // 3_600:02}:{at_s // 60 % 60:02}:{at_s % 60:02}"
        self.anchor = anchor
        self.short_month = short_month

    def explain(self) -> str:
        """Return the schedule in words, with its rule for clock changes."""
        plural = self.interval > 1
        often = f"{self.interval} {self.unit}" if plural else self.unit[:-1]
        day = (
            f"{WEEKDAY_NAMES[self.anchor.isoweekday() % 7]}, {self.anchor.isoformat()}"
        )
        text = f"Every {often} at {self.at.removesuffix(':00')}, counted from {day}"
        if self.unit == "months" and self.anchor.day > _COMMON_DAY_MAX:
            skips = self.short_month == "skip"
            text += (
                f", {'skipping' if skips else 'on the last day of'} months without "
                f"a day {self.anchor.day}"
            )
        return f"{text}, {self.clock_words()}"

    def __repr__(self) -> str:
        return (
            f"CalendarEvery({self.interval}, {self.unit!r}, at={self.at!r}, "
            f"anchor={self.anchor!r}, tz={self.tz!r}, "
            f"short_month={self.short_month!r}, gap={self.gap!r}, "
            f"overlap={self.overlap!r})"
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, CalendarEvery):
            return NotImplemented
        return self._definition() == other._definition()

    def __hash__(self) -> int:
        return hash(self._definition())

    def __reduce__(self) -> tuple[object, ...]:
        interval, unit, facts = self._definition()
        return partial(CalendarEvery, interval, unit, **dict(facts)), ()

    def _definition(self) -> tuple[int, Unit, tuple[tuple[str, Any], ...]]:
        names = ("at", "anchor", "tz", "short_month", "gap", "overlap")
        facts = tuple((name, getattr(self, name)) for name in names)
        return self.interval, self.unit, facts


class _DayTimes:
    """Wall times at one second of every so many days, from a first day on."""

    def __init__(self, step: int, at_s: int, *, anchor: date) -> None:
        self._step_s = step * DAY_S
        self._first_s = (anchor.toordinal() - _EPOCH_DAY) * DAY_S + at_s

    def next_wall(self, wall_s: int) -> int:
        steps = max(-((self._first_s - wall_s) // self._step_s), 0)
        return self._first_s + steps * self._step_s

    def prev_wall(self, wall_s: int) -> int:
        steps = (wall_s - self._first_s) // self._step_s
        return self._first_s + steps * self._step_s if steps >= 0 else -NEVER_S

    def count_walls(self, start_s: int, end_s: int) -> int:
        return max(self._count_before(end_s) - self._count_before(start_s), 0)

    def _count_before(self, wall_s: int) -> int:
        return max((wall_s - 1 - self._first_s) // self._step_s + 1, 0)


class _MonthTimes:
    """Wall times at one second of one day of every so many months, from a first on.

    Months are numbered through from year 0, so that twelve of them are a year.
    """

    def __init__(self, step: int, at_s: int, *, anchor: date, clamps: bool) -> None:
        self._step = step
        self._at_s = at_s
        self._day = anchor.day
        self._first = anchor.year * 12 + anchor.month - 1
        self._clamps = clamps

    def next_wall(self, wall_s: int) -> int:
        steps = max(-((self._first - self._month_of(wall_s)) // self._step), 0)
        month = self._first + steps * self._step
        while month < _END_MONTH:
            found_s = self._wall_in(month)
            if found_s is not None and found_s >= wall_s:
                return found_s
            month += self._step
        return NEVER_S

    def prev_wall(self, wall_s: int) -> int:
        steps = (self._month_of(wall_s) - self._first) // self._step
        month = self._first + steps * self._step
        while month >= self._first:
            found_s = self._wall_in(month)
            if found_s is not None and found_s <= wall_s:
                return found_s
            month -= self._step
        return -NEVER_S

    def count_walls(self, start_s: int, end_s: int) -> int:
        total = 0
        found_s = self.next_wall(start_s)
        while found_s < end_s:
            total += 1
            found_s = self.next_wall(found_s + 1)
        return total

    def _wall_in(self, month: int) -> int | None:
        """Return the wall time in a month; None if it lacks the day."""
        year, index = divmod(month, 12)
        length = monthrange(year, index + 1)[1]
        if self._day > length and not self._clamps:
            return None
        day = date(year, index + 1, min(self._day, length)).toordinal() - _EPOCH_DAY
        return day * DAY_S + self._at_s

    @staticmethod
    def _month_of(wall_s: int) -> int:
        day = min(max(wall_s // DAY_S + _EPOCH_DAY, 1), _LAST_DAY)
        found = date.fromordinal(day)
        return found.year * 12 + found.month - 1


def duration_words(duration_ns: int) -> str:
    """Return a duration in words, such as "1 hour 30 minutes"; nothing is rounded."""
    parts = []
    for unit, unit_ns in _WORD_UNITS:
        number, duration_ns = divmod(duration_ns, unit_ns)
        if number:
            parts.append(f"{number} {unit}{'s' if number > 1 else ''}")
    return " ".join(parts) or "0 seconds"


def _check_word(argument: str, found: object, words: tuple[str, ...]) -> None:
    if found not in words:
        known = ", ".join(f'"{word}"' for word in words)
        raise ArgumentError(argument, found, f"pass one of {known}")


def _second_of_day(at: str | time) -> int:
    if isinstance(at, time) and at.tzinfo is None and not at.microsecond:
        return at.hour * 3_600 + at.minute * 60 + at.second
    match = _AT.fullmatch(at) if isinstance(at, str) else None
    if match is None:
        raise ArgumentError("at", at, 'pass "HH:MM", "HH:MM:SS" or a time without zone')
    hour, minute, second = match.groups(default="0")
    return int(hour) * 3_600 + int(minute) * 60 + int(second)
