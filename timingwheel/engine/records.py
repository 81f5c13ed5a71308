"""The engine's records: what happened to a timer, as bytes of the log.

An event is a fact in the past tense and carries values *after* the change, never
increments, so that replaying it over a newer state can be told and skipped. The number
of the `TimerScheduled` record is the timer's id: unique for ever, over restarts too.
All integers are little-endian; the first byte is the kind.

    kind  event              fields after the kind
    1     TimerScheduled     base (1), deadline_ns (8), payload (the rest)
    2     TimerRescheduled   base (1), attempt (4), timer id (8), deadline_ns (8)
    3     TimerFired         attempt (4), timer id (8)
    4     TimerCancelled     timer id (8)
    5     TimerAcknowledged  timer id (8)
    6     ClockStepped       sum of all steps of the wall clock so far, ns (8, signed)
    7     TimersFired        attempt (4), timer ids (8 each)
    8     TimersAcknowledged timer ids (8 each)
    64..  the owner's own

`base` says what the deadline is measured on: 0 = elapsed time, 1 = wall time. The last
two say of many timers at once what 3 and 5 say of one: a burst costs 8 bytes a timer.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Iterable
from enum import IntEnum
from typing import Final, NewType

from wal.frame import RECORD_OVERHEAD_BYTES, decode_records

TimerId = NewType("TimerId", int)

DEADLINE_MAX_NS: Final = (1 << 63) - 1
"""In 2262: deadlines are signed 64-bit nanoseconds."""


class Kind(IntEnum):
    """The first byte of a record."""

    TIMER_SCHEDULED = 1
    TIMER_RESCHEDULED = 2
    TIMER_FIRED = 3
    TIMER_CANCELLED = 4
    TIMER_ACKNOWLEDGED = 5
    CLOCK_STEPPED = 6
    TIMERS_FIRED = 7
    TIMERS_ACKNOWLEDGED = 8
    OWNER_FIRST = 64
    """Kinds from here on belong to the engine's owner."""


class Base(IntEnum):
    """What a deadline is measured on."""

    ELAPSED = 0
    """Engine time: a step of the wall clock does not move it."""
    WALL = 1
    """Wall time: ns since 1970, wherever the clock is set."""


SCHEDULED: Final = struct.Struct("<BBq")
RESCHEDULED: Final = struct.Struct("<BBIQq")
FIRED: Final = struct.Struct("<BIQ")
ID_ONLY: Final = struct.Struct("<BQ")
STEPPED: Final = struct.Struct("<Bq")
MANY_FIRED: Final = struct.Struct("<BI")  # then the ids
MANY_IDS: Final = struct.Struct("<B")  # then the ids


def timer_scheduled(base: int, deadline_ns: int, payload: bytes) -> bytes:
    """Return the event that makes a timer; its LSN will be the timer's id."""
    return SCHEDULED.pack(Kind.TIMER_SCHEDULED, base, deadline_ns) + payload


def timer_rescheduled(
    timer_id: int, *, base: int, deadline_ns: int, attempt: int
) -> bytes:
    """Return the event that gives a timer another deadline, from any state."""
    return RESCHEDULED.pack(
        Kind.TIMER_RESCHEDULED, base, attempt, timer_id, deadline_ns
    )


def timer_fired(timer_id: int, attempt: int) -> bytes:
    """Return the event that a timer's deadline came and it is to be delivered.

    Args:
        timer_id: whose.
        attempt: 1 for the first delivery.
    """
    return FIRED.pack(Kind.TIMER_FIRED, attempt, timer_id)


def timer_cancelled(timer_id: int) -> bytes:
    """Return the event that removes a timer before its delivery began."""
    return ID_ONLY.pack(Kind.TIMER_CANCELLED, timer_id)


def timer_acknowledged(timer_id: int) -> bytes:
    """Return the event that removes a timer that was delivered."""
    return ID_ONLY.pack(Kind.TIMER_ACKNOWLEDGED, timer_id)


