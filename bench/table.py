"""The table: for each group of rows a grid of operations against those who did them.

Cost is shown where a figure is processor time or memory, and there less is better; a rate
where callers waited; seconds for one whole operation. The two columns at the right are the
verdict: ours against the baseline, and against the best of the peers that promise as much.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field

from bench.rounds import (
    BASELINE,
    COUNT,
    JOBS,
    MS,
    OURS,
    QUIET_CORES,
    RATE,
    RATES,
    SECONDS,
    PairedRow,
)
from bench.row import Row

_GAP = "  "
_NONE = "-"
_MARK_WIDTH = 4


def _short(figure: float) -> str:
    """Return a figure with three digits that count."""
    if figure >= 100:
        return f"{figure:,.0f}"
    return f"{figure:.2f}" if figure < 10 else f"{figure:.1f}"


@dataclass(frozen=True, slots=True)
class _Unit:
    """How figures of one unit are shown, and what the ratios beside them mean."""

    figures: str
    to_baseline: str
    show: Callable[[float], str]


_UNITS = {
    "ns": _Unit(
        "ns of processor time; less is better",
        "x baseline's cost",
        _short,
    ),
    "B": _Unit("bytes; less is better", "", _short),
    RATE: _Unit(
        "timers a second; more is better",
        "x baseline's rate",
        lambda ns: f"{1e9 / ns:,.0f}",
    ),
    JOBS: _Unit(
        "jobs a second; more is better",
        "x baseline's rate",
        lambda ns: f"{1e9 / ns:,.0f}",
    ),
    COUNT: _Unit("times; less is better", "", _short),
    MS: _Unit("milliseconds; less is better", "", _short),
    SECONDS: _Unit(
        "seconds; less is better", "x baseline's time", lambda seconds: f"{seconds:.3g}"
    ),
}


@dataclass(slots=True)
class _Line:
    """One operation: who did it at which cost."""

    name: str
    unit: str
    by_peer: dict[str, Row] = field(default_factory=dict)


def render(rows: Sequence[Row]) -> str:
    """Return the whole table as text, a grid for each group and unit."""
    grids: dict[tuple[str, str], list[_Line]] = {}
    for row in rows:
        lines = grids.setdefault((row.group, row.unit), [])
        line = next((line for line in lines if line.name == row.name), None)
        if line is None:
            line = _Line(row.name, row.unit)
            lines.append(line)
        line.by_peer[row.peer] = row
    return "\n".join(
        _grid(group, _UNITS[unit], lines) for (group, unit), lines in grids.items()
    )


def as_json(rows: Iterable[Row], *, about: dict[str, object]) -> str:
    """Return the rows and what they were measured on, for programs."""
    return json.dumps({"about": about, "rows": [asdict(row) for row in rows]}, indent=1)


def to_baseline(line: Mapping[str, Row]) -> float | None:
    """Return ours against the baseline: a rate's multiple, or a cost's.

    Args:
        line: who did one operation, by name.
    """
    ours, baseline = line.get(OURS), line.get(BASELINE)
    if ours is None or baseline is None:
        return None
    if isinstance(ours, PairedRow) and ours.to_baseline is not None:
        return ours.to_baseline if ours.unit in RATES else 1 / ours.to_baseline
    return ours.ns_per_op / baseline.ns_per_op


def to_best_peer(line: Mapping[str, Row]) -> tuple[float, str] | None:
    """Return how many times better than the best peer we are, and who that is.

    Args:
        line: who did one operation, by name. Peers that promise less do not count.
    """
    ours = line.get(OURS)
    peers = [
        row
        for row in line.values()
        if row.peer not in {OURS, BASELINE}
        and not (isinstance(row, PairedRow) and not row.equal)
    ]
    if ours is None or not peers or not ours.ns_per_op:
        return None  # nobody is so many times better than nothing
    best = min(peers, key=lambda row: row.ns_per_op)
    if isinstance(best, PairedRow) and best.ours_to_it is not None:
        return best.ours_to_it, best.peer
    return best.ns_per_op / ours.ns_per_op, best.peer


def _grid(group: str, unit: _Unit, lines: Sequence[_Line]) -> str:
    peers = _peers(lines)
    marks: dict[str, str] = {}
    cells = [
        ["", *peers, unit.to_baseline, "x best peer", "foreign load"],
        *(_cells(line, peers, unit, marks) for line in lines),
    ]
    columns = [
        column
        for column in zip(*cells, strict=True)
        if any(cell.strip() != _NONE for cell in column[1:])
    ]
    first, *rest = columns
    width = max(map(len, first))
    aligned = [
        [cell.ljust(width) for cell in first],
        *([cell.rjust(max(map(len, column))) for cell in column] for column in rest),
    ]
    text = [_GAP.join(row).rstrip() for row in zip(*aligned, strict=True)]
    notes = [f"  {mark} {note}" for note, mark in marks.items()]
    if any(_foreign_cores(line) >= QUIET_CORES for line in lines):
        notes.append(
            "  foreign load: processors that other programs kept busy meanwhile; from "
            f"{QUIET_CORES} on a line is more noise than figure"
        )
    return "\n".join([f"{group}  ({unit.figures})", *text, *notes, ""])


def _peers(lines: Sequence[_Line]) -> list[str]:
    """Return all who appear: the baseline first, then we, then the peers."""
    names = list(dict.fromkeys(peer for line in lines for peer in line.by_peer))
    return sorted(names, key=lambda name: (name != BASELINE, name != OURS))


def _cells(
    line: _Line, peers: Sequence[str], unit: _Unit, marks: dict[str, str]
) -> list[str]:
    cells = [line.name]
    for peer in peers:
        row = line.by_peer.get(peer)
        shown = _NONE if row is None else unit.show(row.ns_per_op)
        note = "" if row is None else row.note
        # A note is told once, below the grid; room for its mark keeps digits aligned.
        mark = marks.setdefault(note, f"[{len(marks) + 1}]") if note else ""
        cells.append(f"{shown} {mark:{_MARK_WIDTH}}")
    ratio = to_baseline(line.by_peer)
    best = to_best_peer(line.by_peer)
    cores = _foreign_cores(line)
    cells.append(_NONE if ratio is None else _short(ratio))
    cells.append(_NONE if best is None else _short(best[0]))
    cells.append(f"{cores:.1f}" if cores else _NONE)
    return cells


def _foreign_cores(line: _Line) -> float:
    return max(
        (
            row.foreign_cores
            for row in line.by_peer.values()
            if isinstance(row, PairedRow)
        ),
        default=0.0,
    )
