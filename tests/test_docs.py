"""The pages say what is there: links lead somewhere, tests exist, programs do so.

Marks of a block of code, after its language:

    python run          run by tests/test_house.py, all of a page as one program
    python file=NAME    written to that file
    sh run              run where those files are; a `text` block after it shows lines of
                        its output, in order, with `...` for what is different each time
    needs=MODULE        only where that module is installed

A server's port on a page is 8765, and a free one where a test follows the page. A page
that reads DATABASE_URL has a database of its own.

All other Python is compiled.
"""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest

from tests.postgres import Postgres

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

DATABASE = "DATABASE_URL"
LINK = re.compile(r"\]\(([^)\s]+)\)")
TEST = re.compile(r"`(test_\w+)`")
TEST_PLACE = re.compile(r"`(tests/[\w/.]*)`")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
BLOCK = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def anchors(page: Path) -> set[str]:
    """The anchors that a reader's browser is given for the headings of a page."""
    headings = [heading.lower() for heading in HEADING.findall(page.read_text())]
    return {re.sub(r"[^\w\- ]", "", heading).replace(" ", "-") for heading in headings}


def leads_nowhere(page: Path, link: str) -> bool:
    if "://" in link:
        return False
    file, _, anchor = link.partition("#")
    target = (page.parent / file).resolve() if file else page
    if not target.exists():
        return True
    return bool(anchor) and anchor not in anchors(target)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_link_leads_somewhere(page: Path) -> None:
    links = LINK.findall(page.read_text())
    assert [link for link in links if leads_nowhere(page, link)] == []


def test_a_link_to_nowhere_is_seen() -> None:
    page = ROOT / "README.md"
    assert leads_nowhere(page, "docs/nothing.md")
    assert leads_nowhere(page, "docs/guarantees.md#nothing")
    assert not leads_nowhere(page, "docs/guarantees.md#misfires")


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_test_that_a_page_names_is_there(page: Path) -> None:
    sources = [path.read_text() for path in (ROOT / "tests").rglob("test_*.py")]
    there = set(re.findall(r"def (test_\w+)", "\n".join(sources)))
    text = page.read_text()
    assert [name for name in TEST.findall(text) if name not in there] == []
    assert [p for p in TEST_PLACE.findall(text) if not (ROOT / p).exists()] == []


class Block(NamedTuple):
    language: str
    marks: list[str]
    text: str

    def mark(self, name: str) -> str | None:
        for mark in self.marks:
            key, _, value = mark.partition("=")
            if key == name:
                return value
        return None


def blocks(text: str) -> list[Block]:
    return [Block(m[1], m[2].split(), m[3]) for m in BLOCK.finditer(text)]


def needed(page: Path) -> set[str]:
    return {need for b in blocks(page.read_text()) if (need := b.mark("needs"))}


def shown(expected: str, output: str) -> bool:
    """Whether the output has these lines, in this order, among others."""
    lines = iter(output.splitlines())
    for line in expected.splitlines():
        wanted = re.compile(".*".join(map(re.escape, line.split("..."))))
        if not any(wanted.fullmatch(found.rstrip()) for found in lines):
            return False
    return True


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


def follow(text: str, directory: Path, **variables: str) -> list[str]:
    """Do what a page says; return what came out otherwise than it says."""
    wrong, output, port = [], "", str(free_port())
    text = text.replace("timingwheel serve ", f"timingwheel serve --port {port} ")
    text = text.replace("127.0.0.1:8765", f"127.0.0.1:{port}")
    with contextlib.ExitStack() as ends:
        for block in blocks(text):
            file = block.mark("file")
            if file is not None:
                (directory / file).parent.mkdir(parents=True, exist_ok=True)
                (directory / file).write_text(block.text)
            elif block.language == "sh" and "run" in block.marks:
                code, output = run_shell(block.text, directory, ends, variables)
                if code != 0:
                    wrong.append(f"{block.text}ended with {code}:\n{output}")
            elif block.language == "text" and not shown(block.text, output):
                wrong.append(f"this was to be shown:\n{block.text}in this:\n{output}")
    return wrong


def run_shell(
    text: str,
    directory: Path,
    ends: contextlib.ExitStack,
    variables: dict[str, str],
) -> tuple[int, str]:
    """Run a block; what it leaves running goes on until `ends` closes."""
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    shell = subprocess.Popen(
        ["bash", "-eu", "-c", text],
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        cwd=directory,
        env={
            "PYTHONPATH": str(ROOT),
            "PATH": path,
            "HOME": str(directory),
            **variables,
        },
        start_new_session=True,
    )
    ends.callback(end_session, shell.pid)
    output, _ = shell.communicate(timeout=110)
    return shell.returncode, output


