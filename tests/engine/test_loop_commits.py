"""How an event loop waits for commits: woken once for each, and never writing itself."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import pytest

from tests.engine.stage import PATIENCE_S, SMALL, CountingClock, Door, GatedDisk
from timingwheel.engine.loop_commits import LoopCommits
from timingwheel.engine.requests import Requests
from timingwheel.engine.state import EngineState
from timingwheel.engine.timers import Timers
from timingwheel.engine.volatile import VolatileLog
from wal.errors import CommitUnknownError
from wal.frame import Lsn
from wal.log import Log
from wal.testing import MemoryFileSystem

if TYPE_CHECKING:
    from timingwheel.engine.core import EngineCore


class CountingLoop(asyncio.SelectorEventLoop):
    """An event loop that notes what other threads asked it to call."""

    def __init__(self) -> None:
        super().__init__()
        self.called_from_outside: list[str] = []
        self.meanwhile: Callable[[], object] | None = None

    def create_future(self) -> asyncio.Future[Any]:
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()
        return super().create_future()

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, **options: Any
    ) -> Any:
        self.called_from_outside.append(getattr(callback, "__name__", ""))
        return super().call_soon_threadsafe(callback, *args, **options)

    @property
    def wake_ups(self) -> int:
        return self.called_from_outside.count("_resolve")


class Stage:
    """Timers on a log with its threads, and the commits of the running loop."""

    def __init__(
        self, disk: MemoryFileSystem, clock: CountingClock, **options: Any
    ) -> None:
        log = Log.open(disk, wall_ns=clock.wall_ns, **SMALL, **options)
        self.timers = Timers(log, clock, may_wait=False)
        self.core, self.log = self.timers.core, log
        self.commits = LoopCommits(self.core, asyncio.get_running_loop())

    async def schedule(self) -> None:
        await self.commits.wait(self.timers.schedule(99, b"")[1])

    async def close(self) -> None:
        await asyncio.to_thread(self.core.close)


def run(main: Callable[[], Any]) -> CountingLoop:
    with asyncio.Runner(loop_factory=CountingLoop) as runner:
        runner.run(asyncio.wait_for(main(), PATIENCE_S))
        loop = runner.get_loop()
        assert isinstance(loop, CountingLoop)
        return loop


async def somebody_at(door: Door) -> None:
    await asyncio.to_thread(door.await_somebody)


def test_one_wake_up_resolves_all_who_wait_for_a_commit(clock: CountingClock) -> None:
    disk = GatedDisk()

    async def main() -> None:
        stage = Stage(disk, clock)
        gate = disk.gate = Door()
        first = asyncio.create_task(stage.schedule())
        await somebody_at(gate)
        others = [asyncio.create_task(stage.schedule()) for _ in range(200)]
        await asyncio.wait(others, timeout=0)  # each has come as far as it can
        assert stage.log.appended_lsn == 201
        gate.open()
        await asyncio.gather(first, *others)
        await stage.close()

    loop = run(main)
    assert loop.wake_ups <= 2


def test_a_busy_loop_is_woken_once_however_many_commits_come(
    clock: CountingClock,
) -> None:
    async def main() -> None:
        disk = GatedDisk()
        stage = Stage(disk, clock)
        gate = disk.gate = Door()
        waiting = asyncio.create_task(stage.schedule())
        await somebody_at(gate)
        disk.gate = None
        gate.open()
        for _ in range(9):  # the loop turns only when this is over
            stage.timers.schedule(99, b"")
            stage.log.sync()
        await waiting
        await stage.close()

    assert run(main).wake_ups == 1


def test_the_loop_never_writes_or_syncs_itself(clock: CountingClock) -> None:
    disk = GatedDisk()

    async def main() -> None:
        stage = Stage(disk, clock)
        disk.syncers.clear()
        for _ in range(20):
            await stage.schedule()
        await asyncio.gather(*(stage.schedule() for _ in range(50)))
        assert set(disk.syncers) == {"wal-commit"}
        await stage.close()

    run(main)


def test_an_lsn_that_is_durable_is_not_waited_for(clock: CountingClock) -> None:
    async def main() -> None:
        stage = Stage(MemoryFileSystem(), clock)
        await stage.schedule()
        lsn = stage.log.durable_lsn
        assert stage.commits.wait(lsn).done()
        await stage.close()

    run(main)


def test_a_commit_that_comes_before_the_future_is_there_is_not_missed(
    clock: CountingClock,
) -> None:
    """Its listener found nobody to wake, and no further commit may ever come."""

    async def main() -> None:
        stage = Stage(MemoryFileSystem(), clock)
        loop = asyncio.get_running_loop()
        assert isinstance(loop, CountingLoop)
        loop.meanwhile = stage.log.sync
        await stage.schedule()
        await stage.close()

    run(main)


class Meanwhile(VolatileLog):
    """A log of which another thread has told all who waited, after the first look at it.

    Args:
        failure: what that commit ended with, None if all is durable.
    """

    def __init__(self, failure: Exception | None) -> None:
        super().__init__()
        self.next_lsn = Lsn(2)
        self._failure = failure
        self._looks = 0

    @property
    def durable_lsn(self) -> Lsn:
        self._looks += 1
        return Lsn(1) if self._looks > 1 and self._failure is None else Lsn(0)

    def commit_soon(self, lsn: int) -> None:
        self.failure = self._failure


def test_a_commit_that_came_right_before_the_wait_was_noted_ends_it(
    clock: CountingClock,
) -> None:
    """Its listener found nobody to wake, and no further commit may ever come."""

    async def main() -> None:
        for failure in (None, OSError("broken")):
            log = Meanwhile(failure)
            state = EngineState(lambda _: None, reach_lsn=0, gaps_allowed=False)
            core = cast("EngineCore", Requests(log, state))
            future = LoopCommits(core, asyncio.get_running_loop()).wait(1)
            assert future.done()
            error = future.exception()
            assert (type(error) is CommitUnknownError) == (failure is not None)

    run(main)


def test_in_interval_mode_nobody_waits(clock: CountingClock) -> None:
    async def main() -> None:
        disk = GatedDisk()
        stage = Stage(disk, clock, durability="interval", interval_ms=60_000)
        disk.syncers.clear()
        await stage.schedule()
        assert disk.syncers == []
        await stage.close()

    run(main)


def test_a_cancelled_wait_leaves_the_record_in_and_the_others_waiting(
    clock: CountingClock,
) -> None:
    disk = GatedDisk()

    async def main() -> None:
        stage = Stage(disk, clock)
        gate = disk.gate = Door()
        given_up = asyncio.create_task(stage.schedule())
        other = asyncio.create_task(stage.schedule())
        await somebody_at(gate)
        given_up.cancel()
        with pytest.raises(asyncio.CancelledError):
            await given_up
        gate.open()
        await other
        assert len(stage.timers) == 2
        await stage.close()

    run(main)
    log = Log.open(disk.crashed("none"), wall_ns=clock.wall_ns, background=False)
    assert len(list(log.read())) == 2


def test_a_failed_disk_tells_all_who_wait(clock: CountingClock) -> None:
    async def main() -> None:
        disk = MemoryFileSystem()
        stage = Stage(disk, clock)
        # All: the pool that makes segments ahead may meet the first.
        disk.fail("datasync", errno.EIO, times=None)
        outcomes = await asyncio.gather(
            *(stage.schedule() for _ in range(9)), return_exceptions=True
        )
        assert [type(outcome) for outcome in outcomes] == [CommitUnknownError] * 9
        await stage.close()

    run(main)


def test_a_commit_after_the_loop_was_closed_bothers_nobody(
    clock: CountingClock,
) -> None:
    disk = GatedDisk()
    stages: list[Stage] = []

    async def main() -> None:
        stages.append(Stage(disk, clock))
        disk.gate = Door()
        waiting = asyncio.create_task(stages[0].schedule())
        await somebody_at(disk.gate)
        waiting.cancel()

    run(main)
    assert disk.gate is not None
    synced = threading.Event()
    stages[0].log.add_listener(synced.set)
    disk.gate.open()
    assert synced.wait(PATIENCE_S)
    stages[0].core.close()
