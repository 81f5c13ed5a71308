"""Trust in a lease: when it ends, what ends with it, and how a process goes on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.cluster.nodes import TTL, Cluster, Line
from tests.postgres import Postgres
from tests.stores.stage import SECOND
from timingwheel import Context, LeaseLost, Scheduler
from timingwheel.jobs.model import Outcome, Run, RunState
from timingwheel.jobs.store import Verdict
from timingwheel.stores.postgres.claiming import _CLAIM
from timingwheel.stores.postgres.errors import DatabaseAwayError
from timingwheel.stores.postgres.membership import _BEAT, _JOIN
from timingwheel.stores.postgres.store import PostgresStore
from timingwheel.stores.postgres.taking import TAKE
from timingwheel.testing import ManualClock

DOES: list[Callable[[Context], object]] = []


def work(ctx: Context) -> None:
    """The task of these tests."""
    for does in DOES:
        does(ctx)


@pytest.fixture
def cluster(postgres: Postgres) -> Iterator[Cluster]:
    made = Cluster(postgres)
    yield made
    made.close()


def cut(sql: str) -> None:
    """The database is not to be reached by who gives signs of life."""
    if sql in (_BEAT, _JOIN):
        raise DatabaseAwayError("cut")


def test_nothing_starts_when_trust_has_ended_though_the_lease_goes_on(
    cluster: Cluster,
) -> None:
    """The node alone knows: by the tables it lives, and owns its shards."""
    [a] = cluster.serving("a")
    for _ in range(3):
        cluster.stage.put(0)
    a.store.fire(100)
    held = a.claim(count=2)
    assert a.begin(held[0])
    a.clock.advance(TTL - 1)
    assert not a.begin(held[1])
    assert a.claim() == []
    cluster.stage.put(0)
    assert a.store.fire(100)[0] == 0
    assert set(cluster.owners().values()) == {a.inc}
    assert a.lost == sorted(claim.token for claim in held)
    assert [a.end(claim) for claim in held] == [Verdict.LEASE_LOST] * 2


def test_each_beat_that_is_answered_in_time_renews_trust(cluster: Cluster) -> None:
    [a] = cluster.serving("a")
    cluster.stage.put(0)
    [claim] = a.start()
    for _ in range(20):
        cluster.advance(TTL - 1.001)
        a.store.tend()
    assert a.end(claim) is Verdict.ACCEPTED
    assert a.lost == []


def test_a_worker_that_has_ended_does_not_lose_its_lease(cluster: Cluster) -> None:
    [a] = cluster.serving("a")
    a.store.leave("a")
    a.store.hand_over()
    cluster.advance(10 * TTL)
    assert not a.store._trust.is_over


def test_what_is_claimed_while_trust_ends_is_dropped_and_found_again(
    cluster: Cluster,
) -> None:
    [a] = cluster.serving("a")
    cluster.stage.put(0)
    a.store.fire(100)
    a.line.after = lambda sql: a.clock.advance(TTL if sql in (_CLAIM, TAKE) else 0)
    assert a.claim() == []
    a.line.after = None
    a.store.tend()
    [again] = a.start()
    assert again.run.attempts == 2
    assert a.end(again) is Verdict.ACCEPTED


@pytest.mark.parametrize("came_true", [True, False])
def test_a_claim_whose_answer_was_lost_is_given_back_by_the_next(
    cluster: Cluster, came_true: bool
) -> None:
    """The node lives, so nobody else would ever find what it was given."""
    [a] = cluster.serving("a")
    job = cluster.stage.put(0)
    a.store.fire(100)

    def lose(sql: str) -> None:
        if sql in (_CLAIM, TAKE):
            raise DatabaseAwayError("the answer is lost")

    setattr(a.line, "after" if came_true else "before", lose)
    with pytest.raises(DatabaseAwayError):
        a.claim()
    a.line.before = a.line.after = None
    [claim] = a.claim()
    assert claim.run.attempts == 1  # none was used up
    assert a.begin(claim)
    assert a.end(claim) is Verdict.ACCEPTED
    assert cluster.stage.states(job) == ["succeeded"]


def test_a_handler_hears_that_its_process_has_lost_its_lease(
    cluster: Cluster,
) -> None:
    """No beat is answered any more: ctx.check() raises while others believe it alive."""
    clock = ManualClock()
    stores: list[PostgresStore] = []

    def open_store(_: Any) -> PostgresStore:
        store = cluster.stage.node(clock)
        store._connections.__class__ = Line
        stores.append(store)
        return store

    app = Scheduler(open_store, clock=clock, slots=1)
    task = app.task(name="work")(work)
    door = threading.Condition()
    seen: list[Run | None] = []
    begun = threading.Event()

    def wait(ctx: Context) -> None:
        begun.set()
        while ctx.attempt == 1:
            with door:
                clock.wait(door, clock.monotonic_ns() + SECOND)
            try:
                ctx.check()
            except LeaseLost:
                seen.append(stores[0].run(ctx.run_id))
                raise

    DOES[:] = [wait]
    with app:
        run = app.run(app.add(task.call(), delay=0))
        assert begun.wait(30)
        line: Line = stores[0]._connections  # type: ignore[assignment]
        line.before = cut
        for _ in range(3 * TTL):
            cluster.stage.set_clock(1)
            clock.advance(1)
            clock.settle()
        [at_the_end] = seen
        assert at_the_end is not None
        assert at_the_end.state is RunState.RUNNING  # by the tables it is all well
        line.before = None
        for _ in range(3 * TTL):
            cluster.stage.set_clock(1)
            clock.advance(1)
            clock.settle()
        assert run.get().state is RunState.SUCCEEDED
        outcomes = [attempt.outcome for attempt in run.attempts()]
        assert outcomes == [Outcome.LOST, Outcome.OK]
        assert app.snapshot_metrics().lease_losses == 1
