"""docs/reliability-cases.md has each case that was collected, and a test for each."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reliability-cases.md"
LOG = (1, 2, 3, 4, 6, 7, 8, 10, 11, 12, 13, 15, 16, 17, 19, 21, 22, 24)
WHEEL = (
    *(1, 2, 3, 4, 6, 7, 8, 10, 11, 13, 14, 15, 16, 17, 19, 20, 21, 23, 24, 25, 27, 28),
    *(30, 31, 32, 34, 35),
)
ROW = re.compile(r"^\| (\d+) \|.*\|([^|]*)\|$", re.MULTILINE)


@pytest.mark.parametrize(
    ("heading", "numbers"),
    [("Log, snapshot and recovery", LOG), ("Wheel and tick thread", WHEEL)],
    ids=["log", "wheel"],
)
def test_each_case_has_a_row_with_a_test(
    heading: str, numbers: tuple[int, ...]
) -> None:
    """That the tests are there, tests/test_docs.py holds."""
    _, _, part = PAGE.read_text(encoding="utf-8").partition(f"\n## {heading}\n")
    rows = ROW.findall(part.partition("\n## ")[0])
    assert tuple(int(number) for number, _ in rows) == numbers
    assert [number for number, tests in rows if "`test_" not in tests] == []
