"""What one step has read of the store, as decisions see it.

A decision that asks for what was not read raises `Missing`; the step reads that too and
decides anew. All that was read is checked to be unchanged when the step writes, so it
does not matter that it was read piece by piece.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import Final, NamedTuple

from timingwheel.engine.timeline import Now
from timingwheel.jobs.calendars import NamedCalendar
from timingwheel.jobs.errors import UnknownJobError
from timingwheel.jobs.model import Attempt, Job, JobId, Payload, RunState
from timingwheel.jobs.schedule import Schedule
from timingwheel.stores.deciding.firing import schedule_now
from timingwheel.stores.deciding.live import LiveRun, RunKey
from timingwheel.stores.history_entries import HistoryRun
from timingwheel.stores.postgres.rows import LiveRow

_NONE: Final[AbstractSet[JobId]] = frozenset()


class Wanted:
    """What is to be read.

    Attributes:
        jobs: with their live runs and the jobs after them.
        names: which live job has them.
        ends: how these jobs ended.
        highest: (job, nominal) of which the highest n of any run is asked for.
        dead: runs that rest, as (job, key).
    """

    def __init__(self) -> None:
        self.jobs: set[JobId] = set()
        self.names: set[str] = set()
        self.ends: set[JobId] = set()
        self.highest: set[tuple[JobId, int]] = set()
        self.dead: set[tuple[JobId, RunKey]] = set()

    def __bool__(self) -> bool:
        return any((self.jobs, self.names, self.ends, self.highest, self.dead))


class Missing(Exception):  # noqa: N818 - not an error: something is to be read
    """A decision asks for what has not been read; `View.wanted` says what."""


class JobRow(NamedTuple):
    """A job that has a row.

    Attributes:
        job: live or ended.
        version: of the row.
        live: which of the two.
    """

    job: Job
    version: int
    live: bool


class CalendarRow(NamedTuple):
    """A named calendar.

    Attributes:
        calendar: as it is.
        version: of the row.
    """

    calendar: NamedCalendar
    version: int


class _Calendars(Mapping[str, NamedCalendar]):
    """All calendars; notes which of them are looked at.

    Attributes:
        used: versions of those, by name.
    """

    def __init__(self, rows: Mapping[str, CalendarRow]) -> None:
        self.used: dict[str, int] = {}
        self._rows = rows

    def __getitem__(self, name: str) -> NamedCalendar:
        row = self._rows[name]
        self.used[name] = row.version
        return row.calendar

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)


class DeadRow(NamedTuple):
    """A run that rests.

    Attributes:
        value: as the history has it.
        version: of the row.
        attempts: that it had.
    """

    value: HistoryRun
    version: int
    attempts: list[Attempt]


class LoadedView:
    """A View of what was read, and a Past.

    Attributes:
        wanted: what decisions have asked for in vain.
        jobs: rows of jobs; None: there is no row.
        runs: rows of live runs, of each job that was read.
        after: the jobs after a job.
        names: see Wanted, as are the others.

    Args:
        now: the present.
        steps_ns: sum of the steps of the wall clock.
        calendars: all of them.
    """

    def __init__(
        self, now: Now, steps_ns: int, calendars: Mapping[str, CalendarRow]
    ) -> None:
        self.now = now
        self.wanted = Wanted()
        self.jobs: dict[JobId, JobRow | None] = {}
        self.live_runs: dict[JobId, dict[RunKey, LiveRow]] = {}
        self.after: dict[JobId, set[JobId]] = {}
        self.names: dict[str, JobId | None] = {}
        self.ends: dict[JobId, RunState | None] = {}
        self.highest: dict[tuple[JobId, int], int] = {}
        self.dead: dict[tuple[JobId, RunKey], DeadRow | None] = {}
        self._steps_ns = steps_ns
        self._calendars = _Calendars(calendars)

    @property
    def calendars(self) -> Mapping[str, NamedCalendar]:
        """All named calendars."""
        return self._calendars

    @property
    def used_calendars(self) -> Mapping[str, int]:
        """Versions of the calendars that decisions have looked at."""
        return self._calendars.used

    @property
    def steps_ns(self) -> int:
        """How far the wall clock is ahead of elapsed time."""
        return self._steps_ns

    def row(self, job_id: JobId) -> JobRow | None:
        """Return the row of a job, live or ended."""
        if job_id not in self.jobs:
            self.wanted.jobs.add(job_id)
            raise Missing
        return self.jobs[job_id]

    def plain(self, job_id: JobId) -> LiveRow | None:
        """Return the one run of a job that is plain and lives."""
        if self.row(job_id) is not None:
            return None
        for row in self.live_runs.get(job_id, {}).values():
            if row.plain is not None:
                return row
        return None

    def job(self, job_id: JobId) -> Job | None:
        """Return a live job; a plain one too."""
        row = self.row(job_id)
        if row is not None:
            return row.job if row.live else None
        plain = self.plain(job_id)
        return None if plain is None else plain.job

    def named(self, name: str) -> JobId | None:
        """Return the live job that has a name."""
        if name not in self.names:
            self.wanted.names.add(name)
            raise Missing
        return self.names[name]

    def runs(self, job_id: JobId) -> dict[RunKey, LiveRun]:
        """Return the live runs of a job."""
        self.row(job_id)
        rows = self.live_runs.get(job_id, {})
        return {key: row.live for key, row in rows.items()}

    def run(self, job_id: JobId, key: RunKey) -> LiveRun | None:
        """Return a live run."""
        self.row(job_id)
        row = self.live_runs.get(job_id, {}).get(key)
        return None if row is None else row.live

    def dependents(self, job_id: JobId) -> AbstractSet[JobId]:
        """Return the live jobs that come after a job."""
        self.row(job_id)
        return self.after.get(job_id, _NONE)

    def schedule(self, job: Job) -> Schedule:
        """Return the schedule of a recurring job."""
        return schedule_now(job, self._calendars)

    # -- what is over -------------------------------------------------------------------

    def payload(self, job_id: JobId) -> Payload | None:
        """Return the payload of a job that is over and still kept."""
        row = self.row(job_id)
        return None if row is None or row.live else row.job.payload

    def end(self, job_id: JobId) -> RunState | None:
        """Return how a job ended.

        Raises:
            UnknownJobError: it is not kept.
        """
        if job_id not in self.ends:
            self.wanted.ends.add(job_id)
            raise Missing
        state = self.ends[job_id]
        if state is not None:
            return state
        if self.row(job_id) is not None:
            return RunState.SKIPPED  # over without a run
        raise UnknownJobError(
            "after", job_id, "pass the id of a job that lives or is still kept"
        )

    def highest_n(self, job_id: JobId, nominal_ns: int) -> int:
        """Return the highest n of the runs of a nominal time; -1: there is none."""
        key = (job_id, nominal_ns)
        if key not in self.highest:
            self.wanted.highest.add(key)
            raise Missing
        return self.highest[key]

    def dead_run(self, job_id: JobId, key: RunKey) -> HistoryRun | None:
        """Return a run that rests."""
        if (job_id, key) not in self.dead:
            self.wanted.dead.add((job_id, key))
            raise Missing
        row = self.dead[job_id, key]
        return None if row is None else row.value
