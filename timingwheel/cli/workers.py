"""`timingwheel worker`, which runs tasks for a server, and `timingwheel worker list`."""

from __future__ import annotations

from typing import Any, Final

import click

from timingwheel.cli.connection import program_tasks
from timingwheel.cli.documents import time_text
from timingwheel.cli.grammar import Noun, option, verb
from timingwheel.cli.refusal import MisuseError
from timingwheel.cli.serve import GRACE, logs_to_stderr
from timingwheel.cli.session import Session, session_of
from timingwheel.errors import MissingExtraError

TTL: Final = "30s"


@click.group(
    "worker",
    cls=Noun,
    invoke_without_command=True,
    examples=[
        (
            "timingwheel worker --url http://jobs:8765 --app shop.jobs:app --slots 8",
            "run the program's tasks for a server",
        ),
        ("timingwheel worker --queue mail --queue reports", "only runs of these"),
        ("timingwheel worker list", "who has runs in hand"),
    ],
)
@option("--slots", type=int, metavar="N", help="Handlers at once. Default: cores + 4.")
@option(
    "--queue",
    "queues",
    multiple=True,
    metavar="NAME",
    help="Only runs of this queue; may be repeated.",
)
@option("--name", metavar="TEXT", help="How people tell it from others.")
@option(
    "--ttl",
    default=TTL,
    show_default=True,
    metavar="LENGTH",
    help="Its runs start again elsewhere this long after its last sign of life.",
)
@option(
    "--grace",
    default=GRACE,
    show_default=True,
    metavar="LENGTH",
    help="How long what runs may take to end.",
)
@click.pass_context
def worker(ctx: click.Context, /, **options: Any) -> None:
    """Run the tasks of a program for a server, until Ctrl-C or SIGTERM.

    Needs --url, the server, and --app, the program. A server that is away is waited for.
    At the end what runs may end within the grace, and the rest is given back.
    """
    if ctx.invoked_subcommand is None:
        _run(session_of(ctx), **options)


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


def _run(
    session: Session,
    *,
    slots: int | None,
    queues: tuple[str, ...],
    name: str | None,
    ttl: str,
    grace: str,
) -> None:
    settings = session.settings
    url, tasks = settings.url, program_tasks(settings.text("app"))
    if url is None:
        raise MisuseError(
            "name the server: --url http://127.0.0.1:8765; timingwheel worker list shows "
            "who has runs in hand"
        )
    if tasks is None:
        raise MisuseError("name the program whose tasks it runs: --app module:name")
    try:
        from timingwheel.worker.worker import Worker
    except ImportError as error:
        raise MissingExtraError(
            f"this needs the client, which is not here ({error}): "
            "pip install 'timingwheel-engine[client]'"
        ) from error
    logs_to_stderr()
    made = Worker(
        url,
        tasks,
        token=settings.text("token"),
        slots=slots,
        queues=queues or None,
        name=name,
        ttl=ttl,
        clock=session.clock,
    )
    if session.printer.as_json:
        names = sorted(tasks.names)
        session.printer.document({"url": url, "tasks": names, "queues": list(queues)})
    session.printer.say(
        f"working for {url}, tasks: {len(tasks.names)}; Ctrl-C ends it in order"
    )
    made.run_forever(grace)
