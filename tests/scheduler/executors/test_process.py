"""Process slots: killed singly, replaced, and gone when their parent is."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import textwrap
from functools import partial
from pathlib import Path

import pytest

from tests.scheduler.executors import handlers
from tests.scheduler.executors.conftest import MakeStage
from tests.scheduler.executors.stage import (
    PATIENCE_S,
    Door,
    RecordingHost,
    work_of,
)
from timingwheel.jobs.model import Outcome
from timingwheel.jobs.store import Finish
from timingwheel.scheduler.executors.executor import Work
from timingwheel.scheduler.executors.process import ProcessExecutor
from timingwheel.scheduler.retrying import Retry
from timingwheel.scheduler.tasks import Call, Task

ROOT = Path(__file__).resolve().parents[3]


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def result_of(task: Task, finish: Finish) -> object:
    assert finish.outcome is Outcome.OK, finish
    return task.codec.decode_result(finish.result)


def test_a_child_is_another_process_and_serves_one_attempt_after_the_other(
    make_stage: MakeStage,
) -> None:
    stage = make_stage("process", slots=2)
    pids = set()
    for count in range(1, 4):
        stage.submit(work_of(handlers.pid.call()))
        finish = stage.host.wait_for_ends(count)[-1]
        pids.add(result_of(handlers.pid, finish))
    assert len(pids) == 1
    assert os.getpid() not in pids


@pytest.mark.parametrize(
    ("poison", "words"),
    [
        (handlers.die.call(7), "exit code 7"),
        (handlers.die.call(0), "exit code 0"),
        (handlers.die_by_signal.call(), "signal SIGKILL"),
    ],
)
def test_an_attempt_whose_process_dies_is_lost_and_the_process_replaced(
    poison: Call, words: str, make_stage: MakeStage
) -> None:
    stage = make_stage("process", slots=1)
    stage.submit(work_of(poison), work_of(handlers.add.call(1)))
    lost, after = stage.host.wait_for_ends(2)
    assert lost.outcome is Outcome.LOST
    assert lost.error == f"its process died with {words}"
    assert after.outcome is Outcome.OK
    assert len(stage.host.alerts) == 1
    assert words in stage.host.alerts[0]


def test_what_a_process_logged_before_it_died_is_kept(make_stage: MakeStage) -> None:
    stage = make_stage("process")
    stage.submit(work_of(handlers.say_and_die.call(1_000)))
    (finish,) = stage.host.wait_for_ends(1)
    assert finish.outcome is Outcome.LOST
    assert finish.log.endswith("WARNING about to die")


def test_one_that_dies_hurts_no_neighbour(make_stage: MakeStage, door: Door) -> None:
    stage = make_stage("process", slots=2)
    neighbour = work_of(handlers.wait.call(door.address))
    stage.submit(neighbour)
    door.wait_for_knock()
    for count in range(1, 4):
        stage.submit(work_of(handlers.die.call(1)))
        stage.host.wait_for_ends(count)
    door.open()
    last = stage.host.wait_for_ends(4)[-1]
    assert (last.token, last.outcome) == (neighbour.claim.token, Outcome.OK)


def test_an_endless_loop_is_interrupted_when_it_is_asked_to_end(
    make_stage: MakeStage, door: Door
) -> None:
    stage = make_stage("process", slots=1)
    work = work_of(handlers.loop_for_ever.call(door.address))
    stage.submit(work)
    pid = door.wait_for_knock()
    door.open()
    stage.executor.interrupt(work.claim.token, Outcome.TIMEOUT, kill=False)
    (finish,) = stage.host.wait_for_ends(1)
    assert finish.outcome is Outcome.TIMEOUT
    assert "Cancelled: the attempt has used up its time" in (finish.error or "")
    stage.submit(work_of(handlers.pid.call()))
    assert result_of(handlers.pid, stage.host.wait_for_ends(2)[1]) == pid


def test_an_interrupt_in_the_middle_of_a_message_leaves_the_line_whole(
    make_stage: MakeStage, door: Door
) -> None:
    stage = make_stage("process", slots=1)
    pids = set()
    for count in range(1, 21):
        work = work_of(handlers.flood_for_ever.call(door.address))
        stage.submit(work)
        pids.add(door.wait_for_knock())
        door.open()
        stage.host.wait_until(partial(stage.host.beats.__contains__, work.claim.token))
        stage.executor.interrupt(work.claim.token, Outcome.CANCELLED, kill=False)
        finish = stage.host.wait_for_ends(count)[-1]
        assert finish.outcome is Outcome.CANCELLED
    assert len(pids) == 1  # one child has served them all, and is well
    assert stage.host.alerts == []


def test_a_coroutine_in_a_process_is_cancelled_when_it_is_asked_to_end(
    make_stage: MakeStage, door: Door
) -> None:
    stage = make_stage("process", slots=1)
    work = work_of(handlers.wait_async.call(door.address))
    stage.submit(work)
    door.wait_for_knock()
    stage.executor.interrupt(work.claim.token, Outcome.TIMEOUT, kill=False)
    (finish,) = stage.host.wait_for_ends(1)
    assert finish.outcome is Outcome.TIMEOUT


def test_a_kill_takes_along_what_the_handler_has_started(
    make_stage: MakeStage, door: Door
) -> None:
    stage = make_stage("process", slots=1)
    work = work_of(handlers.leave_child.call(door.address))
    stage.submit(work)
    first, second = door.wait_for_knock(), door.wait_for_knock()
    assert first != second
    stage.executor.interrupt(work.claim.token, Outcome.TIMEOUT, kill=True)
    door.wait_for_end()  # of the last that came, whichever of the two it was
    assert stage.host.wait_for_ends(1)[0].outcome is Outcome.TIMEOUT
    assert "was killed" in stage.host.alerts[0]


def test_a_signal_from_outside_is_the_parents_business(
    make_stage: MakeStage, door: Door
) -> None:
    """Ctrl-C and service managers signal every process of a program."""
    stage = make_stage("process", slots=1)
    stage.submit(work_of(handlers.wait.call(door.address)))
    pid = door.wait_for_knock()
    os.kill(pid, signal.SIGTERM)
    os.kill(pid, signal.SIGINT)
    door.open()
    (finish,) = stage.host.wait_for_ends(1)
    assert result_of(handlers.wait, finish) == "was not asked"


def test_a_child_holds_no_file_of_its_parent(
    make_stage: MakeStage, tmp_path: Path
) -> None:
    """A store's lock that a child holds would outlive the store."""
    with (tmp_path / "LOCK").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        os.set_inheritable(lock.fileno(), True)  # even so
        stage = make_stage("process", slots=1)
        stage.submit(work_of(handlers.open_files.call()))
        (finish,) = stage.host.wait_for_ends(1)
    held = result_of(handlers.open_files, finish)
    assert isinstance(held, list)
    assert not any("LOCK" in name for name in held)
    assert sum(name.startswith("socket:") for name in held) == 1


