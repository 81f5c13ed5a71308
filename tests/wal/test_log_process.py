"""Logs in real directories: paths, locks between processes, and forks."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.wal.children import forks, in_child
from tests.wal.stores import PATIENCE_SECONDS, WALL_NS, open_log
from wal.errors import LogFailedError, StoreError, StoreInUseError
from wal.frame import encode_records
from wal.log import Log
from wal.testing import MemoryFileSystem, SimulatedCrash

# -- a real directory ------------------------------------------------------------------


def test_a_real_directory_holds_a_log(tmp_path: Path) -> None:
    path = tmp_path / "a" / "store"
    with open_log(path, background=True, segment_size_bytes=16_384) as log:
        for number in range(20):
            log.commit(log.append(b"%d" % number * 3000))
    with Log.open(str(path), wall_ns=lambda: WALL_NS, create=False) as log:
        found = [record.payload for record in log.read()]
        assert found == [b"%d" % number * 3000 for number in range(20)]
        assert log.start().clean


def test_a_missing_real_directory_is_not_made_without_leave(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with pytest.raises(StoreError, match="does not exist"):
        Log.open(path, wall_ns=lambda: WALL_NS, create=False)
    assert not path.exists()
    path.mkdir()
    with pytest.raises(StoreError, match="is empty"):
        Log.open(path, wall_ns=lambda: WALL_NS, create=False)
    assert list(path.iterdir()) == []


def test_a_real_file_and_a_foreign_directory_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tmp").write_bytes(b"text")
    for path in (tmp_path, tmp_path / "thesis.tmp"):
        with pytest.raises(StoreError):
            Log.open(path, wall_ns=lambda: WALL_NS)
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.tmp"]
    assert (tmp_path / "thesis.tmp").read_bytes() == b"text"


def test_two_logs_of_one_process_exclude_each_other(tmp_path: Path) -> None:
    with open_log(str(tmp_path)) as log:
        log.start()
        with pytest.raises(StoreInUseError, match=f"process {os.getpid()}, open since"):
            open_log(str(tmp_path))
    with open_log(str(tmp_path)) as log:
        log.start()


HOLDER = """
import sys
from wal.log import Log
from wal.testing import MemoryFileSystem, SimulatedCrash
from wal.testing import MemoryFileSystem, SimulatedCrash
log = Log.open(sys.argv[1], wall_ns=lambda: 0, segment_size_bytes=8192)
log.commit(log.append(b"of the child"))
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that has the directory open."""
    command = [sys.executable, "-c", HOLDER, str(tmp_path)]
    root = Path(__file__).resolve().parents[2]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=root
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
        process.kill()


def test_another_process_is_named_and_its_lock_dies_with_it(
    holder: subprocess.Popen[str], tmp_path: Path
) -> None:
    with pytest.raises(StoreInUseError, match=f"process {holder.pid}, open since"):
        open_log(str(tmp_path))
    holder.send_signal(signal.SIGKILL)
    holder.wait(PATIENCE_SECONDS)
    assert payloads_of_path(tmp_path) == [b"of the child"]


def payloads_of_path(path: Path) -> list[bytes]:
    with open_log(str(path)) as log:
        return [record.payload for record in log.read()]


def raises_failed(call: Callable[[], object]) -> None:
    with pytest.raises(LogFailedError, match="fork of the log's owner"):
        call()


@forks
def test_a_forked_child_can_do_nothing_with_the_log_of_its_parent(
    tmp_path: Path,
) -> None:
    log = open_log(str(tmp_path))
    log.commit(log.append(b"before"))
    log.append(b"not yet committed")
    (segment,) = tmp_path.glob("wal-*.seg")
    before = segment.read_bytes()

    def child() -> None:
        calls: list[Callable[[], object]] = [
            lambda: log.append(b"x"),
            lambda: log.append_group(encode_records([b"x"]), 1),
            log.commit,
            log.sync,
            log.make_room,
            log.begin_snapshot,
            log.stats,
        ]
        for call in calls:
            raises_failed(call)
        log.close()
        log.close()

    assert in_child(child) == 0
    assert segment.read_bytes() == before
    # The child closed its copy of the lock: that of the parent stays.
    with pytest.raises(StoreInUseError):
        open_log(str(tmp_path))
    log.commit()
    log.close()
    assert payloads_of_path(tmp_path) == [b"before", b"not yet committed"]


@forks
def test_a_log_that_cannot_be_given_up_does_not_spoil_the_others(
    tmp_path: Path,
) -> None:
    broken = [MemoryFileSystem() for _ in range(8)]  # logs are met in no order
    others = [open_log(disk) for disk in broken]
    for disk in broken:
        disk.crash_at(disk.calls + 1)
        with pytest.raises(SimulatedCrash):
            disk.sync_dir()
    log = open_log(str(tmp_path))
    log.append(b"1")
    assert in_child(lambda: raises_failed(log.commit)) == 0
    log.close()
    assert payloads_of_path(tmp_path) == [b"1"]
    assert len(others) == 8


@forks
def test_a_child_forked_in_read_mode_can_do_nothing_either(tmp_path: Path) -> None:
    log = open_log(str(tmp_path))

    def child() -> None:
        raises_failed(log.start)
        raises_failed(lambda: log.append(b"x"))
        log.close()

    assert in_child(child) == 0
    log.append(b"1")
    log.close()
    assert payloads_of_path(tmp_path) == [b"1"]


@forks
def test_a_child_keeps_no_lock_when_the_parent_has_closed(tmp_path: Path) -> None:
    log = open_log(str(tmp_path))
    log.append(b"1")
    mine, of_child = socket.socketpair()
    with mine, of_child:
        child = os.fork()
        if child == 0:  # pragma: no cover - another process
            mine.close()
            of_child.send(b"running")
            of_child.recv(1)  # lives until the parent is done
            os._exit(0)
        of_child.close()
        assert mine.recv(7) == b"running"
        log.close()
        assert payloads_of_path(tmp_path) == [b"1"]
    os.waitpid(child, 0)
