"""`every`: an interval as it is written by hand, by elapsed time or by the calendar.

    every(hours=168)                                    168 hours apart, whatever clocks do
    every(days=7, at="16:00", tz="Europe/Berlin")       at 16:00, even after a change
    every(months=1, at="09:00", anchor=date(2026, 1, 31), short_month="clamp")

`at` is what makes the difference: with it a day is one of the calendar, without it 24
hours.
"""

from __future__ import annotations

from datetime import date, datetime, time
from typing import Final
from zoneinfo import ZoneInfo

from timingwheel.errors import ArgumentError
from timingwheel.jobs.durations import duration_ns
from timingwheel.jobs.every import CalendarEvery, ShortMonth, Unit
from timingwheel.jobs.schedule import HORIZON_NS, NS, instant_ns
from timingwheel.jobs.triggers import EveryCalendar, EveryPeriod
from timingwheel.jobs.wall_schedule import GapRule, OverlapRule

PERIOD_MIN_NS: Final = 1_000_000
"""The shortest period, 1 ms: each occurrence is a run with its own durable record."""

_UNITS_S: Final = {
    "weeks": 604_800,
    "days": 86_400,
    "hours": 3_600,
    "minutes": 60,
    "seconds": 1,
}
_HORIZON_S: Final = HORIZON_NS // NS
_ANY_DAY: Final = date(1970, 1, 1)


def every(
    *,
    months: int | None = None,
    weeks: float | None = None,
    days: float | None = None,
    hours: float | None = None,
    minutes: float | None = None,
    seconds: float | None = None,
    at: str | time | None = None,
    tz: str | ZoneInfo | None = None,
    anchor: date | datetime | None = None,
    short_month: ShortMonth = "skip",
    gap: GapRule = "after",
    overlap: OverlapRule = "first",
) -> EveryPeriod | EveryCalendar:
    """Return an interval for `every=`.

    Args:
        months: so many calendar months; needs `at`.
        weeks: with `at` calendar weeks, a whole number; without, 168 hours each.
        days: with `at` calendar days, a whole number; without, 24 hours each.
        hours: elapsed time, as minutes and seconds; without `at` all are added up.
        minutes: as hours.
        seconds: as hours.
        at: a wall time as "HH:MM" or "HH:MM:SS".
        tz: the IANA zone of `at`; None: that of the job, else UTC.
        anchor: where counting begins: with `at` the first day, without it the first
            instant, an aware datetime. None: when the job is put, or its start.
        short_month: what months without the anchor's day do, "skip" or "clamp".
        gap: what a time does that the clock skips, as for Cron.
        overlap: which copy of a time counts that the clock shows twice, as for Cron.

    Raises:
        ArgumentError: one of them is none of that, or they do not go together.
    """
    amounts = {
        "months": months,
        "weeks": weeks,
        "days": days,
        "hours": hours,
        "minutes": minutes,
        "seconds": seconds,
    }
    given = {name: value for name, value in amounts.items() if value is not None}
    if not given:
        raise ArgumentError("every", None, "pass how often, such as hours=6 or days=1")
    if at is None:
        for name, value, plain in (
            *(("tz", tz, None), ("short_month", short_month, "skip")),
            *(("gap", gap, "after"), ("overlap", overlap, "first")),
        ):
            if value != plain:
                raise ArgumentError(
                    name, value, "it needs at=, a time of the wall clock"
                )
        return _elapsed(given, anchor)
    return _by_calendar(
        given,
        at,
        tz=tz,
        anchor=anchor,
        short_month=short_month,
        gap=gap,
        overlap=overlap,
    )


def period_rule(period_ns: int, found: object) -> EveryPeriod:
    """Return the rule of a period, if it is not too short.

    Raises:
        ArgumentError: it is below PERIOD_MIN_NS; `found` is what was passed.
    """
    if period_ns < PERIOD_MIN_NS:
        raise ArgumentError("every", found, "pass a period of at least 1 ms")
    return EveryPeriod(period_ns)


def _elapsed(given: dict[str, float], anchor: object) -> EveryPeriod:
    if "months" in given:
        raise ArgumentError(
            "months", given["months"], 'months differ in length; add at="HH:MM"'
        )
    seconds: float = 0
    for name, value in given.items():
        # NaN is not at least 0 either.
        if type(value) not in (int, float) or not value >= 0:
            raise ArgumentError(name, value, "pass a number, 0 or more")
        if value > _HORIZON_S:  # some ints are no float, and cannot be added to one
            raise ArgumentError(
                name, value, "times end in the year 2262; pass a shorter period"
            )
        seconds += value * _UNITS_S[name]
    words = ", ".join(f"{name}={value}" for name, value in given.items())
    rule = period_rule(duration_ns(seconds, "every"), words)
    if anchor is None:
        return rule
    if not isinstance(anchor, datetime):
        raise ArgumentError("anchor", anchor, "without at=, pass an aware datetime")
    return EveryPeriod(rule.period_ns, instant_ns(anchor, "anchor"))


def _by_calendar(
    given: dict[str, float],
    at: str | time,
    *,
    tz: str | ZoneInfo | None,
    anchor: object,
    short_month: ShortMonth,
    gap: GapRule,
    overlap: OverlapRule,
) -> EveryCalendar:
    units: tuple[Unit, ...] = ("months", "weeks", "days")
    found = [(unit, given[unit]) for unit in units if unit in given]
    if len(found) != 1 or len(given) != 1:
        raise ArgumentError(
            "every", ", ".join(given), "with at=, pass one of months=, weeks=, days="
        )
    [(unit, interval)] = found
    if type(interval) is not int:
        raise ArgumentError(unit, interval, "with at=, pass a whole number")
    if anchor is not None and type(anchor) is not date:
        raise ArgumentError(
            "anchor", anchor, "with at=, pass the date of the first day"
        )
    # Built once here, so that what is invalid is refused where it was written.
    checked = CalendarEvery(
        interval,
        unit,
        at=at,
        anchor=_ANY_DAY,  # whichever it is, it is one
        tz="UTC" if tz is None else tz,
        short_month=short_month,
        gap=gap,
        overlap=overlap,
    )
    return EveryCalendar(
        interval=interval,
        unit=unit,
        at=checked.at,
        tz=checked.tz,
        anchor=anchor.isoformat() if isinstance(anchor, date) else None,
        short_month=short_month,
        gap=gap,
        overlap=overlap,
    )
