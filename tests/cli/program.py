"""A user's program, as `--app tests.cli.program:app` names it. It is never opened."""

from __future__ import annotations

from datetime import datetime

from timingwheel.scheduler.context import Context
from timingwheel.scheduler.retrying import Retry
from timingwheel.scheduler.scheduler import Scheduler

app = Scheduler("never-opened")


@app.task(name="greet", queue="mail")
def greet(ctx: Context, to: str, n: int = 1) -> str:
    """Greet somebody."""
    ctx.log.info("to %s", to)
    return f"hello {to}" * n


@app.task(name="fail", retry=Retry(1))
def fail(why: str = "no reason") -> None:
    """Fail."""
    raise ValueError(why)


@app.task(name="remind")
def remind(at: datetime) -> None:
    """Take a moment as an argument."""
