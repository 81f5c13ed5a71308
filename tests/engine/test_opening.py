"""From a path to timers: what cannot be opened says why, and is left as it was."""

from __future__ import annotations

import errno
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.engine.stage import SMALL, CountingClock
from timingwheel.engine.opening import open_log, open_timers
from timingwheel.engine.records import clock_stepped
from timingwheel.engine.timers import Timers
from timingwheel.engine.volatile import VolatileLog
from timingwheel.errors import ArgumentError, TimingWheelError
from wal.checksum import crc32c
from wal.errors import LogCorruptError, StoreError, StoreInUseError
from wal.log import Log
from wal.testing import MemoryFileSystem

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def opened() -> Iterator[list[Timers]]:
    timers: list[Timers] = []
    yield timers
    for each in timers:
        each.core.close()


def open_at(place: Any, clock: CountingClock, **options: Any) -> Timers:
    defaults: dict[str, Any] = {
        "may_wait": True,
        "durability": "durable",
        "interval_ms": 50,
        "create": True,
        "atomic_sectors": True,
        **SMALL,
    }
    return open_timers(place, clock, **defaults | options)


def make_store(place: Any, clock: CountingClock) -> None:
    timers = open_at(place, clock)
    timers.core.commit(timers.schedule(60, b"kept")[1])
    timers.core.close()


def contents(directory: Path) -> dict[str, bytes | None]:
    return {
        str(path.relative_to(directory)): path.read_bytes() if path.is_file() else None
        for path in sorted(directory.rglob("*"))
    }


def test_what_was_stored_is_there_again(tmp_path: Path, clock: CountingClock) -> None:
    make_store(tmp_path / "new" / "deep", clock)
    timers = open_at(str(tmp_path / "new" / "deep"), clock, create=False)
    assert [timer.payload for timer in timers.first(9)] == [b"kept"]
    timers.core.close()


def test_in_memory_there_is_no_directory(
    tmp_path: Path, clock: CountingClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    timers = open_at(":memory:", clock)
    assert isinstance(timers.core.log, VolatileLog)
    assert contents(tmp_path) == {}


@pytest.mark.parametrize("place", [None, 5, b"bytes", ["list"]])
def test_what_is_no_path_is_refused(place: Any, clock: CountingClock) -> None:
    named = re.escape(f"path is {place!r}")
    with pytest.raises(
        ArgumentError, match=f"{named}.*pass a directory, or ':memory:'"
    ):
        open_at(place, clock)


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("redis://h:6379/0", "path is 'redis://...': pass a directory; the database"),
        (Path("sqlite:///jobs.db"), "path is 'sqlite://...': pass a directory"),
        (
            "postgresql+psycopg://u:secret@h/db",
            "path is 'postgresql.psycopg://...': the",
        ),
        ("HTTP://h:8765", "path is 'HTTP://...': a server is asked by"),
        ("file:///tmp/data", "path is 'file://...': pass the path alone"),
        ("~", "path is '~': ~ is not expanded here"),
        ("~/data", "path is '~/data': ~ is not expanded here"),
        ("a\0b", "path is .*holds no NUL"),
    ],
)
def test_a_directory_that_nobody_means_is_not_made(
    tmp_path: Path,
    clock: CountingClock,
    monkeypatch: pytest.MonkeyPatch,
    place: Any,
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ArgumentError, match=message) as refused:
        open_at(place, clock)
    assert "secret" not in str(refused.value)
    assert contents(tmp_path) == {}


def test_a_directory_of_such_a_name_can_still_be_meant(
    tmp_path: Path, clock: CountingClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for place in ("./redis:/x", "./~", "a:b", "x/~/y"):
        open_at(place, clock).core.close()


def test_an_empty_path_is_refused(clock: CountingClock) -> None:
    with pytest.raises(ArgumentError, match="path is '': name a directory"):
        open_at("", clock)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("durability", "lax"),
        ("interval_ms", 0),
        ("segment_size_bytes", 5),
        ("reserve_bytes", -1),
    ],
)
def test_options_are_checked_in_memory_too(
    clock: CountingClock, option: str, value: object
) -> None:
    with pytest.raises(ArgumentError, match=f"{option} is {value!r}"):
        open_at(":memory:", clock, **{option: value})


