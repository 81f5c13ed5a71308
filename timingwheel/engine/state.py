"""What the log adds up to: the timer table, the two wheels, the steps of the clock.

`EngineState.apply` is the one place where this changes, for a record that was just
appended and for one that recovery reads alike. A record that is already in what a fuzzy
snapshot brought is told by its LSN and skipped.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Final, cast

from timingwheel.clock import Reading
from timingwheel.engine.bodies import TimerTable
from timingwheel.engine.records import (
    FIRED,
    ID_ONLY,
    MANY_FIRED,
    MANY_IDS,
    RESCHEDULED,
    STEPPED,
    Base,
    Kind,
    TimerId,
    ids_from,
    until_scheduled,
)
from timingwheel.engine.table import NO_HANDLE, State, WheelBatch
from timingwheel.engine.timeline import TICK_BITS, Now, Timeline
from timingwheel.errors import TimingWheelError
from timingwheel.wheel_arguments import DEADLINE_MAX

OwnerApply = Callable[[list[tuple[int, bytes]]], None]

BATCH_MAX: Final = 1 << 20
"""Timers that go into the wheels at a time when an engine opens: 28 MiB of columns. With
2**16 the wheels grow step by step, which took 0.47 s for 1e6 timers against 0.28 s."""
BATCH_MIN: Final = 4
"""Fewer go in one by one: a batch costs as much as some three of them before its first."""
AHEAD_HANDLE: Final = -3
"""Stands for a wheel handle of a timer that was taken out and then put back."""
ELAPSED_MIN_NS: Final = -(1 << 62)
"""Less than any elapsed time, which begins at the wall clock of the first open."""
HELD_HANDLE: Final = -4
"""Stands for a wheel handle of a due timer that the owner keeps in an order of its own."""


class EngineState:
    """Timers and clock as the records say. Not thread-safe: the core's lock guards it.

    Invariants: once `begin` was called, a row that waits is in exactly one wheel, goes
    ahead of them, or is held by the owner; a row being delivered is in none; nothing is
    in a wheel without a row (armed timers apart).

    Attributes:
        table: a row a timer.
        steps_ns: sum of all steps that the wall clock took.
        steps_lsn: LSN of the last `ClockStepped`.

    Args:
        owner_apply: takes records of kinds >= 64, with their LSNs.
        reach_lsn: up to here a snapshot may have missed or foreseen a change.
        gaps_allowed: a repair left records out of this store.
    """

    def __init__(
        self, owner_apply: OwnerApply, *, reach_lsn: int, gaps_allowed: bool
    ) -> None:
        self.table = TimerTable()
        self.steps_ns = 0
        self.steps_lsn = 0
        self._owner_apply = owner_apply
        self._reach_lsn = reach_lsn
        self._gaps_allowed = gaps_allowed
        self._timeline: Timeline | None = None
        self._ahead: dict[TimerId, None] = {}
        """Due before all that is in the wheels, in order: fired before the restart and
        never acknowledged, or taken out by a step that failed."""
        self._on_insert: Callable[[int], None] | None = None

    # -- the end of recovery ------------------------------------------------------------

    def begin(
        self,
        reading: Reading,
        *,
        last_wall_ns: int,
        on_insert: Callable[[int], None],
    ) -> None:
        """Build the wheels from the table; from here on `apply` keeps them.

        They begin at the last moment logged, so that what fell due since comes out in
        order like everything else; what was fired and never acknowledged comes first.

        Args:
            reading: the clocks now.
            last_wall_ns: the wall clock when the log was last written.
            on_insert: called with each new timer's due time on the monotonic clock.

        Raises:
            TimingWheelError: the steps that were logged are none that a clock can take.
        """
        if not ELAPSED_MIN_NS <= reading.wall_ns - self.steps_ns <= DEADLINE_MAX:
            raise TimingWheelError(
                f"the wall clock is said to have been set by {self.steps_ns} ns in all, "
                "which none can: open this directory with the program that wrote it"
            )
        self._timeline = Timeline(
            reading,
            steps_ns=self.steps_ns,
            start_elapsed_ns=max(last_wall_ns - self.steps_ns, 0),
            start_wall_ns=max(last_wall_ns, 0),
        )
        waiting = self.table.slots_in(State.WAITING)
        for start in range(0, len(waiting), BATCH_MAX):
            self._put_many_in_wheels(waiting[start : start + BATCH_MAX])
        fired = [
            (self._due_ns(slot), self.table.timer_id(slot))
            for slot in self.table.slots_in(State.FIRED)
        ]
        self._ahead = {timer_id: None for _, timer_id in sorted(fired)}
        self._on_insert = on_insert

    @property
    def timeline(self) -> Timeline:
        """The present and the wheels."""
        assert self._timeline is not None, "recovery has not ended"
        return self._timeline

    def slot_of(self, timer_id: int) -> int:
        """Return the slot of a timer that is known to live."""
        slot = self.table.slot(timer_id)
        assert slot is not None, f"timer {timer_id} is not in the table"
        return slot

    # -- records ------------------------------------------------------------------------

    def apply(self, first_lsn: int, records: Iterable[bytes]) -> None:
        """Change the state by records numbered from `first_lsn` on.

        Raises:
            TimingWheelError: a record that this version does not know or that changes a
                timer which cannot be missing.
        """
        owners: list[tuple[int, bytes]] = []
        for lsn, record in enumerate(records, first_lsn):
            kind = record[0]
            if kind >= Kind.OWNER_FIRST:
                owners.append((lsn, record))
                continue
            if owners:
                self._owner_apply(owners)
                owners = []
            if kind == Kind.TIMER_SCHEDULED:
                self._apply_scheduled(lsn, record)
            elif kind == Kind.CLOCK_STEPPED:
                self._apply_stepped(lsn, record)
            elif kind == Kind.TIMERS_FIRED:
                self._apply_fired_many(lsn, record)
            elif kind == Kind.TIMERS_ACKNOWLEDGED:
                ids = ids_from(record, MANY_IDS.size)
                self._take_many_out_of_wheels(ids)
                self._refuse_missing(self.table.remove_many(ids, last_lsn=lsn), lsn)
            else:
                self._apply_change(kind, lsn, record)
        if owners:
            self._owner_apply(owners)

    def apply_group(self, first_lsn: int, body: bytes) -> None:
        """Do as `apply` by the encoded records of a group.

        Timers that were scheduled in a row go from these bytes into the table, and from
        there into the wheels, as one batch.

        Raises:
            FormatError: sizes that do not add up.
            TimingWheelError: as `apply`.
        """
        lsn, at = first_lsn, 0
        while at < len(body):
            count, at, slots = self.table.insert_scheduled(
                lsn, body, at=at, known_lsn=self._reach_lsn
            )
            if self._timeline is not None:
                self._put_many_in_wheels(slots)
            lsn += count
            others, at = until_scheduled(body, at)
            self.apply(lsn, others)
            lsn += len(others)

    def _apply_scheduled(self, lsn: int, record: bytes) -> None:
        if lsn <= self._reach_lsn and self.table.slot(lsn) is not None:
            return  # the snapshot has it, perhaps in a newer state
        slot = self.table.insert_record(lsn, record)
        if self._timeline is not None:
            self._put_in_wheel(slot, lsn)

    def _apply_stepped(self, lsn: int, record: bytes) -> None:
        if lsn > self.steps_lsn:
            _, self.steps_ns = STEPPED.unpack(record)
            self.steps_lsn = lsn

    def _apply_change(self, kind: int, lsn: int, record: bytes) -> None:
        base = attempt = deadline_ns = 0
        if kind == Kind.TIMER_RESCHEDULED:
            _, base, attempt, timer_id, deadline_ns = RESCHEDULED.unpack(record)
        elif kind == Kind.TIMER_FIRED:
            _, attempt, timer_id = FIRED.unpack(record)
        elif kind in (Kind.TIMER_CANCELLED, Kind.TIMER_ACKNOWLEDGED):
            _, timer_id = ID_ONLY.unpack(record)
        else:
            raise TimingWheelError(
                f"LSN {lsn} has kind {kind}: open this directory with the version "
                "that wrote it"
            )
        slot = self._slot_to_change(timer_id, lsn)
        if slot is None:
            return
        self._take_out_of_wheel(slot, timer_id)
        if kind == Kind.TIMER_RESCHEDULED:
            self.table.reschedule(
                slot,
                last_lsn=lsn,
                deadline_ns=deadline_ns,
                base=base,
                attempt=attempt,
            )
            if self._timeline is not None:
                self._put_in_wheel(slot, timer_id)
        elif kind == Kind.TIMER_FIRED:
            self.table.fire(slot, last_lsn=lsn, attempt=attempt)
        else:
            self.table.remove(timer_id)

    def _apply_fired_many(self, lsn: int, record: bytes) -> None:
        attempt = MANY_FIRED.unpack_from(record)[1]
        ids = ids_from(record, MANY_FIRED.size)
        self._take_many_out_of_wheels(ids)
        missing = self.table.fire_many(ids, last_lsn=lsn, attempt=attempt)
        self._refuse_missing(missing, lsn)

    def _slot_to_change(self, timer_id: int, lsn: int) -> int | None:
        """Return the slot that a record changes, None if it changes nothing any more."""
        slot = self.table.slot(timer_id)
        if slot is not None:
            return slot if lsn > self.table.last_lsn(slot) else None
        self._refuse_missing([timer_id], lsn)
        return None

    def _refuse_missing(self, timer_ids: Sequence[int], lsn: int) -> None:
        """Raise if a record changes timers that are not there and cannot be missing."""
        # A fuzzy snapshot may have missed a timer that was removed while it was written.
        if not timer_ids or lsn <= self._reach_lsn or self._gaps_allowed:
            return
        raise TimingWheelError(
            f"LSN {lsn} changes timer {timer_ids[0]}, which does not exist: a bug of the "
            "engine and not of the disk; please report it with what python -m wal "
            "inspect says of the directory"
        )

    # -- what is due --------------------------------------------------------------------

    def take_due(self, now: Now, limit: int) -> tuple[list[TimerId], list[int]]:
        """Take what is due out of the wheels, at most `limit` timers.

        Returns:
            Timers in the order in which they fire, and tokens of armed timers.
        """
        timers: list[TimerId] = []
        for timer_id in list(islice(self._ahead, limit)):
            slot = self.slot_of(timer_id)
            self._take_out_of_wheel(slot, timer_id)
            if self._may_fire(slot, now):
                timers.append(timer_id)
            else:
                self._put_in_wheel(slot, timer_id)
        elapsed, wall = self.timeline.advance(now, limit - len(timers))
        found, armed = _split(elapsed)
        if wall:
            of_wall, armed_wall = _split(wall)
            if found and of_wall:
                found += of_wall
                found.sort(key=lambda key: (self._due_ns(self.slot_of(key)), key))
            else:
                found += of_wall
            armed += armed_wall
        self.table.take_out(found)
        return timers + found, armed

    def put_back(self, timers: list[TimerId], armed: list[int], now: Now) -> None:
        """Undo `take_due` after a failure, so that nothing is forgotten or overtaken.

        Args:
            timers: what it returned, in order; they go ahead of all that is in the wheels.
            armed: the tokens that it returned; they come again with the next tick.
            now: the present.
        """
        back: dict[TimerId, None] = {}
        for timer_id in timers:
            slot = self.table.slot(timer_id)
            if slot is None or self.table.handle(slot) != NO_HANDLE:
                continue
            if self.table.is_waiting(slot):
                self.table.set_handle(slot, AHEAD_HANDLE)
            back[timer_id] = None
        self._ahead = back | self._ahead
        for token in armed:
            self.timeline.insert(Base.ELAPSED, now.elapsed_ns, ~token)

    def hold(self, timer_id: int) -> None:
        """Leave a due timer to the owner, who orders it and fires it later.

        Nothing is logged: after a crash it is due again. Its row goes on waiting.
        """
        self.table.set_handle(self.slot_of(timer_id), HELD_HANDLE)

    def is_held(self, timer_id: int) -> bool:
        """Return whether a timer lives, is due and was left to the owner."""
        slot = self.table.slot(timer_id)
        return (
            slot is not None
            and self.table.handle(slot) == HELD_HANDLE
            and self.table.is_waiting(slot)
        )

    def is_ahead(self, timer_id: int) -> bool:
        """Return whether a timer goes before what is in the wheels."""
        return timer_id in self._ahead

    @property
    def ahead_count(self) -> int:
        """How many go before what is in the wheels: after a restart, what had fired."""
        return len(self._ahead)

    def next_due_ns(self) -> int | None:
        """Return when to look again on the monotonic clock, None if nothing waits."""
        return 0 if self._ahead else self.timeline.next_due_ns()

    def check(self) -> None:
        """Assert the invariants. For tests."""
        self.timeline.check()
        self.table.check()
        in_wheels = 0
        for row in self.table.walk(0, self.table.slot_count):
            in_wheel = self.table.handle(self.slot_of(row.timer_id)) != NO_HANDLE
            assert in_wheel == (row.state == State.WAITING), row
            in_wheels += in_wheel
        ahead = [self.slot_of(timer_id) for timer_id in self._ahead]
        in_wheels -= sum(self.table.handle(slot) == AHEAD_HANDLE for slot in ahead)
        in_wheels -= self.table.count_handles(HELD_HANDLE)
        assert in_wheels <= len(self.timeline)

    # -- inside -------------------------------------------------------------------------

    def _due_ns(self, slot: int) -> int:
        return self.timeline.due_ns(self.table.base(slot), self.table.deadline_ns(slot))

    def _may_fire(self, slot: int, now: Now) -> bool:
        """Return whether a timer is due still: the wall clock may have been set back."""
        return (
            not self.table.is_waiting(slot)
            or self.table.base(slot) == Base.ELAPSED
            or self.table.deadline_ns(slot) <= now.wall_ns
        )

    def _put_in_wheel(self, slot: int, timer_id: int) -> None:
        base, deadline_ns = self.table.base(slot), self.table.deadline_ns(slot)
        handle = self.timeline.insert(base, deadline_ns, timer_id)
        self.table.set_handle(slot, handle)
        if self._on_insert is not None:
            self._on_insert(self.timeline.due_ns(base, deadline_ns))

    def _put_many_in_wheels(self, slots: array[int]) -> None:
        """Do as `_put_in_wheel` one after the other, by growing id."""
        if len(slots) < BATCH_MIN:
            self._put_each_in_wheel(slots)
            return
        for base in (Base.ELAPSED, Base.WALL):
            batch = self.table.wheel_batch(slots, base, tick_bits=TICK_BITS)
            if batch.slots and self.timeline.is_passed(base, batch.first_tick):
                batch = self._put_passed_aside(batch)
            if not batch.slots:
                continue
            handles = self.timeline.insert_many(base, batch.ticks, batch.timer_ids)
            self.table.set_handles(batch.slots, handles)
            if self._on_insert is not None:
                self._on_insert(self.timeline.tick_due_ns(base, batch.first_tick))

    def _put_passed_aside(self, batch: WheelBatch) -> WheelBatch:
        """Have the wall timers wait that the wheel has passed; return the others."""
        passed, others = array("I"), array("I")
        for slot, tick in zip(batch.slots, batch.ticks, strict=True):
            is_passed = self.timeline.is_passed(Base.WALL, tick)
            (passed if is_passed else others).append(slot)
        self._put_each_in_wheel(passed)
        return self.table.wheel_batch(others, Base.WALL, tick_bits=TICK_BITS)

    def _put_each_in_wheel(self, slots: array[int]) -> None:
        for slot in slots:
            self._put_in_wheel(slot, self.table.timer_id(slot))

    def _take_many_out_of_wheels(self, timer_ids: Sequence[int]) -> None:
        """Do as `_take_out_of_wheel` for those that are in one; most records name none."""
        if self._timeline is None:
            return
        found = self.table.with_handle(timer_ids)
        if self._ahead:
            found += self._ahead.keys() & timer_ids
        for timer_id in found:
            self._take_out_of_wheel(self.slot_of(timer_id), timer_id)

    def _take_out_of_wheel(self, slot: int, timer_id: int) -> None:
        if self._ahead and TimerId(timer_id) in self._ahead:
            del self._ahead[TimerId(timer_id)]
            self.table.set_handle(slot, NO_HANDLE)
            return
        handle = self.table.handle(slot)
        if handle in (NO_HANDLE, HELD_HANDLE):
            self.table.set_handle(slot, NO_HANDLE)
            return
        self.timeline.cancel(
            self.table.base(slot),
            handle,
            deadline_ns=self.table.deadline_ns(slot),
            key=timer_id,
        )
        self.table.set_handle(slot, NO_HANDLE)


def _split(keys: list[int]) -> tuple[list[TimerId], list[int]]:
    """Return the timers among the keys that a wheel gave, and the armed tokens."""
    armed = [~key for key in keys if key < 0]
    timers = [key for key in keys if key > 0] if armed else keys
    return cast("list[TimerId]", timers), armed
