"""Jobs, runs and the rest as JSON documents, and in the few words of a table's cell.

Times are RFC 3339 in UTC with all their digits; lengths of time are nanoseconds, in
fields that end in `_ns`, as in the stored values.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from timingwheel.jobs.calendars import NamedCalendar
from timingwheel.jobs.errors import UNREADABLE
from timingwheel.jobs.explaining import NextTime
from timingwheel.jobs.model import (
    Attempt,
    Job,
    Pause,
    Payload,
    Queue,
    Run,
    SkipRange,
)
from timingwheel.jobs.schedule import instant_datetime
from timingwheel.jobs.triggers import Trigger
from timingwheel.scheduler import brief
from timingwheel.scheduler.secrets import masked

Document = dict[str, Any]
_NS: Final = 1_000_000_000


def time_text(ns: int | None) -> str | None:
    """Return an instant by RFC 3339, in UTC, with all digits that it has."""
    if ns is None:
        return None
    seconds, rest = divmod(ns, _NS)
    text = instant_datetime(seconds * _NS).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{text}.{rest:09d}".rstrip("0") + "Z" if rest else f"{text}Z"


def job_document(job: Job) -> Document:
    """Return a job."""
    return {
        "id": job.id,
        "name": job.name,
        "task": job.task,
        "state": job.state.value,
        "arguments": arguments_of(masked(job.payload)),
        "when": when_words(job.trigger),
        "trigger": msgspec.to_builtins(job.trigger),
        "policy": msgspec.to_builtins(job.policy),
        "queue": job.queue,
        "priority": job.priority,
        "concurrency": None if job.cap is None else msgspec.to_builtins(job.cap),
        "key": job.key,
        "tags": job.tags,
        "revision": job.revision,
        "created": time_text(job.created_ns),
        "next": time_text(brief.next_ns(job)),
        "runs_made": job.runs_made,
        "pause": None if job.pause is None else _pause(job.pause),
        "fault": job.fault or None,
    }


def run_document(run: Run) -> Document:
    """Return a run; its result as JSON if it can be."""
    return {
        "id": run.id,
        "job": run.job_id,
        "nominal": time_text(run.nominal_ns),
        "n": run.n,
        "due": time_text(run.due_ns),
        "reason": run.reason.value,
        "state": run.state.value,
        "task": run.task,
        "queue": run.queue,
        "priority": run.priority,
        "revision": run.revision,
        "attempts": run.attempts,
        "lost": run.lost,
        "created": time_text(run.created_ns),
        "started": time_text(run.started_ns),
        "ended": time_text(run.ended_ns),
        "result": None if run.result is None else decoded(run.result),
        "error": run.error,
        "skip_reason": None if run.skip_reason is None else run.skip_reason.value,
        "clock_change": run.mark.value or None,
        "discarded": run.discarded,
    }


def attempt_document(attempt: Attempt) -> Document:
    """Return an attempt with its log."""
    return {
        "run": attempt.run_id,
        "attempt": attempt.number,
        "worker": attempt.worker,
        "token": attempt.token,
        "started": time_text(attempt.started_ns),
        "ended": time_text(attempt.ended_ns),
        "outcome": None if attempt.outcome is None else attempt.outcome.value,
        "error": attempt.error,
        "log": attempt.log,
    }


def queue_document(queue: Queue) -> Document:
    """Return a queue."""
    return {
        "name": queue.name,
        "limit": queue.limit,
        "rate": queue.rate,
        "pause": None if queue.pause is None else _pause(queue.pause),
    }


def calendar_document(name: str, calendar: NamedCalendar) -> Document:
    """Return a calendar."""
    return {"name": name, **msgspec.to_builtins(calendar)}


def next_document(time: NextTime) -> Document:
    """Return one of a job's next times."""
    return {
        "utc": time.utc.isoformat().replace("+00:00", "Z"),
        "local": time.local.isoformat(),
        "clock_change": time.mark.value or None,
    }


def skip_document(skip: SkipRange) -> Document:
    """Return occurrences that did not run."""
    return {
        "job": skip.job_id,
        "reason": skip.reason.value,
        "first": time_text(skip.first_ns),
        "last": time_text(skip.last_ns),
        "count": skip.count,
    }


def arguments_of(payload: Payload) -> Any:
    """Return the arguments of a call as JSON; None if they are a pickle."""
    return decoded(payload.body)


def decoded(body: bytes) -> Any:
    """Return stored bytes as JSON has them; None if they are neither of our forms."""
    try:
        if body[:1] == b"{":
            return msgspec.json.decode(body)
        return msgspec.to_builtins(msgspec.msgpack.decode(body), str_keys=True)
    except (*UNREADABLE, TypeError):
        return None


def when_words(trigger: Trigger) -> str:
    """Return when a job runs, in the few words of a cell."""
    return brief.when_words(
        trigger,
        at_words=lambda at_ns: time_text(at_ns) or "",
        jobs_words=lambda jobs: (
            jobs[0] + (f" and {len(jobs) - 1} more" if len(jobs) > 1 else "")
        ),
    )


def job_label(job: Job) -> str:
    """Return what a job is called by: its name, else its id."""
    return job.name or job.id


def _pause(pause: Pause) -> Document:
    return {
        "since": time_text(pause.since_ns),
        "by": pause.actor or None,
        "note": pause.note or None,
        "until": time_text(pause.until_ns),
    }
