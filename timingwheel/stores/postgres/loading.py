"""Reads what steps want: one message for all of it."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Final

import msgspec

from timingwheel.engine.timeline import Now
from timingwheel.jobs.calendars import NamedCalendar
from timingwheel.jobs.model import JobId, RunState
from timingwheel.stores.deciding.live import RunKey
from timingwheel.stores.history_entries import decode_run, searched
from timingwheel.stores.postgres.connections import (
    Database,
    Ints,
    Rows,
    Statement,
    Texts,
)
from timingwheel.stores.postgres.keys import same_key
from timingwheel.stores.postgres.rows import (
    LIVE_COLUMNS,
    decode_job,
    live_row,
    shard_of,
    unframed,
)
from timingwheel.stores.postgres.view import (
    CalendarRow,
    DeadRow,
    JobRow,
    LoadedView,
    Wanted,
)

PRESENT: Final = "SELECT timingwheel_now(), steps_ns, calendars FROM timingwheel_meta"
_IDS: Final = "unnest(%s::bigint[], %s::text[]) AS k(shard, id)"
# OFFSET 0: so that keys are probed; see keys.py.
_JOBS: Final = f"""
SELECT j.id, j.version, j.live, j.body FROM {_IDS} CROSS JOIN LATERAL (
    SELECT * FROM timingwheel_job j WHERE j.shard = k.shard AND j.id = k.id OFFSET 0
) AS j
"""
_RUNS: Final = f"""
SELECT {LIVE_COLUMNS} FROM {_IDS} CROSS JOIN LATERAL (
    SELECT * FROM timingwheel_run r WHERE r.shard = k.shard AND r.job_id = k.id OFFSET 0
) AS r
"""
_AFTER: Final = f"""
SELECT d.before_id, d.job_id FROM {_IDS}
JOIN timingwheel_dependency d ON d.shard = k.shard AND d.before_id = k.id
"""
_NAMES: Final = f"""
SELECT k.id, t.job_id FROM {_IDS}
LEFT JOIN timingwheel_name t ON t.shard = k.shard AND t.name = k.id
"""
_ENDS: Final = f"""
SELECT k.id, (
    SELECT r.state FROM timingwheel_past r WHERE r.shard = k.shard AND r.job_id = k.id
    ORDER BY r.nominal_ns DESC, r.n DESC LIMIT 1
) FROM {_IDS}
"""
_HIGHEST: Final = """
SELECT k.id, k.nominal_ns, (
    SELECT max(r.n) FROM timingwheel_past r WHERE r.shard = k.shard
    AND r.job_id = k.id AND r.nominal_ns = k.nominal_ns
) FROM unnest(%s::bigint[], %s::text[], %s::bigint[]) AS k(shard, id, nominal_ns)
"""
_DEAD: Final = f"""
SELECT r.job_id, r.nominal_ns, r.n, r.version, r.tries, r.body
FROM unnest(%s::bigint[], %s::text[], %s::bigint[], %s::bigint[])
    AS k(shard, job_id, nominal_ns, n)
