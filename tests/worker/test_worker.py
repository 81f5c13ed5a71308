"""A worker and a server in one process, over real sockets."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from tests.engine.stage import PATIENCE_S
from tests.worker import program
from timingwheel.client.client import Client
from timingwheel.clock import SystemClock
from timingwheel.errors import ArgumentError
from timingwheel.jobs.model import Outcome, RunState
from timingwheel.jobs.store import CancelResult
from timingwheel.scheduler.scheduler import Scheduler
from timingwheel.scheduler.tasks import NamedTask, TaskRegistry
from timingwheel.server.operations import API_PATH
from timingwheel.server.serving import HttpServer
from timingwheel.server.tokens import TokenBook, TokenFile
from timingwheel.wire.problems import AccessError
from timingwheel.worker import Worker
from wal.testing.memory import MemoryFileSystem

TASKS = program.app.tasks


def until(is_so: Callable[[], Any]) -> Any:
    """What `is_so` returns once that is something; asked again and again."""
    tick = threading.Event()
    for _ in range(round(PATIENCE_S / 0.01)):
        found = is_so()
        if found:
            return found
        tick.wait(0.01)
    raise AssertionError("it has not come about")


@pytest.mark.parametrize(
    ("task", "greeting"),
    [
        (program.greet, "hello"),
        (program.greet_soon, "soon"),
        (program.greet_elsewhere, "elsewhere"),
    ],
)
def test_every_kind_of_task_runs_as_at_home(
    app: Client, server: HttpServer, task: Any, greeting: str
) -> None:
    with Worker(server.url, TASKS, slots=2, name="far"):
        run = app.run(app.add(task.call("ada"), delay=0))
        assert run.result("60s") == f"{greeting} ada"
        assert [one.worker.startswith("far:") for one in run.attempts()] == [True]


def test_a_due_run_waits_while_there_is_no_worker(
    app: Client, server: HttpServer
) -> None:
    run = app.run(app.add(program.greet.call("ada"), delay=0))
    until(lambda: run.get().state is RunState.READY)
    with Worker(server.url, TASKS):
        assert run.result("30s") == "hello ada"


def test_what_a_handler_logs_is_kept_with_the_attempt(
    app: Client, server: HttpServer
) -> None:
    with Worker(server.url, TASKS):
        run = app.run(app.add(program.greet.call("ada"), delay=0))
        run.wait("30s")
    (attempt,) = run.attempts()
    assert attempt.log.endswith("INFO to ada")


def test_an_error_comes_with_its_traceback(app: Client, server: HttpServer) -> None:
    with Worker(server.url, TASKS):
        run = app.run(app.add(program.fail.call("no ink"), delay=0)).wait("30s")
    assert run.state is RunState.FAILED
    assert run.error is not None
    assert "in fail" in run.error
    assert run.error.endswith("ValueError: no ink")


def test_a_snooze_uses_up_no_attempt(app: Client, server: HttpServer) -> None:
    with Worker(server.url, TASKS):
        ref = app.add(program.snooze_once.call(), delay=0, retry=1)
        assert app.run(ref).result("30s") == 2


def test_what_a_handler_adds_is_there_with_its_success(
    app: Client, server: HttpServer
) -> None:
    with Worker(server.url, TASKS):
        app.run(app.add(program.add_more.call(3), delay=0)).wait("30s")
        jobs = app.jobs(tags={"by": "add_more"})
        assert sorted(str(job.key) for job in jobs) == ["more-0", "more-1", "more-2"]
        assert all(app.run(job.id).result("30s") == "hello x" for job in jobs)


def test_an_end_that_no_request_can_hold_is_told_as_an_error(
    app: Client, server: HttpServer
) -> None:
    with Worker(server.url, TASKS):
        call = program.add_more.call(300, size=10_000)
        run = app.run(app.add(call, delay=0, retry=1)).wait("30s")
        assert run.state is RunState.FAILED
        assert "a body holds at most" in str(run.error)
        assert not app.jobs(tags={"by": "add_more"})
        # The next end is told as if nothing had been.
        ref = app.add(program.greet.call("ada"), delay=0)
        assert app.run(ref).result("30s") == "hello ada"


def test_an_attempt_that_takes_too_long_is_asked_to_end(
    app: Client, server: HttpServer
) -> None:
    with Worker(server.url, TASKS):
        run = app.run(app.add(program.slow.call(), delay=0))
        assert run.wait("30s").state is RunState.FAILED
    assert [one.outcome for one in run.attempts()] == [Outcome.TIMEOUT]


def test_a_cancel_reaches_the_handler(app: Client, server: HttpServer) -> None:
    door = program.door("on")
    with Worker(server.url, TASKS, ttl="1s"):
        ref = app.add(program.asked.call("on"), delay=0)
        door.await_somebody()
        assert app.cancel(ref, running="signal") is CancelResult.REQUESTED
        assert app.run(ref).wait("30s").state is RunState.CANCELLED
    assert program.asked_by == ["Cancelled"]


def test_it_starts_no_more_than_it_has_slots(app: Client, server: HttpServer) -> None:
    doors = [program.door(name) for name in "abc"]
    with Worker(server.url, TASKS, slots=2):
        runs = [app.run(app.add(program.held.call(x), delay=0)) for x in "abc"]
        doors[0].await_somebody()
        doors[1].await_somebody()
        until(lambda: runs[2].get().state is RunState.READY)
        doors[0].open()
        doors[2].await_somebody()
        for door in doors:
            door.open()
        assert [run.result("30s") for run in runs] == list("abc")


def test_it_takes_runs_of_its_queues_alone(app: Client, server: HttpServer) -> None:
    other = app.run(app.add(program.greet.call("b"), delay=0, queue="other"))
    mail = app.run(app.add(program.greet.call("a"), delay=0, queue="mail"))
    with Worker(server.url, TASKS, queues=["mail"]):
        assert mail.result("30s") == "hello a"
        assert other.get().state is RunState.READY


def test_what_does_not_end_within_the_grace_starts_again_elsewhere(
    app: Client, server: HttpServer
) -> None:
    door = program.door("on")
    worker = Worker(server.url, TASKS).start()
    run = app.run(app.add(program.asked.call("on"), delay=0, retry=1))
    door.await_somebody()
    worker.stop(0)
    assert run.get().state is RunState.READY
    assert [one.outcome for one in run.attempts()] == [Outcome.SHUTDOWN]
    assert app.workers() == []


def test_a_stop_lets_what_runs_end(app: Client, server: HttpServer) -> None:
    door = program.door("on")
    worker = Worker(server.url, TASKS).start()
    run = app.run(app.add(program.held.call("on"), delay=0))
    door.await_somebody()
    stopping = threading.Thread(target=worker.stop, args=("60s",))
    stopping.start()
    door.open()
    stopping.join(PATIENCE_S)
    assert run.final() is not None
    worker.stop()
    assert worker.id is None


def test_it_can_be_started_again(app: Client, server: HttpServer) -> None:
    worker = Worker(server.url, TASKS)
    for name in ("a", "b"):
        with worker:
            ref = app.add(program.greet.call(name), delay=0)
            assert app.run(ref).result("30s") == f"hello {name}"


def test_a_late_end_is_refused_and_logged(
    app: Client, server: HttpServer, caplog: pytest.LogCaptureFixture
) -> None:
    door = program.door("on")
    with Worker(server.url, TASKS, ttl="1s") as worker:
        run = app.run(app.add(program.held.call("on"), delay=0, retry=5))
        door.await_somebody()
        first = worker.id
        # As if the server had started anew, or had heard nothing for too long.
        httpx.delete(f"{server.url}{API_PATH}/workers/{first}")
        until(lambda: worker.id not in (None, first))
        until(lambda: len(run.attempts()) == 2)
        door.open()
        assert run.result("30s") == "on"
        until(lambda: worker.snapshot_metrics().lease_losses == 1)
    assert [one.outcome for one in run.attempts()] == [Outcome.LOST, Outcome.OK]
    assert "was no longer ours: refused" in caplog.text


def test_who_has_lost_a_run_is_told_so(app: Client, server: HttpServer) -> None:
    door = program.door("on")
    with Worker(server.url, TASKS, ttl="1s") as worker:
        run = app.run(app.add(program.asked.call("on"), delay=0, max_lost=1))
        door.await_somebody()
        httpx.delete(f"{server.url}{API_PATH}/workers/{worker.id}")
        assert run.wait("30s").state is RunState.FAILED
        until(lambda: program.asked_by == ["LeaseLost"])
        until(lambda: worker.snapshot_metrics().lease_losses == 1)


def test_who_cannot_reach_the_server_for_too_long_has_lost_its_runs() -> None:
    """Its leases have run out by then: the server, if it lives, gives them away."""
    door = program.door("on")
    program.asked_by.clear()
    server = HttpServer(Scheduler(":memory:"), port=0).start()
    with Worker(server.url, TASKS, ttl="1s") as worker:
        with Client(server.url) as app:
            app.add(NamedTask("asked").call(name="on"), delay=0)
            door.await_somebody()
        server.stop()
        assert worker.id is not None
        until(lambda: program.asked_by == ["LeaseLost"])
        assert worker.id is None


def test_a_server_that_is_away_is_waited_for(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with caplog.at_level(logging.WARNING, "timingwheel.worker"):
        worker = Worker(f"http://127.0.0.1:{port}", TASKS).start()
    assert "waiting for the server" in caplog.text
    with (
        worker,
        HttpServer(Scheduler(":memory:"), port=port) as server,
        Client(server.url, tasks=TASKS) as app,
    ):
        ref = app.add(program.greet.call("ada"), delay=0)
        assert app.run(ref).result("30s") == "hello ada"


def test_an_end_is_told_until_the_server_has_heard(
    tmp_path: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """The handler ends while no server is there; the next life of it hears of that."""
    door = program.door("on")
    data = tmp_path / "data"
    server = HttpServer(Scheduler(data), port=0).start()
    port = int(server.url.rpartition(":")[2])
    with Worker(server.url, TASKS) as worker, Client(server.url) as app:
        once = NamedTask("held").call(name="on")
        ref = app.add(once, delay=0, delivery="at_most_once")
        door.await_somebody()
        server.stop()
        door.open()
        until(lambda: "ends are told again" in caplog.text)
        with HttpServer(Scheduler(data), port=port):
            # What it had is lost with the server: late, and refused, but told.
            assert app.run(ref).wait("30s").state is RunState.LOST
            until(lambda: worker.snapshot_metrics().lease_losses == 1)


def test_a_token_that_may_not_work_ends_the_start() -> None:
    book = TokenBook(TokenFile(MemoryFileSystem()), SystemClock())
    reader, operator = book.add("reader", "read"), book.add("operator", "operate")
    with HttpServer(Scheduler(":memory:"), port=0, tokens=book) as server:
        with pytest.raises(AccessError, match="role operate"):
            Worker(server.url, TASKS, token=reader).start()
        with Worker(server.url, TASKS, token=operator) as worker:
            assert worker.id is not None


def test_it_runs_for_ever_in_the_main_thread_alone(server: HttpServer) -> None:
    refused: list[Exception] = []

    def run() -> None:
        try:
            Worker(server.url, TASKS).run_forever()
        except ArgumentError as error:
            refused.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(PATIENCE_S)
    assert "in the main thread" in str(refused)


class Exhausted(SystemClock):
    """A clock for whose waits one thread finds no memory."""

    def __init__(self, thread: str) -> None:
        super().__init__()
        self.thread = thread

    def wait(self, condition: threading.Condition, until_ns: int | None) -> None:
        if threading.current_thread().name == self.thread:
            raise MemoryError
        super().wait(condition, until_ns)


@pytest.mark.parametrize("thread", ["beat", "tell", "timeouts"])
def test_a_worker_that_lacks_a_thread_ends_with_a_word(
    thread: str, server: HttpServer, caplog: pytest.LogCaptureFixture
) -> None:
    worker = Worker(server.url, TASKS, clock=Exhausted(f"timingwheel-{thread}"))
    with pytest.raises(MemoryError):
        worker.run_forever()
    assert isinstance(worker.failure, MemoryError)
    assert "the worker stopped for good" in caplog.text


def test_what_a_worker_that_failed_had_in_hand_starts_elsewhere(
    app: Client, server: HttpServer
) -> None:
    door = program.door("on")
    clock = Exhausted("")
    with Worker(server.url, TASKS, ttl="1s", clock=clock) as failing:
        run = app.run(app.add(program.held.call("on"), delay=0, retry=5))
        door.await_somebody()
        clock.thread = "timingwheel-beat"
        until(lambda: failing.failure)
        with Worker(server.url, TASKS):
            until(lambda: len(run.attempts()) == 2)
            door.open()
            assert run.result("30s") == "on"
    assert [one.outcome for one in run.attempts()] == [Outcome.LOST, Outcome.OK]


def test_what_a_worker_cannot_mean_is_named(server: HttpServer) -> None:
    with pytest.raises(ArgumentError, match="there are none: import the module"):
        Worker(server.url, TaskRegistry()).start()
    with pytest.raises(ArgumentError, match="pass a list"):
        Worker(server.url, TASKS, queues="mail")
    with pytest.raises(ArgumentError, match="name one at least"):
        Worker(server.url, TASKS, queues=[])
    with pytest.raises(ArgumentError, match="pass one of"):
        Worker(server.url, TASKS, executor="fork")
    with pytest.raises(ArgumentError, match=r"app\.tasks"):
        Worker(server.url, program.app)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="pass 1s to 1h"):
        Worker(server.url, TASKS, ttl="1ms").start()
    with pytest.raises(ArgumentError, match="http://host:port"):
        Worker("jobs:8765", TASKS)
