"""Stores and segments for the tests of the log: how to open, fill, read and build one."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from typing import Any, Final

from wal.filesystem import FileSystem, Handle
from wal.frame import (
    Flag,
    Header,
    chain_of,
    decode_header,
    encode_frame,
    encode_records,
)
from wal.log import Log
from wal.segment import (
    NO_PREDECESSOR,
    SEGMENT_HEADER_BYTES,
    SegmentEnd,
    SegmentHeader,
    decode_segment_header,
    parse_segment_name,
)
from wal.testing import MemoryFileSystem

WALL_NS: Final = 1_700_000_000_000_000_000
SEGMENT_BYTES: Final = 8192
UUID: Final = bytes(range(16))
PATIENCE_SECONDS: Final = 60.0
"""How long a test waits for a thread before it calls it stuck."""


def open_log(place: str | os.PathLike[str] | FileSystem, **options: Any) -> Log:
    """Open a log of small segments that runs no threads, unless told otherwise."""
    settings: dict[str, Any] = {
        "wall_ns": lambda: WALL_NS,
        "segment_size_bytes": SEGMENT_BYTES,
        "reserve_bytes": 0,
        "background": False,
    }
    return Log.open(place, **(settings | options))


def commit_each(log: Log, *payloads: bytes) -> None:
    """Append and commit each payload in a group of its own."""
    for payload in payloads:
        log.commit(log.append(payload))


def killed_store(*payloads: bytes, **options: Any) -> MemoryFileSystem:
    """Return the disk of a process killed right after it committed each payload."""
    disk = MemoryFileSystem()
    log = open_log(disk, **options)
    log.start()
    commit_each(log, *payloads)
    return disk.killed()


def closed_store(*payloads: bytes, **options: Any) -> MemoryFileSystem:
    """Return the disk of a log that committed each payload and was closed."""
    disk = MemoryFileSystem()
    with open_log(disk, **options) as log:
        log.start()
        commit_each(log, *payloads)
    return disk


def payloads_of(disk: FileSystem, **options: Any) -> list[bytes]:
    """Return what a log holds, and leave it as it is."""
    with open_log(disk, **options) as log:
        return [record.payload for record in log.read()]


def lsns_of(disk: FileSystem, **options: Any) -> list[int]:
    """Return the numbers of a log's records, and leave it as it is."""
    with open_log(disk, **options) as log:
        return [record.lsn for record in log.read()]


def segments_of(disk: FileSystem) -> list[str]:
    """Return the names of a store's segments, oldest first."""
    return [name for name in disk.names() if parse_segment_name(name)]


def frames_of(disk: MemoryFileSystem, name: str) -> list[tuple[int, Header]]:
    """Return offset and header of each frame of a segment, up to the first bad one."""
    data = disk.content(name)
    header = segment_header(disk, name)
    found = []
    at = SEGMENT_HEADER_BYTES
    while (frame := decode_header(data, at, header.seed)) is not None:
        found.append((at, frame))
        at += frame.frame_bytes
    return found


def segment_header(disk: MemoryFileSystem, name: str) -> SegmentHeader:
    """Return what the header of a segment says."""
    header = decode_segment_header(disk.content(name)[:SEGMENT_HEADER_BYTES], name)
    assert header is not None
    return header


def power_losses(disk: MemoryFileSystem) -> Iterator[MemoryFileSystem]:
    """Yield the telling states that a power loss may leave now; each has a label.

    Quicker than `crash_states`, which looks for all: tests/crash/ does that.
    """
    yield from map(disk.crashed, ("none", "all", "names", "bytes"))
    for number, operation in enumerate(disk.unsynced(), start=1):
        yield disk.crashed(f"drop {number}")
        yield disk.crashed(f"keep {number}")
        if operation.startswith("write"):  # torn after its first sector
            yield disk.crashed(f"head {number} 1")
            yield disk.crashed(f"tail {number} 1")


