"""What a backup is, and how it is read: a directory, or one file.

The manifest says what there is; a source yields the bytes of each file of it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Final, Protocol

from timingwheel.errors import TimingWheelError
from timingwheel.stores.archive import TornArchiveError, chunks_of, members
from wal.backup import COPY_BYTES
from wal.checksum import extend
from wal.filesystem import FileSystem, opened, read_whole

MANIFEST_NAME: Final = "BACKUP"
DATA_NAME: Final = "data"
FORMAT: Final = 1
OTHER: Final = "restore another backup"


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


def read_backup(path: str) -> Backup:
    """Return what a backup says that it holds.

    Raises:
        BackupError: it is none, unfinished, damaged or newer.
    """
    return source_of(path).manifest()


# -- where a backup is read from ---------------------------------------------------------


class Source(Protocol):
    """A backup, to be read."""

    path: str

    def manifest(self) -> Backup:
        """Return what it says that it holds; raises as `read_backup`."""

    def chunks(self, name: str) -> Iterator[bytes]:
        """Yield the bytes of a file; FileNotFoundError if it has none of that name."""


class BackupDirectory:
    """A backup in a directory; as Source."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._place = FileSystem(path)
        self._data = FileSystem(os.path.join(path, DATA_NAME))

    def manifest(self) -> Backup:
        """Return what it says that it holds."""
        names = self._place.names() if self._place.exists() else []
        if MANIFEST_NAME not in names:
            if DATA_NAME in names:
                raise BackupError(
                    self.path,
                    "is an unfinished backup: it was cut off",
                    "take another one",
                )
            raise BackupError(
                self.path, f"is no backup: it has no {MANIFEST_NAME}", "check the path"
            )
        text = read_whole(self._place, MANIFEST_NAME)
        return _decode(text, f"{self.path}/{MANIFEST_NAME}")

    def chunks(self, name: str) -> Iterator[bytes]:
        """Yield the bytes of a file."""
        return chunks_of_file(self._data, name)


class BackupFile:
    """A backup in one file; as Source."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._files, self._name = split_path(path)

    def manifest(self) -> Backup:
        """Return what it says that it holds."""
        try:
            self._members = members(self._files, self._name)
        except TornArchiveError as error:
            raise BackupError(self.path, str(error), OTHER) from error
        if next(iter(self._members), None) != MANIFEST_NAME:
            raise BackupError(
                self.path,
                f"is no backup: it does not begin with {MANIFEST_NAME}",
                "check the path",
            )
        offset, size = self._members[MANIFEST_NAME]
        text = b"".join(chunks_of(self._files, self._name, offset, size))
        return _decode(text, f"{self.path}: {MANIFEST_NAME}")

    def chunks(self, name: str) -> Iterator[bytes]:
        """Yield the bytes of a file."""
        found = self._members.get(f"{DATA_NAME}/{name}")
        if found is None:
            raise FileNotFoundError(name)
        return chunks_of(self._files, self._name, *found)


def source_of(path: str) -> Source:
    """Return what reads the backup at a path, of which nothing is known yet."""
    try:
        FileSystem(path).exists()
    except NotADirectoryError:
        return BackupFile(path)
    return BackupDirectory(path)


def split_path(path: str) -> tuple[FileSystem, str]:
    """Return the directory of a file, and its name there."""
    directory, name = os.path.split(os.path.abspath(path))
    return FileSystem(directory), name


def chunks_of_file(files: FileSystem, name: str) -> Iterator[bytes]:
    """Yield the bytes of a file, from the disk."""
    with opened(files, name) as handle:
        files.forget_cache(handle)  # the disk is asked, not the memory
        for at in range(0, files.size_bytes(handle), COPY_BYTES):
            yield files.pread(handle, COPY_BYTES, at)


def encode(made: Backup) -> bytes:
    """Return the bytes of the manifest: a line of JSON, and its CRC32C in a second."""
    line = json.dumps({"format": FORMAT, **asdict(made)}).encode()
    return b"%s\n%08x\n" % (line, extend(0, line))


def _decode(text: bytes, path: str) -> Backup:
    line, _, crc = text.partition(b"\n")
    if crc != b"%08x\n" % extend(0, line):
        raise BackupError(path, "is damaged: its checksum does not hold", OTHER)
    fields = json.loads(line)
    if fields.pop("format") > FORMAT:
        raise BackupError(
            path, "is of a newer format", "restore it with a newer version"
        )
    files = {name: (size, crc) for name, (size, crc) in fields.pop("files").items()}
    return Backup(files=files, **fields)
