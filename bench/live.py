"""On the real clock: how late timers fire, and how often an idle engine wakes up.

*Lateness* is from the due time to the call of the handler, at a steady rate: for a durable
engine a commit lies between, and the hop to a worker for both of ours. A timer that is early
is counted in a line of its own. *Wake-ups* are the voluntary context switches of all the
process's threads but the one that counts, while nothing is due for an hour.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
import random
import statistics
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from bench.disk import work_directory
from bench.peers import Kind
from bench.progress import Step
from bench.rounds import COUNT, MS, OURS, ForeignLoad, PairedRow, Progress
from bench.rounds import no_garbage_collection as quiet
from bench.row import Row
from bench.scheduler_lag import percentile
from bench.stores import load_steps
from timingwheel.engine.engine import TimerEngine

GROUP = "live"
RATE = 500
_MAKING_SECONDS = 4e-4
"""What a durable timer may take to be made: all are, before the first is due."""
_DUE = struct.Struct("<q")
_UVLOOP = Kind("uvloop", modules=("uvloop",), install="pip install uvloop")
Lags = Callable[[Sequence[float]], list[float]]


@dataclass(frozen=True, slots=True)
class Size:
    """How large a run is.

    Attributes:
        seconds: of timers due at RATE a second.
        pending: timers of the idle engine.
        idle_seconds: that its wake-ups are counted for.
    """

    seconds: int
    pending: int
    idle_seconds: int


SMOKE_SIZE = Size(seconds=1, pending=2_000, idle_seconds=1)
NORMAL_SIZE = Size(seconds=4, pending=1_000_000, idle_seconds=10)
FULL_SIZE = Size(seconds=20, pending=1_000_000, idle_seconds=60)


def steps(size: Size, directory: Path) -> list[Step]:
    """Return the steps that measure what happens on the real clock.

    Args:
        size: how large and how long.
        directory: on the disk in question; left empty again.
    """
    return [
        Step(
            GROUP,
            f"lateness of {RATE} timers a second",
            4 * (size.seconds * (1 + RATE * _MAKING_SECONDS) + 1),
            partial(_measure_lateness, size, directory),
        ),
        Step(
            GROUP,
            f"idle with {size.pending:,} pending",
            2 + size.idle_seconds + size.pending * 5e-6,
            partial(_measure_idle, size),
        ),
    ]


def _measure_lateness(size: Size, directory: Path, progress: Progress) -> list[Row]:
    group = f"{GROUP}, {RATE} timers a second"
    rng = random.Random(1)
    count = RATE * size.seconds
    first = 0.5 + count * _MAKING_SECONDS
    delays = [first + rng.uniform(0, size.seconds) for _ in range(count)]
    rows: list[Row] = []
    with work_directory(directory) as place:
        rivals: list[tuple[str, str, Lags]] = [
            (OURS, "in memory", partial(_of_engine, ":memory:")),
            (OURS, "durable", partial(_of_engine, place / "store")),
            ("asyncio call_later", "in memory", partial(_of_loop, asyncio)),
        ]
        if _UVLOOP.is_here():
            uvloop = importlib.import_module("uvloop")
            rivals.append(("uvloop call_later", "in memory", partial(_of_loop, uvloop)))
        for peer, kind, lags_of in rivals:
            progress(f"{group}: {peer}, {kind}")
            with ForeignLoad() as load, quiet():
                lags = lags_of(delays)
            early = sum(lag < 0 for lag in lags)
            for name, unit, figure in (
                ("p50", MS, statistics.median(lags)),
                ("p99", MS, percentile(lags, 0.99)),
                ("longest", MS, max(lags)),
                (f"early, of {len(lags):,}", COUNT, early),
            ):
                rows.append(
                    PairedRow(
                        f"{group}, late",
                        f"{kind}, {name}",
                        peer,
                        figure,
                        unit=unit,
                        # Who fires before the time is never late, and no rival.
                        equal=not early,
                        foreign_cores=load.cores,
                    )
                )
    return rows


def _of_engine(path: Path | str, delays: Sequence[float]) -> list[float]:
    lags: list[float] = []
    all_came = threading.Event()

    def handler(_timer_id: int, payload: bytes) -> None:
        now_ns = time.time_ns()
        lags.append((now_ns - _DUE.unpack(payload)[0]) / 1e6)
        if len(lags) == len(delays):
            all_came.set()

    with TimerEngine(path, handler, workers=1) as engine:
        now_ns = time.time_ns()
        for delay in delays:
            due_ns = now_ns + int(delay * 1e9)
            payload = _DUE.pack(due_ns)
            engine.schedule_at(due_ns, payload)
        all_came.wait()
    return lags


def _of_loop(maker: Any, delays: Sequence[float]) -> list[float]:
    """Measure a loop by its own clock, which is what its delays are counted on."""
    lags: list[float] = []
    loop = maker.new_event_loop()
    with contextlib.closing(loop):
        now = time.monotonic

        def fire(due: float) -> None:
            lags.append((now() - due) * 1e3)
            if len(lags) == len(delays):
                loop.stop()

        async def start() -> None:
            for delay in delays:
                begun = now()
                loop.call_later(delay, fire, begun + delay)

        loop.run_until_complete(start())
        loop.run_forever()
    return lags


def _measure_idle(size: Size, progress: Progress) -> list[Row]:
    group = f"{GROUP}, {size.pending:,} pending and none due for an hour"
    with TimerEngine(":memory:", lambda _timer_id, _payload: None) as engine:
        progress(f"{group}: making them")
        rng = random.Random(1)
        for step in load_steps(size.pending):
            delays = [3_600 + rng.random() * 3_600 for _ in range(step)]
            engine.schedule_many(delays, [b""] * step)
        progress(f"{group}: counting wake-ups for {size.idle_seconds} s")
        time.sleep(0.2)  # for the wake-ups that the last of them caused
        with ForeignLoad() as load, quiet():
            before = sum(_switches_of_others())
            time.sleep(size.idle_seconds)
            woken = sum(_switches_of_others()) - before
    return [
        PairedRow(
            group,
            "wake-ups of all threads in 10 s",
            OURS,
            woken * 10 / size.idle_seconds,
            unit=COUNT,
            foreign_cores=load.cores,
        )
    ]


def _switches_of_others() -> Iterator[int]:
    """Yield how often each thread but this one has waited so far."""
    own = threading.get_native_id()
    for thread in os.listdir("/proc/self/task"):
        if int(thread) == own:
            continue
        with open(f"/proc/self/task/{thread}/status", encoding="ascii") as status:
            for line in status:
                if line.startswith("voluntary_ctxt_switches"):
                    yield int(line.split()[1])
