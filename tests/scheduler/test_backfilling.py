"""Backfill: runs for the past, and never one twice by mistake."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.scheduler import program
from timingwheel.errors import ArgumentError
from timingwheel.jobs.every import Every
from timingwheel.jobs.model import Job, JobId, Payload, RunReason, RunState
from timingwheel.jobs.triggers import EveryPeriod, Trigger
from timingwheel.scheduler.backfilling import BACKFILL_MAX, plan_backfill
from timingwheel.scheduler.simulation import SIM_START, Sim

HOUR = timedelta(hours=1)


@pytest.fixture
def hourly(sim: Sim) -> str:
    """A job that ran four times and then missed three, while nobody served."""
    sim.app.add(
        program.note.call("x"), cron="0 * * * *", name="hourly", overlap="allow(100)"
    )
    sim.advance("3h10m")
    sim.crash()
    sim.advance("3h")
    sim.restart()
    assert len(sim.runs("hourly")) == 5  # the latest was caught up
    program.log.clear()
    return "hourly"


def test_a_backfill_makes_what_is_missing(sim: Sim, hourly: str) -> None:
    found = sim.app.backfill(hourly, SIM_START, SIM_START + 6 * HOUR)
    assert found.nominals == [SIM_START + 4 * HOUR, SIM_START + 5 * HOUR]
    assert found.present == 4
    sim.run_until_idle()
    assert program.log.calls == ["x"] * 2
    for run_id in found.runs:
        run = sim.app.run(run_id).get()
        assert (run.state, run.reason) == (RunState.SUCCEEDED, RunReason.BACKFILL)


def test_a_backfill_again_makes_nothing(sim: Sim, hourly: str) -> None:
    sim.app.backfill(hourly, SIM_START, SIM_START + 6 * HOUR)
    found = sim.app.backfill(hourly, SIM_START, SIM_START + 6 * HOUR)
    assert (found.nominals, found.runs, found.present) == ([], [], 6)


def test_a_backfill_of_all_runs_each_once_more(sim: Sim, hourly: str) -> None:
    found = sim.app.backfill(hourly, SIM_START, SIM_START + 6 * HOUR, mode="all")
    sim.run_until_idle()
    assert len(found.runs) == 6
    assert len(set(found.runs)) == 6
    assert len(program.log.calls) == 6


def test_a_dry_run_makes_nothing(sim: Sim, hourly: str) -> None:
    found = sim.app.backfill(hourly, SIM_START, SIM_START + 6 * HOUR, dry_run=True)
    assert len(found.nominals) == 2
    assert found.runs == []
    sim.run_until_idle()
    assert program.log.calls == []


def test_what_cannot_be_meant_is_refused(sim: Sim, hourly: str) -> None:
    once = sim.app.add(program.note.call("x"), delay="1h")
    now = sim.now
    cases: list[tuple[Any, datetime, datetime, str]] = [
        (once, SIM_START, now, "job"),
        (hourly, now, SIM_START, "end"),
        (hourly, SIM_START, now + HOUR, "end"),
        (hourly, datetime(2026, 1, 1), now, "start"),  # noqa: DTZ001 - on purpose
    ]
    for job, start, end, argument in cases:
        with pytest.raises(ArgumentError, match=rf"^{argument}"):
            sim.app.backfill(job, start, end)
    with pytest.raises(ArgumentError, match="mode"):
        sim.app.backfill(hourly, SIM_START, now, mode="some")  # type: ignore[arg-type]


def test_more_runs_than_a_call_may_make_are_refused_with_their_number(
    sim: Sim,
) -> None:
    sim.app.add(program.note.call("x"), cron="* * * * *", name="minutely")
    with pytest.raises(ArgumentError, match="525,600"):
        sim.app.backfill(
            "minutely",
            datetime(2024, 12, 31, tzinfo=UTC),
            datetime(2025, 12, 31, tzinfo=UTC),
        )


# -- where history is no longer kept: the plan alone ---------------------------------------


def job(*, reached_ns: int | None, runs_made: int, created_ns: int = 5) -> Job:
    return Job(
        id=JobId("j"),
        task="t",
        payload=Payload(b""),
        trigger=Trigger(when=EveryPeriod(10)),
        created_ns=created_ns,
        reached_ns=reached_ns,
        runs_made=runs_made,
    )


def planned(
    found: Job, kept: list[tuple[int, int]], *, again: bool = False
) -> list[int]:
    plan = plan_backfill(
        found,
        Every(10, 10),
        kept,
        start_ns=0,
        end_ns=101,
        mode="missing",
        again=again,
    )
    return [run.nominal_ns for run in plan.runs]


def test_while_every_run_is_kept_the_missing_are_known() -> None:
    kept = [(30, 0), (50, 0)]
    assert planned(job(reached_ns=100, runs_made=2), kept) == [
        *(10, 20, 40),
        *(60, 70, 80, 90, 100),
    ]


def test_what_may_have_run_before_the_kept_history_needs_again() -> None:
    kept = [(50, 0), (60, 0)]
    purged = job(reached_ns=100, runs_made=6)
    with pytest.raises(ArgumentError, match="again=True"):
        planned(purged, kept)
    assert planned(purged, kept, again=True)[:4] == [10, 20, 30, 40]


def test_with_no_history_left_all_that_was_reached_needs_again() -> None:
    with pytest.raises(ArgumentError, match="10 occurrences"):
        planned(job(reached_ns=100, runs_made=6), [])


def test_what_lies_before_the_job_is_known_never_to_have_run() -> None:
    kept = [(50, 0), (60, 0)]
    assert planned(job(reached_ns=100, runs_made=6, created_ns=45), kept)[0] == 10


def test_the_limit_is_named() -> None:
    with pytest.raises(ArgumentError, match=f"{BACKFILL_MAX:,}"):
        plan_backfill(
            job(reached_ns=None, runs_made=0),
            Every(1, 1),
            [],
            start_ns=0,
            end_ns=BACKFILL_MAX + 2,
            mode="missing",
            again=False,
        )
