"""TimerEngine: what holds for a program that uses it, threads and all."""

from __future__ import annotations

import errno
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.engine.conftest import OpenEngine
from tests.engine.stage import (
    PATIENCE_S,
    SECOND_NS,
    SMALL,
    TICK_S,
    CountingClock,
    Door,
    GatedDisk,
    Recorder,
    fill_up,
    handlers_done,
    repeat_until,
    settle,
)
from timingwheel.engine.dispatcher import QUEUE_MAX
from timingwheel.engine.engine import TimerEngine
from timingwheel.engine.records import DEADLINE_MAX_NS, Base, timer_scheduled
from timingwheel.engine.timers import Timer
from timingwheel.errors import ArgumentError, EngineClosedError, EngineFailedError
from wal.errors import (
    CommitUnknownError,
    DiskFullError,
    LogCorruptError,
    StoreError,
)
from wal.testing import MemoryFileSystem

ROOT = Path(__file__).resolve().parents[2]


# -- the whole way -------------------------------------------------------------------------


def test_a_timer_is_delivered_when_it_is_due_and_then_gone(
    open_engine: OpenEngine, fired: Recorder, clock: CountingClock
) -> None:
    engine = open_engine(MemoryFileSystem(), fired)
    timer_id = engine.schedule(30, b"tea")
    assert len(engine) == 1
    clock.advance(29.9)
    settle(engine, clock)
    assert fired.calls == []
    clock.advance(0.2)
    settle(engine, clock)
    assert fired.calls == [(timer_id, b"tea")]
    assert len(engine) == 0
    assert engine.get(timer_id) is None


def test_an_engine_is_opened_with_what_it_was_told_of_its_store_and_its_disk(
    open_engine: OpenEngine, fired: Recorder
) -> None:
    """A sector that may be torn is damage on most disks, and a cut-off end on others."""
    with pytest.raises(StoreError, match="check the path"):
        open_engine(MemoryFileSystem(), fired, create=False)
    disk = MemoryFileSystem()
    engine = open_engine(disk, fired, autostart=False)
    engine.schedule(60, b"\xff" * 2_000)
    torn = disk.killed()
    segment = next(name for name in torn.names() if name.endswith(".seg"))
    torn.flip_bit(segment, 8 * (4096 + 1_000))
    with pytest.raises(LogCorruptError):
        open_engine(torn, fired, autostart=False)
    assert len(open_engine(torn, fired, autostart=False, atomic_sectors=False)) == 0


def test_what_nobody_names_is_nothing_in_a_payload_and_a_hundred_in_a_list(
    open_engine: OpenEngine, fired: Recorder, clock: CountingClock
) -> None:
    engine = open_engine(":memory:", fired, autostart=False)
    engine.schedule(60)
    engine.schedule_at(clock.wall_ns())
    assert engine.schedule_many([60], [b"one"]) == range(3, 4)
    engine.schedule_many([60] * 100, [b""] * 100)
    assert [timer.payload for timer in engine.timers(4)] == [b"", b"", b"one", b""]
    assert len(engine.timers()) == 100


def test_a_change_of_a_timer_is_one_record(
    open_engine: OpenEngine, fired: Recorder
) -> None:
    engine = open_engine(":memory:", fired, autostart=False)
    timer_id = engine.schedule(60)
    assert engine.reschedule(timer_id, 70)
    assert engine._core.log.appended_lsn == 2
    assert engine.cancel(timer_id)
    assert engine._core.log.appended_lsn == 3


def test_the_whole_of_it_runs_on_the_clock_and_the_disk_of_the_system(
    tmp_path: Path, fired: Recorder
) -> None:
    with TimerEngine(tmp_path, fired, **SMALL) as engine:
        engine.schedule(0.001, b"soon")
        engine.schedule_at(time.time_ns(), b"now")
        kept = engine.schedule(3600, b"kept")
        assert sorted(fired.wait_for(2)) == [b"now", b"soon"]
        handlers_done(engine)
    with TimerEngine(tmp_path, fired, create=False, **SMALL) as engine:
        assert [timer.id for timer in engine.timers()] == [kept]


def test_a_manual_clock_settles_only_when_the_handlers_have_returned(
    clock: CountingClock,
) -> None:
    """The example in timingwheel.testing, which users copy."""
    fired: list[bytes] = []

    def handler(timer_id: int, payload: bytes) -> None:
        fired.append(payload)

    for _ in range(50):
        fired.clear()
        with TimerEngine(":memory:", on_fire=handler, clock=clock) as engine:
            engine.schedule(30, b"tea is ready")
            clock.advance(29.999)
            clock.settle()
            assert fired == []
            clock.advance(0.002)
            clock.settle()
            assert fired == [b"tea is ready"]


