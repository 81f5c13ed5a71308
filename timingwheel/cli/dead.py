"""`timingwheel dead list | show | retry | discard`: runs that failed for good."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import click

from timingwheel.cli.connection import Connection
from timingwheel.cli.documents import run_document
from timingwheel.cli.grammar import noun, option, verb
from timingwheel.cli.paging import every_row
from timingwheel.cli.refusal import MisuseError, RefusedError
from timingwheel.cli.runs import print_run
from timingwheel.cli.session import Session
from timingwheel.cli.values import TAG
from timingwheel.jobs.error_line import error_line
from timingwheel.jobs.model import Run

dead: Final = noun(
    "dead",
    "The dead letter: runs that have failed for good, or were lost.\n\n"
    "They stay until somebody retries or discards them, or they are too old.",
    examples=[
        ("timingwheel dead list", ""),
        ("timingwheel dead retry --all --task mail:send", ""),
    ],
)
COLUMNS: Final = ("run", "state", "ended", "attempts", "task", "error")
_STATES: Final = ("failed", "lost")
_ERROR_CHARS: Final = 80


def chosen_by_query(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add --task, --queue, --job and --tag."""
    for add in (
        option(
            "--tag", "tags", multiple=True, type=TAG, help="Only of jobs with a tag."
        ),
        option("--job", metavar="JOB", help="Only those of a job."),
        option("--queue", metavar="NAME", help="Only those of a queue."),
        option("--task", metavar="NAME", help="Only those of a task."),
    ):
        function = add(function)
    return function


@verb(dead, "list", examples=[("timingwheel dead list --task mail:send", "")])
@chosen_by_query
@option("--limit", default=50, show_default=True, metavar="N", help="Rows at most.")
def list_dead(session: Session, /, *, limit: int, **query: Any) -> None:
    """List runs that have failed for good or were lost, newest first."""
    printer = session.printer
    with session.connected() as connection:
        rows = dead_runs(connection, **query)
        found = [one for _, one in zip(range(limit + 1), rows, strict=False)]
    if printer.as_json:
        printer.document(
            {
                "runs": [run_document(one) for one in found[:limit]],
                "more": len(found) > limit,
            }
        )
        return
    printer.table(
        COLUMNS,
        [
            (
                one.id,
                one.state.value,
                printer.moment(one.ended_ns),
                str(one.attempts),
                one.task,
                error_line(one.error, _ERROR_CHARS),
            )
            for one in found[:limit]
        ],
        empty="nothing has failed for good",
    )
    if len(found) > limit:
        printer.hint(f"there are more: --limit {limit * 10}")


@verb(dead, "show", examples=[("timingwheel dead show RUN --json", "")])
@click.argument("run_id", metavar="RUN")
def show_dead(session: Session, *, run_id: str) -> None:
    """Show a run that has failed, its attempts and its error."""
    print_run(session, run_id)


@verb(
    dead,
    "retry",
    examples=[
        ("timingwheel dead retry RUN", ""),
        ("timingwheel dead retry --all --task mail:send", ""),
    ],
)
@click.argument("run_ids", nargs=-1, metavar="[RUN]...")
@option("--all", "all_", is_flag=True, help="All that the other options choose.")
@chosen_by_query
def retry_dead(
    session: Session, /, *, run_ids: tuple[str, ...], all_: bool, **query: Any
) -> None:
    """Make dead runs ready again; they keep their identity."""
    _on_each(
        session,
        "retried",
        lambda connection, run_id: connection.app.retry(run_id).get(),
        run_ids=run_ids,
        all_=all_,
        query=query,
    )


@verb(
    dead,
    "discard",
    examples=[("timingwheel dead discard --all --job nightly", "")],
)
@click.argument("run_ids", nargs=-1, metavar="[RUN]...")
@option("--all", "all_", is_flag=True, help="All that the other options choose.")
@chosen_by_query
def discard_dead(
    session: Session, /, *, run_ids: tuple[str, ...], all_: bool, **query: Any
) -> None:
    """Take runs off the list; their records stay."""
    _on_each(
        session,
        "discarded",
        lambda connection, run_id: connection.app.discard(run_id),
        run_ids=run_ids,
        all_=all_,
        query=query,
    )


def dead_runs(
    connection: Connection,
    *,
    task: str | None = None,
    queue: str | None = None,
    job: str | None = None,
    tags: tuple[tuple[str, str], ...] = (),
) -> Iterator[Run]:
    """Yield the runs of the dead letter, newest nominal time first."""
    rows = every_row(
        lambda **page: connection.app.runs(
            state=_STATES,
            task=task,
            queue=queue,
            job=job,
            tags=dict(tags) or None,
            **page,
        )
    )
    return (one for one in rows if not one.discarded)


def _on_each(
    session: Session,
    done: str,
    act: Callable[[Connection, str], Run],
    *,
    run_ids: tuple[str, ...],
    all_: bool,
    query: dict[str, Any],
) -> None:
    """Do something to runs that are named, or to all that a query chooses."""
    is_query = any(value for value in query.values())
    if bool(run_ids) == all_ or (run_ids and is_query):
        raise MisuseError("name runs, or pass --all with what chooses them")
    printer = session.printer
    with session.connected() as connection:
        ids = list(run_ids)
        if all_:
            ids = [str(one.id) for one in dead_runs(connection, **query)]
        show = printer.progress(done)
        found = []
        for count, run_id in enumerate(ids, 1):
            found.append(act(connection, run_id))
            show(count, len(ids))
    if printer.as_json:
        printer.document({"runs": [run_document(one) for one in found]})
        return
    if run_ids:
        for one in found:
            printer.say(f"{one.id}: {done}")
    elif found:
        printer.say(f"{len(found):,} runs {done}")
    else:
        raise RefusedError("no run of the dead letter is chosen so")
