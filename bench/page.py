"""python -m bench.page: the tables and plots of docs/benchmarks.md, from the JSON of runs.

A file a group in docs/benchmarks/, written by `make bench-full`. The tables stand between two
marks in the page; a test compares what is there with what this would write.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.dots import durable_rates
from bench.plot import wheel_costs
from bench.rounds import PairedRow
from bench.row import Row
from bench.table import render

DOCS = Path(__file__).resolve().parent.parent / "docs"
BEGIN = "<!-- made by python -m bench.page -->"
END = "<!-- end of what is made -->"
_DURABLE_PLOT = """
![Durable timers a second by operation and by who made them](images/durable-rate.svg)
"""
Run = dict[str, Any]  # as it was read: "about" and "rows"
ORDER = (
    *("wheel", "live", "durable", "recovery", "scale", "cron", "scheduler", "server"),
    "cluster",
)


def main() -> int:
    """Write the page and the plots anew; return the exit code."""
    for path, text in pages(DOCS):
        path.write_text(text, encoding="utf-8")
        print(f"wrote {path}")
    return 0


def pages(docs: Path) -> Iterator[tuple[Path, str]]:
    """Yield each file that is made, and what should be in it.

    Args:
        docs: the directory of the documentation.
    """
    runs = [
        json.loads(path.read_text(encoding="utf-8"))
        for name in ORDER
        if (path := docs / "benchmarks" / f"{name}.json").exists()
    ]
    path = docs / "benchmarks.md"
    before, _, rest = path.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    tables = "\n".join(_tables(run) for run in runs)
    rows = [row for run in runs for row in rows_of(run)]
    picture = durable_rates(rows)
    shown = "" if picture is None else _DURABLE_PLOT
    yield path, f"{before}{BEGIN}\n{tables}{shown}{END}{after}"
    for name, drawn in (
        ("wheel-cost.svg", wheel_costs(rows)),
        ("durable-rate.svg", picture),
    ):
        if drawn is not None:
            yield docs / "images" / name, drawn


def rows_of(run: Run) -> list[Row]:
    """Return the rows of a run that was read from JSON."""
    return [
        (PairedRow if "foreign_cores" in fields else Row)(**fields)
        for fields in run["rows"]
    ]


def _tables(run: Run) -> str:
    about = run["about"]
    build = "compiled bodies" if about["compiled"] else "PLAIN PYTHON bodies"
    size = "full" if about["full"] else "shorter"
    left_out = about.get("left_out")
    machine = f"{about['processors']} x {about['processor']}, {about['memory_gib']} GiB"
    system = f"{about['python']}, {about['system']}, {about['file_system']}"
    lines = [f"{about['date']}, {build}, {machine}, {system}; a {size} run."]
    if isinstance(left_out, dict) and left_out:
        names = ", ".join(sorted(left_out))
        lines.append(f"Not measured there: {names}.")
    return "\n".join([*lines, "", "```", render(rows_of(run)).rstrip(), "```", ""])


if __name__ == "__main__":
    sys.exit(main())