def test_what_was_scheduled_survives_a_kill_and_a_power_loss(
    open_engine: OpenEngine, fired: Recorder, clock: CountingClock
) -> None:
    disk = MemoryFileSystem()
    engine = open_engine(disk, fired)
    engine.schedule(10, b"a")
    engine.schedule_many([20, 30], [b"b", b"c"])
    engine.schedule_at(clock.wall_ns() + 15 * SECOND_NS, b"w")
    assert engine.cancel(3)
    for crashed in (disk.killed(), disk.crashed("none")):
        heir = open_engine(crashed, Recorder())
        assert [timer.payload for timer in heir.timers()] == [b"a", b"w", b"b"]
        heir.close()


def test_in_memory_it_is_the_same_without_a_directory(
    open_engine: OpenEngine, fired: Recorder, clock: CountingClock
) -> None:
    engine = open_engine(":memory:", fired)
    engine.schedule_many([1, 2], [b"a", b"b"])
    assert engine.cancel(2)
    clock.advance(3)
    settle(engine, clock)
    assert fired.payloads == [b"a"]
    assert (engine.report, engine.log_stats(), engine.snapshot()) == (None, None, None)
    assert engine.close() == 0


def test_overdue_timers_fire_at_open_in_the_order_of_deadline_and_id(
    open_engine: OpenEngine, clock: CountingClock
) -> None:
    disk = MemoryFileSystem()
    first = open_engine(disk, Recorder())
    ids = [first.schedule(delay) for delay in (50, 10, 30, 10, 20, 9000)]
    first.close()
    clock.advance(3600)
    fired = Recorder()
    second = open_engine(disk, fired, workers=1)
    settle(second, clock)
    assert [timer_id for timer_id, _ in fired.calls] == [
        ids[n] for n in (1, 3, 4, 2, 0)
    ]


def test_what_was_delivered_and_not_acknowledged_comes_again_first(
    open_engine: OpenEngine, clock: CountingClock
) -> None:
    disk = MemoryFileSystem()
    door = Door(clock)
    engine = open_engine(disk, door, workers=1)
    ids = engine.schedule_many([3, 2, 1], [b"", b"", b""])
    clock.advance(2.5)
    door.await_somebody()  # the handler of the third runs, the second is queued
    killed = disk.killed()
    clock.advance(10)
    fired = Recorder()
    heir = open_engine(killed, fired, workers=1)
    settle(heir, clock)
    assert [timer_id for timer_id, _ in fired.calls] == [ids[2], ids[1], ids[0]]
    assert len(heir) == 0
    door.open()


def test_nothing_fires_before_start(
    open_engine: OpenEngine, fired: Recorder, clock: CountingClock
) -> None:
    engine = open_engine(":memory:", fired, autostart=False)
    timer_id = engine.schedule(1)
    clock.advance(2)
    seen = engine.get(timer_id)
    assert seen is not None
    assert not seen.fired
    engine.start()
    engine.start()
    fired.wait_for(1)


def test_a_never_started_engine_can_be_closed(
    open_engine: OpenEngine, fired: Recorder
) -> None:
    engine = open_engine(MemoryFileSystem(), fired, autostart=False)
    engine.schedule(1)
    assert engine.close() == 1


def test_ids_are_never_given_out_again(open_engine: OpenEngine) -> None:
    disk = MemoryFileSystem()
    seen: set[int] = set()
    for crash in ("kill", "power", "close", "kill"):
        engine = open_engine(disk, Recorder())
        ids = {engine.schedule(99) for _ in range(3)}
        assert not ids & seen
        seen |= ids
        for timer_id in ids:
            engine.cancel(timer_id)
        if crash == "close":
            engine.close()
        else:
            disk = disk.killed() if crash == "kill" else disk.crashed("none")


# -- nothing early, nothing before it is durable -------------------------------------------


@pytest.mark.parametrize(
    "request_",
    [
        lambda engine: engine.schedule(60),
        lambda engine: engine.schedule_at(1 << 62),
        lambda engine: engine.schedule_many([60, 60], [b"", b""]),
        lambda engine: engine.reschedule(1, 99),
        lambda engine: engine.cancel(1),
    ],
    ids=["schedule", "schedule_at", "schedule_many", "reschedule", "cancel"],
)
def test_a_request_returns_only_when_the_disk_has_it(
    open_engine: OpenEngine,
    fired: Recorder,
    request_: Callable[[TimerEngine], object],
) -> None:
    disk = GatedDisk()
    engine = open_engine(disk, fired)
    engine.schedule(60)
    before = engine.timers()
    gate = disk.gate = Door()
    replies: list[object] = []
    caller = threading.Thread(target=lambda: replies.append(request_(engine)))
    caller.start()
    gate.await_somebody()
    assert replies == []
    seen = engine.timers()
    assert seen != before, "reads may show what is not durable yet"
    gate.open()
    caller.join(PATIENCE_S)
    assert len(replies) == 1
    heir = open_engine(disk.crashed("none"), fired)
    assert heir.timers() == seen


