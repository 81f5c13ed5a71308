"""How many starts are planned, step by step, read from the tables."""

from __future__ import annotations

from typing import Final

from timingwheel.jobs.store import Load
from timingwheel.stores.forecast import Loads
from timingwheel.stores.postgres.connections import Connections
from timingwheel.stores.postgres.loading import PRESENT, Loading
from timingwheel.stores.postgres.rows import decode_job

_PLANNED: Final = """
SELECT nominal_ns, due_ns FROM timingwheel_run
WHERE state = 'planned' OR plain AND state = 'ready'
"""
_RECURRING: Final = """
SELECT body FROM timingwheel_job WHERE live AND recurring AND state = 'active'
"""


def load_ahead(
    connections: Connections, loading: Loading, *, until_ns: int, step_ns: int
) -> list[Load]:
    """Return how many starts are planned in each step from now until then.

    Cost: O(planned runs + occurrences until then).
    """
    [present], planned, recurring = connections.all(
        [(PRESENT, []), (_PLANNED, []), (_RECURRING, [])]
    )
    wall_ns, steps_ns, version = present
    calendars = loading.calendars(version)
    loads = Loads(wall_ns, until_ns=until_ns, step_ns=step_ns)
    for nominal_ns, due_ns in planned:
        loads.add(nominal_ns, due_ns)
    for (body,) in recurring:
        loads.add_job(decode_job(body), calendars, steps_ns)
    return loads.all()
