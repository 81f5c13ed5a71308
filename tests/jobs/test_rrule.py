"""Recurrence rules: what dateutil says, in next, prev and count, at any distance."""

from __future__ import annotations

import pickle
import random
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path

import pytest
from dateutil.rrule import rrulestr  # type: ignore[import-untyped]

from timingwheel.errors import ArgumentError
from timingwheel.jobs.rrule import RecurrenceRule
from timingwheel.jobs.schedule import HORIZON_NS, DstMark, Firing, Schedule, instant_ns

BERLIN = "Europe/Berlin"
START = "2026-03-02T09:00:00"  # a Monday
WEEKDAYS = ["MO", "TU", "WE", "TH", "FR", "SA", "SU"]
EARLY, LATE = datetime(1970, 1, 1, tzinfo=UTC), datetime(2262, 1, 1, tzinfo=UTC)
YEARS_COMPARED_END = 2150


def ns(text: str) -> int:
    return instant_ns(datetime.fromisoformat(text), "text")


def locally(schedule: Schedule, number: int) -> list[str]:
    found = schedule.between(EARLY, LATE, limit=number)
    return [f"{moment:%Y-%m-%dT%H:%M}" for moment in found]


# ------------------------------------------------------------------ against dateutil


def random_rule(rng: random.Random) -> str:
    frequency = rng.choice(
        ["YEARLY", "MONTHLY", "WEEKLY", "DAILY", "HOURLY", "MINUTELY"]
    )
    counts = frequency in ("YEARLY", "MONTHLY")
    parts = [f"FREQ={frequency}"]

    def maybe(share: float, text: str) -> None:
        if rng.random() < share:
            parts.append(text)

    maybe(0.5, f"INTERVAL={rng.choice([2, 3, 4, 6, 12])}")
    months = sorted(rng.sample(range(1, 13), 2))
    maybe(0.4, f"BYMONTH={months[0]},{months[1]}")
    nth = rng.choice(["", "1", "-1", "+2"]) if counts else ""
    days = ",".join(nth + day for day in rng.sample(WEEKDAYS, 2))
    maybe(0.4, f"BYDAY={days}")
    maybe(0.2, f"BYMONTHDAY={rng.choice(['1', '31', '-1', '13,-2'])}")
    maybe(0.1, "BYYEARDAY=1,-1,200")
    maybe(0.1 if frequency == "YEARLY" else 0, "BYWEEKNO=1,20,53")
    maybe(0.2, "BYHOUR=3,17")
    maybe(0.2, "BYMINUTE=0,30")
    maybe(0.3, f"WKST={rng.choice(['SU', 'WE'])}")
    maybe(0.2 if counts and "BYDAY" in ";".join(parts) else 0, "BYSETPOS=1,-1")
    if rng.random() < 0.3:
        parts.append(f"COUNT={rng.choice([1, 5, 40])}")
    else:
        maybe(0.2, "UNTIL=20281101T120000")
    return ";".join(parts)


def by_dateutil(rule: str, start: datetime, number: int) -> list[datetime]:
    times: Iterator[datetime] = iter(rrulestr(rule, dtstart=start))
    found = []
    for moment in islice(times, number):
        if moment.year >= YEARS_COMPARED_END:
            break
        found.append(moment.replace(tzinfo=UTC))
    return found


def test_random_rules_equal_dateutil(rng: random.Random) -> None:
    compared = 0
    while compared < 250:
        rule = random_rule(rng)
        start = datetime(  # noqa: DTZ001 - a wall time
            2026, rng.randint(1, 12), rng.randint(1, 28), rng.randint(0, 23), 15
        )
        try:
            schedule = RecurrenceRule(rule, start=start.isoformat())
        except ArgumentError:
            continue  # refused with its reasons, which have tests of their own
        compared += 1
        end = datetime(YEARS_COMPARED_END, 1, 1, tzinfo=UTC)
        expected = by_dateutil(rule, start, 50)
        assert schedule.between(EARLY, end, limit=50) == expected, (rule, start)
        for place, moment in enumerate(expected):
            former = expected[place - 1] if place else None
            assert schedule.prev(moment) == former, (rule, start)
        if expected:
            counted = schedule.count(expected[0], expected[-1])
            assert counted == len(expected) - 1, (rule, start)


