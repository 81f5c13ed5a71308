"""The command line: exit codes, what it says, and that it harms nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.wal.example_stores import (
    append,
    counting_clock,
    open_log,
    originals,
    segments_of,
    snapshots_of,
    store,
)
from wal.__main__ import CORRUPT, GOOD, IO_ERROR, LOST, TORN, USAGE, main
from wal.filesystem import FileSystem
from wal.log import Log
from wal.testing import MemoryFileSystem

ROOT = Path(__file__).resolve().parents[2]


def on_disk(disk: MemoryFileSystem, directory: Path) -> Path:
    """Put the files of a disk in memory into a real directory."""
    directory.mkdir()
    for name, data in disk.snapshot_of_all().items():
        (directory / name).write_bytes(data)
    return directory


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(directory.iterdir())}


def flip(path: Path, offset: int) -> None:
    data = bytearray(path.read_bytes())
    data[offset] ^= 1
    path.write_bytes(bytes(data))


def first_body(path: Path, frame: int = 0) -> int:
    data = path.read_bytes()
    at = [i for i in range(4096, len(data), 64) if data[i : i + 4] == b"TWgf"][frame]
    return at + 70


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A closed store of 30 records and two snapshots."""
    return on_disk(store(30, snapshots_at=(10, 20, 28)), tmp_path / "data")


