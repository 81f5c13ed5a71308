"""Jobs after other jobs, on every store."""

from __future__ import annotations

import pytest

from tests.stores.stage import NO_RETRY, Stage, after, draft, every, nominals, overlap
from timingwheel.errors import ArgumentError
from timingwheel.jobs.errors import UnknownJobError
from timingwheel.jobs.model import JobId, JobState, Outcome, RunReason

ENDS = pytest.mark.parametrize("end", ["", "close", "crash", "snapshot"])
ENDINGS = ["succeeded", "failed", "lost", "cancelled", "expired"]


def end_life(stage: Stage, end: str) -> None:
    """Begin a new life, if any."""
    if end == "snapshot":
        stage.snapshot()
    if end:
        stage.restart(crash=end != "close")


def put_first(stage: Stage, ending: str, **more: object) -> JobId:
    """Put a job that is to end so."""
    if ending == "lost":
        more["delivery"] = "at_most_once"
    if ending == "expired":
        more["start_deadline_ns"] = 1_000_000_000
    return stage.put(10, retry=NO_RETRY, **more)


def end_so(stage: Stage, job: JobId, ending: str) -> None:
    """Bring a job to its end."""
    if ending == "cancelled":
        stage.store.cancel(job)
        return
    stage.advance(10)
    stage.fire()
    if ending == "expired":
        stage.advance(2)
        stage.fire()
        return
    outcome = {
        "succeeded": Outcome.OK,
        "failed": Outcome.ERROR,
        "lost": Outcome.LOST,
    }[ending]
    [claim] = stage.claim()
    assert stage.begin(claim)
    stage.end(claim, outcome)


def wanted(on: str, ending: str) -> bool:
    """Return whether a job after another runs."""
    if on == "success":
        return ending == "succeeded"
    return on == "any" or ending in ("failed", "lost")


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("on", ["success", "failure", "any"])
@pytest.mark.parametrize("order", ["put before", "put after", "put after a restart"])
@pytest.mark.parametrize("named", [{}, {"name": "n"}], ids=["plain", "named"])
def test_a_job_runs_when_the_one_before_it_ended_as_wanted(
    stage: Stage, on: str, ending: str, order: str, named: dict
) -> None:
    first = put_first(stage, ending, **named)
    job = stage.put(after(first, on=on)) if order == "put before" else None
    if job is not None:
        assert stage.states(job) == ["blocked"]
        assert stage.step() == []
    end_so(stage, first, ending)
    if order == "put after a restart":
        stage.restart(crash=True)
    if job is None:
        job = stage.put(after(first, on=on))
    started = [run.job_id for run in stage.step()]
    assert started == ([job] if wanted(on, ending) else [])
    run = stage.run(job)
    assert run.reason is RunReason.DEPENDENCY
    if wanted(on, ending):
        assert run.state == "succeeded"
    else:
        assert (run.state, run.skip_reason) == ("skipped", "upstream")
        assert stage.job(job).state is JobState.DONE


@ENDS
def test_a_blocked_job_waits_over_a_restart(stage: Stage, end: str) -> None:
    first = stage.put(10)
    job = stage.put(after(first))
    end_life(stage, end)
    assert [run.job_id for run in stage.work(10)] == [first]
    assert [run.job_id for run in stage.step()] == [job]


@ENDS
def test_all_of_waits_for_all(stage: Stage, end: str) -> None:
    first, second = stage.put(10), stage.put(20, name="n")
    job = stage.put(after(first, second))
    stage.work(10)
    assert stage.step() == []
    end_life(stage, end)
    stage.work(10)
    assert [run.job_id for run in stage.step()] == [job]


def test_all_of_is_skipped_as_soon_as_one_has_ended_otherwise(stage: Stage) -> None:
    first, second = stage.put(10, retry=NO_RETRY), stage.put(20)
    job = stage.put(after(first, second))
    stage.work(10, outcome=Outcome.ERROR)
    assert stage.states(job) == ["skipped"]
    assert len(stage.work(10)) == 1
    assert stage.step() == []


