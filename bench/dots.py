"""The rate of each durable operation by who did it, drawn as an SVG of dots on a log axis."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from bench.rounds import BASELINE, OURS, RATE
from bench.row import Row

COLOURS = {
    BASELINE: "#888888",
    OURS: "#0072b2",
    "SQLite FULL": "#d55e00",
    "LMDB": "#009e73",
    "Redis always": "#cc79a7",
    "beanstalkd -f 0": "#b8860b",
    "PostgreSQL": "#56b4e9",
}
"""Those who promise as much; the others are in the table alone."""
_STYLE = """
  text { font: 12px system-ui, sans-serif; fill: #333333; }
  .grid { stroke: #808080; stroke-opacity: 0.25; stroke-width: 1; }
  @media (prefers-color-scheme: dark) { text { fill: #dddddd; } }
"""
_LEFT, _TOP, _RIGHT, _BOTTOM = 190, 34, 20, 44
_WIDTH, _LINE = 560, 34
_LEGEND = 108


def durable_rates(rows: Sequence[Row]) -> str | None:
    """Return the plot of the durable rows as SVG text, None if there are none."""
    found = [row for row in rows if row.unit == RATE and row.peer in COLOURS]
    found = [row for row in found if row.group.startswith("durable")]
    if not found:
        return None
    names = list(dict.fromkeys(row.name for row in found))
    rates = [1e9 / row.ns_per_op for row in found]
    low = math.floor(math.log10(min(rates)))
    high = max(math.ceil(math.log10(max(rates))), low + 1)

    def x(rate: float) -> float:
        return _LEFT + (math.log10(rate) - low) / (high - low) * _WIDTH

    width, height = _LEFT + _WIDTH + _RIGHT, _TOP + _LINE * len(names) + _BOTTOM
    size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">',
        "<title>Durable timers a second, by who made them</title>",
        f"<style>{_STYLE}</style>",
    ]
    for at, (peer, colour) in enumerate(COLOURS.items()):
        left = 10 + at * _LEGEND
        parts.append(f'<circle cx="{left}" cy="14" r="5" fill="{colour}"/>')
        parts.append(f'<text x="{left + 9}" y="18">{escape(peer)}</text>')
    bottom = _TOP + _LINE * len(names)
    for power in range(low, high + 1):
        at_x = x(10.0**power)
        parts.append(
            f'<line class="grid" x1="{at_x:.1f}" x2="{at_x:.1f}" '
            f'y1="{_TOP}" y2="{bottom}"/>'
        )
        parts.append(
            f'<text x="{at_x:.1f}" y="{bottom + 18}" text-anchor="middle">'
            f"{10**power:,}</text>"
        )
    parts.append(
        f'<text x="{_LEFT + _WIDTH / 2}" y="{bottom + 36}" text-anchor="middle">'
        "timers a second</text>"
    )
    for line, name in enumerate(names):
        y = _TOP + _LINE * (line + 0.5)
        parts.append(
            f'<text x="{_LEFT - 12}" y="{y + 4}" text-anchor="end">{escape(name)}</text>'
        )
        parts.append(
            f'<line class="grid" x1="{_LEFT}" x2="{_LEFT + _WIDTH}" y1="{y}" y2="{y}"/>'
        )
        # Ours last, so that it is on top where dots lie on each other.
        for row in sorted(
            (row for row in found if row.name == name), key=lambda row: row.peer == OURS
        ):
            radius = 7 if row.peer == OURS else 5
            parts.append(
                f'<circle cx="{x(1e9 / row.ns_per_op):.1f}" cy="{y}" r="{radius}" '
                f'fill="{COLOURS[row.peer]}" fill-opacity="0.85"/>'
            )
    return "\n".join([*parts, "</svg>", ""])
