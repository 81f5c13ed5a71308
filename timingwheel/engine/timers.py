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
from timingwheel.engine.core import Due, EngineCore
from timingwheel.engine.records import (
    Base,
    TimerId,
    timer_acknowledged,
    timer_cancelled,
    timer_fired,
    timer_rescheduled,
    timer_scheduled,
)
from timingwheel.engine.table import Row, State
from timingwheel.engine.volatile import VolatileLog
from timingwheel.errors import ArgumentError
from wal.log import Log

BACKOFF_FIRST_NS: Final = 1_000_000_000
BACKOFF_MAX_NS: Final = 600_000_000_000
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
        self._running: set[tuple[int, int]] = set()
        """Timer and attempt. A timer whose handler raised may fire again before the
        worker has taken the former attempt out of here."""
        self.core = EngineCore(log, self, clock)
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

        def decide(_: int) -> list[bytes]:
            slot = self._slot_before_start(timer_id)
            if slot is None:
                return []
            attempt = self.core.state.table.attempt(slot)
            return [
                timer_rescheduled(
                    timer_id,
                    base=Base.ELAPSED,
                    deadline_ns=deadline_ns,
                    attempt=attempt,
                )
            ]

        return self._decide_one(decide)

    def cancel(self, timer_id: int) -> tuple[bool, int]:
        """Remove a timer that no handler has yet; False if there is none."""
        checked_timer_id(timer_id)

        def decide(_: int) -> list[bytes]:
            slot = self._slot_before_start(timer_id)
            return [] if slot is None else [timer_cancelled(timer_id)]

        return self._decide_one(decide)

    # -- delivery -----------------------------------------------------------------------

    def begin(self, timer_id: int) -> bytes | None:
        """Give a fired timer to a handler: return its payload and mark it as running.

        None if it was cancelled or rescheduled meanwhile, or has a handler already.
        """
        core = self.core
        with core.lock:
            core.require_alive()
            slot = core.state.table.slot(timer_id)
            if slot is None or core.state.table.is_waiting(slot):
                return None
            delivery = timer_id, core.state.table.attempt(slot)
            if delivery in self._running:
                return None
            self._running.add(delivery)
            return core.state.table.payload(slot)

    def acknowledge(self, timer_id: int) -> int:
        """Remove a timer whose handler returned. Returns the LSN to be committed."""
        return self._end(timer_id, lambda _: timer_acknowledged(timer_id))

    def redeliver_later(self, timer_id: int) -> int:
        """Have a timer whose handler raised wait for its next delivery."""

        def again(attempt: int) -> bytes:
            return timer_rescheduled(
                timer_id,
                base=Base.ELAPSED,
                deadline_ns=self.core.elapsed_ns() + backoff_ns(attempt),
                attempt=attempt,
            )

        return self._end(timer_id, again)

    def _end(self, timer_id: int, event_of: Callable[[int], bytes]) -> int:
        """End a delivery by the event for its attempt."""
        attempt = 0

        def decide(_: int) -> list[bytes]:
            nonlocal attempt
            table = self.core.state.table
            slot = table.slot(timer_id)
            assert slot is not None, f"timer {timer_id} went while its handler ran"
            attempt = table.attempt(slot)
            return [event_of(attempt)]

        lsn = self._submit(decide, urgent=True)
        self._running.discard((timer_id, attempt))
        return lsn

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
        table = self.core.state.table
        events = []
        for timer_id in due.timers:
            slot = table.slot(timer_id)
            assert slot is not None
            events.append(timer_fired(timer_id, table.attempt(slot) + 1))
        return events

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

    def _decide_one(self, decide: Callable[[int], list[bytes]]) -> tuple[bool, int]:
        done = False

        def noting(first_lsn: int) -> list[bytes]:
            nonlocal done
            events = decide(first_lsn)
            done = bool(events)
            return events

        lsn = self._submit(noting, urgent=True)
        return done, lsn

    def _slot_before_start(self, timer_id: int) -> int | None:
        """Return the slot of a timer that no handler has, None without one."""
        table = self.core.state.table
        slot = table.slot(timer_id)
        if slot is None:
            return None
        if table.is_waiting(slot):
            return slot
        return None if (timer_id, table.attempt(slot)) in self._running else slot

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
