"""The cluster: jobs in PostgreSQL, made, fired and run by several processes, beside its peers.

    cluster_puts     schedule() beside raw inserts of the same payload
    cluster_fires    what is due made ready, by one owner and by four
    cluster_runs     from due to done, by one node and by two; pgqueuer, oban, procrastinate
    cluster_waits    how late runs start on three nodes; what an idle node asks
    cluster_kill     a node killed among others: who waits, and is anything lost

Client and server share the processors of one machine, as in no deployment: rates are those
of both together, and only ratios inside one line mean something elsewhere.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from bench.cluster_place import KIND
from bench.progress import Step

GROUP = "cluster"
SMOKE_SIZE, NORMAL_SIZE, FULL_SIZE = "SMOKE", "NORMAL", "FULL"
"""Each part has its sizes by these names."""
_PARTS = ("puts", "fires", "runs", "waits", "kill")


def steps(size: str, directory: Path) -> list[Step]:
    """Return the steps that measure the cluster; none, and told, without PostgreSQL.

    Args:
        size: of the names above.
        directory: on the disk in question; left empty again.
    """
    if not KIND.is_here():
        return []
    found: list[Step] = []
    for name in _PARTS:
        # Not before: these need psycopg, and the other groups do not.
        part: Any = importlib.import_module(f"bench.cluster_{name}")
        found += part.steps(GROUP, getattr(part, size), directory)
    return found
