"""Queues, caps, claims ahead and their return, on every store."""

from __future__ import annotations

import pytest

from tests.stores.stage import (
    ONCE,
    ONE,
    SECOND,
    TASK,
    Stage,
    draft,
    every,
    overlap,
)
from timingwheel.errors import ArgumentError
from timingwheel.jobs.model import Cap, JobId, Outcome, Pause, Queue
from timingwheel.jobs.store import Change, Claim, Verdict

ENDS = pytest.mark.parametrize("end", ["", "close", "crash", "snapshot"])


def end_life(stage: Stage, end: str) -> None:
    """Begin a new life, if any."""
    if end == "snapshot":
        stage.snapshot()
    if end:
        stage.restart(crash=end != "close")


def put_many(stage: Stage, count: int, **more: object) -> list[JobId]:
    """Put so many jobs that are due at once, in order."""
    return [ref.id for ref in stage.store.put([draft(0, **more)] * count)]


# -- queues -----------------------------------------------------------------------------------


@ENDS
def test_a_queue_lets_so_many_run_at_once(stage: Stage, end: str) -> None:
    stage.store.set_queue(Queue(name="q", limit=2))
    jobs = put_many(stage, 5, queue="q")
    end_life(stage, end)
    first = stage.start_due()
    assert [claim.run.job_id for claim in first] == jobs[:2]
    assert stage.start_due() == []
    stage.end(first[0])
    [third] = stage.start_due()
    assert third.run.job_id == jobs[2]


def test_a_claim_may_name_its_queues(stage: Stage) -> None:
    put_many(stage, 2, queue="a")
    ours = put_many(stage, 2, queue="b") + put_many(stage, 1, queue="c")
    queues = frozenset({"b", "c", "nothing"})
    first = stage.start_due(2, queues=queues)
    started = first + stage.start_due(queues=queues)
    assert [claim.run.job_id for claim in started] == ours
    assert stage.start_due(queues=frozenset()) == []
    assert len(stage.start_due()) == 2


def test_a_full_queue_holds_up_no_other(stage: Stage) -> None:
    stage.store.set_queue(Queue(name="q", limit=1))
    put_many(stage, 3, queue="q")
    others = put_many(stage, 3)
    started = [claim.run.job_id for claim in stage.start_due()]
    assert started[1:] == others


def test_the_limit_of_a_queue_can_change(stage: Stage) -> None:
    stage.store.set_queue(Queue(name="q", limit=1))
    put_many(stage, 5, queue="q")
    assert len(stage.start_due()) == 1
    stage.store.set_queue(Queue(name="q", limit=3))
    assert len(stage.start_due()) == 2
    stage.store.set_queue(Queue(name="q"))
    assert len(stage.start_due()) == 2


def test_a_lost_or_failed_run_makes_room_in_its_queue(stage: Stage) -> None:
    stage.store.set_queue(Queue(name="q", limit=1))
    jobs = put_many(stage, 4, queue="q")
    for outcome in (Outcome.ERROR, Outcome.TIMEOUT, Outcome.CANCELLED):
        stage.end(stage.start_one(), outcome)
    assert stage.start_one().run.job_id == jobs[3]


def test_a_queue_starts_so_many_a_second(stage: Stage) -> None:
    stage.store.set_queue(Queue(name="q", rate=2))
    put_many(stage, 5, queue="q")
    counts = []
    for _ in range(10):
        counts.append(len(stage.step()))
        stage.advance(0.25)
    assert counts == [1, 0] * 5


def test_a_queue_that_was_idle_does_not_burst(stage: Stage) -> None:
    stage.store.set_queue(Queue(name="q", rate=1))
    stage.advance(100)
    put_many(stage, 3, queue="q")
    assert len(stage.step()) == 1


def test_a_rate_below_one_a_second_is_kept(stage: Stage) -> None:
    stage.store.set_queue(Queue(name="q", rate=0.1))
    put_many(stage, 3, queue="q")
    counts = [len(stage.work(5)) for _ in range(5)]
    assert counts == [1, 0, 1, 0, 1]


@ENDS
def test_nothing_of_a_paused_queue_starts(stage: Stage, end: str) -> None:
    pause = Pause(since_ns=stage.now_ns, actor="eve", note="why")
    stage.store.set_queue(Queue(name="q", pause=pause))
    jobs = put_many(stage, 2, queue="q")
    end_life(stage, end)
    assert stage.work(60, times=3) == []
    assert stage.store.queue("q").pause == pause
    stage.store.set_queue(Queue(name="q"))
    assert [run.job_id for run in stage.step()] == jobs