def test_a_handler_starts_only_after_the_sync_of_its_fire(
    open_engine: OpenEngine, clock: CountingClock
) -> None:
    order: list[str] = []
    started = threading.Event()

    class Disk(GatedDisk):
        def datasync(self, handle: Any) -> None:
            name = self._machine.opened(handle).name
            super().datasync(handle)
            if name.endswith(".seg"):  # others fill segments to come
                order.append("synced")

    def handler(_: int, __: bytes) -> None:
        order.append("handler")
        started.set()

    disk = Disk()
    engine = open_engine(disk, handler)
    engine.schedule(1)
    order.clear()
    gate = disk.gate = Door()
    clock.advance(2)
    gate.await_somebody()
    assert order == []
    gate.open()
    assert started.wait(PATIENCE_S)
    assert order[:2] == ["synced", "handler"]


def test_a_cancel_is_true_only_when_the_disk_has_it(
    open_engine: OpenEngine, fired: Recorder, clock: CountingClock
) -> None:
    disk = GatedDisk()
    engine = open_engine(disk, fired)
    timer_id = engine.schedule(60)
    gate = disk.gate = Door()
    replies: list[bool] = []
    caller = threading.Thread(target=lambda: replies.append(engine.cancel(timer_id)))
    caller.start()
    gate.await_somebody()
    assert replies == []
    gate.open()
    caller.join(PATIENCE_S)
    assert replies == [True]
    heir = open_engine(disk.crashed("none"), fired)
    assert len(heir) == 0


def test_a_second_cancel_waits_for_the_first_ones_commit(
    open_engine: OpenEngine, fired: Recorder
) -> None:
    """ "Nothing there" rests on a removal that is not durable yet."""
    disk = GatedDisk()
    engine = open_engine(disk, fired)
    timer_id = engine.schedule(60)
    gate = disk.gate = Door()
    replies: list[bool] = []
    first = threading.Thread(target=lambda: replies.append(engine.cancel(timer_id)))
    first.start()
    gate.await_somebody()
    second = threading.Thread(target=lambda: replies.append(engine.cancel(timer_id)))
    second.start()
    assert replies == []
    gate.open()
    first.join(PATIENCE_S)
    second.join(PATIENCE_S)
    assert sorted(replies) == [False, True]


# -- handlers ------------------------------------------------------------------------------


def test_handlers_run_on_workers_and_never_on_the_tick_thread(
    open_engine: OpenEngine, clock: CountingClock
) -> None:
    names: list[str] = []
    done = threading.Semaphore(0)

    def handler(_: int, __: bytes) -> None:
        names.append(threading.current_thread().name)
        done.release()

    engine = open_engine(":memory:", handler, workers=3)
    engine.schedule_many([1] * 20, [b""] * 20)
    clock.advance(2)
    for _ in range(20):
        assert done.acquire(timeout=PATIENCE_S)
    assert {name.rpartition("-")[0] for name in names} == {"timingwheel-worker"}


def test_a_handler_that_raises_gets_its_timer_again_with_growing_waits(
    open_engine: OpenEngine, clock: CountingClock, caplog: pytest.LogCaptureFixture
) -> None:
    attempts: list[int] = []

    def handler(timer_id: int, payload: bytes) -> None:
        seen = engine.get(timer_id)
        assert seen is not None
        attempts.append(seen.attempt)
        if seen.attempt < 5:
            raise LookupError("not yet")

    engine = open_engine(MemoryFileSystem(), handler)
    timer_id = engine.schedule(0)
    clock.advance(TICK_S)
    for number, wait_s in enumerate([1, 2, 4, 8], 1):
        settle(engine, clock)
        assert attempts == list(range(1, number + 1))
        waiting = engine.get(timer_id)
        assert waiting == Timer(
            timer_id,
            clock.wall_ns() + wait_s * SECOND_NS,
            b"",
            number,
            fired=False,
            wall=False,
        )
        clock.advance(wait_s - 0.001)
        settle(engine, clock)
        assert len(attempts) == number
        clock.advance(0.001 + TICK_S)
    settle(engine, clock)
    assert attempts == [1, 2, 3, 4, 5]
    assert len(engine) == 0
    warnings = [r for r in caplog.records if r.levelno == logging.WARNING]
    assert len(warnings) == 4
    assert all(getattr(record, "timer_id", 0) == timer_id for record in warnings)


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, GeneratorExit])
def test_a_handler_that_exits_raises_like_any_other(
    open_engine: OpenEngine, clock: CountingClock, error: type[BaseException]
) -> None:
    """`sys.exit()` in a handler must cost neither the worker nor the timer."""
    calls = Recorder()

    def handler(timer_id: int, payload: bytes) -> None:
        calls(timer_id, payload)
        if len(calls.calls) <= 2:
            raise error

    engine = open_engine(":memory:", handler, workers=1)
    engine.schedule_many([1, 1], [b"a", b"b"])
    clock.advance(1.1)
    settle(engine, clock)
    assert calls.payloads == [b"a", b"b"]
    clock.advance(1.1)
    settle(engine, clock)
    assert calls.payloads == [b"a", b"b", b"a", b"b"]
    assert len(engine) == 0


