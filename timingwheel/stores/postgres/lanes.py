"""Lanes: runs that wait for their time, and of which who wakes first has the best rank.

    lane    the runs of one task in one queue, of one priority and one base of time

An index begins with what makes a lane, so the lanes that there are are found by leaping,
without reading what lies between, and of each the first few of a shard. It begins with base
and priority: whether there is more than one rank is seen at its two ends.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from timingwheel.errors import ArgumentError
from timingwheel.stores.history_entries import searched

NAMES_BYTES_MAX: Final = 2_560
"""Of a queue and a task together, in UTF-8: PostgreSQL refuses an entry of an index of more
than 2,704 bytes, and a run that may not be written would stop each node that comes to it."""
LANES_MAX: Final = 256
"""With more lanes, what is due is found as it comes."""

IS_WAITING: Final = "r.state IN ('planned', 'retrying') AND r.wake_ns IS NOT NULL"
LEAD: Final = "(r.due_ns - r.rank)"
"""What a run's priority takes off its due time."""
_LANE: Final = f"r.wake_base, {LEAD}, r.queue, r.task"
LANE: Final = f"""
lane(base, lead_ns, queue, task) AS (
    (SELECT {_LANE} FROM timingwheel_run r WHERE {IS_WAITING}
    ORDER BY {_LANE} LIMIT 1)
    UNION ALL
    SELECT next.* FROM lane l, LATERAL (
        SELECT {_LANE} FROM timingwheel_run r WHERE {IS_WAITING}
        AND ({_LANE}) > (l.base, l.lead_ns, l.queue, l.task) ORDER BY {_LANE} LIMIT 1
    ) AS next
)"""
"""All lanes, as a part of a WITH RECURSIVE; whoever reads it says how many at most."""
IN_LANE: Final = f"""r.queue = lane.queue AND r.task = lane.task
AND r.wake_base = lane.base AND {LEAD} = lane.lead_ns"""
"""Whether a run `r` is of the lane `lane`."""

LANES: Final = f"""
WITH RECURSIVE {LANE}
SELECT queue, task, base, lead_ns FROM lane LIMIT %s
"""
"""Lanes, at most so many."""


def require_names_fit(queue: str, task: str) -> None:
    """Return if the names of a job's queue and of its task fit into the index of lanes.

    Raises:
        ArgumentError: together they are too long.
    """
    size = len(searched(queue).encode(errors="surrogatepass"))
    size += len(searched(task).encode(errors="surrogatepass"))
    if size > NAMES_BYTES_MAX:
        raise ArgumentError(
            "queue",
            queue,
            f"its name and that of the task {task!r} take {size:,} bytes as UTF-8, and "
            f"in PostgreSQL {NAMES_BYTES_MAX:,} fit together: shorten one of them",
        )


class Lane(NamedTuple):
    """Runs that wait for their time, and differ in nothing that says who may start them.

    Attributes:
        queue, task: of the runs.
        base: of the time by which they wake.
        lead_ns: what their priority takes off their due time.
    """

    queue: str
    task: str
    base: int
    lead_ns: int
