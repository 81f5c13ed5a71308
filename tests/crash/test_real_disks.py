"""Faults on real directories: limits of the kernel, a full tmpfs, one that is read-only.

What `test_faults` plays through in memory, call by call, the kernel does here itself. What
needs a mount is skipped where the tests may not make one.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.crash.real_disk import FAR_S, SEGMENT_BYTES, open_engine
from tests.engine.stage import repeat_until
from tests.stores.embedded_stage import EmbeddedStage
from timingwheel.engine.engine import TimerEngine
from timingwheel.errors import EngineFailedError
from timingwheel.jobs.store import CancelResult
from wal.errors import CommitUnknownError, DiskFullError, StoreError

pytestmark = [pytest.mark.timeout(300)]


# -- a process that tells what it was promised -----------------------------------------------


def tell(directory: Path, fault: str) -> list[list[str]]:
    """Run real_disk and return its lines; it may die only of a torn write."""
    child = subprocess.run(
        [sys.executable, "-m", "tests.crash.real_disk", str(directory), fault],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    lines = [line.split() for line in child.stdout.splitlines()]
    if fault.startswith("torn"):
        assert child.returncode == 9, child.stderr
    else:
        assert lines[-1:] == [["end"]], child.stderr
    return lines


def numbers(lines: list[list[str]], word: str) -> set[int]:
    return {int(line[1]) for line in lines if line[0] == word}


def require_promised(
    directory: Path, lines: list[list[str]], *, unsure: int = 0
) -> None:
    """What was made is there, what was cancelled is not, and nothing else is.

    Args:
        directory: of the engine.
        lines: what was told.
        unsure: timers of calls that were refused without a word on what came of them.
    """
    promised = numbers(lines, "made") - numbers(lines, "cancelled")
    with open_engine(str(directory)) as engine:
        found = {timer.id for timer in engine.timers(10**6)}
        assert found >= promised
        assert len(found - promised) <= unsure
        engine.schedule(FAR_S)


def refusals(lines: list[list[str]]) -> list[str]:
    return [line[1] for line in lines if line[0] == "refused"]


@pytest.mark.long
def test_a_storm_of_signals_costs_nothing(tmp_path: Path) -> None:
    lines = tell(tmp_path / "d", "signals=1000")
    assert len(numbers(lines, "made")) == 1_000
    assert numbers(lines, "rung").pop() > 100
    require_promised(tmp_path / "d", lines)


@pytest.mark.long
@pytest.mark.parametrize("spare", range(4))
def test_without_descriptors_it_refuses_and_goes_on(tmp_path: Path, spare: int) -> None:
    """What a commit needs is open by the time that anything is promised."""
    lines = tell(tmp_path / "d", f"descriptors={spare}")
    refused = refusals(lines)
    assert set(refused) <= {"OSError"}
    assert spare or refused
    require_promised(tmp_path / "d", lines)


@pytest.mark.long
@pytest.mark.parametrize("kib", [1, 4, 20, 48, 63, 64])
def test_a_limit_on_file_sizes_loses_nothing(tmp_path: Path, kib: int) -> None:
    """Below the size of a segment a commit can meet it, which is final."""
    lines = tell(tmp_path / "d", f"file-size={kib << 10}")
    refused = refusals(lines)
    assert bool(refused) == (kib < 64)
    assert set(refused) <= {"CommitUnknownError", "DiskFullError"}
    require_promised(tmp_path / "d", lines, unsure=refused.count("CommitUnknownError"))


@pytest.mark.long
@pytest.mark.parametrize("mib", [2, 5, 11, 23, 40])
def test_a_process_without_memory_loses_nothing(tmp_path: Path, mib: int) -> None:
    lines = tell(tmp_path / "d", f"memory={mib}")
    assert refusals(lines)
    assert set(refusals(lines)) <= {"MemoryError", "OSError", "EngineFailedError"}
    require_promised(tmp_path / "d", lines, unsure=4)


# -- the directory goes -----------------------------------------------------------------------


def test_what_is_written_to_a_removed_directory_is_not_acknowledged(
    tmp_path: Path,
) -> None:
    engine = open_engine(str(tmp_path / "d"))
    engine.schedule(FAR_S)
    shutil.rmtree(tmp_path / "d")
    with pytest.raises(CommitUnknownError, match="was removed"):
        engine.schedule(FAR_S)
    with pytest.raises(EngineFailedError):
        engine.schedule(FAR_S)
    with contextlib.suppress(OSError):
        engine.close()
    assert not (tmp_path / "d").exists()


# -- file systems of our own ------------------------------------------------------------------

Mount = Callable[..., Path]


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[Mount]:
    """Make mounts; skip where that is not allowed."""
    places: list[Path] = []

    def make(*options: str) -> Path:
        place = tmp_path / f"mount{len(places)}"
        place.mkdir()
        done = subprocess.run(
            ["mount", *options, place], capture_output=True, check=False
        )
        if done.returncode:
            pytest.skip(f"no mount is possible here: {done.stderr!r}")
        places.append(place)
        return place

    yield make
    for place in places:
        subprocess.run(["umount", "-l", place], check=True)


@pytest.fixture
def tmpfs(mount: Mount) -> Path:
    return mount("-t", "tmpfs", "-o", "size=4m", "tmpfs")


@contextlib.contextmanager
def filled(place: Path) -> Iterator[None]:
    """Take all space of a file system for the length of a block."""
    ballast = place / "ballast"
    handle = os.open(ballast, os.O_CREAT | os.O_WRONLY)
    try:
        repeat_until(OSError, lambda: os.write(handle, bytes(4096)))
        with pytest.raises(OSError, match="No space"):
            os.write(handle, bytes(4096))
        yield
    finally:
        os.close(handle)
        ballast.unlink()


def test_jobs_go_on_and_are_shown_on_a_full_tmpfs_which_heals(tmpfs: Path) -> None:
    stage = EmbeddedStage(
        tmpfs / "store", segment_size_bytes=SEGMENT_BYTES, reserve_bytes=4 << 16
    )
    stage.store._core.make_room(urgent=False)
    for _ in range(5):
        stage.put(0)
    assert len(stage.step()) == 5
    due = [stage.put(10) for _ in range(20)]
    far = [stage.put(10_000) for _ in range(20)]
    with filled(tmpfs):
        text = {"text": "x" * 2_000}
        stage.put(0)
        repeat_until(DiskFullError, lambda: stage.put(9_999, tags=text))
        stage.advance(11)
        while stage.step():
            assert stage.store.cancel(far.pop()) is CancelResult.CANCELLED
        assert {state for job in due for state in stage.states(job)} == {"succeeded"}
        stage.advance(2)  # the history is tried again, and refused again
        stage.clock.settle()
        before = [run.id for run in stage.runs()], [job.id for job in stage.all_jobs()]
    stage.put(0)
    stage.advance(2)
    assert len(stage.step()) == 1
    stage.restart()
    found = [run.id for run in stage.runs()], [job.id for job in stage.all_jobs()]
    assert {*before[0]} < {*found[0]}
    assert {*before[1]} < {*found[1]}
    assert len(found[0]) == len({*found[0]}) == len(before[0]) + 1
    stage.end_all()


def test_cancels_outlast_schedules_on_a_full_tmpfs_which_heals(tmpfs: Path) -> None:
    engine = open_engine(str(tmpfs / "engine"))
    engine._core.make_room(urgent=False)
    ids = [engine.schedule(FAR_S, bytes(100)) for _ in range(3_000)]
    with filled(tmpfs):
        repeat_until(
            DiskFullError, lambda: ids.append(engine.schedule(FAR_S, bytes(500)))
        )
        gone = [timer_id for timer_id in ids[:500] if engine.cancel(timer_id)]
        assert len(gone) == 500
        assert len(engine) == len(ids) - 500
    ids.append(engine.schedule(FAR_S))  # space is back, and it notices by itself
    engine.close()
    with open_engine(str(tmpfs / "engine")) as engine:
        assert {timer.id for timer in engine.timers(10**6)} == {*ids} - {*gone}


@pytest.mark.long
@pytest.mark.parametrize("count", [1, 40])
def test_a_torn_store_opens_on_a_full_tmpfs(tmpfs: Path, count: int) -> None:
    lines = tell(tmpfs / "d", f"torn={count}")
    with filled(tmpfs):
        engine = open_engine(str(tmpfs / "d"))
        assert {timer.id for timer in engine.timers(10**6)} == numbers(lines, "made")
        assert engine.report is not None
        assert engine.report.torn_bytes > 2_000
        assert engine.report.torn_file is not None
        assert engine.report.torn_file.endswith(".seg")
        assert engine.cancel(min(numbers(lines, "made")))
        engine.close()
    lines.append(["cancelled", str(min(numbers(lines, "made")))])
    require_promised(tmpfs / "d", lines)


@pytest.mark.long
def test_a_scheduler_that_was_closed_opens_on_a_full_tmpfs(tmpfs: Path) -> None:
    """SQLite wants 32 KiB to open the history; a segment of the reserve makes way."""
    stage = EmbeddedStage(
        tmpfs / "store", segment_size_bytes=SEGMENT_BYTES, reserve_bytes=4 << 16
    )
    stage.store._core.make_room(urgent=False)
    over, far = stage.put(0), stage.put(10_000)
    stage.step()
    stage.stop()
    with filled(tmpfs):
        stage.open()
        assert stage.states(over) == ["succeeded"]
        assert stage.store.cancel(far) is CancelResult.CANCELLED
        stage.stop()
    stage.open()
    assert stage.states(far) == ["cancelled"]
    stage.end_all()


@pytest.mark.long
def test_a_store_on_a_read_only_mount_is_refused_and_opens_when_it_is_not(
    tmpfs: Path,
) -> None:
    with open_engine(str(tmpfs / "d")) as engine:
        made = engine.schedule(FAR_S)
    before = {path: path.read_bytes() for path in (tmpfs / "d").iterdir()}
    subprocess.run(["mount", "-o", "remount,ro", tmpfs], check=True)
    with pytest.raises(StoreError, match="not writable"):
        open_engine(str(tmpfs / "d"))
    subprocess.run(["mount", "-o", "remount,rw", tmpfs], check=True)
    assert {path: path.read_bytes() for path in (tmpfs / "d").iterdir()} == before
    with open_engine(str(tmpfs / "d")) as engine:
        assert [timer.id for timer in engine.timers(10**6)] == [made]


@pytest.mark.long
def test_an_ext4_that_turns_read_only_ends_the_engine_and_loses_nothing(
    tmp_path: Path, mount: Mount
) -> None:
    """As a disk that fails makes it: errors=remount-ro, and an error is triggered."""
    image = tmp_path / "image"
    with image.open("wb") as file:
        file.truncate(24 << 20)
    if shutil.which("mkfs.ext4") is None:
        pytest.skip("no mkfs.ext4")
    subprocess.run(["mkfs.ext4", "-q", image], check=True)
    place = mount("-o", "loop,errors=remount-ro", str(image))
    device = next(
        line.split()[0] for line in Path("/proc/mounts").read_text().splitlines()
        if line.split()[1] == str(place)
    )  # fmt: skip
    trigger = Path("/sys/fs/ext4") / Path(device).name / "trigger_fs_error"
    engine = open_engine(str(place / "d"))
    made = [engine.schedule(FAR_S, bytes(300)) for _ in range(100)]
    trigger.write_text("planned by a test")
    more: list[int] = []
    errors = (CommitUnknownError, DiskFullError, OSError)
    repeat_until(errors, lambda: more.append(engine.schedule(FAR_S, bytes(300))))
    with pytest.raises((EngineFailedError, OSError)):
        engine.schedule(FAR_S, bytes(300))
    with contextlib.suppress(OSError, EngineFailedError):
        engine.close()
    subprocess.run(["umount", place], check=True)
    subprocess.run(["fsck.ext4", "-fy", image], capture_output=True, check=False)
    subprocess.run(["mount", "-o", "loop", image, place], check=True)
    with open_engine(str(place / "d")) as engine:
        found = {timer.id for timer in engine.timers(10**6)}
        assert found >= {*made, *more}
        assert len(found - {*made, *more}) <= 1


@pytest.mark.long
def test_a_disk_that_shrinks_and_grows_under_a_life_loses_nothing(tmpfs: Path) -> None:
    """Space goes and comes back forty times while timers are made and cancelled."""
    engine: TimerEngine = open_engine(str(tmpfs / "engine"))
    engine._core.make_room(urgent=False)
    live: set[int] = set()
    refused = 0

    def make() -> None:
        live.add(engine.schedule(FAR_S, bytes(700)))

    for turn in range(40):
        engine._core.make_room(urgent=False)  # so that the reserve is there
        with filled(tmpfs):
            repeat_until(DiskFullError, make)
            refused += 1
            for timer_id in sorted(live)[: len(live) // 2]:
                assert engine.cancel(timer_id)
                live.remove(timer_id)
            if turn % 10 == 9:
                engine.close()
                engine = open_engine(str(tmpfs / "engine"))
        make()
        engine.snapshot()
        assert {timer.id for timer in engine.timers(10**6)} == live
    engine.close()
    assert refused == 40
    with open_engine(str(tmpfs / "engine")) as engine:
        assert {timer.id for timer in engine.timers(10**6)} == live
