"""Cron as its callers see it."""

from __future__ import annotations

import pickle
from datetime import UTC, date, datetime, timedelta, timezone
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest

from timingwheel import ArgumentError, Cron, CronError
from timingwheel.jobs.schedule import NS, DstMark, Schedule

HOUR = timedelta(hours=1)


def at(text: str) -> datetime:
    return datetime.fromisoformat(text)


def nexts(cron: Cron, after: str, count: int) -> list[str]:
    found = []
    moment: datetime | None = at(after)
    for _ in range(count):
        assert moment is not None
        moment = cron.next(moment)
        assert moment is not None
        found.append(moment.strftime("%Y-%m-%dT%H:%M:%SZ"))
    return found


def test_answers_are_in_utc_and_strictly_after_and_before() -> None:
    cron = Cron("30 2 * * *", tz="Europe/Berlin")
    noon = datetime(2026, 6, 1, 12, tzinfo=ZoneInfo("Asia/Tokyo"))
    following, former = cron.next(noon), cron.prev(noon)
    assert following == at("2026-06-02T00:30Z")
    assert former == at("2026-06-01T00:30Z")
    assert following.tzinfo is UTC
    assert cron.next(former) == following
    assert cron.prev(following) == former


def test_a_fraction_of_a_second_counts() -> None:
    cron = Cron("* * * * * *")
    assert cron.next(at("2026-01-01T00:00:00.000001Z")) == at("2026-01-01T00:00:01Z")
    assert cron.prev(at("2026-01-01T00:00:00.000001Z")) == at("2026-01-01T00:00:00Z")
    start, end = at("2026-01-01T00:00:00.5Z"), at("2026-01-01T00:00:03.5Z")
    assert cron.count(start, end) == len(cron.between(start, end)) == 3


def test_between_takes_the_start_and_leaves_the_end() -> None:
    cron = Cron("0 * * * *")
    start, end = at("2026-01-01T00:00Z"), at("2026-01-01T03:00Z")
    assert cron.between(start, end) == [start, start + HOUR, start + 2 * HOUR]
    assert cron.count(start, end) == 3
    assert cron.between(start, start) == []
    assert cron.count(start, start) == 0


@pytest.mark.parametrize("limit", [0, -1, 1.5, None, True])
def test_between_refuses_what_is_no_limit(limit: object) -> None:
    start = at("2026-01-01T00:00Z")
    with pytest.raises(ArgumentError, match="limit is"):
        Cron("* * * * *").between(start, start, limit=limit)  # type: ignore[arg-type]


@pytest.mark.parametrize("value", ["2026-01-01", 1_767_225_600, date(2026, 1, 1), None])
def test_what_is_no_datetime_is_refused(value: object) -> None:
    with pytest.raises(ArgumentError, match="pass an aware datetime"):
        Cron("* * * * *").next(value)  # type: ignore[arg-type]


def test_the_fold_of_the_datetime_that_asks_is_heard() -> None:
    cron = Cron("* * * * *", tz="America/New_York")
    zone = ZoneInfo("America/New_York")
    first = datetime(2026, 11, 1, 1, 30, tzinfo=zone)
    second = first.replace(fold=1)
    assert cron.next(first) == at("2026-11-01T05:31Z")
    assert cron.next(second) == at("2026-11-01T06:31Z")


def test_the_datetime_that_asks_may_have_any_zone() -> None:
    cron = Cron("0 9 * * *", tz="Asia/Kolkata")
    moments = [
        datetime(2026, 1, 1, 0, 0, tzinfo=UTC),
        datetime(2026, 1, 1, 5, 30, tzinfo=timezone(timedelta(hours=5, minutes=30))),
        datetime(2025, 12, 31, 19, 0, tzinfo=ZoneInfo("America/New_York")),
    ]
    assert {cron.next(moment) for moment in moments} == {at("2026-01-01T03:30Z")}


def test_a_schedule_with_named_years_ends() -> None:
    cron = Cron("0 0 0 29 2 * 2028-2036/8")
    assert nexts(cron, "2026-01-01T00:00Z", 2) == [
        "2028-02-29T00:00:00Z",
        "2036-02-29T00:00:00Z",
    ]
    assert cron.next(at("2036-02-29T00:00Z")) is None
    assert cron.prev(at("2028-02-29T00:00Z")) is None
    assert cron.prev(at("2100-01-01T00:00Z")) == at("2036-02-29T00:00Z")


def test_a_schedule_may_have_the_first_instant_of_1970_and_no_other() -> None:
    assert Cron("0 0 0 1 1 * 1970").next_ns(-1) == (0, DstMark.NONE)


# ------------------------------------------------------------------ daylight saving


