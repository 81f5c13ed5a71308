"""What every store promises of runs: once, in order, not early, and what ends do."""

from __future__ import annotations

from itertools import pairwise
from queue import SimpleQueue

import pytest

from tests.stores.stage import (
    HOUR,
    MINUTE,
    NO_RETRY,
    ONCE,
    SECOND,
    STEADY,
    WORKER,
    Stage,
    at,
    cron,
    draft,
    end_of,
    every,
    overlap,
)
from timingwheel.jobs.errors import RunStateError, UnknownRunError
from timingwheel.jobs.model import (
    JobId,
    JobState,
    Outcome,
    Payload,
    RetryPolicy,
    RunState,
    run_id,
)
from timingwheel.jobs.store import TellsOfExpected, Verdict
from timingwheel.jobs.triggers import CronRule, Delay, EveryPeriod, Trigger

# -- once, and not early ----------------------------------------------------------------------


def test_a_delay_runs_once_and_not_before_it_is_over(stage: Stage) -> None:
    job = stage.put(5)
    stage.advance(4.999)
    assert stage.step() == []
    stage.advance(0.001)
    assert [run.id for run in stage.step()] == [stage.run(job).id]
    assert stage.work(3600, times=3) == []
    assert stage.states(job) == ["succeeded"]
    assert stage.job(job).state is JobState.DONE


def test_a_time_of_the_wall_clock_runs_once_and_not_before(stage: Stage) -> None:
    when_ns = stage.now_ns + 90 * SECOND
    job = stage.put(at(when_ns))
    stage.advance(89.99)
    assert stage.step() == []
    stage.advance(0.01)
    assert [run.nominal_ns for run in stage.step()] == [when_ns]
    assert stage.states(job) == ["succeeded"]


@pytest.mark.parametrize("named", [{}, {"name": "n"}], ids=["plain", "named"])
def test_a_time_that_has_passed_runs_at_once(stage: Stage, named: dict) -> None:
    job = stage.put(at(stage.now_ns - HOUR), **named)
    stage.step()
    assert stage.states(job) == ["succeeded"]


@pytest.mark.parametrize(
    "trigger",
    [every(60), cron("* * * * *")],
    ids=["elapsed", "cron"],
)
def test_a_recurring_job_has_one_record_for_each_nominal_time(
    stage: Stage, trigger: Trigger
) -> None:
    job = stage.put(trigger)
    for _ in range(4):
        stage.work(59, times=2)
        stage.restart()
        stage.work(2)
    times = [run.nominal_ns for run in stage.runs(job)]
    assert len(times) == 8
    assert [b - a for a, b in pairwise(times)] == [MINUTE] * 7
    assert {run.n for run in stage.runs(job)} == {0}


def test_the_worker_gets_what_was_put(stage: Stage) -> None:
    job = stage.put(0, queue="q", priority=7, tags={"team": "bi"}, timeout_ns=9)
    claim = stage.start_one()
    assert claim.run.job_id == job
    assert claim.run.state is RunState.RUNNING
    assert (claim.payload.body, claim.timeout_ns) == (b"x", 9)
    assert (claim.run.task, claim.run.queue, claim.run.priority) == ("t", "q", 7)
    assert (claim.run.attempts, claim.last) == (1, False)


def test_the_end_of_an_attempt_is_on_record(stage: Stage) -> None:
    job = stage.put(0)
    claim = stage.start_one()
    stage.advance(3)
    assert stage.end(claim, result=b"42", log="a line") is Verdict.ACCEPTED
    run = stage.run(job)
    assert (run.state, run.result, run.error) == (RunState.SUCCEEDED, b"42", None)
    assert run.ended_ns == stage.now_ns
    [attempt] = stage.store.attempts(run.id)
    assert (attempt.number, attempt.worker, attempt.token) == (1, WORKER, claim.token)
    assert (attempt.outcome, attempt.log) == (Outcome.OK, "a line")
    assert attempt.ended_ns == stage.now_ns


def test_an_attempt_that_goes_on_is_on_record(stage: Stage) -> None:
    job = stage.put(0, name="n")
    claim = stage.start_one()
    stage.fail(claim)
    stage.advance(2)
    again = stage.start_one()
    first, second = stage.store.attempts(stage.run(job).id)
    assert (first.outcome, second.outcome) == (Outcome.ERROR, None)
    assert (first.number, second.number) == (1, 2)
    assert second.token == again.token > claim.token