def test_a_log_opens_without_options(clock: CountingClock) -> None:
    assert isinstance(open_log(":memory:", clock), VolatileLog)
    log = open_log(MemoryFileSystem(), clock)
    assert isinstance(log, Log)
    log.commit(log.append(b"x"))
    log.close()
    assert sum(log.syncs.counts) > 0  # it has a clock to time them by


def test_options_are_checked_before_anything_is_made(
    tmp_path: Path, clock: CountingClock
) -> None:
    with pytest.raises(ArgumentError, match="segment_size_bytes is 5"):
        open_at(tmp_path / "new", clock, segment_size_bytes=5)
    assert contents(tmp_path) == {}


# -- directories that are none of ours -----------------------------------------------------


def test_a_file_is_refused(tmp_path: Path, clock: CountingClock) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"mine")
    with pytest.raises(StoreError, match=r"file: is a file, .*path of a directory"):
        open_at(file, clock)
    assert contents(tmp_path) == {"file": b"mine"}


def test_a_directory_below_a_file_is_refused(
    tmp_path: Path, clock: CountingClock
) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"mine")
    with pytest.raises(StoreError, match=r"below: cannot be made: .* is a file"):
        open_at(file / "below", clock)
    assert contents(tmp_path) == {"file": b"mine"}


def test_somebody_elses_directory_is_refused(
    tmp_path: Path, clock: CountingClock
) -> None:
    (tmp_path / "thesis.txt").write_bytes(b"42 pages")
    with pytest.raises(StoreError, match=r"holds thesis.txt; pass an empty or a new"):
        open_at(tmp_path, clock)
    assert contents(tmp_path) == {"thesis.txt": b"42 pages"}


@pytest.mark.parametrize("made", [True, False])
def test_where_a_store_is_expected_there_must_be_one(
    tmp_path: Path, clock: CountingClock, made: bool
) -> None:
    place = tmp_path / "data"
    if made:
        place.mkdir()
    found = "is empty" if made else "does not exist"
    with pytest.raises(StoreError, match=rf"data: {found}; check the path"):
        open_at(place, clock, create=False)
    assert contents(tmp_path) == ({"data": None} if made else {})


def test_an_empty_store_file_is_not_an_empty_store(
    tmp_path: Path, clock: CountingClock
) -> None:
    make_store(tmp_path, clock)
    (tmp_path / "STORE").write_bytes(b"")
    before = contents(tmp_path)
    with pytest.raises(StoreError, match=r"STORE: 0 bytes that are not .*backup"):
        open_at(tmp_path, clock)
    assert contents(tmp_path) == before


def test_a_store_that_lost_its_log_is_refused(
    tmp_path: Path, clock: CountingClock
) -> None:
    make_store(tmp_path, clock)
    for segment in tmp_path.glob("wal-*.seg"):
        segment.unlink()
    before = contents(tmp_path)
    with pytest.raises(StoreError, match="no segment of a log"):
        open_at(tmp_path, clock)
    assert contents(tmp_path) == before


@pytest.mark.parametrize(
    "offset", [8, 12, 16], ids=["major", "incompatible", "read-only"]
)
def test_a_store_of_a_newer_format_is_refused(
    tmp_path: Path, clock: CountingClock, offset: int
) -> None:
    make_store(tmp_path, clock)
    store = bytearray((tmp_path / "STORE").read_bytes())
    store[offset] += 1
    store[48:52] = crc32c(bytes(store[:48])).to_bytes(4, "little")
    (tmp_path / "STORE").write_bytes(store)
    before = contents(tmp_path)
    with pytest.raises(StoreError, match=r"STORE: .*newer"):
        open_at(tmp_path, clock)
    assert contents(tmp_path) == before


