"""Real processes: Ctrl-C, SIGTERM, kill -9, and two that want one directory."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.scheduler import serving_program
from timingwheel.jobs.model import Outcome, RunState
from timingwheel.scheduler.scheduler import Scheduler
from wal.errors import StoreInUseError

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 60
CANCEL_AND_DIE = """
import os, signal, sys
from tests.scheduler import serving_program as program
app = program.Scheduler(sys.argv[1], tasks=program.app.tasks)
job = app.schedule(program.mark.call("cancelled"), 0)
kept = app.schedule(program.mark.call("kept"), 0)
assert app.cancel(job)
os.kill(os.getpid(), signal.SIGKILL)
"""
Serve = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Starts a process that serves `tmp_path / "data"`; returns once it says so.

    With "overdue" what it finds may be the first to say something.
    """
    processes: list[subprocess.Popen[str]] = []

    def start(*words: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tests.scheduler.serving_program",
                str(tmp_path / "data"),
                *words,
            ],
            cwd=ROOT,
            env={**os.environ, "JOURNAL": str(tmp_path / "journal")},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        processes.append(process)
        if "overdue" not in words:
            assert said(process) == "serving"
        return process

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def said(process: subprocess.Popen[str]) -> str:
    """Return the next line that a process prints."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


def opened(tmp_path: Path) -> Scheduler:
    return Scheduler(tmp_path / "data", tasks=serving_program.app.tasks)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_run_forever_ends_cleanly_with_a_signal(
    serve: Serve, tmp_path: Path, number: signal.Signals
) -> None:
    process = serve()
    process.send_signal(number)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, out.strip(), err) == (0, "stopped", "")
    app = opened(tmp_path)
    assert [job.name for job in app.jobs(state="active")] == ["nightly"]
    app.stop()


def test_ctrl_c_ends_also_while_a_handler_hangs(serve: Serve, tmp_path: Path) -> None:
    """Case 24: what hangs is given up as `shutdown`, and its run is ready again."""
    process = serve("hang")
    assert said(process) == "hanging"
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, out.strip()) == (0, "stopped")
    app = opened(tmp_path)
    (run,) = app.runs(task="hang")
    assert run.state is RunState.READY
    attempts = app.run(run).attempts()
    assert [attempt.outcome for attempt in attempts] == [Outcome.SHUTDOWN]
    app.stop()


def test_a_second_process_is_told_who_holds_the_directory(
    serve: Serve, tmp_path: Path
) -> None:
    """Case 1."""
    process = serve()
    app = opened(tmp_path)
    with pytest.raises(StoreInUseError, match=str(process.pid)):
        app.start()
    with pytest.raises(StoreInUseError):
        app.add(serving_program.mark.call("x"), delay=0)


def test_a_killed_process_loses_an_attempt_and_the_next_one_starts_another(
    serve: Serve, tmp_path: Path
) -> None:
    """Case 4."""
    process = serve("hang")
    assert said(process) == "hanging"
    process.kill()
    process.wait(PATIENCE_S)
    again = serve("hang", "overdue")
    assert {said(again), said(again)} == {"hanging", "serving"}
    again.kill()
    again.wait(PATIENCE_S)
    app = opened(tmp_path)
    (run,) = app.runs(task="hang")
    first, second = app.run(run).attempts()
    assert (first.number, first.outcome) == (1, Outcome.LOST)
    assert second.number == 2
    assert second.token > first.token
    assert first.worker != second.worker
    app.stop()


def test_a_job_that_was_cancelled_never_runs_also_after_kill_9(
    serve: Serve, tmp_path: Path
) -> None:
    """Case 21: the cancel was durable when it returned."""
    child = subprocess.run(
        [sys.executable, "-c", CANCEL_AND_DIE, str(tmp_path / "data")],
        cwd=ROOT,
        check=False,
    )
    assert child.returncode == -signal.SIGKILL
    process = serve("overdue")
    assert {said(process), said(process)} == {"ran kept", "serving"}
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=PATIENCE_S)
    app = opened(tmp_path)
    states = {run.state.value for run in app.runs(task="mark")}
    app.stop()
    journal = (tmp_path / "journal").read_text()
    assert "cancelled" not in journal
    assert journal == "ran kept\n"
    assert states == {"cancelled", "succeeded"}


ONE_OF_FOUR = """
import sys
from tests.scheduler import serving_program as program
from wal.errors import StoreInUseError
app = program.Scheduler(sys.argv[1], tasks=program.app.tasks)
try:
    app.start()
except StoreInUseError as error:
    program.say(f"in use: {error}")
    sys.exit(3)
program.say("serving")
app.add(program.mark.call("tick"), every="0.2s", max_runs=5, name="tick")
sys.stdin.readline()
app.stop()
"""


def test_case_1_of_four_processes_one_serves_and_the_others_are_told(
    tmp_path: Path,
) -> None:
    data, journal = tmp_path / "data", tmp_path / "journal"
    processes: list[subprocess.Popen[str]] = []

    def start() -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", ONE_OF_FOUR, str(data)],
            cwd=ROOT,
            env={**os.environ, "JOURNAL": str(journal)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        processes.append(process)
        return process

    try:
        first = start()
        assert said(first) == "serving"
        for other in [start(), start(), start()]:
            assert f"process {first.pid}" in said(other)
            assert other.wait(PATIENCE_S) == 3
        assert [said(first) for _ in range(5)] == ["ran tick"] * 5
        first.communicate("\n", timeout=PATIENCE_S)
    finally:
        for process in processes:
            process.kill()
            process.communicate()  # closes its pipes, too
    assert journal.read_text().splitlines() == ["ran tick"] * 5
    with Scheduler(data, tasks=serving_program.app.tasks) as app:
        states = [run.state for run in app.runs(task="mark")]
    assert states == [RunState.SUCCEEDED] * 5
