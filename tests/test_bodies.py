"""Which body serves, and that the two have one interface and nothing to themselves."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import pytest

from tests.fresh_python import ROOT, run_python, without
from tests.wheel_bodies import CompiledWheel, needs_the_compiled_wheel
from timingwheel.wheel import TimerWheel

STUB = ROOT / "timingwheel" / "_wheel.pyi"

COMPILED_MODULE = "timingwheel._wheel"

WHICH = """
from timingwheel import COMPILED, TimerWheel
from timingwheel.engine import timeline
assert timeline.TimerWheel is TimerWheel
print(COMPILED, TimerWheel.__module__)
"""


@needs_the_compiled_wheel
def test_the_compiled_wheel_serves_when_it_was_built() -> None:
    assert run_python(WHICH).stdout == "True timingwheel._wheel\n"


def test_the_plain_wheel_serves_when_the_environment_asks_for_it() -> None:
    done = run_python(WHICH, TIMINGWHEEL_PURE="1")
    assert done.stdout == "False timingwheel.wheel\n", done.stderr


def test_the_plain_wheel_serves_when_the_other_was_not_built() -> None:
    missing = without(COMPILED_MODULE)
    done = run_python(missing + WHICH)
    assert done.stdout == "False timingwheel.wheel\n", done.stderr


def test_a_compiled_wheel_that_does_not_load_says_what_to_do() -> None:
    broken = without(COMPILED_MODULE, 'ImportError("undefined symbol", name=name)')
    done = run_python(broken + WHICH)
    assert done.returncode == 1
    assert "does not load (undefined symbol)" in done.stderr
    assert "TIMINGWHEEL_PURE=1" in done.stderr

    done = run_python(broken + WHICH, TIMINGWHEEL_PURE="1")
    assert done.stdout == "False timingwheel.wheel\n", done.stderr


def test_something_else_that_is_missing_is_not_taken_for_a_wheel_not_built() -> None:
    other = without(COMPILED_MODULE, 'ModuleNotFoundError("no libfoo", name="foo")')
    assert "ModuleNotFoundError: no libfoo" in run_python(other + WHICH).stderr


@needs_the_compiled_wheel
@pytest.mark.parametrize(
    "module",
    [
        "timingwheel._wheel",
        "timingwheel.engine._lane",
        "timingwheel.engine._table",
        "wal._codec",
        "wal._plan",
    ],
)
def test_the_package_is_compiled_only_if_all_of_it_is(module: str) -> None:
    missing = without(COMPILED_MODULE)
    missing = missing.replace("timingwheel._wheel", module)
    done = run_python(missing + "import timingwheel; print(timingwheel.COMPILED)")
    assert done.stdout == "False\n", done.stderr


def public_names(body: type) -> set[str]:
    return {name for name in dir(body) if not name.startswith("_")}


@needs_the_compiled_wheel
def test_what_one_body_has_the_other_has_too() -> None:
    assert public_names(CompiledWheel) == public_names(TimerWheel)


@needs_the_compiled_wheel
@pytest.mark.parametrize("name", sorted(public_names(TimerWheel) - {"now_tick"}))
def test_a_method_takes_the_same_arguments_on_both_bodies(name: str) -> None:
    def arguments(body: type) -> list[tuple[str, object]]:
        parameters = inspect.signature(getattr(body, name)).parameters.values()
        return [(each.name, each.default) for each in parameters]

    assert arguments(CompiledWheel) == arguments(TimerWheel)
    assert inspect.getdoc(getattr(CompiledWheel, name))


def declared(source: Path) -> dict[str, str]:
    """The public methods of TimerWheel in a file, as `name: parameters -> type`."""
    (body,) = (
        node
        for node in ast.parse(source.read_text()).body
        if isinstance(node, ast.ClassDef) and node.name == "TimerWheel"
    )
    return {
        node.name: f"{ast.unparse(node.args)} -> {ast.unparse(node.returns)}"
        for node in body.body
        if isinstance(node, ast.FunctionDef) and node.returns is not None
        if not node.name.startswith("_")
    }


def test_the_stub_says_of_the_compiled_wheel_what_the_plain_one_says() -> None:
    plain = declared(ROOT / "timingwheel" / "wheel.py")

    assert set(plain) == public_names(TimerWheel)
    assert declared(STUB) == plain


def test_whoever_wants_the_wheel_gets_it_from_bodies() -> None:
    own = {"timingwheel/bodies.py", "timingwheel/wheel.py"}
    found = [
        path.relative_to(ROOT).as_posix()
        for package in ("timingwheel", "wal", "bench")
        for path in (ROOT / package).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom)
        and node.module in {"timingwheel.wheel", "timingwheel._wheel"}
        and any(alias.name == "TimerWheel" for alias in node.names)
    ]
    assert set(found) - own == set()
