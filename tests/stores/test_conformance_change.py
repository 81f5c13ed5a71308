"""Update, names, keys, rebinding and quarantine, on every store."""

from __future__ import annotations

import threading
from datetime import UTC, datetime

import pytest

from tests.stores.stage import (
    ONE,
    SECOND,
    TASK,
    Stage,
    after,
    at,
    cron,
    draft,
    every,
    nominals,
    overlap,
)
from timingwheel.errors import ArgumentError
from timingwheel.jobs.errors import (
    KeyConflictError,
    NameTakenError,
    RevisionConflictError,
    UnknownJobError,
)
from timingwheel.jobs.model import (
    JobId,
    JobState,
    Outcome,
    Payload,
    Policy,
    RetryPolicy,
    RunReason,
)
from timingwheel.jobs.store import Change, NewRun, Verdict

ENDS = pytest.mark.parametrize("end", ["", "close", "crash", "snapshot"])
ONE_TRY = Policy(retry=RetryPolicy(attempts=1))


def end_life(stage: Stage, end: str) -> None:
    """Begin a new life, if any."""
    if end == "snapshot":
        stage.snapshot()
    if end:
        stage.restart(crash=end != "close")


# -- update -----------------------------------------------------------------------------------


@ENDS
def test_an_update_changes_what_it_names_and_counts_up(stage: Stage, end: str) -> None:
    job = stage.put(every(10), queue="a", tags={"x": "1"})
    change = Change(queue="b", priority=3, payload=Payload(b"new"))
    found = stage.store.update(job, change, if_revision=1)
    end_life(stage, end)
    assert stage.job(job) == found
    assert (found.revision, found.queue, found.priority) == (2, "b", 3)
    assert (found.payload, found.tags) == (Payload(b"new"), {"x": "1"})


def test_an_update_of_another_revision_is_refused(stage: Stage) -> None:
    job = stage.put(every(10))
    stage.store.update(job, Change(priority=1), if_revision=1)
    with pytest.raises(RevisionConflictError, match="revision 2, not 1"):
        stage.store.update(job, Change(priority=2), if_revision=1)
    assert stage.job(job).priority == 1
    stage.store.update(job, Change(priority=3), if_revision=None)
    assert stage.job(job).revision == 3