@ENDS
def test_any_of_runs_once_when_the_first_has_ended(stage: Stage, end: str) -> None:
    first, second = stage.put(10), stage.put(20)
    job = stage.put(after(first, second, need="any"))
    stage.work(10)
    end_life(stage, end)
    assert [run.job_id for run in stage.step()] == [job]
    stage.work(10)
    assert stage.step() == []
    assert stage.states(job) == ["succeeded"]


def test_any_of_is_skipped_when_none_is_left(stage: Stage) -> None:
    first, second = stage.put(10, retry=NO_RETRY), stage.put(20, retry=NO_RETRY)
    job = stage.put(after(first, second, need="any"))
    stage.work(10, outcome=Outcome.ERROR)
    assert stage.states(job) == ["blocked"]
    stage.work(10, outcome=Outcome.ERROR)
    assert stage.states(job) == ["skipped"]


def test_all_of_takes_jobs_that_are_over_and_jobs_that_are_not(stage: Stage) -> None:
    over, plain = stage.put(0), stage.put(10)
    stage.step()
    job = stage.put(after(over, plain))
    assert stage.states(job) == ["blocked"]
    stage.work(10)
    assert [run.job_id for run in stage.step()] == [job]


def test_a_chain_runs_link_by_link_and_is_skipped_whole(stage: Stage) -> None:
    jobs = [stage.put(10, retry=NO_RETRY)]
    for _ in range(4):
        jobs.append(stage.put(after(jobs[-1])))
    stage.advance(10)
    assert [run.job_id for _ in jobs for run in stage.step()] == jobs
    jobs = [stage.put(10, retry=NO_RETRY)]
    for _ in range(4):
        jobs.append(stage.put(after(jobs[-1])))
    bystander = stage.put(after(jobs[2], on="any"))
    stage.work(10, outcome=Outcome.ERROR)
    assert [stage.run(job).state.value for job in jobs[1:]] == ["skipped"] * 4
    assert [run.job_id for run in stage.step()] == [bystander]


def test_a_diamond_runs_its_end_once(stage: Stage) -> None:
    top = stage.put(10)
    left, right = stage.put(after(top)), stage.put(after(top))
    end = stage.put(after(left, right))
    stage.advance(10)
    order = [run.job_id for _ in range(5) for run in stage.step()]
    assert order == [top, left, right, end]


def test_a_follow_up_can_come_after_the_job_that_makes_it(stage: Stage) -> None:
    first = stage.put(0)
    claim = stage.start_one()
    stage.end(claim, follow_ups=(draft(after(first), name="next"),))
    [run] = stage.step()
    assert run.job_id != first
    assert stage.states(run.job_id) == ["succeeded"]


def test_a_retry_that_is_to_come_is_no_end(stage: Stage) -> None:
    first = stage.put(0)
    job = stage.put(after(first, on="any"))
    stage.step(Outcome.ERROR)
    assert stage.states(job) == ["blocked"]
    stage.work(2)
    assert [run.job_id for run in stage.step()] == [job]


# -- what is refused --------------------------------------------------------------------------


def test_a_job_after_nobody_is_refused(stage: Stage) -> None:
    with pytest.raises(UnknownJobError):
        stage.put(after(JobId("nobody")))
    assert stage.all_jobs() == []


def test_a_recurring_job_in_all_of_is_refused(stage: Stage) -> None:
    first, second = stage.put(every(10)), stage.put(10)
    for need in ("all", "any"):
        with pytest.raises(ArgumentError, match="one-time"):
            stage.put(after(first, second, need=need))


# -- after a recurring job --------------------------------------------------------------------


