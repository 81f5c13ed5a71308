"""The page of one run: its attempts, why it ran or did not, and what can be done."""

from __future__ import annotations

from typing import Any, Final

from timingwheel.jobs.error_line import error_line
from timingwheel.jobs.errors import PayloadError, UnknownJobError
from timingwheel.jobs.model import Attempt, Job, Run, RunState
from timingwheel.jobs.schedule import instant_datetime
from timingwheel.jobs.store import CancelResult
from timingwheel.scheduler.scheduler import Scheduler
from timingwheel.server.dashboard.rendering import run_url
from timingwheel.server.dashboard.run_rows import ERROR_CHARS, length_of
from timingwheel.server.dashboard.runs import NAV
from timingwheel.server.dashboard.visits import Page, Redirect, View, Visit
from timingwheel.server.operations import Role
from timingwheel.wire.answers import job_answer, plain

DEAD: Final = frozenset({RunState.FAILED, RunState.LOST})
LIVE: Final = frozenset(
    {
        *(RunState.PLANNED, RunState.BLOCKED, RunState.READY),
        *(RunState.RUNNING, RunState.RETRYING),
    }
)
_CANCELLED: Final = {
    CancelResult.CANCELLED: ("Cancelled: it never starts.", "good"),
    CancelResult.REQUESTED: ("It runs and has been asked to end.", "plain"),
    CancelResult.RUNNING: ("It runs to its end; no retry follows.", "plain"),
    CancelResult.FINISHED: ("It had ended by then.", "bad"),
    CancelResult.ALREADY: ("It was cancelled before.", "plain"),
    CancelResult.NOT_FOUND: ("There is no such run any more.", "bad"),
}


def show_run(visit: Visit) -> View:
    """Show a run."""
    scheduler, run_id = visit.scheduler, visit.path["run"]
    handle = scheduler.run(run_id)
    run = handle.get()
    attempts = [
        (
            attempt,
            _took_ns(attempt, now_ns=visit.now_ns),
            error_line(attempt.error, ERROR_CHARS),
        )
        for attempt in handle.attempts()
    ]
    job = _job(scheduler, run)
    values: dict[str, Any] = {
        "run": run,
        "job": job,
        "name": _name(run, job),
        "attempts": attempts[::-1],
        "took_ns": length_of(run, now_ns=visit.now_ns),
        "why": _why(scheduler, run, job),
        "arguments": None if job is None else job_answer(job).args,
        "result": _result(scheduler, run),
        "is_dead": run.state in DEAD and not run.discarded,
        "may_discard": (run.state in DEAD and not run.discarded)
        or run.state is RunState.RETRYING,
        "may_cancel": run.state in LIVE,
        "live": run.state in LIVE,
    }
    return View("run.html", values)


def retry_run(visit: Visit) -> Redirect:
    """Make a failed or lost run ready again."""
    run_id = visit.path["run"]
    visit.scheduler.retry(run_id)
    return Redirect(run_url(run_id), "It runs again, as the same run.")


def discard_run(visit: Visit) -> Redirect:
    """Take a run off the dead letter, or end one that waits for a retry."""
    run_id = visit.path["run"]
    visit.scheduler.discard(run_id)
    return Redirect(run_url(run_id), "Discarded: it is not tried again.")


def cancel_run(visit: Visit) -> Redirect:
    """End a run alone; an attempt that goes on is asked to end, and no retry follows."""
    run_id = visit.path["run"]
    result = visit.scheduler.cancel_run(run_id, running="signal")
    said, tone = _CANCELLED[result]
    return Redirect(run_url(run_id), said, tone)


def _job(scheduler: Scheduler, run: Run) -> Job | None:
    try:
        return scheduler.job(run.job_id)
    except UnknownJobError:
        return None  # it is kept no longer


def _name(run: Run, job: Job | None) -> str:
    return (job.name if job is not None else None) or run.task.rpartition(":")[2]


def _why(scheduler: Scheduler, run: Run, job: Job | None) -> str:
    if job is None:
        return "Its job is no longer kept."
    return scheduler.why(job, instant_datetime(run.nominal_ns))


def _result(scheduler: Scheduler, run: Run) -> Any:
    if run.state is not RunState.SUCCEEDED:
        return None
    try:
        return plain(scheduler.run(run).decoded(run))
    except (PayloadError, ValueError):
        return None  # bytes that only the task's own program can read


def _took_ns(attempt: Attempt, *, now_ns: int) -> int:
    end_ns = attempt.ended_ns if attempt.ended_ns is not None else now_ns
    return max(end_ns - attempt.started_ns, 0)


RUN_PAGES: Final = (
    Page("GET", "/runs/{run}", show_run, nav=NAV),
    Page("POST", "/runs/{run}/retry", retry_run, nav=NAV, role=Role.OPERATE),
    Page("POST", "/runs/{run}/discard", discard_run, nav=NAV, role=Role.OPERATE),
    Page("POST", "/runs/{run}/cancel", cancel_run, nav=NAV, role=Role.OPERATE),
)
