"""Commands: their exit codes, their output, and how they are ended."""

from __future__ import annotations

import signal

import pytest

from tests.scheduler.executors import handlers
from tests.scheduler.executors.conftest import MakeStage
from tests.scheduler.executors.stage import Door, work_of
from timingwheel.jobs.model import Outcome
from timingwheel.jobs.store import Finish
from timingwheel.scheduler.executors.commands import exit_words

KNOCK = """
import os, signal, socket
{before}
door = socket.socket(socket.AF_UNIX)
door.connect({address!r})
door.sendall(f"{{os.getpid()}} 0\\n".encode())
door.recv(1)
"""


def run(make_stage: MakeStage, argv: list[str]) -> Finish:
    stage = make_stage("subprocess")
    stage.submit(work_of(handlers.run_argv.call(argv)))
    (finish,) = stage.host.wait_for_ends(1)
    return finish


def run_python(make_stage: MakeStage, code: str) -> Finish:
    stage = make_stage("subprocess")
    stage.submit(work_of(handlers.run_command.call(code)))
    (finish,) = stage.host.wait_for_ends(1)
    return finish


def test_exit_code_0_is_success_and_has_no_result(make_stage: MakeStage) -> None:
    finish = run(make_stage, ["true"])
    assert (finish.outcome, finish.result, finish.error) == (Outcome.OK, None, None)


def test_another_exit_code_is_an_error_with_the_last_words(
    make_stage: MakeStage,
) -> None:
    finish = run_python(
        make_stage,
        "import sys; print('well', flush=True); sys.stderr.write('no disk\\n'); exit(3)",
    )
    assert finish.outcome is Outcome.ERROR
    assert finish.error is not None
    assert finish.error.startswith(
        "timingwheel.scheduler.executors.commands.CommandErr"
    )
    assert finish.error.endswith("ended with exit code 3: no disk")


def test_output_and_errors_are_the_log(make_stage: MakeStage) -> None:
    code = "import sys; print('one', flush=True); print('two', file=sys.stderr)"
    finish = run_python(make_stage, code)
    lines = finish.log.splitlines()
    assert [line.rpartition(" ")[2] for line in lines] == ["one", "two"]


def test_a_flood_of_output_is_kept_to_its_last_lines(make_stage: MakeStage) -> None:
    code = "for n in range(20000): print(n, 'x' * 100)\nprint('y' * 10_000_000)"
    finish = run_python(make_stage, code)
    assert finish.outcome is Outcome.OK
    assert len(finish.log) < 250_000


def test_output_that_is_no_text_is_shown_as_it_can(make_stage: MakeStage) -> None:
    finish = run_python(make_stage, "import os; os.write(1, b'\\xff\\xfe!\\n')")
    assert finish.outcome is Outcome.OK
    assert finish.log.endswith("\ufffd\ufffd!")


def test_a_program_that_is_not_there_is_named(make_stage: MakeStage) -> None:
    finish = run(make_stage, ["no-such-program-here"])
    assert finish.outcome is Outcome.ERROR
    assert "no-such-program-here" in (finish.error or "")
    assert "No such file" in (finish.error or "")


@pytest.mark.parametrize("argv", [[], ["a\0b"]])
def test_what_is_no_argv_is_refused(argv: list[str], make_stage: MakeStage) -> None:
    finish = run(make_stage, argv)
    assert finish.outcome is Outcome.ERROR
    assert "returns what to run as a list of texts" in (finish.error or "")


def test_nothing_goes_through_a_shell(make_stage: MakeStage) -> None:
    finish = run(make_stage, ["echo", "$HOME; exit 1", "*"])
    assert finish.log.endswith("$HOME; exit 1 *")


def test_a_program_that_is_asked_gets_sigterm(
    make_stage: MakeStage, door: Door
) -> None:
    stage = make_stage("subprocess")
    code = KNOCK.format(address=door.address, before="")
    work = work_of(handlers.run_command.call(code))
    stage.submit(work)
    door.wait_for_knock()
    stage.executor.interrupt(work.claim.token, Outcome.CANCELLED, kill=False)
    (finish,) = stage.host.wait_for_ends(1)
    assert finish.outcome is Outcome.CANCELLED
    assert "signal SIGTERM" in (finish.error or "")


def test_a_program_that_does_not_heed_is_killed_with_its_children(
    make_stage: MakeStage, door: Door
) -> None:
    stage = make_stage("subprocess", slots=1)
    before = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nos.fork()"
    code = KNOCK.format(address=door.address, before=before)
    work = work_of(handlers.run_command.call(code))
    stage.submit(work)
    assert door.wait_for_knock() != door.wait_for_knock()
    stage.executor.interrupt(work.claim.token, Outcome.TIMEOUT, kill=False)
    stage.executor.interrupt(work.claim.token, Outcome.TIMEOUT, kill=True)
    door.wait_for_end()
    (finish,) = stage.host.wait_for_ends(1)
    assert finish.outcome is Outcome.TIMEOUT
    assert "was killed" in stage.host.alerts[0]
    stage.submit(work_of(handlers.run_argv.call(["true"])))
    assert stage.host.wait_for_ends(2)[1].outcome is Outcome.OK


def test_a_daemon_that_keeps_the_output_open_does_not_hold_up_the_attempt(
    make_stage: MakeStage, door: Door
) -> None:
    code = "import os\nif os.fork() == 0:\n    os.setsid()\n" + "".join(
        f"    {line}\n"
        for line in KNOCK.format(address=door.address, before="").strip().splitlines()
    )
    finish = run_python(make_stage, code)
    assert finish.outcome is Outcome.OK
    door.wait_for_knock()


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (3, "exit code 3"),
        (-int(signal.SIGSEGV), "signal SIGSEGV"),
        (-255, "signal 255"),
    ],
)
def test_an_exit_code_in_words(code: int, words: str) -> None:
    assert exit_words(code) == words
