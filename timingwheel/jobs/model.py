"""The words of a scheduler as types: job, trigger, run, attempt, lease, skip range.

All are values: frozen, compared by content, and encoded by msgspec as they stand, so a
store keeps them as bytes and a server sends them as JSON. Time is integer nanoseconds
since 1970 (UTC); a length of time is nanoseconds too. Nothing here asks the time.

    Draft ──put──▶ Job ──has a──▶ Trigger       what to do, and when
     │
     └─one per nominal time─▶ Run ──tries──▶ Attempt ──holds──▶ Lease
     └─ranges that did not run─▶ SkipRange

A run is identified by (job id, nominal, n): n = 0 for the scheduled one, n >= 1 for
manual and repeated ones. That identity is unique while the job exists, and it is what
makes "exactly one run record per occurrence" true over restarts, nodes and clock steps.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NewType

import msgspec

from timingwheel.jobs.schedule import DstMark
from timingwheel.jobs.triggers import Trigger

JobId = NewType("JobId", str)
RunId = NewType("RunId", str)

DEFAULT_QUEUE: Final = "default"


class JobState(StrEnum):
    """Where a job stands."""

    ACTIVE = "active"
    PAUSED = "paused"
    DONE = "done"
    CANCELLED = "cancelled"
    QUARANTINED = "quarantined"
    """Its task or payload cannot be understood; the bytes are kept. See `rebind`."""


class RunState(StrEnum):
    """Where a run stands; who may move it is in timingwheel/jobs/states.py."""

    PLANNED = "planned"
    BLOCKED = "blocked"
    READY = "ready"
    RUNNING = "running"
    RETRYING = "retrying"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    LOST = "lost"
    SKIPPED = "skipped"


class RunReason(StrEnum):
    """Why a run exists."""

    SCHEDULE = "schedule"
    CATCH_UP = "catch_up"
    BACKFILL = "backfill"
    MANUAL = "manual"
    DEPENDENCY = "dependency"


class Outcome(StrEnum):
    """How an attempt ended."""

    OK = "ok"
    ERROR = "error"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"
    LOST = "lost"
    SHUTDOWN = "shutdown"


class SkipReason(StrEnum):
    """Why an occurrence did not run."""

    OVERLAP = "overlap"
    MISFIRE = "misfire"
    PAUSED = "paused"
    EXPIRED = "expired"
    UPSTREAM = "upstream"
    CALENDAR = "calendar"
    DST = "dst"


class Delivery(StrEnum):
    """What happens to a run whose attempt was lost."""

    AT_LEAST_ONCE = "at_least_once"
    AT_MOST_ONCE = "at_most_once"


class Overlap(StrEnum):
    """What happens when an occurrence comes due while a previous run is active."""

    SKIP = "skip"
    BUFFER_ONE = "buffer_one"
    BUFFER_ALL = "buffer_all"
    CANCEL_OTHER = "cancel_other"
    KILL_OTHER = "kill_other"
    ALLOW = "allow"


class Misfire(StrEnum):
    """What happens to occurrences whose time passed while nobody could dispatch."""

    LATEST = "latest"
    SKIP = "skip"
    FIRST = "first"
    ALL = "all"


class RetryPolicy(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How often and how soon a failed run is tried again.

    Attributes:
        attempts: in all, 1 or more.
        first_ns: wait after the first failure; doubled each time.
        max_ns: the longest wait.
        jitter: share of the wait that is random, 0 .. 1.
    """

    attempts: int = 5
    first_ns: int = 1_000_000_000
    max_ns: int = 600_000_000_000
    jitter: float = 0.2


