"""What every store does when an occurrence comes due while a previous run is active."""

from __future__ import annotations

import pytest

from tests.stores.stage import Stage, every, nominals, overlap
from timingwheel.jobs.model import JobId, Outcome, Overlap, RunState
from timingwheel.jobs.store import Claim


@pytest.fixture(params=["", "restart", "crash"], ids=["", "restarted", "crashed"])
def between(request: pytest.FixtureRequest) -> str:
    """What happens before the claims of a test; a restart loses what runs."""
    return str(request.param)


def busy(stage: Stage, rule: str, limit: int = 1_000) -> tuple[JobId, Claim]:
    """Return a job of every ten seconds whose first run goes on, and that run."""
    job = stage.put(every(10), overlap=overlap(rule, limit))
    stage.advance(10)
    return job, stage.start_one()


def pass_times(stage: Stage, count: int) -> None:
    """Let so many times come due, with nobody to start what they bring."""
    for _ in range(count):
        stage.advance(10)
        stage.fire()


def test_skip_lets_a_time_pass_and_notes_each(stage: Stage) -> None:
    job, claim = busy(stage, "skip")
    pass_times(stage, 3)
    assert stage.claim() == []
    assert stage.skipped(job) == [("overlap", 1)] * 3
    stage.end(claim)
    assert len(stage.work(10)) == 1


def test_skip_is_the_default(stage: Stage) -> None:
    job = stage.put(every(10))
    assert stage.job(job).policy.overlap.rule is Overlap.SKIP
    stage.advance(10)
    stage.fire()
    pass_times(stage, 1)
    assert stage.skipped(job) == [("overlap", 1)]


def test_times_that_are_skipped_together_are_one_record(stage: Stage) -> None:
    job, _ = busy(stage, "skip")
    stage.advance(60)
    stage.fire()
    assert stage.skipped(job) == [("overlap", 6)]


@pytest.mark.parametrize("state", ["ready", "running", "retrying"])
def test_a_run_counts_as_active_until_it_is_over(stage: Stage, state: str) -> None:
    job = stage.put(every(10))
    stage.advance(10)
    stage.fire()
    if state != "ready":
        [claim] = stage.claim()
        stage.begin(claim)
        if state == "retrying":
            stage.fail(claim)
            stage.pause(job)  # so that it stays so
            stage.resume(job)
    assert stage.states(job) == [state]
    stage.advance(0 if state == "retrying" else 10)
    stage.fire()
    if state != "retrying":
        assert stage.skipped(job) == [("overlap", 1)]


def test_a_run_that_waits_for_its_retry_is_active(stage: Stage) -> None:
    job = stage.put(every(0.3))
    stage.advance(0.3)
    stage.fail(stage.start_one())
    stage.advance(0.3)
    assert stage.step() == []
    assert stage.states(job) == ["retrying"]
    assert stage.skipped(job) == [("overlap", 1)]


def test_buffer_one_keeps_one_waiting_and_skips_the_others(stage: Stage) -> None:
    job, claim = busy(stage, "buffer_one")
    pass_times(stage, 3)
    assert stage.claim() == []
    assert stage.skipped(job) == [("overlap", 1)] * 2
    stage.end(claim)
    [waited] = stage.step()
    assert waited.nominal_ns == nominals(stage.runs(job))[1]
    assert stage.states(job) == ["succeeded", "succeeded"]


def test_buffer_all_keeps_as_many_as_its_limit_and_runs_them_one_by_one(
    stage: Stage,
) -> None:
    job, claim = busy(stage, "buffer_all", 2)
    pass_times(stage, 4)
    assert stage.skipped(job) == [("overlap", 1)] * 2
    order = []
    for _ in range(2):
        stage.end(claim)
        [claim] = stage.start_due()
        order.append(claim.run.nominal_ns)
    stage.end(claim)
    assert order == nominals(stage.runs(job))[1:]
    assert stage.claim() == []


def test_cancel_other_asks_the_running_one_and_starts_when_it_has_ended(
    stage: Stage,
) -> None:
    job, claim = busy(stage, "cancel_other")
    pass_times(stage, 1)
    [request] = stage.store.requests()
    assert (request.run_id, request.token) == (claim.run.id, claim.token)
    assert not request.kill
    assert stage.store.requests() == []
    assert stage.claim() == []
    stage.end(claim, Outcome.CANCELLED)
    assert len(stage.step()) == 1
    assert stage.states(job) == ["cancelled", "succeeded"]


