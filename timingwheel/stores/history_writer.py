"""The thread that brings what is durable into the history, behind the log.

Entries are offered as they are applied and written when the log says that they are
durable. The writer lingers a little for company: each of its commits costs a sync on the
disk that the log's commits wait for too. A sync later is no harm, as the log keeps every
segment that the history has not covered.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable
from itertools import takewhile
from typing import Final

from timingwheel.clock import Clock
from timingwheel.errors import TimingWheelError
from timingwheel.stores.history import Entry, History
from timingwheel.stores.history_retention import Purge, Retention

BATCH_ENTRIES: Final = 1_000
BATCH_BYTES: Final = 8 << 20
"""A batch ends when it reaches either; only entries of one LSN are never parted."""
PENDING_BYTES_MAX: Final = 64 << 20
"""Above it the writer is congested."""
LINGER_NS: Final = 100_000_000
RETRY_NS: Final = 1_000_000_000
PURGE_NS: Final = 600_000_000_000

_ENTRY_BYTES: Final = 200  # what an entry costs in memory beside its body
_logger = logging.getLogger("timingwheel")


class HistoryWriter:
    """Writes batches of what is durable; after a failure it tries again, each second.

    Invariants: what waits is in LSN order; nothing is written that is not durable;
    nothing leaves memory before it is written.

    Args:
        history: open; the writer does not close it.
        clock: for the linger, the retries and the purge.
        retention: what the purge leaves.
        on_written: called after each commit, on the thread of the writer or of who
            calls step(), with the LSN that the history has reached. It holds no lock.
        pending_bytes_max: of what waits, before the writer is congested.
        background: False: there is no thread, and who flushes writes what is due; for
            simulations.
    """

    def __init__(
        self,
        history: History,
        clock: Clock,
        *,
        retention: Retention | None = None,
        on_written: Callable[[int], None] | None = None,
        pending_bytes_max: int = PENDING_BYTES_MAX,
        background: bool = True,
    ) -> None:
        self._history = history
        self._clock = clock
        self._retention = Retention() if retention is None else retention
        self._on_written = on_written
        self._background = background
        self._pending_bytes_max = pending_bytes_max
        self._changed = threading.Condition()
        self._pending: deque[Entry] = deque()
        self._pending_bytes = 0
        self._durable_lsn = history.reached_lsn
        self._linger_until_ns: int | None = None
        self._hurry_lsn = 0  # somebody waits for this one in flush()
        self._shown_lsn = 0  # up to here readers see what could not be written
        self._failure: TimingWheelError | None = None
        self._retry_at_ns = 0
        self._purge: Purge | None = None
        self._purge_at_ns = 0
        self._stopping = False
        self._ended = False
        self._thread = threading.Thread(
            target=self._run, name="timingwheel-history", daemon=True
        )
        history.unwritten = self._unwritten

    @property
    def congested(self) -> bool:
        """Whether more waits than should: a put had better wait until it is not."""
        return self._pending_bytes > self._pending_bytes_max

    @property
    def offered_lsn(self) -> int:
        """The LSN of the last entry that is in the history or waits for it."""
        with self._changed:
            if self._pending:
                return self._pending[-1].lsn
            return self._history.reached_lsn

    @property
    def covered_lsn(self) -> int:
        """Everything up to this LSN is in the history, or was nothing for it."""
        with self._changed:
            return self._covered_lsn()

    # -- from the store -----------------------------------------------------------------

    def start(self) -> None:
        """Begin to write."""
        if self._background:
            self._thread.start()

    def offer(self, entries: Iterable[Entry]) -> None:
        """Take entries to be written once they are durable. Waits for nothing.

        Call it in LSN order, with all entries of an LSN together, and before durable()
        reaches them. What the history has already is passed over.
        """
        with self._changed:
            for entry in entries:
                assert not self._pending or self._pending[-1].lsn <= entry.lsn, entry
                if entry.lsn > self._history.reached_lsn:
                    self._pending.append(entry)
                    self._pending_bytes += _cost(entry)

    def durable(self, lsn: int) -> None:
        """Take note that the log is durable up to `lsn`, so it may be written."""
        with self._changed:
            if lsn <= self._durable_lsn:
                return
            self._durable_lsn = lsn
            if not self._may_write():
                return
            is_ours = not self._background and self._is_full()
            # The thread is woken to begin its linger and to end it early, not for
            # each of a thousand commits in between.
            if self._linger_until_ns is None:
                self._linger_until_ns = self._clock.monotonic_ns() + LINGER_NS
                self._changed.notify_all()
            elif self._is_full():
                self._changed.notify_all()
        if is_ours:
            self._write_all()

    def flush(self, lsn: int, *, may_fail: bool = False) -> bool:
        """Wait until the history covers `lsn`; durable() must reach it.

        Args:
            lsn: what has to be in the history.
            may_fail: do not wait for a disk to mend.

        Returns:
            False if the writer has stopped before.

        Raises:
            TimingWheelError: with may_fail, what the last attempt to write has met.
        """
        if not self._background:
            self._write_all()
        with self._changed:
            self._hurry_lsn = max(self._hurry_lsn, lsn)
            self._changed.notify_all()
            while self._covered_lsn() < lsn:
                if self._ended:
                    return False
                may_fail = may_fail or not self._background  # nobody tries again
                if may_fail and self._failure is not None:
                    # The same one each time: its traceback would grow without bound.
                    raise self._failure.with_traceback(None)
                self._clock.wait(self._changed, None)
            return True

    def settle(self, lsn: int) -> None:
        """Wait until reading the history shows all up to `lsn`; durable() must reach it.

        It is written, or, if the disk refuses that now, shown from memory: a read needs
        no room on the disk.
        """
        try:
            self.flush(lsn, may_fail=True)
        except TimingWheelError:
            with self._changed:
                self._shown_lsn = max(self._shown_lsn, lsn)

    def _unwritten(self) -> list[Entry]:
        with self._changed:
            shown_lsn = min(self._shown_lsn, self._durable_lsn)
            until_shown = takewhile(lambda e: e.lsn <= shown_lsn, self._pending)
            return list(until_shown)

    def stop(self) -> None:
        """Write what is durable, if the disk lets us, and end the thread. Idempotent.

        What could not be written is in the log, and is offered again at the next start.
        """
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        if self._thread.ident is not None:
            self._thread.join()
        else:
            if not self._background:
                self._write_all()
            self._note_end()

    # -- the step and its loop ------------------------------------------------------------

    def step(self) -> bool:
        """Write one batch of what is durable, or else go on with a purge.

        Returns:
            Whether it got on: False if there is nothing to do, or the disk refused.
        """
        with self._changed:
            batch = self._next_batch()
        try:
            if batch:
                self._history.write(batch, now_ns=self._clock.wall_ns())
            elif not self._purge_step():
                return False
        except TimingWheelError as error:
            self._note_failure(error)
            return False
        self._note_success()
        if batch:
            self._note_written(batch)
        return True

    def check(self) -> None:
        """Assert the invariants."""
        with self._changed:
            lsns = [entry.lsn for entry in self._pending]
            assert lsns == sorted(lsns)
            assert self._pending_bytes == sum(map(_cost, self._pending))
            assert self._history.reached_lsn <= self._durable_lsn

    def _write_all(self) -> None:
        while self.step():
            pass

    def _run(self) -> None:
        try:
            while self._wait_for_work():
                self.step()
            while self._may_write() and self.step():
                pass
        finally:
            self._note_end()

    def _note_end(self) -> None:
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def _wait_for_work(self) -> bool:
        """Return True when there is something to do now, and False to end."""
        with self._changed:
            while not self._stopping:
                now_ns = self._clock.monotonic_ns()
                at_ns = self._next_work_ns(now_ns)
                if at_ns <= now_ns:
                    return True
                self._clock.wait(self._changed, at_ns)
            return False

    def _next_work_ns(self, now_ns: int) -> int:
        at_ns = now_ns if self._purge is not None else self._purge_at_ns
        if self._may_write():
            hurried = self._pending[0].lsn <= self._hurry_lsn or self._is_full()
            linger_until_ns = self._linger_until_ns
            if hurried or linger_until_ns is None:
                linger_until_ns = now_ns
            at_ns = min(at_ns, linger_until_ns)
        return max(at_ns, self._retry_at_ns)

    def _may_write(self) -> bool:
        return bool(self._pending) and self._pending[0].lsn <= self._durable_lsn

    def _is_full(self) -> bool:
        """Return whether what may be written fills a batch."""
        if self._pending_bytes >= BATCH_BYTES:
            return True
        return (
            len(self._pending) >= BATCH_ENTRIES
            and self._pending[BATCH_ENTRIES - 1].lsn <= self._durable_lsn
        )

    def _covered_lsn(self) -> int:
        if self._may_write():
            return self._pending[0].lsn - 1
        return self._durable_lsn

    def _next_batch(self) -> list[Entry]:
        batch: list[Entry] = []
        size_bytes = 0
        for entry in self._pending:
            if entry.lsn > self._durable_lsn:
                break
            is_full = len(batch) >= BATCH_ENTRIES or size_bytes >= BATCH_BYTES
            # The history passes over what it has by LSN, so one LSN is never parted.
            if is_full and entry.lsn != batch[-1].lsn:
                break
            batch.append(entry)
            size_bytes += len(entry.body)
        return batch

    def _note_written(self, batch: list[Entry]) -> None:
        with self._changed:
            for entry in batch:
                self._pending.popleft()
                self._pending_bytes -= _cost(entry)
            self._linger_until_ns = None
            if self._may_write():
                self._linger_until_ns = self._clock.monotonic_ns() + LINGER_NS
            self._changed.notify_all()
        if self._on_written is not None:
            self._on_written(self._history.reached_lsn)

    def _purge_step(self) -> bool:
        if self._purge is None:
            now_ns = self._clock.monotonic_ns()
            if now_ns < self._purge_at_ns:
                return False
            self._purge_at_ns = now_ns + PURGE_NS
            self._purge = Purge(self._clock.wall_ns(), self._retention)
        self._history.purge_step(self._purge)
        if self._purge.is_done:
            self._purge = None
        return True

    def _note_success(self) -> None:
        with self._changed:
            failure, self._failure = self._failure, None
        if failure is not None:
            _logger.warning("the history is written again: %s", self._history.path)

    def _note_failure(self, error: TimingWheelError) -> None:
        with self._changed:
            self._retry_at_ns = self._clock.monotonic_ns() + RETRY_NS
            is_first = self._failure is None
            self._failure = error
            self._changed.notify_all()  # for flush(may_fail=True)
        if is_first:
            _logger.error(
                "the history is behind, nothing is lost, tried again each second: %s",
                error,
            )


def _cost(entry: Entry) -> int:
    return len(entry.body) + _ENTRY_BYTES
