"""A durable timer engine and job scheduler: a timing wheel on a write-ahead log."""

from timingwheel.bodies import TimerWheel
from timingwheel.clock import Clock, Reading, SystemClock
from timingwheel.engine.asyncio_engine import AsyncTimerEngine
from timingwheel.engine.bodies import COMPILED
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
    MissingExtraError,
    PayloadTooLargeError,
    TimingWheelError,
)
from timingwheel.jobs.after import After
from timingwheel.jobs.calendars import NamedCalendar
from timingwheel.jobs.cron import Cron
from timingwheel.jobs.errors import (
    KeyConflictError,
    NameTakenError,
    PayloadError,
    RevisionConflictError,
    RunStateError,
    TaskError,
    UnknownCalendarError,
    UnknownJobError,
    UnknownRunError,
    UnknownTaskError,
    UnknownWorkerError,
)
from timingwheel.jobs.explaining import NextTime
from timingwheel.jobs.intervals import every
from timingwheel.jobs.model import (
    Attempt,
    Cap,
    Delivery,
    Job,
    JobState,
    Outcome,
    Queue,
    Run,
    RunReason,
    RunState,
    SkipRange,
    SkipReason,
)
from timingwheel.jobs.store import CancelResult, JobRef, Resumption
from timingwheel.scheduler.asyncio_scheduler import AsyncScheduler
from timingwheel.scheduler.checking import Finding
from timingwheel.scheduler.context import Cancelled, Context, LeaseLost, Snooze
from timingwheel.scheduler.handles import RunFailedError, RunHandle
from timingwheel.scheduler.retrying import Retry
from timingwheel.scheduler.scheduler import Scheduler
from timingwheel.scheduler.tasks import Call, Task
from timingwheel.stores.backup import backup, restore
from timingwheel.stores.backup_reading import Backup, BackupError
from timingwheel.stores.door_errors import HolderLostError
from timingwheel.stores.history_errors import HistoryError
from timingwheel.stores.history_retention import Retention
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
    "After",
    "ArgumentError",
    "AsyncScheduler",
    "AsyncTimerEngine",
    "Attempt",
    "Backup",
    "BackupError",
    "BatchTooLargeError",
    "Call",
    "CancelResult",
    "Cancelled",
    "Cap",
    "Clock",
    "CommitUnknownError",
    "Context",
    "Cron",
    "CronError",
    "DeadlineError",
    "Delivery",
    "DiskFullError",
    "EngineClosedError",
    "EngineFailedError",
    "Finding",
    "HistoryError",
    "HolderLostError",
    "Job",
    "JobRef",
    "JobState",
    "KeyConflictError",
    "LeaseLost",
    "LogCorruptError",
    "MissingExtraError",
    "NameTakenError",
    "NamedCalendar",
    "NextTime",
    "Outcome",
    "PayloadError",
    "PayloadTooLargeError",
    "Queue",
    "Reading",
    "Resumption",
    "Retention",
    "Retry",
    "RevisionConflictError",
    "Run",
    "RunFailedError",
    "RunHandle",
    "RunReason",
    "RunState",
    "RunStateError",
    "Scheduler",
    "SkipRange",
    "SkipReason",
    "Snooze",
    "StoreError",
    "StoreInUseError",
    "SystemClock",
    "Task",
    "TaskError",
    "Timer",
    "TimerEngine",
    "TimerId",
    "TimerWheel",
    "TimingWheelError",
    "UnknownCalendarError",
    "UnknownJobError",
    "UnknownRunError",
    "UnknownTaskError",
    "UnknownWorkerError",
    "WalError",
    "backup",
    "every",
    "restore",
]
