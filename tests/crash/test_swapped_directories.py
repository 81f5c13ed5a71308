"""A store's directory is moved away and another takes its name, under a live process.

The process goes on in the directory that it opened, wherever that is now, and neither
makes, changes nor removes anything in the other: that is somebody else's.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.crash.real_disk import FAR_S, SEGMENT_BYTES, open_engine
from tests.stores.embedded_stage import EmbeddedStage
from timingwheel.stores.embedded import EmbeddedStore
from wal.filesystem import FileSystem, read_whole, write_new_file
from wal.log import Log

Contents = dict[str, bytes]


def contents(directory: Path) -> Contents:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


@contextmanager
def swapped(directory: Path) -> Iterator[Path]:
    """Put a copy in the directory's place, and look that nobody touches it.

    Yields:
        Where the directory itself is now.
    """
    copy, moved = directory.with_name("copy"), directory.with_name("moved")
    shutil.copytree(directory, copy)
    directory.rename(moved)
    copy.rename(directory)
    before = contents(directory)
    yield moved
    assert contents(directory) == before


def test_a_held_directory_is_the_one_that_was_locked(tmp_path: Path) -> None:
    files = FileSystem(tmp_path / "d")
    files.make_directory()
    held = files.lock("LOCK")
    assert held is not None
    write_new_file(files, "old", b"old")
    with swapped(tmp_path / "d"):
        write_new_file(files, "new", b"new")
        files.rename("old", "renamed")
        assert files.names() == ["LOCK", "new", "renamed"]
        files.unlink("renamed")
        files.sync_dir()
        assert read_whole(files, "new") == b"new"
        with pytest.raises(FileNotFoundError) as caught:
            files.open("old")
        assert caught.value.filename == os.path.join(files.path, "old")
        assert FileSystem(tmp_path / "d").lock("LOCK") is not None
        files.close(held)
    assert files.names() == ["LOCK", "old"]  # its path says again which it is


def test_a_lock_that_is_closed_leaves_no_descriptor_behind(tmp_path: Path) -> None:
    before = os.listdir("/proc/self/fd")
    for _ in range(3):
        files, other = FileSystem(tmp_path), FileSystem(tmp_path)
        held = files.lock("LOCK")
        assert held is not None
        assert other.lock("LOCK") is None
        assert files.names() == ["LOCK"]
        files.close(held)
    assert os.listdir("/proc/self/fd") == before


def test_a_log_goes_on_in_its_own_directory(tmp_path: Path) -> None:
    def opened(path: Path) -> Log:
        return Log.open(
            path,
            wall_ns=lambda: 1,
            segment_size_bytes=SEGMENT_BYTES,
            reserve_bytes=0,
            background=False,
        )

    with opened(tmp_path / "d") as log:
        log.append(b"first")
        log.commit()
        with swapped(tmp_path / "d") as moved:
            for _ in range(50):
                log.append(bytes(10_000))
                log.commit()
            writer = log.begin_snapshot()
            writer.add(b"state")
            info, _ = log.finish_snapshot(writer, reach_lsn=log.appended_lsn)
            assert len(log.segment_sizes()) > 5
            log.close()
    with opened(moved) as log:
        assert log.snapshot == info
        assert log.start().last_lsn == 51


def test_an_engine_goes_on_in_its_own_directory(tmp_path: Path) -> None:
    engine = open_engine(str(tmp_path / "d"))
    made: list[int] = [engine.schedule(FAR_S, bytes(500)) for _ in range(20)]
    with swapped(tmp_path / "d") as moved:
        for _ in range(10):
            made.extend(engine.schedule_many([FAR_S] * 100, [bytes(500)] * 100))
        engine.snapshot()
        assert engine.cancel(made[0])
        engine.close()
    with open_engine(str(moved)) as engine:
        assert {timer.id for timer in engine.timers(10**6)} == {*made[1:]}
    with open_engine(str(tmp_path / "d")) as engine:
        assert {timer.id for timer in engine.timers(10**6)} == {*made[:20]}


def test_a_job_store_and_its_history_go_on_in_their_own_directory(
    tmp_path: Path,
) -> None:
    stage = EmbeddedStage(tmp_path / "d", segment_size_bytes=SEGMENT_BYTES)
    over = stage.put(0)
    assert len(stage.step()) == 1
    assert stage.states(over) == ["succeeded"]
    store = stage.store
    assert isinstance(store, EmbeddedStore)
    # All in the file, so that the copy is one that a reader would take for ours.
    for reader in store._history._connections.idle_readers:
        reader.close()
    store._history._connections.idle_readers.clear()
    store._history._connections.writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    with swapped(tmp_path / "d") as moved:
        later, far = stage.put(0), stage.put(10_000)
        assert len(stage.step()) == 1
        assert [stage.states(job) for job in (over, later)] == [["succeeded"]] * 2
        stage.store.snapshot()
        stage.stop()
    moved.rename(tmp_path / "again")
    for where, found in (("again", [over, later, far]), ("d", [over])):
        stage = EmbeddedStage(tmp_path / where, segment_size_bytes=SEGMENT_BYTES)
        assert sorted(job.id for job in stage.all_jobs()) == sorted(found)
        assert sorted(run.job_id for run in stage.runs()) == sorted(found)
        stage.end_all()
