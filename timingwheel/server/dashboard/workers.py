"""The page Workers: who works on runs, where, and what each has in hand."""

from __future__ import annotations

from typing import Final, NamedTuple

from timingwheel.scheduler.opening import is_of_this_process
from timingwheel.scheduler.surveying import Worker
from timingwheel.server.dashboard.visits import Page, View, Visit

NAV: Final = "Workers"


class WorkerRow(NamedTuple):
    """One worker.

    Attributes:
        name: for people.
        id: how attempts name it.
        is_far: it works over HTTP; else it is a thread or a process of this server.
        state: "active", "idle" or "lost".
        in_hand: attempts that it has.
        slots: attempts that it can have; None: it asks for as many as it can take.
        since_ns: when it joined, or began the oldest attempt that it has; None: unknown.
        beat_ns: its last sign of life; None: it lives as long as this server.
    """

    name: str
    id: str
    is_far: bool
    state: str
    in_hand: int
    slots: int | None
    since_ns: int | None
    beat_ns: int | None


def show_workers(visit: Visit) -> View:
    """Show who works on runs."""
    rows = worker_rows(visit)
    values = {
        "rows": rows,
        "in_hand": sum(row.in_hand for row in rows),
        "is_serving": visit.scheduler.is_serving,
    }
    return View("workers.html", values)


def worker_rows(visit: Visit) -> list[WorkerRow]:
    """Return this process first, then those that work from afar, then others.

    Cost: reads every running attempt.
    """
    scheduler = visit.scheduler
    busy = {worker.name: worker for worker in scheduler.workers()}
    far = []
    for joined in visit.hub.workers():
        found = busy.pop(joined.id, None)
        in_hand = joined.in_hand if found is None else found.running
        is_lost = joined.beat_ns + joined.ttl_ns < visit.now_ns
        state = "lost" if is_lost else "active" if in_hand else "idle"
        far.append(
            WorkerRow(
                name=joined.name,
                id=joined.id,
                is_far=True,
                state=state,
                in_hand=in_hand,
                slots=None,
                since_ns=joined.joined_ns,
                beat_ns=joined.beat_ns,
            )
        )
    others = _elsewhere(visit, busy, {row.id for row in far})
    own = sum(worker.running for worker in busy.values())
    here = WorkerRow(
        name="This server",
        id=next(iter(busy), ""),
        is_far=False,
        state="active" if own else "idle",
        in_hand=own,
        slots=scheduler.slots,
        since_ns=min((worker.since_ns for worker in busy.values()), default=None),
        beat_ns=None,
    )
    return [here, *far, *others]


def _elsewhere(
    visit: Visit, busy: dict[str, Worker], known: set[str]
) -> list[WorkerRow]:
    """Return the workers of other processes of a database; they are not busy here."""
    facts = visit.scheduler.cluster()
    rows = []
    for one in () if facts is None else facts.members:
        found = busy.get(one.name)
        if one.is_node or one.name in known or is_of_this_process(one.name):
            continue
        busy.pop(one.name, None)
        state = "active" if one.running else "idle"
        rows.append(
            WorkerRow(
                name=one.name.rpartition(":")[0] or one.name,
                id=one.name,
                is_far=True,
                state=state if one.is_alive else "lost",
                in_hand=one.running,
                slots=None,
                since_ns=None if found is None else found.since_ns,
                beat_ns=visit.now_ns + one.left_ns - one.ttl_ns,
            )
        )
    return rows


WORKER_PAGES: Final = (Page("GET", "/workers", show_workers, nav=NAV),)
