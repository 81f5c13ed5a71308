"""Cases from public bug reports of other timer engines, each with the right outcome.

The docstring names the project and the thread.
"""

from __future__ import annotations

import errno
import sys
import threading

import pytest

from tests.engine.conftest import OpenEngine
from tests.engine.stage import (
    PATIENCE_S,
    SECOND_NS,
    TICK_S,
    CountingClock,
    Door,
    GatedDisk,
    Recorder,
    repeat_until,
    settle,
)
from tests.model.engine_driver import EngineDriver
from timingwheel.engine.engine import TimerEngine
from timingwheel.engine.timeline import TICK_NS
from timingwheel.errors import EngineClosedError, EngineFailedError
from wal.errors import CommitUnknownError
from wal.testing import MemoryFileSystem, SimulatedCrash


class Periodic(Recorder):
    """A handler that re-arms its own timer each time, as users build a period."""

    def __init__(self, period_s: float) -> None:
        super().__init__()
        self.period_s = period_s
        self.engine: TimerEngine | None = None

    def __call__(self, timer_id: int, payload: bytes) -> None:
        assert self.engine is not None
        self.engine.schedule(self.period_s, payload)
        super().__call__(timer_id, payload)


# -- clocks --------------------------------------------------------------------------------


def test_a_period_that_stalled_for_an_hour_does_not_catch_up(
    open_engine: OpenEngine, clock: CountingClock
) -> None:
    """tokio pull 3721, apscheduler issues 526 and 35: every missed tick was replayed."""
    handler = Periodic(1)
    engine = handler.engine = open_engine(":memory:", handler)
    engine.schedule(1, b"p")
    clock.advance(3600)
    settle(engine, clock)
    assert len(handler.calls) == 1
    clock.advance(1 + TICK_S)
    settle(engine, clock)
    assert len(handler.calls) == 2


@pytest.mark.parametrize("back_ns", [1, TICK_NS, 2 * SECOND_NS])
def test_a_clock_that_goes_back_a_little_kills_nobody(
    open_engine: OpenEngine, clock: CountingClock, fired: Recorder, back_ns: int
) -> None:
    """tokio issues 3619 and 684, tikv issue 14518: an assertion killed the worker."""
    engine = open_engine(MemoryFileSystem(), fired)
    clock.advance(100)
    settle(engine, clock)
    clock.step(-back_ns)
    settle(engine, clock)
    engine.schedule(10, b"delay")
    engine.schedule_at(clock.wall_ns() + 10 * SECOND_NS, b"wall")
    clock.advance(9.9)
    settle(engine, clock)
    assert fired.calls == []
    clock.advance(0.2)
    settle(engine, clock)
    assert sorted(fired.payloads) == [b"delay", b"wall"]
    engine._core.check()


@pytest.mark.parametrize("step_s", [-7200, 7200])
def test_a_delay_does_not_move_with_the_wall_clock(
    open_engine: OpenEngine, clock: CountingClock, fired: Recorder, step_s: int
) -> None:
    """apscheduler issue 351, schedule pull 323: jobs waited for the clock to catch up."""
    engine = open_engine(MemoryFileSystem(), fired)
    engine.schedule(10, b"p")
    clock.advance(5)
    clock.step(step_s * SECOND_NS)
    clock.advance(4.9)
    settle(engine, clock)
    assert fired.calls == []
    clock.advance(0.2)
    settle(engine, clock)
    assert fired.payloads == [b"p"]


def test_a_wall_timer_that_a_step_back_has_passed_waits_and_fires_once(
    open_engine: OpenEngine, clock: CountingClock, fired: Recorder
) -> None:
    engine = open_engine(MemoryFileSystem(), fired)
    noon_ns = clock.wall_ns() + 3600 * SECOND_NS
    engine.schedule_at(noon_ns, b"noon")
    clock.step(3601 * SECOND_NS)
    settle(engine, clock)
    assert fired.payloads == [b"noon"]
    clock.step(-7200 * SECOND_NS)
    settle(engine, clock)
    engine.schedule_at(noon_ns, b"again at noon")
    clock.advance(7100)
    settle(engine, clock)
    assert fired.payloads == [b"noon"]
    clock.advance(100)
    settle(engine, clock)
    assert fired.payloads == [b"noon", b"again at noon"]


