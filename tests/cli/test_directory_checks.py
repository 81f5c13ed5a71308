"""What `doctor` sees of a directory from outside: space, clock, lock, log, history."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.stage import Stage
from timingwheel.cli.directory_checks import LOOKS, examine
from timingwheel.scheduler.scheduler import Scheduler
from timingwheel.stores.embedded import EmbeddedStore
from wal.filesystem import FileSystem, Free
from wal.log import SEGMENT_SIZE_BYTES
from wal.testing import MemoryFileSystem

PLENTY = Free(1 << 40, 1 << 20)


class Disk(FileSystem):
    """A directory on a disk of which a test says how full it is, and of what kind."""

    def __init__(self, path: Path, free: Free = PLENTY, kind: str = "ext4") -> None:
        super().__init__(path)
        self._free, self._kind = free, kind

    def free(self) -> Free:
        return self._free

    def kind(self) -> str:
        return self._kind


def kinds(stage: Stage, files: FileSystem) -> list[tuple[str, str, bool]]:
    seen = examine(files, stage.clock.wall_ns())
    assert list(seen.notes) == list(LOOKS)
    return [(one.check, one.kind, one.is_mild) for one in seen.complaints]


@pytest.mark.parametrize(
    ("free", "kind", "told"),
    [
        (PLENTY, "ext4", None),
        (Free(SEGMENT_SIZE_BYTES, None), "btrfs", None),
        (Free(SEGMENT_SIZE_BYTES - 1, 9_999), "ext4", ("space", "disk_full", False)),
        (Free(1 << 40, 63), "ext4", ("space", "no_inodes", False)),
        (PLENTY, "tmpfs", ("space", "in_memory", True)),
        (PLENTY, "nfs4", ("lock", "network_disk", False)),
    ],
)
def test_a_disk_that_is_too_small_or_of_a_wrong_kind_is_told(
    stage: Stage, free: Free, kind: str, told: tuple[str, str, bool] | None
) -> None:
    stage.add("greet", "--delay", "1h")
    expected = [told] if told else []
    assert kinds(stage, Disk(stage.data, free, kind)) == expected


def test_too_little_room_for_the_next_snapshot_is_told(stage: Stage) -> None:
    stage.add("greet", "--delay", "1h")

    def write_snapshot(app: Scheduler) -> None:
        store = app.desk.store
        assert isinstance(store, EmbeddedStore)
        store.snapshot()

    stage.served(write_snapshot)
    free = Free(SEGMENT_SIZE_BYTES, None)
    assert kinds(stage, Disk(stage.data, free)) == [("space", "low_space", True)]


@pytest.mark.parametrize(
    ("seconds", "told"), [(0.5, []), (1.5, [("clock", "clock_behind", True)])]
)
def test_a_clock_before_the_last_record_is_told(
    stage: Stage, seconds: float, told: list[tuple[str, str, bool]]
) -> None:
    stage.add("greet", "--delay", "1h")
    stage.clock.step(-int(seconds * 1e9))
    assert kinds(stage, Disk(stage.data)) == told


def test_who_holds_it_is_told(stage: Stage) -> None:
    stage.add("greet", "--delay", "1h")

    def look(_: object) -> None:
        # Not the databases: this process has them open.
        seen = examine(Disk(stage.data), stage.clock.wall_ns())
        assert seen.notes["lock"].startswith("held by process ")
        assert seen.notes["lock"].endswith(", or left so by a crash")

    stage.served(look)
    seen = examine(Disk(stage.data), stage.clock.wall_ns())
    assert seen.notes["lock"] == "nobody holds it"


@pytest.mark.parametrize("damage", [lambda _: b"x" * 8_192, lambda b: b[:5_000]])
def test_a_damaged_history_is_found_and_the_store_is_not_opened(
    stage: Stage, damage: Callable[[bytes], bytes]
) -> None:
    job_id = stage.add("greet", "to=x", "--delay", "0s")
    stage.clock.advance(ns=10**9)
    stage.served(lambda app: app.run(job_id).wait(timeout=30))
    history = stage.data / "history.db"
    history.write_bytes(damage(history.read_bytes()))
    assert kinds(stage, Disk(stage.data)) == [("history", "damage", False)]
    done = stage.run("doctor")
    assert done.code == 1
    assert "history  WRONG" in done.out
    assert "history.db-wal away" in done.out
    assert "opening" not in done.out


def test_a_history_that_could_not_be_looked_at_is_not_called_damaged(
    stage: Stage,
) -> None:
    stage.add("greet", "--delay", "1h")
    history = stage.data / "history.db"
    history.unlink()
    history.mkdir()  # as on a disk that fails, or is read-only: SQLite says I/O error
    assert kinds(stage, Disk(stage.data)) == [("history", "unread", False)]
    done = stage.run("doctor")
    assert done.code == 1
    assert "its pages were not looked at: disk I/O error" in done.out
    assert "restore" not in done.out


def test_a_disk_says_what_is_free_and_of_what_kind_it_is(tmp_path: Path) -> None:
    files = FileSystem(tmp_path)
    assert files.free().size_bytes > 0
    assert files.kind()
    assert FileSystem("/proc").kind() == "proc"


def test_a_disk_in_memory_says_what_is_free() -> None:
    files = MemoryFileSystem()
    files.make_directory()
    files.capacity_bytes = 8_192
    assert files.free().size_bytes == 8_192
    handle = files.create("a")
    files.pwrite(handle, bytes(5_000), 0)
    assert files.free().size_bytes == 0
