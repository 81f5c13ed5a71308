"""Cancel, on every store: each answer, the races, and that it holds for ever."""

from __future__ import annotations

import threading

import pytest

from tests.stores.stage import (
    NO_RETRY,
    TASK,
    Stage,
    after,
    draft,
    every,
    overlap,
)
from timingwheel.errors import ArgumentError
from timingwheel.jobs.calendars import NamedCalendar
from timingwheel.jobs.errors import UnknownJobError
from timingwheel.jobs.model import (
    JobId,
    JobState,
    Outcome,
    Payload,
    RunId,
    RunReason,
    RunState,
)
from timingwheel.jobs.model import run_id as make_run_id
from timingwheel.jobs.store import (
    CancelResult,
    CatchUp,
    Change,
    NewRun,
    Running,
    Verdict,
)

ENDS = pytest.mark.parametrize("end", ["", "close", "crash", "snapshot"])
KINDS = pytest.mark.parametrize("named", [{}, {"name": "n"}], ids=["plain", "named"])


def end_life(stage: Stage, end: str) -> None:
    """Begin a new life, if any."""
    if end == "snapshot":
        stage.snapshot()
    if end:
        stage.restart(crash=end != "close")


# -- the answers ------------------------------------------------------------------------------


@ENDS
@KINDS
@pytest.mark.parametrize("state", ["planned", "ready", "retrying", "held"])
def test_what_has_not_started_is_cancelled_for_ever(
    stage: Stage, state: str, named: dict, end: str
) -> None:
    job = stage.put(10 if state in ("planned", "held") else 0, **named)
    if state == "ready":
        stage.fire()
    if state == "retrying":
        stage.step(Outcome.ERROR)
    if state == "held":
        stage.pause(job)
        stage.advance(20)
        stage.fire()
    result = stage.store.cancel(job)
    assert result is CancelResult.CANCELLED
    assert result
    end_life(stage, end)
    assert stage.work(100, times=3) == []
    assert stage.states(job) == ["cancelled"]
    assert stage.job(job).state is JobState.CANCELLED
    assert stage.store.cancel(job) is CancelResult.ALREADY


@ENDS
def test_a_blocked_job_is_cancelled(stage: Stage, end: str) -> None:
    first = stage.put(10)
    job = stage.put(after(first))
    assert stage.states(job) == ["blocked"]
    assert stage.store.cancel(job)
    end_life(stage, end)
    assert len(stage.work(10, times=3)) == 1
    assert stage.states(job) == ["cancelled"]


@KINDS
def test_a_running_one_time_job_is_left_to_end_and_not_tried_again(
    stage: Stage, named: dict
) -> None:
    job = stage.put(0, **named)
    claim = stage.start_one()
    result = stage.store.cancel(job)
    assert result is CancelResult.RUNNING
    assert not result
    assert stage.store.requests() == []
    assert stage.fail(claim) is Verdict.ACCEPTED
    assert stage.work(100, times=3) == []
    assert stage.states(job) == ["cancelled"]


@KINDS
def test_a_running_job_that_succeeds_after_its_cancel_has_succeeded(
    stage: Stage, named: dict
) -> None:
    job = stage.put(0, **named)
    claim = stage.start_one()
    stage.store.cancel(job)
    assert stage.end(claim) is Verdict.ACCEPTED
    assert stage.states(job) == ["succeeded"]
    assert stage.job(job).state is JobState.CANCELLED


@pytest.mark.parametrize("running", ["signal", "kill"])
def test_a_running_job_can_be_asked_or_killed(stage: Stage, running: Running) -> None:
    job = stage.put(0)
    claim = stage.start_one()
    result = stage.store.cancel(job, running=running)
    assert result is CancelResult.REQUESTED
    assert not result
    [request] = stage.store.requests()
    assert (request.run_id, request.token) == (claim.run.id, claim.token)
    assert request.kill is (running == "kill")
    stage.end(claim, Outcome.CANCELLED)
    assert stage.states(job) == ["cancelled"]


