"""Waiting for ends: who subscribes first and looks afterwards misses none."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence

import pytest

from tests.scheduler import program
from timingwheel.errors import EngineClosedError
from timingwheel.jobs.model import JobId, Run, RunId, RunState
from timingwheel.scheduler.asyncio_scheduler import AsyncScheduler
from timingwheel.scheduler.scheduler import Scheduler
from timingwheel.scheduler.watching import RunWatch
from timingwheel.testing import ManualClock


class Runs:
    """As much of a store as a watch asks for."""

    def __init__(self) -> None:
        self.kept: dict[RunId, Run] = {}
        self.listener: Callable[[Sequence[Run]], None]

    def add_listener(self, listener: Callable[[Sequence[Run]], None]) -> None:
        self.listener = listener

    def run(self, run_id: RunId) -> Run | None:
        return self.kept.get(run_id)

    def end(self, at_ns: int) -> Run:
        run = a_run(at_ns, RunState.SUCCEEDED)
        self.kept[run.id] = run
        self.listener([run])
        return run


def a_run(at_ns: int, state: RunState) -> Run:
    return Run(job_id=JobId("j"), nominal_ns=at_ns, due_ns=at_ns, task="t", state=state)


@pytest.fixture
def runs() -> Runs:
    return Runs()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def watch(runs: Runs, clock: ManualClock) -> RunWatch:
    return RunWatch(runs, clock)  # type: ignore[arg-type]  # it asks for no more


def test_a_run_that_has_ended_is_returned_at_once(runs: Runs, watch: RunWatch) -> None:
    run = runs.end(5)
    assert watch.wait(run.id, 0) == run


def test_a_run_that_ends_later_wakes_all_who_wait_for_it_and_no_others(
    runs: Runs, watch: RunWatch, clock: ManualClock
) -> None:
    first, other = a_run(5, RunState.RUNNING), a_run(6, RunState.RUNNING)
    ended: list[Run] = []
    threads = [
        threading.Thread(target=lambda: ended.append(watch.wait(first.id, None)))
        for _ in range(3)
    ]
    waiting = threading.Thread(target=lambda: ended.append(watch.wait(other.id, None)))
    for thread in [*threads, waiting]:
        thread.start()
    clock.settle(30, threads=4)
    run = runs.end(5)
    for thread in threads:
        thread.join(30)
    assert ended == [run] * 3
    runs.end(6)
    waiting.join(30)
    assert len(ended) == 4
    assert watch._tells == {}


def test_an_end_between_the_look_and_the_wait_is_not_missed(
    runs: Runs, watch: RunWatch
) -> None:
    look = runs.run

    def ends_while_it_looks(run_id: RunId) -> Run | None:
        found = look(run_id)
        runs.end(5)
        return found

    runs.run = ends_while_it_looks  # type: ignore[method-assign]
    assert watch.wait(a_run(5, RunState.RUNNING).id, None).state is RunState.SUCCEEDED


def test_a_wait_ends_with_its_time(watch: RunWatch, clock: ManualClock) -> None:
    run = a_run(5, RunState.RUNNING)
    errors: list[BaseException] = []

    def wait() -> None:
        try:
            watch.wait(run.id, 10**9)
        except TimeoutError as error:
            errors.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    clock.settle(30, threads=1)
    clock.advance(0.999)
    clock.settle(30, threads=1)
    assert errors == []
    clock.advance(0.001)
    thread.join(30)
    assert len(errors) == 1
    assert watch._tells == {}


def test_closing_tells_those_who_wait_and_those_who_come_later(
    watch: RunWatch,
) -> None:
    told: list[object] = []
    why = EngineClosedError("stopped")
    with watch.subscribed(RunId("j@5"), told.append):
        watch.close(why)
        watch.close(EngineClosedError("again"))
    assert told == [why]
    with pytest.raises(EngineClosedError, match="stopped"):
        watch.wait(RunId("j@6"), None)


def test_who_waits_before_anybody_serves_is_told_so(
    clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    with Scheduler(":memory:", clock=clock, tasks=program.app.tasks) as served:
        waited = served.run(served.schedule(program.note.call("x"), 9))
        with pytest.raises(TimeoutError, match="not ended yet; it goes on"):
            waited.wait(0)
    assert "waited for" not in caplog.text

    idle = Scheduler(":memory:", clock=clock, tasks=program.app.tasks)
    handle = idle.run(idle.schedule(program.note.call("x"), 0))
    for _ in range(2):
        with pytest.raises(TimeoutError, match=r"no scheduler is started .* start\(\)"):
            handle.wait(0)
    idle.stop()
    words = f"run {handle.id} is waited for, but no scheduler is started"
    assert caplog.text.count("waited for") == caplog.text.count(words) == 1


def test_who_awaits_before_anybody_serves_is_told_so() -> None:
    async def wait() -> None:
        app = AsyncScheduler(":memory:", tasks=program.app.tasks)
        try:
            handle = await app.run(await app.schedule(program.note.call("x"), 0))
            with pytest.raises(TimeoutError, match="no scheduler is started"):
                await handle.wait(0)
        finally:
            await app.stop()

    asyncio.run(wait())
