"""Group commit: one sync for all who wait, and nobody waits for a thread to wake first.

A caller who needs its record durable and finds nobody writing becomes the *leader*: it
writes and syncs what is pending, itself, at once. Who comes meanwhile is a *follower*; the
leader's next round, or the next leader's, takes all of them together. There is no linger:
a lone caller pays one write and one sync, and load makes the groups larger by itself.

Leadership is handed on in `finally`, so a leader that Ctrl-C or an error takes away
strands nobody. A failed write or sync is final: everybody who waits, and everybody who
comes later, is told (Rebello et al., ATC 2020: after a failed fsync the kernel may call
the lost pages clean, so a second fsync proves nothing).

Source: leader and followers as in LevelDB's and RocksDB's write groups.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from wal.errors import CommitUnknownError
from wal.frame import Lsn


class _Waiter:
    """A caller parked until its LSN is durable or it is asked to lead."""

    __slots__ = ("called_to_lead", "lock", "lsn")

    def __init__(self, lsn: int) -> None:
        self.lsn = lsn
        self.lock = threading.Lock()
        self.lock.acquire()
        self.called_to_lead = False


class GroupCommit:
    """Who waits for which LSN, and who writes.

    Invariants: at most one leader; `durable_lsn` only grows; after a failure nobody
    leads and nobody waits.

    Args:
        path: of the store, for messages.
        mutex: the log's lock.
        flush: writes and syncs the oldest pending records and returns the highest LSN
            that is durable then. Called by one thread at a time, without the mutex;
            called again after an interruption, it completes what that left.
        durable_lsn: what is durable to begin with.
    """

    def __init__(
        self,
        path: str,
        *,
        mutex: threading.Lock,
        flush: Callable[[], Lsn],
        durable_lsn: Lsn,
    ) -> None:
        self.durable_lsn = durable_lsn
        self.failure: OSError | None = None
        self.listeners: list[Callable[[], None]] = []
        """Called after each commit and after a failure, by the leader; must be quick
        and must not raise."""
        self._path = path
        self._mutex = mutex
        self._flush = flush
        self._leading = False
        self._waiters: deque[_Waiter] = deque()

    def wait(self, lsn: int) -> None:
        """Return when every record up to `lsn` is durable.

        There is no time-out: the record is in the log, and an interrupted wait leaves
        it there.

        Raises:
            CommitUnknownError: the disk failed first.
        """
        if self.durable_lsn >= lsn:
            return
        leading = False
        waiter = None
        try:
            with self._mutex:
                if self.durable_lsn >= lsn:
                    return
                if self.failure is not None:
                    raise CommitUnknownError(self._path, lsn, self.failure)
                if self._leading:
                    waiter = _Waiter(lsn)
                    self._waiters.append(waiter)
                else:
                    leading = True
                    self._leading = True
            if waiter is not None:
                waiter.lock.acquire()
                leading = waiter.called_to_lead
            if leading:
                self._lead(lsn)
        finally:
            if waiter is not None:
                leading = self._withdraw(waiter) or leading
            if leading:
                self._hand_on()
        if self.durable_lsn < lsn:
            assert self.failure is not None
            raise CommitUnknownError(self._path, lsn, self.failure)

    def check(self) -> None:
        """Assert the invariants. For tests."""
        with self._mutex:
            if self.failure is not None:
                assert not self._waiters
            assert self._leading or not self._waiters

    def _lead(self, lsn: int) -> None:
        while self.durable_lsn < lsn and self.failure is None:
            try:
                durable = self._flush()
            except OSError as error:
                with self._mutex:
                    self.failure = error
            else:
                with self._mutex:
                    self.durable_lsn = durable
                    self._release_covered()
            for listener in self.listeners:
                listener()

    def _release_covered(self) -> None:
        """Wake those whose record is durable. Waiters stand in no order of LSN."""
        durable = self.durable_lsn
        waiting = self._waiters
        for _ in range(len(waiting)):
            waiter = waiting.popleft()
            if waiter.lsn <= durable:
                waiter.lock.release()
            else:
                waiting.append(waiter)

    def _withdraw(self, waiter: _Waiter) -> bool:
        """Take a waiter that leaves out of the queue; True if it was called to lead."""
        with self._mutex:
            if waiter in self._waiters:
                self._waiters.remove(waiter)
            return waiter.called_to_lead

    def _hand_on(self) -> None:
        """Give leadership to the next waiter, or to nobody."""
        with self._mutex:
            if self.failure is not None:
                for waiter in self._waiters:
                    waiter.lock.release()
                self._waiters.clear()
            self._release_covered()
            if self._waiters:
                heir = self._waiters.popleft()
                heir.called_to_lead = True
                heir.lock.release()
            else:
                self._leading = False
