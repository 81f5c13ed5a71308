"""The forms for a new job and for an edit: each shows its next times before it saves."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from timingwheel.errors import ArgumentError
from timingwheel.jobs.errors import UNREADABLE, RevisionConflictError
from timingwheel.jobs.explaining import explain_trigger, next_times
from timingwheel.jobs.model import Delivery, Draft, Job, Misfire, Overlap
from timingwheel.jobs.triggers import AfterJobs
from timingwheel.scheduler.adding import make_draft
from timingwheel.scheduler.tasks import Call
from timingwheel.server.dashboard.job import TIMES, job_head, upcoming
from timingwheel.server.dashboard.job_texts import (
    FIELDS,
    KEPT_KIND,
    KINDS,
    PLACES,
    Texts,
    blank_texts,
    job_texts,
    retry_option,
    said_call,
    said_options,
    sent_texts,
    zone_or,
)
from timingwheel.server.dashboard.job_words import label
from timingwheel.server.dashboard.rendering import job_url
from timingwheel.server.dashboard.visits import (
    Answer,
    FormErrors,
    Page,
    Redirect,
    View,
    Visit,
)
from timingwheel.server.operations import Role

_NEW: Final = "/jobs/new"
_CHOICES: Final = {
    "overlaps": [one.value for one in Overlap],
    "misfires": [one.value for one in Misfire],
    "deliveries": [(one.value, one.value.replace("_", " ")) for one in Delivery],
    "kept_kind": KEPT_KIND,
}


def ask_new(visit: Visit) -> View:
    """Show the form for a new job."""
    texts = blank_texts(visit.zone) | {"task": visit.query.get("task")}
    return _view(visit, texts, FormErrors(), to=_NEW)


def add_job(visit: Visit) -> Answer:
    """Make a job, or show when it would run."""
    texts, errors = sent_texts(visit.form), FormErrors()
    call = said_call(texts, visit.scheduler.tasks, errors)
    zone = zone_or(texts["tz"], visit.zone)
    options = said_options(texts, None, errors, zone=zone)
    if texts["name"]:
        options |= {"name": texts["name"], "if_exists": "error"}
    if call is None or errors:
        return _view(visit, texts, errors, to=_NEW)
    preview = None
    with errors.caught(*FIELDS, places=PLACES):
        if visit.form.get("do") != "preview":
            ref = visit.scheduler.add(call, **options)
            return Redirect(
                job_url(ref.id), "The job is there, and survives a restart."
            )
        preview = _preview(visit, call, options)
    return _view(visit, texts, errors, to=_NEW, preview=preview)


def ask_edit(visit: Visit) -> View:
    """Show a job as a form."""
    job = visit.scheduler.job(visit.path["job"])
    texts = job_texts(job, visit.zone)
    return _edit_view(visit, job, texts, opened=texts, errors=FormErrors())


def edit_job(visit: Visit) -> Answer:
    """Change a job, or show its next times before and after."""
    app, errors = visit.scheduler, FormErrors()
    job = app.job(visit.path["job"])
    present = job_texts(job, visit.zone)
    opened = _opened(visit.form.get("opened"), present)
    texts = sent_texts(visit.form) | {"task": job.task, "name": present["name"]}
    revision = _number(visit.form.get("revision"), job.revision)
    zone = visit.zone if texts["kind"] == "at" else zone_or(texts["tz"], visit.zone)
    options = said_options(texts, opened, errors, zone=zone)
    retry_option(options, job.policy.retry)
    if texts["args"] != opened["args"]:
        options["call"] = said_call(texts, app.tasks, errors, job=job)
    if revision != job.revision and not errors:
        error = RevisionConflictError(job.id, revision, job.revision)
        errors[""] = (
            f"{error} What you typed is kept; saving it now changes that alone."
        )
        # What was not retyped follows the other's change.
        for name in FIELDS:
            if texts[name] == opened[name]:
                texts[name] = present[name]
        opened = present
    made = None
    is_real = visit.form.get("do") != "preview"
    if not errors:
        with errors.caught(*FIELDS, places=PLACES):
            if not options:
                raise ArgumentError("", "", "nothing is different from what is there")
            made = app.update(job, if_revision=revision, dry_run=not is_real, **options)
    if made is not None and is_real:
        said = f"{label(job)} is changed: revision {made.job.revision}."
        return Redirect(job_url(job.id), said)
    diff = None
    if made is not None:
        diff = {"before": upcoming(made.before), "after": upcoming(made.after)}
    return _edit_view(visit, job, texts, opened=opened, errors=errors, diff=diff)


def _edit_view(
    visit: Visit,
    job: Job,
    texts: Texts,
    *,
    opened: Texts,
    errors: FormErrors,
    diff: object = None,
) -> View:
    return _view(
        visit,
        texts,
        errors,
        to=f"{job_url(job.id)}/edit",
        diff=diff,
        opened=msgspec.json.encode(opened).decode(),
        revision=job.revision,
        **job_head(visit, job),
    )


def _opened(text: str, present: Texts) -> Texts:
    """Return the texts that a form was opened with, which it carries along."""
    try:
        return present | msgspec.json.decode(text, type=dict[str, str])
    except UNREADABLE:
        return present


def _preview(visit: Visit, call: Call, options: dict[str, Any]) -> dict[str, Any]:
    """Return when a job would run, which is not there yet.

    Raises:
        ArgumentError, CronError: an option is invalid.
    """
    told = {name: value for name, value in options.items() if name != "if_exists"}
    draft: Draft = make_draft(call, told)  # type: ignore[arg-type]
    trigger = draft.trigger
    bounds: dict[str, Any] = {
        "created_ns": visit.now_ns,
        "job_key": draft.name or "",
        "calendars": visit.scheduler.calendars(),
    }
    times = []
    if not isinstance(trigger.when, AfterJobs):
        times = next_times(trigger, after_ns=visit.now_ns, n=TIMES, **bounds)
    return {"words": explain_trigger(trigger, **bounds), "times": upcoming(times)}


def _number(text: str, present: int) -> int:
    return int(text) if text.isdecimal() else present


def _view(
    visit: Visit,
    texts: Texts,
    errors: FormErrors,
    *,
    to: str,
    job: object = None,
    **values: object,
) -> View:
    kinds = list(KINDS)
    if texts["kind"] == KEPT_KIND:
        kinds.insert(0, (KEPT_KIND, "As it is"))
    found = {
        "texts": texts,
        "errors": errors,
        "to": to,
        "job": job,
        "kinds": kinds,
        "tasks": sorted(visit.scheduler.tasks.names),
        "preview": None,
        "diff": None,
        **_CHOICES,
        **values,
    }
    return View("job_form.html", found, 422 if errors else 200)


JOB_FORMS: Final = (
    Page("GET", _NEW, ask_new, nav="Jobs", role=Role.OPERATE),
    Page("POST", _NEW, add_job, nav="Jobs", role=Role.OPERATE),
    Page("GET", "/jobs/{job}/edit", ask_edit, nav="Jobs", role=Role.OPERATE),
    Page("POST", "/jobs/{job}/edit", edit_job, nav="Jobs", role=Role.OPERATE),
)
