"""Which frames wait to be written, and where each will go: the group buffer of a log.

`FramePlan` decides at append time, and without touching the disk, which frame and which
segment a record goes into; planning happens under the log's lock, and wal/writer.py
follows the plan. This is the plain body, to be read and to check the other by;
wal/bodies.py chooses.

Ctrl-C may come at any call and at any loop's end, nowhere else (CPython); so the changes
that belong together stand here in lines without either, and all happen or none.
"""

from __future__ import annotations

from collections import deque

from wal.errors import RecordTooLargeError
from wal.frame import BODY_BYTES_MAX, HEADER_BYTES, Lsn, frame_bytes
from wal.pool import SegmentPool
from wal.segment import SEGMENT_HEADER_BYTES


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
        offset: where in the present segment the next frame goes.
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
        # What may find no memory comes first, so all of it happens or nothing.
        count, next_lsn = frame.record_count + record_count, first + record_count
        waiting = self.bytes_waiting + size, self.records_waiting + record_count
        frame.body += body
        if opened:
            self._frames += opened
        frame.record_count = count
        self._offset = offset
        self._limit = limit
        self.next_lsn = next_lsn
        self.bytes_waiting, self.records_waiting = waiting
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
