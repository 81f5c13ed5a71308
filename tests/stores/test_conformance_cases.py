"""Complaints about other schedulers that a store can answer, each with the right result."""

from __future__ import annotations

from collections import deque

from tests.stores.stage import HOUR, SECOND, Stage, every, overlap
from timingwheel.jobs.model import Outcome
from timingwheel.jobs.store import Claim, Verdict


def test_case_2_a_backlog_of_our_own_is_late_and_never_dropped(stage: Stage) -> None:
    jobs = [stage.put(1) for _ in range(60)]
    stage.advance(1)
    lags: list[float] = []
    running: deque[Claim] = deque()
    while len(lags) < 60:
        running.extend(stage.start_due(10 - len(running)))
        lags += [(stage.now_ns - claim.run.due_ns) / SECOND for claim in running]
        stage.advance(0.5)
        while running:
            assert stage.end(running.popleft()) is Verdict.ACCEPTED
    assert [stage.states(job) for job in jobs] == [["succeeded"]] * 60
    assert max(lags) < 3
    assert sorted(round(lag * 2) / 2 for lag in lags) == sorted(
        [0, 0.5, 1, 1.5, 2, 2.5] * 10
    )


def test_case_20_a_delay_longer_than_a_lease_runs_once(stage: Stage) -> None:
    stage.store.join("remote", ttl_ns=30 * SECOND)
    job = stage.put(6 * HOUR / SECOND)
    for _ in range(int(6 * HOUR / (20 * SECOND)) - 1):
        stage.advance(20)
        assert stage.store.beat("remote")
    assert stage.start_due(worker="remote") == []
    stage.advance(20)
    claim = stage.start_one(worker="remote")
    assert stage.end(claim) is Verdict.ACCEPTED
    stage.advance(60)
    assert stage.step() == []
    assert [attempt.number for attempt in stage.store.attempts(claim.run.id)] == [1]
    assert stage.states(job) == ["succeeded"]


def test_case_25_thirty_occurrences_are_thirty_runs_or_reasons(stage: Stage) -> None:
    job = stage.put(every(10), overlap=overlap("skip"))
    for number in range(30):
        stage.advance(10)
        if number == 10:
            slow = stage.start_one()
        elif number in (11, 12, 13):
            assert stage.start_due() == []  # the slow one still runs
            if number == 13:
                assert stage.end(slow) is Verdict.ACCEPTED
        else:
            stage.step()
    assert len(stage.runs(job)) == 27
    assert sum(count for _, count in stage.skipped(job)) == 3
    assert {reason for reason, _ in stage.skipped(job)} == {"overlap"}


def test_case_28_a_worker_that_was_stopped_comes_too_late(stage: Stage) -> None:
    stage.store.join("stopped", ttl_ns=30 * SECOND)
    job = stage.put(0)
    first = stage.start_one(worker="stopped")
    stage.advance(60)
    second = stage.start_one()
    assert second.run.attempts == 2
    assert second.token > first.token
    assert stage.end(first) is Verdict.LEASE_LOST
    assert stage.end(second) is Verdict.ACCEPTED
    outcomes = [attempt.outcome for attempt in stage.store.attempts(second.run.id)]
    assert outcomes == [Outcome.LOST, Outcome.OK]
    assert stage.states(job) == ["succeeded"]
