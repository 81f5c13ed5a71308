"""Counters and histograms, as values."""

from __future__ import annotations

from timingwheel.scheduler.metrics import Metrics


def test_a_snapshot_does_not_move_with_what_comes_after() -> None:
    metrics = Metrics()
    metrics.note_claims([5])
    metrics.note_begin(7, attempt=1)
    before = metrics.snapshot()
    metrics.note_end("ok", 5)
    metrics.count("clock_steps")
    assert (before.running, before.runs, before.clock_steps) == (1, {}, 0)
    after = metrics.snapshot()
    assert (after.running, after.runs, after.clock_steps) == (0, {"ok": 1}, 1)


def test_a_retry_counts_as_one_and_not_as_lateness() -> None:
    metrics = Metrics()
    for attempt in (1, 2, 3):
        metrics.note_claims([1])
        metrics.note_begin(10**12, attempt=attempt)
        metrics.note_end("error", 5)
    found = metrics.snapshot()
    assert (found.attempts, found.retries) == (3, 2)
    assert found.dispatch_lag.count == 1


def test_what_is_given_back_is_no_longer_running_and_no_attempt() -> None:
    metrics = Metrics()
    metrics.note_claims([1])
    metrics.note_returns(1)
    found = metrics.snapshot()
    assert (found.running, found.attempts) == (0, 0)


def test_an_attempt_far_away_counts_and_does_not_run_here() -> None:
    metrics = Metrics()
    metrics.note_far_begin(10, attempt=1)
    metrics.note_far_begin(10, attempt=2)
    metrics.note_far_end("ok", 30)
    found = metrics.snapshot()
    assert (found.running, found.attempts, found.retries) == (0, 2, 1)
    assert (found.schedule_lag.count, found.dispatch_lag.count) == (2, 1)
    assert (found.runs, found.run_duration.sum_ns) == ({"ok": 1}, 30)
