"""The page of benchmarks shows what the runs beside it say, and nothing older."""

from __future__ import annotations

import json
from pathlib import Path

from bench import soak_page
from bench.page import BEGIN, END, pages
from bench.rounds import OURS, RATE

DOCS = Path(__file__).resolve().parent.parent / "docs"


def test_tables_and_plots_are_made_of_the_json_beside_them() -> None:
    """If not: python -m bench.page."""
    for path, text in pages(DOCS):
        assert path.read_text(encoding="utf-8") == text, path


def test_only_what_stands_between_the_marks_is_written_anew(tmp_path: Path) -> None:
    (tmp_path / "benchmarks").mkdir()
    page = tmp_path / "benchmarks.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    about = {
        "date": "2026-01-01",
        "compiled": True,
        "full": True,
        "python": "CPython",
        "system": "Linux",
        "processors": 2,
        "processor": "a processor",
        "memory_gib": 24,
        "file_system": "ext4",
        "left_out": {"Redis": "not installed: get it"},
    }
    row = {
        "group": "durable, some",
        "name": "schedule",
        "peer": OURS,
        "ns_per_op": 1e5,
        "note": "",
        "unit": RATE,
    }
    run = {"about": about, "rows": [row]}
    (tmp_path / "benchmarks" / "durable.json").write_text(json.dumps(run))

    made = dict(pages(tmp_path))

    assert made[page].startswith("before\n")
    assert made[page].endswith("after\n")
    assert "old" not in made[page]
    assert "10,000" in made[page]
    assert "Not measured there: Redis" in made[page]
    assert "<svg" in made[tmp_path / "images" / "durable-rate.svg"]


def test_the_page_of_the_soak_is_made_of_its_json() -> None:
    """If not: python -m bench.soak_page."""
    for path, text in soak_page.render(DOCS):
        assert path.read_text(encoding="utf-8") == text, path
