"""Reading a whole log past its faults: for the tools, never for recovery.

Recovery (wal/reader.py) stops at the first fault, because a log with a hole is no log.
Who looks at a damaged store wants all of them, and what can still be read.

A scan writes nothing, locks nothing and works beside a live owner: files may vanish
(oldest first) or appear, and the last one may be caught in the middle of a write. So a
fault in the last segment counts only if it is still there after LOOKS more looks.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Final

from wal.errors import StoreError
from wal.faults import Fault, Lost
from wal.filesystem import FileSystem
from wal.frame import FormatError
from wal.recovery import LSN_SKIP
from wal.salvage import Frame, SegmentSalvage, rescue_header
from wal.segment import (
    SEGMENT_HEADER_BYTES,
    SegmentEnd,
    SegmentHeader,
    parse_segment_name,
)
from wal.segment_files import SegmentFile, list_segments, read_file

LOOKS: Final = 5
LOOK_EVERY_SECONDS: Final = 0.02


def pause_between_looks() -> None:
    """Give a live owner the time to complete a write."""
    threading.Event().wait(LOOK_EVERY_SECONDS)


class Scan:
    """One pass over all segments of a store, damaged or not. Use `items` once.

    Attributes:
        base_lsn: the records up to here were dropped; a snapshot should hold them.
        last_lsn: every number up to here is settled: read, lost, or never given out.
        highest_lsn: the highest number that may have been given out, as far as known.
        first_created_ns: when the first segment was made, 0 if unknown.
        last_wall_ns: wall clock of the last frame, 0 without one.
        first_file: name of the first segment, "" without any.
        last_file: of the last segment that was read.
        last_offset: where its good part ends.
        closed: the last frame is CLOSE.
        busy: the last segment was being written meanwhile.
        vanished: how many segments their owner dropped before they were read.
        overtaken: the last segment of the listing was one of those, or went while it was
            read: where the log ends now is not known.

    Args:
        files: the directory.
        uuid: of the store; segments of another one are faults.
        from_lsn: segments that end before this record are not read.
        pause: waits between two looks at a fault that may be a write under way.
    """

    def __init__(
        self,
        files: FileSystem,
        uuid: bytes,
        *,
        from_lsn: int = 0,
        pause: Callable[[], None] = pause_between_looks,
    ) -> None:
        self._files = files
        self._uuid = uuid
        self._from_lsn = from_lsn
        self._pause = pause
        self.base_lsn = 0
        self.last_lsn = 0
        self.highest_lsn = 0
        self.first_created_ns = 0
        self.last_wall_ns = 0
        self.first_file = ""
        self.last_file = ""
        self.last_offset = 0
        self.closed = False
        self.busy = False
        self.vanished = 0
        self.overtaken = False

    def items(self) -> Iterator[SegmentFile | Frame | Fault]:
        """Yield each segment, followed by its frames and faults, oldest first.

        Raises:
            StoreError: a file of a newer format.
            OSError: the disk cannot be read: no verdict.
        """
        before: SegmentFile | None = None
        rest = list_segments(self._files)
        while rest:
            segment = rest.pop(0)
            yield segment
            what = self._what_is_wrong(segment, before)
            header = self._usable_header(segment, before)
            if before is None and self._is_ours(segment):
                self._begin_at(segment)
            if header is None:
                assert what is not None
                yield self._useless(segment, before, what=what, is_last=not rest)
                continue
            if before is not None and _end_of(before, segment) is None:
                what = what or _missing(before, segment)
            if what is not None:
                yield self._broken_link(segment, before, what=what)
            before = segment
            self.closed = False
            self.last_lsn = max(self.last_lsn, header.first_lsn - 1)
            self.highest_lsn = max(self.highest_lsn, self.last_lsn)
            after = next((s for s in rest if self._is_ours(s)), None)
            if not self._is_skipped(segment, after):
                yield from self._segment(segment, header, after=after)

    # -- how segments hang together ---------------------------------------------------

    def _is_ours(self, segment: SegmentFile) -> bool:
        return segment.header is None or segment.header.store_uuid == self._uuid

    def _what_is_wrong(
        self, segment: SegmentFile, before: SegmentFile | None
    ) -> str | None:
        if segment.header is None:
            return "a damaged segment header, which no crash can leave"
        if not self._is_ours(segment):
            return "the segment of another store"
        if before is not None and before.segment_id == segment.segment_id:
            return f"the same segment as {before.name}"
        if segment.is_renamed:
            return f"the header of {segment.header.name}: the file was renamed"
        return None

    def _usable_header(
        self, segment: SegmentFile, before: SegmentFile | None
    ) -> SegmentHeader | None:
        """Return a header to read the segment by, None if it is of no use."""
        if not self._is_ours(segment) or (
            before is not None and before.segment_id == segment.segment_id
        ):
            return None
        if segment.header is not None:
            return segment.header
        data = self._read(segment)
        if data is None:
            return None
        try:
            return rescue_header(
                segment.name, data, uuid=self._uuid, block=segment.block
            )
        except FormatError as error:
            raise self._newer(segment, error) from error

    def _useless(
        self,
        segment: SegmentFile,
        before: SegmentFile | None,
        *,
        what: str,
        is_last: bool,
    ) -> Fault:
        """Return the fault of a file that gives nothing.

        What it held is told by the segment after it; if none is, only by its emptiness.
        """
        self.closed = False
        lost = None
        if segment.header is None and is_last:
            lost = self._lost_before(segment, before)
            self.highest_lsn = max(self.highest_lsn, segment.first_lsn - 1)
            data = self._read(segment) or b""
            if data[SEGMENT_HEADER_BYTES:].strip(b"\0"):
                lost = Lost(lost.first if lost else segment.first_lsn, None)
        return Fault(
            segment.name, 0, segment.first_lsn, what, records_at_stake=1, lost=lost
        )

    def _begin_at(self, segment: SegmentFile) -> None:
        self.first_file = self.last_file = segment.name
        if segment.header is not None:
            self.base_lsn = int(segment.header.predecessor.last_lsn)
            self.first_created_ns = segment.header.created_ns
        elif segment.segment_id > 1:
            self.base_lsn = segment.first_lsn - 1
        # What lies between was never given out, or a repair has told that it was lost.
        self.last_lsn = self.highest_lsn = segment.first_lsn - 1

    def _broken_link(
        self, segment: SegmentFile, before: SegmentFile | None, *, what: str
    ) -> Fault:
        """Return the fault at a segment's head, with the records missing before it."""
        lost = self._lost_before(segment, before)
        return Fault(
            segment.name,
            0,
            lost.first if lost is not None else segment.first_lsn,
            what,
            records_at_stake=1,
            lost=lost,
        )

    def _lost_before(
        self, segment: SegmentFile, before: SegmentFile | None
    ) -> Lost | None:
        """Return what lies between the last record read and a segment's head."""
        if segment.header is not None:
            claimed = int(segment.header.predecessor.last_lsn)
        else:
            claimed = segment.first_lsn - 1  # by its name
            follows = before is not None and segment.segment_id == before.segment_id + 1
            if follows and claimed - LSN_SKIP == self.last_lsn:
                return None  # it began after a crash, and nothing is missing
        if claimed <= self.last_lsn:
            return None
        lost = Lost(self.last_lsn + 1, claimed, exact=False)
        self.last_lsn = claimed
        return lost

    def _is_skipped(self, segment: SegmentFile, after: SegmentFile | None) -> bool:
        end = _end_of(segment, after)
        if end is None or end.last_lsn >= self._from_lsn:
            return False
        self.last_lsn = int(end.last_lsn)
        return True

    # -- one segment --------------------------------------------------------------------

    def _segment(
        self,
        segment: SegmentFile,
        header: SegmentHeader,
        *,
        after: SegmentFile | None,
    ) -> Iterator[Frame | Fault]:
        data = self._read(segment)
        if data is None:
            self.vanished += 1
            self.overtaken = after is None
            return
        salvage = SegmentSalvage(
            segment.name,
            data,
            header=header,
            end=_end_of(segment, after),
            is_last=after is None,
        )
        try:
            for item in self._passes(segment, salvage):
                self._note(item)
                yield item
        except FormatError as error:
            raise self._newer(segment, error) from error
        if salvage.end is not None:
            self.last_lsn = max(self.last_lsn, salvage.end.last_lsn)
        self.closed = salvage.closed
        self.last_file, self.last_offset = segment.name, salvage.offset

    def _passes(
        self, segment: SegmentFile, salvage: SegmentSalvage
    ) -> Iterator[Frame | Fault]:
        """Yield frames, then what stops them, and again, until the segment ends."""
        while True:
            yield from salvage.frames()
            goes_on = salvage.is_last and self._goes_on(segment, salvage)
            if goes_on is None:
                self.vanished += 1
                self.overtaken = True
                return
            if goes_on:
                self.busy = True
                continue
            fault = salvage.fault()
            if fault is None:
                return
            yield fault
            if fault.torn or fault.next_offset is None:
                return

    def _goes_on(self, segment: SegmentFile, salvage: SegmentSalvage) -> bool | None:
        """Return whether the place where a last segment stops was a write under way.

        True if the frame there holds now, or if the log has moved on to a new segment,
        whose header tells where this one ends. None if the file was dropped meanwhile:
        then nobody can say any more what stood there.
        """
        looks = LOOKS if salvage.is_suspicious() else 0
        for look in range(looks + 1):
            if look > 0:
                self._pause()
                data = self._read(segment)
                if data is None:
                    return None
                if salvage.holds_in(data):
                    return True
            after = self._successor_by_now(segment)
            if after is not None:
                data = self._read(segment)
                if data is None:
                    return None
                salvage.is_last = False
                salvage.end = _end_of(segment, after)
                salvage.holds_in(data)
                return True
        return False

    def _successor_by_now(self, segment: SegmentFile) -> SegmentFile | None:
        named = map(parse_segment_name, self._files.names())
        if not any(n is not None and n[0] > segment.segment_id for n in named):
            return None
        found = filter(self._is_ours, list_segments(self._files))
        return next((s for s in found if s.segment_id > segment.segment_id), None)

    def _read(self, segment: SegmentFile) -> bytes | None:
        """Return the bytes of a segment, None if its owner dropped it meanwhile."""
        try:
            return read_file(self._files, segment.name)
        except FileNotFoundError:
            ids = [s.segment_id for s in list_segments(self._files)]
            if not ids or min(ids) <= segment.segment_id:
                raise  # an owner drops the oldest first: somebody else did this
            return None

    def _newer(self, segment: SegmentFile, error: FormatError) -> StoreError:
        return StoreError(
            f"{self._files.path}/{segment.name}",
            str(error),
            "look at it with a newer version of this package",
        )

    def _note(self, item: Frame | Fault) -> None:
        if isinstance(item, Frame):
            header = item.header
            self.last_lsn = max(self.last_lsn, int(header.last_lsn))
            self.last_wall_ns = header.wall_ns
            reached = self.last_lsn
        else:
            lost = item.lost
            reached = (lost.last or lost.first) if lost is not None else 0
        self.highest_lsn = max(self.highest_lsn, reached)


def _end_of(segment: SegmentFile, after: SegmentFile | None) -> SegmentEnd | None:
    """Return where a segment ends according to the next one, None if it has none."""
    header = after.header if after is not None else None
    if header is None or header.predecessor.segment_id != segment.segment_id:
        return None
    return header.predecessor


def _missing(before: SegmentFile, segment: SegmentFile) -> str:
    count = segment.segment_id - before.segment_id - 1
    return f"{count} segment(s) missing or unreadable after {before.name}"
