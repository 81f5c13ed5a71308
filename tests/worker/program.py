"""A program whose tasks a worker runs far from the scheduler; it is never opened."""

from __future__ import annotations

import asyncio
import threading

from tests.engine.stage import PATIENCE_S, Door
from timingwheel.scheduler.context import Cancelled, Context
from timingwheel.scheduler.retrying import Retry
from timingwheel.scheduler.scheduler import Scheduler

app = Scheduler("never-opened")
doors: dict[str, Door] = {}
asked_by: list[str] = []
"""What `asked` was ended by."""


def door(name: str) -> Door:
    """Return a new door for `held` and `asked`."""
    doors[name] = Door()
    return doors[name]


@app.task(name="greet")
def greet(ctx: Context, to: str) -> str:
    """Greet somebody, and say so in the log."""
    ctx.log.info("to %s", to)
    return f"hello {to}"


@app.task(name="greet_soon")
async def greet_soon(to: str) -> str:
    """As greet, on a loop."""
    await asyncio.get_running_loop().run_in_executor(None, str)
    return f"soon {to}"


@app.task(name="greet_elsewhere", executor="process")
def greet_elsewhere(to: str) -> str:
    """As greet, in another process."""
    return f"elsewhere {to}"


@app.task(name="fail", retry=Retry(1))
def fail(why: str) -> None:
    """Fail for good."""
    raise ValueError(why)


@app.task(name="snooze_once")
def snooze_once(ctx: Context) -> int:
    """Come again a little later."""
    if ctx.attempt == 1:
        ctx.snooze("1ms")
    return ctx.attempt


@app.task(name="add_more")
def add_more(ctx: Context, count: int, size: int = 1) -> None:
    """Add jobs that are made if this succeeds."""
    for number in range(count):
        ctx.add(greet.call("x" * size), key=f"more-{number}", tags={"by": "add_more"})


@app.task(name="held")
def held(name: str) -> str:
    """Wait at a door until the test opens it."""
    doors[name]()
    return name


@app.task(name="asked")
def asked(ctx: Context, name: str) -> None:
    """Go on until somebody asks it to end."""
    tick = threading.Event()
    if name in doors:  # another process has none
        doors[name].reached.set()
    try:
        for _ in range(round(PATIENCE_S / 0.01)):
            ctx.heartbeat()
            tick.wait(0.01)
    except Cancelled as error:
        asked_by.append(type(error).__name__)
        raise
    raise AssertionError("nobody asked")


@app.task(name="slow", timeout="50ms", retry=Retry(1))
def slow(ctx: Context) -> None:
    """Take longer than it may."""
    tick = threading.Event()
    while True:
        ctx.check()
        tick.wait(0.01)