def test_case_6_berlin_0230_runs_once_on_both_days_of_change() -> None:
    cron = Cron("30 2 * * *", tz="Europe/Berlin")
    day = 24 * HOUR
    spring = at("2026-03-28T23:00Z")  # midnight in Berlin, of a day of 23 hours
    assert cron.between(spring, spring + 23 * HOUR) == [at("2026-03-29T01:00Z")]
    autumn = at("2026-10-24T22:00Z")  # and of one of 25
    assert cron.between(autumn, autumn + 25 * HOUR) == [at("2026-10-25T00:30Z")]
    assert cron.count(spring - 10 * day, autumn + 10 * day + HOUR) == 230

    shifted = cron.next_ns(int(spring.timestamp()) * NS)
    first = cron.next_ns(int(autumn.timestamp()) * NS)
    assert shifted is not None
    assert first is not None
    assert shifted.mark is DstMark.SHIFTED
    assert first.mark is DstMark.FIRST
    following = cron.next_ns(first.utc_ns)
    assert following is not None
    assert following.mark is DstMark.NONE


def test_case_7_every_15_minutes_runs_100_times_on_the_day_of_25_hours() -> None:
    cron = Cron("*/15 * * * *", tz="Europe/Berlin")
    midnight = at("2026-10-24T22:00Z")
    found = cron.between(midnight, midnight + 25 * HOUR, limit=200)
    assert len(found) == cron.count(midnight, midnight + 25 * HOUR) == 100
    quarter = timedelta(minutes=15)
    assert [b - a for a, b in pairwise(found)] == [quarter] * 99


def test_a_job_that_follows_the_clock_marks_both_copies() -> None:
    cron = Cron("0 * * * *", tz="Europe/Berlin")
    start = int(at("2026-10-24T23:00Z").timestamp()) * NS
    marks = [f.mark for f in cron.between_ns(start, start + 4 * 3_600 * NS, limit=9)]
    assert marks == [DstMark.NONE, DstMark.FIRST, DstMark.SECOND, DstMark.NONE]


@pytest.mark.parametrize(
    ("gap", "expected"),
    [
        ("after", ["2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"]),
        ("skip", ["2026-03-30T00:30:00Z", "2026-03-31T00:30:00Z"]),
        ("shift", ["2026-03-29T01:30:00Z", "2026-03-30T00:30:00Z"]),
    ],
)
def test_gap_says_what_a_skipped_time_does(gap: str, expected: list[str]) -> None:
    cron = Cron("30 2 * * *", tz="Europe/Berlin", gap=gap)  # type: ignore[arg-type]
    assert nexts(cron, "2026-03-28T12:00Z", 2) == expected


@pytest.mark.parametrize(
    ("overlap", "expected"),
    [
        ("first", ["2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"]),
        ("second", ["2026-10-25T01:30:00Z", "2026-10-26T01:30:00Z"]),
        ("both", ["2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z"]),
    ],
)
def test_overlap_says_which_copy_runs(overlap: str, expected: list[str]) -> None:
    cron = Cron("30 2 * * *", tz="Europe/Berlin", overlap=overlap)  # type: ignore[arg-type]
    assert nexts(cron, "2026-10-24T12:00Z", 2) == expected


def test_shifted_times_that_meet_others_are_one_run() -> None:
    # 02:30 moves to 03:30, where there is one already; 02:45 runs among the others.
    cron = Cron("30,45 2,3 * * *", tz="Europe/Berlin", gap="shift")
    assert nexts(cron, "2026-03-28T12:00Z", 3) == [
        "2026-03-29T01:30:00Z",
        "2026-03-29T01:45:00Z",
        "2026-03-30T00:30:00Z",
    ]


def test_shifted_times_come_in_the_order_of_time() -> None:
    cron = Cron("45 2,3 * * *", tz="Europe/Berlin", gap="shift")
    late = Cron("50 2 * * *", tz="Europe/Berlin", gap="shift")
    assert nexts(cron, "2026-03-28T12:00Z", 1) == ["2026-03-29T01:45:00Z"]
    assert nexts(late, "2026-03-28T12:00Z", 1) == ["2026-03-29T01:50:00Z"]


def test_a_time_at_the_end_of_the_gap_is_not_marked_for_a_skipped_one() -> None:
    cron = Cron("0 2,3 * * *", tz="Europe/Berlin")
    firing = cron.next_ns(int(at("2026-03-29T00:00Z").timestamp()) * NS)
    assert firing == (int(at("2026-03-29T01:00Z").timestamp()) * NS, DstMark.NONE)


def test_0_23_is_a_list_of_fixed_times_and_star_is_not() -> None:
    fixed = Cron("30 0-23 * * *", tz="Europe/Berlin")
    follows = Cron("30 * * * *", tz="Europe/Berlin")
    autumn, hours = at("2026-10-24T22:00Z"), 25 * HOUR
    assert fixed.count(autumn, autumn + hours) == 24
    assert follows.count(autumn, autumn + hours) == 25
    assert (fixed.follows_clock, follows.follows_clock) == (False, True)