@ENDS
@pytest.mark.parametrize("outcome", [Outcome.OK, Outcome.ERROR])
def test_a_job_that_is_over_is_finished(
    stage: Stage, outcome: Outcome, end: str
) -> None:
    job = stage.put(0, retry=NO_RETRY)
    stage.step(outcome)
    end_life(stage, end)
    result = stage.store.cancel(job)
    assert result is CancelResult.FINISHED
    assert not result


def test_a_job_that_is_cancelled_while_it_runs_is_already_so(stage: Stage) -> None:
    job = stage.put(0)
    stage.start_one()
    stage.store.cancel(job)
    assert stage.store.cancel(job) is CancelResult.ALREADY


def test_an_unknown_job_is_not_found(stage: Stage) -> None:
    for nobody in ("nobody", "8f7e6d5c-0000-8000-8000-00000000dead", ""):
        result = stage.store.cancel(JobId(nobody))
        assert result is CancelResult.NOT_FOUND
        assert not result


@ENDS
@pytest.mark.parametrize("state", ["active", "paused", "running", "quarantined"])
def test_a_recurring_job_is_cancelled_whatever_it_does(
    stage: Stage, state: str, end: str
) -> None:
    job = stage.put(every(10), overlap=overlap("buffer_all"))
    if state == "paused":
        stage.pause(job)
    if state == "running":
        stage.advance(10)
        stage.start_one()
        stage.advance(10)
        stage.fire()
    if state == "quarantined":
        stage.store.quarantine(job, "no task")
    assert stage.store.cancel(job) is CancelResult.CANCELLED
    end_life(stage, end)
    assert stage.work(10, times=3) == []
    assert stage.job(job).state is JobState.CANCELLED


def test_a_job_after_a_recurring_one_is_cancelled_while_it_runs(
    stage: Stage,
) -> None:
    first = stage.put(every(10))
    job = stage.put(after(first))
    stage.work(10)
    claim = stage.start_one()
    assert claim.run.job_id == job
    assert stage.store.cancel(job) is CancelResult.CANCELLED
    stage.end(claim)
    stage.work(10)
    assert stage.step() == []


# -- the races --------------------------------------------------------------------------------


@KINDS
def test_a_run_that_was_claimed_and_has_not_begun_is_cancelled(
    stage: Stage, named: dict
) -> None:
    job = stage.put(0, **named)
    stage.fire()
    [claim] = stage.claim()
    assert stage.store.cancel(job) is CancelResult.CANCELLED
    assert not stage.begin(claim)
    assert stage.end(claim) is Verdict.LEASE_LOST
    assert stage.work(100) == []
    assert stage.states(job) == ["cancelled"]


@KINDS
def test_a_run_that_has_begun_is_running(stage: Stage, named: dict) -> None:
    job = stage.put(0, **named)
    stage.fire()
    [claim] = stage.claim()
    assert stage.begin(claim)
    assert stage.store.cancel(job) is CancelResult.RUNNING


def test_of_a_cancel_and_a_start_at_once_one_wins(stage: Stage) -> None:
    jobs = [stage.put(0, **({"name": f"n{n}"} if n % 2 else {})) for n in range(40)]
    stage.fire()
    claims = {claim.run.job_id: claim for claim in stage.claim()}
    begun: set[JobId] = set()
    gate = threading.Barrier(2)

    def begin_all() -> None:
        gate.wait()
        for job in jobs:
            if stage.store.begin(claims[job].run.id, claims[job].token):
                begun.add(job)

    thread = threading.Thread(target=begin_all)
    thread.start()
    gate.wait()
    results = {job: stage.store.cancel(job) for job in reversed(jobs)}
    thread.join()
    for job, result in results.items():
        wanted = CancelResult.RUNNING if job in begun else CancelResult.CANCELLED
        assert result is wanted


@KINDS
def test_a_lost_run_of_a_cancelled_job_does_not_start_again(
    stage: Stage, named: dict
) -> None:
    job = stage.put(0, **named)
    stage.start_one()
    stage.store.cancel(job)
    stage.restart(crash=True)
    assert stage.work(100, times=2) == []
    assert stage.states(job) == ["cancelled"]


