"""How a mutant is tried: by which tests, for how long, and what is written down."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import pytest

from tests.mutation_trial import (
    CUT_OFF,
    KILLED,
    LIVES,
    MEMORY_BYTES,
    NO_TEST,
    REFUSED,
    TIMEOUT,
    Case,
    Limits,
    Trial,
    Verdicts,
    chosen,
    is_own,
    run_forked,
)

OWN = "tests/wal/test_log.py::test_a"
OTHER = "tests/wal/test_pool.py::test_b"
FIRST, SECOND = "wal.log.x_f__mutmut_1", "wal.log.x_f__mutmut_2"
UNREACHED = "wal.log.x_g__mutmut_1"


class Stage:
    """A trial of wal/log.py: two tests, which call `f` alone and fail as they are told."""

    def __init__(self, place: Path, fails: dict[str, set[str]]) -> None:
        self.meta = place / "log.py.meta"
        self.meta.write_text(
            json.dumps({"exit_code_by_key": dict.fromkeys([FIRST, SECOND, UNREACHED])})
        )
        self.said: list[str] = []
        self._asked = place / "asked"
        self._asked.touch()
        self._fails = fails
        self._mutant = ""
        self._called: set[str] = set()
        self._trial = Trial(
            "wal/log.py",
            Verdicts(self.meta),
            switch_on=self._switch_on,
            note_calls=self._note_calls,
            notes=place / "notes.json",
            limits=Limits(10.0, 10.0),
            say=self.said.append,
        )

    def run(self, mutants: Sequence[str] = (FIRST, SECOND, UNREACHED)) -> bool:
        cases = [Case(name, partial(self._test, name)) for name in (OTHER, OWN)]
        return self._trial.run(mutants, cases)

    @property
    def codes(self) -> dict[str, int | None]:
        codes: dict[str, int | None] = json.loads(self.meta.read_text())[
            "exit_code_by_key"
        ]
        return codes

    def asked(self, mutant: str) -> list[str]:
        """Return the tests that a mutant met, "" for none."""
        lines = (line.split() for line in self._asked.read_text().splitlines())
        return [test for test, *met in lines if (met or [""]) == [mutant]]

    def _test(self, name: str, following: Case | None) -> bool:
        with self._asked.open("a") as file:
            file.write(f"{name} {self._mutant}\n")
        self._called.add("wal.log.x_f")
        return self._mutant not in self._fails.get(name, ())

    def _switch_on(self, mutant: str) -> None:
        self._mutant = mutant

    def _note_calls(self) -> Callable[[], set[str]]:
        def taken() -> set[str]:
            called, self._called = self._called, set()
            return called

        return taken


def test_what_a_test_of_the_modules_name_kills_meets_no_other(tmp_path: Path) -> None:
    stage = Stage(tmp_path, {OWN: {FIRST}, OTHER: {SECOND}})
    assert stage.run()
    assert stage.asked(FIRST) == [OWN]
    assert stage.asked(SECOND) == [OWN, OTHER]
    assert stage.codes == {FIRST: KILLED, SECOND: KILLED, UNREACHED: NO_TEST}
    assert stage.said == [
        "wal/log.py 3 of 3, 2 live (its own tests)",
        "wal/log.py 2 of 2, 1 live (the other tests)",
    ]


def test_a_mutant_lives_if_all_tests_that_come_through_its_function_pass(
    tmp_path: Path,
) -> None:
    stage = Stage(tmp_path, {})
    assert stage.run()
    assert stage.codes == {FIRST: LIVES, SECOND: LIVES, UNREACHED: NO_TEST}


def test_of_the_other_tests_none_is_asked_that_comes_not_through_the_function(
    tmp_path: Path,
) -> None:
    stage = Stage(tmp_path, {})
    assert stage.run([FIRST, UNREACHED])
    assert stage.asked(FIRST) == [OWN, OTHER]
    assert stage.asked(UNREACHED) == [OWN]
    assert stage.codes[UNREACHED] == NO_TEST


def test_a_test_of_its_own_may_come_through_a_function_only_with_the_break(
    tmp_path: Path,
) -> None:
    """As the one before it did, and the answer is remembered."""
    stage = Stage(tmp_path, {OWN: {UNREACHED}})
    assert stage.run([UNREACHED])
    assert stage.codes[UNREACHED] == KILLED


def test_each_test_runs_once_without_a_break_and_not_if_none_is_left_for_it(
    tmp_path: Path,
) -> None:
    stage = Stage(tmp_path, {OWN: {FIRST}})
    assert stage.run([FIRST])
    assert stage.asked("") == [OWN]
    assert stage.run([SECOND])
    assert stage.asked("") == [OWN, OWN, OTHER]


@pytest.mark.parametrize("test", [OWN, OTHER])
def test_nothing_is_tried_with_tests_that_fail_without_a_break(
    tmp_path: Path, test: str
) -> None:
    stage = Stage(tmp_path, {test: {""}})
    assert not stage.run()
    assert stage.codes == {FIRST: None, SECOND: None, UNREACHED: None}
    assert stage.said[-1] == "wal/log.py: the tests fail by themselves"


def test_what_was_tried_before_an_interruption_is_written_down(tmp_path: Path) -> None:
    stage = Stage(tmp_path, {OWN: {FIRST, SECOND}})

    def interrupt(line: str) -> None:
        raise KeyboardInterrupt

    vars(stage)["_trial"]._say = interrupt  # Ctrl-C after the last, before the end
    with pytest.raises(KeyboardInterrupt):
        stage.run([FIRST])
    assert stage.codes == {FIRST: KILLED, SECOND: None, UNREACHED: None}
    assert chosen(stage.codes, []) == [SECOND, UNREACHED]


def test_those_asked_for_are_tried_again_but_what_the_checker_refuses() -> None:
    codes = {FIRST: LIVES, SECOND: REFUSED, UNREACHED: None}
    assert chosen(codes, []) == [UNREACHED]
    assert chosen(codes, ["wal.log.x_f*"]) == [FIRST]


@pytest.mark.parametrize(
    ("path", "test", "is_it"),
    [
        ("wal/log.py", "tests/wal/test_log.py::test_log", True),
        ("wal/log.py", "tests/wal/test_log_threads.py::test_x[y::z]", True),
        ("wal/log.py", "tests/wal/test_logs.py::test_x", False),
        ("wal/log.py", "tests/wal/test_pool.py::test_log", False),
        ("wal/__main__.py", "tests/wal/test_main.py::test_x", True),
    ],
)
def test_the_tests_of_a_modules_name_are_in_files_of_it(
    path: str, test: str, is_it: bool
) -> None:
    assert is_own(test, path) == is_it


def _wait_for_ever() -> bool:
    return threading.Event().wait()


def _end_by_signal() -> bool:
    os.kill(os.getpid(), signal.SIGKILL)
    return True


@pytest.mark.parametrize(
    ("step", "code"),
    [
        pytest.param(lambda: True, LIVES, id="passes"),
        pytest.param(lambda: False, KILLED, id="fails"),
        pytest.param(lambda: bool(1 // 0), CUT_OFF, id="raises"),
        pytest.param(lambda: bool(bytes(MEMORY_BYTES)), CUT_OFF, id="fills the memory"),
        pytest.param(_end_by_signal, -signal.SIGKILL, id="is killed"),
    ],
)
def test_a_fork_ends_as_its_steps_do(step: Callable[[], bool], code: int) -> None:
    assert run_forked([(10.0, lambda: True), (10.0, step)], begin=lambda: None) == code


def test_a_step_that_waits_for_ever_is_ended_at_its_limit() -> None:
    assert run_forked([(0.01, _wait_for_ever)], begin=lambda: None) == TIMEOUT


@pytest.mark.long  # a second, the least that the system can limit
def test_a_step_without_end_is_ended_when_it_has_used_up_its_time() -> None:
    def step() -> bool:
        while True:
            pass

    assert run_forked([(0.9, step)], begin=lambda: None) == TIMEOUT


def test_no_fork_finds_what_another_left() -> None:
    left: list[int] = []

    def step() -> bool:
        left.append(1)
        return len(left) == 1

    for _ in range(2):
        assert run_forked([(10.0, step)], begin=lambda: None) == LIVES
    assert left == []
