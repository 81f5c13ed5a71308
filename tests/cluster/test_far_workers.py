"""Workers that work from afar, through whichever server: no server's death costs them a run."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from tests.cluster.nodes import TASKS, TTL, Cluster, ClusterNode
from tests.postgres import Postgres
from tests.stores.stage import SECOND, end_of
from timingwheel import Scheduler
from timingwheel.jobs.errors import UnknownWorkerError
from timingwheel.jobs.store import CancelResult, Verdict
from timingwheel.server.hub import WorkerHub

FAR_TTL = 30


@pytest.fixture
def cluster(postgres: Postgres) -> Iterator[Cluster]:
    made = Cluster(postgres)
    yield made
    made.close()


@contextlib.contextmanager
def hub(node: ClusterNode) -> Iterator[WorkerHub]:
    """The hub of a server on a node's store; the node's loop is the test's to step."""
    app = Scheduler(lambda _: node.store, clock=node.clock)
    made = WorkerHub(app)
    assert app.desk.store is node.store
    yield made


def make_ready(*nodes: ClusterNode) -> None:
    """Make ready what is due; the first turn leaves it to workers that have just joined."""
    for node in (*nodes, *nodes):
        node.store.fire(10)


def test_the_death_of_a_server_reruns_nothing_of_its_workers(cluster: Cluster) -> None:
    a, b = cluster.serving("a", "b")
    job = cluster.stage.put(0)
    make_ready(a, b)
    with hub(a) as first, hub(b) as second:
        worker = first.join("far", FAR_TTL * SECOND)
        [claim] = first.claim(worker, tasks=TASKS, count=1)
        a.store.abandon()
        cluster.nodes.remove(a)
        for _ in range(4):  # two minutes, in which it beats by the other server
            cluster.beat(FAR_TTL - 1, b)
            assert second.beat(worker, [claim.token]) == []
            b.store.fire(100)
        assert cluster.stage.states(job) == ["running"]
        assert [one.in_hand for one in second.workers()] == [1]
        cluster.stage.put(0)
        b.store.fire(100)
        [more] = second.claim(worker, tasks=TASKS, count=1)
        ends = [end_of(claim), end_of(more)]
        assert second.finish(worker, ends) == [Verdict.ACCEPTED] * 2
    assert [run.attempts for run in cluster.stage.runs()] == [1, 1]


def test_a_worker_that_beats_nowhere_is_lost_everywhere(cluster: Cluster) -> None:
    a, b = cluster.serving("a", "b")
    job = cluster.stage.put(0)
    make_ready(a, b)
    with hub(a) as first, hub(b) as second:
        worker = first.join("far", FAR_TTL * SECOND)
        [claim] = first.claim(worker, tasks=TASKS, count=1)
        cluster.beat(FAR_TTL, a, b)
        for one in (second, first):
            with pytest.raises(UnknownWorkerError):
                one.beat(worker, [claim.token])
        make_ready(a, b)
        assert cluster.stage.states(job) == ["ready"]
        assert second.finish(worker, [end_of(claim)]) == [Verdict.LEASE_LOST]


def test_a_claim_that_a_server_took_into_its_grave_is_given_back(
    cluster: Cluster,
) -> None:
    """It was written, and its answer never came: the worker lives and knows nothing."""
    a, b = cluster.serving("a", "b")
    job = cluster.stage.put(0)
    make_ready(a, b)
    with hub(a) as first, hub(b) as second:
        worker = first.join("far", FAR_TTL * SECOND)
        assert len(first.claim(worker, tasks=TASKS, count=1)) == 1
        a.store.abandon()
        cluster.nodes.remove(a)
        cluster.beat(TTL, b)
        second.beat(worker, [])
        assert cluster.stage.states(job) == ["running"]
        second.beat(worker, [])
        assert cluster.stage.states(job) == ["ready"]
        [again] = second.claim(worker, tasks=TASKS, count=1)
        assert again.run.attempts == 1


def test_a_request_to_end_finds_its_worker_at_another_server(cluster: Cluster) -> None:
    a, b = cluster.serving("a", "b")
    job = cluster.stage.put(0)
    make_ready(a, b)
    with hub(a) as first, hub(b) as second:
        worker = first.join("far", FAR_TTL * SECOND)
        [claim] = first.claim(worker, tasks=TASKS, count=1)
        assert cluster.stage.store.cancel(job, running="kill") is CancelResult.REQUESTED
        [request] = second.beat(worker, [claim.token])
        assert (request.token, request.kill) == (claim.token, True)


def test_a_worker_that_left_by_one_server_is_known_to_none(cluster: Cluster) -> None:
    """One that died is told of as lost; it may come back."""
    a, b = cluster.serving("a", "b")
    with hub(a) as first, hub(b) as second:
        workers = [first.join(name, FAR_TTL * SECOND) for name in ("left", "lost")]
        for worker in workers:
            assert second.beat(worker, []) == []
        second.leave(workers[0])
        assert [one.id for one in first.workers()] == [workers[1]]
        cluster.beat(FAR_TTL, a, b)
        assert [one.id for one in first.workers()] == [workers[1]]


def test_a_node_hints_at_ready_runs_once_its_remote_worker_has_left(
    cluster: Cluster,
) -> None:
    """By another server, of which a beat tells."""
    a, b = cluster.serving("a", "b")
    with hub(a) as first, hub(b) as second:
        worker = first.join("far", FAR_TTL * SECOND)
        assert second.beat(worker, []) == []
        own = set(a.store._members.incs())
        second.leave(worker)
        a.store.tend()
        assert len(own - set(a.store._members.incs())) == 1
