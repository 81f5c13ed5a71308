"""What `pip wheel` makes of the tree: with a compiler, without one, and with a fault."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TWINS = (
    "timingwheel/_wheel",
    "timingwheel/engine/_lane",
    "timingwheel/engine/_table",
    "wal/_codec",
    "wal/_plan",
)
ASK = "import timingwheel; print(timingwheel.COMPILED, timingwheel.__file__)"

pytestmark = pytest.mark.skipif(
    not (ROOT / "setup.py").exists(), reason="installed: there is no tree to build"
)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of what a build reads, without anything that was built before."""
    copy = tmp_path / "tree"
    built = shutil.ignore_patterns("__pycache__", "*.so", "*.egg-info", "out")
    for name in ("timingwheel", "wal", "bench"):
        shutil.copytree(ROOT / name, copy / name, ignore=built)
    for name in ("setup.py", "setup.cfg", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    return copy


def build(tree: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pip", "wheel", "--verbose", "--no-deps"]
    options = ["--no-build-isolation", "--wheel-dir", "dist", "."]
    return subprocess.run(
        [*command, *options],
        cwd=tree,
        env={**os.environ, "CFLAGS": "-O0", **environ},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


def installed(tree: Path) -> Path:
    """Where the one wheel that was built is installed, and nothing else."""
    (wheel,) = (tree / "dist").glob("*.whl")
    place = tree.parent / "installed"
    command = [sys.executable, "-m", "pip", "install", "--no-deps", "--no-index"]
    subprocess.run(
        [*command, "--no-compile", "--target", str(place), str(wheel)],
        capture_output=True,
        check=True,
    )
    return place


def answer(place: Path) -> list[str]:
    """Whether the compiled bodies serve of what is installed, and from where."""
    # Without `site`, whose .pth files would put the tree under test in front.
    libraries = sysconfig.get_path("platlib")
    done = subprocess.run(
        [sys.executable, "-S", "-c", ASK],
        cwd=place,
        env={**os.environ, "PYTHONPATH": f"{place}{os.pathsep}{libraries}"},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.split()


def test_a_wheel_holds_the_compiled_bodies_and_nothing_of_the_workshop(
    tree: Path,
) -> None:
    done = build(tree)
    assert done.returncode == 0, done.stdout
    place = installed(tree)
    for twin in TWINS:
        assert list(place.glob(f"{twin}.*.so")), twin
    names = {path.name for path in place.iterdir()}
    assert {name for name in names if not name.endswith(".dist-info")} == {
        "bin",  # with the command
        "timingwheel",
        "wal",
    }
    assert answer(place) == ["True", f"{place}/timingwheel/__init__.py"]


def test_without_a_compiler_the_plain_bodies_serve_and_the_build_says_so(
    tree: Path,
) -> None:
    done = build(tree, CC="/bin/false")
    assert done.returncode == 0, done.stdout
    assert "NOTE: no compiled bodies" in done.stdout
    place = installed(tree)
    assert not list(place.rglob("*.so"))
    assert answer(place) == ["False", f"{place}/timingwheel/__init__.py"]


@pytest.mark.parametrize(
    "twin",
    [
        # The first and the last that is translated; the others on the long run.
        pytest.param(
            twin, marks=() if twin in (TWINS[0], TWINS[-1]) else pytest.mark.long
        )
        for twin in TWINS
    ],
)
def test_a_mistake_in_the_cython_source_fails_the_build(tree: Path, twin: str) -> None:
    source = tree / f"{twin}.pyx"
    source.write_text(source.read_text() + "\ncdef int broken( nogil:\n")
    done = build(tree)
    assert done.returncode != 0
    assert f"{twin}.pyx" in done.stdout
    assert not list((tree / "dist").glob("*.whl"))
