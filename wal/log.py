"""The log: records in, LSNs out; what was committed survives.

    with Log.open("./data", wall_ns=time.time_ns) as log:
        for record in log.read():            # read mode: what was there before
            print(record.lsn, record.payload)
        lsn = log.append(b"payload")         # append mode from the first append on
        log.commit(lsn)                      # durable now

A log is in read mode or in append mode, never both: reading verifies every byte it
passes, and `start` (or the first append) turns the page. Until then no byte has changed,
so a failed open leaves all as it was.

Threads: any thread may call any method of append mode. Append is ordered by the caller.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Literal, Self

from wal.bodies import FramePlan, encode_records
from wal.commit import GroupCommit
from wal.errors import LogClosedError, LogFailedError, WalError
from wal.filesystem import FileSystem
from wal.forking import register_at_fork, unregister_at_fork
from wal.frame import Group, Lsn, decode_records
from wal.histogram import Histogram
from wal.pool import SegmentPool, ready_names
from wal.recovery import Recovery, Report
from wal.retention import Retired, retire
from wal.segment import SEGMENT_HEADER_BYTES
from wal.segment_files import is_of_a_log, is_segment, sizes_of
from wal.snapshot import SnapshotInfo, SnapshotWriter
from wal.store import StoreIdentity, clear_holder

Durability = Literal["durable", "interval"]

SEGMENT_SIZE_BYTES: Final = 16 << 20
SEGMENT_SIZE_BYTES_MIN: Final = SEGMENT_HEADER_BYTES + 1024
SEGMENT_SIZE_BYTES_MAX: Final = 1 << 30
RESERVE_BYTES: Final = 64 << 20
UNSYNCED_BYTES_MAX: Final = 8 << 20
UNSYNCED_RECORDS_MAX: Final = 65_536
INTERVAL_MS: Final = 50
MEMORY_RETRY_SECONDS: Final = 0.1
JOINED_BYTES: Final = 256 << 10
"""A good size for `joined_bytes`: it stays in a processor's cache."""
SYNC_BOUNDS_NS: Final = tuple(
    microseconds * 1_000
    for microseconds in (
        *(50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000),
        *(100_000, 250_000, 500_000, 1_000_000, 5_000_000),
    )
)
"""Bounds of the histogram of syncs, ns: a good disk takes 0.1 ms, a bad one seconds."""


class RoomNeededError(WalError):
    """The record needs a segment that is not ready: `make_room`, then append again.

    Attributes:
        urgent: what to pass to `make_room`.
    """

    def __init__(self, *, urgent: bool) -> None:
        super().__init__("the next segment is not ready yet: make_room, then try again")
        self.urgent = urgent


@dataclass(frozen=True, slots=True)
class Record:
    """One record read back."""

    lsn: Lsn
    payload: bytes


@dataclass(frozen=True, slots=True)
class LogStats:
    """The state of a log in append mode, in numbers.

    Attributes:
        appended_lsn: of the last record appended.
        durable_lsn: of the last record that is durable.
        segment_id: of the segment being written.
        segment_offset: where its next frame goes.
        segments_ready: full-size segments made ahead and not yet claimed.
        bytes_waiting: appended and not yet durable.
        records_waiting: likewise.
        disk_full: the last try to make a segment found no space.
        scrub_errors: damaged files found and set aside when they were to be dropped.
    """

    appended_lsn: Lsn
    durable_lsn: Lsn
    segment_id: int
    segment_offset: int
    segments_ready: int
    bytes_waiting: int
    records_waiting: int
    disk_full: bool
    scrub_errors: int


