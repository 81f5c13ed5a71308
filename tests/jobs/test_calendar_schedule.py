"""Excluded days left out and rolled, against going through every occurrence."""

from __future__ import annotations

import random
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from timingwheel.jobs.bounded import Bounded
from timingwheel.jobs.calendar_days import CalendarDays
from timingwheel.jobs.calendar_schedule import RollingCalendar, SkippingCalendar
from timingwheel.jobs.calendars import WEEKDAYS, NamedCalendar
from timingwheel.jobs.cron import Cron
from timingwheel.jobs.every import CalendarEvery, Every
from timingwheel.jobs.model import SkipReason
from timingwheel.jobs.planning import PlannedSkip
from timingwheel.jobs.schedule import (
    HORIZON_NS,
    NS,
    DstMark,
    Firing,
    Schedule,
    instant_datetime,
    instant_ns,
)

DAY = timedelta(days=1)
MINUTE = timedelta(minutes=1)
HOUR_NS = 3_600 * NS
ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Asia/Beirut", "Asia/Kathmandu")
# Both changes of the year, wherever; Beirut's are at midnight.
SPRING, AUTUMN = date(2026, 3, 1), date(2026, 10, 15)


def ns(text: str) -> int:
    return instant_ns(datetime.fromisoformat(text), "text")


# ------------------------------------------------------------------ the slow way


def is_excluded(calendar: NamedCalendar, day: date) -> bool:
    return day in calendar.dates or WEEKDAYS[day.weekday()] in calendar.weekdays


def on_day(day: date, at: time, zone: ZoneInfo) -> int:
    """When the clock first shows a time on a day, or the end of the gap that holds it."""
    wall = datetime.combine(day, at, tzinfo=zone)
    while wall.astimezone(UTC).astimezone(zone).time() != wall.time():
        wall += MINUTE  # by the wall clock: through the gap, whatever its length
    return instant_ns(wall.astimezone(UTC), "wall")


def moved(
    calendar: NamedCalendar, utc_ns: int, zone: ZoneInfo, roll: str
) -> int | None:
    local = instant_datetime(utc_ns).astimezone(zone)
    day = local.date()
    if not is_excluded(calendar, day):
        return utc_ns
    if roll == "skip":
        return None
    while is_excluded(calendar, day):
        day += DAY if roll == "next" else -DAY
    return on_day(day, local.time(), zone)


def rolled(
    base: Schedule, calendar: NamedCalendar, *, tz: str, roll: str, around: date
) -> list[int]:
    middle_ns = ns(f"{around.isoformat()}T00:00Z")
    found = base.between_ns(
        middle_ns - 60 * 24 * HOUR_NS, middle_ns + 120 * 24 * HOUR_NS, limit=100_000
    )
    zone = ZoneInfo(tz)
    instants = {moved(calendar, firing.utc_ns, zone, roll) for firing in found}
    return sorted(instant for instant in instants if instant is not None)


# ------------------------------------------------------------------ the comparison


def made(
    base: Schedule, calendar: NamedCalendar, *, tz: str, roll: str
) -> SkippingCalendar | RollingCalendar:
    days = CalendarDays(calendar, tz)
    if roll == "skip":
        return SkippingCalendar(base, days, name="holidays")
    assert roll in ("next", "previous")
    return RollingCalendar(base, days, roll=roll, name="holidays")  # type: ignore[arg-type]


bases: st.SearchStrategy[Callable[[str, date], Schedule]] = st.one_of(
    st.builds(
        lambda minutes, offset: (
            lambda _tz, _day: Every(
                minutes * 60 * NS, ns("2025-12-01T00:00Z") + offset * 60 * NS
            )
        ),
        st.integers(200, 5_000),
        st.integers(0, 1_440),
    ),
    st.builds(
        lambda text: lambda tz, _day: Cron(text, tz),
        st.sampled_from(
            [
                *("30 2 * * *", "0 0 * * *", "30 0,1,2,3,23 * * *", "0 */3 * * *"),
                *("0 9 * * MON", "15 12 1,15 * *", "0 1 * * SAT,SUN"),
            ]
        ),
    ),
    st.builds(
        lambda step, at: (
            lambda tz, day: CalendarEvery(
                step, "days", at=at, anchor=day - 40 * DAY, tz=tz, overlap="both"
            )
        ),
        st.integers(1, 9),
        st.sampled_from(["00:00", "01:30", "02:30", "23:59"]),
    ),
)


