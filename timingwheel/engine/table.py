"""The timer table: one row a timer, in columns beside the wheels.

No object per timer: the columns are arrays, the payloads live in an arena, and a hash
index leads from a timer's id to its row. A row keeps its slot for life, so a snapshot can
walk the slots while timers come and go.

This is the plain body of the contract, there to be read and to check the other by; its
arena is a list of `bytes`. The compiled one is `_table.pyx`; `bodies.py` chooses. (PEP 399.)

    column       bytes  meaning
    timer_id     8      0 in a free row
    last_lsn     8      of the last record applied to the row
    deadline_ns  8      on `base`
    handle       8      of the wheel entry, NO_HANDLE without one
    attempt      4      deliveries begun so far
    state        1      State
    base         1      Base: which clock the deadline is measured on
    payload      ..     in the arena
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from timingwheel.engine.records import SCHEDULED, Base, Kind, TimerId
from timingwheel.errors import TimingWheelError

NO_HANDLE: Final = -1

_PACKED_ROW: Final = struct.Struct("<qqqIBBI")  # drawn in dump.py
_RECORD_SIZE: Final = struct.Struct("<I")  # before each record in a group's body


class State(IntEnum):
    """Where a timer stands."""

    WAITING = 1
    """Its deadline is to come."""
    FIRED = 2
    """It is being delivered and not acknowledged."""


class Row(NamedTuple):
    """One timer as the table has it."""

    timer_id: TimerId
    last_lsn: int
    deadline_ns: int
    attempt: int
    state: State
    base: int
    payload: bytes


class WheelBatch(NamedTuple):
    """Some rows as a wheel takes them, column by column."""

    slots: array[int]
    """Typecode "I"."""
    ticks: array[int]
    """Deadlines, rounded up to ticks; typecode "q"."""
    timer_ids: array[int]
    """Typecode "q"."""
    first_tick: int
    """The least of the ticks; 0 without any."""


class TimerTable:
    """Rows of timers by slot and by id.

    Invariants: the index holds exactly the ids of the rows in use; free slots are on the
    free list, once each; a free row holds no payload.
    """

    def __init__(self) -> None:
        self._slots: dict[int, int] = {}
        self._free: list[int] = []
        self._timer_id = array("q")
        self._last_lsn = array("q")
        self._deadline_ns = array("q")
        self._handle = array("q")
        self._attempt = array("I")
        self._state = bytearray()
        self._base = bytearray()
        self._payload: list[bytes] = []

    def __len__(self) -> int:
        return len(self._slots)

    def slot(self, timer_id: int) -> int | None:
        """Return the slot of a timer, None if there is no such timer. Cost: O(1)."""
        return self._slots.get(timer_id)

    def insert(
        self,
        timer_id: int,
        *,
        last_lsn: int,
        deadline_ns: int,
        base: int,
        payload: bytes,
        attempt: int = 0,
        state: int = State.WAITING,
    ) -> int:
        """Add a timer that is not there yet and return its slot. Cost: O(1)."""
        if self._free:
            slot = self._free.pop()
            self._timer_id[slot] = timer_id
            self._last_lsn[slot] = last_lsn
            self._deadline_ns[slot] = deadline_ns
            self._handle[slot] = NO_HANDLE
            self._attempt[slot] = attempt
            self._state[slot] = state
            self._base[slot] = base
            self._payload[slot] = payload
        else:
            slot = len(self._payload)
            self._timer_id.append(timer_id)
            self._last_lsn.append(last_lsn)
            self._deadline_ns.append(deadline_ns)
            self._handle.append(NO_HANDLE)
            self._attempt.append(attempt)
            self._state.append(state)
            self._base.append(base)
            self._payload.append(payload)
        self._slots[timer_id] = slot
        return slot

    def insert_record(self, timer_id: int, data: bytes, at: int = 0) -> int:
        """Do as `insert` for a new timer, by its TimerScheduled record.

        Args:
            timer_id: the LSN of the record.
            data: ends with the record.
            at: the byte where it begins.
        """
        _, base, deadline_ns = SCHEDULED.unpack_from(data, at)
        return self.insert(
            timer_id,
            last_lsn=timer_id,
            deadline_ns=deadline_ns,
            base=base,
            payload=data[at + SCHEDULED.size :],
        )

    def remove(self, timer_id: int) -> None:
        """Free the row of a timer; its payload is dropped at once. Cost: O(1)."""
        slot = self._slots.pop(timer_id)
        self._timer_id[slot] = 0
        self._payload[slot] = b""
        self._free.append(slot)

    def reschedule(
        self, slot: int, *, last_lsn: int, deadline_ns: int, base: int, attempt: int
    ) -> None:
        """Give a row another deadline and have it wait for it."""
        self._last_lsn[slot] = last_lsn
        self._deadline_ns[slot] = deadline_ns
        self._base[slot] = base
        self._attempt[slot] = attempt
        self._state[slot] = State.WAITING

    def fire(self, slot: int, *, last_lsn: int, attempt: int) -> None:
        """Note that a delivery began; the row has left the wheel."""
        self._last_lsn[slot] = last_lsn
        self._attempt[slot] = attempt
        self._state[slot] = State.FIRED
        self._handle[slot] = NO_HANDLE

    def row(self, slot: int) -> Row:
        """Return a row in use."""
        return Row(
            TimerId(self._timer_id[slot]),
            self._last_lsn[slot],
            self._deadline_ns[slot],
            self._attempt[slot],
            State(self._state[slot]),
            self._base[slot],
            self._payload[slot],
        )

    def timer_id(self, slot: int) -> TimerId:
        """Return whose row it is."""
        return TimerId(self._timer_id[slot])

    def last_lsn(self, slot: int) -> int:
        """Return the LSN of the last record applied to a row."""
        return self._last_lsn[slot]

    def deadline_ns(self, slot: int) -> int:
        """Return a row's deadline on its base."""
        return self._deadline_ns[slot]

    def base(self, slot: int) -> int:
        """Return which clock a row's deadline is measured on."""
        return self._base[slot]

    def attempt(self, slot: int) -> int:
        """Return how many deliveries of a row have begun."""
        return self._attempt[slot]

    def is_waiting(self, slot: int) -> bool:
        """Return whether a row waits for its deadline."""
        return self._state[slot] == State.WAITING

    def payload(self, slot: int) -> bytes:
        """Return a row's payload."""
        return self._payload[slot]

    def handle(self, slot: int) -> int:
        """Return a row's wheel handle, NO_HANDLE if it is in no wheel."""
        return self._handle[slot]

    def waiting_handle(self, slot: int, base: int) -> int:
        """Return the handle of a row that waits on a base, NO_HANDLE of any other."""
        if self._state[slot] != State.WAITING or self._base[slot] != base:
            return NO_HANDLE
        return self._handle[slot]

    def set_handle(self, slot: int, handle: int) -> None:
        """Note where in a wheel a row is."""
        self._handle[slot] = handle

    def count_handles(self, handle: int) -> int:
        """Return how many rows in use have a handle. Cost: O(n); for tests."""
        return sum(self._handle[slot] == handle for slot in self._slots.values())

    def walk(self, start: int, stop: int, *, in_wheels: bool = True) -> Iterator[Row]:
        """Yield the rows in use with start <= slot < stop, in slot order.

        Args:
            start: the first slot.
            stop: the slot that ends it.
            in_wheels: False: none that has a wheel entry. To pass one by costs a few ns.
        """
        ids, handles = self._timer_id, self._handle
        for slot in range(start, min(stop, len(ids))):
            if ids[slot] and (in_wheels or handles[slot] < 0):
                yield self.row(slot)

    @property
    def slot_count(self) -> int:
        """Slots in use or free: where a walk ends."""
        return len(self._payload)

    def timer_ids(self) -> list[int]:
        """Return all ids in growing order. Cost: O(n log n)."""
        return sorted(self._slots)

    # -- many rows at once: what recovery and snapshots go through ----------------------

    def slots_in(self, state: int) -> array[int]:
        """Return the slots of the rows in a state, by growing id. Cost: O(n log n)."""
        in_order = (self._slots[timer_id] for timer_id in sorted(self._slots))
        return array("I", (slot for slot in in_order if self._state[slot] == state))

    def wheel_batch(
        self, slots: array[int], base: int, *, tick_bits: int
    ) -> WheelBatch:
        """Return those of some rows that are on a base, as a wheel takes them.

        Args:
            slots: of rows in use; typecode "I".
            base: which clock.
            tick_bits: a tick is 2**tick_bits ns.
        """
        own = array("I", (slot for slot in slots if self._base[slot] == base))
        ticks = array("q", (-(-self._deadline_ns[slot] >> tick_bits) for slot in own))
        timer_ids = array("q", (self._timer_id[slot] for slot in own))
        return WheelBatch(own, ticks, timer_ids, min(ticks, default=0))

    def set_handles(self, slots: array[int], handles: array[int]) -> None:
        """Note where in a wheel many rows are.

        Args:
            slots: of the rows; typecode "I".
            handles: one for each; typecode "q".
        """
        if len(handles) != len(slots) or handles.typecode != "q":
            raise ValueError(f"set_handles takes a handle a slot, {len(slots)} int64")
        for slot, handle in zip(slots, handles, strict=True):
            self._handle[slot] = handle

    def attempts(self, timer_ids: Sequence[int]) -> list[int]:
        """Return how many deliveries of each of these timers have begun."""
        return [self._attempt[self._slots[timer_id]] for timer_id in timer_ids]

    def take_out(self, timer_ids: Sequence[int]) -> None:
        """Note that these timers have left the wheels."""
        for timer_id in timer_ids:
            self._handle[self._slots[timer_id]] = NO_HANDLE

    def with_handle(self, timer_ids: Sequence[int]) -> list[int]:
        """Return those of some timers, if they live, that are somewhere in order."""
        slots = ((timer_id, self._slots.get(timer_id)) for timer_id in timer_ids)
        return [
            timer_id
            for timer_id, slot in slots
            if slot is not None and self._handle[slot] != NO_HANDLE
        ]

    def unsettled(self, timer_ids: Sequence[int]) -> list[int]:
        """Return those of some timers, if they live, that wait and are nowhere."""
        slots = ((timer_id, self._slots.get(timer_id)) for timer_id in timer_ids)
        return [
            timer_id
            for timer_id, slot in slots
            if slot is not None
            and self._state[slot] == State.WAITING
            and self._handle[slot] == NO_HANDLE
        ]

    def fire_many(
        self, timer_ids: Sequence[int], *, last_lsn: int, attempt: int
    ) -> list[int]:
        """Do as `fire` for each timer whose row is older than `last_lsn`.

        Returns:
            Those that are not in the table.
        """
        missing: list[int] = []
        for timer_id in timer_ids:
            slot = self._slots.get(timer_id)
            if slot is None:
                missing.append(timer_id)
            elif self._last_lsn[slot] < last_lsn:
                self.fire(slot, last_lsn=last_lsn, attempt=attempt)
        return missing

    def remove_many(self, timer_ids: Sequence[int], *, last_lsn: int) -> list[int]:
        """Do as `remove` for each timer whose row is older than `last_lsn`.

        Returns:
            Those that are not in the table.
        """
        missing: list[int] = []
        for timer_id in timer_ids:
            slot = self._slots.get(timer_id)
            if slot is None:
                missing.append(timer_id)
            elif self._last_lsn[slot] < last_lsn:
                self.remove(timer_id)
        return missing

    def insert_scheduled(
        self, first_lsn: int, body: bytes, *, at: int, known_lsn: int
    ) -> tuple[int, int, array[int]]:
        """Add the timers that a run of TimerScheduled records in a group's body makes.

        Args:
            first_lsn: of the record that begins at byte `at`.
            body: encoded records.
            at: where the run begins, if there is one.
            known_lsn: up to here a timer may be in the table, and stays as it is.

        Returns:
            How many records the run has, where in the body it ends, and the slots of the
            timers that were added (typecode "I").
        """
        slots = array("I")
        lsn, data_at = first_lsn, at + _RECORD_SIZE.size
        while data_at + SCHEDULED.size <= len(body):
            (size,) = _RECORD_SIZE.unpack_from(body, at)
            kind, base, deadline_ns = SCHEDULED.unpack_from(body, data_at)
            end = data_at + size
            if kind != Kind.TIMER_SCHEDULED or size < SCHEDULED.size or end > len(body):
                break
            if lsn > known_lsn or lsn not in self._slots:
                slot = self.insert(
                    lsn,
                    last_lsn=lsn,
                    deadline_ns=deadline_ns,
                    base=base,
                    payload=body[data_at + SCHEDULED.size : end],
                )
                slots.append(slot)
            lsn, at, data_at = lsn + 1, end, end + _RECORD_SIZE.size
        return lsn - first_lsn, at, slots

    def pack_rows(self, start: int, count: int, *, bytes_max: int) -> tuple[bytes, int]:
        """Pack rows from a slot on as a snapshot has them.

        Args:
            start: the first slot.
            count: how many slots at most.
            bytes_max: the row that reaches this is the last.

        Returns:
            The rows in use among them, and the slot to go on from.
        """
        parts: list[bytes] = []
        size, slot = 0, start
        stop = min(start + count, self.slot_count)
        while slot < stop and size < bytes_max:
            if self._timer_id[slot]:
                *columns, payload = self.row(slot)
                parts.append(_PACKED_ROW.pack(*columns, len(payload)) + payload)
                size += len(parts[-1])
            slot += 1
        return b"".join(parts), slot

    def load_rows(self, block: bytes, at: int) -> None:
        """Add the rows that `pack_rows` packed, from a byte of a block on.

        Raises:
            TimingWheelError: the block ends within a row, or has one that no table has;
                rows before it are in.
        """
        while at < len(block):
            data_at = at + _PACKED_ROW.size
            if data_at > len(block):
                raise half_a_row(at, len(block))
            timer_id, last_lsn, deadline_ns, attempt, state, base, size = (
                _PACKED_ROW.unpack_from(block, at)
            )
            if data_at + size > len(block):
                raise half_a_row(at, len(block))
            if (
                timer_id < 1
                or not State.WAITING <= state <= State.FIRED
                or base > Base.WALL
            ):
                raise no_row(at, len(block))
            self.insert(
                timer_id,
                last_lsn=last_lsn,
                deadline_ns=deadline_ns,
                base=base,
                payload=block[data_at : data_at + size],
                attempt=attempt,
                state=state,
            )
            at = data_at + size

    def check(self) -> None:
        """Assert the invariants. For tests."""
        in_use = {self._timer_id[slot]: slot for slot in self._slots.values()}
        assert in_use == self._slots
        free = set(self._free)
        assert len(free) == len(self._free)
        assert len(free) + len(in_use) == len(self._payload)
        for slot in free:
            assert self._timer_id[slot] == 0
            assert self._payload[slot] == b""


def no_row(at: int, end: int) -> TimingWheelError:
    """Return the error for a row whose id, state or base no timer has."""
    return TimingWheelError(
        f"a snapshot block of {end} bytes has no timer's row at byte {at}: open this "
        "directory with the version that wrote it"
    )


def half_a_row(at: int, end: int) -> TimingWheelError:
    """Return the error for a block of rows that ends within one."""
    return TimingWheelError(
        f"a snapshot block of {end} bytes ends within the row at byte {at}: open this "
        "directory with the version that wrote it"
    )
