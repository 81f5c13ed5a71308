"""The JobStore on PostgreSQL: any number of processes, one truth.

    jobs and runs   rows; runs that have ended are in a table of their own until they are
                    old enough
    decisions       by the functions of stores/deciding/, as in every store, over what was
                    read; written in one statement, if it is unchanged
    nodes           members with leases; each fires the jobs of its shards (membership.py)
    time            the database's clock alone decides what is due and who lives

There is no transaction of more than one message, no advisory lock and no session state:
it works behind a pooler, and nothing waits for a client that has gone to sleep.
"""

from __future__ import annotations

import logging
import random
import threading
import uuid
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import Final, Self

import msgspec
from msgspec import UNSET

from timingwheel.clock import WAIT_MAX_NS, Clock, SystemClock
from timingwheel.jobs.calendars import NamedCalendar
from timingwheel.jobs.cluster import ClusterFacts
from timingwheel.jobs.errors import UnknownRunError, UnknownWorkerError
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
    TakenOn,
    Ticket,
    Verdict,
)
from timingwheel.jobs.store import Running as RunningRule
from timingwheel.stores.deciding import changing, dead_letters
from timingwheel.stores.deciding.decision import Decision
from timingwheel.stores.deciding.live import LiveRun
from timingwheel.stores.deciding.putting import is_plain
from timingwheel.stores.fire_rate import FiresPerSecond, checked_rate
from timingwheel.stores.hints_option import HintsOption, checked_hints
from timingwheel.stores.history_retention import Retention
from timingwheel.stores.identity import StoreTag, require_run_id
from timingwheel.stores.postgres.claiming import Claiming
from timingwheel.stores.postgres.connections import Connections
from timingwheel.stores.postgres.ends import Ends
from timingwheel.stores.postgres.errors import DatabaseAwayError
from timingwheel.stores.postgres.expecting import Expecting
from timingwheel.stores.postgres.forecast import load_ahead
from timingwheel.stores.postgres.hinting import POLL_NS, Hinting
from timingwheel.stores.postgres.lanes import require_names_fit
from timingwheel.stores.postgres.limits import FireLimits
from timingwheel.stores.postgres.listing import Listing
from timingwheel.stores.postgres.loading import Loading
from timingwheel.stores.postgres.making import SchemaError, make_ready, require_tables
from timingwheel.stores.postgres.membership import Membership
from timingwheel.stores.postgres.migrating import outdated
from timingwheel.stores.postgres.owner import Item, PostgresOwner
from timingwheel.stores.postgres.putting import put, wanted_by
from timingwheel.stores.postgres.queues import Queues
from timingwheel.stores.postgres.resting import Resting
from timingwheel.stores.postgres.schema import SHARDS
from timingwheel.stores.postgres.serving import Serving
from timingwheel.stores.postgres.standing import standing, tell_safety
from timingwheel.stores.postgres.steps import Steps
from timingwheel.stores.postgres.taking import Taking
from timingwheel.stores.postgres.tending import Tending, Watching
from timingwheel.stores.postgres.trust import LossListener, Trust
from timingwheel.stores.postgres.unheard import Unheard
from timingwheel.stores.postgres.upkeep import Upkeep
from timingwheel.stores.postgres.view import LoadedView, Wanted
from timingwheel.stores.postgres.within import PutWithin

replace = msgspec.structs.replace

_logger = logging.getLogger("timingwheel")
TTL_NS: Final = 6_000_000_000
"""How long a node lives after its last sign of life."""
REBIND_PART: Final = 64
DURABLE: Final = Ticket(0)
"""Whatever a call has done is durable when it returns."""


