"""One executor of each kind, and a door to hold up its handlers."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

from tests.scheduler.executors.stage import PATIENCE_S, Door, RecordingHost
from timingwheel.scheduler.executors.commands import SubprocessExecutor
from timingwheel.scheduler.executors.event_loop import AsyncioExecutor
from timingwheel.scheduler.executors.executor import Executor, Work
from timingwheel.scheduler.executors.inline import InlineExecutor
from timingwheel.scheduler.executors.process import ProcessExecutor
from timingwheel.scheduler.executors.thread import ThreadExecutor

KINDS: dict[str, Callable[[int], Executor]] = {
    "inline": lambda slots: InlineExecutor(),
    "thread": ThreadExecutor,
    "asyncio": AsyncioExecutor,
    "process": ProcessExecutor,
    "subprocess": SubprocessExecutor,
}


@dataclass
class Stage:
    """An executor that has been started, and the host it reports to."""

    kind: str
    executor: Executor
    host: RecordingHost
    _submitters: list[threading.Thread] = field(default_factory=list)

    def submit(self, *works: Work) -> None:
        """Submit without waiting: `inline` gets a thread to run them in."""
        if self.kind != "inline":
            self.executor.submit(works)
            return
        thread = threading.Thread(target=self.executor.submit, args=(works,))
        self._submitters.append(thread)
        thread.start()

    def close(self) -> None:
        self.executor.stop(0)
        for thread in self._submitters:
            thread.join(PATIENCE_S)
            assert not thread.is_alive()


MakeStage = Callable[..., Stage]


@pytest.fixture
def make_stage(door: Door) -> Iterator[MakeStage]:
    stages: list[Stage] = []

    def make_one(kind: str, slots: int = 2, host: RecordingHost | None = None) -> Stage:
        host = host or RecordingHost()
        executor = KINDS[kind](slots)
        executor.start(host)
        stages.append(Stage(kind, executor, host))
        return stages[-1]

    yield make_one
    door.open()
    for stage in stages:
        stage.close()


@pytest.fixture
def door() -> Iterator[Door]:
    # pytest's own directories have names that are too long for a socket.
    with tempfile.TemporaryDirectory(prefix="tw") as directory:
        door = Door(directory)
        yield door
        door.close()
