"""A clock to turn and a disk to break, for every test of the engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.engine.stage import SMALL, CountingClock, Recorder
from timingwheel.engine.engine import TimerEngine
from wal.testing import MemoryFileSystem


@pytest.fixture
def clock() -> CountingClock:
    return CountingClock()


@pytest.fixture
def disk() -> MemoryFileSystem:
    return MemoryFileSystem()


@pytest.fixture
def fired() -> Recorder:
    return Recorder()


OpenEngine = Callable[..., TimerEngine]


@pytest.fixture
def open_engine(clock: CountingClock) -> Iterator[OpenEngine]:
    """Opens engines on small logs and the manual clock, and closes them in the end."""
    engines: list[TimerEngine] = []

    def open_one(place: Any, on_fire: Any, **options: Any) -> TimerEngine:
        defaults: dict[str, Any] = {"clock": clock, **SMALL}
        engine = TimerEngine(place, on_fire, **defaults | options)
        engines.append(engine)
        return engine

    yield open_one
    for engine in engines:
        engine.close(0)