@ENDS
def test_the_pause_of_a_queue_ends_by_itself(stage: Stage, end: str) -> None:
    pause = Pause(since_ns=stage.now_ns, until_ns=stage.now_ns + 60 * SECOND)
    stage.store.set_queue(Queue(name="q", limit=1, pause=pause))
    put_many(stage, 2, queue="q")
    end_life(stage, end)
    assert stage.work(59) == []
    assert len(stage.work(1)) == 1
    assert stage.store.queue("q") == Queue(name="q", limit=1)


def test_a_paused_queue_lets_what_runs_go_on(stage: Stage) -> None:
    [job] = put_many(stage, 1, queue="q")
    claim = stage.start_one()
    stage.store.set_queue(Queue(name="q", pause=Pause(since_ns=stage.now_ns)))
    assert stage.end(claim) is Verdict.ACCEPTED
    assert stage.states(job) == ["succeeded"]


@ENDS
def test_queues_are_told_that_were_set_or_wait(stage: Stage, end: str) -> None:
    stage.store.set_queue(Queue(name="set", limit=7))
    put_many(stage, 1, queue="waiting")
    end_life(stage, end)
    stage.fire()
    assert stage.store.queues() == [Queue(name="set", limit=7), Queue(name="waiting")]
    assert stage.store.queue("nobody's") == Queue(name="nobody's")


# -- caps -------------------------------------------------------------------------------------


@ENDS
def test_a_cap_bounds_the_runs_of_all_jobs_that_share_it(
    stage: Stage, end: str
) -> None:
    cap = Cap("tenant:7", 2)
    plain = put_many(stage, 2, cap=cap)
    named = stage.put(0, cap=cap, name="n", queue="other")
    free = stage.put(0)
    end_life(stage, end)
    first = stage.start_due()
    assert [claim.run.job_id for claim in first] == [*plain, free]
    assert stage.start_due() == []
    stage.end(first[0])
    assert stage.start_one().run.job_id == named


def test_what_a_cap_held_back_starts_in_order(stage: Stage) -> None:
    jobs = put_many(stage, 6, cap=ONE)
    order = []
    for _ in jobs:
        claim = stage.start_one()
        order.append(claim.run.job_id)
        stage.end(claim)
    assert order == jobs


@pytest.mark.parametrize("how", ["cancelled", "paused", "rebound", "claimed by nobody"])
def test_one_that_goes_away_while_a_cap_holds_it_back_stops_no_other(
    stage: Stage, how: str
) -> None:
    task = "rare" if how == "claimed by nobody" else TASK
    running = stage.put(0, cap=ONE)
    gone = stage.put(0, cap=ONE, task=task if task == "rare" else TASK)
    if how == "rebound":
        gone = stage.put(0, cap=ONE, task="moves")
    last = stage.put(0, cap=ONE)
    stage.fire()
    [claim] = stage.claim(tasks=frozenset({TASK, "moves", "rare"}))
    assert claim.run.job_id == running
    assert stage.begin(claim)
    if how == "cancelled":
        stage.store.cancel(gone)
    if how == "paused":
        stage.pause(gone)
    if how == "rebound":
        stage.store.rebind("moves", "moved")
    stage.end(claim)
    started: list[JobId] = []
    while claims := stage.start_due():
        for claim in claims:
            started.append(claim.run.job_id)
            stage.end(claim)
    assert last in started


def test_a_run_under_a_full_cap_holds_up_no_other(stage: Stage) -> None:
    put_many(stage, 3, cap=ONE)
    free = put_many(stage, 3)
    assert [claim.run.job_id for claim in stage.start_due()][1:] == free


def test_a_cap_that_an_update_widens_lets_more_start(stage: Stage) -> None:
    jobs = [stage.put(0, cap=ONE, name=f"n{n}") for n in range(3)]
    assert len(stage.start_due()) == 1
    for job in jobs:
        stage.store.update(job, Change(cap=Cap("one", 3)), if_revision=None)
    assert len(stage.start_due()) == 2


def test_a_cap_that_an_update_takes_away_holds_nobody_back(stage: Stage) -> None:
    first, second = (stage.put(0, cap=ONE, name=name) for name in "ab")
    [claim] = stage.start_due()
    assert claim.run.job_id == first
    stage.store.update(second, Change(cap=None), if_revision=None)
    assert stage.start_one().run.job_id == second


