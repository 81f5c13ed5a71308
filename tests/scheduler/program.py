"""A program as users write it: tasks at the top level of a module, on a Scheduler.

The Scheduler is never opened; tests take its tasks into their own stores.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from tests.engine.stage import Door
from timingwheel.clock import Clock
from timingwheel.scheduler.context import Context
from timingwheel.scheduler.retrying import Retry
from timingwheel.scheduler.scheduler import Scheduler

app = Scheduler("never-opened")


@dataclass
class Log:
    """What handlers did, for tests in the same process; `clear` it before each."""

    calls: list[Any] = field(default_factory=list)
    doors: dict[str, Door] = field(default_factory=dict)
    errors: list[Exception] = field(default_factory=list)
    schedulers: list[Scheduler] = field(default_factory=list)

    def clear(self) -> None:
        """Forget it."""
        self.calls.clear()
        self.doors.clear()
        self.errors.clear()
        self.schedulers.clear()

    def door(self, name: str, clock: Clock | None = None) -> Door:
        """Return a new door for `held(name)`; with a clock who waits there is parked."""
        self.doors[name] = Door(clock)
        return self.doors[name]


log = Log()


@app.task
def note(what: str) -> str:
    """Note that it ran."""
    log.calls.append(what)
    return what.upper()


@app.task
async def note_soon(what: str) -> str:
    """As note, on a loop."""
    await asyncio.wait([asyncio.get_running_loop().run_in_executor(None, str)])
    log.calls.append(what)
    return what.upper()


@app.task(executor="process")
def note_elsewhere(what: str) -> str:
    """As note, in another process."""
    log.calls.append(what)
    return what.upper()


@app.task
def note_ctx(ctx: Context, what: str = "") -> dict[str, Any]:
    """Note what the context says."""
    log.calls.append((what, ctx.attempt, ctx.nominal))
    return {"run": ctx.run_id, "token": ctx.token}


@app.task(retry=Retry(3, backoff="1s..10s", jitter=0))
def fail(times: int = 1_000) -> int:
    """Fail so many times, then succeed."""
    log.calls.append("fail")
    if len(log.calls) <= times:
        raise ValueError(f"the {len(log.calls)}. failure")
    return len(log.calls)


@app.task(retry=Retry(1))
def fail_once() -> None:
    """Fail for good."""
    log.calls.append("fail_once")
    if log.errors:
        raise log.errors.pop()


@app.task
def held(door: str) -> str:
    """Wait at a door until the test opens it."""
    log.doors[door]()
    log.calls.append(door)
    return door


@app.task
def add_late(door: str) -> str:
    """Wait at a door, then add a job to the scheduler of the test."""
    log.doors[door]()
    return log.schedulers[-1].schedule(note.call("late"), "1h")


@app.task(timeout="5s")
def obedient(ctx: Context, door: str) -> None:
    """Wait at a door, and end when asked."""
    log.doors[door]()
    ctx.check()


@app.task
def chain(ctx: Context, left: int) -> int:
    """Add a follow-up that becomes a job only if this succeeds."""
    log.calls.append(left)
    if left:
        ctx.add(chain.call(left - 1), delay="10s")
    return left


@app.task(retry=Retry(2, backoff="1s..1s", jitter=0))
def chain_and_fail(ctx: Context) -> None:
    """Add a follow-up and fail once."""
    ctx.add(note.call("follow-up"))
    if ctx.attempt == 1:
        raise ValueError("not yet")


def plain_function() -> None:
    """No task."""
