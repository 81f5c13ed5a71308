"""The engine under crashes, and whether the oracle sees an engine that cheats.

Over all crash states: no acknowledged timer is lost, no cancelled one fires, no payload
is wrong, and every legal state opens.
"""

from __future__ import annotations

import logging
import random

import pytest

from tests.crash.engine_sweep import EngineSweep, Step, life
from tests.model.engine_driver import MakeTimers
from tests.model.engine_oracle import Violation
from timingwheel.clock import Clock
from timingwheel.engine.core import EngineCore
from timingwheel.engine.owner import Due
from timingwheel.engine.timers import Timers
from timingwheel.testing import ManualClock
from wal.log import Log


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Thousands of torn tails would be logged and kept."""
    caplog.set_level(logging.CRITICAL, logger="wal")


def test_a_life_survives_crashes_all_over_its_disk_calls(rng: random.Random) -> None:
    sweep = EngineSweep(life(), rng)
    sweep.run(stride=3)
    print(f"{sweep.points} crash points, {sweep.states} states")
    assert sweep.states > 150


@pytest.mark.long
def test_a_life_survives_a_crash_at_every_disk_call(rng: random.Random) -> None:
    sweep = EngineSweep(life(), rng, states_max=12, nested_odds=0.5)
    sweep.run()
    print(f"{sweep.points} crash points, {sweep.states} states")
    assert sweep.states > 2000


# -- planted faults: each must be seen -----------------------------------------------------


class HastyCore(EngineCore):
    """Fires are released before their commit."""

    stepping = False

    def step(self, limit: int) -> Due:
        self.stepping = True
        try:
            return super().step(limit)
        finally:
            self.stepping = False

    def commit(self, lsn: int) -> None:
        if not self.stepping:
            super().commit(lsn)


class ForgetfulCore(EngineCore):
    """What was fired before a restart is not delivered again."""

    def __init__(self, log: Log, owner: Timers, clock: Clock) -> None:
        super().__init__(log, owner, clock)
        self.state._ahead.clear()


class OnCore(Timers):
    """Timers on a core of one's choice."""

    def __init__(self, log: Log, clock: ManualClock, core: type[EngineCore]) -> None:
        self._startable = set()
        self.core = core(log, self, clock)
        self._submit = self.core.submit


class HastyCancel(Timers):
    """The reply to a cancel does not wait for its record."""

    def cancel(self, timer_id: int) -> tuple[bool, int]:
        done, _ = super().cancel(timer_id)
        return done, 0


def a_short_life() -> list[Step]:
    """Return one with a few fires and cancels, so that a fault is met soon."""
    return [
        lambda d: d.schedule_many([0.25, 0.25, 9], [b"a", b"b", b"c"]),
        lambda d: d.clock.advance(1),
        lambda d: d.fire(1),
        lambda d: d.begin(),
        lambda d: d.acknowledge(),
        lambda d: d.fire(),
        lambda d: d.begin(),
        lambda d: d.cancel(max(d.oracle.timers)),
        lambda d: d.fire(),
        lambda d: d.close(),
    ]


def test_an_honest_engine_is_not_accused(rng: random.Random) -> None:
    EngineSweep(a_short_life(), rng).run()


@pytest.mark.parametrize(
    ("make", "seen"),
    [
        (lambda log, clock: OnCore(log, clock, HastyCore), "was promised"),
        (lambda log, clock: OnCore(log, clock, ForgetfulCore), "before the restart"),
        (lambda log, clock: HastyCancel(log, clock, may_wait=True), "was promised"),
    ],
    ids=["a fire before its commit", "no redelivery", "a cancel before its commit"],
)
def test_an_engine_that_cheats_is_caught(
    make: MakeTimers, seen: str, rng: random.Random
) -> None:
    with pytest.raises(Violation, match=seen) as caught:
        EngineSweep(a_short_life(), rng, make=make).run()
    print(caught.value)
