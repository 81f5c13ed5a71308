"""The audit: who did what, over the API and on the page, and what was refused.

Kept beside the store, newest KEPT_MAX entries: in a file of the directory (audit_file.py),
or in the database that servers share (audit_database.py). It must never hold up or fail
the request that it records: `note` puts the entry in a queue, and a thread writes what has
come together, one sync for all. So a kill can take the entries of the last moment, though
never the change that they tell of, and an orderly shutdown takes none.

When the disk is full or fails, requests go on: up to WAITING_MAX entries wait in memory
and are tried again each second, more are dropped. What was dropped is told by an entry of
its own (`audit_gap`, with how many) as soon as there is room.

What a request to the audit itself shows is all that was noted before it, unless the disk
fails.
"""

from __future__ import annotations

import logging
import re
import threading
from abc import abstractmethod
from collections import deque
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from timingwheel.clock import Clock
from timingwheel.errors import ArgumentError, TimingWheelError
from timingwheel.scheduler.handles import Page
from timingwheel.scheduler.moments import bound_ns
from timingwheel.scheduler.questions import PAGE_LIMIT_MAX
from timingwheel.wire.audit import AuditEntry, AuditQuery

KEPT_MAX: Final = 100_000
"""Entries that are kept; the oldest go first."""
WAITING_MAX: Final = 10_000
"""Entries that wait for the disk; more are dropped and counted."""
ARGUMENTS_CHARS_MAX: Final = 2_000
"""Of an entry's arguments as JSON; longer ones are cut."""
_BATCH_MAX: Final = 500
_RETRY_NS: Final = 1_000_000_000
_PAYLOADS: Final = frozenset({"args", "payload", "value", "result", "error", "log"})
"""Fields of bodies that hold, or may hold, what handlers are given and return."""
_CURSOR: Final = re.compile(r"[0-9]{1,18}")
_LEFT_OUT: Final = "..."
_logger = logging.getLogger("timingwheel.server")


class AuditError(TimingWheelError):
    """Where the audit is kept cannot be used, or not now.

    Attributes:
        path: of the file, or the table.
        found: what is wrong with it, as a phrase for the message.
        fix: what to do, as a phrase for the message.
    """

    def __init__(self, path: str, found: str, fix: str) -> None:
        super().__init__(path, found, fix)
        self.path = path
        self.found = found
        self.fix = fix

    def __str__(self) -> str:
        return f"audit {self.path} {self.found}: {self.fix}"


class AuditFilter(NamedTuple):
    """Which entries are asked for; None: whatever stands there.

    Attributes:
        actor: who did it.
        operation: what.
        target: to what.
        outcome: how it ended.
        since_ns: not before, on the wall clock.
        until_ns: before.
        before: those with a smaller id alone.
    """

    actor: str | None
    operation: str | None
    target: str | None
    outcome: str | None
    since_ns: int | None
    until_ns: int | None
    before: int | None


class AuditShelf(Protocol):
    """Where entries are kept. Each call raises a TimingWheelError if that fails."""

    @abstractmethod
    def open(self) -> None:
        """Make ready to write and to read."""

    @abstractmethod
    def close(self) -> None:
        """Let go of everything. Idempotent."""

    @abstractmethod
    def write(self, entries: Sequence[AuditEntry], *, kept_max: int) -> None:
        """Write entries durably, and forget the oldest beyond about `kept_max`."""

    @abstractmethod
    def read(self, wanted: AuditFilter, count: int) -> list[AuditEntry]:
        """Return entries, newest first, at most `count`."""


