"""The API against its own document: schemathesis sends what fits it and what does not.

It judges the answers: no fault of the server, no answer that the document does not have,
nothing taken that the document refuses, no method that is not there; and by fuzz_hooks.py
that a refusal names what is meant. Jobs, runs and workers are there to be asked for.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.conftest import SEED_VARIABLE
from tests.scheduler import program
from timingwheel.client.client import Client
from timingwheel.manual_clock import ManualClock
from timingwheel.scheduler.context import TASK_LOGGER
from timingwheel.scheduler.scheduler import Scheduler
from timingwheel.server.operations import API_PATH
from timingwheel.server.serving import HttpServer
from timingwheel.server.tokens import TokenBook, TokenFile
from wal.testing.memory import MemoryFileSystem

ROOT = Path(__file__).resolve().parents[2]
JOBS = 60
DEAD = 20
WORKERS = 8
WORDS = [
    "30 2 * * *",
    "H H * * *",
    "@daily",
    "FREQ=DAILY;COUNT=3",
    "Europe/Berlin",
    "10m",
    "1s..10m",
    "2030-01-01",
    "2030-01-01T00:00:00Z",
    "skip",
    "latest",
    "since(2h)",
    "buffer(3)",
    "failed",
    "team:bi",
    "bulk",
    "holidays",
    "mail:send",
    program.note.name,
]
CONFIG = """\
hooks = "tests.server.fuzz_hooks"
continue-on-failure = true
request-timeout = 20
[cache]
enabled = false
[generation]
database = "none"
dictionaries = { string = { dictionary = "words", probability = 0.3 } }
# Beyond what JSON Schema can say, an invalid value is 422.
[checks.positive_data_acceptance]
expected-statuses = ["2xx", 404, 409, 412, 413, 422]
[checks.negative_data_rejection]
expected-statuses = [400, 401, 404, 405, 409, 412, 413, 415, 422]
"""


def stocked(url: str, token: str | None = None) -> dict[str, list[str]]:
    """Make some of everything, and return how it is asked for."""
    with Client(url, token=token) as app:
        call = program.note.call("tea")
        jobs = [app.add(call, cron="30 2 * * *").id for _ in range(JOBS)]
        app.pause(app.add(call, every="1h", name="paused"))
        once = [app.add(call, delay="1h").id for _ in range(JOBS // 4)]
        program.log.errors[:] = [ValueError("no") for _ in range(DEAD)]
        dead = [app.add(program.fail_once.call(), delay=0) for _ in range(DEAD)]
        failed = [app.run(ref).wait("60s").id for ref in dead]
        done = app.trigger(jobs[0]).wait("60s").id
        app.calendar("holidays").set(weekdays=["SAT"])
        app.queue("bulk").set(limit=2)
    headers = {} if token is None else {"authorization": f"Bearer {token}"}
    with httpx.Client(base_url=url + API_PATH, headers=headers) as http:
        body = {"name": "far", "ttl": "1h"}
        workers = [
            http.post("/workers", json=body).json()["id"] for _ in range(WORKERS)
        ]
    return {
        "job": [*jobs, *once, "paused"],
        "run": [*failed, *once, done],
        "worker": workers,
        "queue": ["bulk", "default"],
        "calendar": ["holidays"],
        "words": WORDS,
    }


@contextmanager
def fuzzed_server(book: TokenBook | None = None) -> Iterator[HttpServer]:
    program.log.clear()
    scheduler = Scheduler(":memory:", tasks=program.app.tasks)
    with HttpServer(scheduler, port=0, tokens=book) as server:
        yield server


def fuzz(
    url: str, folder: Path, known: dict[str, list[str]], *more: str
) -> subprocess.CompletedProcess[str]:
    config = CONFIG + "[parameters]\n"
    for name in known.keys() - {"words"}:
        config += f'"path.{name}" = {{ dictionary = "{name}", probability = 0.7 }}\n'
    for name, values in known.items():
        config += f"[dictionaries.{name}]\nvalues = {json.dumps(values)}\n"
    path = folder / "schemathesis.toml"
    path.write_text(config)
    program_path = str(Path(sys.executable).parent / "st")
    command = [program_path, "--config-file", str(path), "run", f"{url}/openapi.json"]
    return subprocess.run(
        [*command, "--no-color", "--warnings", "off", *more],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )


def seed() -> str:
    return os.environ[SEED_VARIABLE]


def faults(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """Return what was logged as an error, but for handlers that fail as they should."""
    return [
        one
        for one in caplog.records
        if one.levelno >= logging.ERROR and not one.name.startswith(TASK_LOGGER.name)
    ]


def test_no_request_finds_a_fault_or_an_answer_that_the_document_has_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with fuzzed_server() as server:
        phases = ("--phases", "examples,coverage,fuzzing")
        known = stocked(server.url)
        done = fuzz(server.url, tmp_path, known, *phases, "-n", "10", "--seed", seed())
        assert httpx.get(f"{server.url}/ready").status_code == 200
        findings = httpx.get(f"{server.url}{API_PATH}/check").json()["items"]
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout
    # Jobs of tasks that nobody has were asked for, and runs that fail.
    kinds = {one["kind"] for one in findings}
    assert kinds <= {"unknown_task", "dead_letter"}, findings
    assert faults(caplog) == []


def test_with_tokens_nothing_is_done_without_one(tmp_path: Path) -> None:
    book = TokenBook(TokenFile(MemoryFileSystem()), ManualClock())
    secret = book.add("fuzzer", "admin")
    with fuzzed_server(book) as server:
        url = server.url
        folder = tmp_path / "document"
        folder.mkdir()
        show = {"authorization": f"Bearer {secret}"}
        document = httpx.get(f"{url}/openapi.json", headers=show).json()
        assert document["security"] == [{"token": []}]
        done = fuzz(
            url,
            tmp_path,
            stocked(url, secret),
            *("--phases", "fuzzing", "-n", "2", "--seed", seed()),
            *("--header", f"Authorization: Bearer {secret}"),
            *(
                "--checks",
                "ignored_auth,not_a_server_error,a_refusal_names_what_is_meant",
            ),
        )
    assert done.returncode == 0, done.stdout


@pytest.mark.long
@pytest.mark.timeout(1_800)
def test_no_request_finds_a_fault_in_ten_minutes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with fuzzed_server() as server:
        known = stocked(server.url)
        more = ("-n", "100", "--max-time", "600", "--seed", seed())
        done = fuzz(server.url, tmp_path, known, *more)
        assert httpx.get(f"{server.url}/ready").status_code == 200
    assert done.returncode == 0, done.stdout
    assert faults(caplog) == []
