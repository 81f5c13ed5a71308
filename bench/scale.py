"""Ten million durable timers in one process, and rates that last for a gibibyte of log.

Each figure is ours alone, beside the disk's own: what a peer needs for as many is told by its
figures at a tenth of them. Memory is that of a child process that did nothing else.

*Snapshot under load*: one caller goes on making timers while a snapshot of all is written:
one that the engine writes by itself, throttled, and one that `snapshot()` writes, which
gives way to commits alone. The longest hold is the processor time that any thread kept the engine's lock for in
one go; a wait for the processor is not the engine's.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench.disk import Fdatasync, work_directory
from bench.progress import Step
from bench.recovery import Fire, Open, ReadBack, take_snapshot
from bench.rounds import (
    BASELINE,
    MS,
    OURS,
    RATE,
    SECONDS,
    ForeignLoad,
    PairedRow,
    Progress,
    interleave,
)
from bench.rounds import no_garbage_collection as quiet
from bench.row import Row
from bench.scheduler_lag import percentile
from bench.scheduler_size import in_a_child
from bench.stores import (
    DELAYS,
    LOAD_STEP,
    PAYLOAD,
    PAYLOADS,
    load_steps,
    schedule_frame_bytes,
)
from bench.wheel import resident_bytes
from timingwheel.engine.core import EngineCore
from timingwheel.engine.engine import TimerEngine
from wal.log import SEGMENT_SIZE_BYTES, Durability, Log

GROUP = "scale"
_NEVER_BYTES = 1 << 40
_BASELINE_SECONDS = 3.0
_RECORD_BYTES = schedule_frame_bytes(LOAD_STEP) / LOAD_STEP


@dataclass(frozen=True, slots=True)
class Size:
    """How large a run is.

    Attributes:
        timers: pending.
        fired: due at once.
        segments: of log that a sustained rate is taken over.
        seconds: that one caller's rate is taken for before a snapshot begins.
    """

    timers: Sequence[int]
    fired: Sequence[int]
    segments: int
    seconds: float


SMOKE_SIZE = Size(timers=(10_000,), fired=(), segments=1, seconds=0.2)
NORMAL_SIZE = Size(timers=(1_000_000,), fired=(), segments=8, seconds=3)
FULL_SIZE = Size(
    timers=(1_000_000, 10_000_000), fired=(10_000_000,), segments=64, seconds=5
)


def steps(size: Size, directory: Path) -> list[Step]:
    """Return the steps of this group.

    Args:
        size: how large.
        directory: on the disk in question; left empty again.
    """
    written = size.segments * SEGMENT_SIZE_BYTES / _RECORD_BYTES
    return [
        Step(
            GROUP,
            f"schedule_many({LOAD_STEP}) over {size.segments} segments",
            2 * _BASELINE_SECONDS + 6e-6 * written,
            partial(_measure_sustained, "durable", size, directory),
        ),
        Step(
            GROUP,
            f"interval, 1 caller, over {size.segments} segments",
            2 * _BASELINE_SECONDS + 15e-6 * written,
            partial(_measure_sustained, "interval", size, directory),
        ),
        *(
            Step(
                GROUP,
                f"{timers:,} pending",
                5 + timers * 15e-6,
                partial(_measure_pending, timers, size, directory),
            )
            for timers in size.timers
        ),
        *(
            Step(
                GROUP,
                f"{timers:,} due at once",
                5 + timers * 50e-6,
                partial(_measure_fire, timers, directory),
            )
            for timers in size.fired
        ),
    ]


def _measure_sustained(
    durability: Durability, size: Size, directory: Path, progress: Progress
) -> list[Row]:
    batch = LOAD_STEP if durability == "durable" else 1
    name = f"schedule_many({batch})" if batch > 1 else "schedule, interval 50 ms"
    group = f"{GROUP}, sustained over {size.segments} segments of 16 MiB"
    with work_directory(directory) as place:
        disk = Fdatasync(place, size_bytes=schedule_frame_bytes(batch), timers=batch)
        disk.seconds = _BASELINE_SECONDS
        with TimerEngine(
            place / "store",
            _ignore,
            durability=durability,
            snapshot_every_bytes=_NEVER_BYTES,
        ) as engine:
            progress(f"{group}: {name}")
            before = disk.run()
            with ForeignLoad() as load, quiet():
                start = time.perf_counter()
                made = _make_until(engine, size.segments * SEGMENT_SIZE_BYTES, batch)
                took = (time.perf_counter() - start) / made
            after = disk.run()
        disk.close()
    limit = (before + after) / 2
    return [
        PairedRow(group, name, BASELINE, limit * 1e9, disk.note, RATE),
        PairedRow(
            group,
            name,
            OURS,
            took * 1e9,
            unit=RATE,
            to_baseline=limit / took,
            foreign_cores=load.cores,
        ),
    ]


def _make_until(engine: TimerEngine, bytes_written: int, batch: int) -> int:
    """Make timers until so much log is written; return how many."""
    made = 0
    log = engine._log
    assert isinstance(log, Log)
    while log.bytes_written < bytes_written:
        if batch > 1:
            engine.schedule_many(DELAYS[:batch], PAYLOADS[:batch])
            made += batch
        else:
            for delay in DELAYS:
                engine.schedule(delay, PAYLOAD)
            made += len(DELAYS)
    return made


def _measure_pending(
    timers: int, size: Size, directory: Path, progress: Progress
) -> list[Row]:
    group = f"{GROUP}, {timers:,} pending, 100-byte payloads"
    rows: list[Row] = []
    with work_directory(directory) as place:
        store = place / "store"
        progress(f"{group}: making them")
        took, grown = in_a_child(fill_and_weigh, store, timers)
        rows += [
            Row(group, "bytes a timer", OURS, grown / timers, unit="B"),
            Row(group, "make them, 4,096 a call", OURS, took, unit=SECONDS),
        ]
        for source, suffix in (("log", ".seg"), ("snapshot", ".snap")):
            if source == "snapshot":
                progress(f"{group}: writing a snapshot")
                start = time.perf_counter()
                in_a_child(take_snapshot, store)
                both = time.perf_counter() - start
                name = "open, write a snapshot, close"
                rows.append(Row(group, name, OURS, both, unit=SECONDS))
            rows += interleave(
                ReadBack(store, suffix),
                [Open(store, timers)],
                group=group,
                name=f"open from the {source}",
                rounds=1,
                tries=2,
                unit=SECONDS,
                progress=progress,
            )
        progress(f"{group}: a snapshot under load")
        return rows + _measure_snapshot(group, store, size.seconds)


def fill_and_weigh(directory: Path, timers: int) -> tuple[float, int]:
    """Make so many; return the seconds it took and by how much the process has grown.

    For child processes.
    """
    with TimerEngine(
        directory, _ignore, autostart=False, snapshot_every_bytes=_NEVER_BYTES
    ) as engine:
        before = resident_bytes()
        start = time.perf_counter()
        for step in load_steps(timers):
            engine.schedule_many(DELAYS[:step], PAYLOADS[:step])
        return time.perf_counter() - start, resident_bytes() - before


class TimedLock:
    """The lock it is given, which notes the longest hold in processor time.

    Attributes:
        longest_ns: so far.
    """

    def __init__(self, lock: threading.Lock) -> None:
        self._lock = lock
        # By thread: who waits for a condition gives the lock away without a release.
        self._own = threading.local()
        self.longest_ns = 0

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        got = self._lock.acquire(blocking, timeout)
        if got:
            self._own.since_ns = time.thread_time_ns()
        return got

    def release(self) -> None:
        held_ns = time.thread_time_ns() - self._own.since_ns
        self.longest_ns = max(self.longest_ns, held_ns)
        self._lock.release()

    def locked(self) -> bool:
        return self._lock.locked()

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


@contextmanager
def timed_lock(core: EngineCore) -> Iterator[TimedLock]:
    """Time an engine's lock, inside; nobody may wait for it at both ends."""
    lock = core.lock
    timed = TimedLock(lock)
    core.lock = timed  # type: ignore[assignment]
    try:
        yield timed
    finally:
        core.lock = lock


