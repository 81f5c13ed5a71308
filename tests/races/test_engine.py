"""Many callers of one TimerEngine, and all that can come between them."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
from collections import Counter
from functools import partial
from pathlib import Path

import pytest

from tests.engine.stage import PATIENCE_S, SMALL
from tests.wal.stores import Worker
from timingwheel import EngineClosedError, TimerEngine
from wal.testing import MemoryFileSystem

LONG_S = 3_600.0
SEEDS = [1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 101))]
seeds = pytest.mark.parametrize("seed", SEEDS)


class Ledger:
    """What callers were told, and what a handler was given."""

    def __init__(self) -> None:
        self.scheduled: set[int] = set()
        self.cancelled: set[int] = set()
        self.due: set[int] = set()
        self.delivered: Counter[int] = Counter()
        self._changed = threading.Condition()

    def on_fire(self, timer_id: int, _payload: bytes) -> None:
        with self._changed:
            self.delivered[timer_id] += 1
            self._changed.notify_all()

    def wait_for_all_due(self) -> None:
        """Return when all that is due and was not cancelled has come."""
        expected = self.due - self.cancelled
        with self._changed:
            come = self._changed.wait_for(
                lambda: expected <= self.delivered.keys(), PATIENCE_S
            )
        assert come, f"{sorted(expected - self.delivered.keys())} never came"

    def check(self, left: set[int]) -> None:
        """Hold what was promised; `left` is what the next open finds."""
        assert not self.cancelled & self.delivered.keys()
        assert not self.cancelled & left
        assert self.scheduled <= left | self.cancelled | self.delivered.keys()
        assert not left & self.delivered.keys(), "delivered, returned, and still there"
        assert set(self.delivered.values()) <= {1}


def timers_left(disk: MemoryFileSystem) -> set[int]:
    with TimerEngine(disk, Ledger().on_fire, autostart=False, **SMALL) as engine:
        engine._core.state.check()
        return {timer.id for timer in engine.timers(1_000_000)}


def act(engine: TimerEngine, ledger: Ledger, rng: random.Random) -> None:
    """Ask one thing, and note what was promised."""
    known = rng.choice(list(ledger.scheduled) or [1])
    match rng.randrange(6):
        case 0 | 1:
            delay = rng.choice((0.0, LONG_S))
            timer_id = engine.schedule(delay, b"x")
            ledger.scheduled.add(timer_id)
            if not delay:
                ledger.due.add(timer_id)
        case 2:
            ids = engine.schedule_many([LONG_S, 0.0, LONG_S], [b"", b"", b""])
            ledger.scheduled.update(ids)
            ledger.due.add(ids[1])
        case 3:
            if engine.cancel(known):
                assert known not in ledger.cancelled
                ledger.cancelled.add(known)
        case 4:
            if engine.reschedule(known, 0):
                ledger.due.add(known)
        case _:
            engine.get(known)
            len(engine)


@seeds
def test_of_many_callers_nothing_is_lost_and_what_was_cancelled_never_comes(
    seed: int,
) -> None:
    disk, ledger = MemoryFileSystem(), Ledger()
    engine = TimerEngine(disk, ledger.on_fire, **SMALL)

    def call(caller: int) -> None:
        rng = random.Random(f"{seed}-{caller}")
        for _ in range(40):
            act(engine, ledger, rng)

    workers = [Worker(partial(call, caller)) for caller in range(6)]
    for worker in workers:
        worker.outcome()
    ledger.wait_for_all_due()
    engine.close()
    ledger.check(timers_left(disk))


@seeds
def test_of_two_who_cancel_what_is_due_one_at_most_is_told_so_and_then_it_never_comes(
    seed: int,
) -> None:
    ledger, count = Ledger(), 40 + seed % 10
    gate = threading.Barrier(2)
    ids: list[int] = []
    answers: list[bool] = []
    with TimerEngine(":memory:", ledger.on_fire) as engine:

        def cancel_it() -> None:
            gate.wait(PATIENCE_S)
            answers.append(engine.cancel(ids[-1]))
            gate.wait(PATIENCE_S)

        def cancel_all() -> None:
            for _ in range(count):
                cancel_it()

        other = Worker(cancel_all)
        for _ in range(count):
            ids.append(engine.schedule(0))
            ledger.scheduled.add(ids[-1])
            ledger.due.add(ids[-1])
            cancel_it()
            assert len(answers) == 2
            assert sum(answers) <= 1
            if any(answers):
                ledger.cancelled.add(ids[-1])
            answers.clear()
        other.outcome()
        ledger.wait_for_all_due()
    ledger.check(set())


# -- the end ---------------------------------------------------------------------------------


@seeds
def test_whatever_a_close_races_with_holds_or_is_refused_as_closed(seed: int) -> None:
    disk, ledger = MemoryFileSystem(), Ledger()
    engine = TimerEngine(disk, ledger.on_fire, **SMALL)
    begun = threading.Semaphore(0)

    def call(caller: int) -> None:
        rng = random.Random(f"{seed}-{caller}")
        while True:
            try:
                act(engine, ledger, rng)
                if not rng.randrange(50):
                    engine.snapshot()
            except EngineClosedError:
                return
            finally:
                begun.release()

    callers = [Worker(partial(call, caller)) for caller in range(5)]
    for _ in range(20 + seed % 50):
        assert begun.acquire(timeout=PATIENCE_S)
    closers = [Worker(engine.close) for _ in range(3)]
    for worker in (*closers, *callers):
        worker.outcome()
    assert engine.cancel(1) is False
    ledger.check(timers_left(disk))


@seeds
def test_starts_that_race_with_each_other_and_a_close_leave_one_engine_or_none(
    seed: int,
) -> None:
    disk, ledger = MemoryFileSystem(), Ledger()
    engine = TimerEngine(disk, ledger.on_fire, autostart=False, **SMALL)
    ledger.scheduled.add(engine.schedule(LONG_S))
    before = set(threading.enumerate())
    gate = threading.Barrier(5)

    def start() -> None:
        gate.wait(PATIENCE_S)
        try:
            engine.start()
        except EngineClosedError:
            assert seed % 2, "nobody closes it"

    def close() -> None:
        gate.wait(PATIENCE_S)
        if seed % 2:
            engine.close()

    for worker in [*(Worker(start) for _ in range(4)), Worker(close)]:
        worker.outcome()
    engine.close()
    ledger.check(timers_left(disk))
    assert set(threading.enumerate()) <= before


# -- forks and signals -------------------------------------------------------------------------

AMID_TRAFFIC = """
import os, signal, sys, threading
from timingwheel import EngineClosedError, TimerEngine

