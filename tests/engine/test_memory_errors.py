"""Memory runs out at the n-th allocation of a call: whole or not at all, never half.

A call that finds no memory raises MemoryError. Either its change is not there, or it is,
in memory as in the log; or the engine has failed, says so to everybody, and the next open
finds the change whole or not at all.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import pytest

from tests.model.engine_driver import EngineDriver
from tests.scarce_memory import BEARS_IT, each_without, error_without
from timingwheel.engine import lane
from timingwheel.engine.bodies import Lane
from timingwheel.errors import EngineFailedError
from wal.testing import MemoryFileSystem

pytestmark = BEARS_IT

TIMERS: Final = 12
Act = Callable[[EngineDriver], object]
State = dict[int, tuple[int, bytes, bool]]


def engine() -> EngineDriver:
    """Return an engine with timers of which some are due and one is with a handler."""
    driver = EngineDriver(MemoryFileSystem(), segment_size_bytes=64 << 10)
    driver.open()
    for number in range(TIMERS):
        driver.schedule(1 + number, b"payload %d" % number)
    driver.clock.advance(4.5)
    driver.core.step(2)
    driver.timers.begin(1)
    return driver


def schedule(driver: EngineDriver) -> None:
    driver.core.commit(driver.timers.schedule(50, b"new")[1])


def cancel(driver: EngineDriver) -> None:
    driver.core.commit(driver.timers.cancel(TIMERS)[1])


def reschedule(driver: EngineDriver) -> None:
    driver.core.commit(driver.timers.reschedule(TIMERS, 99)[1])


def schedule_many(driver: EngineDriver) -> None:
    _ids, lsn = driver.timers.schedule_many([7.0] * 9, [b"many"] * 9)
    driver.core.commit(lsn)


def fire(driver: EngineDriver) -> None:
    driver.core.step(10)


def acknowledge(driver: EngineDriver) -> None:
    driver.core.commit(driver.timers.acknowledge([1]))


def by_lane(kind: Callable[..., Any], name: str, *args: object) -> Act:
    def act(driver: EngineDriver) -> None:
        getattr(kind(driver.core), name)(*args)
        driver.core.commit(driver.log.appended_lsn)

    return act


ACTS: dict[str, Act] = {
    act.__name__: act
    for act in (schedule, cancel, reschedule, schedule_many, fire, acknowledge)
}
for kind, words in ((lane.Lane, "plain"), (Lane, "serving")):
    ACTS |= {
        f"{words} lane schedule": by_lane(kind, "schedule", 50, b"new"),
        f"{words} lane cancel": by_lane(kind, "cancel", TIMERS),
        f"{words} lane reschedule": by_lane(kind, "reschedule", TIMERS, 99),
        f"{words} lane many": by_lane(kind, "schedule_many", [7.0] * 9, [b"many"] * 9),
    }


def shown(driver: EngineDriver) -> State:
    return {t.timer_id: (t.deadline_ns, t.payload, t.fired) for t in driver._view()}


def reopened(driver: EngineDriver) -> State:
    """Return what the next process finds, all commits done."""
    driver.log.close()
    heir = EngineDriver(driver.disk.killed(), segment_size_bytes=64 << 10)
    log = heir._open_log(heir.disk)
    heir.timers = heir._make(log, driver.clock)
    heir.core = heir.timers.core
    return shown(heir)


def run_out(act: Act, index: int) -> tuple[EngineDriver, BaseException | None]:
    """Do an act whose `index`-th allocation fails."""
    driver = engine()
    return driver, error_without(partial(act, driver), index)


def sweep(act: Act, start: int, stride: int) -> Counter[str]:
    """Let every `stride`-th allocation fail until none does; count what came of it."""
    whole = engine()
    before = shown(whole)
    act(whole)
    after = shown(whole)
    outcomes: Counter[str] = Counter()
    trial = partial(run_out, act)
    for index, driver, error in each_without(trial, start=start, stride=stride):
        assert isinstance(error, MemoryError | None), repr(error)
        if driver.core.life.failed is not None:
            for ask in (
                lambda driver=driver: driver.timers.schedule(1, b""),
                lambda driver=driver: driver.timers.cancel(TIMERS),
                lambda driver=driver: driver.core.step(10),
                lambda driver=driver: driver.timers.begin(2),
            ):
                with pytest.raises(EngineFailedError, match="was cut off"):
                    ask()
            assert Lane(driver.core).schedule(1.0, b"") == 0
            outcomes["failed for good"] += 1
        else:
            driver.core.check()
            assert shown(driver) in (before, after), f"half done at allocation {index}"
            outcomes["refused" if shown(driver) == before else "done"] += 1
        is_done = shown(driver) == after and driver.core.life.failed is None
        found = reopened(driver)
        assert found in ([after] if is_done or error is None else [before, after])
    return outcomes


@pytest.mark.parametrize("name", ACTS)
def test_a_call_without_memory_is_whole_or_not_at_all(
    name: str, rng: random.Random
) -> None:
    outcomes = sweep(ACTS[name], rng.randint(1, 24), 24)
    assert outcomes


@pytest.mark.long
@pytest.mark.parametrize("name", ACTS)
def test_a_call_is_whole_or_not_at_all_wherever_memory_runs_out(name: str) -> None:
    outcomes = sweep(ACTS[name], 1, 1)
    print(name, dict(outcomes))
    assert outcomes["refused"] > 5
