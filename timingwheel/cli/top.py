"""`timingwheel top`: what runs, what waits, what has ended, as it happens."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

import click

from timingwheel.cli.connection import Connection
from timingwheel.cli.dead import dead_runs
from timingwheel.cli.documents import queue_document, run_document, time_text
from timingwheel.cli.grammar import option, verb
from timingwheel.cli.output import Printer, plain_table, short_length
from timingwheel.cli.session import Session
from timingwheel.clock import Clock
from timingwheel.jobs.durations import duration_ns
from timingwheel.jobs.model import Queue, Run, RunState
from timingwheel.jobs.states import FINAL

COUNT_MAX: Final = 1_000
_ROWS: Final = 10
_NS: Final = 1_000_000_000
_ENDED: Final = tuple(sorted(FINAL))


class Counted(NamedTuple):
    """How many there are, up to COUNT_MAX."""

    number: int
    is_more: bool

    def __str__(self) -> str:
        return f"{self.number:,}{'+' if self.is_more else ''}"


class View(NamedTuple):
    """What `top` shows, at one moment.

    Attributes:
        now_ns: that moment.
        place: where the jobs are.
        is_served: whether a scheduler serves them.
        states: how many runs are ready, running, retrying, and in the dead letter.
        ahead: starts that are due within the hour.
        queues: that are bounded, paused or have runs.
        running: runs, the newest first.
        ended: runs that ended, the newest first.
    """

    now_ns: int
    place: str
    is_served: bool
    states: dict[str, Counted]
    ahead: int
    queues: list[Queue]
    running: list[Run]
    ended: list[Run]


@verb(
    None,
    "top",
    examples=[
        ("timingwheel top --json", "for programs"),
        ("timingwheel top", "a directory that nobody serves stands still: shown once"),
    ],
)
@option(
    "--interval", default="2s", show_default=True, help="From one look to the next."
)
@option("--count", type=click.IntRange(min=1), metavar="N", help="Looks in all.")
def top(session: Session, *, interval: str, count: int | None) -> None:
    """Show what runs, what waits and what has ended.

    On a terminal it is drawn anew at each look, else printed once more. A directory
    stands still while this command holds it, so it is shown once unless --count says more.
    """
    interval_ns = duration_ns(interval, "interval", zero=False)
    printer = session.printer
    with session.connected() as connection, _drawing(printer) as draw:
        looks = count
        if looks is None and not connection.is_served:
            looks = 1
        done = 0
        while True:
            draw(view_of(connection))
            done += 1
            if done == looks:
                return
            _rest(session.clock, interval_ns)


def view_of(connection: Connection) -> View:
    """Return what there is to see now."""
    app = connection.app
    states = {
        state.value: _count(app, state)
        for state in (RunState.READY, RunState.RUNNING, RunState.RETRYING)
    }
    dead = sum(1 for _, _ in zip(range(COUNT_MAX), dead_runs(connection), strict=False))
    states["dead"] = Counted(dead, dead == COUNT_MAX)
    return View(
        connection.now_ns(),
        connection.place,
        connection.is_served,
        states,
        sum(load.due for load in app.load_ahead("1h", step="1h")),
        connection.queues(),
        app.runs(state="running", limit=_ROWS),
        app.runs(state=_ENDED, limit=_ROWS),
    )


def view_lines(view: View, printer: Printer) -> list[str]:
    """Return a view as lines for people."""
    served = "" if view.is_served else ", which no scheduler serves"
    counts = ", ".join(f"{number} {state}" for state, number in view.states.items())
    lines = [
        f"{printer.moment(view.now_ns)}  {view.place}{served}",
        f"{counts}, {view.ahead:,} due within the hour",
    ]
    bounded = [
        (
            queue.name,
            "" if queue.limit is None else str(queue.limit),
            "" if queue.rate is None else f"{queue.rate:g}",
            "" if queue.pause is None else f"by {queue.pause.actor}",
        )
        for queue in view.queues
    ]
    if bounded:
        lines += ["", *plain_table(("queue", "at once", "a second", "paused"), bounded)]
    if view.running:
        rows = [
            (run.id, run.task, str(run.attempts), _since(run, view.now_ns))
            for run in view.running
        ]
        lines += ["", *plain_table(("running", "task", "attempt", "for"), rows)]
    if view.ended:
        rows = [
            (run.id, run.task, run.state.value, printer.moment(run.ended_ns))
            for run in view.ended
        ]
        lines += ["", *plain_table(("ended", "task", "state", "at"), rows)]
    return lines


def view_document(view: View) -> dict[str, Any]:
    """Return a view for programs."""
    return {
        "now": time_text(view.now_ns),
        "is_served": view.is_served,
        **{state: counted.number for state, counted in view.states.items()},
        "due_within_the_hour": view.ahead,
        "queues": [queue_document(queue) for queue in view.queues],
        "running_runs": [run_document(run) for run in view.running],
        "ended_runs": [run_document(run) for run in view.ended],
    }


@contextmanager
def _drawing(printer: Printer) -> Iterator[Callable[[View], None]]:
    """Return what shows a view: anew on a terminal, else below the former one."""
    if printer.as_json:
        yield lambda view: printer.lines([view_document(view)])
    elif not sys.stdout.isatty():
        yield lambda view: click.echo("\n".join([*view_lines(view, printer), ""]))
    else:
        from rich.live import Live
        from rich.text import Text

        with Live(auto_refresh=False) as live:
            yield lambda view: live.update(
                Text("\n".join(view_lines(view, printer))), refresh=True
            )


def _rest(clock: Clock, length_ns: int) -> None:
    until_ns = clock.monotonic_ns() + length_ns
    condition = threading.Condition()
    with condition:
        while clock.monotonic_ns() < until_ns:
            clock.wait(condition, until_ns)


def _count(app: Any, state: RunState) -> Counted:
    page = app.runs(state=state, limit=COUNT_MAX)
    return Counted(len(page), page.cursor is not None)


def _since(run: Run, now_ns: int) -> str:
    if run.started_ns is None:
        return ""
    return short_length(max(now_ns - run.started_ns, 0) // _NS)
