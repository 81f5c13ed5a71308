"""The front door: tasks, opening, starting, stopping, waiting; with real threads."""

from __future__ import annotations

import errno
import logging
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.engine.stage import PATIENCE_S
from tests.scheduler import program
from tests.scheduler.node_stage import open_store
from timingwheel.errors import ArgumentError, EngineClosedError, EngineFailedError
from timingwheel.jobs.errors import TaskError, UnknownRunError
from timingwheel.jobs.model import Outcome, RunState
from timingwheel.jobs.store import CancelResult
from timingwheel.scheduler.handles import RunFailedError
from timingwheel.scheduler.scheduler import Scheduler
from timingwheel.stores.embedded import EmbeddedStore
from timingwheel.stores.history_retention import Retention
from timingwheel.testing import ManualClock
from wal.errors import StoreError, StoreInUseError
from wal.testing import MemoryFileSystem

PATIENCE = f"{PATIENCE_S}s"
MakeApp = Callable[..., Scheduler]


@pytest.fixture
def make() -> Iterator[MakeApp]:
    """Makes schedulers of the program's tasks and stops them in the end."""
    apps: list[Scheduler] = []

    def make_one(store: Any = ":memory:", **options: Any) -> Scheduler:
        apps.append(Scheduler(store, tasks=program.app.tasks, **options))
        return apps[-1]

    yield make_one
    for door in program.log.doors.values():
        door.open()
    for app in apps:
        app.stop(0)


class BrokenStore:
    """A store that opens and cannot be served."""

    def __init__(self, store: EmbeddedStore) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def recover(self) -> int:
        raise OSError("it cannot recover")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def settle(clock: ManualClock, *, waiters: int = 0) -> None:
    """Return once the node, the history and so many who wait for a run are at rest."""
    clock.settle(PATIENCE_S, threads=2 + waiters)


# -- tasks -----------------------------------------------------------------------------------


def test_a_task_is_declared_bare_or_with_options() -> None:
    app = Scheduler("never")
    bare = app.task(program.note.function)
    assert bare.name == "tests.scheduler.program:note"
    named = app.task(name="other", timeout="5m", queue="bulk", priority=2)(
        program.note.function
    )
    assert (named.name, named.queue, named.priority) == ("other", "bulk", 2)
    assert named.timeout_ns == 300 * 10**9
    assert {task.name for task in app.tasks.tasks()} == {bare.name, "other"}


def test_what_cannot_be_a_task_is_refused_when_it_is_declared() -> None:
    app = Scheduler("never")

    def inner() -> None: ...

    for function in (lambda: None, inner, app.start):
        with pytest.raises(TaskError, match=r"^function"):
            app.task(function)
    with pytest.raises(TaskError, match=r'^executor .*"process"'):
        app.task(executor="fork")
    assert app.tasks.tasks() == []


@pytest.mark.parametrize(
    ("arguments", "argument"),
    [
        ({"store": ""}, "store"),
        ({"store": 7}, "store"),
        ({"store": "postgresql://db/jobs", "interval_ms": 9}, "interval_ms"),
        (
            {"store": "postgresql://db/jobs", "fires_per_second": 0},
            "fires_per_second",
        ),
        ({"fires_per_second": 100}, "fires_per_second"),
        ({"slots": -1}, "slots"),
        ({"slots": 2.5}, "slots"),
        ({"executor": "fork"}, "executor"),
        ({"durability": "maybe"}, "durability"),
        ({"interval_ms": 0}, "interval_ms"),
        ({"worker": ""}, "worker"),
        ({"actor": ""}, "actor"),
    ],
)
def test_an_argument_that_cannot_be_meant_is_refused_when_it_is_built(
    arguments: dict[str, Any], argument: str
) -> None:
    with pytest.raises(ArgumentError) as caught:
        Scheduler(**arguments)
    assert caught.value.argument == argument


def test_an_unknown_argument_is_refused_with_the_one_that_was_meant() -> None:
    with pytest.raises(TypeError, match="did you mean 'durability'"):
        Scheduler("never", durabilty="interval")  # type: ignore[call-arg]


# -- opening -----------------------------------------------------------------------------------


def test_building_opens_nothing_and_the_first_request_does(
    make: MakeApp, tmp_path: Path
) -> None:
    app = make(tmp_path / "data")
    assert not (tmp_path / "data").exists()
    app.schedule(program.note.call("x"), 60)
    assert (tmp_path / "data" / "STORE").exists()


def test_a_second_opener_is_told_who_holds_the_directory(
    make: MakeApp, tmp_path: Path
) -> None:
    make(tmp_path).start()
    other = make(tmp_path)
    with pytest.raises(StoreInUseError, match="process"):
        other.start()
    with pytest.raises(StoreInUseError):
        other.jobs()


