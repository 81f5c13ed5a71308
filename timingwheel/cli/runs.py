"""`timingwheel run list | show | cancel | retry | logs`."""

from __future__ import annotations

from typing import Any, Final

import click

from timingwheel.cli.documents import attempt_document, decoded, run_document
from timingwheel.cli.grammar import noun, option, verb
from timingwheel.cli.output import Printer, as_words, printable, short_length
from timingwheel.cli.paging import Paging, paged, paging_options
from timingwheel.cli.refusal import RefusedError
from timingwheel.cli.session import Session
from timingwheel.cli.values import MOMENT, TAG
from timingwheel.jobs.errors import RunStateError
from timingwheel.jobs.model import Attempt, Run, RunState
from timingwheel.jobs.store import CancelResult

run: Final = noun(
    "run",
    "Runs: one for each time that a job was due.\n\n"
    "A run is meant by its id, <job id>@<nanoseconds>; a job that runs once by itself.",
    examples=[
        ("timingwheel run list --job nightly", ""),
        ("timingwheel run list --state failed --since -24h", ""),
        ("timingwheel run logs RUN", ""),
    ],
)
COLUMNS: Final = ("run", "state", "nominal", "took", "attempts", "task")
_NS: Final = 1_000_000_000
_TOO_LATE: Final = frozenset({CancelResult.FINISHED, CancelResult.ALREADY})


@verb(
    run,
    "list",
    examples=[
        ("timingwheel run list --state failed --state lost --since -24h", ""),
        ("timingwheel run list --job nightly --all --json", "one run a line"),
    ],
)
@option("--job", metavar="JOB", help="Only those of a job.")
@option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice([one.value for one in RunState]),
    help="Only those in this state; may be repeated.",
)
@option("--task", metavar="NAME", help="Only those of a task.")
@option("--queue", metavar="NAME", help="Only those of a queue.")
@option("--tag", "tags", multiple=True, type=TAG, help="Only those of jobs with a tag.")
@option("--since", type=MOMENT, metavar="TIME", help="No nominal time before.")
@option("--until", type=MOMENT, metavar="TIME", help="None at or after.")
@paging_options
def list_runs(
    session: Session,
    /,
    *,
    states: tuple[str, ...],
    tags: tuple[tuple[str, str], ...],
    paging: Paging,
    **query: Any,
) -> None:
    """List runs, newest nominal time first."""
    printer = session.printer
    with session.connected() as connection:
        paged(
            printer,
            lambda **page: connection.app.runs(
                state=states or None, tags=dict(tags) or None, **query, **page
            ),
            paging,
            name="runs",
            document=run_document,
            columns=COLUMNS,
            row=lambda one: run_row(one, printer),
            empty="no runs",
        )


@verb(run, "show", examples=[("timingwheel run show RUN --json", "")])
@click.argument("run_id", metavar="RUN")
def show_run(session: Session, *, run_id: str) -> None:
    """Show a run and its attempts."""
    print_run(session, run_id)


@verb(
    run,
    "logs",
    examples=[
        ("timingwheel run logs RUN", "what its handler logged, attempt by attempt"),
        ("timingwheel run logs RUN --attempt 2 --json", ""),
    ],
)
@click.argument("run_id", metavar="RUN")
@option("--attempt", type=int, metavar="N", help="Only that one.")
def logs(session: Session, *, run_id: str, attempt: int | None) -> None:
    """Print the last lines that each attempt logged, and its error."""
    printer = session.printer
    with session.connected() as connection:
        handle = connection.app.run(run_id)
        handle.get()
        attempts = handle.attempts()
    chosen = [one for one in attempts if attempt in (None, one.number)]
    if attempt is not None and not chosen:
        raise RefusedError(
            f"run {run_id} has {len(attempts)} attempts, and no {attempt}"
        )
    if printer.as_json:
        printer.lines(attempt_document(one) for one in chosen)
        return
    for one in chosen:
        outcome = "goes on" if one.outcome is None else one.outcome.value
        printer.hint(
            f"-- attempt {one.number} by {one.worker or 'a worker'}, "
            f"{printer.moment(one.started_ns)}: {outcome}"
        )
        for text in (one.log, one.error):
            if text:
                click.echo(printable(text.rstrip("\n")))


