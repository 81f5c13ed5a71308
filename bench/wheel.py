"""The timing wheel against the ways that Python programs hold timers today.

Every peer gets the same deadlines, uniform from 1 ms to 1 h or log-uniform from 1 ms to 30
days from now, and the same random order of cancels; a tick is a millisecond since 1970, so that deadlines are ints as long as
a program's. A figure is CPU time of this process (a busy neighbour moves it less than wall
time), the loop that calls included, the median of several rounds, without the garbage
collector. A round measures the baseline and every peer once, so that all share what the
machine does meanwhile. Bytes are resident memory of a child process that did nothing else.

The *baseline* is the least that any such call can cost: a C function that parses as many
ints, computes next to nothing and returns an int; see bench/baseline.py.

The *jump* is one advance over 30 days into a buffer, from a load of which every power of
ten between 1 ms and 30 days has its share.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import math
import os
import random
import statistics
import time
from array import array
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from multiprocessing import get_context
from typing import Any, TypeVar

from bench.baseline import (
    NO_INTS,
    NO_INTS_NOTE,
    ONE_INT,
    ONE_INT_NOTE,
    TWO_INTS,
    TWO_INTS_NOTE,
)
from bench.row import Row
from bench.wheel_peers import (
    HOUR_MS,
    JUMP_MS,
    PEERS,
    SCHED_CANCELS,
    START_MS,
    Asyncio,
    BatchWheel,
    Heapq,
    Peer,
    Sched,
    SingleWheel,
    Uvloop,
    is_here,
)
from timingwheel.bodies import TimerWheel

IDLE_CALLS = 20_000
BASELINE = "baseline"
UNIFORM = "delays uniform from 1 ms to 1 h"
LOG_UNIFORM = "delays log-uniform from 1 ms to 30 days"
STEP = "expire, from each due time to the next"
DRAIN = "expire what was cancelled"  # what a lazy cancel still owes

Progress = Callable[[str], object]
Result = TypeVar("Result")
Times = dict[tuple[str, str], float]  # (operation, who) -> ns an operation


LAZY = "lazy: the heap keeps the entry"
NOTES = {
    ("insert", BASELINE): TWO_INTS_NOTE,
    ("cancel", BASELINE): ONE_INT_NOTE,
    ("next_due", BASELINE): NO_INTS_NOTE,
    ("cancel", Heapq.name): LAZY,
    ("cancel", Asyncio.name): LAZY,
    ("expire", Uvloop.name): "delays shrunk to less than a second of real time",
    ("cancel", Sched.name): f"O(n); {SCHED_CANCELS} of them",
}


def measure(
    n: int,
    *,
    progress: Progress = lambda _: None,
    rounds: int | None = None,
    shape: str = UNIFORM,
) -> list[Row]:
    """Measure every peer at n timers.

    Args:
        n: how many timers are pending; 10,000 to 10,000,000 tell something.
        progress: called with a line of text before each step.
        rounds: how often each time is taken; by default fewer the larger n is.
        shape: of the delays: UNIFORM or LOG_UNIFORM.

    Returns:
        Rows of time, then rows of bytes, grouped under this n. A peer is left out beyond
        what it can hold in a time that anybody would wait for, or if it is not installed.
    """
    if rounds is None:
        rounds = 7 if n <= 10_000 else 5 if n <= 100_000 else 3 if n <= 1_000_000 else 1
    group = f"wheel, {n:,} timers" + ("" if shape == UNIFORM else f", {shape}")
    peers = [peer for peer in PEERS if n <= peer.timers_max and is_here(peer)]
    deadlines = deadlines_of(n, shape)
    figures: dict[tuple[str, str], list[float]] = {}
    for turn in range(rounds):
        measured = _baseline_ns(deadlines)
        for peer in peers:
            progress(f"{group}: round {turn + 1} of {rounds}, {peer.name}")
            measured |= _times_ns(peer, deadlines)
        progress(f"{group}: round {turn + 1} of {rounds}, the wheel's other calls")
        measured |= _idle_calls_ns(deadlines)
        measured |= _other_loads_ns(n)
        for rival, figure in measured.items():
            figures.setdefault(rival, []).append(figure)
    rows = [
        Row(group, name, who, statistics.median(took), NOTES.get((name, who), ""))
        for (name, who), took in figures.items()
    ]
    for peer in peers:
        if peer is not BatchWheel:
            progress(f"{group}: {peer.name}, memory")
            rows += _bytes(peer, n, group=group, shape=shape)
    return rows


def deadlines_of(n: int, shape: str = UNIFORM) -> array[int]:
    """Return the deadlines, in ms, that every peer gets, the same on every machine.

    An array, so that each read makes a new int, as computing a deadline does.
    """
    rng = random.Random(n)
    if shape == UNIFORM:
        return array("q", (START_MS + rng.randrange(1, HOUR_MS) for _ in range(n)))
    decades = math.log(JUMP_MS)
    delays = (int(math.exp(rng.random() * decades)) for _ in range(n))
    return array("q", (START_MS + delay for delay in delays))


def cpu_ns(operation: Callable[..., Result], *arguments: object) -> tuple[int, Result]:
    """Return the CPU time that one call took, and what it returned."""
    gc.collect()
    gc.disable()
    try:
        start = time.process_time_ns()
        result = operation(*arguments)
        return time.process_time_ns() - start, result
    finally:
        gc.enable()


def _times_ns(peer: type[Peer], deadlines: array[int]) -> Times:
    n = len(deadlines)
    insert, cancel, expire = ((name, peer.name) for name in peer.operations)
    times: Times = {}
    with closing(peer()) as ours:
        took, handles = cpu_ns(ours.insert, deadlines)
        times[insert] = took / n
        chosen = in_random_order(handles, most=peer.cancels_max)
        del handles
        took, _ = cpu_ns(ours.cancel, chosen)
        times[cancel] = took / len(chosen)
        if peer is not BatchWheel and len(chosen) == n:
            took, fired = cpu_ns(ours.expire)
            times[DRAIN, peer.name] = took / n
            assert fired == 0, f"{peer.name} fired {fired} cancelled timers"
        del chosen
    with closing(peer()) as ours:
        ours.insert(deadlines)
        took, fired = cpu_ns(ours.expire)
        times[expire] = took / n
        assert fired == n, f"{peer.name} fired {fired} of {n} timers"
    if peer.steps:
        with closing(peer()) as ours:
            ours.insert(deadlines)
            took, fired = cpu_ns(ours.step)
            times[STEP, peer.name] = took / n
            assert fired == n, f"{peer.name} fired {fired} of {n} timers"
    return times


def in_random_order(handles: Any, *, most: int) -> Any:
    """Return handles as a program would cancel them: in an order unlike insertion's."""
    chosen = list(handles)
    random.Random(len(chosen)).shuffle(chosen)
    chosen = chosen[:most]
    return array("q", chosen) if isinstance(handles, array) else chosen


