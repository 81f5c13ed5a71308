"""From a directory to a log that can be appended to: lock, read, then begin anew.

`Recovery.open` locks the directory and finds the newest valid snapshot;
`groups` reads and verifies the log after it; `finish` keeps what is cut off, begins a new
segment and creates the store if it is new. Until `finish` no byte changes, so whatever goes
wrong before leaves the files as they were.

After an unclean end the old tail is never appended to: the next segment names its exact
end, and its numbers begin LSN_SKIP higher, so that the number of a record that was cut
off never comes back.
"""

from __future__ import annotations

import contextlib
import errno
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from wal.errors import DiskFullError, LogClosedError, LogCorruptError, StoreError
from wal.filesystem import NO_ROOM, FileSystem, Handle, write_new_file
from wal.frame import Flag, Group, Lsn
from wal.pool import SegmentPool, ready_names, zero_fill
from wal.reader import LogReader, SegmentReader
from wal.segment import NO_PREDECESSOR, SegmentEnd
from wal.snapshot import (
    SnapshotDamagedError,
    SnapshotInfo,
    read_snapshot,
    snapshot_names,
    verify_snapshot,
)
from wal.store import (
    OPENING_NAME,
    TEMPORARY_SUFFIX,
    StoreIdentity,
    clear_birth,
    is_store,
    new_identity,
    read_identity,
    take_lock,
    write_holder,
    write_identity,
)
from wal.tail import Tail, Verdict
from wal.writer import SegmentWriter

LSN_SKIP: Final = 1 << 20
"""How much higher numbers begin after an unclean end: more than can be un-synced."""
OPENING_SEGMENT_BYTES: Final = 1 << 20
"""Size of the segment made on the spot at open; the pool's full-size ones follow."""

_NOT_WRITABLE: Final = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
_logger = logging.getLogger("wal")


@dataclass(frozen=True, slots=True)
class Report:
    """What opening a log found.

    Attributes:
        clean: the log had been closed, or is new.
        last_lsn: of the last record kept.
        last_wall_ns: wall clock when the last frame was written; 0 for a new log.
        snapshot: what recovery started from, None for the whole log.
        damaged_snapshots: files that failed their check and were passed over.
        torn_file: where the bytes that were cut off are kept, None if none were. On a
            full disk that is the segment itself, which is then left as long as it is.
        torn_bytes: how many, up to the last one that is not zero.
        torn_what: what they were, in words.
        doubtful: the cut bytes might have been damage; see wal/tail.py.
    """

    clean: bool
    last_lsn: Lsn
    last_wall_ns: int
    snapshot: SnapshotInfo | None
    damaged_snapshots: tuple[str, ...]
    torn_file: str | None = None
    torn_bytes: int = 0
    torn_what: str = ""
    doubtful: bool = False


