"""Runs that somebody here waits for and that may end in another process.

What ends by this process is told at once; of the rest the database tells nobody, so it is
asked, for all of them in one statement, whenever this process gives a sign of life.
"""

from __future__ import annotations

import threading
from typing import Final

from timingwheel.jobs.model import Run, RunId
from timingwheel.stores.history_entries import decode_run
from timingwheel.stores.identity import require_run_id
from timingwheel.stores.postgres.connections import Connections, Ints, Texts
from timingwheel.stores.postgres.keys import same_key
from timingwheel.stores.postgres.rows import shard_of

_ENDED: Final = f"""
SELECT r.body FROM unnest(%s::bigint[], %s::text[], %s::bigint[], %s::bigint[])
    AS k(shard, job_id, nominal_ns, n)
JOIN timingwheel_past r ON {same_key("r", "k")}
"""


class Expecting:
    """Who is waited for. Thread-safe.

    Args:
        connections: to the database.
        shards: how many the store has.
    """

    def __init__(self, connections: Connections, shards: int) -> None:
        self._connections = connections
        self._shards = shards
        self._lock = threading.Lock()
        self._expected: set[RunId] = set()

    def __bool__(self) -> bool:
        """Whether any run is waited for."""
        return bool(self._expected)

    def add(self, run_id: RunId) -> None:
        """Somebody waits for a run."""
        with self._lock:
            self._expected.add(run_id)

    def remove(self, run_id: RunId) -> None:
        """Nobody waits for a run any more."""
        with self._lock:
            self._expected.discard(run_id)

    def ended(self) -> list[Run]:
        """Return those that rest by now. Cost: a statement, if any is waited for."""
        with self._lock:
            keys = [require_run_id(run_id) for run_id in self._expected]
        if not keys:
            return []
        values = [
            Ints(shard_of(job_id, self._shards) for job_id, _, _ in keys),
            Texts(job_id for job_id, _, _ in keys),
            Ints(nominal_ns for _, nominal_ns, _ in keys),
            Ints(n for _, _, n in keys),
        ]
        rows = self._connections.rows(_ENDED, values)
        return [decode_run(body).run for (body,) in rows]
