"""A copy of a directory that a server is serving: of a frozen one, and by a backup."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

from tests.server.process import served
from timingwheel.client.client import Client
from timingwheel.client.transport import ServerAwayError, UnansweredError
from timingwheel.jobs.model import RunState
from timingwheel.scheduler.scheduler import Scheduler
from timingwheel.scheduler.tasks import NamedTask
from timingwheel.stores.backup import backup, restore
from wal.filesystem import FileSystem
from wal.inspection import verify

PROGRAM = "tests.scheduler.program:app"
NOTE = NamedTask("tests.scheduler.program:note").call(what="tea")
WRITERS = 3
BEFORE_FREEZE = 150
AFTER_FREEZE = 50


def frozen(process: subprocess.Popen[str], data: Path, copy: Path) -> None:
    """Stop the process for the length of a plain copy."""
    process.send_signal(signal.SIGSTOP)
    _, status = os.waitpid(process.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    # All but the socket by which other processes ask: it is of no use in a copy.
    shutil.copytree(data, copy, ignore=shutil.ignore_patterns("DOOR"))
    process.send_signal(signal.SIGCONT)


def at_work(_process: subprocess.Popen[str], data: Path, copy: Path) -> None:
    """Let it go on, and take a backup from outside; then restore that."""
    backup(data, copy.with_name("backup"))
    restore(copy.with_name("backup"), copy)


def test_a_copy_of_a_frozen_server_has_all_that_was_acknowledged(
    tmp_path: Path,
) -> None:
    has_all_that_was_acknowledged(tmp_path, frozen)


def test_a_backup_of_a_server_at_work_has_all_that_was_acknowledged(
    tmp_path: Path,
) -> None:
    has_all_that_was_acknowledged(tmp_path, at_work)


def has_all_that_was_acknowledged(
    tmp_path: Path, make: Callable[[subprocess.Popen[str], Path, Path], None]
) -> None:
    planned: list[str] = []
    over: list[str] = []
    changed = threading.Condition()

    def write(url: str) -> None:
        """Have one job run after the other, and plan one for later beside each."""
        # It has to outlast the copy, on a slow disk too.
        with Client(url, patience=0, timeout="5m") as app:
            while True:
                try:
                    later = app.schedule(NOTE, "1h")
                    run = app.run(app.add(NOTE, delay=0)).wait("5m")
                except (ServerAwayError, UnansweredError):
                    return
                with changed:
                    planned.append(later)
                    over.append(run.id)
                    changed.notify_all()

    def await_more(count: int) -> None:
        with changed:
            wanted = len(over) + count
            assert changed.wait_for(lambda: len(over) >= wanted, timeout=60)

    data, copy = tmp_path / "data", tmp_path / "copy"
    with served(data, "--app", PROGRAM, log=tmp_path / "log") as (process, url):
        writers = [threading.Thread(target=write, args=(url,)) for _ in range(WRITERS)]
        for writer in writers:
            writer.start()
        await_more(BEFORE_FREEZE)
        acknowledged, ended = list(planned), list(over)
        make(process, data, copy)
        await_more(AFTER_FREEZE)  # it goes on as if nothing had been
        process.kill()
        for writer in writers:
            writer.join(60)
            assert not writer.is_alive()
    # A torn tail is what a kill leaves, too: nothing of it was acknowledged.
    found = verify(FileSystem(str(copy)))
    assert not found.corrupt, found.faults
    with Scheduler(copy, create=False) as app:
        for job_id in acknowledged:
            assert app.run(job_id).get().state is RunState.PLANNED
        for run_id in ended:
            assert app.run(run_id).get().state is RunState.SUCCEEDED
        assert not [found for found in app.check() if found.kind == "invariant"]
