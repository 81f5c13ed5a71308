"""Jobs that come due, made ready by their owners: the store alone, no run starts.

Each owner is a process with an equal share of the shards; all begin at the word, and the
clock runs until the last has found nothing more that is due. The baseline writes and syncs
what the server's log has grown by for as many jobs as one call makes ready at most.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench.cluster_node import FIRE_LIMIT
from bench.cluster_nodes import are_shared
from bench.cluster_place import Place, place_in, programs
from bench.cluster_runs import load_ours
from bench.disk import Fdatasync
from bench.progress import Step
from bench.rounds import JOBS, OURS, Case, Progress, interleave
from bench.row import Row
from timingwheel.jobs.triggers import Delay

_TENDS_MAX = 200


class Fires(Case):
    """Owners that make ready what is due.

    Args:
        place: the server.
        owners: how many processes.
        jobs: that are due, all owners together.
    """

    peer = OURS

    def __init__(self, place: Place, *, owners: int, jobs: int) -> None:
        self.note = f"{FIRE_LIMIT:,} a call at most"
        self._place = place
        self._owners = owners
        self._jobs = jobs
        self._stack = ExitStack()
        self.wal_bytes = 0

    def prepare(self) -> None:
        self._database = self._place.new_database()
        load_ours(self._database.url, self._jobs, Delay(0))
        command = ["-m", "bench.cluster_node", "fire", self._database.url]
        self._programs = self._stack.enter_context(programs([command] * self._owners))
        self._share()
        self._database.settle()

    def run(self) -> float:
        before = self._place.wal_bytes()
        start = time.perf_counter()
        for program in self._programs:
            program.say("go")
        fired = [int(program.hear()) for program in self._programs]
        took = time.perf_counter() - start
        self.wal_bytes = self._place.wal_bytes() - before
        assert sum(fired) == self._jobs, f"{fired} of {self._jobs}"
        self.close()
        self._place.drop(self._database)
        return took / self._jobs

    def close(self) -> None:
        self._stack.close()

    def _share(self) -> None:
        """Have all tend until each has its share."""
        for _ in range(_TENDS_MAX):
            for program in self._programs:
                program.say("tend")
                assert program.hear() == "tended"
            if are_shared(self._database, self._owners):
                return
        raise AssertionError(f"shards are not shared after {_TENDS_MAX} beats")


@dataclass(frozen=True, slots=True)
class FireSizes:
    """How large these are.

    Attributes:
        owners: how many, in turn.
        jobs: that are due at once.
        rounds: that a figure is the median of.
    """

    owners: Sequence[int]
    jobs: int
    rounds: int


FULL = FireSizes(owners=(1, 4), jobs=60_000, rounds=3)
NORMAL = FireSizes(owners=(1, 4), jobs=20_000, rounds=3)
SMOKE = FireSizes(owners=(2,), jobs=500, rounds=1)


def steps(group: str, sizes: FireSizes, directory: Path) -> list[Step]:
    """Return the steps that measure fires.

    Args:
        group: of the steps.
        sizes: how large they are.
        directory: on the disk in question; left empty again.
    """
    each = [1 + owners * 0.7 + sizes.jobs * 150e-6 for owners in sizes.owners]
    return [
        Step(
            group,
            "fires",
            4 + (1 + sizes.rounds) * sum(each),
            partial(_measure, group, sizes, directory),
        )
    ]


def _measure(
    group: str, sizes: FireSizes, directory: Path, progress: Progress
) -> list[Row]:
    with place_in(directory) as place:
        return [
            row
            for owners in sizes.owners
            for row in _measure_one(owners, group, place, sizes, progress)
        ]


def _measure_one(
    owners: int, group: str, place: Place, sizes: FireSizes, progress: Progress
) -> list[Row]:
    name = f"fires, {owners} owner{'s' if owners > 1 else ''}"
    with closing(Fires(place, owners=owners, jobs=sizes.jobs)) as case:
        progress(f"{group}: {name}, a first time")
        case.prepare()
        case.run()
        size_bytes = max(1, case.wal_bytes * FIRE_LIMIT // sizes.jobs)
        with closing(
            Fdatasync(place.directory, size_bytes=size_bytes, timers=FIRE_LIMIT)
        ) as disk:
            return interleave(
                disk,
                [case],
                group=f"{group}, 60-byte payloads",
                name=name,
                rounds=sizes.rounds,
                tries=1,
                unit=JOBS,
                progress=progress,
            )
