"""Leases and tokens, on every store: who may work, until when, and who comes too late."""

from __future__ import annotations

import threading

import pytest

from tests.stores.stage import ONCE, SECOND, TASK, WORKER, Stage, draft, every
from timingwheel.errors import ArgumentError
from timingwheel.jobs.model import Outcome, RunState
from timingwheel.jobs.store import Claim, Verdict

TTL_NS = 30 * SECOND
KINDS = pytest.mark.parametrize("named", [{}, {"name": "n"}], ids=["plain", "named"])


def remote(stage: Stage, name: str = "r") -> str:
    """Join a worker whose leases run out."""
    stage.store.join(name, ttl_ns=TTL_NS)
    return name


def start_on(stage: Stage, worker: str) -> Claim:
    """Start the one due run on a worker."""
    return stage.start_one(worker=worker)


@KINDS
def test_a_lease_runs_out_when_its_worker_falls_silent(
    stage: Stage, named: dict
) -> None:
    job = stage.put(0, **named)
    claim = start_on(stage, remote(stage))
    stage.advance(29.9)
    stage.fire()
    assert stage.states(job) == ["running"]
    stage.advance(0.1)
    stage.fire()
    assert stage.states(job) == ["ready"]
    [attempt] = stage.store.attempts(claim.run.id)
    assert (attempt.outcome, attempt.worker) == (Outcome.LOST, "r")
    assert stage.run(job).lost == 1


@KINDS
def test_a_late_end_is_refused_and_changes_nothing(stage: Stage, named: dict) -> None:
    job = stage.put(0, **named)
    claim = start_on(stage, remote(stage))
    stage.advance(60)
    [again] = stage.start_due()
    assert again.run.id == claim.run.id
    assert again.token > claim.token
    late = (draft(0, name="follow-up"),)
    assert stage.end(claim, follow_ups=late) is Verdict.LEASE_LOST
    assert stage.states(job) == ["running"]
    assert stage.store.find("follow-up") is None
    assert not stage.store.begin(claim.run.id, claim.token)
    assert stage.end(again) is Verdict.ACCEPTED
    assert stage.states(job) == ["succeeded"]


