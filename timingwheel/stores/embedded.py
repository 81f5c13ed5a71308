"""The embedded JobStore: an owner on the engine core, one directory, one process.

    directory   the log and its snapshots (wal/), and history.db
    pending     a plain job is a timer and its payload; others are small objects
    ready       in memory, by rank
    running     the start is one record, whose LSN is the lease's token
    ended       a record that says all; the history writer takes it to SQLite

This is the front: requests of people and programs. stores/serving.py is the node's side,
stores/owner.py the state that both share.
"""

from __future__ import annotations

import itertools
import os
import random
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final, Self, Unpack

import msgspec

from timingwheel.clock import Clock, SystemClock
from timingwheel.engine.opening import LogOptions, open_log
from timingwheel.engine.snapshotter import SNAPSHOT_EVERY_BYTES, Snapshotter
from timingwheel.engine.volatile import MEMORY, VolatileLog
from timingwheel.jobs.calendars import NamedCalendar
from timingwheel.jobs.errors import UnknownRunError
from timingwheel.jobs.figures import StoreFigures
from timingwheel.jobs.model import (
    Attempt,
    Draft,
    Job,
    JobId,
    JobState,
    Pause,
    Queue,
    Run,
    RunId,
    RunState,
    SkipRange,
)
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
    RunPage,
    RunQuery,
    Ticket,
    Verdict,
)
from timingwheel.jobs.store import Running as RunningRule
from timingwheel.stores.deciding import changing, dead_letters
from timingwheel.stores.deciding.decision import Decision
from timingwheel.stores.deciding.live import LiveRun
from timingwheel.stores.deciding.putting import put_all
from timingwheel.stores.forecast import load_ahead
from timingwheel.stores.history import History
from timingwheel.stores.history_entries import HistoryRun
from timingwheel.stores.history_errors import HistoryError
from timingwheel.stores.history_retention import Retention
from timingwheel.stores.identity import require_run_id
from timingwheel.stores.listing import Listing
from timingwheel.stores.measuring import measure
from timingwheel.stores.nodes import Nodes
from timingwheel.stores.owner import StoreOwner
from timingwheel.stores.plain import decode_lane, put_plain
from timingwheel.stores.records import CalendarSet, Kind, records_of
from timingwheel.stores.serving import Serving
from timingwheel.stores.storage import storage_of
from wal.filesystem import FileSystem
from wal.log import Log
from wal.recovery import Report
from wal.snapshot import SnapshotInfo

replace = msgspec.structs.replace

HISTORY_NAME: Final = "history.db"
REBIND_GROUP: Final = 32
REBIND_BYTES: Final = 64 << 10
"""Jobs, and bytes of records, that one group of a rebind holds at most, about."""

_Path = str | os.PathLike[str] | FileSystem


class StoreOptions(LogOptions, total=False):
    """How a store is kept; see EmbeddedStore.open."""

    snapshot_every_bytes: int
    retention: Retention


