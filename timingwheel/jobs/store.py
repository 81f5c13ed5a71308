"""The JobStore protocol: what a scheduler asks of whoever keeps its jobs.

Synchronous and batched, so that one group commit or one statement carries many steps.
The node loop and the front door are written against this alone; one conformance suite
runs on every store.

    put ─▶ fire ─▶ claim ─▶ finish          a run's way
    hold, unhold, update, cancel, create_runs, retry, discard, rebind    what people do
    join, beat, leave, recover              what workers do

Every call has become durable when it returns, but for `fire`, `claim` and `finish`: they
return a *ticket*, and `commit(ticket)` is what a node calls before it lets a handler
start or tells anybody how a run ended. So a node can put the end of one batch and the
start of the next into one commit.

Worker calls are fenced: a lease's token only grows over the whole store, and whoever
comes with another token than the run's present one is told `lease_lost` and has changed
nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Literal, NamedTuple, NewType, Protocol, runtime_checkable

import msgspec

from timingwheel.jobs.calendars import NamedCalendar
from timingwheel.jobs.model import (
    Attempt,
    Cap,
    Draft,
    Job,
    JobId,
    JobState,
    Outcome,
    Pause,
    Payload,
    Policy,
    Queue,
    Run,
    RunId,
    RunReason,
    RunState,
    SkipRange,
)
from timingwheel.jobs.storage import Storage
from timingwheel.jobs.triggers import Trigger

Ticket = NewType("Ticket", int)
"""Stands for what a call has appended; `commit` makes it durable."""

PAGE_LIMIT = 100
"""Rows a query returns unless told otherwise."""


class Instant(NamedTuple):
    """The present of a store, ns: by the wall clock, and on the elapsed scale."""

    wall_ns: int
    elapsed_ns: int


class JobRef(NamedTuple):
    """What `put` returns for each draft.

    Attributes:
        id: the job's.
        created: False if the job was there already, by its key or its name.
        updated: True if its name was there with another definition.
    """

    id: JobId
    created: bool
    updated: bool = False


IfExists = Literal["update", "error"]


class CancelResult(StrEnum):
    """What `cancel` did; true only if it prevented a start that was still to come."""

    CANCELLED = "cancelled"
    RUNNING = "running"
    """It runs and is left to end; no retry follows."""
    REQUESTED = "requested"
    """It runs and has been asked to end, or will be killed."""
    FINISHED = "finished"
    ALREADY = "already"
    NOT_FOUND = "not_found"

    def __bool__(self) -> bool:
        return self is CancelResult.CANCELLED


Running = Literal["leave", "signal", "kill"]
"""What a cancel or a pause does to attempts that are running."""


class CatchUp(msgspec.Struct, frozen=True):
    """What a resume does with the occurrences that the pause has passed over.

    Attributes:
        rule: none of them, the latest, all of them, or those of a window back.
        window_ns: for `since`.
    """

    rule: Literal["skip", "latest", "all", "since"] = "skip"
    window_ns: int | None = None


class Resumption(NamedTuple):
    """What a resume did, or with `dry_run` would do.

    Attributes:
        starts: nominal times of the runs that start, at most 1,000 of them.
        skipped: how many occurrences do not run.
        released: held runs and retries that go on.
    """

    starts: list[int]
    skipped: int
    released: int


class Change(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What an update changes; UNSET fields stay as they are."""

    payload: Payload | msgspec.UnsetType = msgspec.UNSET
    trigger: Trigger | msgspec.UnsetType = msgspec.UNSET
    policy: Policy | msgspec.UnsetType = msgspec.UNSET
    queue: str | msgspec.UnsetType = msgspec.UNSET
    priority: int | msgspec.UnsetType = msgspec.UNSET
    cap: Cap | msgspec.UnsetType | None = msgspec.UNSET
    tags: dict[str, str] | msgspec.UnsetType = msgspec.UNSET


class NewRun(NamedTuple):
    """A run to be created by hand: `trigger` and `backfill`."""

    nominal_ns: int
    reason: RunReason


