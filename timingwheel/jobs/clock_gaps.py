"""What a schedule loses where the clock skips its time and `gap="skip"` lets it.

The same rule in UTC, whose clock never changes, has every wall time as an instant; those
between the two ends of a gap are what the clock has skipped there.
"""

from __future__ import annotations

from collections.abc import Iterator

from timingwheel.jobs.model import SkipReason
from timingwheel.jobs.planning import PlannedSkip
from timingwheel.jobs.schedule import HORIZON_NS, NS, Schedule
from timingwheel.jobs.zones import zone_named


def skipped_by_clock(
    in_utc: Schedule, tz: str, start_ns: int, end_ns: int
) -> Iterator[PlannedSkip]:
    """Return, gap by gap, the times that the clock of a zone skips, start .. end.

    Args:
        in_utc: the schedule, by the clock of UTC.
        tz: the zone.
        start_ns: changes of the clock from here
        end_ns: up to, but not at, here.

    Returns:
        Instants at which the clock would have shown them had it not moved.

    Cost: one look at each change of the zone's offset between, some two a year.
    """
    zone = zone_named(tz)
    start_s = max(-(-start_ns // NS), 0)
    end_s = -(-min(end_ns, HORIZON_NS) // NS)
    at_s = start_s
    while at_s < end_s:
        stretch = zone.stretch_at(at_s)
        if stretch.gap_s and stretch.gap_at_s == stretch.start_s >= start_s:
            wall_s = stretch.gap_at_s + stretch.offset_s
            low_ns, high_ns = (wall_s - stretch.gap_s) * NS, wall_s * NS
            first, last = in_utc.next_ns(low_ns - 1), in_utc.prev_ns(high_ns)
            if first is not None and last is not None and first.utc_ns < high_ns:
                before_ns = (stretch.offset_s - stretch.gap_s) * NS
                yield PlannedSkip(
                    SkipReason.DST,
                    first.utc_ns - before_ns,
                    last.utc_ns - before_ns,
                    in_utc.count_ns(low_ns, high_ns),
                )
        at_s = stretch.end_s
