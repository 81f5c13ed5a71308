"""What pending jobs cost: memory, and the time that a restart takes.

Each figure is taken in a child process that did nothing else. A peer that keeps its jobs
in SQLite has them on the disk and not in memory; beside us stand their stores in memory,
which are what a Python program pays for a job that is an object. A restart reads all our
pending jobs, and a database only what is due first: that line says what the wheel costs.
"""

from __future__ import annotations

import gc
import importlib
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar

from bench.disk import forget, work_directory
from bench.progress import Step
from bench.rounds import OURS, SECONDS, ForeignLoad, PairedRow, Progress
from bench.row import Row
from bench.schedulers import (
    NO_OP,
    NS,
    PAYLOAD,
    APScheduler,
    Huey,
    Rival,
    draft_of,
    rivals,
)
from bench.stores import load_steps
from bench.wheel import resident_bytes
from timingwheel.jobs.triggers import At
from timingwheel.stores.embedded import EmbeddedStore

_NEVER_BYTES = 1 << 40
_FILL_SECONDS = 70e-6
_OPEN_SECONDS = 20e-6
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Sizes:
    """How large these measurements are.

    Attributes:
        jobs: pending, of ours.
        peer_jobs: pending, of a peer in memory.
    """

    jobs: Sequence[int]
    peer_jobs: int


FULL = Sizes(jobs=(100_000, 1_000_000), peer_jobs=20_000)
SMOKE = Sizes(jobs=(2_000,), peer_jobs=500)


def steps(group: str, sizes: Sizes, directory: Path) -> list[Step]:
    """Return the steps that measure what pending jobs cost.

    Args:
        group: of the steps.
        sizes: how large they are.
        directory: on the disk in question; left empty again.
    """
    return [
        Step(
            group,
            f"{jobs:,} pending jobs",
            5 + jobs * (_FILL_SECONDS + 2 * _OPEN_SECONDS),
            partial(_measure, group, jobs, sizes.peer_jobs, directory),
        )
        for jobs in sizes.jobs
    ]


def _measure(
    group: str, jobs: int, peer_jobs: int, directory: Path, progress: Progress
) -> list[Row]:
    group = f"{group}, {jobs:,} pending one-time jobs, 60-byte payloads"
    with work_directory(directory) as place:
        progress(f"{group}: making them")
        store = place / "store"
        with ForeignLoad() as load:
            rows = [_memory_row(group, OURS, in_a_child(fill, store, jobs) / jobs, "")]
            for source in ("log", "snapshot"):
                if source == "snapshot":
                    in_a_child(take_snapshot, store)
                progress(f"{group}: opening from the {source}")
                took, grown = in_a_child(reopen, store, jobs)
                name = f"open from the {source}"
                rows.append(Row(group, name, OURS, took, unit=SECONDS))
                name = f"bytes a job, opened from the {source}"
                rows.append(Row(group, name, OURS, grown / jobs, unit="B"))
        for kind in rivals():
            in_memory = IN_MEMORY.get(kind)
            if in_memory is not None:
                progress(f"{group}: {kind.peer}")
                grown = in_a_child(grow, in_memory, place / kind.peer, peer_jobs)
                note = f"{peer_jobs:,} in memory: a restart loses them"
                rows.append(_memory_row(group, kind.peer, grown / peer_jobs, note))
    return [_with_load(row, load.cores) for row in rows]


def _memory_row(group: str, peer: str, figure: float, note: str) -> Row:
    return Row(group, "bytes a job", peer, figure, note, "B")


def _with_load(row: Row, cores: float) -> Row:
    return PairedRow(
        row.group,
        row.name,
        row.peer,
        row.ns_per_op,
        row.note,
        row.unit,
        foreign_cores=cores,
    )


def in_a_child(call: Callable[..., Result], *arguments: object) -> Result:
    """Call a function in a fresh process; return what it returned."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(call, *arguments).result()


# -- for child processes ---------------------------------------------------------------------


def fill(directory: Path, jobs: int) -> int:
    """Make so many jobs, due in a year; return by how much the process has grown."""
    due_ns = time.time_ns() + 365 * 86_400 * NS
    call = NO_OP.call(PAYLOAD)
    with closing(open_store(directory)) as store:
        store.put([draft_of(call, At(due_ns))])
        before = resident_bytes()
        for step in load_steps(jobs - 1):
            store.put([draft_of(call, At(due_ns + job)) for job in range(step)])
        return resident_bytes() - before


def take_snapshot(directory: Path) -> None:
    """Add a snapshot to a store."""
    with closing(open_store(directory)) as store:
        store.snapshot()


def reopen(directory: Path, jobs: int) -> tuple[float, int]:
    """Open a store that the disk must be read for.

    Returns:
        The seconds it took, and by how much the process has grown.
    """
    forget(directory)
    before = resident_bytes()
    gc.freeze()
    start = time.perf_counter()
    store = open_store(directory)
    took = time.perf_counter() - start
    with closing(store):
        grown = resident_bytes() - before
        found = sum(load.nominal for load in store.load_ahead(1 << 62, 1 << 62))
        assert found == jobs, f"{found:,} of {jobs:,} jobs are there"
        return took, grown


def open_store(directory: Path) -> EmbeddedStore:
    """Open a store whose snapshots are written on demand alone."""
    return EmbeddedStore.open(directory, snapshot_every_bytes=_NEVER_BYTES)


class APSchedulerInMemory(APScheduler):
    """APScheduler with its own job store in memory."""

    def _make_store(self, directory: Path) -> object:
        del directory
        memory: Any = importlib.import_module("apscheduler.jobstores.memory")
        return memory.MemoryJobStore()


class HueyInMemory(Huey):
    """huey with its storage in memory."""

    def _make(self, api: Any, directory: Path) -> Any:
        del directory
        return api.MemoryHuey()


IN_MEMORY: dict[type[Rival], type[Rival]] = {
    APScheduler: APSchedulerInMemory,
    Huey: HueyInMemory,
}


def grow(kind: type[Rival], directory: Path, jobs: int) -> int:
    """Make so many jobs, due in an hour; return by how much the process has grown."""
    with closing(kind(directory, workers=1)) as rival:
        rival.schedule()
        before = resident_bytes()
        for _ in range(jobs):
            rival.schedule()
        return resident_bytes() - before