@verb(
    run,
    "cancel",
    examples=[("timingwheel run cancel RUN --running signal", "ask it to end")],
)
@click.argument("run_id", metavar="RUN")
@option(
    "--running",
    type=click.Choice(["leave", "signal", "kill"]),
    default="signal",
    show_default=True,
    help="What becomes of it if it runs.",
)
def cancel_run(session: Session, *, run_id: str, running: Any) -> None:
    """Prevent or end one run; a recurring job goes on with its next one.

    A job that runs once ends with its run. Exit code 1 if it had ended already.
    """
    printer = session.printer
    with session.connected() as connection:
        handle = connection.app.run(run_id)
        found = handle.get()
        result = handle.cancel(running=running)
        if result in _TOO_LATE:
            raise RunStateError(
                found.id, handle.get().state, "it has ended; nothing is to cancel"
            )
        after = handle.get()
    if printer.as_json:
        printer.document({"result": result.value, "run": run_document(after)})
    else:
        printer.say(f"{found.id}: {result.value}, it is {after.state.value}")


@verb(run, "retry", examples=[("timingwheel run retry RUN", "")])
@click.argument("run_ids", nargs=-1, required=True, metavar="RUN...")
def retry_run(session: Session, *, run_ids: tuple[str, ...]) -> None:
    """Make failed or lost runs ready again; they keep their identity."""
    printer = session.printer
    with session.connected() as connection:
        found = [connection.app.retry(run_id).get() for run_id in run_ids]
    if printer.as_json:
        printer.document({"runs": [run_document(one) for one in found]})
        return
    for one in found:
        printer.say(f"{one.id}: {one.state.value}")


def print_run(session: Session, run_id: str) -> None:
    """Print a run and its attempts.

    Raises:
        UnknownRunError: there is none.
    """
    printer = session.printer
    with session.connected() as connection:
        handle = connection.app.run(run_id)
        found, attempts = handle.get(), handle.attempts()
    if printer.as_json:
        documents = [attempt_document(one) for one in attempts]
        printer.document({**run_document(found), "tries": documents})
        return
    _print_run(printer, found, attempts)


def run_row(found: Run, printer: Printer) -> tuple[str, ...]:
    """Return a run as cells of COLUMNS."""
    state = found.state.value
    if found.skip_reason is not None:
        state = f"{state} ({found.skip_reason.value})"
    return (
        found.id,
        state,
        printer.moment(found.nominal_ns),
        _took(found),
        str(found.attempts),
        found.task,
    )


def _took(found: Run) -> str:
    if found.started_ns is None or found.ended_ns is None:
        return ""
    took_ns = found.ended_ns - found.started_ns
    if took_ns < 10 * _NS:
        return f"{took_ns / 1e9:.3f}s"
    return short_length(took_ns // _NS)


def _print_run(printer: Printer, found: Run, attempts: list[Attempt]) -> None:
    skipped = None if found.skip_reason is None else found.skip_reason.value
    result = None if found.result is None else as_words(decoded(found.result))
    late_ns = 0 if found.started_ns is None else found.started_ns - found.due_ns
    printer.facts(
        [
            ("run", found.id),
            ("state", found.state.value),
            ("skipped because", skipped),
            ("task", found.task),
            ("reason", found.reason.value),
            ("nominal", printer.moment(found.nominal_ns)),
            ("due", printer.ahead(found.due_ns)),
            ("clock change", found.mark.value),
            ("started", printer.moment(found.started_ns)),
            ("late", short_length(late_ns // _NS) if late_ns >= _NS else None),
            ("ended", printer.moment(found.ended_ns)),
            ("took", _took(found)),
            ("queue", found.queue),
            ("discarded", "yes" if found.discarded else None),
            ("result", result),
            ("error", found.error),
        ]
    )
    printer.table(
        ("attempt", "outcome", "started", "ended", "worker", "token"),
        [
            (
                str(one.number),
                "" if one.outcome is None else one.outcome.value,
                printer.moment(one.started_ns),
                printer.moment(one.ended_ns),
                one.worker,
                str(one.token),
            )
            for one in attempts
        ],
    )
