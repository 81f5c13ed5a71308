"""`timingwheel log inspect | verify | stat | repair`: the same as `python -m wal`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import click
import msgspec

from timingwheel.cli.grammar import noun, option, verb
from timingwheel.cli.refusal import MisuseError
from timingwheel.cli.session import Session
from timingwheel.jobs.storage import Storage
from wal.__main__ import main as wal_main

log: Final = noun(
    "log",
    "The log: what is on the disk, byte by byte.\n\nAll but repair only read, take no "
    "lock, and may be used beside the process that has the store open. Exit codes as "
    "`python -m wal`: verify ends with 3 for a torn tail, with 4 for damage.",
    examples=[
        ("timingwheel log verify --data ./data", ""),
        ("timingwheel log repair --out ./rescued", ""),
    ],
)


@verb(
    log,
    "inspect",
    examples=[("timingwheel log inspect --records --from 1000 --limit 5", "")],
)
@option("--records", is_flag=True, help="Every record with its payload.")
@option("--from", "from_lsn", type=int, metavar="LSN", help="Begin at this record.")
@option("--limit", type=int, metavar="N", help="End after so many frames or records.")
def inspect(
    session: Session, *, records: bool, from_lsn: int | None, limit: int | None
) -> None:
    """List what a store holds, frame by frame."""
    words = ["--json" if session.printer.as_json else "--text"]
    words += ["--records"] if records else []
    words += [] if from_lsn is None else ["--from", str(from_lsn)]
    words += [] if limit is None else ["--limit", str(limit)]
    _run(session, "inspect", *words)


@verb(log, "verify", examples=[("timingwheel log verify && echo good", "")])
def verify(session: Session) -> None:
    """Check every byte that counts; ends with 3 for a torn tail, with 4 for damage."""
    _run(session, "verify", *_json(session))


@verb(
    log,
    "stat",
    examples=[
        ("timingwheel log stat --json", ""),
        ("timingwheel log stat --url http://127.0.0.1:8765", ""),
    ],
)
def stat(session: Session) -> None:
    """Show a store in figures; with --url, as the server that holds it says."""
    if session.settings.url is None:
        _run(session, "stat", *_json(session))
        return
    with session.connected() as connection:
        storage = connection.app.storage()
    if session.printer.as_json:
        session.printer.document(msgspec.to_builtins(storage))
    else:
        session.printer.facts(_facts(session, storage))


def _facts(session: Session, storage: Storage) -> Iterable[tuple[str, str | None]]:
    """Return a store's figures by name."""
    yield "store", storage.path
    yield "timers", f"{storage.timers:,}"
    found = storage.log
    if found is None:
        return
    yield "durability", found.durability
    yield "appended", f"{found.appended_lsn:,}"
    yield "durable", f"{found.durable_lsn:,}"
    waits = f"{found.records_waiting:,} records, {found.bytes_waiting:,} bytes"
    yield "not yet durable", waits if found.records_waiting else None
    yield "segments", _files([each.size_bytes for each in found.segments])
    yield "made ahead", f"{found.segments_ready:,}"
    yield "snapshots", _files([each.size_bytes for each in found.snapshots])
    if found.snapshots:
        yield "newest snapshot", session.printer.moment(found.snapshots[0].created_ns)
    yield "disk", "full: nothing new is taken" if found.disk_full else None
    damaged = f"{found.scrub_errors:,} files were set aside"
    yield "damage", damaged if found.scrub_errors else None
    recovery = found.recovery
    how = "after a clean end" if recovery.clean else "after a crash"
    read = f"{recovery.replayed_bytes:,} bytes read in {recovery.took_ns / 1e9:.3f} s"
    yield "last opening", f"{how}, {read}"


def _files(sizes: Sequence[int]) -> str:
    return f"{len(sizes):,}, {sum(sizes):,} bytes"


@verb(log, "repair", examples=[("timingwheel log repair --out ./rescued", "")])
@option(
    "--out",
    metavar="NEWDIR",
    required=True,
    help="Where the new store goes: an empty or a new directory.",
)
def repair(session: Session, *, out: str) -> None:
    """Rescue what is readable into a new store; ends with 4 if records are lost.

    The damaged store is only read: keep it until the new one has been verified.
    """
    _run(session, "repair", "--out", out)


def _run(session: Session, command: str, *words: str) -> None:
    """Run `python -m wal` and end as it does."""
    if session.settings.url is not None:
        raise MisuseError("the log is read on the machine that has it: pass --data")
    if session.settings.store is not None:
        raise MisuseError("a store in a database has no log of its own: pass --data")
    code = wal_main([command, session.settings.data, *words])
    click.get_current_context().exit(code)


def _json(session: Session) -> list[str]:
    return ["--json"] if session.printer.as_json else []
