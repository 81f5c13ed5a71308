"""A shard is given to a node that lives, or to none."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.nodes import TTL, Cluster
from tests.postgres import Postgres
from tests.stores.stage import every
from timingwheel.stores.postgres.errors import DatabaseAwayError


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


def test_what_a_node_took_without_hearing_of_it_is_found_with_its_next_beat(
    cluster: Cluster,
) -> None:
    """While it lives nobody else would take that."""
    a = cluster.node("a")

    def break_off(sql: str) -> None:
        if "UPDATE timingwheel_shard" in sql:
            a.line.after = None
            raise DatabaseAwayError("the reply was lost")

    a.line.after = break_off
    with pytest.raises(DatabaseAwayError):
        a.serve()
    assert not a.shards
    a.store.tend()
    assert a.shards == cluster.epochs().keys()
    cluster.check()


def test_a_fire_that_was_late_does_not_forget_what_its_node_has_taken_since(
    cluster: Cluster,
) -> None:
    """It acted on shards that were lost; the node has begun anew and has them again."""
    [a] = cluster.serving("a")
    cluster.stage.put(every(1))
    cluster.advance(1)

    begun: list[str] = []

    def begin_anew(sql: str) -> None:
        if "guard_shard" in sql and not begun:
            begun.append(sql)
            cluster.advance(TTL + 1)
            a.store.tend()

    a.line.before = begin_anew
    a.store.fire(100)
    assert begun
    assert a.shards == cluster.epochs().keys()
    cluster.check()