def test_an_end_is_told_to_listeners_once_it_is_durable(stage: Stage) -> None:
    told: SimpleQueue[RunState] = SimpleQueue()
    stage.store.add_listener(lambda runs: told.put(runs[0].state))
    stage.put(0)
    claim = stage.start_one()
    if isinstance(stage.store, TellsOfExpected):
        stage.store.expect(claim.run.id)
    assert told.empty()
    stage.end(claim)
    assert told.get(timeout=60) is RunState.SUCCEEDED  # it may be another process's
    assert told.empty()


def test_the_second_report_of_an_end_is_refused(stage: Stage) -> None:
    job = stage.put(0)
    claim = stage.start_one()
    assert stage.end(claim) is Verdict.ACCEPTED
    assert stage.fail(claim) is Verdict.LEASE_LOST
    assert stage.states(job) == ["succeeded"]


def test_one_finish_takes_many_ends_and_judges_each(stage: Stage) -> None:
    jobs = [stage.put(0), stage.put(0, name="n"), stage.put(0), stage.put(0)]
    claims = {claim.run.job_id: claim for claim in stage.start_due()}
    stage.end(claims[jobs[2]])
    ends = [
        end_of(claims[jobs[0]]),
        end_of(claims[jobs[1]], Outcome.ERROR),
        end_of(claims[jobs[2]], Outcome.ERROR),
        end_of(claims[jobs[3]]),
    ]
    verdicts, ticket = stage.store.finish(ends)
    stage.store.commit(ticket)
    assert [verdict.value for verdict in verdicts] == [
        "accepted",
        "accepted",
        "lease_lost",
        "accepted",
    ]
    states = [stage.run(job).state.value for job in jobs]
    assert states == ["succeeded", "retrying", "succeeded", "succeeded"]


# -- order ------------------------------------------------------------------------------------


def test_runs_start_in_order_of_due_time_and_then_of_their_making(stage: Stage) -> None:
    late, early = stage.put(9), stage.put(3)
    first, second = stage.put(5), stage.put(5, name="n")
    stage.advance(10)
    started = [claim.run.job_id for claim in stage.start_due()]
    assert started == [early, first, second, late]


def test_a_step_of_priority_is_worth_a_minute_of_waiting(stage: Stage) -> None:
    old = stage.put(0)
    stage.advance(59)
    urgent = stage.put(0, priority=1)
    stage.advance(2)
    later = stage.put(0, priority=1)
    assert [claim.run.job_id for claim in stage.start_due()] == [urgent, old, later]


def test_no_stream_of_urgent_jobs_starves_a_job(stage: Stage) -> None:
    humble = stage.put(0)
    for _ in range(30):
        stage.put(0, priority=10)
        stage.put(0, priority=10)
        stage.advance(60)
        [claim] = stage.start_due(1)
        if claim.run.job_id == humble:
            break
        stage.end(claim)
    assert claim.run.job_id == humble


def test_the_own_backlog_is_never_dropped(stage: Stage) -> None:
    job = stage.put(every(1, runs_max=60), overlap=overlap("allow"))
    for _ in range(30):
        stage.advance(2)
        stage.fire()
    done = []
    while claims := stage.claim(10):
        done += claims
        for claim in claims:
            assert stage.begin(claim)
            stage.end(claim)
    assert len(done) == 60
    assert stage.skipped(job) == []


# -- errors and retries -----------------------------------------------------------------------


def test_an_error_is_tried_again_with_doubled_waits(stage: Stage) -> None:
    policy = RetryPolicy(attempts=4, first_ns=SECOND, jitter=0)
    job = stage.put(0, retry=policy)
    stage.step(Outcome.ERROR)
    for wait in (1, 2, 4):
        assert stage.run(job).state is RunState.RETRYING
        stage.advance(wait - 0.01)
        assert stage.step() == []
        stage.advance(0.01)
        assert len(stage.step(Outcome.ERROR)) == 1
    assert stage.run(job).state is RunState.FAILED
    assert stage.run(job).attempts == 4
    assert stage.work(1000, times=3) == []


def test_the_default_is_five_attempts_and_a_jitter_of_a_fifth(stage: Stage) -> None:
    job = stage.put(0)
    stage.step(Outcome.ERROR)
    for wait in (1, 2, 4, 8):
        stage.advance(wait * 0.79)
        assert stage.step() == []
        stage.advance(wait * 0.42)
        assert len(stage.step(Outcome.ERROR)) == 1
    assert stage.states(job) == ["failed"]


