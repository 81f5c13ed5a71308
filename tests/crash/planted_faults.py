"""Logs with one fault each: what a hasty version of `wal/` might have been.

Each is an opener, to be given to a sweep in the place of the right one. They subclass and
wrap; nothing in the packages is patched.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar, Final

from tests.crash.log_driver import OpenLog, Options, arguments
from wal.checksum import extend
from wal.filesystem import FileSystem, Handle
from wal.frame import (
    HEADER_BYTES,
    Flag,
    Lsn,
    decode_body,
    decode_header,
    encode_frame,
    padded,
)
from wal.log import Log
from wal.plan import PendingFrame
from wal.pool import SegmentPool
from wal.recovery import Recovery
from wal.segment import SegmentEnd, SegmentHeader
from wal.snapshot import SnapshotWriter
from wal.testing import MemoryFileSystem
from wal.writer import SegmentWriter, _Place

_U16: Final = struct.Struct("<H")
_U32: Final = struct.Struct("<I")
_U64: Final = struct.Struct("<Q")


# -- disks that promise too much --------------------------------------------------------


class _SameDisk(MemoryFileSystem):
    """Another look at a disk: the same files, the same crash to come."""

    def __init__(self, disk: FileSystem) -> None:
        assert isinstance(disk, MemoryFileSystem)
        super().__init__(disk.path)
        self._machine = disk._machine
        self._random = disk._random


class WithoutDirectorySync(_SameDisk):
    """Names reach the disk when they like."""

    def sync_dir(self) -> None:
        """Count the call, and do nothing."""
        with self._machine.recorded("sync_dir"):
            pass


class WithoutDataSync(_SameDisk):
    """Frames reach the disk when they like."""

    def datasync(self, handle: Handle) -> None:
        """Count the call, and do nothing."""
        with self._machine.recorded("datasync", self._machine.opened(handle).name):
            pass


class WithoutFileSync(_SameDisk):
    """New files get their names before their bytes."""

    def sync(self, handle: Handle) -> None:
        """Count the call, and do nothing."""
        with self._machine.recorded("sync", self._machine.opened(handle).name):
            pass


def all_on(disk_kind: type[_SameDisk]) -> OpenLog:
    """Return an opener of right logs on such disks."""
    return lambda disk, options: Log.open(disk_kind(disk), **arguments(disk, options))


# -- logs that promise too much ---------------------------------------------------------


class RepliesBeforeCommit(Log):
    """`commit` makes durable only what the call before it asked for."""

    _promised_lsn = 0

    def commit(self, lsn: int | None = None) -> None:
        """Return too early."""
        self.sync(self._promised_lsn)
        self._promised_lsn = self.appended_lsn if lsn is None else lsn


class SnapshotsWithoutSync(Log):
    """The log is right, but its snapshots get their names before their bytes."""

    def begin_snapshot(self) -> SnapshotWriter:
        """Begin one on a disk that does not sync."""
        return SnapshotWriter(
            WithoutFileSync(self._files),
            self.identity.uuid,
            pin_lsn=self.durable_lsn,
            wall_ns=self._wall_ns(),
        )


def all_by(log_kind: type[Log]) -> OpenLog:
    """Return an opener of such logs."""
    return lambda disk, options: log_kind.open(disk, **arguments(disk, options))


# -- recoveries and writers that cut corners --------------------------------------------


class _Recovery(Recovery):
    """A recovery that begins with a writer of its own kind, on a disk of its own kind."""

    writer_kind: ClassVar[type[SegmentWriter]] = SegmentWriter
    disk_kind: ClassVar[type[_SameDisk] | None] = None

    def _begin(
        self,
        pool: SegmentPool,
        end: SegmentEnd,
        first_lsn: int,
        *,
        segment_size_bytes: int,
        wall_ns: Callable[[], int],
    ) -> SegmentWriter:
        files = self.files if self.disk_kind is None else self.disk_kind(self.files)
        return self.writer_kind(
            files,
            self.identity.uuid,
            pool,
            predecessor=end,
            first_lsn=first_lsn,
            blank=self._opening_segment(pool, segment_size_bytes),
            wall_ns=wall_ns,
        )


class TrustsNamesThatAKilledOwnerLeft(Recovery):
    """What it reads may have no name on the disk yet, and it builds on that."""

    def __init__(self, files: FileSystem, lock: Handle, **options: Any) -> None:
        super().__init__(WithoutDirectorySync(files), lock, **options)
        self.files = files


class SegmentsWithoutDirectorySync(_Recovery):
    """A new segment gets its name, and nobody makes the name durable."""

    disk_kind = WithoutDirectorySync


class SegmentsWithoutFileSync(_Recovery):
    """A new segment gets its name before its header is on the disk."""

    disk_kind = WithoutFileSync


class FramesWithoutDataSync(_Recovery):
    """Frames are written and not synced."""

    disk_kind = WithoutDataSync


class ReusesNumbers(_Recovery):
    """After an unclean end the numbers go on where the cut log ends."""

    def _begin(
        self,
        pool: SegmentPool,
        end: SegmentEnd,
        first_lsn: int,
        *,
        segment_size_bytes: int,
        wall_ns: Callable[[], int],
    ) -> SegmentWriter:
        return super()._begin(
            pool,
            end,
            end.last_lsn + 1,
            segment_size_bytes=segment_size_bytes,
            wall_ns=wall_ns,
        )


class _StaleWriter(SegmentWriter):
    _before = 0

    def write(self, frame: PendingFrame, *, durable_lsn: int, relaxed: bool) -> None:
        super().write(frame, durable_lsn=self._before, relaxed=relaxed)
        self._before = durable_lsn


class StaleDurableLsn(_Recovery):
    """Frames carry the durable_lsn of one group before."""

    writer_kind = _StaleWriter


class _UnmaskedWriter(SegmentWriter):
    def write(self, frame: PendingFrame, *, durable_lsn: int, relaxed: bool) -> None:
        if frame.rotate and self._place.opened_by is not frame:
            self._rotate(frame)
        place = self._place
        masked = encode_frame(
            bytes(frame.body),
            record_count=frame.record_count,
            first_lsn=frame.first_lsn,
            durable_lsn=durable_lsn,
            wall_ns=self._wall_ns(),
            chain_crc=place.chain_crc,
            flags=Flag.RELAXED if relaxed else Flag.NONE,
            seed=place.seed,
            offset=place.offset,
        )
        frame.sealed = _unmasked(masked, offset=place.offset, seed=place.seed)
        super().write(frame, durable_lsn=durable_lsn, relaxed=relaxed)


class WithoutMasks(_Recovery):
    """Sectors of zeros are written as they are."""

    writer_kind = _UnmaskedWriter


def _unmasked(frame: bytes, *, offset: int, seed: int) -> bytes:
    """Return a frame, sealed for that offset, as it would be without its mask."""
    at_its_place = bytes(offset) + frame
    header = decode_header(at_its_place, offset, seed)
    assert header is not None
    body = decode_body(at_its_place, offset, header=header, seed=seed)
    assert body is not None
    stored = body.ljust(padded(len(body)), b"\0")
    at_offset = extend(seed, _U64.pack(offset))
    fields = bytearray(frame[:HEADER_BYTES])
    _U32.pack_into(fields, 48, extend(at_offset, stored))
    _U16.pack_into(fields, 56, header.flags & ~Flag.MASKED)
    _U32.pack_into(fields, 60, 0)
    _U32.pack_into(fields, 4, extend(at_offset, bytes(fields[8:])))
    return bytes(fields) + stored


class _TailWriter(SegmentWriter):
    """Goes on in the last segment, if there is one that was not closed."""

    def __init__(
        self,
        resumes: tuple[Handle, SegmentHeader, SegmentEnd] | None,
        *args: Any,
        **kwargs: Any,
    ) -> None:
        self._resumes = resumes
        super().__init__(*args, **kwargs)

    @property
    def header(self) -> SegmentHeader:
        """The segment's, as if it began with the number that comes next."""
        return replace(self._place.header, first_lsn=Lsn(self._place.last_lsn + 1))

    def _begin(
        self,
        blank: tuple[str, Handle],
        predecessor: SegmentEnd,
        *,
        first_lsn: int,
        by: PendingFrame | None,
    ) -> _Place:
        if self._resumes is None:
            return super()._begin(blank, predecessor, first_lsn=first_lsn, by=by)
        (handle, header, end), self._resumes = self._resumes, None
        return _Place(
            handle, header, header.seed, end.offset, end.last_lsn, end.chain_crc
        )


