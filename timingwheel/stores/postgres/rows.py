"""Rows of jobs and runs, and the values of the jobs layer that they stand for.

A body is the MessagePack of the value as it was when a decision wrote it. What SQL changes
by itself afterwards (a run becomes ready, a worker claims it) is in columns, and these win.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from timingwheel.engine.records import Base
from timingwheel.jobs.model import (
    Attempt,
    Delivery,
    Job,
    JobId,
    JobState,
    Payload,
    Policy,
    Run,
    RunState,
)
from timingwheel.stores.deciding.live import LiveRun, RunKey, is_held
from timingwheel.stores.history_entries import HistoryRun, decode_attempt, searched
from timingwheel.stores.plain import decode_plain
from timingwheel.stores.ready import PRIORITY_NS
from timingwheel.stores.records import PlainJob, encode

replace = msgspec.structs.replace

_WAITING: Final = frozenset({RunState.PLANNED, RunState.RETRYING})
decode_job: Final = msgspec.msgpack.Decoder(Job).decode
_decode_live: Final = msgspec.msgpack.Decoder(LiveRun).decode

LIVE_COLUMNS: Final = (
    "r.job_id, r.nominal_ns, r.n, r.version, r.plain, r.state, r.attempts, "
    "r.started_ns, r.token, r.worker, r.seq, r.wake_ns, r.wake_base, r.inc, r.caps, "
    "r.asked, r.created_ns, r.body"
)
"""What `LiveRow` is made of; `r` is the run."""

SHOWN_LIVE: Final = f"{LIVE_COLUMNS}, true AS live"
SHOWN_PAST: Final = (
    "r.job_id, r.nominal_ns, r.n, r.version, r.plain, r.state, 0, NULL::bigint, "
    "0::bigint, '', 0::bigint, NULL::bigint, 0, 0::bigint, NULL::text[], 0, "
    "r.created_ns, r.body, false AS live"
)
"""What a reader is shown of a run `r`, live or past: of one shape, for a UNION."""

JOB_COLUMNS: Final = (
    *("shard", "id", "live", "state", "task", "queue", "name", "created_ns"),
    *("ended_ns", "recurring", "tags", "calendar", "wake_ns", "wake_base", "body"),
)
RUN_COLUMNS: Final = (
    *("shard", "job_id", "nominal_ns", "n", "version", "plain", "state", "held"),
    *("task", "queue", "rank", "seq", "due_ns", "expires_ns", "wake_ns", "wake_base"),
    *("cap", "alone", "once", "attempts", "started_ns", "token", "worker", "inc"),
    *("caps", "asked", "created_ns", "tags", "body"),
)
PAST_COLUMNS: Final = (
    *("shard", "job_id", "nominal_ns", "n", "day", "version", "plain", "state"),
    *("task", "queue", "created_ns", "ended_ns", "discarded", "tags", "body", "tries"),
)
DAY_NS: Final = 86_400_000_000_000
TYPES: Final[Mapping[str, str]] = {
    **dict.fromkeys(("live", "recurring", "plain", "held", "alone", "once"), "boolean"),
    **dict.fromkeys(("discarded",), "boolean"),
    **dict.fromkeys(("id", "job_id", "state", "task", "queue", "name"), "text"),
    **dict.fromkeys(("calendar", "cap", "worker", "tags", "caps"), "text"),
    **dict.fromkeys(("reason", "before_id"), "text"),
    **dict.fromkeys(("body", "tries"), "bytea"),
}
"""Of the columns that are no bigint."""


def shard_of(text: str, shards: int) -> int:
    """Return the shard of a job's id, or of a name."""
    return zlib.crc32(text.encode(errors="surrogatepass")) % shards