def clock_stepped(steps_ns: int) -> bytes:
    """Return the event that the wall clock was set; `steps_ns` sums all such steps."""
    return STEPPED.pack(Kind.CLOCK_STEPPED, steps_ns)


def timers_fired(timer_ids: Iterable[int], attempt: int) -> bytes:
    """Return `timer_fired` of many timers whose deliveries have the same number."""
    return MANY_FIRED.pack(Kind.TIMERS_FIRED, attempt) + _packed(timer_ids)


def timers_acknowledged(timer_ids: Iterable[int]) -> bytes:
    """Return `timer_acknowledged` of many timers."""
    return MANY_IDS.pack(Kind.TIMERS_ACKNOWLEDGED) + _packed(timer_ids)


def ids_from(record: bytes, start: int) -> array[int]:
    """Return the ids that a record of many timers holds from a byte on.

    Raises:
        ValueError: there is no whole number of them.
    """
    ids = array("q", record[start:])
    if sys.byteorder == "big":
        ids.byteswap()
    return ids


def _packed(timer_ids: Iterable[int]) -> bytes:
    ids = array("q", timer_ids)
    if sys.byteorder == "big":
        ids.byteswap()
    return ids.tobytes()


def describe(record: bytes) -> str:
    """Return one line about a record, for people who inspect a log.

    Of whatever it holds: a log of another program has records that only look like these.
    """
    kind = record[0] if record else 0
    try:
        return _described(kind, record)
    except (struct.error, ValueError):
        return f"kind {kind}, {len(record)} bytes, not as an engine writes it"


def _described(kind: int, record: bytes) -> str:
    if kind == Kind.TIMER_SCHEDULED:
        _, base, deadline_ns = SCHEDULED.unpack_from(record)
        size = len(record) - SCHEDULED.size
        return f"TimerScheduled {Base(base).name} {deadline_ns} payload={size}B"
    if kind == Kind.TIMER_RESCHEDULED:
        _, base, attempt, timer_id, deadline_ns = RESCHEDULED.unpack(record)
        return (
            f"TimerRescheduled {timer_id} {Base(base).name} {deadline_ns} "
            f"attempt={attempt}"
        )
    if kind == Kind.TIMER_FIRED:
        _, attempt, timer_id = FIRED.unpack(record)
        return f"TimerFired {timer_id} attempt={attempt}"
    if kind in (Kind.TIMER_CANCELLED, Kind.TIMER_ACKNOWLEDGED):
        name = "Cancelled" if kind == Kind.TIMER_CANCELLED else "Acknowledged"
        return f"Timer{name} {ID_ONLY.unpack(record)[1]}"
    if kind == Kind.TIMERS_FIRED:
        ids = ids_from(record, MANY_FIRED.size)
        return f"TimersFired {_shown(ids)} attempt={MANY_FIRED.unpack_from(record)[1]}"
    if kind == Kind.TIMERS_ACKNOWLEDGED:
        return f"TimersAcknowledged {_shown(ids_from(record, MANY_IDS.size))}"
    if kind == Kind.CLOCK_STEPPED:
        return f"ClockStepped sum={STEPPED.unpack(record)[1]}ns"
    return f"kind {kind}, {len(record)} bytes"


def _shown(ids: array[int]) -> str:
    first = " ".join(map(str, ids[:3]))
    return first if len(ids) <= 3 else f"{first} ... {ids[-1]} count={len(ids)}"


def until_scheduled(body: bytes, at: int) -> tuple[list[bytes], int]:
    """Return a group's records from a byte on, before the next TimerScheduled one.

    At least one, whatever it is, unless the body ends at `at`; and where they end.
    """
    records: list[bytes] = []
    for record in decode_records(body, at):
        if records and record[0] == Kind.TIMER_SCHEDULED:
            break
        records.append(record)
        at += RECORD_OVERHEAD_BYTES + len(record)
    return records, at
