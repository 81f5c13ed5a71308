"""Gaps and overlaps: every zone and every change of offset against brute force."""

from __future__ import annotations

import random
import zoneinfo
from bisect import bisect_left, bisect_right
from datetime import UTC, datetime, timedelta, tzinfo
from functools import cache
from itertools import pairwise

import pytest

from tests.jobs.oracle import (
    DAY,
    POLICIES,
    OneChange,
    Plan,
    changes,
    firings,
    mark_of,
    random_plan,
)
from timingwheel.errors import ArgumentError
from timingwheel.jobs.cron import Cron
from timingwheel.jobs.cron_fields import parse
from timingwheel.jobs.cron_times import CronTimes
from timingwheel.jobs.schedule import HORIZON_NS, NS, DstMark, Firing, instant_ns
from timingwheel.jobs.wall_schedule import (
    NEVER_S,
    GapRule,
    OverlapRule,
    WallSchedule,
)
from timingwheel.jobs.zones import DST_SHIFT_END_S, Zone, zone_named

SHARDS = 16
AROUND = timedelta(days=2)
CHUNK_S = 1 << 25
ZONES = sorted(zoneinfo.available_timezones() - {"localtime", "Factory"})


class Bare(WallSchedule):
    """The rule alone."""

    def explain(self) -> str:
        return self.clock_words()


def check(
    plan: Plan, zone: tzinfo, near: datetime, *, rng: random.Random, ours: Zone
) -> None:
    """Compare all that a schedule answers within two days of a moment."""
    start, end = near - AROUND, near + AROUND
    fields = parse(plan.expression, None)
    times = CronTimes(
        fields.seconds,
        fields.minutes,
        hours=fields.hours,
        days=fields.days,
        years=fields.years,
    )
    for (gap, overlap), expected in firings(plan, zone, start, end).items():
        schedule = Bare(
            times, ours, gap=gap, overlap=overlap, follows_clock=plan.follows_clock
        )
        story = f"{plan.expression} {ours.name} {near} gap={gap} overlap={overlap}"
        assert fields.follows_clock == plan.follows_clock, story
        check_answers(schedule, expected, start, end=end, rng=rng, story=story)
        found = schedule.between_ns(ns(start), ns(end), limit=10_000)
        marks = [mark_of(plan, zone, moment) for moment in expected]
        assert [firing.mark for firing in found] == marks, story
        backwards = [schedule.prev_ns(firing.utc_ns + 1) for firing in found]
        assert backwards == found, story
        if plan.follows_clock:
            break  # the policies have no say


def check_answers(
    schedule: WallSchedule,
    expected: list[datetime],
    start: datetime,
    *,
    end: datetime,
    rng: random.Random,
    story: str,
) -> None:
    assert schedule.between(start, end, limit=10_000) == expected, story
    backwards = []
    moment = schedule.prev(end)
    while moment is not None and moment >= start:
        backwards.append(moment)
        moment = schedule.prev(moment)
    assert backwards[::-1] == expected, story
    assert schedule.count(start, end) == len(expected), story
    for _ in range(5):
        a, b = sorted(start + (end - start) * rng.random() for _ in range(2))
        inside = [moment for moment in expected if a <= moment < b]
        assert schedule.count(a, b) == len(inside), story
        later = [moment for moment in expected if moment > a]
        assert not later or schedule.next(a) == later[0], story
        earlier = [moment for moment in expected if moment < a]
        assert not earlier or schedule.prev(a) == earlier[-1], story


def ns(moment: datetime) -> int:
    return instant_ns(moment, "moment")


def changes_of(name: str, first_year: int, last_year: int) -> list[datetime]:
    return changes(
        zoneinfo.ZoneInfo(name),
        datetime(first_year, 1, 1, tzinfo=UTC),
        datetime(last_year + 1, 1, 1, tzinfo=UTC),
    )


def check_change(name: str, near: datetime, rng: random.Random, plans: int) -> None:
    zone = zoneinfo.ZoneInfo(name)
    for _ in range(plans):
        plan = random_plan(rng, near.astimezone(zone))
        check(plan, zone, near, rng=rng, ours=zone_named(name))


