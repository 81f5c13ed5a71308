"""What the server answers: the values of the scheduler, and beside them what people read.

A job, a run or an attempt travels whole, with integers of nanoseconds in fields that end
in `_ns`; so a client has exactly what a Scheduler would have returned. Beside them ride
the same instants by RFC 3339 with all their digits, the arguments and the result as plain
values.
"""

from __future__ import annotations

from datetime import date
from typing import Annotated, Any, Final, Generic, TypeVar

import msgspec
from msgspec import Meta

from timingwheel.jobs.calendars import NamedCalendar
from timingwheel.jobs.cluster import ClusterFacts
from timingwheel.jobs.errors import UNREADABLE
from timingwheel.jobs.explaining import NextTime
from timingwheel.jobs.model import Job, Payload, Queue, Run, RunId
from timingwheel.jobs.schedule import DstMark, instant_datetime
from timingwheel.jobs.store import (
    CancelResult,
    JobRef,
    Load,
    Resumption,
)
from timingwheel.scheduler.changing import JobUpdate
from timingwheel.scheduler.requests import Backfill
from timingwheel.scheduler.secrets import masked

_NS: Final = 1_000_000_000
_PICKLE_MARK: Final = b"\xc1"
_Row = TypeVar("_Row")

Time = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]
"""An instant by RFC 3339, in UTC, with all digits that it has."""


class JobAnswer(Job, frozen=True, kw_only=True, omit_defaults=False):
    """A job, and what people read of it.

    Attributes:
        args: its arguments as plain values; null if they are a pickle.
        created: when it was put.
        next: when it runs next.
    """

    args: Any = None
    created: Time
    next: Time | None = None


class RunAnswer(Run, frozen=True, kw_only=True, omit_defaults=False):
    """A run, and what people read of it.

    Attributes:
        id: its identity.
        value: what the handler returned, as plain values.
        nominal, due, created, started, ended: its instants.
    """

    id: str  # type: ignore[assignment]  # msgspec: a field, where Run computes it
    value: Any = None
    nominal: Time
    due: Time
    created: Time | None = None
    started: Time | None = None
    ended: Time | None = None


class QueueAnswer(Queue, frozen=True, kw_only=True, omit_defaults=False):
    """A queue; attributes as Queue."""


class PageAnswer(msgspec.Struct, Generic[_Row], frozen=True, kw_only=True):
    """Rows, and where the next page begins.

    Attributes:
        items: the rows.
        cursor: pass it for the rows that follow; null: there are none.
    """

    items: list[_Row]
    cursor: str | None = None


class ListAnswer(msgspec.Struct, Generic[_Row], frozen=True):
    """All there is of something.

    Attributes:
        items: the rows.
    """

    items: list[_Row]


class JobRefAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What became of an add; attributes as JobRef."""

    id: str
    created: bool
    updated: bool = False


class CancelAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What a cancel did.

    Attributes:
        result: see CancelResult.
        prevented: whether it prevented a start that was still to come.
    """

    result: CancelResult
    prevented: bool


class ClusterAnswer(msgspec.Struct, frozen=True):
    """How a store stands that many processes share.

    Attributes:
        cluster: who lives, who fires what, the database; None: it is in a directory.
    """

    cluster: ClusterFacts | None


class DoneAnswer(msgspec.Struct, frozen=True):
    """Whether something has changed by this.

    Attributes:
        changed: whether it was otherwise before.
    """

    changed: bool


class CountAnswer(msgspec.Struct, frozen=True):
    """How many there were.

    Attributes:
        count: how many.
    """

    count: int


class TextAnswer(msgspec.Struct, frozen=True):
    """Something in words.

    Attributes:
        text: the words.
    """

    text: str


class ResumeAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What a resume did, or would do; attributes as Resumption.

    Attributes:
        times: `starts` by RFC 3339.
    """

    starts: list[int]
    skipped: int
    released: int
    times: list[Time] = []


class TimeAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """One of a job's next times.

    Attributes:
        utc: when.
        local: the same instant by the clock of the trigger's zone.
        mark: what a change of that clock does to it.
    """

    utc: Time
    local: Time
    mark: DstMark


class UpdateAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What an update did, or would do; attributes as JobUpdate."""

    job: JobAnswer
    before: list[TimeAnswer]
    after: list[TimeAnswer]


class BackfillAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What a backfill made, or would make; attributes as Backfill."""

    nominals: list[Time]
    runs: list[RunId]
    present: int


class WaitAnswer(msgspec.Struct, frozen=True):
    """The run if it has ended within the time.

    Attributes:
        run: null: it goes on, ask again.
    """

    run: RunAnswer | None


class CalendarAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A calendar; attributes as NamedCalendar."""

    name: str
    dates: list[date]
    weekdays: list[str]
    tz: str | None


class LoadAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Starts that are planned in one step of time; attributes as Load."""

    start_ns: int
    start: Time
    nominal: int
    due: int


class NowAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The present by which the store decides.

    Attributes:
        wall_ns: by the wall clock.
        time: the same by RFC 3339.
        is_serving: whether the server starts runs.
    """

    wall_ns: int
    time: Time
    is_serving: bool


class StatusAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """How the server is.

    Attributes:
        status: "ok", or why it is not.
    """

    status: str


def time_text(ns: int) -> str:
    """Return an instant by RFC 3339, in UTC, with all digits that it has."""
    seconds, rest = divmod(ns, _NS)
    text = instant_datetime(seconds * _NS).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{text}.{rest:09d}".rstrip("0") + "Z" if rest else f"{text}Z"


def job_answer(job: Job) -> JobAnswer:
    """Return a job as it travels."""
    fields = {name: getattr(job, name) for name in Job.__struct_fields__}
    return JobAnswer(
        **(fields | {"payload": masked(job.payload)}),
        args=plain_arguments(job.payload),
        created=time_text(job.created_ns),
        next=_time(job.next_ns),
    )


def run_answer(run: Run, value: object = None) -> RunAnswer:
    """Return a run as it travels.

    Args:
        run: which.
        value: what its handler returned.
    """
    fields = {name: getattr(run, name) for name in Run.__struct_fields__}
    return RunAnswer(
        **fields,
        id=run.id,
        value=value,
        nominal=time_text(run.nominal_ns),
        due=time_text(run.due_ns),
        created=_time(run.created_ns or None),
        started=_time(run.started_ns),
        ended=_time(run.ended_ns),
    )


def update_answer(made: JobUpdate) -> UpdateAnswer:
    """Return what an update did as it travels."""
    return UpdateAnswer(
        job=job_answer(made.job),
        before=[next_answer(one) for one in made.before],
        after=[next_answer(one) for one in made.after],
    )


def next_answer(one: NextTime) -> TimeAnswer:
    """Return one of a job's next times as it travels."""
    return TimeAnswer(
        utc=one.utc.isoformat(), local=one.local.isoformat(), mark=one.mark
    )


def backfill_answer(made: Backfill) -> BackfillAnswer:
    """Return what a backfill made as it travels."""
    return BackfillAnswer(
        nominals=[one.isoformat() for one in made.nominals],
        runs=made.runs,
        present=made.present,
    )


def resume_answer(made: Resumption) -> ResumeAnswer:
    """Return what a resume did as it travels."""
    return ResumeAnswer(
        starts=made.starts,
        skipped=made.skipped,
        released=made.released,
        times=[time_text(ns) for ns in made.starts],
    )


def ref_answer(ref: JobRef) -> JobRefAnswer:
    """Return what an add did as it travels."""
    return JobRefAnswer(id=ref.id, created=ref.created, updated=ref.updated)


def queue_answer(queue: Queue) -> QueueAnswer:
    """Return a queue as it travels."""
    fields = {name: getattr(queue, name) for name in Queue.__struct_fields__}
    return QueueAnswer(**fields)


def calendar_answer(name: str, calendar: NamedCalendar) -> CalendarAnswer:
    """Return a calendar as it travels."""
    return CalendarAnswer(
        name=name,
        dates=list(calendar.dates),
        weekdays=list(calendar.weekdays),
        tz=calendar.tz,
    )


def load_answer(load: Load) -> LoadAnswer:
    """Return one step of the load ahead as it travels."""
    return LoadAnswer(
        start_ns=load.start_ns,
        start=time_text(load.start_ns),
        nominal=load.nominal,
        due=load.due,
    )


def plain_arguments(payload: Payload, *, secrets: bool = False) -> Any:
    """Return a payload as plain values; None if it is a pickle or damaged.

    Args:
        payload: of a job.
        secrets: whether those marked as secret are told, as to workers alone.
    """
    body = (payload if secrets else masked(payload)).body
    if body[:1] == _PICKLE_MARK:
        return None
    decode = msgspec.json.decode if body[:1] == b"{" else msgspec.msgpack.decode
    try:
        return plain(decode(body))
    except UNREADABLE:
        return None


def plain(value: object) -> Any:
    """Return a value as JSON has it; None where JSON has no form for it."""
    try:
        return msgspec.to_builtins(value, str_keys=True)
    except (TypeError, ValueError, RecursionError):
        return None


def _time(ns: int | None) -> str | None:
    return None if ns is None else time_text(ns)
