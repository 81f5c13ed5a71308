"""From a path to the timers in it: the part of opening that every engine shares."""

from __future__ import annotations

import os

from timingwheel.clock import Clock
from timingwheel.engine.arguments import check_log_options
from timingwheel.engine.timers import Timers
from timingwheel.engine.volatile import MEMORY, VolatileLog
from timingwheel.errors import ArgumentError
from wal.filesystem import FileSystem
from wal.log import Durability, Log


def open_timers(
    path: str | os.PathLike[str] | FileSystem,
    clock: Clock,
    *,
    may_wait: bool,
    durability: Durability,
    interval_ms: float,
    create: bool,
    segment_size_bytes: int,
    reserve_bytes: int,
    atomic_sectors: bool,
) -> Timers:
    """Open a directory, recover what it holds, and return its timers.

    Raises as TimerEngine; nothing stays locked then.
    """
    log: Log | VolatileLog
    if not isinstance(path, str | os.PathLike | FileSystem):
        raise ArgumentError("path", path, "pass a directory, or ':memory:'")
    if path == "":
        raise ArgumentError("path", path, "name a directory; '.' is the current one")
    check_log_options(
        durability=durability,
        interval_ms=interval_ms,
        segment_size_bytes=segment_size_bytes,
        reserve_bytes=reserve_bytes,
    )
    if path == MEMORY:
        log = VolatileLog()
    else:
        log = Log.open(
            path,
            wall_ns=clock.wall_ns,
            create=create,
            durability=durability,
            interval_ms=interval_ms,
            segment_size_bytes=segment_size_bytes,
            reserve_bytes=reserve_bytes,
            atomic_sectors=atomic_sectors,
        )
    try:
        return Timers(log, clock, may_wait=may_wait)
    except BaseException:
        log.close()
        raise