class AppendsToTheOldTail(_Recovery):
    """After an unclean end the old segment is written on."""

    def _begin(
        self,
        pool: SegmentPool,
        end: SegmentEnd,
        first_lsn: int,
        *,
        segment_size_bytes: int,
        wall_ns: Callable[[], int],
    ) -> SegmentWriter:
        last = self._reader.last if self._reader is not None else None
        resumes = None
        if last is not None and Flag.CLOSE not in last.last_flags:
            handle = self.files.open(last.header.name, writable=True)
            resumes = handle, last.header, end
        return _TailWriter(
            resumes,
            self.files,
            self.identity.uuid,
            pool,
            predecessor=end,
            first_lsn=first_lsn,
            blank=self._opening_segment(pool, segment_size_bytes),
            wall_ns=wall_ns,
        )

    def _cut(self, name: str, size_bytes: int) -> None:
        pass


def all_recovered_by(recovery_kind: type[Recovery]) -> OpenLog:
    """Return an opener of logs that such recoveries begin."""

    def open_log(disk: MemoryFileSystem, options: Options) -> Log:
        chosen = arguments(disk, options)
        recovery = recovery_kind.open(
            disk, create=True, atomic_sectors=True, wall_ns=chosen["wall_ns"]
        )
        return Log(recovery, **chosen)

    return open_log
