"""A browser without a window: it keeps cookies, and sends forms as they stand in a page."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.scheduler import program
from tests.server.dashboard.visitor import Visitor
from timingwheel.scheduler.scheduler import Scheduler
from timingwheel.server.serving import HttpServer


@pytest.fixture
def app() -> Scheduler:
    program.log.clear()
    return Scheduler(":memory:", tasks=program.app.tasks)


@pytest.fixture
def server(app: Scheduler) -> Iterator[HttpServer]:
    with HttpServer(app, port=0) as made:
        yield made


@pytest.fixture
def visitor(server: HttpServer) -> Iterator[Visitor]:
    with Visitor(server.url) as made:
        yield made