def test_of_two_who_update_one_wins(stage: Stage) -> None:
    job = stage.put(every(10))
    won: list[int] = []

    def update(priority: int) -> None:
        try:
            stage.store.update(job, Change(priority=priority), if_revision=1)
        except RevisionConflictError:
            return
        won.append(priority)

    threads = [threading.Thread(target=update, args=(n,)) for n in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [stage.job(job).priority] == won
    assert stage.job(job).revision == 2


def test_an_edit_catches_up_nothing(stage: Stage) -> None:
    job = stage.put(cron("0 0 1 1 *"))
    stage.advance(3600)
    stage.store.update(job, Change(trigger=cron("* * * * *")), if_revision=1)
    assert stage.step() == []
    assert len(stage.work(60, times=2)) == 2
    assert stage.skipped(job) == []


def test_a_job_that_has_had_all_its_runs_gets_none_by_a_new_schedule(
    stage: Stage,
) -> None:
    """Its last run still goes on, so there is a job to change."""
    job = stage.put(every(10, runs_max=1))
    stage.advance(10)
    [claim] = stage.start_due()
    change = Change(trigger=every(5, runs_max=1))
    assert stage.store.update(job, change, if_revision=1).next_ns is None
    stage.advance(60)
    assert stage.start_due() == []
    assert stage.end(claim) is Verdict.ACCEPTED
    assert stage.job(job).state is JobState.DONE
    assert stage.skipped(job) == []


def test_an_update_that_allows_fewer_runs_than_were_made_ends_the_job(
    stage: Stage,
) -> None:
    job = stage.put(every(10, runs_max=9))
    assert len(stage.work(10, times=3)) == 3
    stage.store.update(job, Change(trigger=every(10, runs_max=2)), if_revision=1)
    assert stage.job(job).state is JobState.DONE
    assert stage.work(10, times=2) == []


@ENDS
def test_an_edit_catches_up_nothing_after_a_restart(stage: Stage, end: str) -> None:
    stage.step_wall(
        (
            int(datetime(2026, 5, 1, 9, 59, 30, tzinfo=UTC).timestamp()) * SECOND
            - stage.now_ns
        )
        / SECOND
    )
    job = stage.put(cron("0 * * * *"))
    assert len(stage.work(60)) == 1
    stage.advance(1800)
    stage.store.update(job, Change(trigger=cron("*/5 * * * *")), if_revision=None)
    next_ns = stage.job(job).next_ns
    end_life(stage, end)
    assert stage.job(job).next_ns == next_ns
    assert stage.step() == []
    assert len(stage.work(300)) == 1
    assert stage.skipped(job) == []


def test_an_interval_that_is_edited_counts_from_the_edit(stage: Stage) -> None:
    job = stage.put(every(100))
    stage.advance(50)
    stage.store.update(job, Change(trigger=every(20)), if_revision=None)
    assert stage.work(19) == []
    assert len(stage.work(1)) == 1


@ENDS
def test_runs_that_are_there_keep_what_they_were_made_with(
    stage: Stage, end: str
) -> None:
    job = stage.put(every(10), payload=Payload(b"old"), overlap=overlap("allow"))
    stage.advance(10)
    stage.fire()
    policy = Policy(timeout_ns=5, overlap=overlap("allow"))
    change = Change(payload=Payload(b"new"), policy=policy)
    stage.store.update(job, change, if_revision=None)
    end_life(stage, end)
    [old] = stage.start_due()
    stage.advance(10)
    [new] = stage.start_due()
    assert (old.payload.body, old.timeout_ns, old.run.revision) == (b"old", None, 1)
    assert (new.payload.body, new.timeout_ns, new.run.revision) == (b"new", 5, 2)


def test_a_retry_by_hand_keeps_what_the_run_was_made_with(stage: Stage) -> None:
    job = stage.put(every(10), payload=Payload(b"old"), retry=RetryPolicy(attempts=1))
    [dead] = stage.work(10, outcome=Outcome.ERROR)
    stage.store.update(job, Change(payload=Payload(b"new")), if_revision=None)
    stage.store.retry(dead.id)
    [again] = stage.claim()
    assert (again.run.id, again.payload.body) == (dead.id, b"old")


def test_an_update_while_a_run_is_ready_starts_it_once(stage: Stage) -> None:
    job = stage.put(every(10))
    stage.advance(10)
    stage.fire()
    for text in (b"a", b"b"):
        stage.store.update(job, Change(payload=Payload(text)), if_revision=None)
    assert len(stage.start_due()) == 1
    assert stage.start_due() == []


def test_an_update_of_what_runs_leaves_its_lease_alone(stage: Stage) -> None:
    job = stage.put(every(10), cap=ONE)
    stage.advance(10)
    claim = stage.start_one()
    stage.store.update(job, Change(payload=Payload(b"new"), cap=None), if_revision=None)
    assert stage.end(claim) is Verdict.ACCEPTED
    assert len(stage.work(10)) == 1


def test_a_pending_plain_job_can_be_updated_and_keeps_its_id(stage: Stage) -> None:
    job = stage.put(10)
    found = stage.store.update(job, Change(priority=2), if_revision=1)
    assert (found.id, found.revision) == (job, 2)
    assert len(stage.work(10)) == 1


def test_a_one_time_job_cannot_become_recurring(stage: Stage) -> None:
    job = stage.put(10)
    with pytest.raises(ArgumentError, match="trigger"):
        stage.store.update(job, Change(trigger=every(10)), if_revision=None)
    assert len(stage.work(10, times=3)) == 1


def test_an_update_cannot_make_a_cycle(stage: Stage) -> None:
    first = stage.put(10)
    second = stage.put(after(first))
    with pytest.raises(ArgumentError):
        stage.store.update(first, Change(trigger=after(second)), if_revision=None)


def test_a_job_that_is_over_cannot_be_updated(stage: Stage) -> None:
    job = stage.put(0)
    stage.step()
    with pytest.raises(UnknownJobError):
        stage.store.update(job, Change(priority=1), if_revision=None)


def test_a_schedule_that_never_comes_is_refused_by_put_and_by_update(
    stage: Stage,
) -> None:
    past = every(10, end_ns=stage.now_ns)
    with pytest.raises(ArgumentError):
        stage.put(past)
    job = stage.put(every(10))
    with pytest.raises(ArgumentError):
        stage.store.update(job, Change(trigger=past), if_revision=None)
    assert stage.job(job).revision == 1


# -- names ------------------------------------------------------------------------------------


@ENDS
def test_the_same_name_with_the_same_definition_is_that_job(
    stage: Stage, end: str
) -> None:
    job = stage.put(every(10), name="nightly")
    end_life(stage, end)
    [ref] = stage.store.put([draft(every(10), name="nightly")])
    assert (ref.id, ref.created, ref.updated) == (job, False, False)
    assert stage.job(job).revision == 1
    found = stage.store.find("nightly")
    assert found is not None
    assert found.id == job


@ENDS
def test_the_same_name_with_another_definition_updates_without_catch_up(
    stage: Stage, end: str
) -> None:
    job = stage.put(cron("0 0 1 1 *"), name="nightly")
    stage.advance(3600)
    end_life(stage, end)
    [ref] = stage.store.put([draft(cron("* * * * *"), name="nightly", priority=2)])
    assert (ref.id, ref.created, ref.updated) == (job, False, True)
    assert (stage.job(job).revision, stage.job(job).priority) == (2, 2)
    assert stage.step() == []
    assert len(stage.work(60)) == 1


def test_a_name_put_again_leaves_runs_what_they_were_made_with(stage: Stage) -> None:
    stage.put(every(10), name="n", payload=Payload(b"old"))
    stage.advance(10)
    stage.fire()
    stage.store.put([draft(every(10), name="n", payload=Payload(b"new"))])
    [claim] = stage.claim()
    assert claim.payload.body == b"old"


def test_the_same_name_can_be_refused(stage: Stage) -> None:
    job = stage.put(every(10), name="n")
    with pytest.raises(NameTakenError, match="'n'"):
        stage.store.put([draft(every(20), name="n")], if_exists="error")
    assert stage.job(job).revision == 1
    [ref] = stage.store.put([draft(every(10), name="n")], if_exists="error")
    assert not ref.created


def test_a_name_put_again_keeps_a_pause(stage: Stage) -> None:
    job = stage.put(every(10), name="n")
    stage.pause(job)
    stage.store.put([draft(every(20), name="n")])
    assert stage.job(job).state is JobState.PAUSED
    assert stage.work(20, times=3) == []


def test_a_name_is_free_when_its_job_is_over(stage: Stage) -> None:
    first = stage.put(0, name="n")
    stage.step()
    assert stage.store.find("n") is None
    [ref] = stage.store.put([draft(0, name="n")])
    assert (ref.created, ref.id != first) == (True, True)
    second = stage.put(every(10), name="m")
    stage.store.cancel(second)
    assert stage.store.find("m") is None


def test_a_name_twice_in_one_put_is_one_job(stage: Stage) -> None:
    refs = stage.store.put([draft(every(10), name="n"), draft(every(10), name="n")])
    assert refs[0].id == refs[1].id
    assert [ref.created for ref in refs] == [True, False]


def test_a_name_cannot_change_a_one_time_job_into_a_recurring_one(
    stage: Stage,
) -> None:
    job = stage.put(10, name="n")
    with pytest.raises(ArgumentError):
        stage.store.put([draft(every(10), name="n")])
    assert len(stage.work(10, times=3)) == 1
    assert stage.states(job) == ["succeeded"]


def test_a_name_cannot_make_a_cycle(stage: Stage) -> None:
    first = stage.put(10, name="n")
    second = stage.put(after(first))
    with pytest.raises(ArgumentError):
        stage.store.put([draft(after(second), name="n")])
    stage.work(10)
    stage.step()
    assert stage.states(second) == ["succeeded"]


def test_a_put_is_all_or_nothing(stage: Stage) -> None:
    stage.put(every(10), name="n")
    drafts = [draft(1), draft(1, name="new"), draft(every(20), name="n")]
    with pytest.raises(NameTakenError):
        stage.store.put(drafts, if_exists="error")
    assert stage.store.find("new") is None
    assert len(stage.all_jobs()) == 1


# -- idempotency keys -----------------------------------------------------------------------------


@ENDS
def test_a_key_of_a_live_job_is_that_job(stage: Stage, end: str) -> None:
    job = stage.put(10, key="k")
    end_life(stage, end)
    [ref] = stage.store.put([draft(99, key="k")])
    assert (ref.id, ref.created) == (job, False)
    assert len(stage.work(10, times=12)) == 1


@ENDS
def test_a_key_of_a_job_that_is_over_and_kept_is_that_job(
    stage: Stage, end: str
) -> None:
    job = stage.put(0, key="k")
    stage.step()
    end_life(stage, end)
    [ref] = stage.store.put([draft(0, key="k")])
    assert (ref.id, ref.created) == (job, False)
    assert stage.step() == []


@pytest.mark.parametrize("over", [False, True])
def test_a_key_with_another_payload_is_a_conflict(stage: Stage, over: bool) -> None:
    job = stage.put(0, key="k", payload=Payload(b"one"))
    if over:
        stage.step()
        stage.restart()
    with pytest.raises(KeyConflictError, match=f"'k'.*{job}"):
        stage.store.put([draft(0, name="n"), draft(0, key="k", payload=Payload(b"2"))])
    assert stage.store.find("n") is None


def test_the_scope_of_a_key_is_its_task(stage: Stage) -> None:
    one, other = stage.put(0, key="k"), stage.put(0, key="k", task="other")
    assert one != other
    glued = stage.put(0, key="yk", task="x"), stage.put(0, key="k", task="xy")
    assert glued[0] != glued[1]


def test_a_key_twice_in_one_put_is_one_job(stage: Stage) -> None:
    refs = stage.store.put([draft(0, key="k"), draft(5, key="k")])
    assert [ref.created for ref in refs] == [True, False]
    assert refs[0].id == refs[1].id
    assert len(stage.work(5, times=2)) == 1


def test_a_key_of_a_cancelled_job_is_that_job(stage: Stage) -> None:
    job = stage.put(10, key="k")
    stage.store.cancel(job)
    [ref] = stage.store.put([draft(10, key="k")])
    assert (ref.id, ref.created) == (job, False)
    assert stage.work(20) == []


def test_of_many_who_put_one_key_at_once_one_creates(stage: Stage) -> None:
    refs = []

    def put() -> None:
        refs.extend(stage.store.put([draft(0, key="k")]))

    threads = [threading.Thread(target=put) for _ in range(8)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        stage.step()
        for thread in threads:
            thread.join(0.001)
    stage.step()
    assert sum(ref.created for ref in refs) == 1
    assert len({ref.id for ref in refs}) == 1
    assert stage.states(refs[0].id) == ["succeeded"]


# -- quarantine and rebinding -----------------------------------------------------------------------


@ENDS
@pytest.mark.parametrize("named", [{}, {"name": "n"}], ids=["plain", "named"])
def test_what_cannot_be_understood_is_set_aside_with_its_bytes(
    stage: Stage, named: dict, end: str
) -> None:
    job = stage.put(0, payload=Payload(b"\xff\x00", 7), **named)
    claim = stage.start_one()
    stage.end(claim, Outcome.ERROR, undecodable=True, error="no such field")
    end_life(stage, end)
    assert stage.work(100, times=3) == []
    found = stage.job(job)
    assert (found.state, found.fault) == (JobState.QUARANTINED, "no such field")
    assert found.payload == Payload(b"\xff\x00", 7)


@ENDS
def test_rebinding_revives_a_job_under_its_new_task(stage: Stage, end: str) -> None:
    job = stage.put(0)
    stage.end(stage.start_one(), Outcome.ERROR, undecodable=True)
    assert stage.store.rebind(TASK, "new") == 1
    end_life(stage, end)
    stage.fire()
    assert stage.claim() == []
    [claim] = stage.claim(tasks=frozenset({"new"}))
    assert stage.begin(claim)
    assert (claim.run.job_id, claim.run.task, claim.last) == (job, "new", False)
    assert stage.end(claim) is Verdict.ACCEPTED
    assert stage.job(job).task == "new"


def test_rebinding_takes_all_jobs_of_a_task_and_no_others(stage: Stage) -> None:
    jobs = [stage.put(10), stage.put(10, name="n"), stage.put(every(10))]
    other = stage.put(10, task="other")
    assert stage.store.rebind(TASK, "new") == 3
    assert [stage.job(job).task for job in jobs] == ["new"] * 3
    assert stage.job(other).task == "other"
    stage.advance(10)
    stage.fire()
    assert len(stage.claim(tasks=frozenset({"new"}))) == 3


def test_a_ready_run_that_was_rebound_goes_to_no_worker_of_the_old_task(
    stage: Stage,
) -> None:
    stage.put(0), stage.put(0, name="n")
    stage.fire()
    stage.store.rebind(TASK, "new")
    assert stage.claim() == []
    both = frozenset({TASK, "new"})
    assert len(stage.claim(tasks=both)) == 2
    assert stage.claim(tasks=both) == []


def test_a_quarantined_recurring_job_catches_up_as_its_misfire_policy_says(
    stage: Stage,
) -> None:
    job = stage.put(every(60), overlap=overlap("allow"))
    stage.store.quarantine(job, "no task")
    assert stage.work(60, times=10) == []
    stage.store.rebind(TASK, "new")
    stage.fire()
    claims = stage.claim(tasks=frozenset({"new"}))
    assert len(claims) == 1
    assert stage.skipped(job) == [("misfire", 9)]


def test_a_pause_does_not_free_a_job_from_quarantine(stage: Stage) -> None:
    job = stage.put(every(10))
    stage.store.quarantine(job, "no task")
    stage.pause(job)
    stage.resume(job)
    assert stage.work(10, times=3) == []


# -- runs by hand -----------------------------------------------------------------------------------


def test_each_run_by_hand_of_a_time_has_the_next_number(stage: Stage) -> None:
    job = stage.put(every(10))
    [run] = stage.work(10)
    wanted = NewRun(run.nominal_ns, RunReason.MANUAL)
    first = stage.store.create_runs(job, [wanted, wanted])
    assert [made.n for made in first] == [1, 2]
    stage.step()
    stage.restart()
    [third] = stage.store.create_runs(job, [wanted])
    assert third.n == 3
    expected = [(run.nominal_ns, n) for n in range(4)]
    assert stage.store.planned(job) == expected


def test_a_backfill_makes_up_for_a_time_that_never_was(stage: Stage) -> None:
    job = stage.put(every(10))
    [run] = stage.work(10)
    before_ns = run.nominal_ns - 10 * SECOND
    [made] = stage.store.create_runs(job, [NewRun(before_ns, RunReason.BACKFILL)])
    assert (made.n, made.reason) == (0, RunReason.BACKFILL)
    stage.step()
    assert nominals(stage.runs(job)) == [before_ns, run.nominal_ns]


def test_a_manual_run_leaves_the_schedule_alone(stage: Stage) -> None:
    job = stage.put(every(10, runs_max=2))
    stage.trigger(job)
    stage.step()
    assert len(stage.work(10, times=4)) == 2


def test_a_job_that_is_over_is_not_triggered(stage: Stage) -> None:
    job = stage.put(at(stage.now_ns))
    stage.step()
    with pytest.raises(UnknownJobError):
        stage.trigger(job)
    with pytest.raises(UnknownJobError):
        stage.trigger(JobId("nobody"))
