"""A directory that several stores share: who holds it, and what a change of holder does."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import SimpleQueue
from typing import cast

import pytest

from tests.stores.stage import ONCE, TASK, draft, end_of, every
from timingwheel.clock import SystemClock
from timingwheel.errors import ArgumentError, EngineClosedError
from timingwheel.jobs.figures import Measured
from timingwheel.jobs.model import JobId, Outcome, Queue, Run, RunId, RunState
from timingwheel.jobs.store import Claim, JobQuery, RunQuery, Verdict
from timingwheel.stores.door_errors import HolderLostError
from timingwheel.stores.embedded import EmbeddedStore
from timingwheel.stores.line import LineCutError
from timingwheel.stores.shared_store import SharedStore
from timingwheel.stores.sides import Side
from wal.errors import StoreInUseError

TASKS = frozenset({TASK})
JOBS = JobQuery()
Open = Callable[[], SharedStore]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Open]:
    """Opens stores of one directory, as so many processes would."""
    with contextlib.ExitStack() as ends:

        def open_one() -> SharedStore:
            store = SharedStore.open(tmp_path, clock=SystemClock())
            ends.callback(store.close)
            return store

        yield open_one


def served(store: SharedStore, worker: str) -> SharedStore:
    """Have a node of a store begin to serve."""
    store.join(worker)
    store.recover()
    return store


def started(store: SharedStore, worker: str, job: JobId) -> Claim:
    """Start the run of a job that is due."""
    while True:
        store.fire(100)
        claims, ticket = store.claim(worker, tasks=TASKS, count=1)
        store.commit(ticket)
        if claims:
            assert claims[0].run.job_id == job
            assert store.begin(claims[0].run.id, claims[0].token)
            return claims[0]


def ended(store: SharedStore, claim: Claim) -> Verdict:
    [verdict], ticket = store.finish([end_of(claim)])
    store.commit(ticket)
    return verdict


def state(store: SharedStore, claim: Claim) -> RunState:
    run = store.run(claim.run.id)
    assert run is not None
    return run.state


# -- one holds, the others ask ------------------------------------------------------------------


def test_the_first_holds_and_all_see_the_same(opened: Open) -> None:
    stores = [opened() for _ in range(3)]
    assert [store.is_holder for store in stores] == [True, False, False]
    ids = {store.put([draft(60, name=f"n{n}")])[0].id for n, store in enumerate(stores)}
    for store in stores:
        found = [store.find(f"n{n}") for n in range(3)]
        assert {job.id for job in found if job is not None} == ids


def test_the_store_is_measured_by_whoever_asks(opened: Open) -> None:
    first, second = opened(), opened()
    first.put([draft(60)])
    assert isinstance(second, Measured)
    assert second.figures().timers == first.figures().timers
    assert second.storage().path == first.storage().path


def test_who_closes_first_leaves_the_directory_to_another(opened: Open) -> None:
    first, second = opened(), opened()
    [ref] = first.put([draft(60)])
    first.close()
    assert second.get(ref.id) is not None
    assert second.is_holder
    with pytest.raises(EngineClosedError):
        first.get(ref.id)


def test_another_takes_over_though_it_is_not_asked(opened: Open) -> None:
    first, second = opened(), opened()
    told: SimpleQueue[RunState] = SimpleQueue()
    second.add_listener(lambda runs: told.put(runs[0].state))
    [ref] = first.put([draft(60)])
    run_id = first.runs(RunQuery(job_id=ref.id)).runs[0].id
    second.expect(run_id)
    first.cancel(ref.id)
    assert told.get(timeout=60) is RunState.CANCELLED
    first.close()
    # It looks again at what it waits for once it is on another side, unasked.
    assert told.get(timeout=60) is RunState.CANCELLED
    assert second.is_holder


def test_a_directory_that_is_held_without_a_door_is_in_use(
    tmp_path: Path,
) -> None:
    held = EmbeddedStore.open(tmp_path)
    clock = HurriedClock()
    with pytest.raises(StoreInUseError, match="does not answer"):
        SharedStore.open(tmp_path, clock=clock)
    held.close()
    SharedStore.open(tmp_path, clock=clock).close()


class HurriedClock(SystemClock):
    """A clock on which each wait takes a minute, and no time."""

    def __init__(self) -> None:
        super().__init__()
        self._gone_ns = 0

    def monotonic_ns(self) -> int:
        return super().monotonic_ns() + self._gone_ns

    def wait(self, condition: threading.Condition, until_ns: int | None) -> None:
        self._gone_ns += 60_000_000_000


# -- nodes of several processes -----------------------------------------------------------------


def test_each_run_is_given_to_one_node(opened: Open) -> None:
    nodes = [served(opened(), name) for name in "abc"]
    ids = {ref.id for ref in nodes[2].put([draft(0) for _ in range(30)])}
    given: list[JobId] = []
    while len(given) < 30:
        for name, node in zip("abc", nodes, strict=True):
            node.fire(100)
            claims, _ = node.claim(name, tasks=TASKS, count=3)
            given += [claim.run.job_id for claim in claims]
    assert sorted(given) == sorted(ids)


def test_a_node_elsewhere_is_told_when_there_is_something_to_do(opened: Open) -> None:
    first, second = opened(), served(opened(), "b")
    second.fire(100)
    told = threading.Event()

    def rest() -> None:
        with second.changed:
            while not second.claim("b", tasks=TASKS, count=1)[0]:
                second.wait()
                second.fire(100)
        told.set()

    thread = threading.Thread(target=rest)
    thread.start()
    first.put([draft(0.05)])
    assert told.wait(60)
    thread.join()


def test_a_request_to_end_reaches_the_node_that_has_the_attempt(opened: Open) -> None:
    first, second = served(opened(), "a"), served(opened(), "b")
    [ref] = first.put([draft(0)])
    claim = started(second, "b", ref.id)
    first.cancel(ref.id, running="signal")
    assert first.requests() == []
    [request] = second.requests()
    assert request.token == claim.token
    assert second.requests() == []


def test_what_a_node_had_is_another_s_when_its_process_ends(opened: Open) -> None:
    first, second = served(opened(), "a"), served(opened(), "b")
    [ref] = first.put([draft(0)])
    begun = started(second, "b", ref.id)
    second.close()
    again = started(first, "a", ref.id)
    assert again.token > begun.token
    assert [one.outcome for one in first.attempts(begun.run.id)] == [Outcome.LOST, None]


def test_what_a_node_had_claimed_and_not_begun_uses_up_no_attempt(opened: Open) -> None:
    first, second = served(opened(), "a"), served(opened(), "b")
    [ref] = first.put([draft(0, delivery=ONCE)])
    second.fire(100)
    assert second.claim("b", tasks=TASKS, count=1)[0]
    second.close()
    claim = started(first, "a", ref.id)
    assert claim.run.attempts == 1
    assert ended(first, claim) is Verdict.ACCEPTED


def test_two_living_processes_may_not_have_workers_of_one_name(opened: Open) -> None:
    first, second = served(opened(), "same"), opened()
    with pytest.raises(ArgumentError, match="another process"):
        second.join("same")
    first.leave("same")
    second.join("same")


# -- a change of holder -------------------------------------------------------------------------


@pytest.mark.parametrize("named", [{}, {"name": "n"}], ids=["plain", "named"])
def test_what_another_process_runs_goes_on_when_the_holder_goes(
    opened: Open, named: dict[str, str]
) -> None:
    first, second, third = (served(opened(), name) for name in "abc")
    [ref] = first.put([draft(0, delivery=ONCE, **named)])
    claim = started(third, "c", ref.id)
    first.close()
    assert state(second, claim) is RunState.RUNNING
    assert ended(third, claim) is Verdict.ACCEPTED
    assert {second.is_holder, third.is_holder} == {True, False}
    assert state(second, claim) is RunState.SUCCEEDED
    assert [one.outcome for one in third.attempts(claim.run.id)] == [Outcome.OK]


@pytest.mark.parametrize("named", [{}, {"name": "n"}], ids=["plain", "named"])
def test_what_the_new_holder_runs_itself_goes_on(
    opened: Open, named: dict[str, str]
) -> None:
    first, second = served(opened(), "a"), served(opened(), "b")
    [ref] = first.put([draft(0, delivery=ONCE, **named)])
    claim = started(second, "b", ref.id)
    first.close()
    assert ended(second, claim) is Verdict.ACCEPTED
    assert second.is_holder


def test_an_end_that_was_taken_in_as_the_holder_went_is_accepted_when_asked_again(
    opened: Open,
) -> None:
    first, second = served(opened(), "a"), served(opened(), "b")
    [ref] = first.put([draft(0)])
    claim = started(second, "b", ref.id)
    lose_answers(second, "finish")
    assert ended(second, claim) is Verdict.ACCEPTED
    assert state(second, claim) is RunState.SUCCEEDED


def lose_answers(store: SharedStore, call: str) -> None:
    """Have the next call of a kind be done, and its answer be lost with the line."""
    side = store._switch.side
    assert side is not None
    store._switch._side = cast("Side", _LossySide(side, call))


class _LossySide:
    def __init__(self, side: Side, call: str) -> None:
        self._side = side
        self._call = call

    def ask(self, call: str, /, *arguments: object) -> object:
        answer = self._side.ask(call, *arguments)
        if call == self._call:
            self._side.close()
            raise LineCutError(is_unknown=True)
        return answer

    def __getattr__(self, name: str) -> object:
        return getattr(self._side, name)


@pytest.mark.parametrize(
    "more", [{"key": "k"}, {"name": "n"}], ids=["with a key", "with a name"]
)
def test_a_put_that_can_be_told_is_asked_again(
    opened: Open, more: dict[str, str]
) -> None:
    _, second = opened(), opened()
    lose_answers(second, "put")
    [ref] = second.put([draft(60, **more)])
    assert [job.id for job in second.jobs(JOBS).jobs] == [ref.id]


def test_a_put_that_cannot_be_told_is_not_known_to_be_done(opened: Open) -> None:
    _, second = opened(), opened()
    lose_answers(second, "put")
    with pytest.raises(HolderLostError, match="`put`"):
        second.put([draft(60)])
    assert len(second.jobs(JOBS).jobs) == 1  # it was done, and not done twice


def test_a_queue_is_set_though_the_answer_was_lost(opened: Open) -> None:
    _, second = opened(), opened()
    lose_answers(second, "set_queue")
    second.set_queue(Queue(name="bulk", limit=3))
    assert second.queue("bulk").limit == 3


def test_a_fork_of_a_process_that_asks_is_refused(opened: Open) -> None:
    _, second = opened(), opened()
    [ref] = second.put([draft(60)])
    reader, writer = os.pipe()
    if (pid := os.fork()) == 0:
        try:
            second.get(ref.id)
        except EngineClosedError as error:
            os.write(writer, str(error).encode())
        finally:
            os._exit(0)
    os.close(writer)
    told = os.read(reader, 1_000).decode()
    os.close(reader)
    os.waitpid(pid, 0)
    assert "fork" in told
    assert second.get(ref.id) is not None  # the child has let the line be


def test_times_go_on_after_a_change_of_holder(opened: Open) -> None:
    first, second = served(opened(), "a"), served(opened(), "b")
    [ref] = first.put([draft(every(0.05), name="tick")])
    seen: list[RunId] = []
    for step in range(6):
        claim = started(second, "b", ref.id)
        assert ended(second, claim) is Verdict.ACCEPTED
        seen.append(claim.run.id)
        if step == 2:
            first.close()
    assert len(set(seen)) == 6
    runs: list[Run] = second.runs(RunQuery(job_id=ref.id)).runs
    assert {run.id for run in runs if run.state is RunState.SUCCEEDED} == set(seen)
