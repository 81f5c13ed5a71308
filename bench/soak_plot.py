"""A soak drawn as an SVG: panels over the hours, one below the other, kills as marks.

Linear axes that begin at 0, so that what is flat looks flat; durations are logarithmic.
Colours as in `bench.plot`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

_STYLE: Final = """
  text { font: 12px system-ui, sans-serif; fill: #333333; }
  .title { font-weight: 600; font-size: 13px; }
  .grid { stroke: #808080; stroke-opacity: 0.25; stroke-width: 1; }
  .kill { stroke: #d55e00; stroke-opacity: 0.35; stroke-width: 1; }
  .line { fill: none; stroke-width: 1.5; stroke-linejoin: round; }
  @media (prefers-color-scheme: dark) { text { fill: #dddddd; } }
"""
_COLOURS: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7")
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 20, 30, 44
_WIDTH, _HEIGHT, _GAP = 720, 110, 44
_LEGEND_STEP: Final = 110
_DECADES_MIN: Final = 2


@dataclass(frozen=True, slots=True)
class Panel:
    """Lines over time.

    Attributes:
        title: with the unit.
        lines: name -> (seconds, figure) by time; None leaves a gap.
        logarithmic: else from 0.
    """

    title: str
    lines: dict[str, Sequence[tuple[float, float | None]]]
    logarithmic: bool = False


def over_time(title: str, panels: Sequence[Panel], kills_s: Sequence[float]) -> str:
    """Return the drawing as SVG text.

    Args:
        title: for who cannot see it.
        panels: from top to bottom, each with some figure.
        kills_s: moments that are marked in all of them.
    """
    end_s = max(
        at for panel in panels for line in panel.lines.values() for at, _ in line
    )
    height = _TOP + (_HEIGHT + _GAP) * len(panels) - _GAP + _BOTTOM
    width = _LEFT + _WIDTH + _RIGHT

    def x(at_s: float) -> float:
        return at_s / end_s * _WIDTH

    size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">',
        f"<title>{escape(title)}</title>",
        f"<style>{_STYLE}</style>",
    ]
    for number, panel in enumerate(panels):
        top = _TOP + number * (_HEIGHT + _GAP)
        parts.append(f'<g transform="translate({_LEFT} {top})">')
        parts += [
            f'<line class="kill" x1="{x(at):.1f}" x2="{x(at):.1f}" y1="0" y2="{_HEIGHT}"/>'
            for at in kills_s
        ]
        parts += _panel(panel, x)
        parts.append("</g>")
    parts += _minutes(end_s, x, height - _BOTTOM)
    return "\n".join([*parts, "</svg>", ""])


def _panel(panel: Panel, x: Callable[[float], float]) -> list[str]:
    figures = [
        figure
        for line in panel.lines.values()
        for _, figure in line
        if figure is not None
    ]
    y, marks = (_decades if panel.logarithmic else _from_zero)(figures)
    parts = [f'<text class="title" x="0" y="-10">{escape(panel.title)}</text>']
    for mark in marks:
        parts.append(
            f'<line class="grid" x1="0" x2="{_WIDTH}" y1="{y(mark):.1f}" '
            f'y2="{y(mark):.1f}"/>'
        )
        parts.append(
            f'<text x="-8" y="{y(mark) + 4:.1f}" text-anchor="end">{mark:,g}</text>'
        )
    legend = _WIDTH - _LEGEND_STEP * len(panel.lines)
    for (name, line), colour in zip(panel.lines.items(), _COLOURS, strict=False):
        if len(panel.lines) > 1:
            parts.append(
                f'<circle cx="{legend}" cy="-14" r="5" fill="{colour}"/>'
                f'<text x="{legend + 9}" y="-10">{escape(name)}</text>'
            )
            legend += _LEGEND_STEP
        parts += [
            f'<polyline class="line" stroke="{colour}" points="{piece}"/>'
            for piece in _pieces(line, x, y)
        ]
    return parts


def _pieces(
    line: Sequence[tuple[float, float | None]],
    x: Callable[[float], float],
    y: Callable[[float], float],
) -> list[str]:
    pieces: list[list[str]] = [[]]
    for at_s, figure in line:
        if figure is None:
            pieces.append([])
        else:
            pieces[-1].append(f"{x(at_s):.1f},{y(figure):.1f}")
    return [" ".join(piece) for piece in pieces if piece]


def _from_zero(
    figures: Sequence[float],
) -> tuple[Callable[[float], float], list[float]]:
    high = max(*figures, 1e-9)
    step = 10.0 ** math.floor(math.log10(high))
    step *= next(
        part for part in (0.2, 0.5, 1.0, 2.0, 5.0) if high / (part * step) <= 5
    )
    top = step * math.ceil(high / step)
    return (
        lambda figure: _HEIGHT * (1 - figure / top),
        [step * mark for mark in range(round(top / step) + 1)],
    )


def _decades(figures: Sequence[float]) -> tuple[Callable[[float], float], list[float]]:
    positive = [figure for figure in figures if figure > 0] or [1.0]
    low = math.floor(math.log10(min(positive)))
    high = max(math.ceil(math.log10(max(positive))), low + _DECADES_MIN)
    return (
        lambda figure: (
            _HEIGHT * (1 - (math.log10(max(figure, 10.0**low)) - low) / (high - low))
        ),
        [10.0**power for power in range(low, high + 1)],
    )


def _minutes(end_s: float, x: Callable[[float], float], bottom: float) -> list[str]:
    minutes = end_s / 60
    step = next(step for step in (0.5, 1, 2, 5, 10, 30, 60, 1e9) if minutes / step <= 8)
    parts = []
    for mark in range(int(minutes / step) + 1):
        at = _LEFT + x(mark * step * 60)
        parts.append(
            f'<text x="{at:.1f}" y="{bottom + 18:.1f}" text-anchor="middle">'
            f"{mark * step:g}</text>"
        )
    middle = _LEFT + _WIDTH / 2
    title = (
        f'<text x="{middle}" y="{bottom + 36:.1f}" text-anchor="middle">'
        "minutes; each mark is a kill -9</text>"
    )
    return [*parts, title]