def test_an_update_of_the_cap_of_what_runs_leaves_the_count_right(
    stage: Stage,
) -> None:
    first = stage.put(0, cap=ONE, name="a")
    put_many(stage, 2, cap=ONE)
    claim = stage.start_one()
    stage.store.update(first, Change(cap=Cap("other", 1)), if_revision=None)
    stage.end(claim)
    assert len(stage.start_due()) == 1
    assert stage.start_due() == []


def test_a_retry_does_not_hold_its_cap(stage: Stage) -> None:
    jobs = put_many(stage, 2, cap=ONE)
    stage.fail(stage.start_one())
    assert stage.start_one().run.job_id == jobs[1]


# -- claims -----------------------------------------------------------------------------------


def test_a_claim_takes_no_more_than_it_asks_for(stage: Stage) -> None:
    jobs = put_many(stage, 5)
    stage.fire()
    assert stage.claim(0) == []
    assert [claim.run.job_id for claim in stage.claim(2)] == jobs[:2]
    assert [claim.run.job_id for claim in stage.claim(9)] == jobs[2:]


def test_a_claim_takes_only_what_the_worker_can_run(stage: Stage) -> None:
    put_many(stage, 2, task="other")
    [job] = put_many(stage, 1)
    assert [claim.run.job_id for claim in stage.start_due()] == [job]


def test_who_has_not_joined_claims_nothing(stage: Stage) -> None:
    put_many(stage, 1)
    with pytest.raises(ArgumentError, match="join"):
        stage.claim(worker="stranger")


def test_what_is_claimed_ahead_can_still_be_cancelled(stage: Stage) -> None:
    jobs = put_many(stage, 4)
    stage.fire()
    claims = stage.claim(1, ahead=3)
    assert [claim.run.job_id for claim in claims] == jobs
    assert stage.begin(claims[0])
    assert stage.store.cancel(jobs[2])
    assert [stage.begin(claim) for claim in claims[1:]] == [True, False, True]


def test_only_what_may_be_lost_is_claimed_ahead(stage: Stage) -> None:
    put_many(stage, 1)
    once = stage.put(0, delivery=ONCE)
    stage.fire()
    assert len(stage.claim(1, ahead=5)) == 1
    assert [claim.run.job_id for claim in stage.claim(1)] == [once]


def test_a_second_attempt_is_not_claimed_ahead(stage: Stage) -> None:
    put_many(stage, 1)
    stage.fail(stage.start_one())
    stage.advance(2)
    stage.fire()
    assert stage.claim(0, ahead=5) == []
    assert len(stage.claim(1)) == 1


@ENDS
def test_what_is_given_back_uses_up_no_attempt(stage: Stage, end: str) -> None:
    jobs = [*put_many(stage, 2), stage.put(0, name="n")]
    stage.fire()
    claims = stage.claim(0, ahead=5)
    stage.store.commit(give_back(stage, claims))
    end_life(stage, end)
    for job in jobs:
        run = stage.run(job)
        assert (run.state, run.attempts, run.lost) == ("ready", 0, 0)
        assert stage.store.attempts(run.id) == []
    again = stage.start_due()
    assert [claim.run.job_id for claim in again] == jobs
    assert [claim.run.attempts for claim in again] == [1, 1, 1]
    assert all(stage.end(claim) is Verdict.LEASE_LOST for claim in claims)


def test_giving_back_what_was_cancelled_changes_nothing(stage: Stage) -> None:
    [job] = put_many(stage, 1)
    stage.fire()
    claims = stage.claim(0, ahead=5)
    stage.store.cancel(job)
    stage.store.commit(give_back(stage, claims))
    assert stage.step() == []
    assert stage.states(job) == ["cancelled"]


def test_a_claim_ahead_counts_for_its_queue(stage: Stage) -> None:
    stage.store.set_queue(Queue(name="q", limit=2))
    put_many(stage, 4, queue="q")
    stage.fire()
    claims = stage.claim(1, ahead=5)
    assert len(claims) == 2
    stage.store.commit(give_back(stage, claims[1:]))
    assert len(stage.claim(5)) == 1


def test_a_recurring_run_that_was_given_back_still_counts_as_active(
    stage: Stage,
) -> None:
    job = stage.put(every(10), overlap=overlap("skip"))
    stage.advance(10)
    stage.fire()
    stage.store.commit(give_back(stage, stage.claim()))
    stage.advance(10)
    stage.fire()
    assert stage.states(job) == ["ready"]
    assert stage.skipped(job) == [("overlap", 1)]


def give_back(stage: Stage, claims: list[Claim]):
    """Give claims back; return the ticket."""
    return stage.store.give_back([(claim.run.id, claim.token) for claim in claims])
