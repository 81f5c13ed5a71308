"""When a process hints, and what it does when others do: see hints.py."""

from __future__ import annotations

import logging
import threading
import uuid
from typing import Any, Final

from timingwheel.clock import Clock
from timingwheel.engine.records import Base
from timingwheel.engine.timeline import Now
from timingwheel.errors import TimingWheelError
from timingwheel.jobs.model import RunState
from timingwheel.stores.postgres.changes import RowChanges
from timingwheel.stores.postgres.expecting import Expecting
from timingwheel.stores.postgres.hints import Heard, Hints
from timingwheel.stores.postgres.membership import Membership
from timingwheel.stores.postgres.owner import PostgresOwner
from timingwheel.stores.postgres.rows import JOB_COLUMNS, RUN_COLUMNS

SOON_NS: Final = 3_000_000_000
"""What is due later others find by themselves in time."""
POLL_NS: Final = 500_000_000
"""How long a node rests at most before it looks for what others have put."""
CALM_NS: Final = 2_500_000_000
"""The same while hints arrive, and nothing waits: not longer than a look sees ahead."""
_READY: Final = RunState.READY.value
_STATE: Final = RUN_COLUMNS.index("state")
_logger = logging.getLogger("timingwheel")


class Hinting:
    """Between what this process does and the hints. Thread-safe.

    Attributes:
        hints: to and from others.

    Args:
        owner: this process's part of the store; from now on it tells what it does.
        members: which shards it fires, and who works here.
        expecting: runs that somebody here waits for.
        clock: tells how long hints are wanted.
        at: the uuid of the store, and what a listener connects to; None: there are no
            hints.
    """

    def __init__(
        self,
        owner: PostgresOwner,
        members: Membership,
        expecting: Expecting,
        clock: Clock,
        *,
        at: tuple[uuid.UUID, str | None],
    ) -> None:
        self.hints: Final = Hints(owner.connections, *at, clock, self.hear)
        owner.written, owner.put = self.wrote, self.put_plain
        self._owner = owner
        self._members = members
        self._expecting = expecting
        self._lock = threading.Lock()
        self._left = 0

    # -- what has been done here --------------------------------------------------------

    def put_plain(self, shard: int, in_ns: int) -> None:
        """One plain job was put, due in so many ns; what is due later is found in time."""
        if in_ns <= SOON_NS:
            self._owner.wake()
            self._soon({shard})

    def wrote(self, changes: RowChanges, now: Now) -> None:
        """A step was written."""
        runs = [*changes.new_runs, *changes.runs]
        shards = {
            row[0] for row in runs if _is_soon(row, now, _RUN_WAKE, _RUN_BASE)
        } | {
            row[0]
            for row in [*changes.new_jobs, *changes.jobs]
            if _is_soon(row, now, _JOB_WAKE, _JOB_BASE)
        }
        self._soon(shards)
        ready = sum(row[_STATE] == _READY for row in runs)
        if ready:
            self.made_ready(ready)
            if not self._members.incs():
                self.resting()  # nobody here will take it
        if changes.ended:
            self.hints.ended()
        if changes.asks:
            self.hints.tell("asked")

    def _soon(self, shards: set[int]) -> None:
        others = shards - self._members.leases.keys()
        if others:
            self.hints.soon(others)

    def made_ready(self, count: int) -> None:
        """So many runs may start."""
        with self._lock:
            self._left += count

    def took(self, count: int, wanted: int) -> None:
        """A worker of this process has taken runs: so many, and would take more."""
        with self._lock:
            self._left = max(self._left - count, int(count >= wanted > 0))

    def resting(self) -> None:
        """Nobody here takes more for now; what is left others may take."""
        with self._lock:
            left, self._left = self._left, 0
        if left and not self._members.is_alone:
            self.hints.tell("ready")

    def foreign(self) -> None:
        """A caller's transaction has put a job: it is looked for, here and elsewhere."""
        self.hints.foreign()
        self._owner.wake()

    def expect(self) -> None:
        """Somebody here waits for ends of runs."""
        self.hints.listen()
        self.hints.tell("want")

    # -- what others have done ----------------------------------------------------------

    def hear(self, heard: Heard) -> None:
        """Do what a hint of others is for."""
        words = heard.words
        is_ours = not heard.shards.isdisjoint(self._members.leases)
        if (
            is_ours
            or words & {"ready", "foreign", "lost"}
            or ("asked" in words and self._owner.claimed)
        ):
            self._owner.wake()
        if words & {"ended", "lost"}:
            try:
                self._owner.tell(self._expecting.ended())
            except TimingWheelError as error:
                _logger.info("a hint could not be followed: %s", error)

    def rest_ns(self) -> int:
        """Return how long a node may rest before it looks by itself."""
        if not self.hints.is_live:
            return POLL_NS
        # What a dead node had is found by a look, and should be soon after its lease.
        return max(POLL_NS, min(CALM_NS, self._members.ttl_ns * 5 // 12))


_RUN_WAKE: Final = RUN_COLUMNS.index("wake_ns")
_RUN_BASE: Final = RUN_COLUMNS.index("wake_base")
_JOB_WAKE: Final = JOB_COLUMNS.index("wake_ns")
_JOB_BASE: Final = JOB_COLUMNS.index("wake_base")


def _is_soon(row: tuple[Any, ...], now: Now, wake: int, base: int) -> bool:
    wake_ns = row[wake]
    if wake_ns is None:
        return False
    now_ns = now.elapsed_ns if row[base] == int(Base.ELAPSED) else now.wall_ns
    return bool(wake_ns <= now_ns + SOON_NS)
