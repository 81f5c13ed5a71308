"""The engine core: two wheels, a log, snapshots, and one owner plugged in.

Here is what an engine does besides `Requests`, whose line each change follows: its ticks,
its snapshots, how it begins and how it ends. What timers mean the owner says (`owner.py`).
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Final

from timingwheel.clock import Clock
from timingwheel.engine.dump import dump
from timingwheel.engine.owner import Due, Owner
from timingwheel.engine.records import Base, clock_stepped
from timingwheel.engine.replay import replay
from timingwheel.engine.requests import Requests
from timingwheel.engine.state import EngineState
from timingwheel.engine.timeline import Now
from timingwheel.engine.volatile import VolatileLog
from wal.errors import LogClosedError, LogFailedError, RecordTooLargeError
from wal.forking import register_at_fork, unregister_at_fork
from wal.histogram import Histogram
from wal.log import Log, RoomNeededError
from wal.snapshot import SnapshotInfo

DISK_FULL_RETRY_NS: Final = 1_000_000_000
AWAKE: Final = -1
"""In place of a time to wake at: the tick thread is awake, or there is none."""
LAG_BOUNDS_NS: Final = tuple(
    microseconds * 1_000
    for microseconds in (
        *(100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000),
        *(100_000, 250_000, 500_000, 1_000_000, 5_000_000, 10_000_000),
    )
)
"""Bounds of the histogram of late ticks, ns; a tick looks every 10 s at least."""


class EngineCore(Requests):
    """An engine without threads of its own: requests, ticks and snapshots.

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
        state = EngineState(
            owner.apply,
            reach_lsn=log.snapshot.reach_lsn if log.snapshot is not None else 0,
            gaps_allowed=log.identity.repaired,
        )
        super().__init__(log, state)
        self.wake = threading.Condition(self.lock)
        """Notified when a timer becomes due earlier than the tick thread expects."""
        self.replayed_bytes = 0
        self.before_drop: Callable[[int], object] = lambda _: None
        """Called with the LSN that a snapshot reaches before log is dropped for it:
        an owner that keeps records elsewhere waits here until they are there."""
        self.tick_lag = Histogram(LAG_BOUNDS_NS)
        """How late ticks were that found something due: since it was, or since the
        tick before if it was due by then."""
        self.recovery_ns = 0
        """What reading snapshot and log, and filling the wheels, took."""
        self._owner = owner
        self.clock = clock
        """Where time comes from."""
        self.wake_at_ns: int | None = AWAKE
        self._waiting: list[int | None] = []
        """When the tick thread will look again; None: not before it is woken."""
        begun_ns = clock.monotonic_ns()
        self._recover()
        self._ticked_ns = clock.monotonic_ns()
        self.recovery_ns = self._ticked_ns - begun_ns
        register_at_fork(self)

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
            (due_ns for due_ns in self._waiting if due_ns is not None), default=AWAKE
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
            raise self.life.in_engine_words(error) from error
        return info

    # -- recovery ---------------------------------------------------------------------

    def _recover(self) -> None:
        """Read snapshot and log, begin a new segment, rebuild the wheels."""
        log, state = self._log, self.state
        self.replayed_bytes = replay(log, state, self._owner.load)
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

    # -- the tick, inside ---------------------------------------------------------------

    def wake_if_earlier(self, due_ns: int) -> None:
        """Wake the tick thread if this timer comes before the one it waits for."""
        wake_at_ns = self.wake_at_ns
        if wake_at_ns == AWAKE:
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
            self.life.fail(error)  # what was taken out may be nowhere now, or twice
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
                the directory, even if the disk fails in that: for what the owner
                keeps beside the log.

        Raises:
            CommitUnknownError: the disk failed in the last sync.
            OSError: the mark of a clean end could not be written.
        """
        with self.lock:
            if self.life.closed is not None:
                return
            if not self.life.has_failed:
                # A step that no tick has seen yet would move delays over the restart.
                events = self._step_events(self.state.timeline.now(self.clock.read()))
                with contextlib.suppress(RoomNeededError):
                    if events:
                        self._append(events, urgent=True)
            self.life.close()
        unregister_at_fork(self)
        try:
            if before_release is not None:
                try:
                    # Once the log has failed, whoever asks is told, and its close is
                    # quiet. So is it after a failure in here, which has to be told now.
                    if self._log.failure is None:
                        self.sync(self._log.appended_lsn)
                finally:
                    before_release()
        finally:
            self._log.close()

    def leave_to_parent(self) -> None:
        """In a forked child: the parent owns the engine; every call here raises."""
        super().leave_to_parent()
        self.wake = threading.Condition(self.lock)
