"""AsyncTimerEngine: the same engine for an event loop, which it never holds up."""

from __future__ import annotations

import asyncio
import errno
import functools
import gc
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.engine.stage import (
    PATIENCE_S,
    SECOND_NS,
    SMALL,
    CountingClock,
    Door,
    GatedDisk,
    fill_up,
)
from tests.wal.stores import segments_of
from timingwheel.engine.asyncio_engine import AsyncTimerEngine
from timingwheel.engine.dispatcher import QUEUE_MAX
from timingwheel.engine.records import TimerId
from timingwheel.errors import (
    ArgumentError,
    EngineClosedError,
    EngineFailedError,
    PayloadTooLargeError,
)
from wal.errors import (
    CommitUnknownError,
    DiskFullError,
    LogCorruptError,
    StoreError,
    StoreInUseError,
)
from wal.filesystem import Handle
from wal.testing import MemoryFileSystem

Test = Callable[..., Awaitable[None]]


def on_a_loop(test: Test) -> Callable[..., None]:
    """Run an async test on a loop of its own, with patience."""

    @functools.wraps(test)
    def run(**fixtures: Any) -> None:
        asyncio.run(asyncio.wait_for(test(**fixtures), PATIENCE_S))

    return run


class Heard:
    """An async handler that notes its calls; a payload may have it wait or raise."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, bytes]] = []
        self.gates: dict[bytes, asyncio.Event] = {}
        self.errors: dict[bytes, BaseException] = {}
        self._changed = asyncio.Condition()

    async def __call__(self, timer_id: int, payload: bytes) -> None:
        async with self._changed:
            self.calls.append((timer_id, payload))
            self._changed.notify_all()
        if payload in self.gates:
            await self.gates[payload].wait()
        if payload in self.errors:
            raise self.errors[payload]

    @property
    def payloads(self) -> list[bytes]:
        return [payload for _, payload in self.calls]

    async def wait_for(self, count: int) -> list[bytes]:
        async with self._changed:
            await self._changed.wait_for(lambda: len(self.calls) >= count)
            return self.payloads


async def quiet(engine: AsyncTimerEngine, clock: CountingClock) -> None:
    """Return when the tick thread waits and every handler has ended."""
    while True:
        await asyncio.to_thread(clock.settle, PATIENCE_S, threads=1)
        waits = len(clock.untils)
        while engine._tasks or engine._queue:
            await asyncio.wait([*engine._tasks, asyncio.create_task(_turn())])
        await asyncio.to_thread(clock.settle, PATIENCE_S, threads=1)
        await _turn()
        if len(clock.untils) == waits and not engine._tasks and not engine._queue:
            return


async def _turn() -> None:
    """Let whatever is scheduled on the loop by now run first."""
    done = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(done.set_result, None)
    await done


async def opened(
    disk: Any, heard: Any, clock: CountingClock, **options: Any
) -> AsyncTimerEngine:
    defaults: dict[str, Any] = {"clock": clock, **SMALL}
    return await AsyncTimerEngine(disk, heard, **defaults | options).open()


# -- the whole way -------------------------------------------------------------------------


@on_a_loop
async def test_an_engine_is_opened_with_what_it_was_told_of_its_store_and_its_disk(
    clock: CountingClock,
) -> None:
    """A sector that may be torn is damage on most disks, and a cut-off end on others."""
    with pytest.raises(StoreError, match="check the path"):
        await opened(MemoryFileSystem(), Heard(), clock, create=False)
    disk = MemoryFileSystem()
    engine = await opened(disk, Heard(), clock)
    await engine.schedule(60, b"\xff" * 2_000)
    torn = disk.killed()
    await engine.close()
    segment = next(name for name in torn.names() if name.endswith(".seg"))
    torn.flip_bit(segment, 8 * (4096 + 1_000))
    with pytest.raises(LogCorruptError):
        await opened(torn, Heard(), clock)
    engine = await opened(torn, Heard(), clock, atomic_sectors=False)
    assert len(engine) == 0
    await engine.close()


@on_a_loop
async def test_a_timer_is_delivered_on_the_loop_and_then_gone(
    clock: CountingClock,
) -> None:
    heard = Heard()
    async with AsyncTimerEngine(
        MemoryFileSystem(), heard, clock=clock, **SMALL
    ) as engine:
        timer_id = await engine.schedule(1, b"tea")
        seen = await engine.get(timer_id)
        assert seen is not None
        assert seen.payload == b"tea"
        assert [timer.id for timer in await engine.timers()] == [timer_id]
        clock.advance(1.1)
        assert await heard.wait_for(1) == [b"tea"]
        await quiet(engine, clock)
        assert len(engine) == 0


@on_a_loop
async def test_every_request_does_what_its_twin_does(clock: CountingClock) -> None:
    heard = Heard()
    engine = await opened(MemoryFileSystem(), heard, clock)
    first = await engine.schedule(10, b"a")
    many = await engine.schedule_many([20, 30], [b"b", b"c"])
    wall = await engine.schedule_at(clock.wall_ns() + 15 * SECOND_NS, b"w")
    assert await engine.cancel(many[0]) is True
    assert await engine.cancel(many[0]) is False
    assert await engine.reschedule(first, 40) is True
    assert [timer.id for timer in await engine.timers()] == [wall, many[1], first]
    clock.advance(50)
    await quiet(engine, clock)
    assert heard.payloads == [b"w", b"c", b"a"]
    assert await engine.close() == 0


@on_a_loop
async def test_what_was_scheduled_survives_a_power_loss(clock: CountingClock) -> None:
    disk = MemoryFileSystem()
    engine = await opened(disk, Heard(), clock)
    await asyncio.gather(*(engine.schedule(99, b"%d" % n) for n in range(50)))
    heir = await opened(disk.crashed("none"), Heard(), clock)
    assert len(heir) == 50
    assert heir.report is not None
    await heir.close()
    await engine.close()


@on_a_loop
async def test_in_memory_it_is_the_same(clock: CountingClock) -> None:
    heard = Heard()
    engine = await opened(":memory:", heard, clock)
    await engine.schedule(1, b"a")
    clock.advance(2)
    await quiet(engine, clock)
    assert heard.payloads == [b"a"]
    assert (engine.report, engine.log_stats()) == (None, None)
    assert await engine.snapshot() is None
    assert await engine.close() == 0


@on_a_loop
async def test_it_runs_on_the_clock_and_the_disk_of_the_system(tmp_path: Path) -> None:
    heard = Heard()
    async with AsyncTimerEngine(tmp_path, heard, **SMALL) as engine:
        await engine.schedule(0.001, b"soon")
        await engine.schedule(3600, b"kept")
        assert await heard.wait_for(1) == [b"soon"]
        assert await engine.snapshot() is not None
    async with AsyncTimerEngine(tmp_path, heard, **SMALL) as engine:
        assert [timer.payload for timer in await engine.timers()] == [b"kept"]


@on_a_loop
async def test_the_loop_goes_on_while_the_disk_is_slow(clock: CountingClock) -> None:
    disk = GatedDisk()
    heard = Heard()
    engine = await opened(disk, heard, clock)
    disk.syncers.clear()
    gate = disk.gate = Door()
    waiting = asyncio.create_task(engine.schedule(1, b"a"))
    await asyncio.to_thread(gate.await_somebody)
    assert not waiting.done()
    assert len(engine) == 1
    await _turn()  # the loop turns
    gate.open()
    await waiting
    assert threading.current_thread().name not in disk.syncers
    await engine.close()


@on_a_loop
async def test_a_cancelled_request_leaves_its_record_in(clock: CountingClock) -> None:
    disk = GatedDisk()
    engine = await opened(disk, Heard(), clock)
    gate = disk.gate = Door()
    request = asyncio.create_task(engine.schedule(60, b"kept"))
    await asyncio.to_thread(gate.await_somebody)
    request.cancel()
    with pytest.raises(asyncio.CancelledError):
        await request
    gate.open()
    assert await engine.close() == 1
    heir = await opened(disk.crashed("none"), Heard(), clock)
    assert [timer.payload for timer in await heir.timers()] == [b"kept"]
    await heir.close()


@on_a_loop
async def test_nothing_is_handed_over_before_it_is_durable(
    clock: CountingClock,
) -> None:
    disk = GatedDisk()
    heard = Heard()
    engine = await opened(disk, heard, clock)
    await engine.schedule(1, b"a")
    gate = disk.gate = Door()
    clock.advance(2)
    await asyncio.to_thread(gate.await_somebody)
    await _turn()
    assert heard.calls == []
    gate.open()
    assert await heard.wait_for(1) == [b"a"]
    await engine.close()


# -- handlers ------------------------------------------------------------------------------


@on_a_loop
async def test_a_handler_that_raises_gets_its_timer_again(clock: CountingClock) -> None:
    heard = Heard()
    heard.errors[b"a"] = LookupError("not yet")
    engine = await opened(MemoryFileSystem(), heard, clock)
    timer_id = await engine.schedule(1, b"a")
    clock.advance(1.1)
    await quiet(engine, clock)
    waiting = await engine.get(timer_id)
    assert waiting is not None
    assert (waiting.attempt, waiting.fired) == (1, False)
    heard.errors.clear()
    clock.advance(1.1)
    await quiet(engine, clock)
    assert heard.payloads == [b"a", b"a"]
    assert len(engine) == 0
    await engine.close()


@on_a_loop
async def test_a_handler_that_lets_a_cancellation_out_raises_like_any_other(
    clock: CountingClock,
) -> None:
    """As when it awaits a task that somebody cancelled: only its own timer waits."""
    heard = Heard()
    heard.errors[b"a"] = asyncio.CancelledError()
    engine = await opened(":memory:", heard, clock, workers=1)
    await engine.schedule_many([1, 1], [b"a", b"b"])
    clock.advance(1.1)
    assert await heard.wait_for(2) == [b"a", b"b"]
    heard.errors.clear()
    await quiet(engine, clock)
    clock.advance(1.1)
    assert await heard.wait_for(3) == [b"a", b"b", b"a"]
    await quiet(engine, clock)
    assert len(engine) == 0
    await engine.close()


@on_a_loop
async def test_slow_handlers_delay_nobody_while_more_may_run(
    clock: CountingClock,
) -> None:
    heard = Heard()
    slow = [b"slow %d" % n for n in range(5)]
    heard.gates = {payload: asyncio.Event() for payload in slow}
    engine = await opened(":memory:", heard, clock, workers=12)
    await engine.schedule_many([1] * 5, slow)
    clock.advance(1.1)
    await heard.wait_for(5)
    # Five run and take their time; three more slow ones must not queue behind each other.
    heard.gates |= {b"x%d" % n: asyncio.Event() for n in range(3)}
    await engine.schedule_many([1] * 4, [b"x0", b"x1", b"x2", b"quick"])
    clock.advance(1.1)
    assert (await heard.wait_for(9))[5:] == [b"x0", b"x1", b"x2", b"quick"]
    for gate in heard.gates.values():
        gate.set()
    await quiet(engine, clock)
    assert len(engine) == 0
    await engine.close()


@on_a_loop
async def test_no_more_handlers_run_at_once_than_workers(clock: CountingClock) -> None:
    running = most = 0

    async def handler(timer_id: int, payload: bytes) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await _turn()
        running -= 1

    engine = await opened(":memory:", handler, clock, workers=3)
    await engine.schedule_many([1] * 50, [b""] * 50)
    clock.advance(1.1)
    await quiet(engine, clock)
    assert len(engine) == 0
    assert most == 3
    await engine.close()


@on_a_loop
async def test_what_comes_due_while_handlers_run_starts_no_more_than_there_may_be(
    clock: CountingClock,
) -> None:
    heard = Heard()
    gate = heard.gates[b"a"] = asyncio.Event()
    engine = await opened(":memory:", heard, clock, workers=2)
    for count in (1, 2, 2):
        await engine.schedule(1, b"a")
        clock.advance(1.1)
        await asyncio.to_thread(clock.settle, PATIENCE_S, threads=1)
        await _turn()
        await _turn()
        assert len(engine._tasks) == count
    assert len(heard.calls) == 2
    gate.set()
    assert await heard.wait_for(3) == [b"a"] * 3
    await engine.close()


@on_a_loop
async def test_a_task_that_has_nothing_left_to_hand_over_ends_without_an_error(
    clock: CountingClock,
) -> None:
    errors: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda _, context: errors.append(context)
    )
    engine = await opened(":memory:", Heard(), clock)
    await engine.schedule(1, b"a")
    clock.advance(1.1)
    await quiet(engine, clock)
    assert len(engine) == 0
    gc.collect()  # who drops a failed task is told
    assert errors == []
    await engine.close()


@on_a_loop
async def test_there_is_room_for_more_until_more_than_half_of_it_is_taken(
    clock: CountingClock,
) -> None:
    engine = await opened(":memory:", Heard(), clock)
    half = QUEUE_MAX // 2
    for waiting, room in ((0, QUEUE_MAX), (half, half), (half + 1, 0), (QUEUE_MAX, 0)):
        engine._queue.extend([TimerId(1)] * waiting)
        assert engine._room() == room
        engine._queue.clear()
    await engine.close()


@on_a_loop
async def test_a_cancel_is_true_until_the_handler_starts(clock: CountingClock) -> None:
    heard = Heard()
    heard.gates[b"a"] = asyncio.Event()
    engine = await opened(MemoryFileSystem(), heard, clock, workers=1)
    ids = await engine.schedule_many([1, 1], [b"a", b"b"])
    clock.advance(1.1)
    await heard.wait_for(1)
    await asyncio.to_thread(clock.settle, PATIENCE_S, threads=1)
    assert await engine.cancel(ids[0]) is False
    assert await engine.cancel(ids[1]) is True
    heard.gates[b"a"].set()
    await quiet(engine, clock)
    assert heard.payloads == [b"a"]
    await engine.close()


@on_a_loop
async def test_a_full_queue_stops_the_tick_thread_and_then_goes_on(
    clock: CountingClock,
) -> None:
    heard = Heard()
    heard.gates[b"first"] = asyncio.Event()
    engine = await opened(":memory:", heard, clock, workers=1)
    many = 2 * QUEUE_MAX + 100
    await engine.schedule(1, b"first")
    await engine.schedule_many([2] * many, [b""] * many)
    clock.advance(3)
    await heard.wait_for(1)
    await asyncio.to_thread(clock.settle, PATIENCE_S, threads=1)
    fired = sum(timer.fired for timer in await engine.timers(many + 1))
    assert QUEUE_MAX // 2 < fired <= QUEUE_MAX + 1
    heard.gates[b"first"].set()
    await heard.wait_for(many + 1)
    await quiet(engine, clock)
    assert len(engine) == 0
    await engine.close()


# -- bad input, and the end ----------------------------------------------------------------


def a_plain_function(timer_id: int, payload: bytes) -> None:
    raise AssertionError


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"on_fire": a_plain_function}, "on_fire is <function.*pass async"),
        ({"on_fire": None}, "on_fire is None: pass async def handler"),
        ({"workers": 0}, "workers is 0: "),
        ({"snapshot_every_bytes": 0}, "snapshot_every_bytes is 0: "),
    ],
)
def test_a_bad_option_is_refused_by_name(options: dict[str, Any], message: str) -> None:
    async def handler(timer_id: int, payload: bytes) -> None:
        raise AssertionError

    with pytest.raises(ArgumentError, match=message):
        AsyncTimerEngine(":memory:", **{"on_fire": handler} | options)


@on_a_loop
async def test_a_callable_object_may_be_the_handler(clock: CountingClock) -> None:
    heard = Heard()
    engine = await opened(":memory:", heard.__call__, clock)
    await engine.schedule(1, b"a")
    clock.advance(2)
    assert await heard.wait_for(1) == [b"a"]
    await engine.close()


@on_a_loop
async def test_bad_input_is_refused_and_nothing_has_changed(
    clock: CountingClock,
) -> None:
    disk = MemoryFileSystem()
    engine = await opened(disk, Heard(), clock)
    await asyncio.to_thread(engine._timers.core.make_room, urgent=False)
    before = disk.snapshot_of_all()
    with pytest.raises(ArgumentError, match="delay is -1"):
        await engine.schedule(-1)
    with pytest.raises(PayloadTooLargeError):
        await engine.schedule(1, bytes((1 << 20) + 1))
    with pytest.raises(ArgumentError, match=r"delays\[1\] is nan"):
        await engine.schedule_many([1, float("nan")], [b"", b""])
    with pytest.raises(ArgumentError, match="timer_id is 0"):
        await engine.cancel(0)
    assert disk.snapshot_of_all() == before
    await engine.close()


@on_a_loop
async def test_options_of_the_log_are_checked_by_open(clock: CountingClock) -> None:
    engine = AsyncTimerEngine(":memory:", Heard(), interval_ms=0)
    with pytest.raises(ArgumentError, match="interval_ms is 0"):
        await engine.open()


@on_a_loop
async def test_before_open_every_call_says_how_to(clock: CountingClock) -> None:
    engine = AsyncTimerEngine(":memory:", Heard(), clock=clock)
    with pytest.raises(EngineClosedError, match="use async with, or open"):
        await engine.schedule(1)
    assert await engine.close() == 0
    async with engine:
        assert await engine.open() is engine
        await engine.schedule(1)


@on_a_loop
async def test_an_open_that_is_cancelled_leaves_the_directory_free(
    clock: CountingClock,
) -> None:
    class SlowDisk(MemoryFileSystem):
        gate = Door()

        def make_directory(self) -> None:
            self.gate()
            super().make_directory()

    disk = SlowDisk()
    opening = asyncio.create_task(opened(disk, Heard(), clock))
    await asyncio.to_thread(disk.gate.await_somebody)
    opening.cancel()
    await _turn()
    disk.gate.open()
    with pytest.raises(asyncio.CancelledError):
        await opening
    engine = await opened(disk, Heard(), clock)
    await engine.close()


@on_a_loop
async def test_a_directory_in_use_is_refused(clock: CountingClock) -> None:
    disk = MemoryFileSystem()
    engine = await opened(disk, Heard(), clock)
    with pytest.raises(StoreInUseError):
        await opened(disk, Heard(), clock)
    await engine.close()


@on_a_loop
async def test_close_waits_for_handlers_and_says_how_many_timers_stay(
    clock: CountingClock,
) -> None:
    heard = Heard()
    heard.gates[b"a"] = asyncio.Event()
    disk = MemoryFileSystem()
    engine = await opened(disk, heard, clock)
    await engine.schedule_many([1, 60], [b"a", b"b"])
    clock.advance(2)
    await heard.wait_for(1)
    closing = asyncio.create_task(engine.close())
    await asyncio.to_thread(engine._ticker._thread.join, PATIENCE_S)
    assert not closing.done()
    heard.gates[b"a"].set()
    assert await closing == 1
    assert await engine.close() == 1


@on_a_loop
async def test_a_handler_that_takes_longer_than_the_grace_is_cancelled(
    clock: CountingClock, caplog: pytest.LogCaptureFixture
) -> None:
    heard = Heard()
    heard.gates[b"slow"] = asyncio.Event()
    disk = MemoryFileSystem()
    engine = await opened(disk, heard, clock)
    await engine.schedule(1, b"slow")
    clock.advance(2)
    await heard.wait_for(1)
    assert await engine.close(grace=0) == 1
    assert "1 handlers still ran after 0 s: cancelled" in caplog.text
    again = Heard()
    heir = await opened(disk, again, clock)
    assert await again.wait_for(1) == [b"slow"]
    await heir.close()


@on_a_loop
async def test_a_handler_that_swallows_its_cancellation_does_not_hold_close_up(
    clock: CountingClock,
) -> None:
    never, started, gone = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def stubborn(timer_id: int, payload: bytes) -> None:
        started.set()
        while not never.is_set():
            try:
                await never.wait()
            except asyncio.CancelledError:
                gone.set()

    engine = await opened(":memory:", stubborn, clock)
    await engine.schedule(1)
    clock.advance(2)
    await started.wait()
    assert await engine.close(grace=0) == 1
    assert gone.is_set()
    never.set()
    await asyncio.wait([*engine._tasks])


@on_a_loop
async def test_after_close_cancel_is_false_and_all_else_raises(
    clock: CountingClock,
) -> None:
    engine = await opened(MemoryFileSystem(), Heard(), clock)
    timer_id = await engine.schedule(60)
    assert await engine.close() == 1
    assert await engine.cancel(timer_id) is False
    for call in (
        lambda: engine.schedule(1),
        lambda: engine.schedule_at(1),
        lambda: engine.schedule_many([1], [b""]),
        lambda: engine.reschedule(timer_id, 1),
        lambda: engine.get(timer_id),
        engine.timers,
        engine.snapshot,
    ):
        with pytest.raises(EngineClosedError, match="closed"):
            await call()
    with pytest.raises(EngineClosedError):
        len(engine)


@on_a_loop
async def test_while_it_closes_handlers_cannot_add_work(clock: CountingClock) -> None:
    heard = Heard()
    gate = heard.gates[b"a"] = asyncio.Event()
    refused: list[bool] = []

    async def handler(timer_id: int, payload: bytes) -> None:
        await heard(timer_id, payload)
        for add in (
            engine.schedule(0),
            engine.schedule_many([0], [b""]),
            engine.reschedule(2, 0),
        ):
            with pytest.raises(EngineClosedError):
                await add
            refused.append(True)
        assert await engine.cancel(2) is True

    engine = await opened(":memory:", handler, clock)
    await engine.schedule_many([1, 60], [b"a", b"b"])
    clock.advance(2)
    await heard.wait_for(1)
    closing = asyncio.create_task(engine.close())
    await asyncio.to_thread(engine._ticker._thread.join, PATIENCE_S)
    gate.set()
    assert await closing == 0
    assert refused == [True] * 3


@on_a_loop
async def test_a_handler_may_close_the_engine(clock: CountingClock) -> None:
    stayed: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def handler(timer_id: int, payload: bytes) -> None:
        stayed.set_result(await engine.close())

    engine = await opened(":memory:", handler, clock)
    await engine.schedule_many([1, 60], [b"a", b"b"])
    clock.advance(2)
    assert await stayed == 2
    await asyncio.wait([*engine._tasks, asyncio.create_task(_turn())])


# -- the disk ------------------------------------------------------------------------------


@on_a_loop
async def test_a_failed_sync_ends_the_engine(clock: CountingClock) -> None:
    disk = MemoryFileSystem()
    heard = Heard()
    engine = await opened(disk, heard, clock)
    kept = await engine.schedule(1, b"kept")
    # Of this file: the log fills the next one meanwhile, and syncs it too.
    disk.fail("datasync", errno.EIO, name=segments_of(disk)[0])
    outcomes = await asyncio.gather(
        engine.schedule(1), engine.schedule(2), return_exceptions=True
    )
    assert [type(outcome) for outcome in outcomes] == [CommitUnknownError] * 2
    for call in (
        lambda: engine.schedule(1),
        lambda: engine.cancel(kept),
        lambda: engine.get(kept),
        engine.timers,
        engine.snapshot,
    ):
        with pytest.raises(EngineFailedError):
            await call()
    clock.advance(5)
    await asyncio.to_thread(engine._ticker._thread.join, PATIENCE_S)
    assert heard.calls == []
    await engine.close()


@on_a_loop
async def test_a_full_disk_refuses_schedules_and_heals(clock: CountingClock) -> None:
    disk = MemoryFileSystem()
    heard = Heard()
    gate = heard.gates[b"a"] = asyncio.Event()
    engine = await opened(disk, heard, clock)
    timer_id = await engine.schedule(1, b"a")
    clock.advance(2)
    await heard.wait_for(1)
    core = engine._timers.core
    many = await asyncio.to_thread(fill_up, core, disk)
    last = (await engine.timers(many + 1))[-1].id
    with pytest.raises(DiskFullError):
        await engine.schedule(1)
    with pytest.raises(DiskFullError):
        await engine.cancel(last)
    gate.set()
    await asyncio.wait([*engine._tasks])
    await asyncio.to_thread(clock.settle, PATIENCE_S, threads=1)
    assert await engine.get(timer_id) is not None, "there is no space to record it"
    assert await engine.cancel(timer_id) is False, "its handler ran"
    disk.capacity_bytes = None
    clock.advance(1)
    await asyncio.to_thread(clock.settle, PATIENCE_S, threads=1)
    assert await engine.get(timer_id) is None
    assert len(engine) == many
    await engine.schedule(1)
    await engine.close()


@on_a_loop
async def test_segments_are_made_while_the_loop_turns(clock: CountingClock) -> None:
    disk = MemoryFileSystem()
    engine = await opened(disk, Heard(), clock, segment_size_bytes=5120)
    await asyncio.gather(*(engine.schedule(99, bytes(300)) for _ in range(100)))
    stats = engine.log_stats()
    assert stats is not None
    assert stats.segment_id > 10
    assert len(engine) == 100
    await engine.close()


@on_a_loop
async def test_the_loop_turns_while_it_has_to_wait_for_a_segment(
    clock: CountingClock,
) -> None:
    class SlowDisk(MemoryFileSystem):
        gate: Door | None = None

        def create(self, name: str) -> Handle:
            if self.gate is not None:
                self.gate()
            return super().create(name)

    disk = SlowDisk()
    engine = await opened(disk, Heard(), clock, segment_size_bytes=5120)
    gate = disk.gate = Door()
    adding = asyncio.gather(*(engine.schedule(99, bytes(300)) for _ in range(100)))
    await asyncio.to_thread(gate.await_somebody)
    await _turn()
    assert not adding.done()
    gate.open()
    await adding
    await engine.close()


@on_a_loop
async def test_what_nobody_names_is_nothing_in_a_payload_and_a_hundred_in_a_list(
    clock: CountingClock,
) -> None:
    engine = await opened(":memory:", Heard(), clock)
    await engine.schedule(60)
    await engine.schedule_at(clock.wall_ns() + 60 * SECOND_NS)
    assert await engine.schedule_many([60], [b"one"]) == range(3, 4)
    await engine.schedule_many([60] * 100, [b""] * 100)
    payloads = [timer.payload for timer in await engine.timers(4)]
    assert payloads == [b"", b"", b"one", b""]
    assert len(await engine.timers()) == 100
    await engine.close()


@on_a_loop
async def test_an_open_that_fails_after_it_was_cancelled_is_a_cancelled_one(
    clock: CountingClock,
) -> None:
    class SlowDisk(MemoryFileSystem):
        gate = Door()

        def make_directory(self) -> None:
            self.gate()
            raise PermissionError(errno.EACCES, "not allowed")

    opening = asyncio.create_task(opened(SlowDisk(), Heard(), clock))
    await asyncio.to_thread(SlowDisk.gate.await_somebody)
    opening.cancel()
    await _turn()
    SlowDisk.gate.open()
    with pytest.raises(asyncio.CancelledError):
        await opening


@on_a_loop
async def test_in_interval_mode_too_much_unsynced_is_waited_for_on_a_thread(
    clock: CountingClock,
) -> None:
    """Nothing else in that mode waits for the disk, so the loop must not spin on it."""
    disk = GatedDisk()
    engine = await opened(
        disk,
        Heard(),
        clock,
        durability="interval",
        interval_ms=60_000,
        segment_size_bytes=4 << 20,
    )
    gate = disk.gate = Door()
    while not engine._timers.core.congested:
        await engine.schedule(99, bytes(1 << 20))
    waiting = asyncio.create_task(engine.schedule(99))
    await asyncio.to_thread(gate.await_somebody)
    await _turn()
    assert not waiting.done()
    gate.open()
    await waiting
    await engine.close()


def test_a_change_of_the_working_directory_leads_to_no_other_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def ignore(timer_id: int, payload: bytes) -> None: ...

    async def use(engine: AsyncTimerEngine) -> int:
        async with engine:
            return await engine.schedule(60, b"kept")

    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path)
    engine = AsyncTimerEngine("data", on_fire=ignore)
    monkeypatch.chdir("other")
    asyncio.run(use(engine))
    assert (tmp_path / "data").exists()
    assert list((tmp_path / "other").iterdir()) == []
