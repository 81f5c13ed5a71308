"""Cron: times of the wall clock by fields, in a time zone, as a pure schedule.

    minute hour day-of-month month day-of-week        30 2 * * MON-FRI

with a second before (6 fields) and a year after (7). Extensions: names, steps, ranges
that wrap around (`FRI-MON`, `22-4`), `L`, `L-3`, `LW`, `15W`, `5L`, `MON#2`, `H`, `?`
and macros such as `@daily`. Meaning is cronie's where cronie has one; docs/cron.md says
where others differ. What a stored expression means never changes between releases.
"""

from __future__ import annotations

from typing import Final
from zoneinfo import ZoneInfo

from timingwheel.errors import CronError
from timingwheel.jobs.cron_fields import parse
from timingwheel.jobs.cron_times import CronTimes
from timingwheel.jobs.cron_words import words
from timingwheel.jobs.wall_schedule import NEVER_S, GapRule, OverlapRule, WallSchedule
from timingwheel.jobs.zones import zone_named

_PLAIN: Final = {"tz": "UTC", "gap": "after", "overlap": "first", "hash_key": None}


class Cron(WallSchedule):
    """A cron expression in a time zone.

    Two of equal arguments are equal. One can be pickled, shared by threads, and asked
    at any instant from 1970 to 2262; asking changes nothing. It follows the clock if
    its second, minute or hour field begins with `*`; else its times are fixed, and gap
    and overlap say what a clock change does to them.

    Args:
        expression: 5, 6 or 7 fields, or a macro.
        tz: an IANA zone name, or a ZoneInfo that has one.
        gap: what a fixed time does that the clock skips: run once at the gap's end
            ("after"), not at all ("skip"), or later by the gap's length ("shift").
        overlap: which copy of a fixed time runs that the clock shows twice.
        hash_key: what `H` is computed from, such as the job's name. The same key gives
            the same times for ever.

    Raises:
        CronError: the expression is invalid, or no time ever matches it.
        ArgumentError: unknown zone, gap or overlap.

    Source: the rule for clock changes is that of cronie, after Vixie cron.
    """

    __slots__ = ("_fields", "expression", "hash_key")

    def __init__(
        self,
        expression: str,
        tz: str | ZoneInfo = "UTC",
        *,
        gap: GapRule = "after",
        overlap: OverlapRule = "first",
        hash_key: str | None = None,
    ) -> None:
        fields = parse(expression, hash_key)
        times = CronTimes(
            fields.seconds,
            fields.minutes,
            hours=fields.hours,
            days=fields.days,
            years=fields.years,
        )
        super().__init__(
            times,
            zone_named(tz),
            gap=gap,
            overlap=overlap,
            follows_clock=fields.follows_clock,
        )
        self.expression = expression
        self.hash_key = hash_key
        self._fields = fields
        # With named years a clock change can leave nothing; without, no calendar does.
        if times.next_wall(-NEVER_S) == NEVER_S or (
            not fields.any_year and self.next_ns(-1) is None
        ):
            raise CronError(
                expression,
                "whole",
                piece="",
                code="never-matches",
                found="never matches any date",
                fix="write days that its months and years have",
            )

    def explain(self) -> str:
        """Return the schedule in words, with its rule for clock changes."""
        return f"{words(self._fields)}, {self.clock_words()}"

    def __repr__(self) -> str:
        given = (
            f", {name}={getattr(self, name)!r}"
            for name, plain in _PLAIN.items()
            if getattr(self, name) != plain
        )
        return f"Cron({self.expression!r}{''.join(given)})"

    def _definition(self) -> tuple[str, str, GapRule, OverlapRule, str | None]:
        return self.expression, self.tz, self.gap, self.overlap, self.hash_key

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Cron):
            return NotImplemented
        return self._definition() == other._definition()

    def __hash__(self) -> int:
        return hash(self._definition())

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuilt, self._definition()


def _rebuilt(
    expression: str, tz: str, gap: GapRule, overlap: OverlapRule, hash_key: str | None
) -> Cron:
    return Cron(expression, tz, gap=gap, overlap=overlap, hash_key=hash_key)