sys.setswitchinterval(1e-6)
engine = TimerEngine(
    sys.argv[1], lambda *_: None, segment_size_bytes=65536, reserve_bytes=1
)
kept, ended, errors = [], threading.Event(), []

def call():
    try:
        while not ended.is_set():
            kept.append(engine.schedule(3600, b"kept"))
            engine.schedule(0)
            engine.cancel(engine.schedule(3600))
    except BaseException as error:
        errors.append(error)

threads = [threading.Thread(target=call) for _ in range(4)]
for thread in threads:
    thread.start()

def child():
    signal.alarm(60)  # whoever waits for a lock that nobody holds here dies of it
    calls = [
        lambda: engine.schedule(1),
        lambda: engine.schedule_many([1], [b""]),
        lambda: engine.schedule_at(1),
        lambda: engine.reschedule(1, 1),
        lambda: engine.cancel(1),
        lambda: engine.get(1),
        lambda: engine.timers(),
        lambda: len(engine),
        lambda: engine.snapshot(),
        lambda: engine.start(),
    ]
    raised = 0
    for ask in calls:
        try:
            ask()
        except EngineClosedError as error:
            raised += "fork" in str(error)
    engine.close()
    os._exit(42 if raised == len(calls) else raised)

for _ in range(int(sys.argv[2])):
    pid = os.fork()
    if pid == 0:
        child()
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 42, status
ended.set()
for thread in threads:
    thread.join()
assert not errors, errors
engine.close()
with TimerEngine(sys.argv[1], lambda *_: None, autostart=False) as again:
    found = {timer.id for timer in again.timers(10**9)}
assert set(kept) <= found, set(kept) - found
print(len(kept))
"""

AMID_SIGNALS = """
import random, signal, sys
from timingwheel import EngineFailedError, TimerEngine

class Interrupted(BaseException):
    pass

def interrupt(*_):
    global interrupts, armed
    if armed:
        armed = False
        interrupts += 1
        raise Interrupted

def opened(**options):
    return TimerEngine(
        sys.argv[1],
        lambda *_: None,
        segment_size_bytes=65536,
        reserve_bytes=1,
        **options,
    )

interrupts, armed, torn, most = 0, False, 0, int(sys.argv[2])
random.seed(int(sys.argv[3]))
sys.setswitchinterval(1e-6)
engine = opened()
kept, cancelled = set(), set()
signal.signal(signal.SIGALRM, interrupt)
while interrupts < most:
    known = None
    signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-6, 2e-3))
    try:
        armed = True
        timer_id = engine.schedule(3600, b"kept")
        kept.add(timer_id)
        ids = engine.schedule_many([3600, 0], [b"a", b"b"])
        known, timer_id = timer_id, ids[0]
        kept.discard(known)  # from here on it may be gone
        if engine.cancel(known):
            cancelled.add(known)
        engine.reschedule(timer_id, 7200)
        kept.add(timer_id)
        engine.get(timer_id)
        armed = False
    except Interrupted:
        pass
    except EngineFailedError as error:
        armed = False
        assert isinstance(error.__cause__, Interrupted), error
        torn += 1
        engine.close()
        engine = opened()
signal.setitimer(signal.ITIMER_REAL, 0)
signal.signal(signal.SIGALRM, signal.SIG_DFL)
signal.alarm(60)  # what was left locked stays so, and close would wait for ever
engine.close()
with opened(autostart=False) as again:
    again._core.state.check()
    found = {timer.id for timer in again.timers(10**9)}
assert kept <= found, kept - found
assert not cancelled & found
print(interrupts, torn, len(kept), len(cancelled))
"""


def run_program(program: str, *words: object) -> str:
    command = [sys.executable, "-W", "ignore", "-c", program, *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr or done.returncode
    return done.stdout


def test_a_child_that_is_forked_amid_traffic_gets_an_error_and_no_dead_lock(
    tmp_path: Path,
) -> None:
    run_program(AMID_TRAFFIC, tmp_path, 5)


@pytest.mark.long
def test_none_of_many_children_that_are_forked_amid_traffic_locks_dead(
    tmp_path: Path,
) -> None:
    run_program(AMID_TRAFFIC, tmp_path, 300)


@pytest.mark.skipif(
    hasattr(sys, "gettotalrefcount"),
    reason="a debug build of CPython 3.11 ends in a check of its own where a signal's handler "
    "raises amid os.fstat (fill_time in posixmodule.c multiplies with an error set)",
)
@seeds
def test_a_signal_that_raises_amid_a_call_leaves_nothing_locked_and_nothing_lost(
    tmp_path: Path, seed: int
) -> None:
    run_program(AMID_SIGNALS, tmp_path, 200, seed)
