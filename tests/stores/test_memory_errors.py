"""Memory runs out at the n-th allocation of a call of a job store: whole or not at all.

As tests/engine/test_memory_errors.py, a layer up. A call that finds no memory says so.
Either its change is not there, and the same call does it once there is memory again; or it
is, and who listens hears of it; or the store has failed, says so to everybody, and the
next open finds the change whole or not at all.
"""

from __future__ import annotations

import errno
import os
import random
import signal
import traceback
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from tests.crash.store_driver import StoreDriver
from tests.scarce_memory import BEARS_IT, by_a_child, each_without, error_without
from tests.stores.stage import (
    ONCE,
    SECOND,
    STEADY,
    TASK,
    WORKER,
    draft,
    end_of,
    every,
    overlap,
)
from timingwheel.clock import Clock
from timingwheel.errors import EngineFailedError
from timingwheel.jobs.model import Outcome, Payload, Run, RunId
from timingwheel.jobs.store import Claim, Ticket, Verdict
from timingwheel.scheduler.simulated import KeptHistory
from timingwheel.stores.embedded import EmbeddedStore
from wal.log import Log
from wal.testing import MemoryFileSystem

pytestmark = BEARS_IT

State = dict[str, object]
HUNG_SECONDS = 60
"""A try that takes longer waits for something that never comes."""


def quiet_store(log: Log, history: KeptHistory, clock: Clock) -> EmbeddedStore:
    """Return a store without threads: whoever calls does all, at the same allocation."""
    return EmbeddedStore(
        log, history, clock=clock, rng=random.Random(0), background=False
    )


class Driver(StoreDriver):
    """A store that has a little of everything.

    Attributes:
        told: runs of whose ends listeners heard.
        claimed: what is claimed and has not begun.
    """

    def __init__(self) -> None:
        super().__init__(MemoryFileSystem(), KeptHistory(":memory:"), make=quiet_store)
        self.told: set[RunId] = set()
        self.claimed: list[Claim] = []

    def prepare(self) -> None:
        """Open, and bring it to where the acts begin."""
        self.open()
        self.on.add_listener(self._hear)
        self.put("runs plain", 0)
        self.put("runs too", 0)
        self.put(
            "runs", every(3, runs_max=9), overlap=overlap("buffer_one"), retry=STEADY
        )
        self.put("fails", 0, name="fails", retry=STEADY)
        self.trigger("runs")
        self.turn()
        self.put("waits", 0)
        self.put("waits too", 0, delivery=ONCE)
        self.put("waits named", 0, name="w", retry=STEADY)
        self.on.fire(10)
        [claim], ticket = self.on.claim(WORKER, tasks=frozenset({TASK}), count=1)
        self.on.commit(ticket)
        self.claimed = [claim]
        self.put("far", 9_999)
        self.put("named", 9_999, name="named", key="k")
        self.put("often", every(50))
        self.put("held", every(50))
        self.pause("held")
        self.put("due", 5)
        self.put("due once", 5, delivery=ONCE)
        self.put("due often", every(5), retry=STEADY)
        self.clock.advance(ns=6 * SECOND)

    def _hear(self, runs: Any) -> None:
        self.told.update(run.id for run in runs)

    def shown(self) -> State:
        """Return all that a reader is shown."""
        found: State = {job.id: job for job in self.all_jobs()}
        runs: list[Run] = self.all_runs()
        found |= {run.id: run for run in runs}
        found |= {f"attempts of {run.id}": self.on.attempts(run.id) for run in runs}
        return found

    def reopened(self) -> State:
        """Return what the next process finds, all commits done."""
        self.on._log.close()
        heir = StoreDriver(
            self.disk.killed(), self.history.fork(), make=quiet_store, clock=self.clock
        )
        log = Log.open(heir.disk, wall_ns=self.clock.wall_ns, background=False)
        heir.store = quiet_store(log, heir.history, self.clock)
        found = Driver.shown(heir)  # type: ignore[arg-type]  # what it has of it
        heir.on.check()
        heir.on._log.close()
        heir.history.end()
        return found


Act = Callable[[Driver], object]


def ended(driver: Driver, label: str, outcome: Outcome, **more: Any) -> None:
    [claim] = [c for c in driver.running if c.run.job_id == driver.labels[label]]
    verdicts, ticket = driver.on.finish([end_of(claim, outcome, **more)])
    driver.on.commit(ticket)
    assert verdicts == [Verdict.ACCEPTED]


def claimed(driver: Driver) -> None:
    claims, ticket = driver.on.claim(WORKER, tasks=frozenset({TASK}), count=9)
    driver.on.commit(ticket)
    driver.claimed += claims


def put_many(driver: Driver) -> None:
    many = [
        ("m1", draft(1), ""),
        ("m2", draft(0, name="m2", payload=Payload(bytes(300))), ""),
        ("m3", draft(every(2)), ""),
    ]
    driver.put_many(many)


def given_back(driver: Driver) -> None:
    [claim] = driver.claimed
    driver.on.commit(driver.on.give_back([(claim.run.id, claim.token)]))


