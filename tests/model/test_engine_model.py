"""Random programs on the engine, one step at a time, compared with a naive oracle.

No thread runs: the program is the caller, the tick thread, the worker, the snapshot
thread and the kernel that kills them all, so every order of their steps can come up.
"""

from __future__ import annotations

import logging

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.model.engine_driver import SECOND_NS, EngineDriver
from wal.testing import MemoryFileSystem

TIMERS_MAX = 60  # so that a tick's events always fit one frame of the smallest segment

delays = st.sampled_from([0, 0, 1, 1, 2, 0.25, 5, 60, 3600, 10**9])
payloads = st.binary(max_size=40) | st.sampled_from([b"", bytes(300), b"\xff" * 200])
waits = st.sampled_from([True, True, True, False])
limits = st.sampled_from([1, 2, 3, 7, 4096, 4096])
wall_steps = st.sampled_from([1, -1, 60, -60, 3600, -3600, 86_400]).map(
    lambda seconds: seconds * SECOND_NS
)
downtimes = st.sampled_from([0, 1, 2 * SECOND_NS, 3600 * SECOND_NS])


class EngineMachine(RuleBasedStateMachine):
    """The programs."""

    @initialize(
        segment_size_bytes=st.sampled_from([5632, 8192, 16384]),
        durability=st.sampled_from(["durable", "durable", "interval"]),
    )
    def begin(self, segment_size_bytes: int, durability: str) -> None:
        self.driver = EngineDriver(
            MemoryFileSystem(),
            segment_size_bytes=segment_size_bytes,
            durability="interval" if durability == "interval" else "durable",
        )
        self.driver.open()

    # -- requests -------------------------------------------------------------------------

    @precondition(lambda self: self.room() > 0)
    @rule(delay=delays, payload=payloads, wait=waits)
    def schedule(self, delay: float, payload: bytes, wait: bool) -> None:
        self.driver.schedule(delay, payload, wait=wait)

    @precondition(lambda self: self.room() > 0)
    @rule(
        seconds=st.sampled_from([-7200, -60, -1, 0, 0, 1, 2, 60, 3600, 10**9]),
        ns=st.sampled_from([0, 1, -1, 40_000]),
        payload=payloads,
        wait=waits,
    )
    def schedule_at(self, seconds: int, ns: int, payload: bytes, wait: bool) -> None:
        wall_ns = self.driver.clock.wall_ns() + seconds * SECOND_NS + ns
        self.driver.schedule_at(max(wall_ns, 0), payload, wait=wait)

    @precondition(lambda self: self.room() > 8)
    @rule(
        timers=st.lists(st.tuples(delays, st.binary(max_size=20)), max_size=8),
        wait=waits,
    )
    def schedule_many(self, timers: list[tuple[float, bytes]], wait: bool) -> None:
        self.driver.schedule_many(
            [delay for delay, _ in timers],
            [payload for _, payload in timers],
            wait=wait,
        )

    @rule(data=st.data(), delay=delays, wait=waits)
    def reschedule(self, data: st.DataObject, delay: float, wait: bool) -> None:
        self.driver.reschedule(self.an_id(data), delay, wait=wait)

    @rule(data=st.data(), wait=waits)
    def cancel(self, data: st.DataObject, wait: bool) -> None:
        self.driver.cancel(self.an_id(data), wait=wait)

    @rule()
    def sync(self) -> None:
        self.driver.sync()

    # -- the tick and the worker ----------------------------------------------------------

    @rule(limit=limits)
    def fire(self, limit: int) -> None:
        self.driver.fire(limit)

    @precondition(lambda self: self.driver.queue)
    @rule(data=st.data())
    def hand_over(self, data: st.DataObject) -> None:
        self.driver.begin(data.draw(st.integers(0, len(self.driver.queue) - 1)))

    @precondition(lambda self: self.driver.running)
    @rule(data=st.data(), wait=waits)
    def acknowledge(self, data: st.DataObject, wait: bool) -> None:
        place = data.draw(st.integers(0, len(self.driver.running) - 1))
        self.driver.acknowledge(place, wait=wait)

    @precondition(lambda self: self.driver.running)
    @rule(data=st.data(), wait=waits)
    def redeliver_later(self, data: st.DataObject, wait: bool) -> None:
        place = data.draw(st.integers(0, len(self.driver.running) - 1))
        self.driver.redeliver_later(place, wait=wait)

    # -- time -----------------------------------------------------------------------------

    @rule(
        seconds=st.sampled_from([0, 0.25, 1, 1, 2, 60, 3600]), ns=st.integers(0, 70_000)
    )
    def advance(self, seconds: float, ns: int) -> None:
        self.driver.clock.advance(seconds, ns=ns)

    @rule(step_ns=wall_steps, notice=st.sampled_from([True, True, True, False]))
    def step_wall(self, step_ns: int, notice: bool) -> None:
        self.driver.step_wall(step_ns, notice=notice)

    # -- snapshots ------------------------------------------------------------------------

    @rule()
    def snapshot(self) -> None:
        self.driver.snapshot()

    @rule()
    def begin_snapshot(self) -> None:
        self.driver.begin_snapshot()

    @precondition(lambda self: self.driver.snapshotting)
    @rule()
    def add_to_snapshot(self) -> None:
        self.driver.add_to_snapshot()

    @precondition(lambda self: self.driver.snapshotting)
    @rule()
    def finish_snapshot(self) -> None:
        self.driver.finish_snapshot()

    # -- ends -----------------------------------------------------------------------------

    @rule(
        end=st.sampled_from(["close", "kill", "none", "all", "names", "bytes"])
        | st.integers(0, 2**30).map(lambda seed: f"random {seed}"),
        down_ns=downtimes,
        step_ns=st.just(0) | wall_steps,
    )
    def end_and_reopen(self, end: str, down_ns: int, step_ns: int) -> None:
        driver = self.driver
        match end:
            case "close":
                driver.close()
            case "kill":
                driver.kill()
            case label:  # the power fails
                driver.kill(driver.disk.crashed(label))
        driver.reopen(down_ns=down_ns, step_ns=step_ns)

    # -- what always holds ----------------------------------------------------------------

    @invariant()
    def everything_is_as_the_oracle_says(self) -> None:
        if hasattr(self, "driver"):
            self.driver.compare()

    def teardown(self) -> None:
        """Every timer that was not cancelled is delivered in the end, each once."""
        if not hasattr(self, "driver"):
            return
        driver = self.driver
        driver.kill()
        driver.reopen()
        driver.clock.advance(2 * 10**9)
        driver.step_wall(2 * 10**9 * SECOND_NS)  # what a step back had put off, too
        due = set(driver.oracle.timers)
        while driver.fire():
            driver.deliver_all()
        assert not driver.oracle.timers, f"{due} were due"
        driver.check()
        driver.close()

    # -- inside ---------------------------------------------------------------------------

    def room(self) -> int:
        return TIMERS_MAX - len(self.driver.oracle.timers)

    def an_id(self, data: st.DataObject) -> int:
        """Mostly a live timer's id, else one that never was or is no more."""
        known = sorted(self.driver.oracle.timers)
        strange = st.integers(1, self.driver.oracle.highest_lsn + 3)
        return data.draw(st.sampled_from(known) | strange if known else strange)


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Thousands of torn tails would be logged and kept."""
    caplog.set_level(logging.CRITICAL, logger="wal")


@pytest.mark.timeout(500)  # what shrinking a failure may take
def test_random_programs_agree_with_the_oracle() -> None:
    # Without the phase that explains, which traces every line and takes minutes here.
    phases = (Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink)
    run_state_machine_as_test(
        EngineMachine, settings=settings(stateful_step_count=50, phases=phases)
    )
