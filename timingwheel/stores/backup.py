"""Backups: a copy of a data directory that somebody goes on using, and the way back.

    BACKUP     what the copy holds, each file with its size and checksum; written last
    data/      the log, its snapshots, the databases (*.db) and the tokens (*.json)

A backup without `BACKUP` is unfinished and is not restored. It is no data directory, so
nobody starts it by mistake; `data` in it is one, as a kill would have left it.

Why all of it fits together: wal/backup.py copies the log so that it ends behind its
snapshots. The history is copied between the two: not older than the snapshots, whose
records it must have; and not newer than the log, which it follows.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Final

from timingwheel.clock import Clock, SystemClock
from timingwheel.errors import TimingWheelError
from timingwheel.installed import installed_version
from timingwheel.stores.sqlite_files import copy_database
from wal.backup import COPY_BYTES, Follow, copy_live
from wal.checksum import extend
from wal.filesystem import (
    FileSystem,
    opened,
    read_whole,
    write_fully,
    write_new_file,
)
from wal.inspection import Progress, verify
from wal.store import STORE_NAME, read_identity

__all__ = ["Backup", "BackupError", "backup", "restore"]

MANIFEST_NAME: Final = "BACKUP"
DATA_NAME: Final = "data"
FORMAT: Final = 1
_LOCK_NAME: Final = "LOCK"
_UNFINISHED_NAME: Final = "UNFINISHED-RESTORE"


class BackupError(TimingWheelError):
    """A backup cannot be made or restored there. Neither source was changed.

    Attributes:
        path: of what.
        found: what is wrong with it, as a phrase for the message.
        fix: what to do, as a phrase for the message.
    """

    def __init__(self, path: str, found: str, fix: str) -> None:
        super().__init__(path, found, fix)
        self.path = path
        self.found = found
        self.fix = fix

    def __str__(self) -> str:
        return f"{self.path} {self.found}: {self.fix}"


@dataclass(frozen=True, slots=True)
class Backup:
    """What a backup holds.

    Attributes:
        uuid: of the store, in hexadecimal digits; a restored copy keeps it.
        taken_ns: wall clock when it was begun, ns since 1970: all that was acknowledged
            before is in it.
        last_lsn: of the newest record in it.
        records: how many records its log holds, besides its snapshots.
        version: of the package that made it.
        files: name -> (size in bytes, CRC32C).
    """

    uuid: str
    taken_ns: int
    last_lsn: int
    records: int
    version: str
    files: dict[str, tuple[int, int]]

    @property
    def size_bytes(self) -> int:
        """What the files take together."""
        return sum(size for size, _ in self.files.values())


def backup(
    path: str | os.PathLike[str],
    to: str | os.PathLike[str],
    *,
    progress: Progress | None = None,
    clock: Clock | None = None,
) -> Backup:
    """Copy a data directory, which may be in use by this or by another process.

    Afterwards `to` holds all that was acknowledged before the call, as of one moment,
    and was read back. No lock is taken, and nobody waits.

    Args:
        path: the data directory.
        to: a new or an empty directory, outside of `path`.
        progress: called with (bytes of the log copied, bytes of the log).
        clock: where time comes from.

    Raises:
        BackupError: `to` is not free, or a database cannot be copied.
        StoreError: `path` is no store, or a newer one.
        LogCorruptError: acknowledged data is damaged: `timingwheel log repair`.
        OSError: a disk failed, or is full. `to` is then an unfinished backup.

    Cost: O(bytes); a last segment takes its full size, but no blocks for its zeros.
    """
    source, place = FileSystem(path), FileSystem(to)
    taken_ns = (clock if clock is not None else SystemClock()).wall_ns()
    if _is_within(place.path, source.path):
        raise BackupError(place.path, "lies in the store itself", "pass another place")
    source.names()  # nothing is made for a source that is not there
    _require_free(place)
    place.make_directory()
    lock = place.lock(_LOCK_NAME)
    if lock is None:
        raise BackupError(
            place.path, "is being written by another backup", "pass another place"
        )
    try:
        data = FileSystem(os.path.join(place.path, DATA_NAME))
        data.make_directory()
        found = copy_live(
            source,
            data,
            meanwhile=lambda follow: _copy_others(source, data, follow),
            progress=progress,
        )
        made = Backup(
            uuid=read_identity(data).uuid.hex(),
            taken_ns=taken_ns,
            last_lsn=found.last_lsn,
            records=found.records,
            version=installed_version() or "",
            files={name: _sum_of(data, name) for name in data.names()},
        )
        write_new_file(place, MANIFEST_NAME, _encode(made))
        place.unlink(_LOCK_NAME)
    finally:
        place.close(lock)
    return made


def restore(
    backup: str | os.PathLike[str],
    to: str | os.PathLike[str],
    *,
    progress: Progress | None = None,
) -> Backup:
    """Make a data directory of a backup, byte by byte as it was made.

    What ran after the backup was begun is not known there and runs again; never let the
    copy run beside the original. Cut off, it leaves what no open takes for a store.

    Args:
        backup: what `backup` made.
        to: a new or an empty directory.
        progress: called with (bytes copied, bytes in all).

    Raises:
        BackupError: it is unfinished, damaged or newer, or `to` is not free.
        OSError: a disk failed, or is full.
    """
    place, out = FileSystem(backup), FileSystem(to)
    kept = read_backup(place.path)
    _require_free(out)
    out.make_directory()
    data = FileSystem(os.path.join(place.path, DATA_NAME))
    done = 0
    # An open refuses a directory that holds this, and a cut off copy is never "new".
    out.close(out.create(_UNFINISHED_NAME))
    out.sync_dir()
    # STORE last: with it, the copy becomes a store.
    for name in sorted(kept.files, key=lambda name: name == STORE_NAME):
        if name == STORE_NAME:
            out.sync_dir()
        _bring_back(data, out, name=name, expected=kept.files[name])
        done += kept.files[name][0]
        if progress is not None:
            progress(done, kept.size_bytes)
    out.sync_dir()
    out.unlink(_UNFINISHED_NAME)
    out.sync_dir()
    for fault in verify(out).faults:
        raise BackupError(out.path, f"is not well: {fault.file}: {fault.what}", _OTHER)
    return kept


def read_backup(path: str) -> Backup:
    """Return what a backup says that it holds.

    Raises:
        BackupError: it is none, unfinished, damaged or newer.
    """
    place = FileSystem(path)
    try:
        names = place.names() if place.exists() else []
    except NotADirectoryError:
        names = []
    if MANIFEST_NAME not in names:
        if DATA_NAME in names:
            raise BackupError(
                path, "is an unfinished backup: it was cut off", "take another one"
            )
        raise BackupError(
            path, f"is no backup: it has no {MANIFEST_NAME}", "check the path"
        )
    return _decode(read_whole(place, MANIFEST_NAME), f"{path}/{MANIFEST_NAME}")


# -- inside ----------------------------------------------------------------------------

_OTHER: Final = "restore another backup"


def _copy_others(source: FileSystem, data: FileSystem, follow: Follow) -> None:
    """Copy what stands beside the log."""
    for name in source.names():
        if name.endswith(".db"):
            copy_database(
                os.path.join(source.path, name),
                os.path.join(data.path, name),
                between=_seldom(follow),
                refuse=BackupError,
            )
            follow()
        elif name.endswith(".json"):
            write_new_file(data, name, read_whole(source, name))


_SELDOM: Final = 16


def _seldom(follow: Follow) -> Callable[[], None]:
    """Return what follows the log once in _SELDOM calls, which are a MiB each."""
    count = 0

    def called() -> None:
        nonlocal count
        count += 1
        if count % _SELDOM == 0:
            follow()

    return called


def _require_free(place: FileSystem) -> None:
    try:
        names = place.names() if place.exists() else []
    except NotADirectoryError:
        raise BackupError(
            place.path, "is a file, not a directory", "pass a new directory"
        ) from None
    if not names:
        return
    if DATA_NAME in names and MANIFEST_NAME not in names:
        found, fix = "holds an unfinished backup", "remove it, or pass a new directory"
    else:
        found, fix = "is not empty", "nothing is overwritten: pass a new directory"
    raise BackupError(place.path, found, fix)


def _is_within(inner: str, outer: str) -> bool:
    inner, outer = os.path.abspath(inner), os.path.abspath(outer)
    return os.path.commonpath([inner, outer]) == outer


def _chunks(files: FileSystem, name: str) -> Iterator[bytes]:
    with opened(files, name) as handle:
        files.forget_cache(handle)  # the disk is asked, not the memory
        for at in range(0, files.size_bytes(handle), COPY_BYTES):
            yield files.pread(handle, COPY_BYTES, at)


def _sum_of(files: FileSystem, name: str) -> tuple[int, int]:
    size, crc = 0, 0
    for chunk in _chunks(files, name):
        size, crc = size + len(chunk), extend(crc, chunk)
    return size, crc


def _bring_back(
    data: FileSystem, out: FileSystem, *, name: str, expected: tuple[int, int]
) -> None:
    size, crc = 0, 0
    handle = out.create(name)
    try:
        try:
            for chunk in _chunks(data, name):
                write_fully(out, handle, chunk, offset=size)
                size, crc = size + len(chunk), extend(crc, chunk)
        except FileNotFoundError:
            raise BackupError(f"{data.path}/{name}", "is missing", _OTHER) from None
        if (size, crc) != expected:
            raise BackupError(
                f"{data.path}/{name}", "is not what was backed up: it changed", _OTHER
            )
        out.sync(handle)
    finally:
        out.close(handle)


def _encode(made: Backup) -> bytes:
    """Return the bytes of the manifest: a line of JSON, and its CRC32C in a second."""
    line = json.dumps({"format": FORMAT, **asdict(made)}).encode()
    return b"%s\n%08x\n" % (line, extend(0, line))


def _decode(text: bytes, path: str) -> Backup:
    line, _, crc = text.partition(b"\n")
    if crc != b"%08x\n" % extend(0, line):
        raise BackupError(path, "is damaged: its checksum does not hold", _OTHER)
    fields = json.loads(line)
    if fields.pop("format") > FORMAT:
        raise BackupError(
            path, "is of a newer format", "restore it with a newer version"
        )
    files = {name: (size, crc) for name, (size, crc) in fields.pop("files").items()}
    return Backup(files=files, **fields)
