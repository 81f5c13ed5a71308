"""Counters and histograms, as values."""

from __future__ import annotations

from timingwheel.scheduler.metrics import BOUNDS_NS, Histogram, Metrics


def test_a_value_falls_into_the_first_bucket_whose_bound_it_does_not_pass() -> None:
    histogram = Histogram()
    for value_ns in (-5, 0, BOUNDS_NS[0], BOUNDS_NS[0] + 1, BOUNDS_NS[-1] + 1):
        histogram.add(value_ns)
    found = histogram.snapshot()
    assert (found.counts[0], found.counts[1], found.counts[-1]) == (3, 1, 1)
    assert found.count == 5
    assert len(found.counts) == len(found.bounds_ns) + 1
    assert found.max_ns == BOUNDS_NS[-1] + 1
    assert found.sum_ns == 2 * BOUNDS_NS[0] + 1 + BOUNDS_NS[-1] + 1


def test_a_snapshot_does_not_move_with_what_comes_after() -> None:
    metrics = Metrics()
    metrics.note_claims([5])
    metrics.note_begin(7, attempt=1)
    before = metrics.snapshot()
    metrics.note_end("ok")
    metrics.count("clock_steps")
    assert (before.running, before.runs, before.clock_steps) == (1, {}, 0)
    after = metrics.snapshot()
    assert (after.running, after.runs, after.clock_steps) == (0, {"ok": 1}, 1)


def test_a_retry_counts_as_one_and_not_as_lateness() -> None:
    metrics = Metrics()
    for attempt in (1, 2, 3):
        metrics.note_claims([1])
        metrics.note_begin(10**12, attempt=attempt)
        metrics.note_end("error")
    found = metrics.snapshot()
    assert (found.attempts, found.retries) == (3, 2)
    assert found.dispatch_lag.count == 1


def test_what_is_given_back_is_no_longer_running_and_no_attempt() -> None:
    metrics = Metrics()
    metrics.note_claims([1])
    metrics.note_returns(1)
    found = metrics.snapshot()
    assert (found.running, found.attempts) == (0, 0)
