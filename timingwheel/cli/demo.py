"""`timingwheel demo`: four days of a scheduler in a second, with a crash. In memory."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Final
from zoneinfo import ZoneInfo

import click

from timingwheel.cli.documents import run_document
from timingwheel.cli.grammar import verb
from timingwheel.cli.output import Printer
from timingwheel.cli.session import Session
from timingwheel.jobs.model import Run
from timingwheel.scheduler.context import TASK_LOGGER, Context
from timingwheel.scheduler.retrying import Retry
from timingwheel.scheduler.scheduler import Scheduler
from timingwheel.scheduler.simulation import Sim
from timingwheel.scheduler.tasks import Task

ZONE: Final = "Europe/Berlin"
START: Final = datetime(2026, 3, 27, 12, tzinfo=UTC)


def report(day: str = "yesterday") -> str:
    """Stand for a job that runs each night."""
    return f"the figures of {day}"


def fetch(ctx: Context, source: str) -> str:
    """Stand for a call that fails twice before it works."""
    if ctx.attempt < 3:
        raise ConnectionError(f"{source} does not answer")
    return f"fetched from {source}"


REPORT: Final = Task(report, name="demo:report")
FETCH: Final = Task(fetch, name="demo:fetch", retry=Retry(5, backoff="1m..10m"))


@verb(None, "demo", examples=[("timingwheel demo", "")])
def demo(session: Session) -> None:
    """Show four days of a scheduler in a second: a night of a clock change, a crash.

    Everything happens in memory, on a simulated clock and disk.
    """
    printer = session.printer
    with _failures_untold(), Sim(_program, start=START) as sim:
        _tell(printer, "Friday noon. Two jobs, durable as soon as add returns:")
        for job in sim.app.jobs():
            _tell(printer, f"  {_name(job.task)}: {sim.app.explain(job)}")
        sim.advance("6h")
        _tell(printer, "\nIn the evening the machine loses its power, for 18 hours ...")
        sim.crash()
        sim.advance("18h")
        _tell(printer, "... and is back on Saturday. What was missed runs once:\n")
        sim.restart()
        sim.advance("3d")
        runs = sorted(sim.runs(), key=lambda run: run.nominal_ns)
        why = sim.app.why("report", datetime(2026, 3, 28, 1, 30, tzinfo=UTC))
        if printer.as_json:
            printer.document({"runs": [run_document(run) for run in runs]})
            return
        printer.table(
            ("job", "due, in Berlin", "state", "attempts", "because"),
            [
                (
                    _name(run.task),
                    _local(run),
                    run.state.value,
                    str(run.attempts),
                    f"{run.reason.value} {run.mark.value}".strip(),
                )
                for run in runs
            ],
        )
        _tell(printer, f"\nWhy Saturday's report? {why}")
        _tell(
            printer,
            "At 02:30 on Sunday the clocks were set forward: that time did not exist, "
            "and the report ran at the end of the gap, once.",
        )


@contextmanager
def _failures_untold() -> Iterator[None]:
    """Keep the failures that belong to the story out of the log, for a while."""
    level = TASK_LOGGER.level
    TASK_LOGGER.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        TASK_LOGGER.setLevel(level)


def _program(app: Scheduler) -> None:
    """Do what a program does at each of its starts."""
    for task in (REPORT, FETCH):
        app.tasks.register(task)
    app.add(REPORT.call(), cron="30 2 * * *", tz=ZONE, name="report")
    app.add(FETCH.call("the archive"), delay="2h", key="fetch")


def _name(task: str) -> str:
    return task.partition(":")[2]


def _local(run: Run) -> str:
    moment = datetime.fromtimestamp(run.nominal_ns / 1e9, ZoneInfo(ZONE))
    return moment.replace(microsecond=0).isoformat(" ")


def _tell(printer: Printer, text: str) -> None:
    if not printer.as_json:
        click.echo(text)