@pytest.mark.parametrize(
    ("rule", "end"),
    [
        ("FREQ=DAILY;BYHOUR=0,9,23;BYMINUTE=0,59;COUNT=9", ""),
        ("FREQ=DAILY;INTERVAL=3", ";UNTIL=20260311T090000"),
        ("FREQ=DAILY;INTERVAL=3", ";UNTIL=20260311T090000Z"),
        ("FREQ=WEEKLY;BYDAY=SU,MO;BYHOUR=8,9,10", ";UNTIL=20260316T085959"),
        ("FREQ=YEARLY;BYMONTH=1,12;BYMONTHDAY=1,31;COUNT=9", ""),
        ("FREQ=YEARLY;BYYEARDAY=366,-1,1;BYHOUR=0;COUNT=9", ""),
        ("FREQ=HOURLY;INTERVAL=8;COUNT=9", ""),
        ("FREQ=MONTHLY;INTERVAL=7;BYMONTHDAY=31;COUNT=4", ""),
        ("FREQ=DAILY;COUNT=1", ""),
        ("FREQ=SECONDLY;COUNT=3", ""),
        ("FREQ=YEARLY;BYYEARDAY=1;COUNT=3", ""),
        ("FREQ=DAILY;BYMINUTE=1;BYSECOND=0,30", ";UNTIL=20260305T090130"),
    ],
)
def test_every_question_holds_to_the_second(rule: str, end: str) -> None:
    start = datetime.fromisoformat(START)
    times = by_dateutil(rule + end.removesuffix("Z"), start, 20)
    expected = [instant_ns(moment, "moment") for moment in times]
    assert 0 < len(expected) < 20  # so it ends
    schedule = RecurrenceRule(rule + end, start=START)
    asked = [at_ns + by for at_ns in expected for by in (-(10**9), -1, 0, 1, 10**9)]
    asked += [0, ns("2026-03-02T00:00Z"), HORIZON_NS]
    for low in asked:
        later = [Firing(at_ns) for at_ns in expected if at_ns > low]
        earlier = [Firing(at_ns) for at_ns in expected if at_ns < low]
        assert schedule.next_ns(low) == (later[0] if later else None)
        assert schedule.prev_ns(low) == (earlier[-1] if earlier else None)
        for high in asked:
            inside = [at_ns for at_ns in expected if low <= at_ns < high]
            assert schedule.count_ns(low, high) == len(inside)


# ------------------------------------------------------------------ single stories


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("FREQ=DAILY;COUNT=2", ["2026-03-02T09:00", "2026-03-03T09:00"]),
        ("RRULE:FREQ=DAILY", ["2026-03-02T09:00", "2026-03-03T09:00"]),
        ("freq=weekly;interval=2", ["2026-03-02T09:00", "2026-03-16T09:00"]),
        ("FREQ=MONTHLY;BYDAY=-1FR", ["2026-03-27T09:00", "2026-04-24T09:00"]),
        (
            "FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-1",
            ["2026-03-31T09:00", "2026-04-30T09:00"],
        ),
        (
            "FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=29",
            ["2028-02-29T09:00", "2032-02-29T09:00"],
        ),
        ("FREQ=HOURLY;INTERVAL=6", ["2026-03-02T09:00", "2026-03-02T15:00"]),
        (
            "FREQ=DAILY;BYHOUR=8,20;BYMINUTE=30",
            ["2026-03-02T20:30", "2026-03-03T08:30"],
        ),
    ],
)
def test_a_rule_means_these_times(rule: str, expected: list[str]) -> None:
    assert locally(RecurrenceRule(rule, start=START), 2) == expected


def test_a_time_in_a_gap_and_in_an_overlap_runs_once_as_for_cron() -> None:
    nightly = RecurrenceRule("FREQ=DAILY", start="2026-01-01T02:30", tz=BERLIN)
    spring = nightly.next_ns(ns("2026-03-28T12:00Z"))
    assert spring == (ns("2026-03-29T03:00+02:00"), DstMark.SHIFTED)
    autumn = nightly.next_ns(ns("2026-10-24T12:00Z"))
    assert autumn == (ns("2026-10-25T02:30+02:00"), DstMark.FIRST)
    assert nightly.count_ns(ns("2026-10-25T00:00Z"), ns("2026-10-25T03:00Z")) == 1


def test_a_rule_of_minutes_follows_the_clock_as_a_star_in_cron_does() -> None:
    quarters = RecurrenceRule(
        "FREQ=MINUTELY;INTERVAL=15", start="2026-01-01T00:00", tz=BERLIN
    )
    day = ns("2026-10-25T00:00+02:00"), ns("2026-10-26T00:00+01:00")
    assert quarters.count_ns(*day) == 100


def test_results_rise_strictly_over_the_changes_of_twenty_years() -> None:
    schedule = RecurrenceRule(
        "FREQ=DAILY;BYHOUR=1,2,3", start="2020-01-01T00:30", tz=BERLIN
    )
    found = schedule.between_ns(0, ns("2040-01-01T00:00Z"), limit=100_000)
    instants = [firing.utc_ns for firing in found]
    assert instants == sorted(set(instants))
    assert len(instants) == schedule.count_ns(0, ns("2040-01-01T00:00Z"))
    backwards = []
    firing = schedule.prev_ns(ns("2040-01-01T00:00Z"))
    while firing is not None:
        backwards.append(firing.utc_ns)
        firing = schedule.prev_ns(firing.utc_ns)
    assert backwards[::-1] == instants