def test_a_stop_leaves_no_process_behind(make_stage: MakeStage, door: Door) -> None:
    stage = make_stage("process", slots=2)
    stage.submit(work_of(handlers.pid.call()))
    idle = result_of(handlers.pid, stage.host.wait_for_ends(1)[0])
    stage.submit(*[work_of(handlers.wait.call(door.address)) for _ in range(2)])
    pids = {door.wait_for_knock(), door.wait_for_knock()}
    assert idle in pids
    stage.executor.stop(0)
    assert not any(map(is_alive, pids))
    assert [one.outcome for one in stage.host.finishes[1:]] == [Outcome.SHUTDOWN] * 2


def test_a_function_that_is_a_task_only_here_keeps_its_options_in_a_process(
    make_stage: MakeStage,
) -> None:
    retry = Retry(3, give_up_on=handlers.GaveUpError)
    task = Task(handlers.fail_plainly, name="only here", retry=retry)
    stage = make_stage("process", slots=1)
    stage.submit(work_of(task.call()))
    (finish,) = stage.host.wait_for_ends(1)
    assert (finish.outcome, finish.gives_up) == (Outcome.ERROR, True)


def test_a_task_that_cannot_be_imported_is_an_error_that_says_so(
    make_stage: MakeStage,
) -> None:
    stage = make_stage("process", slots=1)
    claim = work_of(handlers.add.call(1)).claim
    stage.submit(Work(claim, Elsewhere()))
    (finish,) = stage.host.wait_for_ends(1)
    assert finish.outcome is Outcome.ERROR
    assert "no_such_module:add" in (finish.error or "")
    assert "cannot be imported" in (finish.error or "")


class Elsewhere(Task):
    """A task whose module is not to be found from a child."""

    def __init__(self) -> None:
        super().__init__(handlers.add.function)
        self.__dict__["place"] = "no_such_module:add"


@pytest.mark.parametrize(
    ("python", "words"),
    [
        ("/bin/false", "a new process died with exit code 1 before it was ready"),
        ("/no/such/python", "no process could be started"),
    ],
)
def test_where_no_process_starts_each_attempt_fails_and_nothing_spins(
    python: str, words: str
) -> None:
    host = RecordingHost()
    executor = ProcessExecutor(2, python=python)
    executor.start(host)
    executor.submit([work_of(handlers.add.call(number)) for number in range(3)])
    finishes = host.wait_for_ends(3)
    executor.stop(0)
    assert {finish.outcome for finish in finishes} == {Outcome.ERROR}
    assert all(words in (finish.error or "") for finish in finishes)
    assert len(host.alerts) == 3


PROGRAM = """
    import sys
    from tests.scheduler.executors.handlers import knock, task
    from tests.scheduler.executors.stage import RecordingHost, work_of
    from timingwheel.scheduler.executors.process import ProcessExecutor

    @task
    def wait(address: str) -> str:
        knock(address)
        return "done"

    if __name__ == "__main__":
        host = RecordingHost()
        executor = ProcessExecutor(1)
        executor.start(host)
        executor.submit([work_of(wait.call(sys.argv[1]))])
        (finish,) = host.wait_for_ends(1)
        print(finish.outcome, wait.codec.decode_result(finish.result), finish.error)
        executor.stop(1)
"""


def start_program(tmp_path: Path, door: Door) -> subprocess.Popen[str]:
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(PROGRAM))
    return subprocess.Popen(
        [sys.executable, str(program), door.address],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )


def test_a_task_of_the_main_script_runs_in_a_process(
    tmp_path: Path, door: Door
) -> None:
    with start_program(tmp_path, door) as program:
        assert door.wait_for_knock() != program.pid
        door.open()
        output, _ = program.communicate(timeout=PATIENCE_S)
    assert output.strip() == "ok done None"
    assert program.returncode == 0


def test_a_child_ends_when_its_parent_is_killed(tmp_path: Path, door: Door) -> None:
    with start_program(tmp_path, door) as program:
        door.wait_for_knock()
        program.kill()
        door.wait_for_end()
