"""What a put has to know of jobs that are over: keys in use, and how those before ended."""

from __future__ import annotations

from collections.abc import Sequence

from timingwheel.jobs.errors import UnknownJobError
from timingwheel.jobs.model import (
    Draft,
    JobId,
    Payload,
    RunState,
)
from timingwheel.jobs.store import RunQuery
from timingwheel.jobs.triggers import AfterJobs
from timingwheel.stores.entries import RecentEnd
from timingwheel.stores.history import History
from timingwheel.stores.identity import StoreTag
from timingwheel.stores.reading import Reading


def asks_for_past(draft: Draft) -> bool:
    """Return whether a draft refers to what may be over."""
    return draft.key is not None or isinstance(draft.trigger.when, AfterJobs)


def look_back(
    read: Reading,
    history: History,
    tag: StoreTag,
    *,
    drafts: Sequence[Draft],
    written_lsn: int,
) -> KnownPast:
    """Look up what drafts refer to that is over; without the core's lock.

    Args:
        read: sees plain jobs.
        history: what has ended.
        tag: makes the ids of keyed jobs.
        drafts: what is to be put.
        written_lsn: the history had all up to here before this call.
    """
    payloads: dict[JobId, Payload] = {}
    ends: dict[JobId, RunState] = {}
    for draft in drafts:
        if draft.key is not None:
            job_id = tag.keyed(draft.task, draft.key)
            job = history.job(job_id)
            if job is not None:
                payloads[job_id] = job.payload
        if isinstance(draft.trigger.when, AfterJobs):
            for before in map(JobId, draft.trigger.when.jobs):
                end = _end_of(history, before)
                if end is not None:
                    ends[before] = end
    return KnownPast(read, payloads, ends, written_lsn=written_lsn)


def _end_of(history: History, job_id: JobId) -> RunState | None:
    page = history.runs(RunQuery(job_id=job_id, limit=1))
    if page.runs:
        return page.runs[0].state
    # It was cancelled, or all its times were skipped.
    return RunState.SKIPPED if history.has_job(job_id) else None


class KnownPast:
    """What was looked up before a put, and what has ended since.

    Args:
        reading: sees plain jobs.
        payloads: of keyed jobs that are over.
        ends: of jobs that are over.
        written_lsn: what ended later was not looked up, but is remembered.
    """

    def __init__(
        self,
        reading: Reading,
        payloads: dict[JobId, Payload],
        ends: dict[JobId, RunState],
        *,
        written_lsn: int,
    ) -> None:
        self._written_lsn = written_lsn
        self._reading = reading
        self._payloads = payloads
        self._ends = ends

    def payload(self, job_id: JobId) -> Payload | None:
        """Return the payload of a job that is over and still kept."""
        recent = self._recent(job_id)
        if recent is not None and recent.payload is not None:
            return recent.payload
        return self._payloads.get(job_id)

    def end(self, job_id: JobId) -> RunState | None:
        """Return how a job ended, None if it is a plain one that has not."""
        if self._reading.plain_row(job_id) is not None:
            return None
        recent = self._recent(job_id)
        if recent is not None and recent.state is not None:
            return recent.state
        if job_id not in self._ends and recent is not None:
            return RunState.SKIPPED  # over without a run
        if job_id not in self._ends:
            raise UnknownJobError(
                "after", job_id, "pass the id of a job that lives or is still kept"
            )
        return self._ends[job_id]

    def _recent(self, job_id: JobId) -> RecentEnd | None:
        recent = self._reading.recent(job_id)
        # An older one may have been forgotten by the history since.
        is_new = recent is not None and recent.lsn > self._written_lsn
        return recent if is_new else None
