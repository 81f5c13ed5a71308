"""Time zones as stretches of one offset, so that the rest is integer arithmetic.

`zoneinfo` answers what the offset is at an instant; a schedule needs to know when it
changes next. A zone is therefore cut, a year or so at a time and only where someone
asks, into stretches between changes, found by sampling and bisection and kept for ever.
What counts is a change of the offset alone: the is-DST flag says the opposite in Dublin
and nothing at all where a country moves its standard time.

The data is what `zoneinfo` finds: the system's, else that of the `tzdata` package.
"""

from __future__ import annotations

import re
import zoneinfo
from bisect import bisect_right
from collections.abc import Iterable
from datetime import datetime, timedelta, tzinfo
from difflib import get_close_matches
from functools import cache
from itertools import pairwise
from typing import Final, NamedTuple

from timingwheel.errors import ArgumentError

DAY_S: Final = 86_400
DST_SHIFT_END_S: Final = 3 * 3_600
"""A change of offset of so much or more is no daylight saving: clocks moved for good,
or a country crossed the date line. The bound is cronie's."""

_CHUNK_BITS: Final = 25  # 388 days are looked through together
# The shortest stretch of any zone from 1969 to 2100 is just under 7 days (Gaza, Recife
# and Noronha), so no sample misses one; the tests check that for the data they find.
_SAMPLE_S: Final = 3 * DAY_S
# The ends of a chunk may cut through an overlap or a gap: at most a day, and some.
_MARGIN_S: Final = 2 * DAY_S
_NO_ZONES: Final = {"localtime", "posixrules", "Factory"}  # another thing on each host
_OFFSET: Final = re.compile(r"(?:UTC|GMT)?([+-])0?(\d{1,2})(?::?00)?", re.IGNORECASE)
_SUGGESTIONS_MAX: Final = 3


class Stretch(NamedTuple):
    """A span of time in which a zone keeps one offset.

    Wall times are seconds since 1970 as the wall clock shows them: utc_s + offset_s.
    Where a chunk ends, a stretch ends too though the offset goes on; what is said of
    changes nearby holds there as well.

    Attributes:
        start_s: its first instant.
        end_s: the first instant after it.
        offset_s: what the wall clock is ahead of UTC.
        gap_at_s: when the clock last jumped ahead, if that touches this stretch.
        gap_s: by how much it did; 0 if none touches it.
        seen_wall_s: the first wall time that the clock had not shown before; later
            than the stretch's first one after an overlap.
        again_wall_s: the first wall time that the clock will show again; the one after
            the stretch's last if none.
        tied_before: whether the clock went back when it began or within two days
            before, so that a search backwards must look at the stretch before: wall
            times from there can be later than those from here.
        tied_after: the same for its end and a search forwards; or the length of the
            gap reaches past the end, and times in the gap may be moved there.
    """

    start_s: int
    end_s: int
    offset_s: int
    gap_at_s: int
    gap_s: int
    seen_wall_s: int
    again_wall_s: int
    tied_before: bool
    tied_after: bool


class _Change(NamedTuple):
    at_s: int
    before_s: int
    after_s: int


class Zone:
    """One time zone; get it by `zone_named`, which keeps what it has learned.

    Stretches of a chunk follow each other without a hole, the first starting where the
    chunk does. A chunk is never changed once it is kept, so threads need no lock: at
    worst, two find the same one.
    """

    __slots__ = ("_chunks", "_info", "name")

    def __init__(self, name: str, info: tzinfo) -> None:
        self.name = name
        self._info = info
        self._chunks: dict[int, tuple[list[int], list[Stretch]]] = {}

    def stretch_at(self, utc_s: int) -> Stretch:
        """Return the stretch that holds an instant.

        Cost: a bisection; the first question about a year samples it, some 0.2 ms.
        """
        number = utc_s >> _CHUNK_BITS
        chunk = self._chunks.get(number)
        if chunk is None:
            chunk = self._chunks[number] = self._cut(number)
        starts, stretches = chunk
        return stretches[bisect_right(starts, utc_s) - 1]

    def offset_s(self, utc_s: int) -> int:
        """Return what the wall clock is ahead of UTC at an instant, asking the data."""
        offset = datetime.fromtimestamp(utc_s, self._info).utcoffset()
        assert offset is not None
        return offset // timedelta(seconds=1)

    def _cut(self, number: int) -> tuple[list[int], list[Stretch]]:
        start_s, end_s = number << _CHUNK_BITS, (number + 1) << _CHUNK_BITS
        changes = list(self._changes(start_s - _MARGIN_S, end_s + _MARGIN_S))
        inside = [change.at_s for change in changes if start_s < change.at_s < end_s]
        edges = [start_s, *inside, end_s]
        stretches = [
            _stretch(left, right, offset_s=self.offset_s(left), changes=changes)
            for left, right in pairwise(edges)
        ]
        return edges[:-1], stretches

    def _changes(self, start_s: int, end_s: int) -> Iterable[_Change]:
        low_s, before_s = start_s, self.offset_s(start_s)
        while low_s < end_s:
            high_s = min(low_s + _SAMPLE_S, end_s)
            after_s = self.offset_s(high_s)
            if after_s != before_s:
                yield _Change(
                    self._first_with(after_s, low_s, high_s), before_s, after_s
                )
            low_s, before_s = high_s, after_s

    def _first_with(self, offset_s: int, low_s: int, high_s: int) -> int:
        """Return the first instant in (low, high] that has the offset which high has."""
        while high_s - low_s > 1:
            middle_s = (low_s + high_s) // 2
            if self.offset_s(middle_s) == offset_s:
                high_s = middle_s
            else:
                low_s = middle_s
        return high_s


