"""What a verified snapshot makes superfluous, dropped oldest first.

Two snapshots and the log since the older one stay, so one bad snapshot costs nothing.
Nothing is deleted on the strength of a file that failed its check, and each segment is
read once more before it goes: damage that nobody would meet again is still reported.
"""

from __future__ import annotations

import itertools
import logging
from dataclasses import dataclass, field
from typing import Final

from wal.errors import LogCorruptError
from wal.filesystem import FileSystem
from wal.frame import FormatError
from wal.reader import LogReader
from wal.segment import parse_segment_name
from wal.snapshot import (
    SnapshotDamagedError,
    SnapshotInfo,
    snapshot_names,
    verify_snapshot,
)

SNAPSHOTS_KEPT: Final = 2
DAMAGED_SUFFIX: Final = ".damaged"

_logger = logging.getLogger("wal")


@dataclass(slots=True)
class Retired:
    """What a checkpoint dropped, and what it set aside as damaged."""

    dropped: list[str] = field(default_factory=list)
    damaged: list[str] = field(default_factory=list)


def retire(files: FileSystem, uuid: bytes) -> Retired:
    """Drop the snapshots and segments that two newer valid snapshots cover.

    A damaged file is never deleted: it gets the suffix `.damaged`, an error is logged,
    and the log goes on being trimmed behind it.

    Raises:
        OSError: the disk failed; what was not dropped stays for the next time.
    """
    result = Retired()
    kept = _retire_snapshots(files, uuid, result)
    if len(kept) == SNAPSHOTS_KEPT:
        _retire_segments(files, uuid, kept[-1], result)
    return result


def _retire_snapshots(
    files: FileSystem, uuid: bytes, result: Retired
) -> list[SnapshotInfo]:
    kept: list[SnapshotInfo] = []
    for name in snapshot_names(files):
        if len(kept) == SNAPSHOTS_KEPT:
            files.unlink(name)
            result.dropped.append(name)
            continue
        try:
            kept.append(verify_snapshot(files, name, uuid))
        except SnapshotDamagedError as error:
            _set_aside(files, name, error, result)
    files.sync_dir()
    return kept


def _retire_segments(
    files: FileSystem, uuid: bytes, oldest: SnapshotInfo, result: Retired
) -> None:
    # By their names, so that a damaged header stops nothing: a log that could not be
    # trimmed behind it would grow for ever.
    segments = [(n, parsed) for n in files.names() if (parsed := parse_segment_name(n))]
    for (name, _), (successor, (_, next_lsn)) in itertools.pairwise(segments):
        if next_lsn > oldest.pin_lsn + 1:
            break
        try:
            LogReader(files, uuid, names=[name, successor]).verify_first()
        except (LogCorruptError, FormatError) as error:
            _set_aside(files, name, error, result)
        else:
            files.unlink(name)
            result.dropped.append(name)
        # One sync for each: a crash must not lose a later name before an earlier one,
        # or the log would seem to have a hole.
        files.sync_dir()


def _set_aside(files: FileSystem, name: str, error: Exception, result: Retired) -> None:
    files.rename(name, name + DAMAGED_SUFFIX)
    result.damaged.append(name)
    _logger.error(
        "damage in a file that is no longer needed; kept as %s%s: %s",
        name,
        DAMAGED_SUFFIX,
        error,
        extra={"store": files.path, "file": name},
    )
