"""Many random lives, one seed after the other, for a length of time.

Each seed is one `simulate`; a few processes work beside each other. What fails is told
at once, with the command that repeats it.
"""

from __future__ import annotations

import multiprocessing
import signal
from collections import Counter
from collections.abc import Callable, Generator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from itertools import count
from typing import Final

from timingwheel.clock import Clock, SystemClock
from timingwheel.stores.embedded import EmbeddedStore
from timingwheel.testing.simulating import (
    STEPS,
    Simulation,
    SimulationFailedError,
    simulate,
)

TELL_EVERY_NS: Final = 10_000_000_000
_SECOND_NS: Final = 1_000_000_000


@dataclass
class Tally:
    """What a soak has come to.

    Attributes:
        seeds: that were simulated.
        steps: taken in all.
        lives: starts of the scheduler in all.
        counts: of each kind of step, and of handlers that started.
        failures: seeds that failed, with what each says.
        was_stopped: whether somebody stopped it before its time.
    """

    seeds: int = 0
    steps: int = 0
    lives: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    failures: dict[int, str] = field(default_factory=dict)
    was_stopped: bool = False

    def add(self, seed: int, outcome: Simulation | str) -> None:
        """Take in how a seed has ended: well, or with what it says."""
        self.seeds += 1
        if isinstance(outcome, str):
            self.failures[seed] = outcome
            return
        self.steps += outcome.steps
        self.lives += outcome.lives
        self.counts += outcome.counts

    def __str__(self) -> str:
        crashes = sum(n for name, n in self.counts.items() if "crash" in name)
        kills = sum(n for name, n in self.counts.items() if "kill" in name)
        return (
            f"{self.seeds:,} seeds, {self.steps:,} steps, {self.lives:,} lives, "
            f"{crashes:,} power failures, {kills:,} kills, "
            f"{self.counts['starts']:,} starts, {len(self.failures):,} failed"
        )


def soak(
    for_ns: int,
    *,
    seed: int = 0,
    steps: int = STEPS,
    workers: int = 1,
    store: type[EmbeddedStore] = EmbeddedStore,
    tell: Callable[[str], object],
    clock: Clock | None = None,
) -> Tally:
    """Simulate seed after seed until the time is over; Ctrl-C ends it before.

    Args:
        for_ns: how long; what has begun by then is ended.
        seed: the first.
        steps: of each life.
        workers: processes beside each other, 1 or more; with 1 it is this one.
        store: as for `simulate`.
        tell: called with a line about each failure, and from time to time.
        clock: whose monotonic time counts.
    """
    clock = clock if clock is not None else SystemClock()
    tally = Tally()
    began_ns = told_ns = clock.monotonic_ns()
    outcomes = (
        _alone(seed, steps, store)
        if workers == 1
        else _beside(seed, steps, store, workers)
    )
    try:
        for number, outcome in outcomes:
            tally.add(number, outcome)
            if isinstance(outcome, str):
                tell(f"FAILED: {outcome}")
            now_ns = clock.monotonic_ns()
            if now_ns - began_ns >= for_ns:
                break
            if now_ns - told_ns >= TELL_EVERY_NS:
                told_ns = now_ns
                tell(f"{(now_ns - began_ns) // _SECOND_NS:6,} s  {tally}")
    except KeyboardInterrupt:
        tally.was_stopped = True
    finally:
        outcomes.close()
    return tally


_Outcomes = Generator[tuple[int, Simulation | str], None, None]


def _simulated(
    seed: int, steps: int, store: type[EmbeddedStore]
) -> tuple[int, Simulation | str]:
    try:
        return seed, simulate(seed, steps=steps, store=store)
    except SimulationFailedError as failed:
        return seed, str(failed)


def _alone(seed: int, steps: int, store: type[EmbeddedStore]) -> _Outcomes:
    for number in count(seed):
        yield _simulated(number, steps, store)


def _beside(
    seed: int, steps: int, store: type[EmbeddedStore], workers: int
) -> _Outcomes:
    seeds = count(seed)
    pool = ProcessPoolExecutor(
        workers,
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_leave_ctrl_c_to_the_parent,
    )
    waiting: set[Future[tuple[int, Simulation | str]]] = set()
    try:
        while True:
            while len(waiting) < 2 * workers:
                waiting.add(pool.submit(_simulated, next(seeds), steps, store))
            done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            for future in done:
                yield future.result()
    finally:
        pool.shutdown(cancel_futures=True)


def _leave_ctrl_c_to_the_parent() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
