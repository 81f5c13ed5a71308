"""The timing wheel: millions of timers, O(1) insert and cancel, exact order.

A wheel holds timers, each a deadline in ticks and a 64-bit key of the caller's, and
gives the keys back once their deadline is reached. It knows neither what a tick is
worth nor what a key means, reads no clock, starts no thread and takes no lock.

**What always holds.** A timer with deadline D fires in the first advance(now) with
now >= D, exactly once and never before. Timers fire in the order (deadline, insertion).
Every deadline up to 2**63 - 1 is held as it is: there is no horizon and no rounding. A
handle hits the timer it was made for or nothing.

**The levels.** The *cursor* is the tick that the wheel has reached. A timer's level is
the highest byte in which its deadline differs from the cursor, its slot the deadline's
own byte at that level. Drawn with two of the eight levels, at cursor 0x0203:

    level 1: slots of 256 ticks          00 01 02 03 04 05 ... ff
                                               |  |
                cursor byte 02 ----------------+  +-- 0x0300 to 0x03ff
    level 0: slots of 1 tick, inside     00 01 02 03 04 05 ... ff
             the cursor's slot above              |  |
                cursor byte 03 -------------------+  +-- 0x0204

Above a timer's level its deadline and the cursor agree. So within a level every pending
slot lies ahead of the cursor (none wraps round), any timer of a lower level is due before
any of a higher one, and the next slot is simply the lowest set bit of one bitmap over all
levels. When the cursor reaches a slot, the slot is
*detached*: what is due leaves it, and if the slot reaches beyond the present its other
timers *cascade*, that is, move to the lower level where they now belong. Equal deadlines
always share a slot and move together, in order, and so stay first in, first out.

**The table.** A slot is a plain array of handles. Deadline and key stand in three
parallel arrays under the timer's *index*; the third says which handle holds the index
now. A handle is generation << 32 | index, the generation counting the tenants of that
index from 1. Cancel or fire empties the third array's place and no more: the handle left
in its slot is dead from then on, and is dropped when the slot is moved, or by a sweep
once the dead outnumber the living, which bounds memory at twice the live set. An index
whose generations are used up is retired rather than let an old handle become true again.

**Source.** Varghese and Lauck 1987, scheme 7 (hierarchical wheels). The level by XOR is
from tokio's time driver, the resumable budget from ratas, slots as vectors instead of
linked lists from our own measurement (docs/decisions/0001-wheel-not-heap.md). Where
scheme 7 would cascade a slot that lies wholly in the past, level by level, one stable
sort by deadline gives the same order in about half the time.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, NoReturn

from timingwheel.wheel_arguments import (
    DEADLINE_MAX,
    GENERATION_BITS,
    INDEX_BITS,
    TIMERS_MAX,
    as_int,
    budget,
    insert_refusal,
    int64_out,
    int64_view,
    length_refusal,
    present,
    start,
    too_many,
)

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

__all__ = ["LEVELS", "SLOTS", "SLOT_BITS", "TimerWheel"]

SLOT_BITS = 8
SLOTS = 1 << SLOT_BITS
SLOT_MASK = SLOTS - 1
LEVELS = 8  # 8 levels of 8 bits hold every difference of two 63-bit ticks

INDEX_MASK = (1 << INDEX_BITS) - 1
NEXT_GENERATION = 1 << INDEX_BITS

# No handle: what the table says of an index without a tenant. As a handle it would name
# index 2**32 - 1, which TIMERS_MAX keeps from existing.
FREE = -1

GROWTH_MIN = 64
SWEEP_SLACK = 256  # dead entries that are always let be, so small wheels do not sweep


class TimerWheel:
    """A multi-level hashed timing wheel of (deadline tick, int64 key) timers.

    Not safe for threads: the owner calls it under one lock of its own. An exception that
    arrives from outside in the midst of a call, such as KeyboardInterrupt, can leave the
    counts wrong; MemoryError likewise.

    Args:
        now_tick: the tick to start from, 0 <= now_tick < 2**63.
        generation_bits: how many bits of a handle count the tenants of an index, 1 to
            28. Fewer only make indexes retire sooner; tests use it.
        timers_max: most indexes to make, 1 to 2**32 - 1. Retired ones count too.

    Raises:
        DeadlineError: now_tick is outside its range.
        ArgumentError: another argument is.

    Invariants, asserted by check():
        Every live timer stands in exactly one place: in the slot that its deadline and
        the cursor name if it lies ahead of the cursor, else in one of two queues:
        `due`, in firing order, holds what was detached from slots; the heap `overdue`
        what was inserted at or behind the cursor. `due` wins a tie, since a timer that
        came by a slot was inserted while its deadline still lay ahead.
        Dead entries never outnumber live timers by more than SWEEP_SLACK.
    """

    __slots__ = (
        "_cursor",
        "_dead",
        "_deadlines",
        "_due",
        "_free",
        "_handles",
        "_keys",
        "_last_generation",
        "_live",
        "_now",
        "_occupied",
        "_overdue",
        "_overdue_count",
        "_slots",
        "_timers_max",
    )

    def __init__(
        self,
        now_tick: int = 0,
        *,
        generation_bits: int = GENERATION_BITS,
        timers_max: int = TIMERS_MAX,
    ) -> None:
        now_tick, generation_bits, timers_max = start(
            now_tick, generation_bits, timers_max
        )
        self._now = now_tick
        # The cursor lags behind `now` only while a budget has cut an advance short.
        self._cursor = now_tick
        # The table: three parallel arrays, and the next handle of every free index, the
        # last freed on top, so that what is used again is what is still in the cache.
        self._handles = array("q")
        self._deadlines = array("q")
        self._keys = array("q")
        self._free = array("q")
        self._timers_max = timers_max
        self._last_generation = ((1 << generation_bits) - 1) << INDEX_BITS
        # Slots by position: level * 256 + byte. Bit p of `occupied`: slot p holds any.
        self._slots = [array("q") for _ in range(LEVELS * SLOTS)]
        self._occupied = 0
        self._due: deque[int] = deque()
        self._overdue: list[tuple[int, int, int]] = []  # (deadline, serial, handle)
        self._overdue_count = 0
        self._live = 0
        self._dead = 0  # dead entries in slots and queues

    def __len__(self) -> int:
        """Return the number of live timers: inserted, not cancelled, not yet fired."""
        return self._live

    def __repr__(self) -> str:
        return f"<{type(self).__name__} at tick {self._now}, {self._live} timers>"

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled or copied: a wheel is made anew from its timers."""
        raise TypeError(f"cannot pickle {type(self).__name__!r} object")

    @property
    def now_tick(self) -> int:
        """The highest tick that advance has been given, or the tick of the start.

        Timers are still due at it, left over by a budget or inserted since, exactly
        when next_due() is not None and next_due() <= now_tick.
        """
        return self._now

    def insert(self, deadline_tick: int, key: int) -> int:
        """Add a timer and return its handle.

        A deadline at or before now_tick is due at the next advance, in its place in the
        order (deadline, insertion); it need not be positive.

        Args:
            deadline_tick: absolute, in ticks; -2**63 <= deadline_tick < 2**63.
            key: any int64; equal keys are fine.

        Returns:
            The handle for cancel: 2**32 < handle < 2**60. It is never given out twice.

        Raises:
            DeadlineError: deadline_tick is outside int64; nothing has changed.
            ArgumentError: key is; nothing has changed.
            TypeError: either is not an integer; nothing has changed.
            TimingWheelError: timers_max indexes are in use or retired.

        Cost: O(1) ahead of now_tick, O(log k) to be the k-th timer inserted behind it.
        """
        if not self._free:
            self._grow(1)
        handle = self._free[-1]
        index = handle & INDEX_MASK
        try:
            self._keys[index] = key
            self._deadlines[index] = deadline_tick
        except (OverflowError, TypeError):
            raise insert_refusal(deadline_tick, key) from None
        self._free.pop()
        self._handles[index] = handle
        # Read back, the deadline is a plain int whatever integer type was passed.
        self._place(handle, self._deadlines[index])
        self._live += 1
        return handle

    def cancel(self, handle: int) -> bool:
        """Remove the timer of that handle, and say whether there was one.

        Args:
            handle: from insert. Any other integer is the handle of no timer: negative
                or huge ones, stale ones and booleans only give False.

        Returns:
            True if the timer was live; it will not fire. False if it has fired, was
            cancelled before, or never was.

        Raises:
            TypeError: handle is not an integer.

        Cost: O(1) amortised: now and then one cancel pays for a sweep of the dead.
        """
        try:
            index = handle & INDEX_MASK
            tenant = self._handles[index]
        except IndexError:
            return False
        except TypeError:
            return self.cancel(as_int("handle", handle))
        if tenant != handle:
            return False
        self._handles[index] = FREE
        if tenant < self._last_generation:  # else the index is worn out: retired
            self._free.append(tenant + NEXT_GENERATION)
        self._live = live = self._live - 1
        self._dead = dead = self._dead + 1
        if dead > live + SWEEP_SLACK:
            self._sweep()
        return True

    def advance(self, now_tick: int, max_fire: int | None = None) -> list[int]:
        """Move to now_tick and remove the timers that are due, up to a budget.

        A call that the budget cut short is resumed by the next, with the same order over
        all calls. What is inserted between two calls takes its place in that order, so a
        caller that re-arms at now_tick while it handles the keys meets the new timer in
        its next call, behind all that was due before.

        Args:
            now_tick: the present, now_tick < 2**63. If it lies before an earlier call's,
                the wheel stays where it is, and of the timers still due only those with
                deadline <= this now_tick come: no timer fires before its time.
            max_fire: most timers to return, >= 0; None for all.

        Returns:
            The keys of the timers due, in the order (deadline, insertion).

        Raises:
            DeadlineError: now_tick is 2**63 or more; nothing has changed.
            ArgumentError: max_fire is negative; nothing has changed.
            TypeError: either is not an integer; nothing has changed.

        Cost: per timer fired O(1) and its share of sorting one slot; each timer cascades
            at most 7 times in its life; nothing for the ticks in between. With a budget,
            no more slots are detached than it needs.
        """
        now_tick, max_fire = present(now_tick), budget(max_fire)
        self._now = max(self._now, now_tick)
        fired: list[int] = []
        while True:
            self._fire(fired, now_tick, max_fire)
            if len(fired) == max_fire or not self._detach_next_slot(now_tick):
                break
        if self._dead > self._live + SWEEP_SLACK:
            self._sweep()
        return fired

    def next_due(self) -> int | None:
        """Return a tick that no live timer is due before, or None if there is none.

        It is the very deadline of the next timer if that timer is due by now_tick or
        within the 256 ticks of its level-0 turn; of a farther one it is the first tick of
        its slot, at which an advance moves the timer nearer. At most 7 such calls bring
        the answer to the deadline itself.

        Returns:
            A lower bound in ticks, None exactly when len(wheel) is 0.

        Cost: O(1) amortised; dead entries in the way are dropped.
        """
        if not self._live:
            return None
        while True:
            deadline = self._first_queued()
            if deadline is not None:
                return deadline
            # A budget may have left the cursor short of now: due timers lie between.
            if not self._detach_next_slot(self._now):
                break
        position = self._first_slot()
        assert position is not None, "a live timer is in no slot and in no queue"
        return self._start_of(position)

    def occupied_slots(self) -> int:
        """Return which slots hold any timer, as a bitmap: how the wheel looks.

        Returns:
            Bit p is set if slot p = level * SLOTS + byte has an entry. It may be one that
            was cancelled and not swept yet; a slot with a live timer is always there.
            What is due and not yet fired stands in no slot.

        Cost: O(1).
        """
        return self._occupied

    def insert_many(
        self, deadlines: ReadableBuffer, keys: ReadableBuffer
    ) -> array[int]:
        """Add many timers, as insert does one after the other, and return their handles.

        Args:
            deadlines: contiguous buffer of int64, such as array("q"), a memoryview of
                one or a NumPy int64 array; absolute ticks.
            keys: likewise, of the same length.

        Returns:
            The handles as an array("q"), in the order of the timers.

        Raises:
            TypeError: an argument is not a buffer; nothing has changed.
            ArgumentError: it is not one of int64, or the lengths differ; likewise.
            TimingWheelError: timers_max would be passed; nothing has changed.

        Cost: as of the single inserts, less the calls.
        """
        new_ticks = _int64s("deadlines", deadlines)
        new_keys = _int64s("keys", keys)
        count = len(new_ticks)
        if len(new_keys) != count:
            raise length_refusal(len(new_keys), count)
        if len(self._free) < count:
            self._grow(count - len(self._free))
        new = self._free[len(self._free) - count :]
        new.reverse()
        del self._free[len(self._free) - count :]
        table, ticks, table_keys = self._handles, self._deadlines, self._keys
        cursor, slots = self._cursor, self._slots
        for handle, deadline, key in zip(new, new_ticks, new_keys, strict=True):
            index = handle & INDEX_MASK
            table[index] = handle
            ticks[index] = deadline
            table_keys[index] = key
            if deadline > cursor:  # _place and _position again, without their calls
                level = ((deadline ^ cursor).bit_length() - 1) // SLOT_BITS
                byte = deadline >> level * SLOT_BITS & SLOT_MASK
                slot = slots[level << SLOT_BITS | byte]
                if not slot:
                    self._occupied |= 1 << (level << SLOT_BITS | byte)
                slot.append(handle)
            else:
                self._place(handle, deadline)
        self._live += count
        return new

    def cancel_many(self, handles: ReadableBuffer) -> int:
        """Remove the timers of many handles, and say how many there were.

        Args:
            handles: contiguous buffer of int64. Those of no live timer, and the second
                of two equal ones, are passed over.

        Returns:
            How many timers were live before and are not now.

        Raises:
            TypeError: handles is not a buffer; nothing has changed.
            ArgumentError: it is not one of int64; nothing has changed.

        Cost: O(1) amortised for each handle.
        """
        table, free, size = self._handles, self._free, len(self._handles)
        last_generation = self._last_generation
        cancelled = 0
        for handle in _int64s("handles", handles):
            index = handle & INDEX_MASK
            if index < size and table[index] == handle:
                table[index] = FREE
                if handle < last_generation:
                    free.append(handle + NEXT_GENERATION)
                cancelled += 1
        self._live -= cancelled
        self._dead += cancelled
        if self._dead > self._live + SWEEP_SLACK:
            self._sweep()
        return cancelled

    def advance_into(self, now_tick: int, out: WriteableBuffer) -> int:
        """Move to now_tick and write the keys that are due to the front of a buffer.

        Args:
            now_tick: as in advance.
            out: writable contiguous buffer of int64; its length is the budget.

        Returns:
            How many keys were written. If len(out), more may be due: call again.

        Raises:
            DeadlineError: now_tick is 2**63 or more; nothing has changed.
            TypeError: now_tick is not an integer, or out is not a buffer; likewise.
            ArgumentError: out is not writable or not of int64; likewise.

        Cost: as advance.
        """
        view = int64_out("out", out)
        fired = array("q", self.advance(now_tick, len(view)))
        if fired:  # else `out` may be empty, which cannot be cast
            view.cast("B")[: len(fired) * view.itemsize] = fired.tobytes()
        return len(fired)

    def clear(self) -> int:
        """Cancel every timer, and return how many there were.

        Handles given out before are stale from now on. now_tick stays.

        Cost: O(indexes ever in use at once).
        """
        cleared = self._live
        for handle in self._handles:
            if handle != FREE:
                self._release(handle)
        self._live = 0
        self._sweep()
        return cleared

    # The table.

    def _grow(self, count: int) -> None:
        """Make at least `count` new free indexes, or raise and leave all as it is."""
        size = len(self._handles)
        room = self._timers_max - size
        if count > room:
            raise too_many(
                count, pending=self._live, made=size, timers_max=self._timers_max
            )
        # By an eighth, as arrays do: O(1) amortised and little memory ahead of need.
        new = min(room, max(count, size >> 3, GROWTH_MIN))
        self._handles.extend(array("q", (FREE,)) * new)
        self._deadlines.extend(array("q", (0,)) * new)
        self._keys.extend(array("q", (0,)) * new)
        # Generations start at 1, so no small integer (nor True) is ever a handle. The
        # lowest index goes on top, so the table fills in the order of its memory.
        lowest = NEXT_GENERATION | size
        self._free.extend(range(lowest + new - 1, lowest - 1, -1))

    def _release(self, handle: int) -> None:
        # Written out again in cancel, cancel_many and _fire_due, where a call counts.
        self._handles[handle & INDEX_MASK] = FREE
        if handle < self._last_generation:
            self._free.append(handle + NEXT_GENERATION)

    def _living(self, entries: array[int] | deque[int]) -> list[int]:
        table = self._handles
        return [handle for handle in entries if table[handle & INDEX_MASK] == handle]

    def _sweep(self) -> None:
        """Drop every dead entry, wherever it stands."""
        for position in _set_bits(self._occupied):
            living = array("q", self._living(self._slots[position]))
            self._slots[position] = living
            if not living:
                self._occupied ^= 1 << position
        self._due = deque(self._living(self._due))
        table = self._handles
        self._overdue = [
            entry for entry in self._overdue if table[entry[2] & INDEX_MASK] == entry[2]
        ]
        heapify(self._overdue)
        self._dead = 0

    # The slots.

    def _place(self, handle: int, deadline: int) -> None:
        """Put a timer where its deadline and the cursor say."""
        if deadline > self._cursor:
            position = _position(deadline, self._cursor)
            slot = self._slots[position]
            if not slot:
                self._occupied |= 1 << position
            slot.append(handle)
        else:
            self._overdue_count += 1  # serial: the order of insertion within a tick
            heappush(self._overdue, (deadline, self._overdue_count, handle))

    def _first_slot(self) -> int | None:
        """Return the first position with a live timer; slots of dead ones go."""
        table = self._handles
        while self._occupied:
            lowest_bit = self._occupied & -self._occupied
            position = lowest_bit.bit_length() - 1
            slot = self._slots[position]
            # From the end, where dropping is O(1). One live timer is enough: in level 0
            # all of a slot share its deadline, above it the slot's start is the answer.
            while slot:
                if table[slot[-1] & INDEX_MASK] == slot[-1]:
                    return position
                slot.pop()
                self._dead -= 1
            self._occupied ^= lowest_bit
        return None

    def _start_of(self, position: int) -> int:
        """Return the first tick of a slot: the cursor's upper bytes, the slot's own."""
        level, byte = position >> SLOT_BITS, position & SLOT_MASK
        shift = level * SLOT_BITS
        return (self._cursor >> shift + SLOT_BITS << SLOT_BITS | byte) << shift

    def _detach_next_slot(self, now_tick: int) -> bool:
        """Move the cursor through the next slot, but not past now_tick.

        What is due in the slot goes to `due`, which must be empty of live timers. Returns
        False when no slot starts by now_tick; then the cursor has reached it.
        """
        if self._cursor >= now_tick:
            return False
        position = self._first_slot()
        if position is None or (start := self._start_of(position)) > now_tick:
            # Nothing lies between, so every timer keeps its level: no bit in which its
            # deadline and the cursor agree above that level has changed.
            self._cursor = now_tick
            return False
        slot = self._slots[position]
        self._slots[position] = array("q")
        self._occupied ^= 1 << position
        living = self._living(slot)
        self._dead -= len(slot) - len(living)
        end = start + (1 << (position >> SLOT_BITS) * SLOT_BITS) - 1
        # All lower levels are empty by now, or theirs would have been the first slot.
        self._cursor = min(end, now_tick)
        if end > now_tick:
            living = self._cascade(living)
        if end > start:
            deadlines = self._deadlines
            # Stable, so equal deadlines stay in the order of insertion.
            living.sort(key=lambda handle: deadlines[handle & INDEX_MASK])
        self._due.extend(living)
        return True

    def _cascade(self, handles: list[int]) -> list[int]:
        """Place the timers beyond the cursor anew, and return the others."""
        due: list[int] = []
        for handle in handles:
            deadline = self._deadlines[handle & INDEX_MASK]
            if deadline > self._cursor:
                self._place(handle, deadline)
            else:
                due.append(handle)
        return due

    # The queues.

    def _first_queued(self) -> int | None:
        """Return the earliest deadline in the queues; dead heads go."""
        table, due, overdue = self._handles, self._due, self._overdue
        while due and table[due[0] & INDEX_MASK] != due[0]:
            due.popleft()
            self._dead -= 1
        while overdue and table[overdue[0][2] & INDEX_MASK] != overdue[0][2]:
            heappop(overdue)
            self._dead -= 1
        first = [self._deadlines[due[0] & INDEX_MASK]] if due else []
        if overdue:
            first.append(overdue[0][0])
        return min(first, default=None)

    def _fire(self, fired: list[int], now_tick: int, max_fire: int) -> None:
        """Move the keys of queued timers due by now_tick to `fired`, in order."""
        overdue = self._overdue
        while True:
            until = min(now_tick, overdue[0][0]) if overdue else now_tick
            self._fire_due(fired, until, max_fire)
            if not overdue or overdue[0][0] > now_tick or len(fired) == max_fire:
                return
            handle = heappop(overdue)[2]
            if self._handles[handle & INDEX_MASK] == handle:
                fired.append(self._keys[handle & INDEX_MASK])
                self._release(handle)
                self._live -= 1
            else:
                self._dead -= 1

    def _fire_due(self, fired: list[int], until_tick: int, max_fire: int) -> None:
        due, table, free = self._due, self._handles, self._free
        keys, deadlines = self._keys, self._deadlines
        last_generation = self._last_generation
        fired_before, entries_before = len(fired), len(due)
        while due:
            handle = due[0]
            index = handle & INDEX_MASK
            if table[index] == handle:
                if deadlines[index] > until_tick or len(fired) == max_fire:
                    break
                fired.append(keys[index])
                table[index] = FREE
                if handle < last_generation:
                    free.append(handle + NEXT_GENERATION)
            due.popleft()
        newly_fired = len(fired) - fired_before
        self._live -= newly_fired
        self._dead -= entries_before - len(due) - newly_fired

    # The invariants.

    def check(self) -> None:
        """Assert every invariant of the class; for tests and for doubt.

        Raises:
            AssertionError: one does not hold, by a fault in this module.

        Cost: O(indexes + entries).
        """
        assert 0 <= self._cursor <= self._now <= DEADLINE_MAX
        entries = self._check_slots() + self._check_queues()
        living = self._living(deque(entries))
        assert len(set(entries)) == len(entries), "an entry stands in two places"
        assert len(living) == self._live, "len() is not the number of live timers"
        assert len(entries) - len(living) == self._dead, "dead entries are miscounted"
        assert self._dead <= self._live + SWEEP_SLACK, "a sweep is overdue"
        tenants = [handle for handle in self._handles if handle != FREE]
        assert sorted(tenants) == sorted(living), "a live timer stands nowhere"
        self._check_table(entries)

    def _check_table(self, entries: list[int]) -> None:
        table = self._handles
        assert len(table) == len(self._deadlines) == len(self._keys) <= self._timers_max
        next_handles = {handle & INDEX_MASK: handle for handle in self._free}
        assert len(next_handles) == len(self._free), "an index is free twice"
        for index, handle in enumerate(table):
            generation_end = self._last_generation + NEXT_GENERATION
            assert handle == FREE or handle & INDEX_MASK == index
            assert handle == FREE or NEXT_GENERATION <= handle < generation_end
            assert handle == FREE or index not in next_handles, "a tenant's is free"
        for index, handle in next_handles.items():
            assert table[index] == FREE
            assert NEXT_GENERATION <= handle <= self._last_generation | index
        for handle in entries:
            following = next_handles.get(handle & INDEX_MASK, DEADLINE_MAX)
            assert handle < following, "a dead entry could become true again"

    def _check_slots(self) -> list[int]:
        entries: list[int] = []
        for position, slot in enumerate(self._slots):
            assert bool(slot) == bool(self._occupied >> position & 1)
            for handle in self._living(slot):
                deadline = self._deadlines[handle & INDEX_MASK]
                assert deadline > self._cursor, "a due timer is still in a slot"
                assert _position(deadline, self._cursor) == position
                assert self._start_of(position) <= deadline
            entries.extend(slot)
        return entries

    def _check_queues(self) -> list[int]:
        deadlines = [
            self._deadlines[handle & INDEX_MASK] for handle in self._living(self._due)
        ]
        assert deadlines == sorted(deadlines), "`due` is out of order"
        assert not deadlines or deadlines[-1] <= self._cursor
        heap = self._overdue
        for child in range(1, len(heap)):
            assert heap[(child - 1) // 2] < heap[child], "`overdue` is no heap"
        for deadline, serial, handle in heap:
            assert deadline <= self._cursor
            assert serial <= self._overdue_count
            index = handle & INDEX_MASK
            assert self._handles[index] != handle or self._deadlines[index] == deadline
        return [*self._due, *(handle for _, _, handle in heap)]


def _position(deadline: int, cursor: int) -> int:
    # The highest bit in which the two differ names the level.
    level = ((deadline ^ cursor).bit_length() - 1) // SLOT_BITS
    return level << SLOT_BITS | deadline >> level * SLOT_BITS & SLOT_MASK


def _set_bits(bits: int) -> Iterator[int]:
    while bits:
        lowest_bit = bits & -bits
        yield lowest_bit.bit_length() - 1
        bits ^= lowest_bit


def _int64s(name: str, buffer: ReadableBuffer) -> array[int]:
    # A copy costs little, and needs no Python object per item as tolist() does.
    items = array("q")
    items.frombytes(int64_view(name, buffer).tobytes())
    return items