def test_the_claim_says_whether_an_error_is_final(stage: Stage) -> None:
    stage.put(0, retry=RetryPolicy(attempts=2, first_ns=SECOND, jitter=0))
    claim = stage.start_one()
    assert not claim.last
    stage.fail(claim)
    stage.advance(1)
    assert stage.start_one().last


@pytest.mark.parametrize("outcome", [Outcome.ERROR, Outcome.TIMEOUT])
def test_the_last_failure_ends_on_the_dead_letter_list(
    stage: Stage, outcome: Outcome
) -> None:
    job = stage.put(0, retry=NO_RETRY)
    stage.step(outcome)
    run = stage.run(job)
    assert run.state is RunState.FAILED
    assert run.error == f"it ended by {outcome}"
    dead = stage.runs(states=frozenset({RunState.FAILED}))
    assert [found.id for found in dead] == [run.id]


def test_an_error_that_gives_up_is_final(stage: Stage) -> None:
    job = stage.put(0)
    stage.fail(stage.start_one(), gives_up=True)
    assert stage.states(job) == ["failed"]


def test_a_retry_by_hand_keeps_the_id_of_the_run(stage: Stage) -> None:
    job = stage.put(0, retry=STEADY)
    stage.fail(stage.start_one(), gives_up=True)
    before = stage.run(job)
    again = stage.store.retry(before.id)
    assert (again.id, again.state) == (before.id, RunState.READY)
    claim = stage.start_one()
    assert (claim.run.id, claim.run.attempts, claim.last) == (before.id, 2, False)
    assert stage.end(claim) is Verdict.ACCEPTED
    assert stage.states(job) == ["succeeded"]
    numbers = [attempt.number for attempt in stage.store.attempts(before.id)]
    assert numbers == [1, 2]


def test_a_retry_by_hand_has_all_its_attempts_again(stage: Stage) -> None:
    job = stage.put(0, retry=STEADY)
    for _ in range(3):
        stage.step(Outcome.ERROR)
        stage.advance(10)
    assert stage.states(job) == ["failed"]
    stage.store.retry(stage.run(job).id)
    for _ in range(3):
        assert len(stage.step(Outcome.ERROR)) == 1
        stage.advance(10)
    assert stage.states(job) == ["failed"]
    assert stage.run(job).attempts == 6


def test_a_run_of_a_living_recurring_job_is_retried_by_hand(stage: Stage) -> None:
    job = stage.put(every(60), retry=NO_RETRY)
    [dead] = stage.work(60, outcome=Outcome.ERROR)
    stage.work(60)
    assert stage.states(job) == ["failed", "succeeded"]
    stage.store.retry(dead.id)
    assert [run.id for run in stage.step()] == [dead.id]
    assert stage.states(job) == ["succeeded", "succeeded"]
    assert len(stage.work(60)) == 1


def test_only_a_failed_or_lost_run_is_retried(stage: Stage) -> None:
    job = stage.put(0)
    stage.step()
    with pytest.raises(RunStateError, match="succeeded"):
        stage.store.retry(stage.run(job).id)
    with pytest.raises(UnknownRunError):
        stage.store.retry(run_id("nobody", 1))


def test_a_discarded_run_stays_failed_and_is_marked(stage: Stage) -> None:
    job = stage.put(0, retry=NO_RETRY)
    stage.step(Outcome.ERROR)
    assert stage.store.discard(stage.run(job).id).discarded
    run = stage.run(job)
    assert (run.state, run.discarded) == (RunState.FAILED, True)


def test_a_run_that_waits_for_a_retry_can_be_discarded(stage: Stage) -> None:
    job = stage.put(0)
    stage.step(Outcome.ERROR)
    stage.store.discard(stage.run(job).id)
    assert stage.states(job) == ["failed"]
    assert stage.work(100) == []
    assert stage.job(job).state is JobState.DONE


def test_a_snooze_uses_up_no_attempt(stage: Stage) -> None:
    policy = RetryPolicy(attempts=1)
    job = stage.put(0, retry=policy)
    for _ in range(3):
        claim = stage.start_one()
        assert stage.end(claim, snooze_ns=10 * SECOND) is Verdict.ACCEPTED
        stage.advance(9.9)
        assert stage.step() == []
        stage.advance(0.1)
    stage.step()
    assert stage.states(job) == ["succeeded"]