class SegmentBuilder:
    """A segment put together by hand, frame by frame.

    Attributes:
        header: what its first block says.
        data: its bytes so far, full-size.
        offset: where the next frame goes.
        last_lsn: of the last record.
        chain_crc: what the next frame carries.
        starts: where the frames start.
        flags: of the last frame.
    """

    def __init__(
        self,
        *,
        segment_id: int = 1,
        first_lsn: int = 1,
        predecessor: SegmentEnd = NO_PREDECESSOR,
        size_bytes: int = SEGMENT_BYTES,
        uuid: bytes = UUID,
    ) -> None:
        self.header = SegmentHeader(
            store_uuid=uuid,
            segment_id=segment_id,
            first_lsn=first_lsn,  # type: ignore[arg-type]
            salt=0x5A17 + segment_id,
            size_bytes=size_bytes,
            created_ns=WALL_NS,
            predecessor=predecessor,
        )
        self.data = bytearray(size_bytes)
        self.data[:SEGMENT_HEADER_BYTES] = self.header.encode()
        self.offset = SEGMENT_HEADER_BYTES
        self.last_lsn = first_lsn - 1
        self.chain_crc = predecessor.chain_crc
        self.starts: list[int] = []
        self.flags = Flag.NONE

    def add(
        self,
        *payloads: bytes,
        flags: Flag = Flag.NONE,
        durable_lsn: int | None = None,
        first_lsn: int | None = None,
    ) -> int:
        """Add a frame, written when all before it was synced; return where it starts."""
        first = self.last_lsn + 1 if first_lsn is None else first_lsn
        at = self.offset
        frame = encode_frame(
            encode_records(payloads),
            record_count=len(payloads),
            first_lsn=first,
            durable_lsn=first - 1 if durable_lsn is None else durable_lsn,
            wall_ns=WALL_NS + first,
            chain_crc=self.chain_crc,
            flags=flags,
            seed=self.header.seed,
            offset=at,
        )
        self.data[at : at + len(frame)] = frame
        self.starts.append(at)
        self.offset += len(frame)
        self.last_lsn = first + len(payloads) - 1
        self.chain_crc = chain_of(frame)
        self.flags = flags
        return at

    def end(self) -> SegmentEnd:
        """Return where it ends, as its successor tells it."""
        return SegmentEnd(
            self.header.segment_id,
            self.offset,
            self.last_lsn,  # type: ignore[arg-type]
            self.chain_crc,
        )

    def put(self, disk: MemoryFileSystem) -> str:
        """Write it into a disk and return its name."""
        disk.put(self.header.name, bytes(self.data))
        return self.header.name


class HookedDisk(MemoryFileSystem):
    """A disk that calls `hook(op, name, done)` before and after each call that counts.

    The hook may raise, and so interrupt the program at any of its disk calls.
    """

    hook: Callable[[str, str, bool], None] | None = None

    def _name(self, handle: Handle) -> str:
        return self._machine.opened(handle).name

    def _around(self, op: str, name: str, *, done: bool) -> None:
        if self.hook is not None:
            self.hook(op, name, done)

    def pwrite(self, handle: Handle, data: bytes, offset: int) -> int:
        name = self._name(handle)
        self._around("pwrite", name, done=False)
        size = super().pwrite(handle, data, offset)
        self._around("pwrite", name, done=True)
        return size

    def datasync(self, handle: Handle) -> None:
        name = self._name(handle)
        self._around("datasync", name, done=False)
        super().datasync(handle)
        self._around("datasync", name, done=True)

    def sync(self, handle: Handle) -> None:
        name = self._name(handle)
        self._around("sync", name, done=False)
        super().sync(handle)
        self._around("sync", name, done=True)

    def rename(self, old: str, new: str) -> None:
        self._around("rename", old, done=False)
        super().rename(old, new)
        self._around("rename", old, done=True)

    def sync_dir(self) -> None:
        self._around("sync_dir", "", done=False)
        super().sync_dir()
        self._around("sync_dir", "", done=True)


class Worker(threading.Thread):
    """A thread whose outcome a test can ask for."""

    def __init__(self, work: Callable[[], object]) -> None:
        super().__init__(daemon=True)
        self._work = work
        self._result: object = None
        self._error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self._result = self._work()
        except BaseException as error:  # noqa: BLE001 - `outcome` raises it again
            self._error = error

    def outcome(self) -> object:
        """Wait for the end; return what the work returned, or raise what it raised."""
        self.join(PATIENCE_SECONDS)
        assert not self.is_alive(), "the thread is stuck"
        if self._error is not None:
            raise self._error
        return self._result


class Signalled(dict[Any, None]):
    """The queue of a GroupCommit that tells when it has `count` waiters."""

    def __init__(self) -> None:
        super().__init__()
        self._changed = threading.Condition()

    def __setitem__(self, key: Any, value: None) -> None:
        with self._changed:
            super().__setitem__(key, value)
            self._changed.notify_all()

    def wait_for(self, count: int) -> None:
        """Return when that many wait."""
        with self._changed:
            came = self._changed.wait_for(lambda: len(self) >= count, PATIENCE_SECONDS)
        assert came, f"{len(self)} wait, {count} expected"