class LiveRow(NamedTuple):
    """A live run and what only its row says.

    Attributes:
        live: the run.
        version: of the row.
        plain: the job as well, if it has no row of its own.
        inc: of the worker that holds it.
        caps: that it counts for while it runs.
        asked: whether it is to be ended: 1, or killed: 2.
    """

    live: LiveRun
    version: int
    plain: PlainJob | None = None
    inc: int = 0
    caps: list[str] | None = None
    asked: int = 0

    @property
    def job(self) -> Job | None:
        """The plain job."""
        if self.plain is None:
            return None
        return self.plain.job(self.live.run.job_id, self.live.base)


def live_row(row: tuple[Any, ...]) -> LiveRow:
    """Return what LIVE_COLUMNS say."""
    (
        job_id,
        nominal_ns,
        _,
        version,
        is_plain,
        state_text,
        attempts,
        started_ns,
        *rest,
    ) = row
    token, worker, seq, wake_ns, wake_base, inc, caps, asked, created_ns, body = rest
    state = RunState(state_text)
    if is_plain:
        plain = replace(decode_plain(body), c=created_ns, n=nominal_ns)
        run = plain.run(JobId(job_id), state, attempts=attempts, started_ns=started_ns)
        live = LiveRun(
            run=run,
            seq=seq,
            token=token,
            worker=worker,
            wait_ns=wake_ns,
            base=wake_base,
        )
        return LiveRow(live, version, plain, inc, caps, asked)
    live = _decode_live(body)
    run = replace(live.run, state=state, attempts=attempts, started_ns=started_ns)
    live = replace(
        live,
        run=run,
        token=token,
        worker=worker,
        wait_ns=live.wait_ns if state in _WAITING else None,
    )
    return LiveRow(live, version, None, inc, caps, asked)


def job_values(job: Job, shards: int, *, now_ns: int, live: bool) -> tuple[Any, ...]:
    """Return the row of a job, as JOB_COLUMNS name it."""
    wake_ns, base = _job_wake(job) if live else (None, Base.WALL)
    ended_ns = None if live else max(now_ns, job.created_ns, job.reached_ns or 0)
    return (
        shard_of(job.id, shards),
        job.id,
        live,
        job.state.value,
        searched(job.task),
        searched(job.queue),
        None if job.name is None else searched(job.name),
        job.created_ns,
        ended_ns,
        job.trigger.is_recurring,
        tags_json(job.tags),
        None if job.trigger.calendar is None else searched(job.trigger.calendar),
        wake_ns,
        int(base),
        encode(job),
    )


def _job_wake(job: Job) -> tuple[int | None, Base]:
    if job.state is JobState.ACTIVE:
        return job.next_ns, Base.ELAPSED if job.trigger.is_elapsed else Base.WALL
    if job.state is JobState.PAUSED and job.pause is not None:
        return job.pause.until_ns, Base.WALL
    return None, Base.WALL


def live_values(
    live: LiveRun,
    job: Job,
    shards: int,
    *,
    version: int,
    former: LiveRow | None,
    asked: int,
) -> tuple[Any, ...]:
    """Return the row of a live run, as RUN_COLUMNS name it.

    Args:
        live: the run.
        job: its job as it will be.
        shards: of the store.
        version: of the row, if it is a new one.
        former: its row as it is; what it holds while it runs stays.
        asked: whether somebody wants it to end.
    """
    run, policy = live.run, live.policy or job.policy
    expires_ns = None
    if policy.start_deadline_ns is not None and run.attempts == 0:
        expires_ns = run.due_ns + policy.start_deadline_ns + 1
    wake_ns, base = None, live.base
    held = is_held(job, run)
    if run.state in _WAITING and not live.behind:
        # What a pause holds is written anew, and wakes again, when that ends.
        wake_ns = None if held else live.wait_ns
    elif run.state is RunState.READY and expires_ns is not None:
        wake_ns, base = expires_ns, Base.WALL
    goes_on = former is not None and live.token and former.live.token == live.token
    assert not goes_on or former is not None
    return (
        *_key(run, shards),
        *(version, False, run.state.value, held),
        *(searched(run.task), searched(run.queue), _rank(run), live.seq, run.due_ns),
        *(expires_ns, wake_ns, int(base)),
        None if job.cap is None else searched(job.cap.key),
        is_suspect(run, policy),
        policy.delivery is Delivery.AT_MOST_ONCE,
        *(run.attempts, run.started_ns, live.token, live.worker),
        former.inc if goes_on and former is not None else 0,
        texts(former.caps) if goes_on and former is not None else None,
        asked,
        *(run.created_ns, tags_json(job.tags), encode(live)),
    )


