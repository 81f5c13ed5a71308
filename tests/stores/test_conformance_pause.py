"""Pause and resume, on every store: what is held, what is caught up, what still works."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tests.stores.stage import (
    MINUTE,
    SECOND,
    Stage,
    at,
    cron,
    every,
    misfire,
    nominals,
    overlap,
)
from timingwheel.jobs.errors import UnknownJobError
from timingwheel.jobs.model import JobId, JobState, Outcome, Pause, RunReason
from timingwheel.jobs.store import Running

ENDS = pytest.mark.parametrize("end", ["", "close", "crash", "snapshot"])


def end_life(stage: Stage, end: str) -> None:
    """Let a pause meet what may happen during it."""
    if end == "snapshot":
        stage.snapshot()
    if end:
        stage.restart(crash=end != "close")


# -- what is held -----------------------------------------------------------------------------


@ENDS
@pytest.mark.parametrize("named", [{}, {"name": "n"}], ids=["plain", "named"])
def test_a_paused_one_time_job_starts_at_its_resume(
    stage: Stage, named: dict, end: str
) -> None:
    job = stage.put(10, **named)
    assert stage.pause(job)
    end_life(stage, end)
    assert stage.work(5, times=4) == []
    assert stage.job(job).state is JobState.PAUSED
    resumed = stage.resume(job)
    assert (resumed.starts, resumed.released) == ([], 1)
    assert len(stage.step()) == 1
    assert stage.states(job) == ["succeeded"]


@ENDS
def test_a_ready_run_is_held_and_starts_once_at_the_resume(
    stage: Stage, end: str
) -> None:
    job = stage.put(0)
    stage.fire()
    stage.pause(job)
    end_life(stage, end)
    assert stage.step() == []
    assert stage.resume(job).released == 1
    assert len(stage.step()) == 1
    assert stage.work(1, times=3) == []
    assert stage.states(job) == ["succeeded"]


def test_a_pause_that_is_over_before_anybody_looked_leaves_one_run(
    stage: Stage,
) -> None:
    job = stage.put(0)
    stage.fire()
    stage.pause(job)
    stage.resume(job)
    assert len(stage.start_due()) == 1
    assert stage.start_due() == []


@ENDS
def test_a_retry_is_held(stage: Stage, end: str) -> None:
    job = stage.put(0)
    stage.step(Outcome.ERROR)
    stage.pause(job)
    end_life(stage, end)
    assert stage.work(10, times=3) == []
    assert stage.states(job) == ["retrying"]
    assert stage.resume(job).released == 1
    assert len(stage.step()) == 1
    assert stage.states(job) == ["succeeded"]


@pytest.mark.parametrize("outcome", [Outcome.OK, Outcome.ERROR])
def test_a_running_attempt_goes_on_through_a_pause(
    stage: Stage, outcome: Outcome
) -> None:
    job = stage.put(0)
    claim = stage.start_one()
    stage.pause(job)
    assert stage.store.requests() == []
    stage.end(claim, outcome)
    assert stage.work(10) == []
    state = "succeeded" if outcome is Outcome.OK else "retrying"
    assert stage.states(job) == [state]


@pytest.mark.parametrize("named", [{}, {"name": "n"}], ids=["plain", "named"])
def test_a_run_that_was_claimed_and_has_not_begun_is_held(
    stage: Stage, named: dict
) -> None:
    job = stage.put(0, **named)
    stage.fire()
    [claim] = stage.claim(0, ahead=1)
    stage.pause(job)
    assert not stage.begin(claim)
    assert stage.states(job) == ["ready"]
    assert stage.step() == []
    stage.resume(job)
    [again] = stage.start_due()
    assert again.run.attempts == 1


@pytest.mark.parametrize("running", ["signal", "kill"])
def test_a_pause_can_ask_what_runs_to_end(stage: Stage, running: Running) -> None:
    job = stage.put(0)
    claim = stage.start_one()
    stage.store.hold(job, Pause(since_ns=stage.now_ns), running=running)
    [request] = stage.store.requests()
    assert (request.token, request.kill) == (claim.token, running == "kill")


@ENDS
def test_nothing_of_a_recurring_job_starts_while_it_is_paused(
    stage: Stage, end: str
) -> None:
    job = stage.put(every(10))
    stage.pause(job)
    end_life(stage, end)
    assert stage.work(10, times=5) == []
    stage.resume(job)
    assert stage.step() == []
    assert len(stage.work(10)) == 1
    assert stage.skipped(job) == [("paused", 5)]


def test_a_run_behind_another_is_held(stage: Stage) -> None:
    job = stage.put(every(10), overlap=overlap("buffer_one"))
    stage.advance(10)
    claim = stage.start_one()
    stage.advance(10)
    stage.fire()
    stage.pause(job)
    stage.end(claim)
    assert stage.work(1) == []
    stage.resume(job)
    assert len(stage.step()) == 1


# -- who and why ------------------------------------------------------------------------------


@ENDS
def test_a_pause_keeps_who_and_why_and_until_when(stage: Stage, end: str) -> None:
    job = stage.put(every(10))
    until_ns = stage.now_ns + 3600 * SECOND
    stage.pause(job, actor="eve", note="too loud", until_ns=until_ns)
    end_life(stage, end)
    pause = stage.job(job).pause
    assert pause is not None
    assert (pause.actor, pause.note, pause.until_ns) == ("eve", "too loud", until_ns)


def test_a_second_pause_replaces_note_and_end(stage: Stage) -> None:
    job = stage.put(every(10))
    assert stage.pause(job, note="one")
    assert not stage.pause(job, note="two", until_ns=stage.now_ns + MINUTE)
    pause = stage.job(job).pause
    assert pause is not None
    assert pause.note == "two"
    assert len(stage.work(61) + stage.work(10)) == 1


def test_a_second_pause_can_take_the_end_away(stage: Stage) -> None:
    job = stage.put(every(10))
    stage.pause(job, until_ns=stage.now_ns + MINUTE)
    stage.pause(job)
    assert stage.work(61, times=3) == []
    assert stage.job(job).state is JobState.PAUSED


def test_a_resume_forgets_the_pause(stage: Stage) -> None:
    job = stage.put(every(10))
    stage.pause(job, note="why")
    stage.resume(job)
    assert (stage.job(job).state, stage.job(job).pause) == (JobState.ACTIVE, None)


def test_resuming_what_is_not_paused_resumes_nothing(stage: Stage) -> None:
    job, plain = stage.put(every(10)), stage.put(10)
    for each in (job, plain):
        assert stage.resume(each, "all") == ([], 0, 0)
    assert len(stage.work(10)) == 2


@ENDS
def test_a_pause_ends_by_itself_when_its_time_has_come(stage: Stage, end: str) -> None:
    job = stage.put(every(10))
    stage.pause(job, until_ns=stage.now_ns + 35 * SECOND)
    end_life(stage, end)
    assert stage.work(10, times=3) == []
    assert stage.work(6) == []
    assert stage.job(job).state is JobState.ACTIVE
    assert stage.skipped(job) == [("paused", 3)]
    assert len(stage.work(5)) == 1


def test_a_pause_that_ended_while_the_store_was_down_has_ended(stage: Stage) -> None:
    job = stage.put(every(60))
    stage.pause(job, until_ns=stage.now_ns + 1000 * SECOND)
    stage.restart(down=1001)
    stage.step()
    assert stage.job(job).state is JobState.ACTIVE
    reasons = {reason for reason, _ in stage.skipped(job)}
    assert reasons <= {"paused", "misfire"}
    assert len(stage.work(60)) == 1


def test_a_job_that_is_over_cannot_be_paused(stage: Stage) -> None:
    job = stage.put(0)
    stage.step()
    with pytest.raises(UnknownJobError):
        stage.pause(job)
    with pytest.raises(UnknownJobError):
        stage.resume(JobId("nobody"))


# -- resume: what is caught up ------------------------------------------------------------------


def paused(stage: Stage, count: int, **more: object) -> JobId:
    """Return a job of every minute that is paused for so many of its times."""
    job = stage.put(every(60), overlap=overlap("allow"), **more)
    stage.pause(job)
    stage.work(60, times=count)
    return job


def test_by_default_a_resume_catches_up_nothing(stage: Stage) -> None:
    job = paused(stage, 5)
    resumed = stage.resume(job)
    assert (resumed.starts, resumed.skipped) == ([], 5)
    assert stage.step() == []
    assert stage.skipped(job) == [("paused", 5)]
    assert len(stage.work(60)) == 1


def test_a_resume_can_catch_up_the_latest(stage: Stage) -> None:
    job = paused(stage, 5)
    resumed = stage.resume(job, "latest")
    assert (len(resumed.starts), resumed.skipped) == (1, 4)
    [run] = stage.step()
    assert [run.nominal_ns] == resumed.starts
    assert run.reason is RunReason.CATCH_UP
    [on_time] = stage.work(60)
    assert on_time.nominal_ns - run.nominal_ns == MINUTE


def test_a_resume_can_catch_up_all(stage: Stage) -> None:
    job = paused(stage, 5)
    resumed = stage.resume(job, "all")
    runs = stage.step()
    assert nominals(runs) == resumed.starts
    assert (len(runs), resumed.skipped) == (5, 0)
    assert stage.skipped(job) == []


def test_a_resume_that_catches_up_all_gets_past_one_plan(stage: Stage) -> None:
    job = stage.put(every(1), overlap=overlap("allow", 5_000))
    stage.pause(job)
    stage.advance(700.5)
    assert len(stage.resume(job, "all").starts) == 700
    times = nominals(stage.step())
    assert [b - a for a, b in pairwise(times)] == [SECOND] * 699


def test_a_resume_can_catch_up_a_window(stage: Stage) -> None:
    job = paused(stage, 5)
    resumed = stage.resume(job, "since", window_ns=150 * SECOND)
    assert (len(resumed.starts), resumed.skipped) == (3, 2)
    assert len(stage.step()) == 3


@pytest.mark.parametrize("rule", ["skip", "latest", "all", "since"])
def test_a_dry_run_says_what_a_resume_would_start_and_changes_nothing(
    stage: Stage, rule: str
) -> None:
    job = paused(stage, 5)
    more = {"window_ns": 90 * SECOND} if rule == "since" else {}
    foretold = stage.resume(job, rule, dry_run=True, **more)
    assert stage.job(job).state is JobState.PAUSED
    assert stage.step() == []
    assert stage.skipped(job) == []
    assert stage.resume(job, rule, **more) == foretold
    assert nominals(stage.step()) == foretold.starts


def test_what_a_pause_has_passed_over_is_no_misfire(stage: Stage) -> None:
    job = paused(stage, 5, misfire=misfire("all"))
    stage.restart(crash=True, down=301)
    stage.resume(job)
    assert stage.step() == []
    assert stage.skipped(job) == [("paused", 10)]


def test_after_a_pause_of_a_week_a_job_goes_on_at_the_next_minute(
    stage: Stage,
) -> None:
    job = stage.put(cron("* * * * *"))
    stage.pause(job)
    stage.work(7 * 86_400)
    stage.resume(job)
    assert len(stage.work(60)) == 1
    assert stage.skipped(job) == [("paused", 7 * 1440)]


def test_pausing_again_and_again_keeps_each_time_once(stage: Stage) -> None:
    job = stage.put(every(10), overlap=overlap("allow"))
    for rule in ("skip", "latest", "all", "skip"):
        stage.work(10)
        stage.pause(job)
        stage.work(10, times=3)
        stage.resume(job, rule)
        stage.step()
    runs, skips = stage.runs(job), stage.store.skips(job)
    assert len(runs) + sum(skip.count for skip in skips) == 16
    for run in runs:
        assert not any(s.first_ns <= run.nominal_ns <= s.last_ns for s in skips)


# -- what still works ---------------------------------------------------------------------------


@ENDS
@pytest.mark.parametrize("recurs", [True, False])
def test_a_manual_trigger_works_while_a_job_is_paused(
    stage: Stage, recurs: bool, end: str
) -> None:
    job = stage.put(every(10) if recurs else 10)
    stage.pause(job)
    run = stage.trigger(job)
    end_life(stage, end)
    assert [started.id for started in stage.step()] == [run.id]
    assert stage.job(job).state is JobState.PAUSED


def test_a_cancel_works_while_a_job_is_paused(stage: Stage) -> None:
    job = stage.put(10)
    stage.pause(job)
    assert stage.store.cancel(job)
    assert stage.work(20) == []
    assert stage.states(job) == ["cancelled"]


def test_the_start_deadline_of_a_held_run_goes_on(stage: Stage) -> None:
    job = stage.put(at(stage.now_ns + SECOND), start_deadline_ns=10 * SECOND)
    stage.advance(1)
    stage.fire()
    stage.pause(job)
    stage.advance(9)
    stage.fire()
    assert stage.states(job) == ["ready"]
    stage.work(2)
    assert stage.states(job) == ["skipped"]
