"""TimerEngine: durable timers that call a handler. Start here.

    def handler(timer_id: int, payload: bytes) -> None: ...

    with TimerEngine("./data", on_fire=handler) as engine:
        timer_id = engine.schedule(30.0, b"payload")
        engine.cancel(timer_id)

What holds: when `schedule` returns, the timer survives a kill and a power loss; it is
never delivered early, never before it is durable, and at least once: again if the handler
raises, or if the process dies before the handler returned. When `cancel` returns True it
will not be delivered, not even after a crash.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Final, Self

from timingwheel.clock import Clock, SystemClock
from timingwheel.engine.acknowledgements import (
    Acknowledgements,
    warn_unacknowledged,
)
from timingwheel.engine.arguments import (
    checked_handler,
    checked_snapshot_every,
    checked_workers,
)
from timingwheel.engine.dispatcher import Dispatcher
from timingwheel.engine.lane import NONE
from timingwheel.engine.life import CLOSED
from timingwheel.engine.opening import open_timers
from timingwheel.engine.records import TimerId
from timingwheel.engine.snapshotter import SNAPSHOT_EVERY_BYTES, Snapshotter
from timingwheel.engine.ticker import Ticker
from timingwheel.engine.timers import Timer
from timingwheel.errors import EngineClosedError, TimingWheelError
from wal.errors import DiskFullError, WalError
from wal.filesystem import FileSystem
from wal.log import (
    INTERVAL_MS,
    RESERVE_BYTES,
    SEGMENT_SIZE_BYTES,
    Durability,
    Log,
    LogStats,
)
from wal.recovery import Report
from wal.snapshot import SnapshotInfo

Handler = Callable[[int, bytes], object]

GRACE_SECONDS: Final = 10.0
_logger = logging.getLogger("timingwheel")


class TimerEngine:
    """Durable timers in a directory, or volatile ones in memory. Thread-safe.

    Args:
        path: the directory, made if missing; ":memory:" keeps no log; a FileSystem is
            for tests.
        on_fire: `handler(timer_id, payload)`, called on a worker thread. Returning
            acknowledges; raising has the timer delivered again after 1 s, 2 s, ... up to
            10 minutes, without end, until it is cancelled.
        clock: where time comes from; `timingwheel.testing.ManualClock` for tests.
        durability: "durable": `schedule` returns when the disk has it. "interval": at
            once; a kill or a power loss can take the last `interval_ms`.
        interval_ms: see there.
        workers: handlers that may run at once, 1 to 1,024; default min(32, cores + 4).
        snapshot_every_bytes: least growth of the log between two snapshots.
        create: False refuses a path where no store is yet.
        autostart: False opens and recovers, and fires nothing before `start`.
        segment_size_bytes: of the log's files; see wal.Log.
        reserve_bytes: kept on disk for cancels and fires when it is full.
        atomic_sectors: see wal.Log.

    Raises:
        StoreError: the path is no store and cannot become one, is not writable, or of
            a newer format; the message says what to do. Nothing was changed.
        StoreInUseError: another process holds the directory; it is named.
        LogCorruptError: acknowledged data is damaged; file and offset are named, and
            no byte was changed.
        ArgumentError: an argument is out of range.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | FileSystem,
        on_fire: Handler,
        *,
        clock: Clock | None = None,
        durability: Durability = "durable",
        interval_ms: float = INTERVAL_MS,
        workers: int | None = None,
        snapshot_every_bytes: int = SNAPSHOT_EVERY_BYTES,
        create: bool = True,
        autostart: bool = True,
        segment_size_bytes: int = SEGMENT_SIZE_BYTES,
        reserve_bytes: int = RESERVE_BYTES,
        atomic_sectors: bool = True,
    ) -> None:
        self._on_fire = checked_handler(on_fire)
        self._clock = clock if clock is not None else SystemClock()
        worker_count = checked_workers(workers)
        checked_snapshot_every(snapshot_every_bytes)
        self._timers = open_timers(
            path,
            self._clock,
            may_wait=True,
            durability=durability,
            interval_ms=interval_ms,
            create=create,
            segment_size_bytes=segment_size_bytes,
            reserve_bytes=reserve_bytes,
            atomic_sectors=atomic_sectors,
        )
        self._core = self._timers.core
        self._log = self._core.log
        self._lane = self._timers.lane
        self._waits = durability == "durable"
        """Whether a reply to who adds work waits for the disk."""
        self._closing = False
        self._dispatcher = Dispatcher(
            self._deliver,
            self._clock,
            workers=worker_count,
            on_space=self._wake_ticker,
        )
        self._ticker = Ticker(
            self._core,
            self._clock,
            room=lambda: self._dispatcher.room,
            deliver=self._dispatcher.put,
            ended=Acknowledgements(self._timers),
        )
        self._snapshotter = (
            Snapshotter(self._core, self._log, every_bytes=snapshot_every_bytes)
            if isinstance(self._log, Log)
            else None
        )
        self._started = False
        if autostart:
            self.start()

    def start(self) -> None:
        """Begin to fire; overdue timers first, in the order of their deadlines.

        Called by the constructor unless `autostart=False`. Idempotent.
        """
        self._core.require_alive()
        if self._started:
            return
        self._started = True
        self._ticker.start()
        if self._snapshotter is not None:
            self._snapshotter.start()

    # -- requests ---------------------------------------------------------------------

    def schedule(self, delay: float, payload: bytes = b"") -> TimerId:
        """Make a timer; when this returns it survives.

        Args:
            delay: seconds from now, 0 or more; up to the year 2262.
            payload: handed to the handler; at most 1 MiB.

        Returns:
            The timer's id: unique in this directory for ever.

        Raises:
            ArgumentError: the delay or the payload is invalid.
            DeadlineError: beyond 2262.
            PayloadTooLargeError: over 1 MiB.
            DiskFullError: nothing was changed; it heals by itself.
            CommitUnknownError: the disk failed during the call.
            EngineFailedError: the disk failed before.
            EngineClosedError: the engine is closed.

        Cost: O(1), and one write and sync that all callers of the moment share.
        """
        timer_id = NONE if self._closing else self._lane.schedule(delay, payload)
        lsn: int = timer_id
        if not timer_id:
            self._admit()
            timer_id, lsn = self._timers.schedule(delay, payload)
        if self._waits:
            self._core.commit(lsn)
        return timer_id

    def schedule_at(self, wall_ns: int, payload: bytes = b"") -> TimerId:
        """Make a timer that follows the wall clock.

        Args:
            wall_ns: nanoseconds since 1970; a past moment fires at once. If the clock
                is set, the timer fires when the clock shows this moment, once.
            payload: as in `schedule`.

        Raises:
            As `schedule`.
        """
        self._admit()
        timer_id, lsn = self._timers.schedule_at(wall_ns, payload)
        self._core.commit(lsn)
        return timer_id

    def schedule_many(
        self, delays: Sequence[float], payloads: Sequence[bytes]
    ) -> range:
        """Make many timers with one commit: after a crash all are there, or none.

        Args:
            delays: seconds, at most 65,536 of them.
            payloads: as many, at most 4 MiB together.

        Returns:
            Their ids, which are consecutive, in order.

        Raises:
            BatchTooLargeError: split it.
            ArgumentError: naming the place, as in `delays[7]`; and as `schedule`.
        """
        first = 0 if self._closing else self._lane.schedule_many(delays, payloads)
        if first:
            ids = range(first, first + len(delays))
            lsn = ids[-1]
        else:
            self._admit()
            ids, lsn = self._timers.schedule_many(delays, payloads)
        if self._waits:
            self._core.commit(lsn)
        return ids

    def reschedule(self, timer_id: int, delay: float) -> bool:
        """Give a timer a new delay from now, even one that waits for redelivery.

        Returns:
            False, and nothing has changed, if there is no such timer or its handler
            has started.
        """
        self._require_open()
        lsn = self._lane.reschedule(timer_id, delay)
        done = lsn > 0
        if not done:
            done, lsn = self._timers.reschedule(timer_id, delay)
        self._core.commit(lsn)
        return done

    def cancel(self, timer_id: int) -> bool:
        """Remove a timer before its handler starts.

        Returns:
            True: it will not be delivered, whatever happens. False: there is no such
            timer, its handler has started, or the engine was closed.

        Raises:
            DiskFullError: not even the reserve has room; nothing was changed.
        """
        lsn = self._lane.cancel(timer_id)
        done = lsn > 0
        if not done:
            try:
                done, lsn = self._timers.cancel(timer_id)
            except EngineClosedError:
                if not self._closing:
                    raise  # a fork must not take its parent's timer for cancelled
                return False
        self._core.commit(lsn)
        return done

    # -- reading ----------------------------------------------------------------------

    def get(self, timer_id: int) -> Timer | None:
        """Return a live timer or None; may show what is not durable yet."""
        return self._timers.get(timer_id)

    def timers(self, limit: int = 100) -> list[Timer]:
        """Return the live timers that are due first, in due order.

        May show what is not durable yet. Cost: O(n); for people, not for loops.
        """
        return self._timers.first(limit)

    def __len__(self) -> int:
        """Return how many timers live: waiting, fired, or in a handler."""
        return len(self._timers)

    @property
    def report(self) -> Report | None:
        """What opening found: torn bytes, snapshot used, and so on; None in memory."""
        return self._log.report if isinstance(self._log, Log) else None

    def log_stats(self) -> LogStats | None:
        """Return how the log stands; None in memory."""
        return self._log.stats() if isinstance(self._log, Log) else None

    def snapshot(self) -> SnapshotInfo | None:
        """Write a snapshot now, so that the next open is quick; None in memory.

        Raises:
            OSError: the disk is full or failed; the engine goes on without it.
        """
        self._core.require_alive()
        return self._snapshotter.write() if self._snapshotter is not None else None

    # -- the end ----------------------------------------------------------------------

    def close(self, grace: float = GRACE_SECONDS) -> int:
        """Stop firing, wait for running handlers, and close the log. Idempotent.

        From its beginning on nothing new is scheduled; handlers that still run may
        cancel, and a timer whose handler raises for that is delivered after the next
        open. In a forked child it does nothing: the engine is the parent's.

        Args:
            grace: seconds to wait for handlers. One that takes longer is left behind;
                its timer is delivered again after the next open.

        Returns:
            How many timers stay in the directory.
        """
        if self._closing or self._core.life.forked:
            return len(self._core.state.table)
        self._closing = True
        self._ticker.stop()
        if not self._dispatcher.stop(grace):
            _logger.warning("handlers still run after %s s and were left behind", grace)
        if self._snapshotter is not None:
            self._snapshotter.stop()
        self._core.close()
        return len(self._core.state.table)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # -- inside: requests -------------------------------------------------------------

    def _admit(self) -> None:
        """Wait until new work may be added; raise if it may not."""
        self._require_open()
        self._core.admit()

    def _require_open(self) -> None:
        if self._closing:
            raise EngineClosedError(CLOSED)

    # -- delivery: on worker threads --------------------------------------------------

    def _deliver(self, timer_id: TimerId) -> None:
        try:
            payload = self._timers.begin(timer_id)
            if payload is None:
                return
            try:
                self._on_fire(timer_id, payload)
            except BaseException:  # sys.exit() too costs neither worker nor timer
                _logger.warning(
                    "the handler of timer %d raised; it is delivered again later",
                    timer_id,
                    exc_info=True,
                    extra={"timer_id": timer_id},
                )
                self._redeliver_later(timer_id)
            else:
                self._ticker.acknowledge(timer_id)
        except (WalError, TimingWheelError, OSError) as error:
            warn_unacknowledged([timer_id], error)

    def _redeliver_later(self, timer_id: TimerId) -> None:
        """Note a failure; on a full disk wait for space, since it must be noted."""
        while True:
            try:
                self._core.commit_soon(self._timers.redeliver_later(timer_id))
            except (DiskFullError, OSError):
                if self._closing:
                    raise
                self._core.wait_for_space()
            else:
                return

    def _wake_ticker(self) -> None:
        self._ticker.wake()
