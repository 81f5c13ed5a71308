"""The command line as a process: its exit code, a pipe, and a store that is in use."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.wal.example_stores import store
from tests.wal.test_main import first_body, flip, on_disk, run
from wal.__main__ import CORRUPT, GOOD, TORN

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A closed store of 30 records and two snapshots."""
    return on_disk(store(30, snapshots_at=(10, 20, 28)), tmp_path / "data")


def process(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "wal", *map(str, arguments)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_the_command_runs_as_a_module_and_its_exit_code_is_the_verdict(
    place: Path,
) -> None:
    good = process("verify", place)
    assert (good.returncode, good.stderr) == (GOOD, "")
    assert "verdict: good" in good.stdout

    segment = next(place.glob("*.seg"))
    flip(segment, first_body(segment))
    bad = process("verify", place)
    assert bad.returncode == CORRUPT
    assert f"CORRUPT: {segment.name}, offset 4096" in bad.stdout


def test_a_pipe_that_closes_early_ends_inspect_without_a_traceback(
    tmp_path: Path,
) -> None:
    on_disk(store(600), tmp_path / "data")
    with subprocess.Popen(
        [sys.executable, "-m", "wal", "inspect", str(tmp_path / "data"), "--records"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        child.stdout.readline()
        child.stdout.close()
        errors = child.stderr.read()

    assert errors == b""


WRITER = """
import itertools, sys
from wal.log import Log
times = itertools.count(1_700_000_000_000_000_000)
log = Log.open(
    sys.argv[1],
    wall_ns=lambda: next(times),
    segment_size_bytes=16384,
    reserve_bytes=16384,
)
for number in itertools.count():
    log.append(b"payload %d " % number * (number % 40))
    log.commit()
    if number % 500 == 499:
        snapshot = log.begin_snapshot()
        snapshot.add(b"state")
        log.finish_snapshot(snapshot, reach_lsn=log.appended_lsn)
    if number == 20:
        print("writing", flush=True)
"""


def test_verify_finds_a_store_good_while_another_process_writes_to_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = tmp_path / "data"
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(directory)], cwd=ROOT, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"writing\n"
        try:
            seen = [run(capsys, "verify", directory) for _ in range(60)]
            listed = run(capsys, "inspect", directory, "--json")
            counted = run(capsys, "stat", directory)
        finally:
            child.kill()

    assert [(code, out, err) for code, out, err in seen if code != GOOD] == []
    assert len({out for _, out, _ in seen}) > 1, "nothing was written meanwhile"
    assert f"process {child.pid}, open since" in seen[-1][1]
    assert '"fault"' not in listed[1]
    assert counted[0] == GOOD
    assert run(capsys, "verify", directory)[0] in (GOOD, TORN)
