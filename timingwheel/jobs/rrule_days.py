"""The days of a recurrence rule, year by year, expanded by python-dateutil.

dateutil can only go through a rule from its beginning, and for one that rarely or never
comes it goes on to the year 9999. It is therefore asked for one year, or one month, at a
time: with an interval past its last year it looks at that one and stops. The phase of
the interval, which it then does not know, is arithmetic of ours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import date, datetime
from typing import Final

from timingwheel.errors import MissingExtraError
from timingwheel.jobs.rrule_fields import WEEK_DAYS, RuleFields

_ONE_YEAR: Final = "FREQ=YEARLY;INTERVAL=10000"
_ONE_MONTH: Final = "FREQ=MONTHLY;INTERVAL=120000"
_ALL_DAYS: Final = ",".join(WEEK_DAYS)
_MONTHS: Final = range(1, 13)

Expand = Callable[..., Iterable[datetime]]


class RuleDays:
    """The days that a rule has, from the day of its start on and before it as well.

    Args:
        fields: the rule.
        start: DTSTART.

    Raises:
        MissingExtraError: python-dateutil is not installed.
    """

    __slots__ = ("_by_year", "_expand", "_fields", "_filters", "_start")

    def __init__(self, fields: RuleFields, start: datetime) -> None:
        self._fields = fields
        self._start = start
        self._expand = _dateutil()
        self._filters = _filters(fields, start)
        self._by_year: dict[int, int] = {}

    def of_year(self, year: int) -> int:
        """Return the days of a year as bits, bit 0 being 1 January.

        Cost: one expansion the first time, some 0.2 ms; kept for ever after.
        """
        days = self._by_year.get(year)
        if days is None:
            days = self._by_year[year] = self._expanded(year)
        return days

    def _expanded(self, year: int) -> int:
        fields = self._fields
        if fields.frequency == "YEARLY":
            if (year - self._start.year) % fields.interval:
                return 0
            return self._bits(_ONE_YEAR, [datetime(year, 1, 1)])  # noqa: DTZ001 - a wall time
        if fields.frequency == "MONTHLY":
            first = self._start.year * 12 + self._start.month
            firsts = [
                datetime(year, month, 1)  # noqa: DTZ001 - a wall time
                for month in _MONTHS
                if (year * 12 + month - first) % fields.interval == 0
            ]
            return self._bits(_ONE_MONTH, firsts)
        days = self._bits(_ONE_YEAR, [datetime(year, 1, 1)])  # noqa: DTZ001 - a wall time
        return self._in_phase(days, year)

    def _bits(self, frequency: str, firsts: Iterable[datetime]) -> int:
        bits = 0
        for first in firsts:
            new_year = date(first.year, 1, 1).toordinal()
            for moment in self._expand(f"{frequency};{self._filters}", dtstart=first):
                bits |= 1 << (moment.toordinal() - new_year)
        return bits

    def _in_phase(self, days: int, year: int) -> int:
        """Return those days of a year that the interval of days or weeks meets."""
        fields = self._fields
        if fields.interval == 1 or fields.is_within_days:
            return days
        new_year = date(year, 1, 1).toordinal()
        origin = self._period_of(self._start.toordinal())
        kept = 0
        while days:
            bit = days & -days
            days ^= bit
            period = self._period_of(new_year + bit.bit_length() - 1)
            if (period - origin) % fields.interval == 0:
                kept |= bit
        return kept

    def _period_of(self, ordinal: int) -> int:
        """Return the number of a day, or of the week that holds it."""
        if self._fields.frequency == "WEEKLY":
            return (ordinal - 1 - self._fields.week_start) // 7  # day 1 was a Monday
        return ordinal


def _filters(fields: RuleFields, start: datetime) -> str:
    """Return the fields that choose days, those that the start implies written out."""
    chosen = dict(fields.day_fields)
    has_days = bool(chosen.keys() - {"BYMONTH"})
    if not has_days:
        match fields.frequency:
            case "YEARLY":
                chosen.setdefault("BYMONTH", str(start.month))
                chosen["BYMONTHDAY"] = str(start.day)
            case "MONTHLY":
                chosen["BYMONTHDAY"] = str(start.day)
            case "WEEKLY":
                chosen["BYDAY"] = WEEK_DAYS[start.weekday()]
    if fields.frequency not in ("YEARLY", "MONTHLY"):
        chosen.setdefault("BYDAY", _ALL_DAYS)  # else a year would have one day
    chosen["WKST"] = WEEK_DAYS[fields.week_start]
    if fields.positions:
        chosen["BYSETPOS"] = fields.positions
    return ";".join(f"{name}={value}" for name, value in chosen.items())


def _dateutil() -> Expand:
    try:
        from dateutil.rrule import rrulestr  # type: ignore[import-untyped]
    except ImportError as error:
        raise MissingExtraError(
            "rrule= needs python-dateutil: pip install 'timingwheel-engine[rrule]'"
        ) from error
    expand: Expand = rrulestr
    return expand