def test_kill_other_does_not_ask(stage: Stage) -> None:
    _, claim = busy(stage, "kill_other")
    pass_times(stage, 1)
    [request] = stage.store.requests()
    assert (request.token, request.kill) == (claim.token, True)


@pytest.mark.parametrize("rule", ["cancel_other", "kill_other"])
def test_of_those_that_wait_to_take_over_the_newest_does(
    stage: Stage, rule: str
) -> None:
    job, claim = busy(stage, rule)
    pass_times(stage, 3)
    stage.end(claim, Outcome.ERROR)
    [run] = stage.step()
    assert run.nominal_ns == nominals(stage.runs(job))[-1]
    assert stage.states(job) == ["cancelled", "skipped", "skipped", "succeeded"]
    reasons = [r.skip_reason for r in stage.runs(job) if r.state is RunState.SKIPPED]
    assert reasons == ["overlap", "overlap"]


def test_cancel_other_cancels_one_that_has_not_started(stage: Stage) -> None:
    job = stage.put(every(10), overlap=overlap("cancel_other"))
    pass_times(stage, 3)
    assert len(stage.step()) == 1
    assert stage.states(job) == ["cancelled", "cancelled", "succeeded"]


def test_cancel_other_lets_a_success_stand_that_came_all_the_same(
    stage: Stage,
) -> None:
    job, claim = busy(stage, "cancel_other")
    pass_times(stage, 1)
    stage.end(claim)
    stage.step()
    assert stage.states(job) == ["succeeded", "succeeded"]


def test_allow_lets_so_many_run_at_once_and_skips_the_others(stage: Stage) -> None:
    job, first = busy(stage, "allow", 3)
    pass_times(stage, 4)
    assert len(stage.start_due()) == 2
    assert stage.skipped(job) == [("overlap", 1)] * 2
    stage.end(first)
    assert len(stage.work(10)) == 1


def test_a_manual_run_is_not_kept_off_by_a_running_one(stage: Stage) -> None:
    job, claim = busy(stage, "skip")
    by_hand = stage.trigger(job)
    [other] = stage.start_due()
    assert other.run.id == by_hand.id
    stage.end(claim)
    stage.end(other)
    assert stage.states(job) == ["succeeded", "succeeded"]


def test_what_waits_behind_a_run_waits_over_a_restart(
    stage: Stage, between: str
) -> None:
    job, claim = busy(stage, "buffer_all", 5)
    pass_times(stage, 2)
    if between:
        stage.restart(crash=between == "crash")
        [claim] = stage.start_due()
    assert claim.run.nominal_ns == nominals(stage.runs(job))[0]
    assert stage.claim() == []
    for _ in range(2):
        stage.end(claim)
        [claim] = stage.start_due()
    stage.end(claim)
    assert stage.states(job) == ["succeeded"] * 3


def test_cancelling_a_job_takes_those_that_wait_along(stage: Stage) -> None:
    job, claim = busy(stage, "buffer_all", 5)
    pass_times(stage, 2)
    assert stage.store.cancel(job)
    stage.end(claim)
    assert stage.work(100) == []
    assert stage.states(job) == ["succeeded", "cancelled", "cancelled"]


def test_a_failed_run_makes_room_for_the_one_behind_it(stage: Stage) -> None:
    job, claim = busy(stage, "buffer_one")
    pass_times(stage, 1)
    stage.fail(claim, gives_up=True)
    assert len(stage.step()) == 1
    assert stage.states(job) == ["failed", "succeeded"]


def test_a_lost_run_keeps_the_one_behind_it_waiting(stage: Stage) -> None:
    job, claim = busy(stage, "buffer_one")
    pass_times(stage, 1)
    stage.end(claim, Outcome.LOST)
    [again] = stage.start_due()
    assert again.run.id == claim.run.id
    stage.end(again)
    assert len(stage.step()) == 1
    assert stage.states(job) == ["succeeded", "succeeded"]
