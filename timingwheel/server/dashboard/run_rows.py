"""Runs as rows of a list: filters read from a query, names of jobs, errors in a line."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple
from zoneinfo import ZoneInfo

from timingwheel.errors import ArgumentError
from timingwheel.jobs.error_line import error_line
from timingwheel.jobs.errors import UnknownJobError
from timingwheel.jobs.figures import Measured
from timingwheel.jobs.model import JobId, Run, RunState
from timingwheel.scheduler.scheduler import Scheduler
from timingwheel.server.dashboard.visits import Fields, FormErrors, Visit
from timingwheel.server.queries import tags_of

ROWS: Final = 50
"""Rows of one page."""
FILTERS: Final = ("state", "job", "task", "queue", "tag", "since", "until")
LIVE_ROWS_MAX: Final = 50_000
"""A list that has to look at more runs is not shown anew each second: that takes about 1 us a
run, measured with a million."""
NOT_PLANNED: Final = "so far"
"""In place of a state: all but planned, which are the future and may be very many."""
ANY: Final = "any"
ERROR_CHARS: Final = 200


class RunRow(NamedTuple):
    """One run in a list.

    Attributes:
        run: the run.
        name: of its job; "" if it has none.
        length_ns: of the last attempt, up to now if it goes on; None before one.
        error: the last line of its error.
    """

    run: Run
    name: str
    length_ns: int | None
    error: str


def run_filters(visit: Visit, errors: FormErrors) -> dict[str, Any]:
    """Return what Scheduler.runs is to be asked for, from the query of a visit.

    Args:
        visit: whose query.
        errors: takes in what is invalid; such a filter is left out.
    """
    query, found = visit.query, dict[str, Any]()
    for name in ("job", "task", "queue"):
        if query.get(name):
            found[name] = query.get(name)
    state = query.get("state")
    if state in {"", NOT_PLANNED}:
        found["state"] = frozenset(RunState) - {RunState.PLANNED}
    elif state != ANY:
        found["state"] = state
    with errors.caught("tag"):
        found["tags"] = tags_of(query.get("tag").split())
    for name in ("since", "until"):
        with errors.caught(name):
            found[name] = moment_of(query.get(name), visit.zone, name)
    return found


def may_be_live(
    scheduler: Scheduler, state: object, *, rows_max: int = LIVE_ROWS_MAX
) -> bool:
    """Return whether a list of runs is cheap enough to be asked for each second.

    Args:
        scheduler: whose.
        state: what `run_filters` found for it.
        rows_max: what it may look at.
    """
    store, looks = scheduler.desk.store, 0
    if state in (None, RunState.PLANNED):
        looks += scheduler.storage().timers
    if state != RunState.PLANNED and isinstance(store, Measured):
        looks += sum(store.figures().backlog.values())
    return looks <= rows_max


def is_filtered(query: Fields) -> bool:
    """Return whether a query has any filter set."""
    return any(query.get(name) for name in FILTERS)


def moment_of(text: str, zone: ZoneInfo, argument: str) -> datetime | None:
    """Return a moment as it was typed; without an offset it is the visitor's clock.

    Raises:
        ArgumentError: it is none.
    """
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ArgumentError(
            argument, text, "pass a date and a time, such as 2026-11-30 09:00"
        ) from None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=zone)


def run_rows(scheduler: Scheduler, runs: Sequence[Run], *, now_ns: int) -> list[RunRow]:
    """Return runs as rows. Cost: one look-up for each job among them."""
    names = names_of(scheduler, {run.job_id for run in runs})
    return [
        RunRow(
            run,
            names.get(run.job_id, ""),
            length_of(run, now_ns=now_ns),
            error_line(run.error, ERROR_CHARS),
        )
        for run in runs
    ]


def names_of(scheduler: Scheduler, jobs: Iterable[JobId]) -> dict[JobId, str]:
    """Return the names of those jobs that have one and are kept."""
    found = {}
    for job_id in jobs:
        with contextlib.suppress(UnknownJobError):
            name = scheduler.job(job_id).name
            if name is not None:
                found[job_id] = name
    return found


def length_of(run: Run, *, now_ns: int) -> int | None:
    """Return how long the last attempt took, or has taken so far."""
    if run.started_ns is None:
        return None
    end_ns = now_ns if run.state is RunState.RUNNING else run.ended_ns
    return None if end_ns is None else max(end_ns - run.started_ns, 0)