@pytest.mark.parametrize(
    ("until", "last"),
    [
        ("20260304T090000", "2026-03-04T09:00"),
        ("20260304T085959", "2026-03-03T09:00"),
        ("20260304", "2026-03-04T09:00"),
        ("20260304T080000Z", "2026-03-04T08:00"),  # 09:00 in Berlin
        ("20260304T075959Z", "2026-03-03T08:00"),
    ],
)
def test_a_rule_ends_with_its_until_included(until: str, last: str) -> None:
    tz = BERLIN if until.endswith("Z") else "UTC"
    schedule = RecurrenceRule(f"FREQ=DAILY;UNTIL={until}", start=START, tz=tz)
    assert locally(schedule, 100)[-1] == last


def test_a_rule_ends_with_its_count_however_far_it_reaches() -> None:
    weekly = RecurrenceRule("FREQ=WEEKLY;BYDAY=MO,WE;COUNT=1001", start=START)
    assert weekly.count_ns(0, HORIZON_NS) == 1001
    last = weekly.prev_ns(HORIZON_NS)
    assert last is not None
    assert last.utc_ns == ns("2035-10-01T09:00Z")  # 500 weeks later
    assert weekly.next_ns(last.utc_ns) is None
    endless = RecurrenceRule("FREQ=YEARLY;COUNT=1000", start=START)
    assert endless.count_ns(0, HORIZON_NS) == 2262 - 2026 + 1


def test_a_far_question_costs_what_a_near_one_does() -> None:
    """Every second for two hundred years: dateutil would go through six thousand million."""
    seconds = RecurrenceRule("FREQ=SECONDLY", start="1990-01-01T00:00:00")
    far_ns = ns("2190-01-01T00:00Z")
    days = (datetime(2190, 1, 1, tzinfo=UTC) - datetime(1990, 1, 1, tzinfo=UTC)).days
    assert seconds.next_ns(far_ns) == (far_ns + 10**9, DstMark.NONE)
    assert seconds.prev_ns(far_ns) == (far_ns - 10**9, DstMark.NONE)
    assert seconds.count_ns(ns("1990-01-01T00:00Z"), far_ns) == days * 86_400


@pytest.mark.parametrize(
    ("rule", "fix"),
    [
        ("", "is no part of a rule"),
        ("every day", "is no part of a rule"),
        ("FREQ=FORTNIGHTLY", "FREQ= one of YEARLY"),
        ("BYHOUR=9", "FREQ= one of YEARLY"),
        ("FREQ=DAILY;FREQ=DAILY", "write FREQ once"),
        ("FREQ=DAILY;BYEASTER=0", '"BYEASTER=0" is no part'),
        ("FREQ=DAILY;INTERVAL=0", "INTERVAL as a number from 1"),
        ("FREQ=DAILY;COUNT=-1", "COUNT as a number from 1"),
        ("FREQ=DAILY;COUNT=3;UNTIL=20270101", "COUNT or UNTIL"),
        ("FREQ=DAILY;UNTIL=tomorrow", "UNTIL as 20261231"),
        ("FREQ=DAILY;UNTIL=20261332", "UNTIL as 20261231"),
        ("FREQ=DAILY;WKST=XX", "WKST= one of MO"),
        ("FREQ=DAILY;BYHOUR=24", "BYHOUR as numbers from 0 to 23"),
        ("FREQ=DAILY;BYSECOND=60", "BYSECOND as numbers from 0 to 59"),
        ("FREQ=DAILY;BYMONTH=1,13", "BYMONTH as numbers from 1 to 12"),
        ("FREQ=MONTHLY;BYMONTHDAY=32", "BYMONTHDAY as numbers from 1 to 31"),
        ("FREQ=MONTHLY;BYMONTHDAY=0", "BYMONTHDAY as numbers from 1 to 31"),
        ("FREQ=MONTHLY;BYDAY=XX", "write BYDAY as MO, TU"),
        ("FREQ=MONTHLY;BYDAY=0MO", "of a month is 1 to 5, or below 0"),
        ("FREQ=MONTHLY;BYDAY=30FR", "of a month is 1 to 5, or below 0"),
        ("FREQ=YEARLY;BYMONTH=12;BYDAY=6FR", "of a month is 1 to 5, or below 0"),
        ("FREQ=YEARLY;BYDAY=54MO", "of a year is 1 to 53, or below 0"),
        ("FREQ=WEEKLY;BYDAY=2MO", "needs FREQ=MONTHLY or YEARLY"),
        ("FREQ=DAILY;BYSETPOS=1", "BYSETPOS is served with"),
        ("FREQ=MONTHLY;BYDAY=MO;BYHOUR=1,2;BYSETPOS=1", "BYSETPOS is served with"),
        ("FREQ=MINUTELY;INTERVAL=7", "0:07:00 does not divide a day; use every="),
        ("FREQ=HOURLY;INTERVAL=12;BYHOUR=5", "never meets its hours"),
        ("FREQ=DAILY;BYMONTH=2;BYMONTHDAY=30", "no time matches it from 2026-03-02"),
        ("FREQ=DAILY;INTERVAL=7;BYDAY=TU", "no time matches it"),
        ("FREQ=DAILY;UNTIL=20250101", "no time matches it"),
        ("FREQ=DAILY;UNTIL=20250101T000000Z", "no time matches it"),
        ("DTSTART:20260101T000000\nRRULE:FREQ=DAILY", "pass one rule alone"),
        ("FREQ=DAILY;BYHOUR=" + ",".join(["1"] * 600), "at most 1,000 characters"),
        (None, "pass the text of a rule"),
    ],
)
def test_what_cannot_be_meant_or_never_comes_is_refused_with_the_fix(
    rule: str, fix: str
) -> None:
    with pytest.raises(ArgumentError) as caught:
        RecurrenceRule(rule, start=START)
    assert (caught.value.argument, caught.value.found) == ("rrule", rule)
    assert fix in caught.value.fix


