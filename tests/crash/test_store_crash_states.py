"""The job store under crashes, and whether the driver sees a store that cheats.

Over all crash states of a scheduler's life: each acknowledged job has one run record for
each nominal time, nothing acknowledged is lost, what was cancelled never starts, and a
finished run is in the log, a snapshot or the history at every moment.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

import pytest

from tests.crash.planted_stores import (
    ForgetfulStore,
    HastyCancel,
    HastyEnd,
    HastyStart,
)
from tests.crash.store_driver import Broken, MakeStore, StoreDriver, make_store
from tests.stores.stage import (
    NO_RETRY,
    ONCE,
    SECOND,
    after,
    draft,
    every,
    misfire,
    overlap,
)
from timingwheel.clock import Clock
from timingwheel.jobs.model import Outcome, Payload
from timingwheel.scheduler.simulated import KeptHistory
from timingwheel.stores.embedded import EmbeddedStore
from wal.log import Log
from wal.testing import MemoryFileSystem, SimulatedCrash

pytestmark = pytest.mark.usefixtures("quiet_log")

Step = Callable[[StoreDriver], object]


def life() -> list[Step]:
    """Return a life that meets every kind of record and two snapshots."""
    batch = [
        ("b1", draft(1), ""),
        ("b2", draft(1, name="b2", payload=Payload(bytes(300))), ""),
        ("b3", draft(1, priority=1), "cancelled"),
    ]
    return [
        lambda d: d.put("plain", 1),
        lambda d: d.put_many(batch),
        lambda d: d.put("often", every(2, runs_max=9), overlap=overlap("buffer_one")),
        lambda d: d.put("once", 1, fates="lost", delivery=ONCE),
        lambda d: d.put("gone", 1, fates="cancelled"),
        lambda d: d.put("first", 1, name="first", key="k"),
        lambda d: d.put("next", after(d.labels["first"]), fates="skipped"),
        lambda d: d.cancel("gone"),
        lambda d: d.advance(1.5),
        lambda d: d.turn(3),
        lambda d: d.finish(count=2),
        lambda d: d.finish(Outcome.ERROR),
        lambda d: d.turn(),
        lambda d: d.finish(follow_ups=(draft(1, name="follow-up"),)),
        lambda d: d.advance(2),
        lambda d: d.turn(),
        lambda d: d.finish(),
        lambda d: d.put("held", every(2), misfire=misfire("skip")),
        lambda d: d.pause("held"),
        lambda d: d.snapshot(),
        lambda d: d.put("dead", 0, fates="failed", retry=NO_RETRY),
        lambda d: d.turn(),
        lambda d: d.finish(Outcome.ERROR),
        lambda d: (d.kill(down_ns=5 * SECOND), d.open()),
        lambda d: d.turn(),
        lambda d: d.finish(),
        lambda d: d.resume("held", "latest"),
        lambda d: d.update("held", payload=Payload(b"new")),
        lambda d: d.trigger("held"),
        lambda d: d.turn(),
        lambda d: d.put("late", 50, fates="cancelled"),
        lambda d: d.cancel("late"),
        lambda d: d.finish(),
        lambda d: (d.close(), d.reopen()),
        lambda d: d.retry("dead"),
        lambda d: d.turn(),
        lambda d: d.finish(),
        lambda d: d.cancel("held"),
        lambda d: d.snapshot(),
        lambda d: d.put("last", 0),
        lambda d: d.turn(),
        lambda d: d.finish(),
        lambda d: d.close(),
    ]


def a_short_life() -> list[Step]:
    """Return one with a few of everything, so that a fault is met soon."""
    return [
        lambda d: d.put("a", 0),
        lambda d: d.put("b", 0, name="b"),
        lambda d: d.turn(),
        lambda d: d.finish(count=1),
        lambda d: d.put("c", 0, fates="lost", delivery=ONCE),
        lambda d: d.put("d", 5, fates="cancelled"),
        lambda d: d.turn(),
        lambda d: d.cancel("d"),
        lambda d: d.snapshot(),
        lambda d: d.finish(),
        lambda d: d.close(),
    ]


@dataclass
class StoreSweep:
    """Crashes of one life. Counts what it looked at.

    Args:
        program: the life.
        rng: chooses states.
        make: makes the store; a planted fault goes in here.
        states_max: power-loss states looked at for each crash point.

    Attributes:
        points: crash points that were reached.
        states: disks that were opened and lived on with.
    """

    program: Sequence[Step]
    rng: random.Random
    make: MakeStore = make_store
    states_max: int = 2
    points: int = 0
    states: int = 0
    _seen: set[int] = field(default_factory=set)

    def run(self, *, stride: int = 1) -> None:
        """Crash at every `stride`-th disk call, before it or right after it.

        Raises:
            Broken: naming the crash that repeats it.
        """
        with ExitStack() as stack:
            whole = self._driver()
            stack.callback(whole.end)
            self._live(whole)
            calls = whole.calls
        for index in range(1 + self.rng.randrange(stride), calls + 1, stride):
            for is_after in (False, True):
                self._crash_at(index, after=is_after)

    def _driver(self) -> StoreDriver:
        return StoreDriver(MemoryFileSystem(), KeptHistory(":memory:"), make=self.make)

    def _live(self, driver: StoreDriver) -> None:
        driver.open()
        for step in self.program:
            step(driver)

    def _crash_at(self, index: int, *, after: bool) -> None:
        with ExitStack() as stack:
            driver = self._driver()
            stack.callback(driver.end)
            self._crash_and_look(index, driver, stack, after=after)

    def _crash_and_look(
        self, index: int, driver: StoreDriver, stack: ExitStack, *, after: bool
    ) -> None:
        driver.crash_at(index, after=after)
        where = f"crash {'after' if after else 'before'} disk call {index}"
        try:
            self._named(where, lambda: self._live(driver))
        except SimulatedCrash:
            pass
        else:
            raise AssertionError(f"{where}: the life was over before")
        history = driver.history.fork()
        stack.callback(history.end)
        driver.abandon()
        call = driver.disk.trace[-1]
        where += f" ({call.op} {call.name} {call.detail})"
        self.points += 1
        for state in self._sample(driver.disk):
            self._look(f"{where}, state {state.label!r}", state, history, driver)
        self._look(f"{where}, killed", driver.disk.killed(), history, driver)

    def _look(
        self,
        where: str,
        disk: MemoryFileSystem,
        history: KeptHistory,
        driver: StoreDriver,
    ) -> None:
        files = tuple(disk.snapshot_of_all().items())
        promised = len(driver.promises.ended), driver.promises.token
        key = hash((files, promised, history.reached_lsn, len(driver.promises.jobs)))
        if key in self._seen:
            return
        self._seen.add(key)
        self.states += 1
        heir = driver.heir(disk, history.fork())
        try:
            self._named(where, heir.open_and_live_on)
        finally:
            heir.end()

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

    @staticmethod
    def _named(where: str, act: Callable[[], object]) -> None:
        try:
            act()
        except Broken as broken:
            raise Broken(f"{where}: {broken}") from broken


def test_a_life_survives_crashes_all_over_its_disk_calls(rng: random.Random) -> None:
    sweep = StoreSweep(life(), rng)
    sweep.run(stride=5)
    print(f"{sweep.points} crash points, {sweep.states} states")
    assert sweep.states > 100


@pytest.mark.long
def test_a_life_survives_a_crash_at_every_disk_call(rng: random.Random) -> None:
    sweep = StoreSweep(life(), rng, states_max=8)
    sweep.run()
    print(f"{sweep.points} crash points, {sweep.states} states")
    assert sweep.states > 1000


# -- planted faults: each must be seen -----------------------------------------------------


def planted(kind: type[EmbeddedStore]) -> MakeStore:
    """Return what makes stores of a kind."""

    def make(log: Log, history: KeptHistory, clock: Clock) -> EmbeddedStore:
        return kind(log, history, clock=clock, rng=random.Random(0))

    return make


def test_an_honest_store_is_not_accused(rng: random.Random) -> None:
    StoreSweep(a_short_life(), rng).run(stride=3)


@pytest.mark.parametrize(
    ("kind", "seen"),
    [
        (HastyStart, "have begun"),
        (HastyEnd, "it had succeeded|starts again after"),
        (HastyCancel, "not cancelled|was cancelled"),
        (ForgetfulStore, "never over"),
    ],
)
def test_a_store_that_cheats_is_caught(
    kind: type[EmbeddedStore], seen: str, rng: random.Random
) -> None:
    with pytest.raises(Broken, match=seen) as caught:
        StoreSweep(a_short_life(), rng, make=planted(kind)).run()
    print(caught.value)