def test_create_false_refuses_a_directory_without_a_store(
    make: MakeApp, tmp_path: Path
) -> None:
    with pytest.raises(StoreError):
        make(tmp_path / "typo", create=False).start()
    assert not (tmp_path / "typo").exists()


def test_a_start_that_fails_leaves_the_directory_free(
    make: MakeApp, clock: ManualClock
) -> None:
    disk = MemoryFileSystem()
    make(lambda clock: open_store(disk, clock), clock=clock).schedule(
        program.note.call("x"), 0
    )
    left = disk.crashed()
    clock.advance(1)
    broken = make(lambda clock: BrokenStore(open_store(left, clock)), clock=clock)
    with pytest.raises(OSError, match="cannot recover"):
        broken.start()
    with pytest.raises(EngineClosedError):
        broken.jobs()
    assert len(make(lambda clock: open_store(left, clock), clock=clock).jobs()) == 1


def test_jobs_are_kept_over_a_restart_and_overdue_ones_run_at_start(
    make: MakeApp, tmp_path: Path
) -> None:
    app = make(tmp_path)
    job_id = app.schedule(program.note.call("x"), 0)
    app.stop()
    again = make(tmp_path)
    assert again.job(job_id).state == "active"
    assert program.log.calls == []
    with again:
        assert again.run(job_id).result(PATIENCE) == "X"
        assert again.is_serving
    assert not again.is_serving


def test_a_stopped_scheduler_refuses_requests_and_can_start_again(
    make: MakeApp, tmp_path: Path
) -> None:
    app = make(tmp_path)
    app.start()
    app.start()
    app.stop()
    app.stop()
    with pytest.raises(EngineClosedError, match="stopped"):
        app.jobs()
    with app:
        job_id = app.schedule(program.note.call("x"), 0)
        assert app.run(job_id).wait(PATIENCE).state is RunState.SUCCEEDED
    with pytest.raises(EngineClosedError, match="stopped"):
        app.schedule(program.note.call("x"), 0)


# -- running ---------------------------------------------------------------------------------


@pytest.mark.parametrize("task", [program.note, program.note_soon])
def test_handlers_are_plain_or_coroutine_functions(make: MakeApp, task: Any) -> None:
    with make() as app:
        handle = app.run(app.schedule(task.call("x"), 0))
        assert handle.result(PATIENCE) == "X"
        (attempt,) = handle.attempts()
        assert (attempt.outcome, attempt.number) == (Outcome.OK, 1)


def test_a_handler_is_told_its_run_its_token_and_its_times(make: MakeApp) -> None:
    with make() as app:
        handle = app.run(app.schedule(program.note_ctx.call("x"), 0))
        result = handle.result(PATIENCE)
        assert isinstance(result, dict)
        assert result["run"] == handle.id
        assert result["token"] == handle.attempts()[0].token
        what, attempt, nominal = program.log.calls[0]
        assert (what, attempt) == ("x", 1)
        assert nominal.utcoffset().total_seconds() == 0


def test_sixty_jobs_on_few_slots_all_succeed(make: MakeApp) -> None:
    """Case 2: the scheduler's own backlog is late, and never dropped."""
    with make(slots=3) as app:
        refs = [app.add(program.note.call(str(n)), delay=0) for n in range(60)]
        for ref in refs:
            assert app.run(ref).wait(PATIENCE).state is RunState.SUCCEEDED
        found = app.snapshot_metrics()
    assert sorted(program.log.calls, key=int) == [str(n) for n in range(60)]
    assert found.runs == {"ok": 60}
    assert found.dispatch_lag.count == 60


def test_no_more_handlers_run_at_once_than_there_are_slots(make: MakeApp) -> None:
    doors = [program.log.door(name) for name in "abc"]
    with make(slots=2) as app:
        for name in "abc":
            app.add(program.held.call(name), delay=0)
        doors[0].await_somebody()
        doors[1].await_somebody()
        running = app.runs(state="running")
        assert len(running) == 2
        doors[0].open()
        doors[2].await_somebody()
        for door in doors:
            door.open()


# -- waiting -----------------------------------------------------------------------------------


def test_wait_returns_when_the_run_has_ended_and_not_before(make: MakeApp) -> None:
    door = program.log.door("a")
    with make() as app:
        handle = app.run(app.schedule(program.held.call("a"), 0))
        door.await_somebody()
        with pytest.raises(TimeoutError, match="goes on"):
            handle.wait(0.001)
        waited: list[Any] = []
        thread = threading.Thread(target=lambda: waited.append(handle.wait(PATIENCE)))
        thread.start()
        door.open()
        thread.join(PATIENCE_S)
        assert waited[0].state is RunState.SUCCEEDED
        assert handle.wait(0) == waited[0]


