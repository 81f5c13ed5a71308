"""Which bodies of the log serve, and that the two have one interface."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import pytest

from tests.fresh_python import ROOT, run_python, without
from tests.wal.codec_bodies import (
    COMPILED,
    PLAIN,
    CompiledPlan,
    needs_the_compiled_codec,
)
from wal.plan import FramePlan, PendingFrame

FUNCTIONS = {
    "chain_of": "frame",
    "encode_records": "frame",
    "encode_frame": "frame",
    "read_frames": "runs",
}

WHICH = """
from wal import bodies, log, reader, writer
assert log.encode_records is bodies.encode_records
assert reader.read_frames is bodies.read_frames
assert writer.encode_frame is bodies.encode_frame
assert log.FramePlan is bodies.FramePlan
print(bodies.COMPILED, bodies.encode_frame.__module__, bodies.FramePlan.__module__)
"""

# Frames made and read back, some of them masked, large or of many records.
ROUND_TRIP = """
from tests.wal.codec_bodies import COMPILED, PLAIN
from tests.wal.test_runs import read, three_frames
from wal.checksum import IMPLEMENTATION, native_address
segment = three_frames()
segment.add(*[b"x" * 100] * 20)
frames = [
    codec.encode_frame(bytes(5000), record_count=1, first_lsn=1, durable_lsn=0,
                       wall_ns=1, chain_crc=2, flags=0, seed=3, offset=64)
    for codec in (PLAIN, COMPILED)
]
assert frames[0] == frames[1]
place, group = read(COMPILED, segment)
assert (place, group) == read(PLAIN, segment)
segment.data[segment.starts[-1] + 70] ^= 1
assert read(COMPILED, segment) == read(PLAIN, segment)
print(IMPLEMENTATION, native_address() != 0, group.record_count)
"""


@needs_the_compiled_codec
def test_the_compiled_codec_serves_when_it_was_built() -> None:
    done = run_python(WHICH)
    assert done.stdout == "True wal._codec wal._plan\n", done.stderr


def test_the_plain_codec_serves_when_the_environment_asks_for_it() -> None:
    done = run_python(WHICH, TIMINGWHEEL_PURE="1")
    assert done.stdout == "False wal.frame wal.plan\n", done.stderr


@pytest.mark.parametrize("module", ["wal._codec", "wal._plan"])
def test_the_plain_bodies_serve_when_the_others_were_not_built(module: str) -> None:
    missing = without(module)
    done = run_python(missing + WHICH)
    assert done.stdout == "False wal.frame wal.plan\n", done.stderr


def test_a_compiled_codec_that_does_not_load_says_what_to_do() -> None:
    broken = without("wal._codec", 'ImportError("undefined symbol", name=name)')
    done = run_python(broken + WHICH)
    assert done.returncode == 1
    assert "does not load (undefined symbol)" in done.stderr
    assert "TIMINGWHEEL_PURE=1" in done.stderr


def test_something_else_that_is_missing_is_not_taken_for_a_codec_not_built() -> None:
    other = without("wal._codec", 'ModuleNotFoundError("no libfoo", name="foo")')
    assert "ModuleNotFoundError: no libfoo" in run_python(other + WHICH).stderr


@needs_the_compiled_codec
@pytest.mark.parametrize(
    ("missing", "found"),
    [
        ("no module", "hardware True 25"),
        ("ctypes", "hardware False 25"),
        ("google_crc32c", "portable False 25"),
    ],
)
def test_the_compiled_codec_sums_by_whatever_there_is(missing: str, found: str) -> None:
    """By the C function, by the extension's call, and by the portable body."""
    lacking = without(missing, 'ImportError("no", name=name)')
    done = run_python(lacking + ROUND_TRIP)
    assert done.stdout.strip() == found, done.stderr


@needs_the_compiled_codec
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_takes_the_same_arguments_on_both_bodies(name: str) -> None:
    def arguments(function: object) -> list[tuple[object, ...]]:
        assert callable(function)
        parameters = inspect.signature(function).parameters.values()
        return [(each.name, each.kind, each.default) for each in parameters]

    assert arguments(getattr(COMPILED, name)) == arguments(getattr(PLAIN, name))
    assert inspect.getdoc(getattr(COMPILED, name))


def declared(source: Path) -> dict[str, str]:
    """The functions of a file, as `name: parameters -> type`."""
    return {
        node.name: f"{ast.unparse(node.args)} -> {ast.unparse(node.returns)}"
        for node in ast.parse(source.read_text()).body
        if isinstance(node, ast.FunctionDef) and node.returns is not None
    }


def test_the_stub_says_of_the_compiled_codec_what_the_plain_one_says() -> None:
    stub = declared(ROOT / "wal" / "_codec.pyi")
    plain = {
        name: declared(ROOT / "wal" / f"{module}.py")[name]
        for name, module in FUNCTIONS.items()
    }
    assert stub == plain


def public_names(body: type) -> set[str]:
    return {name for name in dir(body) if not name.startswith("_")}


@needs_the_compiled_codec
def test_what_one_body_of_the_plan_has_the_other_has_too() -> None:
    attributes = {"next_lsn", "bytes_waiting", "records_waiting", "bytes_written"}
    assert public_names(CompiledPlan) == public_names(FramePlan) | attributes
    for name in ("add", "take", "written"):
        of_plain = inspect.signature(getattr(FramePlan, name)).parameters.values()
        of_other = inspect.signature(getattr(CompiledPlan, name)).parameters.values()
        plain, other = (
            [(each.name, each.kind, each.default) for each in parameters]
            for parameters in (of_plain, of_other)
        )
        assert other[1:] == plain[1:]
        assert inspect.getdoc(getattr(CompiledPlan, name))


@pytest.mark.parametrize("body", [FramePlan, PendingFrame])
def test_the_stub_says_of_the_compiled_plan_what_the_plain_one_says(body: type) -> None:
    def methods(file: str) -> dict[str, str]:
        (found,) = (
            node
            for node in ast.parse((ROOT / "wal" / file).read_text()).body
            if isinstance(node, ast.ClassDef) and node.name == body.__name__
        )
        return {
            node.name: f"{ast.unparse(node.args)} -> {ast.unparse(node.returns)}"
            for node in found.body
            if isinstance(node, ast.FunctionDef) and node.returns is not None
            if node.name == "__init__" or not node.name.startswith("_")
        }

    assert methods("_plan.pyi") == methods("plan.py")


def test_whoever_wants_the_codec_gets_it_from_bodies() -> None:
    found = [
        path.relative_to(ROOT).as_posix()
        for package in ("timingwheel", "wal", "bench")
        for path in (ROOT / package).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom)
        and node.module
        in {"wal.frame", "wal.runs", "wal._codec", "wal.plan", "wal._plan"}
        and any(alias.name in {*FUNCTIONS, "FramePlan"} for alias in node.names)
    ]
    assert set(found) == {"wal/bodies.py", "wal/runs.py"}  # a plain body uses another
