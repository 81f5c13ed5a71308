"""Backups of data directories: of live ones, and of what may be restored."""

from __future__ import annotations

import multiprocessing
import signal
import threading
from pathlib import Path

import pytest

from tests.scheduler import program
from tests.stores import backup_victim
from timingwheel.engine.opening import LogOptions
from timingwheel.jobs.model import RunState
from timingwheel.scheduler.scheduler import Scheduler
from timingwheel.scheduler.tasks import NamedTask
from timingwheel.stores.backup import backup, restore
from timingwheel.stores.backup_reading import BackupError, read_backup
from timingwheel.stores.embedded import EmbeddedStore
from wal.errors import LogCorruptError, StoreError

NOTE = NamedTask("tests.scheduler.program:note").call(what="tea")
BACKUPS = 6
SMALL: LogOptions = {"segment_size_bytes": 65536, "reserve_bytes": 0}
THERE: LogOptions = {**SMALL, "create": False}

_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload([backup_victim.__name__])


def made(place: Path, *, jobs: int = 20) -> list[str]:
    """Make a store with jobs that have ended and jobs to come; return all their ids."""
    with Scheduler(place, tasks=program.app.tasks, **SMALL) as app:
        later = [app.schedule(NOTE, "1h") for _ in range(jobs)]
        over = [app.add(NOTE, delay=0).id for _ in range(jobs)]
        for job_id in over:
            app.run(job_id).wait(60)
    return [*later, *over]


def states(place: Path, job_ids: list[str]) -> list[RunState]:
    with_all = Scheduler(place, **THERE)
    try:
        assert not [one for one in with_all.check() if one.kind == "invariant"]
        return [with_all.run(job_id).get().state for job_id in job_ids]
    finally:
        with_all.stop(0)


def test_what_was_acknowledged_before_a_backup_of_a_busy_process_is_in_it(
    tmp_path: Path,
) -> None:
    planned: list[str] = []
    over: list[str] = []
    enough = threading.Event()
    stopped = threading.Event()

    def work(app: Scheduler) -> None:
        while not stopped.is_set():
            planned.append(app.schedule(NOTE, "1h"))
            run = app.run(app.add(NOTE, delay=0)).wait(60)
            over.append(run.id)
            if len(over) > 30:
                enough.set()

    known: list[tuple[list[str], list[str]]] = []
    store = tmp_path / "data"
    with Scheduler(
        store,
        tasks=program.app.tasks,
        snapshot_every_bytes=65536,
        **SMALL,
    ) as app:
        workers = [threading.Thread(target=work, args=(app,)) for _ in range(3)]
        for worker in workers:
            worker.start()
        assert enough.wait(60)
        for number in range(BACKUPS):
            known.append((list(planned), list(over)))
            backup(store, tmp_path / f"backup-{number}")
        stopped.set()
        for worker in workers:
            worker.join(60)
            assert not worker.is_alive()
    for number, (to_come, ended) in enumerate(known):
        copy = tmp_path / f"copy-{number}"
        restore(tmp_path / f"backup-{number}", copy)
        assert set(states(copy, to_come)) == {RunState.PLANNED}
        assert set(states(copy, ended)) == {RunState.SUCCEEDED}


def test_a_restored_store_is_the_same_store_and_knows_all(tmp_path: Path) -> None:
    job_ids = made(tmp_path / "data")
    done = backup(tmp_path / "data", tmp_path / "backup")
    assert read_backup(str(tmp_path / "backup")) == done
    assert restore(tmp_path / "backup", tmp_path / "new") == done
    assert states(tmp_path / "new", job_ids) == states(tmp_path / "data", job_ids)
    # It can be restored again: nothing of the backup has changed.
    restore(tmp_path / "backup", tmp_path / "again")


def test_a_backup_changes_no_byte_of_the_store(tmp_path: Path) -> None:
    store = tmp_path / "data"
    made(store)
    before = {path.name: path.read_bytes() for path in store.iterdir()}
    backup(store, tmp_path / "backup")
    after = {path.name: path.read_bytes() for path in store.iterdir()}
    # A reader of SQLite may leave its empty journal and its index.
    for name in after.keys() - before.keys():
        assert name in {"history.db-wal", "history.db-shm"}
    assert {name: after[name] for name in before} == before


