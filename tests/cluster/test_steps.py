"""Steps of the database's clock: told from time that passes, and from machines that sleep."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any, cast

import pytest

from tests.cluster.nodes import TTL, Cluster
from tests.postgres import Postgres
from tests.stores.stage import HOUR, SECOND, at
from timingwheel.stores.postgres.connections import Ints
from timingwheel.stores.postgres.membership import _BEAT
from timingwheel.stores.postgres.steps import LOOKS, Steps

SIZES = pytest.mark.parametrize("step", [5, -5, 3_600, -3_600])


@pytest.fixture
def cluster(postgres: Postgres) -> Iterator[Cluster]:
    made = Cluster(postgres)
    yield made
    made.close()


def steps(cluster: Cluster) -> float:
    """The sum of all steps that were noted, in seconds."""
    return cluster.noted_steps_ns() / SECOND


@SIZES
def test_a_node_alone_notes_a_step_and_delays_and_leases_do_not_follow_it(
    cluster: Cluster, step: int
) -> None:
    [a] = cluster.serving("a")
    running = cluster.stage.put(0)
    [claim] = a.start()
    waiting = cluster.stage.put(10)
    inc = a.inc
    cluster.stage.set_clock(step)
    a.store.fire(100)  # before anybody has noticed
    assert cluster.stage.states(waiting) == ["planned"]
    a.store.tend()
    assert steps(cluster) == step
    assert (a.inc, a.lost) == (inc, [])
    cluster.beat(9, a)
    assert a.start() == []
    cluster.beat(1, a)
    [late] = a.start()
    assert late.run.job_id == waiting
    assert late.run.attempts == 1
    a.end(claim)
    assert cluster.stage.states(running) == ["succeeded"]
    assert steps(cluster) == step


@SIZES
def test_a_step_is_taken_for_the_largest_that_it_may_be_so_nothing_comes_early(
    step: int,
) -> None:
    way = SECOND // 100  # there, or back: nothing of a round trip need be either
    for answered in (0, way):  # when, after it was asked
        for before in (0, way):
            seen = Steps(cast("Any", None))  # looks at no database by itself
            assert seen.note(0, way, before) == 0
            asked = SECOND
            found = seen.note(asked, asked + way, asked + answered + step * SECOND)
            assert 0 <= found - step * SECOND <= 2 * way


def test_wall_times_follow_a_step(cluster: Cluster) -> None:
    [a] = cluster.serving("a")
    job = cluster.stage.put(at(cluster.stage.now_ns + HOUR))
    cluster.stage.set_clock(3_599)
    a.store.tend()
    a.store.fire(100)
    assert cluster.stage.states(job) == ["planned"]
    cluster.advance(1)
    a.store.fire(100)
    assert cluster.stage.states(job) == ["ready"]


@SIZES
@pytest.mark.parametrize("count", [2, 3])
def test_of_several_nodes_most_must_see_a_step_and_it_counts_once(
    cluster: Cluster, step: int, count: int
) -> None:
    nodes = cluster.serving(*"abc"[:count])
    early = [cluster.stage.put(10) for _ in range(8)]
    incs = [node.inc for node in nodes]
    for n, node in enumerate(nodes):  # no two read quite the same
        node.clock.advance(ns=n * 3_000_000)
    cluster.stage.set_clock(step)
    for node in nodes:
        node.store.fire(100)
    assert {state for job in early for state in cluster.stage.states(job)} == {
        "planned"
    }
    nodes[0].store.tend()
    if step < TTL:  # else the leap has ended all leases, and whoever is first is alone
        assert steps(cluster) == 0
    for _ in range(LOOKS):
        for node in nodes[1:] + nodes[:1]:
            node.store.tend()
    assert steps(cluster) == pytest.approx(step, abs=0.02)
    assert [node.inc for node in nodes] == incs
    cluster.beat(10, *nodes)
    started = [claim.run.job_id for node in nodes for claim in node.start()]
    assert sorted(started) == sorted(early)
    cluster.check()


@pytest.mark.parametrize("others", [1, 2])
def test_a_machine_that_stood_still_takes_its_sleep_for_no_step(
    cluster: Cluster, others: int
) -> None:
    """Not even its monotonic clock has moved on; the others know better."""
    nodes = cluster.serving(*"abc"[: others + 1])
    sleeper, *awake = nodes
    for _ in range(100):
        cluster.advance(1, without=[sleeper])
        for node in awake:
            node.store.tend()
    cluster.stage.put(0)
    for _ in range(LOOKS):
        sleeper.store.tend()
        for node in awake:
            node.store.tend()
    assert steps(cluster) == 0
    cluster.settle()
    assert steps(cluster) == 0
    assert sleeper.shards
    cluster.stage.put(0)
    claims = [claim for _ in range(3) for node in nodes for claim in node.start()]
    assert len({claim.run.id for claim in claims}) == len(claims) == 2
    cluster.check()


def test_a_process_that_was_stopped_has_seen_no_step(cluster: Cluster) -> None:
    """Its monotonic clock has moved on: SIGSTOP stops no clock."""
    [a] = cluster.serving("a")
    cluster.advance(10 * TTL)
    a.store.tend()
    assert steps(cluster) == 0


def test_an_answer_that_comes_late_shows_no_step(cluster: Cluster) -> None:
    [a] = cluster.serving("a")

    def be_late(sql: str) -> None:
        if sql == _BEAT:
            cluster.advance(4)

    for side in ("before", "after"):
        setattr(a.line, side, be_late)
        a.store.tend()
        setattr(a.line, side, None)
        a.store.tend()
    assert steps(cluster) == 0
    assert a.store._steps.step_ns == 0


def test_a_step_that_came_while_the_database_was_away_is_noted(
    cluster: Cluster,
) -> None:
    """Another server, with another clock, has taken its place."""
    [a] = cluster.serving("a")
    job = cluster.stage.put(60)
    cluster.advance(30)
    cluster.stage.set_clock(45)
    a.store.fire(100)
    assert cluster.stage.states(job) == ["planned"]
    for _ in range(2):
        a.store.tend()
    assert steps(cluster) == 45
    cluster.beat(29, a)
    assert a.start() == []
    cluster.beat(1, a)
    assert len(a.start()) == 1


def test_clocks_that_drift_are_followed(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    [a] = cluster.serving("a")
    for _ in range(50):
        cluster.advance(2)
        cluster.stage.set_clock(0.05)
        a.store.tend()
    assert steps(cluster) == 0
    assert "was set" not in caplog.text


def test_a_step_is_told_to_people(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    [a] = cluster.serving("a")
    cluster.stage.set_clock(-7)
    with caplog.at_level(logging.WARNING):
        a.store.tend()
    assert "the database's clock was set by -7.000 s" in caplog.text


def test_of_two_nodes_that_note_a_step_at_once_one_counts(cluster: Cluster) -> None:
    """Both have read the same sum, and both have seen what the other has."""
    nodes = cluster.serving("a", "b")
    cluster.stage.sql("UPDATE timingwheel_member SET step_ns = %s", [5 * SECOND])
    for node in nodes:
        node.store._steps.step_ns = 5 * SECOND
    assert [node.store._steps.settle(0, Ints([node.inc])) for node in nodes] == [
        True,
        False,
    ]
    assert steps(cluster) == 5
