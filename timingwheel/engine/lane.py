"""The short way of a request: straight through, or not at all.

`Timers` decides, `EngineCore` appends and applies, each for every kind of request and with
an error for all that can be wrong. A timer that is made, or changed while it waits, takes
nearly always the same way through all of that, and this is most of what an engine is
asked. The lane goes this way in one call: check the arguments, take the lock, append,
change row and wheel entry, release.
Where anything is out of the ordinary it returns 0, having changed nothing; then the caller
goes the general way, which knows what to do or to raise.

What holds afterwards is what the general way would have brought about; the tests hold both
to it. This is the plain body; the compiled one is `_lane.pyx`, and `bodies.py` chooses.
(PEP 399.)
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from timingwheel.engine.arguments import (
    BATCH_BYTES_MAX,
    BATCH_TIMERS_MAX,
    PAYLOAD_BYTES_MAX,
)
from timingwheel.engine.records import (
    DEADLINE_MAX_NS,
    SCHEDULED,
    Base,
    Kind,
    TimerId,
    timer_cancelled,
    timer_rescheduled,
    timer_scheduled,
)
from timingwheel.engine.table import NO_HANDLE
from timingwheel.engine.timeline import tick_of_deadline
from wal.bodies import encode_records
from wal.errors import WalError
from wal.frame import RECORD_OVERHEAD_BYTES

if TYPE_CHECKING:
    from timingwheel.engine.core import EngineCore

DELAY_MAX_S: Final = 9_000_000_000
"""285 years; a longer delay goes the general way, which refuses it if it must."""
assert DELAY_MAX_S * 10**9 <= DEADLINE_MAX_NS


NONE: Final = TimerId(0)


class Lane:
    """Makes, moves and cancels timers on elapsed time, quickly. Thread-safe.

    Args:
        core: recovered; whose timers.
    """

    def __init__(self, core: EngineCore) -> None:
        self._core = core
        self._log = core.log
        self._life = core.life
        self._table = core.state.table
        self._timeline = core.state.timeline
        self._wheel = core.state.timeline.elapsed_wheel

    def schedule(self, delay: float, payload: bytes) -> TimerId:
        """Make a timer as `Timers.schedule` does.

        Returns:
            Its id, which is also the LSN that the reply waits for; 0, with nothing
            changed, where the general way has to be gone.
        """
        delay_ns = _delay_ns(delay)
        if delay_ns < 0 or type(payload) is not bytes:
            return NONE
        deadline_ns = self._core.elapsed_ns() + delay_ns
        if deadline_ns > DEADLINE_MAX_NS or len(payload) > PAYLOAD_BYTES_MAX:
            return NONE
        body = encode_records([timer_scheduled(Base.ELAPSED, deadline_ns, payload)])
        core = self._core
        if core.lock.locked():
            return NONE
        with core.lock, self._change():
            timer_id = TimerId(self._append(body, 1))
            if timer_id:
                slot = self._table.insert_record(timer_id, body, RECORD_OVERHEAD_BYTES)
                tick = tick_of_deadline(deadline_ns)
                self._table.set_handle(slot, self._wheel.insert(tick, timer_id))
                core.applied_lsn = timer_id
                core.wake_if_earlier(self._timeline.tick_due_ns(Base.ELAPSED, tick))
        return timer_id

    def schedule_many(self, delays: object, payloads: object) -> int:
        """Make many timers as `Timers.schedule_many` does.

        Returns:
            The id of the first; 0, with nothing changed, where the general way has to
            be gone.
        """
        body = self._body_of(delays, payloads)
        if body is None:
            return 0
        assert isinstance(delays, list)
        core = self._core
        if core.lock.locked():
            return 0
        with core.lock, self._change():
            first = self._append(body, len(delays))
            if first:
                core.state.apply_group(first, body)
                core.applied_lsn = first + len(delays) - 1
        return first

    def reschedule(self, timer_id: int, delay: float) -> int:
        """Give a timer that waits a new delay from now, as `Timers.reschedule` does.

        Returns:
            The LSN that the reply, True, waits for; 0, with nothing changed, where the
            general way has to be gone.
        """
        delay_ns = _delay_ns(delay)
        deadline_ns = self._core.elapsed_ns() + delay_ns
        if delay_ns < 0 or deadline_ns > DEADLINE_MAX_NS or type(timer_id) is not int:
            return 0
        core = self._core
        table = self._table
        if core.lock.locked():
            return 0
        with core.lock, self._change():
            slot, handle = self._waiting(timer_id)
            if handle < 0:
                return 0
            attempt = table.attempt(slot)
            event = timer_rescheduled(
                timer_id, base=Base.ELAPSED, deadline_ns=deadline_ns, attempt=attempt
            )
            lsn = self._append(encode_records([event]), 1, urgent=True)
            if lsn:
                self._wheel.cancel(handle)
                table.reschedule(
                    slot,
                    last_lsn=lsn,
                    deadline_ns=deadline_ns,
                    base=Base.ELAPSED,
                    attempt=attempt,
                )
                tick = tick_of_deadline(deadline_ns)
                table.set_handle(slot, self._wheel.insert(tick, timer_id))
                core.applied_lsn = lsn
                core.wake_if_earlier(self._timeline.tick_due_ns(Base.ELAPSED, tick))
        return lsn

    def cancel(self, timer_id: int) -> int:
        """Remove a timer that waits, as `Timers.cancel` does.

        Returns:
            The LSN that the reply, True, waits for; 0, with nothing changed, where the
            general way has to be gone.
        """
        core = self._core
        if type(timer_id) is not int or core.lock.locked():
            return 0
        with core.lock, self._change():
            _, handle = self._waiting(timer_id)
            if handle < 0:
                return 0
            body = encode_records([timer_cancelled(timer_id)])
            lsn = self._append(body, 1, urgent=True)
            if lsn:
                self._wheel.cancel(handle)
                self._table.remove(timer_id)
                core.applied_lsn = lsn
        return lsn

    @contextlib.contextmanager
    def _change(self) -> Iterator[None]:
        """Stop the engine if what comes in between leaves a change half made."""
        try:
            yield
        except BaseException as error:
            self._life.broke_off(error, applied_lsn=self._core.applied_lsn)
            raise
        finally:
            self._core.pass_on()

    def _waiting(self, timer_id: int) -> tuple[int, int]:
        """Return slot and handle of a timer that is in the elapsed wheel.

        All other handles are below 0: of what is on wall time, has fired, or is held.
        """
        slot = self._table.slot(timer_id)
        if slot is None:
            return 0, NO_HANDLE
        return slot, self._table.waiting_handle(slot, Base.ELAPSED)

    def _append(self, body: bytes, count: int, *, urgent: bool = False) -> int:
        """Append under the lock; 0 if the general way has to be gone.

        Only what adds work (`urgent=False`) must wait while too much is un-synced.
        """
        log = self._log
        life = self._life
        if life.closed is not None or life.failed is not None:
            return 0
        if not urgent and log.congested:
            return 0
        try:
            return log.append_group(body, count, urgent=urgent)
        except WalError:
            return 0

    def _body_of(self, delays: object, payloads: object) -> bytes | None:
        """Return the records of a batch, None if anything of it is unusual."""
        if type(delays) is not list or type(payloads) is not list:
            return None
        if not 0 < len(delays) == len(payloads) <= BATCH_TIMERS_MAX:
            return None
        now_ns = self._core.elapsed_ns()
        records: list[bytes] = []
        size = 0
        for delay, payload in zip(delays, payloads, strict=True):
            delay_ns = _delay_ns(delay)
            if delay_ns < 0 or type(payload) is not bytes:
                return None
            deadline_ns = now_ns + delay_ns
            size += len(payload)
            if deadline_ns > DEADLINE_MAX_NS or len(payload) > PAYLOAD_BYTES_MAX:
                return None
            head = SCHEDULED.pack(Kind.TIMER_SCHEDULED, Base.ELAPSED, deadline_ns)
            records.append(head + payload)
        return encode_records(records) if size <= BATCH_BYTES_MAX else None


def _delay_ns(delay: object) -> int:
    """Return a delay in ns, rounded up; -1 if it is none, or unusual."""
    if type(delay) is float and 0 <= delay <= DELAY_MAX_S:
        return math.ceil(delay * 1_000_000_000)
    if type(delay) is int and 0 <= delay <= DELAY_MAX_S:
        return delay * 1_000_000_000
    return -1
