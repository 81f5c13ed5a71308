"""The engine core: two wheels, a log, snapshots, and one owner plugged in.

Every change goes one straight line: **decide → append → apply → commit → release**. A
request is decided against the state under one short lock; its events are appended to the
log; `apply`, which recovery uses too, changes the state; the lock is released; the commit
makes it durable, shared with whoever else is waiting; only then does a reply or a fire
leave. So recovery is not a second program, and nothing is ever seen that a crash can undo.

The owner says what timers mean. It decides what events a due timer causes, keeps state of
its own by records of its own kinds, and dumps and loads that state. `TimerEngine` is the
smallest owner; a job store is a larger one.
"""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple, Protocol

from timingwheel.clock import Clock
from timingwheel.engine.dump import dump, load
from timingwheel.engine.records import Base, Kind, TimerId, clock_stepped
from timingwheel.engine.state import BATCH_MIN, EngineState
from timingwheel.engine.timeline import Now
from timingwheel.engine.volatile import VolatileLog
from timingwheel.errors import (
    EngineClosedError,
    EngineFailedError,
    TimingWheelError,
)
from wal.bodies import encode_records
from wal.errors import LogClosedError, LogFailedError, RecordTooLargeError, WalError
from wal.histogram import Histogram
from wal.log import JOINED_BYTES, Log, RoomNeededError
from wal.snapshot import SnapshotInfo

DISK_FULL_RETRY_NS: Final = 1_000_000_000
LET_PASS_SECONDS: Final = 0.001
CLOSED: Final = "the engine is closed: open a new one"
LAG_BOUNDS_NS: Final = tuple(
    microseconds * 1_000
    for microseconds in (
        *(100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000),
        *(100_000, 250_000, 500_000, 1_000_000, 5_000_000, 10_000_000),
    )
)
"""Bounds of the histogram of late ticks, ns; a tick looks every 10 s at least."""


class Due(NamedTuple):
    """What a tick found due.

    Attributes:
        timers: ids in the order in which they are to fire.
        armed: tokens of unlogged timers, likewise.
        first_lsn: the LSN that the first event decided will get.
        now: the present.
    """

    timers: list[TimerId]
    armed: list[int]
    first_lsn: int
    now: Now


class Owner(Protocol):
    """What the core asks of whoever gives timers a meaning.

    All methods are called under the core's lock and must not wait, call back into the
    core's requests, or keep what they are passed.
    """

    def decide_due(self, due: Due) -> list[bytes]:
        """Return the events that due timers cause.

        Each timer must get one that fires, reschedules or removes it, or must be held
        by `EngineState.hold`.
        """

    def apply(self, records: list[tuple[int, bytes]]) -> None:
        """Change the owner's state by (LSN, record) pairs of kinds >= 64.

        In recovery some may already be in what `load` brought: skip by LSN.
        """

    def dump(self) -> Iterator[bytes]:
        """Yield the owner's state as blobs; each step of the iterator must be short.

        Other changes come between the steps, so each blob says up to which LSN it goes.
        """

    def load(self, blob: bytes) -> None:
        """Take one blob of a dump back."""