def test_the_file_of_tokens_comes_along(tmp_path: Path) -> None:
    store = tmp_path / "data"
    made(store)
    (store / "tokens.json").write_text("{}")
    backup(store, tmp_path / "backup")
    restore(tmp_path / "backup", tmp_path / "new")
    assert (tmp_path / "new" / "tokens.json").read_text() == "{}"


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    store = tmp_path / "jobs"
    made(store)
    with pytest.raises(BackupError, match="not empty"):
        backup(store, store.parent)
    with pytest.raises(BackupError, match="in the store itself"):
        backup(store, store / "backup")
    backup(store, tmp_path / "backup")
    with pytest.raises(BackupError, match="not empty"):
        backup(store, tmp_path / "backup")
    with pytest.raises(BackupError, match="not empty"):
        restore(tmp_path / "backup", store)
    (tmp_path / "file").touch()
    with pytest.raises(BackupError, match="is a file"):
        restore(tmp_path / "backup", tmp_path / "file")


def test_what_is_no_backup_is_not_restored(tmp_path: Path) -> None:
    store, kept, new = tmp_path / "data", tmp_path / "backup", tmp_path / "new"
    made(store)
    with pytest.raises(BackupError, match="is no backup"):
        restore(store, new)
    with pytest.raises(BackupError, match="is no backup"):
        restore(tmp_path / "nothing", new)
    backup(store, kept)
    with pytest.raises(StoreError, match="is not a store"):
        EmbeddedStore.open(kept)
    manifest = kept / "BACKUP"
    text = manifest.read_bytes()
    manifest.unlink()
    with pytest.raises(BackupError, match="unfinished"):
        restore(kept, new)
    manifest.write_bytes(text.replace(b'"records"', b'"recordz"'))
    with pytest.raises(BackupError, match="checksum"):
        restore(kept, new)
    assert not new.exists()


def test_a_changed_byte_of_any_file_of_a_backup_is_seen(tmp_path: Path) -> None:
    store, kept = tmp_path / "data", tmp_path / "backup"
    made(store)
    backup(store, kept)
    for number, path in enumerate(sorted((kept / "data").iterdir())):
        good = path.read_bytes()
        bad = bytearray(good)
        bad[len(bad) // 2] ^= 1
        path.write_bytes(bad)
        new = tmp_path / f"new-{number}"
        with pytest.raises(BackupError, match=path.name):
            restore(kept, new)
        assert not (new / "STORE").exists() or path.name == "STORE"
        path.unlink()
        with pytest.raises(BackupError, match=path.name):
            restore(kept, tmp_path / f"without-{number}")
        path.write_bytes(good)


def test_a_damaged_store_is_not_backed_up_as_if_it_were_good(tmp_path: Path) -> None:
    store = tmp_path / "data"
    made(store)
    segment = min(store.glob("wal-*.seg"))
    data = bytearray(segment.read_bytes())
    data[4096 + 70] ^= 1
    segment.write_bytes(data)
    with pytest.raises(LogCorruptError, match=segment.name):
        backup(store, tmp_path / "backup")
    with pytest.raises(BackupError, match="unfinished"):
        restore(tmp_path / "backup", tmp_path / "new")
    with pytest.raises(BackupError, match="unfinished"):
        backup(store, tmp_path / "backup")


# -- kills -----------------------------------------------------------------------------


def is_killed(what: str, source: Path, to: Path, nth: int) -> bool:
    process = _processes.Process(
        target=backup_victim.act_until_killed, args=(what, str(source), str(to), nth)
    )
    process.start()
    process.join(60)
    assert process.exitcode in {0, -signal.SIGKILL}
    return process.exitcode != 0


def test_a_backup_that_is_killed_at_any_step_is_not_restored(tmp_path: Path) -> None:
    store = tmp_path / "data"
    made(store, jobs=3)
    nth = 1
    while is_killed("backup", store, to := tmp_path / f"backup-{nth}", nth):
        new = tmp_path / f"new-{nth}"
        if (to / "BACKUP").exists():
            restore(to, new)  # all was done but the lock
        else:
            with pytest.raises(BackupError):
                restore(to, new)
            assert not new.exists()
        nth += 1
    assert nth > 10
    restore(to, tmp_path / "new")


def test_a_restore_that_is_killed_at_any_step_leaves_a_store_or_none(
    tmp_path: Path,
) -> None:
    store, kept = tmp_path / "data", tmp_path / "backup"
    job_ids = made(store, jobs=3)
    backup(store, kept)
    nth, whole = 1, 0
    while is_killed("restore", kept, new := tmp_path / f"new-{nth}", nth):
        nth += 1
        if (new / "STORE").exists() and (new / "STORE").stat().st_size:
            whole += 1
            states(new, job_ids)
        else:
            with pytest.raises(StoreError):
                # What is empty may become a new store; anything else is refused.
                EmbeddedStore.open(new, create=new.exists() and any(new.iterdir()))
    assert nth > 6
    assert whole < nth - 1
    assert states(new, job_ids)