class Log:
    """One log in one directory. Open it with `Log.open`.

    Invariants: LSNs grow by one a record inside a segment and are never used twice; a
    record is durable once `sync` of its LSN returned; `durable_lsn <= appended_lsn`.

    Attributes:
        durability: what `commit` promises.
        report: what opening found; None in read mode.
    """

    def __init__(
        self,
        recovery: Recovery,
        *,
        wall_ns: Callable[[], int],
        monotonic_ns: Callable[[], int] | None = None,
        durability: Durability,
        interval_ms: float,
        segment_size_bytes: int,
        reserve_bytes: int,
        background: bool,
    ) -> None:
        """For `Log.open` alone."""
        self.durability = durability
        self.report: Report | None = None
        self.syncs: Final = Histogram(SYNC_BOUNDS_NS)
        """How long each sync of a commit took, if `monotonic_ns` was given."""
        self._recovery = recovery
        self._files = recovery.files
        self._wall_ns = wall_ns
        self._monotonic_ns = monotonic_ns
        self._interval_s = interval_ms / 1000
        self._segment_size_bytes = segment_size_bytes
        self._background = background
        self._groups: Iterator[Group] | None = None
        self._closed = False
        self._forked = False
        self._appending = False
        """Whether `start` is through, and nothing since has ended append mode."""
        self._scrub_errors = 0
        self._pool = SegmentPool(
            self._files,
            size_bytes=segment_size_bytes,
            reserve=max(1, -(-reserve_bytes // segment_size_bytes)),
            background=background,
        )
        self._mutex = threading.Lock()
        self._work = threading.Condition(self._mutex)
        self._wanted_lsn = 0
        self._resting = False
        """Whether the commit thread waits for work and nobody has told it of any."""
        self._committer: threading.Thread | None = None

    # -- open and read ----------------------------------------------------------------

    @classmethod
    def open(
        cls,
        place: str | os.PathLike[str] | FileSystem,
        *,
        wall_ns: Callable[[], int],
        monotonic_ns: Callable[[], int] | None = None,
        create: bool = True,
        durability: Durability = "durable",
        interval_ms: float = INTERVAL_MS,
        segment_size_bytes: int = SEGMENT_SIZE_BYTES,
        reserve_bytes: int = RESERVE_BYTES,
        atomic_sectors: bool = True,
        background: bool = True,
    ) -> Log:
        """Lock a directory and return its log in read mode; nothing has changed yet.

        Args:
            place: the directory, or a file system over one.
            wall_ns: returns the wall clock, ns since 1970; recorded, never ordered by.
            monotonic_ns: returns a monotonic clock, ns; syncs are timed by it.
            create: whether an empty or missing directory becomes a new store.
            durability: "durable": `commit` returns when the disk has it. "interval": at
                once; a kill or a power loss can take the last `interval_ms`.
            interval_ms: how often the latter writes and syncs, 1 .. 60,000.
            segment_size_bytes: of files to come, SEGMENT_SIZE_BYTES_MIN .. _MAX, a
                multiple of 512.
            reserve_bytes: blocks kept for urgent records when the disk is full.
            atomic_sectors: False for disks that may tear 512-byte sectors: then some
                damage cannot be told from a torn write, and is cut.
            background: False runs no threads: segments are made when needed, and in
                interval mode the caller syncs. For tests that step.

        Raises:
            StoreError: the path is no store, cannot become one, is not writable, or of
                a newer format.
            StoreInUseError: somebody else holds it.
            LogCorruptError: a segment's header is damaged, or a segment is missing.
            ValueError: an option out of range; the message names it.
            OSError: the disk cannot be read.
        """
        _check_options(durability, interval_ms, segment_size_bytes, reserve_bytes)
        recovery = Recovery.open(
            place if isinstance(place, FileSystem) else FileSystem(place),
            create=create,
            atomic_sectors=atomic_sectors,
            wall_ns=wall_ns,
        )
        log = cls(
            recovery,
            wall_ns=wall_ns,
            monotonic_ns=monotonic_ns,
            durability=durability,
            interval_ms=interval_ms,
            segment_size_bytes=segment_size_bytes,
            reserve_bytes=reserve_bytes,
            background=background,
        )
        register_at_fork(log)
        return log

    @property
    def path(self) -> str:
        """The directory."""
        return self._files.path

    @property
    def identity(self) -> StoreIdentity:
        """What STORE says."""
        return self._recovery.identity

    @property
    def snapshot(self) -> SnapshotInfo | None:
        """The snapshot that recovery starts from, None without one."""
        return self._recovery.snapshot

    def snapshot_blocks(self) -> Iterator[bytes]:
        """Yield the blocks of the snapshot that recovery starts from, if there is one."""
        return self._recovery.snapshot_blocks()

    def groups(self, *, joined_bytes: int = 0) -> Iterator[Group]:
        """Yield the groups after the snapshot, oldest first. Once, in read mode.

        Args:
            joined_bytes: groups that follow each other come as one, if their bodies
                are not more than this together: quicker where groups are small.

        Raises:
            LogCorruptError: at the first fault that no crash can leave.
            LogClosedError: a second time, or in append mode.
        """
        if self._groups is not None or self.report is not None or self._closed:
            raise LogClosedError(
                f"{self.path}: a log is read once, before the first append; open it "
                "again, or read it beside its owner: python -m wal inspect"
            )
        self._groups = self._recovery.groups(joined_bytes=joined_bytes)
        return self._groups

    def read(self) -> Iterator[Record]:
        """Yield the records after the snapshot, oldest first; raises as `groups`."""
        for group in self.groups(joined_bytes=JOINED_BYTES):
            for place, payload in enumerate(decode_records(group.body)):
                yield Record(Lsn(group.first_lsn + place), payload)

    def drop_ready(self) -> bool:
        """In read mode: give the room of one segment made ahead back to the disk.

        For what the owner of the log needs room for on a full disk, before `start`.

        Returns:
            False if none is left.

        Raises:
            OSError: the disk failed.
        """
        self._require_owner()
        assert self.report is None, "in append mode they are the pool's"
        for name in ready_names(self._files):
            self._files.unlink(name)
            return True
        return False

    def start(self) -> Report:
        """Enter append mode: keep what is cut off, begin a new segment, run threads.

        Reads what has not been read yet. The first append calls it, if nobody has.

        Raises:
            LogCorruptError: as `groups`; nothing was changed then.
            DiskFullError: no blocks for a first segment.
            OSError: the disk failed.
        """
        if self.report is not None:
            return self.report
        self._check_usable()
        rest = self._groups
        for _ in self.groups(joined_bytes=JOINED_BYTES) if rest is None else rest:
            pass
        writer, report = self._recovery.finish(
            self._pool,
            segment_size_bytes=self._segment_size_bytes,
            wall_ns=self._wall_ns,
        )
        self._writer = writer
        self._plan = FramePlan(
            self._pool,
            next_lsn=writer.header.first_lsn,
            segment_size_bytes=self._segment_size_bytes,
            offset=writer.offset,
            size=writer.header.size_bytes,
        )
        self._commits = GroupCommit(
            self.path,
            mutex=self._mutex,
            flush=self._flush,
            durable_lsn=writer.end().last_lsn,
        )
        self.report = report
        self._appending = True
        self._pool.start(ready_names(self._files))
        if self._background:
            self._committer = threading.Thread(
                target=self._run_committer, name="wal-commit", daemon=True
            )
            self._committer.start()
        return report

    # -- append and commit ------------------------------------------------------------

    @property
    def durable_lsn(self) -> Lsn:
        """The highest LSN that is durable."""
        self._require_append_mode()
        return self._commits.durable_lsn

    @property
    def appended_lsn(self) -> Lsn:
        """The LSN of the last record appended, durable or not."""
        if not self._appending:
            self._require_append_mode()
        return Lsn(self._plan.next_lsn - 1)

    @property
    def next_lsn(self) -> Lsn:
        """The number that the next record will get."""
        if not self._appending:
            self._require_append_mode()
        return Lsn(self._plan.next_lsn)

    def append(self, payload: bytes) -> Lsn:
        """Append one record and return its LSN; durable only after `commit`.

        Waits while too much is un-synced or the next segment is being made.

        Raises:
            RecordTooLargeError: no frame can hold it; nothing was changed.
            DiskFullError: nothing was changed.
            LogFailedError: the disk failed before.
            LogClosedError: the log is closed.
        """
        self.start()
        self.admit()
        body = encode_records([payload])
        while True:
            try:
                return self.append_group(body, 1)
            except RoomNeededError:
                self.make_room()

    def append_group(
        self, body: bytes, record_count: int, *, urgent: bool = False
    ) -> Lsn:
        """Append encoded records that hold together or not at all. Never waits.

        Args:
            body: `encode_records` of them; at most one frame's worth.
            record_count: how many.
            urgent: may use the reserve of a full disk: for what removes work.

        Returns:
            The LSN of the first.

        Raises:
            RoomNeededError: call `make_room` without your own locks, then again.
            RecordTooLargeError: the group fits no frame.
            LogFailedError: the disk failed before.
            LogClosedError: the log is closed.
        """
        with self._mutex:
            if not self._appending or self._commits.failure is not None:
                self._require_append_mode()
                self._check_usable()
            plan = self._plan
            wakes = self.durability == "interval" and not plan
            first = plan.add(body, record_count=record_count, urgent=urgent)
            if first is None:
                raise RoomNeededError(urgent=urgent)
            if wakes:
                self._work.notify()
            return first

    @property
    def congested(self) -> bool:
        """Whether `admit` would wait."""
        if not self._appending:
            self._require_append_mode()
        plan = self._plan
        return (
            plan.bytes_waiting > UNSYNCED_BYTES_MAX
            or plan.records_waiting > UNSYNCED_RECORDS_MAX
        )

    def admit(self) -> None:
        """Wait while too much is un-synced: call before `append_group`, without locks.

        Raises:
            CommitUnknownError: the disk failed meanwhile.
        """
        while self.congested:
            self.sync()

    def make_room(self, *, urgent: bool = False) -> None:
        """Return when `append_group` will find a segment.

        Raises:
            DiskFullError: the disk has no space for one now.
            OSError: it failed in making one; the log itself is unharmed.
            LogFailedError: the disk failed before.
            LogClosedError: the log is closed.
        """
        self._require_append_mode()
        self._check_usable()
        self._pool.wait(urgent=urgent)

    def commit(self, lsn: int | None = None) -> None:
        """Return when the records up to `lsn` (default: all) are as safe as promised.

        Durable, or under `durability="interval"` at once.

        Raises:
            CommitUnknownError: the disk failed first.
            LogFailedError: it had failed before.
        """
        if self.durability == "durable":
            self.sync(lsn)
        elif not self._appending or self._commits.failure is not None:
            self._require_append_mode()
            self._check_usable()

    def sync(self, lsn: int | None = None) -> None:
        """Return when the records up to `lsn` (default: all) are durable, in any mode.

        Raises:
            CommitUnknownError: the disk failed first.
            ValueError: no record has that number yet.
        """
        if lsn is None or not self._appending or lsn >= self._plan.next_lsn:
            lsn = self._appended(lsn)
        self._commits.wait(lsn)

    def commit_soon(self, lsn: int) -> None:
        """Have the commit thread make `lsn` durable; returns at once.

        For callers that must not wait, as event loops; a listener tells them.

        Raises:
            CommitUnknownError: only without threads (`background=False`).
            ValueError: no record has that number yet.
        """
        if not self._appending or lsn >= self._plan.next_lsn:
            self._appended(lsn)
        if self.durability == "interval":
            return
        if self._committer is None:
            self.sync(lsn)
            return
        with self._mutex:
            if lsn > self._wanted_lsn:
                self._wanted_lsn = lsn
                if self._resting:
                    self._work.notify()
                    # One notice is enough, however many ask; noted after it, so that one
                    # which Ctrl-C cut off is given by the next who asks.
                    self._resting = False

    def add_listener(self, listener: Callable[[], None]) -> None:
        """Have `listener` called after each commit and after a failure.

        By whichever thread led the commit: it must be quick and must not raise.
        """
        self._require_append_mode()
        self._commits.listeners.append(listener)

    @property
    def bytes_written(self) -> int:
        """Bytes of records made durable since this log was opened."""
        return self._plan.bytes_written

    @property
    def failure(self) -> BaseException | None:
        """What stopped the log for good, None while it works."""
        return self._commits.failure if self.report is not None else None

    def stats(self) -> LogStats:
        """Return the state of the log, in append mode, in numbers."""
        self._require_append_mode()
        with self._mutex:
            return LogStats(
                appended_lsn=self.appended_lsn,
                durable_lsn=self._commits.durable_lsn,
                segment_id=self._writer.header.segment_id,
                segment_offset=self._writer.offset,
                segments_ready=self._pool.ready,
                bytes_waiting=self._plan.bytes_waiting,
                records_waiting=self._plan.records_waiting,
                disk_full=self._pool.full,
                scrub_errors=self._scrub_errors,
            )

    def segment_sizes(self) -> list[int]:
        """Return the size of each segment, bytes. Cost: opens each file."""
        return list(sizes_of(self._files, is_segment).values())

    def file_sizes(self) -> dict[str, int]:
        """Return the segments and snapshots by name, with their sizes in bytes.

        Raises:
            OSError: the directory cannot be read.

        Cost: each file is opened and none is read.
        """
        return sizes_of(self._files, is_of_a_log)

    # -- snapshots --------------------------------------------------------------------

    def begin_snapshot(self) -> SnapshotWriter:
        """Begin a snapshot pinned at the present durable LSN. One at a time.

        Raises:
            OSError: the disk is full or failed; the log itself is unharmed.
        """
        self._require_append_mode()
        self._check_usable()
        return SnapshotWriter(
            self._files,
            self.identity.uuid,
            pin_lsn=self.durable_lsn,
            wall_ns=self._wall_ns(),
        )

    def finish_snapshot(
        self, writer: SnapshotWriter, *, reach_lsn: int
    ) -> tuple[SnapshotInfo, Retired]:
        """Complete a snapshot, verify it, and drop what two snapshots cover.

        Args:
            writer: with all its blocks.
            reach_lsn: the last LSN whose effect may be in a block.

        Raises:
            SnapshotDamagedError: it did not come back as written; nothing was dropped.
            CommitUnknownError: the log failed before it reached `reach_lsn`.
            OSError: the disk is full or failed.
        """
        self.sync(reach_lsn)
        self._check_usable()
        info = writer.finish(reach_lsn=reach_lsn)
        retired = retire(self._files, self.identity.uuid)
        self._scrub_errors += len(retired.damaged)
        return info, retired

    # -- the end ----------------------------------------------------------------------

    def close(self) -> None:
        """Make everything durable, mark the log as closed, and unlock the directory.

        A log that failed, or is still in read mode, is only unlocked. Idempotent.

        Raises:
            CommitUnknownError: the disk failed in the last commit.
            OSError: the mark could not be written: the next open takes it as unclean.
        """
        with self._mutex:
            if self._closed:
                return
            self._closed = True  # first, so that nothing can follow the CLOSE frame
            self._appending = False
            self._work.notify_all()
        try:
            if self.report is not None and not self._forked:
                self._finish()
        finally:
            if not self._forked:
                self._files.close(self._recovery.lock)
            unregister_at_fork(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def check(self) -> None:
        """Assert the invariants. For tests."""
        assert self._commits.durable_lsn <= self.appended_lsn
        self._commits.check()
        self._pool.check()

    # -- inside -----------------------------------------------------------------------

    def _flush(self) -> Lsn:
        """Write the oldest frame (in interval mode all of them) and sync."""
        relaxed = self.durability == "interval"
        durable_lsn, writer = self._commits.durable_lsn, self._writer
        with self._mutex:
            frames = self._plan.take(everything=relaxed)
        for frame in frames:
            writer.write(frame, durable_lsn=durable_lsn, relaxed=relaxed)
        if self._monotonic_ns is None:
            writer.sync()
        else:
            begun_ns = self._monotonic_ns()
            writer.sync()
            self.syncs.add(self._monotonic_ns() - begun_ns)
        with self._mutex:
            self._plan.written()
        return writer.last_lsn

    def _run_committer(self) -> None:
        """Commit for those who cannot: event loops, and everybody in interval mode."""
        interval = self.durability == "interval"
        while True:
            with self._mutex:
                while not self._closed and not (
                    self._plan
                    if interval
                    else self._wanted_lsn > self._commits.durable_lsn
                ):
                    self._resting = True
                    self._work.wait()
                if self._closed:
                    return
                if interval:
                    self._work.wait(self._interval_s)
                lsn = self.appended_lsn if interval else self._wanted_lsn
            try:
                self.sync(lsn)
            except WalError:
                return  # everybody learns of it from the listeners and their next call
            except MemoryError:
                with self._mutex:  # nothing was lost; it is tried again
                    self._work.wait(MEMORY_RETRY_SECONDS)

    def _finish(self) -> None:
        last_lsn = self.appended_lsn
        try:
            if self.failure is None:
                self._drain(last_lsn)
        finally:
            if self._committer is not None:
                self._committer.join()
            self._pool.stop()
            whole = self.failure is None and self._commits.durable_lsn == last_lsn
            self._writer.close(mark=whole)
            clear_holder(self._files, self._recovery.lock)

    def _drain(self, last_lsn: int) -> None:
        try:
            self._commits.wait(last_lsn)
        except KeyboardInterrupt:
            self._commits.wait(last_lsn)  # nobody may be writing when the file closes
            raise

    def _appended(self, lsn: int | None) -> int:
        """Return `lsn`, or that of the last record, if there is such a record."""
        last = self.appended_lsn
        if lsn is None:
            return last
        if lsn > last:
            raise ValueError(f"lsn={lsn!r}: the last record appended is {last}")
        return lsn

    def _require_append_mode(self) -> None:
        self._require_owner()
        if self.report is None:
            state = "closed" if self._closed else "in read mode: start it, or append"
            raise LogClosedError(f"{self.path}: the log is {state}")

    def _require_owner(self) -> None:
        if self._forked:
            raise LogFailedError(
                self.path, RuntimeError("this process is a fork of the log's owner")
            )

    def _check_usable(self) -> None:
        self._require_owner()
        if self._closed:
            raise LogClosedError(f"{self.path}: the log is closed")
        failure = self.failure
        if failure is not None:
            raise LogFailedError(self.path, failure)

    def leave_to_parent(self) -> None:
        """In a forked child: give up the copy of the lock without unlocking it."""
        self._forked = True
        self._appending = False
        self._mutex = threading.Lock()
        self._work = threading.Condition(self._mutex)
        self._files.close(self._recovery.lock)


def _check_options(
    durability: str, interval_ms: float, segment_size_bytes: int, reserve_bytes: int
) -> None:
    if durability not in ("durable", "interval"):
        raise ValueError(f'durability={durability!r}: use "durable" or "interval"')
    if not 1 <= interval_ms <= 60_000:
        raise ValueError(f"interval_ms={interval_ms!r}: use 1 to 60,000")
    if (
        not SEGMENT_SIZE_BYTES_MIN <= segment_size_bytes <= SEGMENT_SIZE_BYTES_MAX
        or segment_size_bytes % 512
    ):
        raise ValueError(
            f"segment_size_bytes={segment_size_bytes!r}: use a multiple of 512 from "
            f"{SEGMENT_SIZE_BYTES_MIN:,} to {SEGMENT_SIZE_BYTES_MAX:,}"
        )
    if reserve_bytes < 0:
        raise ValueError(f"reserve_bytes={reserve_bytes!r}: use 0 or more")
