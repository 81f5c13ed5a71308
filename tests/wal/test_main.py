"""The command line: exit codes, what it says, and that it harms nothing."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path

import pytest

from tests.wal.example_stores import (
    Eventful,
    append,
    counting_clock,
    open_log,
    originals,
    segments_of,
    snapshots_of,
    store,
)
from tests.wal.stores import SegmentBuilder, frames_of
from wal.__main__ import CORRUPT, GOOD, IO_ERROR, LOST, TORN, USAGE, main
from wal.filesystem import FileSystem, Handle
from wal.frame import Flag
from wal.inspection import KINDS, iso_utc, verify
from wal.log import Log
from wal.recovery import LSN_SKIP
from wal.store import StoreIdentity, read_identity, write_identity
from wal.testing import MemoryFileSystem


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


def of(
    disk: FileSystem, capsys: pytest.CaptureFixture[str], *arguments: str
) -> tuple[int, list[str], str]:
    """Run a command on a disk in memory; return the code, the lines and the errors."""
    code = main([*arguments, disk.path], files_at=lambda _: disk)
    captured = capsys.readouterr()
    return code, captured.out.splitlines(), captured.err


class Terminal(io.StringIO):
    """What a command writes to, as if somebody sat before it."""

    def isatty(self) -> bool:
        return True


# -- exit codes and help ---------------------------------------------------------------


def test_the_exit_codes_are_those_that_are_promised() -> None:
    assert (GOOD, IO_ERROR, USAGE, TORN, CORRUPT, LOST) == (0, 1, 2, 3, 4, 4)


@pytest.mark.parametrize(
    ("command", "usage", "told"),
    [
        (
            "inspect",
            "[--json | --text] [--records] [--from LSN] [--limit N] PATH",
            [
                "List STORE, the snapshots,",
                "--json JSON lines;",
                "--text lines for people;",
                "--records show every record",
                "--from LSN begin the log",
                "--limit N end after N frames",
            ],
        ),
        ("verify", "[--json] PATH", ["Read every segment", "--json JSON lines"]),
        ("stat", "[--json] PATH", ["Show sizes,", "--json JSON lines"]),
        ("repair", "--out NEWDIR PATH", ["Copy every record", "--out NEWDIR where"]),
    ],
    ids=["inspect", "verify", "stat", "repair"],
)
def test_the_help_of_a_command_tells_what_it_does_its_options_and_an_example(
    command: str, usage: str, told: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit_:
        main([command, "--help"])
    assert exit_.value.code == 0
    text = capsys.readouterr().out
    assert f"\n\nexample:\n  python -m wal {command} ./data" in text
    assert "\n\nexit codes:\n  0  good" in text
    words = " ".join(text.split())
    assert words.startswith(f"usage: python -m wal {command} [-h] {usage} ")
    for part in [*told, "PATH the directory of the store"]:
        assert part in words


def test_the_help_names_all_commands_and_the_exit_codes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(["--help"])
    assert exit_.value.code == 0
    text = capsys.readouterr().out
    assert text.startswith("usage: python -m wal [-h] COMMAND ...\n\nLook at a ")
    assert "exit codes:\n  0  good" in text
    for summary in (
        "inspect       list what a store holds, frame by frame",
        "verify        check every byte that counts",
        "stat          show a store in figures",
        "repair        rescue what is readable into a new store",
    ):
        assert summary.split() in [line.split() for line in text.splitlines()]


# -- verify ----------------------------------------------------------------------------


def test_verify_says_all_of_a_good_store(capsys: pytest.CaptureFixture[str]) -> None:
    disk = store(30, snapshots_at=(28,))
    assert of(disk, capsys, "verify") == (
        GOOD,
        [
            (
                "memory: 5 segment(s) and 1 snapshot(s) hold 30 record(s), LSN 1 to 30; "
                "all was read to the end"
            ),
            "verdict: good",
        ],
        "",
    )


def test_verify_says_of_a_store_without_a_record_who_left_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    disk = MemoryFileSystem()
    open_log(disk).start()
    disk.put("LOCK", b"")
    assert of(disk, capsys, "verify") == (
        GOOD,
        [
            (
                "memory: 1 segment(s) and 0 snapshot(s) hold 0 record(s); all was read to "
                "the end"
            ),
            "not closed: left by a crash",
            "verdict: good",
        ],
        "",
    )


def test_verify_says_all_of_damage_and_of_a_torn_tail(
    capsys: pytest.CaptureFixture[str],
) -> None:
    disk = store(3, close=False)
    (name,) = segments_of(disk)
    disk.flip_bit(name, 8 * (4096 + 70))
    disk.overwrite(name, 4096 + 256, bytes(64))
    disk.put("LOCK", b"process 7")

    code, lines, _ = of(disk, capsys, "verify")

    assert code == CORRUPT  # the worse of the two
    assert lines == [
        (
            f"CORRUPT: {name}, offset 4096: a bad frame, and the frame at offset 4224 (LSN "
            "2) proves that LSN 1 had been synced"
        ),
        (
            "    LSN 1 is expected there; the next valid frame is at offset 4224 (LSN 2); 2 "
            "record(s) at stake, at least"
        ),
        "    unreadable: LSN 1 to 1 (1 record(s))",
        f"torn: {name}, offset 4352: a torn frame: its header was never written",
        (
            "    LSN 3 is expected there; no valid frame follows in this file; 1 record(s) "
            "at stake, at least"
        ),
        (
            "memory: 1 segment(s) and 0 snapshot(s) hold 1 record(s), LSN 2 to 2; all was "
            "read to the end"
        ),
        "not closed: in use by process 7, or left so by a crash",
        (
            "verdict: CORRUPT, 2 fault(s); nothing was changed. Rescue what is readable: "
            "python -m wal repair memory --out NEWDIR"
        ),
    ]


def test_verify_says_when_damage_would_look_like_a_torn_tail(
    capsys: pytest.CaptureFixture[str],
) -> None:
    disk = MemoryFileSystem()
    segment = SegmentBuilder()
    segment.add(b"1")
    at = segment.add(b"2", flags=Flag.RELAXED)
    segment.data[at + 64] ^= 1
    segment.put(disk)
    write_identity(disk, StoreIdentity(segment.header.store_uuid, 1))

    code, lines, _ = of(disk, capsys, "verify")

    assert code == TORN
    assert lines[2] == "    damage would look the same here"
    assert lines[-1] == (
        "verdict: torn tail, as a crash leaves it; the next open keeps it aside and "
        "cuts it off"
    )


@pytest.mark.parametrize("holder", [b"process 7", b""])
def test_verify_says_of_a_log_that_is_being_written_by_whom(
    capsys: pytest.CaptureFixture[str], holder: bytes
) -> None:
    disk = Eventful()
    log = open_log(disk)
    append(log, 3)
    disk.put("LOCK", holder)

    def go_on() -> None:
        append(log, 12)

    disk.after(2, go_on)  # when the segments were listed

    code, lines, _ = of(disk, capsys, "verify")

    assert code == GOOD
    by = holder.decode() or "another process"
    assert lines[-2:] == [f"not closed: being written by {by}", "verdict: good"]


@pytest.mark.parametrize(
    ("damage", "code", "verdict"),
    [(None, GOOD, "good"), ("torn", TORN, "torn"), ("flip", CORRUPT, "corrupt")],
)
def test_the_verdict_in_json_has_all_figures(
    capsys: pytest.CaptureFixture[str], damage: str | None, code: int, verdict: str
) -> None:
    disk = store(3, close=False)
    (name,) = segments_of(disk)
    wall = frames_of(disk, name)[1][1].wall_ns
    if damage == "flip":
        disk.flip_bit(name, 8 * (4096 + 256 + 70))
    elif damage == "torn":
        disk.overwrite(name, 4096 + 256, bytes(64))
    else:
        wall = frames_of(disk, name)[2][1].wall_ns

    found, lines, _ = of(disk, capsys, "verify", "--json")

    assert found == code
    records = 3 if damage is None else 2
    assert json.loads(lines[-1]) == {
        "type": "verdict",
        "verdict": verdict,
        "records": records,
        "first_lsn": 1,
        "last_lsn": records,
        "segments": 1,
        "snapshots": 0,
        "frames": records,
        "faults": 0 if damage is None else 1,
        "last_wall": iso_utc(wall),
        "closed": False,
        "holder": disk.content("LOCK").decode().strip(),
    }


def test_verify_shows_on_a_terminal_how_far_it_is(
    capsys: pytest.CaptureFixture[str],
) -> None:
    disk = store(8)  # a full segment, and one that was closed
    sizes = [len(disk.content(name)) for name in segments_of(disk)]
    with contextlib.redirect_stderr(Terminal()) as shown:
        of(disk, capsys, "verify")
    total = sum(sizes)
    assert shown.getvalue().split("\r") == [
        "",
        f"verifying: 0 % of {total:,} bytes",
        f"verifying: {100 * sizes[0] // total} % of {total:,} bytes",
        f"verifying: 100 % of {total:,} bytes",
        "\033[K",
    ]


def test_verify_of_a_store_of_which_no_file_is_left_shows_that_it_is_through(
    capsys: pytest.CaptureFixture[str],
) -> None:
    disk = store(3)
    disk.remove(segments_of(disk)[0])
    with contextlib.redirect_stderr(Terminal()) as shown:
        code, *_ = of(disk, capsys, "verify")
    assert code == CORRUPT
    assert "verifying: 100 % of 0 bytes" in shown.getvalue()


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


def test_inspect_speaks_to_people_on_a_terminal_and_json_when_asked(
    capsys: pytest.CaptureFixture[str],
) -> None:
    disk = store(3)
    for option, first in (([], "STORE"), (["--json"], '{"type"')):
        with contextlib.redirect_stdout(Terminal()) as shown:
            of(disk, capsys, "inspect", *option)
        assert shown.getvalue().startswith(first)


def test_inspect_lists_a_segment_without_a_record(
    capsys: pytest.CaptureFixture[str],
) -> None:
    disk = MemoryFileSystem()
    open_log(disk).start()

    _, lines, _ = of(disk, capsys, "inspect")

    assert [json.loads(line)["type"] for line in lines][-1] == "segment"


# -- stat ------------------------------------------------------------------------------


def test_stat_says_all_of_a_store_that_is_in_use(
    capsys: pytest.CaptureFixture[str],
) -> None:
    disk = store(3, close=False)
    (name,) = segments_of(disk)
    disk.put("LOCK", b"process 7")
    disk.flip_bit(name, 8 * (4096 + 256 + 70))
    disk.put("STORE.x", bytes(1234))
    identity = read_identity(disk)
    other = 1234 + len(disk.content("STORE")) + len(b"process 7")
    ready = sum(n.startswith("ready-") for n in disk.names())

    code, lines, _ = of(disk, capsys, "stat")

    assert code == GOOD
    assert lines == [
        "path              memory",
        f"uuid              {identity.uuid.hex()}",
        f"created           {iso_utc(identity.created_ns)}",
        "repaired          False",
        "records           2",
        "first lsn         1",
        "last lsn          2",
        "segments          1",
        "snapshots         0",
        "frames            2",
        "faults            1",
        f"last wall         {iso_utc(frames_of(disk, name)[1][1].wall_ns)}",
        "closed            False",
        "holder            process 7",
        "frame bytes       256",
        "bytes per record  128.0",
        "snapshot lsns     none",
        "segment files     1 of 5,120 bytes",
        "snapshot files    0 of 0 bytes",
        f"ready files       {ready} of {5120 * ready:,} bytes",
        "torn files        0 of 0 bytes",
        "damaged files     0 of 0 bytes",
        "temporary files   0 of 0 bytes",
        f"other files       3 of {other:,} bytes",
        "not closed: in use by process 7, or left so by a crash",
        "1 fault(s): python -m wal verify memory",
    ]


def test_stat_in_json_has_all_figures(capsys: pytest.CaptureFixture[str]) -> None:
    disk = store(12, snapshots_at=(10,))
    first, second = segments_of(disk)
    identity = read_identity(disk)
    frames = [frame for name in (first, second) for _, frame in frames_of(disk, name)]
    size = sum(frame.frame_bytes for frame in frames)

    code, lines, _ = of(disk, capsys, "stat", "--json")

    assert (code, len(lines)) == (GOOD, 1)
    figures = json.loads(lines[0])
    kinds = figures.pop("files")
    assert figures == {
        "type": "stat",
        "path": "memory",
        "uuid": identity.uuid.hex(),
        "created": iso_utc(identity.created_ns),
        "repaired": False,
        "records": 12,
        "first_lsn": 1,
        "last_lsn": 12,
        "segments": 2,
        "snapshots": 1,
        "frames": 13,
        "faults": 0,
        "last_wall": iso_utc(frames[-1].wall_ns),
        "closed": True,
        "holder": "",
        "frame_bytes": size,
        "bytes_per_record": round(size / 12, 1),
        "snapshot_lsns": [10],
    }
    assert tuple(kinds) == KINDS
    assert kinds["segment"] == {
        "count": 2,
        "bytes": len(disk.content(first)) + len(disk.content(second)),
    }


def test_stat_of_a_store_without_its_identity_says_so(
    capsys: pytest.CaptureFixture[str],
) -> None:
    disk = store(1200)
    uuid = read_identity(disk).uuid
    disk.flip_bit("STORE", 99)

    _, lines, _ = of(disk, capsys, "stat")

    assert lines[1:5] == [
        "uuid              -",
        "created           -",
        "repaired          -",
        "records           1,200",
    ]
    assert "last lsn          1200" in lines
    _, lines, _ = of(disk, capsys, "stat", "--json")
    figures = json.loads(lines[0])
    assert figures["uuid"] is figures["created"] is figures["repaired"] is None
    assert uuid


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


def test_repair_says_all_that_it_did(capsys: pytest.CaptureFixture[str]) -> None:
    disk, out = store(12, close=False), MemoryFileSystem("new")
    first, second = segments_of(disk)
    disk.flip_bit(first, 8 * (4096 + 70))
    disk.put("LOCK", b"process 7")
    places: dict[str, FileSystem] = {"memory": disk, "new": out}

    code = main(["repair", "memory", "--out", "new"], files_at=places.__getitem__)

    what = verify(disk, pause=lambda: None).faults[0].what
    captured = capsys.readouterr()
    assert (code, captured.err) == (LOST, "")
    assert captured.out.splitlines() == [
        f"CORRUPT: {first}, offset 4096: {what}",
        (
            "    LSN 1 is expected there; the next valid frame is at offset 4224 (LSN 2); 7 "
            "record(s) at stake, at least"
        ),
        "    unreadable: LSN 1 to 1 (1 record(s))",
        (
            "note: LOCK says process 7; if that process still runs, the new store is a copy "
            "of one moment of it"
        ),
        "LOST: LSN 1 to 1 (1 record(s))",
        (
            f"new: new store {read_identity(out).uuid.hex()} with 11 record(s), LSN 2 to "
            f"12, in 2 segment(s), and 0 snapshot(s); the next record gets LSN "
            f"{12 + LSN_SKIP + 1}"
        ),
        "records are lost: 1 range(s), listed above",
    ]
    assert second


def test_repair_of_a_store_without_a_record_names_no_numbers(
    capsys: pytest.CaptureFixture[str],
) -> None:
    disk, out = MemoryFileSystem(), MemoryFileSystem("new")
    with open_log(disk) as log:
        log.start()
    places: dict[str, FileSystem] = {"memory": disk, "new": out}

    code = main(["repair", "memory", "--out", "new"], files_at=places.__getitem__)

    assert code == GOOD
    assert capsys.readouterr().out.splitlines() == [
        (
            f"new: new store {read_identity(out).uuid.hex()} with 0 record(s), in 1 "
            "segment(s), and 0 snapshot(s); the next record gets LSN 1"
        ),
        "nothing is lost",
    ]


class Forgetful(MemoryFileSystem):
    """A disk that gives back a byte of a segment otherwise than it took it."""

    def pread(self, handle: Handle, size_bytes: int, offset: int) -> bytes:
        data = bytearray(super().pread(handle, size_bytes, offset))
        if offset == 0 and len(data) > 4096:
            data[4096 + 70] ^= 1
        return bytes(data)


def test_a_new_store_that_does_not_come_back_as_written_is_no_rescue(
    capsys: pytest.CaptureFixture[str],
) -> None:
    disk, out = store(3), Forgetful("new")
    places: dict[str, FileSystem] = {"memory": disk, "new": out}

    code = main(["repair", "memory", "--out", "new"], files_at=places.__getitem__)

    error = capsys.readouterr().err
    assert code == IO_ERROR
    assert error.startswith("wal: new: did not come back as it was written: CORRUPT: ")


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


def test_a_number_that_is_none_is_shown_with_what_is_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        main(["inspect", "data", "--limit", "many"])
    error = capsys.readouterr().err
    assert "--limit: 'many' is not a whole number from 0 on" in error


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


def test_an_error_without_a_file_names_the_directory(
    capsys: pytest.CaptureFixture[str],
) -> None:
    disk = Nameless()

    code, out, error = of(disk, capsys, "verify")

    assert (code, out) == (IO_ERROR, [])
    assert error == (
        "wal: memory: out of order; this is no verdict on the data. If the disk is "
        "failing, copy the directory with a tool that goes on after read errors, and "
        "work on the copy\n"
    )


class Nameless(MemoryFileSystem):
    """A disk whose errors have a text and nothing else."""

    def exists(self) -> bool:
        raise OSError("out of order")


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
