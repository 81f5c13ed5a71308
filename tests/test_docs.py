"""The pages say what is there: their links lead somewhere, their tests exist."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

LINK = re.compile(r"\]\(([^)\s]+)\)")
TEST = re.compile(r"`(test_\w+)`")
TEST_PLACE = re.compile(r"`(tests/[\w/.]*)`")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


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
    assert not leads_nowhere(page, "docs/guarantees.md#damage")


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_test_that_a_page_names_is_there(page: Path) -> None:
    sources = [path.read_text() for path in (ROOT / "tests").rglob("test_*.py")]
    there = set(re.findall(r"def (test_\w+)", "\n".join(sources)))
    text = page.read_text()
    assert [name for name in TEST.findall(text) if name not in there] == []
    assert [p for p in TEST_PLACE.findall(text) if not (ROOT / p).exists()] == []


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
    assert "KEPT" in done.stdout
    assert list(tmp_path.iterdir()) == []