@settings(max_examples=300)
@given(
    make=bases,
    tz=st.sampled_from(ZONES),
    around=st.sampled_from([SPRING, AUTUMN]),
    excluded=st.sets(st.integers(-10, 50), max_size=25),
    weekdays=st.sets(st.sampled_from(WEEKDAYS), max_size=4),
    roll=st.sampled_from(["skip", "next", "previous"]),
    asked=st.lists(
        st.integers(0, 40 * 24 * 4).map(lambda quarter: quarter * HOUR_NS // 4),
        min_size=2,
        max_size=6,
    ),
)
def test_a_calendar_equals_going_through_every_occurrence(
    *,
    make: Callable[[str, date], Schedule],
    tz: str,
    around: date,
    excluded: set[int],
    weekdays: set[str],
    roll: str,
    asked: list[int],
) -> None:
    calendar = NamedCalendar(
        dates=tuple(around + n * DAY for n in excluded), weekdays=tuple(weekdays)
    )
    base = make(tz, around)
    schedule = made(base, calendar, tz=tz, roll=roll)
    expected = rolled(base, calendar, tz=tz, roll=roll, around=around)
    middle_ns = ns(f"{around.isoformat()}T00:00Z")
    instants = sorted({middle_ns + offset for offset in asked})
    instants += expected[len(expected) // 3 : len(expected) // 3 + 3]
    for instant in instants:
        after = bisect_right(expected, instant)
        before = bisect_left(expected, instant) - 1
        if 0 <= before < after < len(expected):
            following, former = schedule.next_ns(instant), schedule.prev_ns(instant)
            assert following is not None
            assert former is not None
            assert following.utc_ns == expected[after]
            assert former.utc_ns == expected[before]
    for low, high in pairwise(sorted(instants)):
        inside = bisect_left(expected, high) - bisect_left(expected, low)
        assert schedule.count_ns(low, high) == inside
        found = schedule.between_ns(low, high, limit=100_000)
        assert len(found) == inside
        if isinstance(schedule, SkippingCalendar):
            removed = schedule.excluded(low, high)
            gone = base.count_ns(low, high) - inside
            assert (0 if removed is None else removed.count) == gone


class Instants(Schedule):
    """Those that are listed, all with one mark."""

    def __init__(self, instants: list[int], mark: DstMark = DstMark.NONE) -> None:
        self.instants = instants
        self.mark = mark

    def next_ns(self, after_ns: int) -> Firing | None:
        place = bisect_right(self.instants, after_ns)
        if place == len(self.instants):
            return None
        return Firing(self.instants[place], self.mark)

    def prev_ns(self, before_ns: int) -> Firing | None:
        place = bisect_left(self.instants, before_ns)
        return Firing(self.instants[place - 1], self.mark) if place else None

    def count_ns(self, start_ns: int, end_ns: int) -> int:
        start, end = (bisect_left(self.instants, at_ns) for at_ns in (start_ns, end_ns))
        return max(end - start, 0)

    def explain(self) -> str:
        return "Listed."


DAY_NS = 24 * HOUR_NS
DAYS = range(1, 13)  # of January 1970, the first being 0
NEAR_MIDNIGHT = (0, 1, 2, 12 * HOUR_NS, DAY_NS - 2, DAY_NS - 1)


@pytest.mark.parametrize("roll", ["skip", "next", "previous"])
def test_every_question_holds_to_the_nanosecond_around_midnight(
    roll: str, rng: random.Random
) -> None:
    step = -1 if roll == "previous" else 1
    for _ in range(4):
        closed = set(rng.sample(DAYS, 5))
        instants = [
            day * DAY_NS + at_ns
            for day in DAYS
            for at_ns in sorted(rng.sample(NEAR_MIDNIGHT, rng.randrange(4)))
        ]
        expected = set()
        for instant in instants:
            day, at_ns = divmod(instant, DAY_NS)
            if day in closed and roll == "skip":
                continue
            while day in closed:
                day += step
            expected.add(day * DAY_NS + at_ns)
        calendar = NamedCalendar(dates=tuple(date(1970, 1, 1 + day) for day in closed))
        schedule = made(Instants(instants), calendar, tz="UTC", roll=roll)
        check_around(schedule, sorted(expected), rng)
        if isinstance(schedule, SkippingCalendar):
            gone = [at_ns for at_ns in instants if at_ns // DAY_NS in closed]
            check_excluded(schedule, gone, rng)


def test_the_first_and_the_last_nanosecond_of_an_excluded_day_are_excluded() -> None:
    calendar = NamedCalendar(dates=(date(1970, 1, 3),))
    rims = [2 * DAY_NS - 1, 2 * DAY_NS, 3 * DAY_NS - 1, 3 * DAY_NS]
    schedule = made(Instants(rims), calendar, tz="UTC", roll="skip")
    assert schedule.next_ns(rims[0]) == Firing(rims[3])
    assert schedule.prev_ns(rims[3]) == Firing(rims[0])


def edges(instants: list[int], rng: random.Random) -> list[tuple[int, int]]:
    near = sorted({at_ns + step for at_ns in instants for step in (-1, 0, 1, 2)})
    return [(low, high) for low in near for high in rng.sample(near, min(len(near), 9))]


def check_around(schedule: Schedule, expected: list[int], rng: random.Random) -> None:
    for low, high in edges(expected, rng):
        inside = [at_ns for at_ns in expected if low <= at_ns < high]
        assert schedule.count_ns(low, high) == len(inside)
        later = [Firing(at_ns) for at_ns in expected if at_ns > low]
        earlier = [Firing(at_ns) for at_ns in expected if at_ns < low]
        assert schedule.next_ns(low) == (later[0] if later else None)
        assert schedule.prev_ns(low) == (earlier[-1] if earlier else None)


def check_excluded(
    schedule: SkippingCalendar, gone: list[int], rng: random.Random
) -> None:
    for low, high in edges(gone, rng):
        inside = [at_ns for at_ns in gone if low <= at_ns < high]
        skip = (
            PlannedSkip(SkipReason.CALENDAR, inside[0], inside[-1], len(inside))
            if inside
            else None
        )
        assert schedule.excluded(low, high) == skip


@pytest.mark.parametrize("roll", ["skip", "next", "previous"])
def test_time_begins_and_ends_to_the_nanosecond_with_a_calendar_too(roll: str) -> None:
    rims = [0, 1, HORIZON_NS - 1, HORIZON_NS]
    christmas = NamedCalendar(dates=(date(2026, 12, 25),))
    schedule = made(Instants(rims), christmas, tz="UTC", roll=roll)
    far = 1 << 70
    assert [schedule.next_ns(at_ns) for at_ns in (-far, 0, 1, HORIZON_NS - 1)] == [
        Firing(at_ns) for at_ns in rims
    ]
    assert [schedule.prev_ns(at_ns) for at_ns in (1, 2, HORIZON_NS, far)] == [
        Firing(at_ns) for at_ns in rims
    ]
    assert schedule.next_ns(HORIZON_NS) is schedule.prev_ns(0) is None
    assert schedule.count_ns(-far, far) == 4
    assert schedule.count_ns(-far, 0) == schedule.count_ns(2, HORIZON_NS - 1) == 0


def test_what_is_excluded_on_the_first_and_on_the_last_day_of_time_can_be_told() -> (
    None
):
    calendar = NamedCalendar(dates=(date(1970, 1, 1), date(2262, 4, 11)))
    schedule = made(Instants([0, HORIZON_NS]), calendar, tz="UTC", roll="skip")
    assert isinstance(schedule, SkippingCalendar)
    assert schedule.next_ns(-1) is schedule.prev_ns(HORIZON_NS + 1) is None
    assert schedule.excluded(-(1 << 70), 1 << 70) == PlannedSkip(
        SkipReason.CALENDAR, 0, HORIZON_NS, 2
    )


@pytest.mark.parametrize("mark", [DstMark.NONE, DstMark.SHIFTED])
@pytest.mark.parametrize("saturday", ["02:30", "03:00"])
def test_where_a_moved_time_meets_one_of_the_day_itself_that_one_runs(
    mark: DstMark, saturday: str
) -> None:
    """On Sunday the clock goes from 02:00 to 03:00, so both times are moved to 03:00."""
    meeting_ns = ns("2026-03-29T03:00+02:00")
    schedule = made(
        Instants([ns(f"2026-03-28T{saturday}+01:00"), meeting_ns], mark),
        NamedCalendar(dates=(date(2026, 3, 28),)),
        tz="Europe/Berlin",
        roll="next",
    )
    own = Firing(meeting_ns, mark)
    assert schedule.next_ns(0) == schedule.prev_ns(HORIZON_NS) == own
    assert schedule.count_ns(0, HORIZON_NS) == 1


@pytest.mark.parametrize(
    ("roll", "expected"),
    [
        ("next", [2 * DAY_NS, HORIZON_NS]),  # a nanosecond more is past all time
        ("previous", [0, HORIZON_NS - 2 * DAY_NS, HORIZON_NS - 2 * DAY_NS + 1]),
    ],
)
def test_what_is_rolled_to_the_first_or_the_last_instant_of_time_runs(
    roll: str, expected: list[int]
) -> None:
    second_and_last_but_one = (date(1970, 1, 2), date(2262, 4, 10))
    schedule = made(
        Instants([DAY_NS, HORIZON_NS - DAY_NS, HORIZON_NS - DAY_NS + 1]),
        NamedCalendar(dates=second_and_last_but_one),
        tz="UTC",
        roll=roll,
    )
    found = schedule.between_ns(-(1 << 70), 1 << 70, limit=9)
    assert [firing.utc_ns for firing in found] == expected
    assert schedule.prev_ns(1 << 70) == found[-1]
    assert schedule.count_ns(-(1 << 70), 1 << 70) == len(expected)


# ------------------------------------------------------------------ single stories

HOLIDAYS = NamedCalendar(
    dates=(date(2026, 12, 25), date(2026, 12, 26)), weekdays=("SAT", "SUN")
)


def shown(
    schedule: Schedule, start: str, end: str, tz: str = "Europe/Berlin"
) -> list[str]:
    firings = schedule.between_ns(ns(start), ns(end), limit=1_000)
    zone = ZoneInfo(tz)
    return [
        f"{instant_datetime(firing.utc_ns).astimezone(zone):%a %d %H:%M}"
        for firing in firings
    ]


@pytest.mark.parametrize("roll", ["skip", "next", "previous"])
def test_occurrences_that_meet_in_one_instant_are_one(roll: str) -> None:
    daily = Cron("30 9 * * *", "Europe/Berlin")
    schedule = made(daily, HOLIDAYS, tz="Europe/Berlin", roll=roll)
    start, end = "2026-12-24T00:00Z", "2026-12-29T00:00Z"
    assert shown(schedule, start, end) == ["Thu 24 09:30", "Mon 28 09:30"]
    assert schedule.count_ns(ns(start), ns(end)) == 2


@pytest.mark.parametrize(
    ("roll", "expected"),
    [
        ("skip", []),
        ("next", ["Mon 28 09:30"]),
        ("previous", ["Thu 24 09:30"]),
    ],
)
def test_an_occurrence_on_an_excluded_day_is_left_out_or_moved(
    roll: str, expected: list[str]
) -> None:
    friday = Cron("30 9 25 12 *", "Europe/Berlin")
    schedule = made(friday, HOLIDAYS, tz="Europe/Berlin", roll=roll)
    assert shown(schedule, "2026-12-20T00:00Z", "2026-12-31T00:00Z") == expected


def test_what_a_calendar_leaves_out_can_be_told() -> None:
    daily = Cron("30 9 * * *", "Europe/Berlin")
    schedule = made(daily, HOLIDAYS, tz="Europe/Berlin", roll="skip")
    assert isinstance(schedule, SkippingCalendar)
    assert schedule.excluded(
        ns("2026-12-24T00:00Z"), ns("2026-12-29T00:00Z")
    ) == PlannedSkip(
        SkipReason.CALENDAR,
        ns("2026-12-25T09:30+01:00"),
        ns("2026-12-27T09:30+01:00"),
        3,
    )
    assert schedule.excluded(ns("2026-12-24T00:00Z"), ns("2026-12-25T00:00Z")) is None
    assert schedule.excluded(5, 5) is None


def test_a_day_is_counted_in_the_zone_of_the_calendar_if_it_has_one() -> None:
    """At 01:00 in Tokyo it is still the day before in Berlin."""
    friday = date(2026, 12, 25)
    tokyo = NamedCalendar(dates=(friday,))
    berlin = NamedCalendar(dates=(friday,), tz="Europe/Berlin")
    daily = Cron("0 1 * * *", "Asia/Tokyo")
    start, end = "2026-12-24T15:00Z", "2026-12-26T15:00Z"
    local = made(daily, tokyo, tz="Asia/Tokyo", roll="skip")
    assert shown(local, start, end, "Asia/Tokyo") == ["Sat 26 01:00"]
    abroad = made(daily, berlin, tz="Asia/Tokyo", roll="skip")
    assert shown(abroad, start, end, "Asia/Tokyo") == ["Fri 25 01:00"]


def test_a_time_rolled_into_a_gap_runs_at_its_end_and_is_marked() -> None:
    saturday = NamedCalendar(dates=(date(2026, 3, 28),))
    nightly = Cron("30 2 28 3 *", "Europe/Berlin")
    schedule = made(nightly, saturday, tz="Europe/Berlin", roll="next")
    firing = schedule.next_ns(ns("2026-03-01T00:00Z"))
    assert firing == (ns("2026-03-29T03:00+02:00"), DstMark.SHIFTED)


def test_a_time_rolled_into_an_overlap_runs_at_the_first_copy() -> None:
    saturday = NamedCalendar(dates=(date(2026, 10, 24),))
    nightly = Cron("30 2 24 10 *", "Europe/Berlin")
    schedule = made(nightly, saturday, tz="Europe/Berlin", roll="next")
    firing = schedule.next_ns(ns("2026-10-01T00:00Z"))
    assert firing == (ns("2026-10-25T02:30+02:00"), DstMark.FIRST)


def test_a_gap_that_ends_the_day_moves_the_time_before_it() -> None:
    """In Scoresbysund the clock jumps from Saturday 23:00 to Sunday 00:00."""
    friday = NamedCalendar(dates=(date(2026, 3, 27),))
    late = Cron("30 23 27 3 *", "America/Scoresbysund")
    schedule = made(late, friday, tz="America/Scoresbysund", roll="next")
    firing = schedule.next_ns(ns("2026-03-01T00:00Z"))
    assert firing == (ns("2026-03-28T22:30-02:00"), DstMark.SHIFTED)


def test_a_day_that_a_country_left_out_is_no_business_day() -> None:
    """Samoa went from Thursday 29 to Saturday 31 December 2011."""
    thursday = NamedCalendar(dates=(date(2011, 12, 29),))
    daily = Cron("0 12 29 12 *", "Pacific/Apia")
    schedule = made(daily, thursday, tz="Pacific/Apia", roll="next")
    start, end = "2011-12-01T00:00Z", "2012-01-31T00:00Z"
    assert shown(schedule, start, end, "Pacific/Apia") == ["Sat 31 12:00"]
    noon_ns = ns("2011-12-31T12:00+14:00")
    assert schedule.count_ns(noon_ns, noon_ns + 1) == 1
    assert schedule.count_ns(ns("2011-12-31T00:00+14:00"), noon_ns) == 0


def test_a_calendar_leaves_nothing_of_a_schedule_that_only_has_excluded_days() -> None:
    sundays = Cron("0 9 * * SUN")
    closed = NamedCalendar(weekdays=("SUN",))
    schedule = made(sundays, closed, tz="UTC", roll="skip")
    assert schedule.next_ns(0) is None
    assert schedule.prev_ns(HORIZON_NS) is None
    assert schedule.count_ns(0, HORIZON_NS) == 0
    assert isinstance(schedule, SkippingCalendar)
    removed = schedule.excluded(0, HORIZON_NS)
    assert removed is not None
    assert removed.count == sundays.count_ns(0, HORIZON_NS)


@pytest.mark.parametrize("roll", ["skip", "next", "previous"])
def test_both_ends_of_time_are_ends_with_a_calendar_too(roll: str) -> None:
    daily = Cron("0 9 * * *")
    weekend = NamedCalendar(weekdays=("SAT", "SUN"), dates=(date(1970, 1, 1),))
    schedule = made(daily, weekend, tz="UTC", roll=roll)
    assert schedule.next_ns(HORIZON_NS) is None
    assert schedule.next_ns(1 << 70) is None
    assert schedule.prev_ns(0) is None
    assert schedule.prev_ns(-(1 << 70)) is None
    first, last = schedule.next_ns(-(1 << 70)), schedule.prev_ns(1 << 70)
    assert first is not None
    assert last is not None
    assert first.utc_ns == ns("1970-01-02T09:00Z")
    assert schedule.prev_ns(first.utc_ns) is None
    assert schedule.next_ns(last.utc_ns) is None
    assert schedule.count_ns(-(1 << 70), 1 << 70) == schedule.count_ns(
        first.utc_ns, last.utc_ns + 1
    )


def test_counting_asks_for_each_excluded_day_and_never_for_each_occurrence() -> None:
    """The other schedule counts how often it is asked: over a century, a few times."""
    asked: list[str] = []

    class Counting(Every):
        def next_ns(self, after_ns: int):
            asked.append("next")
            return super().next_ns(after_ns)

        def count_ns(self, start_ns: int, end_ns: int) -> int:
            asked.append("count")
            return super().count_ns(start_ns, end_ns)

    three = tuple(date(year, 5, 1) for year in (2030, 2040, 2050))
    days = CalendarDays(NamedCalendar(dates=three), "UTC")
    schedule = SkippingCalendar(Counting(NS, 0), days, name="may day")
    century = schedule.count_ns(ns("2000-01-01T00:00Z"), ns("2100-01-01T00:00Z"))
    assert century == (36_525 - 3) * 86_400
    assert len(asked) == 4


def test_a_schedule_with_a_calendar_in_words() -> None:
    daily = Bounded(Cron("0 9 * * *"), start_ns=None, end_ns=None)
    rolled_words = 'On a day that the calendar "holidays" excludes it runs on the '
    for roll, words in (
        ("skip", 'Nothing on days that the calendar "holidays" excludes.'),
        ("next", rolled_words + "next business day instead, at the same time."),
        ("previous", rolled_words + "previous business day instead, at the same time."),
    ):
        explained = made(daily, HOLIDAYS, tz="UTC", roll=roll).explain()
        assert explained == f"At 09:00 every day, UTC time. {words}"
