"""Ready runs in the order in which they are to start, and what holds them back.

Runs wait in *lanes*, one for each (queue, task), so that a worker which lacks a task or a
queue that is paused skips a whole lane and not its runs one by one. Order within and
across lanes is by rank = due - priority x 60 s, then by sequence: a constant of the run, so
plain heaps serve and nothing starves, since a minute's wait outweighs any one step of
priority.

A run that a cap holds back is set aside with others of that cap. When one of them ends,
the first of each lane returns; so a full cap costs nothing while it is full. Invariant:
where a cap has room, the first that wait for it stand in their lanes. Hence one that
returned and turns out to be none any more, or is held back by another cap, passes the
room on to the next.

An entry is one integer: rank in the high bits, sequence in the low ones. Nothing is taken
out of the middle of a lane: whoever picks judges if an entry is still good. A lane that
nobody picks from, as its queue is paused, is swept when a quarter of it is good no more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from enum import Enum, auto
from heapq import heapify, heappop, heappush, heapreplace
from typing import Final, NamedTuple

PRIORITY_NS: Final = 60_000_000_000
"""What one step of priority is worth in waiting."""
STALE_MIN: Final = 1_024
"""Entries in one lane that may be none any more before it is swept."""
_SEQ_BITS: Final = 63
_SEQ_MASK: Final = (1 << _SEQ_BITS) - 1


class Lane(NamedTuple):
    """Which runs wait together."""

    queue: str
    task: str


class Pick(Enum):
    """What becomes of an entry that is the next in order."""

    TAKE = auto()
    DROP = auto()
    """It is none any more: cancelled, held, or claimed already."""
    QUEUE_FULL = auto()
    """Its queue lets nothing more go now."""
    ASIDE = auto()
    """A cap holds it back: the judge has said which, by `set_aside`."""
    ENOUGH = auto()
    """It goes, but not in this claim."""


class ReadyOrder:
    """The lanes, and the runs set aside by cap. The store's lock guards it.

    Args:
        is_ready: whether the run of a sequence number still waits in a lane.
    """

    def __init__(self, is_ready: Callable[[int, Lane], bool]) -> None:
        self._is_ready = is_ready
        self._stale: Counter[Lane] = Counter()
        self._lanes: dict[Lane, list[int]] = {}
        self._aside: dict[str, dict[Lane, list[int]]] = {}
        self._released: dict[int, str] = {}
        self._passed_on: list[str] = []

    def push(self, seq: int, lane: Lane, *, due_ns: int, priority: int) -> None:
        """Add a run. Cost: O(log n)."""
        rank = due_ns - priority * PRIORITY_NS
        heappush(self._lanes.setdefault(lane, []), rank << _SEQ_BITS | seq)

    def note_stale(self, lane: Lane) -> None:
        """A run of a lane waits no more, though its entry may stand there still.

        Cost: O(1), and now and then a sweep of the lane; O(log n) over time.
        """
        self._stale[lane] += 1
        size = len(self._lanes.get(lane, ()))
        if self._stale[lane] > max(STALE_MIN, size // 4):
            self._sweep(lane)

    def _sweep(self, lane: Lane) -> None:
        """Leave out what is none any more, of a lane and of what is set aside from it."""
        del self._stale[lane]
        heap = self._lanes.get(lane, [])
        for entry in self._keep_ready(heap, lane):
            self._note_verdict(entry, Pick.DROP)
        if not heap:
            self._lanes.pop(lane, None)
        for cap, aside in list(self._aside.items()):
            if lane in aside:
                self._keep_ready(aside[lane], lane)
                if not aside[lane]:
                    del aside[lane]
            if not aside:
                del self._aside[cap]

    def _keep_ready(self, heap: list[int], lane: Lane) -> set[int]:
        """Leave only what is ready in a heap, once each; return what went."""
        before = set(heap)
        heap[:] = {entry for entry in before if self._is_ready(entry & _SEQ_MASK, lane)}
        heapify(heap)
        return before.difference(heap)

    def pick(
        self,
        judge: Callable[[int, int, Lane], Pick],
        *,
        tasks: frozenset[str],
        is_open: Callable[[str], bool],
    ) -> None:
        """Show entries in order to a judge, until it has enough or none is left.

        Args:
            judge: called with (seq, entry, lane); says what becomes of it.
            tasks: of which lanes.
            is_open: whether a queue lets anything go now.
        """
        while True:
            self._pick(judge, tasks=tasks, is_open=is_open)
            if not self._passed_on:
                return
            caps, self._passed_on = self._passed_on, []
            for cap in caps:
                self.release(cap)

    def _pick(
        self,
        judge: Callable[[int, int, Lane], Pick],
        *,
        tasks: frozenset[str],
        is_open: Callable[[str], bool],
    ) -> None:
        heads = [
            (heap[0], lane)
            for lane, heap in self._lanes.items()
            if heap and lane.task in tasks and is_open(lane.queue)
        ]
        heapify(heads)
        while heads:
            entry, lane = heads[0]
            heap = self._lanes[lane]
            verdict = judge(entry & _SEQ_MASK, entry, lane)
            if verdict is Pick.ENOUGH:
                return
            if verdict is Pick.QUEUE_FULL:
                heads = [head for head in heads if head[1].queue != lane.queue]
                heapify(heads)
                continue
            self._note_verdict(entry, verdict)
            heappop(heap)
            if heap:
                heapreplace(heads, (heap[0], lane))
            else:
                heappop(heads)
                del self._lanes[lane]

    def _note_verdict(self, entry: int, verdict: Pick) -> None:
        cap = self._released.pop(entry, None)
        if cap is not None and verdict is Pick.DROP:
            self._passed_on.append(cap)

    def put_back(self, entries: Iterable[tuple[int, Lane, Sequence[str]]]) -> None:
        """Return entries, with their caps, that were taken and could not be claimed."""
        for entry, lane, caps in entries:
            heappush(self._lanes.setdefault(lane, []), entry)
            if caps:
                self._released[entry] = caps[0]

    def set_aside(self, cap: str, entry: int, lane: Lane) -> None:
        """Keep an entry until `release` of the cap that holds it back."""
        heappush(self._aside.setdefault(cap, {}).setdefault(lane, []), entry)
        former = self._released.pop(entry, cap)
        if former != cap:
            self._passed_on.append(former)

    def release(self, cap: str) -> None:
        """Let the first in each lane that is set aside for a cap stand there again."""
        aside = self._aside.get(cap, {})
        for lane, heap in list(aside.items()):
            self._stand_again(cap, lane, heappop(heap))
            if not heap:
                del aside[lane]
        if not aside:
            self._aside.pop(cap, None)

    def release_all(self, cap: str) -> None:
        """Let all of them: the cap itself has changed."""
        for lane, heap in self._aside.pop(cap, {}).items():
            for entry in heap:
                self._stand_again(cap, lane, entry)

    def _stand_again(self, cap: str, lane: Lane, entry: int) -> None:
        heappush(self._lanes.setdefault(lane, []), entry)
        self._released[entry] = cap

    def lanes(self) -> dict[Lane, int]:
        """Return how many entries wait in each lane, stale ones included."""
        return {lane: len(heap) for lane, heap in self._lanes.items()}

    def by_queue(self) -> Counter[str]:
        """Return how many entries wait in each queue, stale ones included.

        Cost: O(lanes), and of those set aside O(caps).
        """
        waiting: Counter[str] = Counter()
        for lanes in (self._lanes, *self._aside.values()):
            for lane, heap in lanes.items():
                waiting[lane.queue] += len(heap)
        return waiting

    def __len__(self) -> int:
        in_lanes = sum(map(len, self._lanes.values()))
        asides = [heap for aside in self._aside.values() for heap in aside.values()]
        return in_lanes + sum(map(len, asides))
