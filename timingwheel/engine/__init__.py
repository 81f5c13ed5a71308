"""The durable timer engine: wheels, log and snapshots with one owner plugged in."""

from timingwheel.engine.asyncio_engine import AsyncTimerEngine
from timingwheel.engine.core import EngineCore
from timingwheel.engine.engine import TimerEngine
from timingwheel.engine.owner import Due, Owner
from timingwheel.engine.records import TimerId
from timingwheel.engine.timers import Timer

__all__ = [
    "AsyncTimerEngine",
    "Due",
    "EngineCore",
    "Owner",
    "Timer",
    "TimerEngine",
    "TimerId",
]
