"""Rivals measured in turn, so that they share what the machine does meanwhile.

One fdatasync takes 0.13 ms on a quiet machine and 4 ms beside a busy neighbour: two figures
taken one after the other say nothing of each other. So a round runs the baseline and every
rival for a moment each, the ratios are taken inside the round, and a figure is the median
of the rounds. Rounds in which other programs took much of the processors are run again,
and the quietest count; what was left of the noise is told beside the figure.
"""

from __future__ import annotations

import contextlib
import gc
import os
import statistics
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Self

from bench.peers import servers_cpu_seconds
from bench.row import Row

BASELINE = "baseline"
OURS = "timingwheel"
RATE = "ns of wall time"
"""The unit of rows that the table shows as so many a second."""
JOBS = "ns of wall time a job"
"""As RATE, of jobs and not of timers."""
RATES = frozenset({RATE, JOBS})
SECONDS = "s"
"""The unit of rows that are the wall time of one whole operation."""
MS = "ms"
"""The unit of rows that say how long somebody waited."""
COUNT = "times"
"""The unit of rows that count something."""
QUIET_CORES = 0.25
"""A round is quiet when other programs used less than this of the processors."""
TRIES_A_ROUND = 3

Progress = Callable[[str], object]


@dataclass(frozen=True, slots=True)
class PairedRow(Row):
    """A figure from rounds that the baseline and the rivals shared.

    Attributes:
        to_baseline: its speed as a multiple of the baseline's, median of the rounds; None
            without a baseline.
        ours_to_it: our speed as a multiple of its, likewise; None without us.
        equal: whether it promises what ours does; else it is shown for information and
            never counts as the best peer.
        foreign_cores: processors that other programs kept busy meanwhile, median.
    """

    to_baseline: float | None = None
    ours_to_it: float | None = None
    equal: bool = True
    foreign_cores: float = 0.0


class Case(ABC):
    """One of those who do the same job: the disk itself, a peer, or we.

    Attributes:
        peer: its name in the table.
        equal: see PairedRow.
        note: what one must know to read its figure; "" for nothing.
    """

    peer: str
    equal: bool = True
    note: str = ""

    def prepare(self) -> None:  # noqa: B027 - most have nothing to prepare
        """Do what a round needs before its clock runs."""

    @abstractmethod
    def run(self) -> float:
        """Do the job; return the seconds that one operation of it took."""

    def close(self) -> None:  # noqa: B027 - most have nothing to close
        """Stop, and remove what is on the disk."""


class Sustained(Case):
    """A job that goes on for as long as one likes.

    Attributes:
        seconds: how long a `run` goes on.
    """

    seconds: float = 0.25

    def repeat(self, operation: Callable[[], int]) -> float:
        """Repeat an operation for `seconds`; return what one unit of its work took.

        Args:
            operation: does some units of work and returns how many.
        """
        done = 0
        start = now = time.perf_counter()
        while now - start < self.seconds:
            done += operation()
            now = time.perf_counter()
        return (now - start) / done


@dataclass(frozen=True, slots=True)
class _Turn:
    """One round: how busy others were, and the seconds that each case took."""

    foreign_cores: float
    took: Sequence[float]


def interleave(
    baseline: Case | None,
    rivals: Sequence[Case],
    *,
    group: str,
    name: str,
    rounds: int,
    progress: Progress,
    tries: int = TRIES_A_ROUND,
    unit: str = RATE,
) -> list[Row]:
    """Measure rivals and baseline in turn; return a row for each.

    Args:
        baseline: what no rival can beat by much.
        rivals: all open already.
        group: of the rows.
        name: of the operation.
        rounds: that a figure is the median of.
        progress: called with a line of text before each round.
        tries: how often a round is run, on average and at most, for it to be a quiet
            one; fewer if the machine is so busy that it would not help.
        unit: RATE, JOBS or SECONDS.
    """
    cases = [*([baseline] if baseline is not None else []), *rivals]
    turns: list[_Turn] = []
    while not _is_enough(turns, rounds, tries):
        quiet = _quiet(turns)
        again = ", again: the machine was busy" if quiet < len(turns) else ""
        progress(f"{group}: {name}, round {quiet + 1} of {rounds}{again}")
        with ForeignLoad() as load:
            took = [_run(case) for case in cases]
        turns.append(_Turn(load.cores, took))
    turns = sorted(turns, key=lambda turn: turn.foreign_cores)[:rounds]
    first = 0 if baseline is not None else None
    ours = next((at for at, case in enumerate(cases) if case.peer == OURS), None)
    return [
        PairedRow(
            group,
            name,
            case.peer,
            statistics.median(turn.took[at] for turn in turns)
            * (1e9 if unit in RATES else 1),
            case.note,
            unit,
            to_baseline=_speed(turns, at, than=first),
            ours_to_it=_speed(turns, ours, than=at),
            equal=case.equal,
            foreign_cores=statistics.median(turn.foreign_cores for turn in turns),
        )
        for at, case in enumerate(cases)
    ]


class ForeignLoad:
    """Counts, inside a `with` block, how many processors other programs kept busy.

    Attributes:
        cores: as many, from 0.0 up; 0.0 where the system does not tell.
    """

    cores = 0.0

    def __enter__(self) -> Self:
        self._start = self._reading()
        return self

    def __exit__(self, *_: object) -> None:
        wall, busy, own = (
            after - before
            for after, before in zip(self._reading(), self._start, strict=True)
        )
        self.cores = max(0.0, (busy - own) / wall) if busy else 0.0

    def _reading(self) -> tuple[float, float, float]:
        own = os.times()
        return (
            time.perf_counter(),
            _busy_seconds(),
            own.user
            + own.system
            + own.children_user
            + own.children_system
            + servers_cpu_seconds(),
        )


@contextlib.contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Keep the collector from running inside a measurement; it runs before instead."""
    gc.collect()
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _run(case: Case) -> float:
    case.prepare()
    os.sync()  # what the last rival left to be written must not be charged to this one
    with no_garbage_collection():
        return case.run()


def _quiet(turns: Sequence[_Turn]) -> int:
    return sum(turn.foreign_cores < QUIET_CORES for turn in turns)


def _is_enough(turns: Sequence[_Turn], rounds: int, tries: int) -> bool:
    quiet = _quiet(turns)
    # At this pace all tries would not bring enough quiet rounds: then why wait.
    hopeless = len(turns) >= rounds and quiet * tries < len(turns)
    return quiet >= rounds or hopeless or len(turns) >= rounds * tries


def _speed(turns: Sequence[_Turn], at: int | None, *, than: int | None) -> float | None:
    """Return how many times faster one was than another, in the median round."""
    if at is None or than is None:
        return None
    return statistics.median(turn.took[than] / turn.took[at] for turn in turns)


def _busy_seconds() -> float:
    """Return the processor time that all programs have used; 0.0 if unknown."""
    try:
        with open("/proc/stat", encoding="ascii") as stat:
            fields = [int(field) for field in stat.readline().split()[1:9]]
    except OSError:
        return 0.0
    user, nice, system, _, _, irq, soft_irq, steal = fields
    return (user + nice + system + irq + soft_irq + steal) / os.sysconf("SC_CLK_TCK")
