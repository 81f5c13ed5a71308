"""AsyncTimerEngine: the same engine for an event loop.

    async def handler(timer_id: int, payload: bytes) -> None: ...

    async with AsyncTimerEngine("./data", on_fire=handler) as engine:
        timer_id = await engine.schedule(30.0, b"payload")

The loop never waits for the disk: a request is decided and applied on the loop under the
engine's short lock, the log's commit thread syncs, and one wake-up per commit resolves
the futures of all who waited for it. A cancelled wait leaves the record in.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import os
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import Final, Self, TypeVar

from timingwheel.clock import Clock, SystemClock
from timingwheel.engine.acknowledgements import (
    Acknowledgements,
    warn_unacknowledged,
)
from timingwheel.engine.arguments import (
    checked_snapshot_every,
    checked_workers,
    is_coroutine_function,
)
from timingwheel.engine.dispatcher import QUEUE_MAX
from timingwheel.engine.engine import GRACE_SECONDS
from timingwheel.engine.life import CLOSED
from timingwheel.engine.loop_commits import LoopCommits
from timingwheel.engine.opening import open_timers, settled
from timingwheel.engine.records import TimerId
from timingwheel.engine.snapshotter import SNAPSHOT_EVERY_BYTES, Snapshotter
from timingwheel.engine.ticker import Ticker
from timingwheel.engine.timers import Timer, Timers
from timingwheel.errors import (
    ArgumentError,
    EngineClosedError,
    TimingWheelError,
)
from wal.errors import DiskFullError, WalError
from wal.filesystem import FileSystem
from wal.log import (
    INTERVAL_MS,
    RESERVE_BYTES,
    SEGMENT_SIZE_BYTES,
    Durability,
    Log,
    LogStats,
    RoomNeededError,
)
from wal.recovery import Report
from wal.snapshot import SnapshotInfo

AsyncHandler = Callable[[int, bytes], Awaitable[object]]

_Result = TypeVar("_Result")
CANCEL_SECONDS: Final = 1.0
_REFILL_AT: Final = QUEUE_MAX // 2
_logger = logging.getLogger("timingwheel")


class AsyncTimerEngine:
    """`TimerEngine` for one event loop: the same names, awaited.

    Opening waits for the disk, so it happens in `async with` (or `open`), on a thread.

    Args:
        path: as TimerEngine.
        on_fire: `async def handler(timer_id, payload)`, run on the loop; `workers` of
            them at once.
        clock: as TimerEngine; all other arguments too.

    Raises:
        ArgumentError: an argument is out of range; `open` raises the rest.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | FileSystem,
        on_fire: AsyncHandler,
        *,
        clock: Clock | None = None,
        durability: Durability = "durable",
        interval_ms: float = INTERVAL_MS,
        workers: int | None = None,
        snapshot_every_bytes: int = SNAPSHOT_EVERY_BYTES,
        create: bool = True,
        segment_size_bytes: int = SEGMENT_SIZE_BYTES,
        reserve_bytes: int = RESERVE_BYTES,
        atomic_sectors: bool = True,
    ) -> None:
        if not is_coroutine_function(on_fire):
            raise ArgumentError(
                "on_fire", on_fire, "pass async def handler(timer_id, payload)"
            )
        self._on_fire = on_fire
        self._clock = clock if clock is not None else SystemClock()
        self._workers = checked_workers(workers)
        self._snapshot_every_bytes = checked_snapshot_every(snapshot_every_bytes)
        self._open_timers = functools.partial(
            open_timers,
            settled(path),
            self._clock,
            may_wait=False,
            durability=durability,
            interval_ms=interval_ms,
            create=create,
            segment_size_bytes=segment_size_bytes,
            reserve_bytes=reserve_bytes,
            atomic_sectors=atomic_sectors,
        )
        self._opened: Timers | None = None
        self._queue: deque[TimerId] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._snapshotter: Snapshotter | None = None
        self._closing = False

    async def open(self) -> Self:
        """Open the directory, recover, and begin to fire. Raises as TimerEngine."""
        if self._opened is not None:
            return self
        timers = await self._open_on_a_thread()
        self._loop = asyncio.get_running_loop()
        self._opened = timers
        self._commits = LoopCommits(timers.core, self._loop)
        self._ticker = Ticker(
            timers.core,
            self._clock,
            room=self._room,
            deliver=self._put,
            ended=Acknowledgements(timers),
        )
        log = timers.core.log
        if isinstance(log, Log):
            self._snapshotter = Snapshotter(
                timers.core, log, every_bytes=self._snapshot_every_bytes
            )
            self._snapshotter.start()
        self._ticker.start()
        return self

    async def _open_on_a_thread(self) -> Timers:
        opening = asyncio.ensure_future(asyncio.to_thread(self._open_timers))
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            # The thread cannot be stopped, and nobody else would ever close its log.
            await asyncio.wait([opening])
            if not opening.cancelled() and opening.exception() is None:
                await asyncio.to_thread(opening.result().core.close)
            raise

    # -- requests ---------------------------------------------------------------------

    async def schedule(self, delay: float, payload: bytes = b"") -> TimerId:
        """Make a timer; when this returns it survives. As TimerEngine.schedule."""
        if not self._closing:
            timer_id = self._timers.lane.schedule(delay, payload)
            if timer_id:
                await self._commits.wait(timer_id)
                return timer_id
        return await self._add(lambda timers: timers.schedule(delay, payload))

    async def schedule_at(self, wall_ns: int, payload: bytes = b"") -> TimerId:
        """Make a timer that follows the wall clock. As TimerEngine.schedule_at."""
        return await self._add(lambda timers: timers.schedule_at(wall_ns, payload))

    async def schedule_many(
        self, delays: Sequence[float], payloads: Sequence[bytes]
    ) -> range:
        """Make many timers with one commit. As TimerEngine.schedule_many."""
        if not self._closing:
            first = self._timers.lane.schedule_many(delays, payloads)
            if first:
                ids = range(first, first + len(delays))
                await self._commits.wait(ids[-1])
                return ids
        return await self._add(lambda timers: timers.schedule_many(delays, payloads))

    async def reschedule(self, timer_id: int, delay: float) -> bool:
        """Give a timer a new delay from now. As TimerEngine.reschedule."""
        self._require_open()
        if lsn := self._timers.lane.reschedule(timer_id, delay):
            await self._commits.wait(lsn)
            return True
        return await self._request(lambda timers: timers.reschedule(timer_id, delay))

    async def cancel(self, timer_id: int) -> bool:
        """Remove a timer before its handler starts. As TimerEngine.cancel."""
        if lsn := self._timers.lane.cancel(timer_id):
            await self._commits.wait(lsn)
            return True
        try:
            return await self._request(lambda timers: timers.cancel(timer_id))
        except EngineClosedError:
            if not self._closing:
                raise  # a fork must not take its parent's timer for cancelled
            return False

    # -- reading ----------------------------------------------------------------------

    async def get(self, timer_id: int) -> Timer | None:
        """Return a live timer or None; may show what is not durable yet."""
        return self._timers.get(timer_id)

    async def timers(self, limit: int = 100) -> list[Timer]:
        """Return the live timers that are due first, in due order. Cost: O(n)."""
        return await asyncio.to_thread(self._timers.first, limit)

    def __len__(self) -> int:
        """Return how many timers live: waiting, fired, or in a handler."""
        return len(self._timers)

    @property
    def report(self) -> Report | None:
        """What opening found; None in memory."""
        log = self._timers.core.log
        return log.report if isinstance(log, Log) else None

    def log_stats(self) -> LogStats | None:
        """Return how the log stands; None in memory."""
        log = self._timers.core.log
        return log.stats() if isinstance(log, Log) else None

    async def snapshot(self) -> SnapshotInfo | None:
        """Write a snapshot now; None in memory. As TimerEngine.snapshot."""
        self._timers.core.require_alive()
        if self._snapshotter is None:
            return None
        return await asyncio.to_thread(self._snapshotter.write)

    # -- the end ----------------------------------------------------------------------

    async def close(self, grace: float = GRACE_SECONDS) -> int:
        """Stop firing, wait for running handlers, and close the log. Idempotent.

        Args:
            grace: seconds to wait for handlers; those that take longer are cancelled,
                and their timers delivered again after the next open. One that does not
                end then within CANCEL_SECONDS is left behind.

        Returns:
            How many timers stay in the directory.
        """
        timers = self._opened
        if timers is None:
            return 0
        if not self._closing and not timers.core.life.forked:
            self._closing = True
            self._queue.clear()
            await asyncio.to_thread(self._ticker.stop)
            current = asyncio.current_task()
            running = {task for task in self._tasks if task is not current}
            if running:
                _, late = await asyncio.wait(running, timeout=grace)
                for task in late:
                    task.cancel()
                if late:
                    _logger.warning(
                        "%d handlers still ran after %s s: cancelled", len(late), grace
                    )
                    await asyncio.wait(late, timeout=CANCEL_SECONDS)
            if self._snapshotter is not None:
                await asyncio.to_thread(self._snapshotter.stop)
            await asyncio.to_thread(timers.core.close)
        return len(timers.core.state.table)

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    # -- inside: requests -------------------------------------------------------------

    @property
    def _timers(self) -> Timers:
        if self._opened is None:
            raise EngineClosedError("the engine is not open: use async with, or open()")
        return self._opened

    async def _add(self, decide: Callable[[Timers], tuple[_Result, int]]) -> _Result:
        self._require_open()
        core = self._timers.core
        while core.congested:
            # On a thread: in interval mode nothing else here would wait for the disk.
            await asyncio.to_thread(core.admit)
        return await self._request(decide)

    def _require_open(self) -> None:
        if self._closing:
            raise EngineClosedError(CLOSED)

    async def _request(
        self, decide: Callable[[Timers], tuple[_Result, int]]
    ) -> _Result:
        result, lsn = await self._decide(decide)
        await self._commits.wait(lsn)
        return result

    async def _decide(
        self, decide: Callable[[Timers], tuple[_Result, int]]
    ) -> tuple[_Result, int]:
        timers = self._timers
        while True:
            try:
                return decide(timers)
            except RoomNeededError as needed:
                # Let a thread wait for the next segment, not the loop.
                await asyncio.to_thread(timers.core.make_room, urgent=needed.urgent)

    # -- inside: delivery -------------------------------------------------------------

    def _room(self) -> int:
        waiting = len(self._queue)
        return 0 if waiting > _REFILL_AT else QUEUE_MAX - waiting

    def _put(self, timer_ids: list[TimerId]) -> None:
        """Take fired timers from the tick thread."""
        if timer_ids and not self._closing:
            self._queue.extend(timer_ids)
            with contextlib.suppress(RuntimeError):  # the loop was closed under us
                self._loop.call_soon_threadsafe(self._start_handlers)

    def _start_handlers(self) -> None:
        if self._closing:
            return
        # One for each timer, while there may be more: those that run may take long.
        missing = min(len(self._queue), self._workers - len(self._tasks))
        for _ in range(missing):
            task = self._loop.create_task(self._run_handlers())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _run_handlers(self) -> None:
        while self._queue and not self._closing:
            timer_id = self._queue.popleft()
            if len(self._queue) == _REFILL_AT:
                self._ticker.wake()
            await self._deliver(timer_id)

    async def _deliver(self, timer_id: TimerId) -> None:
        timers = self._timers
        try:
            payload = timers.begin(timer_id)
            if payload is None:
                return
            try:
                await self._on_fire(timer_id, payload)
            except (Exception, asyncio.CancelledError) as error:
                if isinstance(error, asyncio.CancelledError) and _is_cancelled():
                    raise  # from outside, as by close; else the handler raised it
                _logger.warning(
                    "the handler of timer %d raised; it is delivered again later",
                    timer_id,
                    exc_info=True,
                    extra={"timer_id": timer_id},
                )
                await self._redeliver_later(timer_id)
            else:
                acknowledge = self._ticker.acknowledge
                if self._ticker.over:
                    await asyncio.to_thread(acknowledge, timer_id)
                else:
                    acknowledge(timer_id)
        except (WalError, TimingWheelError, OSError) as error:
            warn_unacknowledged([timer_id], error)

    async def _redeliver_later(self, timer_id: TimerId) -> None:
        redeliver = self._timers.redeliver_later
        while True:
            try:
                _, lsn = await self._decide(lambda _: (None, redeliver(timer_id)))
            except (DiskFullError, OSError):
                if self._closing:
                    raise
                await asyncio.to_thread(self._timers.core.wait_for_space)
            else:
                self._timers.core.commit_soon(lsn)
                return


def _is_cancelled() -> bool:
    """Return whether somebody cancelled this task."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
