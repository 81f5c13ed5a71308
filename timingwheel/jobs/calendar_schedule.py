"""A schedule with the excluded days of a calendar left out, or rolled.

    skip        an occurrence on an excluded day does not run
    next        it runs on the next business day, at the same time of the clock
    previous    it runs on the previous business day, at the same time of the clock

Occurrences that meet in one instant are one. The other schedule is asked and never gone
through: what is excluded is subtracted, run of days by run of days, so that nothing costs
more with the years that pass without an excluded day.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Literal

from timingwheel.jobs.calendar_days import CalendarDays, DayRun
from timingwheel.jobs.model import SkipReason
from timingwheel.jobs.planning import PlannedSkip
from timingwheel.jobs.schedule import HORIZON_NS, Firing, Schedule

_EVERY: Final = 1 << 62  # as a limit: all of them


class SkippingCalendar(Schedule):
    """The firings of another schedule that are not on excluded days.

    Args:
        schedule: the other one.
        days: which are excluded.
        name: of the calendar, for `explain`.

    Cost: a question costs one to the other schedule for each run of excluded days that
    it meets; `count_ns` meets all between its bounds.
    """

    __slots__ = ("_days", "_schedule", "name")

    def __init__(self, schedule: Schedule, days: CalendarDays, *, name: str) -> None:
        self._schedule = schedule
        self._days = days
        self.name = name

    def next_ns(self, after_ns: int) -> Firing | None:
        """Return the first firing strictly after an instant; None if there is none."""
        firing = self._schedule.next_ns(after_ns)
        while firing is not None:
            day = self._days.day_of(firing.utc_ns)
            if not self._days.is_excluded(day):
                return firing
            end = self._days.next_open(day)
            firing = self._schedule.next_ns(self._days.start_ns(end) - 1)
        return None

    def prev_ns(self, before_ns: int) -> Firing | None:
        """Return the last firing strictly before an instant; None if there is none."""
        firing = self._schedule.prev_ns(before_ns)
        while firing is not None:
            day = self._days.day_of(firing.utc_ns)
            if not self._days.is_excluded(day):
                return firing
            first = self._days.prev_open(day) + 1
            firing = self._schedule.prev_ns(self._days.start_ns(first))
        return None

    def count_ns(self, start_ns: int, end_ns: int) -> int:
        """Return how many firings there are from start up to, but not at, end."""
        spans = self._excluded_spans(start_ns, end_ns)
        removed = sum(self._schedule.count_ns(*span) for span in spans)
        return self._schedule.count_ns(start_ns, end_ns) - removed

    def excluded(self, start_ns: int, end_ns: int) -> PlannedSkip | None:
        """Return what the calendar removes from start up to, but not at, end.

        One range from the first to the last of it: what runs between is not counted.

        Cost: as `count_ns`.
        """
        first_ns = last_ns = count = 0
        for low_ns, high_ns in self._excluded_spans(start_ns, end_ns):
            if inside := self._schedule.count_ns(low_ns, high_ns):
                first, last = (
                    self._schedule.next_ns(low_ns - 1),
                    self._schedule.prev_ns(high_ns),
                )
                assert first is not None
                assert last is not None
                first_ns = first_ns if count else first.utc_ns
                last_ns = last.utc_ns
                count += inside
        if not count:
            return None
        return PlannedSkip(SkipReason.CALENDAR, first_ns, last_ns, count)

    def explain(self) -> str:
        """Return the schedule in words."""
        return (
            f"{self._schedule.explain()} Nothing on days that the calendar "
            f'"{self.name}" excludes.'
        )

    def _excluded_spans(self, start_ns: int, end_ns: int) -> Iterator[tuple[int, int]]:
        return excluded_spans(self._days, start_ns, end_ns)


class RollingCalendar(Schedule):
    """The firings of another schedule, those of excluded days moved to business days.

    The time of the clock stays, in the zone whose days are counted.

    Args:
        schedule: the other one.
        days: which are excluded.
        roll: where to.
        name: of the calendar, for `explain`.

    Cost: a question goes through the other schedule's firings of one run of excluded
    days; `count_ns` through those of all between its bounds.
    """

    __slots__ = ("_days", "_forward", "_schedule", "name")

    def __init__(
        self,
        schedule: Schedule,
        days: CalendarDays,
        *,
        roll: Literal["next", "previous"],
        name: str,
    ) -> None:
        self._schedule = schedule
        self._days = days
        self._forward = roll == "next"
        self.name = name

    def next_ns(self, after_ns: int) -> Firing | None:
        """Return the first firing strictly after an instant; None if there is none."""
        if after_ns >= HORIZON_NS:
            return None
        after_ns = max(after_ns, -1)
        day = self._days.next_open(self._days.day_of(after_ns))
        firing = self._first_in(day, after_ns)
        if firing is None:
            # Whatever comes up to there has gone to this day or to one before it.
            end = day + 1 if self._forward else self._days.next_open(day + 1)
            later = self._schedule.next_ns(self._days.start_ns(end) - 1)
            if later is not None:
                target = self._target(self._days.day_of(later.utc_ns))
                firing = self._first_in(target, after_ns)
        return firing

    def prev_ns(self, before_ns: int) -> Firing | None:
        """Return the last firing strictly before an instant; None if there is none."""
        if before_ns <= 0:
            return None
        before_ns = min(before_ns, HORIZON_NS + 1)
        day = self._days.prev_open(self._days.day_of(before_ns - 1))
        firing = self._last_in(day, before_ns)
        if firing is None:
            first = self._days.prev_open(day - 1) + 1 if self._forward else day
            earlier = self._schedule.prev_ns(self._days.start_ns(first))
            if earlier is not None:
                target = self._target(self._days.day_of(earlier.utc_ns))
                firing = self._last_in(target, before_ns)
        return firing

    def count_ns(self, start_ns: int, end_ns: int) -> int:
        """Return how many firings there are from start up to, but not at, end."""
        start_ns, end_ns = max(start_ns, 0), min(end_ns, HORIZON_NS + 1)
        if start_ns >= end_ns:
            return 0
        total = self._schedule.count_ns(start_ns, end_ns)
        first, last = self._days.day_of(start_ns), self._days.day_of(end_ns - 1)
        # A run just outside can roll into the bounds.
        first, last = self._days.prev_open(first - 1), self._days.next_open(last + 1)
        for run in self._days.closed_runs(first + 1, last - 1):
            low_ns = max(self._days.start_ns(run.first), start_ns)
            high_ns = min(self._days.start_ns(run.end), end_ns)
            if low_ns < high_ns:
                total -= self._schedule.count_ns(low_ns, high_ns)
            for moved in self._moved(run):
                at_ns = moved.utc_ns
                is_inside = start_ns <= at_ns < end_ns
                if is_inside and not self._schedule.count_ns(at_ns, at_ns + 1):
                    total += 1
        return total

    def explain(self) -> str:
        """Return the schedule in words."""
        where = "next" if self._forward else "previous"
        return (
            f"{self._schedule.explain()} On a day that the calendar "
            f'"{self.name}" excludes it runs on the {where} business day instead, at '
            "the same time."
        )

    def _target(self, day: int) -> int:
        """Return the day on which the firings of a day run."""
        return self._days.next_open(day) if self._forward else self._days.prev_open(day)

    def _run_of(self, day: int) -> DayRun:
        """Return the days in a row, maybe none, whose firings move to an open day."""
        if self._forward:
            return DayRun(self._days.prev_open(day - 1) + 1, day)
        return DayRun(day + 1, self._days.next_open(day + 1))

    def _moved(self, run: DayRun) -> list[Firing]:
        """Return when the firings of a run of excluded days run, in order."""
        target = run.end if self._forward else run.first - 1
        start_ns, end_ns = self._days.start_ns(run.first), self._days.start_ns(run.end)
        moved: dict[int, Firing] = {}
        for firing in self._schedule.between_ns(start_ns, end_ns, limit=_EVERY):
            there = self._days.instant_on(target, firing.utc_ns)
            if 0 <= there.utc_ns <= HORIZON_NS:
                moved.setdefault(there.utc_ns, there)
        return [moved[at_ns] for at_ns in sorted(moved)]

    def _first_in(self, day: int, after_ns: int) -> Firing | None:
        """Return the first firing of an open day that is after an instant."""
        start_ns, end_ns = self._days.start_ns(day), self._days.start_ns(day + 1)
        own = self._schedule.next_ns(max(after_ns, start_ns - 1))
        found = [own] if own is not None and own.utc_ns < end_ns else []
        found += [f for f in self._moved(self._run_of(day)) if f.utc_ns > after_ns]
        # Where two meet in one instant, min takes the one that was not moved.
        return min(found, key=_at_ns, default=None)

    def _last_in(self, day: int, before_ns: int) -> Firing | None:
        """Return the last firing of an open day that is before an instant."""
        start_ns, end_ns = self._days.start_ns(day), self._days.start_ns(day + 1)
        own = self._schedule.prev_ns(min(before_ns, end_ns))
        found = [own] if own is not None and own.utc_ns >= start_ns else []
        found += [f for f in self._moved(self._run_of(day)) if f.utc_ns < before_ns]
        return max(found, key=_at_ns, default=None)


def excluded_spans(
    days: CalendarDays, start_ns: int, end_ns: int
) -> Iterator[tuple[int, int]]:
    """Return the parts of start .. end that lie on excluded days, in order."""
    start_ns, end_ns = max(start_ns, 0), min(end_ns, HORIZON_NS + 1)
    if start_ns >= end_ns:
        return
    for run in days.closed_runs(days.day_of(start_ns), days.day_of(end_ns - 1)):
        low_ns = max(days.start_ns(run.first), start_ns)
        high_ns = min(days.start_ns(run.end), end_ns)
        if low_ns < high_ns:
            yield low_ns, high_ns


def _at_ns(firing: Firing) -> int:
    return firing.utc_ns
