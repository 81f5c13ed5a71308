"""The page Queues: what waits and runs in each, its bounds, and who has paused it."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from timingwheel.errors import ArgumentError
from timingwheel.jobs.figures import BACKLOG_QUEUES_MAX, Measured
from timingwheel.jobs.model import Queue, RunState
from timingwheel.scheduler.questions import PAGE_LIMIT_MAX
from timingwheel.scheduler.scheduler import Scheduler
from timingwheel.server.dashboard.run_rows import moment_of
from timingwheel.server.dashboard.visits import (
    Answer,
    FormErrors,
    Page,
    Redirect,
    View,
    Visit,
)
from timingwheel.server.operations import Role

NAV: Final = "Queues"
_NOTHING: Final = {"limit": "", "rate": "", "note": "", "until": ""}


class QueueRow(NamedTuple):
    """One queue in the list.

    Attributes:
        queue: its bounds, and its pause.
        waiting: runs that are ready; None: it is not counted by itself.
        running: attempts that go on.
        share: of its limit that is in use, 0 to 1; None without a limit.
    """

    queue: Queue
    waiting: int | None
    running: int
    share: float | None


def show_queues(visit: Visit) -> View:
    """Show all queues; with `queue` in the query the forms for that one."""
    return _view(visit, visit.query.get("queue"), {}, FormErrors())


def set_queue(visit: Visit) -> Answer:
    """Set the bounds of a queue."""
    name, errors = visit.form.get("queue"), FormErrors()
    limit = rate = None
    with errors.caught("limit"):
        limit = _limit(visit.form.get("limit"))
    with errors.caught("rate"):
        rate = _rate(visit.form.get("rate"))
    if not errors:
        with errors.caught("queue", "name", "limit", "rate"):
            visit.scheduler.queue(name).set(limit=limit, rate=rate)
    if errors:
        return _view(visit, name, dict(visit.form), errors)
    return Redirect(_url(name), f"The bounds of {name} are set.")


def pause_queue(visit: Visit) -> Answer:
    """Start no more runs from a queue; what runs goes on."""
    name, errors = visit.form.get("queue"), FormErrors()
    with errors.caught("until", "note", "queue", "name"):
        until = moment_of(visit.form.get("until"), visit.zone, "until")
        visit.scheduler.pause(
            visit.scheduler.queue(name),
            note=visit.form.get("note"),
            until=until,
            actor=visit.actor,
        )
    if errors:
        return _view(visit, name, dict(visit.form), errors)
    return Redirect(_url(name), f"{name} is paused: none of its runs starts.")


def resume_queue(visit: Visit) -> Redirect:
    """Start what waits in a queue."""
    name = visit.form.get("queue")
    if visit.scheduler.queue(name).resume():
        return Redirect(_url(name), f"{name} goes on.")
    return Redirect(_url(name), f"{name} was not paused.", "plain")


def _view(visit: Visit, name: str, typed: dict[str, str], errors: FormErrors) -> View:
    rows, is_capped = _rows(visit.scheduler)
    chosen = None
    with errors.caught("queue", "name"):
        chosen = visit.scheduler.queue(name).get() if name else None
    values: dict[str, Any] = {
        "rows": rows,
        "is_capped": is_capped,
        "chosen": chosen,
        "typed": _NOTHING | ({} if chosen is None else _bounds(chosen)) | typed,
        "errors": errors,
        "here": _url(name) if name else "/queues",
    }
    return View("queues.html", values, 422 if errors else 200)


def _rows(scheduler: Scheduler) -> tuple[list[QueueRow], bool]:
    """Return the queues, and whether more runs go on than were counted."""
    page = scheduler.runs(state=RunState.RUNNING, limit=PAGE_LIMIT_MAX)
    running = Counter(run.queue for run in page)
    store = scheduler.desk.store
    backlog = store.figures().backlog if isinstance(store, Measured) else {}
    # With so many, those that are not among the longest are told as one sum.
    counted = len(backlog) <= BACKLOG_QUEUES_MAX
    rows = [
        QueueRow(
            queue,
            backlog.get(queue.name, 0 if counted else None),
            running[queue.name],
            None
            if queue.limit is None
            else min(running[queue.name] / queue.limit, 1.0),
        )
        for queue in scheduler.queues()
    ]
    return rows, page.cursor is not None


def _bounds(queue: Queue) -> dict[str, str]:
    return {
        "limit": "" if queue.limit is None else str(queue.limit),
        "rate": "" if queue.rate is None else f"{queue.rate:g}",
    }


def _limit(text: str) -> int | None:
    try:
        return int(text) if text else None
    except ValueError:
        raise ArgumentError(
            "limit", text, "pass a whole number, or nothing for no bound"
        ) from None


def _rate(text: str) -> float | None:
    try:
        return float(text) if text else None
    except ValueError:
        raise ArgumentError(
            "rate", text, "pass starts a second, such as 0.5, or nothing for no bound"
        ) from None


def _url(name: str) -> str:
    return f"/queues?queue={quote(name, safe='')}"


QUEUE_PAGES: Final = (
    Page("GET", "/queues", show_queues, nav=NAV),
    Page("POST", "/queues/set", set_queue, nav=NAV, role=Role.OPERATE),
    Page("POST", "/queues/pause", pause_queue, nav=NAV, role=Role.OPERATE),
    Page("POST", "/queues/resume", resume_queue, nav=NAV, role=Role.OPERATE),
)
