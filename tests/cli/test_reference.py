"""The page on the command line says what the commands say."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

from tests.cli.test_root import verbs

REFERENCE = Path(__file__).resolve().parents[2] / "docs" / "reference"


def generator() -> ModuleType:
    path = REFERENCE / "make_cli.py"
    spec = importlib.util.spec_from_file_location("docs_reference_make_cli", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_that_of_the_commands() -> None:
    """If not: python docs/reference/make_cli.py."""
    assert (REFERENCE / "cli.md").read_text() == generator().page()


def test_the_page_has_every_command() -> None:
    page = (REFERENCE / "cli.md").read_text()
    assert [path for path, _ in verbs() if f"# {path}\n" not in page] == []
