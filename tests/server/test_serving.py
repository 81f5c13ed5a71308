"""The server as a process: how it ends, and what outlives it."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import httpx
import pytest

from tests.server.process import ROOT, served
from timingwheel.client.client import Client
from timingwheel.client.transport import ServerAwayError, UnansweredError
from timingwheel.errors import ArgumentError
from timingwheel.scheduler.scheduler import Scheduler
from timingwheel.scheduler.tasks import NamedTask
from timingwheel.server.serving import HttpServer

CALL = NamedTask("mail:send").call(to="a@x")
WRITERS = 4
ACKNOWLEDGED_BEFORE_KILL = 200


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_in_order(tmp_path: Path, number: signal.Signals) -> None:
    with served(tmp_path / "data") as (process, url):
        with Client(url) as app:
            ref = app.add(CALL, delay="1h")
        process.send_signal(number)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert "Traceback" not in errors
    with Scheduler(tmp_path / "data", create=False) as again:
        assert again.job(ref).task == "mail:send"


def test_a_program_is_named_and_its_tasks_run(tmp_path: Path) -> None:
    program = "tests.scheduler.program:app"
    note = NamedTask("tests.scheduler.program:note")
    with (
        served(tmp_path / "data", "--app", program) as (_, url),
        Client(url) as app,
    ):
        assert app.run(app.add(note.call(what="tea"), delay=0)).result("60s") == "TEA"


def test_every_acknowledged_job_is_there_after_a_kill_under_load(
    tmp_path: Path,
) -> None:
    acknowledged: list[str] = []
    enough = threading.Event()

    def write(url: str) -> None:
        with Client(url, patience=0) as app:
            while True:
                try:
                    acknowledged.append(app.schedule(CALL, "1h"))
                except (ServerAwayError, UnansweredError):
                    return
                if len(acknowledged) >= ACKNOWLEDGED_BEFORE_KILL:
                    enough.set()

    with served(tmp_path / "data") as (process, url):
        writers = [threading.Thread(target=write, args=(url,)) for _ in range(WRITERS)]
        for writer in writers:
            writer.start()
        assert enough.wait(60)
        process.kill()
        for writer in writers:
            writer.join(60)
            assert not writer.is_alive()
    kept: set[str] = set()
    with served(tmp_path / "data") as (_, url), Client(url) as app:
        cursor = None
        while True:
            page = app.jobs(limit=1_000, cursor=cursor)
            kept |= {job.id for job in page}
            cursor = page.cursor
            if cursor is None:
                break
    assert len(acknowledged) >= ACKNOWLEDGED_BEFORE_KILL
    assert set(acknowledged) - kept == set()
    # One request a writer may have been taken in and not answered any more.
    assert len(kept) <= len(acknowledged) + WRITERS


def test_a_directory_that_another_process_serves_is_refused(tmp_path: Path) -> None:
    with served(tmp_path / "data"):
        command = [sys.executable, "-m", "timingwheel.server", str(tmp_path / "data")]
        second = subprocess.run(
            [*command, "--port", "0"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert second.returncode == 1
    assert "Traceback" not in second.stderr
    assert "in use" in second.stderr


def test_a_token_is_made_by_the_command_and_then_demanded(tmp_path: Path) -> None:
    data = tmp_path / "data"
    command = [sys.executable, "-m", "timingwheel.server", str(data)]
    made = subprocess.run(
        [*command, "--add-token", "ci:read"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    with served(data) as (_, url):
        assert httpx.get(f"{url}/api/v1/jobs").status_code == 401
        with Client(url, token=made.stdout.strip()) as app:
            assert app.jobs() == []


def test_a_port_that_is_taken_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        server = HttpServer(Scheduler(":memory:"), port=port)
        with pytest.raises(ArgumentError, match="pass another, or 0"):
            server.start()


def test_it_serves_beside_a_program_and_stops_with_the_block() -> None:
    with HttpServer(Scheduler(":memory:"), port=0) as server:
        assert httpx.get(f"{server.url}/ready").status_code == 200
        server.stop()
        server.stop()
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{server.url}/ready")
