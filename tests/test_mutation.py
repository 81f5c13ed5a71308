"""The driver of mutmut: what each module is tried with, and what the table counts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.mutation import (
    ROOT,
    is_asked_for,
    make_tree,
    outcomes,
    report,
    run,
    settings_for,
    settings_of_all,
)

TESTS = "pytest_add_cli_args_test_selection"


def test_the_list_names_modules_and_tests_that_are_there() -> None:
    settings = settings_of_all()
    for path in settings["only_mutate"]:
        assert (ROOT / path).is_file(), path
        files = [word for word in settings_for(path, settings)[TESTS] if ".py" in word]
        assert files, f"{path} has no tests"
    for word in settings[TESTS]:
        if ".py" in word:
            assert (ROOT / word.partition("::")[0]).is_file(), word


def test_a_module_is_tried_with_the_tests_of_its_folder_and_checked_alone() -> None:
    settings = {
        "only_mutate": ["wal/tail.py", "timingwheel/jobs/cron.py"],
        TESTS: ["tests/wal/a.py", "tests/jobs/b.py", "--deselect", "tests/x.py::y"],
        "type_check_command": ["mypy", "--strict"],
    }
    assert settings_for("timingwheel/jobs/cron.py", settings) == {
        "only_mutate": ["timingwheel/jobs/cron.py"],
        TESTS: ["tests/jobs/b.py", "--deselect", "tests/x.py::y"],
        "type_check_command": ["mypy", "timingwheel/jobs/cron.py", "--strict"],
    }


def test_a_tree_has_the_settings_of_its_module_and_all_others_as_they_are(
    tmp_path: Path,
) -> None:
    settings = settings_of_all()
    for _ in range(2):  # an interrupted run goes on in the same tree
        make_tree(tmp_path / "wal.tail", "wal/tail.py", settings)
    text = (tmp_path / "wal.tail" / "pyproject.toml").read_text()
    made, real = (
        tomllib.loads(text),
        tomllib.loads((ROOT / "pyproject.toml").read_text()),
    )
    assert made["tool"].pop("mutmut") == settings_for("wal/tail.py", settings)
    del real["tool"]["mutmut"]
    assert made == real
    assert (tmp_path / "wal.tail" / "wal" / "tail.py").is_file()


@pytest.mark.parametrize(
    ("pattern", "is_it"),
    [
        ("wal.tail.x_judge_tail__mutmut_7", True),
        ("wal.tail.*", True),
        ("wal.*", True),
        ("*", True),
        ("wal.tailor.*", False),
        ("wal.runs.*", False),
    ],
)
def test_a_pattern_is_for_the_modules_whose_mutants_it_may_name(
    pattern: str, is_it: bool
) -> None:
    assert is_asked_for("wal.tail", [pattern]) == is_it


def test_the_table_counts_each_end_and_names_what_lives(tmp_path: Path) -> None:
    codes = {"a": 1, "b": 0, "c": 37, "d": -24, "e": None, "f": -11, "g": 3}
    meta = tmp_path / "wal.tail" / "mutants" / "wal" / "tail.py.meta"
    meta.parent.mkdir(parents=True)
    meta.write_text(json.dumps({"exit_code_by_key": codes}))
    assert outcomes(tmp_path / "wal.runs", "wal/runs.py") == {}
    lines = list(report(["wal/tail.py", "wal/runs.py"], tmp_path))
    assert lines[:2] == ["b: lives", "f: exit -11"]
    counts = ["7", "1", "2", "1", "1", "0", "1"]
    assert lines[3].split() == ["wal/tail.py", *counts]
    assert lines[4].split() == ["together", *counts]
    assert lines[5] == "not begun: wal/runs.py"


def test_a_command_that_fails_is_told(tmp_path: Path) -> None:
    for code in (0, 1):
        command = [sys.executable, "-S", "-c", f"raise SystemExit({code})"]
        assert run(command, tmp_path, 60) == (code == 0)


def test_a_command_ends_with_its_time_which_is_no_failure(tmp_path: Path) -> None:
    sleeps = "import time; time.sleep(1_000)"  # longer than any test may take
    assert run([sys.executable, "-S", "-c", sleeps], tmp_path, 0.05)


@pytest.mark.long  # two processes that import mutmut, and pytest
def test_mutmut_makes_what_is_tried(tmp_path: Path) -> None:
    pytest.importorskip("mutmut", reason="`make mutate` installs it")
    files = {
        "pack/__init__.py": "",
        "pack/sums.py": "def both(a, b):\n    return a + b\n\n\n"
        "def unread():\n    return 1\n",
        "checks/test_sums.py": "from pack.sums import both\n\n\n"
        "def test_nothing_is_added():\n    assert both(2, 0) == 2\n",
        "checks/test_others.py": "import os\n\nfrom pack.sums import both\n\n\n"
        "def test_something_is_added():\n"
        "    child = os.fork()\n    if child == 0:\n        os._exit(both(2, 2))\n"
        "    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 4\n",
        "pyproject.toml": "[tool.mutmut]\n"
        'source_paths = ["pack"]\nonly_mutate = ["pack/sums.py"]\n'
        'also_copy = ["checks"]\n'
        'pytest_add_cli_args_test_selection = ["checks"]\n'
        'pytest_add_cli_args = ["-n0", "-p", "no:cacheprovider"]\n',
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)

    def tell(what: str, place: Path) -> str:
        return subprocess.run(
            [sys.executable, "-m", "tests.mutants", what, "pack/sums.py"],
            cwd=place,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            check=True,
            capture_output=True,
            text=True,
        ).stderr

    for _ in range(2):  # an interrupted run goes on in the same tree
        tell("make", tmp_path)
    assert outcomes(tmp_path, "pack/sums.py") == dict.fromkeys(
        ["pack.sums.x_both__mutmut_1", "pack.sums.x_unread__mutmut_1"], "not tried"
    )
    assert tell("try", tmp_path / "mutants").splitlines() == [
        "pack/sums.py 2 of 2, 2 live (its own tests)",
        "pack/sums.py 2 of 2, 1 live (the other tests)",
    ]
    assert outcomes(tmp_path, "pack/sums.py") == {
        "pack.sums.x_both__mutmut_1": "killed",
        "pack.sums.x_unread__mutmut_1": "no test",
    }
