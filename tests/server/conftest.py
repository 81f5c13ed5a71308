"""A real server on a free port of this machine, with the tasks of program.py."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from tests.scheduler import program
from timingwheel.scheduler.scheduler import Scheduler
from timingwheel.server.operations import API_PATH
from timingwheel.server.serving import HttpServer


@pytest.fixture
def server() -> Iterator[HttpServer]:
    program.log.clear()
    scheduler = Scheduler(":memory:", tasks=program.app.tasks)
    with HttpServer(scheduler, port=0) as made:
        yield made


@pytest.fixture
def http(server: HttpServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url + API_PATH, timeout=30) as client:
        yield client