def test_a_slow_or_raising_handler_delays_nobody_else(
    open_engine: OpenEngine, clock: CountingClock
) -> None:
    door, others = Door(clock), Recorder()

    def handler(timer_id: int, payload: bytes) -> None:
        if payload == b"slow":
            door()
        if payload == b"raises":
            raise LookupError
        others(timer_id, payload)

    engine = open_engine(":memory:", handler, workers=2)
    engine.schedule_many([1, 1, 1, 1, 1], [b"slow", b"raises", b"a", b"raises", b"b"])
    engine.schedule(2, b"c")
    clock.advance(1.5)
    door.await_somebody()
    assert others.wait_for(2) == [b"a", b"b"]
    clock.advance(1)
    assert others.wait_for(3) == [b"a", b"b", b"c"]
    door.open()


def test_a_handler_may_use_the_engine(
    open_engine: OpenEngine, clock: CountingClock
) -> None:
    """Schedule, cancel, reschedule and read, while its own timer is in its hands."""
    seen: list[object] = []

    def handler(timer_id: int, payload: bytes) -> None:
        if payload == b"first":
            mine = engine.get(timer_id)
            seen.append(mine is not None and mine.fired)
            seen.append(engine.cancel(timer_id))
            seen.append(engine.reschedule(timer_id, 1))
            seen.append(engine.schedule(5, b"more") > timer_id)
            seen.append(engine.cancel(other))
            seen.append(len(engine))
        else:
            seen.append(payload)

    engine = open_engine(MemoryFileSystem(), handler)
    engine.schedule(1, b"first")
    other = engine.schedule(2, b"other")
    clock.advance(1.1)
    settle(engine, clock)
    clock.advance(5.1)
    settle(engine, clock)
    assert seen == [True, False, False, True, True, 2, b"more"]


def test_a_cancel_is_true_while_the_timer_waits_for_a_worker(
    open_engine: OpenEngine, clock: CountingClock
) -> None:
    door = Door(clock)
    calls = Recorder()

    def handler(timer_id: int, payload: bytes) -> None:
        calls(timer_id, payload)
        door()

    engine = open_engine(MemoryFileSystem(), handler, workers=1)
    ids = engine.schedule_many([1, 1, 1, 1], [b"a", b"b", b"c", b"d"])
    clock.advance(2)
    door.await_somebody()
    clock.settle(PATIENCE_S, threads=1)
    queued = engine.get(ids[1])
    assert queued is not None
    assert queued.fired
    assert engine.cancel(ids[0]) is False
    assert engine.reschedule(ids[0], 9) is False
    assert engine.cancel(ids[1]) is True
    assert engine.reschedule(ids[2], 50) is True
    door.open()
    settle(engine, clock)
    assert calls.payloads == [b"a", b"d"]
    clock.advance(50.1)
    settle(engine, clock)
    assert calls.payloads == [b"a", b"d", b"c"]


def test_a_cancel_is_true_while_the_timer_waits_for_redelivery(
    open_engine: OpenEngine, clock: CountingClock
) -> None:
    calls = Recorder()

    def handler(timer_id: int, payload: bytes) -> None:
        calls(timer_id, payload)
        raise LookupError

    disk = MemoryFileSystem()
    engine = open_engine(disk, handler)
    timer_id = engine.schedule(1)
    clock.advance(1.1)
    settle(engine, clock)
    assert engine.cancel(timer_id) is True
    assert engine.cancel(timer_id) is False
    clock.advance(3600)
    settle(engine, clock)
    assert len(calls.calls) == 1
    heir = open_engine(disk.crashed("none"), handler)
    assert len(heir) == 0


def test_when_4096_fired_timers_wait_the_tick_thread_waits_and_then_goes_on(
    open_engine: OpenEngine, clock: CountingClock
) -> None:
    door = Door(clock)
    calls = Recorder()

    def handler(timer_id: int, payload: bytes) -> None:
        door()
        calls(timer_id, payload)

    engine = open_engine(":memory:", handler, workers=1)
    many = 3 * QUEUE_MAX
    ids = engine.schedule_many([1] * many, [b""] * many)
    clock.advance(2)
    door.await_somebody()
    clock.settle(PATIENCE_S, threads=1)
    fired = sum(timer.fired for timer in engine.timers(many))
    assert QUEUE_MAX <= fired <= QUEUE_MAX + 1
    door.open()
    settle(engine, clock)
    assert [timer_id for timer_id, _ in calls.calls] == list(ids)
    assert len(engine) == 0


# -- bad input -----------------------------------------------------------------------------


