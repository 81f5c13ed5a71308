"""Handlers that behave, and handlers that do not; a process imports them from here."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
import threading
from contextvars import ContextVar
from typing import Any

from timingwheel.scheduler.context import Cancelled, Context, LeaseLost, current
from timingwheel.scheduler.executors.executor import Executor
from timingwheel.scheduler.retrying import Retry
from timingwheel.scheduler.tasks import Task
from timingwheel.testing import ManualClock

CLOCK = ManualClock()
"""Turned by `take`."""


class GaveUpError(Exception):
    """An error that no retry mends."""


def task(function: Any) -> Task:
    return Task(function, retry=Retry(3, give_up_on=GaveUpError))


def knock(address: str, word: str = "") -> None:
    """Say a word at a test's door and wait until it is opened: it works between processes."""
    with socket.socket(socket.AF_UNIX) as door:
        door.connect(address)
        door.sendall(f"{os.getpid()} {threading.get_ident()} {word}\n".encode())
        door.recv(1)


@task
def add(a: int, b: int = 2) -> int:
    return a + b


@task
def take(duration_ns: int) -> None:
    """Take so long, by the manual clock."""
    CLOCK.advance(ns=duration_ns)


@task
async def add_async(a: int, b: int = 2) -> int:
    turn = asyncio.Event()
    asyncio.get_running_loop().call_soon(turn.set)
    await turn.wait()
    return a + b


@task
def tell(ctx: Context) -> dict[str, Any]:
    return _facts(ctx)


def _facts(ctx: Context) -> dict[str, Any]:
    return {
        "run_id": ctx.run_id,
        "attempt": ctx.attempt,
        "token": ctx.token,
        "nominal": ctx.nominal.isoformat(),
        "due": ctx.due.isoformat(),
        "current": current() is ctx,
    }


@task
async def tell_async(ctx: Context) -> dict[str, Any]:
    return _facts(ctx)


@task
def say(ctx: Context, lines: int) -> None:
    for number in range(lines):
        ctx.log.info("line %d", number)


@task
def fail(words: str = "broken") -> None:
    raise ValueError(words)


@task
async def fail_async(words: str = "broken") -> None:
    raise ValueError(words)


@task
def give_up() -> None:
    raise GaveUpError("never")


def fail_plainly() -> None:
    raise GaveUpError("never")


@task
def fail_hugely() -> None:
    raise ValueError("x" * 10_000_000)


@task
def fail_with_lock() -> None:
    raise ValueError(threading.Lock(), "\ud800")


@task
def fail_unshowably() -> None:
    raise UnshowableError


class UnshowableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


@task
def exit_by_exception(code: int) -> None:
    sys.exit(code)


@task
def interrupt_self() -> None:
    raise KeyboardInterrupt


@task
def die(code: int) -> None:
    os._exit(code)


@task
def add_text(text: str) -> None: ...


@task
def say_and_die(ctx: Context, lines: int) -> None:
    for number in range(lines):
        ctx.log.info("line %d", number)
    ctx.log.warning("about to die")
    os._exit(1)


@task
def leave_child(address: str) -> None:
    """Start a process that waits at the door, and wait there too."""
    if os.fork() == 0:
        with contextlib.suppress(OSError):
            knock(address)
        os._exit(0)
    knock(address)


@task
def die_by_signal() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@task
def snooze(ctx: Context) -> None:
    ctx.add(add.call(1))
    ctx.snooze("90s")


@task
def follow_up(ctx: Context, *, is_fine: bool) -> str:
    ctx.add(add.call(1), delay=5)
    ctx.add(add.call(2))
    if not is_fine:
        raise ValueError("not after all")
    return "fine"


@task
def follow_up_badly(ctx: Context) -> str:
    try:
        ctx.add(add.call(1), dlay=5)
    except ValueError as error:
        return f"{type(error).__name__}: {error}"
    return "not refused"


@task
def beat(ctx: Context) -> str:
    try:
        ctx.heartbeat()
    except LeaseLost:
        ctx.log.warning("lost")
        raise
    return "alive"


@task
def return_object() -> Any:
    return object()


@task
def wait(ctx: Context, address: str) -> str:
    """Wait at the door; once it opens, look whether it was asked to end."""
    knock(address)
    ctx.check()
    return "was not asked"


@task
async def wait_async(address: str) -> str:
    reader, writer = await asyncio.open_unix_connection(address)
    try:
        writer.write(f"{os.getpid()} 0 \n".encode())
        await reader.read(1)
    finally:
        writer.close()
    return "was not asked"


@task
def wait_and_return(ctx: Context, address: str) -> str:
    """Wait at the door, and be done whatever was asked."""
    knock(address)
    try:
        ctx.check()
    except Cancelled:
        return "asked, and done"
    return "done"


@task
async def insist_async(address: str) -> str:
    """Wait at the door, and go on waiting when cancelled."""
    reader, writer = await asyncio.open_unix_connection(address)
    writer.write(f"{os.getpid()} 0 \n".encode())
    while True:
        with contextlib.suppress(asyncio.CancelledError):
            await reader.read(1)
            writer.close()
            return "late"


@task
async def block(address: str) -> str:
    """Hold up the loop at the door."""
    knock(address)
    return "late"


class Executors:
    """Where a test puts the executor that `stop_own` stops."""

    own: Executor


@task
def stop_own() -> None:
    Executors.own.stop(60)


@task
async def stop_own_async() -> None:
    Executors.own.stop(60)


@task
def heed(ctx: Context) -> None:
    """Wait to be asked, and end then."""
    asked = threading.Event()
    ctx.on_asked(asked.set)
    asked.wait()
    ctx.check()


@task
async def heed_async() -> None:
    await asyncio.Event().wait()


@task
def loop_for_ever(address: str) -> None:
    knock(address)
    while True:
        pass


@task
def flood(ctx: Context) -> None:
    for number in range(20_000):
        ctx.log.info("%d %s", number, "x" * 500)


@task
def flood_for_ever(ctx: Context, address: str) -> None:
    knock(address)
    # Messages that do not go through a socket in one piece.
    large = add_text.call("x" * 500_000)
    while True:
        ctx.add(large)
        ctx.heartbeat()


@task
def open_files() -> list[str]:
    """Return what this process holds, socket pairs apart."""
    held = []
    for number in os.listdir("/proc/self/fd"):
        try:
            held.append(os.readlink(f"/proc/self/fd/{number}"))
        except OSError:
            continue
    return held


VARIABLE: ContextVar[str] = ContextVar("variable", default="unset")


@task
def set_variable(value: str) -> None:
    VARIABLE.set(value)


@task
def get_variable() -> str:
    return VARIABLE.get()


@task
def pid() -> int:
    return os.getpid()


@task
def run_command(code: str) -> list[str]:
    return [sys.executable, "-I", "-c", code]


@task
def run_argv(argv: list[str]) -> list[str]:
    return argv
