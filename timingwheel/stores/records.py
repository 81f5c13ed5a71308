"""The job store's own records, beside the engine's in one log.

Each carries a whole value after the change, so that a fuzzy snapshot can tell what it has
and recovery is the same `apply`. The first byte is the kind, the rest is msgpack.

    kind  record         value
    64    JobSaved       Job
    65    JobEnded       Job: done or cancelled, no run of it is live
    66    RunSaved       LiveRun
    67    RunEnded       HistoryRun
    68    AttemptEnded   Attempt
    69    SkipsNoted     SkipRange
    70    QueueSet       Queue
    71    CalendarSet    name and calendar
    72    PlainEnded     HistoryRun of a plain job that succeeded at once
    73    RunRevived     the id of a run that left the history for another try
    74    StoreBorn      none: the first record of every store, by which an engine that opens
                         its directory by mistake sees that the timers are not its own

A *plain* job is a one-time job without name, key, tags or other needs. Pending, it is one
engine timer whose payload is a PlainJob, and no object at all; running, its timer has
fired. That is the form in which ten million of them fit into memory. At the first thing
out of the ordinary, such as an error or a pause, it is *promoted*: timer out, JobSaved
and RunSaved in, in one group and under the same id.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import Final, cast

import msgspec

from timingwheel.engine.records import Base
from timingwheel.jobs.calendars import NamedCalendar
from timingwheel.jobs.model import (
    DEFAULT_QUEUE,
    Cap,
    Job,
    JobId,
    Payload,
    Policy,
    Run,
    RunState,
)
from timingwheel.jobs.triggers import At, Delay, Trigger
from timingwheel.stores.deciding.view import Change, Changed


class Kind(IntEnum):
    """The first byte of a record of the job store."""

    JOB_SAVED = Changed.JOB
    JOB_ENDED = Changed.JOB_ENDED
    RUN_SAVED = Changed.RUN
    RUN_ENDED = Changed.RUN_ENDED
    ATTEMPT_ENDED = Changed.ATTEMPT_ENDED
    SKIPS_NOTED = Changed.SKIPS
    QUEUE_SET = 70
    CALENDAR_SET = 71
    PLAIN_ENDED = 72
    RUN_REVIVED = Changed.RUN_REVIVED
    STORE_BORN = 74


ENGINE: Final = 0
"""The kind of a change that is a record of the engine's, encoded already."""
DEFAULT_POLICY: Final = Policy()


class PlainJob(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The payload of a plain job's timer. Names of one letter: ten million are kept.

    Attributes:
        t: task.
        p: payload body.
        c: created_ns, wall.
        n: nominal_ns, wall.
        v: payload version.
        q: queue.
        r: priority.
        o: policy.
        k: cap.
    """

    t: str
    p: bytes
    c: int
    n: int
    v: int = 1
    q: str = DEFAULT_QUEUE
    r: int = 0
    o: Policy = DEFAULT_POLICY
    k: Cap | None = None

    def job(self, job_id: JobId, base: int) -> Job:
        """Return it as a job."""
        when = Delay(self.n - self.c) if base == Base.ELAPSED else At(self.n)
        return Job(
            id=job_id,
            task=self.t,
            payload=Payload(self.p, self.v),
            trigger=Trigger(when=when),
            policy=self.o,
            queue=self.q,
            priority=self.r,
            cap=self.k,
            created_ns=self.c,
            since_ns=self.c,
            reached_ns=self.n,
            runs_made=1,
        )

    def run(
        self,
        job_id: JobId,
        state: RunState,
        *,
        attempts: int = 0,
        started_ns: int | None = None,
    ) -> Run:
        """Return its one run."""
        return Run(
            job_id=job_id,
            nominal_ns=self.n,
            due_ns=self.n,
            state=state,
            task=self.t,
            queue=self.q,
            priority=self.r,
            attempts=attempts,
            created_ns=self.c,
            started_ns=started_ns,
        )


class PlainLane(msgspec.Struct, frozen=True, gc=False):
    """The part of a PlainJob that says where and in what order it waits."""

    t: str
    n: int
    q: str = DEFAULT_QUEUE
    r: int = 0


class CalendarSet(msgspec.Struct, frozen=True):
    """A named calendar as it is now."""

    name: str
    calendar: NamedCalendar


encode: Final = msgspec.msgpack.Encoder().encode


def record(kind: int, value: object) -> bytes:
    """Return the record of a value."""
    return bytes((kind,)) + encode(value)


def records_of(changes: Iterable[Change]) -> list[bytes]:
    """Return the records of a group's changes."""
    return [
        bytes((kind,)) + encode(value) if kind != ENGINE else cast("bytes", value)
        for kind, value in changes
    ]


def describe(data: bytes) -> str:
    """Return one line about a record, for people who inspect a log."""
    kind = Kind(data[0])
    value = msgspec.msgpack.decode(data[1:]) if len(data) > 1 else ""
    return f"{kind.name.title().replace('_', '')} {value}".rstrip()
