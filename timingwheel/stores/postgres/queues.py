"""Queues and calendars: few rows, each replaced as a whole."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import msgspec

from timingwheel.jobs.calendars import NamedCalendar
from timingwheel.jobs.model import JobId, Queue
from timingwheel.stores.deciding import changing
from timingwheel.stores.deciding.decision import Decision
from timingwheel.stores.history_entries import searched
from timingwheel.stores.postgres.owner import Item, PostgresOwner
from timingwheel.stores.records import encode

decode_queue: Final = msgspec.msgpack.Decoder(Queue).decode

_SET: Final = """
INSERT INTO timingwheel_queue AS q (name, version, next_start_ns, body)
VALUES (%s, 1, 0, %s)
ON CONFLICT (name) DO UPDATE SET version = q.version + 1, body = excluded.body
"""
_GET: Final = "SELECT body FROM timingwheel_queue WHERE name = %s"
_ALL: Final = "SELECT body FROM timingwheel_queue"
_WAITING: Final = """
SELECT DISTINCT queue FROM timingwheel_run WHERE state IN ('ready', 'running')
"""
_SET_CALENDAR: Final = """
WITH counted AS (UPDATE timingwheel_meta SET calendars = calendars + 1)
INSERT INTO timingwheel_calendar AS c (name, version, body) VALUES (%s, 1, %s)
ON CONFLICT (name) DO UPDATE SET version = c.version + 1, body = excluded.body
"""
_USERS: Final = """
SELECT id FROM timingwheel_job WHERE live AND recurring AND calendar = %s
"""
REPLAN_PART: Final = 256
"""Jobs that are planned anew in one step."""


class Queues:
    """Queues and calendars of a store.

    Args:
        owner: this process's part of it.
        tell: called when a queue was set: others may start more now.
    """

    def __init__(self, owner: PostgresOwner, tell: Callable[[], None]) -> None:
        self._tell = tell
        self._owner = owner
        self._connections = owner.connections

    def queue(self, name: str) -> Queue:
        """Return a queue; one that nobody has set has no bounds."""
        rows = self._connections.rows(_GET, [searched(name)])
        return decode_queue(rows[0][0]) if rows else Queue(name=name)

    def queues(self) -> list[Queue]:
        """Return all queues that were set or have waiting runs."""
        known, waiting = self._connections.all([(_ALL, []), (_WAITING, [])])
        found = {
            queue.name: queue for (body,) in known for queue in [decode_queue(body)]
        }
        for (name,) in waiting:
            found.setdefault(name, Queue(name=name))
        return [found[name] for name in sorted(found)]

    def set_queue(self, queue: Queue) -> None:
        """Replace what is known of a queue."""
        self._connections.rows(_SET, [searched(queue.name), encode(queue)])
        self._owner.wake()
        self._tell()

    def calendar(self, name: str) -> NamedCalendar | None:
        """Return a calendar."""
        return self.calendars().get(name)

    def calendars(self) -> dict[str, NamedCalendar]:
        """Return all calendars."""
        return dict(self._owner.loading.calendars())

    def set_calendar(self, name: str, calendar: NamedCalendar) -> None:
        """Replace a calendar; the jobs that use it are planned anew from now.

        Who plans by the former one meanwhile has locked its row and is found here, or
        finds it changed and plans again.
        """
        self._connections.rows(_SET_CALENDAR, [searched(name), encode(calendar)])
        users = [
            JobId(row[0]) for row in self._connections.rows(_USERS, [searched(name)])
        ]
        for start in range(0, len(users), REPLAN_PART):
            part = users[start : start + REPLAN_PART]
            items = [Item(job_id, partial(_replan, job_id)) for job_id in part]
            self._owner.steps(items, {})


def _replan(job_id: JobId, decision: Decision) -> None:
    job = decision.job(job_id)
    if job is not None and job.trigger.is_recurring:
        changing.replan(decision, job)