ACTS: dict[str, Act] = {
    "put": lambda d: d.put("new", 5),
    "put named": lambda d: d.put("new", every(5), name="new", key="n"),
    "put many": put_many,
    "put anew": lambda d: d.put("named", 5, name="named", key="k"),
    "cancel": lambda d: d.cancel("far"),
    "cancel named": lambda d: d.cancel("named"),
    "cancel running": lambda d: d.cancel("runs"),
    "pause": lambda d: d.pause("often"),
    "pause plain": lambda d: d.pause("far"),
    "resume": lambda d: d.resume("held"),
    "update": lambda d: d.update("often", payload=Payload(b"new")),
    "update trigger": lambda d: d.update("often", trigger=every(7)),
    "trigger": lambda d: d.trigger("often"),
    "fire": lambda d: d.on.commit(d.on.fire(100)[1]),
    "claim": claimed,
    "give back": given_back,
    "finish plain": lambda d: ended(d, "runs plain", Outcome.OK),
    "finish": lambda d: ended(d, "runs", Outcome.OK),
    "finish with follow-ups": lambda d: ended(
        d, "fails", Outcome.OK, follow_ups=(draft(1, name="follow-up"),)
    ),
    "fail": lambda d: ended(d, "fails", Outcome.ERROR),
    "fail plain": lambda d: ended(d, "runs too", Outcome.ERROR),
    "snapshot": lambda d: d.snapshot(),
}
IN_GROUPS = frozenset({"fire"})
"""Acts of several groups, each whole or not there."""


def run_out(act: Act, index: int) -> tuple[Driver, BaseException | None]:
    """Do an act whose `index`-th allocation fails."""
    driver = Driver()
    driver.prepare()
    return driver, error_without(partial(act, driver), index)


def is_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory ran out, in its own words or by its cause."""
    return (
        isinstance(error, MemoryError)
        or (isinstance(error, OSError) and error.errno == errno.ENOMEM)
        or "no memory" in str(error)
        or (error.__cause__ is not None and is_of_memory(error.__cause__))
    )


class Sweep:
    """One act, done once with all memory to know what is right.

    Attributes:
        before: what is shown before it, to this process and to the next.
        after: likewise after it.
        told: runs of whose ends listeners hear.
    """

    def __init__(self, name: str) -> None:
        act = ACTS[name]
        self._act = act
        self._is_whole = name not in IN_GROUPS
        untouched, whole = Driver(), Driver()
        untouched.prepare()
        whole.prepare()
        act(whole)
        self.told = whole.told
        self.before, self.after = (
            (driver.shown(), driver.reopened()) for driver in (untouched, whole)
        )
        untouched.end()
        whole.end()

    def run(self, start: int, stride: int) -> Counter[str]:
        """Fail every `stride`-th allocation until none is left; count what came of it.

        A library that does not look whether it got memory takes the process with it:
        to the disk that is a kill. So each try is made by a child.
        """
        outcomes: Counter[str] = Counter()
        index, is_over = start, False
        while not is_over:
            told, status = by_a_child(partial(self._run_from, index, stride))
            is_over = os.WIFEXITED(status)
            for line in told.splitlines():
                number, _, outcome = line.partition(" ")
                assert not outcome.startswith("broken"), told[told.index(line) :]
                index = int(number) + stride
                outcomes[outcome] += 1
            if not is_over:
                assert os.WTERMSIG(status) == signal.SIGSEGV, f"{status} at {index}"
                outcomes["died"] += 1
                index += stride
        return outcomes

    def _run_from(self, index: int, stride: int, tell: Callable[[str], object]) -> None:
        def trial(failed: int) -> tuple[Driver, BaseException | None]:
            signal.alarm(HUNG_SECONDS)
            return run_out(self._act, failed)

        for failed, driver, error in each_without(trial, start=index, stride=stride):
            try:
                tell(f"{failed} {self._judge(driver, error)}\n")
            except BaseException:  # noqa: BLE001 - the parent raises it
                tell(f"{failed} broken, by {error!r}:\n{traceback.format_exc()}")
                return
            driver.end()

    def _judge(self, driver: Driver, error: BaseException | None) -> str:
        assert error is None or is_of_memory(error), repr(error)
        store = driver.on
        if store._core.life.failed is not None:
            for ask in (
                lambda: store.put([draft(1)]),
                lambda: store.fire(10),
                lambda: store.claim(WORKER, tasks=frozenset({TASK}), count=1),
                lambda: store.get(driver.labels["far"]),
            ):
                with pytest.raises(EngineFailedError, match="was cut off"):
                    ask()
            assert self._is_right(driver.reopened(), of=1), "half done"
            return "failed for good"
        store.check()
        found = driver.shown()
        assert self._is_right(found, of=0), "half done"
        outcome = "done" if found == self.after[0] else "refused"
        if outcome == "refused":
            assert error is not None, "it was told that it is done"
            self._act(driver)
            store.check()
            assert driver.shown() == self.after[0], (
                "a second call does not do it either"
            )
        store.commit(Ticket(store._log.appended_lsn))
        assert driver.told == self.told, "who listens has not heard of an end"
        assert driver.reopened() == self.after[1]
        return outcome

    def _is_right(self, found: State, *, of: int) -> bool:
        """Whether it is what was before, or what is after, or of groups in between."""
        before, after = self.before[of], self.after[of]
        if found in (before, after):
            return True
        return not self._is_whole and all(
            found.get(key) in (before.get(key), after.get(key))
            for key in {*before, *after, *found}
        )


@pytest.mark.parametrize("name", ["put many", "cancel", "fire", "claim", "finish"])
def test_a_call_of_a_store_without_memory_is_whole_or_not_at_all(
    name: str, rng: random.Random
) -> None:
    assert Sweep(name).run(rng.randint(1, 299), 299)


@pytest.mark.long
@pytest.mark.parametrize("name", ACTS)
def test_a_call_of_a_store_is_whole_or_not_at_all_wherever_memory_runs_out(
    name: str,
) -> None:
    outcomes = Sweep(name).run(1, 1)
    print(name, dict(outcomes))
    assert outcomes.total() > 20
