"""`timingwheel job list | show | next | explain | why`: which jobs, when, and why."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

import click

from timingwheel.cli.documents import (
    arguments_of,
    job_document,
    job_label,
    next_document,
    skip_document,
    when_words,
)
from timingwheel.cli.grammar import noun, option, verb
from timingwheel.cli.output import Printer, as_words
from timingwheel.cli.paging import Paging, paged, paging_options
from timingwheel.cli.session import Session
from timingwheel.cli.values import MOMENT, TAG
from timingwheel.jobs.every import duration_words
from timingwheel.jobs.explaining import NextTime
from timingwheel.jobs.model import Job, JobState
from timingwheel.scheduler.brief import next_ns
from timingwheel.scheduler.secrets import masked

job: Final = noun(
    "job",
    "Jobs: what to do, and when.\n\nA job is meant by its name or its id.",
    examples=[
        ("timingwheel job add mail:send to=a@x --delay 10m", ""),
        ("timingwheel job list --state paused", ""),
        ("timingwheel job explain nightly", ""),
    ],
    heading="Look",
)
TIMES: Final = 10
_TIMES_SHOWN: Final = 3


@verb(
    job,
    "list",
    examples=[
        ("timingwheel job list --tag team=bi", ""),
        ("timingwheel job list --all --json | jq .name", "one job a line"),
    ],
)
@option(
    "--state",
    type=click.Choice([one.value for one in JobState]),
    help="Only those in this state.",
)
@option("--task", metavar="NAME", help="Only those of a task.")
@option("--queue", metavar="NAME", help="Only those of a queue.")
@option("--name", metavar="NAME", help="Only the one of a name.")
@option("--tag", "tags", multiple=True, type=TAG, help="Only those with a tag.")
@paging_options
def list_jobs(
    session: Session,
    /,
    *,
    tags: tuple[tuple[str, str], ...],
    paging: Paging,
    **query: Any,
) -> None:
    """List jobs, live ones first."""
    printer = session.printer
    with session.connected() as connection:
        paged(
            printer,
            lambda **page: connection.app.jobs(
                tags=dict(tags) or None, **query, **page
            ),
            paging,
            name="jobs",
            document=job_document,
            columns=("job", "state", "when", "next", "task", "queue"),
            row=lambda one: _row(one, printer),
            empty="no jobs: timingwheel job add makes one",
        )


@verb(job, "show", examples=[("timingwheel job show nightly", "")])
@click.argument("job_name", metavar="JOB")
def show_job(session: Session, *, job_name: str) -> None:
    """Show all that is known of a job."""
    printer = session.printer
    with session.connected() as connection:
        app = connection.app
        found = app.job(job_name)
        times = app.next_times(found, _TIMES_SHOWN)
        skips = app.skips(found)
        if printer.as_json:
            printer.document(
                {
                    **job_document(found),
                    "next_times": [next_document(time) for time in times],
                    "skips": [skip_document(skip) for skip in skips],
                }
            )
            return
        _print_job(printer, found, times, app.explain(found))
        printer.table(
            ("skipped because", "first", "last", "count"),
            [
                (
                    skip.reason.value,
                    printer.moment(skip.first_ns),
                    printer.moment(skip.last_ns),
                    f"{skip.count:,}",
                )
                for skip in skips[-TIMES:]
            ],
        )


@verb(
    job,
    "next",
    examples=[
        ("timingwheel job next nightly", ""),
        ("timingwheel job next nightly --count 400 --json", ""),
    ],
)
@click.argument("job_name", metavar="JOB")
@option("--count", "-n", default=TIMES, show_default=True, help="How many times.")
def next_times(session: Session, *, job_name: str, count: int) -> None:
    """Show the next times of a job, with what a change of the clocks does to them."""
    printer = session.printer
    with session.connected() as connection:
        times = connection.app.next_times(job_name, count)
    if printer.as_json:
        printer.document({"times": [next_document(time) for time in times]})
        return
    print_times(printer, times)


@verb(job, "explain", examples=[("timingwheel job explain nightly", "")])
@click.argument("job_name", metavar="JOB")
def explain_job(session: Session, *, job_name: str) -> None:
    """Say in words when a job runs, how it is treated, and where it stands."""
    with session.connected() as connection:
        text = connection.app.explain(job_name)
    _answer(session.printer, "explanation", text)


@verb(
    job,
    "why",
    examples=[
        ("timingwheel job why nightly 2026-03-29T02:30", "by your clock"),
        ("timingwheel job why nightly '2026-03-29 01:00+00:00'", ""),
    ],
)
@click.argument("job_name", metavar="JOB")
@click.argument("nominal", metavar="TIME", type=MOMENT)
def why(session: Session, *, job_name: str, nominal: datetime) -> None:
    """Say why a job ran at a time, did not run, or waits: from what is stored."""
    with session.connected() as connection:
        text = connection.app.why(job_name, nominal)
        if not connection.is_served:
            text = text.replace(
                "the scheduler is not started",
                f"no scheduler serves {connection.place}",
            )
    _answer(session.printer, "why", text)


def print_times(printer: Printer, times: list[NextTime]) -> None:
    """Print next times, by the user's clock and by the job's."""
    printer.table(
        ("time", "by the job's clock", "clock change"),
        [
            (
                printer.shown(time.utc),
                f"{time.local.replace(microsecond=0).isoformat(' ')}",
                time.mark.value,
            )
            for time in times
        ],
        empty="it does not run any more",
    )


def _answer(printer: Printer, name: str, text: str) -> None:
    if printer.as_json:
        printer.document({name: text})
    else:
        printer.say(text)


def _row(found: Job, printer: Printer) -> tuple[str, ...]:
    return (
        job_label(found),
        found.state.value,
        when_words(found.trigger),
        printer.moment(next_ns(found)),
        found.task,
        found.queue,
    )


def _print_job(
    printer: Printer, found: Job, times: list[NextTime], explanation: str
) -> None:
    pause = found.pause
    held = None
    if pause is not None:
        held = f"by {pause.actor} since {printer.moment(pause.since_ns)}"
        held += f" until {printer.moment(pause.until_ns)}" if pause.until_ns else ""
        held += f": {pause.note}" if pause.note else ""
    arguments = arguments_of(masked(found.payload))
    timeout_ns = found.policy.timeout_ns
    printer.facts(
        [
            ("job", job_label(found)),
            ("id", found.id if found.name else None),
            ("state", found.state.value),
            ("paused", held),
            ("fault", found.fault),
            ("task", found.task),
            ("arguments", "(a pickle)" if arguments is None else _listed(arguments)),
            ("when", when_words(found.trigger)),
            ("next", printer.ahead(next_ns(found))),
            ("queue", found.queue),
            ("priority", str(found.priority) if found.priority else None),
            ("timeout", duration_words(timeout_ns) if timeout_ns else None),
            ("key", found.key),
            ("tags", " ".join(f"{tag}={word}" for tag, word in found.tags.items())),
            ("revision", str(found.revision)),
            ("created", printer.moment(found.created_ns)),
            ("in words", explanation),
        ]
    )
    if len(times) > 1:
        print_times(printer, times)


def _listed(arguments: Any) -> str:
    if not isinstance(arguments, dict):
        return as_words(arguments)
    return "\n".join(f"{name}={as_words(value)}" for name, value in arguments.items())
