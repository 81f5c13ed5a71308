"""How late starts are when one of three nodes is killed: prints a line for each lease.

    python -m tests.cluster.lateness [TTL_SECONDS ...]

Fifty runs come due each second; the node is killed after five seconds, while it still fires
nearly all of them. What it would have started waits for its lease to run out, for another
node's next beat, and for its turn.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import psycopg

from tests.cluster.bed import SHARDS, Bed
from tests.postgres import running_postgres

RUNS_A_SECOND = 50
BEFORE_SECONDS = 5


def measure(ttl_s: float, logs: Path) -> str:
    """Kill a node and return what came of it, in a line."""
    # Each commit waits until it is written, as with any user.
    with running_postgres("shared_buffers=128MB", "max_connections=60") as postgres:
        url = postgres.new_schema()
        bed = Bed(url, url, logs)
        try:
            seconds = BEFORE_SECONDS + 3 * ttl_s
            plan = {"ttl_s": ttl_s}
            nodes = bed.start(("dies", plan))
            bed.wait_until(lambda: bed.are_owned_by("dies"), *nodes)
            nodes += bed.start(("a", plan), ("b", plan))
            bed.put_at(round(seconds * RUNS_A_SECOND), every_s=1 / RUNS_A_SECOND)
            dies, *live = nodes
            bed.wait_until(
                lambda: bed.started() >= BEFORE_SECONDS * RUNS_A_SECOND, *nodes
            )
            steady = _latenesses(url)
            owned = bed.shards_of("dies")
            dies.end()
            in_flight = bed.in_flight("dies")
            bed.finish(*live)
            found = bed.account()
            late = _latenesses(url)
        finally:
            bed.close()
    return (
        f"ttl {ttl_s:g} s: {found.runs} runs, lost {found.lost}, "
        f"twice {found.doubles + found.done_twice}, in flight {in_flight}, "
        f"it fired {owned} of {SHARDS} shards; "
        f"late before the kill: median {_part(steady, 0.5):.3f} s, "
        f"worst {steady[-1]:.3f} s; over all: median {_part(late, 0.5):.3f} s, "
        f"p99 {_part(late, 0.99):.3f} s, worst {late[-1]:.3f} s"
    )


def _latenesses(url: str) -> list[float]:
    with psycopg.connect(url) as connection:
        rows = connection.execute(
            "SELECT (min(at_ns) - min(due_ns)) / 1e9 FROM sink GROUP BY run_id"
        ).fetchall()
    return sorted(float(row[0]) for row in rows)


def _part(values: list[float], part: float) -> float:
    return values[round(part * (len(values) - 1))]


def main(*ttls: str) -> None:
    with tempfile.TemporaryDirectory(prefix="timingwheel-lateness-") as logs:
        for ttl in ttls or ("6", "3"):
            print(measure(float(ttl), Path(logs)), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
