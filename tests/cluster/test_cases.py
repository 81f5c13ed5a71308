"""Cases from public bug reports of other schedulers, each with its right outcome here."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.nodes import TTL, Cluster, ClusterNode
from tests.postgres import Postgres
from tests.stores.stage import NO_RETRY, every, overlap
from timingwheel.jobs.model import RunState
from timingwheel.jobs.store import Verdict
from timingwheel.stores.postgres.membership import _BEAT


@pytest.fixture
def cluster(postgres: Postgres) -> Iterator[Cluster]:
    made = Cluster(postgres)
    yield made
    made.close()


# -- T1: oban-bg/oban#1488, a leader renews a row by its name after losing it ------------------


def test_t1_a_node_that_lost_its_lease_renews_nothing_and_is_another(
    cluster: Cluster,
) -> None:
    [a] = cluster.serving("a")
    jobs = [cluster.stage.put(0, retry=NO_RETRY) for _ in range(6)]
    claims = a.start()
    former, epochs = a.inc, cluster.epochs()
    assert len(claims) == len(jobs)
    b = cluster.node("b")
    cluster.advance(TTL, without=[a])  # it was stopped: even its clock has not moved on
    b.serve()
    assert set(cluster.owners().values()) == {b.inc}
    b.store.fire(100)  # recovers what a had
    a.store.tend()
    assert a.inc > former
    assert sorted(a.lost) == sorted(claim.token for claim in claims)
    assert {a.end(claim) for claim in claims} == {Verdict.LEASE_LOST}
    cluster.settle()
    assert set(cluster.owners().values()) == {a.inc, b.inc}
    assert a.shards | b.shards == cluster.epochs().keys()
    assert not a.shards & b.shards
    assert all(cluster.epochs()[shard] > epoch for shard, epoch in epochs.items())
    again = [*a.start(), *b.start()]
    assert {claim.run.job_id for claim in again} == set(jobs)
    assert len(again) == len(jobs)


# -- T2: oban-bg/oban-py#32, identity is the host's name ---------------------------------------


def test_t2_nodes_of_equal_names_are_as_many_members_and_fire_each_run_once(
    cluster: Cluster,
) -> None:
    jobs = [cluster.stage.put(every(1), overlap=overlap("allow")) for _ in range(12)]
    nodes = cluster.serving("host", "host", "host")
    incs = {node.inc for node in nodes}
    workers = {node.store._members.inc_of("host") for node in nodes}
    assert len(incs | workers) == 6
    assert set(cluster.owners().values()) == incs
    started = []
    for _ in range(3):
        cluster.advance(1)
        for node in nodes:
            node.store.tend()
            node.store.fire(1_000)
        for node in nodes:
            started += [(node, claim) for claim in node.claim(count=4)]
    keys = [(claim.run.job_id, claim.run.nominal_ns) for _, claim in started]
    assert len(set(keys)) == len(keys) == 3 * len(jobs)
    assert len({node.inc for node, _ in started}) == 3
    assert {node.end(claim) for node, claim in started} == {Verdict.ACCEPTED}


# -- T5: quartz-scheduler/quartz#107, ABA ------------------------------------------------------


def make_stale(node: ClusterNode) -> ClusterNode:
    """Note what a node believes now; `believe` makes it believe that again."""
    members = node.store._members
    node.former = (members.inc, members.leases)  # type: ignore[attr-defined]
    return node


def believe(node: ClusterNode) -> None:
    inc, leases = node.former  # type: ignore[attr-defined]
    node.store._members.inc = node.store._owner.inc = inc
    node.store._members.leases = leases
    node.store._steps._known = None  # and by its clock all is as it should be


@pytest.mark.parametrize("by", ["another node", "the same node"])
def test_t5_a_fire_by_an_old_epoch_changes_nothing_after_a_full_cycle(
    cluster: Cluster, by: str
) -> None:
    """All is as it was, but for the epoch: the owner may even be the same one."""
    a, b = (make_stale(node) for node in cluster.serving("a", "b"))
    jobs = [cluster.stage.put(every(1), overlap=overlap("allow")) for _ in range(16)]
    jobs += [cluster.stage.put(1) for _ in range(16)]
    if by == "another node":
        cluster.advance(TTL, without=[a])
        cluster.beat(0, b)
        b.store.tend()
    else:
        a.store._members._release(sorted(a.shards))
        a.store.tend()
        assert a.shards == set(a.former[1])  # type: ignore[attr-defined]
    for node in [b] if by == "another node" else [a, b]:
        for claim in node.start():
            assert node.end(claim) is Verdict.ACCEPTED
    cluster.advance(1, without=[a] if by == "another node" else [])
    before = [cluster.stage.states(job) for job in jobs]
    believe(a)
    a.store.fire(1_000)
    assert [cluster.stage.states(job) for job in jobs] == before
    assert a.shards == set()  # it has learned that they are another's


# -- T6: procrastinate-org/procrastinate#1518, a worker's row pruned before the scan -----------


@pytest.mark.parametrize("fault", ["pruned", "restarted", "pruned and restarted"])
def test_t6_a_run_of_a_dead_worker_is_recovered_whatever_became_of_its_row(
    cluster: Cluster, fault: str
) -> None:
    [a] = cluster.serving("pod-0")
    job = cluster.stage.put(0)
    [claim] = a.start()
    a.store.abandon()
    cluster.nodes.remove(a)
    if "pruned" in fault:
        cluster.stage.sql("DELETE FROM timingwheel_member")
    # The same pod again, or another: the run is not that one's, alive as it looks.
    b = cluster.node("pod-0" if "restarted" in fault else "pod-1").serve()
    cluster.beat(TTL, b)
    b.store.fire(100)
    [again] = b.claim()
    assert again.run.id == claim.run.id
    assert again.token > claim.token
    assert b.end(claim) is Verdict.LEASE_LOST
    assert b.end(again) is Verdict.ACCEPTED
    run = cluster.stage.run(job)
    assert (run.state, run.lost) == (RunState.SUCCEEDED, 1)


# -- T8: riverqueue/river#1213, trust counted from the reply -----------------------------------


def test_t8_trust_counts_from_when_the_beat_was_sent(cluster: Cluster) -> None:
    """The reply comes a whole lease late: the node stops a second before the lease ends."""
    [a] = cluster.serving("a")
    for _ in range(4):
        cluster.stage.put(0)
    a.store.fire(100)
    claims = a.claim(count=3)
    former = a.inc
    seen: list[tuple[bool, int, int]] = []

    def look(claim_number: int) -> None:
        fired = a.store.fire(100)[0]
        seen.append((a.begin(claims[claim_number]), len(a.claim(count=1)), fired))

    def hold_up_the_reply(sql: str) -> None:
        if sql != _BEAT:
            return
        a.line.after = None
        cluster.advance(TTL - 1.001)
        look(0)
        assert a.lost == []
        cluster.advance(0.001)
        cluster.stage.put(0)
        look(1)
        cluster.advance(1)
        look(2)

    a.line.after = hold_up_the_reply
    a.store.tend()
    assert seen[0][:2] == (True, 1)
    assert seen[1:] == [(False, 0, 0), (False, 0, 0)]
    assert len(a.lost) == 4
    # The beat came true, but nobody could know that in time.
    assert a.inc > former
    assert {a.end(claim) for claim in claims} == {Verdict.LEASE_LOST}
    assert len(a.start() + a.start()) == 5


def test_t8_an_answer_that_comes_late_but_in_time_gives_no_longer_trust(
    cluster: Cluster,
) -> None:
    [a] = cluster.serving("a")
    cluster.stage.put(0)
    a.store.fire(100)
    [claim] = a.claim()

    def hold_up_the_reply(sql: str) -> None:
        if sql == _BEAT:
            a.line.after = None
            cluster.advance(TTL - 2)

    a.line.after = hold_up_the_reply
    a.store.tend()
    cluster.advance(0.999)
    assert a.store._trust.holds()
    cluster.advance(0.001)
    assert not a.begin(claim)
    assert a.lost == [claim.token]
