"""Which body of the timer table and of the lane serves: the compiled, or the plain one.

As in timingwheel/bodies.py, which says why and how; whoever wants *the* table or *the* lane
imports it from here.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from timingwheel.bodies import PURE_VARIABLE, TimerWheel
from wal.bodies import COMPILED as LOG_COMPILED

__all__ = ["COMPILED", "Lane", "TimerTable"]

# For a type checker they are one: tests/engine/test_bodies.py holds that they have one
# interface.
if TYPE_CHECKING or os.environ.get(PURE_VARIABLE) == "1":
    from timingwheel.engine.lane import Lane
    from timingwheel.engine.table import TimerTable
else:
    try:
        from timingwheel.engine._lane import Lane
        from timingwheel.engine._table import TimerTable
    except ModuleNotFoundError as error:
        if error.name not in ("timingwheel.engine._lane", "timingwheel.engine._table"):
            raise
        from timingwheel.engine.lane import Lane
        from timingwheel.engine.table import TimerTable
    except ImportError as error:
        raise ImportError(
            f"the compiled timer table or lane is there but does not load ({error}): "
            f"install timingwheel again, or set {PURE_VARIABLE}=1 to run without it"
        ) from error

COMPILED: Final = (
    LOG_COMPILED
    and TimerWheel.__module__ == "timingwheel._wheel"
    and TimerTable.__module__ == "timingwheel.engine._table"
)
"""Whether the compiled bodies serve, all of them: wheel, timer table, lane and log."""
