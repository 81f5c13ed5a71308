"""Metrics of a store in a database: every server of it tells the same."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from timingwheel.errors import TimingWheelError
from timingwheel.jobs.cluster import ClusterFacts, DatabaseFacts
from timingwheel.jobs.figures import BACKLOG_QUEUES_MAX
from timingwheel.scheduler.scheduler import Scheduler
from timingwheel.server.metric import NS, Metric, Reading

CLUSTER_METRICS: Final = (
    Metric("cluster_nodes", "gauge", "Nodes that live."),
    Metric("cluster_workers", "gauge", "Workers that live, of nodes and remote ones."),
    Metric("cluster_shards_unowned", "gauge", "Shards that no living node fires."),
    Metric(
        "cluster_epochs_total",
        "counter",
        "Changes of the owners of all shards, since the store was made.",
    ),
    Metric(
        "cluster_late_seconds",
        "gauge",
        "How long ago the oldest was due that no node has made ready yet.",
    ),
    Metric("cluster_orphans", "gauge", "Attempts whose worker does not live any more."),
    Metric(
        "queue_lag_seconds",
        "gauge",
        "How long ago the oldest ready run was due, by queue; the hundred longest.",
        ("queue",),
    ),
    Metric("database_schema", "gauge", "Version of the tables."),
    Metric(
        "database_synchronous",
        "gauge",
        "1 if a commit waits for a standby (`synchronous_standby_names`), else 0.",
    ),
    Metric("database_connections", "gauge", "Connections of all clients."),
    Metric("database_connections_max", "gauge", "Connections that are possible."),
    Metric(
        "database_xmin_age",
        "gauge",
        "Transactions since the oldest one that holds back the vacuum.",
    ),
    Metric(
        "database_wraparound_age",
        "gauge",
        "Transactions since the oldest that is not frozen.",
    ),
    Metric("database_transaction_seconds", "gauge", "Of the longest open transaction."),
    Metric("database_dead_rows", "gauge", "Dead rows of the store's tables, about."),
    Metric(
        "database_partition_days",
        "gauge",
        "Days ahead for which the history has partitions.",
    ),
    Metric(
        "database_clock_offset_seconds",
        "gauge",
        "How far the database's clock is ahead of this server's.",
    ),
)


def cluster_readings(scheduler: Scheduler) -> Iterator[Reading]:
    """Yield how a shared store stands; nothing if it is none, or is away."""
    try:
        facts = scheduler.cluster()
    except TimingWheelError:
        return
    if facts is not None:
        yield from _of_cluster(facts)


def _of_cluster(facts: ClusterFacts) -> Iterator[Reading]:
    alive = [one for one in facts.members if one.is_alive]
    yield "cluster_nodes", (), len(facts.nodes)
    yield "cluster_workers", (), len(alive) - len(facts.nodes)
    yield "cluster_shards_unowned", (), facts.unowned
    yield "cluster_epochs_total", (), sum(one.epoch for one in facts.shards)
    late_ns = max((one.late_ns for one in facts.shards), default=0)
    yield "cluster_late_seconds", (), late_ns / NS
    yield "cluster_orphans", (), facts.database.orphans
    for one in facts.queues[:BACKLOG_QUEUES_MAX]:
        yield "queue_lag_seconds", (one.queue,), one.lag_ns / NS
    yield "database_schema", (), facts.schema
    yield from _of_database(facts.database)


def _of_database(database: DatabaseFacts) -> Iterator[Reading]:
    yield "database_synchronous", (), bool(database.synchronous_standbys)
    yield "database_connections", (), database.connections
    yield "database_connections_max", (), database.connections_max
    yield "database_xmin_age", (), database.xmin_age
    yield "database_wraparound_age", (), database.wraparound_age
    yield "database_transaction_seconds", (), database.transaction_ns / NS
    yield "database_dead_rows", (), sum(one.dead for one in database.tables)
    if database.partition_days is not None:
        yield "database_partition_days", (), database.partition_days
    yield "database_clock_offset_seconds", (), database.offset_ns / NS
