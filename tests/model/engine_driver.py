"""One user of an engine, without threads: does things, and holds it to the oracle.

The driver is the tick thread, the worker and the caller in one, so every interleaving is
a program. It survives closing, killing and power losses, and carries a crash that is to
come over to the disk's next life.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from tests.model.engine_oracle import TICK_NS, Expected, Oracle, Violation
from timingwheel.engine.dump import dump
from timingwheel.engine.records import Base
from timingwheel.engine.table import State
from timingwheel.engine.timers import Timers
from timingwheel.testing import ManualClock
from wal.log import Durability, Log
from wal.snapshot import SnapshotWriter
from wal.testing import MemoryFileSystem, SimulatedCrash

SECOND_NS = 1_000_000_000
NOISE_NS = 1_000_000
"""Below it a difference of the clocks is no step."""

MakeTimers = Callable[[Log, ManualClock], Timers]


def make_timers(log: Log, clock: ManualClock) -> Timers:
    """Return the timers of a log, recovered."""
    return Timers(log, clock, may_wait=True)


@dataclass(frozen=True, slots=True)
class Death:
    """The clocks when a process ended, and what of them it may have taken along."""

    elapsed_ns: int
    wall_ns: int
    unlogged_ns: tuple[int, int]
    """Least and greatest sum of the steps that may not be in the log."""
    acknowledged_elapsed_ns: int


class EngineDriver:
    """A process, and its successors, on one disk.

    Attributes:
        disk: of the present life.
        clock: likewise.
        oracle: what was promised so far.
        timers: the engine.
        queue: fired timers that no handler has yet, in order.
        running: timers in a handler.
    """

    def __init__(
        self,
        disk: MemoryFileSystem,
        *,
        segment_size_bytes: int = 8192,
        durability: Durability = "durable",
        make: MakeTimers = make_timers,
        clock: ManualClock | None = None,
    ) -> None:
        self.disk = disk
        self.clock = clock if clock is not None else ManualClock()
        self.segment_size_bytes = segment_size_bytes
        self.durability = durability
        self.oracle = Oracle()
        self.queue: list[int] = []
        self.running: list[int] = []
        self._make = make
        self._alive = False
        self._death: Death | None = None
        self._calls_before = 0
        self._crash: tuple[int, bool] | None = None

    def heir(self, disk: MemoryFileSystem) -> EngineDriver:
        """Return the next process on what a crash left, with a clock of its own."""
        heir = EngineDriver(
            disk,
            segment_size_bytes=self.segment_size_bytes,
            durability=self.durability,
            make=self._make,
            clock=ManualClock(wall_ns=self.clock.wall_ns(), monotonic_ns=7),
        )
        heir.oracle = self.oracle.copy()
        heir._death = self._last_moment() if self._alive else self._death
        return heir

    # -- lives ----------------------------------------------------------------------------

    def open(self) -> None:
        """Open the directory and check what came back."""
        last_lsn = self._last_lsn()
        log = self._open_log(self.disk)
        timers = self._make(log, self.clock)
        self.oracle.recovered(last_lsn)
        self.timers, self.log, self.core = timers, log, timers.core
        self.queue, self.running = [], []
        self._snapshot: tuple[SnapshotWriter, Iterator[bytes]] | None = None
        self._opened_ns = self.core.elapsed_ns(), self.clock.monotonic_ns()
        self._check_time_since_death()
        self._acknowledged_elapsed_ns = self.elapsed_ns
        self._unlogged = (0, 0)
        if self._death is not None and self.durability == "interval":
            self._unlogged = self._death.unlogged_ns  # what opening noted can be lost
        self._has_backlog = False
        self._alive = True
        fired = [timer for timer in self.oracle.timers.values() if timer.fired]
        fired.sort(key=lambda timer: (self._due_ns(timer), timer.timer_id))
        self.oracle.owed = [timer.timer_id for timer in fired]
        self.compare()

    def close(self) -> None:
        """End as a program should."""
        self.core.close()
        self._acknowledge(self.log.appended_lsn)
        self._die()

    def kill(self, disk: MemoryFileSystem | None = None) -> None:
        """End as by SIGKILL, or by the power loss that left that disk."""
        self._die()
        self._calls_before += self.disk.calls
        self.disk = disk if disk is not None else self.disk.killed()
        self._arm()

    def reopen(self, *, down_ns: int = 0, step_ns: int = 0) -> None:
        """Open again after some time, during which the clock may have been set too."""
        self.clock = ManualClock(
            wall_ns=max(self.clock.wall_ns() + down_ns + step_ns, 1), monotonic_ns=7
        )
        if self._death is not None and step_ns:
            low, high = self._death.unlogged_ns
            self._death = replace(
                self._death,
                unlogged_ns=(min(low, low + step_ns), max(high, high + step_ns)),
                wall_ns=self._death.wall_ns + step_ns,
            )
        self.open()

    @property
    def calls(self) -> int:
        """Disk calls over all lives."""
        return self._calls_before + self.disk.calls

    def crash_at(self, index: int, *, after: bool) -> None:
        """Let the power fail at the `index`-th disk call over all lives."""
        self._crash = (index, after)
        self._arm()

    # -- requests -------------------------------------------------------------------------

    def schedule(self, delay: float, payload: bytes, *, wait: bool = True) -> int:
        """Make a timer; unless `wait`, its reply is not waited for."""
        timer_id, lsn = self.timers.schedule(delay, payload)
        timer = self._new(timer_id, payload, deadline_ns=self._after(delay))
        self.oracle.changed(timer_id, {timer_id: timer})
        self._reply(lsn, wait=wait)
        return timer_id

    def schedule_at(self, wall_ns: int, payload: bytes, *, wait: bool = True) -> int:
        """Make a timer that follows the wall clock."""
        timer_id, lsn = self.timers.schedule_at(wall_ns, payload)
        timer = self._new(timer_id, payload, deadline_ns=wall_ns, wall=True)
        self.oracle.changed(timer_id, {timer_id: timer})
        self._reply(lsn, wait=wait)
        return timer_id

    def schedule_many(
        self, delays: list[float], payloads: list[bytes], *, wait: bool = True
    ) -> range:
        """Make many timers that hold together."""
        ids, lsn = self.timers.schedule_many(delays, payloads)
        new = {
            timer_id: self._new(timer_id, payload, deadline_ns=self._after(delay))
            for timer_id, delay, payload in zip(ids, delays, payloads, strict=True)
        }
        self.oracle.changed(ids.start, {**new})
        self._reply(lsn, wait=wait)
        return ids

    def reschedule(self, timer_id: int, delay: float, *, wait: bool = True) -> bool:
        """Give a timer a new delay, if no handler has it."""
        wanted = self._can_change(timer_id)
        done, lsn = self.timers.reschedule(timer_id, delay)
        if done != wanted:
            raise Violation(f"reschedule({timer_id}) is {done}, and {wanted} is right")
        if done:
            timer = self._moved(timer_id, self._after(delay))
            self.oracle.changed(self.log.appended_lsn, {timer_id: timer})
        self._reply(lsn, wait=wait)
        return done

    def cancel(self, timer_id: int, *, wait: bool = True) -> bool:
        """Remove a timer, if no handler has it."""
        wanted = self._can_change(timer_id)
        done, lsn = self.timers.cancel(timer_id)
        if done != wanted:
            raise Violation(f"cancel({timer_id}) is {done}, and {wanted} is right")
        if done:
            self._no_longer_owed(timer_id)
            self.oracle.changed(self.log.appended_lsn, {timer_id: None})
        self._reply(lsn, wait=wait)
        return done

    def sync(self) -> None:
        """Wait for all replies that were not waited for."""
        self.log.sync()
        self._acknowledge(self.log.appended_lsn)

    # -- the tick and the worker ----------------------------------------------------------

    def fire(self, limit: int = 4096) -> list[int]:
        """Step the core as the tick thread does and check what it fires."""
        reading = self.clock.read()
        try:
            due = self.core.step(limit)
        except SimulatedCrash:
            self._note_what_the_dead_fired()
            raise
        fired = [*map(int, due.timers)]
        self._check_fired(fired, reading.wall_ns, limit)
        self._note_fired(fired, due.first_lsn)
        self.queue += fired
        self._note_step_committed(fired=bool(fired))
        return fired

    def begin(self, place: int = 0) -> int | None:
        """Hand a fired timer to a handler."""
        timer_id = self.queue.pop(place)
        timer = self.oracle.timers.get(timer_id)
        payload = self.timers.begin(timer_id)
        if timer is None or not timer.fired or timer_id in self.running:
            if payload is not None:
                raise Violation(f"timer {timer_id} was delivered and should not be")
            return None
        if payload != timer.payload:
            raise Violation(f"timer {timer_id} came with {payload!r}, not {timer}")
        self.running.append(timer_id)
        return timer_id

    def acknowledge(self, place: int = 0, *, wait: bool = True) -> None:
        """Let a handler return."""
        timer_id = self.running.pop(place)
        lsn = self.timers.acknowledge([timer_id])
        self.oracle.changed(self.log.appended_lsn, {timer_id: None})
        self._reply(lsn, wait=wait)

    def redeliver_later(self, place: int = 0, *, wait: bool = True) -> None:
        """Let a handler raise."""
        timer_id = self.running.pop(place)
        lsn = self.timers.redeliver_later(timer_id)
        backoff_s = min(2 ** (self.oracle.timers[timer_id].attempt - 1), 600)
        timer = self._moved(timer_id, self.elapsed_ns + backoff_s * SECOND_NS)
        self.oracle.changed(self.log.appended_lsn, {timer_id: timer})
        self._reply(lsn, wait=wait)

    def deliver_all(self) -> None:
        """Run every queued handler to its end."""
        while self.queue:
            if self.begin() is not None:
                self.acknowledge(-1)

    # -- time -----------------------------------------------------------------------------

    @property
    def elapsed_ns(self) -> int:
        """Engine time, by the monotonic clock alone."""
        elapsed_ns, monotonic_ns = self._opened_ns
        return elapsed_ns + self.clock.monotonic_ns() - monotonic_ns

    def step_wall(self, step_ns: int, *, notice: bool = True) -> None:
        """Set the wall clock; unless `notice`, no tick sees it yet."""
        step_ns = max(step_ns, 1 - self.clock.wall_ns())
        self.clock.step(step_ns)
        low, high = self._unlogged
        self._unlogged = (min(low, low + step_ns), max(high, high + step_ns))
        if notice:
            self.core.step(0)
            self._note_step_committed(fired=False)

    # -- snapshots ------------------------------------------------------------------------

    def snapshot(self) -> None:
        """Write a snapshot in one go."""
        if self._snapshot is None:
            self.core.snapshot(pause=lambda: None)
            self._acknowledge(self.log.appended_lsn)

    def begin_snapshot(self) -> None:
        """Begin one that other things happen beside."""
        if self._snapshot is None:
            blocks = dump(
                self.core.state,
                iter(()),
                self.core.lock,
                slots_a_step=1,
                block_bytes=1,
            )
            self._snapshot = self.log.begin_snapshot(), blocks

    @property
    def snapshotting(self) -> bool:
        """Whether a snapshot is being written."""
        return self._snapshot is not None

    def add_to_snapshot(self) -> bool:
        """Write its next block; False if there is none."""
        if self._snapshot is None:
            return False
        writer, blocks = self._snapshot
        block = next(blocks, None)
        if block is not None:
            writer.add(block)
        return block is not None

    def finish_snapshot(self) -> None:
        """Write what it lacks and complete it."""
        if self._snapshot is None:
            return
        while self.add_to_snapshot():
            pass
        (writer, _), self._snapshot = self._snapshot, None
        self.log.finish_snapshot(writer, reach_lsn=self.log.appended_lsn)
        self._acknowledge(self.log.appended_lsn)

    # -- checks ---------------------------------------------------------------------------

    def check(self) -> None:
        """Compare what can be seen with the oracle, and assert all invariants."""
        self.core.check()
        self.log.check()
        self.compare()

    def compare(self) -> None:
        """Compare everything that can be seen with the oracle."""
        self.oracle.compare(self._view())
        assert len(self.timers) == len(self.oracle.timers)
        assert self.core.elapsed_ns() == self.elapsed_ns

    def _view(self) -> Iterator[Expected]:
        table = self.core.state.table
        for row in table.walk(0, table.slot_count):
            yield Expected(
                row.timer_id,
                row.base == Base.WALL,
                row.deadline_ns,
                row.payload,
                row.attempt,
                row.state == State.FIRED,
            )

    def _check_fired(self, fired: list[int], wall_ns: int, limit: int) -> None:
        owed = self.oracle.owed[:limit]
        if fired[: len(owed)] != owed:
            raise Violation(
                f"{owed} were fired before the restart and come first, not {fired}"
            )
        timers = [self.oracle.timers.get(timer_id) for timer_id in fired[len(owed) :]]
        rest: list[Expected] = []
        for timer_id, timer in zip(fired[len(owed) :], timers, strict=True):
            if timer is None or timer.fired:
                raise Violation(f"timer {timer_id} fired and is {timer}")
            now_ns = wall_ns if timer.wall else self.elapsed_ns
            if timer.deadline_ns > now_ns:
                raise Violation(f"{timer} fired early, at {now_ns}")
            rest.append(timer)
        left = self._due_now(wall_ns) - set(fired)
        if len(fired) < limit and left:
            raise Violation(f"{left} are due and did not fire")
        self._check_order(rest, left)
        self._has_backlog = len(fired) == limit

    def _due_now(self, wall_ns: int) -> set[int]:
        ticks = {True: wall_ns // TICK_NS, False: self.elapsed_ns // TICK_NS}
        return {
            timer.timer_id
            for timer in self.oracle.timers.values()
            if not timer.fired and timer.due_tick <= ticks[timer.wall]
        }

    def _check_order(self, fired: list[Expected], left: set[int]) -> None:
        both = len({timer.wall for timer in fired}) == 2

        def order(timer: Expected) -> tuple[int, int]:
            # Two wheels are merged by id, for lack of a common order of insertion; and
            # of passed wall timers of one tick the earlier deadline comes first.
            tie = timer.timer_id if both else 0 if timer.wall else timer.order
            return timer.due_tick, tie

        for wall in (False, True):
            if wall and self._has_backlog:
                continue  # passed wall timers go before a backlog of the wheel
            mine = [timer for timer in fired if timer.wall == wall]
            if mine != sorted(mine, key=order):
                raise Violation(f"fired out of order: {mine}")
            for timer in map(self.oracle.timers.__getitem__, left):
                if mine and timer.wall == wall and timer.due_tick < mine[-1].due_tick:
                    raise Violation(f"{timer} was left behind {mine[-1]}")
        if both and not self._has_backlog:
            due_ns = [self._due_ns(timer) for timer in fired]
            if due_ns != sorted(due_ns):
                raise Violation(f"the two wheels' timers fired out of order: {fired}")

    def _check_time_since_death(self) -> None:
        death = self._death
        if death is None:
            return
        found_ns = self.core.elapsed_ns()
        passed_ns = self.clock.wall_ns() - death.wall_ns
        low, high = death.unlogged_ns
        least_ns = death.elapsed_ns + passed_ns + low
        most_ns = max(death.elapsed_ns, death.elapsed_ns + passed_ns + high)
        if (low, high) == (0, 0):
            least_ns = max(least_ns, death.acknowledged_elapsed_ns)
        if not least_ns - NOISE_NS <= found_ns <= most_ns + NOISE_NS:
            raise Violation(
                f"engine time is {found_ns} after the restart, and {least_ns} to "
                f"{most_ns} is right: delays have moved"
            )

    # -- inside ---------------------------------------------------------------------------

    def _open_log(self, disk: MemoryFileSystem) -> Log:
        return Log.open(
            disk,
            wall_ns=self.clock.wall_ns,
            durability=self.durability,
            segment_size_bytes=self.segment_size_bytes,
            reserve_bytes=0,
            background=False,
        )

    def _last_lsn(self) -> int:
        """Return the number of the last record that the next open will find.

        On a copy: a log can be read once, and `report.last_lsn` may be a number that an
        opening skipped.
        """
        log = self._open_log(self.disk.copy())
        last_lsn = int(log.snapshot.pin_lsn) if log.snapshot is not None else 0
        for group in log.groups():
            last_lsn = group.first_lsn + group.record_count - 1
        return last_lsn

    def _arm(self) -> None:
        if self._crash is not None and self._crash[0] > self._calls_before:
            index, after = self._crash
            self.disk.crash_at(index - self._calls_before, after=after)

    def _reply(self, lsn: int, *, wait: bool) -> None:
        if wait:
            self.core.commit(lsn)
            if self.durability == "durable":
                # What the engine said to wait for may be wrong; what it did is not.
                self._acknowledge(self.log.appended_lsn)

    def _note_step_committed(self, *, fired: bool) -> None:
        if self.durability == "durable":
            # With nothing to say, a step waits for nobody.
            lsn = self.log.appended_lsn if fired else self.log.durable_lsn
            self._acknowledge(lsn)

    def _acknowledge(self, lsn: int) -> None:
        self.oracle.acknowledged(lsn)
        self._acknowledged_elapsed_ns = self.elapsed_ns
        step_ns = self.clock.wall_ns() - self.elapsed_ns - self.core.state.steps_ns
        self._unlogged = (min(step_ns, 0), max(step_ns, 0))

    def _die(self) -> None:
        if self._alive:
            self._death = self._last_moment()
        self._alive = False

    def _last_moment(self) -> Death:
        return Death(
            self.elapsed_ns,
            self.clock.wall_ns(),
            self._unlogged,
            self._acknowledged_elapsed_ns,
        )

    def _note_fired(self, fired: list[int], first_lsn: int) -> None:
        timers: dict[int, Expected | None] = {}
        for timer_id in fired:
            timer = self.oracle.timers[timer_id]
            timers[timer_id] = replace(timer, fired=True, attempt=timer.attempt + 1)
            self._no_longer_owed(timer_id)
        self.oracle.changed(first_lsn, timers, last_lsn=self.log.appended_lsn)

    def _note_what_the_dead_fired(self) -> None:
        """The crash came in the commit, so what was fired may hold or not."""
        table = self.core.state.table
        fired = []
        records = set()  # one for all that fired for the n-th time
        for timer in self.oracle.timers.values():
            slot = table.slot(timer.timer_id)
            if slot is not None and table.attempt(slot) == timer.attempt + 1:
                fired.append(timer.timer_id)
                records.add(timer.attempt)
        self._note_fired(fired, self.log.appended_lsn - len(records) + 1)

    def _can_change(self, timer_id: int) -> bool:
        return timer_id in self.oracle.timers and timer_id not in self.running

    def _moved(self, timer_id: int, deadline_ns: int) -> Expected:
        self._no_longer_owed(timer_id)
        return replace(
            self.oracle.timers[timer_id],
            wall=False,
            deadline_ns=deadline_ns,
            fired=False,
            order=self.log.appended_lsn,
        )

    def _no_longer_owed(self, timer_id: int) -> None:
        if timer_id in self.oracle.owed:
            self.oracle.owed.remove(timer_id)

    def _new(
        self, timer_id: int, payload: bytes, *, deadline_ns: int, wall: bool = False
    ) -> Expected:
        return Expected(timer_id, wall, deadline_ns, payload, order=timer_id)

    def _after(self, delay: float) -> int:
        return self.elapsed_ns + math.ceil(delay * SECOND_NS)

    def _due_ns(self, timer: Expected) -> int:
        now_ns = self.clock.wall_ns() if timer.wall else self.elapsed_ns
        return timer.due_tick * TICK_NS - (now_ns - self.clock.monotonic_ns())
