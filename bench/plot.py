"""The cost of an operation as timers grow more, drawn as an SVG.

Small and made by hand, so that it needs no library: a panel an operation, log-log, where a
flat line is O(1) and a rising one is not. Each line is named at its end, so no legend has
to be matched by colour, and the colours are told apart by colour-blind eyes too (Okabe and
Ito). No background is painted, and the text follows the reader's light or dark scheme.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from bench.row import Row

OPERATIONS = (
    ("insert", ("insert",)),
    ("cancel", ("cancel",)),
    ("expire, all due", ("expire",)),
)
"""Title of a panel, and the names of the rows that go into it."""
COLOURS = {
    "baseline": "#888888",
    "timingwheel": "#0072b2",
    "heapq + dict": "#d55e00",
    "SortedList + dict": "#009e73",
    "asyncio call_later": "#cc79a7",
    "uvloop call_later": "#56b4e9",
    "APScheduler, memory": "#8c564b",
    "sched": "#b8860b",
}
_OTHER_COLOUR = "#777777"
_STYLE = """
  text { font: 12px system-ui, sans-serif; fill: #333333; }
  .title { font-weight: 600; font-size: 13px; }
  .grid { stroke: #808080; stroke-opacity: 0.25; stroke-width: 1; }
  .line { fill: none; stroke-width: 2; stroke-linejoin: round; }
  .ours { stroke-width: 3.5; }
  @media (prefers-color-scheme: dark) { text { fill: #dddddd; } }
"""
_PANEL_WIDTH, _PANEL_HEIGHT = 190, 230
_LABEL_WIDTH = 120
_LEFT, _TOP, _BOTTOM = 70, 34, 46
_LABEL_STEP = 13.0


@dataclass(frozen=True, slots=True)
class _Line:
    peer: str
    points: list[tuple[int, float]]
    """(timers, nanoseconds), by timers."""


@dataclass(frozen=True, slots=True)
class _Scale:
    """From figures to places, both axes logarithmic."""

    timers: tuple[int, int]
    ns: tuple[float, float]

    def x(self, timers: float) -> float:
        return _share(timers, self.timers) * _PANEL_WIDTH

    def y(self, ns: float) -> float:
        return (1 - _share(ns, self.ns)) * _PANEL_HEIGHT


def wheel_costs(rows: Sequence[Row]) -> str | None:
    """Return the plot of the wheel's rows as SVG text.

    Returns:
        None if there are not two sizes to draw a line between.
    """
    panels = [(title, _lines(rows, names)) for title, names in OPERATIONS]
    sizes = {
        timers for _, lines in panels for line in lines for timers, _ in line.points
    }
    costs = [ns for _, lines in panels for line in lines for _, ns in line.points]
    if len(sizes) < 2:
        return None
    scale = _Scale((min(sizes), max(sizes)), _decades(costs))
    step = _PANEL_WIDTH + _LABEL_WIDTH + 20
    width = _LEFT + step * len(panels)
    height = _TOP + _PANEL_HEIGHT + _BOTTOM
    size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">',
        "<title>Cost of an operation by the number of pending timers</title>",
        f"<style>{_STYLE}</style>",
    ]
    for at, (title, lines) in enumerate(panels):
        parts.append(f'<g transform="translate({_LEFT + at * step} {_TOP})">')
        parts += _axes(scale, sorted(sizes), title, numbered=at == 0)
        parts += _curves(scale, lines)
        parts.append("</g>")
    middle = _TOP + _PANEL_HEIGHT / 2
    parts.append(
        f'<text transform="translate(14 {middle}) rotate(-90)" text-anchor="middle">'
        "processor time an operation</text>"
    )
    return "\n".join([*parts, "</svg>", ""])


def timers_of(group: str) -> int | None:
    """Return how many timers a group of the wheel's has, uniform; None for others."""
    found = re.fullmatch(r"wheel, ([\d,]+) timers", group)
    return int(found[1].replace(",", "")) if found else None


def _lines(rows: Sequence[Row], names: Sequence[str]) -> list[_Line]:
    points: dict[str, list[tuple[int, float]]] = {}
    for row in rows:
        timers = timers_of(row.group)
        if row.name in names and row.unit == "ns" and timers is not None:
            points.setdefault(row.peer, []).append((timers, row.ns_per_op))
    return [_Line(peer, sorted(found)) for peer, found in points.items()]


def _share(figure: float, ends: tuple[float, float]) -> float:
    low, high = map(math.log10, ends)
    return (math.log10(figure) - low) / (high - low)


def _decades(figures: Sequence[float]) -> tuple[float, float]:
    """Return the powers of ten between which all figures lie."""
    low = math.floor(math.log10(min(figures)))
    high = math.ceil(math.log10(max(figures)))
    return 10.0**low, 10.0 ** max(high, low + 1)


def _axes(
    scale: _Scale, sizes: Sequence[int], title: str, *, numbered: bool
) -> list[str]:
    parts = [f'<text class="title" x="0" y="-14">{escape(title)}</text>']
    low, high = (round(math.log10(end)) for end in scale.ns)
    for power in range(low, high + 1):
        y = scale.y(10.0**power)
        parts.append(
            f'<line class="grid" x1="0" x2="{_PANEL_WIDTH}" y1="{y:.1f}" y2="{y:.1f}"/>'
        )
        if numbered:
            parts.append(
                f'<text x="-8" y="{y + 4:.1f}" text-anchor="end">'
                f"{_duration(10.0**power)}</text>"
            )
    for timers in sizes:
        x = scale.x(timers)
        parts.append(
            f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="0" y2="{_PANEL_HEIGHT}"/>'
        )
        parts.append(
            f'<text x="{x:.1f}" y="{_PANEL_HEIGHT + 18}" text-anchor="middle">'
            f"{_count(timers)}</text>"
        )
    parts.append(
        f'<text x="{_PANEL_WIDTH / 2}" y="{_PANEL_HEIGHT + 36}" text-anchor="middle">'
        "pending timers</text>"
    )
    return parts


def _curves(scale: _Scale, lines: Sequence[_Line]) -> list[str]:
    parts = []
    ends = []
    for line in lines:
        colour = COLOURS.get(line.peer, _OTHER_COLOUR)
        places = [(scale.x(timers), scale.y(ns)) for timers, ns in line.points]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        kind = "line ours" if line.peer == "timingwheel" else "line"
        if len(places) > 1:
            parts.append(
                f'<polyline class="{kind}" stroke="{colour}" points="{path}"/>'
            )
        parts += [
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>'
            for x, y in places
        ]
        ends.append((places[-1], line.peer, colour))
    return parts + _labels(ends)


def _labels(ends: Sequence[tuple[tuple[float, float], str, str]]) -> list[str]:
    """Name the lines at their ends, pushed apart where they would overlap."""
    parts = []
    edge = _PANEL_WIDTH + 10
    free_from = -math.inf
    for (x, y), peer, colour in sorted(ends, key=lambda end: end[0][1]):
        if x < _PANEL_WIDTH - 1:  # it ends early: a leader to the edge would look real
            parts.append(f'<text x="{x + 7:.1f}" y="{y - 5:.1f}">{escape(peer)}</text>')
            continue
        at = max(y, free_from)
        free_from = at + _LABEL_STEP
        parts.append(
            f'<line x1="{x + 4:.1f}" y1="{y:.1f}" x2="{edge - 2}" y2="{at:.1f}" '
            f'stroke="{colour}" stroke-width="0.75"/>'
        )
        parts.append(f'<text x="{edge}" y="{at + 4:.1f}">{escape(peer)}</text>')
    return parts


def _duration(ns: float) -> str:
    for unit, size in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if ns >= size:
            return f"{ns / size:g} {unit}"
    return f"{ns:g} ns"


def _count(timers: int) -> str:
    for unit, size in (("M", 1_000_000), ("k", 1_000)):
        if timers >= size:
            return f"{timers / size:g}{unit}"
    return str(timers)
