"""A node as a process of its own, which dies or sleeps where it is told to.

It says `ready`, begins at `go`, and ends at `stop` with a report. Each start of a run goes
into a sink that has no unique key, so what starts twice is seen. A fault strikes at one
message to the database: just before it is sent, or when its answer is there.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection as Pipe
from typing import Any, ClassVar, Literal, Self

import psycopg

from tests.cluster.unguarded import trust_for_ever, without_guards
from timingwheel import Scheduler
from timingwheel.clock import Clock, SystemClock
from timingwheel.jobs.model import Outcome
from timingwheel.jobs.store import Claim, Finish, JobStore, Ticket, Verdict
from timingwheel.stores.postgres.connections import Connection, Connections
from timingwheel.stores.postgres.store import PostgresStore

SLOTS = 4
GRACE_SECONDS = 10

Kind = Literal["any", "fire", "claim", "finish", "beat", "work"]
"""In which call of the store a message is sent; work: in none, a handler has started."""

WRITE = 0
_CHANGES_RUNS = re.compile(rb"(UPDATE|DELETE FROM|INSERT INTO) timingwheel_run\b")


@dataclass(frozen=True)
class Fault:
    """What strikes a node.

    Attributes:
        act: "kill": it is gone; "stop": its process sleeps until somebody wakes it;
            "break": its connection breaks, and it goes on.
        kind: of the call; "any": all messages of the process count, wherever they come
            from.
        message: at which message of a call, from 1; WRITE: at its first statement that
            changes runs, and before it.
        moment: before it is sent, or after it was answered.
        call: in which of the calls of that kind at the earliest, from 1: the first from
            there on that has so many messages.
    """

    act: Literal["kill", "stop", "break"]
    kind: Kind = "any"
    message: int = 1
    moment: Literal["before", "after"] = "before"
    call: int = 1

    def __str__(self) -> str:
        where = self.message or "writes"
        return f"{self.act} {self.moment} {self.kind} {where}"


@dataclass(frozen=True)
class Plan:
    """How a node lives.

    Attributes:
        url: of the store.
        sink: of the database with the sink.
        name: of the node.
        log: the file for what it says.
        ttl_s: of its lease.
        fault: what strikes it.
        guarded: whether the store's guards are there.
        wall_s: how far its wall clock is off.
        work_s: how long a handler works.
        worker: how it is named among workers; by itself if None.
    """

    url: str
    sink: str
    name: str
    log: str
    ttl_s: float = 1.0
    fault: Fault | None = None
    guarded: bool = True
    wall_s: float = 0.0
    work_s: float = 0.0
    worker: str | None = None


@dataclass
class Report:
    """What a node can say at its end.

    Attributes:
        verdicts: how often each verdict was given on an end.
        accepted: tokens of attempts whose end was taken in, and that had succeeded.
        has_struck: whether the fault came to pass.
        struck: of the calls that the fault struck: what they returned.
        incs: its numbers, in order.
    """

    verdicts: Counter[str] = field(default_factory=Counter)
    accepted: set[int] = field(default_factory=set)
    has_struck: bool = False
    struck: list[Any] = field(default_factory=list)
    incs: list[int] = field(default_factory=list)


class Wire:
    """The way to the test; any thread may send."""

    def __init__(self, pipe: Pipe) -> None:
        self.pipe = pipe
        self._sending = threading.Lock()

    def send(self, word: str, value: object = None) -> None:
        with self._sending:
            self.pipe.send((word, value))


class Tap:
    """Sees all messages to the database, and strikes at one of them."""

    def __init__(self, wire: Wire, fault: Fault | None) -> None:
        self.is_on = False
        self.has_struck = False
        self._wire = wire
        self._fault = fault
        self._lock = threading.Lock()
        self._messages = 0
        self._calls = 0
        self._here = threading.local()

    @contextlib.contextmanager
    def during(self, kind: Kind, found: list[Any]) -> Iterator[None]:
        """Count this thread's messages as a call; if that is struck, `found` is not empty."""
        fault = self._fault
        if fault is None or not self.is_on or kind != fault.kind:
            yield
            return
        with self._lock:
            self._calls += 1
            self._here.is_meant = self._calls >= fault.call
        self._here.messages, self._here.found = 0, found
        try:
            yield
        finally:
            self._here.is_meant = False

    def meet(self, moment: Literal["before", "after"]) -> None:
        """Note that a message is about to be sent, or was answered."""
        fault = self._fault
        if fault is None or not self.is_on or moment != fault.moment:
            return
        with self._lock:
            if self.has_struck or not self._is_the_one(fault):
                return
            self.has_struck = True
        self._strike(fault)

    def meet_statement(self, sql: bytes) -> None:
        """Note that a statement is about to go into a message."""
        fault = self._fault
        if fault is None or fault.message != WRITE or not _CHANGES_RUNS.search(sql):
            return
        with self._lock:
            if self.has_struck or not getattr(self._here, "is_meant", False):
                return
            self.has_struck = True
            self._here.found.append(True)
        self._strike(fault)

    def meet_work(self) -> None:
        """Note that a handler has started; that is no message, and counts as none."""
        if self._fault is not None and self._fault.kind == "work":
            with self.during("work", []):
                self.meet("before")

    def _is_the_one(self, fault: Fault) -> bool:
        if fault.kind == "any":
            self._messages += 1
            return self._messages == fault.message
        if not getattr(self._here, "is_meant", False):
            return False
        self._here.messages += 1
        if self._here.messages != fault.message:
            return False
        self._here.found.append(True)
        return True

    def _strike(self, fault: Fault) -> None:
        match fault.act:
            case "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            case "stop":
                self._wire.send("struck")
                # To this thread, so it is here that it sleeps.
                signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
            case "break":
                raise psycopg.OperationalError("the test breaks the connection")


