"""The page Runs: what ran, runs and will, newest first; live."""

from __future__ import annotations

from typing import Final

from timingwheel.jobs.model import RunState
from timingwheel.scheduler.handles import Page as Rows
from timingwheel.server.dashboard.run_rows import (
    ANY,
    NOT_PLANNED,
    ROWS,
    is_filtered,
    may_be_live,
    run_filters,
    run_rows,
)
from timingwheel.server.dashboard.visits import FormErrors, Page, View, Visit

NAV: Final = "Runs"
_STATES: Final = tuple((state.value, state.value) for state in RunState)


def show_runs(visit: Visit) -> View:
    """Show runs, newest nominal time first."""
    errors = FormErrors()
    filters = run_filters(visit, errors)
    cursor = visit.query.get("cursor") or None
    page: Rows[object] = Rows([], None)
    rows = []
    with errors.caught("job", "state", "task", "queue"):
        found = visit.scheduler.runs(**filters, limit=ROWS, cursor=cursor)
        page = Rows(found, found.cursor)
        rows = run_rows(visit.scheduler, found, now_ns=visit.now_ns)
    values = {
        "rows": rows,
        "cursor": page.cursor,
        "errors": errors,
        "states": [
            (NOT_PLANNED, "All so far"),
            (ANY, "All, planned ones too"),
            *_STATES,
        ],
        "is_filtered": is_filtered(visit.query),
        "live": cursor is None and may_be_live(visit.scheduler, filters.get("state")),
    }
    return View("runs.html", values, 422 if errors else 200)


RUNS_PAGES: Final = (Page("GET", "/runs", show_runs, nav=NAV),)
