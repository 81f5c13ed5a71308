"""The timing wheel against the ways that Python programs hold timers today.

Every peer gets the same deadlines, 1 ms to 1 h from now and uniform, and the same random
order of cancels; a tick is a millisecond since 1970, so that deadlines are ints as long as
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

import asyncio
import contextlib
import ctypes
import gc
import math
import os
import random
import sched
import statistics
import sys
import time
from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from heapq import heappop, heappush
from multiprocessing import get_context
from typing import Any, ClassVar, TypeVar

from sortedcontainers import SortedList

from bench.baseline import (
    NO_INTS,
    NO_INTS_NOTE,
    ONE_INT,
    ONE_INT_NOTE,
    TWO_INTS,
    TWO_INTS_NOTE,
)
from bench.row import Row
from timingwheel.bodies import TimerWheel

HOUR_MS = 3_600_000
START_MS = 1_764_547_200_000  # the present of every peer, in ms since 1970
FAR_MS = START_MS + 2 * HOUR_MS  # past every deadline
JUMP_MS = 30 * 24 * HOUR_MS
SCHED_TIMERS_MAX = 10_000  # its cancel is O(n): 27 ms each at 100,000
SCHED_CANCELS = 200
IDLE_CALLS = 20_000
BASELINE = "baseline"
DRAIN = "expire what was cancelled"  # what a lazy cancel still owes

Progress = Callable[[str], object]
Result = TypeVar("Result")
Times = dict[tuple[str, str], float]  # (operation, who) -> ns an operation


class Peer(ABC):
    """One way to hold timers; each method is the loop a program would write."""

    name: ClassVar[str]
    operations: ClassVar[tuple[str, str, str]] = ("insert", "cancel", "expire")
    cancels_max: ClassVar[int] = sys.maxsize

    @abstractmethod
    def insert(self, deadlines: array[int]) -> Any:
        """Add a timer for each deadline, in ms since 1970; return all handles."""

    @abstractmethod
    def cancel(self, handles: Any) -> None:
        """Cancel each of the handles."""

    @abstractmethod
    def expire(self) -> int:
        """Jump past all deadlines; return how many fired, having seen each."""

    def close(self) -> None:  # noqa: B027 - most have nothing to close
        """Give back what is not memory."""


class SingleWheel(Peer):
    """Our wheel, a call a timer."""

    name = "timingwheel"

    def __init__(self) -> None:
        self.wheel = TimerWheel(START_MS)

    def insert(self, deadlines: array[int]) -> list[int]:
        insert = self.wheel.insert
        return [insert(deadline, key) for key, deadline in enumerate(deadlines)]

    def cancel(self, handles: Sequence[int]) -> None:
        cancel = self.wheel.cancel
        for handle in handles:
            cancel(handle)

    def expire(self) -> int:
        return len(self.wheel.advance(FAR_MS))


class BatchWheel(Peer):
    """Our wheel, a call for all timers, int64 buffers in and out."""

    name = "timingwheel"
    operations = ("insert_many", "cancel_many", "advance_into")

    def __init__(self) -> None:
        self.wheel = TimerWheel(START_MS)

    def insert(self, deadlines: array[int]) -> array[int]:
        # The keys are the deadlines once more: to make others would be measured too.
        return self.wheel.insert_many(deadlines, deadlines)

    def cancel(self, handles: array[int]) -> None:
        self.wheel.cancel_many(handles)

    def expire(self) -> int:
        return self.wheel.advance_into(FAR_MS, array("q", bytes(8 * len(self.wheel))))


class Heapq(Peer):
    """The standard recipe: a heap of tuples, a dict that says what is still wanted."""

    name = "heapq + dict"

    def __init__(self) -> None:
        self.heap: list[tuple[int, int]] = []
        self.pending: dict[int, int] = {}

    def insert(self, deadlines: array[int]) -> list[int]:
        heap, pending = self.heap, self.pending
        first = len(pending)
        for serial, deadline in enumerate(deadlines, first):
            pending[serial] = serial
            heappush(heap, (deadline, serial))
        return list(range(first, first + len(deadlines)))

    def cancel(self, handles: Sequence[int]) -> None:
        pending = self.pending
        for handle in handles:
            pending.pop(handle, None)

    def expire(self) -> int:
        heap, pending = self.heap, self.pending
        fired = []
        while heap and heap[0][0] <= FAR_MS:
            key = pending.pop(heappop(heap)[1], None)
            if key is not None:
                fired.append(key)
        return len(fired)


class Sorted(Peer):
    """A SortedList of tuples, a dict from handle to deadline: cancels at once."""

    name = "SortedList + dict"

    def __init__(self) -> None:
        self.order: SortedList[tuple[int, int]] = SortedList()
        self.pending: dict[int, int] = {}

    def insert(self, deadlines: array[int]) -> list[int]:
        add, pending = self.order.add, self.pending
        first = len(pending)
        for serial, deadline in enumerate(deadlines, first):
            pending[serial] = deadline
            add((deadline, serial))
        return list(range(first, first + len(deadlines)))

    def cancel(self, handles: Sequence[int]) -> None:
        remove, pending = self.order.remove, self.pending
        for handle in handles:
            remove((pending.pop(handle), handle))

    def expire(self) -> int:
        order, pending = self.order, self.pending
        fired = []
        while order and order[0][0] <= FAR_MS:
            serial = order.pop(0)[1]
            del pending[serial]
            fired.append(serial)
        return len(fired)


class FakeTimeLoop(asyncio.SelectorEventLoop):
    """The standard loop at a time of our choice, so that nothing waits."""

    now = 0.0

    def time(self) -> float:
        return self.now


class Asyncio(Peer):
    """call_later on the standard event loop."""

    name = "asyncio call_later"

    def __init__(self) -> None:
        self.loop = FakeTimeLoop()
        self.fired: list[int] = []

    def insert(self, deadlines: array[int]) -> list[asyncio.TimerHandle]:
        call_later, fire = self.loop.call_later, self.fired.append
        return [
            call_later((deadline - START_MS) / 1_000, fire, key)
            for key, deadline in enumerate(deadlines)
        ]

    def cancel(self, handles: Sequence[asyncio.TimerHandle]) -> None:
        for handle in handles:
            handle.cancel()

    def expire(self) -> int:
        self.loop.now = (FAR_MS - START_MS) / 1_000
        self.loop.call_soon(self.loop.stop)
        self.loop.run_forever()  # one turn: all due run, then it stops
        return len(self.fired)

    def close(self) -> None:
        self.loop.close()


class Sched(Peer):
    """The standard library's scheduler."""

    name = "sched"
    cancels_max = SCHED_CANCELS

    def __init__(self) -> None:
        self.now = START_MS
        self.scheduler = sched.scheduler(lambda: self.now, lambda _: None)
        self.fired: list[int] = []

    def insert(self, deadlines: array[int]) -> list[sched.Event]:
        enter, fire = self.scheduler.enterabs, self.fired.append
        return [
            enter(deadline, 0, fire, (key,)) for key, deadline in enumerate(deadlines)
        ]

    def cancel(self, handles: Sequence[sched.Event]) -> None:
        for handle in handles:
            self.scheduler.cancel(handle)

    def expire(self) -> int:
        self.now = FAR_MS
        self.scheduler.run()
        return len(self.fired)