@pytest.mark.parametrize(
    ("start", "fix"),
    [
        ("soon", "pass a wall time from 1970 on"),
        (None, "pass a wall time from 1970 on"),
        ("2026-03-02T09:00+01:00", "leave out the offset; pass a wall time"),
        ("2026-03-02T09:00:00.5", "a rule knows no fractions of a second"),
        ("1969-12-31T23:59:59", "pass a wall time from 1970 on"),
        ("2263-01-01", "pass a wall time from 1970 on"),
    ],
)
def test_a_start_is_a_wall_time_to_the_second(start: str, fix: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        RecurrenceRule("FREQ=DAILY", start=start)
    assert (caught.value.argument, caught.value.found) == ("start", start)
    assert caught.value.fix.startswith(fix)


def test_starts_on_the_first_day_of_time_and_near_the_last_serve() -> None:
    for start in ("1970-01-01T00:00:00", "2262-04-10T23:47:16"):
        rule = RecurrenceRule("FREQ=DAILY;COUNT=2", start=start)
        assert rule.next_ns(ns(f"{start}Z") - 1) == Firing(ns(f"{start}Z"))
        assert rule.count_ns(0, HORIZON_NS) == 2
    once = RecurrenceRule("FREQ=DAILY;COUNT=1", start="1970-01-01")
    assert once.next_ns(-1) == once.prev_ns(1) == Firing(0)
    thrice = RecurrenceRule("FREQ=DAILY;COUNT=3", start="2262-01-01")
    assert thrice.count_ns(0, HORIZON_NS) == 3


def test_without_dateutil_the_error_says_what_to_install() -> None:
    """In a process of its own, where dateutil cannot be imported."""
    program = """
import sys
sys.modules["dateutil"] = None  # how Python itself marks what is not there
from timingwheel.jobs.rrule import RecurrenceRule
from timingwheel.errors import MissingExtraError
try:
    RecurrenceRule("FREQ=DAILY", start="2026-03-02")
except MissingExtraError as error:
    assert isinstance(error, ImportError)
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        text=True,
        capture_output=True,
        cwd=Path(__file__).parents[2],
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "pip install 'timingwheel-engine[rrule]'" in done.stdout


def test_equal_rules_are_equal_and_survive_pickling() -> None:
    rule = RecurrenceRule("FREQ=DAILY", start=START, tz=BERLIN)
    assert rule == RecurrenceRule("RRULE:FREQ=DAILY", start=START, tz=BERLIN)
    assert rule != RecurrenceRule("FREQ=DAILY", start=START)
    assert rule != "FREQ=DAILY"
    again = pickle.loads(pickle.dumps(rule))
    assert again == rule
    assert hash(again) == hash(rule)
    assert eval(repr(rule), {"RecurrenceRule": RecurrenceRule}) == rule


def test_a_rule_in_words() -> None:
    rule = RecurrenceRule("FREQ=DAILY", start=START, tz=BERLIN)
    assert rule.explain() == (
        "By the recurrence rule FREQ=DAILY, counted from 2026-03-02 09:00:00, "
        "Europe/Berlin time. A time that the clock skips runs once, when the gap ends; "
        "one that it shows twice runs once, the first time."
    )
