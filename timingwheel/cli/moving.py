"""`timingwheel migrate-store`: a store in a directory moves into a database."""

from __future__ import annotations

from contextlib import closing

import click

from timingwheel.cli.grammar import option, verb
from timingwheel.cli.refusal import MisuseError
from timingwheel.cli.session import Session
from timingwheel.errors import MissingExtraError
from timingwheel.scheduler.opening import is_database, mark_moved, without_secret
from timingwheel.stores.embedded import EmbeddedStore
from timingwheel.stores.leaving import Leaving


@verb(
    None,
    "migrate-store",
    examples=[
        (
            "timingwheel migrate-store --from ./data --to postgresql:///jobs --dry-run",
            "",
        ),
        ("timingwheel migrate-store --from ./data --to postgresql://jobs@db/jobs", ""),
    ],
)
@option("--from", "source", metavar="DIR", required=True, help="The directory.")
@option("--to", "target", metavar="URL", required=True, help="The empty database.")
@option("--resume", is_flag=True, help="Go on with a move that was begun.")
@option("--dry-run", is_flag=True, help="Only count what there is to move.")
def migrate_store(
    session: Session, /, *, source: str, target: str, resume: bool, dry_run: bool
) -> None:
    """Move a directory that no process holds into a database, with all ids.

    Jobs, runs, attempts, skips, queues, calendars, the dead letter, the audit and tokens.
    At the end counts are compared, and the directory is marked: nobody opens it again.
    What was running is tried again there, as after a crash.
    """
    if not is_database(target):
        raise MisuseError(f"--to is {target!r}: pass postgresql://...")
    try:
        from timingwheel.stores.postgres.arriving import Arriving
    except ImportError as error:
        raise MissingExtraError(
            f"--to needs what is not here ({error}): "
            "pip install 'timingwheel-engine[postgres]'"
        ) from error
    printer = session.printer
    store = EmbeddedStore.open(source, clock=session.clock, create=False)
    with closing(store):
        tell = (
            (lambda _: None) if dry_run else (lambda words: click.echo(words, err=True))
        )
        arriving = Arriving(Leaving(store), target, tell=tell)
        with closing(arriving):
            if dry_run:
                counts = arriving.counts()
            else:
                arriving.prepare(resume=resume)
                counts = arriving.run()
                _move_books(source, target)
                mark_moved(source, target)
                arriving.end()
    if printer.as_json:
        printer.document({"moved": not dry_run, "counts": counts})
        return
    verb = "to move" if dry_run else "moved"
    for name, count in counts.items():
        printer.say(f"{count:>12,} {name} {verb}")
    if not dry_run:
        printer.hint(f"the jobs are in {without_secret(target)} now: pass --store")


def _move_books(source: str, target: str) -> None:
    """Copy the audit and the tokens, if this installation has a server."""
    try:
        from timingwheel.server.moving import move_books
    except ImportError:
        return
    move_books(source, target)