def test_a_flipped_bit_in_acknowledged_data_is_refused_with_all_that_is_known(
    clock: CountingClock,
) -> None:
    disk = MemoryFileSystem()
    make_store(disk, clock)
    segment = next(name for name in disk.names() if name.endswith(".seg"))
    disk.flip_bit(segment, 8 * (4096 + 64 + 20))
    before = disk.snapshot_of_all()
    with pytest.raises(LogCorruptError) as caught:
        open_at(disk, clock)
    error = caught.value
    assert (error.file, error.offset, error.expected_lsn) == (segment, 4096, 1)
    assert error.records_at_stake >= 1
    assert disk.snapshot_of_all() == before


# -- permissions and other processes -------------------------------------------------------


@pytest.mark.parametrize("op", ["make_directory", "lock"])
@pytest.mark.parametrize("code", [errno.EACCES, errno.EROFS, errno.EPERM])
def test_a_directory_that_may_not_be_written_is_refused(
    disk: MemoryFileSystem, clock: CountingClock, op: str, code: int
) -> None:
    disk.fail(op, code)
    with pytest.raises(StoreError, match=r"is not writable.*change its permissions"):
        open_at(disk, clock)
    assert disk.snapshot_of_all() == {}


OPEN_AS_NOBODY = """
import os, sys
from timingwheel import TimerEngine, StoreError
if os.geteuid() == 0:
    os.seteuid(65534)
try:
    TimerEngine(sys.argv[1], lambda timer_id, payload: None)
except StoreError as error:
    print(error)
"""


def test_a_real_directory_that_may_not_be_written_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o555)
    done = run(OPEN_AS_NOBODY, tmp_path)
    tmp_path.chmod(0o755)
    assert "is not writable (Permission denied); change its permissions" in done.stdout
    assert contents(tmp_path) == {}


def run(source: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-c", source, *map(str, arguments)],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        text=True,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done


HOLD = """
import sys
from timingwheel import TimerEngine
with TimerEngine(sys.argv[1], lambda timer_id, payload: None,
                 segment_size_bytes=65536, reserve_bytes=1) as engine:
    engine.schedule(3600, b"theirs")
    print("ready", flush=True)
    sys.stdin.read()
"""


def test_a_directory_that_another_process_holds_is_refused_by_its_name(
    tmp_path: Path, clock: CountingClock
) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "ready\n"
        settled = {"STORE", "LOCK"}
        before = {name: contents(tmp_path)[name] for name in settled}
        with pytest.raises(StoreInUseError, match=rf"process {holder.pid}, open since"):
            open_at(tmp_path, clock)
        assert {name: contents(tmp_path)[name] for name in settled} == before
        assert holder.stdin is not None
        holder.stdin.close()
        assert holder.wait(60) == 0
    timers = open_at(tmp_path, clock)
    assert [timer.payload for timer in timers.first(9)] == [b"theirs"]
    timers.core.close()


def test_a_directory_that_this_process_holds_is_refused_too(
    disk: MemoryFileSystem, clock: CountingClock, opened: list[Timers]
) -> None:
    opened.append(open_at(disk, clock))
    with pytest.raises(StoreInUseError, match="in use by process 1"):
        open_at(disk, clock)


@pytest.mark.parametrize("steps_ns", [-(1 << 63), (1 << 63) - 1])
def test_steps_that_no_clock_can_take_are_refused(
    clock: CountingClock, steps_ns: int
) -> None:
    disk = MemoryFileSystem()
    make_store(disk, clock)
    with Log.open(disk, wall_ns=clock.wall_ns, **SMALL) as log:
        log.start()
        log.commit(log.append(clock_stepped(steps_ns)))
    with pytest.raises(
        TimingWheelError, match=r"set by -?[0-9]+ ns in all, which none"
    ):
        open_at(disk, clock)


@pytest.mark.parametrize(
    ("op", "error"), [("open", OSError), ("pread", OSError), ("rename", OSError)]
)
def test_an_open_that_failed_leaves_the_directory_unlocked(
    disk: MemoryFileSystem,
    clock: CountingClock,
    opened: list[Timers],
    op: str,
    error: type[Exception],
) -> None:
    make_store(disk, clock)
    disk.fail(op, errno.EIO)
    with pytest.raises(error):
        open_at(disk, clock)
    disk.heal()
    opened.append(open_at(disk, clock))
    assert [timer.payload for timer in opened[0].first(9)] == [b"kept"]
