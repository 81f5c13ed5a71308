"""The process that test_scheduler_kill.py kills: a Scheduler at work that keeps a diary.

The diary is one file that all lives append to: each line is one write, synced, so what it
says has happened, whatever became of the process. A handler writes its start and its end
there itself, so a run that started twice or not at all shows. What a caller asks for is
written before the call, what the scheduler answered after it:

    life NUMBER                        opened LOST
    ask TOKEN                          added TOKEN JOB_ID 0|1
    cancel JOB_ID                      cancelled JOB_ID RESULT
    start TOKEN RUN_ID ATTEMPT LEASE   end TOKEN RUN_ID ATTEMPT | raised TOKEN RUN_ID ATTEMPT
    closed                             error TEXT

The first letters of a token say of which kind its job is. Lines go to the parent's pipe
too, between the reports of every call of the file system: see victim.py.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import random
import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Literal

from tests.crash.victim import Halt, Journal, ReportedFiles
from timingwheel.clock import Clock
from timingwheel.jobs.model import Delivery, RunState
from timingwheel.jobs.states import FINAL
from timingwheel.scheduler.context import Context
from timingwheel.scheduler.retrying import Retry
from timingwheel.scheduler.scheduler import Scheduler
from timingwheel.scheduler.tasks import Call, Task, TaskRegistry
from timingwheel.stores.embedded import EmbeddedStore

SEGMENT_SIZE_BYTES = 64 << 10
SNAPSHOT_EVERY_BYTES = 64 << 10
HOUR_S = 3_600.0
FAR_MAX = 60
"""Jobs of a far future that a life leaves alone; with more, they are cancelled."""
LOST_MAX = 1_000
"""Kills are all that these jobs suffer from: none may fail for having been lost."""
PERIOD_NS = 60_000_000
RECURRING = 3
DRAIN_S = 60.0

UNSOUND = {"stuck_run", "orphan_run", "expired_run", "unknown_task", "invariant"}
"""Findings of the doctor that no kill may lead to."""

Work = Literal["load", "hold", "race", "two", "drain"]


@dataclass(frozen=True)
class Orders:
    """What a life is to do.

    Attributes:
        life: its number, a part of every token.
        seed: of its random choices.
        work: all kinds of things until killed; hold two handlers for ever; cancel a job
            that is due in a moment, and wait; run two jobs, and close; or end what there
            is, and close.
        snapshots: whether the log is cut short by snapshots, as it usually is.
        halt: at which call of the file system to stop and wait for the end.
    """

    life: int
    seed: int = 0
    work: Work = "load"
    snapshots: bool = True
    halt: Halt | None = None


class Diary:
    """The file that outlives every life; a line is there whole or not at all."""

    def __init__(self) -> None:
        self._file: int | None = None
        self._tell: Callable[..., None] | None = None
        self.holds = False
        """Whether handlers of the kind "hold" never end."""

    def open(self, path: str, tell: Callable[..., None]) -> None:
        """Write to a file from now on, and tell the parent too."""
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self._tell = tell

    def __call__(self, *words: object) -> None:
        assert self._file is not None
        assert self._tell is not None
        os.write(self._file, (" ".join(map(str, words)) + "\n").encode())
        os.fsync(self._file)
        self._tell(*words)


DIARY = Diary()
"""Handlers stand at the top level of a module, so what they write to does too."""


@contextlib.contextmanager
def _in_diary(ctx: Context, token: str) -> Iterator[None]:
    DIARY("start", token, ctx.run_id, ctx.attempt, ctx.token)
    try:
        yield
    except RuntimeError:
        DIARY("raised", token, ctx.run_id, ctx.attempt)
        raise
    DIARY("end", token, ctx.run_id, ctx.attempt)


def note(ctx: Context, token: str) -> None:
    """Do nothing that the diary does not show."""
    with _in_diary(ctx, token):
        pass


def slow(ctx: Context, token: str) -> None:
    """Take a while, so that many kills find it running."""
    with _in_diary(ctx, token):
        threading.Event().wait(int(token.rpartition(".")[2]) % 8 / 100)


def flaky(ctx: Context, token: str) -> None:
    """Fail at the first attempt."""
    with _in_diary(ctx, token):
        if ctx.attempt == 1:
            raise RuntimeError(token)


def parent(ctx: Context, token: str) -> None:
    """Add a job that is there if, and only if, this attempt has succeeded."""
    with _in_diary(ctx, token):
        ctx.add(CALLS["note"](f"child-of-{token}"), delay=0.01)


def hold(ctx: Context, token: str) -> None:
    """Hold on until the kill, if this life is told to."""
    with _in_diary(ctx, token):
        if DIARY.holds:
            threading.Event().wait()


TASKS = TaskRegistry()
CALLS: dict[str, Callable[[str], Call]] = {}
for _function in (note, slow, flaky, parent, hold):
    _task = TASKS.register(Task(_function, name=_function.__name__))
    CALLS[_function.__name__] = _task.call


class Life:
    """One life of the process: open, work, and die."""

    def __init__(self, directory: str, orders: Orders, tell: Journal) -> None:
        self._orders = orders
        self._directory = directory
        self._tell = tell
        self._ops = itertools.count()
        self._far: deque[str] = deque()
        self._app = Scheduler(
            self._open_store,
            slots=4,
            tasks=TASKS,
            worker=f"life-{orders.life}",
        )

    def _open_store(self, clock: Clock) -> EmbeddedStore:
        every = SNAPSHOT_EVERY_BYTES if self._orders.snapshots else 1 << 40
        return EmbeddedStore.open(
            ReportedFiles(self._directory, self._tell, self._orders.halt),
            clock=clock,
            snapshot_every_bytes=every,
            segment_size_bytes=SEGMENT_SIZE_BYTES,
            reserve_bytes=2 * SEGMENT_SIZE_BYTES,
        )

    def run(self) -> None:
        """Live; a life that loads or holds ends by a kill alone."""
        DIARY("life", self._orders.life)
        self._app.start()
        DIARY("opened")
        works: dict[Work, Callable[[], None]] = {
            "load": self._load,
            "hold": self._hold,
            "race": self._race,
            "two": self._two,
            "drain": self._drain,
        }
        works[self._orders.work]()
        self._app.stop()
        DIARY("closed")

    # -- kinds of work ---------------------------------------------------------------------

    def _load(self) -> None:
        """Add, cancel and let run, from several threads, until the kill."""
        for number in range(RECURRING):
            self._add_recurring(number)
        works: list[Callable[[random.Random], None]] = [
            self._add_any,
            self._add_any,
            self._cancel_far,
            self._cancel_in_a_race,
        ]
        threads = [
            threading.Thread(target=self._repeat, args=(work, number), daemon=True)
            for number, work in enumerate(works)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _hold(self) -> None:
        """Start two handlers that never end: one may start again, one may not."""
        self._add("hold", "hold")
        self._add("once-hold", "hold", delivery=Delivery.AT_MOST_ONCE)
        threading.Event().wait()

    def _race(self) -> None:
        """Add a job that is due at once, and cancel one that is due in a moment."""
        self._add("near", "note")
        self._cancel(self._add("soon", "note", delay=0.05))
        threading.Event().wait()

    def _two(self) -> None:
        """Run a job that may run again and one that may not, to their ends."""
        self._add("near", "note")
        self._add("once", "note", delivery=Delivery.AT_MOST_ONCE)
        self._wait_for_ends()

    def _drain(self) -> None:
        """Cancel what recurs or is far away, and wait until all else has ended."""
        for finding in self._app.check():
            if finding.kind in UNSOUND:
                DIARY("error", finding)
        for number in range(RECURRING):
            job = next(iter(self._app.jobs(name=_recurring(number))), None)
            if job is not None:
                self._cancel(job.id)
        # One more, later than all that could still start by mistake.
        self._add("last", "note", delay=0.1)
        self._wait_for_ends()

    def _wait_for_ends(self) -> None:
        live = frozenset(RunState) - FINAL
        while runs := self._app.runs(state=live, limit=1_000):
            soon_ns = self._app.clock.wall_ns() + int(DRAIN_S * 1e9)
            for run in runs:
                if run.due_ns > soon_ns and run.state is RunState.PLANNED:
                    self._cancel(run.job_id)
                else:
                    self._app.run(run.id).wait(DRAIN_S)

    def _repeat(self, work: Callable[[random.Random], None], number: int) -> None:
        rng = random.Random(f"{self._orders.seed}.{number}")
        try:
            while True:
                work(rng)
        except BaseException as error:
            DIARY("error", repr(error))
            raise

    # -- what the threads of a load do, again and again --------------------------------------

    def _add_any(self, rng: random.Random) -> None:
        kind, task = rng.choice(
            [
                *[("near", "note"), ("slow", "slow"), ("far", "note")] * 2,
                *[("flaky", "flaky"), ("parent", "parent")],
                *[("once", "slow"), ("key", "note")],
            ]
        )
        job_id = self._add(
            kind,
            task,
            delay=HOUR_S if kind == "far" else rng.choice([0.0, rng.random() / 5]),
            delivery=Delivery.AT_MOST_ONCE if kind == "once" else None,
        )
        if kind == "far":
            self._far.append(job_id)
        if kind == "key":
            # A caller that has had no answer asks again, and gets the same job.
            self._add_key(rng.randrange(20))

    def _add(
        self,
        kind: str,
        task: str,
        *,
        delay: float = 0.0,
        delivery: Delivery | None = None,
    ) -> str:
        token = f"{kind}-{self._orders.life}.{next(self._ops)}"
        DIARY("ask", token)
        if kind == "near":
            # The way of most callers, and that of a plain job, which is no object.
            job_id = self._app.schedule(CALLS[task](token), delay)
        else:
            job_id = self._app.add(
                CALLS[task](token),
                delay=delay,
                delivery=delivery,
                retry=Retry(5, backoff="10ms..20ms"),
                max_lost=LOST_MAX,
            ).id
        DIARY("added", token, job_id, 1)
        return job_id

    def _add_key(self, number: int) -> None:
        token = f"key-k.{number}"
        DIARY("ask", token)
        ref = self._app.add(
            CALLS["note"](token), delay=0.01, key=token, max_lost=LOST_MAX
        )
        DIARY("added", token, ref.id, int(ref.created))

    def _add_recurring(self, number: int) -> None:
        """Add by name, as a program does at every start."""
        token = f"every-e.{number}"
        DIARY("ask", token)
        ref = self._app.add(
            CALLS["slow"](token),
            every=PERIOD_NS * (number + 1) / 1e9,
            name=_recurring(number),
            misfire="all(2)" if number else "latest",
            max_lost=LOST_MAX,
        )
        DIARY("added", token, ref.id, int(ref.created))

    def _cancel_far(self, rng: random.Random) -> None:
        if len(self._far) <= FAR_MAX:
            self._far.append(self._add("far", "note", delay=HOUR_S))
            return
        del rng
        self._cancel(self._far.popleft())

    def _cancel_in_a_race(self, rng: random.Random) -> None:
        """Cancel a job that may be due, or run, or have ended by then."""
        kind, task = rng.choice([("near", "note"), ("slow", "slow"), ("once", "slow")])
        job_id = self._add(
            kind,
            task,
            delay=rng.random() / 50,
            delivery=Delivery.AT_MOST_ONCE if kind == "once" else None,
        )
        self._cancel(job_id)

    def _cancel(self, job_id: str) -> None:
        DIARY("cancel", job_id)
        DIARY("cancelled", job_id, self._app.cancel(job_id).value)


def _recurring(number: int) -> str:
    return f"recurring-{number}"


class _Alarm(logging.Handler):
    """Writes down what the scheduler itself finds alarming."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)

    def emit(self, record: logging.LogRecord) -> None:
        # A handler's own error is an error of this level too, and meant.
        if not record.name.startswith("timingwheel.task"):
            DIARY("error", record.getMessage().replace("\n", " "))


def run(directory: str, diary: str, orders: Orders, pipe: Connection) -> None:
    """Live. For a process of its own."""
    tell = Journal(pipe)
    DIARY.open(diary, tell)
    DIARY.holds = orders.work == "hold"
    for name in ("timingwheel", "wal"):
        logging.getLogger(name).addHandler(_Alarm())
        logging.getLogger(name).propagate = False
    try:
        Life(directory, orders, tell).run()
    except BaseException as error:
        DIARY("error", repr(error).replace("\n", " "))
        raise
