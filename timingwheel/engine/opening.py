"""From a path to what is in it: the part of opening that all engines and stores share."""

from __future__ import annotations

import os
from typing import TypedDict, Unpack

from timingwheel.clock import Clock
from timingwheel.engine.arguments import check_log_options, checked_directory
from timingwheel.engine.timers import Timers
from timingwheel.engine.volatile import MEMORY, VolatileLog
from timingwheel.errors import ArgumentError
from wal.filesystem import FileSystem
from wal.log import (
    INTERVAL_MS,
    RESERVE_BYTES,
    SEGMENT_SIZE_BYTES,
    Durability,
    Log,
)


class LogOptions(TypedDict, total=False):
    """How a store's log is kept; see wal.Log.open."""

    durability: Durability
    interval_ms: float
    create: bool
    segment_size_bytes: int
    reserve_bytes: int
    atomic_sectors: bool


def settled(
    path: str | os.PathLike[str] | FileSystem,
) -> str | FileSystem:
    """Return what to open, a directory by its absolute path; nothing is opened.

    Raises:
        ArgumentError: it cannot be meant.
    """
    if not isinstance(path, str | os.PathLike | FileSystem):
        raise ArgumentError("path", path, "pass a directory, or ':memory:'")
    if isinstance(path, FileSystem) or path == MEMORY:
        return path
    return checked_directory(path, "path")


def open_log(
    path: str | os.PathLike[str] | FileSystem,
    clock: Clock,
    **options: Unpack[LogOptions],
) -> Log | VolatileLog:
    """Open the log of a directory, in read mode; ":memory:" has none.

    Raises as TimerEngine; nothing stays locked then.
    """
    path = settled(path)
    check_log_options(
        durability=options.get("durability", "durable"),
        interval_ms=options.get("interval_ms", INTERVAL_MS),
        segment_size_bytes=options.get("segment_size_bytes", SEGMENT_SIZE_BYTES),
        reserve_bytes=options.get("reserve_bytes", RESERVE_BYTES),
    )
    if path == MEMORY:
        return VolatileLog()
    return Log.open(
        path, wall_ns=clock.wall_ns, monotonic_ns=clock.monotonic_ns, **options
    )


def open_timers(
    path: str | os.PathLike[str] | FileSystem,
    clock: Clock,
    *,
    may_wait: bool,
    **options: Unpack[LogOptions],
) -> Timers:
    """Open a directory, recover what it holds, and return its timers.

    Raises as TimerEngine; nothing stays locked then.
    """
    log = open_log(path, clock, **options)
    try:
        return Timers(log, clock, may_wait=may_wait)
    except BaseException:
        log.close()
        raise
