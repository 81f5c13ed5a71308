"""What a scheduler refuses at the call, naming the argument and the fix."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, cast

import pytest

from timingwheel.errors import ArgumentError, EngineClosedError
from timingwheel.jobs.model import RunState
from timingwheel.scheduler.asyncio_scheduler import AsyncScheduler
from timingwheel.scheduler.scheduler import Scheduler
from timingwheel.scheduler.tasks import Task
from timingwheel.testing import Sim


def nothing() -> None:
    """Do nothing."""


@pytest.fixture
def app() -> Iterator[Scheduler]:
    app = Scheduler(":memory:")
    app.task(nothing)
    yield app
    app.stop(0)


def call_of(app: Scheduler) -> Any:
    (task,) = app.tasks.tasks()
    return task.call()


def test_a_delay_of_none_is_named(app: Scheduler) -> None:
    with pytest.raises(ArgumentError, match="delay is None: pass seconds"):
        app.schedule(call_of(app), cast("Any", None))


def test_if_exists_without_a_name_is_refused(app: Scheduler) -> None:
    with pytest.raises(ArgumentError, match="if_exists is 'error': pass name="):
        app.add(call_of(app), delay=1, if_exists="error")


@pytest.mark.parametrize(
    "query", [{"tags": "bi"}, {"queue": 5}, {"task": 5}], ids=["tags", "queue", "task"]
)
def test_a_query_that_cannot_be_meant_is_named(
    app: Scheduler, query: dict[str, Any]
) -> None:
    (argument,) = query
    for ask in (app.jobs, app.runs):
        with pytest.raises(ArgumentError, match=f"{argument} is "):
            ask(**query)


def test_weekdays_are_a_list_and_not_a_text(app: Scheduler) -> None:
    with pytest.raises(ArgumentError, match="weekdays is 'SAT': pass a list"):
        app.calendar("c").set(weekdays="SAT")


@pytest.mark.parametrize("queue", ["", 5])
def test_the_queue_of_a_task_is_a_text(queue: Any) -> None:
    with pytest.raises(ArgumentError, match=r"queue is .*: pass a text"):
        Task(nothing, queue=queue)


@pytest.mark.parametrize("kind", [Scheduler, AsyncScheduler])
def test_the_tasks_of_a_scheduler_are_not_the_scheduler(kind: Any) -> None:
    with pytest.raises(ArgumentError, match=r"tasks is .*: pass .* app\.tasks"):
        kind(":memory:", tasks=Scheduler(":memory:"))


def test_skips_lists_what_did_not_run_and_why() -> None:
    sim = Sim(lambda app: app.task(nothing))
    ref = sim.app.add(call_of(sim.app), every="1m")
    sim.advance("10s")
    sim.crash()
    sim.advance("10m")
    sim.restart()
    sim.advance("10s")
    assert [(one.reason, one.count) for one in sim.app.skips(ref)] == [("misfire", 9)]
    assert sim.app.skips(ref, since=sim.now) == []


def test_a_job_that_waits_for_one_time_jobs_is_awaited_by_its_only_run() -> None:
    sim = Sim(lambda app: app.task(nothing))
    first = sim.app.add(call_of(sim.app), delay="1m")
    second = sim.app.add(call_of(sim.app), after=first)
    sim.advance("2m")
    assert sim.app.run(second).wait().state is RunState.SUCCEEDED


def test_a_listener_that_was_removed_is_not_called(app: Scheduler) -> None:
    heard: list[BaseException] = []
    app.add_failure_listener(heard.append)
    app.remove_failure_listener(heard.append)
    app.remove_failure_listener(heard.append)
    app._note_failure(RuntimeError("the disk"))
    assert heard == []


def test_a_forked_child_cannot_start_it_and_lets_go_of_it_by_stop(
    app: Scheduler,
) -> None:
    app.start()
    pid = os.fork()
    if pid == 0:
        try:
            with pytest.raises(EngineClosedError, match="fork"):
                app.start()
            app.stop()
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert app.jobs() == []