class EmbeddedStore:
    """A JobStore in a directory. Thread-safe. Use `open`.

    Attributes:
        nodes: those that serve it beside a loop that waits on the store itself.

    Args:
        log: opened, in read mode.
        history: opened, or what opens it.
        clock: where time comes from.
        snapshot_every_bytes: least growth of the log between two snapshots.
        retention: how long the history keeps what.
        rng: for jitter and backoff.
        background: False: no thread writes the history or a snapshot; for simulations.
    """

    def __init__(
        self,
        log: Log | VolatileLog,
        history: History | Callable[[], History],
        *,
        clock: Clock,
        snapshot_every_bytes: int = SNAPSHOT_EVERY_BYTES,
        retention: Retention | None = None,
        rng: random.Random | None = None,
        background: bool = True,
    ) -> None:
        self._owner = StoreOwner(
            log,
            history,
            clock=clock,
            retention=retention,
            rng=rng if rng is not None else random.Random(),
            background=background,
        )
        self._serving = Serving(self._owner, clock)
        self.nodes: Final = Nodes(self._owner, self._serving, clock)
        self.before_close: Final[list[Callable[[], None]]] = []
        """Called first by `close`, in order; for what stands before the store."""
        self._log = log
        self._core = self._owner.core
        self._state = self._owner.state
        self._history = self._owner.history
        self._read = self._owner.read
        self._listing = Listing(self._owner)
        self._rng = self._owner.rng
        self._closed = False
        self._snapshotter = (
            Snapshotter(self._core, log, every_bytes=snapshot_every_bytes)
            if isinstance(log, Log)
            else None
        )
        if self._snapshotter is not None and background:
            self._snapshotter.start()

    @classmethod
    def open(
        cls,
        path: _Path,
        *,
        clock: Clock | None = None,
        history: History | None = None,
        snapshot_every_bytes: int = SNAPSHOT_EVERY_BYTES,
        retention: Retention | None = None,
        rng: random.Random | None = None,
        **log_options: Unpack[LogOptions],
    ) -> Self:
        """Open a directory and recover what it holds; fire nothing yet.

        Args:
            path: the directory, made if missing; ":memory:" keeps nothing.
            clock: where time comes from.
            history: in place of `history.db`, for a path that is no real directory.
            snapshot_every_bytes: least growth of the log between two snapshots.
            retention: how long the history keeps what.
            rng: for jitter and backoff; a seeded one makes a simulation repeat.
            log_options: see TimerEngine.

        Raises:
            As TimerEngine; HistoryError: the history is damaged, or older than the log.
        """
        clock = clock if clock is not None else SystemClock()
        log = open_log(path, clock, **log_options)
        opened: History | None = None
        try:
            if history is None:
                place, is_there = _history_of(path)
                # Looked into before the log is touched: a failed open changes nothing.
                if is_there:
                    history = opened = _open_history(place, log)
            return cls(
                log,
                history if history is not None else lambda: History(place),
                clock=clock,
                snapshot_every_bytes=snapshot_every_bytes,
                retention=retention,
                rng=rng,
            )
        except BaseException:
            log.close()
            if opened is not None:
                opened.close()
            raise

    def close(self) -> None:
        """Write what is durable to the history and let go of everything. Idempotent.

        Raises:
            CommitUnknownError: the disk failed in the last sync, so what was told under
                `durability="interval"` since the one before may be lost.
        """
        if self._closed or self._core.life.forked:
            return
        self._closed = True
        for end in self.before_close:
            end()
        self.nodes.close()
        if self._snapshotter is not None:
            self._snapshotter.stop()
        self._owner.close()

    def abandon(self) -> None:
        """End the threads of a store whose disk is gone, and write nothing to it.

        For simulations: what a crash leaves of a store is a thread that waits for ever.
        """
        self._closed = True
        if self._snapshotter is not None:
            self._snapshotter.stop()
        self._owner.abandon()

    # -- life ----------------------------------------------------------------------------

    def now(self) -> Instant:
        """Return the present by which this store decides what is due."""
        with self._core.lock:
            now = self._core.now()
        return Instant(now.wall_ns, now.elapsed_ns)

    def storage(self) -> Storage:
        """Return how the store stands; see storage_of for what it costs."""
        self._core.require_alive()
        return storage_of(
            self._core,
            history_lsn=self._history.reached_lsn,
            snapshot=self._last_snapshot,
        )

    def commit(self, ticket: Ticket) -> None:
        """Return when what the ticket stands for is durable."""
        self._owner.commit(ticket)

    def commit_soon(self, ticket: Ticket) -> None:
        """Have it made durable without waiting."""
        self._owner.commit_soon(ticket)

    @property
    def report(self) -> Report | None:
        """What opening found; None in memory."""
        return self._log.report if isinstance(self._log, Log) else None

    def snapshot(self) -> SnapshotInfo | None:
        """Write a snapshot now, so that the next open is quick; None in memory."""
        return self._snapshotter.write() if self._snapshotter is not None else None

    def figures(self) -> StoreFigures:
        """Return the store in numbers; reads the directory. See measuring.py."""
        return measure(
            self._owner,
            workers=self._serving.worker_count,
            snapshot=self._last_snapshot,
        )

    @property
    def _last_snapshot(self) -> SnapshotInfo | None:
        return self._snapshotter.last if self._snapshotter is not None else None

    # -- jobs ----------------------------------------------------------------------------

    def put(
        self, drafts: Sequence[Draft], *, if_exists: IfExists = "update"
    ) -> list[JobRef]:
        """Make jobs, all or none of them; see JobStore."""
        self._core.admit()
        refs: list[JobRef] = []
        with self._owner.remembering():
            past = self._owner.past(drafts)

            def decide(decision: Decision) -> None:
                refs[:] = put_all(
                    decision,
                    drafts,
                    tag=self._owner.tag,
                    if_exists=if_exists,
                    past=past,
                    put_plain=partial(put_plain, self._owner.tag),
                )

            ticket = self._owner.decide(decide)
        self._owner.commit(ticket)
        return refs

    def get(self, job_id: JobId) -> Job | None:
        """Return a job that is live or still kept."""
        self._core.require_alive()
        with self._core.lock:
            job = self._read.live_job(job_id)
        if job is not None:
            return job
        self._owner.flush()
        return self._history.job(job_id)

    def find(self, name: str) -> Job | None:
        """Return the live job of a name."""
        self._core.require_alive()
        with self._core.lock:
            job_id = self._state.names.get(name)
            return None if job_id is None else self._state.jobs[job_id].job

    def jobs(self, query: JobQuery) -> JobPage:
        """Return jobs, live ones first."""
        self._core.require_alive()
        return self._listing.jobs(query)

    def followers(self, limit: int) -> list[Job]:
        """Return live jobs that run after others, at most so many, by id."""
        self._core.require_alive()
        with self._core.lock:
            found: set[JobId] = set()
            for followers in self._state.dependents.values():
                found.update(itertools.islice(followers, limit - len(found)))
                if len(found) >= limit:
                    break
            return [self._state.jobs[job_id].job for job_id in sorted(found)]

    def update(self, job_id: JobId, change: Change, *, if_revision: int | None) -> Job:
        """Change a live job; see JobStore."""
        changed: list[Job] = []

        def decide(decision: Decision) -> None:
            job = self._owner.live_job(decision, job_id)
            changed[:] = [
                changing.update(decision, job, change, if_revision=if_revision)
            ]

        self._owner.transact(decide)
        return changed[0]

    def cancel(self, job_id: JobId, *, running: RunningRule = "leave") -> CancelResult:
        """End a job; see CancelResult."""
        found: list[CancelResult] = []

        def decide(decision: Decision) -> None:
            found[:] = [self._cancel(decision, job_id, running)]

        self._owner.transact(decide, urgent=True)
        if found[0] is CancelResult.NOT_FOUND:
            self._owner.flush()
            job = self._history.job(job_id)
            if job is not None:
                was_cancelled = job.state is JobState.CANCELLED
                return CancelResult.ALREADY if was_cancelled else CancelResult.FINISHED
        return found[0]

    def _cancel(
        self, decision: Decision, job_id: JobId, running: RunningRule
    ) -> CancelResult:
        job = decision.job(job_id)
        if job is None and self._read.plain_row(job_id) is None:
            return CancelResult.NOT_FOUND
        if job is not None and job.state is JobState.CANCELLED:
            return CancelResult.ALREADY
        job = self._owner.live_job(decision, job_id)
        return changing.cancel(
            decision, job, running=running, has_begun=self._has_begun
        )

    def _has_begun(self, live: LiveRun) -> bool:
        running = self._state.running.get(live.token)
        # Without an entry it is a plain job's, which ran when the last process died.
        return running is None or running.begun

    def hold(
        self, job_id: JobId, pause: Pause, *, running: RunningRule = "leave"
    ) -> bool:
        """Pause a job; see JobStore."""
        fresh: list[bool] = []

        def decide(decision: Decision) -> None:
            job = self._owner.live_job(decision, job_id)
            fresh[:] = [
                changing.hold(
                    decision,
                    job,
                    pause,
                    running=running,
                    has_begun=self._has_begun,
                )
            ]

        self._owner.transact(decide, urgent=True)
        return fresh[0]

    def unhold(
        self, job_id: JobId, catch_up: CatchUp, *, dry_run: bool = False
    ) -> Resumption:
        """Resume a job; see JobStore."""
        found = [Resumption([], 0, 0)]

        def decide(decision: Decision) -> None:
            job = self._owner.live_job(decision, job_id)
            if job.pause is not None:
                found[:] = [changing.unhold(decision, job, catch_up, rng=self._rng)]
            if dry_run:
                decision.changes.clear()
                decision.requests.clear()

        self._owner.transact(decide)
        return found[0]

    def create_runs(self, job_id: JobId, runs: Sequence[NewRun]) -> list[Run]:
        """Create runs by hand; see JobStore."""
        while True:
            looked_lsn = self._owner.flush()
            kept: dict[int, int] = {}
            for nominal_ns, n in self._history.planned(job_id):
                kept[nominal_ns] = max(kept.get(nominal_ns, -1), n)
            made: list[Run] | None = None

            def decide(
                decision: Decision, lsn: int = looked_lsn, kept: dict[int, int] = kept
            ) -> None:
                nonlocal made
                job = self._owner.live_job(decision, job_id)
                if not self._owner.has_ended_since(job_id, lsn):
                    made = changing.create_runs(decision, job, runs, kept=kept)

            self._owner.transact(decide)
            if made is not None:
                return made

    def planned(self, job_id: JobId) -> list[tuple[int, int]]:
        """Return (nominal_ns, n) of every run of a job that is kept."""
        with self._core.lock:
            live = [(run.nominal_ns, run.n) for run in self._read.live_runs_of(job_id)]
        self._owner.flush()
        return sorted({*self._history.planned(job_id), *live})

    def rebind(self, old: str, new: str) -> int:
        """Give the jobs of one task to another; see JobStore."""
        self._core.require_alive()
        with self._core.lock:  # for the copy alone
            entries = list(self._state.jobs.values())
        todo = deque(entry.job.id for entry in entries if entry.job.task == old)
        for rows in self._read.walk_rows():
            todo.extend(
                self._read.plain_id(row)
                for row, _ in rows
                if decode_lane(row.payload).t == old
            )
        count = 0
        while todo:
            # Groups of a bounded size: all jobs of a task may fit into none, nor may the
            # lock be held for all.
            done = moved = 0

            def decide(decision: Decision) -> None:
                nonlocal done, moved
                done = moved = size_bytes = seen = 0
                for job_id in itertools.islice(todo, REBIND_GROUP):
                    done += 1
                    moved += self._rebind(decision, job_id, old, new=new)
                    size_bytes += sum(map(len, records_of(decision.changes[seen:])))
                    seen = len(decision.changes)
                    if size_bytes > REBIND_BYTES:
                        return

            self._owner.transact(decide)
            count += moved
            for _ in range(done):
                todo.popleft()
        return count

    def _rebind(self, decision: Decision, job_id: JobId, old: str, *, new: str) -> bool:
        job = decision.job(job_id)
        if job is None and self._read.plain_row(job_id) is None:
            return False  # it has ended meanwhile
        if job is not None and (job.state is JobState.CANCELLED or job.task != old):
            return False
        job = self._owner.live_job(decision, job_id)
        changing.rebind(decision, job, new, rng=self._rng)
        return True

    def quarantine(self, job_id: JobId, fault: str) -> None:
        """Set a job aside whose payload cannot be understood; its bytes are kept."""

        def decide(decision: Decision) -> None:
            job = self._owner.live_job(decision, job_id)
            decision.save_job(replace(job, state=JobState.QUARANTINED, fault=fault))

        self._owner.transact(decide, urgent=True)

    # -- runs ----------------------------------------------------------------------------

    def run(self, run_id: RunId) -> Run | None:
        """Return a run that is kept."""
        self._core.require_alive()
        with self._core.lock:
            run = self._read.live_run(run_id)
        if run is not None:
            return run
        self._owner.flush()
        found = self._history.run(run_id)
        return None if found is None else found.run

    def runs(self, query: RunQuery) -> RunPage:
        """Return runs, live and finished, newest nominal time first."""
        self._core.require_alive()
        return self._listing.runs(query)

    def attempts(self, run_id: RunId) -> list[Attempt]:
        """Return the attempts of a run, the one that goes on last."""
        self._core.require_alive()
        return self._listing.attempts(run_id)

    def skips(self, job_id: JobId, *, since_ns: int = 0) -> list[SkipRange]:
        """Return what did not run and why, oldest first."""
        self._core.require_alive()
        self._owner.flush()
        return self._history.skips(job_id, since_ns)

    def retry(self, run_id: RunId) -> Run:
        """Make a failed or lost run ready again; see JobStore."""
        made: list[Run] = []
        while not made:
            looked_lsn = self._owner.flush()
            dead = self._dead(run_id)
            job = self._history.job(dead.run.job_id)

            def decide(
                decision: Decision,
                lsn: int = looked_lsn,
                dead: HistoryRun = dead,
                job: Job | None = job,
            ) -> None:
                live = self._read.live_run(run_id)
                if live is not None:  # somebody was quicker
                    made[:] = [live]
                elif not self._owner.has_ended_since(dead.run.job_id, lsn):
                    made[:] = [dead_letters.retry(decision, dead, job)]

            self._owner.transact(decide)
        return made[0]

    def discard(self, run_id: RunId) -> Run:
        """Take a run off the dead-letter list; see JobStore."""
        job_id, nominal_ns, n = require_run_id(run_id)
        made: list[Run] = []
        while not made:
            looked_lsn = self._owner.flush()
            with self._core.lock:
                is_live = self._read.live_run(run_id) is not None
            dead = None if is_live else self._dead(run_id)

            def decide(
                decision: Decision,
                lsn: int = looked_lsn,
                dead: HistoryRun | None = dead,
            ) -> None:
                if self._read.live_run(run_id) is not None:
                    self._owner.live_job(decision, job_id)
                    live = decision.run(job_id, nominal_ns, n)
                    assert live is not None, "a live run belongs to a live job"
                    made[:] = [dead_letters.discard_waiting(decision, live)]
                elif dead is not None and not self._owner.has_ended_since(job_id, lsn):
                    made[:] = [dead_letters.discard_dead(decision, dead)]

            self._owner.transact(decide, urgent=True)
        return made[0]

    def cancel_run(
        self, run_id: RunId, *, running: RunningRule = "leave"
    ) -> CancelResult:
        """End one run; see JobStore."""
        job_id, nominal_ns, n = require_run_id(run_id)
        found: list[CancelResult] = []

        def decide(decision: Decision) -> None:
            found.clear()
            if self._read.live_run(run_id) is None:
                return
            job = decision.job(job_id)
            if job is None:
                job = self._owner.live_job(decision, job_id)  # a plain one
            live = decision.run(job_id, nominal_ns, n)
            assert live is not None, "a live run belongs to a live job"
            found[:] = [
                changing.cancel_run(
                    decision, job, live, running=running, has_begun=self._has_begun
                )
            ]

        self._owner.transact(decide, urgent=True)
        if found:
            return found[0]
        self._owner.flush()
        ended = self._history.run(run_id)
        if ended is None:
            return CancelResult.NOT_FOUND
        was_cancelled = ended.run.state is RunState.CANCELLED
        return CancelResult.ALREADY if was_cancelled else CancelResult.FINISHED

    def _dead(self, run_id: RunId) -> HistoryRun:
        dead = self._history.run(run_id)
        if dead is None:
            raise UnknownRunError("run", run_id, "pass the id of a run that is kept")
        return dead

    # -- queues and calendars ------------------------------------------------------------

    def load_ahead(self, until_ns: int, step_ns: int) -> list[Load]:
        """Return how many starts are planned in each step from now until then."""
        self._core.require_alive()
        return load_ahead(
            self._core, self._state, self._read, until_ns=until_ns, step_ns=step_ns
        )

    def queue(self, name: str) -> Queue:
        """Return a queue; one that nobody has set has no bounds."""
        self._core.require_alive()
        with self._core.lock:
            return self._state.queues.get(name, Queue(name=name))

    def queues(self) -> list[Queue]:
        """Return all queues that were set or have waiting runs."""
        self._core.require_alive()
        with self._core.lock:
            names = {*self._state.queues, *self._state.running_by_queue}
            names.update(lane.queue for lane in self._state.ready.lanes())
            return [
                self._state.queues.get(name, Queue(name=name)) for name in sorted(names)
            ]

    def set_queue(self, queue: Queue) -> None:
        """Replace what is known of a queue."""

        def decide(decision: Decision) -> None:
            decision.add(Kind.QUEUE_SET, queue)

        self._owner.transact(decide, urgent=True)
        self._owner.wake()

    def calendar(self, name: str) -> NamedCalendar | None:
        """Return a calendar."""
        self._core.require_alive()
        with self._core.lock:
            return self._state.calendars.get(name)

    def calendars(self) -> dict[str, NamedCalendar]:
        """Return all calendars."""
        self._core.require_alive()
        with self._core.lock:
            return dict(self._state.calendars)

    def set_calendar(self, name: str, calendar: NamedCalendar) -> None:
        """Replace a calendar; the jobs that use it are planned anew from now."""

        def decide(decision: Decision) -> None:
            decision.add(Kind.CALENDAR_SET, CalendarSet(name, calendar))

        self._owner.transact(decide)

        def replan(decision: Decision) -> None:
            for entry in self._state.jobs.values():
                job = entry.job
                if job.trigger.calendar == name and job.trigger.is_recurring:
                    changing.replan(decision, job)

        self._owner.transact(replan)

    # -- nodes and workers --------------------------------------------------------------

    def join(self, worker: str, *, ttl_ns: int | None = None) -> None:
        """Announce a worker, before it claims; see JobStore."""
        self._serving.join(worker, ttl_ns=ttl_ns)

    def beat(self, worker: str) -> bool:
        """Renew the leases of a worker; False if they ran out and are lost."""
        return self._serving.beat(worker)

    def leave(self, worker: str) -> None:
        """Forget a worker; what it still has is lost."""
        self._serving.leave(worker)

    def recover(self) -> int:
        """Begin to serve: what dead workers left is lost, what passed is missed."""
        return self._serving.recover()

    def fire(self, limit: int) -> tuple[int, Ticket]:
        """Make ready what is due; see JobStore."""
        return self._serving.fire(limit)

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
        return self._serving.claim(
            worker, tasks=tasks, count=count, ahead=ahead, queues=queues
        )

    def begin(self, run_id: RunId, token: int) -> bool:
        """Note that the handler starts; False if the run was cancelled meanwhile."""
        return self._serving.begin(run_id, token)

    def give_back(self, claims: Iterable[tuple[RunId, int]]) -> Ticket:
        """Return runs that were claimed and never begun; see JobStore."""
        return self._serving.give_back(claims)

    def finish(self, ends: Sequence[Finish]) -> tuple[list[Verdict], Ticket]:
        """Take in how attempts ended; see JobStore."""
        return self._serving.finish(ends)

    def requests(self) -> list[Request]:
        """Return, once, the attempts of this process that are to be ended."""
        return self._serving.requests()

    @property
    def changed(self) -> threading.Condition:
        """Notified when there is earlier work, something ready, or a request."""
        return self._core.wake

    def wait(self, until_ns: int | None = None) -> None:
        """Wait, `changed` held, for what is due or `changed`; see JobStore."""
        self._serving.wait(until_ns)

    def add_listener(self, listener: Callable[[Sequence[Run]], None]) -> None:
        """Call with runs that reached a final state, once that is durable.

        By whichever thread led the commit: the listener must be quick, must not raise, and
        must not ask the store for anything.
        """
        self._owner.add_listener(listener)

    def check(self) -> None:
        """Assert the invariants. For tests."""
        self._core.check()
        with self._core.lock:
            self._state.check()


def _open_history(place: str, log: Log | VolatileLog) -> History:
    """Open a history; on a full disk by the room of a segment that is only made ahead.

    SQLite takes 32 KiB to open a database that was closed, and log and jobs may have
    everything they need: their reserve is there for such a time.
    """
    try:
        return History(place)
    except HistoryError as error:
        if not (error.is_no_room and isinstance(log, Log) and log.drop_ready()):
            raise
        return History(place)


def _history_of(path: _Path) -> tuple[str, bool]:
    """Return where the history of a directory is, and whether there is one yet."""
    if path == MEMORY:
        return MEMORY, True
    files = path if isinstance(path, FileSystem) else FileSystem(path)
    is_there = files.exists() and HISTORY_NAME in files.names()
    return os.path.join(files.path, HISTORY_NAME), is_there
