"""The operations on queues, calendars, tasks and workers, and on the store as a whole."""

from __future__ import annotations

from typing import Final

from timingwheel.errors import ArgumentError
from timingwheel.jobs.calendars import NamedCalendar
from timingwheel.jobs.errors import UnknownCalendarError
from timingwheel.jobs.storage import Storage
from timingwheel.scheduler.checking import Finding
from timingwheel.scheduler.metrics import MetricsSnapshot
from timingwheel.scheduler.surveying import TaskFacts, Worker
from timingwheel.server.operations import Asked, Operation, Role
from timingwheel.server.queries import until_of
from timingwheel.wire.answers import (
    CalendarAnswer,
    ClusterAnswer,
    CountAnswer,
    DoneAnswer,
    JobAnswer,
    ListAnswer,
    LoadAnswer,
    NowAnswer,
    QueueAnswer,
    calendar_answer,
    job_answer,
    load_answer,
    queue_answer,
    time_text,
)
from timingwheel.wire.bodies import (
    CalendarBody,
    DaysBody,
    LimitQuery,
    LoadQuery,
    PauseBody,
    QueueBody,
    RebindBody,
)


def list_queues(asked: Asked) -> ListAnswer[QueueAnswer]:
    """Return all queues that were set or have runs."""
    return ListAnswer([queue_answer(one) for one in asked.scheduler.queues()])


def get_queue(asked: Asked) -> QueueAnswer:
    """Return a queue; one that nobody has set has no bounds."""
    return queue_answer(asked.scheduler.queue(asked.path["queue"]).get())


def set_queue(asked: Asked) -> QueueAnswer:
    """Set bounds of a queue; what is left out stays."""
    body = asked.the_body(QueueBody)
    handle = asked.scheduler.queue(asked.path["queue"])
    return queue_answer(handle.set(limit=body.limit, rate=body.rate))


def pause_queue(asked: Asked) -> DoneAnswer:
    """Start no more runs from a queue."""
    body = asked.the_body(PauseBody)
    changed = asked.scheduler.pause(
        asked.scheduler.queue(asked.path["queue"]),
        note=body.note,
        until=until_of(body),
        running=body.running,
        actor=asked.actor(body.actor),
    )
    return DoneAnswer(changed)


def resume_queue(asked: Asked) -> DoneAnswer:
    """Start what waits in a queue."""
    return DoneAnswer(asked.scheduler.queue(asked.path["queue"]).resume())


def list_calendars(asked: Asked) -> ListAnswer[CalendarAnswer]:
    """Return all calendars."""
    found = asked.scheduler.calendars()
    return ListAnswer([calendar_answer(name, one) for name, one in found.items()])


def get_calendar(asked: Asked) -> CalendarAnswer:
    """Return a calendar."""
    name = asked.path["calendar"]
    found = asked.scheduler.calendar(name).get()
    if found is None:
        raise UnknownCalendarError(
            "calendar", name, "there is no such calendar; PUT makes it"
        )
    return calendar_answer(name, found)


def set_calendar(asked: Asked) -> CalendarAnswer:
    """Replace a calendar; jobs that use it are planned anew from now."""
    body, name = asked.the_body(CalendarBody), asked.path["calendar"]
    handle = asked.scheduler.calendar(name)
    made = handle.set(dates=body.dates, weekdays=body.weekdays, tz=body.tz)
    return calendar_answer(name, made)


def change_calendar(asked: Asked) -> CalendarAnswer:
    """Add days to a calendar, or take some off; makes it if there is none."""
    body, name = asked.the_body(DaysBody), asked.path["calendar"]
    handle = asked.scheduler.calendar(name)
    calendar = handle.get() or NamedCalendar()
    # In one step, so that a day that is invalid leaves all as it was.
    dates = {*calendar.dates}.difference(body.include).union(body.exclude)
    try:
        made = handle.set(dates=dates, weekdays=calendar.weekdays, tz=calendar.tz)
    except ArgumentError as error:
        raise ArgumentError("exclude", error.found, error.fix) from error
    return calendar_answer(name, made)


def list_tasks(asked: Asked) -> ListAnswer[TaskFacts]:
    """Return the tasks that the server knows and those that live jobs name."""
    return ListAnswer(asked.scheduler.known_tasks())


def rebind_task(asked: Asked) -> CountAnswer:
    """Give the jobs of one task to another; revive those in quarantine."""
    body = asked.the_body(RebindBody)
    return CountAnswer(asked.scheduler.rebind(body.old, body.new))


def list_workers(asked: Asked) -> ListAnswer[Worker]:
    """Return who works on runs now."""
    return ListAnswer(asked.scheduler.workers())


