"""Zones: their stretches against the data asked hour by hour, and their names."""

from __future__ import annotations

import random
import zoneinfo
from datetime import UTC, datetime, timedelta, tzinfo
from importlib import resources
from itertools import pairwise
from typing import Any

import pytest

from tests.jobs.oracle import OneChange, changes
from timingwheel.errors import ArgumentError
from timingwheel.jobs.zones import Stretch, Zone, zone_named

ZONES = sorted(zoneinfo.available_timezones() - {"localtime", "Factory"})
SHARDS = 8
SAMPLE = timedelta(days=3)  # what zones.py looks at


def stretches(zone: Zone, start: datetime, end: datetime) -> list[Stretch]:
    found = []
    at_s = int(start.timestamp())
    while at_s < end.timestamp():
        found.append(zone.stretch_at(at_s))
        assert found[-1].start_s <= at_s < found[-1].end_s
        at_s = found[-1].end_s
    return found


def check_zone(name: str, first_year: int, end_year: int) -> None:
    info = zoneinfo.ZoneInfo(name)
    start, end = (datetime(year, 1, 1, tzinfo=UTC) for year in (first_year, end_year))
    found = stretches(zone_named(name), start, end)
    ours = [
        datetime.fromtimestamp(right.start_s, UTC)
        for left, right in pairwise(found)
        if left.offset_s != right.offset_s
    ]
    assert ours == changes(info, start, end), name
    for stretch in found:
        middle = datetime.fromtimestamp((stretch.start_s + stretch.end_s) // 2, UTC)
        offset = middle.astimezone(info).utcoffset()
        assert offset == timedelta(seconds=stretch.offset_s)
    # Two samples fall into every stretch, so none is overlooked.
    assert all(b - a > 2 * SAMPLE for a, b in pairwise(ours)), name


def test_the_stretches_of_a_sample_of_zones_are_those_of_the_data(
    rng: random.Random,
) -> None:
    for name in rng.sample(ZONES, 10):
        check_zone(name, 2010, 2040)


@pytest.mark.long
@pytest.mark.parametrize("shard", range(SHARDS))
def test_the_stretches_of_every_zone_are_those_of_the_data(shard: int) -> None:
    for name in ZONES[shard::SHARDS]:
        check_zone(name, 1970, 2100)


def test_a_stretch_tells_of_the_gap_before_it() -> None:
    stretch = zone_named("Europe/Berlin").stretch_at(1_715_000_000)  # May 2024
    assert datetime.fromtimestamp(stretch.gap_at_s, UTC) == datetime(
        2024, 3, 31, 1, tzinfo=UTC
    )
    assert stretch.gap_at_s == stretch.start_s
    assert (stretch.gap_s, stretch.offset_s) == (3_600, 7_200)
    assert stretch.seen_wall_s == stretch.start_s + 7_200
    # The clock goes back at its end, and shows an hour again.
    assert stretch.again_wall_s == stretch.end_s + 3_600
    assert (stretch.tied_before, stretch.tied_after) == (False, True)


def test_a_stretch_tells_of_the_overlap_before_it() -> None:
    stretch = zone_named("Europe/Berlin").stretch_at(1_730_000_000)  # end of October
    assert datetime.fromtimestamp(stretch.start_s, UTC) == datetime(
        2024, 10, 27, 1, tzinfo=UTC
    )
    assert stretch.gap_s == 0
    assert stretch.seen_wall_s == stretch.start_s + 7_200
    assert stretch.tied_before


CUT_S = 53 << 25
"""Where a stretch ends though its offset goes on; so does the next, a chunk later."""
CHUNK_S = 1 << 25
HOUR_S = 3_600
TWO_DAYS_S = 2 * 86_400


def one_change(at_s: int, before_s: int, after_s: int) -> Zone:
    at = datetime.fromtimestamp(at_s, UTC)
    before, after = timedelta(seconds=before_s), timedelta(seconds=after_s)
    return Zone("one change", OneChange(at, before, after))


def plain(start_s: int, end_s: int, offset_s: int, **facts: Any) -> Stretch:
    """A stretch that no change touches, but for what is said."""
    quiet = Stretch(
        start_s,
        end_s,
        offset_s,
        gap_at_s=0,
        gap_s=0,
        seen_wall_s=start_s + offset_s,
        again_wall_s=end_s + offset_s,
        tied_before=False,
        tied_after=False,
    )
    return quiet._replace(**facts)


@pytest.mark.parametrize("at_s", [CUT_S + 90 * 86_400, CUT_S + CHUNK_S - TWO_DAYS_S])
@pytest.mark.parametrize("by_s", [1, HOUR_S, 3 * HOUR_S - 1])
def test_a_clock_that_jumps_ahead_leaves_a_gap(at_s: int, by_s: int) -> None:
    zone = one_change(at_s, HOUR_S, HOUR_S + by_s)
    end_s = CUT_S + CHUNK_S
    assert zone.stretch_at(at_s - 1) == plain(CUT_S, at_s, HOUR_S)
    assert zone.stretch_at(at_s) == plain(
        at_s, end_s, HOUR_S + by_s, gap_at_s=at_s, gap_s=by_s
    )
    assert zone.stretch_at(end_s) == plain(end_s, end_s + CHUNK_S, HOUR_S + by_s)


@pytest.mark.parametrize("by_s", [1, HOUR_S, 3 * HOUR_S - 1])
def test_a_clock_that_goes_back_shows_times_again(by_s: int) -> None:
    at_s, end_s = CUT_S + 90 * 86_400, CUT_S + CHUNK_S
    zone = one_change(at_s, by_s, 0)
    assert zone.stretch_at(at_s - 1) == plain(
        CUT_S, at_s, by_s, again_wall_s=at_s, tied_after=True
    )
    assert zone.stretch_at(at_s) == plain(
        at_s, end_s, 0, seen_wall_s=at_s + by_s, tied_before=True
    )


def test_a_change_of_three_hours_is_no_daylight_saving() -> None:
    at_s, end_s = CUT_S + 90 * 86_400, CUT_S + CHUNK_S
    ahead = one_change(at_s, 0, 3 * HOUR_S)
    assert ahead.stretch_at(at_s - 1) == plain(CUT_S, at_s, 0)
    assert ahead.stretch_at(at_s) == plain(at_s, end_s, 3 * HOUR_S)
    back = one_change(at_s, 3 * HOUR_S, 0)
    assert back.stretch_at(at_s - 1) == plain(CUT_S, at_s, 3 * HOUR_S, tied_after=True)
    assert back.stretch_at(at_s) == plain(at_s, end_s, 0, tied_before=True)


@pytest.mark.parametrize("left_s", [HOUR_S + 1, HOUR_S, HOUR_S - 1, 1, 0])
def test_what_is_said_of_a_gap_holds_past_a_cut_as_long_as_it_reaches(
    left_s: int,
) -> None:
    """So many seconds before the cut the clock jumps ahead by an hour."""
    at_s, start_s = CUT_S - left_s, CUT_S - CHUNK_S
    zone = one_change(at_s, 0, HOUR_S)
    assert zone.stretch_at(at_s - 1) == plain(start_s, at_s, 0)
    gap = {"gap_at_s": at_s, "gap_s": HOUR_S}
    reaches = left_s < HOUR_S
    if left_s:
        assert zone.stretch_at(at_s) == plain(
            at_s, CUT_S, HOUR_S, **gap, tied_after=reaches
        )
    assert zone.stretch_at(CUT_S) == plain(
        CUT_S, CUT_S + CHUNK_S, HOUR_S, **(gap if reaches else {})
    )


@pytest.mark.parametrize("left_s", [HOUR_S + 1, HOUR_S, HOUR_S - 1, 1, 0])
def test_what_is_said_of_times_shown_twice_holds_past_a_cut_too(left_s: int) -> None:
    """So many seconds before the cut, and after it, the clock goes back by an hour."""
    at_s = CUT_S - left_s
    before = one_change(at_s, HOUR_S, 0)
    assert before.stretch_at(CUT_S) == plain(
        *(CUT_S, CUT_S + CHUNK_S, 0),
        seen_wall_s=max(CUT_S, at_s + HOUR_S),
        tied_before=True,
    )
    at_s = CUT_S + left_s
    after = one_change(at_s, HOUR_S, 0)
    assert after.stretch_at(CUT_S - 1) == plain(
        *(CUT_S - CHUNK_S, CUT_S, HOUR_S),
        again_wall_s=min(CUT_S + HOUR_S, at_s),
        tied_after=True,
    )


def test_stretches_are_tied_within_two_days_of_a_clock_that_goes_back() -> None:
    for left_s in (0, TWO_DAYS_S - 1, TWO_DAYS_S + 1):
        zone = one_change(CUT_S - left_s, HOUR_S, 0)
        assert zone.stretch_at(CUT_S).tied_before == (left_s < TWO_DAYS_S)
        zone = one_change(CUT_S + left_s, HOUR_S, 0)
        assert zone.stretch_at(CUT_S - 1).tied_after == (left_s < TWO_DAYS_S)


class Steps(tzinfo):
    """A clock with several changes: from when on it is how far ahead of UTC."""

    def __init__(self, *steps: tuple[int, int]) -> None:
        self.steps = steps
        self.shown = timedelta(0)

    def fromutc(self, moment: datetime) -> datetime:
        utc_s = moment.replace(tzinfo=UTC).timestamp()
        offset_s = [offset_s for at_s, offset_s in self.steps if at_s <= utc_s][-1]
        self.shown = timedelta(seconds=offset_s)
        return moment + self.shown

    def utcoffset(self, _: datetime | None) -> timedelta:
        return self.shown

    def dst(self, _: datetime | None) -> None:
        return None

    def tzname(self, _: datetime | None) -> str:
        return "steps"


def test_a_stretch_between_two_changes_tells_of_both() -> None:
    """The first by four hours, and so no daylight saving; all three go back."""
    month_s = 30 * 86_400
    first, second, third = (CUT_S + n * month_s for n in (1, 2, 3))
    zone = Zone(
        "steps",
        Steps((0, 4 * HOUR_S), (first, 0), (second, -HOUR_S), (third, -2 * HOUR_S)),
    )
    assert zone.stretch_at(first) == plain(
        *(first, second, 0),
        again_wall_s=second - HOUR_S,
        tied_before=True,
        tied_after=True,
    )
    assert zone.stretch_at(second) == plain(
        *(second, third, -HOUR_S),
        seen_wall_s=second,
        again_wall_s=third - 2 * HOUR_S,
        tied_before=True,
        tied_after=True,
    )


class Counted(OneChange):
    """Counts how often it is asked."""

    asked = 0

    def utcoffset(self, moment: datetime | None) -> timedelta:
        self.asked += 1
        return super().utcoffset(moment)


def test_a_chunk_is_sampled_once() -> None:
    info = Counted(datetime.fromtimestamp(CUT_S, UTC), timedelta(0), timedelta(hours=1))
    zone = Zone("counted", info)
    stretch = zone.stretch_at(CUT_S + 1)
    asked = info.asked
    assert asked > CHUNK_S // (3 * 86_400)
    assert zone.stretch_at(stretch.end_s - 1) is stretch
    assert info.asked == asked


def test_one_zone_is_learned_once() -> None:
    assert zone_named("Europe/Berlin") is zone_named("Europe/Berlin")
    assert zone_named(zoneinfo.ZoneInfo("Europe/Berlin")) is zone_named("Europe/Berlin")


@pytest.mark.parametrize(
    ("name", "close"),
    [
        ("Europe/Berln", "Europe/Berlin"),
        ("europe/berlin", "Europe/Berlin"),
        ("Berlin", "Europe/Berlin"),
        ("new york", "America/New_York"),
        ("America/NewYork", "America/New_York"),
        ("Asia/Calcuta", "Asia/Calcutta"),
        ("UTC+2", "Etc/GMT-2"),
        ("+02:00", "Etc/GMT-2"),
        ("GMT-11", "Etc/GMT+11"),
        ("utc ", "UTC"),
        ("Buenos Aires", "America/Argentina/Buenos_Aires"),
    ],
)
def test_an_unknown_name_is_refused_with_what_comes_close(
    name: str, close: str
) -> None:
    with pytest.raises(ArgumentError) as refused:
        zone_named(name)
    assert refused.value.argument == "tz"
    assert refused.value.found == name
    assert f"did you mean {close}" in str(refused.value)


@pytest.mark.parametrize(
    "name",
    [
        *("", "/", "..", "../../etc/passwd", "/etc/localtime", "Europe", "Europe/"),
        *("zone.tab", "tzdata.zi", "localtime", "posixrules", "Factory", "\0", "UTC\0"),
        *("right/Europe/Berlin", "posix/Europe/Berlin", "\ud800", "x" * 10_000),
        *("Nowhere/Atall", ".", "Europe/Berlin/"),
    ],
)
def test_what_is_no_zone_is_refused_whatever_it_is(name: str) -> None:
    with pytest.raises(ArgumentError, match="no such time zone"):
        zone_named(name)


def test_where_nothing_comes_close_the_form_of_a_name_is_shown() -> None:
    with pytest.raises(ArgumentError) as refused:
        zone_named("Nowhere/Atall")
    assert refused.value.fix == (
        "no such time zone; pass an IANA name, such as Europe/Berlin"
    )


@pytest.mark.parametrize("value", [None, 1, b"UTC", UTC, timedelta(hours=1)])
def test_what_is_no_name_is_refused(value: object) -> None:
    with pytest.raises(ArgumentError, match="pass an IANA zone name") as refused:
        zone_named(value)  # type: ignore[arg-type]
    assert (refused.value.argument, refused.value.found) == ("tz", value)


def test_a_zone_without_a_name_cannot_be_stored() -> None:
    data = resources.files("tzdata") / "zoneinfo" / "UTC"
    with data.open("rb") as file:
        nameless = zoneinfo.ZoneInfo.from_file(file)
    with pytest.raises(ArgumentError, match="has a name") as refused:
        zone_named(nameless)
    assert (refused.value.argument, refused.value.found) == ("tz", nameless)


def test_every_zone_of_the_data_is_known() -> None:
    assert [name for name in ZONES if zone_named(name).name != name] == []
