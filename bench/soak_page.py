"""The page and the picture of a soak, from the JSON of its run.

The tables stand between two marks in docs/reliability-soak.md; what stands around them is
written by hand.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final

from bench.soak_plot import Panel, over_time

BEGIN: Final = "<!-- made by python -m bench.soak_page -->"
END: Final = "<!-- end of what is made -->"
PAGE: Final = "reliability-soak.md"
PICTURE: Final = "images/soak.svg"
FIGURES: Final = "benchmarks/soak.json"
_DOCS: Final = Path(__file__).resolve().parent.parent / "docs"
_MIB: Final = 1 << 20
Soak = dict[str, Any]  # as it was read


def render(docs: Path) -> Iterator[tuple[Path, str]]:
    """Yield each file that is made, and what should be in it.

    Args:
        docs: the directory of the documentation, with the figures of a run.
    """
    soak: Soak = json.loads((docs / FIGURES).read_text(encoding="utf-8"))
    path = docs / PAGE
    before, _, rest = path.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    made = "\n".join(tables(soak))
    yield path, f"{before}{BEGIN}\n{made}\n{END}{after}"
    yield docs / PICTURE, picture(soak)


def tables(soak: Soak) -> Iterator[str]:
    """Yield the lines of the tables."""
    about, kills = soak["about"], soak["kills"]
    build = "the compiled bodies" if about["compiled"] else "the plain bodies"
    yield (
        f"{about['date']}, {about['processors']} x {about['processor']}, "
        f"{about['memory_gib']} GiB, {about['file_system']}, {about['python']}, {build}; "
        f"seed {about['seed']}."
    )
    yield ""
    yield from _of_kills(soak, kills)
    yield ""
    yield from _of_samples(soak)


def picture(soak: Soak) -> str:
    """Return the drawing of a run."""
    kills = [kill["at_s"] for kill in soak["kills"]]
    return over_time(
        "Memory, descriptors, disk, rates and lateness over the soak",
        [
            Panel("memory, MiB", {"": _line(soak, "rss_bytes", 1 / _MIB)}),
            Panel("open descriptors", {"": _line(soak, "descriptors")}),
            Panel("disk, MiB", {"": _line(soak, "disk_bytes", 1 / _MIB)}),
            Panel(
                "a second",
                {name: _line(soak, name) for name in ("puts", "cancels", "fires")},
            ),
            Panel(
                "late, ms",
                {
                    "median": _line(soak, "late_p50_ms"),
                    "99 %": _line(soak, "late_p99_ms"),
                },
                logarithmic=True,
            ),
            Panel(
                "a put waits, ms",
                {
                    "median": _line(soak, "put_p50_ms"),
                    "99 %": _line(soak, "put_p99_ms"),
                },
                logarithmic=True,
            ),
        ],
        kills,
    )


def _of_kills(soak: Soak, kills: Sequence[dict[str, Any]]) -> Iterator[str]:
    totals: dict[str, int] = {}
    for kill in kills:
        for word, count in kill["judged"].items():
            totals[word] = totals.get(word, 0) + count
    faults = sum(soak["faults"].values())
    opening = sum(kill["while_opening"] for kill in kills)
    down = [kill["down_s"] for kill in kills]
    rows = {
        "minutes": f"{soak['samples'][-1][0] / 60:.0f}",
        "kills, at work": f"{len(kills)}",
        "kills, while the store opened": f"{opening}",
        "timers made and acknowledged": f"{totals['acknowledged']:,}",
        "cancelled and acknowledged": f"{totals['cancelled']:,}",
        "delivered before the next life had opened": f"{totals['delivered']:,}",
        "delivered again after a kill": f"{soak['totals'].get('delivered again', 0):,}",
        "not acknowledged at a kill, and there after it": (
            f"{totals.get('survived unacknowledged', 0):,}"
        ),
        "lost, wrong, early, or undone": f"{faults}",
        "from the kill until it served again, median and worst": (
            f"{median(down):.1f} s, {max(down):.1f} s"
        ),
    }
    yield "| what | figure |"
    yield "|---|---:|"
    for name, figure in rows.items():
        yield f"| {name} | {figure} |"


_SHOWN: Final = (
    ("memory, MiB", "rss_bytes", 1 / _MIB),
    ("descriptors", "descriptors", 1.0),
    ("disk, MiB", "disk_bytes", 1 / _MIB),
    ("files", "files", 1.0),
    ("puts a second", "puts", 1.0),
    ("cancels a second", "cancels", 1.0),
    ("fires a second", "fires", 1.0),
    ("late, median, ms", "late_p50_ms", 1.0),
    ("late, 99 %, ms", "late_p99_ms", 1.0),
    ("a put waits, median, ms", "put_p50_ms", 1.0),
    ("a put waits, 99 %, ms", "put_p99_ms", 1.0),
)


def _of_samples(soak: Soak) -> Iterator[str]:
    """Yield a table of medians by sixths of the time."""
    end_s = soak["samples"][-1][0]
    parts = 6
    heads = [f"{end_s * part / parts / 60:.0f} min" for part in range(1, parts + 1)]
    yield "| median of the samples, until | " + " | ".join(heads) + " |"
    yield "|---|" + "---:|" * parts
    for title, name, scale in _SHOWN:
        cells = []
        for part in range(parts):
            low, high = end_s * part / parts, end_s * (part + 1) / parts
            figures = [
                figure
                for at_s, figure in _line(soak, name, scale)
                if low < at_s <= high and figure is not None
            ]
            cells.append(_figure(median(figures)))
        yield f"| {title} | " + " | ".join(cells) + " |"


def _line(
    soak: Soak, name: str, scale: float = 1.0
) -> list[tuple[float, float | None]]:
    at = soak["sample_fields"].index(name)
    return [
        (sample[0], None if sample[at] is None else sample[at] * scale)
        for sample in soak["samples"]
    ]


def _figure(figure: float) -> str:
    return f"{figure:,.0f}" if figure >= 100 else f"{figure:.3g}"


def main() -> int:
    """Write page and picture anew; return the exit code."""
    for path, text in render(_DOCS):
        path.write_text(text, encoding="utf-8")
        print(f"wrote {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
