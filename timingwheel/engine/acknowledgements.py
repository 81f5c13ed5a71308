"""Deliveries that ended, until they are in the log: one record for all that end meanwhile.

Whoever ran a handler only notes its timer here. The tick thread, which is told, puts all
that have come by then into one record, so a burst of quick handlers costs one record for
thousands, and a lone one is recorded at once. Nobody waits for anybody: a slow handler
keeps no other's timer from being acknowledged.

When no tick thread runs any more, whoever adds records for itself.
"""

from __future__ import annotations

import contextlib
import logging
from collections import deque
from collections.abc import Iterable
from typing import Final

from timingwheel.engine.records import TimerId
from timingwheel.engine.timers import Timers
from timingwheel.errors import TimingWheelError
from wal.errors import DiskFullError, RecordTooLargeError, WalError

AT_ONCE_MAX: Final = 8_192
"""Timers a record: 64 KiB of it."""
_logger = logging.getLogger("timingwheel")


class Acknowledgements:
    """Timers whose handler returned and of which no record says so yet.

    Thread-safe. Invariant: each timer added is recorded once, or the log refused it for
    good and a warning says so; on a full disk it stays here.

    Args:
        timers: whose they are.
    """

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self._ended: deque[TimerId] = deque()
        self._at_once = AT_ONCE_MAX
        self.add = self._ended.append
        """Note that a timer's handler returned. Then tell the tick thread."""

    def __bool__(self) -> bool:
        return bool(self._ended)

    def record(self) -> int:
        """Append records of all that were added.

        Returns:
            The LSN to be committed, 0 if there was nothing.

        Raises:
            DiskFullError: what is not recorded stays here; call again.
            OSError: likewise.
            EngineFailedError: the disk failed; what was here is dropped.
            EngineClosedError: likewise.
        """
        lsn = 0
        while timer_ids := self._take():
            try:
                lsn = self._timers.acknowledge(timer_ids)
            except RecordTooLargeError:
                # Small segments hold few ids a record; one fits in any.
                assert len(timer_ids) > 1, timer_ids
                self._ended.extendleft(reversed(timer_ids))
                self._at_once = len(timer_ids) // 2
            except (DiskFullError, OSError):
                self._ended.extendleft(reversed(timer_ids))
                raise
            except (WalError, TimingWheelError) as error:
                warn_unacknowledged(timer_ids, error)
                raise
        return lsn

    def _take(self) -> list[TimerId]:
        taken: list[TimerId] = []
        with contextlib.suppress(IndexError):  # several may take at the same time
            while len(taken) < self._at_once:
                taken.append(self._ended.popleft())
        return taken


def warn_unacknowledged(timer_ids: Iterable[TimerId], error: BaseException) -> None:
    """Log that timers which were delivered come again after the next open.

    The engine failed or closed under them: nothing durable says that they were delivered.
    """
    for timer_id in timer_ids:
        _logger.warning(
            "timer %d is not acknowledged: %s",
            timer_id,
            error,
            extra={"timer_id": timer_id},
        )
