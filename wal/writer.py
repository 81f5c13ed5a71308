"""The write side of a log: the last segment, and how frames get into it.

`FramePlan` (wal/plan.py) has decided which frame and which segment a record goes into;
`SegmentWriter` puts frames there. One thread at a time writes (the commit leader).

Ctrl-C may come at any call and at any loop's end, nowhere else (CPython); so the changes
that belong together stand here in lines without either, and all happen or none.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import NamedTuple

from wal.bodies import PendingFrame, chain_of, encode_frame
from wal.filesystem import FileSystem, Handle, write_fully
from wal.frame import Flag, Lsn
from wal.pool import SegmentPool
from wal.segment import SEGMENT_HEADER_BYTES, SegmentEnd, SegmentHeader


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

    @property
    def last_lsn(self) -> Lsn:
        """Of the last record written."""
        return self._place.last_lsn

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
                frame.body,
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
            self._place = tuple.__new__(  # a fifth of the time of _replace
                _Place,
                (
                    place.handle,
                    place.header,
                    place.seed,
                    place.offset + len(frame.sealed),
                    frame.last_lsn,
                    chain_of(frame.sealed),
                    place.opened_by,
                ),
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
