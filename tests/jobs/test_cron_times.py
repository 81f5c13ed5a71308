"""The search in wall times, against trying every second."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from timingwheel.jobs.cron_days import FIRST_YEAR, LAST_YEAR, YEAR_STARTS
from timingwheel.jobs.cron_fields import parse
from timingwheel.jobs.cron_times import CronTimes, next_bit, prev_bit
from timingwheel.jobs.wall_schedule import NEVER_S

DAY_S = 86_400


def times_of(expression: str) -> CronTimes:
    fields = parse(expression, None)
    return CronTimes(
        fields.seconds,
        fields.minutes,
        hours=fields.hours,
        days=fields.days,
        years=fields.years,
    )


@given(st.integers(0, 2**70), st.integers(0, 80))
def test_bits_are_found_upwards_and_downwards(bits: int, at: int) -> None:
    members = [n for n in range(100) if bits >> n & 1]
    assert next_bit(bits, at) == min((n for n in members if n >= at), default=-1)
    assert prev_bit(bits, at) == max((n for n in members if n <= at), default=-1)


def field(rng: random.Random, low: int, high: int) -> str:
    chosen = rng.sample(range(low, high + 1), rng.choice([1, 1, 2, 3]))
    return rng.choice(["*", ",".join(map(str, chosen)), ",".join(map(str, chosen))])


def test_the_search_equals_trying_every_second(rng: random.Random) -> None:
    for _ in range(15):
        seconds, minutes, hours = (field(rng, 0, n) for n in (59, 59, 23))
        expression = (
            f"{seconds} {minutes} {hours} * * {rng.randrange(7)},{rng.randrange(7)}"
        )
        fields = parse(expression, None)
        times = times_of(expression)
        start_s = rng.randrange(50 * 365) * DAY_S + rng.randrange(DAY_S)
        end_s = start_s + 2 * DAY_S
        every = [s for s in range(start_s, end_s) if matches(fields, s)]

        found: list[int] = []
        wall_s = times.next_wall(start_s)
        while wall_s < end_s and len(found) <= len(every):
            found.append(wall_s)
            wall_s = times.next_wall(wall_s + 1)
        assert found == every, expression

        found, wall_s = [], times.prev_wall(end_s - 1)
        while wall_s >= start_s and len(found) <= len(every):
            found.append(wall_s)
            wall_s = times.prev_wall(wall_s - 1)
        assert found[::-1] == every, expression

        for _ in range(20):
            a, b = sorted(rng.randrange(start_s, end_s + 1) for _ in range(2))
            inside = sum(a <= s < b for s in every)
            assert times.count_walls(a, b) == inside, expression


def matches(fields: object, wall_s: int) -> bool:
    assert hasattr(fields, "seconds")
    assert hasattr(fields, "minutes")
    assert hasattr(fields, "hours")
    assert hasattr(fields, "days")
    day, second = divmod(wall_s, DAY_S)
    weekday = (day + 4) % 7
    return bool(
        fields.seconds >> second % 60 & 1
        and fields.minutes >> second // 60 % 60 & 1
        and fields.hours >> second // 3_600 & 1
        and fields.days.weekdays >> weekday & 1
    )


def test_what_never_comes_is_never() -> None:
    times = times_of("0 0 30 2 *")
    assert times.next_wall(0) == NEVER_S
    assert times.prev_wall(1 << 40) == -NEVER_S
    assert times.count_walls(0, 1 << 40) == 0


def test_years_bound_the_search_on_both_sides() -> None:
    times = times_of("0 0 0 1 1 * 2030-2031")
    first_s = times.next_wall(-NEVER_S)
    last_s = times.prev_wall(NEVER_S)
    assert (first_s, last_s) == (1_893_456_000, 1_924_992_000)
    assert times.next_wall(last_s + 1) == NEVER_S
    assert times.prev_wall(first_s - 1) == -NEVER_S
    assert times.count_walls(-NEVER_S, NEVER_S) == 2
    assert times.count_walls(first_s, last_s) == 1
    assert times.count_walls(last_s, first_s) == 0


def test_the_search_goes_on_from_one_end_of_a_year_to_the_next() -> None:
    first, last = times_of("0 0 1 1 *"), times_of("0 0 31 12 *")
    assert first.next_wall(1) == 365 * DAY_S
    assert first.prev_wall(365 * DAY_S - 1) == 0
    assert first.prev_wall(-1) == YEAR_STARTS[0] * DAY_S  # of 1969
    assert last.prev_wall(3 * 365 * DAY_S + DAY_S) == 3 * 365 * DAY_S  # after 366 days
    assert last.next_wall(2 * 365 * DAY_S) == 3 * 365 * DAY_S


def test_a_named_year_has_its_own_days_and_none_of_those_beside_it() -> None:
    times = times_of("0 0 6,12 * * * 2030")
    first_s, hour_s = 1_893_456_000, 3_600
    last_s, end_s = first_s + 364 * DAY_S, first_s + 365 * DAY_S
    assert times.next_wall(first_s - DAY_S) == first_s + 6 * hour_s
    assert times.prev_wall(first_s + 7 * hour_s) == first_s + 6 * hour_s
    assert times.next_wall(last_s + 7 * hour_s) == last_s + 12 * hour_s
    assert times.prev_wall(end_s + 7 * hour_s) == last_s + 12 * hour_s
    assert times.count_walls(first_s - DAY_S, end_s + DAY_S) == 2 * 365
    assert times.count_walls(first_s, last_s + 7 * hour_s) == 2 * 364 + 1


def test_the_search_has_the_first_and_the_last_day_of_all_years() -> None:
    # 1969 is the year in the west at the first instant of 1970, 2263 in the east late on.
    times = times_of("0 0 * * *")
    first_s = YEAR_STARTS[0] * DAY_S
    last_s = (YEAR_STARTS[-1] - 1) * DAY_S
    assert times.next_wall(-NEVER_S) == times.prev_wall(first_s) == first_s
    assert times.prev_wall(first_s - 1) == -NEVER_S
    assert times.prev_wall(NEVER_S) == times.next_wall(last_s) == last_s
    assert times.next_wall(last_s + 1) == NEVER_S


def test_the_hours_of_1969_are_searched_too() -> None:
    times = times_of("*/30 * * * *")
    assert times.next_wall(-1_801) == times.prev_wall(-1) == -1_800
    assert times.next_wall(-1_799) == 0
    assert times.count_walls(-3_600, 0) == 2


def test_the_first_day_of_the_year_in_which_a_span_ends_is_counted() -> None:
    assert times_of("0 0 * * *").count_walls(0, 2 * DAY_S) == 2
    assert times_of("0 0 * * *").count_walls(-DAY_S, DAY_S) == 2


def test_all_days_of_all_years_are_counted() -> None:
    years = LAST_YEAR - FIRST_YEAR + 1
    leap = sum(
        1
        for year in range(FIRST_YEAR, LAST_YEAR + 1)
        if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    )
    assert times_of("0 0 * * *").count_walls(-NEVER_S, NEVER_S) == 365 * years + leap
    assert times_of("0 0 29 2 *").count_walls(-NEVER_S, NEVER_S) == leap