def load_ahead(asked: Asked) -> ListAnswer[LoadAnswer]:
    """Return how many starts are planned in each step of the time to come."""
    query = asked.the_query(LoadQuery)
    loads = asked.scheduler.load_ahead(query.span, step=query.step)
    return ListAnswer([load_answer(one) for one in loads])


def list_followers(asked: Asked) -> ListAnswer[JobAnswer]:
    """Return live jobs that run after others; their triggers name those."""
    found = asked.scheduler.followers(asked.the_query(LimitQuery).limit)
    return ListAnswer([job_answer(job) for job in found])


def check(asked: Asked) -> ListAnswer[Finding]:
    """Return what is wrong in the store, with the fix for each."""
    return ListAnswer(asked.scheduler.check())


def metrics(asked: Asked) -> MetricsSnapshot:
    """Return what this process has counted."""
    return asked.scheduler.snapshot_metrics()


def log(asked: Asked) -> Storage:
    """Return how the store stands: log, snapshots, last recovery, wheels."""
    return asked.scheduler.storage()


def cluster(asked: Asked) -> ClusterAnswer:
    """Return who lives, who fires what, and how the database does."""
    return ClusterAnswer(asked.scheduler.cluster())


def now(asked: Asked) -> NowAnswer:
    """Return the present of the store."""
    wall_ns = asked.scheduler.desk.store.now().wall_ns
    return NowAnswer(
        wall_ns=wall_ns,
        time=time_text(wall_ns),
        is_serving=asked.scheduler.is_serving,
    )


_QUEUE: Final = "/queues/{queue}"
_CALENDAR: Final = "/calendars/{calendar}"
PLACE_OPERATIONS: Final = (
    Operation("GET", "/queues", list_queues, ListAnswer[QueueAnswer], "List queues"),
    Operation("GET", _QUEUE, get_queue, QueueAnswer, "Show a queue"),
    Operation(
        "PATCH",
        _QUEUE,
        set_queue,
        QueueAnswer,
        "Set bounds of a queue",
        body=QueueBody,
        example={"limit": 2, "rate": 0.5},
        role=Role.OPERATE,
    ),
    Operation(
        "POST",
        f"{_QUEUE}/pause",
        pause_queue,
        DoneAnswer,
        "Start no more runs from a queue",
        body=PauseBody,
        role=Role.OPERATE,
        needs_body=False,
    ),
    Operation(
        "POST",
        f"{_QUEUE}/resume",
        resume_queue,
        DoneAnswer,
        "Start what waits in a queue",
        role=Role.OPERATE,
    ),
    Operation(
        "GET",
        "/calendars",
        list_calendars,
        ListAnswer[CalendarAnswer],
        "List calendars",
    ),
    Operation("GET", _CALENDAR, get_calendar, CalendarAnswer, "Show a calendar"),
    Operation(
        "PUT",
        _CALENDAR,
        set_calendar,
        CalendarAnswer,
        "Replace a calendar",
        body=CalendarBody,
        example={"dates": ["2026-12-25"], "weekdays": ["SAT", "SUN"]},
        role=Role.OPERATE,
    ),
    Operation(
        "PATCH",
        _CALENDAR,
        change_calendar,
        CalendarAnswer,
        "Add days to a calendar, or take some off",
        body=DaysBody,
        example={"exclude": ["2026-12-26"]},
        role=Role.OPERATE,
    ),
    Operation("GET", "/tasks", list_tasks, ListAnswer[TaskFacts], "List tasks"),
    Operation(
        "POST",
        "/tasks/rebind",
        rebind_task,
        CountAnswer,
        "Give the jobs of one task to another",
        body=RebindBody,
        example={"old": "mail:send", "new": "post:send"},
        role=Role.ADMIN,
    ),
    Operation("GET", "/workers", list_workers, ListAnswer[Worker], "List workers"),
    Operation(
        "GET",
        "/load-ahead",
        load_ahead,
        ListAnswer[LoadAnswer],
        "Planned starts in the time to come",
        query=LoadQuery,
    ),
    Operation(
        "GET",
        "/followers",
        list_followers,
        ListAnswer[JobAnswer],
        "List live jobs that run after others",
        query=LimitQuery,
    ),
    Operation(
        "GET", "/check", check, ListAnswer[Finding], "What is wrong in the store"
    ),
    Operation(
        "GET", "/metrics", metrics, MetricsSnapshot, "What this process has counted"
    ),
    Operation("GET", "/log", log, Storage, "How the store stands"),
    Operation(
        "GET",
        "/cluster",
        cluster,
        ClusterAnswer,
        "Nodes, shards and the database; null in a directory",
    ),
    Operation("GET", "/now", now, NowAnswer, "The present of the store"),
)