@pytest.mark.parametrize("boottime", [True, False])
def test_a_suspended_delay_counts_where_the_system_can_tell(
    open_engine: OpenEngine, clock: CountingClock, fired: Recorder, boottime: bool
) -> None:
    """golang issues 24595 and 35012, systemd pull 36990: late by the sleep.

    Without a clock that counts suspended time the sleep looks like a step, and a step
    moves no delay.
    """
    engine = open_engine(MemoryFileSystem(), fired)
    engine.schedule(3600, b"p")
    clock.suspend(900 * SECOND_NS, boottime=boottime)
    settle(engine, clock)
    left_s = 2700 if boottime else 3600
    clock.advance(left_s - 1)
    settle(engine, clock)
    assert fired.calls == []
    clock.advance(1 + TICK_S)
    settle(engine, clock)
    assert fired.payloads == [b"p"]


def test_a_deadline_a_nanosecond_ahead_is_not_reached_yet(
    open_engine: OpenEngine, fired: Recorder
) -> None:
    """cpython issues 116342 and 75720, uvloop: a float of today's nanoseconds has
    steps of 256 of them, so timers fired early or never."""
    clock = CountingClock(wall_ns=1_700_000_000 * SECOND_NS // TICK_NS * TICK_NS)
    engine = open_engine(":memory:", fired, clock=clock)
    engine.schedule_at(clock.wall_ns() + 1, b"p")
    settle(engine, clock)
    assert fired.calls == []
    clock.advance(ns=TICK_NS)
    settle(engine, clock)
    assert fired.payloads == [b"p"]


# -- waiting and waking --------------------------------------------------------------------


def test_the_sleeper_is_armed_again_when_the_head_moves(
    open_engine: OpenEngine, clock: CountingClock, fired: Recorder
) -> None:
    """tokio issues 849 and 1700, msquic issue 3206."""
    engine = open_engine(":memory:", fired)
    far = engine.schedule(10_000, b"far")
    engine.schedule(600, b"nearer")
    clock.advance(600.1)
    settle(engine, clock)
    assert fired.payloads == [b"nearer"]
    moved = engine.schedule(200, b"moved")
    settle(engine, clock)
    engine.reschedule(moved, 5)
    clock.advance(5.1)
    settle(engine, clock)
    assert fired.payloads == [b"nearer", b"moved"]
    head = engine.schedule(50)
    settle(engine, clock)
    waits = len(clock.untils)
    assert engine.cancel(head)
    clock.advance(100)
    settle(engine, clock)
    assert len(clock.untils) <= waits + 2
    assert engine.get(far) is not None


def test_a_waiter_notices_that_the_last_timer_went_or_came_to_the_past(
    open_engine: OpenEngine, clock: CountingClock, fired: Recorder
) -> None:
    """tokio issue 6751, pulls 8320 and 8274: it slept on."""
    engine = open_engine(":memory:", fired)
    timer_id = engine.schedule(10_000, b"p")
    settle(engine, clock)
    engine.reschedule(timer_id, 0)
    clock.advance(TICK_S)
    settle(engine, clock)
    assert fired.payloads == [b"p"]
    last = engine.schedule(10_000)
    settle(engine, clock)
    assert engine.cancel(last)
    assert engine.close() == 0  # returns at once though its thread waited for `last`
    assert not engine._ticker.alive


def test_a_wait_after_slow_work_is_reckoned_from_a_fresh_clock(
    open_engine: OpenEngine, clock: CountingClock, fired: Recorder
) -> None:
    """apscheduler pull 754: the time before the work was taken for now."""
    disk = GatedDisk()
    engine = open_engine(disk, fired)
    engine.schedule(1, b"slow")
    engine.schedule(30, b"fell due meanwhile")
    engine.schedule(100, b"next")
    due_ns = clock.monotonic_ns() + 100 * SECOND_NS
    gate = disk.gate = Door()
    clock.advance(1.1)
    gate.await_somebody()
    clock.advance(55)  # the disk takes that long
    gate.open()
    settle(engine, clock)
    assert fired.payloads == [b"slow", b"fell due meanwhile"]
    until_ns = [until for until in clock.untils if until][-1]
    assert clock.monotonic_ns() < until_ns <= due_ns + TICK_NS


# -- handlers ------------------------------------------------------------------------------


def test_a_handler_can_cancel_a_timer_that_is_due_with_its_own(
    open_engine: OpenEngine, clock: CountingClock
) -> None:
    """connectedhomeip issue 19387: the batch had been grabbed first."""
    seen: list[object] = []

    def handler(timer_id: int, payload: bytes) -> None:
        seen.append(payload)
        if payload == b"a":
            seen.append(engine.cancel(timer_id + 1))

    engine = open_engine(MemoryFileSystem(), handler, workers=1)
    engine.schedule_many([1, 1], [b"a", b"b"])
    clock.advance(2)
    settle(engine, clock)
    assert seen == [b"a", True]
    assert len(engine) == 0


def test_a_handler_may_cancel_its_neighbours_and_add_itself_again(
    open_engine: OpenEngine, clock: CountingClock
) -> None:
    """timer-wheel pull 2, bngblaster pull 361, ModernUO pull 705: the slot broke."""
    calls = Recorder()

    def handler(timer_id: int, payload: bytes) -> None:
        calls(timer_id, payload)
        if len(calls.calls) == 1:
            cancelled = [engine.cancel(timer_id + n) for n in range(1, 11)]
            assert cancelled == [True] * 10
            engine.schedule(64, b"again")

    engine = open_engine(MemoryFileSystem(), handler, workers=1)
    engine.schedule_many([1] * 11, [b"first"] + [b"neighbour"] * 10)
    clock.advance(1.1)
    settle(engine, clock)
    assert len(engine) == 1
    clock.advance(63.9)
    settle(engine, clock)
    assert calls.payloads == [b"first"]
    clock.advance(0.2)
    settle(engine, clock)
    assert calls.payloads == [b"first", b"again"]
    engine._core.check()


def test_a_timer_that_arms_itself_without_delay_starves_nobody(
    open_engine: OpenEngine, clock: CountingClock
) -> None:
    """libuv issue 4245, envoy pull 11823, tgstation pull 38994: one pass for ever."""
    handler = Periodic(0)
    engine = handler.engine = open_engine(":memory:", handler, workers=1)
    engine.schedule(0, b"greedy")
    engine.schedule(1, b"greedy too")
    for rounds in range(1, 5):
        clock.advance(TICK_S)
        settle(engine, clock)
        assert len(handler.calls) == rounds, "once in each moment"
    clock.advance(1)
    settle(engine, clock)
    assert b"greedy too" in handler.payloads


def test_a_handler_that_raises_stops_nobody(
    open_engine: OpenEngine, clock: CountingClock
) -> None:
    """netty issue 2662, reactor issue 276: the loop died and all timers with it."""
    calls = Recorder()

    def handler(timer_id: int, payload: bytes) -> None:
        if payload == b"bad":
            raise LookupError(payload)
        calls(timer_id, payload)

    engine = open_engine(":memory:", handler)
    engine.schedule_many([1, 1, 1, 2], [b"a", b"bad", b"b", b"c"])
    clock.advance(1.1)
    settle(engine, clock)
    assert sorted(calls.payloads) == [b"a", b"b"]
    assert engine._ticker.alive
    clock.advance(1)
    settle(engine, clock)
    assert calls.payloads[2:] == [b"c"]
    assert len(engine) == 1  # the bad one waits for its next delivery


def test_closing_says_what_stays_and_lets_nothing_in(
    open_engine: OpenEngine, clock: CountingClock
) -> None:
    """netty issues 14081 and 366, tokio issue 2789: live handles, new timers, panics."""
    door, refused = Door(), threading.Event()

    def handler(timer_id: int, payload: bytes) -> None:
        door()
        try:
            engine.schedule(1)
        except EngineClosedError:
            refused.set()
            raise

    engine = open_engine(MemoryFileSystem(), handler)
    ids = engine.schedule_many([1, 60, 60, 60, 60], [b""] * 5)
    clock.advance(2)
    door.await_somebody()
    stayed: list[int] = []
    closing = threading.Thread(target=lambda: stayed.append(engine.close()))
    closing.start()
    with engine._dispatcher._changed:
        engine._dispatcher._changed.wait_for(
            lambda: engine._dispatcher._stopped, PATIENCE_S
        )
    door.open()
    closing.join(PATIENCE_S)
    assert refused.is_set()
    assert stayed == [5]
    assert engine.cancel(ids[1]) is False
    with pytest.raises(EngineClosedError):
        engine.schedule(1)


# -- many threads, much memory -------------------------------------------------------------


def test_four_threads_insert_while_the_wheel_turns_and_all_fire(
    open_engine: OpenEngine, clock: CountingClock, fired: Recorder
) -> None:
    """timingwheel (Go) issue 53: an insert of one whole turn during a flush deadlocked."""
    engine = open_engine(":memory:", fired)
    tick_s = TICK_NS / SECOND_NS
    stop = threading.Event()

    def insert() -> None:
        for number in range(200):
            engine.schedule((64, 256, 4096)[number % 3] * tick_s)

    def turn() -> None:
        while not stop.is_set():
            clock.advance(ns=TICK_NS * 64)

    turner = threading.Thread(target=turn)
    threads = [threading.Thread(target=insert) for _ in range(4)]
    for thread in [turner, *threads]:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
    stop.set()
    turner.join(PATIENCE_S)
    clock.advance(1)
    fired.wait_for(800)
    settle(engine, clock)
    assert len(fired.calls) == 800
    assert len(engine) == 0
    engine._core.check()


def test_a_cancelled_timer_keeps_neither_its_payload_nor_a_place(
    open_engine: OpenEngine, fired: Recorder
) -> None:
    """netty pull 2541, golang issue 75935, asyncio issue 186, uvloop pull 240."""
    engine = open_engine(":memory:", fired)
    payloads = [b"payload %d" % number for number in range(5_000)]
    before = [sys.getrefcount(payload) for payload in payloads]
    month_s = 30 * 86_400
    for payload in payloads:
        engine.schedule(month_s, payload)
    engine.schedule_many([month_s] * 5_000, payloads)
    for timer in engine.timers(10_000):
        assert engine.cancel(timer.id)
    del timer, payload
    assert [sys.getrefcount(payload) for payload in payloads] == before
    assert len(engine) == 0
    state = engine._core.state
    assert len(state.timeline) == 0
    assert state.next_due_ns() is None
    engine.schedule_many([month_s] * 5_000, payloads)
    assert state.table.slot_count == 10_000, "free rows are used again"


# -- the disk ------------------------------------------------------------------------------


def test_a_kill_between_any_two_writes_loses_nothing_and_makes_nothing_early() -> None:
    """rocketmq issues 10668, 6984 and 9735, rocketmq-rust issue 9154, etcd pull 13491.

    What was left of each delay is left of it still, and what was cancelled stays so.
    """
    whole = _kept_timers(None)
    for index in range(1, whole.calls + 1):
        driver = _kept_timers(index)
        heir = driver.heir(driver.disk.killed())
        heir.open()  # compares all deadlines, payloads and attempts with the oracle's
        for timer_id in driver.oracle.timers:
            seen = heir.timers.get(timer_id)
            if seen is not None:
                left_ns = seen.deadline_ns - heir.clock.wall_ns()
                assert left_ns == driver.oracle.timers[timer_id].deadline_ns - (
                    heir.clock.wall_ns()
                )


def _kept_timers(crash_index: int | None) -> EngineDriver:
    driver = EngineDriver(MemoryFileSystem(), segment_size_bytes=5120)
    if crash_index is not None:
        driver.crash_at(crash_index, after=True)
    try:
        driver.open()
        for seconds in range(1, 7):
            driver.schedule(10 * seconds, bytes(100 * seconds))
            driver.clock.advance(0.5)
        driver.cancel(2)
        driver.reschedule(3, 77)
        driver.clock.advance(10)
        driver.fire()
        driver.snapshot()
        driver.begin()
        driver.acknowledge()
        driver.cancel(4)
    except SimulatedCrash:
        pass
    return driver


def test_after_one_write_error_nothing_is_acknowledged_any_more(
    open_engine: OpenEngine, clock: CountingClock, fired: Recorder
) -> None:
    """beanstalkd issue 536: the log was off, and puts were acknowledged still."""
    disk = MemoryFileSystem()
    engine = open_engine(disk, fired)
    disk.fail("datasync", errno.EIO, name=_segment(disk), after=5)
    acknowledged: list[int] = []
    count = repeat_until(
        CommitUnknownError, lambda: acknowledged.append(engine.schedule(60))
    )
    assert count == 4
    for _ in range(3):
        with pytest.raises(EngineFailedError):
            engine.schedule(60)
    assert engine._log.failure is not None
    engine.close()
    for crashed in (disk.killed(), disk.crashed("none"), disk.crashed("all")):
        heir = open_engine(crashed, fired)
        found = [timer.id for timer in heir.timers()]
        unknown = acknowledged[-1] + 1
        assert found in (acknowledged, [*acknowledged, unknown])
        heir.close()


def _segment(disk: MemoryFileSystem) -> str:
    return [name for name in disk.names() if name.endswith(".seg")][-1]


def test_503_timers_killed_between_claim_handler_and_done_are_all_delivered_again() -> (
    None
):
    """huey issue 915, quartz issue 1516, jobrunr issue 15: 503 of 503 were lost, or
    stood "acquired" for ever."""
    driver = EngineDriver(MemoryFileSystem(), segment_size_bytes=65536)
    driver.open()
    ids = [*driver.schedule_many([1.0] * 503, [b"%d" % n for n in range(503)])]
    driver.clock.advance(2)
    assert driver.fire() == ids
    for _ in range(300):
        driver.begin()  # of these the handler starts
    for _ in range(100):
        driver.acknowledge()  # of these it is known durably that it returned
    for _ in range(100):
        driver.acknowledge(wait=False)  # and of these nobody knows
    driver.kill(driver.disk.crashed("none"))
    driver.reopen()
    left = ids[100:]
    assert driver.fire() == left
    for timer_id in left:
        seen = driver.timers.get(timer_id)
        assert seen is not None
        assert (seen.attempt, seen.fired) == (2, True)
    driver.deliver_all()
    assert len(driver.timers) == 0
    driver.check()


def test_an_hour_of_downtime_is_one_run_of_a_period_and_not_sixty(
    open_engine: OpenEngine, clock: CountingClock
) -> None:
    """apscheduler issue 463, slatedb issue 323: a burst of missed runs at the start."""
    disk = MemoryFileSystem()
    handler = Periodic(60)
    engine = handler.engine = open_engine(disk, handler)
    engine.schedule(60, b"p")
    engine.close()
    clock.advance(3600)
    handler = Periodic(60)
    handler.engine = open_engine(disk, handler, autostart=False)
    handler.engine.start()
    settle(handler.engine, clock)
    assert len(handler.calls) == 1
    clock.advance(60.1)
    settle(handler.engine, clock)
    assert len(handler.calls) == 2


def test_a_clock_set_back_over_a_restart_makes_nothing_early_and_nothing_twice(
    open_engine: OpenEngine, clock: CountingClock
) -> None:
    """systemd pull 43116: the clock was earlier than at the crash."""
    disk = MemoryFileSystem()
    fired = Recorder()
    engine = open_engine(disk, fired)
    start_ns = clock.wall_ns()
    engine.schedule_at(start_ns + 60 * SECOND_NS, b"past")
    engine.schedule_at(start_ns + 600 * SECOND_NS, b"coming")
    engine.schedule(600, b"delay")
    clock.advance(300)
    settle(engine, clock)
    assert fired.payloads == [b"past"]
    engine._log.commit()  # its acknowledgement too, which nobody waits for
    killed, heard = disk.killed(), Recorder()
    later = CountingClock(wall_ns=clock.wall_ns() - 3600 * SECOND_NS, monotonic_ns=9)
    heir = open_engine(killed, heard, clock=later)
    settle(heir, later)
    later.advance(299.9)
    settle(heir, later)
    assert heard.calls == []
    later.advance(0.2)
    settle(heir, later)
    assert heard.payloads == [b"delay"]
    later.advance(3600 - 0.2)
    settle(heir, later)
    assert heard.payloads == [b"delay"]
    later.advance(0.2)
    settle(heir, later)
    assert heard.payloads == [b"delay", b"coming"]
    assert len(heir) == 0
