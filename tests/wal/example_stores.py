"""Small stores to damage: short segments, known payloads, a clock that only counts."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable

from wal.log import Log
from wal.testing import MemoryFileSystem

SEGMENT_SIZE_BYTES = 5120
WALL_START_NS = 1_700_000_000_000_000_000


def counting_clock() -> Callable[[], int]:
    """A wall clock that moves a millisecond each time it is asked."""
    times = itertools.count(WALL_START_NS, 1_000_000)
    return lambda: next(times)


def payload_of(lsn: int) -> bytes:
    return f"record {lsn} ".encode() * (lsn % 7 + 1)


def open_log(disk: MemoryFileSystem) -> Log:
    return Log.open(
        disk,
        wall_ns=counting_clock(),
        segment_size_bytes=SEGMENT_SIZE_BYTES,
        reserve_bytes=0,
        background=False,
    )


def append(log: Log, count: int) -> list[int]:
    """Commit records one by one; each holds `payload_of` its number."""
    log.start()
    lsns: list[int] = []
    for _ in range(count):
        lsns.append(log.append(payload_of(log.next_lsn)))
        log.commit()
    return lsns


def take_snapshot(log: Log) -> None:
    writer = log.begin_snapshot()
    writer.add(f"state at {log.durable_lsn}".encode())
    log.finish_snapshot(writer, reach_lsn=log.appended_lsn)


def store(
    count: int = 30, *, close: bool = True, snapshots_at: Iterable[int] = ()
) -> MemoryFileSystem:
    """A store that holds records 1 .. count, closed or killed."""
    disk = MemoryFileSystem()
    log = open_log(disk)
    for _ in range(count):
        if append(log, 1)[0] in snapshots_at:
            take_snapshot(log)
    if close:
        log.close()
        return disk
    return disk.killed()


def segments_of(disk: MemoryFileSystem) -> list[str]:
    return [name for name in disk.names() if name.endswith(".seg")]


def snapshots_of(disk: MemoryFileSystem) -> list[str]:
    return [name for name in disk.names() if name.endswith(".snap")]


def records_of(disk: MemoryFileSystem) -> dict[int, bytes]:
    """What an open reads, numbers and payloads."""
    log = open_log(disk)
    try:
        return {record.lsn: record.payload for record in log.read()}
    finally:
        log.close()


def originals(first: int, last: int) -> dict[int, bytes]:
    return {lsn: payload_of(lsn) for lsn in range(first, last + 1)}


class Eventful(MemoryFileSystem):
    """Something happens right after the n-th look at the names."""

    event: Callable[[], None] | None = None
    looks = 0

    def after(self, looks: int, event: Callable[[], None]) -> None:
        self.looks, self.event = looks, event

    def names(self) -> list[str]:
        names = super().names()
        self.looks -= 1
        if self.looks < 0 and self.event is not None:
            event, self.event = self.event, None
            event()
        return names