def _measure_snapshot(group: str, store: Path, seconds: float) -> list[Row]:
    group = f"{group}, one caller of schedule"
    rows: list[Row] = []
    # Nothing is due, so no tick thread is needed, which would wait on the lock.
    with TimerEngine(
        store, _ignore, autostart=False, snapshot_every_bytes=_NEVER_BYTES
    ) as engine:
        with ForeignLoad() as load:
            calm = _latencies_ms(engine, lambda took: took < seconds)
        rows += _latency_rows(group, "alone", calm, load.cores)
        snapshotter = engine._snapshotter
        assert snapshotter is not None
        # What the engine's thread does by itself, and what `snapshot()` does.
        for when, write in (
            ("during its own snapshot", snapshotter.write_throttled),
            ("during snapshot()", engine.snapshot),
        ):
            rows += _measure_beside(group, when, engine, write)
    return rows


def _measure_beside(
    group: str, when: str, engine: TimerEngine, write: Callable[[], object]
) -> list[Row]:
    with (
        ForeignLoad() as load,
        timed_lock(engine._core) as lock,
        ThreadPoolExecutor(1) as pool,
    ):
        start = time.perf_counter()
        writing = pool.submit(write)
        latencies = _latencies_ms(engine, lambda _: not writing.done())
        took = time.perf_counter() - start
        writing.result()  # a snapshot that failed has no figures
    return [
        *_latency_rows(group, when, latencies, load.cores),
        *(
            PairedRow(group, name, OURS, figure, unit=unit, foreign_cores=load.cores)
            for name, unit, figure in (
                (f"longest hold of the lock {when}", MS, lock.longest_ns / 1e6),
                (f"the snapshot, {when}", SECONDS, took),
            )
        ),
    ]


def _latency_rows(
    group: str, when: str, latencies_ms: Sequence[float], foreign_cores: float
) -> list[Row]:
    return [
        PairedRow(
            group,
            f"{name}, {when}",
            OURS,
            figure,
            unit=unit,
            foreign_cores=foreign_cores,
        )
        for name, unit, figure in (
            ("schedule", RATE, statistics.mean(latencies_ms) * 1e6),
            ("commit p50", MS, statistics.median(latencies_ms)),
            ("commit p99", MS, percentile(latencies_ms, 0.99)),
            ("commit, longest", MS, max(latencies_ms)),
        )
    ]


def _latencies_ms(engine: TimerEngine, goes_on: Callable[[float], bool]) -> list[float]:
    latencies: list[float] = []
    start = now = time.perf_counter()
    while not latencies or goes_on(now - start):
        begun = now
        engine.schedule(DELAYS[len(latencies) % len(DELAYS)], PAYLOAD)
        now = time.perf_counter()
        latencies.append((now - begun) * 1e3)
    return latencies


def _measure_fire(timers: int, directory: Path, progress: Progress) -> list[Row]:
    with work_directory(directory) as place:
        fire = Fire(place / "store", timers)
        try:
            return interleave(
                None,
                [fire],
                group=f"{GROUP}, {timers:,} due at once",
                name="handlers run, acknowledged durably",
                rounds=1,
                tries=1,
                unit=SECONDS,
                progress=progress,
            )
        finally:
            fire.close()


def _ignore(_timer_id: int, _payload: bytes) -> None:
    return None
