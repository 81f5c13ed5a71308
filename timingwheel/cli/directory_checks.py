"""What the doctor looks at in a directory before it opens it.

space    what is free where it lies, and whether that is a disk at all
clock    whether the clock stands before the last record
lock     who holds it, and whether a lock means something on that file system
log      every segment and snapshot, read to its end
history  the databases beside the log, each page of them

Nothing here takes the lock or changes a file.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from timingwheel.cli.complaint import Complaint
from timingwheel.stores.sqlite_files import find_damage
from wal.filesystem import FileSystem
from wal.inspection import Verification, iso_utc, verify
from wal.log import SEGMENT_SIZE_BYTES
from wal.segment_files import sizes_of

LOOKS: Final = ("space", "clock", "lock", "log", "history")
SNAPSHOTS_FREE: Final = 2
"""A new snapshot is written beside the one it replaces; and what is due grows."""
FILES_FREE_MIN: Final = 64
CLOCK_BEHIND_NS: Final = 1_000_000_000
_MIB: Final = 1 << 20
_NETWORK: Final = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "fuse.sshfs"}
)
_MEMORY: Final = frozenset({"tmpfs", "ramfs"})


class Examination(NamedTuple):
    """What was found in a directory.

    Attributes:
        complaints: what is wrong, or needs attention.
        notes: one line for each of LOOKS.
    """

    complaints: list[Complaint]
    notes: dict[str, str]

    @property
    def may_open(self) -> bool:
        """Whether opening it can tell more: it refuses what it cannot read."""
        return all(one.kind not in {"damage", "unread"} for one in self.complaints)


def examine(files: FileSystem, now_ns: int) -> Examination:
    """Return what is to be seen in a directory.

    Args:
        files: the directory.
        now_ns: the wall clock, ns since 1970.

    Raises:
        StoreError: it is no store, or one of a newer format.
        OSError: the disk cannot be read.

    Cost: O(bytes).
    """
    if not files.exists():
        return Examination([], {})  # opening it says so
    found = verify(files)
    sizes = sizes_of(files)
    complaints = [
        *_of_space(files, found),
        *_of_clock(found, now_ns),
        *_of_lock(files),
        *_of_log(found, files.path),
        *_of_history(files, sizes),
    ]
    databases = {name: size for name, size in sizes.items() if name.endswith(".db")}
    # Only who takes the lock could tell the two apart, and nothing is taken here.
    held = f"held by {found.holder}, or left so by a crash"
    notes = {
        "space": f"{files.free().size_bytes // _MIB:,} MiB are free",
        "clock": f"last written at {iso_utc(found.last_wall_ns)}",
        "lock": held if found.holder else "nobody holds it",
        "log": f"{found.records:,} records up to LSN {found.last_lsn}",
        "history": ", ".join(
            f"{name} of {size // 1024:,} KiB" for name, size in databases.items()
        )
        or "none yet",
    }
    return Examination(complaints, notes)


def _of_space(files: FileSystem, found: Verification) -> Iterator[Complaint]:
    free, kind = files.free(), files.kind()
    if kind in _MEMORY:
        yield Complaint(
            "space",
            "in_memory",
            files.path,
            f"it lies in memory ({kind}): a power loss or a reboot takes all of it",
            "move it to a disk",
            is_passing=True,
        )
    snapshot = max((info.size_bytes for info in found.snapshots), default=0)
    wanted = SEGMENT_SIZE_BYTES + SNAPSHOTS_FREE * snapshot
    if free.size_bytes < SEGMENT_SIZE_BYTES:
        yield Complaint(
            "space",
            "disk_full",
            files.path,
            f"{free.size_bytes // _MIB:,} MiB are free: no new job can be taken once the "
            "present segment is full",
            "free space there; it goes on by itself",
        )
    elif free.size_bytes < wanted:
        yield Complaint(
            "space",
            "low_space",
            files.path,
            f"{free.size_bytes // _MIB:,} MiB are free, and a new snapshot beside the "
            f"old one may need {wanted // _MIB:,}",
            "free space there: without new snapshots the log grows",
            is_passing=True,
        )
    if free.files is not None and free.files < FILES_FREE_MIN:
        yield Complaint(
            "space",
            "no_inodes",
            files.path,
            f"{free.files:,} more files can be made there",
            "remove small files of others: each segment is a file",
        )


def _of_clock(found: Verification, now_ns: int) -> Iterator[Complaint]:
    behind_ns = found.last_wall_ns - now_ns
    if behind_ns > CLOCK_BEHIND_NS:
        yield Complaint(
            "clock",
            "clock_behind",
            iso_utc(now_ns),
            f"the clock is {behind_ns / 1e9:,.1f} s behind what was last written: jobs "
            "at a wall time wait until it gets there",
            "see to the clock (NTP); delays are not touched by it",
            is_passing=True,
        )


def _of_lock(files: FileSystem) -> Iterator[Complaint]:
    kind = files.kind()
    if kind in _NETWORK:
        yield Complaint(
            "lock",
            "network_disk",
            files.path,
            f"it lies on {kind}: neither its lock nor a sync need mean there what they "
            "mean on a local disk",
            "move it to a local disk; to share jobs, use a server or PostgreSQL",
        )


def _of_log(found: Verification, path: str) -> Iterator[Complaint]:
    for fault in found.faults:
        yield Complaint(
            "log",
            "torn_tail" if fault.torn else "damage",
            f"{fault.file}, offset {fault.offset}",
            fault.what,
            "none: the next open cuts it off, as after any crash"
            if fault.torn
            else f"timingwheel log repair --data {path} --out NEWDIR",
        )


def _of_history(files: FileSystem, sizes: dict[str, int]) -> Iterator[Complaint]:
    for name in sizes:
        if not name.endswith(".db"):
            continue
        try:
            damage = find_damage(f"{files.path}/{name}")
        except OSError as error:
            yield Complaint(
                "history",
                "unread",
                name,
                f"its pages were not looked at: {error}",
                "look after the disk, and as a user who may write to the directory",
            )
            continue
        if damage is not None:
            yield Complaint(
                "history",
                "damage",
                name,
                damage,
                f"restore it from a backup, or move it and {name}-wal away: a new one "
                "is begun; the jobs themselves are in the log",
            )
