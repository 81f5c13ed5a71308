"""Cancel, pause, resume, trigger, mend: what each line of the contract says."""

from __future__ import annotations

import getpass
from datetime import datetime, timedelta

import pytest

from tests.scheduler import program
from timingwheel.errors import ArgumentError, EngineClosedError
from timingwheel.jobs.errors import (
    RunStateError,
    UnknownJobError,
    UnknownRunError,
    UnknownTaskError,
)
from timingwheel.jobs.model import JobState, RunReason, RunState
from timingwheel.jobs.store import CancelResult
from timingwheel.scheduler.scheduler import Scheduler
from timingwheel.scheduler.simulation import SIM_START, Sim

NOBODY = "00000000-0000-8000-8000-000000000001"
NS = 10**9


def nominals(sim: Sim, job: str) -> list[float]:
    """Seconds after the start of the simulation."""
    start_ns = int(SIM_START.timestamp()) * NS
    return [(run.nominal_ns - start_ns) / NS for run in sim.runs(job, limit=1_000)]


# -- cancel ------------------------------------------------------------------------------


def test_cancel_is_true_when_it_prevented_a_start(sim: Sim) -> None:
    job_id = sim.app.schedule(program.note.call("never"), 10)
    result = sim.app.cancel(job_id)
    assert result is CancelResult.CANCELLED
    assert result
    sim.advance(60)
    assert program.log.calls == []


def test_cancel_again_of_the_finished_and_of_the_unknown_is_false(sim: Sim) -> None:
    job_id = sim.app.schedule(program.note.call("x"), 10)
    done_id = sim.app.schedule(program.note.call("y"), 1)
    sim.app.cancel(job_id)
    sim.advance(5)
    for job, result in [
        (job_id, CancelResult.ALREADY),
        (done_id, CancelResult.FINISHED),
        (NOBODY, CancelResult.NOT_FOUND),
        ("no such name", CancelResult.NOT_FOUND),
    ]:
        found = sim.app.cancel(job)
        assert found is result
        assert not found


def test_a_cancelled_job_never_runs_also_after_a_crash(sim: Sim) -> None:
    """Case 21."""
    job_id = sim.app.schedule(program.note.call("never"), 10)
    assert sim.app.cancel(job_id)
    sim.crash()
    sim.restart()
    sim.advance("1d")
    assert program.log.calls == []


def test_cancel_of_a_recurring_job_takes_its_ref_and_ends_it(sim: Sim) -> None:
    ref = sim.app.add(program.note.call("x"), every="10s", name="often")
    sim.advance(25)
    assert sim.app.cancel(ref)
    sim.advance(60)
    assert program.log.calls == ["x", "x"]
    assert sim.app.job(ref).state is JobState.CANCELLED


def test_cancel_of_a_run_that_waits_for_its_retry_prevents_it(sim: Sim) -> None:
    job_id = sim.app.schedule(program.fail.call(), 0)
    sim.run_until_idle()
    assert program.log.calls == ["fail"]
    assert sim.app.cancel(job_id)
    sim.advance("1h")
    assert program.log.calls == ["fail"]


def test_cancel_refuses_a_word_that_it_does_not_know(sim: Sim) -> None:
    with pytest.raises(ArgumentError, match="running"):
        sim.app.cancel(NOBODY, running="stop")  # type: ignore[arg-type]


# -- pause and resume --------------------------------------------------------------------


def test_a_paused_job_starts_nothing_and_says_who_paused_it_and_why(sim: Sim) -> None:
    app = Scheduler(":memory:", tasks=program.app.tasks)
    ref = app.add(program.note.call("x"), every="10s")
    assert app.pause(ref, note="too loud")
    pause = app.job(ref).pause
    assert pause is not None
    assert (pause.actor, pause.note) == (getpass.getuser(), "too loud")
    app.stop()

    sim.app.add(program.note.call("x"), every="10s", name="loud")
    assert sim.app.pause("loud", note="a", actor="ada")
    assert not sim.app.pause("loud", note="b", actor="bob")  # it was already
    sim.advance("1m")
    assert program.log.calls == []
    pause = sim.app.job("loud").pause
    assert pause is not None
    assert (pause.actor, pause.note) == ("bob", "b")


def test_a_pause_survives_a_restart(sim: Sim) -> None:
    sim.app.add(program.note.call("x"), every="10s", name="loud")
    sim.app.pause("loud")
    sim.crash()
    sim.restart()
    sim.advance("1m")
    assert program.log.calls == []
    assert sim.app.job("loud").state is JobState.PAUSED


def test_a_resume_catches_up_nothing_by_default(sim: Sim) -> None:
    """Case 12: every 5 s, paused 20 s."""
    sim.app.add(program.note.call("x"), every="5s", name="loud")
    sim.advance(6)
    sim.app.pause("loud")
    sim.advance(20)
    sim.app.resume("loud")
    assert nominals(sim, "loud") == [5]
    sim.advance(5)
    assert nominals(sim, "loud") == [5, 30]


