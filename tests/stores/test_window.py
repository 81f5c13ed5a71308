"""The window: no more is ready than workers will soon take, and work never stalls for it."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator, Sequence

import pytest

from tests.postgres import Postgres
from tests.stores.postgres_stage import SHARDS, PostgresStage
from tests.stores.stage import NO_RETRY, SECOND, TASK, draft, end_of, every
from timingwheel.jobs.model import Cap, Draft, JobId, Pause, Queue, RunState
from timingwheel.jobs.store import Claim
from timingwheel.stores.postgres import window
from timingwheel.stores.postgres.lanes import LANES_MAX
from timingwheel.stores.postgres.taking import TAKEN_LANES_MAX

SIZE = 4
TASKS = ("t", "u", "v")


@pytest.fixture
def stage(postgres: Postgres) -> Iterator[PostgresStage]:
    """A node with a small window, one worker joined."""
    made = PostgresStage(postgres, window_min=SIZE)
    made.store.fire(1)  # a worker has joined: what is due then would be left to it
    yield made
    made.end_all()


def put(stage: PostgresStage, *drafts: Draft) -> list[JobId]:
    return [ref.id for ref in stage.store.put(drafts)]


def count(stage: PostgresStage, state: RunState, **where: str) -> int:
    more = "".join(f" AND {name} = %s" for name in where)
    sql = f"SELECT count(*) FROM timingwheel_run WHERE state = %s{more}"
    return int(stage.sql(sql, [state.value, *where.values()])[0][0])


def ready(stage: PostgresStage, **where: str) -> int:
    return count(stage, RunState.READY, **where)


def drain(
    stage: PostgresStage, claims_max: int = 1, tasks: Sequence[str] = (TASK,)
) -> list[Claim]:
    """Fire, claim and end, until nothing comes; return what was started, in order."""
    done: list[Claim] = []
    for _ in range(10_000):
        fired, _ = stage.store.fire(1_000)
        claims = stage.claim(claims_max, tasks=frozenset(tasks))
        for claim in claims:
            assert stage.begin(claim)
        stage.store.finish([end_of(claim) for claim in claims])
        done += claims
        if not fired and not claims:
            return done
    raise AssertionError("there is always something to do")


def test_no_more_becomes_ready_than_the_window_and_all_of_it_runs(
    stage: PostgresStage,
) -> None:
    put(stage, *(draft(1) for _ in range(50)))
    stage.advance(2)
    for _ in range(5):
        stage.store.fire(1_000)
        assert ready(stage) == SIZE
    done = drain(stage)
    assert len({claim.run.id for claim in done}) == len(done) == 50
    assert ready(stage) == 0


def test_what_fits_becomes_ready_in_one_fire(stage: PostgresStage) -> None:
    put(stage, *(draft(1) for _ in range(SIZE - 1)))
    stage.advance(2)
    assert stage.store.fire(1_000)[0] == SIZE - 1
    assert stage.store.fire(1_000)[0] == 0
    assert stage.store._limits.rest_ns == window.REST_MAX_NS


def test_what_is_due_first_starts_first_over_all_shards(stage: PostgresStage) -> None:
    order = list(range(60))
    random.Random(4).shuffle(order)
    for seconds in order:
        put(stage, draft(1 + seconds))
    stage.advance(120)
    done = [claim.run.due_ns for claim in drain(stage)]
    # The first window's worth is made ready as it was found.
    assert done[SIZE:] == sorted(done[SIZE:])


def test_an_urgent_run_does_not_wait_behind_a_herd_whose_window_is_full(
    stage: PostgresStage,
) -> None:
    put(stage, *(draft(1) for _ in range(100)))
    stage.advance(2)
    for _ in range(3):
        stage.store.fire(1_000)
    assert ready(stage) == SIZE
    [urgent] = put(stage, draft(1, priority=5))
    [less] = put(stage, draft(1, priority=-5))
    stage.advance(2)
    assert stage.store.fire(1_000)[0] == 1
    assert [claim.run.job_id for claim in stage.claim(1)] == [urgent]
    done = drain(stage)
    assert done[-1].run.job_id == less


def test_of_many_urgent_runs_no_more_than_a_window_jumps_the_queue_at_once(
    stage: PostgresStage,
) -> None:
    put(stage, *(draft(1) for _ in range(30)))
    stage.advance(2)
    for _ in range(3):
        stage.store.fire(1_000)
    put(stage, *(draft(1, priority=5) for _ in range(50)))
    stage.advance(2)
    for _ in range(10):
        stage.store.fire(1_000)
    assert ready(stage) <= 50 + SIZE
    urgent = [claim.run.priority for claim in drain(stage)]
    assert urgent == [5] * 50 + [0] * 30


def test_runs_of_tasks_that_nobody_knows_take_no_room_of_others(
    stage: PostgresStage,
) -> None:
    put(stage, *(draft(1, task="unknown", priority=9) for _ in range(50)))
    put(stage, *(draft(1) for _ in range(20)))
    stage.advance(2)
    assert len(drain(stage)) == 20
    assert ready(stage, task="unknown") == SIZE


@pytest.mark.parametrize(
    "queue",
    [
        Queue(name="shut", pause=Pause(since_ns=0)),
        Queue(name="shut", limit=1),
        Queue(name="shut", rate=0.001),
    ],
    ids=["paused", "full", "slow"],
)
def test_runs_of_a_queue_that_lets_nothing_go_take_no_room_of_others(
    stage: PostgresStage, queue: Queue
) -> None:
    stage.store.set_queue(queue)
    put(stage, draft(0, queue="shut", priority=99))
    stage.advance(1)
    stage.store.fire(1_000)
    stage.claim(1)  # and never ends
    put(stage, *(draft(1, queue="shut", priority=9) for _ in range(50)))
    put(stage, *(draft(1) for _ in range(20)))
    stage.advance(2)
    assert len(drain(stage)) == 20
    assert ready(stage, queue="shut") <= SIZE + 1


def test_runs_under_a_cap_that_is_full_take_no_room_of_others(
    stage: PostgresStage,
) -> None:
    cap = Cap("tenant:7", 1)
    put(stage, draft(0, cap=cap))
    stage.advance(1)
    stage.store.fire(1_000)
    stage.claim(1)  # and never ends
    put(stage, *(draft(1, cap=cap, priority=9) for _ in range(30)))
    put(stage, *(draft(1) for _ in range(20)))
    stage.advance(2)
    assert len(drain(stage)) == 20


def test_retries_come_through_a_herd_as_first_attempts_do(stage: PostgresStage) -> None:
    [failing] = put(stage, draft(0))
    stage.fail(stage.start_one())
    put(stage, *(draft(10) for _ in range(60)))
    stage.advance(3600)
    done = drain(stage)
    assert len(done) == 61
    # It wakes before them all.
    assert failing in [claim.run.job_id for claim in done[: SIZE + 1]]


def test_occurrences_of_recurring_jobs_do_not_wait_for_room(
    stage: PostgresStage,
) -> None:
    """Whether one is skipped because the one before still runs is decided in time."""
    put(stage, *(draft(every(60)) for _ in range(3 * SIZE)))
    stage.advance(61)
    stage.fire()
    assert ready(stage) == 3 * SIZE


def test_with_more_lanes_than_are_looked_at_everything_runs_all_the_same(
    stage: PostgresStage,
) -> None:
    lanes = LANES_MAX + 2
    put(stage, *(draft(1, priority=priority) for priority in range(lanes)))
    stage.advance(2)
    assert len(drain(stage, claims_max=50)) == lanes


def test_the_window_grows_with_what_the_workers_of_all_nodes_take(
    stage: PostgresStage,
) -> None:
    with contextlib.closing(stage.node()) as other:
        other.join("far")
        other.claim("far", tasks=frozenset({TASK}), count=10, ahead=3)
        other.tend()
        stage.claim(2)
        stage.store.tend()
        put(stage, *(draft(1) for _ in range(100)))
        stage.advance(2)
        for _ in range(4):
            stage.store.fire(1_000)
        assert ready(stage) == 2 + 2 * (2 + 13)


def test_places_of_who_has_left_do_not_count(stage: PostgresStage) -> None:
    with contextlib.closing(stage.node()) as other:
        other.join("far", ttl_ns=SECOND)
        other.claim("far", tasks=frozenset({TASK}), count=500)
        other.tend()
        stage.advance(2)
    put(stage, *(draft(1) for _ in range(100)))
    stage.advance(2)
    for _ in range(4):
        stage.store.fire(1_000)
    assert ready(stage) == SIZE


def test_a_look_at_a_crowd_comes_the_sooner_the_quicker_others_take_from_it(
    stage: PostgresStage,
) -> None:
    put(stage, *(draft(1) for _ in range(100)))
    stage.advance(2)
    limits = stage.store._limits
    for _ in range(2):
        stage.store.fire(1_000)
    assert limits.rest_ns == window.REST_MAX_NS
    stage.clock.advance(0.4)
    with contextlib.closing(stage.node()) as other:  # all of it is gone in 0.4 s
        other.join("far")
        claims, _ = other.claim("far", tasks=frozenset({TASK}), count=SIZE)
        assert len(claims) == SIZE
    stage.store.fire(1_000)
    assert limits.rest_ns == SECOND // 5
    stage.clock.advance(0.4)
    stage.store.fire(1_000)
    assert limits.rest_ns == window.REST_MAX_NS


def test_a_fixed_rate_bounds_a_node_by_its_share_of_the_shards(
    postgres: Postgres,
) -> None:
    stage = PostgresStage(postgres, fires_per_second=40, window_min=None)
    with contextlib.closing(stage.node()) as other:
        other.recover()
        for _ in range(SHARDS):
            stage.store.tend()
            other.tend()
        shares = [len(node._members.leases) for node in (stage.store, other)]
        assert shares == [2, 2]
        stage.store.fire(1)  # a worker has joined: what is due then would be left to it
        put(stage, *(draft(1) for _ in range(300)))
        stage.advance(2)
        stage.store.fire(1_000)  # what was saved up by half the store
        other.fire(1_000)
        before = ready(stage)
        for _ in range(20):
            stage.clock.advance(0.1)
            stage.store.fire(1_000)
            other.fire(1_000)
        assert ready(stage) - before == pytest.approx(80, abs=2)
    stage.end_all()


@pytest.mark.parametrize("seed", [pytest.param(n, id=f"seed-{n}") for n in range(6)])
def test_with_a_free_slot_and_a_due_run_that_may_start_something_starts(
    stage: PostgresStage, seed: int
) -> None:
    """Mixed tasks, queues, bounds, caps and priorities, from one small window."""
    rng = random.Random(seed)
    store = stage.store
    store.set_queue(Queue(name="paused", pause=Pause(since_ns=0)))
    store.set_queue(Queue(name="narrow", limit=2))
    workers = [("one", ("t",)), ("two", ("u", "v"))]
    for name, _ in workers:
        store.join(name)
    queues = ("default", "default", "paused", "narrow")
    drafts = [
        draft(
            rng.randrange(3),
            task=rng.choice((*TASKS, "unknown")),
            queue=rng.choice(queues),
            priority=rng.choice((0, 0, 0, 3, -3)),
            cap=rng.choice((None, None, Cap("a", 1), Cap("b", 2))),
            retry=NO_RETRY,
        )
        for _ in range(150)
    ]
    startable = sum(one.queue != "paused" and one.task in TASKS for one in drafts)
    put(stage, *drafts)
    held: list[Claim] = []
    done = 0
    for _ in range(2_000):
        stage.advance(0.2)
        fired, _ = store.fire(1_000)
        name, tasks = rng.choice(workers)
        claims = stage.claim(rng.randrange(1, 4), worker=name, tasks=frozenset(tasks))
        held += claims
        if rng.random() < 0.6 or not (fired or claims):
            rng.shuffle(held)
            ended, held = held[: len(held) // 2 + 1], held[len(held) // 2 + 1 :]
            store.finish([end_of(claim) for claim in ended])
            done += len(ended)
        if done == startable:
            break
    assert done == startable


def test_of_what_is_due_a_worker_takes_the_best_rank_however_deep_it_lies(
    stage: PostgresStage,
) -> None:
    put(stage, *(draft(1 + n / 100) for n in range(40)))
    put(stage, *(draft(1.5, priority=n % 3) for n in range(12)))
    assert stage.claim(1) == []  # a worker has come: what is due is left to it
    stage.advance(2)
    done: list[Claim] = []
    for _ in range(52):
        stage.store.fire(1_000)
        assert ready(stage) == 0
        [claim] = stage.claim(1)
        done.append(claim)
    ranks = [claim.run.due_ns - 60 * SECOND * claim.run.priority for claim in done]
    assert ranks == sorted(ranks)


def test_with_more_lanes_than_a_take_looks_at_what_is_due_goes_by_rank_by_way_of_ready(
    stage: PostgresStage,
) -> None:
    lanes = range(TAKEN_LANES_MAX + 2)
    put(stage, *(draft(1, queue=f"q{n}") for n in lanes))
    [urgent] = put(stage, draft(1.5, priority=1))
    assert stage.claim(1) == []
    stage.advance(2)
    done = [claim.run.job_id for claim in drain(stage)]
    assert len(done) == len(lanes) + 1
    # The first look at a herd takes a window's worth as it is found.
    assert urgent in done[: SIZE + 2]
