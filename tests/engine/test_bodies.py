"""Which table serves, and that its two bodies have one interface."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import pytest

from tests.engine.table_bodies import CompiledTable, needs_the_compiled_table
from tests.fresh_python import ROOT, run_python, without
from timingwheel.engine.table import TimerTable

ENGINE = ROOT / "timingwheel" / "engine"

COMPILED_MODULE = "timingwheel.engine._table"
MODULES = [COMPILED_MODULE, "timingwheel.engine._lane"]

WHICH = """
from timingwheel import COMPILED
from timingwheel.engine import state, timers
print(COMPILED, state.TimerTable.__module__, timers.Lane.__module__)
"""
SERVING = {
    "compiled": "True timingwheel.engine._table timingwheel.engine._lane\n",
    "plain": "False timingwheel.engine.table timingwheel.engine.lane\n",
}


@needs_the_compiled_table
def test_the_compiled_table_serves_when_it_was_built() -> None:
    done = run_python(WHICH)
    assert done.stdout == SERVING["compiled"], done.stderr


def test_the_plain_table_serves_when_the_environment_asks_for_it() -> None:
    done = run_python(WHICH, TIMINGWHEEL_PURE="1")
    assert done.stdout == SERVING["plain"], done.stderr


@pytest.mark.parametrize("module", MODULES)
def test_the_plain_bodies_serve_when_one_was_not_built(module: str) -> None:
    done = run_python(without(module) + WHICH)
    assert done.stdout == SERVING["plain"], done.stderr


@pytest.mark.parametrize("module", MODULES)
def test_a_compiled_body_that_does_not_load_says_what_to_do(module: str) -> None:
    broken = without(module, 'ImportError("undefined symbol", name=name)')
    done = run_python(broken + WHICH)
    assert done.returncode == 1
    assert "does not load (undefined symbol)" in done.stderr
    assert "TIMINGWHEEL_PURE=1" in done.stderr


def test_something_else_that_is_missing_is_not_taken_for_a_table_not_built() -> None:
    other = without(COMPILED_MODULE, 'ModuleNotFoundError("no libfoo", name="foo")')
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