def test_a_sample_of_zones_and_changes_equals_brute_force(rng: random.Random) -> None:
    checked = 0
    for name in rng.sample(ZONES, len(ZONES)):
        year = rng.randrange(2024, 2038)
        for near in changes_of(name, year, year):
            check_change(name, near, rng, plans=2)
            checked += 1
        if checked >= 30:
            break
    assert checked >= 30


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("Antarctica/Troll", "2026-03-29T01:00Z"),  # a gap of two hours
        ("Antarctica/Troll", "2026-10-25T01:00Z"),
        ("Australia/Lord_Howe", "2026-10-03T15:30Z"),  # of half an hour
        ("Australia/Lord_Howe", "2026-04-04T15:00Z"),
        ("Africa/Cairo", "2026-04-23T22:00Z"),  # at midnight
        ("America/Santiago", "2026-04-05T03:00Z"),
        ("America/Scoresbysund", "2024-03-31T01:00Z"),  # one year, the other way round
        ("Pacific/Apia", "2011-12-30T10:00Z"),  # a day is skipped
        ("Pacific/Kwajalein", "1993-08-21T12:00Z"),
        ("Antarctica/Casey", "2010-03-04T15:00Z"),  # exactly three hours back
        ("Antarctica/Casey", "2018-10-06T20:00Z"),  # and ahead
        ("America/Caracas", "2016-05-01T07:00Z"),
        ("Asia/Pyongyang", "2018-05-04T15:00Z"),
        ("Europe/Dublin", "2026-10-25T01:00Z"),
        ("Africa/Casablanca", "2026-02-15T02:00Z"),
    ],
)
def test_the_strangest_changes_equal_brute_force(
    name: str, near: str, rng: random.Random
) -> None:
    check_change(name, datetime.fromisoformat(near), rng, plans=8)


def plan_at(hours: list[int], minutes: list[int]) -> Plan:
    texts = (",".join(map(str, values)) for values in (minutes, hours))
    return Plan(
        expression=f"{' '.join(texts)} * * *",
        minutes=frozenset(minutes),
        hours=frozenset(hours),
        on_day=lambda _: True,
        follows_clock=False,
    )


@pytest.mark.parametrize(
    ("name", "near", "hour"),
    [
        ("Europe/Berlin", "2026-03-29T01:00Z", 2),
        ("Europe/Berlin", "2026-10-25T01:00Z", 2),
        ("Australia/Lord_Howe", "2026-10-03T15:30Z", 2),
        ("Australia/Lord_Howe", "2026-04-04T15:00Z", 1),
        ("Africa/Cairo", "2026-04-23T22:00Z", 0),
        ("America/Santiago", "2026-04-05T03:00Z", 23),
    ],
)
def test_the_rims_of_gaps_and_overlaps_equal_brute_force(
    name: str, near: str, hour: int, rng: random.Random
) -> None:
    around = [(hour - 1) % 24, hour, (hour + 1) % 24]
    plans = [plan_at([h], [minute]) for h in around for minute in (0, 29, 30, 31, 59)]
    plans += [plan_at(around, [0]), plan_at(around, [30]), plan_at(around, [0, 30, 59])]
    moment = datetime.fromisoformat(near)
    for plan in plans:
        check(plan, zoneinfo.ZoneInfo(name), moment, rng=rng, ours=zone_named(name))


class Listed:
    """The wall times of a list."""

    def __init__(self, walls: list[int]) -> None:
        self.walls = walls

    def next_wall(self, wall_s: int) -> int:
        place = bisect_left(self.walls, wall_s)
        return self.walls[place] if place < len(self.walls) else NEVER_S

    def prev_wall(self, wall_s: int) -> int:
        place = bisect_right(self.walls, wall_s)
        return self.walls[place - 1] if place else -NEVER_S

    def count_walls(self, start_s: int, end_s: int) -> int:
        start, end = (bisect_left(self.walls, wall_s) for wall_s in (start_s, end_s))
        return max(end - start, 0)


