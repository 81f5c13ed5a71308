"""A shard is given to a node that lives, or to none."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.nodes import TTL, Cluster
from tests.postgres import Postgres


@pytest.fixture
def cluster(postgres: Postgres) -> Iterator[Cluster]:
    made = Cluster(postgres)
    yield made
    made.close()


def test_a_node_whose_lease_ends_within_its_beat_takes_nothing(
    cluster: Cluster,
) -> None:
    """The database's clock may step, or a statement wait, between beat and take."""
    [a] = cluster.serving("a")
    b = cluster.node("b").serve()
    a.store.abandon()
    cluster.nodes.remove(a)
    epochs = cluster.epochs()
    passed: list[str] = []

    def pass_the_lease(sql: str) -> None:
        if "UPDATE timingwheel_shard" in sql and not passed:
            passed.append(sql)
            cluster.stage.advance(TTL + 1)

    cluster.advance(TTL - 1)
    b.store.tend()
    cluster.advance(2)
    b.line.before = pass_the_lease
    b.store.tend()
    assert passed, "it did not come to that"
    assert cluster.epochs() == epochs
    assert not b.shards

    b.store.tend()
    assert len(b.shards) == len(epochs)
    cluster.check()
