"""Planned starts a minute, kept for a while: to count them reads every job."""

from __future__ import annotations

import threading
from typing import Final

from timingwheel.jobs.store import Load
from timingwheel.scheduler.scheduler import Scheduler

SPAN: Final = "24h"
FORECAST_NS: Final = 30_000_000_000
"""How old a forecast may be that is shown."""
MINUTE_NS: Final = 60_000_000_000
_STEP_NS: Final = 1_000_000_000


class Forecast:
    """Planned starts a minute, made anew when they are old. Thread-safe.

    While a forecast is made, others who ask wait for it and do not begin their own.

    Args:
        scheduler: whose.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._lock = threading.Lock()
        self._loads: list[Load] = []
        self._made_ns: int | None = None

    def loads(self) -> list[Load]:
        """Return the minutes of the next day, as of FORECAST_NS ago at most."""
        with self._lock:
            now_ns = self._scheduler.clock.monotonic_ns()
            if self._made_ns is None or now_ns - self._made_ns >= FORECAST_NS:
                self._loads = by_minute(self._scheduler.load_ahead(SPAN, step="1s"))
                self._made_ns = now_ns
            return self._loads


def by_minute(loads: list[Load]) -> list[Load]:
    """Return the load of each second as that of each minute of the clock.

    A second that is told begins at any fraction of one. What starts on a whole second,
    as nearly all does, counts for the minute that this second is in.
    """
    found: dict[int, Load] = {}
    for load in loads:
        start_ns = (load.start_ns + _STEP_NS - 1) // MINUTE_NS * MINUTE_NS
        so_far = found.get(start_ns, Load(start_ns, 0, 0))
        found[start_ns] = Load(
            start_ns, so_far.nominal + load.nominal, so_far.due + load.due
        )
    return list(found.values())
