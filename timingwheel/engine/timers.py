"""The smallest owner of an engine core: timers that carry bytes to a handler.

This is all that `TimerEngine` and `AsyncTimerEngine` mean by a timer, without a thread
and without waiting: each request returns its result and the LSN that the reply must wait
for. A timer is *waiting*, then *fired* (durably, and handed to a worker), then *running*
in a handler; returning acknowledges it, raising has it redelivered with backoff, without
end, until it is cancelled. That a handler runs is known to this process alone: after a
crash every fired timer is delivered again.

    waiting ──due──▶ fired ──a worker takes it──▶ running ──returns──▶ acknowledged
       ▲               │                             │
       └───────────────┴──── reschedule ─────────────┴── raises, after 1 s to 10 min
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from timingwheel.clock import Clock
from timingwheel.engine.arguments import (
    checked_batch,
    checked_deadline_ns,
    checked_delay_ns,
    checked_payload,
    checked_timer_id,
    checked_wall_ns,
)
from timingwheel.engine.bodies import Lane
from timingwheel.engine.core import EngineCore
from timingwheel.engine.owner import Due
from timingwheel.engine.records import (
    Base,
    TimerId,
    timer_acknowledged,
    timer_cancelled,
    timer_fired,
    timer_rescheduled,
    timer_scheduled,
    timers_acknowledged,
    timers_fired,
)
from timingwheel.engine.table import Row, State
from timingwheel.engine.volatile import VolatileLog
from timingwheel.errors import ArgumentError
from wal.log import Log

BACKOFF_FIRST_NS: Final = 1_000_000_000
BACKOFF_MAX_NS: Final = 600_000_000_000
FIRED_TOGETHER_MIN: Final = 2
_WALK_SLOTS: Final = 4_096


class Timer(NamedTuple):
    """A live timer as a caller sees it.

    Attributes:
        id: what `schedule` returned.
        deadline_ns: when it is due, on the wall clock as that stands now, ns since 1970.
        payload: the bytes it carries.
        attempt: how often its delivery has begun.
        fired: whether it is being delivered; else it waits for its deadline.
        wall: whether it follows the wall clock (`schedule_at`).
    """

    id: TimerId
    deadline_ns: int
    payload: bytes
    attempt: int
    fired: bool
    wall: bool


class Timers:
    """Requests about timers, decided against the core. Never waits for the disk.

    Args:
        log: opened, in read mode.
        clock: where time comes from.
        may_wait: whether a request may wait for the log's next segment; if not, it
            raises RoomNeededError.
    """

    def __init__(self, log: Log | VolatileLog, clock: Clock, *, may_wait: bool) -> None:
        self._startable: set[int] = set()
        """Timers that fired and have no handler yet. Whoever takes one out of here,
        which is atomic, has it: a worker to run its handler, or a request to change it.
        (Under the core's lock, workers and the tick thread would hand it to and fro.)"""
        self.core = EngineCore(log, self, clock)
        self.lane = Lane(self.core)
        """The short way of all requests but `schedule_at`: try it first."""
        self._submit = self.core.submit if may_wait else self.core.submit_now

    # -- requests: each returns its result and the LSN that the reply waits for ----------

    def schedule(self, delay: float, payload: bytes) -> tuple[TimerId, int]:
        """Make a timer that is due `delay` seconds from now."""
        delay_ns = checked_delay_ns(delay)
        checked_payload(payload)
        deadline_ns = checked_deadline_ns(self.core.elapsed_ns(), delay_ns, found=delay)
        return self._make([timer_scheduled(Base.ELAPSED, deadline_ns, payload)])

    def schedule_at(self, wall_ns: int, payload: bytes) -> tuple[TimerId, int]:
        """Make a timer that is due when the wall clock shows `wall_ns`."""
        deadline_ns = checked_wall_ns(wall_ns)
        checked_payload(payload)
        return self._make([timer_scheduled(Base.WALL, deadline_ns, payload)])

    def schedule_many(
        self, delays: Sequence[float], payloads: Sequence[bytes]
    ) -> tuple[range, int]:
        """Make many timers as one atomic group; their ids are consecutive."""
        delays_ns, payloads = checked_batch(delays, payloads)
        now_ns = self.core.elapsed_ns()
        if delays_ns:
            last = max(range(len(delays_ns)), key=delays_ns.__getitem__)
            checked_deadline_ns(
                now_ns, delays_ns[last], found=delays[last], argument=f"delays[{last}]"
            )
        first, lsn = self._make(
            [
                timer_scheduled(Base.ELAPSED, now_ns + delay_ns, payload)
                for delay_ns, payload in zip(delays_ns, payloads, strict=True)
            ]
        )
        return range(first, first + len(delays_ns)), lsn

    def reschedule(self, timer_id: int, delay: float) -> tuple[bool, int]:
        """Give a timer that no handler has yet a new delay; False if there is none."""
        checked_timer_id(timer_id)
        delay_ns = checked_delay_ns(delay)
        deadline_ns = checked_deadline_ns(self.core.elapsed_ns(), delay_ns, found=delay)

        def moved(slot: int) -> bytes:
            return timer_rescheduled(
                timer_id,
                base=Base.ELAPSED,
                deadline_ns=deadline_ns,
                attempt=self.core.state.table.attempt(slot),
            )

        return self._change(timer_id, moved)

    def cancel(self, timer_id: int) -> tuple[bool, int]:
        """Remove a timer that no handler has yet; False if there is none."""
        checked_timer_id(timer_id)
        return self._change(timer_id, lambda _: timer_cancelled(timer_id))

    # -- delivery -----------------------------------------------------------------------

    def begin(self, timer_id: int) -> bytes | None:
        """Give a fired timer to a handler: return its payload and mark it as running.

        None if it was cancelled or rescheduled meanwhile, or has a handler already.
        """
        self.core.require_alive()
        table = self.core.state.table
        slot = table.slot(timer_id)
        if slot is None or table.is_waiting(slot) or not self._take(timer_id):
            return None
        return table.payload(slot)  # nobody else can change it from now on

    def acknowledge(self, timer_ids: Sequence[int]) -> int:
        """Remove timers whose handlers returned. Returns the LSN to be committed.

        Not for event loops: it may wait for the log's next segment.
        """
        event = (
            timer_acknowledged(timer_ids[0])
            if len(timer_ids) == 1
            else timers_acknowledged(timer_ids)
        )
        return self.core.submit(lambda _: [event], urgent=True)

    def redeliver_later(self, timer_id: int) -> int:
        """Have a timer whose handler raised wait for its next delivery."""

        def decide(_: int) -> list[bytes]:
            state = self.core.state
            attempt = state.table.attempt(state.slot_of(timer_id))
            return [
                timer_rescheduled(
                    timer_id,
                    base=Base.ELAPSED,
                    deadline_ns=self.core.elapsed_ns() + backoff_ns(attempt),
                    attempt=attempt,
                )
            ]

        return self._submit(decide, urgent=True)

    # -- reading: may show what is not durable yet ----------------------------------------

    def __len__(self) -> int:
        self.core.require_alive()
        return len(self.core.state.table)

    def get(self, timer_id: int) -> Timer | None:
        """Return a live timer, None if there is none of that id."""
        checked_timer_id(timer_id)
        with self.core.lock:
            self.core.require_alive()
            slot = self.core.state.table.slot(timer_id)
            return None if slot is None else self._seen(self.core.state.table.row(slot))

    def first(self, limit: int) -> list[Timer]:
        """Return the `limit` live timers that are due first, in due order.

        Walks the table in steps, so what comes and goes meanwhile may be missed.
        """
        if type(limit) is not int or limit < 0:
            raise ArgumentError("limit", limit, "pass a number of timers, 0 or more")
        return heapq.nsmallest(
            limit, self._walk(), key=lambda timer: (timer.deadline_ns, timer.id)
        )

    # -- the owner's part of the core -----------------------------------------------------

    def decide_due(self, due: Due) -> list[bytes]:
        """Fire whatever is due."""
        self._startable.update(due.timers)  # no worker hears of them before the commit
        attempts = self.core.state.table.attempts(due.timers)
        if len(attempts) < FIRED_TOGETHER_MIN:
            return [
                timer_fired(timer_id, attempt + 1)
                for timer_id, attempt in zip(due.timers, attempts, strict=True)
            ]
        if attempts.count(attempts[0]) == len(attempts):  # most fire for the first time
            return [timers_fired(due.timers, attempts[0] + 1)]
        together: dict[int, list[TimerId]] = {}
        for timer_id, attempt in zip(due.timers, attempts, strict=True):
            together.setdefault(attempt + 1, []).append(timer_id)
        return [timers_fired(ids, attempt) for attempt, ids in together.items()]

    def apply(self, records: list[tuple[int, bytes]]) -> None:
        """Refuse records of other owners: this one has none of its own."""
        lsn, record = records[0]
        raise ArgumentError(
            "path",
            f"LSN {lsn} of kind {record[0]}",
            "this directory belongs to a scheduler: open it with Scheduler",
        )

    def dump(self) -> Iterator[bytes]:
        """Yield nothing: all state is in the timers."""
        return iter(())

    def load(self, blob: bytes) -> None:  # noqa: ARG002 - whatever it says
        """Refuse blobs of other owners, as `apply` does."""
        raise ArgumentError(
            "path",
            "a snapshot of another owner",
            "this directory belongs to a scheduler: open it with Scheduler",
        )

    # -- inside -----------------------------------------------------------------------

    def _make(self, events: list[bytes]) -> tuple[TimerId, int]:
        first = 0

        def decide(first_lsn: int) -> list[bytes]:
            nonlocal first
            first = first_lsn
            return events

        lsn = self._submit(decide)
        return TimerId(first), lsn

    def _change(
        self, timer_id: int, event_of: Callable[[int], bytes]
    ) -> tuple[bool, int]:
        """Change a timer that no handler has by the event for its slot.

        Returns:
            Whether there was one, and the LSN that the reply waits for.
        """
        done = taken = False

        def decide(_: int) -> list[bytes]:
            nonlocal done, taken
            state = self.core.state
            slot = state.table.slot(timer_id)
            # Kept over a wait for the disk's next segment: no worker starts it then.
            taken = taken or self._take(timer_id)
            done = slot is not None and (
                taken or state.table.is_waiting(slot) or state.is_ahead(timer_id)
            )
            return [] if slot is None or not done else [event_of(slot)]

        try:
            lsn = self._submit(decide, urgent=True)
        except BaseException:
            if taken:
                self._give_back(timer_id)
            raise
        return done, lsn

    def _take(self, timer_id: int) -> bool:
        """Take a timer for oneself that fired and has no handler; False without one."""
        try:
            self._startable.remove(timer_id)
        except KeyError:
            return False
        return True

    def _give_back(self, timer_id: int) -> None:
        """Have a timer delivered after all: who took it could not change it."""
        with self.core.lock:
            state = self.core.state
            slot = state.table.slot(timer_id)
            if slot is not None and not state.table.is_waiting(slot):
                # Its worker may have come and gone meanwhile, so it fires again.
                state.put_back([TimerId(timer_id)], [], self.core.now())
                self.core.wake.notify_all()

    def _walk(self) -> Iterator[Timer]:
        core, slot = self.core, 0
        while True:
            with core.lock:
                core.require_alive()
                if slot >= core.state.table.slot_count:
                    return
                rows = list(core.state.table.walk(slot, slot + _WALK_SLOTS))
                timers = [self._seen(row) for row in rows]
            yield from timers
            slot += _WALK_SLOTS

    def _seen(self, row: Row) -> Timer:
        wall = row.base == Base.WALL
        ahead_ns = 0 if wall else self.core.state.steps_ns
        return Timer(
            row.timer_id,
            row.deadline_ns + ahead_ns,
            row.payload,
            row.attempt,
            row.state == State.FIRED,
            wall,
        )


def backoff_ns(attempt: int) -> int:
    """Return how long a timer waits after its `attempt`-th delivery failed.

    1 s, doubled each time, 10 minutes at most.
    """
    return min(BACKOFF_FIRST_NS << min(attempt - 1, 20), BACKOFF_MAX_NS)