def test_a_stop_gives_the_run_back_without_using_up_an_attempt(stage: Stage) -> None:
    job = stage.put(0, retry=NO_RETRY)
    stage.step(Outcome.SHUTDOWN)
    assert stage.states(job) == ["ready"]
    stage.step()
    assert stage.states(job) == ["succeeded"]
    outcomes = [a.outcome for a in stage.store.attempts(stage.run(job).id)]
    assert outcomes == [Outcome.SHUTDOWN, Outcome.OK]


def test_an_attempt_ended_by_a_request_cancels_its_run(stage: Stage) -> None:
    job = stage.put(0)
    stage.step(Outcome.CANCELLED)
    assert stage.states(job) == ["cancelled"]
    assert stage.work(100) == []


# -- lost attempts ----------------------------------------------------------------------------


@pytest.mark.parametrize("named", [{}, {"name": "n"}], ids=["plain", "named"])
def test_a_lost_attempt_is_on_record_and_the_run_starts_again(
    stage: Stage, named: dict
) -> None:
    job = stage.put(0, **named)
    claim = stage.start_one()
    stage.restart(crash=True)
    again = stage.start_one()
    assert (again.run.id, again.run.attempts) == (claim.run.id, 2)
    assert again.token > claim.token
    assert stage.end(claim) is Verdict.LEASE_LOST
    assert stage.end(again) is Verdict.ACCEPTED
    outcomes = [a.outcome for a in stage.store.attempts(claim.run.id)]
    assert outcomes == [Outcome.LOST, Outcome.OK]
    assert stage.states(job) == ["succeeded"]


@pytest.mark.parametrize("named", [{}, {"name": "n"}], ids=["plain", "named"])
@pytest.mark.parametrize("lost_max", [1, 3])
def test_a_run_that_was_lost_too_often_has_failed(
    stage: Stage, lost_max: int, named: dict
) -> None:
    job = stage.put(0, lost_max=lost_max, **named)
    for _ in range(lost_max):
        stage.start_one()
        stage.restart(crash=True)
    assert stage.start_due() == []
    run = stage.run(job)
    assert (run.state, run.lost, run.attempts) == (RunState.FAILED, lost_max, lost_max)


def test_losing_an_attempt_uses_up_no_retry(stage: Stage) -> None:
    job = stage.put(0, retry=RetryPolicy(attempts=2, first_ns=SECOND, jitter=0))
    stage.start_one()
    stage.restart(crash=True)
    claim = stage.start_one()
    assert not claim.last
    stage.fail(claim)
    stage.advance(1)
    claim = stage.start_one()
    assert claim.last
    stage.fail(claim)
    assert stage.states(job) == ["failed"]


def test_a_run_that_may_be_lost_only_once_more_runs_alone(stage: Stage) -> None:
    suspects = [stage.put(0, lost_max=2), stage.put(0, lost_max=2, name="n")]
    stage.start_due()
    stage.restart(crash=True)
    fresh = stage.put(0)
    first = stage.start_due()
    started = {claim.run.job_id for claim in first}
    assert fresh in started
    assert len(started & set(suspects)) == 1
    assert stage.start_due() == []
    for claim in first:
        stage.end(claim)
    [last] = stage.start_due()
    assert started | {last.run.job_id} == {fresh, *suspects}


# -- at most once -----------------------------------------------------------------------------


@pytest.mark.parametrize("named", [{}, {"name": "n"}], ids=["plain", "named"])
def test_an_at_most_once_run_that_is_lost_ends_lost(stage: Stage, named: dict) -> None:
    job = stage.put(0, delivery=ONCE, **named)
    stage.start_one()
    stage.restart(crash=True)
    assert stage.work(100, times=3) == []
    assert stage.states(job) == ["lost"]


@pytest.mark.parametrize(
    ("outcome", "state"),
    [
        (Outcome.ERROR, "failed"),
        (Outcome.TIMEOUT, "failed"),
        (Outcome.SHUTDOWN, "lost"),
        (Outcome.LOST, "lost"),
    ],
)
def test_nothing_retries_an_at_most_once_run_by_itself(
    stage: Stage, outcome: Outcome, state: str
) -> None:
    job = stage.put(0, delivery=ONCE)
    claim = stage.start_one()
    assert claim.last
    stage.end(claim, outcome)
    assert stage.states(job) == [state]
    assert stage.work(100, times=3) == []


def test_a_lost_at_most_once_run_can_be_retried_by_hand(stage: Stage) -> None:
    job = stage.put(0, delivery=ONCE)
    stage.start_one()
    stage.restart(crash=True)
    stage.store.retry(stage.run(job).id)
    stage.step()
    assert stage.states(job) == ["succeeded"]


