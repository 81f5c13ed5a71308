"""Zones: their stretches against the data asked hour by hour, and their names."""

from __future__ import annotations

import random
import zoneinfo
from datetime import UTC, datetime, timedelta
from importlib import resources
from itertools import pairwise

import pytest

from tests.jobs.oracle import changes
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


def test_one_zone_is_learned_once() -> None:
    assert zone_named("Europe/Berlin") is zone_named("Europe/Berlin")
    assert zone_named(zoneinfo.ZoneInfo("Europe/Berlin")) is zone_named("Europe/Berlin")


def test_the_digest_changes_with_the_data_and_only_with_it() -> None:
    start, end = 1_750_000_000, 1_900_000_000
    digests = {
        name: zone_named(name).digest(start, end)
        for name in ("UTC", "Europe/Berlin", "Europe/Vienna", "America/New_York")
    }
    assert digests["Europe/Berlin"] == digests["Europe/Vienna"]
    assert len(set(digests.values())) == 3
    again = Zone("again", zoneinfo.ZoneInfo("Europe/Berlin"))
    assert again.digest(start, end) == digests["Europe/Berlin"]
    # Asking for another time first cuts the calendar at other places.
    assert again.digest(start + 1, end) != digests["Europe/Berlin"]


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


@pytest.mark.parametrize("value", [None, 1, b"UTC", UTC, timedelta(hours=1)])
def test_what_is_no_name_is_refused(value: object) -> None:
    with pytest.raises(ArgumentError, match="pass an IANA zone name"):
        zone_named(value)  # type: ignore[arg-type]


def test_a_zone_without_a_name_cannot_be_stored() -> None:
    data = resources.files("tzdata") / "zoneinfo" / "UTC"
    with data.open("rb") as file:
        nameless = zoneinfo.ZoneInfo.from_file(file)
    with pytest.raises(ArgumentError, match="has a name"):
        zone_named(nameless)


def test_every_zone_of_the_data_is_known() -> None:
    assert [name for name in ZONES if zone_named(name).name != name] == []