def plain_values(
    plain: PlainJob, job_id: JobId, shards: int, *, seq: int, wake_ns: int, base: Base
) -> tuple[Any, ...]:
    """Return the row of a plain job that waits for its time."""
    run = plain.run(job_id, RunState.PLANNED)
    return (
        *_key(run, shards),
        *(1, True, run.state.value, False),
        *(searched(run.task), searched(run.queue), _rank(run), seq, run.due_ns),
        *(None, wake_ns, int(base)),
        None if plain.k is None else searched(plain.k.key),
        is_suspect(run, plain.o),
        plain.o.delivery is Delivery.AT_MOST_ONCE,
        *(0, None, 0, "", 0, None, 0, run.created_ns, None, encode(plain)),
    )


def past_values(
    value: HistoryRun, shards: int, *, version: int, attempts: Sequence[Attempt]
) -> tuple[Any, ...]:
    """Return the row of a run that has ended, as PAST_COLUMNS name it.

    Args:
        value: the run; a plain one carries its attempt.
        shards: of the store.
        version: of the row: that of the live one, and 1.
        attempts: that ended with it.
    """
    run = value.run
    ended_ns = run.ended_ns
    if ended_ns is None:
        ended_ns = max(run.nominal_ns, run.created_ns)
    return (
        *_key(run, shards),
        *(ended_ns // DAY_NS, version, value.attempt is not None, run.state.value),
        *(searched(run.task), searched(run.queue), run.created_ns, ended_ns),
        *(run.discarded, tags_json(value.tags), encode(value), framed(attempts)),
    )


def framed(attempts: Iterable[Attempt]) -> bytes:
    """Return attempts as one value: of each the size of its body, and the body.

    The size is of 4 bytes, big-endian, as SQL's int4send has it: in SQL, too, such values
    are made, and appended to each other.
    """
    bodies = map(encode, attempts)
    return b"".join(len(body).to_bytes(4, "big") + body for body in bodies)


def unframed(tries: bytes) -> list[Attempt]:
    """Return the attempts that `framed` has made one value of."""
    found: list[Attempt] = []
    place = 0
    while place < len(tries):
        start = place + 4
        place = start + int.from_bytes(tries[place:start], "big")
        found.append(decode_attempt(tries[start:place]))
    return found


def is_suspect(run: Run, policy: Policy) -> bool:
    """Return whether a run may be lost only once more, and so runs alone."""
    return 0 < run.lost == policy.lost_max - 1


def plain_end(value: HistoryRun, payload: Payload, attempt: Attempt) -> HistoryRun:
    """Return the one row that is left of a plain job that has succeeded at once."""
    return replace(value, payload=payload, attempt=attempt)


def tags_json(tags: Mapping[str, str]) -> str | None:
    """Return tags as their column has them."""
    if not tags:
        return None
    clean = {searched(name): searched(value) for name, value in tags.items()}
    return msgspec.json.encode(clean).decode()


def texts(items: list[str] | None) -> str | None:
    """Return a text[] as text: a column of arrays cannot be passed as an array."""
    if not items:
        return None
    quoted = [item.replace("\\", "\\\\").replace('"', '\\"') for item in items]
    return "{" + ",".join(f'"{item}"' for item in quoted) + "}"


def key_of(run: Run) -> RunKey:
    """Return a run's identity within its job."""
    return run.nominal_ns, run.n


def _key(run: Run, shards: int) -> tuple[int, str, int, int]:
    return shard_of(run.job_id, shards), run.job_id, run.nominal_ns, run.n


def _rank(run: Run) -> int:
    return run.due_ns - run.priority * PRIORITY_NS
