"""What a decision may ask of a store: live jobs, their live runs, and what is named."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from enum import IntEnum
from typing import Protocol

import msgspec

from timingwheel.jobs.calendars import NamedCalendar
from timingwheel.jobs.model import Job, JobId, RunId
from timingwheel.jobs.schedule import Schedule
from timingwheel.stores.deciding.live import LiveRun, RunKey


class View(Protocol):
    """A store as it is before a group. What it returns is not to be changed."""

    @property
    def calendars(self) -> Mapping[str, NamedCalendar]:
        """All named calendars."""

    @property
    def steps_ns(self) -> int:
        """How far the wall clock is ahead of elapsed time: the sum of its steps."""

    def job(self, job_id: JobId) -> Job | None:
        """Return a live job."""

    def named(self, name: str) -> JobId | None:
        """Return the live job that has a name."""

    def runs(self, job_id: JobId) -> dict[RunKey, LiveRun]:
        """Return the live runs of a job, in a dictionary of the caller's own."""

    def run(self, job_id: JobId, key: RunKey) -> LiveRun | None:
        """Return a live run."""

    def dependents(self, job_id: JobId) -> AbstractSet[JobId]:
        """Return the live jobs that come after a job, which need not live any more."""

    def schedule(self, job: Job) -> Schedule:
        """Return the schedule of a recurring job."""


class Changed(IntEnum):
    """What a change is of, and the type of its value, which is the one after it.

    The numbers are those of the embedded store's records, which these become.
    """

    JOB = 64
    """Job: it lives."""
    JOB_ENDED = 65
    """Job: done or cancelled, and no run of it is live."""
    RUN = 66
    """LiveRun: it lives, and so does its job."""
    RUN_ENDED = 67
    """HistoryRun: it reached a final state, or a final one was changed."""
    ATTEMPT_ENDED = 68
    """Attempt."""
    SKIPS = 69
    """SkipRange: these occurrences do not run."""
    RUN_REVIVED = 73
    """The id of a run that leaves the history for another try."""


Value = msgspec.Struct | RunId | bytes


Change = tuple[int, Value]
"""A Changed, or a kind of the store's own, and what is there after it."""