def test_a_heartbeat_keeps_all_leases_of_a_worker_for_hours(stage: Stage) -> None:
    worker = remote(stage)
    jobs = [stage.put(0), stage.put(0, name="n")]
    claims = stage.start_due(worker=worker)
    for _ in range(3 * 3600 // 25):
        stage.advance(25)
        assert stage.store.beat(worker)
        stage.fire()
    assert [stage.run(job).state for job in jobs] == [RunState.RUNNING] * 2
    assert [stage.end(claim) for claim in claims] == [Verdict.ACCEPTED] * 2
    assert [stage.run(job).attempts for job in jobs] == [1, 1]


def test_a_heartbeat_that_comes_too_late_says_so(stage: Stage) -> None:
    stage.put(0)
    worker = remote(stage)
    start_on(stage, worker)
    stage.advance(31)
    stage.fire()
    assert not stage.store.beat(worker)
    with pytest.raises(ArgumentError, match="join"):
        stage.claim(worker=worker)
    remote(stage)
    assert stage.store.beat(worker)
    assert len(stage.start_due(worker=worker)) == 1


def test_a_worker_that_nobody_knows_has_no_heart(stage: Stage) -> None:
    assert not stage.store.beat("stranger")


def test_the_silence_of_one_worker_costs_another_nothing(stage: Stage) -> None:
    silent, lively = remote(stage, "silent"), remote(stage, "lively")
    stage.put(0)
    lost = start_on(stage, silent)
    stage.put(0)
    kept = start_on(stage, lively)
    stage.advance(20)
    stage.store.beat(lively)
    stage.advance(20)
    stage.fire()
    assert stage.end(lost) is Verdict.LEASE_LOST
    assert stage.end(kept) is Verdict.ACCEPTED


def test_a_lease_does_not_see_the_wall_clock_step(stage: Stage) -> None:
    job = stage.put(0, name="n")
    start_on(stage, remote(stage))
    stage.step_wall(7200)
    stage.fire()
    assert stage.states(job) == ["running"]
    stage.step_wall(-14_400)
    stage.advance(31)
    stage.fire()
    assert stage.states(job) == ["ready"]


def test_a_worker_of_this_process_needs_no_heartbeat(stage: Stage) -> None:
    stage.put(0)
    claim = stage.start_one()
    stage.work(86_400, times=3)
    assert stage.end(claim) is Verdict.ACCEPTED


@KINDS
def test_a_worker_that_leaves_loses_what_it_has_at_once(
    stage: Stage, named: dict
) -> None:
    job = stage.put(0, **named)
    worker = remote(stage)
    claim = start_on(stage, worker)
    stage.store.leave(worker)
    assert stage.states(job) == ["ready"]
    assert stage.end(claim) is Verdict.LEASE_LOST
    [again] = stage.start_due()
    assert stage.end(again) is Verdict.ACCEPTED


def test_an_at_most_once_run_whose_lease_ran_out_is_lost(stage: Stage) -> None:
    job = stage.put(0, delivery=ONCE)
    start_on(stage, remote(stage))
    stage.advance(31)
    assert stage.start_due() == []
    assert stage.states(job) == ["lost"]


@pytest.mark.parametrize("crash", [False, True], ids=["closed", "crashed"])
@KINDS
def test_what_a_dead_process_ran_is_lost_when_the_next_one_serves(
    stage: Stage, named: dict, crash: bool
) -> None:
    job = stage.put(0, **named)
    stage.start_one()
    stage.stop(crash=crash)
    stage.open()
    assert stage.states(job) == ["running"]
    stage.store.join("other")
    assert stage.store.recover() == 1
    assert stage.states(job) == ["ready"]
    assert stage.store.recover() == 0


@KINDS
def test_a_worker_of_the_same_name_has_nothing_of_the_dead_one(
    stage: Stage, named: dict
) -> None:
    job = stage.put(0, **named)
    claim = stage.start_one(worker=WORKER)
    stage.restart(crash=True)
    assert stage.states(job) == ["ready"]
    assert stage.end(claim) is Verdict.LEASE_LOST


def test_a_remote_worker_that_came_back_in_time_keeps_its_lease(stage: Stage) -> None:
    stage.put(0, name="n")
    worker = remote(stage)
    claim = start_on(stage, worker)
    stage.stop(crash=True)
    stage.open()
    remote(stage)
    stage.store.recover()
    assert stage.store.beat(worker)
    assert stage.end(claim) is Verdict.ACCEPTED


def test_running_implies_a_live_lease(stage: Stage) -> None:
    stage.put(0)
    stage.put(0, name="n")
    stage.put(every(1))
    workers = [remote(stage, name) for name in "abc"]
    for worker in workers:
        stage.advance(1)
        stage.fire()
        stage.claim(1, worker=worker)
    stage.advance(31)
    stage.fire()
    running = frozenset({RunState.RUNNING})
    assert stage.runs(states=running) == []


def test_tokens_only_grow_over_all_jobs_workers_and_lives(stage: Stage) -> None:
    tokens: list[int] = []
    for life in range(4):
        for n in range(3):
            stage.put(0, **({"name": f"n{life}{n}"} if n % 2 else {}))
        tokens += [claim.token for claim in stage.start_due()]
        if life % 2:
            stage.snapshot()
        stage.restart(crash=life != 2)
    assert len(tokens) > 12
    assert tokens == sorted(set(tokens))


def test_many_threads_claim_each_run_once(stage: Stage) -> None:
    stage.store.put([draft(0) for _ in range(200)])
    stage.store.put([draft(0, name=f"n{n}") for n in range(40)])
    stage.fire()
    claimed: list[str] = []

    def work(worker: str) -> None:
        stage.store.join(worker)
        while True:
            claims, ticket = stage.store.claim(worker, tasks=frozenset({TASK}), count=7)
            stage.store.commit(ticket)
            if not claims:
                return
            claimed.extend(claim.run.id for claim in claims)
            for claim in claims:
                assert stage.store.begin(claim.run.id, claim.token)
                assert stage.end(claim) is Verdict.ACCEPTED

    threads = [threading.Thread(target=work, args=(f"w{n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(claimed) == 240
    assert len(set(claimed)) == 240
    assert {run.state for run in stage.runs()} == {RunState.SUCCEEDED}