class TappedCursor(psycopg.Cursor[tuple[Any, ...]]):
    """Sees each statement before it is sent.

    Attributes:
        tap: of this process.
        is_guarded: whether statements keep their guards.
    """

    tap: ClassVar[Tap]
    is_guarded: ClassVar[bool] = True

    def execute(self, query: Any, *args: Any, **more: Any) -> Self:
        self.tap.meet_statement(query)
        if not self.is_guarded:
            query = without_guards(query)
        return super().execute(query, *args, **more)


class TappedConnections(Connections):
    """Connections whose messages are seen."""

    @contextlib.contextmanager
    def lent(self) -> Iterator[Connection]:
        tap = TappedCursor.tap
        with super().lent() as connection:
            if connection.cursor_factory is not TappedCursor:
                connection.cursor_factory = TappedCursor
                connection.keep()
            tap.meet("before")
            yield connection
            tap.meet("after")


class TappedStore(PostgresStore):
    """A store that says which call a message belongs to, and keeps what came of it."""

    report: Report

    @classmethod
    def tapped(cls, plan: Plan, clock: Clock, report: Report) -> Self:
        store = cls.open(plan.url, clock=clock, ttl_ns=round(plan.ttl_s * 1e9))
        store.report = report
        store._connections.__class__ = TappedConnections
        return store

    @contextlib.contextmanager
    def _call(self, kind: Kind) -> Iterator[list[Any]]:
        """Run a call; its result is to be put into what is yielded."""
        struck: list[Any] = []
        result: list[Any] = []
        with TappedCursor.tap.during(kind, struck):
            try:
                yield result
            except Exception as error:
                result.append(repr(error))
                raise
            finally:
                if struck:
                    self.report.struck += result

    def fire(self, limit: int) -> tuple[int, Ticket]:
        with self._call("fire") as result:
            found = super().fire(limit)
            result.append(found[0])
        return found

    def claim(self, worker: str, **more: Any) -> tuple[list[Claim], Ticket]:
        with self._call("claim") as result:
            found = super().claim(worker, **more)
            result.append(len(found[0]))
        return found

    def finish(self, ends: Sequence[Finish]) -> tuple[list[Verdict], Ticket]:
        with self._call("finish") as result:
            found = super().finish(ends)
            result.append([verdict.name for verdict in found[0]])
        self.report.verdicts.update(verdict.name for verdict in found[0])
        self.report.accepted.update(
            end.token
            for end, verdict in zip(ends, found[0], strict=True)
            if verdict is Verdict.ACCEPTED and end.outcome is Outcome.OK
        )
        return found

    def tend(self) -> None:
        with self._call("beat") as result:
            before = self._members.inc
            super().tend()
            result.append((before, self._members.inc))
        self.note_inc()

    def recover(self) -> int:
        found = super().recover()
        self.note_inc()
        return found

    def note_inc(self) -> None:
        """Keep the node's number, if it is a new one."""
        incs, inc = self.report.incs, self._members.inc
        if inc and inc not in incs:
            incs.append(inc)


