"""What can go wrong with a log, and whose move is next.

    WalError
    ├── StoreError            the directory is not a store this program can open: pick
    │                         another path, or a newer program
    ├── StoreInUseError       another process holds the directory: stop it, or talk to it
    ├── LogCorruptError       acknowledged bytes are damaged: nothing was changed; look
    │                         with the command in the message
    ├── RecordTooLargeError   the caller's record or batch does not fit: make it smaller
    ├── DiskFullError         no blocks for one more record: free space, then try again
    ├── CommitUnknownError    the disk failed during this commit: it may or may not hold
    ├── LogFailedError        the disk failed before: only a new open clears it
    └── LogClosedError        the log was closed, or is not yet in append mode

Errors of the operating system while *reading* pass through as OSError: an unreadable disk
is neither the end of a log nor damage to it.
"""

from __future__ import annotations

import os


class WalError(Exception):
    """Base of everything that `wal` raises on purpose."""


class StoreError(WalError):
    """The path is not a store that this version can open. Nothing was changed."""

    def __init__(self, path: str, found: str, remedy: str) -> None:
        super().__init__(f"{path}: {found}; {remedy}")
        self.path = path
        self.found = found
        self.remedy = remedy


class StoreInUseError(WalError):
    """Another process, or another log in this one, holds the directory's lock."""

    def __init__(
        self,
        path: str,
        holder: str,
        *,
        remedy: str = "stop that one first, or open another directory",
    ) -> None:
        own = f"process {os.getpid()}"
        # Not said for sure: in two containers both may be process 1.
        here = " (the number of this process: is it still open here?)"
        by = holder + (here if holder.partition(",")[0] == own else "")
        super().__init__(
            f"{path}: in use by {by}; a directory has one owner at a time: {remedy}"
        )
        self.path = path
        self.holder = holder


class LogCorruptError(WalError):
    """Bytes that had been acknowledged are damaged. Nothing was changed or dropped.

    Attributes:
        file: name of the damaged file inside the store.
        offset: where in the file, in bytes.
        expected_lsn: number of the record that should stand there.
        what: what was found instead.
        next_offset: where the next valid frame of the file starts, or None.
        next_lsn: first LSN of that frame, or None.
        records_at_stake: how many records a cut at `offset` would lose, at least.
    """

    def __init__(
        self,
        path: str,
        file: str,
        *,
        offset: int,
        expected_lsn: int,
        what: str,
        next_offset: int | None = None,
        next_lsn: int | None = None,
        records_at_stake: int = 1,
    ) -> None:
        if next_offset is None:
            after = "no valid frame follows in this file"
        else:
            after = f"the next valid frame is at offset {next_offset} (LSN {next_lsn})"
        super().__init__(
            f"{path}/{file}: damaged at offset {offset}, where LSN {expected_lsn} is "
            f"expected: {what}; {after}; at least {records_at_stake} acknowledged "
            f"record(s) at stake. Nothing was changed. Look: python -m wal verify "
            f"{path}; rescue what is readable into a new directory: python -m wal "
            f"repair {path} --out NEWDIR"
        )
        self.path = path
        self.file = file
        self.offset = offset
        self.expected_lsn = expected_lsn
        self.what = what
        self.next_offset = next_offset
        self.next_lsn = next_lsn
        self.records_at_stake = records_at_stake


class RecordTooLargeError(WalError, ValueError):
    """A record, or a group of them, is larger than one frame can hold."""

    def __init__(self, size_bytes: int, limit_bytes: int) -> None:
        super().__init__(
            f"a group of {size_bytes} bytes does not fit a frame of at most "
            f"{limit_bytes}; split it, or raise segment_size_bytes"
        )
        self.size_bytes = size_bytes
        self.limit_bytes = limit_bytes


class DiskFullError(WalError):
    """No blocks are left for this record. Nothing was changed; it heals by itself."""

    def __init__(self, path: str, cause: OSError) -> None:
        super().__init__(
            f"{path}: the disk is full ({cause.strerror}); nothing was changed. Free space on "
            "that file system and call again: the log notices by itself"
        )
        self.path = path


class CommitUnknownError(WalError):
    """The disk failed while this record was being made durable.

    After the next open the record is either whole or absent; until then nobody knows.
    """

    def __init__(self, path: str, lsn: int, cause: BaseException) -> None:
        super().__init__(
            f"{path}: the disk failed while LSN {lsn} was being written ({cause}); the "
            "record may or may not have survived. Close this log and open it again"
        )
        self.path = path
        self.lsn = lsn


class LogFailedError(WalError):
    """The log stopped for good after an earlier failure of the disk."""

    def __init__(self, path: str, cause: BaseException) -> None:
        super().__init__(
            f"{path}: the log stopped after a failure ({cause}); after a failed write "
            "or sync nobody knows what the disk holds. Close it and open it again"
        )
        self.path = path


class LogClosedError(WalError):
    """The call does not fit the log's state: closed, or still in read mode."""
