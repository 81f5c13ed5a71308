"""How many starts are planned, step by step, read from the tables."""

from __future__ import annotations

from typing import Final

from timingwheel.jobs.store import Load
from timingwheel.stores.forecast import Loads
from timingwheel.stores.postgres.connections import Connections
from timingwheel.stores.postgres.loading import PRESENT, Loading
from timingwheel.stores.postgres.rows import decode_job

# Counted there: a row for each step, and not for each of millions of runs.
_PLANNED: Final = """
SELECT min(r.nominal_ns), min(r.due_ns), count(*)
FROM timingwheel_run r, (
    SELECT %s::bigint AS start_ns, %s::bigint AS end_ns, %s::bigint AS step_ns
) AS s
WHERE (r.state = 'planned' OR r.plain AND r.state = 'ready')
AND greatest(r.nominal_ns, r.due_ns) >= s.start_ns
AND least(r.nominal_ns, r.due_ns) < s.end_ns
GROUP BY
    CASE WHEN r.nominal_ns >= s.start_ns THEN (r.nominal_ns - s.start_ns) / s.step_ns END,
    CASE WHEN r.due_ns >= s.start_ns THEN (r.due_ns - s.start_ns) / s.step_ns END
"""
_RECURRING: Final = """
SELECT body FROM timingwheel_job WHERE live AND recurring AND state = 'active'
"""


def load_ahead(
    connections: Connections, loading: Loading, *, until_ns: int, step_ns: int
) -> list[Load]:
    """Return how many starts are planned in each step from now until then.

    Cost: O(planned runs) in the database; O(steps + occurrences until then) here.
    """
    wall_ns, steps_ns, version = connections.rows(PRESENT)[0]
    planned, recurring = connections.all(
        [(_PLANNED, [wall_ns, until_ns, step_ns]), (_RECURRING, [])]
    )
    calendars = loading.calendars(version)
    loads = Loads(wall_ns, until_ns=until_ns, step_ns=step_ns)
    for nominal_ns, due_ns, count in planned:
        loads.add(nominal_ns, due_ns, count)
    for (body,) in recurring:
        loads.add_job(decode_job(body), calendars, steps_ns)
    return loads.all()
