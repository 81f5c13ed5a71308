"""A write-ahead log: records in, LSNs out; what was committed survives.

Group commit, CRC-checked and chained frames, pre-zeroed segments, snapshots, and a tail
rule that tells a torn write from damage and refuses the latter. It knows bytes and
nothing of what they mean. Start at `wal.log.Log`; the bytes are in docs/wal-format.md.
"""

from wal.bodies import encode_records
from wal.errors import (
    CommitUnknownError,
    DiskFullError,
    LogClosedError,
    LogCorruptError,
    LogFailedError,
    RecordTooLargeError,
    StoreError,
    StoreInUseError,
    WalError,
)
from wal.filesystem import FileSystem
from wal.frame import Group, Lsn, decode_records
from wal.log import Log, LogStats, Record, RoomNeededError
from wal.recovery import Report
from wal.snapshot import SnapshotInfo, SnapshotWriter

__all__ = [
    "CommitUnknownError",
    "DiskFullError",
    "FileSystem",
    "Group",
    "Log",
    "LogClosedError",
    "LogCorruptError",
    "LogFailedError",
    "LogStats",
    "Lsn",
    "Record",
    "RecordTooLargeError",
    "Report",
    "RoomNeededError",
    "SnapshotInfo",
    "SnapshotWriter",
    "StoreError",
    "StoreInUseError",
    "WalError",
    "decode_records",
    "encode_records",
]