CUT_S = 53 * CHUNK_S
BERLIN = {
    "gap": (ns(datetime(2026, 3, 29, 1, tzinfo=UTC)) // NS, 3_600, 7_200),
    "overlap": (ns(datetime(2026, 10, 25, 1, tzinfo=UTC)) // NS, 7_200, 3_600),
}
CHANGES = BERLIN | {
    "gap, half an hour before a cut": (CUT_S - 1_800, 3_600, 7_200),
    "gap at a cut": (CUT_S, 3_600, 7_200),
    "overlap, half an hour before a cut": (CUT_S - 1_800, 3_600, 0),
    "overlap, half an hour after a cut": (CUT_S + 1_800, 3_600, 0),
}
"""Changes of a clock: when, and the offsets before and after."""


def zone_with(change: str) -> Zone:
    if change in BERLIN:
        return zone_named("Europe/Berlin")
    at_s, *offsets_s = CHANGES[change]
    before, after = (timedelta(seconds=offset_s) for offset_s in offsets_s)
    return Zone(change, OneChange(datetime.fromtimestamp(at_s, UTC), before, after))


def by_definition(
    walls: list[int], change: str, gap: str, overlap: str
) -> list[Firing]:
    """What a schedule of fixed times has around a change, one wall time at a time."""
    at_s, before_s, after_s = CHANGES[change]
    found: dict[int, DstMark] = {}

    def put(utc_s: int, mark: DstMark) -> None:
        # Where two meet in one instant, it is the time that the clock shows.
        if utc_s not in found or mark is not DstMark.SHIFTED:
            found[utc_s] = mark

    for wall_s in walls:
        is_before, is_after = wall_s - before_s < at_s, wall_s - after_s >= at_s
        if is_before and is_after:
            if overlap in ("first", "both"):
                put(wall_s - before_s, DstMark.FIRST)
            if overlap in ("second", "both"):
                put(wall_s - after_s, DstMark.SECOND)
        elif is_before or is_after:
            put(wall_s - (before_s if is_before else after_s), DstMark.NONE)
        elif gap == "after":
            put(at_s, DstMark.SHIFTED)
        elif gap == "shift":
            put(wall_s - before_s, DstMark.SHIFTED)
    return [Firing(utc_s * NS, found[utc_s]) for utc_s in sorted(found)]


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize(("gap", "overlap"), POLICIES)
def test_every_question_holds_to_the_second_around_a_change(
    change: str, gap: GapRule, overlap: OverlapRule, rng: random.Random
) -> None:
    at_s, before_s, after_s = CHANGES[change]
    # Both ends of the hour that the clock skips, or shows twice, and of its neighbours.
    rims = (at_s + min(before_s, after_s) + hours * 3_600 for hours in range(-1, 3))
    near = [rim + step for rim in rims for step in (-1, 0, 1)]
    for walls in (near, *(sorted(rng.sample(near, 4)) for _ in range(3))):
        check_to_the_second(walls, change, gap=gap, overlap=overlap)


def check_to_the_second(
    walls: list[int], change: str, *, gap: GapRule, overlap: OverlapRule
) -> None:
    _, before_s, after_s = CHANGES[change]
    expected = by_definition(walls, change, gap, overlap)
    schedule = Bare(
        Listed(walls),
        zone_with(change),
        gap=gap,
        overlap=overlap,
        follows_clock=False,
    )
    shown = {wall_s - offset_s for wall_s in walls for offset_s in (before_s, after_s)}
    asked = sorted({utc_s * NS + step for utc_s in shown for step in (-1, 0, 1)})
    for low in asked:
        later = [firing for firing in expected if firing.utc_ns > low]
        earlier = [firing for firing in expected if firing.utc_ns < low]
        assert schedule.next_ns(low) == (later[0] if later else None)
        assert schedule.prev_ns(low) == (earlier[-1] if earlier else None)
        for high in asked[::5]:
            inside = [firing for firing in expected if low <= firing.utc_ns < high]
            assert schedule.count_ns(low, high) == len(inside)


@pytest.mark.parametrize("follows_clock", [False, True])
def test_a_schedule_says_whose_clock_it_has_and_what_a_change_does(
    *, follows_clock: bool
) -> None:
    for gap, overlap in POLICIES:
        schedule = Bare(
            Listed([0]),
            zone_named("Europe/Berlin"),
            gap=gap,
            overlap=overlap,
            follows_clock=follows_clock,
        )
        assert (schedule.tz, schedule.follows_clock) == ("Europe/Berlin", follows_clock)
        assert (schedule.gap, schedule.overlap) == (gap, overlap)
        words = schedule.explain()
        assert words.startswith("Europe/Berlin time. ")
        if follows_clock:
            assert "It follows the clock: nothing in an hour" in words
            continue
        gap_words = {
            "after": "skips runs once, when the gap ends; one",
            "skip": "skips does not run; one",
            "shift": "skips runs later by the length of the gap; one",
        }
        overlap_words = {
            "first": "twice runs once, the first time.",
            "second": "twice runs once, the second time.",
            "both": "twice runs both times.",
        }
        assert gap_words[gap] in words
        assert words.endswith(overlap_words[overlap])


@cache  # half a minute, and all shards need it
def distinct_zones() -> list[tuple[str, tuple[datetime, ...]]]:
    """Return one of each kind of zone that changes from 2024 to 2037, with when."""
    kinds: dict[object, tuple[str, tuple[datetime, ...]]] = {}
    for name in ZONES:
        zone = zoneinfo.ZoneInfo(name)
        found = tuple(changes_of(name, 2024, 2037))
        offsets = tuple(moment.astimezone(zone).utcoffset() for moment in found)
        if found:
            kinds.setdefault((found, offsets), (name, found))  # others are links to it
    return list(kinds.values())


@pytest.mark.long
@pytest.mark.parametrize("shard", range(SHARDS))
def test_every_zone_and_change_from_2024_to_2037_equals_brute_force(
    shard: int, rng: random.Random
) -> None:
    for name, found in distinct_zones()[shard::SHARDS]:
        for near in found:
            check_change(name, near, rng, plans=30)


EXPRESSIONS = ("30 2 * * *", "0 0 * * *", "*/20 * * * *", "15 1-3 * * *", "59 23 * * *")


def check_rising(name: str) -> None:
    zone = zone_named(name)
    stretch = zone.stretch_at(0)
    while stretch.end_s < datetime(2038, 1, 1, tzinfo=UTC).timestamp():
        for expression in EXPRESSIONS:
            schedule = Cron(expression, tz=name)
            firing = schedule.next_ns((stretch.end_s - 10_800) * NS)
            for _ in range(12):
                assert firing is not None
                following = schedule.next_ns(firing.utc_ns)
                assert following is not None
                assert following.utc_ns > firing.utc_ns, (name, expression, firing)
                assert schedule.prev_ns(following.utc_ns) == firing
                firing = following
        stretch = zone.stretch_at(stretch.end_s)


def test_next_rises_at_every_change_since_1970_in_a_sample_of_zones(
    rng: random.Random,
) -> None:
    for name in rng.sample(ZONES, 4):
        check_rising(name)


@pytest.mark.long
@pytest.mark.parametrize("shard", range(SHARDS))
def test_next_rises_at_every_change_of_every_zone_from_1970_to_2037(shard: int) -> None:
    for name in ZONES[shard::SHARDS]:
        check_rising(name)


SHIFTS = [
    minutes * way for minutes in (30, 60, 120, 179, 180, 1_440) for way in (1, -1)
]


def check_cut(
    shift_minutes: int, ahead_minutes: int, rng: random.Random, *, plans: int
) -> None:
    """Check a change so many minutes after the place where years are cut apart."""
    cut = datetime.fromtimestamp(53 * CHUNK_S // 60 * 60, UTC)
    near = cut + timedelta(minutes=ahead_minutes)
    shift = timedelta(minutes=shift_minutes)
    before = rng.choice(
        [
            offset
            for offset in (timedelta(hours=hours) for hours in (-11, -3, 0, 8, 13))
            if abs(offset + shift) <= timedelta(hours=14)
        ]
    )
    zone = OneChange(near, before, before + shift)
    ours = Zone("one change", zone)
    for _ in range(plans):
        plan = random_plan(rng, near.astimezone(zone))
        check(plan, zone, near, rng=rng, ours=ours)


@pytest.mark.parametrize("shift_minutes", SHIFTS)
def test_a_change_near_where_the_calendar_is_cut_is_like_any_other(
    shift_minutes: int, rng: random.Random
) -> None:
    for ahead_minutes in (0, *rng.sample(range(-200, 200), 2)):
        check_cut(shift_minutes, ahead_minutes, rng, plans=2)


@pytest.mark.long
@pytest.mark.parametrize("shift_minutes", SHIFTS)
def test_a_change_anywhere_near_a_cut_is_like_any_other(
    shift_minutes: int, rng: random.Random
) -> None:
    for ahead_minutes in (-1, 0, 1, *rng.sample(range(-1_500, 1_500), 60)):
        check_cut(shift_minutes, ahead_minutes, rng, plans=8)


def test_the_bound_of_daylight_saving_is_three_hours() -> None:
    assert DST_SHIFT_END_S == 3 * 3_600


@pytest.mark.parametrize("gap", ["after", "skip", "shift"])
@pytest.mark.parametrize("overlap", ["first", "second", "both"])
@pytest.mark.parametrize("expression", ["30 2 * * *", "5,50 1-3 * * *", "0 0 29 2 *"])
def test_counting_is_counting_one_by_one(
    gap: str, overlap: str, expression: str
) -> None:
    cron = Cron(expression, tz="Europe/Berlin", gap=gap, overlap=overlap)  # type: ignore[arg-type]
    start = datetime(2020, 2, 29, 1, 30, tzinfo=UTC)
    end = start + 400 * DAY
    total = 0
    moment = cron.next(start - timedelta(seconds=1))
    while moment is not None and moment < end:
        total += 1
        moment = cron.next(moment)
    assert cron.count(start, end) == total


def test_every_second_of_ten_years_is_counted_at_once() -> None:
    cron = Cron("* * * * * *", tz="America/New_York")
    start = datetime(2026, 1, 1, tzinfo=UTC)
    end = datetime(2036, 1, 1, tzinfo=UTC)
    # Every second comes, whatever the clock shows.
    assert cron.count(start, end) == (end - start) // timedelta(seconds=1)


@pytest.mark.parametrize(
    ("argument", "value"), [("gap", "before"), ("overlap", "none"), ("gap", None)]
)
def test_an_unknown_rule_is_refused_with_the_known_ones(
    argument: str, value: object
) -> None:
    with pytest.raises(ArgumentError, match=f'{argument} is .*: pass one of "') as (
        refused
    ):
        Cron("0 0 * * *", **{argument: value})  # type: ignore[arg-type]
    assert (refused.value.argument, refused.value.found) == (argument, value)


def test_a_year_that_ends_on_the_horizon_ends_the_schedule() -> None:
    cron = Cron("0 0 * * *")
    last = cron.prev(datetime(9999, 1, 1, tzinfo=UTC))
    assert last == datetime(2262, 4, 11, tzinfo=UTC)
    assert cron.next(last) is None
    assert cron.count(last, datetime(9999, 1, 1, tzinfo=UTC)) == 1
    assert cron.next_ns(1 << 80) is None


def test_nothing_comes_before_1970() -> None:
    cron = Cron("0 0 * * *")
    first = cron.next(datetime(1900, 1, 1, tzinfo=UTC))
    assert first == datetime(1970, 1, 1, tzinfo=UTC)
    assert cron.prev(first) is None
    assert cron.count(datetime(1900, 1, 1, tzinfo=UTC), first) == 0


def test_time_begins_and_ends_to_the_second() -> None:
    seconds = Cron("* * * * * *")
    last_ns = HORIZON_NS // NS * NS
    assert seconds.next_ns(-(1 << 80)) == seconds.next_ns(-1) == Firing(0)
    assert seconds.prev_ns(1) == Firing(0)
    assert seconds.prev_ns(0) is None
    assert seconds.count_ns(-(1 << 80), 1) == seconds.count_ns(0, NS) == 1
    assert seconds.prev_ns(1 << 80) == seconds.prev_ns(last_ns + 1) == Firing(last_ns)
    assert seconds.next_ns(last_ns - 1) == Firing(last_ns)
    assert seconds.next_ns(last_ns) is None
    assert seconds.count_ns(last_ns, 1 << 80) == 1
    assert seconds.count_ns(last_ns - NS, last_ns) == 1


def test_policies_are_all_checked() -> None:
    assert len(POLICIES) == len(set(POLICIES)) == 9
    assert [a != b for a, b in pairwise(POLICIES)] == [True] * 8
