"""`timingwheel task list | rebind`."""

from __future__ import annotations

from typing import Final

import click
import msgspec

from timingwheel.cli.grammar import noun, verb
from timingwheel.cli.refusal import MisuseError
from timingwheel.cli.session import Session

task: Final = noun(
    "task",
    "Tasks: the functions that jobs name.",
    examples=[("timingwheel --app shop.jobs:app task list", "")],
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
