"""The write side of a log: the last segment, and how frames get into it.

`FramePlan` decides, at append time and without touching the disk, which frame and which
segment a record will go into; `SegmentWriter` puts frames there. One thread at a time
writes (the commit leader); planning happens under the log's lock.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from wal.errors import RecordTooLargeError
from wal.filesystem import FileSystem, Handle, write_fully
from wal.frame import (
    BODY_BYTES_MAX,
    HEADER_BYTES,
    Flag,
    Lsn,
    chain_of,
    encode_frame,
    frame_bytes,
)
from wal.pool import SegmentPool
from wal.segment import SEGMENT_HEADER_BYTES, SegmentEnd, SegmentHeader


class PendingFrame:
    """Records that will be written as one frame.

    Attributes:
        body: their encoding so far.
        record_count: how many.
        first_lsn: number of the first.
        rotate: whether the frame opens a new segment.
        sealed: the frame's bytes once the leader took it, kept so that a leader that
            was interrupted is followed by one that writes the very same bytes.
    """

    __slots__ = ("body", "first_lsn", "record_count", "rotate", "sealed")

    def __init__(self, first_lsn: int, *, rotate: bool) -> None:
        self.body = bytearray()
        self.record_count = 0
        self.first_lsn = first_lsn
        self.rotate = rotate
        self.sealed: bytes | None = None

    @property
    def last_lsn(self) -> Lsn:
        """Number of the last record."""
        return Lsn(self.first_lsn + self.record_count - 1)


class FramePlan:
    """Which frames wait to be written, each with a place that is already owned.

    Invariant: every planned rotation has claimed a ready segment, so writing a planned
    frame never finds the disk full.
    """

    def __init__(
        self, pool: SegmentPool, *, segment_size_bytes: int, offset: int, size: int
    ) -> None:
        self._pool = pool
        self._segment_size_bytes = segment_size_bytes
        self._frames: deque[PendingFrame] = deque()
        self._offset = offset
        """Where the open frame starts, or the next one will."""
        self._limit = size - HEADER_BYTES  # a CLOSE frame must always fit
        self.bytes_waiting = 0
        self.records_waiting = 0

    @property
    def body_bytes_max(self) -> int:
        """The largest group that fits a frame in a fresh segment."""
        room = self._segment_size_bytes - SEGMENT_HEADER_BYTES - 2 * HEADER_BYTES
        return min(BODY_BYTES_MAX, room)

    def __bool__(self) -> bool:
        return bool(self._frames)

    def add(
        self, body: bytes, *, record_count: int, first_lsn: int, urgent: bool
    ) -> bool:
        """Plan a group of records, which stays together in one frame.

        Returns:
            False, with nothing changed, if that needs a segment that is not ready.

        Raises:
            RecordTooLargeError: no frame can hold the group.
        """
        if len(body) > self.body_bytes_max:
            raise RecordTooLargeError(len(body), self.body_bytes_max)
        frame = self._frames[-1] if self._frames else None
        if frame is None or not self._fits(frame, len(body)):
            frame = self._open_frame(len(body), first_lsn, urgent=urgent)
            if frame is None:
                return False
        frame.body += body
        frame.record_count += record_count
        self.bytes_waiting += len(body)
        self.records_waiting += record_count
        return True

    def take(self) -> PendingFrame:
        """Remove and return the oldest frame; nothing more is added to it."""
        frame = self._frames.popleft()
        if not self._frames:
            self._offset += frame_bytes(len(frame.body))
        return frame

    def written(self, frame: PendingFrame) -> None:
        """Note that a taken frame is durable and waits no longer."""
        self.bytes_waiting -= len(frame.body)
        self.records_waiting -= frame.record_count

    def _fits(self, frame: PendingFrame, size_bytes: int) -> bool:
        total = len(frame.body) + size_bytes
        return (
            total <= self.body_bytes_max
            and self._offset + frame_bytes(total) <= self._limit
        )

    def _open_frame(
        self, size_bytes: int, first_lsn: int, *, urgent: bool
    ) -> PendingFrame | None:
        offset = self._offset
        if self._frames:
            offset += frame_bytes(len(self._frames[-1].body))
        rotate = offset + frame_bytes(size_bytes) > self._limit
        if rotate:
            if not self._pool.claim(urgent=urgent):
                return None
            offset = SEGMENT_HEADER_BYTES
            self._limit = self._segment_size_bytes - HEADER_BYTES
        self._offset = offset
        frame = PendingFrame(first_lsn, rotate=rotate)
        self._frames.append(frame)
        return frame


class _Place(NamedTuple):
    """Where the next frame goes: replaced whole, so Ctrl-C never leaves half of it."""

    handle: Handle
    header: SegmentHeader
    seed: int
    offset: int
    last_lsn: Lsn
    chain_crc: int


class SegmentWriter:
    """The last segment of a log. One thread at a time uses it.

    Ctrl-C may interrupt any method; calling it again with the same frame picks up where
    that one was cut off.

    Args:
        files: the store's directory.
        uuid: of the store.
        pool: where full-size segments come from.
        predecessor: where the log ended so far.
        first_lsn: the number of the first record that will be written here.
        blank: name and handle of a zero-filled file to begin with.
        wall_ns: the wall clock.

    Raises:
        OSError: the first segment could not be made durable.
    """

    def __init__(
        self,
        files: FileSystem,
        uuid: bytes,
        pool: SegmentPool,
        *,
        predecessor: SegmentEnd,
        first_lsn: int,
        blank: tuple[str, Handle],
        wall_ns: Callable[[], int],
    ) -> None:
        self._files = files
        self._uuid = uuid
        self._pool = pool
        self._wall_ns = wall_ns
        self._next: tuple[str, Handle] = blank
        self._unsynced = False
        self._place = self._begin(predecessor, first_lsn)

    @property
    def header(self) -> SegmentHeader:
        """What the segment's first block says."""
        return self._place.header

    @property
    def offset(self) -> int:
        """Where the next frame goes."""
        return self._place.offset

    def end(self) -> SegmentEnd:
        """Return where the segment ends now."""
        place = self._place
        return SegmentEnd(
            place.header.segment_id, place.offset, place.last_lsn, place.chain_crc
        )

    def write(self, frame: PendingFrame, *, durable_lsn: int, relaxed: bool) -> None:
        """Write a frame, un-synced, into this segment or the one that it opens.

        Args:
            frame: what `FramePlan.take` gave.
            durable_lsn: highest LSN known synced.
            relaxed: its records were acknowledged before this.

        Raises:
            OSError: final: nobody knows what the disk holds now.
        """
        if frame.rotate and self._place.header.first_lsn != frame.first_lsn:
            self._rotate(frame.first_lsn)
        if self._unsynced and not relaxed:
            # A durable frame proves that all before it is synced; so it must be.
            self.sync()
        place = self._place
        if frame.sealed is None:
            frame.sealed = encode_frame(
                bytes(frame.body),
                record_count=frame.record_count,
                first_lsn=frame.first_lsn,
                durable_lsn=durable_lsn,
                wall_ns=self._wall_ns(),
                chain_crc=place.chain_crc,
                flags=Flag.RELAXED if relaxed else Flag(0),
                seed=place.seed,
                offset=place.offset,
            )
        if place.last_lsn < frame.first_lsn:
            write_fully(self._files, place.handle, frame.sealed, offset=place.offset)
            self._unsynced = True
            self._place = _Place(
                place.handle,
                place.header,
                place.seed,
                place.offset + len(frame.sealed),
                frame.last_lsn,
                chain_of(frame.sealed),
            )

    def sync(self) -> None:
        """Make all that was written durable. Raises OSError: final."""
        self._files.datasync(self._place.handle)
        self._unsynced = False

    def close(self, *, mark: bool) -> None:
        """Close the file; with `mark` end it by a CLOSE frame and cut it to length."""
        place, files = self._place, self._files
        try:
            if mark:
                frame = encode_frame(
                    b"",
                    record_count=0,
                    first_lsn=place.last_lsn + 1,
                    durable_lsn=place.last_lsn,
                    wall_ns=self._wall_ns(),
                    chain_crc=place.chain_crc,
                    flags=Flag.CLOSE,
                    seed=place.seed,
                    offset=place.offset,
                )
                write_fully(files, place.handle, frame, offset=place.offset)
                files.datasync(place.handle)
                files.truncate(place.handle, place.offset + len(frame))
                files.sync(place.handle)
        finally:
            files.close(place.handle)

    def _rotate(self, first_lsn: int) -> None:
        self.sync()  # in every mode: the new header vouches for the old segment's end
        old = self._place.handle
        if self._next[1] == old:  # else Ctrl-C left one that was taken
            self._next = self._pool.take()
        self._place = self._begin(self.end(), first_lsn)
        with contextlib.suppress(OSError):
            self._files.close(old)

    def _begin(self, predecessor: SegmentEnd, first_lsn: int) -> _Place:
        """Make the zero-filled `_next` the last segment, durably under its name."""
        name, handle = self._next
        header = SegmentHeader(
            store_uuid=self._uuid,
            segment_id=predecessor.segment_id + 1,
            first_lsn=Lsn(first_lsn),
            salt=int.from_bytes(self._files.entropy(8), "little"),
            size_bytes=self._files.size_bytes(handle),
            created_ns=self._wall_ns(),
            predecessor=predecessor,
        )
        write_fully(self._files, handle, header.encode(), offset=0)
        # Synced before it has its name: a named segment always has a header, so a bad
        # one is damage. Named durably before any frame: an acknowledged frame is found.
        self._files.sync(handle)
        try:
            self._files.rename(name, header.name)
        except FileNotFoundError:
            # Ctrl-C after the rename of an earlier try? Else the file is really gone.
            if header.name not in self._files.names():
                raise
        self._files.sync_dir()
        return _Place(
            handle,
            header,
            header.seed,
            SEGMENT_HEADER_BYTES,
            Lsn(first_lsn - 1),
            predecessor.chain_crc,
        )
