"""`timingwheel backup`, `restore` and `upgrade`: what becomes of a directory as a whole."""

from __future__ import annotations

from typing import Final

import click

from timingwheel.cli.grammar import option, verb
from timingwheel.cli.output import Printer
from timingwheel.cli.refusal import MisuseError, RefusedError
from timingwheel.cli.session import Session
from timingwheel.stores.backup import backup, restore
from timingwheel.stores.backup_reading import Backup
from wal.errors import LogCorruptError
from wal.filesystem import FileSystem
from wal.inspection import survey
from wal.segment import FORMAT_MAJOR, FORMAT_MINOR

CORRUPT: Final = 4


class DamagedError(RefusedError):
    """Acknowledged data is damaged."""

    code = CORRUPT


@verb(
    None,
    "backup",
    examples=[
        ("timingwheel backup /var/lib/jobs --to /backups/jobs-monday", ""),
        ("timingwheel backup --to ./copy", "of ./data, or of --data"),
        ("timingwheel backup --to ./monday.tar", "in one file"),
    ],
)
@click.argument("directory", required=False)
@option(
    "--to",
    required=True,
    metavar="DIR",
    help="A new or an empty directory; or a new file, NAME.tar.",
)
def backup_store(session: Session, *, directory: str | None, to: str) -> None:
    """Copy a directory that may be in use, and read the copy back.

    Takes no lock, and nobody waits. All that was acknowledged before it began is in the
    copy. Ends with 4 if acknowledged data is damaged; the copy is then not finished.
    """
    path = _directory(session, directory)
    printer = session.printer
    try:
        made = backup(
            path, to, progress=printer.progress("copying the log"), clock=session.clock
        )
    except LogCorruptError as error:
        raise DamagedError(str(error)) from error
    _tell(printer, made, to)
    printer.say(f"{path} is in {to}; bring it back: timingwheel restore {to} --to NEW")


@verb(
    None,
    "restore",
    examples=[("timingwheel restore /backups/jobs-monday --to /var/lib/jobs", "")],
)
@click.argument("backup_directory", metavar="BACKUP")
@option("--to", required=True, metavar="NEWDIR", help="A new or an empty directory.")
def restore_store(session: Session, *, backup_directory: str, to: str) -> None:
    """Make a data directory of a backup; never over one that is there.

    What has run since the backup runs again, and what was added since is gone. Stop the
    original for good before the copy is started: both would run everything.
    """
    printer = session.printer
    kept = restore(backup_directory, to, progress=printer.progress("restoring"))
    _tell(printer, kept, to)
    printer.say(
        f"{to} is the store as of {printer.moment(kept.taken_ns)}: what ran since then "
        "runs again. Never start it beside the original"
    )


@verb(
    None,
    "upgrade",
    examples=[("timingwheel upgrade /var/lib/jobs", "before a new release serves it")],
)
@click.argument("directory", required=False)
def upgrade(session: Session, *, directory: str | None) -> None:
    """Say whether a directory has to be changed for this release; refuse a newer one.

    There is one format so far, so there is nothing to do. Changes nothing.
    """
    path = _directory(session, directory)
    found = survey(FileSystem(path))
    if found.faults:
        fault = found.faults[0]
        raise DamagedError(f"{path}/{fault.file}: {fault.what}")
    form = f"{FORMAT_MAJOR}.{FORMAT_MINOR}"
    session.printer.say(f"{path} is of format {form}, the newest: nothing to do")
    if session.printer.as_json:
        session.printer.document({"path": path, "format": form, "changed": False})


def _directory(session: Session, directory: str | None) -> str:
    if directory is not None:
        return directory
    if session.settings.place.name != "data":
        raise MisuseError(
            "it is done on the machine that has the store: pass DIRECTORY"
        )
    return session.settings.data


def _tell(printer: Printer, kept: Backup, to: str) -> None:
    if printer.as_json:
        document = {
            "path": to,
            "uuid": kept.uuid,
            "taken_ns": kept.taken_ns,
            "last_lsn": kept.last_lsn,
            "records": kept.records,
            "files": len(kept.files),
            "bytes": kept.size_bytes,
        }
        printer.document(document)
        return
    printer.say(
        f"{len(kept.files):,} files of {kept.size_bytes:,} bytes, up to LSN "
        f"{kept.last_lsn}; read back and good"
    )
