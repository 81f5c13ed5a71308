"""What is done to a job by a button: run now, pause, resume, backfill, cancel.

Pause and the like have a page of their own, which shows first what would happen.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Final, Literal, cast
from zoneinfo import ZoneInfo

from timingwheel.jobs.durations import Duration
from timingwheel.jobs.model import Job
from timingwheel.jobs.schedule import instant_ns
from timingwheel.jobs.store import CancelResult, Running
from timingwheel.scheduler.backfilling import BackfillMode
from timingwheel.server.dashboard.job import job_head
from timingwheel.server.dashboard.job_texts import moment_of, moment_text
from timingwheel.server.dashboard.job_words import label
from timingwheel.server.dashboard.rendering import job_url, run_url
from timingwheel.server.dashboard.visits import (
    Answer,
    FormErrors,
    Page,
    Redirect,
    View,
    Visit,
)
from timingwheel.server.dashboard.words import count_words
from timingwheel.server.operations import Role

STARTS_SHOWN: Final = 20
RUNNING: Final = (
    ("leave", "Let it go on"),
    ("signal", "Ask it to end"),
    ("kill", "End it"),
)
CATCH_UPS: Final = (
    ("skip", "Skip what was missed"),
    ("latest", "Run the latest that was missed"),
    ("all", "Run all that were missed"),
)
_HOUR_NS: Final = 3_600_000_000_000
_CANCELLED: Final = {
    CancelResult.CANCELLED: "Cancelled: none of its runs starts any more.",
    CancelResult.RUNNING: "A run goes on to its end; nothing else starts.",
    CancelResult.REQUESTED: "A run was asked to end; nothing else starts.",
    CancelResult.FINISHED: "It had ended already.",
    CancelResult.ALREADY: "It was cancelled already.",
}


def run_now(visit: Visit) -> Answer:
    """Run a job now, once more."""
    handle = visit.scheduler.trigger(visit.path["job"])
    return Redirect(run_url(handle.id), "It runs now, apart from its schedule.")


def ask_pause(visit: Visit) -> View:
    """Ask why and until when a job pauses."""
    return _pause_view(visit, _job(visit), {}, FormErrors())


def pause_job(visit: Visit) -> Answer:
    """Pause a job."""
    job, errors = _job(visit), FormErrors()
    with errors.caught("note", "until", "running"):
        visit.scheduler.pause(
            job,
            note=visit.form.get("note"),
            until=until_of(visit.form.get("until"), visit.zone),
            running=cast("Running", visit.form.get("running") or "leave"),
            actor=visit.actor,
        )
    if errors:
        texts = {name: visit.form.get(name) for name in ("note", "until", "running")}
        return _pause_view(visit, job, texts, errors)
    return Redirect(job_url(job.id), f"{label(job)} is paused.")


def until_of(text: str, zone: ZoneInfo) -> datetime | Duration | None:
    """Return until when a pause lasts: a moment, or a length of time; None: for good.

    Raises:
        ArgumentError: it is neither.
    """
    if not text:
        return None
    return moment_of(text, "until", zone) if text[4:5] == "-" else text


def ask_resume(visit: Visit) -> View:
    """Show what a resume would start, for each way to catch up."""
    job = _job(visit)
    choices = [
        (rule, words, visit.scheduler.resume(job, catch_up=rule, dry_run=True))
        for rule, words in CATCH_UPS
    ]
    values = {"choices": choices, "starts_shown": STARTS_SHOWN}
    return View("job_resume.html", {**job_head(visit, job), **values})


def resume_job(visit: Visit) -> Answer:
    """Resume a job."""
    job = _job(visit)
    done = visit.scheduler.resume(job, catch_up=visit.form.get("catch_up") or "skip")
    started = len(done.starts) + done.released
    said = f"{label(job)} goes on: {count_words(started, 'run')} started"
    if done.skipped:
        said += f", {count_words(done.skipped, 'occurrence')} skipped"
    return Redirect(job_url(job.id), f"{said}.")


def ask_backfill(visit: Visit) -> View:
    """Ask for which stretch of the past runs are made."""
    texts = {
        "start": moment_text(visit.now_ns - 24 * _HOUR_NS, visit.zone),
        "end": moment_text(visit.now_ns, visit.zone),
        "mode": "missing",
    }
    return _backfill_view(visit, _job(visit), texts, FormErrors())


def backfill_job(visit: Visit) -> Answer:
    """Make runs for a stretch of the past, or show which it would be."""
    job, errors, form = _job(visit), FormErrors(), visit.form
    texts = {name: form.get(name) for name in ("start", "end", "mode")}
    is_real = form.get("do") == "make"
    made = None
    with errors.caught("start", "end", "mode"):
        made = visit.scheduler.backfill(
            job,
            moment_of(texts["start"], "start", visit.zone),
            moment_of(texts["end"], "end", visit.zone),
            mode=cast("BackfillMode", texts["mode"]),
            dry_run=not is_real,
        )
    if made is None:
        return _backfill_view(visit, job, texts, errors)
    if is_real:
        said = f"{count_words(len(made.runs), 'run')} made."
        return Redirect(job_url(job.id), said)
    nominals = [instant_ns(one, "nominal") for one in made.nominals]
    preview = {"nominals": nominals, "present": made.present}
    return _backfill_view(visit, job, texts, errors, preview)


def ask_cancel(visit: Visit) -> View:
    """Ask before a job is ended for good."""
    values = {"running_choices": RUNNING}
    return View("job_cancel.html", {**job_head(visit, _job(visit)), **values})


def cancel_job(visit: Visit) -> Answer:
    """End a job."""
    job = _job(visit)
    running = cast("Running", visit.form.get("running") or "leave")
    result = visit.scheduler.cancel(job, running=running, actor=visit.actor)
    said = _CANCELLED.get(result, "There is no such job any more.")
    return Redirect(job_url(job.id), said, "good" if result else "plain")


def _job(visit: Visit) -> Job:
    return visit.scheduler.job(visit.path["job"])


def _pause_view(
    visit: Visit, job: Job, texts: dict[str, str], errors: FormErrors
) -> View:
    values = {"texts": texts, "errors": errors, "running_choices": RUNNING}
    status = 422 if errors else 200
    return View("job_pause.html", {**job_head(visit, job), **values}, status)


def _backfill_view(
    visit: Visit,
    job: Job,
    texts: dict[str, str],
    errors: FormErrors,
    preview: dict[str, object] | None = None,
) -> View:
    values = {
        "texts": texts,
        "errors": errors,
        "preview": preview,
        "shown": STARTS_SHOWN,
    }
    status = 422 if errors else 200
    return View("job_backfill.html", {**job_head(visit, job), **values}, status)


def _pages() -> tuple[Page, ...]:
    one = "/jobs/{job}"
    asks: tuple[tuple[str, Callable[[Visit], Answer], Callable[[Visit], Answer]], ...]
    asks = (
        ("pause", ask_pause, pause_job),
        ("resume", ask_resume, resume_job),
        ("backfill", ask_backfill, backfill_job),
        ("cancel", ask_cancel, cancel_job),
    )
    made = [Page("POST", f"{one}/run", run_now, nav="Jobs", role=Role.OPERATE)]
    for name, ask, act in asks:
        methods: tuple[tuple[Literal["GET", "POST"], Callable[[Visit], Answer]], ...]
        methods = (("GET", ask), ("POST", act))
        made += [
            Page(method, f"{one}/{name}", answer, nav="Jobs", role=Role.OPERATE)
            for method, answer in methods
        ]
    return tuple(made)


JOB_ACTIONS: Final = _pages()
