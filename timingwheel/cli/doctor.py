"""`timingwheel doctor`: is all well with a store, and what to do if not.

space, clock, lock, log, history
         what can be seen from outside: `directory_checks.py`; on a directory only
opening  the log replays, and the history is of this log and not older than it needs
state    what a run in each state must have: only a running one has a lease
runs     one record for each (job, nominal time, n); a running one has an attempt
that goes on; one that has ended has an end
jobs     what Scheduler.check finds: tasks, calendars, stuck runs, dead letter
cluster  nodes, shards, and the database: standbys, vacuum, connections; with --store
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

import click

from timingwheel.cli.complaint import Complaint
from timingwheel.cli.connection import Connection, DirectoryConnection
from timingwheel.cli.directory_checks import LOOKS, Examination, examine
from timingwheel.cli.grammar import option, verb
from timingwheel.cli.output import Printer
from timingwheel.cli.paging import every_row
from timingwheel.cli.refusal import RefusedError
from timingwheel.cli.session import Session
from timingwheel.jobs.cluster import ClusterFacts
from timingwheel.jobs.model import Run, RunState
from timingwheel.jobs.states import FINAL
from timingwheel.scheduler.cluster_findings import cluster_findings
from timingwheel.stores.embedded import EmbeddedStore
from wal.filesystem import FileSystem


@verb(
    None,
    "doctor",
    examples=[
        ("timingwheel doctor --data /var/lib/jobs", ""),
        ("timingwheel --app shop.jobs:app doctor --strict", "also unknown tasks"),
    ],
)
@option(
    "--strict", is_flag=True, help="End with 1 also for what merely needs attention."
)
def doctor(session: Session, *, strict: bool) -> None:
    """Look over a whole store, and say what is wrong and what to do.

    Reads every byte of the log, every job and every run. Ends with 1 if something is
    wrong. Without --app it does not know which tasks there are.
    """
    printer = session.printer
    looks: list[str] = []
    found: list[Complaint] = []
    seen = Examination([], {})
    if session.settings.place.name == "data":
        with printer.working("reading the log"):
            seen = examine(FileSystem(session.settings.data), session.clock.wall_ns())
        found += seen.complaints
        looks += LOOKS
    if seen.may_open:
        with (
            session.connected() as connection,
            printer.working("reading jobs and runs"),
        ):
            looks += ["opening", "state", "runs", "jobs"]
            found += of_state(connection)
            found += of_runs(
                every_row(partial(connection.app.runs, in_order=False)),
                connection,
                is_served=connection.is_served,
            )
            found += of_jobs(connection)
            facts = connection.app.cluster()
            if facts is not None:
                looks.append("cluster")
                found += of_cluster(facts)
    _print(printer, looks, found, seen.notes)
    bad = [one for one in found if strict or not one.is_mild]
    if bad:
        raise RefusedError(f"{len(bad):,} of {len(found):,} findings are to be mended")


def of_state(connection: Connection) -> Iterator[Complaint]:
    """Yield what contradicts itself in memory; of a directory only."""
    if not isinstance(connection, DirectoryConnection):
        return
    store = connection.app.desk.store
    if not isinstance(store, EmbeddedStore):
        return
    try:
        store.check()
    except AssertionError as error:
        yield Complaint(
            "state",
            "invariant",
            connection.place,
            f"its state contradicts itself: {error}",
            "report this with the store; keep a copy",
        )


def of_runs(
    runs: Iterable[Run], connection: Connection, *, is_served: bool
) -> Iterator[Complaint]:
    """Yield what is wrong with single runs.

    Args:
        runs: all of them.
        connection: where their attempts are.
        is_served: whether somebody may work on those that run.
    """
    seen: set[str] = set()
    left = 0
    for run in runs:
        if run.id in seen and _is_twice(connection, run):
            yield _broken(run, "there are two records of it")
        seen.add(run.id)
        if (run.ended_ns is not None) != (run.state in FINAL):
            yield _broken(run, f"it is {run.state.value}, with an end: {run.ended_ns}")
        if run.state is RunState.RUNNING:
            if _has_no_attempt(connection, run, is_served=is_served):
                yield _broken(run, "it is running, and no attempt of it goes on")
            left += not is_served
    if left:
        yield Complaint(
            "runs",
            "left_running",
            connection.place,
            f"{left:,} runs count as running, and no scheduler serves this directory",
            "start one: what a dead process left is lost and tried again",
        )


def _is_twice(connection: Connection, run: Run) -> bool:
    """Return whether there are two records of a run that came twice.

    One that moved on while all were read may come twice as well.
    """
    of_its_job = every_row(partial(connection.app.runs, job=run.job_id))
    return sum(one.id == run.id for one in of_its_job) > 1


def of_cluster(facts: ClusterFacts) -> Iterator[Complaint]:
    """Yield what needs attention among nodes, shards and the database."""
    for one in cluster_findings(facts):
        yield Complaint(
            "cluster",
            one.kind,
            one.subject,
            one.message,
            one.fix,
            is_passing=one.is_mild,
        )


def of_jobs(connection: Connection) -> Iterator[Complaint]:
    """Yield what Scheduler.check finds; of tasks only if they are known."""
    knows = not isinstance(connection, DirectoryConnection) or connection.knows_tasks
    for one in connection.app.check():
        if one.kind not in {"unknown_task", "expired_run"} or knows:
            yield Complaint("jobs", one.kind, one.subject, one.message, one.fix)


def _has_no_attempt(connection: Connection, run: Run, *, is_served: bool) -> bool:
    """Return whether nothing stands behind a run that counts as running."""
    handle = connection.app.run(run.id)
    attempts = handle.attempts()
    last = attempts[-1] if attempts else None
    if last is None:
        is_missing = True
    elif not last.worker and last.ended_ns is None:
        is_missing = is_served  # a dead process has left it, and nobody served since
    else:
        is_missing = last.number == run.attempts and last.ended_ns is not None
    # It may have ended between the two looks; then it says so by now.
    return is_missing and handle.get().state is RunState.RUNNING


def _broken(run: Run, what: str) -> Complaint:
    fix = "report this with the store; keep a copy"
    return Complaint("runs", "invariant", run.id, what, fix)


def _print(
    printer: Printer, looks: list[str], found: list[Complaint], notes: dict[str, str]
) -> None:
    if printer.as_json:
        findings = []
        for one in found:
            fields = one._asdict()
            del fields["is_passing"]
            findings.append({**fields, "mild": one.is_mild})
        printer.document({"checks": looks, "notes": notes, "findings": findings})
        return
    for look in looks:
        mine = [one for one in found if one.check == look]
        ill = [one for one in mine if not one.is_mild]
        mark, colour = ("ok", "green") if not mine else ("to do", "yellow")
        if ill:
            mark, colour = "WRONG", "red"
        line = f"{look:<8} {click.style(mark, fg=colour):<14} {notes.get(look, '')}"
        click.echo(line.rstrip())
        for one in mine:
            printer.say(f"  {one.kind}: {one.subject}: {one.message}")
            printer.say(f"    {one.fix}")
