"""What the tests of the engine share: handlers that note, clocks that count, disks that
hold up a sync. Nothing here sleeps; whatever waits, waits for an event."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Final, TypedDict

from timingwheel.clock import Clock
from timingwheel.engine.core import EngineCore
from timingwheel.engine.engine import TimerEngine
from timingwheel.engine.records import DEADLINE_MAX_NS, Base, timer_scheduled
from timingwheel.testing import ManualClock
from wal.errors import DiskFullError, RecordTooLargeError
from wal.filesystem import Handle
from wal.testing import MemoryFileSystem

SECOND_NS: Final = 1_000_000_000
TICK_S: Final = 0.0001
"""More than one tick of the wheels, which round a deadline up to the next."""
PATIENCE_S: Final = 30.0
"""How long a test waits for what must come; a test that is well never needs it."""


class LogSizes(TypedDict):
    """Sizes that keep a test's disk small."""

    segment_size_bytes: int
    reserve_bytes: int


SMALL: Final = LogSizes(segment_size_bytes=64 << 10, reserve_bytes=1)


class Recorder:
    """A handler that notes its calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, bytes]] = []
        self._changed = threading.Condition()

    def __call__(self, timer_id: int, payload: bytes) -> None:
        with self._changed:
            self.calls.append((timer_id, payload))
            self._changed.notify_all()

    @property
    def payloads(self) -> list[bytes]:
        """What was delivered, in the order of the calls."""
        return [payload for _, payload in self.calls]

    def wait_for(self, count: int) -> list[bytes]:
        """Return the payloads once there are so many."""
        with self._changed:
            reached = self._changed.wait_for(
                lambda: len(self.calls) >= count, PATIENCE_S
            )
            assert reached, f"{len(self.calls)} of {count} calls came"
            return self.payloads


class Door:
    """Holds up whoever passes until it is opened, and tells that somebody is there.

    With a clock whoever waits there counts as parked, so that `settle` does not wait.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self.reached = threading.Event()
        self._clock = clock
        self._changed = threading.Condition()
        self._is_open = False

    def __call__(self, *_: object) -> None:
        self.reached.set()
        with self._changed:
            while not self._is_open:
                if self._clock is not None:
                    self._clock.wait(self._changed, None)
                else:
                    assert self._changed.wait(PATIENCE_S), "nobody opened the door"

    def open(self) -> None:
        with self._changed:
            self._is_open = True
            self._changed.notify_all()

    def await_somebody(self) -> None:
        assert self.reached.wait(PATIENCE_S), "nobody came to the door"


class CountingClock(ManualClock):
    """A manual clock that counts how often threads went to wait on it, and until when."""

    def __init__(self, **start: int) -> None:
        super().__init__(**start)
        self.untils: list[int | None] = []

    def wait(self, condition: threading.Condition, until_ns: int | None) -> None:
        if until_ns != 0:  # that is a thread which only makes itself known
            self.untils.append(until_ns)
        super().wait(condition, until_ns)


class GatedDisk(MemoryFileSystem):
    """A disk whose commits can be held up; it notes which threads make them."""

    def __init__(self) -> None:
        super().__init__()
        self.gate: Door | None = None
        self.syncers: list[str] = []

    def datasync(self, handle: Handle) -> None:
        if self._machine.opened(handle).name.endswith(".seg"):
            self.syncers.append(threading.current_thread().name)
            if self.gate is not None:
                self.gate()
        super().datasync(handle)


def repeat_until(
    error: type[Exception] | tuple[type[Exception], ...], act: Callable[[], object]
) -> int:
    """Do something until it raises that error; return how often it did not."""
    count = 0
    while True:
        try:
            act()
        except error:
            return count
        count += 1


def handlers_done(engine: TimerEngine) -> None:
    """Return when no handler runs and none is queued."""
    dispatcher = engine._dispatcher
    with dispatcher._done:
        assert dispatcher._done.wait_for(
            lambda: not dispatcher._queue and not dispatcher._busy, PATIENCE_S
        )


def settle(engine: TimerEngine, clock: CountingClock) -> None:
    """Return when nothing more will happen before the clock is turned."""
    while True:
        clock.settle(PATIENCE_S, threads=1)
        waits = len(clock.untils)
        handlers_done(engine)
        clock.settle(PATIENCE_S, threads=1)
        if len(clock.untils) == waits:
            return


def _transact(core: EngineCore, records: list[bytes]) -> None:
    core.transact(lambda _: records, urgent=True)


def fill_up(core: EngineCore, disk: MemoryFileSystem) -> int:
    """Leave no room for one more record, not in the reserve either.

    Returns:
        How many timers that took, none of which is ever due.
    """
    disk.capacity_bytes = disk.used_bytes
    count = 0
    for size_bytes in (30_000, 3_000, 300, 0):
        records = [timer_scheduled(Base.WALL, DEADLINE_MAX_NS, bytes(size_bytes))]
        add = functools.partial(_transact, core, records)
        count += repeat_until((DiskFullError, RecordTooLargeError), add)
    return count
