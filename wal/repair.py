"""Rescue: what can still be read of a store, as a new store in another directory.

The source is only read. The new store holds every readable record under its own number,
so that ids which are LSNs stay true: a new segment begins wherever numbers are missing.
Numbers that were lost, or that a cut tail may have used, are never given out again. Its
STORE is written last: until then the directory is no store, whatever happens.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from wal.bodies import chain_of, encode_frame
from wal.errors import StoreError
from wal.faults import Fault, Lost, merge_losses
from wal.filesystem import FileSystem, write_new_file
from wal.frame import HEADER_BYTES, Flag, Lsn, frame_bytes
from wal.inspection import check_snapshots, faults_at_ends, reach_of, survey
from wal.log import SEGMENT_SIZE_BYTES
from wal.recovery import LSN_SKIP
from wal.salvage import Frame
from wal.scan import Scan, pause_between_looks
from wal.segment import (
    NO_PREDECESSOR,
    SEGMENT_HEADER_BYTES,
    SegmentEnd,
    SegmentHeader,
)
from wal.snapshot import SnapshotInfo, SnapshotWriter, read_snapshot
from wal.store import LOCK_NAME, REPAIRED, StoreIdentity, take_lock, write_identity

LOST_TAIL_SKIP: Final = 1 << 32
"""How far numbers go up where nobody knows how many records a lost tail held."""


@dataclass(frozen=True, slots=True)
class Repaired:
    """What a repair did.

    Attributes:
        uuid: of the new store.
        records: how many it holds.
        first_lsn: of the first of them, 0 without one.
        last_lsn: of the last of them, 0 without one.
        segments: how many it took.
        snapshots: those that were carried over, newest first, as the source had them.
        lost: the acknowledged records that it lacks, in order.
        faults: what was found in the source.
        holder: who held the source, by its LOCK; "" for nobody.
        next_lsn: the number that the next record will get.
    """

    uuid: bytes
    records: int
    first_lsn: int
    last_lsn: int
    segments: int
    snapshots: tuple[SnapshotInfo, ...]
    lost: tuple[Lost, ...]
    faults: tuple[Fault, ...]
    holder: str
    next_lsn: int


def repair(
    files: FileSystem,
    out: FileSystem,
    *,
    segment_size_bytes: int = SEGMENT_SIZE_BYTES,
    pause: Callable[[], None] = pause_between_looks,
) -> Repaired:
    """Copy what can be read of the store in `files` into a new one in `out`.

    Afterwards `out` is a store that was closed, and verifies without a fault. Torn tails
    are left out, as an open would cut them. Snapshots that hold are carried over. If
    acknowledged records are missing, the new store's REPAIRED bit says so.

    Args:
        files: the source; nothing of it is changed.
        out: a directory that is empty or not there yet.
        segment_size_bytes: how long a new segment gets at most; one frame goes in always.
        pause: waits between two looks at what may be a write under way.

    Raises:
        StoreError: the source is no store or changed too much meanwhile, or `out` is
            not free.
        StoreInUseError: another repair writes to `out`.
        OSError: a disk failed; `out` is then an incomplete directory without STORE.
    """
    source = survey(files)
    _check_free(files, out)
    out.make_directory()
    lock = take_lock(out)
    try:
        if out.names() != [LOCK_NAME]:
            raise _not_free(out)
        uuid = out.entropy(16)
        snapshots, faults = check_snapshots(files, source.uuid)
        scan = Scan(files, source.uuid, pause=pause)
        begin = partial(_LogCopier, out, uuid, size_max_bytes=segment_size_bytes)
        copier, found = _copy_log(scan, begin, snapshots)
        _check_source(files, source.uuid, scan=scan, snapshots=snapshots)
        ends = faults_at_ends(scan, snapshots, reach_lsn=reach_of(snapshots))
        faults = [*source.faults, *faults, *found, *ends]
        lost = merge_losses(fault.lost for fault in faults if fault.lost is not None)
        next_lsn = _next_lsn(scan, snapshots, lost)
        copier.finish(next_lsn, scan.last_wall_ns)
        for info in snapshots:
            _copy_snapshot(files, out, info=info, uuid=source.uuid, new_uuid=uuid)
        identity = source.identity or StoreIdentity(uuid, scan.first_created_ns)
        if lost:
            identity = replace(identity, compatible=identity.compatible | REPAIRED)
        write_identity(out, replace(identity, uuid=uuid))
    finally:
        out.close(lock)
    return Repaired(
        uuid=uuid,
        records=copier.records,
        first_lsn=copier.first_lsn,
        last_lsn=copier.last_lsn,
        segments=copier.segments,
        snapshots=tuple(snapshots),
        lost=tuple(lost),
        faults=tuple(faults),
        holder=source.holder,
        next_lsn=next_lsn,
    )


class _LogCopier:
    """Writes frames into new segments, one file at a time.

    Invariant: what `end` says is what the next segment's header will say of its
    predecessor.
    """

    def __init__(
        self, out: FileSystem, uuid: bytes, *, end: SegmentEnd, size_max_bytes: int
    ) -> None:
        self._out = out
        self._uuid = uuid
        self._size_max_bytes = size_max_bytes
        self._end = end
        self._header: SegmentHeader | None = None
        self._data = bytearray()
        self._chain_crc = end.chain_crc
        self._next_lsn = int(end.last_lsn) + 1
        self.records = 0
        self.first_lsn = 0
        self.last_lsn = 0
        self.segments = 0

    def add(self, frame: Frame) -> None:
        """Write the records of a frame, in a new segment if there is a gap before."""
        header = frame.header
        room = self._size_max_bytes - len(self._data) - HEADER_BYTES
        if header.first_lsn != self._next_lsn or frame_bytes(len(frame.body)) > room:
            self._seal()
        if self._header is None:
            self._begin(header.first_lsn, header.wall_ns)
        # The order of writing was that of the source; by now all of it is durable.
        self._put(
            frame.body,
            record_count=header.record_count,
            wall_ns=header.wall_ns,
            flags=Flag.NONE,
        )
        self.records += header.record_count
        self.first_lsn = self.first_lsn or int(header.first_lsn)
        self.last_lsn = int(header.last_lsn)

    def finish(self, next_lsn: int, wall_ns: int) -> None:
        """End the log by a CLOSE frame, so that the next record gets `next_lsn`."""
        if next_lsn != self._next_lsn:
            self._seal()
        if self._header is None:
            self._begin(next_lsn, wall_ns)
        self._put(b"", record_count=0, wall_ns=wall_ns, flags=Flag.CLOSE)
        self._seal()

    def _begin(self, first_lsn: int, wall_ns: int) -> None:
        salt = int.from_bytes(self._out.entropy(8), "little")
        self._header = SegmentHeader(
            store_uuid=self._uuid,
            segment_id=self._end.segment_id + 1,
            first_lsn=Lsn(first_lsn),
            salt=salt,
            size_bytes=0,
            created_ns=wall_ns,
            predecessor=self._end,
        )
        self._data = bytearray(SEGMENT_HEADER_BYTES)
        self._next_lsn = first_lsn

    def _put(
        self, body: bytes, *, record_count: int, wall_ns: int, flags: Flag
    ) -> None:
        assert self._header is not None
        frame = encode_frame(
            body,
            record_count=record_count,
            first_lsn=self._next_lsn,
            durable_lsn=self._next_lsn - 1,
            wall_ns=wall_ns,
            chain_crc=self._chain_crc,
            flags=flags,
            seed=self._header.seed,
            offset=len(self._data),
        )
        self._data += frame
        self._chain_crc = chain_of(frame)
        self._next_lsn += record_count

    def _seal(self) -> None:
        if self._header is None:
            return
        header = replace(self._header, size_bytes=len(self._data))
        self._data[:SEGMENT_HEADER_BYTES] = header.encode()
        write_new_file(self._out, header.name, bytes(self._data))
        self._end = SegmentEnd(
            header.segment_id,
            len(self._data),
            Lsn(self._next_lsn - 1),
            self._chain_crc,
        )
        self._header = None
        self._data.clear()
        self.segments += 1


def _copy_log(
    scan: Scan, begin: Callable[..., _LogCopier], snapshots: list[SnapshotInfo]
) -> tuple[_LogCopier, list[Fault]]:
    """Write all readable frames; return the copier, still open, and the faults."""
    copier: _LogCopier | None = None
    faults: list[Fault] = []
    for item in scan.items():
        if isinstance(item, Fault):
            faults.append(item)
        elif isinstance(item, Frame) and item.header.record_count:
            copier = copier or begin(end=_beginning(scan, snapshots))
            copier.add(item)
    return copier or begin(end=_beginning(scan, snapshots)), faults


def _beginning(scan: Scan, snapshots: list[SnapshotInfo]) -> SegmentEnd:
    """Return what the first new segment says of the log before it.

    If snapshots hold what was dropped, it names the end of that, so that the log without
    them is refused as it was in the source. If none does, it claims to be the first.
    """
    covered = max((info.pin_lsn for info in snapshots), default=0)
    if 0 < scan.base_lsn <= covered:
        return SegmentEnd(1, 0, Lsn(scan.base_lsn), 0)
    return NO_PREDECESSOR


def _next_lsn(scan: Scan, snapshots: list[SnapshotInfo], lost: list[Lost]) -> int:
    """Return a number that was surely never given out."""
    highest = max(scan.highest_lsn, reach_of(snapshots))
    if any(part.last is None for part in lost):
        return highest + 1 + LOST_TAIL_SKIP
    return highest + 1 + (0 if scan.closed else LSN_SKIP)


def _copy_snapshot(
    files: FileSystem,
    out: FileSystem,
    *,
    info: SnapshotInfo,
    uuid: bytes,
    new_uuid: bytes,
) -> None:
    writer = SnapshotWriter(
        out, new_uuid, pin_lsn=info.pin_lsn, wall_ns=info.created_ns
    )
    for block in read_snapshot(files, info.name, uuid):
        writer.add(block)
    writer.finish(reach_lsn=info.reach_lsn)


def _check_source(
    files: FileSystem, uuid: bytes, *, scan: Scan, snapshots: list[SnapshotInfo]
) -> None:
    """Refuse a copy in which an owner at work dropped what an older state needs."""
    covered = max((info.pin_lsn for info in snapshots), default=0)
    moved = scan.vanished > 0
    if scan.base_lsn > covered and not moved:
        moved = check_snapshots(files, uuid)[0] != snapshots
    if moved:
        raise StoreError(
            files.path,
            "its owner wrote a checkpoint meanwhile",
            "stop the owner, empty the new directory, and repair again",
        )


def _check_free(files: FileSystem, out: FileSystem) -> None:
    source, target = os.path.abspath(files.path), os.path.abspath(out.path)
    if source == target or target.startswith(os.path.join(source, "")):
        raise StoreError(
            out.path,
            "lies in the store that is to be repaired",
            "pass a new directory outside of it: a repair is never in place",
        )
    try:
        free = not out.exists() or not out.names()
    except NotADirectoryError:
        raise StoreError(out.path, "is a file", "pass a new directory") from None
    if not free:
        raise _not_free(out)


def _not_free(out: FileSystem) -> StoreError:
    return StoreError(
        out.path, "is not empty", "pass a new directory: nothing is overwritten"
    )
