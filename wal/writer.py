"""The write side of a log: the last segment, and how frames get into it.

`FramePlan` decides, at append time and without touching the disk, which frame and which
segment a record will go into; `SegmentWriter` puts frames there. One thread at a time
writes (the commit leader); planning happens under the log's lock.

Ctrl-C may come at any call and at any loop's end, nowhere else (CPython); so the changes
that belong together stand here in lines without either, and all happen or none.
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

    Args:
        pool: where full-size segments come from.
        next_lsn: the number of the next record.
        segment_size_bytes: of the pool's segments.
        offset: where in the segment of now the next frame goes.
        size: of that segment.

    Attributes:
        next_lsn: the number of the next record.
        bytes_waiting: of bodies that are not durable yet.
        records_waiting: likewise.
        bytes_written: of bodies that are.
    """

    def __init__(
        self,
        pool: SegmentPool,
        *,
        next_lsn: int,
        segment_size_bytes: int,
        offset: int,
        size: int,
    ) -> None:
        self._pool = pool
        self._segment_size_bytes = segment_size_bytes
        self._frames: deque[PendingFrame] = deque()
        self._in_flight: list[PendingFrame] = []
        self._offset = offset
        """Where the open frame starts, or the next one will."""
        self._limit = size - HEADER_BYTES  # a CLOSE frame must always fit
        self.next_lsn = next_lsn
        self.bytes_waiting = 0
        self.records_waiting = 0
        self.bytes_written = 0

    @property
    def body_bytes_max(self) -> int:
        """The largest group that fits a frame in a fresh segment."""
        room = self._segment_size_bytes - SEGMENT_HEADER_BYTES - 2 * HEADER_BYTES
        return min(BODY_BYTES_MAX, room)

    def __bool__(self) -> bool:
        return bool(self._frames)

    def add(self, body: bytes, *, record_count: int, urgent: bool) -> Lsn | None:
        """Plan a group of one or more records, which stays together in one frame.

        Returns:
            The number of its first record, or None, with nothing changed, if it needs
            a segment that is not ready.

        Raises:
            RecordTooLargeError: no frame can hold the group.
        """
        assert record_count > 0
        size = len(body)
        if size > self.body_bytes_max:
            raise RecordTooLargeError(size, self.body_bytes_max)
        first, opened = self.next_lsn, []
        frame = self._frames[-1] if self._frames else None
        offset, limit = self._offset, self._limit
        if frame is None or not self._fits(frame, size):
            rotate, offset, limit = self._place_of_next(size)
            if rotate and not self._pool.claim(urgent=urgent):
                return None
            frame = PendingFrame(first, rotate=rotate)
            opened = [frame]
        frame.body += body
        frame.record_count += record_count
        self._frames += opened
        self._offset = offset
        self._limit = limit
        self.next_lsn = first + record_count
        self.bytes_waiting += size
        self.records_waiting += record_count
        return Lsn(first)

    def take(self, *, everything: bool) -> list[PendingFrame]:
        """Return the frames to write now; nothing more is added to them.

        Those that an interrupted leader left are the first of them.

        Args:
            everything: all that wait, else only the oldest.
        """
        while self._frames and (everything or not self._in_flight):
            frame = self._frames[0]
            end = self._offset + frame_bytes(len(frame.body))
            if len(self._frames) == 1:
                self._offset = end
            self._in_flight += [frame]
            del self._frames[0]
        return self._in_flight

    def written(self) -> None:
        """Note that what was taken is durable and waits no longer."""
        size = sum([len(frame.body) for frame in self._in_flight])
        count = sum([frame.record_count for frame in self._in_flight])
        self._in_flight = []
        self.bytes_waiting -= size
        self.records_waiting -= count
        self.bytes_written += size

    def _fits(self, frame: PendingFrame, size_bytes: int) -> bool:
        total = len(frame.body) + size_bytes
        return (
            total <= self.body_bytes_max
            and self._offset + frame_bytes(total) <= self._limit
        )

    def _place_of_next(self, size_bytes: int) -> tuple[bool, int, int]:
        """Return where a new frame would go: in a new segment?, offset, limit."""
        offset = self._offset
        if self._frames:
            offset += frame_bytes(len(self._frames[-1].body))
        if offset + frame_bytes(size_bytes) <= self._limit:
            return False, offset, self._limit
        return True, SEGMENT_HEADER_BYTES, self._segment_size_bytes - HEADER_BYTES


class _Place(NamedTuple):
    """Where the next frame goes: replaced whole, so Ctrl-C never leaves half of it.

    `opened_by` is the frame for which this segment was begun, None for an opening one.
    """

    handle: Handle
    header: SegmentHeader
    seed: int
    offset: int
    last_lsn: Lsn
    chain_crc: int
    opened_by: PendingFrame | None = None


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
        self._coming: SegmentHeader | None = None
        self._unsynced = False
        self._place = self._begin(blank, predecessor, first_lsn=first_lsn, by=None)
        self._coming = None

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
        if frame.rotate and self._place.opened_by is not frame:
            self._rotate(frame)
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
                flags=Flag.RELAXED if relaxed else Flag.NONE,
                seed=place.seed,
                offset=place.offset,
            )
        if place.last_lsn < frame.first_lsn:
            write_fully(self._files, place.handle, frame.sealed, offset=place.offset)
            self._unsynced = True
            self._place = place._replace(
                offset=place.offset + len(frame.sealed),
                last_lsn=frame.last_lsn,
                chain_crc=chain_of(frame.sealed),
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

    def _rotate(self, frame: PendingFrame) -> None:
        self.sync()  # in every mode: the new header vouches for the old segment's end
        old = self._place.handle
        blank = self._pool.take()
        place = self._begin(blank, self.end(), first_lsn=frame.first_lsn, by=frame)
        self._place = place
        self._coming = None
        self._pool.in_hand = None
        # A short file has a successor that names its end, so if that one's file is ever
        # missing, this one's length tells.
        with contextlib.suppress(OSError):
            self._files.truncate(old, place.header.predecessor.offset)
        with contextlib.suppress(OSError):
            self._files.close(old)

    def _begin(
        self,
        blank: tuple[str, Handle],
        predecessor: SegmentEnd,
        *,
        first_lsn: int,
        by: PendingFrame | None,
    ) -> _Place:
        """Make the zero-filled `blank` the last segment, durably under its name."""
        name, handle = blank
        if self._coming is None:
            self._coming = SegmentHeader(
                store_uuid=self._uuid,
                segment_id=predecessor.segment_id + 1,
                first_lsn=Lsn(first_lsn),
                salt=int.from_bytes(self._files.entropy(8), "little"),
                size_bytes=self._files.size_bytes(handle),
                created_ns=self._wall_ns(),
                predecessor=predecessor,
            )
        # Else Ctrl-C left it: the file may have its name already, and a named segment's
        # header may only be written over by the very same bytes.
        header = self._coming
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
            Lsn(header.first_lsn - 1),
            predecessor.chain_crc,
            by,
        )