class Recovery:
    """A locked directory whose log is being read. Make it with `Recovery.open`.

    Attributes:
        files: the directory.
        lock: the handle that holds it.
        identity: what STORE says, or will say.
        born: whether this is a new store.
        snapshot: the newest valid one, None without one.
    """

    def __init__(
        self,
        files: FileSystem,
        lock: Handle,
        *,
        identity: StoreIdentity,
        born: bool,
        atomic_sectors: bool,
    ) -> None:
        """For `Recovery.open` alone."""
        self.files = files
        self.lock = lock
        self.identity = identity
        self.born = born
        self.snapshot: SnapshotInfo | None = None
        self._damaged_snapshots: list[str] = []
        self._read_to_end = False
        self._reader: LogReader | None = None
        if not born:
            # A killed owner may have left names that are not on the disk yet, and what
            # is built on them must not get there first.
            files.sync_dir()
            self._reader = LogReader(
                files, identity.uuid, atomic_sectors=atomic_sectors, settle=True
            )
            self._choose_snapshot()

    @classmethod
    def open(
        cls,
        files: FileSystem,
        *,
        create: bool,
        atomic_sectors: bool,
        wall_ns: Callable[[], int],
    ) -> Recovery:
        """Lock a directory and look what it holds. Raises as `Log.open`."""
        try:
            born = not is_store(files, create=create)
            if born:
                files.make_directory()
            lock = take_lock(files)
        except (NotADirectoryError, FileExistsError) as error:
            raise StoreError(
                files.path,
                "cannot be made: a part of the path is a file",
                "pass the path of a directory",
            ) from error
        except OSError as error:
            if error.errno not in _NOT_WRITABLE:
                raise
            raise StoreError(
                files.path,
                f"is not writable ({error.strerror})",
                "change its permissions, or pass another directory",
            ) from error
        try:
            if born:
                # Somebody may have created it between the look and the lock.
                born = not is_store(files, create=create)
            identity = new_identity(files, wall_ns()) if born else read_identity(files)
            return cls(
                files,
                lock,
                identity=identity,
                born=born,
                atomic_sectors=atomic_sectors,
            )
        except BaseException:
            files.close(lock)
            raise

    def snapshot_blocks(self) -> Iterator[bytes]:
        """Yield the blocks of the snapshot, if there is one."""
        if self.snapshot is not None:
            yield from read_snapshot(self.files, self.snapshot.name, self.identity.uuid)

    def groups(self, *, joined_bytes: int = 0) -> Iterator[Group]:
        """Yield the groups after the snapshot, oldest first; used up before `finish`.

        Args:
            joined_bytes: see `Log.groups`.

        Raises:
            LogCorruptError: at the first fault that no crash can leave.
        """
        if self._reader is None:
            self._read_to_end = True
            return
        snapshot = self.snapshot
        after_lsn = snapshot.pin_lsn if snapshot else 0
        yield from self._reader.groups(after_lsn, joined_bytes=joined_bytes)
        last = self._reader.last
        if last is None:
            raise StoreError(
                self.files.path,
                "holds STORE but no segment of a log",
                "bring the wal-*.seg files back from a backup",
            )
        if snapshot is not None and last.last_lsn < snapshot.reach_lsn:
            raise LogCorruptError(
                self.files.path,
                last.header.name,
                offset=last.offset,
                expected_lsn=last.last_lsn + 1,
                what=f"the log ends before LSN {snapshot.reach_lsn}, which "
                f"{snapshot.name} proves was durable",
                records_at_stake=snapshot.reach_lsn - last.last_lsn,
            )
        self._read_to_end = True

    def finish(
        self, pool: SegmentPool, *, segment_size_bytes: int, wall_ns: Callable[[], int]
    ) -> tuple[SegmentWriter, Report]:
        """Begin a new segment after what was read; from here on the log is writable.

        Raises:
            LogClosedError: reading did not reach the end, because the log was refused,
                or the disk failed.
            DiskFullError: there are no blocks for a segment.
            OSError: the disk failed.
        """
        if not self._read_to_end:
            raise LogClosedError(
                f"{self.files.path}: reading the log did not reach its end, so nothing "
                "can be appended; open it again"
            )
        try:
            if self._reader is None:
                return self._give_birth(pool, segment_size_bytes, wall_ns)
            return self._follow(pool, segment_size_bytes, wall_ns)
        except OSError as error:
            if error.errno in NO_ROOM:
                raise DiskFullError(self.files.path, error) from error
            raise

    def _choose_snapshot(self) -> None:
        """Take the newest valid snapshot; note the others."""
        for name in snapshot_names(self.files):
            try:
                self.snapshot = verify_snapshot(self.files, name, self.identity.uuid)
            except SnapshotDamagedError as error:
                _logger.warning(
                    "snapshot passed over: %s", error, extra={"store": self.files.path}
                )
                self._damaged_snapshots.append(name)
            else:
                return

    def _give_birth(
        self, pool: SegmentPool, segment_size_bytes: int, wall_ns: Callable[[], int]
    ) -> tuple[SegmentWriter, Report]:
        clear_birth(self.files)
        writer = self._begin(
            pool,
            NO_PREDECESSOR,
            1,
            segment_size_bytes=segment_size_bytes,
            wall_ns=wall_ns,
        )
        # STORE comes last: it proves that there was a log.
        write_identity(self.files, self.identity)
        write_holder(self.files, self.lock, wall_ns())
        return writer, Report(
            clean=True,
            last_lsn=Lsn(0),
            last_wall_ns=0,
            snapshot=None,
            damaged_snapshots=(),
        )

    def _follow(
        self, pool: SegmentPool, segment_size_bytes: int, wall_ns: Callable[[], int]
    ) -> tuple[SegmentWriter, Report]:
        assert self._reader is not None
        last, tail = self._reader.last, self._reader.tail
        assert last is not None, "groups() was not used up"
        assert tail is not None, "groups() was not used up"
        self._clear_temporaries()
        end, clean = last.end(), Flag.CLOSE in last.last_flags
        torn_file, torn_bytes = None, 0
        if tail.verdict is Verdict.CUT:
            torn_file, torn_bytes = self._keep_torn(last, tail)
        writer = self._begin(
            pool,
            end,
            end.last_lsn + 1 + (0 if clean else LSN_SKIP),
            segment_size_bytes=segment_size_bytes,
            wall_ns=wall_ns,
        )
        if not clean and torn_file != last.header.name:
            # The successor names the old end now: what lies behind it is only space.
            with contextlib.suppress(OSError):
                self._cut(last.header.name, end.offset)
        write_holder(self.files, self.lock, wall_ns())
        return writer, Report(
            clean=clean,
            last_lsn=end.last_lsn,
            last_wall_ns=last.last_wall_ns,
            snapshot=self.snapshot,
            damaged_snapshots=tuple(self._damaged_snapshots),
            torn_file=torn_file,
            torn_bytes=torn_bytes,
            torn_what=tail.what if torn_file is not None else "",
            doubtful=tail.doubtful,
        )

    def _begin(
        self,
        pool: SegmentPool,
        end: SegmentEnd,
        first_lsn: int,
        *,
        segment_size_bytes: int,
        wall_ns: Callable[[], int],
    ) -> SegmentWriter:
        size = min(OPENING_SEGMENT_BYTES, segment_size_bytes)
        return SegmentWriter(
            self.files,
            self.identity.uuid,
            pool,
            predecessor=end,
            first_lsn=first_lsn,
            blank=self._opening_segment(pool, size),
            wall_ns=wall_ns,
        )

    def _opening_segment(self, pool: SegmentPool, size: int) -> tuple[str, Handle]:
        """Return a small zero-filled file, or on a full disk one made ready before."""
        files = self.files
        try:
            return OPENING_NAME, _make_blank(files, OPENING_NAME, size)
        except OSError as error:
            spare = pool.find_blank(ready_names(files))
            if error.errno not in NO_ROOM or spare is None:
                raise
            return spare, files.open(spare, writable=True)

    def _keep_torn(self, last: SegmentReader, tail: Tail) -> tuple[str, int]:
        """Copy the bytes that will be cut off aside, and say so.

        A disk without room for the copy leaves them where they are: the next segment
        names the end before them, so nobody reads them.
        """
        cut = last.data[last.offset :].rstrip(b"\0")
        name = f"{last.header.name}.{last.offset:08x}.torn"
        try:
            write_new_file(self.files, name, cut)
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            name = last.header.name
        _logger.log(
            logging.ERROR if tail.doubtful else logging.WARNING,
            "torn tail after LSN %d cut: %s; %d bytes kept as %s",
            last.last_lsn,
            tail.what,
            len(cut),
            name,
            extra={"store": self.files.path, "lsn": last.last_lsn},
        )
        return name, len(cut)

    def _clear_temporaries(self) -> None:
        ready = ready_names(self.files)
        for name in self.files.names():
            if name.endswith(TEMPORARY_SUFFIX) and name not in ready:
                self.files.unlink(name)

    def _cut(self, name: str, size_bytes: int) -> None:
        handle = self.files.open(name, writable=True)
        try:
            self.files.truncate(handle, size_bytes)
        finally:
            self.files.close(handle)


def _make_blank(files: FileSystem, name: str, size_bytes: int) -> Handle:
    """Return a new file of zeros; on an error leave none behind."""
    handle = files.create(name)
    try:
        for _ in zero_fill(files, handle, size_bytes):
            pass
    except OSError:
        files.close(handle)
        files.unlink(name)
        raise
    return handle