# -- follow-ups -------------------------------------------------------------------------------


def test_follow_ups_come_with_the_success_and_with_nothing_else(stage: Stage) -> None:
    stage.put(0)
    claim = stage.start_one()
    stage.fail(claim, follow_ups=(draft(0, name="too early"),))
    assert stage.store.find("too early") is None
    stage.advance(2)
    claim = stage.start_one()
    late = stage.end(claim, follow_ups=(draft(0, name="next"), draft(0)))
    assert late is Verdict.ACCEPTED
    assert stage.store.find("next") is not None
    assert len(stage.step()) == 2


def test_the_follow_ups_of_a_lost_lease_do_not_come(stage: Stage) -> None:
    stage.put(0)
    claim = stage.start_one()
    stage.restart(crash=True)
    assert stage.end(claim, follow_ups=(draft(0, name="n"),)) is Verdict.LEASE_LOST
    assert stage.store.find("n") is None


def test_a_follow_up_that_is_refused_makes_an_error_of_the_success(
    stage: Stage,
) -> None:
    stage.put(1000, key="k", payload=Payload(b"one"))
    job = stage.put(0, retry=NO_RETRY)
    claim = stage.start_one()
    conflict = draft(0, key="k", payload=Payload(b"two"))
    other = draft(0, name="other")
    assert stage.end(claim, follow_ups=(other, conflict)) is Verdict.ACCEPTED
    run = stage.run(job)
    assert run.state is RunState.FAILED
    assert "'k'" in (run.error or "")
    assert stage.store.find("other") is None


def test_a_keyed_follow_up_of_a_job_that_is_over_is_that_job(stage: Stage) -> None:
    first = stage.put(0, key="k")
    stage.step()
    stage.restart()
    stage.put(0)
    claim = stage.start_one()
    assert stage.end(claim, follow_ups=(draft(0, key="k"),)) is Verdict.ACCEPTED
    assert stage.step() == []
    assert stage.states(first) == ["succeeded"]


# -- unknown tasks ----------------------------------------------------------------------------


@pytest.mark.parametrize("named", [{}, {"name": "n"}], ids=["plain", "named"])
def test_a_run_waits_for_a_worker_that_has_its_task(stage: Stage, named: dict) -> None:
    job = stage.put(0, task="rare", **named)
    stage.fire()
    assert stage.claim() == []
    stage.work(3600, times=2)
    stage.restart(crash=True)
    stage.fire()
    assert stage.states(job) == ["ready"]
    [claim] = stage.claim(tasks=frozenset({"rare"}))
    assert claim.run.job_id == job


# -- ids --------------------------------------------------------------------------------------


def test_a_run_id_says_job_nominal_time_and_number(stage: Stage) -> None:
    job = stage.put(0)
    run = stage.run(job)
    assert run.id == f"{job}@{run.nominal_ns}"
    assert stage.store.run(run.id) == run
    by_hand = stage.trigger(job)
    assert by_hand.id == f"{job}@{by_hand.nominal_ns}#{by_hand.n}"
    assert by_hand.n == 1


def test_an_unknown_id_is_nothing(stage: Stage) -> None:
    nobody = JobId("8f7e6d5c-0000-8000-8000-00000000dead")
    assert stage.store.get(nobody) is None
    assert stage.store.run(run_id(nobody, 1)) is None
    assert stage.store.attempts(run_id(nobody, 1)) == []
    assert stage.store.skips(nobody) == []
    assert stage.store.planned(nobody) == []
    assert stage.store.find("nobody") is None


def test_a_plain_job_keeps_its_id_when_it_becomes_more(stage: Stage) -> None:
    job = stage.put(10)
    stage.pause(job)
    stage.resume(job)
    run = stage.trigger(job)
    assert run.job_id == job
    stage.step()
    stage.advance(10)
    stage.step(Outcome.ERROR)
    stage.work(2)
    assert stage.job(job).id == job
    assert stage.states(job) == ["succeeded", "succeeded"]
    assert stage.job(job).trigger.when == Delay(10 * SECOND)


def test_the_trigger_is_kept_as_it_was_put(stage: Stage) -> None:
    when = CronRule(expression="5 4 * * *", tz="Europe/Berlin")
    job = stage.put(Trigger(when=when, runs_max=3))
    assert stage.job(job).trigger == Trigger(when=when, runs_max=3)
    other = stage.put(EveryPeriod(7 * SECOND))
    assert stage.job(other).trigger.when == EveryPeriod(7 * SECOND)
