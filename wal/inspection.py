"""Looking at a store from outside: verify it, sum it up, show what is in it.

Nothing here writes, takes the lock or makes a file, so all of it works on a store that
another process holds, on a copy, and on a damaged one. It knows bytes and no more: who
knows what records mean passes `describe` to `inspect`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from wal.errors import StoreError
from wal.faults import Fault, Lost
from wal.filesystem import FileSystem
from wal.salvage import Frame
from wal.scan import Scan, pause_between_looks
from wal.segment import claims_of_damaged_header, parse_segment_name
from wal.segment_files import (
    SegmentFile,
    is_of_a_log,
    list_segments,
    read_file,
    sizes_of,
)
from wal.snapshot import (
    SnapshotDamagedError,
    SnapshotInfo,
    parse_snapshot_name,
    snapshot_names,
    verify_snapshot,
)
from wal.store import (
    LOCK_NAME,
    STORE_NAME,
    StoreIdentity,
    decode_identity,
    is_store,
    left_by_birth,
)

Progress = Callable[[int, int], None]
"""Called with (bytes done, bytes in all)."""


@dataclass(frozen=True, slots=True)
class Survey:
    """What a directory holds, by its names and its `STORE`.

    Attributes:
        identity: what `STORE` says, None if it is damaged or missing.
        uuid: of the store; without `STORE`, according to the segments.
        faults: of `STORE`.
        holder: what `LOCK` says of the owner; text that a crash left, or "".
        sizes: of every file, in bytes.
    """

    identity: StoreIdentity | None
    uuid: bytes
    faults: tuple[Fault, ...]
    holder: str
    sizes: dict[str, int]


def survey(
    files: FileSystem, is_wanted: Callable[[str], bool] = lambda _: True
) -> Survey:
    """Return what a directory holds.

    Args:
        files: the directory.
        is_wanted: which files are told of, by the name; see `sizes_of`.

    Raises:
        StoreError: it is no store, one of a newer format, or nothing tells whose log
            lies there.
        OSError: the disk cannot be read.
    """
    sizes = sizes_of(files, is_wanted)
    identity, what = None, None
    if STORE_NAME in sizes:
        path = f"{files.path}/{STORE_NAME}"
        identity = decode_identity(read_file(files, STORE_NAME), path)
        if identity is None:
            what = "its checksum does not hold: the identity of the store is damaged"
    elif any(is_of_a_log(name) and not left_by_birth(files, name) for name in sizes):
        what = "missing, though a log is there"
    else:
        is_store(files, create=False)  # says what the directory is instead
    uuid = identity.uuid if identity is not None else _uuid_of_log(files)
    holder = ""
    if LOCK_NAME in sizes:
        holder = read_file(files, LOCK_NAME).decode("utf-8", "replace").strip()
    faults = (Fault(STORE_NAME, 0, 1, what),) if what is not None else ()
    return Survey(identity, uuid, faults, holder, sizes)


@dataclass(frozen=True, slots=True)
class Verification:
    """What a look at every byte that counts found.

    Attributes:
        faults: all of them, in the order of the log.
        snapshots: those that hold, newest first.
        segments: how many segments were read.
        frames: how many frames hold.
        frame_bytes: what those take.
        records: how many records they hold.
        first_lsn: of the first of them, 0 without one.
        last_lsn: of the last of them, 0 without one.
        last_wall_ns: wall clock of the last frame, 0 without one.
        closed: the log was closed: its last frame is CLOSE.
        busy: it was being written meanwhile.
        holder: what `LOCK` says of the owner, or "".
    """

    faults: tuple[Fault, ...]
    snapshots: tuple[SnapshotInfo, ...]
    segments: int
    frames: int
    frame_bytes: int
    records: int
    first_lsn: int
    last_lsn: int
    last_wall_ns: int
    closed: bool
    busy: bool
    holder: str

    @property
    def corrupt(self) -> bool:
        """Whether something is damaged that had been acknowledged."""
        return any(not fault.torn for fault in self.faults)

    @property
    def torn(self) -> bool:
        """Whether all that is wrong is what a crash leaves."""
        return bool(self.faults) and not self.corrupt


def verify(
    files: FileSystem,
    *,
    progress: Progress | None = None,
    pause: Callable[[], None] = pause_between_looks,
) -> Verification:
    """Check every segment and snapshot of a store to its end.

    Args:
        files: the directory.
        progress: called after each file.
        pause: waits between two looks at what may be a write under way.

    Raises:
        StoreError: it is no store, or one of a newer format.
        OSError: the disk cannot be read: no verdict.

    Cost: O(bytes), one segment in memory at a time.
    """
    store = survey(files)
    done = 0
    total = sum(size for name, size in store.sizes.items() if is_of_a_log(name))

    def advance(size_bytes: int) -> None:
        nonlocal done
        done += size_bytes
        if progress is not None:
            progress(min(done, total), total)

    snapshots, faults = check_snapshots(files, store.uuid, advance=advance)
    scan = Scan(files, store.uuid, pause=pause)
    sums = _Sums()
    under_way = 0
    for item in scan.items():
        if isinstance(item, SegmentFile):
            advance(under_way)
            under_way = item.size_bytes
        sums.add(item)
    advance(under_way)
    # A snapshot that comes after the pass reaches further than what was read.
    reach_lsn = reach_of(snapshots)
    if scan.base_lsn > _covered(snapshots):
        # A live owner may have replaced the snapshots, and dropped the log before them.
        snapshots, faults = check_snapshots(files, store.uuid)
    ends = faults_at_ends(scan, snapshots, reach_lsn=reach_lsn)
    faults = [*store.faults, *faults, *sums.faults, *ends]
    return Verification(
        faults=tuple(faults),
        snapshots=tuple(snapshots),
        segments=sums.segments,
        frames=sums.frames,
        frame_bytes=sums.frame_bytes,
        records=sums.records,
        first_lsn=sums.first_lsn,
        last_lsn=sums.last_lsn,
        last_wall_ns=scan.last_wall_ns,
        closed=scan.closed,
        busy=scan.busy,
        holder=store.holder,
    )


def check_snapshots(
    files: FileSystem, uuid: bytes, *, advance: Callable[[int], None] | None = None
) -> tuple[list[SnapshotInfo], list[Fault]]:
    """Return the snapshots that hold, newest first, and what is wrong with the others.

    Args:
        files: the directory.
        uuid: of the store.
        advance: called with the size of each when it is done.
    """
    valid, faults = [], []
    for name in snapshot_names(files):
        try:
            info = verify_snapshot(files, name, uuid)
        except SnapshotDamagedError as error:
            pin_lsn = parse_snapshot_name(name) or 0
            faults.append(Fault(name, error.offset, pin_lsn, f"snapshot: {error.what}"))
        except FileNotFoundError:
            continue  # its owner has just dropped it
        else:
            valid.append(info)
            if advance is not None:
                advance(info.size_bytes)
    return valid, faults


def reach_of(snapshots: Sequence[SnapshotInfo]) -> int:
    """Return how far the log was durable according to its snapshots, or 0."""
    return max((info.reach_lsn for info in snapshots), default=0)


def faults_at_ends(
    scan: Scan, snapshots: Sequence[SnapshotInfo], *, reach_lsn: int
) -> list[Fault]:
    """Return what is missing before the first and behind the last segment.

    Args:
        scan: after its `items` were used up.
        snapshots: those that hold, newest first.
        reach_lsn: how far the log was durable before the scan began (`reach_of`).
    """
    covered = _covered(snapshots)
    faults = []
    if not scan.first_file:
        what, lost = "there is no segment of the log", Lost(covered + 1, None)
        faults.append(_lack(STORE_NAME, 0, what=what, lost=lost))
    elif scan.base_lsn > covered:
        lost = Lost(covered + 1, scan.base_lsn, exact=False)
        what = (
            f"the log starts after LSN {scan.base_lsn}, and no snapshot that holds "
            f"reaches further than LSN {covered}"
        )
        faults.append(_lack(scan.first_file, 0, what=what, lost=lost))
    if scan.first_file and not scan.overtaken and reach_lsn > scan.last_lsn:
        lost = Lost(scan.last_lsn + 1, reach_lsn)
        what = (
            f"the log ends before LSN {reach_lsn}, which a snapshot proves was durable"
        )
        faults.append(_lack(scan.last_file, scan.last_offset, what=what, lost=lost))
    return faults


@dataclass(frozen=True, slots=True)
class StoreStats:
    """A store in figures.

    Attributes:
        identity: what `STORE` says, None if it cannot be read.
        verification: what was found on the way.
        files: how many there are of each kind, and their bytes.
    """

    identity: StoreIdentity | None
    verification: Verification
    files: dict[str, tuple[int, int]]

    @property
    def bytes_per_record(self) -> float:
        """What a record takes in the log, its share of frames included."""
        checked = self.verification
        return checked.frame_bytes / checked.records if checked.records else 0.0


KINDS = ("segment", "snapshot", "ready", "torn", "damaged", "temporary", "other")
"""What the files of a store are; see `kind_of`."""


def kind_of(name: str) -> str:
    """Return what a file of a store is, one of KINDS, by its name."""
    if parse_segment_name(name) is not None:
        return "segment"
    if parse_snapshot_name(name) is not None:
        return "snapshot"
    if name.startswith("ready-") and name.endswith(".tmp"):
        return "ready"
    suffix = name.rpartition(".")[2]
    return {"torn": "torn", "damaged": "damaged", "tmp": "temporary"}.get(
        suffix, "other"
    )


def stat(
    files: FileSystem, *, pause: Callable[[], None] = pause_between_looks
) -> StoreStats:
    """Return a store in figures; reads all of it, and raises as `verify`."""
    store = survey(files)
    counts = dict.fromkeys(KINDS, (0, 0))
    for name, size in store.sizes.items():
        count, total = counts[kind_of(name)]
        counts[kind_of(name)] = (count + 1, total + size)
    return StoreStats(store.identity, verify(files, pause=pause), counts)


def iso_utc(wall_ns: int) -> str:
    """Return a wall clock in ISO 8601, to the nanosecond; "never" for 0."""
    if not wall_ns:
        return "never"
    seconds, rest = divmod(wall_ns, 1_000_000_000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest:09d}Z"


# -- inside ----------------------------------------------------------------------------


@dataclass(slots=True)
class _Sums:
    """What a pass over the log adds up to."""

    faults: list[Fault] = field(default_factory=list)
    segments: int = 0
    frames: int = 0
    frame_bytes: int = 0
    records: int = 0
    first_lsn: int = 0
    last_lsn: int = 0

    def add(self, item: SegmentFile | Frame | Fault) -> None:
        if isinstance(item, Fault):
            self.faults.append(item)
        elif isinstance(item, SegmentFile):
            self.segments += 1
        else:
            self.frames += 1
            self.frame_bytes += item.header.frame_bytes
            if item.header.record_count:
                self.records += item.header.record_count
                self.first_lsn = self.first_lsn or item.header.first_lsn
                self.last_lsn = item.header.last_lsn


def _covered(snapshots: Sequence[SnapshotInfo]) -> int:
    return max((info.pin_lsn for info in snapshots), default=0)


def _lack(file: str, offset: int, *, what: str, lost: Lost) -> Fault:
    return Fault(
        file, offset, lost.first, what, records_at_stake=lost.count or 1, lost=lost
    )


def _uuid_of_log(files: FileSystem) -> bytes:
    """Return whose log lies here according to most segments, or to a damaged one."""
    segments = list_segments(files)
    said = Counter(s.header.store_uuid for s in segments if s.header is not None)
    for uuid, _ in said.most_common(1):
        return uuid
    for segment in segments:
        claims = claims_of_damaged_header(segment.block)
        if claims is not None:
            return claims[0]
    raise StoreError(
        files.path,
        f"neither {STORE_NAME} nor any segment tells which store this is",
        f"bring {STORE_NAME} back from a backup",
    )
