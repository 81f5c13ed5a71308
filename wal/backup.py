"""A copy of a log that its owner goes on writing, as a legal crash would leave it.

No lock is taken and the owner notices nothing. Why the copy is one that an open accepts:

- Frames are never rewritten, so the log up to any frame that holds is what a kill at
  that moment would leave. A pass reads each segment, judges it as `verify` does, and
  copies it up to the last frame that holds; behind that the copy has zeros.
- The first pass comes before the snapshots are copied, so the copied log begins where
  some snapshot reaches; the last pass comes after, so it ends behind all that they need.
- In between `follow` copies what has come since, before its owner can drop it. Should
  one be dropped in spite of that, the copy starts again.
- `STORE` is written last: until then the copy is no store, whatever happens. It is read
  back to the end before anybody is told that it is done.

The copy has the uuid of the source: a store's checksums and ids rest on it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from wal.errors import LogCorruptError, StoreError
from wal.faults import Fault
from wal.filesystem import FileSystem, Handle, opened, write_fully
from wal.inspection import (
    Progress,
    Verification,
    check_snapshots,
    survey,
    verify,
)
from wal.salvage import Frame
from wal.scan import Scan, pause_between_looks
from wal.segment import SEGMENT_HEADER_BYTES, SegmentHeader
from wal.segment_files import SegmentFile, is_of_a_log
from wal.store import LOCK_NAME, STORE_NAME, write_identity

COPY_BYTES: Final = 1 << 20
TRIES: Final = 8
"""How often a copy is begun anew because its owner dropped what was to be copied."""

Follow = Callable[[], None]


class _OvertakenError(Exception):
    """The owner has dropped a file before it was copied, or so it seems.

    Attributes:
        fault: what the copy lacks, None if a file was gone.
    """

    def __init__(self, fault: Fault | None = None) -> None:
        super().__init__()
        self.fault = fault


def copy_live(
    files: FileSystem,
    out: FileSystem,
    *,
    meanwhile: Callable[[Follow], None] = lambda _follow: None,
    progress: Progress | None = None,
    pause: Callable[[], None] = pause_between_looks,
) -> Verification:
    """Copy a store that may be in use into an empty directory, and verify the copy.

    Afterwards `out` holds everything that was durable when the call began, and some of
    what came later. A torn tail of the source is left out, as an open would cut it.

    Args:
        files: the source; nothing of it is changed, and no lock is taken.
        out: an empty directory that exists.
        meanwhile: copies what belongs to the snapshots and must not be older than they
            are, nor newer than the log; it calls its argument every few MiB. It may be
            called again, after all of `out` was removed.
        progress: called after each file with the bytes copied and those there are.
        pause: waits between two looks at what may be a write under way.

    Raises:
        StoreError: it is no store, or a newer one; or its owner was faster, TRIES times.
        LogCorruptError: acknowledged data is damaged; `out` is then no store.
        OSError: a disk failed or is full; `out` is then no store.

    Cost: O(bytes), read twice and written once; one segment in memory at a time.
    """
    lacks: Fault | None = None
    for _ in range(TRIES):
        try:
            return _Copy(files, out, progress=progress, pause=pause).run(meanwhile)
        except _OvertakenError as error:
            lacks = error.fault
            for name in out.names():
                out.unlink(name)
    if lacks is not None:
        raise _refusal(files, lacks)  # no owner drops files so that this remains
    raise StoreError(
        files.path,
        f"was dropping its log faster than it could be copied, {TRIES} times",
        "try again when there is less to do, or copy to a faster disk",
    )


class _Copy:
    """One try. Invariant: all segments in `out` but the last are whole and in a row."""

    def __init__(
        self,
        files: FileSystem,
        out: FileSystem,
        *,
        progress: Progress | None,
        pause: Callable[[], None],
    ) -> None:
        self._files = files
        self._out = out
        self._progress = progress
        self._pause = pause
        # Not the databases: if this process has one open, closing another handle of
        # its file would end SQLite's locks.
        self._store = survey(files, _is_read)
        self._last: SegmentHeader | None = None  # the last segment that was copied
        self._last_end = 0
        self._done = 0
        sizes = self._store.sizes.items()
        self._total = sum(size for name, size in sizes if is_of_a_log(name))
        for fault in self._store.faults:
            raise _refusal(self._files, fault)

    def run(self, meanwhile: Callable[[Follow], None]) -> Verification:
        """Copy all, in the order that the module's head gives."""
        identity = self._store.identity
        assert identity is not None, "or a fault was raised"
        self._follow()
        self._copy_snapshots()
        meanwhile(self._follow)
        self._follow()
        self._out.sync_dir()
        write_identity(self._out, identity)
        found = verify(self._out, pause=lambda: None)
        if found.faults:
            # The source was good where it was read: what is missing was dropped.
            raise _OvertakenError(found.faults[0])
        return found

    # -- the log ----------------------------------------------------------------------

    def _follow(self) -> None:
        """Copy what was added to the log since the last pass.

        Raises:
            _OvertakenError: a segment in between is gone.
            LogCorruptError: acknowledged data is damaged.
        """
        from_lsn = 0 if self._last is None else int(self._last.first_lsn)
        scan = Scan(self._files, self._store.uuid, from_lsn=from_lsn, pause=self._pause)
        segment: SegmentFile | None = None
        end = 0
        for item in scan.items():
            if isinstance(item, SegmentFile):
                self._take(segment, end, is_last=False, is_closed=False)
                segment, end = item, SEGMENT_HEADER_BYTES
            elif isinstance(item, Frame):
                end = item.offset + item.header.frame_bytes
            elif not item.torn:
                self._require_there()
                raise _refusal(self._files, item)
        if scan.vanished:
            raise _OvertakenError
        self._take(segment, end, is_last=True, is_closed=scan.closed)

    def _take(
        self,
        segment: SegmentFile | None,
        end: int,
        *,
        is_last: bool,
        is_closed: bool,
    ) -> None:
        """Copy a segment up to `end`, unless it is in the copy as it is."""
        if segment is None:
            return
        header, last = segment.header, self._last
        assert header is not None, "or the scan found a fault"
        if last is not None:
            if header.segment_id < last.segment_id:
                return
            if header.segment_id > last.segment_id + 1:
                raise _OvertakenError
            if header.segment_id == last.segment_id and end <= self._last_end:
                return
        # An open takes a last segment for cut off if it is shorter than its header says.
        size = end if is_closed or not is_last else max(end, header.size_bytes)
        self._copy(segment.name, end, size_bytes=size)
        self._last, self._last_end = header, end

    # -- the rest ---------------------------------------------------------------------

    def _copy_snapshots(self) -> None:
        snapshots, faults = check_snapshots(self._files, self._store.uuid)
        for fault in faults:
            raise _refusal(self._files, fault)
        for info in snapshots:
            self._copy(
                info.name, info.size_bytes, size_bytes=info.size_bytes, follows=True
            )

    def _copy(
        self, name: str, end: int, *, size_bytes: int, follows: bool = False
    ) -> None:
        """Copy the first bytes of a file, and give the copy a size; the rest is zeros."""
        try:
            with opened(self._files, name) as source:
                handle = self._out.create(name)
                try:
                    self._copy_bytes(source, handle, end, follows=follows)
                    self._out.truncate(handle, size_bytes)
                    self._out.sync(handle)
                finally:
                    self._out.close(handle)
        except FileNotFoundError:
            raise _OvertakenError from None
        self._done += size_bytes
        if self._progress is not None:
            self._total = max(self._total, self._done)
            self._progress(self._done, self._total)

    def _copy_bytes(
        self, source: Handle, handle: Handle, end: int, *, follows: bool
    ) -> None:
        for at in range(0, end, COPY_BYTES):
            data = self._files.pread(source, min(COPY_BYTES, end - at), at)
            write_fully(self._out, handle, data, offset=at)
            if follows and at and at % (8 * COPY_BYTES) == 0:
                self._follow()

    def _require_there(self) -> None:
        """Raise _OvertakenError if the owner has dropped what was copied last.

        What looks like damage then may be a segment that went while it was read.
        """
        if self._last is not None and self._last.name not in self._files.names():
            raise _OvertakenError


def _is_read(name: str) -> bool:
    return is_of_a_log(name) or name in (STORE_NAME, LOCK_NAME)


def _refusal(files: FileSystem, fault: Fault) -> LogCorruptError:
    return LogCorruptError(
        files.path,
        fault.file,
        offset=fault.offset,
        expected_lsn=fault.expected_lsn,
        what=fault.what,
        next_offset=fault.next_offset,
        next_lsn=fault.next_lsn,
        records_at_stake=fault.records_at_stake,
    )
