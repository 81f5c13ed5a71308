"""Crash a program at every disk call, and look at what each crash may have left.

At each crash point three things can happen to the machine, and all are tried:

- the power fails: some of the legal states of the disk at that moment;
- only the process dies: the next one sees all that was written, synced or not;
- the process dies, and the power fails at some disk call of the next one's recovery.

Each state is opened, checked against the ledger, appended to, and crashed once more.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from tests.crash.log_driver import LogDriver, OpenLog, Options, Step, open_log, read_all
from tests.crash.log_ledger import Ledger, Violation
from wal.filesystem import SECTOR_BYTES
from wal.testing import MemoryFileSystem, SimulatedCrash


@dataclass
class Sweep:
    """Crashes of one program. Counts what it looked at.

    Args:
        options: of the first open.
        program: what is done then.
        rng: chooses states and the places of second crashes.
        opener: how logs are opened; a planted fault goes in here.
        states_max: power-loss states looked at for each crash point.
        nested_odds: how often a state's own recovery is crashed at each of its calls.

    Attributes:
        states: disks that were opened and checked.
        points: crash points that were reached.
    """

    options: Options
    program: Sequence[Step]
    rng: random.Random
    opener: OpenLog = open_log
    states_max: int = 8
    nested_odds: float = 0.02
    states: int = 0
    points: int = 0
    _seen: set[int] = field(default_factory=set)

    def run(self, *, start: int = 0, stride: int = 1) -> None:
        """Crash at every `stride`-th disk call, before it and right after it.

        Raises:
            Violation: naming the crash that repeats it.
        """
        for index in range(1 + start, self._count() + 1, stride):
            for after in (False, True):
                self._crash_at(index, after=after)

    def _count(self) -> int:
        driver = self._driver()
        driver.run(self.program)
        return driver.calls

    def _driver(self) -> LogDriver:
        return LogDriver(MemoryFileSystem(), self.opener, self.options)

    def _crash_at(self, index: int, *, after: bool) -> None:
        driver = self._driver()
        driver.crash_at(index, after=after)
        where = f"crash {'after' if after else 'before'} disk call {index}"
        try:
            self._named(where, lambda: driver.run(self.program))
        except SimulatedCrash:
            pass
        else:
            raise AssertionError(f"{where}: the program was over before")
        call = driver.disk.trace[-1]
        where += f" ({call.op} {call.name} {call.detail}) in step {driver.done}"
        self.points += 1
        for state in self._sample(driver.disk):
            self._look(f"{where}, state {state.label!r}", state, driver)
        self._look(f"{where}, killed", driver.disk.killed(), driver)
        for at in self._telling_places(driver.disk.killed(), driver):
            again = driver.disk.killed()
            for state in self._crash_recovery(again, driver, at):
                label = f"{where}, killed, recovery {at}, state {state.label!r}"
                self._look(label, state, driver)

    def _look(self, where: str, disk: MemoryFileSystem, driver: LogDriver) -> None:
        """Check one disk, unless the very same was checked for the same promises."""
        key = self._key(disk, driver.ledger)
        if key in self._seen:
            return
        self._seen.add(key)
        nested = self.rng.random() < self.nested_odds
        untouched = disk.copy() if nested else None
        self._named(where, lambda: self._live_on(disk, driver))
        if untouched is not None:
            self._named(where, lambda: self._nest(untouched, driver))

    def _live_on(self, disk: MemoryFileSystem, driver: LogDriver) -> None:
        """Open, append, crash in the next commit, open again."""
        self.states += 1
        ledger = driver.ledger.copy()
        heir = LogDriver(disk, self.opener, driver.options, ledger=ledger)
        heir.open()
        heir.do(Step("append", (b"after recovery",)))
        heir.do(Step("sync"))
        heir.do(Step("append", (bytes(400),)))
        next_calls = self.rng.choice((1, 2))  # the write, the sync
        heir.crash_at(heir.calls + next_calls, after=self.rng.random() < 0.5)
        with contextlib.suppress(SimulatedCrash):
            heir.do(Step("sync"))
        for state in self._sample(disk, 1):
            self.states += 1
            _, found = read_all(state, driver.options, self.opener)
            ledger.expect(found)

    def _nest(self, disk: MemoryFileSystem, driver: LogDriver) -> None:
        """Crash the recovery of one disk at each of its calls: the outcome is the same.

        Whatever the power failure left is on the disk for good, so however often its
        recovery is cut off, the same records come out.
        """
        before = disk.unsynced()
        _, found = read_all(disk.copy(), driver.options, self.opener)
        for at in self._places(disk.copy(), driver):
            for state in self._crash_recovery(disk.copy(), driver, at):
                self.states += 1
                _, again = read_all(state, driver.options, self.opener)
                if not before and again != found:
                    raise Violation(
                        f"recovery cut off at {at} with {state.label!r}: it holds "
                        f"{len(again)} records, {len(found)} without the cut"
                    )
                driver.ledger.copy().recovered(again)

    def _places(
        self, disk: MemoryFileSystem, driver: LogDriver
    ) -> list[tuple[int, bool]]:
        """Return where a recovery of this disk can be crashed."""
        log, _ = read_all(disk, driver.options, self.opener)
        log.start()
        return [(i, after) for i in range(1, disk.calls + 1) for after in (False, True)]

    def _telling_places(
        self, disk: MemoryFileSystem, driver: LogDriver
    ) -> list[tuple[int, bool]]:
        """Return one place, and if the dead left names un-synced, before each sync."""
        names = [o for o in disk.unsynced() if o.startswith(("create", "rename"))]
        places = [self.rng.choice(self._places(disk, driver))]
        if names:
            syncs = [call.number for call in disk.trace if call.op == "sync_dir"]
            places += [(number, False) for number in syncs]
        return places

    def _crash_recovery(
        self, disk: MemoryFileSystem, driver: LogDriver, at: tuple[int, bool]
    ) -> Iterator[MemoryFileSystem]:
        disk.crash_at(at[0], after=at[1])
        try:
            log, _ = read_all(disk, driver.options, self.opener)
            log.start()
        except SimulatedCrash:
            yield from self._sample(disk, 5)
        else:
            raise AssertionError(f"the recovery was over before call {at[0]}")

    def _sample(
        self, disk: MemoryFileSystem, limit: int | None = None
    ) -> Iterator[MemoryFileSystem]:
        """Yield some of the states that a power loss may leave now."""
        limit = self.states_max if limit is None else limit
        labels = self._labels(disk.unsynced(), limit)
        if len(labels) > limit:
            labels = self.rng.sample(labels, limit)
        for label in labels:
            yield disk.crashed(label)

    def _labels(self, unsynced: list[str], randoms: int) -> list[str]:
        """Return names of crashes: the telling ones, and as many random ones."""
        if not unsynced:
            return ["none"]
        labels = ["none", "all", "names", "bytes"]
        for number, operation in enumerate(unsynced, 1):
            labels += [f"drop {number}", f"keep {number}"]
            kind, *_, extent = operation.split()
            if kind == "write":
                start, end = map(int, extent.split("-"))
                sectors = -(-(end - start) // SECTOR_BYTES)
                tears = range(1, min(sectors, 8))
                labels += [f"head {number} {tear}" for tear in tears]
                labels += [f"tail {number} {tear}" for tear in tears]
                labels += [f"size {number}"]
        return labels + [f"random {self.rng.getrandbits(30)}" for _ in range(randoms)]

    @staticmethod
    def _key(disk: MemoryFileSystem, ledger: Ledger) -> int:
        files = tuple(disk.snapshot_of_all().items())
        promises = (ledger.acknowledged_lsn, ledger.highest_lsn, len(ledger.entries))
        return hash((files, tuple(disk.unsynced()), promises))

    def _named(self, where: str, act: Callable[[], None]) -> None:
        try:
            act()
        except Violation as violation:
            steps = "; ".join(map(str, self.program))
            raise Violation(
                f"{where}: {violation}\n{self.options}, program: {steps}"
            ) from violation