@pytest.mark.parametrize("outcome", [Outcome.SHUTDOWN, Outcome.TIMEOUT, Outcome.LOST])
def test_no_end_of_an_attempt_starts_a_cancelled_job_again(
    stage: Stage, outcome: Outcome
) -> None:
    job = stage.put(0)
    claim = stage.start_one()
    stage.store.cancel(job)
    stage.end(claim, outcome)
    assert stage.work(100, times=2) == []
    assert stage.states(job) == ["cancelled"]


def test_a_snooze_of_a_cancelled_job_is_its_end(stage: Stage) -> None:
    job = stage.put(0)
    claim = stage.start_one()
    stage.store.cancel(job)
    stage.end(claim, snooze_ns=5)
    assert stage.work(100, times=2) == []
    assert stage.states(job) == ["succeeded"]


def test_an_undecodable_payload_does_not_revive_a_cancelled_job(stage: Stage) -> None:
    job = stage.put(0)
    claim = stage.start_one()
    stage.store.cancel(job)
    stage.end(claim, Outcome.ERROR, undecodable=True)
    assert stage.store.rebind(TASK, "new") == 0
    assert stage.states(job) == ["cancelled"]


def test_nothing_changes_a_cancelled_job_whose_run_goes_on(stage: Stage) -> None:
    stage.store.set_calendar("c", NamedCalendar())
    job = stage.put(every(10, calendar="c"))
    stage.advance(10)
    claim = stage.start_one()
    stage.store.cancel(job)
    for change in (
        lambda: stage.pause(job),
        lambda: stage.resume(job),
        lambda: stage.trigger(job),
        lambda: stage.store.update(
            job, Change(payload=Payload(b"y")), if_revision=None
        ),
        lambda: stage.store.quarantine(job, "why"),
    ):
        with pytest.raises(UnknownJobError):
            change()
    assert stage.store.rebind(TASK, "new") == 0
    stage.store.set_calendar("c", NamedCalendar(weekdays=("SUN",)))
    assert stage.end(claim) is Verdict.ACCEPTED
    assert stage.work(10, times=3) == []
    assert stage.job(job).state is JobState.CANCELLED


def test_a_failed_run_of_a_cancelled_job_can_be_retried_by_hand(stage: Stage) -> None:
    job = stage.put(every(10), retry=NO_RETRY)
    [dead] = stage.work(10, outcome=Outcome.ERROR)
    stage.store.cancel(job)
    stage.store.retry(dead.id)
    assert [run.id for run in stage.step()] == [dead.id]
    assert stage.work(10, times=3) == []
    assert stage.states(job) == ["succeeded"]


def test_a_manual_run_is_cancelled_with_its_job(stage: Stage) -> None:
    job = stage.put(10)
    stage.trigger(job)
    assert stage.store.cancel(job)
    assert stage.work(10, times=2) == []
    assert stage.states(job) == ["cancelled", "cancelled"]


def test_cancelling_hundreds_of_jobs_leaves_the_others(stage: Stage) -> None:
    refs = stage.store.put([draft(10) for _ in range(300)])
    gone = [ref.id for ref in refs[::2]]
    assert all(stage.store.cancel(job) for job in gone)
    stage.restart(crash=True)
    started = {run.job_id for run in stage.work(10)}
    assert started == {ref.id for ref in refs} - set(gone)
    states = frozenset({RunState.CANCELLED})
    assert {run.job_id for run in stage.runs(states=states)} == set(gone)


# -- one run ----------------------------------------------------------------------------------


@ENDS
@pytest.mark.parametrize("state", ["ready", "retrying", "held"])
def test_one_run_that_has_not_started_is_cancelled_and_its_job_goes_on(
    stage: Stage, state: str, end: str
) -> None:
    job = stage.put(every(10))
    stage.advance(10)
    if state == "retrying":
        stage.step(Outcome.ERROR)
    stage.fire()
    if state == "held":
        stage.pause(job)
    [run] = stage.runs(job)
    assert stage.store.cancel_run(run.id) is CancelResult.CANCELLED
    end_life(stage, end)
    assert stage.states(job) == ["cancelled"]
    assert stage.store.cancel_run(run.id) is CancelResult.ALREADY
    if state == "held":
        stage.store.unhold(job, CatchUp())
    assert len(stage.work(10)) == 1
    assert stage.states(job) == ["cancelled", "succeeded"]


