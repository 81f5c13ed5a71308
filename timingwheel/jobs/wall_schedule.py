"""Where times of the wall clock fall on the time line: the rule for gaps and overlaps.

When a zone moves its clock ahead, some wall times never come (a gap); when it moves it
back, some come twice (an overlap). The rule is cronie's, after Vixie cron:

- A schedule that *follows the clock* fires whenever the clock shows one of its times:
  never in a gap, both times in an overlap.
- One of *fixed times* fires once for each: for times in a gap at the gap's end
  (`gap="after"`; "skip" drops them, "shift" moves them by the gap's length), in an
  overlap at the first copy (`overlap="first"`; "second" and "both" are as they say).
- A change of three hours and more is no daylight saving. Then both kinds fire when the
  clock shows their time: nothing on a day that a country skipped.

All comparing is done in UTC; each wall time is turned into an instant by the offset of
its own stretch, so instants rise strictly whatever the clock does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, Protocol, get_args

from timingwheel.errors import ArgumentError
from timingwheel.jobs.schedule import HORIZON_NS, NS, DstMark, Firing, Schedule
from timingwheel.jobs.zones import DAY_S, Stretch, Zone

GapRule = Literal["after", "skip", "shift"]
OverlapRule = Literal["first", "second", "both"]

HORIZON_S: Final = HORIZON_NS // NS
NEVER_S: Final = 1 << 62
"""A wall time past all others: what a search returns that finds none (backwards: the
same below zero)."""
# No wall clock is a day ahead of or behind UTC, and no gap moves a time beyond that: a
# wall time w falls within a day of the instant w.
_NEAR_S: Final = DAY_S

_NEVER_CHANGED: Final = {"UTC", "Etc/UTC"}
_GAP_WORDS: Final[Mapping[GapRule, str]] = {
    "after": "runs once, when the gap ends",
    "skip": "does not run",
    "shift": "runs later by the length of the gap",
}
_OVERLAP_WORDS: Final[Mapping[OverlapRule, str]] = {
    "first": "runs once, the first time",
    "second": "runs once, the second time",
    "both": "runs both times",
}


class WallTimes(Protocol):
    """A set of wall times, in seconds since 1970 as the wall clock shows them."""

    def next_wall(self, wall_s: int) -> int:
        """Return the first of them at or after a wall time, else NEVER_S."""

    def prev_wall(self, wall_s: int) -> int:
        """Return the last of them at or before a wall time, else -NEVER_S."""

    def count_walls(self, start_s: int, end_s: int) -> int:
        """Return how many there are from start up to, but not at, end."""


class WallSchedule(Schedule):
    """The instants at which a zone's clock shows one of a set of wall times.

    Args:
        walls: the wall times.
        zone: whose clock.
        gap: what becomes of a fixed time that the clock skips.
        overlap: which copy of a fixed time counts that the clock shows twice.
        follows_clock: whether neither is asked: it fires when the clock shows it.

    Attributes:
        tz: the name of the zone.
        gap: as passed.
        overlap: as passed.
        follows_clock: as passed.

    Raises:
        ArgumentError: gap or overlap is none of the words.
    """

    __slots__ = (
        "_moves",
        "_skips_first",
        "_skips_second",
        "_walls",
        "_zone",
        "follows_clock",
        "gap",
        "overlap",
        "tz",
    )

    def __init__(
        self,
        walls: WallTimes,
        zone: Zone,
        *,
        gap: GapRule,
        overlap: OverlapRule,
        follows_clock: bool,
    ) -> None:
        for argument, found, words in (
            ("gap", gap, GapRule),
            ("overlap", overlap, OverlapRule),
        ):
            if found not in get_args(words):
                known = ", ".join(f'"{word}"' for word in get_args(words))
                raise ArgumentError(argument, found, f"pass one of {known}")
        self._walls = walls
        self._zone = zone
        self.tz = zone.name
        self.gap = gap
        self.overlap = overlap
        self.follows_clock = follows_clock
        self._moves = not follows_clock and gap != "skip"
        self._skips_second = not follows_clock and overlap == "first"
        self._skips_first = not follows_clock and overlap == "second"

    def next_ns(self, after_ns: int) -> Firing | None:
        """Return the first firing strictly after an instant; None if there is none.

        Cost: a look-up of the stretch and of the wall time, whatever lies between.
        """
        return self._next(max(after_ns // NS + 1, 0))

    def prev_ns(self, before_ns: int) -> Firing | None:
        """Return the last firing strictly before an instant; None if there is none.

        Cost: as `next_ns`.
        """
        return self._prev(min(-(-before_ns // NS) - 1, HORIZON_S))

    def count_ns(self, start_ns: int, end_ns: int) -> int:
        """Return how many firings there are from start up to, but not at, end.

        Cost: grows with the years between, not with what is counted.
        """
        total = 0
        at_s = max(-(-start_ns // NS), 0)
        end_s = min(-(-end_ns // NS), HORIZON_S + 1)
        while at_s < end_s:
            stretch = self._zone.stretch_at(at_s)
            stop_s = min(end_s, stretch.end_s)
            total += self._count_in(stretch, at_s, stop_s)
            at_s = stop_s
        return total

    def clock_words(self) -> str:
        """Return in words whose clock it is, and what a change of that clock does."""
        if self.tz in _NEVER_CHANGED:
            return f"{self.tz} time."
        if self.follows_clock:
            return (
                f"{self.tz} time. It follows the clock: nothing in an hour that the "
                "clock skips, and both copies of one that it shows twice."
            )
        return (
            f"{self.tz} time. A time that the clock skips {_GAP_WORDS[self.gap]}; one "
            f"that it shows twice {_OVERLAP_WORDS[self.overlap]}."
        )

    def _next(self, at_s: int) -> Firing | None:
        """Return the first firing at or after a second."""
        while at_s <= HORIZON_S:
            stretch = self._zone.stretch_at(at_s)
            offset_s, end_s = stretch.offset_s, stretch.end_s
            low_s, high_s = at_s + offset_s, end_s + offset_s
            if self._skips_second and low_s < stretch.seen_wall_s:
                low_s = stretch.seen_wall_s
            if self._skips_first and high_s > stretch.again_wall_s:
                high_s = stretch.again_wall_s
            wall_s = self._walls.next_wall(low_s)
            if self._moves and at_s <= stretch.gap_at_s + stretch.gap_s:
                moved_s = self._next_moved(stretch, at_s)
                if moved_s < wall_s - offset_s:
                    return _firing(moved_s, DstMark.SHIFTED)
            if wall_s < high_s:
                return _firing(wall_s - offset_s, _mark(stretch, wall_s))
            at_s = end_s
            # Unless the clock goes back, nothing comes before that wall time: jump.
            if not stretch.tied_after:
                at_s = max(at_s, wall_s - _NEAR_S)
        return None

    def _prev(self, at_s: int) -> Firing | None:
        """Return the last firing at or before a second."""
        while at_s >= 0:
            stretch = self._zone.stretch_at(at_s)
            offset_s, start_s = stretch.offset_s, stretch.start_s
            low_s, high_s = start_s + offset_s, at_s + offset_s
            if self._skips_second and low_s < stretch.seen_wall_s:
                low_s = stretch.seen_wall_s
            if self._skips_first and high_s >= stretch.again_wall_s:
                high_s = stretch.again_wall_s - 1
            wall_s = self._walls.prev_wall(high_s)
            if self._moves and stretch.gap_s:
                moved_s = self._prev_moved(stretch, at_s)
                if moved_s > wall_s - offset_s:
                    return _firing(moved_s, DstMark.SHIFTED)
            if wall_s >= low_s:
                return _firing(wall_s - offset_s, _mark(stretch, wall_s))
            at_s = start_s - 1
            # Unless the clock went back, nothing comes after that wall time: jump.
            if not stretch.tied_before:
                at_s = min(at_s, wall_s + _NEAR_S)
        return None

    def _next_moved(self, stretch: Stretch, at_s: int) -> int:
        """Return the first instant from `at` that stands for a time in the gap."""
        end_wall_s = stretch.gap_at_s + stretch.offset_s  # the first after the gap
        start_wall_s = end_wall_s - stretch.gap_s
        if self.gap == "after":
            if at_s > stretch.gap_at_s:
                return NEVER_S
            in_gap = self._walls.next_wall(start_wall_s) < end_wall_s
            return stretch.gap_at_s if in_gap else NEVER_S
        before_s = stretch.offset_s - stretch.gap_s  # the offset before the gap
        wall_s = self._walls.next_wall(max(start_wall_s, at_s + before_s))
        # Past a chunk's end the next stretch speaks for the same gap.
        if wall_s < end_wall_s and wall_s - before_s < stretch.end_s:
            return wall_s - before_s
        return NEVER_S

    def _prev_moved(self, stretch: Stretch, at_s: int) -> int:
        """Return the last instant up to `at` that stands for a time in the gap."""
        end_wall_s = stretch.gap_at_s + stretch.offset_s
        start_wall_s = end_wall_s - stretch.gap_s
        before_s = stretch.offset_s - stretch.gap_s
        last_wall_s = end_wall_s - 1
        if self.gap == "shift":
            last_wall_s = min(last_wall_s, at_s + before_s)
        wall_s = self._walls.prev_wall(last_wall_s)
        if wall_s < start_wall_s:
            return -NEVER_S
        moved_s = stretch.gap_at_s if self.gap == "after" else wall_s - before_s
        return moved_s if moved_s >= stretch.start_s else -NEVER_S

    def _count_in(self, stretch: Stretch, at_s: int, stop_s: int) -> int:
        """Return how many firings a stretch has from `at` up to, not at, `stop`."""
        total = 0
        if self._moves and stretch.gap_s:
            # Here moved times and others may meet in one instant: take them singly.
            width_s = 1 if self.gap == "after" else stretch.gap_s
            moved_end_s = min(stretch.gap_at_s + width_s, stop_s)
            while at_s < moved_end_s:
                firing = self._next(at_s)
                if firing is None or firing.utc_ns >= moved_end_s * NS:
                    at_s = moved_end_s
                else:
                    total += 1
                    at_s = firing.utc_ns // NS + 1
        low_s, high_s = at_s + stretch.offset_s, stop_s + stretch.offset_s
        if self._skips_second:
            low_s = max(low_s, stretch.seen_wall_s)
        if self._skips_first:
            high_s = min(high_s, stretch.again_wall_s)
        return total + self._walls.count_walls(low_s, high_s)


def _firing(utc_s: int, mark: DstMark) -> Firing | None:
    return Firing(utc_s * NS, mark) if utc_s <= HORIZON_S else None


def _mark(stretch: Stretch, wall_s: int) -> DstMark:
    if wall_s < stretch.seen_wall_s:
        return DstMark.SECOND
    if wall_s >= stretch.again_wall_s:
        return DstMark.FIRST
    return DstMark.NONE
