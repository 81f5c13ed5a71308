"""Stages for the tests of stores; one parameter for each store that must conform."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.stores.embedded_stage import EmbeddedStage
from tests.stores.postgres_stage import PostgresStage
from tests.stores.shared_stage import SharedStage
from tests.stores.stage import Stage

MakeStage = Callable[..., EmbeddedStage]


@pytest.fixture(params=["embedded", "shared", "postgres"])
def stage(request: pytest.FixtureRequest) -> Iterator[Stage]:
    """A store that serves, one worker joined."""
    made: EmbeddedStage | SharedStage | PostgresStage
    if request.param == "embedded":
        made = EmbeddedStage()
    elif request.param == "shared":
        made = SharedStage()
    else:
        made = PostgresStage(request.getfixturevalue("postgres"))
    yield made
    made.end_all()


@pytest.fixture(params=["in memory", "in a directory"])
def any_disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[EmbeddedStage]:
    """An embedded store on each kind of disk."""
    directory = tmp_path / "store" if request.param == "in a directory" else None
    made = EmbeddedStage(directory)
    yield made
    made.end_all()


@pytest.fixture
def make_stage() -> Iterator[MakeStage]:
    """Makes embedded stages and ends them."""
    with contextlib.ExitStack() as ends:

        def make(*args: Any, **options: Any) -> EmbeddedStage:
            made = EmbeddedStage(*args, **options)
            ends.callback(made.end_all)
            return made

        yield make
