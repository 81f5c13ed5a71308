"""From what a program names to an open store, and to each kind of executor."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.engine.stage import PATIENCE_S
from tests.scheduler import program
from timingwheel.clock import SystemClock
from timingwheel.errors import ArgumentError
from timingwheel.jobs.model import Outcome, RunState
from timingwheel.jobs.store import CancelResult
from timingwheel.scheduler.opening import checked_source, open_store, worker_name
from timingwheel.scheduler.scheduler import Scheduler
from timingwheel.stores.embedded import EmbeddedStore

PATIENCE = f"{PATIENCE_S}s"


@program.app.task(executor="process")
def own_process() -> int:
    """Return the process it runs in."""
    return os.getpid()


@program.app.task(executor="process", timeout="1h")
def hang_in_process(pipe: str) -> None:
    """Say that it runs, and never end."""
    with Path(pipe).open("w") as end:
        end.write("hanging\n")
        end.flush()
        threading.Event().wait()


@program.app.task(executor="subprocess")
def command(code: int) -> list[str]:
    """A program that writes a line and ends so."""
    return [sys.executable, "-c", f"print('a line'); raise SystemExit({code})"]


@program.app.task(executor="inline")
def inline_thread() -> str:
    """Return the thread it runs in."""
    return threading.current_thread().name


@pytest.fixture
def app() -> Any:
    with Scheduler(":memory:", tasks=program.app.tasks, slots=2) as started:
        yield started
        started.stop(0)


def test_a_task_runs_on_the_executor_that_it_names(app: Scheduler) -> None:
    elsewhere = app.run(app.schedule(own_process.call(), 0)).result(PATIENCE)
    assert isinstance(elsewhere, int)
    assert elsewhere != os.getpid()
    inline = app.run(app.schedule(inline_thread.call(), 0)).result(PATIENCE)
    assert inline == "timingwheel-node"
    succeeded = app.run(app.schedule(command.call(0), 0))
    assert succeeded.wait(PATIENCE).state is RunState.SUCCEEDED
    assert "a line" in succeeded.attempts()[0].log


def test_a_command_that_fails_is_an_error_with_its_exit_code(app: Scheduler) -> None:
    ref = app.add(command.call(3), delay=0, retry=1)
    run = app.run(ref).wait(PATIENCE)
    assert run.state is RunState.FAILED
    assert "3" in (run.error or "")


def test_a_process_that_hangs_is_killed_by_a_cancel(
    app: Scheduler, tmp_path: Path
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    ref = app.add(hang_in_process.call(str(pipe)), delay=0)
    with pipe.open() as end:  # returns once the handler has opened it too
        assert end.readline() == "hanging\n"
        assert app.cancel(ref, running="kill") is CancelResult.REQUESTED
        handle = app.run(ref)
        assert handle.wait(PATIENCE).state is RunState.CANCELLED
        assert end.read() == ""  # the process is gone, and its end with it
    assert [a.outcome for a in handle.attempts()] == [Outcome.CANCELLED]


def test_what_cannot_name_a_store_is_refused() -> None:
    for source in ("", 7, None, "redis://h", "http://h", "sqlite:///a", "~/data"):
        with pytest.raises(ArgumentError, match="store"):
            checked_source(source)  # type: ignore[arg-type]


def test_a_function_may_open_the_store() -> None:
    clock = SystemClock()
    opened: list[object] = []

    def source(given: Any) -> EmbeddedStore:
        opened.append(given)
        return EmbeddedStore.open(":memory:", clock=given)

    assert checked_source(source) is source
    open_store(source, clock).close()
    assert opened == [clock]


def test_a_worker_name_is_never_used_twice() -> None:
    first, second = worker_name(), worker_name()
    assert first != second
    assert str(os.getpid()) in first


def test_a_change_of_the_working_directory_leads_to_no_other_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path)
    app = Scheduler("data", tasks=program.app.tasks)
    app.schedule(program.note.call("x"), "1h")
    app.stop()
    monkeypatch.chdir("other")
    app.start()
    assert len(app.jobs()) == 1
    app.stop()
    assert app.directory == str(tmp_path / "data")
    assert list((tmp_path / "other").iterdir()) == []
