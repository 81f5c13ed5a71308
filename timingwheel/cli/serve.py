"""`timingwheel serve`: a scheduler over HTTP, until Ctrl-C or SIGTERM."""

from __future__ import annotations

import logging
from typing import Final

import click

from timingwheel.cli.connection import program_tasks
from timingwheel.cli.grammar import option, verb
from timingwheel.cli.refusal import MisuseError
from timingwheel.cli.session import Session
from timingwheel.errors import MissingExtraError
from timingwheel.logs import LogFormat, configure_logs
from timingwheel.scheduler.opening import without_secret

GRACE: Final = "10s"


@verb(
    None,
    "serve",
    examples=[
        ("timingwheel serve", "./data on http://127.0.0.1:8765"),
        (
            "timingwheel serve --store postgresql://jobs@db.internal/jobs",
            "one of any number of servers that share a database",
        ),
        (
            "timingwheel --app shop.jobs:app serve /var/lib/jobs",
            "and run the program's tasks here",
        ),
        (
            "timingwheel serve /var/lib/jobs --host 0.0.0.0",
            "for other machines; make a token first: timingwheel token add",
        ),
    ],
)
@click.argument("directory", metavar="[DIR]", required=False)
@option("--host", metavar="NAME", help="Where to listen. Default: 127.0.0.1.")
@option(
    "--port",
    type=click.IntRange(0, 65_535),
    metavar="N",
    help="Where to listen; 0: a free one. Default: 8765.",
)
@option(
    "--hints",
    metavar="HOW",
    help="With --store, how servers learn at once of what others do: auto, by "
    "LISTEN and NOTIFY; a postgresql:// URL past the pooler; off, by polling. "
    "Default: auto.",
)
@option(
    "--rate-limit",
    type=float,
    metavar="N",
    help="Requests a second that each token, or each address without one, may make; 0: "
    "any number. Default: 500, on the loopback address any number.",
)
@option("--tokens", is_flag=True, help="Demand tokens on this machine as well.")
@option(
    "--dispatch-only",
    is_flag=True,
    help="Run no task here, whatever --app says: all runs wait for workers.",
)
@option(
    "--grace",
    default=GRACE,
    show_default=True,
    metavar="LENGTH",
    help="How long what runs may take to end.",
)
@option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Of the log on standard error; json: one line each, with ids.",
)
def serve(
    session: Session,
    /,
    *,
    directory: str | None,
    host: str | None,
    port: int | None,
    hints: str | None,
    rate_limit: float | None,
    tokens: bool,
    dispatch_only: bool,
    grace: str,
    log_format: LogFormat,
) -> None:
    """Serve a directory, or with --store a database, over HTTP until Ctrl-C or SIGTERM.

    It runs the tasks of --app, and dispatches all others to workers. Other machines may
    reach it only where there are tokens.
    """
    store = _store(session, directory)
    if hints is not None and store is None:
        raise MisuseError("--hints is about a database: name one with --store")
    try:
        from timingwheel.server.starting import (
            make_server,
            require_database,
            require_local,
            told,
        )
    except ImportError as error:
        raise missing_server(error) from error
    place = (
        require_local(directory or session.settings.data)
        if store is None
        else require_database(store)
    )
    tasks = None if dispatch_only else program_tasks(session.settings.text("app"))
    logs_to_stderr(log_format)
    server = make_server(
        place,
        tasks=tasks,
        host=host or session.settings.text("host") or "",
        port=session.settings.number("port") if port is None else port,
        demands_tokens=tokens,
        rate_limit=rate_limit,
        grace=grace,
        clock=session.clock,
        hints=None if store is None else hints or session.settings.text("hints"),
    )
    server.open()
    if session.printer.as_json:
        names = [] if tasks is None else sorted(tasks.names)
        session.printer.document(
            {"url": server.url, "data": without_secret(place), "tasks": names}
        )
    for line in told(server, place, tasks=tasks):
        session.printer.say(line)
    server.run()


def _store(session: Session, directory: str | None) -> str | None:
    """Return the database that is to be served; None: a directory is.

    Raises:
        MisuseError: a server is named, or both.
    """
    settings = session.settings
    if settings.all["url"].origin == "--url":
        raise MisuseError("serve works on jobs of its own: leave out --url")
    if directory is not None:
        if settings.all["store"].origin == "--store":
            raise MisuseError(f"{directory} and --store both say where the jobs are")
        return None
    store, data = settings.all["store"], settings.all["data"]
    if store.value is None or data.rank < store.rank:
        return None
    return settings.text("store")


def missing_server(error: ImportError) -> MissingExtraError:
    """Return what to say where the server's libraries are not installed."""
    return MissingExtraError(
        f"this needs the server, which is not here ({error}): "
        "pip install 'timingwheel-engine[server]'"
    )


def logs_to_stderr(log_format: LogFormat = "text") -> None:
    """Have logs of INFO and above on standard error, where a supervisor takes them."""
    configure_logs(log_format)
    # It would tell of each request that a worker makes.
    logging.getLogger("httpx").setLevel(logging.WARNING)
