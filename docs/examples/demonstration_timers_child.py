"""The first life of demonstration_timers.py: a process that holds the engine, and dies.

One `write` to a pipe happens whole or not at all, and what is in the pipe outlives the
writer. So each line is a fact: in small letters what the engine is about to be asked for,
in capitals what it has acknowledged.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sys
import threading
import time
from array import array
from collections.abc import Callable, Iterator, Sequence

from timingwheel import TimerEngine
from wal.filesystem import FileSystem, Handle
from wal.frame import MAGIC

BATCH = 4_096  # timers to a commit while loading
SOON = 2_000  # due within two seconds, while the process lives
CANCELLED_EVERY = 200  # of the loaded ones
CANCELLERS = 16  # threads
OVERDUE = 2_000  # due after the process has died
OVERDUE_AFTER_S = 6.0
CALLERS = 8  # threads that schedule and cancel when the kill comes
TRAFFIC_S = 1.5
HOUR_S, MONTH_S = 3_600, 30 * 86_400
PAGE_BYTES = 4_096
STUCK = b"order-stuck"


def payload_of(order: int) -> bytes:
    return b"order-%07d" % order


class DyingFiles(FileSystem):
    """The real disk, under a process that will die in the middle of a write to the log.

    The kernel copies a write page by page, and a kill can cut it after any of them.
    """

    armed = False

    def pwrite(self, handle: Handle, data: bytes, offset: int) -> int:
        first_page = PAGE_BYTES - offset % PAGE_BYTES
        if self.armed and data[:4] == MAGIC and len(data) > first_page:
            super().pwrite(handle, data[:first_page], offset)
            os.kill(os.getpid(), signal.SIGKILL)
        return super().pwrite(handle, data, offset)


class Child:
    """Loads, fires and cancels timers, and reports what the engine says to it."""

    def __init__(self, directory: str, pipe: int, timers: int) -> None:
        self._pipe = pipe
        self._timers = timers
        self._taking = threading.Lock()
        self._next_order = 0
        self._due_ns: dict[int, int] = {}
        self._fired = 0
        self._changed = threading.Condition()
        self._is_stuck = threading.Event()
        self._files = DyingFiles(directory)
        self._engine = TimerEngine(self._files, on_fire=self.on_fire)

    def run(self) -> None:
        self.report("phase", "load")
        ids = self._load()
        self.report("phase", "fire")
        self._schedule_many([2 * k / SOON for k in range(SOON)])
        with self._changed:
            self._changed.wait_for(lambda: self._fired == SOON)
        self.report("phase", "cancel")
        cancelled = ids[CANCELLED_EVERY // 2 :: CANCELLED_EVERY]
        with threads(CANCELLERS, lambda k: self._cancel(cancelled[k::CANCELLERS])):
            pass
        self.report("phase", "overdue")
        # In a random order, so that coming back in the right one means something.
        places = random.Random(7).sample(range(OVERDUE), OVERDUE)
        self._schedule_many([OVERDUE_AFTER_S + place / 1_000 for place in places])
        self._engine.schedule(0, STUCK)
        self._is_stuck.wait()
        self.report("phase", "kill")
        with threads(CALLERS, self._schedule_and_cancel):
            time.sleep(TRAFFIC_S)
            self._files.armed = True

    def report(self, *words: object) -> None:
        os.write(self._pipe, (" ".join(map(str, words)) + "\n").encode())

    def on_fire(self, _: int, payload: bytes) -> None:
        now_ns = time.monotonic_ns()
        if payload == STUCK:
            self._is_stuck.set()
            threading.Event().wait()  # still at work when the process dies
        order = int(payload.removeprefix(b"order-"))
        self.report("FIRED", order, now_ns - self._due_ns[order])
        with self._changed:
            self._fired += 1
            self._changed.notify_all()

    def _load(self) -> array[int]:
        ids = array("q")
        for first in range(0, self._timers, BATCH):
            some = range(first, min(first + BATCH, self._timers))
            # Spread over a month by a multiplicative hash.
            delays = [HOUR_S + order * 2_654_435_761 % MONTH_S for order in some]
            ids.extend(self._schedule_many(delays))
        return ids

    def _schedule_many(self, delays: Sequence[float]) -> range:
        first = self._take(len(delays))
        orders = range(first, first + len(delays))
        if delays[0] < HOUR_S:
            now_ns = time.monotonic_ns()
            for order, delay in zip(orders, delays, strict=True):
                self._due_ns[order] = now_ns + round(delay * 1e9)
        self.report("schedule", len(delays))
        ids = self._engine.schedule_many(
            delays, [payload_of(order) for order in orders]
        )
        self.report("SCHEDULED", len(delays), first, ids[0])
        return ids

    def _schedule_and_cancel(self, caller: int) -> None:
        """Make timers without end, and cancel every third. One caller makes batches."""
        while caller:
            order = self._take(1)
            self.report("schedule", 1)
            timer_id = self._engine.schedule(MONTH_S, payload_of(order))
            self.report("SCHEDULED", 1, order, timer_id)
            if order % 3 == 0:
                self._cancel([timer_id])
        while True:
            self._schedule_many([MONTH_S] * 256)

    def _cancel(self, timer_ids: Sequence[int]) -> None:
        for timer_id in timer_ids:
            self.report("cancel", timer_id)
            if self._engine.cancel(timer_id):
                self.report("CANCELLED", timer_id)

    def _take(self, count: int) -> int:
        """Return the first of so many order numbers that nobody else gets."""
        with self._taking:
            self._next_order += count
            return self._next_order - count


@contextlib.contextmanager
def threads(count: int, work: Callable[[int], None]) -> Iterator[None]:
    """Run `work(0)` to `work(count - 1)` at once; wait for them at the end."""
    started = [
        threading.Thread(target=work, args=(k,), daemon=True) for k in range(count)
    ]
    for thread in started:
        thread.start()
    yield
    for thread in started:
        thread.join()


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides when we end
    signal.alarm(600)  # and should it hang, we do not stay for ever
    Child(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])).run()
