"""`why` answers from stored facts: one test for each sentence."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from tests.scheduler import program
from timingwheel.errors import ArgumentError
from timingwheel.jobs.after import After
from timingwheel.scheduler.scheduler import Scheduler
from timingwheel.scheduler.simulation import SIM_START, Sim


def at(seconds: float) -> datetime:
    return SIM_START + timedelta(seconds=seconds)


def test_a_run_that_succeeded_says_when_and_how_late(sim: Sim) -> None:
    sim.app.add(program.note.call("x"), every="10s", name="job")
    sim.advance(10.5)
    assert sim.app.why("job", at(10)) == (
        "It ran: started at 2026-01-01 00:00:11 UTC, on time, succeeded at "
        "2026-01-01 00:00:11 UTC."
    ).replace("00:00:11", "00:00:10")


def test_a_run_that_failed_says_the_error_and_after_how_many_attempts(
    sim: Sim,
) -> None:
    ref = sim.app.add(program.fail.call(), at=at(5))
    sim.advance("1m")
    found = sim.app.why(ref, at(5))
    assert "after 3 attempts" in found
    assert found.endswith("ValueError: the 3. failure.")


def test_a_run_that_waits_for_its_retry_says_so(sim: Sim) -> None:
    ref = sim.app.add(program.fail.call(), at=at(5))
    sim.advance(5.1)
    assert "waits for its next attempt: 1 failed" in sim.app.why(ref, at(5))


def test_a_missed_occurrence_names_the_range_it_was_part_of(sim: Sim) -> None:
    """Case 25."""
    sim.app.add(program.note.call("x"), every="10s", name="job")
    sim.advance(11)
    sim.crash()
    sim.advance(50)
    sim.restart()
    found = sim.app.why("job", at(30))
    assert "skipped: its time passed while no scheduler served" in found
    assert "one of 4 from 2026-01-01 00:00:20 UTC to 2026-01-01 00:00:50 UTC" in found
    assert "It ran" in sim.app.why("job", at(60))


def test_a_paused_occurrence_says_that_it_was_paused(sim: Sim) -> None:
    sim.app.add(program.note.call("x"), every="10s", name="job")
    sim.app.pause("job", note="quiet please", actor="ada")
    sim.advance(15)
    assert "paused by ada" in sim.app.why("job", at(20))
    assert "(quiet please)" in sim.app.why("job", at(20))
    sim.app.resume("job")
    assert "the job was paused" in sim.app.why("job", at(10))


def test_a_time_that_the_trigger_does_not_name_gets_its_neighbours(sim: Sim) -> None:
    sim.app.add(program.note.call("x"), cron="0 * * * *", name="job")
    assert sim.app.why("job", at(1800)) == (
        "The trigger names no such time; the nearest are 2026-01-01 00:00:00 UTC and "
        "2026-01-01 01:00:00 UTC."
    )


def test_a_day_that_a_calendar_excludes_is_named_as_such(sim: Sim) -> None:
    sim.app.calendar("holidays").exclude(at(86_400).date())
    sim.app.add(program.note.call("x"), cron="0 6 * * *", calendar="holidays", name="j")
    assert "its calendar excludes that day" in sim.app.why("j", at(86_400 + 6 * 3600))
    sim.advance("3d")
    assert "its calendar excludes that day" in sim.app.why("j", at(86_400 + 6 * 3600))
    assert "names no such time" in sim.app.why("j", at(86_400 + 7 * 3600))


def test_a_time_before_the_job_was_made_says_so(sim: Sim) -> None:
    sim.advance("90m")
    sim.app.add(program.note.call("x"), cron="0 * * * *", name="job")
    assert "only made at 2026-01-01 01:30:00 UTC" in sim.app.why("job", at(3600))


def test_a_time_to_come_says_so(sim: Sim) -> None:
    sim.app.add(program.note.call("x"), cron="0 * * * *", name="job")
    assert "It has not come yet" in sim.app.why("job", at(3600))


def test_a_cancelled_job_says_so(sim: Sim) -> None:
    sim.app.add(program.note.call("x"), cron="0 * * * *", name="job")
    ref = sim.app.job("job")
    sim.app.cancel("job")
    assert "the job was cancelled" in sim.app.why(ref, at(3600))


def test_a_one_time_job_names_its_only_time(sim: Sim) -> None:
    ref = sim.app.add(program.note.call("x"), at=at(60))
    assert "runs once, at 2026-01-01 00:01:00 UTC" in sim.app.why(ref, at(30))


def test_a_run_that_is_ready_says_what_it_waits_for(sim: Sim) -> None:
    sim.app.queue("mail").pause(note="spam", actor="ada")
    ref = sim.app.add(program.note.call("x"), at=at(1), queue="mail")
    sim.advance(2)
    assert "the queue 'mail' is paused by ada" in sim.app.why(ref, at(1))

    old = Scheduler("never").task(name="gone")(program.note.function)
    ref = sim.app.add(old.call("x"), at=at(3))
    sim.advance(2)
    assert "no worker here knows the task 'gone'" in sim.app.why(ref, at(3))


def test_a_run_before_start_says_that_the_scheduler_is_not_started() -> None:
    app = Scheduler(":memory:", tasks=program.app.tasks)
    ref = app.add(program.note.call("x"), at=SIM_START)
    assert "not" in app.why(ref, SIM_START)
    app.stop()


def test_a_job_after_others_names_them(sim: Sim) -> None:
    first = sim.app.add(program.note.call("x"), delay="1h")
    ref = sim.app.add(program.note.call("y"), after=After(first))
    found = sim.app.why(ref, at(0))
    assert f"waits for {first.id} to succeed" in found


def test_a_manual_run_is_told_apart(sim: Sim) -> None:
    sim.app.add(program.note.call("x"), cron="0 * * * *", name="job")
    run = sim.app.trigger("job").get()
    sim.run_until_idle()
    nominal = at(0) + timedelta(microseconds=(run.nominal_ns // 1_000) % 10**6)
    assert "(manual) ran" in sim.app.why("job", nominal)


def test_a_naive_time_is_refused(sim: Sim) -> None:
    sim.app.add(program.note.call("x"), cron="0 * * * *", name="job")
    with pytest.raises(ArgumentError, match="nominal"):
        sim.app.why("job", datetime(2026, 1, 1))  # noqa: DTZ001 - on purpose