def test_a_resume_with_latest_runs_one_and_then_on_time(sim: Sim) -> None:
    """Case 12."""
    sim.app.add(program.note.call("x"), every="5s", name="loud")
    sim.advance(6)
    sim.app.pause("loud")
    sim.advance(20)
    found = sim.app.resume("loud", catch_up="latest")
    assert (len(found.starts), found.skipped) == (1, 3)
    sim.run_until_idle()
    assert nominals(sim, "loud") == [5, 25]
    sim.advance(5)
    assert nominals(sim, "loud") == [5, 25, 30]


def test_a_dry_run_of_a_resume_says_what_would_start_and_changes_nothing(
    sim: Sim,
) -> None:
    sim.app.add(program.note.call("x"), every="5s", name="loud")
    sim.app.pause("loud")
    sim.advance(21)
    found = sim.app.resume("loud", catch_up="all", dry_run=True)
    assert len(found.starts) == 4
    sim.advance(60)
    assert program.log.calls == []
    assert sim.app.job("loud").state is JobState.PAUSED


def test_a_resume_can_catch_up_a_window(sim: Sim) -> None:
    sim.app.add(
        program.note.call("x"), every="5s", name="loud", overlap="buffer_all(100)"
    )
    sim.app.pause("loud")
    sim.advance(61)
    sim.app.resume("loud", catch_up="since(11s)")
    sim.run_until_idle()
    assert nominals(sim, "loud") == [50, 55, 60]


def test_a_held_one_time_job_starts_at_once_when_it_resumes(sim: Sim) -> None:
    ref = sim.app.add(program.note.call("x"), delay="10s")
    sim.app.pause(ref)
    sim.advance("1h")
    assert program.log.calls == []
    sim.app.resume(ref)
    sim.run_until_idle()
    assert program.log.calls == ["x"]


@pytest.mark.parametrize("until", ["30s", SIM_START + timedelta(seconds=30)])
def test_a_pause_until_a_moment_ends_by_itself(sim: Sim, until: str | datetime) -> None:
    sim.app.add(program.note.call("x"), every="10s", name="loud")
    sim.app.pause("loud", until=until)
    sim.advance(29)
    assert program.log.calls == []
    sim.advance(20)
    assert len(program.log.calls) >= 1
    assert sim.app.job("loud").state is JobState.ACTIVE


def test_a_pause_until_the_past_is_refused(sim: Sim) -> None:
    sim.app.add(program.note.call("x"), every="10s", name="loud")
    with pytest.raises(ArgumentError, match="until"):
        sim.app.pause("loud", until=SIM_START)
    with pytest.raises(ArgumentError, match="until"):
        sim.app.pause("loud", until=datetime(2030, 1, 1))  # noqa: DTZ001 - on purpose


def test_a_manual_trigger_runs_a_paused_job(sim: Sim) -> None:
    sim.app.add(program.note.call("x"), every="10s", name="loud")
    sim.app.pause("loud")
    handle = sim.app.trigger("loud")
    sim.run_until_idle()
    assert handle.result() == "X"
    run = handle.get()
    assert run.reason is RunReason.MANUAL
    assert run.n >= 1
    assert sim.app.job("loud").state is JobState.PAUSED


def test_what_is_not_there_cannot_be_paused_resumed_or_triggered(sim: Sim) -> None:
    for request in (sim.app.pause, sim.app.resume, sim.app.trigger, sim.app.explain):
        with pytest.raises(UnknownJobError, match="no such"):
            request("no such")
    with pytest.raises(ArgumentError, match="job"):
        sim.app.job(7)  # type: ignore[arg-type]


# -- queues and calendars ----------------------------------------------------------------


def test_a_paused_queue_holds_its_runs_and_no_others(sim: Sim) -> None:
    mail = sim.app.queue("mail")
    assert sim.app.pause(mail, note="spam", actor="ada")
    assert not sim.app.pause(mail, note="spam")
    sim.app.add(program.note.call("mail"), delay=1, queue="mail")
    sim.app.add(program.note.call("other"), delay=1)
    sim.advance(10)
    assert program.log.calls == ["other"]
    pause = mail.get().pause
    assert pause is not None
    assert pause.note == "spam"
    sim.app.resume(mail)
    sim.run_until_idle()
    assert program.log.calls == ["other", "mail"]
    assert not mail.resume()


def test_the_bounds_of_a_queue_are_set_one_by_one_and_kept(sim: Sim) -> None:
    mail = sim.app.queue("mail")
    assert (mail.get().limit, mail.get().rate) == (None, None)
    mail.set(limit=3)
    mail.set(rate=0.5)
    sim.restart()
    found = sim.app.queue("mail").get()
    assert (found.limit, found.rate) == (3, 0.5)
    sim.app.queue("mail").set(limit=None)
    found = sim.app.queue("mail").get()
    assert (found.limit, found.rate) == (None, 0.5)


def test_a_queue_starts_no_more_a_second_than_its_rate(sim: Sim) -> None:
    sim.app.queue("mail").set(rate=0.5)
    for number in range(4):
        sim.app.add(program.note.call(str(number)), delay=1, queue="mail")
    sim.advance(2)
    assert len(program.log.calls) == 1
    sim.advance(2)
    assert len(program.log.calls) == 2
    sim.advance(4)
    assert len(program.log.calls) == 4