class AuditBook:
    """The entries that one server notes. Thread-safe.

    Invariants: entries are written in the order in which they were noted; at most
    `kept_max` are kept and `waiting_max` wait.

    Args:
        shelf: where they are kept.
        clock: where time comes from.
        kept_max: entries that are kept.
        waiting_max: entries that wait for the disk.
    """

    def __init__(
        self,
        shelf: AuditShelf,
        clock: Clock,
        *,
        kept_max: int = KEPT_MAX,
        waiting_max: int = WAITING_MAX,
    ) -> None:
        self._shelf = shelf
        self._clock = clock
        self._kept_max = kept_max
        self._waiting_max = waiting_max
        self._changed = threading.Condition()
        self._waiting: deque[AuditEntry] = deque()
        self._dropped = 0
        self._retry_at_ns: int | None = None
        """Until when nothing is written, since the disk failed."""
        self._stopping = False
        self._thread: threading.Thread | None = None

    # -- life -------------------------------------------------------------------------------

    def open(self) -> None:
        """Open the shelf and begin to write. Idempotent.

        Raises:
            AuditError: its file is damaged, another program's, or cannot be made.
            OSError: its directory cannot be made.
            DatabaseAwayError: its database does not answer.
        """
        if self._thread is not None:
            return
        self._shelf.open()
        self._stopping = False
        self._thread = threading.Thread(
            target=self._run, name="timingwheel-audit", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Write what waits, if the shelf takes it, and close it. Idempotent."""
        thread = self._thread
        if thread is None:
            return
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        thread.join()
        self._thread = None
        self._shelf.close()

    # -- what is done -------------------------------------------------------------------------

    def note(self, entry: AuditEntry) -> None:
        """Record an entry. Waits for nothing and never raises."""
        with self._changed:
            if len(self._waiting) >= self._waiting_max:
                self._dropped += 1
                return
            self._waiting.append(entry)
            self._changed.notify_all()

    def entries(self, query: AuditQuery) -> Page[AuditEntry]:
        """Return entries, newest first.

        Raises:
            ArgumentError: the cursor or the limit is invalid.
            AuditError, DatabaseAwayError: they cannot be read.

        Cost: a query without filters reads a page; with them up to all that is kept.
        """
        if not 1 <= query.limit <= PAGE_LIMIT_MAX:
            raise ArgumentError(
                "limit", query.limit, f"pass rows at most, 1 to {PAGE_LIMIT_MAX:,}"
            )
        if query.cursor is not None and not _CURSOR.fullmatch(query.cursor):
            raise ArgumentError(
                "cursor", query.cursor, "pass the one of the page before"
            )
        self._flush()
        read = self._shelf.read(_filter(query), query.limit + 1)
        found = read[: query.limit]
        more = len(read) > query.limit
        return Page(found, str(found[-1].id) if more else None)

    # -- the writer ---------------------------------------------------------------------------

    def _flush(self) -> None:
        """Return when all that was noted is written, or the disk has failed."""
        with self._changed:
            while self._waiting and self._retry_at_ns is None and not self._stopping:
                self._changed.wait()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._is_due() and not self._stopping:
                    self._clock.wait(self._changed, self._retry_at_ns)
                is_last = self._stopping
                batch = [self._waiting[at] for at in range(self._batch_size())]
                dropped = self._dropped
            if batch:
                self._step(batch, dropped)
            with self._changed:
                failed = self._retry_at_ns is not None
                if is_last and (failed or not self._waiting):
                    if self._waiting:
                        count = len(self._waiting) + self._dropped
                        _logger.error("%d entries of the audit are lost", count)
                    return

    def _is_due(self) -> bool:
        if not self._waiting:
            return False
        return (
            self._retry_at_ns is None or self._clock.monotonic_ns() >= self._retry_at_ns
        )

    def _batch_size(self) -> int:
        return min(len(self._waiting), _BATCH_MAX)

    def _step(self, batch: list[AuditEntry], dropped: int) -> None:
        written = [*batch, self._gap(dropped)] if dropped else batch
        try:
            self._shelf.write(written, kept_max=self._kept_max)
        except TimingWheelError as error:
            with self._changed:
                if self._retry_at_ns is None:
                    _logger.warning("the audit is behind, requests go on: %s", error)
                self._retry_at_ns = self._clock.monotonic_ns() + _RETRY_NS
                self._changed.notify_all()
            return
        with self._changed:
            for _ in batch:
                self._waiting.popleft()
            self._dropped -= dropped
            self._retry_at_ns = None
            self._changed.notify_all()

    def _gap(self, dropped: int) -> AuditEntry:
        return AuditEntry(
            time_ns=self._clock.wall_ns(),
            actor=None,
            role="admin",
            via="api",
            operation="audit_gap",
            target="",
            arguments={"lost": dropped},
            outcome="failed",
            status=507,
        )


def shown_arguments(body: msgspec.Struct | None) -> dict[str, Any]:
    """Return what was asked for, without what it hands to handlers.

    Args:
        body: of the request.

    Returns:
        Fields that were given. Of arguments the names are left, of payloads nothing.
    """
    if body is None:
        return {}
    fields = msgspec.to_builtins(body)
    return cut({name: _shown(name, value) for name, value in fields.items()})


def cut(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return arguments as an entry keeps them: cut if they are too long."""
    text = msgspec.json.encode(arguments).decode()
    if len(text) <= ARGUMENTS_CHARS_MAX:
        return arguments
    return {"cut": text[:ARGUMENTS_CHARS_MAX]}


def _shown(name: str, value: Any) -> Any:
    if name not in _PAYLOADS:
        return value
    return dict.fromkeys(value, _LEFT_OUT) if isinstance(value, dict) else _LEFT_OUT


def _filter(query: AuditQuery) -> AuditFilter:
    since, until = query.since, query.until
    return AuditFilter(
        actor=query.actor,
        operation=query.operation,
        target=query.target,
        outcome=query.outcome,
        since_ns=None if since is None else bound_ns(since, "since"),
        until_ns=None if until is None else bound_ns(until, "until"),
        before=None if query.cursor is None else int(query.cursor),
    )
