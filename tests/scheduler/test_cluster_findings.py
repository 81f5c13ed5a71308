"""What needs attention in a store that many processes share."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from timingwheel.jobs.cluster import (
    ClusterFacts,
    DatabaseFacts,
    MemberFacts,
    ShardFacts,
    TableFacts,
)
from timingwheel.scheduler.cluster_findings import cluster_findings

replace = msgspec.structs.replace
MINUTE_NS = 60 * 10**9
NODE = MemberFacts(
    name="node:a",
    inc=1,
    is_node=True,
    ttl_ns=6 * 10**9,
    left_ns=10**9,
    shards=1,
    running=0,
    places=0,
    is_far=False,
    protocol_min=1,
    protocol_max=1,
)
TABLE = TableFacts(
    name="timingwheel_run", rows=10, dead=5, vacuumed_ns=1, is_vacuumed=True
)
DATABASE = DatabaseFacts(
    version="16.1",
    is_standby=False,
    synchronous_commit="on",
    synchronous_standbys="b",
    autovacuum=True,
    offset_ns=0,
    connections=10,
    connections_max=97,
    xmin_age=3,
    wraparound_age=1_000,
    transaction_ns=0,
    partition_days=3.0,
    orphans=0,
    tables=(TABLE,),
)
WELL = ClusterFacts(
    store="s",
    schema=1,
    schema_known=1,
    protocol=1,
    members=(NODE,),
    shards=(ShardFacts(shard=0, epoch=1, owner="node:a", late_ns=0),),
    queues=(),
    database=DATABASE,
)


def test_of_what_is_well_nothing_is_said() -> None:
    assert cluster_findings(WELL) == []


@pytest.mark.parametrize(
    ("kind", "is_mild", "fields"),
    [
        ("standby", False, {"is_standby": True}),
        ("not_durable", False, {"synchronous_commit": "off"}),
        ("asynchronous", True, {"synchronous_standbys": ""}),
        ("clock_offset", True, {"offset_ns": -2 * 10**9}),
        ("autovacuum", False, {"autovacuum": False}),
        ("autovacuum", False, {"tables": (replace(TABLE, is_vacuumed=False),)}),
        ("dead_rows", True, {"tables": (replace(TABLE, dead=200_000),)}),
        ("wraparound", False, {"wraparound_age": 1_600_000_000}),
        ("xmin_age", False, {"xmin_age": 6_000_000}),
        ("long_transaction", True, {"transaction_ns": 11 * MINUTE_NS}),
        ("connections", True, {"connections": 90}),
        ("partitions", False, {"partition_days": 0.5}),
        ("orphans", True, {"orphans": 2}),
    ],
)
def test_what_ails_the_database_is_told_with_what_to_do(
    kind: str, is_mild: bool, fields: dict[str, Any]
) -> None:
    facts = replace(WELL, database=replace(DATABASE, **fields))
    (found,) = cluster_findings(facts)
    assert (found.kind, found.is_mild) == (kind, is_mild)
    assert found.message
    assert found.fix


def test_a_history_without_partitions_and_few_dead_rows_are_no_fault() -> None:
    database = replace(DATABASE, partition_days=None, tables=(replace(TABLE, dead=99),))
    assert cluster_findings(replace(WELL, database=database)) == []


def test_nodes_that_are_gone_and_shards_that_lag_are_told() -> None:
    gone = replace(WELL, members=(replace(NODE, left_ns=-1),))
    assert [one.kind for one in cluster_findings(gone)] == ["no_node"]
    shard = ShardFacts(shard=1, epoch=3, owner=None, late_ns=2 * MINUTE_NS)
    late = replace(WELL, shards=(*WELL.shards, shard), schema=0)
    kinds = [one.kind for one in cluster_findings(late)]
    assert kinds == ["unowned", "late", "old_schema"]


def test_the_worst_is_told_first() -> None:
    database = replace(DATABASE, is_standby=True, orphans=1)
    found = cluster_findings(replace(WELL, database=database))
    assert [one.kind for one in found] == ["standby", "orphans"]