class PostgresStore:
    """A JobStore in a database. Thread-safe. Use `open`.

    Args:
        connections: to the database, whose tables are there.
        store: its uuid.
        shards: how many it has.
        clock: for resting; what is due the database decides.
        ttl_ns: how long this node lives after its last sign of life.
        retention: how long what has ended is kept.
        rng: for jitter and backoff.
        fires_per_second, window_min: see FireLimits.
        listen_at: where hints of others are heard; None: there are none.
    """

    _outdated: SchemaError | None = None

    def __init__(
        self,
        connections: Connections,
        *,
        store: uuid.UUID,
        shards: int,
        clock: Clock,
        ttl_ns: int,
        retention: Retention,
        rng: random.Random,
        fires_per_second: FiresPerSecond,
        window_min: int | None,
        listen_at: str | None,
    ) -> None:
        self._connections = connections
        self._clock = clock
        self._loading = Loading(connections, shards)
        tag = StoreTag(store.bytes)
        self._owner = PostgresOwner(
            connections, self._loading, shards=shards, tag=tag, rng=rng
        )
        self._trust = Trust(clock, ttl_ns, self._owner.claimed)
        self._steps = Steps(connections)
        self._members = Membership(connections, self._trust, self._steps, ttl_ns=ttl_ns)
        self._limits = FireLimits(
            connections,
            self._members,
            clock,
            shards=shards,
            fires_per_second=fires_per_second,
            window_min=window_min,
        )
        self._taking = Taking(
            connections, self._members, self._steps, clock, self._owner.plain_ends
        )
        self._ends = Ends(self._owner, self._trust)
        self._serving = Serving(
            self._owner,
            self._members,
            self._trust,
            self._steps,
            ends=self._ends,
            limits=self._limits,
            taking=self._taking,
        )
        self._unheard = Unheard(self._owner, self._ends)
        self._listing = Listing(connections, shards)
        self._expecting = Expecting(connections, shards)
        self._hinting = Hinting(
            self._owner, self._members, self._expecting, clock, at=(store, listen_at)
        )
        self._hints = self._hinting.hints
        self._queues = Queues(self._owner, partial(self._hints.tell, "ready"))
        self._within = PutWithin(self._owner, store, self._hinting.foreign)
        self._tending = Tending(self.tend, clock, every_ns=ttl_ns // 3)
        self._watching = Watching(self._trust, clock)
        self._resting = Resting(self._owner, self._serving, clock)
        self._upkeep = Upkeep(connections, self._loading, clock, retention)
        self._is_closed = False

    @classmethod
    def open(
        cls,
        where: str,
        *,
        clock: Clock | None = None,
        shards: int = SHARDS,
        create: bool = True,
        ttl_ns: int = TTL_NS,
        retention: Retention | None = None,
        rng: random.Random | None = None,
        fires_per_second: FiresPerSecond = None,
        window_min: int | None = None,
        hints: HintsOption = "off",
    ) -> Self:
        """Open a store, made if it is not there; fire nothing yet.

        Args:
            where: as psycopg takes it: "postgresql://…".
            clock: for resting.
            shards: of a store that is made now.
            create: False: refuse a database that has no tables yet.
            ttl_ns: how long this node lives after its last sign of life; others take
                over its work then.
            retention: how long what has ended is kept.
            rng: for jitter and backoff; a seeded one makes a simulation repeat.
            fires_per_second: how many runs may become ready a second, of the whole store:
                "auto": as many as leave requests quick; None: as many as it can.
            window_min: no more becomes ready than workers will soon take: at least so
                many runs for each task in each queue; None: all that is due.
            hints: "auto": processes tell each other what to look for, by NOTIFY; a URL:
                hear of it there; "off": all is found by polling.

        Raises:
            ArgumentError: fires_per_second is no rate, or hints no such option.
            SchemaError: its tables are newer than this version.
            NoStoreError: there are none, and none are to be made.
            DatabaseAwayError: the database cannot be reached.
        """
        fires_per_second = checked_rate(fires_per_second)
        hints = checked_hints(hints)
        listen_at = {"auto": where, "off": None}.get(hints, hints)
        connections = Connections(where)
        try:
            with connections.lent() as connection:
                if not create:
                    require_tables(connection)
                store, found = make_ready(connection, shards=shards)
            return cls(
                connections,
                store=store,
                shards=found,
                clock=clock if clock is not None else SystemClock(),
                ttl_ns=ttl_ns,
                retention=retention if retention is not None else Retention(),
                rng=rng if rng is not None else random.Random(),
                fires_per_second=fires_per_second,
                window_min=window_min,
                listen_at=listen_at,
            )
        except BaseException:
            connections.close()
            raise

    # -- life ----------------------------------------------------------------------------

    def close(self) -> None:
        """Hand over the shards and let go of everything. Idempotent."""
        if self._is_closed:
            return
        self._is_closed = True
        self._tending.stop()
        self._watching.stop()
        self._limits.stop()
        try:
            self._members.close()
            self._hints.stop()
        finally:
            self._connections.close()

    def abandon(self) -> None:
        """Let go of the connections and tell nobody, as a process that dies."""
        self._is_closed = True
        self._connections.close()
        self._tending.stop()
        self._watching.stop()
        self._limits.stop()
        self._hints.stop()

    def now(self) -> Instant:
        """Return the present by which this store decides what is due."""
        now = self._loading.now()
        return Instant(now.wall_ns, now.elapsed_ns)

    def storage(self) -> Storage:
        """Return how the store stands: there is no log, and there are no wheels."""
        return self._listing.storage()

    def cluster(self) -> ClusterFacts:
        """Return who lives, who fires what, and how the database does."""
        return standing(self._connections, self._clock)

    def figures(self) -> StoreFigures:
        """Return the store in numbers; see measuring.py."""
        return self._owner.tally.measure(self._connections)

    def commit(self, ticket: Ticket) -> None:
        """Return: it is durable."""

    def commit_soon(self, ticket: Ticket) -> None:
        """Return: it is durable."""

    # -- jobs ----------------------------------------------------------------------------

    def put(
        self, drafts: Sequence[Draft], *, if_exists: IfExists = "update"
    ) -> list[JobRef]:
        """Make jobs, all or none of them; see JobStore."""
        if len(drafts) == 1 and is_plain(drafts[0]):
            start_ns = self._clock.monotonic_ns()
            ref = self._owner.put_plain(drafts[0])
            if ref is not None:
                self._limits.note_request(start_ns)
                return [ref]
        refs: list[JobRef] = []

        def decide(decision: Decision) -> None:
            refs[:] = put(self._owner, decision, drafts, if_exists=if_exists)

        self._owner.step(decide, wanted_by(self._owner.tag, drafts))
        return refs

    def put_within(
        self, conn: object, drafts: Sequence[Draft], *, if_exists: IfExists = "update"
    ) -> list[JobRef]:
        """Make jobs within a transaction of the caller's; see PutsWithin."""
        return self._within.put(conn, drafts, if_exists=if_exists)

    def get(self, job_id: JobId) -> Job | None:
        """Return a job that is live or still kept."""
        return self._listing.job(job_id)

    def find(self, name: str) -> Job | None:
        """Return the live job of a name."""
        return self._listing.named(name)

    def jobs(self, query: JobQuery) -> JobPage:
        """Return jobs, live ones first."""
        return self._listing.jobs(query)

    def followers(self, limit: int) -> list[Job]:
        """Return live jobs that run after others, at most so many, by id."""
        return self._listing.followers(limit)

    def update(self, job_id: JobId, change: Change, *, if_revision: int | None) -> Job:
        """Change a live job; see JobStore."""
        changed: list[Job] = []

        def decide(decision: Decision) -> None:
            job = self._owner.live_job(decision, job_id)
            if change.queue is not UNSET:
                require_names_fit(change.queue, job.task)
            changed[:] = [
                changing.update(decision, job, change, if_revision=if_revision)
            ]

        self._step(job_id, decide)
        return changed[0]

    def cancel(self, job_id: JobId, *, running: RunningRule = "leave") -> CancelResult:
        """End a job; see CancelResult."""
        found: list[CancelResult] = []

        def decide(decision: Decision) -> None:
            found[:] = [self._cancel(decision, job_id, running)]

        with self._owner.starting:  # nothing starts between the decision and its end
            self._step(job_id, decide)
        return found[0]

    def _cancel(
        self, decision: Decision, job_id: JobId, running: RunningRule
    ) -> CancelResult:
        job = decision.job(job_id)
        if job is None:
            return self._ended(decision, job_id)
        if job.state is JobState.CANCELLED:
            return CancelResult.ALREADY
        return changing.cancel(
            decision, job, running=running, has_begun=self._has_begun
        )

    def _ended(self, decision: Decision, job_id: JobId) -> CancelResult:
        """Return what a cancel finds of a job that does not live."""
        row = _view(decision).row(job_id)
        if row is not None:
            was_cancelled = row.job.state is JobState.CANCELLED
            return CancelResult.ALREADY if was_cancelled else CancelResult.FINISHED
        is_kept = self._listing.job(job_id) is not None
        return CancelResult.FINISHED if is_kept else CancelResult.NOT_FOUND

    def _has_begun(self, live: LiveRun) -> bool:
        # Of what another process was given nobody here knows that it has not begun.
        return self._owner.claimed.get(live.token, True)

    def hold(
        self, job_id: JobId, pause: Pause, *, running: RunningRule = "leave"
    ) -> bool:
        """Pause a job; see JobStore."""
        fresh: list[bool] = []

        def decide(decision: Decision) -> None:
            job = self._owner.live_job(decision, job_id)
            fresh[:] = [
                changing.hold(
                    decision, job, pause, running=running, has_begun=self._has_begun
                )
            ]

        with self._owner.starting:
            self._step(job_id, decide)
        return fresh[0]

    def unhold(
        self, job_id: JobId, catch_up: CatchUp, *, dry_run: bool = False
    ) -> Resumption:
        """Resume a job; see JobStore."""
        found = [Resumption([], 0, 0)]

        def decide(decision: Decision) -> None:
            job = self._owner.live_job(decision, job_id)
            if job.pause is not None:
                rng = self._owner.rng
                found[:] = [changing.unhold(decision, job, catch_up, rng=rng)]
            if dry_run:
                decision.changes.clear()
                decision.requests.clear()

        self._step(job_id, decide)
        return found[0]

    def create_runs(self, job_id: JobId, runs: Sequence[NewRun]) -> list[Run]:
        """Create runs by hand; see JobStore."""
        made: list[Run] = []
        nominals = {run.nominal_ns for run in runs}

        def decide(decision: Decision) -> None:
            job = self._owner.live_job(decision, job_id)
            view = _view(decision)
            kept = {
                nominal_ns: n
                for nominal_ns in nominals
                if (n := view.highest_n(job_id, nominal_ns)) >= 0
            }
            made[:] = changing.create_runs(decision, job, runs, kept=kept)

        wanted = Wanted()
        wanted.jobs.add(job_id)
        wanted.highest.update((job_id, nominal_ns) for nominal_ns in nominals)
        self._owner.step(decide, wanted)
        return made

    def planned(self, job_id: JobId) -> list[tuple[int, int]]:
        """Return (nominal_ns, n) of every run of a job that is kept."""
        return self._listing.planned(job_id)

    def rebind(self, old: str, new: str) -> int:
        """Give the jobs of one task to another; see JobStore."""
        todo = self._listing.of_task(old)
        moved: set[JobId] = set()

        def decide(job_id: JobId, decision: Decision) -> None:
            job = decision.job(job_id)
            moved.discard(job_id)
            if job is None or job.state is JobState.CANCELLED or job.task != old:
                return
            require_names_fit(job.queue, new)
            changing.rebind(decision, job, new, rng=self._owner.rng)
            moved.add(job_id)

        for start in range(0, len(todo), REBIND_PART):
            part = todo[start : start + REBIND_PART]
            items = [Item(job_id, partial(decide, job_id)) for job_id in part]
            self._owner.steps(items, {})
        return len(moved)

    def quarantine(self, job_id: JobId, fault: str) -> None:
        """Set a job aside whose payload cannot be understood; its bytes are kept."""

        def decide(decision: Decision) -> None:
            job = self._owner.live_job(decision, job_id)
            decision.save_job(replace(job, state=JobState.QUARANTINED, fault=fault))

        self._step(job_id, decide)

    def _step(self, job_id: JobId, decide: Callable[[Decision], None]) -> None:
        wanted = Wanted()
        wanted.jobs.add(job_id)
        self._owner.step(decide, wanted)

    # -- runs ----------------------------------------------------------------------------

    def run(self, run_id: RunId) -> Run | None:
        """Return a run that is kept."""
        return self._listing.run(run_id)

    def runs(self, query: RunQuery) -> RunPage:
        """Return runs, live and finished, newest nominal time first."""
        return self._listing.runs(query)

    def attempts(self, run_id: RunId) -> list[Attempt]:
        """Return the attempts of a run, the one that goes on last."""
        return self._listing.attempts(run_id)

    def skips(self, job_id: JobId, *, since_ns: int = 0) -> list[SkipRange]:
        """Return what did not run and why, oldest first."""
        return self._listing.skips(job_id, since_ns)

    def retry(self, run_id: RunId) -> Run:
        """Make a failed or lost run ready again; see JobStore."""
        job_id, nominal_ns, n = require_run_id(run_id)
        made: list[Run] = []

        def decide(decision: Decision) -> None:
            live = decision.run(job_id, nominal_ns, n)
            if live is not None:  # somebody was quicker
                made[:] = [live.run]
                return
            view = _view(decision)
            dead = view.dead_run(job_id, (nominal_ns, n))
            if dead is None:
                raise _unknown(run_id)
            row = view.row(job_id)
            job = None if row is None else row.job
            made[:] = [dead_letters.retry(decision, dead, job)]

        self._owner.step(decide, _wants_dead(job_id, nominal_ns, n))
        return made[0]

    def discard(self, run_id: RunId) -> Run:
        """Take a run off the dead-letter list; see JobStore."""
        job_id, nominal_ns, n = require_run_id(run_id)
        made: list[Run] = []

        def decide(decision: Decision) -> None:
            live = decision.run(job_id, nominal_ns, n)
            if live is not None:
                self._owner.live_job(decision, job_id)
                made[:] = [dead_letters.discard_waiting(decision, live)]
                return
            dead = _view(decision).dead_run(job_id, (nominal_ns, n))
            if dead is None:
                raise _unknown(run_id)
            made[:] = [dead_letters.discard_dead(decision, dead)]

        self._owner.step(decide, _wants_dead(job_id, nominal_ns, n))
        return made[0]

    def cancel_run(
        self, run_id: RunId, *, running: RunningRule = "leave"
    ) -> CancelResult:
        """End one run; see JobStore."""
        job_id, nominal_ns, n = require_run_id(run_id)
        found: list[CancelResult] = []

        def decide(decision: Decision) -> None:
            found.clear()
            job, live = decision.job(job_id), decision.run(job_id, nominal_ns, n)
            if job is not None and live is not None:
                begun = self._has_begun
                found[:] = [
                    changing.cancel_run(
                        decision, job, live, running=running, has_begun=begun
                    )
                ]

        with self._owner.starting:
            self._step(job_id, decide)
        if found:
            return found[0]
        ended = self._listing.run(run_id)
        if ended is None:
            return CancelResult.NOT_FOUND
        was_cancelled = ended.state is RunState.CANCELLED
        return CancelResult.ALREADY if was_cancelled else CancelResult.FINISHED

    def load_ahead(self, until_ns: int, step_ns: int) -> list[Load]:
        """Return how many starts are planned in each step from now until then."""
        return load_ahead(
            self._connections, self._loading, until_ns=until_ns, step_ns=step_ns
        )

    # -- queues and calendars ------------------------------------------------------------

    def queue(self, name: str) -> Queue:
        """Return a queue; one that nobody has set has no bounds."""
        return self._queues.queue(name)

    def queues(self) -> list[Queue]:
        """Return all queues that were set or have waiting runs."""
        return self._queues.queues()

    def set_queue(self, queue: Queue) -> None:
        """Replace what is known of a queue."""
        self._queues.set_queue(queue)

    def calendar(self, name: str) -> NamedCalendar | None:
        """Return a calendar."""
        return self._queues.calendars().get(name)

    def calendars(self) -> dict[str, NamedCalendar]:
        """Return all calendars."""
        return self._queues.calendars()

    def set_calendar(self, name: str, calendar: NamedCalendar) -> None:
        """Replace a calendar; the jobs that use it are planned anew from now."""
        self._queues.set_calendar(name, calendar)

    # -- nodes and workers --------------------------------------------------------------

    def join(self, worker: str, *, ttl_ns: int | None = None) -> None:
        """Announce a worker, before it claims; see JobStore."""
        self._members.join(worker, ttl_ns=ttl_ns)
        if ttl_ns is None:
            self._taking.expect()
        self._start_tending()

    def _start_tending(self) -> None:
        self._tending.start()
        self._watching.start()

    def beat(self, worker: str) -> bool:
        """Renew the leases of a worker; False if they ran out and are lost."""
        return self._members.beat(worker)

    def leave(self, worker: str) -> None:
        """Forget a worker; what it still has is lost."""
        self._serving.leave(worker)

    def recover(self) -> int:
        """Begin to serve: what dead workers left is lost, what passed is missed."""
        self._upkeep.prepare()
        lost = self._serving.recover()
        self._start_tending()
        self._hints.listen()
        tell_safety(self._connections)
        return lost

    def hand_over(self) -> None:
        """Fire nothing more, and let others; what workers have goes on. See Clustered."""
        self._serving.hand_over()

    def withdraw(self) -> None:
        """Give no sign of life any more, and let go of what there is. See Clustered."""
        self._tending.stop()
        self._trust.lose("this node has stopped for good")
        try:
            self._members.close()
        except Exception:
            _logger.exception("others take over when the lease has run out")

    def take_on(self, worker: str) -> TakenOn | None:
        """Return what a remote worker has that joined here or elsewhere; see Clustered."""
        return self._members.take_on(worker)

    def departed(self, workers: Collection[str]) -> set[str]:
        """Return those of some remote workers that have left; see Clustered."""
        return self._members.departed(workers)

    def add_loss_listener(self, listener: LossListener) -> None:
        """Call with the attempts of this process that it loses; see Clustered."""
        self._trust.listeners.append(listener)

    def tend(self) -> None:
        """Give a sign of life, and take over what nobody serves."""
        self._serving.tend()
        self._limits.tend()
        self._taking.tend()
        self._owner.plain_ends.forget(self._owner.claimed.keys())
        self._owner.tell(self._expecting.ended())
        if self._expecting:
            self._hints.tell("want")
        self._upkeep.tend(purges=0 in self._members.leases)
        if self._outdated is None:
            self._outdated = outdated(self._connections)
            if self._outdated is not None:
                _logger.error("this node fires nothing more: %s", self._outdated)
                self.hand_over()

    def purge(self) -> int:
        """Forget what is old enough; how many days, runs, jobs and skip ranges went."""
        return self._upkeep.purge()

    def is_quiet(self) -> bool:
        """Return whether there is nothing to do; see TellsOfQuiet."""
        return self._resting.is_quiet(self._hinting.rest_ns())

    def fire(self, limit: int) -> tuple[int, Ticket]:
        """Make ready what is due; see JobStore."""
        if self._outdated is not None:
            raise self._outdated
        with self._owner.changed:
            self._owner.news = False
        self._resting.note_turn()
        self._hinting.resting()  # what the last turn has left to others
        fired = self._serving.fire(limit)
        self._hinting.made_ready(fired)
        if self._steps.is_suspect:
            self._tending.hurry()
        return fired, DURABLE

    def claim(
        self,
        worker: str,
        *,
        tasks: frozenset[str],
        count: int,
        ahead: int = 0,
        queues: frozenset[str] | None = None,
    ) -> tuple[list[Claim], Ticket]:
        """Take runs in the order of their ranks; see JobStore.

        A worker of this process gets none while trust has ended.
        """
        is_own = self._members.is_own(worker)
        if is_own and not self._trust.holds():
            self._tending.hurry()
            return [], DURABLE
        claiming = Claiming(
            self._owner,
            self._members,
            worker,
            tasks=tasks,
            count=count,
            ahead=ahead,
            queues=queues,
            taking=self._taking,
        )
        self._limits.note_claim(claiming.inc, count + ahead)
        if not is_own:
            try:
                claiming.run()
            except UnknownWorkerError:
                self._members.forget(worker)
                raise
            self._hinting.took(len(claiming.claims), count)
            return claiming.claims, DURABLE
        self._unheard.give_back(claiming.inc)
        try:
            claiming.run()
        except UnknownWorkerError:
            self._tending.hurry()  # it judges, and begins anew
        except DatabaseAwayError:
            self._unheard.note(claiming.claims)
            raise
        self._hinting.took(len(claiming.claims), count)
        return self._trust.kept(claiming.inc, claiming.claims), DURABLE

    def begin(self, run_id: RunId, token: int) -> bool:  # noqa: ARG002 - the token says all
        """Note that the handler starts; False if the run was cancelled meanwhile."""
        return self._ends.begin(token)

    def give_back(self, claims: Iterable[tuple[RunId, int]]) -> Ticket:
        """Return runs that were claimed and never begun; see JobStore."""
        self._ends.give_back(claims)
        return DURABLE

    def finish(self, ends: Sequence[Finish]) -> tuple[list[Verdict], Ticket]:
        """Take in how attempts ended; see JobStore."""
        verdicts = self._trust.finish(ends, self._ends.finish)
        self._hints.ended()
        return verdicts, DURABLE

    def requests(self) -> list[Request]:
        """Return, once, the attempts of this process that are to be ended."""
        return self._owner.requests()

    @property
    def changed(self) -> threading.Condition:
        """Notified when there is earlier work, something ready, or a request."""
        return self._owner.changed

    def wait(self, until_ns: int | None = None) -> None:
        """Wait, `changed` held, for what is due or `changed`; see JobStore."""
        if self._owner.news or self._owner.has_requests:
            self._owner.news = False
            return
        self._hinting.resting()
        rest_ns = self._resting.quiet_until_ns
        if rest_ns is None:
            soon_ns = self._serving.next_ns or POLL_NS
            poll_ns = min(POLL_NS, soon_ns, self._limits.rest_ns, WAIT_MAX_NS)
            rest_ns = self._clock.monotonic_ns() + poll_ns
        ends_ns = rest_ns if until_ns is None else min(rest_ns, until_ns)
        self._clock.wait(self._owner.changed, ends_ns)

    def add_listener(self, listener: Callable[[Sequence[Run]], None]) -> None:
        """Call with runs that reached a final state: by what this process did, or expected.

        The listener must be quick and must not raise; it may hear of a run twice.
        """
        self._owner.listeners.append(listener)

    def expect(self, run_id: RunId) -> None:
        """Have listeners told of a run's end, whichever process ends it."""
        self._expecting.add(run_id)
        self._tending.start()
        self._hinting.expect()

    def expect_no_more(self, run_id: RunId) -> None:
        """Nobody waits for that run any more."""
        self._expecting.remove(run_id)


def _view(decision: Decision) -> LoadedView:
    view = decision.view
    assert isinstance(view, LoadedView)
    return view


def _wants_dead(job_id: JobId, nominal_ns: int, n: int) -> Wanted:
    wanted = Wanted()
    wanted.jobs.add(job_id)
    wanted.dead.add((job_id, (nominal_ns, n)))
    return wanted


def _unknown(run_id: RunId) -> UnknownRunError:
    return UnknownRunError("run", run_id, "pass the id of a run that is kept")