class OverlapPolicy(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An overlap rule with its bound.

    Attributes:
        rule: what to do.
        limit: runs at once for `allow`, runs that may wait for `buffer_all`.
    """

    rule: Overlap = Overlap.SKIP
    limit: int = 1_000


class MisfirePolicy(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A misfire rule with its bounds.

    Attributes:
        rule: what to do.
        limit: runs created at most, for `all`.
        window_ns: how far back `all` goes; None for no bound.
    """

    rule: Misfire = Misfire.LATEST
    limit: int = 1_000
    window_ns: int | None = None


class Cap(msgspec.Struct, frozen=True):
    """At most `limit` runs at once over all jobs that share `key`."""

    key: str
    limit: int


class Pause(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Who paused a job, why, and until when."""

    since_ns: int
    actor: str = ""
    note: str = ""
    until_ns: int | None = None


class Policy(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How the runs of a job are treated.

    Attributes:
        delivery: at least once, or at most once.
        overlap: when a previous run is still active.
        misfire: when occurrences passed unserved.
        retry: after an error or a time-out.
        timeout_ns: of an attempt; None for none.
        start_deadline_ns: a run not started this long after due is skipped; None: never.
        lost_max: attempts that may be lost before the run counts as failed.
    """

    delivery: Delivery = Delivery.AT_LEAST_ONCE
    overlap: OverlapPolicy = OverlapPolicy()
    misfire: MisfirePolicy = MisfirePolicy()
    retry: RetryPolicy = RetryPolicy()
    timeout_ns: int | None = None
    start_deadline_ns: int | None = None
    lost_max: int = 3


class Payload(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The arguments of a call, encoded.

    Attributes:
        body: msgspec bytes.
        version: of the task's payload type when it was written.
        secret: names of arguments that are shown to nobody; see scheduler/secrets.py.
    """

    body: bytes
    version: int = 1
    secret: tuple[str, ...] = ()

    def __repr__(self) -> str:
        shown = "***" if self.secret else repr(self.body)
        return f"Payload(body={shown}, version={self.version}, secret={self.secret})"


class Draft(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job as a caller asks for it, before a store has given it an identity.

    Attributes:
        task: name of the task.
        payload: its arguments.
        trigger: when.
        policy: how its runs are treated.
        queue: where they wait.
        priority: higher is sooner; each step is worth a minute of waiting.
        cap: shared bound on runs at once.
        key: idempotency key; its scope is the task. None: each call makes a job.
        name: unique in the store; adding it again finds or updates the job.
        tags: for searching.
    """

    task: str
    payload: Payload
    trigger: Trigger
    policy: Policy = Policy()
    queue: str = DEFAULT_QUEUE
    priority: int = 0
    cap: Cap | None = None
    key: str | None = None
    name: str | None = None
    tags: dict[str, str] = {}


class Job(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What to do and when, as a store keeps it.

    Attributes:
        id: a UUID as text; see timingwheel/stores/identity.py.
        task, payload, trigger, policy, queue, priority, cap, key, name, tags: as in
            Draft.
        state: where it stands.
        revision: grows with each change of the definition, from 1.
        created_ns: when it was put, on the wall clock.
        since_ns: when its trigger was set, on the trigger's scale: what an interval
            without an anchor counts from.
        next_ns: nominal time of the next occurrence, None if there is none.
        next_mark: what a change of the clocks does to it.
        reached_ns: highest nominal time dealt with, run or skipped; None before.
        runs_made: scheduled runs so far, which `max_runs` bounds.
        pause: who paused it and why, while it is paused.
        fault: why it is quarantined.
    """

    id: JobId
    task: str
    payload: Payload
    trigger: Trigger
    policy: Policy = Policy()
    queue: str = DEFAULT_QUEUE
    priority: int = 0
    cap: Cap | None = None
    key: str | None = None
    name: str | None = None
    tags: dict[str, str] = {}
    state: JobState = JobState.ACTIVE
    revision: int = 1
    created_ns: int
    since_ns: int = 0
    next_ns: int | None = None
    next_mark: DstMark = DstMark.NONE
    reached_ns: int | None = None
    runs_made: int = 0
    pause: Pause | None = None
    fault: str = ""


class Queue(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where ready runs wait, and how fast they may leave.

    Attributes:
        name: unique in the store.
        limit: runs at once, None for no bound.
        rate: starts a second, None for no bound.
        pause: set while none of its runs starts.
    """

    name: str = DEFAULT_QUEUE
    limit: int | None = None
    rate: float | None = None
    pause: Pause | None = None


class Run(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One due time of a job.

    Attributes:
        job_id: whose.
        nominal_ns: the instant that the trigger names.
        n: 0 for the scheduled run of that instant, 1 and up for manual and repeated.
        due_ns: nominal + splay: when it may start.
        reason: why it exists.
        state: where it stands.
        task: name of the task, as it was when the run was created.
        queue: where it waits.
        priority: higher is sooner; each step is worth a minute of waiting.
        revision: of the job, when the run was created.
        attempts: begun so far.
        lost: attempts that were lost.
        created_ns: when the record was made.
        started_ns: of the last attempt, None before the first.
        ended_ns: when it reached a final state.
        result: the handler's return value, encoded.
        error: of the last attempt.
        skip_reason: why it did not run, if `state` is skipped.
        mark: what a change of the clocks did to it.
        discarded: taken off the dead-letter list by hand.
    """

    job_id: JobId
    nominal_ns: int
    n: int = 0
    due_ns: int
    reason: RunReason = RunReason.SCHEDULE
    state: RunState = RunState.PLANNED
    task: str
    queue: str = DEFAULT_QUEUE
    priority: int = 0
    revision: int = 1
    attempts: int = 0
    lost: int = 0
    created_ns: int = 0
    started_ns: int | None = None
    ended_ns: int | None = None
    result: bytes | None = None
    error: str | None = None
    skip_reason: SkipReason | None = None
    mark: DstMark = DstMark.NONE
    discarded: bool = False

    @property
    def id(self) -> RunId:
        """The run's identity as text; stable over attempts: an idempotency token."""
        return run_id(self.job_id, self.nominal_ns, self.n)


class Attempt(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One try at a run.

    Attributes:
        run_id: of which run.
        number: 1 for the first.
        worker: who tried.
        token: of the lease; it only grows over the whole store, so it can fence.
        started_ns: when.
        ended_ns: None while it goes on.
        outcome: None while it goes on.
        error: what was raised, as text.
        log: the last lines that the handler logged.
    """

    run_id: RunId
    number: int
    worker: str
    token: int
    started_ns: int
    ended_ns: int | None = None
    outcome: Outcome | None = None
    error: str | None = None
    log: str = ""


class Lease(msgspec.Struct, frozen=True):
    """The right to work on an attempt until a deadline.

    Attributes:
        run_id: of which run.
        token: grows with every lease of the store; a smaller one is out of date.
        worker: who holds it.
        deadline_ns: when it runs out unless renewed, on the engine's elapsed scale.
    """

    run_id: RunId
    token: int
    worker: str
    deadline_ns: int


class SkipRange(msgspec.Struct, frozen=True):
    """Occurrences of a job that did not run: one record for any number of them.

    Attributes:
        job_id: whose.
        reason: why.
        first_ns: nominal time of the first.
        last_ns: nominal time of the last.
        count: how many, both included.
    """

    job_id: JobId
    reason: SkipReason
    first_ns: int
    last_ns: int
    count: int


def run_id(job_id: str, nominal_ns: int, n: int = 0) -> RunId:
    """Return the identity of a run as text: `<job id>@<nominal ns>` and `#n` if n > 0."""
    suffix = f"#{n}" if n else ""
    return RunId(f"{job_id}@{nominal_ns}{suffix}")


def parse_run_id(text: str) -> tuple[JobId, int, int]:
    """Return (job id, nominal_ns, n) of a run's identity.

    Raises:
        ValueError: the text is none.
    """
    job_id, at, rest = text.rpartition("@")
    nominal, _, n = rest.partition("#")
    if not at or not job_id:
        raise ValueError(f"{text!r} is not a run id: <job id>@<nominal ns>[#n]")
    return JobId(job_id), int(nominal), int(n or 0)
