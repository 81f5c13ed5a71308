"""The page Jobs: which there are, by state, task, queue, tag and part of the name.

Cost: of one page, as Scheduler.jobs: what is filtered out is read as well.
"""

from __future__ import annotations

from typing import Final

from timingwheel.jobs.model import JobState
from timingwheel.scheduler.brief import next_ns
from timingwheel.server.dashboard.job_texts import tags_of
from timingwheel.server.dashboard.job_words import label, when_words
from timingwheel.server.dashboard.visits import FormErrors, Page, View, Visit

ROWS: Final = 50
FILTERS: Final = ("search", "state", "task", "queue", "tag")


def list_jobs(visit: Visit) -> View:
    """Show a page of jobs, live ones first."""
    said = {name: visit.query.get(name) for name in FILTERS}
    errors = FormErrors()
    rows, cursor = [], None
    with errors.caught():
        page = visit.scheduler.jobs(
            search=said["search"] or None,
            state=said["state"] or None,
            task=said["task"] or None,
            queue=said["queue"] or None,
            tags=tags_of(said["tag"], "tag") or None,
            limit=ROWS,
            cursor=visit.query.get("cursor") or None,
        )
        cursor = page.cursor
        rows = [
            (job, label(job), when_words(job.trigger, visit.zone), next_ns(job))
            for job in page
        ]
    values = {
        "live": True,
        "rows": rows,
        "cursor": cursor,
        "said_filters": said,
        "errors": errors,
        "states": [state.value for state in JobState],
        "tasks": sorted(visit.scheduler.tasks.names),
    }
    name = "jobs_live.html" if visit.is_partial else "jobs.html"
    return View(name, values, 422 if errors else 200)


JOBS_PAGES: Final = (Page("GET", "/jobs", list_jobs, nav="Jobs"),)
