"""Crash an engine's life at every disk call, and hold what each crash left to the oracle.

At each crash point the power may fail (some of the legal states of the disk), or only the
process dies, and the recovery after either may be cut off once more. Each state is opened,
compared, and lived on with until every timer was delivered.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from tests.model.engine_driver import SECOND_NS, EngineDriver, MakeTimers, make_timers
from tests.model.engine_oracle import Violation
from wal.testing import MemoryFileSystem, SimulatedCrash

Step = Callable[[EngineDriver], object]
FOR_EVER_S = 4 * 10**8


def life() -> list[Step]:
    """Return a life that meets every kind of record, and each kind of disk call twice."""
    many = [0.25, 1, 1, 2, 50]
    return [
        lambda d: d.schedule(3600, b"far"),
        lambda d: d.schedule_many(many, [b"", b"b" * 90, b"c", bytes(100), b"e"]),
        lambda d: d.schedule_at(d.clock.wall_ns() + 2 * SECOND_NS, b"wall"),
        lambda d: d.schedule(1, b"cancelled"),
        lambda d: d.cancel(max(d.oracle.timers)),
        lambda d: d.reschedule(max(d.oracle.timers), 70),
        lambda d: d.clock.advance(1.5),
        lambda d: d.fire(2),
        lambda d: d.fire(),
        lambda d: d.begin(),
        lambda d: d.begin(),
        lambda d: d.acknowledge(),
        lambda d: d.redeliver_later(),
        lambda d: d.schedule(1, b"f" * 300, wait=False),
        lambda d: d.snapshot(),
        lambda d: d.cancel(min(d.oracle.timers)),
        lambda d: d.step_wall(-3600 * SECOND_NS),
        lambda d: d.schedule_at(d.clock.wall_ns() + 5 * SECOND_NS, b"passed"),
        lambda d: d.schedule(2, b"g" * 400, wait=False),
        lambda d: (d.kill(), d.reopen(down_ns=SECOND_NS)),
        lambda d: d.clock.advance(2.5),
        lambda d: d.fire(),
        lambda d: d.begin(),
        lambda d: d.acknowledge(wait=False),
        lambda d: d.schedule_many([0.25, 100], [b"h" * 200, b"i" * 200]),
        lambda d: d.begin_snapshot(),
        lambda d: d.add_to_snapshot(),
        lambda d: d.schedule(1, b"j" * 300),
        lambda d: d.cancel(min(d.oracle.timers)),
        lambda d: d.add_to_snapshot(),
        lambda d: d.fire(),
        lambda d: d.finish_snapshot(),
        lambda d: (d.close(), d.reopen(step_ns=-60 * SECOND_NS)),
        lambda d: d.clock.advance(3),
        lambda d: d.fire(),
        lambda d: d.begin(),
        lambda d: d.redeliver_later(),
        lambda d: d.schedule(1, b"k" * 500),
        lambda d: d.snapshot(),
        lambda d: d.schedule(1, b"l" * 500),
        lambda d: d.deliver_all(),
        lambda d: d.schedule(9, b"m"),
        lambda d: d.close(),
    ]


@dataclass
class EngineSweep:
    """Crashes of one life. Counts what it looked at.

    Args:
        program: the life.
        rng: chooses states, and where recoveries are cut off.
        make: makes the timers; a planted fault goes in here.
        states_max: power-loss states looked at for each crash point.
        nested_odds: how often the recovery of a state is cut off too.

    Attributes:
        points: crash points that were reached.
        states: disks that were opened and lived on with.
    """

    program: Sequence[Step]
    rng: random.Random
    make: MakeTimers = make_timers
    states_max: int = 2
    nested_odds: float = 0.1
    points: int = 0
    states: int = 0
    _seen: set[int] = field(default_factory=set)

    def run(self, *, stride: int = 1) -> None:
        """Crash at every `stride`-th disk call, before it or right after it.

        Raises:
            Violation: naming the crash that repeats it.
        """
        whole = self._driver()
        self._live(whole)
        for index in range(1 + self.rng.randrange(stride), whole.calls + 1, stride):
            for after in (False, True):
                self._crash_at(index, after=after)

    def _driver(self) -> EngineDriver:
        return EngineDriver(MemoryFileSystem(), segment_size_bytes=5632, make=self.make)

    def _live(self, driver: EngineDriver) -> None:
        driver.open()
        for step in self.program:
            step(driver)

    def _crash_at(self, index: int, *, after: bool) -> None:
        driver = self._driver()
        driver.crash_at(index, after=after)
        where = f"crash {'after' if after else 'before'} disk call {index}"
        try:
            with _named(where):
                self._live(driver)
        except SimulatedCrash:
            pass
        else:
            raise AssertionError(f"{where}: the life was over before")
        call = driver.disk.trace[-1]
        where += f" ({call.op} {call.name} {call.detail})"
        self.points += 1
        for state in self._sample(driver.disk):
            self._look(f"{where}, state {state.label!r}", state, driver)
        self._look(f"{where}, killed", driver.disk.killed(), driver)

    def _look(self, where: str, disk: MemoryFileSystem, driver: EngineDriver) -> None:
        files = tuple(disk.snapshot_of_all().items())
        oracle = driver.oracle
        key = hash((files, oracle.acknowledged_lsn, oracle.highest_lsn))
        if key in self._seen:
            return
        self._seen.add(key)
        if self.rng.random() < self.nested_odds:
            for label, state in self._cut_recovery(disk, driver):
                with _named(f"{where}, recovery {label}"):
                    self._live_on(driver.heir(state))
        with _named(where):
            self._live_on(driver.heir(disk))

    def _live_on(self, heir: EngineDriver) -> None:
        self.states += 1
        open_and_live_on(heir)

    def _cut_recovery(
        self, disk: MemoryFileSystem, driver: EngineDriver
    ) -> Iterator[tuple[str, MemoryFileSystem]]:
        """Crash the recovery of a disk at one of its calls."""
        whole = driver.heir(disk.copy())
        whole.open()
        at = self.rng.randint(1, whole.disk.calls)
        cut = disk.copy()
        cut.crash_at(at, after=self.rng.random() < 0.5)
        try:
            driver.heir(cut).open()
        except SimulatedCrash:
            for state in self._sample(cut):
                yield f"cut at {at} with {state.label!r}", state
        else:
            raise AssertionError(f"the recovery was over before call {at}")

    def _sample(self, disk: MemoryFileSystem) -> Iterator[MemoryFileSystem]:
        operations = len(disk.unsynced())
        labels = ["none"]
        if operations:
            labels += ["all", "names", "bytes"]
            numbers = range(1, operations + 1)
            labels += [f"{verb} {n}" for n in numbers for verb in ("drop", "keep")]
            labels += [f"random {self.rng.getrandbits(30)}" for _ in range(operations)]
        for label in self.rng.sample(labels, min(self.states_max, len(labels))):
            yield disk.crashed(label)


def open_and_live_on(heir: EngineDriver) -> None:
    """Open what was left, and go on until every timer was delivered.

    Raises:
        Violation: what came back is not what was promised, or some never came.
    """
    heir.open()
    heir.schedule(1, b"after the crash")
    due = {timer_id for timer_id, t in heir.oracle.timers.items() if not t.fired}
    heir.fire()
    heir.deliver_all()
    heir.clock.advance(FOR_EVER_S)
    heir.step_wall(FOR_EVER_S * SECOND_NS)
    heir.fire()
    heir.deliver_all()
    if heir.oracle.timers:
        raise Violation(f"{heir.oracle.timers} of {due} were never delivered")
    heir.check()


class _named:  # noqa: N801 - reads as the context manager it is
    """Puts where it was before a violation."""

    def __init__(self, where: str) -> None:
        self._where = where

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, _: object) -> None:
        if isinstance(error, Violation):
            raise Violation(f"{self._where}: {error}") from error