def _stretch(
    start_s: int, end_s: int, *, offset_s: int, changes: Iterable[_Change]
) -> Stretch:
    gap_at_s = gap_s = 0
    seen_wall_s, again_wall_s = start_s + offset_s, end_s + offset_s
    tied_before = tied_after = False
    for at_s, before_s, after_s in changes:
        ahead_s = after_s - before_s
        is_before = at_s <= start_s
        if ahead_s < 0:
            tied_before |= is_before and at_s >= start_s - _MARGIN_S
            tied_after |= end_s <= at_s <= end_s + _MARGIN_S
        if abs(ahead_s) >= DST_SHIFT_END_S:
            continue
        if ahead_s < 0 and is_before:
            seen_wall_s = max(seen_wall_s, at_s + before_s)
        elif ahead_s < 0:
            again_wall_s = min(again_wall_s, at_s + after_s)
        elif is_before and (at_s == start_s or at_s + ahead_s > start_s):
            gap_at_s, gap_s = at_s, ahead_s
            tied_after |= at_s + ahead_s > end_s
    return Stretch(
        start_s=start_s,
        end_s=end_s,
        offset_s=offset_s,
        gap_at_s=gap_at_s,
        gap_s=gap_s,
        seen_wall_s=seen_wall_s,
        again_wall_s=again_wall_s,
        tied_before=tied_before,
        tied_after=tied_after,
    )


def zone_named(tz: str | zoneinfo.ZoneInfo) -> Zone:
    """Return a zone by its IANA name, or by a ZoneInfo that has one.

    Raises:
        ArgumentError: there is no such zone; the message names those that come close.
    """
    if isinstance(tz, zoneinfo.ZoneInfo):
        if tz.key is None:
            raise ArgumentError("tz", tz, "pass a zone that has a name to be stored")
        tz = tz.key
    if type(tz) is not str:
        raise ArgumentError("tz", tz, 'pass an IANA zone name such as "Europe/Berlin"')
    return _zone(tz)


@cache  # a refused name is not kept, and there are 600 others
def _zone(name: str) -> Zone:
    if name in _NO_ZONES or name.startswith(("right/", "posix/")):
        raise _unknown(name)
    try:
        info = zoneinfo.ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        # Not found; not a path below the data; a directory or an unreadable file.
        raise _unknown(name) from None
    return Zone(name, info)


def _unknown(name: str) -> ArgumentError:
    close = _suggestions(name)
    hint = f"did you mean {' or '.join(close)}?" if close else "such as Europe/Berlin"
    return ArgumentError("tz", name, f"no such time zone; pass an IANA name, {hint}")


def _suggestions(name: str) -> list[str]:
    """Return the names closest to what was asked for, the closest first."""
    if offset := _OFFSET.fullmatch(name):
        # POSIX counts westwards: Etc/GMT-2 is two hours ahead of UTC.
        sign = "-" if offset[1] == "+" else "+"
        return [f"Etc/GMT{sign}{int(offset[2])}"]
    known = zoneinfo.available_timezones() - _NO_ZONES
    asked = name.casefold().replace(" ", "_")
    by_text: dict[str, str] = {}
    for zone in sorted(known):
        by_text[zone.casefold()] = zone
        by_text.setdefault(zone.casefold().rpartition("/")[2], zone)
    close = get_close_matches(asked, by_text, n=2 * _SUGGESTIONS_MAX, cutoff=0.7)
    return list(dict.fromkeys(by_text[text] for text in close))[:_SUGGESTIONS_MAX]
