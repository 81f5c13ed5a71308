"""The command as a process: exit codes, Ctrl-C, and pipes that close early."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from timingwheel.scheduler.scheduler import Scheduler
from timingwheel.scheduler.tasks import NamedTask
from wal.filesystem import FileSystem
from wal.inspection import verify

ROOT = Path(__file__).resolve().parents[2]
JOBS = 3_000  # their JSON is longer than any pipe holds


@pytest.fixture
def data(tmp_path: Path) -> str:
    place = str(tmp_path / "data")
    app = Scheduler(place, durability="interval")
    for number in range(JOBS):
        app.schedule(NamedTask("mail:send").call(to=f"{number}@x"), "1h")
    app.stop()
    return place


def started(*words: str) -> subprocess.Popen[bytes]:
    # What a shell starts in the background ignores SIGINT, and so would its children.
    as_in_front = ["env", "--default-signal=INT"]
    return subprocess.Popen(
        [*as_in_front, sys.executable, "-m", "timingwheel", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


def is_closed(place: str) -> bool:
    return verify(FileSystem(place)).closed


def test_exit_codes_reach_the_shell(tmp_path: Path) -> None:
    def code(*words: str) -> int:
        process = started("--data", str(tmp_path / "data"), *words)
        process.communicate(timeout=60)
        return process.returncode

    assert code("job", "add", "t", "--delay", "1h", "--create") == 0
    assert code("job", "show", "nobody") == 1
    assert code("job", "shwo") == 2
    assert code("log", "verify") == 0


def test_ctrl_c_ends_cleanly_with_130_and_closes_the_store(data: str) -> None:
    process = started(
        "--data", data, "top", "--json", "--interval", "1h", "--count", "9"
    )
    assert process.stdout is not None
    assert json.loads(process.stdout.readline())["is_served"] is False
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (130, b"interrupted\n")
    assert is_closed(data)


def test_a_pipe_that_closes_early_ends_it_as_other_tools(data: str) -> None:
    process = started("--data", data, "job", "list", "--all", "--json")
    assert process.stdout is not None
    assert json.loads(process.stdout.readline())["task"] == "mail:send"
    process.stdout.close()
    assert process.wait(timeout=60) == -signal.SIGPIPE
    assert process.stderr is not None
    assert process.stderr.read() == b""
    process.stderr.close()
    assert is_closed(data)


def test_all_rows_arrive_in_a_pipe_that_stays_open(data: str) -> None:
    out, _ = started("--data", data, "job", "list", "--all", "--json").communicate(
        timeout=60
    )
    assert len({json.loads(line)["id"] for line in out.splitlines()}) == JOBS
