"""Jobs, runs, times and words."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest

from tests.scheduler import program
from timingwheel.errors import ArgumentError
from timingwheel.jobs.after import After
from timingwheel.jobs.errors import UnknownJobError
from timingwheel.jobs.model import Cap, JobState
from timingwheel.jobs.schedule import DstMark
from timingwheel.scheduler.scheduler import Scheduler
from timingwheel.scheduler.simulation import SIM_START, Sim
from timingwheel.testing import ManualClock


def test_jobs_are_found_by_what_they_are(sim: Sim) -> None:
    a = sim.app.add(
        program.note.call("a"), delay="1h", queue="q1", tags={"team": "bi", "x": "1"}
    )
    b = sim.app.add(program.fail.call(), every="1h", name="b", tags={"team": "bi"})
    sim.app.cancel(c := sim.app.add(program.note.call("c"), delay="1h"))
    cases: list[tuple[dict[str, Any], set[str]]] = [
        ({}, {a.id, b.id, c.id}),
        ({"state": "cancelled"}, {c.id}),
        ({"state": JobState.ACTIVE}, {a.id, b.id}),
        ({"task": program.fail}, {b.id}),
        ({"task": program.note.name, "state": "active"}, {a.id}),
        ({"queue": "q1"}, {a.id}),
        ({"name": "b"}, {b.id}),
        ({"tags": {"team": "bi"}}, {a.id, b.id}),
        ({"tags": {"team": "bi", "x": "1"}}, {a.id}),
        ({"tags": {"team": "no"}}, set()),
    ]
    for query, ids in cases:
        assert {job.id for job in sim.app.jobs(**query)} == ids, query


def test_jobs_and_runs_are_read_page_by_page(sim: Sim) -> None:
    for number in range(25):
        sim.app.add(program.note.call(str(number)), delay=number + 1)
    sim.advance(12.5)
    for ask in (sim.app.jobs, sim.app.runs, partial(sim.app.runs, in_order=False)):
        seen: list[Any] = []
        cursor: str | None = None
        pages = 0
        while True:
            page = ask(limit=10, cursor=cursor)
            assert len(page) <= 10
            seen += [row.id for row in page]
            pages += 1
            cursor = page.cursor
            if cursor is None:
                break
        assert len(seen) == len(set(seen))
        assert len(seen) == 25  # the runs of pending jobs are planned
        assert pages > 1


def test_runs_are_found_by_job_state_and_time_newest_first(sim: Sim) -> None:
    sim.app.add(program.note.call("x"), every="10s", name="often", tags={"a": "b"})
    sim.app.add(program.fail_once.call(), delay=15, name="once")
    program.log.errors.append(ValueError("no"))
    sim.advance(45)
    runs = sim.app.runs(job="often")
    assert [run.nominal_ns for run in runs] == sorted(
        (run.nominal_ns for run in runs), reverse=True
    )
    assert len(runs) == 4
    assert len(sim.app.runs(state="failed")) == 1
    assert len(sim.app.runs(state=["failed", "succeeded"])) == 5
    assert len(sim.app.runs(task=program.note)) == 4
    assert len(sim.app.runs(tags={"a": "b"})) == 4
    middle = SIM_START + timedelta(seconds=20)
    assert len(sim.app.runs(job="often", since=middle)) == 3
    assert len(sim.app.runs(job="often", until=middle)) == 1


def test_a_question_that_cannot_be_meant_is_refused(sim: Sim) -> None:
    sim.app.add(program.note.call("x"), every="10s", name="often")
    with pytest.raises(ArgumentError, match='"quarantined"'):
        sim.app.jobs(state="running")
    with pytest.raises(ArgumentError, match='"retrying"'):
        sim.app.runs(state="activ")
    for limit in (0, 1_001, True):
        with pytest.raises(ArgumentError, match="limit"):
            sim.app.jobs(limit=limit)
    with pytest.raises(ArgumentError, match="n is"):
        sim.app.next_times("often", 0)
    with pytest.raises(ArgumentError, match="step"):
        sim.app.load_ahead("1h", step="2h")
    with pytest.raises(ArgumentError, match="since"):
        sim.app.runs(since=datetime(2026, 1, 1))  # noqa: DTZ001 - on purpose
    with pytest.raises(UnknownJobError):
        sim.app.runs(job="nobody")


def test_next_times_show_what_a_clock_change_does() -> None:
    """Case 6."""
    with Sim(tasks=program.app, start=datetime(2026, 3, 28, tzinfo=UTC)) as sim:
        sim.app.add(
            program.note.call("x"), cron="30 2 * * *", tz="Europe/Berlin", name="n"
        )
        first, second = sim.app.next_times("n", 2)
        assert (first.local.hour, first.mark) == (2, DstMark.NONE)
        assert (second.local.hour, second.mark) == (3, DstMark.SHIFTED)
        assert second.utc == datetime(2026, 3, 29, 1, tzinfo=UTC)
        sim.advance("2d")
        assert [run.mark for run in sim.runs("n")] == ["", "shifted"]


def test_next_times_of_what_runs_once_and_of_what_has_ended(sim: Sim) -> None:
    once = sim.app.add(program.note.call("x"), delay="90s")
    (found,) = sim.app.next_times(once)
    assert found.utc == SIM_START + timedelta(seconds=90)
    after = sim.app.add(program.note.call("y"), after=After(once))
    assert sim.app.next_times(after) == []
    sim.app.add(program.note.call("z"), every="1h", max_runs=3, name="three")
    sim.advance("1h1m")
    assert len(sim.app.next_times("three")) == 2
    ref = sim.app.job("three")
    sim.app.cancel("three")
    assert sim.app.next_times(ref) == []


def test_explain_says_when_how_and_where_it_stands(sim: Sim) -> None:
    sim.app.add(
        program.note.call("x"),
        cron="0 0 * * 1",
        name="n",
        overlap="allow(3)",
        misfire="all(10, 1h)",
        timeout="5m",
        start_deadline="10m",
        queue="bulk",
        concurrency=Cap("tenant", 2),
        delivery="at_most_once",
    )
    text = sim.app.explain("n")
    for words in [
        "Monday",
        "Up to 3 of its runs at once.",
        "Times of the last 1 hour that were missed all run, up to 10.",
        "started at most once",
        "An attempt may take 5 minutes.",
        "not started 10 minutes after it was due is skipped",
        "queue 'bulk'",
        "share 'tenant'",
        "It is active, next at 2026-01-05 00:00:00 UTC.",
    ]:
        assert words in text
    sim.app.pause("n", note="why not", actor="ada")
    assert "It is paused by ada since" in sim.app.explain("n")


@pytest.mark.parametrize(
    ("overlap", "words"),
    [
        ("skip", "the new one is skipped"),
        ("buffer_one", "one more waits"),
        ("buffer_all(5)", "up to 5 wait"),
        ("cancel_other", "asked to end"),
        ("kill_other", "is ended"),
    ],
)
def test_explain_names_the_overlap_policy(sim: Sim, overlap: str, words: str) -> None:
    ref = sim.app.add(program.note.call("x"), every="1h", overlap=overlap)
    assert words in sim.app.explain(ref)


@pytest.mark.parametrize(
    ("misfire", "words"),
    [
        ("latest", "the latest runs"),
        ("first", "the first runs"),
        ("skip", "do not run"),
        ("all", "all run"),
    ],
)
def test_explain_names_the_misfire_policy(sim: Sim, misfire: str, words: str) -> None:
    ref = sim.app.add(program.note.call("x"), every="1h", misfire=misfire)
    assert words in sim.app.explain(ref)


def test_load_ahead_counts_planned_starts(sim: Sim) -> None:
    sim.app.add(program.note.call("x"), cron="*/10 * * * *")
    sim.app.add(program.note.call("y"), delay="15m")
    load = sim.app.load_ahead("1h", step="10m")
    assert sum(step.nominal for step in load) >= 6
    busiest = max(load, key=lambda step: step.nominal)
    assert busiest.nominal == 2


def test_a_shown_moment_means_the_instant_that_it_was_shown_for() -> None:
    """Intervals count from nanoseconds, and a datetime holds microseconds."""
    clock = ManualClock(wall_ns=1_767_225_600_123_456_789)
    app = Scheduler(":memory:", clock=clock, tasks=program.app.tasks, executor="inline")
    with app:
        ref = app.add(program.note_ctx.call(), every="10s", overlap="allow(9)")
        shown = app.next_times(ref, 1)[0].utc
        assert "not come yet" in app.why(ref, shown)
        clock.settle(threads=2)
        clock.advance(10.1)
        clock.settle(threads=2)
        assert program.log.calls == [("", 1, shown)]
        assert "It ran" in app.why(ref, shown)
        second = shown + timedelta(seconds=10)
        assert [run.nominal_ns % 1_000 for run in app.runs(job=ref)] == [789]
        assert len(app.runs(job=ref, since=shown, until=second)) == 1
        assert len(app.runs(job=ref, until=shown)) == 0
        clock.advance(10.1)
        clock.settle(threads=2)
        again = app.backfill(ref, shown, second, mode="all")
        assert again.nominals == [shown]
        clock.settle(threads=2)


def test_skips_tell_what_did_not_run_and_why(sim: Sim) -> None:
    sim.advance("30s")
    sim.app.add(program.note.call("x"), cron="* * * * *", name="often", misfire="skip")
    sim.kill()
    sim.step_wall("1h")
    sim.restart()
    sim.advance("1m")
    (found,) = sim.app.skips("often")
    assert (found.reason, found.count) == ("misfire", 60)
    assert sim.app.skips("often", since=sim.now + timedelta(hours=1)) == []
    with pytest.raises(ArgumentError, match="since"):
        sim.app.skips("often", since=datetime(2026, 1, 1))  # noqa: DTZ001 - naive
