"""Group commit: one sync for all who wait, and nobody waits for a thread to wake first.

A caller who needs its record durable and finds nobody writing becomes the *leader*: it
writes and syncs what is pending, itself, at once. Whoever arrives meanwhile is a *follower*; the
leader's next round, or the next leader's, takes all of them together. There is no linger:
a lone caller pays one write and one sync, and load makes the groups larger by itself.

Leadership is handed on in `finally`, so a leader that Ctrl-C or an error takes away
strands nobody. Ctrl-C comes at calls and at the ends of loops, nowhere else (CPython), so
lines that belong together stand here without a call between them.

A failed write or sync is final: everybody who waits, and everybody who comes later, is
told (Rebello et al., ATC 2020: after a failed fsync the kernel may call the lost pages
clean, so a second fsync proves nothing).

Source: leader and followers as in LevelDB's and RocksDB's write groups.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from wal.errors import CommitUnknownError
from wal.frame import Lsn


class _Caller:
    """Somebody in `wait`: the leader, or parked until it is released.

    `lock` is taken, and freed to release; who leads from the start needs none.
    """

    __slots__ = ("lock", "lsn")

    lock: threading.Lock

    def __init__(self, lsn: int) -> None:
        self.lsn = lsn

    def prepare_to_park(self) -> None:
        """Make the lock, before anybody could free it."""
        self.lock = threading.Lock()
        self.lock.acquire()


class GroupCommit:
    """Who waits for which LSN, and who writes.

    Invariants: at most one leader; nobody waits without one; `durable_lsn` only grows.

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
        self._leader: _Caller | None = None
        self._waiters: dict[_Caller, None] = {}  # the oldest first

    def wait(self, lsn: int) -> None:
        """Return when every record up to `lsn` is durable.

        There is no time-out: the record is in the log, and an interrupted wait leaves
        it there.

        Raises:
            CommitUnknownError: the disk failed first.
        """
        if self.durable_lsn >= lsn:
            return
        me = _Caller(lsn)
        try:
            with self._mutex:
                if self.durable_lsn >= lsn:
                    return
                if self.failure is not None:
                    raise CommitUnknownError(self._path, lsn, self.failure)
                if self._leader is None:
                    self._leader = me
                else:
                    me.prepare_to_park()
                    self._waiters[me] = None
            if self._leader is not me:
                me.lock.acquire()
            if self._leader is me:
                self._lead(lsn)
        finally:
            # A caller that was released is in neither place, and needs no turn at the
            # mutex. In this order: an heir becomes the leader before it leaves the queue.
            if me in self._waiters or self._leader is me:
                try:
                    self._leave(me)
                except BaseException:
                    self._leave(me)  # Ctrl-C came only now: finish what it cut off
                    raise
        if self.durable_lsn < lsn:
            assert self.failure is not None
            raise CommitUnknownError(self._path, lsn, self.failure)

    def check(self) -> None:
        """Assert the invariants. For tests."""
        with self._mutex:
            assert self._leader is not None or not self._waiters

    def _lead(self, lsn: int) -> None:
        while self.durable_lsn < lsn and self.failure is None:
            try:
                durable = self._flush()
            except OSError as error:
                self.failure = error  # at once: Ctrl-C must not make us forget it
            else:
                with self._mutex:
                    self.durable_lsn = durable
                    if self._waiters:
                        self._release()
            for listener in self.listeners:
                listener()

    def _leave(self, me: _Caller) -> None:
        """Wait no longer, and hand leadership on if it is mine. Twice is once."""
        with self._mutex:
            if not self._waiters and self._leader is me:
                self._leader = None
                return
            self._waiters.pop(me, None)
            if self._leader is not me:
                return
            self._release()
            heir = next(iter(self._waiters), None)
            if heir is None:
                self._leader = None
            else:
                self._leader = heir
                del self._waiters[heir]
                heir.lock.release()

    def _release(self) -> None:
        """Wake those whose record is durable; after a failure everybody."""
        if not self._waiters:
            return
        durable, failed = self.durable_lsn, self.failure is not None
        for waiter in [w for w in self._waiters if failed or w.lsn <= durable]:
            del self._waiters[waiter]
            waiter.lock.release()
