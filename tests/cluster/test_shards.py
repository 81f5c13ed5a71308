"""Who fires which shards: fair shares that move little, and are handed over at once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from tests.cluster.nodes import TTL, Cluster
from tests.postgres import Postgres
from tests.stores.stage import every, overlap
from timingwheel import Scheduler
from timingwheel.jobs.store import Verdict
from timingwheel.stores.postgres.sharing import RELEASE_PART, SETTLED_BEATS
from timingwheel.testing import ManualClock

SHARDS = 64
DOES: list[Callable[[], object]] = []


def work() -> None:
    """The task of these tests."""
    for does in DOES:
        does()


FEW = SHARDS // RELEASE_PART


@pytest.fixture
def cluster(postgres: Postgres) -> Iterator[Cluster]:
    made = Cluster(postgres, shards=SHARDS)
    yield made
    made.close()


def test_the_first_node_takes_all_and_each_that_comes_gets_a_fair_share(
    cluster: Cluster,
) -> None:
    nodes = []
    for n in range(1, 6):
        nodes += cluster.serving(f"n{n}")
        counts = [len(node.shards) for node in nodes]
        assert sum(counts) == SHARDS
        assert max(counts) <= -(-SHARDS // n)
        cluster.check()


def test_a_node_lets_go_of_a_few_shards_a_beat(cluster: Cluster) -> None:
    [a] = cluster.serving("a")
    b = cluster.node("b").serve()
    for _ in range(SETTLED_BEATS):
        b.store.tend()
    left = [len(a.shards)]
    while left[-1] > SHARDS // 2:
        a.store.tend()
        left.append(len(a.shards))
    assert left == list(range(SHARDS, SHARDS // 2 - 1, -FEW))
    a.store.tend()
    b.store.tend()
    assert len(a.shards) == len(b.shards) == SHARDS // 2


def test_a_node_that_comes_and_goes_moves_no_shard(cluster: Cluster) -> None:
    [a] = cluster.serving("a")
    before = cluster.epochs()
    for n in range(5):
        flapping = cluster.node(f"f{n}").serve()
        cluster.beat(2, a)
        flapping.store.abandon()
        cluster.nodes.remove(flapping)
        cluster.beat(TTL, a)
    assert cluster.epochs() == before
    assert len(a.shards) == SHARDS


def test_the_shards_of_a_node_that_died_are_taken_in_one_beat(cluster: Cluster) -> None:
    a, b, c = cluster.serving("a", "b", "c")
    kept = {node: node.shards for node in (a, b)}
    c.store.abandon()
    cluster.nodes.remove(c)
    cluster.beat(TTL - 1, a, b)
    assert len(a.shards | b.shards) < SHARDS
    cluster.beat(1, a, b)
    assert len(a.shards) == len(b.shards) == SHARDS // 2
    assert all(node.shards >= shards for node, shards in kept.items())


def test_a_node_that_stops_leaves_nothing_that_others_must_wait_for(
    cluster: Cluster,
) -> None:
    a, b = cluster.serving("a", "b")
    a.store.close()
    cluster.nodes.remove(a)
    b.store.tend()
    assert len(b.shards) == SHARDS
    assert cluster.stage.sql("SELECT name FROM timingwheel_member WHERE is_node") == [
        (b.store._members._node,)
    ]


def test_what_runs_goes_on_while_a_node_hands_over(cluster: Cluster) -> None:
    """A stop waits for handlers; others fire meanwhile what would else be late."""
    a, b = cluster.serving("a", "b")
    cluster.stage.put(0)
    claims = a.start() + b.start() + a.start()
    [(holder, other, claim)] = [
        (one, two, claim)
        for claim in claims
        for one, two in ((a, b), (b, a))
        if claim.token in one.store._owner.claimed
    ]
    holder.store.hand_over()
    other.store.tend()
    assert len(other.shards) == SHARDS
    cluster.beat(3 * TTL, a, b)
    assert holder.shards == set()
    assert holder.end(claim) is Verdict.ACCEPTED


def test_a_scheduler_that_stops_hands_over_before_it_waits(cluster: Cluster) -> None:
    [b] = cluster.serving("b")
    a = cluster.node("a")
    app = Scheduler(lambda _: a.store, clock=a.clock, slots=1)
    task = app.task(name="work")(work)
    door, begun, is_open = threading.Condition(), threading.Event(), threading.Event()

    def wait() -> None:
        begun.set()
        with door:
            while not is_open.is_set():
                a.clock.wait(door, None)

    DOES[:] = [wait]
    app.start()
    cluster.settle()
    run = app.run(app.add(task.call(), delay=0))
    while not begun.is_set():
        b.store.fire(100)
        a.clock.advance(1)
        a.clock.settle()
        cluster.settle()
    assert len(a.shards) == SHARDS // 2
    stopping = threading.Thread(target=app.stop)
    stopping.start()
    while len(b.shards) < SHARDS:
        b.store.tend()
    with door:
        is_open.set()
        door.notify_all()
    stopping.join()
    cluster.nodes.remove(a)
    assert cluster.stage.store.run(run.id).state == "succeeded"  # type: ignore[union-attr]


# -- nodes of other kinds ----------------------------------------------------------------------


def test_schedules_fire_whichever_tasks_a_node_knows(cluster: Cluster) -> None:
    """Two nodes, of which each can run one of two tasks, and a planner that runs none."""
    a, b, planner = cluster.serving("a", "b", "p")
    more = {"overlap": overlap("allow")}
    jobs = {
        task: [cluster.stage.put(every(1), task=task, **more) for _ in range(12)]
        for task in "ab"
    }
    claimed: dict[str, set[str]] = {"a": set(), "b": set()}
    for _ in range(2):
        cluster.advance(1)
        for node in (a, b, planner):
            node.store.tend()
            node.store.fire(1_000)
        for node in (a, b):
            tasks = frozenset({node.name})
            claims, _ = node.store.claim(node.name, tasks=tasks, count=100)
            assert {claim.run.task for claim in claims} == tasks
            claimed[node.name] |= {claim.run.id for claim in claims}
    assert [len(claimed[task]) for task in "ab"] == [2 * 12, 2 * 12]
    assert planner.shards
    assert {run.job_id for run in cluster.stage.runs()} == {*jobs["a"], *jobs["b"]}


def test_a_scheduler_without_slots_makes_ready_and_runs_nothing(
    cluster: Cluster,
) -> None:
    clock = ManualClock()
    node = cluster.stage.node(clock)
    app = Scheduler(lambda _: node, clock=clock, slots=0)

    task = app.task(name="work")(work)
    DOES.clear()
    with app:
        run = app.run(app.add(task.call(), delay=0))
        for _ in range(10):
            clock.advance(1)
            clock.settle()
        assert run.get().state == "ready"
        assert run.attempts() == []
