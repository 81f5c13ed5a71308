"""A server that only dispatches, and a client of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.worker import program
from timingwheel.client.client import Client
from timingwheel.scheduler.scheduler import Scheduler
from timingwheel.server.serving import HttpServer


@pytest.fixture
def server() -> Iterator[HttpServer]:
    program.doors.clear()
    program.asked_by.clear()
    with HttpServer(Scheduler(":memory:"), port=0) as made:
        yield made


@pytest.fixture
def app(server: HttpServer) -> Iterator[Client]:
    with Client(server.url, tasks=program.app.tasks) as client:
        yield client
