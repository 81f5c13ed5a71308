"""The crew: which executor runs which task, each made when the first task needs it.

A process pool or a loop's thread costs something, so an executor begins its life with the
first task that is to run on it. Tasks may be declared while the scheduler runs.

    inline      in the node's own thread, one at a time: tests and simulations
    thread      the default for a plain function
    asyncio     the default for an `async def`
    process     single processes, which can be killed
    subprocess  commands
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Mapping
from typing import Final

from timingwheel.errors import ArgumentError
from timingwheel.scheduler.executors.executor import Executor, Host, Work
from timingwheel.scheduler.tasks import Task, TaskRegistry

SLOTS_MAX: Final = 1_024
_logger = logging.getLogger("timingwheel")

MakeExecutor = Callable[[], Executor]
Team = tuple[Executor, frozenset[str]]
"""An executor and the names of the tasks that it runs."""


def default_slots() -> int:
    """Return how many handlers run at once unless told otherwise."""
    return min(32, (os.cpu_count() or 1) + 4)


def checked_slots(slots: int | None, *, least: int = 1) -> int:
    """Return a number of slots.

    Args:
        slots: what was given; None: as many as is usual.
        least: how many there must be; 0 is a node that plans and runs nothing.

    Raises:
        ArgumentError: it is no number from `least` to SLOTS_MAX.
    """
    if slots is None:
        return default_slots()
    if type(slots) is not int or not least <= slots <= SLOTS_MAX:
        raise ArgumentError(
            "slots",
            slots,
            f"pass how many handlers may run at once, {least} to {SLOTS_MAX:,}",
        )
    return slots


def runnable(tasks: TaskRegistry, slots: int) -> TaskRegistry:
    """Return what a program runs of what it knows; who can run nothing claims nothing."""
    return tasks if slots else TaskRegistry()


class Crew:
    """The executors of one node and the tasks that each of them runs.

    Args:
        tasks: what this program can run.
        makers: how to make an executor, by its name.
        default: the executor of tasks that name none.
    """

    def __init__(
        self, tasks: TaskRegistry, makers: Mapping[str, MakeExecutor], default: str
    ) -> None:
        self._tasks = tasks
        self._makers = makers
        self._default = default
        self._executors: dict[str, Executor] = {}
        self._teams: list[Team] = []
        self._known: frozenset[str] = frozenset()

    def task(self, name: str) -> Task:
        """Return the task of a name that `teams` has listed."""
        return self._tasks.require(name)

    def executor_name(self, task: Task) -> str:
        """Return the name of the executor that runs a task."""
        if task.executor is not None:
            return task.executor
        if task.is_async and self._default == "thread":
            return "asyncio"
        return self._default

    def teams(self, host: Host) -> list[Team]:
        """Return each executor with its tasks; those newly needed are started.

        Args:
            host: what executors report to.
        """
        known = self._tasks.names
        if known != self._known:
            grouped: dict[str, set[str]] = {}
            for name in known:
                executor_name = self.executor_name(self._tasks.require(name))
                grouped.setdefault(executor_name, set()).add(name)
            self._teams = [
                (self._started(executor_name, host), frozenset(names))
                for executor_name, names in sorted(grouped.items())
                if self._is_known(executor_name, names)
            ]
            self._known = known
        return self._teams

    def stop(self, grace_s: float) -> list[Work]:
        """Stop all executors at once, each within the grace.

        Returns:
            Work that was never begun.
        """
        unbegun: list[Work] = []

        def stop_one(name: str, executor: Executor) -> None:
            try:
                unbegun.extend(executor.stop(grace_s))
            except Exception:
                _logger.exception("the %s executor did not stop well", name)

        *others, last = self._executors.items() or [("", None)]
        threads = [
            threading.Thread(
                target=stop_one, args=item, name=f"timingwheel-stop-{item[0]}"
            )
            for item in others
        ]
        for thread in threads:
            thread.start()
        if last[1] is not None:
            stop_one(*last)
        for thread in threads:
            thread.join()
        return unbegun

    def _is_known(self, name: str, tasks: set[str]) -> bool:
        if name in self._makers:
            return True
        _logger.error(
            "there is no executor %r here: runs of %s wait for a program that has it",
            name,
            ", ".join(sorted(tasks)),
        )
        return False

    def _started(self, name: str, host: Host) -> Executor:
        executor = self._executors.get(name)
        if executor is None:
            executor = self._makers[name]()
            executor.start(host)
            self._executors[name] = executor
        return executor