def run(
    capsys: pytest.CaptureFixture[str], *arguments: str | Path
) -> tuple[int, str, str]:
    code = main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def process(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "wal", *map(str, arguments)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


# -- as a process ----------------------------------------------------------------------


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


def test_help_tells_what_each_command_does_with_an_example() -> None:
    for command in ("inspect", "verify", "stat", "repair"):
        text = process(command, "--help").stdout
        assert f"example:\n  python -m wal {command} ./data" in text
        assert "exit codes:" in text


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


# -- verify ----------------------------------------------------------------------------


def test_verify_says_good_and_what_it_read(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = contents(place)

    code, out, err = run(capsys, "verify", place)

    assert (code, err) == (GOOD, "")
    assert "3 segment(s) and 2 snapshot(s) hold 16 record(s), LSN 15 to 30" in out
    assert out.endswith("verdict: good\n")
    assert contents(place) == before


def test_verify_makes_no_lock_where_there_is_none(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (place / "LOCK").unlink()
    for command in ("verify", "stat", "inspect"):
        assert run(capsys, command, place)[0] == GOOD
    assert not (place / "LOCK").exists()


def test_verify_lists_every_fault_with_all_that_is_known(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, *_, last = sorted(place.glob("*.seg"))
    flip(first, first_body(first, 1))
    flip(last, first_body(last))

    code, out, _ = run(capsys, "verify", place)

    assert code == CORRUPT
    assert f"CORRUPT: {first.name}, offset 4224" in out
    assert "LSN 16 is expected there; the next valid frame is at offset" in out
    assert "(LSN 17); 6 record(s) at stake, at least" in out
    assert "unreadable: LSN 16 to 16 (1 record(s))" in out
    assert f"CORRUPT: {last.name}, offset 4096" in out
    rescue = f"Rescue what is readable: python -m wal repair {place} --out NEWDIR"
    assert f"CORRUPT, 2 fault(s); nothing was changed. {rescue}" in out


def test_verify_tells_a_torn_tail_from_damage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    disk = store(3, close=False)
    (name,) = segments_of(disk)
    disk.overwrite(name, 4352, bytes(64))
    place = on_disk(disk, tmp_path / "data")

    code, out, _ = run(capsys, "verify", place)

    assert code == TORN
    assert f"torn: {name}, offset 4352: a torn frame" in out
    assert "not closed: in use by process 1" in out
    assert "verdict: torn tail, as a crash leaves it" in out


def test_verify_speaks_json_too(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flip(max(place.glob("*.snap")), 4100)

    code, out, _ = run(capsys, "verify", "--json", place)

    fault, verdict = map(json.loads, out.splitlines())
    assert code == CORRUPT
    assert (fault["type"], fault["offset"]) == ("fault", 4096)
    assert verdict["verdict"] == "corrupt"
    assert verdict["records"] == 16


# -- inspect ---------------------------------------------------------------------------


def test_inspect_writes_json_lines_into_a_pipe_and_text_when_asked(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = run(capsys, "inspect", place)
    items = [json.loads(line) for line in out.splitlines()]
    kinds = [item["type"] for item in items]
    assert code == GOOD
    assert kinds[:4] == ["store", "snapshot", "snapshot", "file"]
    assert kinds.count("segment") == 3
    assert kinds.count("frame") == 17

    code, out, _ = run(capsys, "inspect", "--text", place)
    assert code == GOOD
    assert out.startswith("STORE     uuid ")
    assert "  frame   @4096  LSN 15 to 15  1 record(s)  durable 14" in out
    assert out.splitlines()[-1].startswith("  CLOSE   @")


def test_inspect_begins_and_ends_where_it_is_told(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ("--records", "--from", "23", "--limit", "3")
    code, out, _ = run(capsys, "inspect", place, *arguments)

    items = [json.loads(line) for line in out.splitlines()]
    records = [item for item in items if item["type"] == "record"]
    assert code == GOOD
    assert [record["lsn"] for record in records] == [23, 24, 25]
    assert bytes.fromhex(records[0]["hex"]) == originals(23, 23)[23][:32]
    assert records[0]["ascii"].startswith("record 23 record 23")


# -- stat ------------------------------------------------------------------------------


def test_stat_shows_a_store_in_figures(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = run(capsys, "stat", place)
    shown = dict(line.split(maxsplit=1) for line in out.splitlines())
    assert code == GOOD
    assert shown["records"] == "16"
    assert shown["closed"] == "True"
    assert shown["holder"] == "-"
    assert "snapshot lsns     28 20" in out
    assert "ready files       1 of 5,120 bytes" in out

    _, out, _ = run(capsys, "stat", "--json", place)
    figures = json.loads(out)
    assert (figures["first_lsn"], figures["last_lsn"]) == (15, 30)
    assert figures["files"]["segment"]["count"] == 3
    assert figures["bytes_per_record"] == round(figures["frame_bytes"] / 16, 1)


def test_stat_says_who_holds_a_store_and_that_something_is_wrong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Log.open(tmp_path / "data", wall_ns=counting_clock()) as log:
        log.append(b"x")
        log.commit()
        _, out, _ = run(capsys, "stat", tmp_path / "data")
    assert "holder            process " in out
    assert "not closed: in use by process " in out

    segment = next((tmp_path / "data").glob("*.seg"))
    flip(segment, 100)
    code, out, _ = run(capsys, "stat", tmp_path / "data")
    assert code == GOOD
    assert "1 fault(s): python -m wal verify" in out


# -- repair ----------------------------------------------------------------------------


def reopened(directory: Path) -> dict[int, bytes]:
    with Log.open(directory, wall_ns=counting_clock(), create=False) as log:
        return {record.lsn: record.payload for record in log.read()}


def test_repair_rescues_into_a_new_directory_and_says_that_nothing_is_lost(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = contents(place)

    code, out, err = run(capsys, "repair", place, "--out", tmp_path / "new")

    assert (code, err) == (GOOD, "")
    assert out.endswith("nothing is lost\n")
    assert "with 16 record(s), LSN 15 to 30" in out
    assert contents(place) == before
    assert run(capsys, "verify", tmp_path / "new")[0] == GOOD
    assert reopened(tmp_path / "new") == originals(29, 30)  # after snapshot 28


def test_repair_names_what_is_lost_and_its_exit_code_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = on_disk(store(30), tmp_path / "data")
    names = sorted(place.glob("*.seg"))
    flip(names[0], first_body(names[0], 3))
    names[2].unlink()

    code, out, _ = run(capsys, "repair", place, "--out", tmp_path / "new")

    assert code == LOST
    assert "LOST: LSN 4 to 4 (1 record(s))" in out
    assert "LOST: LSN 15 to 21 (7 record(s) at most)" in out
    assert "records are lost: 2 range(s)" in out
    assert run(capsys, "verify", tmp_path / "new")[0] == GOOD
    expected = originals(1, 30)
    for lsn in (4, *range(15, 22)):
        del expected[lsn]
    assert reopened(tmp_path / "new") == expected
    _, listing, _ = run(capsys, "stat", tmp_path / "new")
    assert "repaired          True" in listing


def test_repair_without_a_good_snapshot_says_that_the_beginning_is_lost(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for path in place.glob("*.snap"):
        flip(path, 4100)

    code, out, _ = run(capsys, "repair", place, "--out", tmp_path / "new")

    assert code == LOST
    assert "LOST: LSN 1 to 14 (14 record(s) at most)" in out
    assert reopened(tmp_path / "new") == originals(15, 30)


def test_repair_warns_of_an_owner_that_may_still_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = on_disk(store(3, close=False), tmp_path / "data")

    code, out, _ = run(capsys, "repair", place, "--out", tmp_path / "new")

    assert code == GOOD
    assert "note: LOCK says process 1, open since" in out


def test_repair_never_writes_into_a_directory_that_holds_something(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    taken = tmp_path / "taken"
    taken.mkdir()
    (taken / "letter.txt").write_text("Dear ...")

    for out_directory, message in (
        (taken, "is not empty"),
        (place, "never in place"),
        (place / "inside", "never in place"),
    ):
        code, _, err = run(capsys, "repair", place, "--out", out_directory)
        assert code == USAGE
        assert message in err

    assert contents(taken) == {"letter.txt": b"Dear ..."}
    assert not (place / "inside").exists()


# -- what goes wrong -------------------------------------------------------------------


def test_what_is_no_store_is_a_matter_of_usage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "empty").mkdir()
    for name, message in (
        ("missing", "does not exist"),
        ("file", "is a file, not a directory"),
        ("empty", "is empty"),
    ):
        for command in ("verify", "stat", "inspect"):
            code, out, err = run(capsys, command, tmp_path / name)
            assert (code, out) == (USAGE, "")
            assert err.startswith(f"wal: {tmp_path / name}: {message}")


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["look", "data"],
        ["verify"],
        ["repair", "data"],
        ["inspect", "data", "--from", "-1"],
        ["inspect", "data", "--limit", "many"],
        ["inspect", "data", "--json", "--text"],
    ],
)
def test_wrong_usage_is_told_before_anything_is_read(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(arguments)
    assert exit_.value.code == USAGE
    assert "usage: python -m wal" in capsys.readouterr().err


def test_a_disk_that_cannot_be_read_is_no_verdict(
    capsys: pytest.CaptureFixture[str],
) -> None:
    disk = store(30)
    name = segments_of(disk)[1]

    for command in ("verify", "stat", "inspect"):
        disk.fail("pread", 5, name=name, after=2)
        code = main([command, "memory"], files_at=lambda _: disk)
        assert code == IO_ERROR
        error = capsys.readouterr().err
        assert f"memory/{name}: Input/output error; this is no verdict" in error


def test_a_full_disk_ends_a_repair_with_an_error(
    capsys: pytest.CaptureFixture[str],
) -> None:
    disk, out = store(30), MemoryFileSystem("new")
    out.capacity_bytes = 8192
    places: dict[str, FileSystem] = {"memory": disk, "new": out}

    code = main(["repair", "memory", "--out", "new"], files_at=places.__getitem__)

    assert code == IO_ERROR
    assert "No space left" in capsys.readouterr().err
    assert "STORE" not in out.names()


def test_payloads_are_described_by_who_knows_them(
    capsys: pytest.CaptureFixture[str],
) -> None:
    disk = store(2)
    main(
        ["inspect", "memory", "--records", "--text"],
        files_at=lambda _: disk,
        describe=lambda payload: f"<{payload[:6].decode()}>",
    )
    assert "|  <record>" in capsys.readouterr().out
    assert snapshots_of(disk) == []
    append(open_log(disk), 1)
