"""A JobStore for several processes: one holds the directory, the others ask it.

Who opens first holds: it has an EmbeddedStore, with a door. The others have a line to that
door. When the holder goes, in order or by a kill, the lock of the directory is free, and
one of the others takes it, recovers from the log what was acknowledged, and has a door of
its own; the rest call there. Never do two hold it: the lock sees to that.

What a node had in hand goes on meanwhile. It comes to the new holder under its name, with
its tokens (Node.adopt), and its ends count. A call that was under way when the holder went
is asked again if that does no harm, and else raises HolderLostError.
"""

from __future__ import annotations

import contextlib
import functools
import os
import threading
import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Self, Unpack

from timingwheel.clock import Clock
from timingwheel.jobs.calendars import NamedCalendar
from timingwheel.jobs.errors import UnknownWorkerError
from timingwheel.jobs.figures import StoreFigures
from timingwheel.jobs.model import (
    Attempt,
    Draft,
    Job,
    JobId,
    Pause,
    Queue,
    Run,
    RunId,
    SkipRange,
)
from timingwheel.jobs.states import FINAL
from timingwheel.jobs.storage import Storage
from timingwheel.jobs.store import (
    CancelResult,
    CatchUp,
    Change,
    Claim,
    Finish,
    IfExists,
    Instant,
    JobPage,
    JobQuery,
    JobRef,
    Load,
    NewRun,
    Request,
    Resumption,
    Running,
    RunPage,
    RunQuery,
    Ticket,
    Verdict,
)
from timingwheel.stores.embedded import StoreOptions
from timingwheel.stores.line import LineCutError
from timingwheel.stores.sides import HeldSide, SeekSide, Side, seek_side
from timingwheel.stores.switch import Switch
from timingwheel.stores.workers import InHand
from wal.forking import register_at_fork, unregister_at_fork


