"""The snapshot thread: writes one when the log has grown enough since the last.

A snapshot costs as much as the live state, the log grows with the traffic; so a new one
is due when the log since the last is larger than `every_bytes` and twice the last
snapshot. It is throttled, since it shares the disk with commits that somebody waits for.
One that a caller waits for gives way only to commits that really come.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final

from timingwheel.engine.core import EngineCore
from timingwheel.errors import TimingWheelError
from wal.errors import WalError
from wal.log import Log
from wal.snapshot import SnapshotDamagedError, SnapshotInfo

SNAPSHOT_EVERY_BYTES: Final = 64 << 20
PAUSE_SECONDS: Final = 0.008
"""After each block of 256 KiB: 32 MiB a second at most."""
GIVE_WAY_SECONDS: Final = 0.002
"""After a block in whose time somebody committed. So a snapshot of n blocks that a caller
waits for ends at most n times this later than alone: 8 s for a gibibyte."""
_logger = logging.getLogger("timingwheel")


class _StoppedError(Exception):
    """The snapshot is abandoned because the engine closes."""


class Snapshotter:
    """One thread that keeps the log short.

    Args:
        core: whose state.
        log: its log.
        every_bytes: least growth of the log between two snapshots.
    """

    def __init__(self, core: EngineCore, log: Log, *, every_bytes: int) -> None:
        self._core = core
        self._log = log
        self._every_bytes = every_bytes
        self._writing = threading.Lock()
        self._changed = threading.Condition()
        self._stopped = threading.Event()
        self.last: SnapshotInfo | None = log.snapshot
        """The newest snapshot that is known to be good."""
        self._begun_at = -core.replayed_bytes
        self._thread = threading.Thread(
            target=self._run, name="timingwheel-snapshot", daemon=True
        )
        log.add_listener(self._note_commit)

    def start(self) -> None:
        """Begin to watch the log."""
        self._thread.start()
        self._note_commit()

    def stop(self) -> None:
        """Abandon what is being written and end the thread."""
        self._stopped.set()
        with self._changed:
            self._changed.notify_all()
        if self._thread.ident is not None:
            self._thread.join()

    def write(self) -> SnapshotInfo:
        """Write a snapshot now, in the caller's thread; it gives way to commits alone.

        Raises:
            EngineClosedError: the engine is closed, or this is a forked child.
            OSError: the disk is full or failed; the engine goes on without it.
        """
        self._core.require_alive()
        with self._writing:
            return self._write(pause=GiveWay(self._log, self._stopped.wait))

    def write_throttled(self) -> SnapshotInfo:
        """Do as `write`, as slowly as the engine's own thread.

        Raises:
            OSError: as `write`.
        """
        with self._writing:
            return self._write(pause=self._pause)

    def _write(self, *, pause: Callable[[], None]) -> SnapshotInfo:
        begun_at = self._log.bytes_written
        info = self._core.snapshot(pause=pause)
        self._begun_at = begun_at
        self.last = info
        return info

    def _is_due(self) -> bool:
        grown = self._log.bytes_written - self._begun_at
        last_size = self.last.size_bytes if self.last is not None else 0
        return grown > self._every_bytes and grown > 2 * last_size

    def _note_commit(self) -> None:
        if self._is_due():
            with self._changed:
                self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._is_due() and not self._stopped.is_set():
                    self._changed.wait()
            if self._stopped.is_set():
                return
            try:
                self.write_throttled()
            except _StoppedError:
                return
            except (OSError, SnapshotDamagedError, MemoryError) as error:
                # Not fatal: the log has everything. Try again after as much growth.
                self._begun_at = self._log.bytes_written
                _logger.warning(
                    "a snapshot failed and will be tried again: %s",
                    str(error) or "no memory",
                )
            except (WalError, TimingWheelError):
                return  # the log failed or the engine closed: others say so

    def _pause(self) -> None:
        if self._stopped.wait(PAUSE_SECONDS):
            raise _StoppedError


class GiveWay:
    """Pauses GIVE_WAY_SECONDS if anything was committed since the last call.

    Who commits all the time and waits for each would get less than half of what the disk
    gives alone: a block's sync is long beside that of one record, and they take turns.

    Args:
        log: whose commits.
        wait: returns after so many seconds, or earlier.
    """

    def __init__(self, log: Log, wait: Callable[[float], object]) -> None:
        self._log = log
        self._wait = wait
        self._seen_lsn = log.durable_lsn

    def __call__(self) -> None:
        """Return at once, or after the pause."""
        durable_lsn = self._log.durable_lsn
        if durable_lsn > self._seen_lsn:
            self._seen_lsn = durable_lsn
            self._wait(GIVE_WAY_SECONDS)
