"""Charts: what is drawn, that it can be read, and that no name breaks out of it."""

from __future__ import annotations

import pytest

from tests.server.dashboard.visitor import Element, _Reader
from timingwheel.server.dashboard.drawing import (
    HEIGHT,
    Cell,
    Column,
    Series,
    bars,
    lines,
    nice_top,
    strip,
)

GOOD, BAD = Series("good ones", "good"), Series("bad ones", "bad")


def read(svg: str) -> Element:
    reader = _Reader()
    reader.feed(svg)
    return reader.root


@pytest.mark.parametrize(
    ("highest", "top"),
    [(0, 1), (1, 1), (1.1, 2), (3, 5), (7, 10), (10, 10), (21, 25), (0.3 / 0.1, 5)],
)
def test_the_upper_edge_is_a_round_number_above_all(highest: float, top: float) -> None:
    assert nice_top(highest) == top


def test_bars_stand_on_each_other_and_the_highest_reaches_the_edge() -> None:
    made = bars(
        [Column("first", (3, 2)), Column("second", (0, 1))], (GOOD, BAD), label="x"
    )
    assert made.top == 5
    groups = read(made.svg).all("g")
    first = [
        (rect.attributes["class"], float(rect.attributes["y"]))
        for rect in groups[0].all("rect")
    ]
    assert first[:2] == [("fill-good", HEIGHT * 0.4), ("fill-bad", 0.0)]
    assert groups[0].one("title").text == "first"


def test_a_line_has_a_gap_where_nothing_is_known() -> None:
    rows: list[tuple[float | None, ...]] = [(1.0,), (2.0,), (None,), (4.0,)]
    made = lines(rows, (GOOD,), label="x", titles=["a", "b", "c", "d"])
    path = read(made.svg).one("path", class_="line-good").attributes["d"]
    assert path.count("M") == 2


def test_the_last_cell_of_a_strip_stands_at_the_right_edge() -> None:
    svg = strip([Cell("one", "good", 1.0, "/runs/1")], places=50, label="runs")
    root = read(svg)
    assert root.one("svg").attributes["viewbox"] == f"0 0 500 {HEIGHT}"
    link = root.one("a", href="/runs/1")
    assert float(link.all("rect")[-1].attributes["x"]) == 490


def test_names_are_escaped() -> None:
    evil = '"><script>alert(1)</script>'
    made = bars([Column(evil, (1,), href=evil)], (GOOD,), label=evil)
    assert "<script" not in made.svg
    assert not read(made.svg).all("script")