class WrongClock(SystemClock):
    """A machine's clock whose wall time is off."""

    __slots__ = ("wall_off_ns",)

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.wall_off_ns = round(seconds * 1e9)

    def wall_ns(self) -> int:
        return super().wall_ns() + self.wall_off_ns


class Sink:
    """Where starts are written, one after the other."""

    def __init__(self, url: str, node: str) -> None:
        self._connection = psycopg.connect(url, autocommit=True)
        self._writing = threading.Lock()
        self._node = node

    def write(self, ctx: Any) -> None:
        due_ns = round(ctx.due.timestamp() * 1e6) * 1_000
        with self._writing:
            self._connection.execute(
                "INSERT INTO sink VALUES (%s, %s, %s, %s, %s, %s)",
                [
                    *(ctx.run_id, ctx.attempt, ctx.token, self._node),
                    *(due_ns, time.monotonic_ns()),
                ],
            )


HERE: list[tuple[Sink, float]] = []
"""What this process's handlers work with."""


def work(ctx: Any) -> None:
    """Be seen to start, and work a while."""
    sink, seconds = HERE[0]
    sink.write(ctx)
    TappedCursor.tap.meet_work()
    if seconds:
        threading.Event().wait(seconds)  # that nobody sets


def serve(pipe: Pipe, plan: Plan) -> None:
    """Be a node until the test says `stop`."""
    log = os.open(plan.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    logging.basicConfig(level=logging.WARNING, force=True)
    if not plan.guarded:
        trust_for_ever()
    wire = Wire(pipe)
    tap = TappedCursor.tap = Tap(wire, plan.fault)
    TappedCursor.is_guarded = plan.guarded
    report = Report()
    HERE.append((Sink(plan.sink, plan.name), plan.work_s))
    clock = WrongClock(plan.wall_s)

    def open_store(clock: Clock) -> JobStore:
        return TappedStore.tapped(plan, clock, report)

    app = Scheduler(open_store, clock=clock, slots=SLOTS, worker=plan.worker)
    app.task(name="work")(work)
    app.jobs(limit=1)  # so it is open
    wire.send("ready")
    for word, value in _words(pipe):
        if word == "go":
            # A start that fails is told to who starts; what comes later mends itself.
            tap.is_on = plan.fault is not None and plan.fault.act in ("kill", "stop")
            app.start()
            tap.is_on = True
        elif word == "step":
            clock.wall_off_ns += round(value * 1e9)
        elif word == "struck?":
            wire.send("struck", tap.has_struck)
        else:
            break
    app.stop(grace=GRACE_SECONDS)
    report.has_struck = tap.has_struck
    wire.send("report", report)


def _words(pipe: Pipe) -> Iterable[tuple[str, Any]]:
    while True:
        try:
            yield pipe.recv()
        except EOFError:  # the test is gone
            os._exit(1)
