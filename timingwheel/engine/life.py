"""Whether an engine may be asked anything, and what ended that: an error, or its close.

An error that comes amid a change is the hard case. A change that was refused in time has
left nothing behind. One that stopped between its record in the log and its effect has:
memory and log may differ from then on, and what followed could contradict the log. So the
engine has failed for good, as after a failed sync; the next open reads the log, which has
all that was acknowledged.
"""

from __future__ import annotations

from typing import Final

from timingwheel.engine.volatile import VolatileLog
from timingwheel.errors import (
    EngineClosedError,
    EngineFailedError,
    TimingWheelError,
)
from wal.errors import LogClosedError, LogFailedError, WalError
from wal.log import Log

CLOSED: Final = "the engine is closed: open a new one"


class Life:
    """Why an engine may not be asked any more, if so. Its core's lock guards changes.

    Invariant: what has ended stays so, with the reason that was noted first.

    Args:
        log: whose failure is the engine's too.
    """

    def __init__(self, log: Log | VolatileLog) -> None:
        self._log = log
        self.closed: str | None = None
        """Why nothing may be asked any more, None while it may."""
        self.failed: str | None = None
        """Why memory may differ from the log, None while it cannot: then nothing may be
        asked either, and the next open reads the log."""
        self._failed_by: BaseException | None = None

    def require_alive(self) -> None:
        """Raise if the engine is closed or failed; reads ask this too.

        Raises:
            EngineClosedError: it is closed, or this is a forked child.
            EngineFailedError: the disk failed, or an error came amid a change.
        """
        if self.closed is not None:
            raise EngineClosedError(self.closed)
        failure = self._log.failure
        if failure is not None:
            raise EngineFailedError(_FAILED) from failure
        if self.failed is not None:
            raise EngineFailedError(self.failed) from self._failed_by

    @property
    def has_failed(self) -> bool:
        """Whether the log failed, or memory may differ from it."""
        return self._log.failure is not None or self.failed is not None

    @property
    def forked(self) -> bool:
        """Whether this is the child of a fork, and the engine its parent's."""
        return self.closed is _FORKED

    def broke_off(self, error: BaseException, *, applied_lsn: int) -> None:
        """Note that a change raised.

        Without memory, or by what a signal's handler raises, it may have stopped between
        its record in the log and its effect. Then nobody can say what memory holds.

        Args:
            error: what was raised.
            applied_lsn: of the last record whose effect is in memory.
        """
        if isinstance(error, WalError | TimingWheelError):
            return  # refused in time
        former = self.failed
        self.failed = _HALF_DONE  # first: what follows may find no memory either
        if self._log.next_lsn == applied_lsn + 1:
            self.failed = former
        elif former is None:
            self._failed_by = error

    def fail(self, error: BaseException) -> None:
        """Stop the engine, since an error lost what had been taken out of it.

        What had failed or was closed before keeps its own reason.
        """
        self.failed = _HALF_DONE
        self._failed_by = self._failed_by or error

    def close(self) -> None:
        """Refuse all that comes."""
        self.closed = CLOSED

    def leave_to_parent(self) -> None:
        """Refuse all that comes in a forked child: the parent owns the engine."""
        self.closed = _FORKED

    def in_engine_words(
        self, error: LogFailedError | LogClosedError
    ) -> TimingWheelError:
        """Return what the log refused as an error of the engine."""
        if self.closed is not None:
            return EngineClosedError(self.closed)
        if isinstance(error, LogFailedError):
            return EngineFailedError(_FAILED)
        return EngineClosedError(CLOSED)


_FAILED: Final = (
    "the disk failed and the engine stopped; what was acknowledged is safe. Mend the "
    "disk and open the directory again"
)
_HALF_DONE: Final = (
    "a change was cut off, for want of memory or by what a signal's handler raised, and "
    "the engine stopped; what was acknowledged is safe. Close it and open the directory "
    "again"
)
_FORKED: Final = (
    "this process is a fork of the engine's owner and may not use it: open the engine "
    "after forking, or talk to the parent"
)
