"""How rows are found that others name: by a probe of their key for each, and by no other way.

What the planner knows of a table may be old, and a prepared statement keeps its plan. Said
with = alone it has other ways: it reads a table that it believes small by an index from end
to end, and compares all with all; and it keeps such a plan when the table has grown (257
ends at once took 100 ms of comparing). By what is said here no index is merged or hashed, so
only keys can be probed; sequential scans are off (connections.py), and what other indices
an id stands in, schema.py keeps from being taken for the key.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

RUN_KEY: Final = ("shard", "job_id", "nominal_ns", "n")
JOB_KEY: Final = ("shard", "id")
_PROBED: Final = frozenset({"shard"})
"""The first column of keys; said as = ANY(ARRAY[...]) it can only be probed. No other column
is said so: of a key's later ones the planner makes a filter then, and each probe reads all
runs of a job (700 steps on a job of 700 runs: 60 s, not 15)."""


def same_key(row: str, of: str, key: Sequence[str] = RUN_KEY) -> str:
    """Return the condition that a row is the one that another names.

    Args:
        row: the alias of the table.
        of: the alias of what names rows of it.
        key: columns that both have.
    """
    return " AND ".join(
        f"{row}.{name} = ANY(ARRAY[{of}.{name}])"
        if name in _PROBED
        else f"{row}.{name} = {of}.{name}"
        for name in key
    )
