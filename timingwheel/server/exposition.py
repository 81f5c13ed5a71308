"""`/metrics`: all that is counted below, as the text that Prometheus reads.

Nothing is counted here. Each scrape reads the plain numbers of the scheduler, its store
and the traffic once, and hands them to prometheus-client; so no number is kept twice.

Bounds: a label is one of a fixed set of words (outcomes, reasons, states, routes), but
for `queue`, of which the hundred longest are told and the rest is one sum. No label names
a job, a run or a person, so the answer stays below some thousand lines for ever.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import accumulate
from typing import Final

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import (
    HistogramMetricFamily,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from timingwheel.engine.bodies import COMPILED
from timingwheel.errors import TimingWheelError
from timingwheel.installed import installed_version
from timingwheel.jobs.figures import (
    HistogramSnapshot,
    LogFigures,
    Measured,
    StoreFigures,
)
from timingwheel.jobs.model import JobState, Outcome, SkipReason
from timingwheel.jobs.states import FINAL
from timingwheel.scheduler.metrics import MetricsSnapshot
from timingwheel.scheduler.scheduler import Scheduler
from timingwheel.server.cluster_metrics import CLUSTER_METRICS, cluster_readings
from timingwheel.server.metric import NS, Metric, Reading
from timingwheel.server.traffic import Traffic

METRICS: Final = (
    Metric(
        "build_info",
        "gauge",
        "Always 1; its labels say which program this is.",
        ("version", "python", "compiled"),
    ),
    Metric("serving", "gauge", "1 while runs are started here, else 0."),
    # -- of the scheduler, in this process
    Metric(
        "dispatch_lag_seconds",
        "histogram",
        "From when a run was due to the start of its handler, first attempts alone.",
    ),
    Metric(
        "schedule_lag_seconds",
        "histogram",
        "From when a run was due to its claim by a worker, retries included.",
    ),
    Metric(
        "run_duration_seconds",
        "histogram",
        "From the start of a handler to its end, of every attempt.",
    ),
    Metric("attempts_total", "counter", "Attempts begun."),
    Metric("retries_total", "counter", "Attempts begun that were not a run's first."),
    Metric(
        "attempts_ended_total",
        "counter",
        "Attempts that ended, by how; `snoozed` ones go on later.",
        ("outcome",),
    ),
    Metric(
        "completions_rejected_total",
        "counter",
        "Ends of attempts that came too late and were refused.",
    ),
    Metric(
        "alerts_total",
        "counter",
        "Slots given up as stuck, processes killed; the log tells which.",
    ),
    Metric(
        "disk_full_pauses_total", "counter", "How often a full disk held all runs up."
    ),
    Metric("clock_steps_total", "counter", "How often the wall clock was set."),
    # -- of the store
    Metric(
        "runs_total",
        "counter",
        "Runs that reached a final state, by that state.",
        ("outcome",),
    ),
    Metric(
        "runs_skipped_total",
        "counter",
        "Occurrences that did not run, by reason; with or without a run record.",
        ("reason",),
    ),
    Metric(
        "leases_expired_total",
        "counter",
        "Attempts lost because their worker gave no sign of life.",
    ),
    Metric(
        "jobs",
        "gauge",
        "Jobs that are live, by state; in a database of the newest hundred thousand, "
        "and as many plain ones.",
        ("state",),
    ),
    Metric(
        "timers",
        "gauge",
        "Timers that wait; in a database counted up to twice a hundred thousand.",
    ),
    Metric(
        "backlog",
        "gauge",
        "Runs that are due and wait for a worker, by queue; the hundred longest queues, "
        "and the rest as (others).",
        ("queue",),
    ),
    Metric("running", "gauge", "Attempts that hold a lease now, on all workers."),
    Metric("workers", "gauge", "Workers that have joined and not left."),
    Metric(
        "dead",
        "gauge",
        "Runs on the dead-letter list; counted up to a hundred thousand.",
    ),
    # -- of the engine and its log
    Metric(
        "wheel_tick_lag_seconds",
        "histogram",
        "How late the node looked at the wheels when something was due.",
    ),
    Metric(
        "wal_fsync_seconds",
        "histogram",
        "How long the disk took to make a commit durable.",
    ),
    Metric("wal_bytes", "gauge", "Bytes of the segments of the log."),
    Metric("wal_segments", "gauge", "Segments of the log."),
    Metric("wal_disk_full", "gauge", "1 while no room is found for a further segment."),
    Metric(
        "snapshot_age_seconds",
        "gauge",
        "Since the newest snapshot was begun; absent before the first.",
    ),
    Metric(
        "recovery_seconds", "gauge", "What the last opening took to read its directory."
    ),
    *CLUSTER_METRICS,
    # -- of this server
    Metric(
        "http_requests_total",
        "counter",
        "Requests answered, refused ones too.",
        ("method", "route", "code"),
    ),
    Metric(
        "http_request_duration_seconds",
        "histogram",
        "From a request's head to the end of its answer, the time that it was held too.",
        ("route",),
    ),
)
"""All metrics, in the order of the answer. The reference and the tests read this."""


class Exposition:
    """Writes the metrics of one server.

    Args:
        scheduler: whose.
        traffic: of the server.
    """

    def __init__(self, scheduler: Scheduler, traffic: Traffic) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(_Collector(scheduler, traffic))
        ProcessCollector(registry=self._registry)

    def render(self, accept: str) -> tuple[bytes, str]:
        """Return the text and its media type. It may read the disk: not for the loop.

        Args:
            accept: the header; OpenMetrics is written where it is asked for.
        """
        encode, media_type = choose_encoder(accept)
        return encode(self._registry), media_type


class _Collector(Collector):
    """Reads all numbers anew for each scrape."""

    def __init__(self, scheduler: Scheduler, traffic: Traffic) -> None:
        self._scheduler = scheduler
        self._traffic = traffic

    def describe(self) -> Iterable[Family]:
        """Name all families, so that none is registered twice."""
        return [one.new_family() for one in METRICS]

    def collect(self) -> Iterator[Family]:
        """Yield the families that have a value now."""
        families = {one.name: one.new_family() for one in METRICS}
        for name, labels, value in self._readings():
            family = families[name]
            if isinstance(value, HistogramSnapshot):
                assert isinstance(family, HistogramMetricFamily)
                family.add_metric(labels, _buckets(value), value.sum_ns / NS)
            else:
                assert not isinstance(family, HistogramMetricFamily)
                family.add_metric(labels, value)
        yield from (family for family in families.values() if family.samples)

    def _readings(self) -> Iterator[Reading]:
        version, body = installed_version() or "", str(COMPILED).lower()
        yield "build_info", (version, platform.python_version(), body), 1
        yield "serving", (), self._scheduler.is_serving
        yield from _of_scheduler(self._scheduler.snapshot_metrics())
        figures = _figures(self._scheduler)
        if figures is not None:
            yield from _of_store(figures)
            if figures.log is not None:
                yield from _of_log(figures.log)
        yield from cluster_readings(self._scheduler)
        for kind, count in self._traffic.requests().items():
            labels = (kind.method, kind.route, str(kind.status))
            yield "http_requests_total", labels, count
        for route, durations in self._traffic.durations().items():
            snapshot = HistogramSnapshot.of(durations)
            yield "http_request_duration_seconds", (route,), snapshot


def _figures(scheduler: Scheduler) -> StoreFigures | None:
    """Return the store in numbers; None if it has failed, or cannot say."""
    try:
        store = scheduler.desk.store
        return store.figures() if isinstance(store, Measured) else None
    except TimingWheelError:
        return None  # `serving` is 0 then, and that is what an alert asks


def _of_scheduler(counted: MetricsSnapshot) -> Iterator[Reading]:
    yield "dispatch_lag_seconds", (), counted.dispatch_lag
    yield "schedule_lag_seconds", (), counted.schedule_lag
    yield "run_duration_seconds", (), counted.run_duration
    yield "attempts_total", (), counted.attempts
    yield "retries_total", (), counted.retries
    outcomes = [*(str(outcome) for outcome in Outcome), "snoozed"]
    yield from _each("attempts_ended_total", outcomes, counted.runs)
    yield "completions_rejected_total", (), counted.lease_losses
    yield "alerts_total", (), counted.alerts
    yield "disk_full_pauses_total", (), counted.pauses
    yield "clock_steps_total", (), counted.clock_steps


def _of_store(figures: StoreFigures) -> Iterator[Reading]:
    yield from _each("runs_total", sorted(map(str, FINAL)), figures.runs)
    yield from _each("runs_skipped_total", map(str, SkipReason), figures.skips)
    yield "leases_expired_total", (), figures.leases_expired
    yield from _each("jobs", map(str, JobState), figures.jobs)
    yield "timers", (), figures.timers
    yield from _each("backlog", figures.backlog, figures.backlog)
    yield "running", (), figures.running
    yield "workers", (), figures.workers
    yield "dead", (), figures.dead
    if figures.tick_lag is not None:
        yield "wheel_tick_lag_seconds", (), figures.tick_lag


def _of_log(log: LogFigures) -> Iterator[Reading]:
    yield "wal_fsync_seconds", (), log.sync
    yield "wal_bytes", (), log.bytes
    yield "wal_segments", (), log.segments
    yield "wal_disk_full", (), log.disk_full
    if log.snapshot_age_ns is not None:
        yield "snapshot_age_seconds", (), log.snapshot_age_ns / NS
    yield "recovery_seconds", (), log.recovery_ns / NS


def _each(
    name: str, words: Iterable[str], counts: Mapping[str, int]
) -> Iterator[Reading]:
    """Yield a value for every word, 0 too: a rate needs the 0 before the first 1."""
    for word in words:
        yield name, (word,), counts.get(word, 0)


def _buckets(snapshot: HistogramSnapshot) -> list[tuple[str, float]]:
    """Return (upper bound in seconds, how many up to it), as Prometheus has them."""
    bounds: list[float] = [bound / NS for bound in snapshot.bounds_ns]
    names: Callable[[float], str] = floatToGoString
    return list(
        zip(
            map(names, [*bounds, float("inf")]),
            accumulate(snapshot.counts),
            strict=True,
        )
    )
