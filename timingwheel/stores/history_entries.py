"""What the log tells the history, entry by entry, and the columns taken from it.

A body is the MessagePack of a struct of the jobs layer as it stands, so the store that
has encoded a run for its log need not do so again. SQLite cannot read MessagePack; the
few fields that are searched for are read here, a whole batch in one call.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, NamedTuple, TypeVar

import msgspec

from timingwheel.errors import ArgumentError
from timingwheel.jobs.model import (
    DEFAULT_QUEUE,
    Attempt,
    Job,
    JobState,
    Outcome,
    Payload,
    Policy,
    Run,
    RunState,
    SkipRange,
)
from timingwheel.jobs.triggers import At, Trigger

Kind = Literal["run", "plain", "attempt", "job", "skips", "revive", "discard_run"]
"""What an entry tells, and the type of its body:

    run          HistoryRun   the run reached a final state, or a final one was changed
    plain        HistoryRun   a one-time job without name or tags is done: this is its
                              only run, which has succeeded at once, its job and its
                              attempt in one
    attempt      Attempt      it ended
    job          Job          it ended, or an ended one was changed
    skips        SkipRange    these occurrences did not run
    revive       run id, str  retried by hand: the run is live again, its attempts stay
    discard_run  run id, str  forget the run and its attempts
"""


class Entry(NamedTuple):
    """One thing to be remembered.

    Attributes:
        lsn: of the log record that says so; several entries may share it.
        kind: see Kind.
        body: `encode` of what the kind names.
    """

    lsn: int
    kind: Kind
    body: bytes


class HistoryRun(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False
):
    """A finished run with all that a retry by hand needs.

    Attributes:
        run: in a final state.
        tags: of its job.
        payload: of its job, if the run is failed or lost, or plain; else empty.
        policy: of its job.
        attempt: its only one, of a plain run: it has no row of its own.
    """

    run: Run
    tags: dict[str, str] = {}
    payload: Payload
    policy: Policy = Policy()
    attempt: Attempt | None = None


class _RunFields(msgspec.Struct):
    job_id: str
    nominal_ns: int
    task: str
    n: int = 0
    state: str = RunState.PLANNED.value
    queue: str = DEFAULT_QUEUE
    created_ns: int = 0
    ended_ns: int | None = None
    discarded: bool = False


class _HistoryRunFields(msgspec.Struct):
    run: _RunFields
    tags: dict[str, str] = {}


class _AttemptFields(msgspec.Struct):
    run_id: str
    number: int


class _JobFields(msgspec.Struct):
    id: str
    task: str
    trigger: Trigger
    created_ns: int
    queue: str = DEFAULT_QUEUE
    state: str = JobState.ACTIVE.value
    name: str | None = None
    reached_ns: int | None = None
    tags: dict[str, str] = {}


encode: Final = msgspec.msgpack.Encoder().encode
"""Return the body of an entry."""

_run_fields: Final = msgspec.msgpack.Decoder(list[_HistoryRunFields])
_attempt_fields: Final = msgspec.msgpack.Decoder(list[_AttemptFields])
_job_fields: Final = msgspec.msgpack.Decoder(list[_JobFields])
_skips: Final = msgspec.msgpack.Decoder(list[SkipRange])
_id: Final = msgspec.msgpack.Decoder(str)
decode_run: Final = msgspec.msgpack.Decoder(HistoryRun).decode
decode_attempt: Final = msgspec.msgpack.Decoder(Attempt).decode
decode_job: Final = msgspec.msgpack.Decoder(Job).decode

_T = TypeVar("_T")
_ARRAY32: Final = b"\xdd"


class Rows(NamedTuple):
    """Rows for one statement.

    Attributes:
        columns: a JSON array of arrays; where a body is stored, the last two are its
            place in `bodies`, from 1, and its size, as SQL's substr counts.
        bodies: all bodies in a row.
    """

    columns: str
    bodies: bytes


def searched(text: str) -> str:
    """Return a text as its column has it: SQLite's JSON would end it at a NUL."""
    return text.replace("\0", "\ufffd")


