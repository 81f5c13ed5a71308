"""Triggers in words, and their next times with what clocks do to them."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from timingwheel.errors import ArgumentError
from timingwheel.jobs.after import After
from timingwheel.jobs.building import make_trigger
from timingwheel.jobs.calendars import NamedCalendar
from timingwheel.jobs.cron import Cron
from timingwheel.jobs.explaining import TIMES_MAX, NextTime, explain_trigger, next_times
from timingwheel.jobs.schedule import HORIZON_NS, NS, DstMark, instant_ns
from timingwheel.jobs.triggers import EveryPeriod, Trigger

BERLIN = "Europe/Berlin"
CALENDARS = {"christmas": NamedCalendar(dates=(date(2026, 12, 25),))}
CREATED = datetime(2026, 3, 2, 9, tzinfo=UTC)
CREATED_NS = instant_ns(CREATED, "created")


def words(trigger: Trigger) -> str:
    return explain_trigger(
        trigger, created_ns=CREATED_NS, job_key="job", calendars=CALENDARS
    )


def times(trigger: Trigger, after: str, n: int, runs_made: int = 0) -> list[NextTime]:
    return next_times(
        trigger,
        after_ns=instant_ns(datetime.fromisoformat(after), "after"),
        n=n,
        created_ns=CREATED_NS,
        job_key="job",
        runs_made=runs_made,
        calendars=CALENDARS,
    )


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"delay": 90}, "Once, 1 minute 30 seconds after it was put. Elapsed time."),
        ({"at": CREATED}, "Once, at 2026-03-02 09:00:00 UTC."),
        ({"after": "a"}, "When job a has succeeded."),
        ({"after": After("a", on="any")}, "When job a has ended."),
        (
            {"after": After.all_of("a", "b", on="failure")},
            "When all of the jobs a, b have failed.",
        ),
        (
            {"after": After.any_of("a", "b")},
            "When one of the jobs a, b has succeeded.",
        ),
        (
            {"every": "1h", "max_runs": 1, "splay": "5m", "jitter": 2},
            (
                "Every 1 hour, counted from 2026-03-02 10:00:00 UTC. Elapsed time: a "
                "clock change does not move it. 1 run in all. Each run is due up to 5 "
                "minutes later, always by the same. Each run is due up to 2 seconds "
                "later, at random."
            ),
        ),
        (
            {"cron": "0 9 * * *", "calendar": "christmas", "max_runs": 5},
            (
                "At 09:00 every day, UTC time. Nothing on days that the calendar "
                '"christmas" excludes. Excludes 2026-12-25. 5 runs in all.'
            ),
        ),
        (
            {
                "cron": "0 9 * * *",
                "calendar": "christmas",
                "roll": "next",
                "end": datetime(2027, 1, 1, tzinfo=UTC),
            },
            (
                "At 09:00 every day, UTC time. Nothing from 2027-01-01 00:00:00 UTC on. "
                'On a day that the calendar "christmas" excludes it runs on the next '
                "business day instead, at the same time. Excludes 2026-12-25."
            ),
        ),
    ],
)
def test_a_trigger_in_words(arguments: dict[str, Any], expected: str) -> None:
    assert words(make_trigger(**arguments)) == expected


def test_next_times_say_what_the_clock_does_to_them() -> None:
    nightly = make_trigger(cron=Cron("30 2 * * *", BERLIN, overlap="both"))
    [shifted, plain] = times(nightly, "2026-03-28T12:00Z", 2)
    assert shifted.utc == datetime(2026, 3, 29, 1, tzinfo=UTC)
    assert shifted.local.isoformat() == "2026-03-29T03:00:00+02:00"
    assert shifted.mark is DstMark.SHIFTED
    assert plain.local.isoformat() == "2026-03-30T02:30:00+02:00"
    assert plain.mark is DstMark.NONE
    [first, second] = times(nightly, "2026-10-24T12:00Z", 2)
    assert first.local.isoformat() == "2026-10-25T02:30:00+02:00"
    assert second.local.isoformat() == "2026-10-25T02:30:00+01:00"
    assert (first.mark, second.mark) == (DstMark.FIRST, DstMark.SECOND)


def test_next_times_end_with_the_bounds_and_with_what_is_left_of_the_runs() -> None:
    trigger = make_trigger(
        cron="0 9 * * *", end=datetime(2026, 3, 5, tzinfo=UTC), max_runs=4
    )
    assert len(times(trigger, "2026-02-26T09:00Z", 10)) == 4
    assert [t.utc.day for t in times(trigger, "2026-03-02T09:00Z", 10)] == [3, 4]
    assert len(times(trigger, "2026-02-26T09:00Z", 10, runs_made=3)) == 1
    assert times(trigger, "2026-02-26T09:00Z", 10, runs_made=9) == []


def test_a_trigger_that_runs_once_has_one_time_until_it_is_past() -> None:
    for once in (make_trigger(at=CREATED), make_trigger(delay=0)):
        assert times(once, "2026-03-02T08:00Z", 5) == [
            NextTime(CREATED, CREATED, DstMark.NONE)
        ]
        assert times(once, "2026-03-02T09:00Z", 5) == []


def test_a_delay_is_counted_from_when_the_job_was_put() -> None:
    due = datetime(2026, 3, 2, 9, 1, tzinfo=UTC)
    assert times(make_trigger(delay=60), "2026-03-02T09:00Z", 1) == [
        NextTime(due, due, DstMark.NONE)
    ]


def test_h_is_computed_from_the_key_of_the_job_in_words_and_in_times() -> None:
    mine = Cron("H H * * *", hash_key="job")
    trigger = make_trigger(cron="H H * * *")
    assert words(trigger) == mine.explain()
    [first] = times(trigger, "2026-03-02T09:00Z", 1)
    assert first.utc == mine.next(CREATED)


def test_next_times_leave_out_what_a_calendar_excludes() -> None:
    trigger = make_trigger(cron="0 9 * * *", calendar="christmas")
    found = times(trigger, "2026-12-24T09:00Z", 2)
    assert [time.utc.day for time in found] == [26, 27]


def test_of_so_many_runs_none_counts_as_made_unless_it_is_told() -> None:
    trigger = make_trigger(every="1h", max_runs=2)
    found = next_times(
        trigger, after_ns=CREATED_NS, n=5, created_ns=CREATED_NS, job_key="job"
    )
    assert len(found) == 2


def test_next_times_begin_a_nanosecond_later_and_end_with_time_itself() -> None:
    soon = Trigger(when=EveryPeriod(NS, CREATED_NS + 1))
    [first] = times(soon, CREATED.isoformat(), 1)
    assert first.utc == CREATED + timedelta(microseconds=1)  # rounded up
    last = Trigger(when=EveryPeriod(NS, HORIZON_NS))
    assert len(times(last, "2026-03-02T09:00Z", 2)) == 1


def test_a_trigger_that_waits_for_other_jobs_has_no_times() -> None:
    assert times(make_trigger(after="a"), "2026-03-02T08:00Z", 5) == []


@pytest.mark.parametrize("n", [0, -1, TIMES_MAX + 1, 1.0, True, None])
def test_the_number_of_times_is_bounded(n: int) -> None:
    with pytest.raises(ArgumentError, match="1 to 1,000") as refused:
        times(make_trigger(every="1h"), "2026-03-02T08:00Z", n)
    assert (refused.value.argument, refused.value.found) == ("n", n)


def test_as_many_times_come_as_were_asked_for() -> None:
    found = times(make_trigger(every="1h"), "2026-03-02T09:00Z", TIMES_MAX)
    assert len(found) == TIMES_MAX
    assert instant_ns(found[-1].utc, "last") == CREATED_NS + TIMES_MAX * 3_600 * NS