def _baseline_ns(deadlines: array[int]) -> Times:
    n = len(deadlines)
    two_ints, one_int, no_ints = TWO_INTS, ONE_INT, NO_INTS
    handles = in_random_order([(1 << 32) + key for key in range(n)], most=n)

    def call_with_two() -> None:
        _ = [two_ints(deadline, key) for key, deadline in enumerate(deadlines)]

    def call_with_one() -> None:
        for handle in handles:
            one_int(handle)

    def call_with_none() -> None:
        for _ in range(IDLE_CALLS):
            no_ints()

    return {
        ("insert", BASELINE): cpu_ns(call_with_two)[0] / n,
        ("cancel", BASELINE): cpu_ns(call_with_one)[0] / n,
        ("next_due", BASELINE): cpu_ns(call_with_none)[0] / IDLE_CALLS,
    }


def _idle_calls_ns(deadlines: array[int]) -> Times:
    """Measure the calls that a tick thread makes when there is nothing to do."""
    wheel = TimerWheel(START_MS)
    wheel.insert_many(deadlines, array("q", range(len(deadlines))))
    now = wheel.now_tick

    def ask() -> None:
        for _ in range(IDLE_CALLS):
            wheel.next_due()

    def advance() -> None:
        for _ in range(IDLE_CALLS):
            wheel.advance(now)

    return {
        ("next_due", SingleWheel.name): cpu_ns(ask)[0] / IDLE_CALLS,
        ("advance, nothing due", SingleWheel.name): cpu_ns(advance)[0] / IDLE_CALLS,
    }


def _other_loads_ns(n: int) -> Times:
    """Measure the wheel with delays of every size, and where places are used again."""
    deadlines = deadlines_of(n, LOG_UNIFORM)
    keys, out = array("q", range(n)), array("q", bytes(8 * n))
    wheel = TimerWheel(START_MS)
    handles = wheel.insert_many(deadlines, keys)
    wheel.cancel_many(in_random_order(handles, most=n))
    again, _ = cpu_ns(wheel.insert_many, deadlines, keys)
    jump, fired = cpu_ns(wheel.advance_into, START_MS + JUMP_MS, out)
    assert fired == n, f"{fired} of {n} timers fired"
    return {
        ("insert_many, places used before", SingleWheel.name): again / n,
        ("jump of 30 days, all due", SingleWheel.name): jump / n,
    }


def _bytes(peer: type[Peer], n: int, *, group: str, shape: str) -> list[Row]:
    if not os.path.exists("/proc/self/statm"):
        return []
    rows = [
        Row(
            group,
            "bytes a timer",
            peer.name,
            _in_a_child(resident_bytes_of, peer, n, shape) / n,
            note="resident, handles not counted",
            unit="B",
        )
    ]
    if peer.cancels_max >= n:
        kept = _in_a_child(resident_bytes_after_cancels_of, peer, n, shape) / n
        rows.append(Row(group, "bytes kept by cancelled", peer.name, kept, unit="B"))
    return rows


def _in_a_child(
    count: Callable[[type[Peer], int, str], int], peer: type[Peer], n: int, shape: str
) -> int:
    # A fresh process: what an earlier load has freed would hide the growth.
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(count, peer, n, shape).result()


def resident_bytes_of(peer: type[Peer], n: int, shape: str) -> int:
    """Return by how much n pending timers make this process grow."""
    deadlines = deadlines_of(n, shape)
    with closing(peer()) as ours:
        before = resident_bytes()
        # Piecemeal, for a million handles given out and freed again leave holes.
        for start in range(0, n, 1_000):
            ours.insert(deadlines[start : start + 1_000])
        return resident_bytes() - before


def resident_bytes_after_cancels_of(peer: type[Peer], n: int, shape: str) -> int:
    """Return what is left of that growth when all have been cancelled, none expired."""
    deadlines = deadlines_of(n, shape)
    with closing(peer()) as ours:
        before = resident_bytes()
        ours.cancel(in_random_order(ours.insert(deadlines), most=n))
        return resident_bytes() - before


def resident_bytes() -> int:
    """Return what this process holds in memory now."""
    gc.collect()
    # What is free goes back to the system, so that only what is held is counted.
    with contextlib.suppress(AttributeError):  # the C library is not glibc
        ctypes.CDLL(None).malloc_trim(0)
    with open("/proc/self/statm", encoding="ascii") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
