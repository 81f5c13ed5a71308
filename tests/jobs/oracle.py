"""When a plain wall-clock schedule fires, found the slow way and by other means.

Nothing of timingwheel is used here, and no parser: a plan is sets of numbers, and its
instants come from trying every minute, through the `fold` of the standard library.
Minutes are enough, as all offsets since 1972 are of whole minutes.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo
from itertools import product
from typing import Literal

MINUTE = timedelta(minutes=1)
DAY = timedelta(days=1)
DST_END = timedelta(hours=3)
Gap = Literal["after", "skip", "shift"]
Overlap = Literal["first", "second", "both"]
GAPS: tuple[Gap, ...] = ("after", "skip", "shift")
OVERLAPS: tuple[Overlap, ...] = ("first", "second", "both")
POLICIES = tuple(product(GAPS, OVERLAPS))


@dataclass(frozen=True)
class Plan:
    """A cron expression and, as sets, what it means."""

    expression: str
    minutes: frozenset[int]
    hours: frozenset[int]
    on_day: Callable[[date], bool]
    follows_clock: bool

    def matches(self, wall: datetime) -> bool:
        return (
            wall.minute in self.minutes
            and wall.hour in self.hours
            and self.on_day(wall.date())
        )


@dataclass(frozen=True)
class Moment:
    """One wall time of a plan: where it falls under each rule."""

    after: tuple[datetime, ...]
    skip: tuple[datetime, ...]
    shift: tuple[datetime, ...]
    first: tuple[datetime, ...]
    second: tuple[datetime, ...]
    both: tuple[datetime, ...]

    def under(self, gap: str, overlap: str) -> set[datetime]:
        return {*getattr(self, gap), *getattr(self, overlap)}


def firings(
    plan: Plan, zone: tzinfo, start: datetime, end: datetime
) -> dict[tuple[Gap, Overlap], list[datetime]]:
    """Return the firings in [start, end) under each (gap, overlap)."""
    if plan.follows_clock:
        found = [
            moment
            for moment in minutes(start, end)
            if plan.matches(moment.astimezone(zone))
        ]
        return dict.fromkeys(POLICIES, found)
    placed = [placing(wall, zone) for wall in walls(plan, start - DAY, end + DAY)]
    return {
        (gap, overlap): sorted(
            moment
            for moment in set().union(*(p.under(gap, overlap) for p in placed))
            if start <= moment < end
        )
        for gap, overlap in POLICIES
    }


def minutes(start: datetime, end: datetime) -> Iterator[datetime]:
    moment = start
    while moment < end:
        yield moment
        moment += MINUTE


def walls(plan: Plan, start: datetime, end: datetime) -> Iterator[datetime]:
    day = start.date()
    while day <= end.date():
        if plan.on_day(day):
            for hour, minute in product(sorted(plan.hours), sorted(plan.minutes)):
                yield datetime(day.year, day.month, day.day, hour, minute)  # noqa: DTZ001
        day += DAY


def placing(wall: datetime, zone: tzinfo) -> Moment:
    """Return where a wall time falls, by what PEP 495 says of its two folds."""
    early = wall.replace(tzinfo=zone, fold=0).astimezone(UTC)
    late = wall.replace(tzinfo=zone, fold=1).astimezone(UTC)
    if early == late:
        return Moment((early,), (early,), (early,), (), (), ())
    if late > early:  # it comes twice
        if late - early >= DST_END:
            return Moment((), (), (), (early, late), (early, late), (early, late))
        return Moment((), (), (), (early,), (late,), (early, late))
    if early - late >= DST_END:  # it never comes
        return Moment((), (), (), (), (), ())
    gap_end = next(
        moment
        for moment in minutes(late, early + MINUTE)
        if moment.astimezone(zone).replace(tzinfo=None) > wall
    )
    return Moment((gap_end,), (), (early,), (), (), ())


def mark_of(plan: Plan, zone: tzinfo, moment: datetime) -> str:
    """Return what a change of offset did to a firing."""
    wall = moment.astimezone(zone)
    if not plan.matches(wall):
        return "shifted"
    early = wall.replace(fold=0).astimezone(UTC)
    late = wall.replace(fold=1).astimezone(UTC)
    if timedelta(0) < late - early < DST_END:
        return "second of two" if moment == late else "first of two"
    return ""


def changes(zone: tzinfo, start: datetime, end: datetime) -> list[datetime]:
    """Return when the offset changes, looked at every six hours."""
    found = []
    step = timedelta(hours=6)
    left, before = start, start.astimezone(zone).utcoffset()
    while left < end:
        right = left + step
        after = right.astimezone(zone).utcoffset()
        if after != before:
            low, high = left, right
            while high - low > timedelta(seconds=1):
                middle = (low + (high - low) / 2).replace(microsecond=0)
                if middle.astimezone(zone).utcoffset() == after:
                    high = middle
                else:
                    low = middle
            found.append(high)
        left, before = right, after
    return found


def random_plan(rng: random.Random, near: datetime) -> Plan:
    """Return a plan that likely fires in the hours around a wall time."""
    minute_text, minute_set = _minutes(rng)
    hour_text, hour_set = _hours(rng, near.hour)
    day_text, on_day = _days(rng, near.date())
    return Plan(
        expression=f"{minute_text} {hour_text} {day_text}",
        minutes=frozenset(minute_set),
        hours=frozenset(hour_set),
        on_day=on_day,
        follows_clock=minute_text.startswith("*") or hour_text.startswith("*"),
    )


def _minutes(rng: random.Random) -> tuple[str, set[int]]:
    kind = rng.randrange(6)
    if kind == 0:
        step = rng.choice([1, 5, 7, 15, 20, 30])
        return (f"*/{step}" if step > 1 else "*"), set(range(0, 60, step))
    if kind == 1:
        first, step = rng.choice([0, 3, 15]), rng.choice([10, 15, 29])
        return f"{first}-59/{step}", set(range(first, 60, step))
    chosen = set(rng.sample(range(0, 60, rng.choice([1, 15, 30])), rng.choice([1, 2])))
    return ",".join(map(str, chosen)), chosen


def _hours(rng: random.Random, hour: int) -> tuple[str, set[int]]:
    kind = rng.randrange(6)
    if kind == 0:
        step = rng.choice([1, 2, 3])
        return (f"*/{step}" if step > 1 else "*"), set(range(0, 24, step))
    if kind == 1:
        return "0-23", set(range(24))
    around = [(hour + ahead) % 24 for ahead in range(-4, 4)]
    chosen = set(rng.sample(around, rng.choice([1, 1, 2, 3])))
    return ",".join(map(str, chosen)), chosen


def _days(rng: random.Random, day: date) -> tuple[str, Callable[[date], bool]]:
    weekday = (day.isoweekday() + rng.choice([-1, 0, 0, 1])) % 7
    match rng.randrange(6):
        case 0:
            return f"* * {weekday}", lambda d: d.isoweekday() % 7 == weekday
        case 1:
            return f"{day.day} * *", lambda d: d.day == day.day
        case 2:
            return (
                f"{day.day} * {weekday}",
                lambda d: d.day == day.day or d.isoweekday() % 7 == weekday,
            )
        case 3:
            return f"* {day.month} *", lambda d: d.month == day.month
    return "* * *", lambda _: True


class OneChange(tzinfo):
    """A zone whose offset changes once, where a test wants it."""

    def __init__(self, at: datetime, before: timedelta, after: timedelta) -> None:
        self.at = at.replace(tzinfo=None)
        self.before = before
        self.after = after

    def utcoffset(self, moment: datetime | None) -> timedelta:
        assert moment is not None
        wall = moment.replace(tzinfo=None, fold=0)
        # PEP 495: where both or neither offset serves, the fold chooses.
        choices = [self.before, self.after]
        fitting = [
            offset
            for offset in choices
            if (wall - offset >= self.at) == (offset is self.after)
        ]
        return fitting[0] if len(fitting) == 1 else choices[moment.fold]

    def dst(self, _: datetime | None) -> None:
        return None

    def tzname(self, _: datetime | None) -> str:
        return "one change"

    def fromutc(self, moment: datetime) -> datetime:
        utc = moment.replace(tzinfo=None)
        offset = self.after if utc >= self.at else self.before
        wall = (utc + offset).replace(tzinfo=self)
        is_second = self.utcoffset(wall) != offset
        return wall.replace(fold=1 if is_second else 0)
