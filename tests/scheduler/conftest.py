"""What the scheduler's tests share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.scheduler import program
from timingwheel.scheduler.simulation import Sim


@pytest.fixture(autouse=True)
def _fresh_log() -> None:
    program.log.clear()


@pytest.fixture
def sim() -> Iterator[Sim]:
    """A simulation of the program, without jobs."""
    with Sim(tasks=program.app) as simulation:
        yield simulation
