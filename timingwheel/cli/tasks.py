"""`timingwheel task list | rebind` and `timingwheel worker list`."""

from __future__ import annotations

from typing import Final

import click
import msgspec

from timingwheel.cli.documents import time_text
from timingwheel.cli.grammar import noun, verb
from timingwheel.cli.refusal import MisuseError
from timingwheel.cli.session import Session

task: Final = noun(
    "task",
    "Tasks: the functions that jobs name.",
    examples=[("timingwheel --app shop.jobs:app task list", "")],
)
worker: Final = noun(
    "worker",
    "Workers: who has runs in hand.",
    examples=[("timingwheel worker list", "")],
)


@verb(
    task,
    "list",
    examples=[("timingwheel --app shop.jobs:app task list", "with their signatures")],
)
def list_tasks(session: Session) -> None:
    """List the tasks of the program and those that live jobs name."""
    printer = session.printer
    with session.connected() as connection, printer.working("reading jobs"):
        found = connection.tasks()
    if printer.as_json:
        printer.document({"tasks": [msgspec.structs.asdict(one) for one in found]})
        return
    printer.table(
        ("task", "live jobs", "signature"),
        [
            (one.name, f"{one.jobs:,}", one.signature or "(not known here: --app)")
            for one in found
        ],
        empty="no task is known, and no job names one",
    )


@verb(
    task,
    "rebind",
    examples=[
        (
            "timingwheel --app shop.jobs:app task rebind shop.old:send shop.jobs:send",
            "the jobs of a task that is gone get another",
        ),
        (
            "timingwheel --app shop.jobs:app task rebind shop.jobs:send shop.jobs:send",
            "revive what was quarantined, once the task is mended",
        ),
    ],
)
@click.argument("old", metavar="OLD")
@click.argument("new", metavar="NEW")
def rebind(session: Session, *, old: str, new: str) -> None:
    """Give the jobs of one task to another, and revive those in quarantine.

    NEW must be a task of the program, so on a directory it needs --app.
    """
    if session.settings.url is None and session.settings.text("app") is None:
        raise MisuseError(
            "which tasks there are is not known here: pass --app module:name of your "
            "Scheduler"
        )
    with session.connected() as connection:
        count = connection.app.rebind(old, new)
    if session.printer.as_json:
        session.printer.document({"jobs": count})
    else:
        session.printer.say(f"{count:,} jobs of {old} are jobs of {new} now")


@verb(worker, "list", examples=[("timingwheel worker list --json", "")])
def list_workers(session: Session) -> None:
    """List who has attempts in hand.

    In a directory that no process holds these are workers that ended without a word:
    the next start counts their attempts as lost and tries again.
    """
    printer = session.printer
    with session.connected() as connection:
        found = connection.workers()
        is_served = connection.is_served
    if printer.as_json:
        rows = [
            {"name": one.name, "running": one.running, "since": time_text(one.since_ns)}
            for one in found
        ]
        printer.document({"workers": rows})
        return
    printer.table(
        ("worker", "running", "since"),
        [(one.name, str(one.running), printer.moment(one.since_ns)) for one in found],
        empty="nobody has a run in hand",
    )
    if found and not is_served:
        printer.hint("they are gone: the next start counts these attempts as lost")