class EngineCore:
    """The state of an engine and the line that every change follows.

    Thread-safe. One thread at a time may call `step`, and one `snapshot`.

    Invariants: a row that waits is in exactly one wheel; a row being delivered in none;
    nothing is in a wheel without a row (armed timers apart).

    Args:
        log: opened, in read mode; the core reads it and turns the page.
        owner: what timers mean.
        clock: where time comes from.

    Raises:
        LogCorruptError: the log is damaged; nothing was changed.
    """

    def __init__(self, log: Log | VolatileLog, owner: Owner, clock: Clock) -> None:
        self.lock = threading.Lock()
        self.wake = threading.Condition(self.lock)
        """Notified when a timer becomes due earlier than the tick thread expects."""
        self._passed = threading.Condition(self.lock)
        self._queued: deque[object] = deque()
        """One for each request that waits for the lock."""
        self.letting_pass = 0
        """How many threads wait until somebody has had the lock."""
        self.replayed_bytes = 0
        self.applied_lsn = 0
        """Of the last record applied. A commit that another leads can make records
        durable that are appended and not applied yet."""
        self.before_drop: Callable[[int], object] = lambda _: None
        """Called with the LSN that a snapshot reaches before log is dropped for it:
        an owner that keeps records elsewhere waits here until they are there."""
        self.tick_lag = Histogram(LAG_BOUNDS_NS)
        """How late ticks were that found something due: since it was, or since the
        tick before if it was due by then."""
        self.recovery_ns = 0
        """What reading snapshot and log, and filling the wheels, took."""
        self._log = log
        self._owner = owner
        self.clock = clock
        """Where time comes from."""
        self.wake_at_ns: int | None = _AWAKE
        self._waiting: list[int | None] = []
        """When the tick thread will look again; None: not before it is woken."""
        self.closed: str | None = None
        """Why nothing may be asked any more, None while it may."""
        self.failed: str | None = None
        """Why memory may differ from the log, None while it cannot: then nothing may be
        asked either, and the next open reads the log."""
        self._failed_by: BaseException | None = None
        self.state = EngineState(
            owner.apply,
            reach_lsn=log.snapshot.reach_lsn if log.snapshot is not None else 0,
            gaps_allowed=log.identity.repaired,
        )
        begun_ns = clock.monotonic_ns()
        self._recover()
        self._ticked_ns = clock.monotonic_ns()
        self.recovery_ns = self._ticked_ns - begun_ns
        _open_cores.add(self)

    # -- requests ---------------------------------------------------------------------

    def submit(
        self, decide: Callable[[int], list[bytes]], *, urgent: bool = False
    ) -> int:
        """Decide, append and apply one atomic group; `commit` it before you reply.

        Args:
            decide: called under the lock with the LSN that its first event will get;
                returns the events. It may be called again if the disk makes it wait.
                What it raises is raised here, and nothing has changed then.
            urgent: may use the log's reserve on a full disk: for what removes work.

        Returns:
            The LSN that the reply depends on, also when there are no events: what was
            decided may rest on records that are not durable yet.

        Raises:
            DiskFullError: there is no room; nothing has changed.
            EngineFailedError: the disk failed before.
            EngineClosedError: the engine is closed.
        """
        while True:
            try:
                return self.submit_now(decide, urgent=urgent)
            except RoomNeededError:
                self.make_room(urgent=urgent)

    def submit_now(
        self, decide: Callable[[int], list[bytes]], *, urgent: bool = False
    ) -> int:
        """Do as `submit` without ever waiting for the disk: for event loops.

        Raises:
            RoomNeededError: `make_room` on a thread, then call again.
        """
        waiting: object = None
        try:
            if self.lock.locked():
                waiting = object()
                self._queued.append(waiting)  # so that who has much to do lets us pass
            # Not `acquire`: a signal's handler can raise between it and a `try`.
            with self.lock:
                if waiting is not None:
                    self._queued.remove(waiting)
                    waiting = None
                try:
                    self.require_alive()
                    events = decide(self._log.next_lsn)
                    if events:
                        self._append(events, urgent=urgent)
                    return self._log.appended_lsn
                finally:
                    self.pass_on()
        finally:
            if waiting is not None:
                with contextlib.suppress(ValueError):
                    self._queued.remove(waiting)

    def broke_off(self, error: BaseException) -> None:
        """Note that a change raised; the lock is held.

        Without memory, or by what a signal's handler raises, it may have stopped between
        its record in the log and its effect. Then nobody can say what memory holds: the
        engine has failed, since what followed could contradict the log.
        """
        if isinstance(error, WalError | TimingWheelError):
            return  # refused in time
        former = self.failed
        self.failed = _HALF_DONE  # first: what follows may find no memory either
        if self._log.next_lsn == self.applied_lsn + 1:
            self.failed = former
        elif former is None:
            self._failed_by = error

    def fail(self, error: BaseException) -> None:
        """Stop the engine, since an error lost what had been taken out of it.

        What had failed or was closed before keeps its own reason.
        """
        self.failed = _HALF_DONE
        self._failed_by = self._failed_by or error

    def pass_on(self) -> None:
        """Let those go on who waited for a request to pass; the lock is held."""
        if self.letting_pass:
            self._passed.notify()

    def make_room(self, *, urgent: bool) -> None:
        """Wait until the log has a segment; raises as `submit`."""
        try:
            self._log.make_room(urgent=urgent)
        except (LogFailedError, LogClosedError) as error:
            raise self._in_engine_words(error) from error

    def submit_each(
        self, decides: Iterable[Callable[[int], list[bytes]]], *, urgent: bool = False
    ) -> int:
        """`submit` several groups, in order; other requests come in between.

        Each is atomic by itself and decided when those before it have been applied. The
        iterator goes on under the lock, right after its last group was applied.
        """
        pending = iter(decides)
        decide = next(pending, None)
        while decide is not None:
            try:
                with self.lock:
                    while decide is not None:
                        self.require_alive()
                        events = decide(self._log.next_lsn)
                        if events:
                            self._append(events, urgent=urgent)
                        decide = next(pending, None)
                        self._let_pass()
            except RoomNeededError:
                self.make_room(urgent=urgent)
            except MemoryError as error:
                # Its iterator changes more than what was appended.
                self.fail(error)
                raise
        with self.lock:
            return self._log.appended_lsn

    def let_pass(self) -> None:
        """Let those go first who wait with a request; for who has much to do."""
        if self._queued:
            with self.lock:
                self._let_pass()

    def _let_pass(self) -> None:
        if self._queued:
            # A thread that frees a lock gets it again before the woken one has run, so
            # it has to wait until somebody has passed; they may all have by now.
            self.letting_pass += 1
            self._passed.wait(LET_PASS_SECONDS)
            self.letting_pass -= 1

    def transact(
        self, decide: Callable[[int], list[bytes]], *, urgent: bool = False
    ) -> int:
        """`submit` one atomic group and `commit` it. Returns the LSN it reaches."""
        if not urgent:
            self.admit()
        lsn = self.submit(decide, urgent=urgent)
        self.commit(lsn)
        return lsn

    def admit(self) -> None:
        """Wait while too much is un-synced: before `submit` of what adds work."""
        self.require_alive()
        try:
            self._log.admit()
        except (LogFailedError, LogClosedError) as error:
            raise self._in_engine_words(error) from error

    @property
    def congested(self) -> bool:
        """Whether `admit` would wait."""
        return self._log.congested

    def commit(self, lsn: int) -> None:
        """Return when the records up to `lsn` are as safe as the engine promises.

        Raises:
            CommitUnknownError: the disk failed before they were.
        """
        try:
            self._log.commit(lsn)
        except (LogFailedError, LogClosedError) as error:
            raise self._in_engine_words(error) from error

    def sync(self, lsn: int) -> None:
        """Return when the records up to `lsn` are on the disk, whatever `commit` promises.

        Raises:
            CommitUnknownError: the disk failed before they were.
        """
        if not isinstance(self._log, Log):
            self._log.commit(lsn)
            return
        try:
            self._log.sync(lsn)
        except (LogFailedError, LogClosedError) as error:
            raise self._in_engine_words(error) from error

    def commit_soon(self, lsn: int) -> None:
        """Have the log's own thread commit, and return at once."""
        try:
            self._log.commit_soon(lsn)
        except (LogFailedError, LogClosedError) as error:
            raise self._in_engine_words(error) from error

    # -- the tick ---------------------------------------------------------------------

    def step(self, limit: int) -> Due:
        """Take what is due, at most `limit` timers; return it once it is durable.

        Raises:
            DiskFullError: firing pauses; what was due stays so.
            OSError: no segment could be made; likewise.
            EngineFailedError: firing stops.
            CommitUnknownError: likewise.
        """
        due, lsn, changed = self.take_due(limit)
        if changed:
            self.commit(lsn)
        return due

    def take_due(self, limit: int) -> tuple[Due, int, bool]:
        """Do as `step`, and leave the commit to the caller.

        Returns:
            What was due, the LSN to commit, and whether anything was appended.
        """
        while True:
            try:
                with self.lock:
                    due, changed = self._tick(limit)
                    return due, self._log.appended_lsn, changed
            except RoomNeededError:
                self.make_room(urgent=True)
            except RecordTooLargeError:
                # Small segments hold few events a group: fire fewer at a time.
                if limit <= 1:
                    raise
                limit //= 2

    def wait_for_due(self, until_ns: int | None = None) -> None:
        """Wait, the lock held, until something is due or `wake` is notified.

        May return early. Raises nothing after a failure; the next `step` does.

        Args:
            until_ns: or until this moment of the monotonic clock.
        """
        due_ns = self.state.next_due_ns()
        if due_ns is None or (until_ns is not None and until_ns < due_ns):
            due_ns = until_ns
        self._waiting.append(due_ns)
        self.wake_at_ns = self._latest_wake_ns()
        try:
            self.clock.wait(self.wake, due_ns)
        finally:
            self._waiting.remove(due_ns)
            self.wake_at_ns = self._latest_wake_ns()

    def _latest_wake_ns(self) -> int | None:
        """Return when the last of those who wait looks again: what is earlier wakes all."""
        if None in self._waiting:
            return None
        return max(
            (due_ns for due_ns in self._waiting if due_ns is not None), default=_AWAKE
        )

    def wait_for_space(self) -> None:
        """Wait a second, or less if woken: the disk is full and may not be by then."""
        with self.lock:
            until_ns = self.clock.monotonic_ns() + DISK_FULL_RETRY_NS
            self.clock.wait(self.wake, until_ns)

    # -- timers that are not logged ---------------------------------------------------

    def arm(self, deadline_ns: int, token: int, *, base: Base = Base.ELAPSED) -> int:
        """Set a timer that no crash survives; the lock is held.

        Args:
            deadline_ns: when, on the scale of `base`.
            token: comes back in `Due.armed`, once, or again if the tick failed;
                0 <= token < 2**63.
            base: elapsed or wall time.

        Returns:
            A handle for `disarm`.
        """
        timeline = self.state.timeline
        handle = timeline.insert(base, deadline_ns, ~token)
        self.wake_if_earlier(timeline.due_ns(base, deadline_ns))
        return handle

    def disarm(
        self,
        handle: int,
        *,
        base: Base = Base.ELAPSED,
        deadline_ns: int = 0,
        token: int = 0,
    ) -> bool:
        """Take an armed timer out; the lock is held. False if it has come due.

        Args:
            handle: what `arm` returned.
            base: as it was armed.
            deadline_ns: likewise; of no account on elapsed time.
            token: likewise.
        """
        return self.state.timeline.cancel(
            base, handle, deadline_ns=deadline_ns, key=~token
        )

    # -- reading ----------------------------------------------------------------------

    def elapsed_ns(self) -> int:
        """Return engine time now: what delays are measured on, ns."""
        return self.state.timeline.elapsed_ns(self.clock.monotonic_ns())

    def now(self) -> Now:
        """Return the present on all scales; the lock is held."""
        return self.state.timeline.now(self.clock.read())

    @property
    def log(self) -> Log | VolatileLog:
        """The log."""
        return self._log

    def require_alive(self) -> None:
        """Raise if the engine is closed or failed; reads ask this too.

        Raises:
            EngineClosedError: it is closed, or this is a forked child.
            EngineFailedError: the disk failed, or an error came amid a change.
        """
        if self.closed is not None:
            raise EngineClosedError(self.closed)
        failure = self._log.failure
        if failure is not None:
            raise EngineFailedError(_FAILED) from failure
        if self.failed is not None:
            raise EngineFailedError(self.failed) from self._failed_by

    @property
    def forked(self) -> bool:
        """Whether this is the child of a fork, and the engine its parent's."""
        return self.closed is _FORKED

    def check(self) -> None:
        """Assert the invariants. For tests."""
        with self.lock:
            self.state.check()

    # -- snapshots --------------------------------------------------------------------

    def snapshot(self, *, pause: Callable[[], None]) -> SnapshotInfo:
        """Write a snapshot while the engine goes on, then drop log that it covers.

        Args:
            pause: called between blocks, without the lock; may wait, or raise to stop.

        Raises:
            OSError: the disk is full or failed; the engine goes on without it.
            SnapshotDamagedError: it did not come back as written; nothing was dropped.
            EngineFailedError: the log failed, before or meanwhile.
            EngineClosedError: the engine was closed meanwhile.
        """
        log = self._log
        assert isinstance(log, Log), "nothing to write without a log"
        try:
            writer = log.begin_snapshot()
            try:
                with self.lock:
                    blobs = self._owner.dump()
                for block in dump(self.state, blobs, self.lock):
                    writer.add(block)
                    pause()
                with self.lock:
                    reach_lsn = log.appended_lsn
                self.before_drop(reach_lsn)
                info, _ = log.finish_snapshot(writer, reach_lsn=reach_lsn)
            except BaseException:
                writer.abandon()
                raise
        except (LogFailedError, LogClosedError) as error:
            raise self._in_engine_words(error) from error
        return info

    # -- recovery ---------------------------------------------------------------------

    def _recover(self) -> None:
        """Read snapshot and log, begin a new segment, rebuild the wheels."""
        log, state = self._log, self.state
        for block in log.snapshot_blocks():
            with _foreign_refused("a block of its snapshot"):
                blob = load(state, block)
                if blob is not None:
                    self._owner.load(blob)
        for group in log.groups(joined_bytes=JOINED_BYTES):
            self.replayed_bytes += len(group.body)
            with _foreign_refused(f"a record from LSN {group.first_lsn} on"):
                state.apply_group(group.first_lsn, group.body)
        report = log.start()
        reading = self.clock.read()
        last_wall_ns = report.last_wall_ns or reading.wall_ns
        if reading.wall_ns < last_wall_ns:
            # The clock was set back while nobody looked. How long that was nobody knows
            # either, so engine time goes on from where it stood.
            back_ns = reading.wall_ns - last_wall_ns
            self._append([clock_stepped(state.steps_ns + back_ns)], urgent=True)
            last_wall_ns = reading.wall_ns
        self.applied_lsn = log.appended_lsn
        state.begin(reading, last_wall_ns=last_wall_ns, on_insert=self.wake_if_earlier)
        log.commit(log.appended_lsn)

    def _in_engine_words(
        self, error: LogFailedError | LogClosedError
    ) -> TimingWheelError:
        """Return what the log refused as an error of the engine."""
        if self.closed is not None:
            return EngineClosedError(self.closed)
        if isinstance(error, LogFailedError):
            return EngineFailedError(_FAILED)
        return EngineClosedError(CLOSED)

    # -- append and apply -------------------------------------------------------------

    def _append(self, events: list[bytes], *, urgent: bool) -> None:
        body = encode_records(events)
        try:
            first = self._log.append_group(body, len(events), urgent=urgent)
            if len(events) >= BATCH_MIN and events[0][0] == Kind.TIMER_SCHEDULED:
                self.state.apply_group(first, body)
            else:
                self.state.apply(first, events)
            self.applied_lsn = first + len(events) - 1
        except (LogFailedError, LogClosedError) as error:
            raise self._in_engine_words(error) from error
        except BaseException as error:
            self.broke_off(error)
            raise

    # -- the tick, inside ---------------------------------------------------------------

    def wake_if_earlier(self, due_ns: int) -> None:
        """Wake the tick thread if this timer comes before the one it waits for."""
        wake_at_ns = self.wake_at_ns
        if wake_at_ns == _AWAKE:
            return
        if wake_at_ns is None or due_ns < wake_at_ns:
            self.wake.notify_all()
            self.wake_at_ns = due_ns

    def _tick(self, limit: int) -> tuple[Due, bool]:
        """Decide, append and apply what is due now; the lock is held.

        Returns:
            What is due, and whether anything was appended.
        """
        self.require_alive()
        state = self.state
        now = state.timeline.now(self.clock.read())
        events = self._step_events(now)
        due_ns = state.timeline.next_due_ns()
        if due_ns is not None and due_ns <= now.monotonic_ns:
            self.tick_lag.add(now.monotonic_ns - max(due_ns, self._ticked_ns))
        self._ticked_ns = now.monotonic_ns
        try:
            timers, armed = state.take_due(now, limit)
            due = Due(timers, armed, self._log.next_lsn + len(events), now)
            try:
                if timers or armed:
                    events += self._owner.decide_due(due)
                if events:
                    self._append(events, urgent=True)
            except BaseException:
                state.put_back(timers, armed, now)
                raise
        except MemoryError as error:
            self.fail(error)  # what was taken out may be nowhere now, or twice
            raise
        assert not (unsettled := state.table.unsettled(timers)), (
            f"nothing was decided for {unsettled}"
        )
        return due, bool(events)

    def _step_events(self, now: Now) -> list[bytes]:
        """Return the event that the wall clock was set, if it was."""
        state = self.state
        step_ns = state.timeline.step_ns(now, state.steps_ns)
        return [clock_stepped(state.steps_ns + step_ns)] if step_ns else []

    # -- the end ----------------------------------------------------------------------

    def close(self, *, before_release: Callable[[], None] | None = None) -> None:
        """Close the log and refuse all that comes. Idempotent.

        Args:
            before_release: called when all is durable and before anybody else can hold
                the directory: for what the owner keeps beside the log.
        """
        with self.lock:
            if self.closed is not None:
                return
            if self._log.failure is None and self.failed is None:
                # A step that no tick has seen yet would move delays over the restart.
                events = self._step_events(self.state.timeline.now(self.clock.read()))
                with contextlib.suppress(RoomNeededError):
                    if events:
                        self._append(events, urgent=True)
            self.closed = CLOSED
        _open_cores.discard(self)
        try:
            if before_release is not None:
                # What fails here, fails once more below.
                with contextlib.suppress(WalError, TimingWheelError):
                    self.sync(self._log.appended_lsn)
                before_release()
        finally:
            self._log.close()

    def leave_to_parent(self) -> None:
        """In a forked child: the parent owns the engine; every call here raises."""
        # Another thread of the parent may have held it at the moment of the fork.
        self.lock = threading.Lock()
        self.wake = threading.Condition(self.lock)
        self._passed = threading.Condition(self.lock)
        self.letting_pass = 0
        self.closed = _FORKED


_AWAKE: Final = -1
"""In place of a time to wake at: the tick thread is awake, or there is none."""
_FAILED: Final = (
    "the disk failed and the engine stopped; what was acknowledged is safe. Mend the "
    "disk and open the directory again"
)
_HALF_DONE: Final = (
    "a change was cut off, for want of memory or by what a signal's handler raised, and "
    "the engine stopped; what was acknowledged is safe. Close it and open the directory "
    "again"
)
_FORKED: Final = (
    "this process is a fork of the engine's owner and may not use it: open the engine "
    "after forking, or talk to the parent"
)


@contextlib.contextmanager
def _foreign_refused(what: str) -> Iterator[None]:
    """Say of bytes whose sum holds, and which are not as ours, who can read them."""
    try:
        yield
    except (TimingWheelError, WalError, OSError, MemoryError, AssertionError):
        raise
    except Exception as error:
        raise TimingWheelError(
            f"{what} is not as an engine writes it ({error}), though its checksum "
            "holds: open this directory with the program that wrote it"
        ) from error


_open_cores: weakref.WeakSet[EngineCore] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for core in list(_open_cores):
        core.leave_to_parent()
    _open_cores.clear()


os.register_at_fork(after_in_child=_after_fork_in_child)
