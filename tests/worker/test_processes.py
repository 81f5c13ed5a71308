"""What a kill of a worker or of the server may cost: an attempt, and never a run."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.engine.stage import PATIENCE_S
from tests.worker import program
from tests.worker.test_worker import until
from timingwheel.client.client import Client
from timingwheel.client.transport import ServerAwayError, UnansweredError
from timingwheel.jobs.model import Outcome, RunState
from timingwheel.scheduler.tasks import NamedTask
from timingwheel.server.serving import HttpServer
from timingwheel.worker import Worker

ROOT = Path(__file__).resolve().parents[2]
GREET = NamedTask("greet")
ENDED_BEFORE_KILL = 30
JOBS = 150


@contextmanager
def started(*words: str) -> Iterator[subprocess.Popen[str]]:
    """`timingwheel` and the words as a process, once it has said a line; then killed."""
    process = subprocess.Popen(
        [sys.executable, "-m", "timingwheel", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline()
        yield process
    finally:
        process.kill()
        process.communicate()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
        return port


def test_a_worker_that_is_killed_is_noticed_and_its_run_goes_elsewhere(
    app: Client, server: HttpServer
) -> None:
    words = ("worker", "--url", server.url, "--app", "tests.worker.program:app")
    run = app.run(app.add(NamedTask("asked").call(name="on"), delay=0, retry=1))
    program.door("on")  # for the second one, which is in this process
    with started(*words, "--ttl", "1s", "--name", "first") as first:
        until(lambda: run.get().state is RunState.RUNNING)
        first.send_signal(signal.SIGKILL)
    state = until(lambda: run.get().state is not RunState.RUNNING and run.get().state)
    assert state is RunState.READY, run.get().error
    (attempt,) = run.attempts()
    assert (attempt.worker.partition(":")[0], attempt.outcome) == (
        "first",
        Outcome.LOST,
    )
    with Worker(server.url, program.app.tasks, name="second", ttl="1s"):
        program.doors["on"].await_somebody()
        app.cancel(run.get().job_id, running="signal")
        assert run.wait("30s").attempts == 2
    assert run.attempts()[1].worker.startswith("second:")


def test_nothing_is_lost_when_the_server_is_killed_under_load(tmp_path: Path) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    serve = ("serve", str(tmp_path / "data"), "--port", str(port))
    acknowledged: list[str] = []
    far = Client(url, patience=0, tasks=program.app.tasks)

    def write() -> None:
        """Add jobs, each until it is acknowledged, over the kill and the restart."""
        tick = threading.Event()
        for number in range(JOBS):
            for _ in range(round(PATIENCE_S / 0.01)):
                try:
                    call = program.greet.call(str(number))
                    ref = far.add(call, delay=0, key=f"k{number}", max_lost=99)
                except (ServerAwayError, UnansweredError):
                    tick.wait(0.01)
                else:
                    acknowledged.append(ref.id)
                    break

    def succeeded() -> int:
        return len(far.runs(state="succeeded", limit=1_000))

    with far, Worker(url, program.app.tasks, slots=4, ttl="15s"):
        writer = threading.Thread(target=write)
        with started(*serve) as first:
            writer.start()
            until(lambda: succeeded() >= ENDED_BEFORE_KILL)
            first.send_signal(signal.SIGKILL)
            first.wait(60)
        with started(*serve):
            writer.join(PATIENCE_S)
            assert not writer.is_alive()
            assert len(set(acknowledged)) == JOBS
            until(lambda: succeeded() == JOBS)
            for number, job_id in enumerate(acknowledged):
                assert far.run(job_id).result("30s") == f"hello {number}"
