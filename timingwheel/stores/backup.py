"""Backups: a copy of a data directory that somebody goes on using, and the way back.

    BACKUP     what the copy holds, each file with its size and checksum; written last
    data/      the log, its snapshots, the databases (*.db) and the tokens (*.json)

With a name that ends in `.tar` it is one file instead (archive.py), made of such a
directory, which stands beside it as `NAME.tar.unfinished` until its files, the manifest
first, have gone over one by one. It is not streamed from the store: the manifest has the
sums of all files, and a log that drops segments while it is copied is copied anew.

A backup without `BACKUP` is unfinished and is not restored. It is no data directory, so
nobody starts it by mistake; `data` in it is one, as a kill would have left it.

Why all of it fits together: wal/backup.py copies the log so that it ends behind its
snapshots. The history is copied between the two: not older than the snapshots, whose
records it must have; and not newer than the log, which it follows.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final

from timingwheel.clock import Clock, SystemClock
from timingwheel.installed import installed_version
from timingwheel.stores.archive import SUFFIX, pack, publish
from timingwheel.stores.backup_reading import (
    DATA_NAME,
    MANIFEST_NAME,
    OTHER,
    Backup,
    BackupError,
    BackupFile,
    Source,
    chunks_of_file,
    encode,
    source_of,
    split_path,
)
from timingwheel.stores.sqlite_files import copy_database
from wal.backup import Follow, copy_live
from wal.checksum import extend
from wal.filesystem import FileSystem, read_whole, write_fully, write_new_file
from wal.inspection import Progress, verify
from wal.store import STORE_NAME, read_identity

_LOCK_NAME: Final = "LOCK"
_UNFINISHED_NAME: Final = "UNFINISHED-RESTORE"
_UNFINISHED_SUFFIX: Final = ".unfinished"


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
        to: a new or an empty directory, outside of `path`; or a new file, NAME.tar.
        progress: called with (bytes of the log copied, bytes of the log).
        clock: where time comes from.

    Raises:
        BackupError: `to` is not free, or a database cannot be copied.
        StoreError: `path` is no store, or a newer one.
        LogCorruptError: acknowledged data is damaged: `timingwheel log repair`.
        OSError: a disk failed, or is full. `to` is then an unfinished backup.

    Cost: O(bytes); a last segment takes its full size, but no blocks for its zeros. A
    tar takes a MiB more while it is made.
    """
    if os.fspath(to).endswith(SUFFIX):
        return _backup_to_file(path, os.fspath(to), progress=progress, clock=clock)
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
        write_new_file(place, MANIFEST_NAME, encode(made))
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
        backup: what `backup` made, a directory or a tar.
        to: a new or an empty directory.
        progress: called with (bytes copied, bytes in all).

    Raises:
        BackupError: it is unfinished, damaged or newer, or `to` is not free.
        OSError: a disk failed, or is full.
    """
    source, out = source_of(os.fspath(backup)), FileSystem(to)
    kept = source.manifest()
    _require_free(out)
    out.make_directory()
    done = 0
    # An open refuses a directory that holds this, and a cut off copy is never "new".
    out.close(out.create(_UNFINISHED_NAME))
    out.sync_dir()
    # STORE last: with it, the copy becomes a store.
    for name in sorted(kept.files, key=lambda name: name == STORE_NAME):
        if name == STORE_NAME:
            out.sync_dir()
        _bring_back(source, out, name=name, expected=kept.files[name])
        done += kept.files[name][0]
        if progress is not None:
            progress(done, kept.size_bytes)
    out.sync_dir()
    out.unlink(_UNFINISHED_NAME)
    out.sync_dir()
    for fault in verify(out).faults:
        raise BackupError(out.path, f"is not well: {fault.file}: {fault.what}", OTHER)
    return kept


def _backup_to_file(
    path: str | os.PathLike[str],
    to: str,
    *,
    progress: Progress | None,
    clock: Clock | None,
) -> Backup:
    out, name = split_path(to)
    if out.exists() and name in out.names():
        raise BackupError(to, "is there", "nothing is overwritten: pass a new file")
    unfinished = to + _UNFINISHED_SUFFIX
    made = backup(path, unfinished, progress=progress, clock=clock)
    place = FileSystem(unfinished)
    inside = [f"{DATA_NAME}/{one}" for one in made.files]
    pack(place, [MANIFEST_NAME, *inside], out, name, mtime_ns=made.taken_ns)
    publish(out, name, looked_over=lambda it: _look_over(os.path.join(out.path, it)))
    FileSystem(os.path.join(unfinished, DATA_NAME)).remove_directory()
    place.remove_directory()
    return made


def _look_over(path: str) -> None:
    """Read a tar to its end. Raises BackupError if it is not what it should be."""
    source = BackupFile(path)
    for name, expected in source.manifest().files.items():
        size, crc = 0, 0
        for chunk in source.chunks(name):
            size, crc = size + len(chunk), extend(crc, chunk)
        if (size, crc) != expected:
            raise BackupError(
                f"{path}: {name}", "was not written as it was read", "see to the disk"
            )


# -- inside ----------------------------------------------------------------------------


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


def _sum_of(files: FileSystem, name: str) -> tuple[int, int]:
    size, crc = 0, 0
    for chunk in chunks_of_file(files, name):
        size, crc = size + len(chunk), extend(crc, chunk)
    return size, crc


def _bring_back(
    source: Source, out: FileSystem, *, name: str, expected: tuple[int, int]
) -> None:
    size, crc = 0, 0
    handle = out.create(name)
    try:
        try:
            for chunk in source.chunks(name):
                write_fully(out, handle, chunk, offset=size)
                size, crc = size + len(chunk), extend(crc, chunk)
        except FileNotFoundError:
            raise BackupError(
                f"{source.path}/{DATA_NAME}/{name}", "is missing", OTHER
            ) from None
        if (size, crc) != expected:
            raise BackupError(
                f"{source.path}/{DATA_NAME}/{name}",
                "is not what was backed up: it changed",
                OTHER,
            )
        out.sync(handle)
    finally:
        out.close(handle)