async def on_fire_async(timer_id: int, payload: bytes) -> None:
    """Would never run, if the engine that has no loop called it."""


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"on_fire": None}, "on_fire is None: pass handler"),
        ({"on_fire": 5}, "on_fire is 5: pass handler"),
        ({"on_fire": on_fire_async}, "on_fire is .*AsyncTimerEngine"),
        ({"workers": 0}, "workers is 0: pass 1 to 1,024"),
        ({"snapshot_every_bytes": 0}, "snapshot_every_bytes is 0: pass 1 byte or more"),
        ({"snapshot_every_bytes": "1"}, "snapshot_every_bytes is '1': pass 1 byte"),
        ({"durability": "none"}, "durability is 'none': pass "),
        ({"interval_ms": 0}, "interval_ms is 0: pass 1 to 60,000"),
        ({"segment_size_bytes": 100}, "segment_size_bytes is 100: pass a multiple"),
        ({"reserve_bytes": -1}, "reserve_bytes is -1: pass 0 bytes or more"),
    ],
)
def test_a_bad_option_is_refused_by_name_before_anything_is_made(
    tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    place = tmp_path / "data"
    with pytest.raises(ArgumentError, match=f"^{message}"):
        TimerEngine(place, **{"on_fire": print} | options)
    assert not place.exists()


@pytest.mark.parametrize(
    "request_",
    [
        lambda engine: engine.schedule(-1),
        lambda engine: engine.schedule(float("nan")),
        lambda engine: engine.schedule(float("inf")),
        lambda engine: engine.schedule(1e300),
        lambda engine: engine.schedule(1, "text"),
        lambda engine: engine.schedule(1, bytes((1 << 20) + 1)),
        lambda engine: engine.schedule_at(-1),
        lambda engine: engine.schedule_at(1 << 63),
        lambda engine: engine.schedule_many([1, 2], [b""]),
        lambda engine: engine.schedule_many([1] * 65_537, [b""] * 65_537),
        lambda engine: engine.schedule_many([1] * 5, [bytes(1 << 20)] * 5),
        lambda engine: engine.schedule_many([1, -1], [b"", b""]),
        lambda engine: engine.reschedule(1, -1),
        lambda engine: engine.cancel(0),
        lambda engine: engine.get("1"),
        lambda engine: engine.timers(-1),
    ],
)
def test_after_bad_input_no_byte_has_changed(
    open_engine: OpenEngine,
    fired: Recorder,
    request_: Callable[[TimerEngine], object],
) -> None:
    disk = MemoryFileSystem()
    engine = open_engine(disk, fired)
    engine.schedule(60, b"there")
    engine._core.make_room(urgent=False)
    before = disk.snapshot_of_all()
    with pytest.raises((ValueError, OverflowError)):
        request_(engine)
    assert disk.snapshot_of_all() == before
    assert [timer.payload for timer in engine.timers()] == [b"there"]


def test_a_payload_that_no_frame_of_small_segments_can_hold_is_refused(
    open_engine: OpenEngine, fired: Recorder
) -> None:
    engine = open_engine(MemoryFileSystem(), fired, segment_size_bytes=5120)
    with pytest.raises(ValueError, match="raise segment_size_bytes"):
        engine.schedule(1, bytes(4_000))
    assert len(engine) == 0
    engine.schedule(1, bytes(100))


def test_ids_from_elsewhere_cancel_nothing(
    open_engine: OpenEngine, fired: Recorder
) -> None:
    engine = open_engine(MemoryFileSystem(), fired)
    timer_id = engine.schedule(60)
    assert engine.cancel(timer_id + 1) is False
    assert engine.cancel(1 << 62) is False
    assert engine.reschedule(timer_id + 1, 1) is False
    assert engine.get(timer_id + 1) is None
    assert engine.cancel(timer_id) is True
    assert engine.cancel(timer_id) is False


# -- closing -------------------------------------------------------------------------------


def test_close_waits_for_handlers_and_says_how_many_timers_stay(
    open_engine: OpenEngine, clock: CountingClock
) -> None:
    door = Door(clock)
    disk = MemoryFileSystem()
    engine = open_engine(disk, door)
    engine.schedule_many([1, 60, 60], [b"", b"", b""])
    clock.advance(2)
    door.await_somebody()
    stayed: list[int] = []
    closing = threading.Thread(target=lambda: stayed.append(engine.close()))
    closing.start()
    with engine._dispatcher._changed:
        engine._dispatcher._changed.wait_for(
            lambda: engine._dispatcher._stopped, PATIENCE_S
        )
    assert stayed == []
    door.open()
    closing.join(PATIENCE_S)
    assert stayed == [2]
    assert engine.close() == 2
    heir = open_engine(disk, Recorder())
    assert len(heir) == 2
    assert heir.report is not None
    assert heir.report.clean


def test_a_handler_that_takes_longer_than_the_grace_is_left_and_its_timer_comes_again(
    open_engine: OpenEngine, clock: CountingClock, caplog: pytest.LogCaptureFixture
) -> None:
    door = Door(clock)
    disk = MemoryFileSystem()
    engine = open_engine(disk, door)
    engine.schedule(1, b"slow")
    clock.advance(2)
    door.await_somebody()
    assert engine.close(grace=0) == 1
    assert "handlers still run after 0 s and were left behind" in caplog.text
    door.open()
    handlers_done(engine)
    assert "timer 1 is not acknowledged: the engine is closed" in caplog.text
    fired = Recorder()
    open_engine(disk, fired)
    assert fired.wait_for(1) == [b"slow"]


def test_after_close_cancel_is_false_and_all_else_raises(
    open_engine: OpenEngine, fired: Recorder
) -> None:
    engine = open_engine(MemoryFileSystem(), fired)
    timer_id = engine.schedule(60)
    assert engine.close() == 1
    assert engine.cancel(timer_id) is False
    for call in (
        lambda: engine.schedule(1),
        lambda: engine.schedule_at(1),
        lambda: engine.schedule_many([1], [b""]),
        lambda: engine.reschedule(timer_id, 1),
        lambda: engine.get(timer_id),
        engine.timers,
        lambda: len(engine),
        engine.snapshot,
        engine.start,
    ):
        with pytest.raises(EngineClosedError, match="closed: open a new one"):
            call()


def test_while_it_closes_handlers_cannot_add_work_and_can_take_it_away(
    open_engine: OpenEngine, clock: CountingClock
) -> None:
    door = Door(clock)
    seen: list[object] = []

    def handler(timer_id: int, payload: bytes) -> None:
        door()
        for add in (
            lambda: engine.schedule(0),
            lambda: engine.schedule_at(0),
            lambda: engine.schedule_many([0], [b""]),
            lambda: engine.reschedule(2, 0),
        ):
            try:
                add()
            except EngineClosedError as error:
                seen.append(str(error))
        seen.append(engine.cancel(2))

    disk = MemoryFileSystem()
    engine = open_engine(disk, handler)
    engine.schedule_many([1, 60], [b"", b""])
    clock.advance(2)
    door.await_somebody()
    closing = threading.Thread(target=engine.close)
    closing.start()
    with engine._dispatcher._changed:
        engine._dispatcher._changed.wait_for(
            lambda: engine._dispatcher._stopped, PATIENCE_S
        )
    door.open()
    closing.join(PATIENCE_S)
    assert len(seen) == 5
    assert all("clos" in str(message) for message in seen[:4])
    assert seen[4] is True
    assert len(open_engine(disk, Recorder())) == 0


def test_a_handler_may_close_the_engine(
    open_engine: OpenEngine, clock: CountingClock
) -> None:
    stayed: list[int] = []
    done = threading.Event()

    def handler(timer_id: int, payload: bytes) -> None:
        stayed.append(engine.close())
        done.set()

    disk = MemoryFileSystem()
    engine = open_engine(disk, handler)
    engine.schedule_many([1, 60], [b"", b""])
    clock.advance(2)
    assert done.wait(PATIENCE_S)
    assert stayed == [2]  # its own too: nothing can be acknowledged any more
    assert len(open_engine(disk, Recorder(), autostart=False)) == 2


def test_no_thread_is_left_behind_and_the_directory_is_free(
    open_engine: OpenEngine, clock: CountingClock
) -> None:
    disk = MemoryFileSystem()
    before = set(threading.enumerate())
    engine = open_engine(disk, Recorder())
    engine.schedule(1)
    clock.advance(2)
    settle(engine, clock)
    engine.close()
    for thread in set(threading.enumerate()) - before:
        thread.join(PATIENCE_S)
        assert not thread.is_alive(), thread.name
    open_engine(disk, Recorder())


# -- the disk ------------------------------------------------------------------------------


def test_a_failed_sync_ends_the_engine_and_reads_raise_too(
    open_engine: OpenEngine, fired: Recorder, clock: CountingClock
) -> None:
    disk = MemoryFileSystem()
    engine = open_engine(disk, fired)
    kept = engine.schedule(1, b"kept")
    disk.fail("datasync", errno.EIO)
    with pytest.raises(CommitUnknownError):
        engine.schedule(1, b"unknown")
    clock.advance(5)
    for call in (
        lambda: engine.schedule(1),
        lambda: engine.schedule_many([1], [b""]),
        lambda: engine.reschedule(kept, 1),
        lambda: engine.cancel(kept),
        lambda: engine.get(kept),
        engine.timers,
        lambda: len(engine),
        engine.snapshot,
    ):
        with pytest.raises(EngineFailedError, match="what was acknowledged is safe"):
            call()
    engine._ticker._thread.join(PATIENCE_S)
    assert not engine._ticker.alive
    assert fired.calls == []
    engine.close()
    heard = Recorder()
    heir = open_engine(disk.crashed("none"), heard)
    assert heard.wait_for(1) == [b"kept"]
    heir.close()


def test_what_was_fired_and_queued_when_the_disk_failed_is_not_delivered(
    open_engine: OpenEngine, clock: CountingClock
) -> None:
    """Reads raise after a failure, and so does the start of a delivery."""
    door = Door(clock)
    calls = Recorder()

    def handler(timer_id: int, payload: bytes) -> None:
        calls(timer_id, payload)
        door()

    disk = MemoryFileSystem()
    engine = open_engine(disk, handler, workers=1)
    engine.schedule_many([1, 1], [b"a", b"b"])
    clock.advance(2)
    door.await_somebody()
    disk.fail("datasync", errno.EIO)
    with pytest.raises(CommitUnknownError):
        engine.schedule(1)
    door.open()
    handlers_done(engine)
    assert calls.payloads == [b"a"]
    engine.close()
    heard = Recorder()
    heir = open_engine(disk.crashed("none"), heard)
    assert sorted(heard.wait_for(2)) == [b"a", b"b"]
    heir.close()


def test_a_full_disk_first_refuses_schedules_then_pauses_firing_and_heals(
    open_engine: OpenEngine, fired: Recorder, clock: CountingClock
) -> None:
    disk = MemoryFileSystem()
    engine = open_engine(disk, fired)
    ids = engine.schedule_many([1, 2, 3], [b"a", b"b", b"c"])
    engine._core.make_room(urgent=False)
    disk.capacity_bytes = disk.used_bytes
    repeat_until(DiskFullError, lambda: engine.schedule(9999, bytes(30_000)))
    repeat_until(DiskFullError, lambda: engine.schedule(9999))
    clock.advance(1.1)
    settle(engine, clock)
    assert fired.payloads == [b"a"], "fires and acknowledgements use the reserve"
    assert engine.cancel(ids[1]) is True
    assert engine.get(ids[0]) is None
    fill_up(engine._core, disk)
    with pytest.raises(DiskFullError):
        engine.cancel(ids[2])
    clock.advance(3)
    settle(engine, clock)
    assert fired.payloads == [b"a"], "firing pauses"
    disk.capacity_bytes = None
    clock.advance(1)
    settle(engine, clock)
    assert fired.payloads == [b"a", b"c"]
    engine.schedule(1, b"d")
    clock.advance(2)
    assert fired.wait_for(3) == [b"a", b"c", b"d"]


def test_a_handler_that_returns_on_a_full_disk_is_acknowledged_when_there_is_space(
    open_engine: OpenEngine, clock: CountingClock
) -> None:
    door = Door(clock)
    disk = MemoryFileSystem()
    engine = open_engine(disk, door)
    timer_id = engine.schedule(1)
    clock.advance(2)
    door.await_somebody()
    clock.settle(PATIENCE_S, threads=1)
    many = fill_up(engine._core, disk)
    door.open()
    settle(engine, clock)
    assert engine.cancel(timer_id) is False, "its handler ran"
    assert len(engine) == many + 1
    disk.capacity_bytes = None
    clock.advance(1)
    settle(engine, clock)
    assert engine.get(timer_id) is None
    engine._log.commit()
    heir = open_engine(disk.crashed("none"), Recorder())
    assert len(heir) == many


def test_closing_on_a_full_disk_loses_nothing(
    open_engine: OpenEngine, clock: CountingClock
) -> None:
    door = Door(clock)
    disk = MemoryFileSystem()
    engine = open_engine(disk, door)
    engine.schedule(1, b"ran")
    clock.advance(2)
    door.await_somebody()
    clock.settle(PATIENCE_S, threads=1)
    many = fill_up(engine._core, disk)
    door.open()
    clock.settle(PATIENCE_S, threads=2)
    assert engine.close(0) == many + 1
    disk.capacity_bytes = None
    fired = Recorder()
    open_engine(disk, fired)
    assert fired.wait_for(1) == [b"ran"]


def test_when_no_segment_can_be_made_firing_pauses_and_goes_on(
    open_engine: OpenEngine, fired: Recorder, clock: CountingClock
) -> None:
    """As when the process has no file descriptor left for a moment: the log is well."""
    disk = MemoryFileSystem()
    engine = open_engine(disk, fired, segment_size_bytes=5120)
    engine.schedule(1, b"due")
    engine._core.make_room(urgent=False)
    disk.fail("create", errno.EMFILE, name="filling.tmp", times=None)
    record = [timer_scheduled(Base.WALL, DEADLINE_MAX_NS, b"")]
    repeat_until(OSError, lambda: engine._core.transact(lambda _: record, urgent=True))
    with pytest.raises(OSError, match="Too many open files"):
        engine.schedule(1)
    clock.advance(2)
    settle(engine, clock)
    assert fired.calls == []
    assert engine._ticker.alive
    disk.heal()
    clock.advance(1)
    settle(engine, clock)
    assert fired.payloads == [b"due"]


def snapshots_on(disk: MemoryFileSystem) -> list[str]:
    return [name for name in disk.names() if name.endswith(".snap")]


def test_snapshots_are_written_while_it_runs_and_shorten_the_next_open(
    open_engine: OpenEngine, clock: CountingClock
) -> None:
    disk = MemoryFileSystem()
    engine = open_engine(disk, Recorder(), snapshot_every_bytes=20_000)
    for _ in range(20):
        ids = engine.schedule_many([99] * 20, [bytes(100)] * 20)
        for timer_id in ids[:10]:
            engine.cancel(timer_id)
    more = 0
    while not snapshots_on(disk):  # until the snapshot thread has had its turn
        engine.schedule(99, bytes(100))
        more += 1
    info = engine.snapshot()
    assert info is not None
    assert len(snapshots_on(disk)) == 2
    heir = open_engine(disk.crashed("none"), Recorder())
    assert heir.report is not None
    assert heir.report.snapshot is not None
    assert heir.report.snapshot.pin_lsn == info.pin_lsn
    assert len(heir) == 200 + more
    stats = heir.log_stats()
    assert stats is not None
    assert stats.scrub_errors == 0


def test_a_snapshot_that_fails_is_the_callers_error_and_nobody_elses(
    open_engine: OpenEngine, fired: Recorder, clock: CountingClock
) -> None:
    disk = MemoryFileSystem()
    engine = open_engine(disk, fired)
    engine.schedule(1, b"a")
    disk.fail("pwrite", errno.ENOSPC, name="snapshot.tmp", after=2)
    with pytest.raises(OSError, match="No space"):
        engine.snapshot()
    engine.schedule(1, b"b")
    clock.advance(2)
    assert sorted(fired.wait_for(2)) == [b"a", b"b"]
    assert engine.snapshot() is not None


# -- durability="interval" -----------------------------------------------------------------


def test_in_interval_mode_nobody_waits_for_the_disk_and_closing_does(
    open_engine: OpenEngine, fired: Recorder
) -> None:
    disk = GatedDisk()
    options = {"durability": "interval", "interval_ms": 60_000}
    engine = open_engine(disk, fired, **options)
    syncs = len(disk.syncers)
    timer_id = engine.schedule(60, b"kept")
    engine.schedule_many([60, 60], [b"", b""])
    assert engine.cancel(timer_id + 1)
    assert len(disk.syncers) == syncs
    lost = open_engine(disk.killed(), Recorder(), **options)
    assert len(lost) == 0, "a kill takes the last interval"
    assert engine.close() == 2
    assert len(open_engine(disk.crashed("none"), Recorder(), **options)) == 2


def test_in_interval_mode_the_disk_has_it_soon(
    open_engine: OpenEngine, fired: Recorder
) -> None:
    disk = MemoryFileSystem()
    engine = open_engine(disk, fired, durability="interval", interval_ms=1)
    synced = threading.Event()
    engine._log.add_listener(synced.set)
    engine.schedule(60, b"kept")
    assert synced.wait(PATIENCE_S)
    assert len(open_engine(disk.crashed("none"), Recorder())) == 1


# -- forks ---------------------------------------------------------------------------------

FORK = """
import os, sys, threading
from timingwheel import EngineClosedError, TimerEngine

started, go_on = threading.Event(), threading.Event()

def handler(timer_id, payload):
    if payload == b"held":
        started.set()
        go_on.wait(60)

engine = TimerEngine(sys.argv[1], handler, segment_size_bytes=65536, reserve_bytes=1)
kept = engine.schedule(3600, b"kept")
engine.schedule(0, b"held")
started.wait(60)
child = os.fork()
if child == 0:
    calls = [
        lambda: engine.schedule(1),
        lambda: engine.schedule_many([1], [b""]),
        lambda: engine.reschedule(kept, 1),
        lambda: engine.cancel(kept),
        lambda: engine.get(kept),
        lambda: engine.timers(),
        lambda: len(engine),
        lambda: engine.snapshot(),
    ]
    raised = 0
    for call in calls:
        try:
            call()
        except EngineClosedError as error:
            raised += "fork" in str(error)
    engine.close(grace=3600)  # at once, though the parent's handler runs
    os._exit(42 if raised == len(calls) else raised)
_, status = os.waitpid(child, 0)
assert os.waitstatus_to_exitcode(status) == 42, status
assert engine.schedule(3600, b"after") > kept
assert engine.cancel(kept) is True
try:
    TimerEngine(sys.argv[1], handler)
except Exception as error:
    assert type(error).__name__ == "StoreInUseError", error
else:
    raise AssertionError("the fork took the lock along")
go_on.set()
print(engine.close())
"""


def test_a_forked_child_may_not_use_the_engine_and_the_parent_goes_on(
    tmp_path: Path,
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORK, str(tmp_path)],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        text=True,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "1\n"), done.stderr
    with TimerEngine(tmp_path, lambda _, __: None, **SMALL) as engine:
        assert [timer.payload for timer in engine.timers()] == [b"after"]
