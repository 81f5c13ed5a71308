"""A durable timer engine and job scheduler: a timing wheel on a write-ahead log."""

from timingwheel.bodies import COMPILED, TimerWheel
from timingwheel.clock import Clock, Reading, SystemClock
from timingwheel.engine.asyncio_engine import AsyncTimerEngine
from timingwheel.engine.engine import TimerEngine
from timingwheel.engine.records import TimerId
from timingwheel.engine.timers import Timer
from timingwheel.errors import (
    ArgumentError,
    BatchTooLargeError,
    CronError,
    DeadlineError,
    EngineClosedError,
    EngineFailedError,
    PayloadTooLargeError,
    TimingWheelError,
)
from timingwheel.jobs.cron import Cron
from wal.errors import (
    CommitUnknownError,
    DiskFullError,
    LogCorruptError,
    StoreError,
    StoreInUseError,
    WalError,
)

__all__ = [
    "COMPILED",
    "ArgumentError",
    "AsyncTimerEngine",
    "BatchTooLargeError",
    "Clock",
    "CommitUnknownError",
    "Cron",
    "CronError",
    "DeadlineError",
    "DiskFullError",
    "EngineClosedError",
    "EngineFailedError",
    "LogCorruptError",
    "PayloadTooLargeError",
    "Reading",
    "StoreError",
    "StoreInUseError",
    "SystemClock",
    "Timer",
    "TimerEngine",
    "TimerId",
    "TimerWheel",
    "TimingWheelError",
    "WalError",
]
