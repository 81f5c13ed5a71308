"""The page Dead letter: runs that failed for good or were lost, and what to do with them.

Many at once: those that are ticked, or all that the filters mean, BULK_MAX at a time.
Who edits arguments makes a new job that runs once, now, in all else as the one that
failed; the old run is discarded. The job itself is not changed: it may recur, and its
other runs keep what they have.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from timingwheel.errors import ArgumentError, TimingWheelError
from timingwheel.jobs.errors import RunStateError
from timingwheel.jobs.model import Job, Run, RunState
from timingwheel.scheduler.adding import make_draft
from timingwheel.scheduler.calling import call_by_name
from timingwheel.scheduler.scheduler import Scheduler
from timingwheel.scheduler.secrets import (
    arguments_with_kept_secrets,
    with_kept_secrets,
)
from timingwheel.server.dashboard.rendering import job_url
from timingwheel.server.dashboard.run_rows import (
    FILTERS,
    ROWS,
    RunRow,
    is_filtered,
    run_filters,
    run_rows,
)
from timingwheel.server.dashboard.visits import (
    Answer,
    Fields,
    FormErrors,
    Page,
    Redirect,
    View,
    Visit,
)
from timingwheel.server.dashboard.words import count_words
from timingwheel.server.operations import Role
from timingwheel.wire.answers import plain_arguments

NAV: Final = "Dead letter"
BULK_MAX: Final = 1_000
"""Runs that one form retries or discards; who has more sends it again."""
_STATES: Final = (RunState.FAILED, RunState.LOST)
_HOME: Final = "/dead-letter"


def show_dead_letter(visit: Visit) -> View:
    """Show runs that failed for good or were lost."""
    errors = FormErrors()
    filters = run_filters(visit, errors)
    rows: list[RunRow] = []
    cursor = None
    with errors.caught("job", "task", "queue"):
        found = visit.scheduler.runs(
            **filters | {"state": _STATES},
            discarded=False,
            limit=ROWS,
            cursor=visit.query.get("cursor") or None,
        )
        cursor = found.cursor
        rows = run_rows(visit.scheduler, found, now_ns=visit.now_ns)
    values = {
        "rows": rows,
        "cursor": cursor,
        "errors": errors,
        "is_filtered": is_filtered(visit.query),
        "filters": [(name, visit.query.get(name)) for name in FILTERS],
        "bulk_max": BULK_MAX,
    }
    return View("dead_letter.html", values, 422 if errors else 200)


def retry_dead(visit: Visit) -> Redirect:
    """Make dead runs ready again, as the same runs."""
    return _each(visit, visit.scheduler.retry, "made ready again")


def discard_dead(visit: Visit) -> Redirect:
    """Take dead runs off the list."""
    return _each(visit, visit.scheduler.discard, "discarded")


def show_edit(visit: Visit) -> View:
    """Show the form in which the arguments of a dead run are changed."""
    run, job = _dead(visit)
    typed = {"args": _arguments_text(job)}
    return _edit_view(run, job, typed, FormErrors())


def retry_edited(visit: Visit) -> Answer:
    """Run a dead run's job once more with other arguments, and discard the run."""
    run, job = _dead(visit)
    errors, typed = FormErrors(), {"args": visit.form.get("args")}
    made_id = ""
    with errors.caught("args"):
        made_id = _run_anew(visit.scheduler, job, typed["args"])
    if errors:
        return _edit_view(run, job, typed, errors)
    visit.scheduler.discard(run.id)
    return Redirect(
        job_url(made_id), "It runs as a new job; the dead run is discarded."
    )


def _each(visit: Visit, act: Callable[[str], object], done: str) -> Redirect:
    """Do something to each run that a form means, and say to how many."""
    form = visit.form
    is_all = form.get("which") == "all"
    runs, more = _matching(visit) if is_all else (form.all("run"), False)
    back = f"{_HOME}?{Fields([(n, form.get(n)) for n in FILTERS]).with_()}".rstrip("?")
    count = passed = 0
    for run_id in runs[:BULK_MAX]:
        try:
            act(run_id)
            count += 1
        except (RunStateError, ArgumentError):
            passed += 1  # somebody was quicker, or it is kept no longer
    if not runs:
        return Redirect(back, "No run was chosen: tick some first.", "bad")
    said = f"{count_words(count, 'run')} {done}."
    if passed:
        said += f" {count_words(passed, 'run')} had left the list by then."
    if more:
        said += " There are more: send it again."
    return Redirect(back, said, "good" if count else "bad")


def _matching(visit: Visit) -> tuple[list[str], bool]:
    """Return the runs that the filters of a form mean, and whether there are more."""
    errors = FormErrors()
    query = Fields([(name, visit.form.get(name)) for name in FILTERS])
    filters = run_filters(visit._replace(query=query), errors)
    for field, words in errors.items():
        # Left out it would mean more runs than whoever sent it has seen.
        raise ArgumentError(field or "filter", query.get(field), words)
    page = visit.scheduler.runs(
        **filters | {"state": _STATES}, discarded=False, limit=BULK_MAX
    )
    return [run.id for run in page], page.cursor is not None


def _dead(visit: Visit) -> tuple[Run, Job]:
    run = visit.scheduler.run(visit.path["run"]).get()
    if run.state not in _STATES or run.discarded:
        raise RunStateError(
            run.id, run.state.value, "only a run of the dead letter is edited"
        )
    return run, visit.scheduler.job(run.job_id)


def _arguments_text(job: Job) -> str:
    arguments = plain_arguments(job.payload)
    body = msgspec.json.encode({} if arguments is None else arguments)
    return msgspec.json.format(body, indent=2).decode()


def _run_anew(scheduler: Scheduler, job: Job, text: str) -> str:
    try:
        args = msgspec.json.decode(text or "{}", type=dict[str, Any])
    except msgspec.MsgspecError as error:
        raise ArgumentError("args", text, f"pass an object as JSON: {error}") from error
    try:
        call = call_by_name(
            scheduler.tasks,
            job.task,
            # Before the call is checked: a secret may be of a type that *** is not.
            arguments_with_kept_secrets(args, job.payload),
            version=job.payload.version,
        )
    except TimingWheelError as error:
        fix = getattr(error, "fix", str(error))
        raise ArgumentError("args", "...", fix) from error
    draft = make_draft(call, {"delay": 0})
    anew = msgspec.structs.replace(
        draft,
        payload=with_kept_secrets(draft.payload, job.payload),
        policy=job.policy,
        queue=job.queue,
        priority=job.priority,
        cap=job.cap,
        tags=job.tags,
    )
    return scheduler.desk.store.put([anew])[0].id


def _edit_view(run: Run, job: Job, typed: dict[str, str], errors: FormErrors) -> View:
    values = {"run": run, "job": job, "typed": typed, "errors": errors}
    return View("dead_edit.html", values, 422 if errors else 200)


_EDIT: Final = f"{_HOME}/{{run}}/edit"
DEAD_LETTER_PAGES: Final = (
    Page("GET", _HOME, show_dead_letter, nav=NAV),
    Page("POST", f"{_HOME}/retry", retry_dead, nav=NAV, role=Role.OPERATE),
    Page("POST", f"{_HOME}/discard", discard_dead, nav=NAV, role=Role.OPERATE),
    Page("GET", _EDIT, show_edit, nav=NAV, role=Role.OPERATE),
    Page("POST", _EDIT, retry_edited, nav=NAV, role=Role.OPERATE),
)