def end_session(leader: int) -> None:
    """End what a shell has left behind."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)


PROGRAMS = [
    page
    for page in PAGES
    if any(block.language == "sh" for block in blocks(page.read_text()))
]


@pytest.mark.parametrize("page", PROGRAMS, ids=name_of)
def test_what_a_page_tells_to_do_does_what_it_says(
    page: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    missing = [name for name in needed(page) if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")
    text, variables = page.read_text(), {}
    if DATABASE in text:
        postgres: Postgres = request.getfixturevalue("postgres")
        variables[DATABASE] = postgres.new_schema()
    assert follow(text, tmp_path, **variables) == []


def test_a_page_that_does_not_do_what_it_says_is_seen(tmp_path: Path) -> None:
    page = "```python file=a.py\nprint(1)\nprint(2)\n```\n```sh run\npython a.py\n```\n"
    assert follow(page + "```text\n1\n2\n```\n", tmp_path) == []
    assert follow(page + "```text\n2\n1\n```\n", tmp_path)
    assert follow(page + "```text\n1...\n3\n```\n", tmp_path)
    assert follow(page + "```sh run\nfalse\n```\n", tmp_path)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_python_block_is_python(page: Path) -> None:
    """Those that no test runs, for want of a library, at least compile."""
    for block in blocks(page.read_text()):
        if block.language == "python" and "reference" not in page.parts:
            ast.parse(block.text, filename=name_of(page))


# ------------------------------------------------------------------- what pages promise


def test_every_case_that_is_reported_elsewhere_has_its_test() -> None:
    text = (ROOT / "docs/guarantees.md").read_text()
    cases = text.partition("## What is reported of other schedulers")[2]
    rows = [row for row in cases.splitlines() if row.startswith("| ")][1:]
    assert len(rows) == 24
    assert [row for row in rows if not TEST.search(row)] == []


def test_every_promise_has_its_test() -> None:
    """Rows of tables whose last column says "held by"."""
    text = (ROOT / "docs/guarantees.md").read_text()
    unheld, is_held = [], False
    for line in text.splitlines():
        if line.endswith("| held by |"):
            is_held = True
        elif not line.startswith("|"):
            is_held = False
        elif is_held and not line.startswith("|---") and not TEST.search(line):
            unheld.append(line)
    assert unheld == []


def generator() -> ModuleType:
    path = ROOT / "docs/reference/make.py"
    spec = importlib.util.spec_from_file_location("docs_reference_make", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_reference_and_the_states_are_those_of_the_source() -> None:
    """If not: python docs/reference/make.py."""
    written: Callable[[], dict[Path, str]] = generator().written
    assert [
        name_of(path) for path, text in written().items() if path.read_text() != text
    ] == []


def test_the_reference_has_every_name_that_the_package_exports() -> None:
    import timingwheel

    index = (ROOT / "docs/reference/README.md").read_text()
    left_out = {"COMPILED", "TimerId"}
    told = set(re.findall(r"\[(\w+)\]", index))
    assert set(timingwheel.__all__) - told == left_out


def test_the_states_page_has_every_state_and_reason() -> None:
    from timingwheel.jobs.model import JobState, Outcome, RunState, SkipReason

    text = (ROOT / "docs/states.md").read_text()
    words = [*RunState, *JobState, *SkipReason, *Outcome]
    assert [word for word in words if f"`{word}`" not in text] == []


def test_every_transition_of_a_run_is_on_the_states_page() -> None:
    from timingwheel.jobs.states import TRANSITIONS

    text = (ROOT / "docs/states.md").read_text()
    table = text.partition("| from | to | because |\n|---|---|---|\n")[2]
    assert table.partition("\n\n")[0].splitlines() == [
        f"| {step.before} | {step.after} | {step.cause} |" for step in TRANSITIONS
    ]


@pytest.mark.parametrize("room", ["jobs", "stores", "scheduler"])
def test_the_architecture_names_every_file_of_a_room(room: str) -> None:
    text = (ROOT / "docs/architecture.md").read_text()
    named = re.findall(r"`([\w*]+\.py)`", text)
    files = [path.name for path in (ROOT / "timingwheel" / room).glob("[a-z]*.py")]
    assert len(files) > 10
    assert [f for f in files if not any(map(partial(fnmatch, f), named))] == []


# ------------------------------------------------------------------- the demonstration


def test_the_demonstration_finds_every_promise_kept(tmp_path: Path) -> None:
    """As `make run`, with fewer timers; its exit code is its verdict."""
    script = ROOT / "docs/examples/demonstration.py"
    done = subprocess.run(
        [sys.executable, script, "--timers", "10000", "--place", tmp_path],
        text=True,
        capture_output=True,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the job that was killed has run again" in done.stdout
    assert "every acknowledged timer is there" in done.stdout
    assert "KEPT" in done.stdout
    assert list(tmp_path.iterdir()) == []