JOIN timingwheel_past r ON {same_key("r", "k")}
"""
_CALENDARS: Final = "SELECT name, version, body FROM timingwheel_calendar"
_decode_calendar: Final = msgspec.msgpack.Decoder(NamedCalendar).decode


class Loading:
    """Reads of one store. Thread-safe.

    Args:
        connections: to its database.
        shards: how many it has.
        known: other reads of it, whose calendars serve here too.
    """

    def __init__(
        self, connections: Database, shards: int, *, known: Loading | None = None
    ) -> None:
        self._connections = connections
        self._shards = shards
        self._known = known
        self._lock = threading.Lock()
        self._calendars: dict[str, CalendarRow] = {}
        self._calendars_version = -1

    def now(self) -> Now:
        """Return the present of the database; its monotonic time is elapsed time."""
        return self._now(self._connections.rows(PRESENT)[0])

    def view(self, wanted: Wanted) -> LoadedView:
        """Return the present, with what is wanted."""
        statements = [(PRESENT, ()), *self._statements(wanted)]
        [present], *found = self._connections.all(statements)
        calendars = self.calendar_rows(present[2])
        view = LoadedView(self._now(present), present[1], calendars)
        self._take_in(view, wanted, found)
        return view

    def add(self, view: LoadedView) -> None:
        """Read what the decisions on a view have asked for in vain."""
        wanted, view.wanted = view.wanted, Wanted()
        found = self._connections.all(self._statements(wanted))
        self._take_in(view, wanted, found)

    def calendars(self, version: int | None = None) -> dict[str, NamedCalendar]:
        """Return all calendars.

        Args:
            version: how often they were changed; None: ask.
        """
        if version is None:
            version = self._connections.rows(PRESENT)[0][2]
        rows = self.calendar_rows(version)
        return {name: row.calendar for name, row in rows.items()}

    def calendar_rows(self, version: int) -> dict[str, CalendarRow]:
        """Return the rows of all calendars, read anew if `version` is not the known one."""
        if self._known is not None:
            return self._known.calendar_rows(version)
        with self._lock:
            if self._calendars_version == version:
                return self._calendars
        rows = self._connections.rows(_CALENDARS)
        calendars = {
            name: CalendarRow(_decode_calendar(body), row_version)
            for name, row_version, body in rows
        }
        with self._lock:
            self._calendars, self._calendars_version = calendars, version
        return calendars

    def ids(self, ids: Iterable[str]) -> tuple[Ints, Texts]:
        """Return ids with their shards, as the statements take them."""
        clean = [searched(one) for one in ids]
        return Ints(shard_of(one, self._shards) for one in clean), Texts(clean)

    def _now(self, present: tuple[int, int, int]) -> Now:
        wall_ns, steps_ns, _ = present
        return Now(wall_ns - steps_ns, wall_ns - steps_ns, wall_ns)

    def _statements(self, wanted: Wanted) -> list[Statement]:
        statements: list[Statement] = []
        if wanted.jobs:
            ids = self.ids(sorted(wanted.jobs))
            statements += [(_JOBS, ids), (_RUNS, ids), (_AFTER, ids)]
        if wanted.names:
            statements.append((_NAMES, self.ids(sorted(wanted.names))))
        if wanted.ends:
            statements.append((_ENDS, self.ids(sorted(wanted.ends))))
        if wanted.highest:
            pairs = sorted(wanted.highest)
            ids = self.ids(job_id for job_id, _ in pairs)
            nominals = Ints(nominal_ns for _, nominal_ns in pairs)
            statements.append((_HIGHEST, (*ids, nominals)))
        if wanted.dead:
            keys = sorted(wanted.dead)
            ids = self.ids(job_id for job_id, _ in keys)
            nominals = Ints(key[0] for _, key in keys)
            statements.append(
                (_DEAD, (*ids, nominals, Ints(key[1] for _, key in keys)))
            )
        return statements

    def _take_in(self, view: LoadedView, wanted: Wanted, found: list[Rows]) -> None:
        parts = iter(found)
        if wanted.jobs:
            self._take_jobs(view, wanted.jobs, next(parts), next(parts), next(parts))
        if wanted.names:
            by_column: dict[str, JobId | None] = dict(next(parts))
            view.names.update(
                {name: by_column[searched(name)] for name in wanted.names}
            )
        if wanted.ends:
            by_id: dict[str, str | None] = dict(next(parts))
            for job_id in wanted.ends:
                state = by_id[searched(job_id)]
                view.ends[job_id] = None if state is None else RunState(state)
        if wanted.highest:
            highest = {(row[0], row[1]): row[2] for row in next(parts)}
            for job_id, nominal_ns in wanted.highest:
                n = highest[searched(job_id), nominal_ns]
                view.highest[JobId(job_id), nominal_ns] = -1 if n is None else n
        if wanted.dead:
            dead: dict[tuple[JobId, RunKey], DeadRow] = {
                (job_id, (nominal_ns, n)): DeadRow(
                    decode_run(body), version, unframed(tries)
                )
                for job_id, nominal_ns, n, version, tries, body in next(parts)
            }
            view.dead.update({key: dead.get(key) for key in wanted.dead})

    def _take_jobs(
        self, view: LoadedView, ids: set[JobId], jobs: Rows, runs: Rows, after: Rows
    ) -> None:
        for job_id in ids:
            view.jobs[job_id] = None
            view.live_runs[job_id] = {}
            view.after[job_id] = set()
        for job_id, version, is_live, body in jobs:
            view.jobs[job_id] = JobRow(decode_job(body), version, is_live)
        for row in runs:
            view.live_runs[row[0]][row[1], row[2]] = live_row(row)
        for before, job_id in after:
            view.after[before].add(job_id)