def run_rows(entries: Sequence[Entry]) -> tuple[Rows, str]:
    """Return the rows of runs, plain ones too, and the columns of those with tags."""
    rows: list[tuple[object, ...]] = []
    tagged: list[tuple[object, ...]] = []
    bodies = [entry.body for entry in entries]
    place = 1
    for entry, fields in zip(entries, _decoded(_run_fields, bodies), strict=True):
        run = fields.run
        key = (run.job_id, run.nominal_ns, run.n)
        tags = _searched_tags(fields.tags)
        if tags:
            tagged.append((*key, tags))
        ended_ns = run.ended_ns
        if ended_ns is None:
            ended_ns = max(run.nominal_ns, run.created_ns)
        rows.append(
            (
                *key,
                run.state,
                searched(run.task),
                searched(run.queue),
                run.created_ns,
                ended_ns,
                int(entry.kind == "plain"),
                int(run.discarded),
                _tags_json(tags),
                place,
                len(entry.body),
            )
        )
        place += len(entry.body)
    return Rows(_json(rows), b"".join(bodies)), _json(tagged) if tagged else ""


def attempt_rows(bodies: Sequence[bytes]) -> Rows:
    """Return the rows of the attempts."""
    rows: list[tuple[object, ...]] = []
    place = 1
    for fields, body in zip(_decoded(_attempt_fields, bodies), bodies, strict=True):
        rows.append((fields.run_id, fields.number, place, len(body)))
        place += len(body)
    return Rows(_json(rows), b"".join(bodies))


def job_rows(bodies: Sequence[bytes], now_ns: int) -> Rows:
    """Return the rows of the jobs. They do not say when they ended: about now."""
    rows: list[tuple[object, ...]] = []
    place = 1
    for job, body in zip(_decoded(_job_fields, bodies), bodies, strict=True):
        ended_ns = max(now_ns, job.created_ns, job.reached_ns or 0)
        rows.append(
            (
                job.id,
                job.created_ns,
                ended_ns,
                int(job.trigger.is_recurring),
                job.state,
                searched(job.task),
                searched(job.queue),
                None if job.name is None else searched(job.name),
                _tags_json(_searched_tags(job.tags)),
                place,
                len(body),
            )
        )
        place += len(body)
    return Rows(_json(rows), b"".join(bodies))


def skip_rows(bodies: Sequence[bytes]) -> Rows:
    """Return the rows of the skip ranges; they are all columns."""
    rows: list[tuple[object, ...]] = [
        (skip.job_id, skip.first_ns, skip.reason, skip.last_ns, skip.count)
        for skip in _decoded(_skips, bodies)
    ]
    return Rows(_json(rows), b"")


def decode_id(body: bytes) -> str:
    """Return the run id that is all of a body."""
    try:
        return _id.decode(body)
    except msgspec.MsgspecError as error:
        raise _unreadable(error) from error


def _decoded(
    decoder: msgspec.msgpack.Decoder[list[_T]], bodies: Sequence[bytes]
) -> list[_T]:
    # One call for the batch: a MessagePack array is its length and then its members.
    array = b"".join((_ARRAY32, len(bodies).to_bytes(4, "big"), *bodies))
    try:
        return decoder.decode(array)
    except msgspec.MsgspecError as error:
        raise _unreadable(error) from error


def _unreadable(error: Exception) -> ArgumentError:
    return ArgumentError(
        "entries", str(error), "pass bodies made by encode() of what their kind names"
    )


def _searched_tags(tags: dict[str, str]) -> dict[str, str]:
    return {searched(name): searched(value) for name, value in tags.items()}


def _tags_json(tags: dict[str, str]) -> str | None:
    return msgspec.json.encode(tags).decode() if tags else None


def _json(rows: list[tuple[object, ...]]) -> str:
    return msgspec.json.encode(rows).decode()


def plain_job(value: HistoryRun) -> Job:
    """Return the job that a plain run stands for."""
    run = value.run
    return Job(
        id=run.job_id,
        task=run.task,
        payload=value.payload,
        trigger=Trigger(when=At(run.nominal_ns)),
        policy=value.policy,
        queue=run.queue,
        priority=run.priority,
        state=JobState.DONE,
        created_ns=run.created_ns,
        since_ns=run.created_ns,
        reached_ns=run.nominal_ns,
        runs_made=1,
    )


def plain_attempt(run: Run) -> Attempt:
    """Return the attempt of a plain run that does not carry it."""
    return Attempt(
        run_id=run.id,
        number=1,
        worker="",
        token=0,
        started_ns=run.due_ns if run.started_ns is None else run.started_ns,
        ended_ns=run.ended_ns,
        outcome=Outcome.OK,
    )
