"""Which executor runs which task."""

from __future__ import annotations

import functools
import threading
from collections.abc import Sequence

import pytest

from tests.scheduler import program
from tests.scheduler.node_stage import HandExecutor
from timingwheel.errors import ArgumentError
from timingwheel.scheduler.crew import (
    Crew,
    MakeExecutor,
    checked_slots,
    default_slots,
)
from timingwheel.scheduler.executors.executor import Host, Work
from timingwheel.scheduler.scheduler import Scheduler
from timingwheel.scheduler.tasks import TaskRegistry


class Stopping(HandExecutor):
    """Stops only when the other one is being stopped too."""

    def __init__(self, barrier: threading.Barrier) -> None:
        super().__init__()
        self.barrier = barrier

    def stop(self, grace_s: float) -> list[Work]:
        self.barrier.wait(30)
        return []


class Broken(HandExecutor):
    """Cannot even be stopped."""

    def stop(self, grace_s: float) -> list[Work]:
        raise OSError("no")


def tasks_of(app: Scheduler) -> TaskRegistry:
    app.task(program.note.function)
    app.task(program.note_soon.function)
    return app.tasks


def names(teams: Sequence[tuple[object, frozenset[str]]]) -> list[set[str]]:
    return [{name.rpartition(":")[2] for name in tasks} for _, tasks in teams]


HOST: Host = object()  # type: ignore[assignment]  # hand-moved executors ask it nothing


class Makers:
    """Makes hand-moved executors, and notes which."""

    def __init__(self, *names: str) -> None:
        self.made: list[str] = []
        self.by_name: dict[str, MakeExecutor] = {
            name: functools.partial(self._make, name) for name in names
        }

    def _make(self, name: str) -> HandExecutor:
        self.made.append(name)
        return HandExecutor()


def test_plain_functions_run_on_threads_and_coroutines_on_a_loop() -> None:
    makers = Makers("thread", "asyncio", "process")
    crew = Crew(tasks_of(Scheduler("never")), makers.by_name, "thread")
    assert makers.made == []
    assert names(crew.teams(HOST)) == [{"note_soon"}, {"note"}]
    assert makers.made == ["asyncio", "thread"]  # no processes, which nobody needs
    assert crew.teams(HOST) is crew.teams(HOST)
    assert len(makers.made) == 2


def test_an_executor_is_made_when_the_first_task_needs_it() -> None:
    app = Scheduler("never")
    app.task(program.note.function)
    makers = Makers("thread", "process")
    crew = Crew(app.tasks, makers.by_name, "thread")
    crew.teams(HOST)
    assert makers.made == ["thread"]
    app.task(executor="process")(program.fail.function)
    assert names(crew.teams(HOST)) == [{"fail"}, {"note"}]
    assert makers.made == ["thread", "process"]


def test_executors_are_stopped_side_by_side_each_with_the_whole_grace() -> None:
    barrier = threading.Barrier(2)
    crew = Crew(
        tasks_of(Scheduler("never")),
        {"thread": lambda: Stopping(barrier), "asyncio": lambda: Stopping(barrier)},
        "thread",
    )
    crew.teams(HOST)
    assert crew.stop(1) == []  # one after the other, the barrier would break


def test_one_that_cannot_be_stopped_keeps_no_other_from_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    crew = Crew(
        tasks_of(Scheduler("never")),
        {"thread": HandExecutor, "asyncio": Broken},
        "thread",
    )
    crew.teams(HOST)
    assert crew.stop(1) == []
    assert "asyncio executor did not stop" in caplog.text


def test_a_task_of_an_executor_that_is_not_here_waits_and_the_others_run(
    caplog: pytest.LogCaptureFixture,
) -> None:
    makers = Makers("thread")
    crew = Crew(tasks_of(Scheduler("never")), makers.by_name, "thread")
    assert names(crew.teams(HOST)) == [{"note"}]
    assert "no executor 'asyncio'" in caplog.text
    assert "note_soon" in caplog.text


def test_a_crew_that_never_worked_stops_at_once() -> None:
    assert Crew(TaskRegistry(), {}, "thread").stop(1) == []


def test_slots_have_a_default_and_bounds() -> None:
    assert checked_slots(None) == default_slots() <= 32
    assert checked_slots(1_024) == 1_024
    assert checked_slots(0, least=0) == 0
    for slots in (0, 1_025, True, 2.0):
        with pytest.raises(ArgumentError, match="slots"):
            checked_slots(slots)  # type: ignore[arg-type]
