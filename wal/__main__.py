"""The command `python -m wal`: look at a store, verify it, rescue what can be read.

All but `repair --out NEWDIR` only read, take no lock, and may be used beside the process
that has the store open.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Final

from wal.errors import WalError
from wal.faults import Fault
from wal.filesystem import FileSystem
from wal.inspection import (
    KINDS,
    StoreStats,
    Verification,
    iso_utc,
    stat,
    verify,
)
from wal.listing import as_json, as_text, fault_item, inspect
from wal.repair import Repaired, repair

GOOD: Final = 0
IO_ERROR: Final = 1
USAGE: Final = 2
TORN: Final = 3
CORRUPT: Final = 4
LOST: Final = 4

_EXIT_CODES: Final = """exit codes:
  0  good (inspect, stat: shown; repair: nothing is lost)
  1  the disk cannot be read or written: no verdict
  2  wrong usage, not a store, or a store of a newer version
  3  verify: a torn tail; the next open cuts it off
  4  verify: acknowledged data is damaged; repair: records are lost
"""


def main(
    argv: Sequence[str] | None = None,
    *,
    files_at: Callable[[str], FileSystem] = FileSystem,
    describe: Callable[[bytes], str] | None = None,
) -> int:
    """Run one command and return its exit code.

    Args:
        argv: the arguments, those of the process by default.
        files_at: gives the file system over a path.
        describe: says in words what a payload is, for `inspect --records`.
    """
    options = _parser().parse_args(argv)
    files = files_at(options.path)
    try:
        match options.command:
            case "inspect":
                return _inspect(files, options, describe=describe)
            case "verify":
                return _verify(files, as_lines=options.json)
            case "stat":
                return _stat(files, as_lines=options.json)
            case _:
                return _repair(files, files_at(options.out))
    except WalError as error:
        print(f"wal: {error}", file=sys.stderr)
        return USAGE
    except OSError as error:
        print(
            f"wal: {error.filename or files.path}: {error.strerror or error}; this is no "
            "verdict on the data. If the disk is failing, copy the directory with a "
            "tool that goes on after read errors, and work on the copy",
            file=sys.stderr,
        )
        return IO_ERROR


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m wal",
        description="Look at a write-ahead log store, verify it, rescue what is readable.",
        epilog=_EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name: str, summary: str, text: str) -> argparse.ArgumentParser:
        made = commands.add_parser(
            name,
            help=summary,
            description=text,
            epilog=f"{_EXAMPLES[name]}\n\n{_EXIT_CODES}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        made.add_argument("path", metavar="PATH", help="the directory of the store")
        return made

    show = command("inspect", "list what a store holds, frame by frame", _INSPECT)
    form = show.add_mutually_exclusive_group()
    form.add_argument(
        "--json", action="store_true", help="JSON lines; the default in a pipe"
    )
    form.add_argument(
        "--text", action="store_true", help="lines for people; default on a terminal"
    )
    show.add_argument(
        "--records", action="store_true", help="show every record with its payload"
    )
    show.add_argument(
        "--from",
        dest="from_lsn",
        metavar="LSN",
        type=_whole_number,
        default=0,
        help="begin the log at this record",
    )
    show.add_argument(
        "--limit",
        metavar="N",
        type=_whole_number,
        help="end after N frames, or with --records after N records",
    )
    for name, summary, text in (
        ("verify", "check every byte that counts", _VERIFY),
        ("stat", "show a store in figures", _STAT),
    ):
        command(name, summary, text).add_argument(
            "--json", action="store_true", help="JSON lines instead of text"
        )
    command("repair", "rescue what is readable into a new store", _REPAIR).add_argument(
        "--out",
        metavar="NEWDIR",
        required=True,
        help="where the new store goes: an empty or a new directory",
    )
    return parser


_INSPECT: Final = """\
List STORE, the snapshots, the segments and their frames: offset, LSNs, how far the log
was synced, wall clock, flags, sizes. Faults stand where they are found."""

_VERIFY: Final = """\
Read every segment and snapshot to the end, check all checksums and how the files hang
together, and list every fault with its file, offset, expected LSN, the next valid frame
and the records at stake. Beside a process that writes, only what is there stays counts:
a write under way is no fault."""

_STAT: Final = """\
Show sizes, the range of LSNs, records and bytes per record, segments, snapshots, files
that were set aside, the last wall clock, whether the log was closed, and who holds it.
Reads the whole store."""

_REPAIR: Final = """\
Copy every record that can be read, under its own LSN, and the snapshots that hold, into
a new store, and print what is lost. The damaged store is only read: keep it until the
new one has been verified. Stop the process that has the store open before."""

_EXAMPLES: Final = {
    "inspect": "example:\n  python -m wal inspect ./data --records --from 1000 --limit 5",
    "verify": 'example:\n  python -m wal verify ./data && echo "good"',
    "stat": "example:\n  python -m wal stat ./data",
    "repair": "example:\n  python -m wal repair ./data --out ./data-rescued",
}


def _whole_number(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 0 on")
    return int(text)


# -- inspect ---------------------------------------------------------------------------


def _inspect(
    files: FileSystem,
    options: argparse.Namespace,
    *,
    describe: Callable[[bytes], str] | None,
) -> int:
    for_people = options.text or (not options.json and sys.stdout.isatty())
    line = as_text if for_people else as_json
    for item in inspect(
        files,
        from_lsn=options.from_lsn,
        limit=options.limit,
        records=options.records,
        describe=describe,
    ):
        print(line(item))
    return GOOD


# -- verify ----------------------------------------------------------------------------


def _verify(files: FileSystem, *, as_lines: bool) -> int:
    shows_progress = sys.stderr.isatty()
    found = verify(files, progress=_show_progress if shows_progress else None)
    if shows_progress:
        print("\r\033[K", end="", file=sys.stderr)
    code = CORRUPT if found.corrupt else TORN if found.torn else GOOD
    if as_lines:
        for fault in found.faults:
            print(as_json(fault_item(fault)))
        verdict = {GOOD: "good", TORN: "torn", CORRUPT: "corrupt"}[code]
        print(json.dumps({"type": "verdict", "verdict": verdict, **_figures(found)}))
        return code
    for fault in found.faults:
        print(_described(fault))
    print(
        f"{files.path}: {found.segments} segment(s) and {len(found.snapshots)} "
        f"snapshot(s) hold {found.records:,} record(s)"
        + (f", LSN {found.first_lsn} to {found.last_lsn}" if found.records else "")
        + "; all was read to the end"
    )
    if not found.closed:
        print(f"not closed: {_owner(found)}")
    print(_verdict(files.path, found))
    return code


def _show_progress(done: int, total: int) -> None:
    share = 100 * done // total if total else 100
    print(f"\rverifying: {share} % of {total:,} bytes", end="", file=sys.stderr)


def _described(fault: Fault) -> str:
    if fault.next_offset is None:
        following = "no valid frame follows in this file"
    else:
        following = (
            f"the next valid frame is at offset {fault.next_offset} "
            f"(LSN {fault.next_lsn})"
        )
    kind = "torn" if fault.torn else "CORRUPT"
    stake = f"{fault.records_at_stake} record(s) at stake, at least"
    lines = [
        f"{kind}: {fault.file}, offset {fault.offset}: {fault.what}",
        f"    LSN {fault.expected_lsn} is expected there; {following}; {stake}",
    ]
    if fault.doubtful:
        lines.append("    damage would look the same here")
    if fault.lost is not None:
        lines.append(f"    unreadable: {fault.lost}")
    return "\n".join(lines)


def _verdict(path: str, found: Verification) -> str:
    count = len(found.faults)
    if found.corrupt:
        return (
            f"verdict: CORRUPT, {count} fault(s); nothing was changed. Rescue what is "
            f"readable: python -m wal repair {path} --out NEWDIR"
        )
    if found.torn:
        return (
            "verdict: torn tail, as a crash leaves it; the next open keeps it aside and "
            "cuts it off"
        )
    return "verdict: good"


def _owner(found: Verification) -> str:
    if found.busy:
        return f"being written by {found.holder or 'another process'}"
    if found.holder:
        return f"in use by {found.holder}, or left so by a crash"
    return "left by a crash"


# -- stat ------------------------------------------------------------------------------


def _figures(found: Verification) -> dict[str, object]:
    return {
        "records": found.records,
        "first_lsn": found.first_lsn,
        "last_lsn": found.last_lsn,
        "segments": found.segments,
        "snapshots": len(found.snapshots),
        "frames": found.frames,
        "faults": len(found.faults),
        "last_wall": iso_utc(found.last_wall_ns),
        "closed": found.closed,
        "holder": found.holder,
    }


def _stat(files: FileSystem, *, as_lines: bool) -> int:
    stats = stat(files)
    found = stats.verification
    figures: dict[str, object] = {
        "path": files.path,
        **_identity_of(stats),
        **_figures(found),
        "frame_bytes": found.frame_bytes,
        "bytes_per_record": round(stats.bytes_per_record, 1),
        "snapshot_lsns": [info.pin_lsn for info in found.snapshots],
    }
    if as_lines:
        kinds = {k: {"count": c, "bytes": b} for k, (c, b) in stats.files.items()}
        print(json.dumps({"type": "stat", **figures, "files": kinds}))
        return GOOD
    for key, value in figures.items():
        shown = f"{value:,}" if type(value) is int and "lsn" not in key else value
        if isinstance(value, list):
            shown = " ".join(map(str, value)) or "none"
        print(f"{key.replace('_', ' '):<18}{'-' if shown in ('', None) else shown}")
    for kind in KINDS:
        count, size = stats.files[kind]
        print(f"{kind + ' files':<18}{count:,} of {size:,} bytes")
    if not found.closed:
        print(f"not closed: {_owner(found)}")
    if found.faults:
        print(f"{len(found.faults)} fault(s): python -m wal verify {files.path}")
    return GOOD


def _identity_of(stats: StoreStats) -> dict[str, object]:
    identity = stats.identity
    if identity is None:
        return {"uuid": None, "created": None, "repaired": None}
    return {
        "uuid": identity.uuid.hex(),
        "created": iso_utc(identity.created_ns),
        "repaired": identity.repaired,
    }


# -- repair ----------------------------------------------------------------------------


def _repair(files: FileSystem, out: FileSystem) -> int:
    done = repair(files, out)
    for fault in done.faults:
        print(_described(fault))
    if done.holder:
        print(
            f"note: LOCK says {done.holder}; if that process still runs, the new store "
            "is a copy of one moment of it"
        )
    for lost in done.lost:
        print(f"LOST: {lost}")
    _print_new_store(out, done)
    check = verify(out)
    if check.faults:
        print(
            f"wal: {out.path}: did not come back as it was written: "
            f"{_described(check.faults[0])}",
            file=sys.stderr,
        )
        return IO_ERROR
    if not done.lost:
        print("nothing is lost")
        return GOOD
    print(f"records are lost: {len(done.lost)} range(s), listed above")
    return LOST


def _print_new_store(out: FileSystem, done: Repaired) -> None:
    span = f", LSN {done.first_lsn} to {done.last_lsn}" if done.records else ""
    print(
        f"{out.path}: new store {done.uuid.hex()} with {done.records:,} record(s){span}, "
        f"in {done.segments} segment(s), and {len(done.snapshots)} snapshot(s); the next "
        f"record gets LSN {done.next_lsn}"
    )


if __name__ == "__main__":
    # As other tools: `python -m wal inspect ... | head` ends without a traceback.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