PEERS: tuple[type[Peer], ...] = (
    SingleWheel,
    BatchWheel,
    Heapq,
    Sorted,
    Asyncio,
    Sched,
)

LAZY = "lazy: the heap keeps the entry"
NOTES = {
    ("insert", BASELINE): TWO_INTS_NOTE,
    ("cancel", BASELINE): ONE_INT_NOTE,
    ("next_due", BASELINE): NO_INTS_NOTE,
    ("cancel", Heapq.name): LAZY,
    ("cancel", Asyncio.name): LAZY,
    ("cancel", Sched.name): f"O(n); {SCHED_CANCELS} of them",
}


def measure(
    n: int, *, progress: Progress = lambda _: None, rounds: int | None = None
) -> list[Row]:
    """Measure every peer at n timers.

    Args:
        n: how many timers are pending; 10,000 to 10,000,000 tell something.
        progress: called with a line of text before each step.
        rounds: how often each time is taken; by default fewer the larger n is.

    Returns:
        Rows of time, then rows of bytes, grouped under this n. `sched` is left out
        beyond 10,000 timers, where its cancels would take hours.
    """
    if rounds is None:
        rounds = 7 if n <= 10_000 else 5 if n <= 100_000 else 3
    group = f"wheel, {n:,} timers"
    peers = [peer for peer in PEERS if peer is not Sched or n <= SCHED_TIMERS_MAX]
    deadlines = deadlines_of(n)
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
            rows += _bytes(peer, n, group=group)
    return rows


def deadlines_of(n: int) -> array[int]:
    """Return the deadlines, in ms, that every peer gets, the same on every machine.

    An array, so that each read makes a new int, as computing a deadline does.
    """
    rng = random.Random(n)
    return array("q", (START_MS + rng.randrange(1, HOUR_MS) for _ in range(n)))


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
    rng = random.Random(n)
    decades = math.log(JUMP_MS)
    delays = (int(math.exp(rng.random() * decades)) for _ in range(n))
    deadlines = array("q", (START_MS + delay for delay in delays))
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


def _bytes(peer: type[Peer], n: int, *, group: str) -> list[Row]:
    if not os.path.exists("/proc/self/statm"):
        return []
    rows = [
        Row(
            group,
            "bytes a timer",
            peer.name,
            _in_a_child(resident_bytes_of, peer, n) / n,
            note="resident, handles not counted",
            unit="B",
        )
    ]
    if peer.cancels_max >= n:
        kept = _in_a_child(resident_bytes_after_cancels_of, peer, n) / n
        rows.append(Row(group, "bytes kept by cancelled", peer.name, kept, unit="B"))
    return rows


def _in_a_child(
    count: Callable[[type[Peer], int], int], peer: type[Peer], n: int
) -> int:
    # A fresh process: what an earlier load has freed would hide the growth.
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(count, peer, n).result()


def resident_bytes_of(peer: type[Peer], n: int) -> int:
    """Return by how much n pending timers make this process grow."""
    deadlines = deadlines_of(n)
    with closing(peer()) as ours:
        before = resident_bytes()
        # Piecemeal, for a million handles given out and freed again leave holes.
        for start in range(0, n, 1_000):
            ours.insert(deadlines[start : start + 1_000])
        return resident_bytes() - before


def resident_bytes_after_cancels_of(peer: type[Peer], n: int) -> int:
    """Return what is left of that growth when all have been cancelled, none expired."""
    deadlines = deadlines_of(n)
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
