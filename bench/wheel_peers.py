"""Ways that Python programs hold timers, each the loop that a program would write."""

from __future__ import annotations

import asyncio
import importlib
import sched
import sys
import time
from abc import ABC, abstractmethod
from array import array
from collections.abc import Sequence
from datetime import UTC, datetime
from heapq import heappop, heappush
from typing import Any, ClassVar

from sortedcontainers import SortedList

from bench.peers import Kind
from timingwheel.bodies import TimerWheel

HOUR_MS = 3_600_000
START_MS = 1_764_547_200_000  # the present of every peer, in ms since 1970
JUMP_MS = 30 * 24 * HOUR_MS
FAR_MS = START_MS + JUMP_MS + HOUR_MS  # past every deadline
SCHED_CANCELS = 200


class Peer(ABC):
    """One way to hold timers; each method is the loop a program would write."""

    name: ClassVar[str]
    operations: ClassVar[tuple[str, str, str]] = ("insert", "cancel", "expire")
    cancels_max: ClassVar[int] = sys.maxsize
    timers_max: ClassVar[int] = 1_000_000
    """More would take too long: ten times as many take more than ten times as long."""
    steps: ClassVar[bool] = False
    """Whether `step` is measured."""

    @abstractmethod
    def insert(self, deadlines: array[int]) -> Any:
        """Add a timer for each deadline, in ms since 1970; return all handles."""

    @abstractmethod
    def cancel(self, handles: Any) -> None:
        """Cancel each of the handles."""

    @abstractmethod
    def expire(self) -> int:
        """Jump past all deadlines; return how many fired, having seen each."""

    def step(self) -> int:
        """Move from each due time to the next; return how many fired, having seen each."""
        raise NotImplementedError

    def close(self) -> None:  # noqa: B027 - most have nothing to close
        """Give back what is not memory."""


class SingleWheel(Peer):
    """Our wheel, a call a timer."""

    name = "timingwheel"
    timers_max = sys.maxsize
    steps = True

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

    def step(self) -> int:
        next_due, advance = self.wheel.next_due, self.wheel.advance
        fired = 0
        while (tick := next_due()) is not None:
            fired += len(advance(tick))
        return fired


class BatchWheel(Peer):
    """Our wheel, a call for all timers, int64 buffers in and out."""

    name = "timingwheel"
    timers_max = sys.maxsize
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
    timers_max = 10_000_000
    steps = True

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

    def step(self) -> int:
        heap, pending = self.heap, self.pending
        fired = 0
        while heap:
            now = heap[0][0]
            while heap and heap[0][0] <= now:
                if pending.pop(heappop(heap)[1], None) is not None:
                    fired += 1
        return fired


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
    timers_max = 10_000  # its cancel is O(n): 27 ms each at 100,000

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


class Uvloop(Peer):
    """call_later on uvloop, whose clock is the system's: delays are shrunk to fit in.

    So much is divided out of them that all are due within a second, and the wait for that
    is no processor time.
    """

    name = "uvloop call_later"
    shrunk_to_seconds = 1.0

    def __init__(self) -> None:
        uvloop: Any = importlib.import_module("uvloop")
        self.loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
        self.fired: list[int] = []

    def insert(self, deadlines: array[int]) -> list[asyncio.TimerHandle]:
        call_later, fire = self.loop.call_later, self.fired.append
        shrink = self.shrunk_to_seconds / (max(deadlines) - START_MS)
        return [
            call_later((deadline - START_MS) * shrink, fire, key)
            for key, deadline in enumerate(deadlines)
        ]

    def cancel(self, handles: Sequence[asyncio.TimerHandle]) -> None:
        for handle in handles:
            handle.cancel()

    def expire(self) -> int:
        time.sleep(self.shrunk_to_seconds * 1.1)
        self.loop.call_later(0.05, self.loop.stop)
        self.loop.run_forever()
        return len(self.fired)

    def close(self) -> None:
        self.loop.close()


class InMemoryJobs(Peer):
    """APScheduler's job store in memory, as its scheduler drives it."""

    name = "APScheduler, memory"
    timers_max = 10_000  # its insert is O(n)

    def __init__(self) -> None:
        memory: Any = importlib.import_module("apscheduler.jobstores.memory")
        blocking: Any = importlib.import_module("apscheduler.schedulers.blocking")
        self.fired: list[int] = []
        self.store: Any = memory.MemoryJobStore()
        self.scheduler: Any = blocking.BlockingScheduler(timezone=UTC)
        self.handed_out: list[str] = []
        self.store.start(self.scheduler, "default")

    def insert(self, deadlines: array[int]) -> list[str]:
        jobs: Any = importlib.import_module("apscheduler.job")
        dates: Any = importlib.import_module("apscheduler.triggers.date")
        handles = []
        for key, deadline in enumerate(deadlines, len(self.handed_out)):
            due = datetime.fromtimestamp(deadline / 1_000, UTC)
            job = jobs.Job(
                self.scheduler,
                str(key),
                trigger=dates.DateTrigger(due, UTC),
                executor="default",
                func=self.fired.append,
                args=(key,),
                kwargs={},
                name=None,
                misfire_grace_time=None,
                coalesce=True,
                max_instances=1,
                next_run_time=due,
            )
            self.store.add_job(job)
            handles.append(job.id)
        self.handed_out += handles
        return handles

    def cancel(self, handles: Sequence[str]) -> None:
        for handle in handles:
            self.store.remove_job(handle)

    def expire(self) -> int:
        due = self.store.get_due_jobs(datetime.fromtimestamp(FAR_MS / 1_000, UTC))
        for job in due:
            job.func(*job.args)
            self.store.remove_job(job.id)
        return len(self.fired)


PEERS: tuple[type[Peer], ...] = (
    SingleWheel,
    BatchWheel,
    Heapq,
    Sorted,
    Asyncio,
    Uvloop,
    InMemoryJobs,
    Sched,
)

_LIBRARIES = {
    Uvloop: Kind("uvloop", modules=("uvloop",), install="pip install uvloop"),
    InMemoryJobs: Kind(
        "APScheduler", modules=("apscheduler",), install="pip install 'apscheduler<4'"
    ),
}


def is_here(peer: type[Peer]) -> bool:
    """Return whether a peer's library is installed; note it as left out if not."""
    kind = _LIBRARIES.get(peer)
    return kind is None or kind.is_here()