@pytest.mark.parametrize(
    ("expression", "follows"),
    [
        ("*/5 3 * * *", True),
        ("5 */2 * * *", True),
        ("*/5,7 3 * * *", True),
        ("* 30 2 * * *", True),
        ("0 30 2 * * *", False),
        ("0-59 2 * * *", False),
        ("H H * * *", False),
        ("@hourly", True),
        ("@daily", False),
        ("0 0 */2 * *", False),
    ],
)
def test_a_time_field_that_begins_with_a_star_follows_the_clock(
    expression: str, follows: bool
) -> None:
    assert Cron(expression, hash_key="job").follows_clock is follows


# ------------------------------------------------------------------ the whole object


@pytest.mark.parametrize("year", [2022, 2023])
def test_a_year_in_which_the_clock_skips_the_only_time_never_comes(year: int) -> None:
    # Berlin skipped 02:30 on 2022-03-27, but not on that day of 2023.
    expression = f"0 30 2 27 3 * {year}"
    assert Cron(expression, tz="Europe/Berlin").next(at("2020-01-01T00:00Z"))
    if year == 2023:
        skips = Cron(expression, tz="Europe/Berlin", gap="skip")
        assert skips.next(at("2020-01-01T00:00Z")) == at("2023-03-27T00:30Z")
    else:
        with pytest.raises(CronError, match="never matches") as refused:
            Cron(expression, tz="Europe/Berlin", gap="skip")
        assert refused.value.code == "never-matches"


def test_a_day_that_a_country_skipped_never_comes() -> None:
    with pytest.raises(CronError, match="never matches"):
        Cron("0 0 9 30 12 * 2011", tz="Pacific/Apia")
    elsewhere = Cron("0 0 9 30 12 * 2011", tz="Pacific/Auckland")
    assert elsewhere.next(at("2000-01-01T00:00Z")) == at("2011-12-29T20:00Z")


def test_an_unknown_zone_is_refused_with_those_that_come_close() -> None:
    with pytest.raises(ArgumentError, match="did you mean Europe/Berlin") as refused:
        Cron("* * * * *", tz="Europe/Berlni")
    assert refused.value.argument == "tz"


def test_a_zone_info_with_a_name_serves_as_the_name() -> None:
    cron = Cron("0 0 * * *", ZoneInfo("Europe/Berlin"))
    assert cron == Cron("0 0 * * *", tz="Europe/Berlin")
    assert cron.tz == "Europe/Berlin"


def test_crons_of_equal_arguments_are_equal_and_others_are_not() -> None:
    crons = [
        Cron("0 0 * * *"),
        Cron("0 0 1 * *"),
        Cron("0 0 * * *", tz="Europe/Berlin"),
        Cron("0 0 * * *", gap="skip"),
        Cron("0 0 * * *", overlap="both"),
        Cron("0 0 * * *", hash_key="a"),
    ]
    assert len(set(crons)) == len(crons)
    assert Cron("0 0 * * *") == crons[0]
    assert hash(Cron("0 0 * * *")) == hash(crons[0])
    assert crons[0] != "0 0 * * *"


def test_repr_is_how_it_is_made() -> None:
    cron = Cron("H 2 * * *", tz="Europe/Berlin", gap="skip", hash_key="a")
    assert repr(cron) == (
        "Cron('H 2 * * *', tz='Europe/Berlin', gap='skip', hash_key='a')"
    )
    assert repr(Cron("@daily")) == "Cron('@daily')"
    assert eval(repr(cron)) == cron


def test_a_cron_survives_pickling_with_all_its_options() -> None:
    cron = Cron(
        "H 2 * * *", tz="Europe/Berlin", gap="skip", overlap="both", hash_key="a"
    )
    copy = pickle.loads(pickle.dumps(cron))
    assert copy == cron
    assert copy.next(at("2026-01-01T00:00Z")) == cron.next(at("2026-01-01T00:00Z"))


def test_a_cron_is_a_schedule() -> None:
    schedule: Schedule = Cron("@daily")
    assert schedule.next_ns(-1) == (0, DstMark.NONE)


def test_what_is_no_text_is_refused() -> None:
    with pytest.raises(ArgumentError, match="expression is 5"):
        Cron(5)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="hash_key is 5"):
        Cron("@daily", hash_key=5)  # type: ignore[arg-type]


def test_a_cron_error_names_all_its_facts_and_survives_pickling() -> None:
    with pytest.raises(CronError) as refused:
        Cron("*/90 * * * *")
    error = pickle.loads(pickle.dumps(refused.value))
    assert isinstance(error, CronError)
    assert isinstance(error, ValueError)
    facts = (error.expression, error.field, error.piece, error.code)
    assert facts == ("*/90 * * * *", "minute", "*/90", "bad-step")
    assert (
        str(error)
        == str(refused.value)
        == (
            "cron '*/90 * * * *', minute field: '*/90' steps by 90, and the field has 60 "
            "values: use an interval (every=...) for what is longer, or write the values"
        )
    )


def test_the_message_of_a_long_expression_stays_short() -> None:
    with pytest.raises(CronError, match="too long") as refused:
        Cron("1," * 1_000 + "1 * * * *")
    assert len(str(refused.value)) < 300