@ENDS
def test_each_run_of_a_recurring_job_makes_one_of_the_job_after_it(
    stage: Stage, end: str
) -> None:
    first = stage.put(every(10))
    job = stage.put(after(first))
    for _ in range(3):
        [run] = stage.work(10)
        assert run.job_id == first
        end_life(stage, end)
        [follower] = stage.step()
        assert (follower.job_id, follower.nominal_ns) == (job, run.nominal_ns)
    assert nominals(stage.runs(job)) == nominals(stage.runs(first))
    assert stage.job(job).state is JobState.ACTIVE


@pytest.mark.parametrize("on", ["success", "failure", "any"])
def test_a_run_that_ended_otherwise_makes_none_and_is_on_record(
    stage: Stage, on: str
) -> None:
    first = stage.put(every(10), retry=NO_RETRY)
    job = stage.put(after(first, on=on))
    for outcome in (Outcome.OK, Outcome.ERROR):
        assert len(stage.work(10, outcome=outcome)) == 1
        ending = "succeeded" if outcome is Outcome.OK else "failed"
        followers = [found.job_id for found in stage.step()]
        assert followers == ([job] if wanted(on, ending) else [])
    skipped = [] if on == "any" else [("upstream", 1)]
    assert stage.skipped(job) == skipped


@ENDS
def test_the_last_run_of_a_recurring_job_makes_one_too(stage: Stage, end: str) -> None:
    first = stage.put(every(10, runs_max=2))
    job = stage.put(after(first))
    stage.work(10)
    stage.step()
    stage.work(10)
    end_life(stage, end)
    assert stage.job(first).state is JobState.DONE
    assert [run.job_id for run in stage.step()] == [job]
    assert stage.states(job) == ["succeeded", "succeeded"]
    assert stage.job(job).state is JobState.DONE


def test_a_job_after_a_recurring_one_is_over_with_it(stage: Stage) -> None:
    first = stage.put(every(10))
    job = stage.put(after(first))
    third = stage.put(after(job))
    stage.store.cancel(first)
    assert stage.job(job).state is JobState.DONE
    assert stage.job(third).state is JobState.DONE


def test_a_chain_after_a_recurring_job_follows_each_run(stage: Stage) -> None:
    first = stage.put(every(10))
    second = stage.put(after(first))
    third = stage.put(after(second))
    for _ in range(2):
        order = [run.job_id for run in stage.work(10)]
        order += [run.job_id for _ in range(3) for run in stage.step()]
        assert order == [first, second, third]
    assert nominals(stage.runs(third)) == nominals(stage.runs(first))


def test_a_manual_run_makes_a_run_of_the_job_after_it(stage: Stage) -> None:
    first = stage.put(every(1000))
    job = stage.put(after(first))
    by_hand = stage.trigger(first)
    stage.step()
    [run] = stage.step()
    assert (run.job_id, run.nominal_ns, run.n) == (job, by_hand.nominal_ns, by_hand.n)


def test_a_run_that_is_retried_by_hand_makes_no_second_record(stage: Stage) -> None:
    first = stage.put(every(10), retry=NO_RETRY)
    job = stage.put(after(first, on="any"))
    [dead] = stage.work(10, outcome=Outcome.ERROR)
    stage.store.retry(dead.id)
    started = [run.id for _ in range(4) for run in stage.step()]
    assert len(started) == len(set(started))
    assert len(stage.runs(job)) == 1


def test_a_job_after_a_cancelled_recurring_one_is_skipped(stage: Stage) -> None:
    first = stage.put(every(10))
    stage.store.cancel(first)
    job = stage.put(after(first))
    assert stage.states(job) == ["skipped"]


def test_a_paused_job_holds_the_runs_that_others_make_for_it(stage: Stage) -> None:
    first = stage.put(every(10), overlap=overlap("allow"))
    job = stage.put(after(first))
    stage.pause(job)
    stage.work(10)
    assert stage.step() == []
    stage.resume(job)
    assert [run.job_id for run in stage.step()] == [job]
