"""Backups in one file: what a tar holds, when it is none, and what comes along."""

from __future__ import annotations

import sqlite3
import tarfile
from contextlib import closing
from pathlib import Path

import pytest

from tests.stores.test_backup import NOTE, SMALL, is_killed, made, states
from timingwheel.manual_clock import ManualClock
from timingwheel.scheduler.scheduler import Scheduler
from timingwheel.server.audit import AuditFilter
from timingwheel.server.audit_file import AuditFile
from timingwheel.stores.archive import pack
from timingwheel.stores.backup import backup, restore
from timingwheel.stores.backup_reading import BackupError, read_backup
from timingwheel.wire.audit import AuditEntry
from wal.backup import COPY_BYTES
from wal.filesystem import FileSystem, Handle

FILLER_ROWS = 1_200
FILLER_BYTES = 4_096
ALL = AuditFilter(*[None] * len(AuditFilter._fields))
KILLS_SHORT = 8
"""In the short run one step of so many is tried."""


def names(place: Path) -> list[str]:
    return sorted(path.name for path in place.iterdir())


def test_a_backup_in_one_file_is_the_same_and_stands_alone(tmp_path: Path) -> None:
    store, kept = tmp_path / "data", tmp_path / "kept" / "monday.tar"
    kept.parent.mkdir()
    job_ids = made(store)
    done = backup(store, kept)
    assert names(kept.parent) == ["monday.tar"]
    assert read_backup(str(kept)) == done
    assert restore(kept, tmp_path / "new") == done
    assert states(tmp_path / "new", job_ids) == states(store, job_ids)
    with pytest.raises(BackupError, match="nothing is overwritten"):
        backup(store, kept)


def test_any_tar_unpacks_it_to_a_backup_in_a_directory(tmp_path: Path) -> None:
    store, kept = tmp_path / "data", tmp_path / "monday.tar"
    made(store, jobs=3)
    done = backup(store, kept)
    with tarfile.open(kept) as tar:
        tar.extractall(tmp_path / "unpacked", filter="data")
    assert restore(tmp_path / "unpacked", tmp_path / "new") == done


class Measured(FileSystem):
    """Notes after each write how many bytes the files of two directories take."""

    def __init__(self, path: Path, *, beside: Path) -> None:
        super().__init__(path)
        self._beside = beside
        self.most_bytes = 0

    def pwrite(self, handle: Handle, data: bytes, offset: int) -> int:
        went = super().pwrite(handle, data, offset)
        files = [*Path(self.path).iterdir(), *self._beside.iterdir()]
        taken = sum(path.stat().st_blocks for path in files) * 512
        self.most_bytes = max(self.most_bytes, taken)
        return went


def test_a_tar_needs_the_room_of_its_files_once(tmp_path: Path) -> None:
    place, kept = tmp_path / "place", tmp_path / "kept"
    place.mkdir()
    kept.mkdir()
    bodies = {"small": b"s" * 700, "large": bytes(range(256)) * (5 << 12), "empty": b""}
    for name, body in bodies.items():
        (place / name).write_bytes(body)
    out = Measured(kept, beside=place)
    pack(FileSystem(place), [*bodies], out, "it", mtime_ns=0)
    assert names(place) == []
    with tarfile.open(kept / "it.tmp") as tar:
        assert {one.name: tar.extractfile(one).read() for one in tar} == bodies  # type: ignore[union-attr]
    size_bytes = sum(map(len, bodies.values()))
    assert size_bytes <= out.most_bytes < size_bytes + 1.2 * COPY_BYTES


def test_a_changed_or_a_missing_byte_of_it_is_seen(tmp_path: Path) -> None:
    store, kept = tmp_path / "data", tmp_path / "monday.tar"
    made(store, jobs=3)
    backup(store, kept)
    good = kept.read_bytes()
    with tarfile.open(kept) as tar:
        inside = [(one.name, one.offset, one.offset_data, one.size) for one in tar]
    for number, (name, head, content, size) in enumerate(inside):
        for at in {head + 5, content, content + size - 1}:
            bad = bytearray(good)
            bad[at] ^= 1
            kept.write_bytes(bad)
            with pytest.raises(BackupError):
                restore(kept, tmp_path / f"changed-{number}-{at}")
        for at in (head, head + 100, content + size // 2):
            kept.write_bytes(good[:at])
            with pytest.raises(BackupError, match=r"cut off|no tar|no backup"):
                restore(kept, tmp_path / f"cut-{number}-{at}")
            assert not (tmp_path / f"cut-{number}-{at}").exists(), name
    kept.write_bytes(bytes(10_240))
    with pytest.raises(BackupError, match="no backup"):
        restore(kept, tmp_path / "zeros")


@pytest.mark.parametrize(
    "every", [KILLS_SHORT, pytest.param(1, marks=pytest.mark.long)]
)
def test_a_kill_at_any_step_leaves_a_whole_file_or_none_of_that_name(
    tmp_path: Path, every: int
) -> None:
    store = tmp_path / "data"
    made(store, jobs=2)
    nth, whole = 1, 0
    while is_killed("backup", store, to := tmp_path / f"backup-{nth}.tar", nth):
        if to.exists():
            restore(to, tmp_path / f"new-{nth}")
            whole += 1
        nth += every
    assert nth > 20
    assert whole or every > 1  # only two steps follow the one that names it
    restore(to, tmp_path / "new")


def test_the_audit_trail_comes_along_as_its_server_left_it(tmp_path: Path) -> None:
    store, kept = tmp_path / "data", tmp_path / "monday.tar"
    made(store, jobs=2)
    trail = AuditFile(str(store))
    trail.open()
    entries = [
        AuditEntry(
            time_ns=number,
            actor="ann",
            role="admin",
            via="api",
            operation="add_job",
            target=f"job-{number}",
            arguments={"n": number},
            outcome="done",
            status=201,
        )
        for number in range(100)
    ]
    trail.write(entries[:60], kept_max=1_000)
    trail.write(entries[60:], kept_max=1_000)
    backup(store, kept)  # while it is open, with what stands in its journal alone
    written = trail.read(ALL, 1_000)
    trail.close()
    restore(kept, tmp_path / "new")
    copy = AuditFile(str(tmp_path / "new"))
    copy.open()
    assert copy.read(ALL, 1_000) == written
    assert len(written) == 100
    copy.close()


def test_a_large_history_comes_along_while_it_is_written(tmp_path: Path) -> None:
    """5 MiB: the log is followed in between, and pages change under the copy."""
    store, kept = tmp_path / "data", tmp_path / "monday.tar"
    clock = ManualClock()
    with Scheduler(store, clock=clock, executor="inline", **SMALL) as app:
        with closing(sqlite3.connect(store / "history.db", timeout=30)) as history:
            # As many pages as years of runs; a table that the house does not know.
            history.execute("CREATE TABLE filler (body BLOB)")
            history.executemany(
                "INSERT INTO filler VALUES (?)",
                [(bytes([n % 251]) * FILLER_BYTES,) for n in range(FILLER_ROWS)],
            )
            history.commit()
        before = app.schedule(NOTE, "1h")
        followed: list[str] = []
        backup(
            store, kept, progress=lambda *_: followed.append(app.schedule(NOTE, "1h"))
        )
    assert followed
    restore(kept, tmp_path / "new")
    states(tmp_path / "new", [before])
    with closing(sqlite3.connect(tmp_path / "new" / "history.db")) as history:
        rows = history.execute("SELECT body FROM filler").fetchall()
    assert [row[0] for row in rows] == [
        bytes([n % 251]) * FILLER_BYTES for n in range(FILLER_ROWS)
    ]
