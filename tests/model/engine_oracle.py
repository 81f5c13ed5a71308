"""What the users of an engine know, and what it must therefore do.

The oracle of every random program and every crash of the engine: a dictionary of timers
and a list of changes that nobody has been promised yet. It knows nothing of wheels,
tables, frames or snapshots.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

TICK_NS = 1 << 16


class Violation(AssertionError):  # noqa: N818 - it is the finding, not an error of ours
    """The engine broke a promise."""


@dataclass(frozen=True, slots=True)
class Expected:
    """One timer as its user knows it; the deadline is on the wall clock, or elapsed."""

    timer_id: int
    wall: bool
    deadline_ns: int
    payload: bytes
    attempt: int = 0
    fired: bool = False
    order: int = 0
    """Among timers of the same tick: when it was set, and after a restart its id."""

    @property
    def due_tick(self) -> int:
        """The first tick that does not lie before the deadline."""
        return -(-self.deadline_ns // TICK_NS)


@dataclass(frozen=True, slots=True)
class Change:
    """What one atomic group did: timers as they are after it, None for removed ones."""

    first_lsn: int
    last_lsn: int
    timers: dict[int, Expected | None]


@dataclass(slots=True)
class Oracle:
    """The timers, and how much of them was promised.

    Invariants: `timers` is `promised` with all `pending` changes, in order; a pending
    change may be lost in a crash, but only together with all later ones.

    Attributes:
        timers: the state as the living process shows it.
        pending: changes that were made and not acknowledged yet.
        acknowledged_lsn: the last change that any crash must leave.
        highest_lsn: no number up to this one may be given to another timer.
        owed: fired before the last restart and not delivered since, in due order.
    """

    timers: dict[int, Expected] = field(default_factory=dict)
    promised: dict[int, Expected] = field(default_factory=dict)
    pending: list[Change] = field(default_factory=list)
    acknowledged_lsn: int = 0
    highest_lsn: int = 0
    owed: list[int] = field(default_factory=list)

    def copy(self) -> Oracle:
        """Return an independent twin."""
        return replace(
            self,
            timers={**self.timers},
            promised={**self.promised},
            pending=[*self.pending],
            owed=[*self.owed],
        )

    def changed(
        self,
        first_lsn: int,
        timers: dict[int, Expected | None],
        *,
        last_lsn: int | None = None,
    ) -> None:
        """Note a group whose records begin with that number.

        Args:
            first_lsn: of the group.
            timers: what became of each.
            last_lsn: of the group, if it has not one record a timer.

        Raises:
            Violation: a timer got a number that was given out before.
        """
        if not timers:
            return
        if first_lsn <= self.highest_lsn:
            raise Violation(
                f"LSN {first_lsn} was given out again; {self.highest_lsn} was reached"
            )
        if last_lsn is None:
            last_lsn = first_lsn + len(timers) - 1
        self.highest_lsn = last_lsn
        self.pending.append(Change(first_lsn, last_lsn, timers))
        _apply(self.timers, timers)

    def acknowledged(self, lsn: int) -> None:
        """Note that all up to that number was promised."""
        self._settle(lsn)

    def recovered(self, last_lsn: int) -> None:
        """Note a restart after which the log ends with that number.

        Raises:
            Violation: promised changes are lost, or half of a group.
        """
        if last_lsn < self.acknowledged_lsn:
            raise Violation(
                f"the log ends with LSN {last_lsn}; {self.acknowledged_lsn} was promised"
            )
        for change in self.pending:
            if change.first_lsn <= last_lsn < change.last_lsn:
                raise Violation(f"half of {change} came back, up to LSN {last_lsn}")
        self._settle(last_lsn)
        self.pending.clear()
        self.timers = {
            timer_id: replace(timer, order=timer_id)
            for timer_id, timer in self.promised.items()
        }
        self.promised = {**self.timers}

    def compare(self, found: Iterable[Expected]) -> None:
        """Check what the engine says it holds.

        Raises:
            Violation: a timer is missing, unknown or different.
        """
        seen: set[int] = set()
        for timer in found:
            wanted = self.timers.get(timer.timer_id)
            if wanted is None:
                raise Violation(f"{timer} is there and should not be")
            if replace(timer, order=wanted.order) != wanted:
                raise Violation(f"{timer} should be {wanted}")
            seen.add(timer.timer_id)
        missing = self.timers.keys() - seen
        if missing:
            raise Violation(f"timers {sorted(missing)} are lost")

    def _settle(self, lsn: int) -> None:
        while self.pending and self.pending[0].last_lsn <= lsn:
            change = self.pending.pop(0)
            self.acknowledged_lsn = change.last_lsn
            _apply(self.promised, change.timers)


def _apply(state: dict[int, Expected], timers: dict[int, Expected | None]) -> None:
    for timer_id, timer in timers.items():
        if timer is None:
            state.pop(timer_id, None)
        else:
            state[timer_id] = timer
