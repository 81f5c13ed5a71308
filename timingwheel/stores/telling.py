"""Passes on what has become durable: entries to the history, ends of runs to listeners."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence

from timingwheel.engine.core import EngineCore
from timingwheel.jobs.model import Run
from timingwheel.stores.history_writer import HistoryWriter


class Telling:
    """Tells of what is durable, after each commit. Thread-safe.

    Invariant: once a commit has returned, all that it covers has been told.

    Attributes:
        listeners: called with runs that have ended, again if one of them found no
            memory; quick, and not back into the store.

    Args:
        core: whose commits.
        writer: of the history.
        ended: runs in a final state, with the LSN of their ends, in order.
    """

    def __init__(
        self, core: EngineCore, writer: HistoryWriter, ended: deque[tuple[int, Run]]
    ) -> None:
        self.listeners: list[Callable[[Sequence[Run]], None]] = []
        self._core = core
        self._writer = writer
        self._ended = ended
        self._told_lsn = 0
        self._lock = threading.Lock()
        core.log.add_listener(self._on_commit)

    def catch_up(self, lsn: int) -> None:
        """Tell of what is durable up to an LSN, if nobody has."""
        # A commit led by another may have been there between our append and our apply:
        # then nobody has told of ours, and our own commit had nothing left to do.
        if self._told_lsn < min(lsn, self._durable_lsn):
            self._on_commit()

    @property
    def _durable_lsn(self) -> int:
        """The last LSN that is durable and applied: all that it means is known."""
        return min(self._core.log.durable_lsn, self._core.applied_lsn)

    def _on_commit(self) -> None:
        """Pass on what is durable now. Called by whichever thread led the commit."""
        if self._core.log.failure is not None:
            return
        durable_lsn, ended = self._durable_lsn, self._ended
        self._writer.durable(durable_lsn)
        with self._lock:
            over: list[Run] = []
            while len(over) < len(ended) and ended[len(over)][0] <= durable_lsn:
                over.append(ended[len(over)][1])
            if over:
                for listener in self.listeners:
                    listener(over)
            # Last: where one found no memory, all are told again at the next commit.
            for _ in over:
                ended.popleft()
            self._told_lsn = max(self._told_lsn, durable_lsn)
