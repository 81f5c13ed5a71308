"""`timingwheel queue list | show | pause | resume | set`."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

import click
import msgspec

from timingwheel.cli.documents import queue_document
from timingwheel.cli.grammar import noun, option, verb
from timingwheel.cli.output import Printer
from timingwheel.cli.refusal import MisuseError
from timingwheel.cli.session import Session
from timingwheel.cli.values import MOMENT, NO_BOUND, BoundType
from timingwheel.jobs.model import Queue

queue: Final = noun(
    "queue",
    "Queues: where ready runs wait, and how fast they may leave.",
    examples=[
        ("timingwheel queue list", ""),
        ("timingwheel queue set mail --limit 4 --rate 10", ""),
    ],
)
COLUMNS: Final = ("queue", "running", "ready", "at once", "a second", "paused")
_COUNT_MAX: Final = 1_000


@verb(queue, "list", examples=[("timingwheel queue list", "")])
def list_queues(session: Session) -> None:
    """List the queues that were set or have runs."""
    printer = session.printer
    with session.connected() as connection:
        found = connection.queues()
        counts = [
            tuple(
                _count(connection.app, one.name, state)
                for state in ("running", "ready")
            )
            for one in found
        ]
    if printer.as_json:
        printer.document({"queues": [queue_document(one) for one in found]})
        return
    printer.table(
        COLUMNS,
        [
            _row(one, *numbers, printer=printer)
            for one, numbers in zip(found, counts, strict=True)
        ],
        empty="no queue was set, and none has runs",
    )


@verb(queue, "show", examples=[("timingwheel queue show mail", "")])
@click.argument("name", metavar="QUEUE")
def show_queue(session: Session, *, name: str) -> None:
    """Show a queue's bounds, and who has paused it."""
    with session.connected() as connection:
        found = connection.app.queue(name).get()
    _print(session.printer, found)


@verb(
    queue,
    "pause",
    examples=[("timingwheel queue pause mail --note 'relay is down' --until +1h", "")],
)
@click.argument("name", metavar="QUEUE")
@option("--note", default="", help="Why, for whoever finds it paused.")
@option("--until", type=MOMENT, metavar="TIME", help="When it resumes by itself.")
@option("--actor", metavar="NAME", help="Who; you by default.")
def pause_queue(
    session: Session, *, name: str, note: str, until: datetime | None, actor: str | None
) -> None:
    """Start no more runs from a queue; what runs goes on."""
    with session.connected() as connection:
        handle = connection.app.queue(name)
        handle.pause(note=note, until=until, actor=actor)
        found = handle.get()
    _print(session.printer, found)


@verb(queue, "resume", examples=[("timingwheel queue resume mail", "")])
@click.argument("name", metavar="QUEUE")
def resume_queue(session: Session, *, name: str) -> None:
    """Start what waits in a queue."""
    with session.connected() as connection:
        handle = connection.app.queue(name)
        was_paused = handle.resume()
        found = handle.get()
    if not was_paused:
        session.printer.hint("it was not paused")
    _print(session.printer, found)


@verb(
    queue,
    "set",
    examples=[
        ("timingwheel queue set mail --limit 4 --rate 0.5", "a start each two seconds"),
        ("timingwheel queue set mail --limit none", ""),
    ],
)
@click.argument("name", metavar="QUEUE")
@option("--limit", type=BoundType(int), metavar="N|none", help="Runs at once.")
@option("--rate", type=BoundType(float), metavar="N|none", help="Starts a second.")
def set_queue(session: Session, *, name: str, limit: Any, rate: Any) -> None:
    """Set the bounds of a queue; what is left out stays."""
    if limit is None and rate is None:
        raise MisuseError("nothing is set: pass --limit or --rate")
    with session.connected() as connection:
        found = connection.app.queue(name).set(limit=_bound(limit), rate=_bound(rate))
    _print(session.printer, found)


def _bound(value: Any) -> Any:
    if value is None:
        return msgspec.UNSET
    return None if value == NO_BOUND else value


def _count(app: Any, name: str, state: str) -> str:
    page = app.runs(queue=name, state=state, limit=_COUNT_MAX)
    return f"{len(page):,}" + ("+" if page.cursor is not None else "")


def _row(
    found: Queue, running: str, ready: str, *, printer: Printer
) -> tuple[str, ...]:
    return (
        found.name,
        running,
        ready,
        "" if found.limit is None else str(found.limit),
        "" if found.rate is None else f"{found.rate:g}",
        _held(found, printer),
    )


def _held(found: Queue, printer: Printer) -> str:
    pause = found.pause
    if pause is None:
        return ""
    text = f"by {pause.actor} since {printer.moment(pause.since_ns)}"
    text += f" until {printer.moment(pause.until_ns)}" if pause.until_ns else ""
    return text + (f": {pause.note}" if pause.note else "")


def _print(printer: Printer, found: Queue) -> None:
    if printer.as_json:
        printer.document(queue_document(found))
        return
    printer.facts(
        [
            ("queue", found.name),
            ("at once", "no bound" if found.limit is None else str(found.limit)),
            ("a second", "no bound" if found.rate is None else f"{found.rate:g}"),
            ("paused", _held(found, printer)),
        ]
    )
