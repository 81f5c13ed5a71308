"""`timingwheel migrate`: a database's tables to the form of this version."""

from __future__ import annotations

from contextlib import closing

import click

from timingwheel.cli.grammar import option, verb
from timingwheel.cli.refusal import MisuseError, RefusedError
from timingwheel.cli.session import Session
from timingwheel.errors import MissingExtraError


@verb(
    None,
    "migrate",
    examples=[
        ("timingwheel migrate --store postgresql://jobs@db/jobs --check", ""),
        (
            "timingwheel migrate --store postgresql://jobs@db/jobs",
            "and again, to go on",
        ),
    ],
)
@option(
    "--check", is_flag=True, help="Only say what is to do; ends with 1 if anything."
)
@option("--to", type=int, metavar="N", help="Up to this schema. Default: the newest.")
def migrate(session: Session, /, *, check: bool, to: int | None) -> None:
    """Bring the tables of a database to a newer schema, while its nodes go on.

    Killed or held up, it goes on where it was at the next call. What only older versions
    use is taken away once none of them lives: call it again after the last is upgraded.
    """
    store = session.settings.store
    if store is None:
        raise MisuseError(
            "name the database with --store: a directory is brought up when it is opened"
        )
    try:
        from timingwheel.stores.postgres.migrating import Mover
    except ImportError as error:
        raise MissingExtraError(
            f"--store needs what is not here ({error}): "
            "pip install 'timingwheel-engine[postgres]'"
        ) from error
    printer = session.printer
    mover = Mover(
        store,
        clock=session.clock,
        tell=lambda words: click.echo(words, err=True),
    )
    with closing(mover):
        to_do = mover.to_do(to)
        if not check:
            mover.run(to)
        place = mover.place()
    if printer.as_json:
        printer.document({**place._asdict(), "newest": mover.newest, "to_do": to_do})
    else:
        printer.say(f"schema {place.version} of {mover.newest}, {place.phase}")
    if check and to_do:
        raise RefusedError(f"to do: {'; '.join(to_do)}: timingwheel migrate")
