"""The log of an engine without one: `TimerEngine(":memory:", ...)`.

It hands out LSNs and calls everything durable at once, so the rest of the engine has one
shape. Nothing survives the process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from wal.errors import LogClosedError
from wal.frame import Group, Lsn
from wal.recovery import Report
from wal.snapshot import SnapshotInfo
from wal.store import StoreIdentity

MEMORY = ":memory:"


class VolatileLog:
    """What `wal.Log` is to the engine core, without a disk."""

    path = MEMORY
    durability = "durable"
    failure: BaseException | None = None
    congested = False
    bytes_written = 0
    snapshot: SnapshotInfo | None = None
    identity = StoreIdentity(uuid=bytes(16), created_ns=0)

    def __init__(self) -> None:
        self.next_lsn = Lsn(1)
        self._closed = False
        self._listeners: list[Callable[[], None]] = []

    @property
    def appended_lsn(self) -> Lsn:
        """The LSN of the last record."""
        return Lsn(self.next_lsn - 1)

    @property
    def durable_lsn(self) -> Lsn:
        """The LSN of the last record: there is no later it could be lost at."""
        return self.appended_lsn

    def snapshot_blocks(self) -> Iterator[bytes]:
        """Yield nothing."""
        return iter(())

    def groups(self, *, joined_bytes: int = 0) -> Iterator[Group]:  # noqa: ARG002
        """Yield nothing."""
        return iter(())

    def start(self) -> Report:
        """Return the report of a new log."""
        return Report(
            clean=True,
            last_lsn=Lsn(0),
            last_wall_ns=0,
            snapshot=None,
            damaged_snapshots=(),
        )

    def append_group(
        self,
        body: bytes,  # noqa: ARG002 - nobody reads it back
        record_count: int,
        *,
        urgent: bool = False,  # noqa: ARG002 - no disk is ever full
    ) -> Lsn:
        """Number a group of records and return the first number."""
        if self._closed:
            raise LogClosedError("the log is closed")
        first = self.next_lsn
        self.next_lsn = Lsn(first + record_count)
        return first

    def admit(self) -> None:
        """Return: nothing is ever un-synced."""

    def make_room(self, *, urgent: bool = False) -> None:
        """Return: there is always room."""

    def commit(self, lsn: int | None = None) -> None:  # noqa: ARG002 - all is durable
        """Tell the listeners, and return."""
        for listener in self._listeners:
            listener()

    def commit_soon(self, lsn: int) -> None:
        """Do as `commit`."""
        self.commit(lsn)

    def add_listener(self, listener: Callable[[], None]) -> None:
        """Have `listener` called after each commit."""
        self._listeners.append(listener)

    def close(self) -> None:
        """Take no more records."""
        self._closed = True
