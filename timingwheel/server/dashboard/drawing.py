"""Charts as SVG, drawn here: bars, lines and strips of cells.

A drawing stretches to the width that it is given, and its strokes do not; so all text
stands beside it as HTML. Colours are classes of the style sheet. Whatever is drawn can be
read too: each part has a title, and a chart says in words what it shows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

from markupsafe import Markup

HEIGHT: Final = 100
_STEP: Final = 10
_GAP: Final = 2
_NICE: Final = (1, 2, 2.5, 5, 10)


class Series(NamedTuple):
    """One kind of bar or one line.

    Attributes:
        name: what it is.
        tone: its colour: good, bad, warn, busy, idle or accent.
    """

    name: str
    tone: str


class Column(NamedTuple):
    """One place on the time axis of a bar chart.

    Attributes:
        title: shown while the pointer is over it.
        values: one for each series, from the ground up.
        href: where it leads; "" for nowhere.
    """

    title: str
    values: tuple[float, ...]
    href: str = ""


class Cell(NamedTuple):
    """One cell of a strip.

    Attributes:
        title: shown while the pointer is over it.
        tone: its colour.
        share: of the height, 0 to 1.
        href: where it leads.
    """

    title: str
    tone: str
    share: float
    href: str


class Chart(NamedTuple):
    """A drawing and the words beside it.

    Attributes:
        svg: the drawing.
        top: what its upper edge means, 0 being the lower.
        series: which there are, for the legend.
    """

    svg: Markup
    top: float
    series: Sequence[Series]


def nice_top(highest: float, *, least: float = 1.0) -> float:
    """Return a round number at or above the highest value: 1, 2, 2.5 or 5 times 10^n."""
    highest = max(highest, least)
    scale = 10.0 ** math.floor(math.log10(highest))
    # A hair of slack: 0.3 / 0.1 is a little above 3.
    return next(step * scale for step in _NICE if step * scale >= highest * (1 - 1e-9))


def bars(
    columns: Sequence[Column],
    series: Sequence[Series],
    *,
    label: str,
    least: float = 1.0,
) -> Chart:
    """Draw stacked bars.

    Args:
        columns: from left to right.
        series: from the ground up.
        label: what the chart shows, in words.
        least: the upper edge means at least this.
    """
    highest = max((sum(column.values) for column in columns), default=0)
    top = nice_top(highest, least=max(least, 1.0))
    parts = []
    for place, column in enumerate(columns):
        x, ground, drawn = place * _STEP, float(HEIGHT), []
        for one, value in zip(series, column.values, strict=True):
            height = value / top * HEIGHT
            ground -= height
            if value:
                drawn.append(_rect(x + 1, ground, _STEP - _GAP, height, one.tone))
        # A bar of nothing can be pointed at as well.
        drawn.append(_rect(x, 0, _STEP, HEIGHT, "none"))
        body = Markup("<title>{}</title>").format(column.title) + Markup("").join(drawn)
        parts.append(_linked(body, column.href))
    svg = _svg(len(columns) * _STEP, Markup("").join(parts), label=label)
    return Chart(svg, top, series)


def lines(
    values: Sequence[tuple[float | None, ...]],
    series: Sequence[Series],
    *,
    label: str,
    titles: Sequence[str],
) -> Chart:
    """Draw lines; where a value is None a line has a gap.

    Args:
        values: for each place on the time axis, one for each series.
        series: which lines there are.
        label: what the chart shows, in words.
        titles: for each place, shown while the pointer is over it.
    """
    known = [one for row in values for one in row if one is not None]
    top = nice_top(max(known, default=0))
    parts = []
    for place, one in enumerate(series):
        path = _path([row[place] for row in values], top)
        parts.append(
            Markup('<path class="line line-{}" d="{}"/>').format(one.tone, path)
        )
    for place, title in enumerate(titles):
        told = Markup("<title>{}</title>").format(title)
        shown = _rect(place * _STEP, 0, _STEP, HEIGHT, "none")
        parts.append(Markup("<g>{}{}</g>").format(told, shown))
    svg = _svg(len(values) * _STEP, Markup("").join(parts), label=label)
    return Chart(svg, top, series)


def strip(cells: Sequence[Cell], *, places: int, label: str) -> Markup:
    """Draw a row of cells, the last at the right edge.

    Args:
        cells: at most `places`.
        places: how many would fill it.
        label: what it shows, in words.
    """
    first = places - len(cells)
    parts = []
    for place, cell in enumerate(cells, start=first):
        height = max(cell.share, 0.15) * HEIGHT
        drawn = _rect(
            place * _STEP + 1, HEIGHT - height, _STEP - _GAP, height, cell.tone
        )
        hit = _rect(place * _STEP, 0, _STEP, HEIGHT, "none")
        title = Markup("<title>{}</title>").format(cell.title)
        parts.append(_linked(title + drawn + hit, cell.href))
    return _svg(places * _STEP, Markup("").join(parts), label=label)


def _svg(width: int, body: Markup, *, label: str) -> Markup:
    return Markup(
        '<svg viewBox="0 0 {} {}" preserveAspectRatio="none" role="img" '
        'aria-label="{}">{}</svg>'
    ).format(max(width, 1), HEIGHT, label, body)


def _rect(x: float, y: float, width: float, height: float, tone: str) -> Markup:
    return Markup(
        '<rect class="fill-{}" x="{:g}" y="{:.4g}" width="{:g}" height="{:.4g}"/>'
    ).format(tone, x, y, width, height)


def _linked(body: Markup, href: str) -> Markup:
    if not href:
        return Markup("<g>{}</g>").format(body)
    return Markup('<a href="{}">{}</a>').format(href, body)


def _path(values: Sequence[float | None], top: float) -> str:
    """Return a line through the middle of each place; alone, a value is a short dash."""
    path, is_down = [], False
    for place, value in enumerate(values):
        if value is None:
            is_down = False
            continue
        y = HEIGHT - value / top * HEIGHT
        middle = place * _STEP + _STEP / 2
        if is_down:
            path.append(f"L{middle:g} {y:.4g}")
        else:
            path.append(f"M{middle - 1:g} {y:.4g}L{middle + 1:g} {y:.4g}")
        is_down = True
    return "".join(path)