class Claim(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An attempt that a worker may begin once the claim's ticket is committed.

    Attributes:
        run: with state running; `run.attempts` is the number of this attempt.
        payload: of the job.
        token: of the lease; hand it back with `finish`.
        timeout_ns: how long the attempt may take, None for no bound.
        last: whether an error now is final.
    """

    run: Run
    payload: Payload
    token: int
    timeout_ns: int | None
    last: bool


class Finish(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """How an attempt ended.

    Attributes:
        run_id: of which run.
        token: of its lease.
        outcome: how it ended.
        started_ns: when the handler really began, on the wall clock.
        result: the handler's return value, encoded.
        error: what was raised, as text with its traceback.
        log: the last lines that the handler logged.
        gives_up: an error that no retry can mend: `give_up_on`, or not in `retry_on`.
        undecodable: the handler was not called, because the payload does not fit its
            task: the job is to be quarantined.
        snooze_ns: not an end: run again this much later, without using up an attempt.
        follow_ups: jobs put if, and only if, this success is accepted.
    """

    run_id: RunId
    token: int
    outcome: Outcome
    started_ns: int
    result: bytes | None = None
    error: str | None = None
    log: str = ""
    gives_up: bool = False
    undecodable: bool = False
    snooze_ns: int | None = None
    follow_ups: tuple[Draft, ...] = ()


class Verdict(StrEnum):
    """Whether a store took what a worker reported."""

    ACCEPTED = "accepted"
    LEASE_LOST = "lease_lost"


class Request(msgspec.Struct, frozen=True):
    """Somebody wants a running attempt to end: `cancel`, `cancel_other`, a stop.

    Attributes:
        run_id: of which run.
        token: of its lease.
        kill: do not ask, end it.
    """

    run_id: RunId
    token: int
    kill: bool


class JobQuery(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which jobs to return; None fields do not matter.

    Attributes:
        search: a part of the name; of the letters A to Z the case does not matter.
    """

    state: JobState | None = None
    task: str | None = None
    queue: str | None = None
    name: str | None = None
    search: str | None = None
    tags: Mapping[str, str] | None = None
    cursor: str | None = None
    limit: int = PAGE_LIMIT


class RunQuery(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which runs to return, newest nominal time first; None fields do not matter.

    Attributes:
        discarded: whether it was taken off the dead-letter list; False with the states
            failed and lost is that list.
        since_ns, until_ns: bounds of the nominal time, the second not included.
        in_order: False: in any order, for who wants all. The newest must be looked for
            among all that wait, for each page anew; this way all pages together cost one
            look. What ends meanwhile may come twice.
    """

    job_id: JobId | None = None
    states: frozenset[RunState] | None = None
    task: str | None = None
    queue: str | None = None
    tags: Mapping[str, str] | None = None
    discarded: bool | None = None
    since_ns: int | None = None
    until_ns: int | None = None
    cursor: str | None = None
    in_order: bool = True
    limit: int = PAGE_LIMIT


class JobPage(NamedTuple):
    """Jobs, and where the next page begins; None: there is none."""

    jobs: list[Job]
    cursor: str | None


class RunPage(NamedTuple):
    """Runs, and where the next page begins; None: there is none."""

    runs: list[Run]
    cursor: str | None


class Load(NamedTuple):
    """Starts that are planned in one step of time: for `load_ahead`."""

    start_ns: int
    nominal: int
    """How many nominal times fall into the step."""
    due: int
    """How many due times do, with splay."""


class JobStore(Protocol):
    """Keeps jobs and runs; see the module's docstring for what always holds.

    Errors: ArgumentError for what is invalid, and those of jobs/errors.py;
    DiskFullError, CommitUnknownError and EngineFailedError as in the engine.
    """

    # -- life ---------------------------------------------------------------------------

    def close(self) -> None:
        """Let go of everything. Idempotent."""

    def now(self) -> Instant:
        """Return the present by which this store decides what is due."""

    def storage(self) -> Storage:
        """Return how the store stands: its log, its wheels, its last recovery."""

    def commit(self, ticket: Ticket) -> None:
        """Return when what the ticket stands for is durable."""

    # -- jobs ---------------------------------------------------------------------------

    def put(
        self, drafts: Sequence[Draft], *, if_exists: IfExists = "update"
    ) -> list[JobRef]:
        """Make jobs, all or none of them.

        Raises:
            KeyConflictError: a key is there with another payload.
            NameTakenError: a name is there with another definition, and
                if_exists="error".
            UnknownJobError: `after` names a job that is not kept.
            UnknownCalendarError: there is no such calendar.
        """

    def get(self, job_id: JobId) -> Job | None:
        """Return a job that is live or still kept."""

    def find(self, name: str) -> Job | None:
        """Return the live job of a name."""

    def jobs(self, query: JobQuery) -> JobPage:
        """Return jobs, live ones first."""

    def followers(self, limit: int) -> list[Job]:
        """Return live jobs that run after others, at most so many, by id."""

    def update(self, job_id: JobId, change: Change, *, if_revision: int | None) -> Job:
        """Change a live job; past runs keep what they had, and nothing is caught up.

        Raises:
            RevisionConflictError: the job has another revision.
            UnknownJobError: there is no live job of that id.
        """

    def cancel(self, job_id: JobId, *, running: Running = "leave") -> CancelResult:
        """End a job; see CancelResult."""

    def hold(self, job_id: JobId, pause: Pause, *, running: Running = "leave") -> bool:
        """Pause a job; False if it is paused: then note and until are replaced."""

    def unhold(
        self, job_id: JobId, catch_up: CatchUp, *, dry_run: bool = False
    ) -> Resumption:
        """Resume a job; a job that is not paused resumes nothing."""

    def create_runs(self, job_id: JobId, runs: Sequence[NewRun]) -> list[Run]:
        """Create runs by hand, each with the next free n of its nominal time."""

    def planned(self, job_id: JobId) -> list[tuple[int, int]]:
        """Return (nominal_ns, n) of every run of a job that is kept."""

    def rebind(self, old: str, new: str) -> int:
        """Give the jobs of one task to another; revive quarantined ones. How many."""

    def quarantine(self, job_id: JobId, fault: str) -> None:
        """Set a job aside whose payload cannot be understood; its bytes are kept."""

    # -- runs ---------------------------------------------------------------------------

    def run(self, run_id: RunId) -> Run | None:
        """Return a run that is kept."""

    def runs(self, query: RunQuery) -> RunPage:
        """Return runs, live and finished."""

    def attempts(self, run_id: RunId) -> list[Attempt]:
        """Return the attempts of a run, the one that goes on last."""

    def skips(self, job_id: JobId, *, since_ns: int = 0) -> list[SkipRange]:
        """Return what did not run and why, oldest first."""

    def retry(self, run_id: RunId) -> Run:
        """Make a failed or lost run ready again; it keeps its identity.

        Raises:
            UnknownRunError: there is none of that id.
            RunStateError: it is neither failed nor lost.
        """

    def discard(self, run_id: RunId) -> Run:
        """Take a run off the dead-letter list, or end one that waits for a retry."""

    def cancel_run(self, run_id: RunId, *, running: Running = "leave") -> CancelResult:
        """End one run; a recurring job goes on, one that runs once ends with its run."""

    def load_ahead(self, until_ns: int, step_ns: int) -> list[Load]:
        """Return how many starts are planned in each step from now until then."""

    # -- queues and calendars -----------------------------------------------------------

    def queue(self, name: str) -> Queue:
        """Return a queue; one that nobody has set has no bounds."""

    def queues(self) -> list[Queue]:
        """Return all queues that were set or have waiting runs."""

    def set_queue(self, queue: Queue) -> None:
        """Replace what is known of a queue."""

    def calendar(self, name: str) -> NamedCalendar | None:
        """Return a calendar."""

    def calendars(self) -> dict[str, NamedCalendar]:
        """Return all calendars."""

    def set_calendar(self, name: str, calendar: NamedCalendar) -> None:
        """Replace a calendar; the jobs that use it are planned anew from now."""

    # -- nodes and workers --------------------------------------------------------------

    def join(self, worker: str, *, ttl_ns: int | None = None) -> None:
        """Announce a worker, before it claims.

        Args:
            worker: its name, unique among those that live.
            ttl_ns: its leases run out this long after its last `beat`. None: a worker of
                this process, which lives as long as the store is open.
        """

    def beat(self, worker: str) -> bool:
        """Renew the leases of a worker; False if they ran out and are lost."""

    def recover(self) -> int:
        """Begin to serve: what dead workers left is lost, what passed is missed.

        Returns:
            How many attempts were lost.
        """

    def fire(self, limit: int) -> tuple[int, Ticket]:
        """Make ready what is due: at most about `limit` timers. How many there were."""

    def claim(
        self,
        worker: str,
        *,
        tasks: frozenset[str],
        count: int,
        ahead: int = 0,
        queues: frozenset[str] | None = None,
    ) -> tuple[list[Claim], Ticket]:
        """Take runs in the order of their ranks.

        Args:
            worker: who; it has joined.
            tasks: what it can run.
            count: how many it can start now.
            ahead: how many more it will start soon; only first attempts of
                at-least-once runs are given beyond `count`.
            queues: of which queues; None: of all.
        """

    def begin(self, run_id: RunId, token: int) -> bool:
        """Note that the handler starts; False if the run was cancelled meanwhile.

        Memory alone, so that a run claimed ahead can still be cancelled in truth.
        """

    def give_back(self, claims: Iterable[tuple[RunId, int]]) -> Ticket:
        """Return runs that were claimed and never begun; no attempt is used up."""

    def finish(self, ends: Sequence[Finish]) -> tuple[list[Verdict], Ticket]:
        """Take in how attempts ended.

        Returns:
            A verdict for each end, in order. There are fewer if the disk filled up on
            the way: those without one have changed nothing.
        """

    def requests(self) -> list[Request]:
        """Return, once, the attempts of this process that are to be ended."""

    def leave(self, worker: str) -> None:
        """Forget a worker; what it still has is lost."""

    @property
    def changed(self) -> threading.Condition:
        """Notified when there is earlier work, something ready, or a request."""

    def wait(self, until_ns: int | None = None) -> None:
        """Wait, `changed` held, until something is due or `changed` is notified.

        Args:
            until_ns: or until this moment of the clock's monotonic time, for what the
                node alone waits for, such as an attempt's time-out.
        """

    def add_listener(self, listener: Callable[[Sequence[Run]], None]) -> None:
        """Call with runs that reached a final state, once that is durable."""


@runtime_checkable
class TellsOfExpected(Protocol):
    """A store whose listeners hear for sure only of runs that are expected.

    Such as one of another process, which does not send every end there is.
    """

    def expect(self, run_id: RunId) -> None:
        """Have listeners told of a run's end, from now on. Never waits for an answer."""

    def expect_no_more(self, run_id: RunId) -> None:
        """Nobody waits for that run any more."""


class TakenOn(NamedTuple):
    """A remote worker that lives, and what it has, whoever gave it that.

    Attributes:
        ttl_ns: its leases run out this long after its last beat.
        held: which run each of its tokens is of.
        requests: the attempts that are to end.
    """

    ttl_ns: int
    held: dict[int, RunId]
    requests: list[Request]


@runtime_checkable
class Clustered(Protocol):
    """A store whose runs several processes start, each by leases that may run out."""

    def take_on(self, worker: str) -> TakenOn | None:
        """Return what a remote worker has that joined here or elsewhere; None: it died."""

    def departed(self, workers: Collection[str]) -> set[str]:
        """Return those of some remote workers that have left, by way of any process.

        One that died without a word may still be told of as lost, for a while.
        """

    def add_loss_listener(self, listener: Callable[[Sequence[int]], None]) -> None:
        """Call with the tokens of attempts that this process may go on with no more.

        Its leases were not renewed in time: others start those runs again, nothing of
        them begins any more, and how they end is refused. Called from any thread.
        """

    def hand_over(self) -> None:
        """Fire nothing more and have others do it; attempts in hand go on."""

    def withdraw(self) -> None:
        """Do nothing any more: others fire, and start again what is in hand here.

        For a node that cannot go on though its process does: else its leases would be
        renewed, and nobody would do its work. Never raises.
        """


@runtime_checkable
class TellsOfQuiet(Protocol):
    """A store in which a turn that finds nothing costs more than to ask beforehand."""

    def is_quiet(self) -> bool:
        """Return whether there is nothing to fire, to claim, or to be ended."""


@runtime_checkable
class PutsWithin(Protocol):
    """A store whose jobs can belong to a transaction of the caller's own."""

    def put_within(
        self, conn: object, drafts: Sequence[Draft], *, if_exists: IfExists = "update"
    ) -> list[JobRef]:
        """Make jobs that are there if, and only if, a transaction commits.

        It is neither committed nor rolled back, and a refusal leaves it as it was.

        Args:
            conn: a connection to the store's database, with a transaction.
            drafts: as `put`.
            if_exists: as `put`.

        Raises:
            ArgumentError: the connection is none, leads elsewhere, or has no
                transaction; or a job would change that others can see.
            KeyConflictError, NameTakenError, UnknownJobError, UnknownCalendarError: as
                `put`.
        """