def test_a_wait_for_a_run_that_nobody_knows_is_refused(make: MakeApp) -> None:
    app = make()
    handle = app.run("00000000-0000-8000-8000-000000000001@5")
    for ask in (handle.get, handle.wait, handle.result):
        with pytest.raises(UnknownRunError):
            ask()


def test_a_result_of_a_failed_run_is_an_error_that_says_why(make: MakeApp) -> None:
    program.log.errors.append(ValueError("out of ink"))
    with make() as app:
        handle = app.run(app.schedule(program.fail_once.call(), 0))
        with pytest.raises(
            RunFailedError, match="failed: ValueError: out of ink"
        ) as caught:
            handle.result(PATIENCE)
    assert caught.value.run.state is RunState.FAILED


def test_a_cancelled_run_ends_a_wait(make: MakeApp) -> None:
    with make() as app:
        ref = app.add(program.note.call("x"), delay="1h")
        handle = app.run(ref)
        waited: list[Any] = []
        thread = threading.Thread(target=lambda: waited.append(handle.wait(PATIENCE)))
        thread.start()
        app.cancel(ref)
        thread.join(PATIENCE_S)
        assert waited[0].state is RunState.CANCELLED


def test_a_stop_ends_a_wait_with_an_error(make: MakeApp, clock: ManualClock) -> None:
    app = make(clock=clock).start()
    handle = app.run(app.add(program.note.call("x"), delay="1h"))
    told: list[BaseException] = []

    def wait() -> None:
        try:
            handle.wait()
        except EngineClosedError as error:
            told.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    settle(clock, waiters=1)
    app.stop()
    thread.join(PATIENCE_S)
    assert len(told) == 1


# -- cancelling what runs ------------------------------------------------------------------------


def test_a_cancel_of_what_runs_leaves_it_and_no_retry_follows(make: MakeApp) -> None:
    door = program.log.door("a")
    with make() as app:
        job_id = app.schedule(program.held.call("a"), 0)
        door.await_somebody()
        result = app.cancel(job_id)
        assert result is CancelResult.RUNNING
        assert not result
        door.open()
        assert app.run(job_id).wait(PATIENCE).state is RunState.SUCCEEDED


def test_a_cancel_with_signal_asks_the_handler(
    make: MakeApp, clock: ManualClock
) -> None:
    door = program.log.door("a", clock)
    app = make(clock=clock).start()
    job_id = app.schedule(program.obedient.call("a"), 0)
    clock.advance(0.001)
    door.await_somebody()
    assert app.cancel(job_id, running="signal") is CancelResult.REQUESTED
    settle(clock)
    door.open()
    assert app.run(job_id).wait().state is RunState.CANCELLED


# -- stopping ------------------------------------------------------------------------------------


def test_a_stop_waits_for_handlers_within_the_grace(make: MakeApp) -> None:
    door = program.log.door("a")
    app = make().start()
    job_id = app.schedule(program.held.call("a"), 0)
    door.await_somebody()
    handle = app.run(job_id)
    stopping = threading.Thread(target=app.stop, args=(PATIENCE,))
    stopping.start()
    door.open()
    stopping.join(PATIENCE_S)
    assert program.log.calls == ["a"]
    with pytest.raises(EngineClosedError):
        handle.wait()


def test_what_outlasts_the_grace_starts_again_and_has_used_up_no_attempt(
    make: MakeApp, tmp_path: Path
) -> None:
    """Case 24."""
    door = program.log.door("a")
    app = make(tmp_path).start()
    job_id = app.schedule(program.held.call("a"), 0)
    door.await_somebody()
    app.stop(0)
    door.open()
    with make(tmp_path) as again:
        handle = again.run(job_id)
        assert handle.wait(PATIENCE).state is RunState.SUCCEEDED
        outcomes = [attempt.outcome for attempt in handle.attempts()]
        assert outcomes == [Outcome.SHUTDOWN, Outcome.OK]


def test_a_handler_may_still_add_a_job_while_the_scheduler_stops(
    make: MakeApp, clock: ManualClock, tmp_path: Path
) -> None:
    door = program.log.door("a", clock)
    app = make(tmp_path, clock=clock).start()
    program.log.schedulers.append(app)
    app.schedule(program.add_late.call("a"), 0)
    clock.advance(0.001)
    door.await_somebody()
    node = app._node
    assert node is not None
    stopping = threading.Thread(target=app.stop, args=(PATIENCE,))
    stopping.start()
    with app.desk.store.changed:
        while node._serving:
            app.desk.store.changed.wait(PATIENCE_S)
    door.open()
    stopping.join(PATIENCE_S)
    again = make(tmp_path, clock=clock)  # else all that ended in 2023 is purged
    assert len(again.jobs(task=program.note, state="active")) == 1
    assert [run.state for run in again.runs(task=program.add_late)] == ["succeeded"]


