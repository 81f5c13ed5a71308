"""From what a program names to an open store, and to the executors that run its tasks."""

from __future__ import annotations

import os
import platform
import uuid
from collections.abc import Callable
from typing import Final, Unpack

from timingwheel.clock import Clock
from timingwheel.engine.arguments import check_log_options
from timingwheel.engine.volatile import MEMORY
from timingwheel.errors import ArgumentError
from timingwheel.jobs.store import JobStore
from timingwheel.scheduler.crew import MakeExecutor
from timingwheel.scheduler.executors.executor import Executor
from timingwheel.scheduler.options import require_known
from timingwheel.stores.embedded import EmbeddedStore, StoreOptions
from wal.filesystem import FileSystem
from wal.log import INTERVAL_MS, RESERVE_BYTES, SEGMENT_SIZE_BYTES

OpenStore = Callable[[Clock], JobStore]
StoreSource = str | os.PathLike[str] | FileSystem | OpenStore
"""A directory, ":memory:", a FileSystem, or a function that opens a store."""

_SERVERS: Final = ("postgresql://", "postgres://")


def checked_source(source: StoreSource) -> StoreSource:
    """Return what names a store; nothing is opened.

    Raises:
        ArgumentError: it cannot name one.
    """
    if callable(source) or isinstance(source, FileSystem):
        return source
    if not isinstance(source, str | os.PathLike):
        raise ArgumentError("store", source, 'pass a directory, or ":memory:"')
    if source == "":
        raise ArgumentError("store", source, "name a directory; '.' is the current one")
    if isinstance(source, str) and source.startswith(_SERVERS):
        raise ArgumentError(
            "store", source, "this version keeps jobs in a directory; pass its path"
        )
    return source


def checked_log_options(options: StoreOptions) -> StoreOptions:
    """Return options of a store's log.

    Raises:
        TypeError: one is unknown, as Python says of any keyword argument.
        ArgumentError: one cannot be meant.
    """
    require_known(options, StoreOptions, verb="Scheduler")
    check_log_options(
        durability=options.get("durability", "durable"),
        interval_ms=options.get("interval_ms", INTERVAL_MS),
        segment_size_bytes=options.get("segment_size_bytes", SEGMENT_SIZE_BYTES),
        reserve_bytes=options.get("reserve_bytes", RESERVE_BYTES),
    )
    return options


def open_store(
    source: StoreSource, clock: Clock, **options: Unpack[StoreOptions]
) -> JobStore:
    """Open a store and recover what it holds; nothing is fired.

    Raises:
        StoreError: the path is no store and cannot become one.
        StoreInUseError: another process holds it; it is named.
        LogCorruptError: acknowledged data is damaged; no byte was changed.
        HistoryError: the history is damaged, or not of this log.
    """
    if callable(source):
        return source(clock)
    return EmbeddedStore.open(source, clock=clock, **options)


def directory_of(source: StoreSource) -> str | None:
    """Return the directory of a store; None if it has no real one."""
    if isinstance(source, FileSystem):
        return source.path if type(source) is FileSystem else None
    if callable(source) or source == MEMORY:
        return None
    return os.fspath(source)


def executor_makers(slots: int) -> dict[str, MakeExecutor]:
    """Return how to make each kind of executor.

    Args:
        slots: handlers at once, for those that have slots.
    """

    # Imported when made: most programs need one or two kinds, and some are large.
    def inline() -> Executor:
        from timingwheel.scheduler.executors.inline import InlineExecutor

        return InlineExecutor()

    def thread() -> Executor:
        from timingwheel.scheduler.executors.thread import ThreadExecutor

        return ThreadExecutor(slots)

    def event_loop() -> Executor:
        from timingwheel.scheduler.executors.event_loop import AsyncioExecutor

        return AsyncioExecutor()

    def process() -> Executor:
        from timingwheel.scheduler.executors.process import ProcessExecutor

        return ProcessExecutor(min(slots, os.cpu_count() or 1))

    def subprocess() -> Executor:
        from timingwheel.scheduler.executors.commands import SubprocessExecutor

        return SubprocessExecutor(slots)

    return {
        "inline": inline,
        "thread": thread,
        "asyncio": event_loop,
        "process": process,
        "subprocess": subprocess,
    }


def worker_name() -> str:
    """Return how this process is named: host, process, and a part that is never reused."""
    return f"{platform.node() or 'host'}:{os.getpid()}:{uuid.uuid4().hex[:8]}"
