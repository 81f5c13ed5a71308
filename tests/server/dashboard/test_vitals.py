"""What the counts have grown by, a minute at a time."""

from __future__ import annotations

import pytest

from tests.scheduler import program
from timingwheel.jobs.figures import HistogramSnapshot
from timingwheel.manual_clock import ManualClock
from timingwheel.scheduler.scheduler import Scheduler
from timingwheel.server.dashboard.vitals import (
    LOOK_NS,
    MINUTE_NS,
    MINUTES,
    Minutes,
    Vitals,
)

START_NS = 1_800_000_000 * 1_000_000_000
MS = 1_000_000


def lag(*counts: int) -> HistogramSnapshot:
    return HistogramSnapshot((10 * MS, 20 * MS, 40 * MS), counts, 0, 0)


NO_LAG = lag(0, 0, 0, 0)


def test_what_was_counted_before_the_first_look_belongs_to_no_minute() -> None:
    minutes = Minutes()
    minutes.take(START_NS, {"succeeded": 70}, lag(70, 0, 0, 0))
    last = minutes.last()
    assert len(last) == MINUTES
    assert sum(minute.ended.total() + minute.lags.total() for minute in last) == 0


def test_growth_is_put_down_to_the_minute_in_which_it_is_seen() -> None:
    minutes = Minutes()
    minutes.take(START_NS, {"succeeded": 1}, NO_LAG)
    minutes.take(START_NS + 1, {"succeeded": 4, "failed": 1}, NO_LAG)
    minutes.take(START_NS + 3 * MINUTE_NS, {"succeeded": 6, "failed": 1}, NO_LAG)
    found = [dict(minute.ended) for minute in minutes.last()[-4:]]
    assert found == [
        {"succeeded": 3, "failed": 1},
        {},
        {},
        {"succeeded": 2, "failed": 0},
    ]


def test_minutes_follow_each_other_without_a_hole_and_no_more_than_are_kept() -> None:
    minutes = Minutes()
    for n in (0, 1, 7, 40, MINUTES + 60):
        minutes.take(START_NS + n * MINUTE_NS, {}, NO_LAG)
        last = minutes.last()
        starts = [minute.start_ns for minute in last]
        assert starts[-1] == (START_NS + n * MINUTE_NS) // MINUTE_NS * MINUTE_NS
        first = starts[0]
        assert starts == [first + place * MINUTE_NS for place in range(MINUTES)]


def test_a_clock_that_is_set_back_counts_for_the_present_minute() -> None:
    minutes = Minutes()
    minutes.take(START_NS, {}, NO_LAG)
    minutes.take(START_NS - 5 * MINUTE_NS, {"failed": 2}, NO_LAG)
    assert minutes.last()[-1].ended["failed"] == 2


def test_quantiles_lie_within_their_bucket_and_are_none_without_starts() -> None:
    minutes = Minutes()
    minutes.take(START_NS, {}, NO_LAG)
    assert minutes.quantile_ns(0.5, minutes.last()) is None
    minutes.take(START_NS, {}, lag(0, 100, 0, 0))
    last = minutes.last()
    assert minutes.quantile_ns(0.5, last) == 15 * MS
    assert minutes.quantile_ns(0.99, last) == pytest.approx(19.9 * MS)
    minutes.take(START_NS, {}, lag(0, 100, 0, 900))
    assert minutes.quantile_ns(0.99, minutes.last()) == 40 * MS  # the last known edge


def test_runs_that_end_are_seen_and_the_store_is_asked_once_a_second_at_most() -> None:
    clock = ManualClock()
    with Scheduler(":memory:", tasks=program.app.tasks, clock=clock) as app:
        vitals = Vitals(app)
        first = vitals.look()
        handle = app.run(app.schedule(program.note.call("tea"), 0))
        handle.wait("30s")
        assert vitals.look() is first
        clock.advance(LOOK_NS / 1e9)
        seen = vitals.look()
        assert seen.minutes[-1].ended == {"succeeded": 1}
        assert seen.figures is not None
        assert seen.recent_lags_ns[0] is not None