@pytest.mark.parametrize("overlap", ["cancel_other", "kill_other"])
def test_a_new_run_ends_the_former_one_by_asking_or_without(
    make: MakeApp, clock: ManualClock, overlap: str
) -> None:
    doors = [program.log.door(name, clock) for name in "ab"]
    app = make(clock=clock).start()
    ref = app.add(
        program.obedient.call("a"), every="10s", overlap=overlap, timeout="1h"
    )
    clock.advance(10.001)
    doors[0].await_somebody()
    app.update(ref, call=program.obedient.call("b"))
    settle(clock)
    clock.advance(10)
    if overlap == "cancel_other":
        settle(clock)
        assert not doors[1].reached.is_set()  # it was only asked
        doors[0].open()
    doors[1].await_somebody()  # killed, its slot was replaced
    first, second = sorted(app.runs(job=ref), key=lambda run: run.nominal_ns)[:2]
    assert app.run(first).wait().state is RunState.CANCELLED
    assert [a.outcome for a in app.run(first).attempts()] == [Outcome.CANCELLED]
    assert second.state is RunState.RUNNING


# -- failures --------------------------------------------------------------------------------------


def test_a_failed_log_ends_waits_and_service_and_says_so(
    make: MakeApp, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    disk = MemoryFileSystem()
    app = make(lambda clock: open_store(disk, clock), clock=clock).start()
    failed = threading.Event()
    app.add_failure_listener(lambda _: failed.set())
    handle = app.run(app.schedule(program.note.call("x"), 5))
    told: list[BaseException] = []

    def wait() -> None:
        try:
            handle.wait()
        except EngineFailedError as error:
            told.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    settle(clock, waiters=1)
    disk.fail("datasync", errno.EIO, times=None)
    clock.advance(6)
    assert failed.wait(PATIENCE_S)
    thread.join(PATIENCE_S)
    assert len(told) == 1
    assert not app.is_serving
    with pytest.raises(EngineFailedError, match="stopped for good"):
        app.start()
    assert "stopped for good" in caplog.text
    assert program.log.calls == []


def test_a_time_out_marks_the_slot_stuck_and_the_next_run_goes_on(
    make: MakeApp, clock: ManualClock
) -> None:
    """Case 23: the handler never returns, and neither blocks the job for ever."""
    doors = [program.log.door(name, clock) for name in "ab"]
    app = make(clock=clock, slots=1).start()
    first = app.run(app.add(program.held.call("a"), delay=0, timeout="5s", retry=1))
    clock.advance(0.001)
    doors[0].await_somebody()
    second = app.run(app.add(program.held.call("b"), delay=0))
    settle(clock)
    clock.advance(5.1)  # asked to end
    settle(clock)
    assert first.get().state is RunState.RUNNING
    clock.advance(10.1)  # given up
    doors[1].await_somebody()
    run = first.wait()
    assert run.state is RunState.FAILED
    assert [attempt.outcome for attempt in first.attempts()] == [Outcome.TIMEOUT]
    assert app.snapshot_metrics().alerts == 1
    doors[1].open()
    assert second.wait().state is RunState.SUCCEEDED
    doors[0].open()


def test_run_forever_raises_when_the_log_has_failed(
    make: MakeApp, clock: ManualClock
) -> None:
    disk = MemoryFileSystem()
    app = make(lambda clock: open_store(disk, clock), clock=clock)
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]

    def fail() -> None:
        settle(clock)
        app.schedule(program.note.call("x"), 5)
        disk.fail("datasync", errno.EIO, times=None)
        clock.advance(6)

    thread = threading.Thread(target=fail)
    thread.start()
    with pytest.raises(EngineFailedError, match="stopped for good"):
        app.run_forever()
    thread.join(PATIENCE_S)
    assert handlers == [
        signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)
    ]


def test_run_forever_belongs_to_the_main_thread(make: MakeApp) -> None:
    errors: list[ArgumentError] = []

    def run() -> None:
        try:
            make().run_forever()
        except ArgumentError as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(PATIENCE_S)
    assert [error.argument for error in errors] == ["thread"]


def test_how_long_a_run_is_kept_is_the_callers_to_choose(
    make: MakeApp, clock: ManualClock, tmp_path: Path
) -> None:
    retention = Retention(runs_ns=60_000_000_000)
    app = make(tmp_path, clock=clock, retention=retention).start()
    job_id = app.schedule(program.note.call("kept"), 0)
    clock.advance(0.001)
    assert app.run(job_id).wait(PATIENCE_S).state == "succeeded"
    clock.advance(50)
    assert len(app.runs()) == 1
    app.stop()
    clock.advance(50)
    again = make(tmp_path, clock=clock, retention=retention)
    assert again.jobs(state="active") == []
    clock.settle(threads=1)  # the history's: it has purged
    assert again.runs() == []
