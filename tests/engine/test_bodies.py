"""Which table serves, and that its two bodies have one interface."""

from __future__ import annotations

import ast
import inspect
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.engine.table_bodies import CompiledTable, needs_the_compiled_table
from timingwheel import bodies
from timingwheel.engine.table import TimerTable

ROOT = Path(__file__).resolve().parent.parent.parent
ENGINE = ROOT / "timingwheel" / "engine"

WHICH = """
from timingwheel.engine import state
print(state.TimerTable.__module__)
"""

# A finder for the compiled module that fails as a real one does.
FINDER = """
import sys
class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "timingwheel.engine._table":
            raise {error}
sys.meta_path.insert(0, Finder)
"""


def run_python(source: str, **environment: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if name != "COV_CORE"}
    clean.pop(bodies.PURE_VARIABLE, None)
    return subprocess.run(
        [sys.executable, "-c", source],
        capture_output=True,
        text=True,
        check=False,
        env={**clean, "PYTHONPATH": str(ROOT), **environment},
    )


@needs_the_compiled_table
def test_the_compiled_table_serves_when_it_was_built() -> None:
    done = run_python(WHICH)
    assert done.stdout == "timingwheel.engine._table\n", done.stderr


def test_the_plain_table_serves_when_the_environment_asks_for_it() -> None:
    done = run_python(WHICH, TIMINGWHEEL_PURE="1")
    assert done.stdout == "timingwheel.engine.table\n", done.stderr


def test_the_plain_table_serves_when_the_other_was_not_built() -> None:
    missing = FINDER.format(error='ModuleNotFoundError("no", name=name)')
    done = run_python(missing + WHICH)
    assert done.stdout == "timingwheel.engine.table\n", done.stderr


def test_a_compiled_table_that_does_not_load_says_what_to_do() -> None:
    broken = FINDER.format(error='ImportError("undefined symbol", name=name)')
    done = run_python(broken + WHICH)
    assert done.returncode == 1
    assert "does not load (undefined symbol)" in done.stderr
    assert "TIMINGWHEEL_PURE=1" in done.stderr


def test_something_else_that_is_missing_is_not_taken_for_a_table_not_built() -> None:
    other = FINDER.format(error='ModuleNotFoundError("no libfoo", name="foo")')
    assert "ModuleNotFoundError: no libfoo" in run_python(other + WHICH).stderr


def public_names(body: type) -> set[str]:
    return {name for name in dir(body) if not name.startswith("_")}


@needs_the_compiled_table
def test_what_one_body_has_the_other_has_too() -> None:
    assert public_names(CompiledTable) == public_names(TimerTable)


@needs_the_compiled_table
@pytest.mark.parametrize("name", sorted(public_names(TimerTable) - {"slot_count"}))
def test_a_method_takes_the_same_arguments_on_both_bodies(name: str) -> None:
    def arguments(body: type) -> list[tuple[object, ...]]:
        parameters = inspect.signature(getattr(body, name)).parameters.values()
        each_of = [(each.name, each.kind, each.default) for each in parameters]
        return [*each_of[1:]]

    assert arguments(CompiledTable) == arguments(TimerTable)
    assert inspect.getdoc(getattr(CompiledTable, name))


def declared(source: Path) -> dict[str, str]:
    """The public methods of TimerTable in a file, as `name: parameters -> type`."""
    (body,) = (
        node
        for node in ast.parse(source.read_text()).body
        if isinstance(node, ast.ClassDef) and node.name == "TimerTable"
    )
    return {
        node.name: f"{[ast.unparse(each) for each in parameters(node)]} -> "
        f"{ast.unparse(node.returns)}"
        for node in body.body
        if isinstance(node, ast.FunctionDef) and node.returns is not None
        if not node.name.startswith("_")
    }


def parameters(method: ast.FunctionDef) -> list[ast.arg]:
    return [*method.args.args, *method.args.kwonlyargs]


def test_the_stub_says_of_the_compiled_table_what_the_plain_one_says() -> None:
    plain = declared(ENGINE / "table.py")

    assert set(plain) == public_names(TimerTable)
    assert declared(ENGINE / "_table.pyi") == plain


def test_whoever_wants_the_table_gets_it_from_bodies() -> None:
    found = [
        path.relative_to(ROOT).as_posix()
        for package in ("timingwheel", "bench")
        for path in (ROOT / package).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom)
        and node.module in {"timingwheel.engine.table", "timingwheel.engine._table"}
        and any(alias.name == "TimerTable" for alias in node.names)
    ]
    assert set(found) == {"timingwheel/engine/bodies.py"}