@pytest.mark.parametrize("running", ["leave", "signal", "kill"])
@pytest.mark.parametrize("outcome", [Outcome.ERROR, Outcome.CANCELLED])
def test_one_run_that_runs_is_not_tried_again_and_its_job_goes_on(
    stage: Stage, running: Running, outcome: Outcome
) -> None:
    job = stage.put(every(10))
    stage.advance(10)
    claim = stage.start_one()
    result = stage.store.cancel_run(claim.run.id, running=running)
    wanted = CancelResult.RUNNING if running == "leave" else CancelResult.REQUESTED
    assert result is wanted
    asked = [(one.token, one.kill) for one in stage.store.requests()]
    assert asked == ([] if running == "leave" else [(claim.token, running == "kill")])
    assert stage.end(claim, outcome) is Verdict.ACCEPTED
    assert stage.states(job) == ["cancelled"]
    assert len(stage.work(10)) == 1


def test_one_run_that_is_left_to_end_can_be_asked_later(stage: Stage) -> None:
    stage.put(every(10))
    stage.advance(10)
    claim = stage.start_one()
    stage.store.cancel_run(claim.run.id)
    assert (
        stage.store.cancel_run(claim.run.id, running="kill") is CancelResult.REQUESTED
    )
    assert [one.kill for one in stage.store.requests()] == [True]


def test_one_run_that_is_claimed_and_not_begun_never_begins(stage: Stage) -> None:
    job = stage.put(every(10))
    stage.advance(10)
    stage.fire()
    [claim] = stage.claim()
    assert stage.store.cancel_run(claim.run.id, running="signal")
    assert not stage.begin(claim)
    assert stage.end(claim) is Verdict.LEASE_LOST
    [run] = stage.runs(job)
    assert (run.state, run.attempts) == (RunState.CANCELLED, 0)


def test_what_waits_behind_a_run_goes_when_it_is_cancelled(stage: Stage) -> None:
    job = stage.put(every(10), overlap=overlap("buffer_all", 5))
    stage.advance(10)
    stage.fire()
    [first] = stage.claim()
    stage.advance(10)
    stage.fire()
    assert stage.claim() == []
    assert stage.store.cancel_run(first.run.id)
    [second] = stage.start_due()
    assert second.run.nominal_ns > first.run.nominal_ns
    stage.end(second)
    assert stage.states(job) == ["cancelled", "succeeded"]


@KINDS
@pytest.mark.parametrize("due_s", [0, 10])
def test_a_job_that_runs_once_is_cancelled_with_its_run(
    stage: Stage, due_s: int, named: dict
) -> None:
    job = stage.put(due_s, **named)
    [run] = stage.runs(job)
    assert stage.store.cancel_run(run.id) is CancelResult.CANCELLED
    assert stage.job(job).state is JobState.CANCELLED
    assert stage.work(20) == []
    assert stage.states(job) == ["cancelled"]


def test_a_run_by_hand_is_cancelled_and_the_planned_one_stays(stage: Stage) -> None:
    job = stage.put(10)
    [extra] = stage.store.create_runs(job, [NewRun(stage.now_ns, RunReason.MANUAL)])
    assert stage.store.cancel_run(extra.id)
    assert len(stage.work(10)) == 1
    assert sorted(stage.states(job)) == ["cancelled", "succeeded"]


def test_a_job_after_a_cancelled_run_is_told(stage: Stage) -> None:
    first = stage.put(every(10))
    later = stage.put(after(first))
    stage.advance(10)
    stage.fire()
    [run] = stage.runs(first)
    assert stage.store.cancel_run(run.id)
    assert stage.skipped(later) == [("upstream", 1)]


def test_a_run_that_has_ended_or_is_none_is_said_to_be(stage: Stage) -> None:
    job = stage.put(every(10))
    [run] = stage.work(10)
    assert stage.store.cancel_run(run.id) is CancelResult.FINISHED
    nowhere = make_run_id(job, 7, 0)
    assert stage.store.cancel_run(nowhere) is CancelResult.NOT_FOUND
    with pytest.raises(ArgumentError, match="pass the id of a run"):
        stage.store.cancel_run(RunId("nothing"))
