"""A job in the few words of a row or a head."""

from __future__ import annotations

from zoneinfo import ZoneInfo

from timingwheel.jobs.model import Job
from timingwheel.jobs.triggers import Trigger
from timingwheel.scheduler import brief
from timingwheel.server.dashboard.words import full_time_words


def when_words(trigger: Trigger, zone: ZoneInfo) -> str:
    """Return when a job runs, in the few words of a cell."""
    return brief.when_words(
        trigger,
        at_words=lambda at_ns: full_time_words(at_ns, zone)[:16],
        jobs_words=lambda jobs: "a job" if len(jobs) == 1 else f"{len(jobs)} jobs",
    )


def label(job: Job) -> str:
    """Return what a job is called by: its name, else the first part of its id."""
    return job.name or job.id.partition("-")[0]
