"""`timingwheel job pause | resume | cancel | run | backfill`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final, Literal

import click

from timingwheel.cli.documents import run_document, time_text
from timingwheel.cli.grammar import option, verb
from timingwheel.cli.refusal import MisuseError, RefusedError
from timingwheel.cli.session import Session
from timingwheel.cli.values import MOMENT
from timingwheel.jobs.model import RunState
from timingwheel.jobs.store import CancelResult, Resumption

RUNNING: Final = click.Choice(["leave", "signal", "kill"])
_TIMES_SHOWN: Final = 20
_WORDS: Final = {
    CancelResult.CANCELLED: "cancelled",
    CancelResult.RUNNING: "it runs, and is left to end; no run of it starts again",
    CancelResult.REQUESTED: "it runs, and has been asked to end",
    CancelResult.FINISHED: "it had ended already",
    CancelResult.ALREADY: "it was cancelled already",
    CancelResult.NOT_FOUND: "there is no such job",
}


@verb(
    None,
    "pause",
    examples=[
        ("timingwheel job pause nightly --note 'disk is full' --until +2h", ""),
        ("timingwheel job pause a b c --running signal", "and ask what runs to end"),
    ],
)
@click.argument("jobs", nargs=-1, required=True, metavar="JOB...")
@option("--note", default="", help="Why, for whoever finds it paused.")
@option("--until", type=MOMENT, metavar="TIME", help="When it resumes by itself.")
@option("--running", type=RUNNING, default="leave", help="What runs: leave it.")
@option("--actor", metavar="NAME", help="Who; you by default.")
def pause_job(
    session: Session,
    *,
    jobs: tuple[str, ...],
    note: str,
    until: datetime | None,
    running: Any,
    actor: str | None,
) -> None:
    """Start no more runs of a job. What runs goes on; a manual run still works."""
    with session.connected() as connection:
        app = connection.app
        for name in jobs:
            app.job(name)  # all of them are there, or none is paused
        new = {
            name: app.pause(name, note=note, until=until, running=running, actor=actor)
            for name in jobs
        }
    _report(
        session,
        [
            {"job": name, "state": "paused", "changed": is_new}
            for name, is_new in new.items()
        ],
        [
            f"{name}: paused" if is_new else f"{name}: was paused; the note is new"
            for name, is_new in new.items()
        ],
    )


@verb(
    None,
    "resume",
    examples=[
        ("timingwheel job resume nightly", "what it missed does not run"),
        ("timingwheel job resume nightly --catch-up 'since(2h)' --dry-run", ""),
    ],
)
@click.argument("jobs", nargs=-1, required=True, metavar="JOB...")
@option(
    "--catch-up",
    default="skip",
    metavar="RULE",
    help="Of times that the pause passed over: skip, latest, all, since(2h).",
)
@option("--dry-run", is_flag=True, help="Change nothing, and say what would start.")
def resume_job(
    session: Session, *, jobs: tuple[str, ...], catch_up: str, dry_run: bool
) -> None:
    """Let a paused job go on."""
    with session.connected() as connection:
        app = connection.app
        for name in jobs:
            app.job(name)
        done = {
            name: app.resume(name, catch_up=catch_up, dry_run=dry_run) for name in jobs
        }
    _report(
        session,
        [
            {
                "job": name,
                "dry_run": dry_run,
                "starts": [time_text(ns) for ns in what.starts],
                "skipped": what.skipped,
                "released": what.released,
            }
            for name, what in done.items()
        ],
        [_resumed(session, name, what, dry_run=dry_run) for name, what in done.items()],
    )


@verb(
    None,
    "cancel",
    examples=[
        ("timingwheel job cancel nightly", ""),
        ("timingwheel job cancel nightly --running kill", "and end what runs"),
    ],
)
@click.argument("jobs", nargs=-1, required=True, metavar="JOB...")
@option("--running", type=RUNNING, default="leave", help="What runs: leave it.")
@option("--actor", metavar="NAME", help="Who; you by default.")
def cancel_job(
    session: Session, *, jobs: tuple[str, ...], running: Any, actor: str | None
) -> None:
    """End a job: none of its runs starts any more. For good; to hold it, pause it.

    Ends with 1 if one of them is not there.
    """
    with session.connected() as connection:
        results = {
            name: connection.app.cancel(name, running=running, actor=actor)
            for name in jobs
        }
    _report(
        session,
        [
            {"job": name, "result": result.value, "prevented": bool(result)}
            for name, result in results.items()
        ],
        [f"{name}: {_WORDS[result]}" for name, result in results.items()],
    )
    missing = [name for name, one in results.items() if one is CancelResult.NOT_FOUND]
    if missing:
        raise RefusedError(
            f"there is no job {', '.join(missing)}: timingwheel job list shows those "
            "that are there"
        )


@verb(
    None,
    "run",
    examples=[
        ("timingwheel job run nightly", "now, once more, even if it is paused"),
        ("timingwheel job run nightly --json", "with the run as a document"),
    ],
)
@click.argument("job_name", metavar="JOB")
@option("--wait", metavar="LENGTH", help="Wait so long at most for its end.")
def run_job(session: Session, *, job_name: str, wait: str | None) -> None:
    """Run a job now, apart from its trigger; prints the id of the run.

    Without a running scheduler it starts as soon as one serves the directory.
    """
    printer = session.printer
    with session.connected() as connection:
        if wait is not None and not connection.is_served:
            raise MisuseError(
                f"--wait needs a scheduler that runs, and none serves "
                f"{connection.place}: leave --wait out"
            )
        handle = connection.app.trigger(job_name)
        run = handle.get() if wait is None else handle.wait(wait)
        place = connection.place
    if printer.as_json:
        printer.document(run_document(run))
    else:
        click.echo(run.id)
        if not connection.is_served:
            printer.hint(f"it starts when a scheduler serves {place}")
        elif wait is not None:
            printer.hint(run.state.value)
    if wait is not None and run.state is not RunState.SUCCEEDED:
        raise RefusedError(f"run {run.id} is {run.state.value}: {run.error or ''}")


@verb(
    None,
    "backfill",
    examples=[
        ("timingwheel job backfill nightly 2026-03-01 2026-03-08 --dry-run", ""),
        ("timingwheel job backfill nightly -- -7d now", "the last seven days"),
    ],
)
@click.argument("job_name", metavar="JOB")
@click.argument("start", metavar="FROM", type=MOMENT)
@click.argument("end", metavar="TO", type=MOMENT)
@option(
    "--mode",
    type=click.Choice(["missing", "all"]),
    default="missing",
    show_default=True,
    help="Times without a run, or one more run for each.",
)
@option("--again", is_flag=True, help="Also where nobody knows any more what ran.")
@option("--dry-run", is_flag=True, help="Make nothing, and say what would be made.")
def backfill_job(
    session: Session,
    *,
    job_name: str,
    start: datetime,
    end: datetime,
    mode: Literal["missing", "all"],
    again: bool,
    dry_run: bool,
) -> None:
    """Make runs for times of the past, from FROM up to TO."""
    printer = session.printer
    with (
        session.connected() as connection,
        printer.working("making runs"),
    ):
        done = connection.app.backfill(
            job_name, start, end, mode=mode, again=again, dry_run=dry_run
        )
    if printer.as_json:
        printer.document(
            {
                "dry_run": dry_run,
                "nominals": [
                    one.isoformat().replace("+00:00", "Z") for one in done.nominals
                ],
                "runs": list(done.runs),
                "present": done.present,
            }
        )
        return
    for nominal in done.nominals[:_TIMES_SHOWN]:
        click.echo(printer.shown(nominal))
    if len(done.nominals) > _TIMES_SHOWN:
        click.echo(f"... and {len(done.nominals) - _TIMES_SHOWN:,} more")
    would = "would be made" if dry_run else "made"
    printer.hint(
        f"{len(done.nominals):,} runs {would}; {done.present:,} times had one already"
    )


def _resumed(session: Session, name: str, what: Resumption, *, dry_run: bool) -> str:
    would = "would start" if dry_run else "start"
    text = (
        f"{name}: {len(what.starts):,} runs {would}, {what.skipped:,} times are "
        f"skipped, {what.released:,} held runs go on"
    )
    shown = what.starts[:_TIMES_SHOWN]
    return "\n".join([text, *(f"  {session.printer.moment(ns)}" for ns in shown)])


def _report(
    session: Session, documents: Sequence[object], lines: Sequence[str]
) -> None:
    if session.printer.as_json:
        session.printer.document({"jobs": list(documents)})
        return
    for line in lines:
        session.printer.say(line)