class SharedStore:
    """A JobStore in a directory that other processes may hold. Thread-safe. Use `open`.

    Invariants: `changed` is one condition for life, whoever holds; what is in `_held` was
    claimed by a worker of this process, and its end is not durable yet.

    Attributes:
        life: a text that no other store has, here or elsewhere.

    Args:
        directory: its absolute path.
        clock: where time comes from.
        seek: finds a side to ask.
    """

    def __init__(self, directory: str, clock: Clock, seek: SeekSide) -> None:
        self.life: Final = uuid.uuid4().hex
        self.changed = threading.Condition()
        self._clock = clock
        self._switch = Switch(
            directory,
            seek=functools.partial(seek, listener=self),
            enter=self._enter,
            on_entered=self._look_again,
        )
        self._ask = self._switch.ask
        self._lock = threading.Lock()
        self._listeners: list[Callable[[Sequence[Run]], None]] = []
        self._expected: set[RunId] = set()
        self._workers: dict[str, int | None] = {}
        self._serves = False
        self._held: dict[int, tuple[str, InHand]] = {}
        self._seen = 0
        self._durable = Ticket(0)
        self._has_news = False
        self._is_resting = False
        register_at_fork(self)
        self._switch.current()

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        clock: Clock,
        **options: Unpack[StoreOptions],
    ) -> Self:
        """Hold a directory, or call the process that does.

        Args:
            path: the directory, made if missing.
            clock: where time comes from.
            options: of the store, should this process hold it; see EmbeddedStore.open.

        Raises:
            StoreInUseError: the holder does not answer.
            StoreError: the holder is of another version; or as EmbeddedStore.open.
        """
        # Absolute, since the program may go to another directory before it opens again.
        directory = os.path.abspath(path)
        seek = functools.partial(seek_side, directory, clock, options)
        return cls(directory, clock, seek)

    def close(self) -> None:
        """Let go of everything; if this process holds, another takes over. Idempotent."""
        unregister_at_fork(self)
        self._switch.close()

    def leave_to_parent(self) -> None:
        """In a forked child: everything is the parent's; all calls here raise."""
        # Another thread of the parent may have held one of them at the fork.
        self.changed, self._lock = threading.Condition(), threading.Lock()
        self._switch.leave_to_parent()

    @property
    def is_holder(self) -> bool:
        """Whether this process holds the directory now."""
        return isinstance(self._switch.side, HeldSide)

    def _enter(self, side: Side) -> None:
        """Have a side know what is at work here."""
        with self._lock:
            workers, expected = dict(self._workers), set(self._expected)
            held = list(self._held.values())
        for worker, ttl_ns in workers.items():
            side.ask("join", worker, ttl_ns)
            side.ask("adopt", worker, [one for of, one in held if of == worker])
        if self._serves:
            side.ask("recover")
        for run_id in expected:
            side.expect(run_id)
        side.opened()

    def _look_again(self, side: Side) -> None:
        """Tell of what may have happened while nobody could say so."""
        with self.changed:
            self._is_resting = False
            self._has_news = True
            self.changed.notify_all()
        with self._lock:
            expected = tuple(self._expected)
        with contextlib.suppress(LineCutError):  # else it is all done once more
            for run_id in expected:
                run: Run | None = side.ask("run", run_id)
                if run is not None and run.state in FINAL:
                    self.ended([run])

    # -- what the holder says unasked: see SideListener -------------------------------------

    def news(self) -> None:
        """Note that a rest is over."""
        with self.changed:
            self._is_resting = False
            self._has_news = True
            self.changed.notify_all()

    def ended(self, runs: Sequence[Run]) -> None:
        """Tell of runs that have ended."""
        for listener in list(self._listeners):
            listener(runs)

    def cut(self, side: Side) -> None:
        """The line is cut: see to another side at once, though nobody may be asking."""
        self._switch.lose(side)
        try:
            # Not `current`: who seeks may be waiting for this very thread to end.
            self._switch.look()
        except Exception:  # noqa: BLE001 - the next call finds out the same, and raises it
            return
        finally:
            side.close()

    # -- life -------------------------------------------------------------------------------

    def now(self) -> Instant:
        """Return the present by which this store decides what is due."""
        now: Instant = self._ask("now")
        return now

    def commit(self, ticket: Ticket) -> None:
        """Return when what the ticket stands for is durable."""
        # Numbers of the log only grow, also from one holder to the next.
        if ticket > self._durable:
            self._ask("commit", ticket)

    def storage(self) -> Storage:
        """Return how the store stands: its log, its wheels, its last recovery."""
        storage: Storage = self._ask("storage")
        return storage

    def figures(self) -> StoreFigures:
        """Return the store in numbers; reads the directory."""
        figures: StoreFigures = self._ask("figures")
        return figures

    # -- jobs -------------------------------------------------------------------------------

    def put(
        self, drafts: Sequence[Draft], *, if_exists: IfExists = "update"
    ) -> list[JobRef]:
        """Make jobs, all or none of them; see JobStore."""
        refs: list[JobRef] = self._ask(
            "put", drafts, if_exists, again=_is_idempotent(drafts, if_exists)
        )
        return refs

    def get(self, job_id: JobId) -> Job | None:
        """Return a job that is live or still kept."""
        job: Job | None = self._ask("get", job_id)
        return job

    def find(self, name: str) -> Job | None:
        """Return the live job of a name."""
        job: Job | None = self._ask("find", name)
        return job

    def jobs(self, query: JobQuery) -> JobPage:
        """Return jobs, live ones first."""
        page: JobPage = self._ask("jobs", query)
        return page

    def followers(self, limit: int) -> list[Job]:
        """Return live jobs that run after others, at most so many, by id."""
        followers: list[Job] = self._ask("followers", limit)
        return followers

    def update(self, job_id: JobId, change: Change, *, if_revision: int | None) -> Job:
        """Change a live job; see JobStore."""
        job: Job = self._ask("update", job_id, change, if_revision)
        return job

    def cancel(self, job_id: JobId, *, running: Running = "leave") -> CancelResult:
        """End a job; see CancelResult."""
        result: CancelResult = self._ask("cancel", job_id, running)
        return result

    def hold(self, job_id: JobId, pause: Pause, *, running: Running = "leave") -> bool:
        """Pause a job; see JobStore."""
        is_new: bool = self._ask("hold", job_id, pause, running)
        return is_new

    def unhold(
        self, job_id: JobId, catch_up: CatchUp, *, dry_run: bool = False
    ) -> Resumption:
        """Resume a job; see JobStore."""
        resumption: Resumption = self._ask(
            "unhold", job_id, catch_up, dry_run, again=dry_run
        )
        return resumption

    def create_runs(self, job_id: JobId, runs: Sequence[NewRun]) -> list[Run]:
        """Create runs by hand; see JobStore."""
        made: list[Run] = self._ask("create_runs", job_id, runs)
        return made

    def planned(self, job_id: JobId) -> list[tuple[int, int]]:
        """Return (nominal_ns, n) of every run of a job that is kept."""
        planned: list[tuple[int, int]] = self._ask("planned", job_id)
        return planned

    def rebind(self, old: str, new: str) -> int:
        """Give the jobs of one task to another; see JobStore."""
        count: int = self._ask("rebind", old, new)
        return count

    def quarantine(self, job_id: JobId, fault: str) -> None:
        """Set a job aside whose payload cannot be understood; its bytes are kept."""
        self._ask("quarantine", job_id, fault)

    # -- runs -------------------------------------------------------------------------------

    def run(self, run_id: RunId) -> Run | None:
        """Return a run that is kept."""
        run: Run | None = self._ask("run", run_id)
        return run

    def runs(self, query: RunQuery) -> RunPage:
        """Return runs, live and finished, newest nominal time first."""
        page: RunPage = self._ask("runs", query)
        return page

    def attempts(self, run_id: RunId) -> list[Attempt]:
        """Return the attempts of a run, the one that goes on last."""
        attempts: list[Attempt] = self._ask("attempts", run_id)
        return attempts

    def skips(self, job_id: JobId, *, since_ns: int = 0) -> list[SkipRange]:
        """Return what did not run and why, oldest first."""
        skips: list[SkipRange] = self._ask("skips", job_id, since_ns)
        return skips

    def retry(self, run_id: RunId) -> Run:
        """Make a failed or lost run ready again; see JobStore."""
        run: Run = self._ask("retry", run_id)
        return run

    def discard(self, run_id: RunId) -> Run:
        """Take a run off the dead-letter list; see JobStore."""
        run: Run = self._ask("discard", run_id)
        return run

    def cancel_run(self, run_id: RunId, *, running: Running = "leave") -> CancelResult:
        """End one run; see JobStore."""
        result: CancelResult = self._ask("cancel_run", run_id, running)
        return result

    def load_ahead(self, until_ns: int, step_ns: int) -> list[Load]:
        """Return how many starts are planned in each step from now until then."""
        loads: list[Load] = self._ask("load_ahead", until_ns, step_ns)
        return loads

    # -- queues and calendars ---------------------------------------------------------------

    def queue(self, name: str) -> Queue:
        """Return a queue; one that nobody has set has no bounds."""
        queue: Queue = self._ask("queue", name)
        return queue

    def queues(self) -> list[Queue]:
        """Return all queues that were set or have waiting runs."""
        queues: list[Queue] = self._ask("queues")
        return queues

    def set_queue(self, queue: Queue) -> None:
        """Replace what is known of a queue."""
        self._ask("set_queue", queue)

    def calendar(self, name: str) -> NamedCalendar | None:
        """Return a calendar."""
        calendar: NamedCalendar | None = self._ask("calendar", name)
        return calendar

    def calendars(self) -> dict[str, NamedCalendar]:
        """Return all calendars."""
        calendars: dict[str, NamedCalendar] = self._ask("calendars")
        return calendars

    def set_calendar(self, name: str, calendar: NamedCalendar) -> None:
        """Replace a calendar; the jobs that use it are planned anew from now."""
        self._ask("set_calendar", name, calendar)

    # -- nodes and workers ------------------------------------------------------------------

    def join(self, worker: str, *, ttl_ns: int | None = None) -> None:
        """Announce a worker, before it claims; see JobStore."""
        self._ask("join", worker, ttl_ns)
        with self._lock:
            self._workers[worker] = ttl_ns

    def beat(self, worker: str) -> bool:
        """Renew the leases of a worker; False if they ran out and are lost."""
        is_known: bool = self._ask("beat", worker)
        return is_known

    def leave(self, worker: str) -> None:
        """Forget a worker; what it still has is lost."""
        with self._lock:
            self._workers.pop(worker, None)
            self._serves = self._serves and bool(self._workers)
        self._ask("leave", worker)

    def recover(self) -> int:
        """Begin to serve; see JobStore. What other nodes have in hand goes on."""
        lost: int = self._ask("recover")
        self._serves = True
        return lost

    def fire(self, limit: int) -> tuple[int, Ticket]:
        """Make ready what is due; see JobStore."""
        fired, ticket, self._seen = self._ask("fire", limit)
        return fired, ticket

    def claim(
        self,
        worker: str,
        *,
        tasks: frozenset[str],
        count: int,
        ahead: int = 0,
        queues: frozenset[str] | None = None,
    ) -> tuple[list[Claim], Ticket]:
        """Take runs in the order of their ranks; see JobStore."""
        try:
            claims, ticket = self._claim(worker, tasks, count, ahead, queues)
        except UnknownWorkerError:
            if self._workers.get(worker, 0) is not None:
                raise
            # This process stood still for so long that its leases ran out: what it
            # still has is somebody else's, and it begins anew.
            self._ask("join", worker, None)
            claims, ticket = self._claim(worker, tasks, count, ahead, queues)
        with self._lock:
            for claim in claims:
                one = InHand(claim.run.id, claim.token, begun=False)
                self._held[claim.token] = worker, one
        return claims, ticket

    def _claim(self, worker: str, *more: object) -> tuple[list[Claim], Ticket]:
        # Asked twice, what the first has claimed is given back: nobody holds it.
        claims, ticket = self._ask("claim", worker, *more)
        self._note_durable(ticket)
        return claims, ticket

    def begin(self, run_id: RunId, token: int) -> bool:
        """Note that the handler starts; False if the run was cancelled meanwhile."""
        may_begin: bool = self._ask("begin", run_id, token)
        with self._lock:
            worker, _ = self._held.pop(token, (None, None))
            if worker is not None and may_begin:
                self._held[token] = worker, InHand(run_id, token, begun=True)
        return may_begin

    def give_back(self, claims: Iterable[tuple[RunId, int]]) -> Ticket:
        """Return runs that were claimed and never begun; see JobStore."""
        given = list(claims)
        ticket: Ticket = self._ask("give_back", given)
        self._note_durable(ticket)
        self._let_go(token for _, token in given)
        return ticket

    def finish(self, ends: Sequence[Finish]) -> tuple[list[Verdict], Ticket]:
        """Take in how attempts ended; see JobStore."""
        was_asked = False
        while True:
            side = self._switch.current()
            try:
                verdicts, ticket = side.ask("finish", list(ends))
            except LineCutError as cut:
                was_asked |= cut.is_unknown
                self._switch.lose(side)
            else:
                break
        if was_asked:
            verdicts = [
                self._verdict(end, verdict)
                for end, verdict in zip(ends, verdicts, strict=False)
            ]
        self._let_go(end.token for end, _ in zip(ends, verdicts, strict=False))
        self._note_durable(ticket)
        return verdicts, ticket

    def _verdict(self, end: Finish, verdict: Verdict) -> Verdict:
        """Return what became of an end that may have been taken in the first time."""
        if verdict is Verdict.LEASE_LOST and any(
            (known.token, known.outcome) == (end.token, end.outcome)
            for known in self.attempts(end.run_id)
        ):
            return Verdict.ACCEPTED
        return verdict

    def requests(self) -> list[Request]:
        """Return, once, the attempts of this process that are to be ended."""
        requests: list[Request] = self._ask("requests")
        return requests

    def wait(self, until_ns: int | None = None) -> None:
        """Wait, `changed` held, for what is due or `changed`; see JobStore."""
        if self._has_news:
            self._has_news = False
            return
        side = self._switch.side
        if side is not None and not self._is_resting:
            self._is_resting = True
            side.rest(self._seen)
        self._clock.wait(self.changed, until_ns)

    def add_listener(self, listener: Callable[[Sequence[Run]], None]) -> None:
        """Call with runs that reached a final state, once that is durable.

        Of runs that are not expected it may hear nothing: see `expect`.
        """
        self._listeners.append(listener)

    def expect(self, run_id: RunId) -> None:
        """Have listeners told of a run's end, whoever holds; it may come twice."""
        with self._lock:
            self._expected.add(run_id)
        side = self._switch.side
        if side is not None:
            side.expect(run_id)

    def expect_no_more(self, run_id: RunId) -> None:
        """Nobody waits for that run any more."""
        with self._lock:
            self._expected.discard(run_id)
        side = self._switch.side
        if side is not None:
            side.forget(run_id)

    def _note_durable(self, ticket: Ticket) -> None:
        """Note how far all is durable: up to whatever has come through a door."""
        if not self.is_holder:
            self._durable = max(self._durable, ticket)

    def _let_go(self, tokens: Iterable[int]) -> None:
        with self._lock:
            for token in tokens:
                self._held.pop(token, None)


def _is_idempotent(drafts: Sequence[Draft], if_exists: IfExists) -> bool:
    """Return whether a put leaves the same when it is done twice."""
    return all(
        draft.key is not None or (draft.name is not None and if_exists == "update")
        for draft in drafts
    )
