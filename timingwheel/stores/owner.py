"""The job store as an owner of the engine core: state, history, and the line between.

Every change goes the engine's one straight line: decided under its lock against the
state, appended, applied, committed. What only follows from logged values (who waits, what
is ready, which queue is full) is kept beside and rebuilt when the store is opened.

The snapshot waits for the history before it lets log go, so what is final is in one of
the two at every moment.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import msgspec

from timingwheel.clock import Clock
from timingwheel.engine.core import EngineCore
from timingwheel.engine.life import CLOSED
from timingwheel.engine.owner import Due as CoreDue
from timingwheel.engine.volatile import VolatileLog
from timingwheel.errors import ArgumentError, EngineClosedError, TimingWheelError
from timingwheel.jobs.errors import UnknownJobError
from timingwheel.jobs.model import Draft, Job, JobId, JobState, Run
from timingwheel.jobs.store import Request, Ticket
from timingwheel.stores.deciding.changing import by_zones, waits_for_wall_time
from timingwheel.stores.deciding.decision import Decision
from timingwheel.stores.deciding.firing import Unserved
from timingwheel.stores.entries import JobEntry, LostPlain, ResumeDue, RunEntry
from timingwheel.stores.history import History
from timingwheel.stores.history_entries import Entry
from timingwheel.stores.history_errors import HistoryError
from timingwheel.stores.history_retention import Retention
from timingwheel.stores.history_writer import HistoryWriter
from timingwheel.stores.identity import StoreTag
from timingwheel.stores.past import KnownPast, asks_for_past, look_back
from timingwheel.stores.plain import decode_lane
from timingwheel.stores.reading import Reading
from timingwheel.stores.ready import Lane
from timingwheel.stores.records import Kind, records_of
from timingwheel.stores.state import StoreState
from timingwheel.stores.state_view import StateView
from timingwheel.stores.telling import Telling
from wal.log import Log

MISSED_STEP_NS: Final = 1_000_000_000
"""A wall clock set ahead by less misses nothing: what it passed over is merely late."""


class StoreOwner:
    """State and history on one engine core. Thread-safe where it takes the core's lock.

    Invariants: those of StoreState; what the log has dropped is in the history.

    Attributes:
        core: the engine core that it owns.
        state: live jobs and runs; the core's lock guards it.
        view: the same as decisions see it.
        history: what has ended.
        read: answers questions about both.
        tag: makes and reads job ids.
        rng: for jitter and backoff.
        requests: attempts that are to be ended; the core's lock guards it.
        unserved: until when nobody could dispatch.

    Args:
        log: opened, in read mode.
        history: opened; or, for a store that has none yet, what opens it. That happens
            when the log is there, as a directory is a store only by its log.
        clock: where time comes from.
        retention: how long the history keeps what.
        rng: see above.
        background: whether a thread writes the history.

    Raises:
        HistoryError: the history is older than what the log was cut for.
    """

    def __init__(
        self,
        log: Log | VolatileLog,
        history: History | Callable[[], History],
        *,
        clock: Clock,
        retention: Retention | None,
        rng: random.Random,
        background: bool = True,
    ) -> None:
        self.rng = rng
        self.tag = StoreTag(log.identity.uuid)
        self.requests: list[Request] = []
        self.unserved = Unserved(0, 0)
        self._log = log
        self._history_needed_lsn = 0
        recovered: list[Entry] = []
        self._stalled = False
        self._remembering: dict[object, int] = {}
        self.state = StoreState(
            reach_lsn=log.snapshot.reach_lsn if log.snapshot is not None else 0,
            note_history=recovered.extend,
        )
        self.view = StateView(self.state)
        self.core = EngineCore(log, self, clock)
        self._require_jobs()
        self.history = history if isinstance(history, History) else history()
        history = self.history
        self._writer = HistoryWriter(
            history,
            clock,
            retention=retention,
            on_written=self._on_written,
            background=background,
        )
        self._writer.offer(recovered)
        self.state.note_history = self._writer.offer
        if history.reached_lsn < self._history_needed_lsn:
            raise HistoryError(
                history.path,
                f"reaches LSN {history.reached_lsn}, and the log was cut when it had "
                f"reached {self._history_needed_lsn}: it is an older one, or new",
                "bring back the history.db that belongs to this directory",
            )
        self.read = Reading(self.core, self.state, tag=self.tag)
        with self.core.lock:
            self.state.begin(self.core)
            self._replan()
            now = self.core.now()
            self._ahead_ns = now.wall_ns - now.elapsed_ns
        if not self.state.is_born:
            born = bytes((Kind.STORE_BORN,))
            self.core.commit(self.core.submit(lambda _: [born], urgent=True))
        self._telling = Telling(self.core, self._writer, self.state.ended)
        self.core.before_drop = self._cover
        self._writer.start()
        self._writer.durable(log.durable_lsn)
        self._recovered_lsn: int = log.durable_lsn
        self.state.is_written = self._is_written

    def _require_jobs(self) -> None:
        """Refuse the directory of another owner, such as a TimerEngine, at once."""
        table = self.core.state.table
        for row in itertools.islice(table.walk(0, table.slot_count), 1):
            try:
                decode_lane(row.payload)
            except msgspec.MsgspecError as error:
                raise ArgumentError(
                    "path",
                    self._log.path,
                    "it holds timers of another kind and no jobs: open it with what "
                    "wrote it, a TimerEngine perhaps, or name another directory",
                ) from error

    def close(self) -> None:
        """Write what is durable to the history; close that, and then free the log."""
        self.core.close(before_release=self._close_history)

    def _close_history(self) -> None:
        try:
            if self._log.failure is None:
                self._writer.durable(self._log.durable_lsn)
        finally:
            self._writer.stop()
            self.history.close()

    def abandon(self) -> None:
        """End the thread of the history; the log is no more."""
        self._writer.stop()

    def commit(self, lsn: int) -> None:
        """Return when an LSN is as safe as promised; tell of what is."""
        self.core.commit(lsn)
        self._telling.catch_up(lsn)

    def commit_soon(self, lsn: int) -> None:
        """Have it made so without waiting."""
        self.core.commit_soon(lsn)
        self._telling.catch_up(lsn)

    def _sync(self, lsn: int) -> None:
        """Return when an LSN is on the disk and may be written to the history."""
        self.core.sync(lsn)
        self._telling.catch_up(lsn)

    def is_history_behind(self) -> bool:
        """Whether too much waits for the history: then nothing new should start.

        The node is woken when it has caught up.
        """
        self._stalled = self._writer.congested
        return self._stalled

    def _on_written(self, _: int) -> None:
        if self._stalled and not self._writer.congested:
            self.wake()

    def add_listener(self, listener: Callable[[Sequence[Run]], None]) -> None:
        """Call with runs that reached a final state, once that is durable."""
        self._telling.listeners.append(listener)

    def decide_due(self, due: CoreDue) -> list[bytes]:
        """Line up plain jobs that are due and note whose wait is over; log nothing."""
        self._note_step(due)
        state, table = self.core.state, self.core.state.table
        for timer_id in due.timers:
            slot = state.slot_of(timer_id)
            if not table.is_waiting(slot):
                self.state.due.append(LostPlain(timer_id))
                continue
            state.hold(timer_id)
            lane = decode_lane(table.payload(slot))
            self.state.ready.push(
                timer_id, Lane(lane.q, lane.t), due_ns=lane.n, priority=lane.r
            )
            self.state.news = True
        for token in due.armed:
            target = self.state.waits.take(token)
            if target is not None:
                if isinstance(target, JobEntry | RunEntry):
                    target.wait = None
                elif isinstance(target, ResumeDue):
                    target.job.resume = None
                self.state.due.append(target)
        return []

    def apply(self, records: list[tuple[int, bytes]]) -> None:
        """Change the state by records of the store's kinds."""
        self.state.apply(records)

    def dump(self) -> Iterator[bytes]:
        """Yield the store's part of a snapshot."""
        # Not what it has reached by now: before log is dropped it has all of this.
        yield b"\3" + self._writer.offered_lsn.to_bytes(8, "little")
        yield from self.state.dump()

    def load(self, blob: bytes) -> None:
        """Take one blob back."""
        self.state.is_born = True
        if blob[0] == 3:
            self._history_needed_lsn = int.from_bytes(blob[1:9], "little")
        else:
            self.state.load(blob)

    def _cover(self, lsn: int) -> None:
        """Wait until the history has everything up to an LSN: log will be dropped."""
        self._sync(lsn)
        try:
            covered = self._writer.flush(lsn, may_fail=True)
        except TimingWheelError as error:
            # The snapshot is given up and tried again later; the log has everything.
            raise OSError(errno.EIO, f"the history is behind: {error}") from error
        if not covered:
            raise EngineClosedError(CLOSED)

    def _replan(self) -> None:
        """Plan the next occurrences anew: zones may have new rules since."""
        for entry in self.state.jobs.values():
            if not waits_for_wall_time(entry.job):
                continue
            planned = by_zones(entry.job, self.view.schedule(entry.job))
            if planned is not entry.job:
                # Not logged: it follows from what is, at this opening and at each later.
                entry.job = planned
                self.state.place_job(entry)

    # -- groups -------------------------------------------------------------------------

    def decide(
        self, decide: Callable[[Decision], None], *, urgent: bool = False
    ) -> Ticket:
        """Decide, append and apply one group."""
        decision: Decision | None = None

        def events(first_lsn: int) -> list[bytes]:
            nonlocal decision
            decision = Decision(self.view, self.core.now(), first_lsn.__add__)
            decide(decision)
            return records_of(decision.changes)

        lsn = self.core.submit(events, urgent=urgent)
        if decision is not None and (decision.requests or self.state.news):
            self.wake(decision.requests)
        return Ticket(lsn)

    def transact(
        self, decide: Callable[[Decision], None], *, urgent: bool = False
    ) -> None:
        """Decide one group and make it durable."""
        if not urgent:
            self.core.admit()
        self.commit(self.decide(decide, urgent=urgent))

    def wake(self, requests: Sequence[Request] = ()) -> None:
        """Have the node look again."""
        with self.core.lock:
            self.requests.extend(requests)
            self.state.news = True
            self.core.wake.notify_all()

    def live_job(self, decision: Decision, job_id: JobId) -> Job:
        """Return a live job; a plain one is promoted in this group.

        Raises:
            UnknownJobError: there is none, or it is cancelled and waits for its last
                attempts to end.
        """
        job = decision.job(job_id)
        if job is not None and job.state is not JobState.CANCELLED:
            return job
        row = self.read.plain_row(job_id)
        if row is None:
            raise UnknownJobError(
                "job", job_id, "pass the id of a job that is not over yet"
            )
        running = self.state.running.get(row.token) if row.fired else None
        row.promote(
            decision,
            worker=running.worker if running is not None else "",
            is_due=self.core.state.is_held(row.timer_id),
        )
        promoted = decision.job(job_id)
        assert promoted is not None
        return promoted

    @contextlib.contextmanager
    def remembering(self) -> Iterator[None]:
        """Forget no end within the block: `past` looks, and a group acts on it later."""
        key = object()
        self._remembering[key] = self._writer.covered_lsn
        try:
            yield
        finally:
            del self._remembering[key]

    def _is_written(self, lsn: int) -> bool:
        # The copy is one step: others come and go meanwhile.
        looked = list(self._remembering.values())
        return lsn <= min([self._writer.covered_lsn, *looked])

    def past(self, drafts: Sequence[Draft]) -> KnownPast:
        """Look up what drafts refer to that is over; without the lock.

        Call it, and act on it, within `remembering`.
        """
        if self._recovered_lsn and any(map(asks_for_past, drafts)):
            # What ended before the last opening is in no memory but the history.
            self._writer.settle(self._recovered_lsn)
            self._recovered_lsn = 0
        return look_back(
            self.read,
            self.history,
            self.tag,
            drafts=drafts,
            written_lsn=self._writer.covered_lsn,
        )

    def flush(self) -> int:
        """Have the history show all that is final; return up to where."""
        self.core.require_alive()
        with self.core.lock:  # so that all of it is applied
            lsn = self._log.appended_lsn
        self._sync(lsn)
        self._writer.settle(lsn)
        return lsn

    def has_ended_since(self, job_id: JobId, lsn: int) -> bool:
        """Return whether a run of a job may have ended after an LSN; the lock is held.

        Then what a `flush` up to there has brought to the history is out of date.
        """
        recent = self.state.recent.get(job_id)
        return self.state.forgotten_lsn > lsn or (
            recent is not None and recent.lsn > lsn
        )

    def _note_step(self, due: CoreDue) -> None:
        """A wall clock set far ahead has passed over times that nobody could serve."""
        ahead_ns = due.now.wall_ns - due.now.elapsed_ns
        step_ns = ahead_ns - self._ahead_ns
        wall_ns, elapsed_ns = self.unserved
        if step_ns >= MISSED_STEP_NS:
            self.unserved = Unserved(due.now.wall_ns, elapsed_ns)
        elif step_ns < 0:
            # The same moment by the new clock: what follows it is served.
            self.unserved = Unserved(wall_ns + step_ns, elapsed_ns)
        self._ahead_ns = ahead_ns