@pytest.mark.parametrize(
    ("bound", "value"),
    [
        ("limit", 0),
        ("limit", True),
        ("limit", 1.5),
        ("rate", 0),
        ("rate", float("nan")),
    ],
)
def test_a_bound_that_is_not_positive_is_refused(
    sim: Sim, bound: str, value: float
) -> None:
    with pytest.raises(ArgumentError, match=bound):
        sim.app.queue("mail").set(**{bound: value})  # type: ignore[arg-type]


def test_a_calendar_leaves_its_days_out_and_can_be_changed(sim: Sim) -> None:
    holidays = sim.app.calendar("holidays")
    assert holidays.get() is None
    second, third = (SIM_START + timedelta(days=n) for n in (1, 2))
    holidays.exclude(second.date(), third.date())
    sim.app.add(
        program.note.call("x"), cron="0 6 * * *", calendar="holidays", name="daily"
    )
    sim.advance("4d")
    days = [round(at / 3600 - 6) // 24 for at in nominals(sim, "daily")]
    assert days == [0, 3]
    holidays.include(second.date())
    calendar = holidays.get()
    assert calendar is not None
    assert calendar.dates == (third.date(),)


# -- the dead and the lost -----------------------------------------------------------------


def test_a_failed_run_is_retried_by_hand_under_its_own_id(sim: Sim) -> None:
    program.log.errors.append(ValueError("the first time"))
    job_id = sim.app.schedule(program.fail_once.call(), 1)
    sim.advance(2)
    (run,) = sim.app.runs(state="failed")
    assert run.job_id == job_id
    assert "the first time" in (run.error or "")
    handle = sim.app.retry(run)
    sim.run_until_idle()
    assert handle.id == run.id
    assert handle.get().state is RunState.SUCCEEDED
    assert [attempt.number for attempt in handle.attempts()] == [1, 2]
    with pytest.raises(RunStateError, match="succeeded"):
        sim.app.retry(run.id)


def test_a_discarded_run_leaves_the_dead_letter_list(sim: Sim) -> None:
    program.log.errors.append(ValueError("no"))
    sim.app.schedule(program.fail_once.call(), 1)
    sim.advance(2)
    (run,) = sim.app.runs(state="failed")
    assert [finding.kind for finding in sim.app.check()] == ["dead_letter"]
    assert sim.app.discard(run).discarded
    assert sim.app.check() == []


def test_a_run_that_nobody_knows_can_be_neither_retried_nor_discarded(
    sim: Sim,
) -> None:
    for request in (sim.app.retry, sim.app.discard):
        with pytest.raises(UnknownRunError):
            request(f"{NOBODY}@5")
    with pytest.raises(ArgumentError, match="run"):
        sim.app.run("@@")


def test_rebind_gives_the_jobs_of_a_task_that_is_gone_to_another(sim: Sim) -> None:
    """Case 3: the run waits, nothing is deleted, and the job goes on under the new name."""
    old = Scheduler("never", tasks=None)
    task = old.task(name="mailer:send")(program.note.function)
    job_id = sim.app.schedule(task.call("letter"), 1)
    sim.advance(60)
    assert program.log.calls == []
    assert [finding.kind for finding in sim.app.check()] == ["unknown_task"]
    with pytest.raises(UnknownTaskError):
        sim.app.rebind("mailer:send", "mailer:post")
    assert sim.app.rebind("mailer:send", program.note) == 1
    sim.run_until_idle()
    assert program.log.calls == ["letter"]
    assert sim.app.job(job_id).task == program.note.name


def test_a_payload_that_no_longer_fits_quarantines_its_job_and_keeps_the_bytes(
    sim: Sim,
) -> None:
    """Case 3."""
    old = Scheduler("never")
    task = old.task(name=program.fail.name)(program.note.function)
    job_id = sim.app.schedule(task.call("not a number"), 1)
    sim.advance(2)
    job = sim.app.job(job_id)
    assert job.state is JobState.QUARANTINED
    assert "version" in job.fault
    assert job.payload == task.call("not a number").payload
    assert "quarantined" in sim.app.explain(job_id)
    assert "quarantined" in [finding.kind for finding in sim.app.check()]
    assert sim.app.rebind(program.fail.name, program.note) == 1
    sim.run_until_idle()
    assert program.log.calls == ["not a number"]


def test_a_follow_up_is_added_if_and_only_if_its_attempt_succeeds(sim: Sim) -> None:
    sim.app.schedule(program.chain.call(2), 0)
    sim.advance(25)
    assert program.log.calls == [2, 1, 0]
    program.log.clear()
    sim.app.schedule(program.chain_and_fail.call(), 0)
    sim.run_until_idle()
    assert program.log.calls == []
    sim.advance(5)
    assert program.log.calls == ["follow-up"]


def test_a_scheduler_that_was_stopped_says_so(sim: Sim) -> None:
    app = Scheduler(":memory:", tasks=program.app.tasks)
    ref = app.add(program.note.call("x"), delay="1h")
    app.stop()
    app.stop()

    with pytest.raises(EngineClosedError, match="stopped"):
        app.job(ref)
