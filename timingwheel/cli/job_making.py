"""`timingwheel job add | edit`: make a job, or change one."""

from __future__ import annotations

from typing import Any

import click

from timingwheel.cli.connection import Connection
from timingwheel.cli.documents import (
    arguments_of,
    job_document,
    next_document,
)
from timingwheel.cli.grammar import option, verb
from timingwheel.cli.job_options import (
    PLACE,
    job_options,
    scheduler_options,
)
from timingwheel.cli.jobs import print_times
from timingwheel.cli.output import Printer
from timingwheel.cli.refusal import MisuseError
from timingwheel.cli.session import Session
from timingwheel.cli.values import arguments_from
from timingwheel.scheduler.brief import next_ns
from timingwheel.scheduler.changing import JobUpdate

CLEARABLE = (
    *("start", "end", "max_runs", "calendar", "splay", "jitter", "timeout"),
    *("start_deadline", "concurrency", "overlap", "misfire", "retry", "delivery"),
    *("max_lost", "queue", "priority", "tags"),
)
ARGUMENTS = "What to do"


@verb(
    None,
    "add",
    examples=[
        ("timingwheel job add mail:send to=a@x n:=2 --delay 10m", "once"),
        (
            "timingwheel job add reports:nightly --cron '30 2 * * *' --name nightly",
            "again and again; the same line again finds the job, or updates it",
        ),
        ("timingwheel job add backup:run --every 'day at 06:00' --retry 3,1m..1h", ""),
        ("timingwheel --app shop.jobs:app job add shop.jobs:send to=a@x --at +2h", ""),
    ],
)
@click.argument("task", metavar="TASK")
@click.argument("pairs", nargs=-1, metavar="[NAME=TEXT|NAME:=JSON]...")
@option("--args", metavar="JSON", section=ARGUMENTS, help="All arguments as an object.")
@option(
    "--args-version",
    default=1,
    metavar="N",
    section=ARGUMENTS,
    help="Of the task's arguments, where --app does not tell: 1.",
)
@job_options
@option("--name", metavar="NAME", section=PLACE, help="Unique: again finds or updates.")
@option("--key", metavar="TEXT", section=PLACE, help="Idempotency key of the task.")
@option(
    "--if-exists",
    type=click.Choice(["update", "error"]),
    section=PLACE,
    help="What a name does that is there with another definition: update.",
)
@option("--create", is_flag=True, help="Make the directory if it is no store yet.")
def add_job(
    session: Session,
    *,
    task: str,
    pairs: tuple[str, ...],
    args: str | None,
    args_version: int,
    options: dict[str, Any],
    name: str | None,
    key: str | None,
    if_exists: Any,
    create: bool,
) -> None:
    """Add a job: what to do, and when.

    TASK is the name by which the program knows the function, `module:function` unless it
    says otherwise. With --app the arguments are checked and the task's own defaults
    count; without, the worker checks them.
    """
    arguments = arguments_from(pairs, args)
    found = scheduler_options(options)
    with session.connected(create=create) as connection:
        call = connection.call(task, arguments, version=args_version)
        ref = connection.app.add(call, **found, name=name, key=key, if_exists=if_exists)
        made = connection.app.job(ref.id)
    printer = session.printer
    what = "added" if ref.created else "updated" if ref.updated else "already there"
    if printer.as_json:
        printer.document(
            {"created": ref.created, "updated": ref.updated, "job": job_document(made)}
        )
        return
    click.echo(ref.id)
    printer.hint(f"{what}; next {printer.ahead(next_ns(made)) or 'when those end'}")


@verb(
    None,
    "edit",
    examples=[
        (
            "timingwheel job edit nightly --cron '0 3 * * *' --dry-run",
            "its times, only",
        ),
        ("timingwheel job edit nightly --clear end --clear splay", ""),
        ("timingwheel job edit nightly to=b@x --if-revision 3", ""),
    ],
)
@click.argument("job_name", metavar="JOB")
@click.argument("pairs", nargs=-1, metavar="[NAME=TEXT|NAME:=JSON]...")
@option("--args", metavar="JSON", section=ARGUMENTS, help="All arguments as an object.")
@job_options
@option(
    "--clear",
    multiple=True,
    type=click.Choice([name.replace("_", "-") for name in CLEARABLE]),
    help="Take a bound away, or go back to the default; may be repeated.",
)
@option("--if-revision", type=int, metavar="N", help="Only if it still has this one.")
@option("--dry-run", is_flag=True, help="Change nothing, and show what would come.")
def edit_job(
    session: Session,
    *,
    job_name: str,
    pairs: tuple[str, ...],
    args: str | None,
    options: dict[str, Any],
    clear: tuple[str, ...],
    if_revision: int | None,
    dry_run: bool,
) -> None:
    """Change a job; past runs keep what they had, and nothing is caught up.

    What is left out stays. NAME=TEXT replaces single arguments, --args all of them.
    """
    changes = scheduler_options(options)
    cleared: dict[str, Any] = {name.replace("-", "_"): None for name in clear}
    both = sorted(changes.keys() & cleared.keys())
    if both:
        raise MisuseError(f"--clear {both[0]} and --{both[0]} say two things: keep one")
    with session.connected() as connection:
        if pairs or args is not None:
            changes["call"] = _changed_call(connection, job_name, pairs, args)
        done = connection.app.update(
            job_name, if_revision=if_revision, dry_run=dry_run, **(changes | cleared)
        )
    _print_update(session.printer, done, dry_run=dry_run)


def _changed_call(
    connection: Connection, name: str, pairs: tuple[str, ...], whole: str | None
) -> object:
    found = connection.app.job(name)
    arguments = arguments_of(found.payload) if whole is None else {}
    if not isinstance(arguments, dict):
        raise MisuseError(
            f"the arguments of {name} are a pickle, which is not read: pass --args"
        )
    arguments |= arguments_from(pairs, whole)
    return connection.call(found.task, arguments, version=found.payload.version)


def _print_update(printer: Printer, done: JobUpdate, *, dry_run: bool) -> None:
    if printer.as_json:
        printer.document(
            {
                "dry_run": dry_run,
                "job": job_document(done.job),
                "before": [next_document(time) for time in done.before],
                "after": [next_document(time) for time in done.after],
            }
        )
        return
    if done.before == done.after:
        printer.say("its next times stay as they are:")
        print_times(printer, done.after)
    else:
        before = {time.utc for time in done.before}
        after = {time.utc for time in done.after}
        for time in sorted(before | after):
            mark, colour = (" ", None) if time in before & after else ("+", "green")
            if time not in after:
                mark, colour = "-", "red"
            click.echo(click.style(f"{mark} {printer.shown(time)}", fg=colour))
    revision = done.job.revision
    printer.hint(
        f"nothing was changed; it would be revision {revision}"
        if dry_run
        else f"changed; it is revision {revision} now"
    )
