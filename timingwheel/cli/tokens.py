"""`timingwheel token add | list | revoke`: who may ask the servers of a store.

They are kept beside the store, so these commands work while the server runs, which looks
again every second.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Final

import click

from timingwheel.cli.documents import time_text
from timingwheel.cli.grammar import noun, option, verb
from timingwheel.cli.refusal import MisuseError, RefusedError
from timingwheel.cli.serve import missing_server
from timingwheel.cli.session import Session
from timingwheel.scheduler.opening import without_secret

if TYPE_CHECKING:
    from timingwheel.server.tokens import TokenBook  # its libraries are an extra

ROLES: Final = ("read", "operate", "admin")

token: Final = noun(
    "token",
    "Tokens: who may ask the server of a directory, or the servers of a database.\n\nThe server keeps the hash of a "
    "token alone. Where there is one, it demands one of everybody.",
    examples=[
        ("timingwheel --data /var/lib/jobs token add ci --role operate", ""),
        ("timingwheel --data /var/lib/jobs token revoke ci", ""),
    ],
)


@verb(
    token,
    "add",
    examples=[
        ("timingwheel token add ci --role operate", "for workers, and to add jobs"),
        ("timingwheel token add ada --role admin --json", ""),
    ],
)
@click.argument("name", metavar="NAME")
@option(
    "--role",
    type=click.Choice(ROLES),
    required=True,
    help="What it may: look; also work, add and steer; everything.",
)
@option("--create", is_flag=True, help="Make the store if it is not there yet.")
def add_token(session: Session, *, name: str, role: str, create: bool) -> None:
    """Make a token and print it, this once.

    NAME is unique, and the actor of what is done with it.
    """
    with _book(session, create=create) as book:
        secret = book.add(name, role)
    if session.printer.as_json:
        session.printer.document({"name": name, "role": role, "token": secret})
        return
    session.printer.hint("keep it now: it is not shown again")
    session.printer.say(secret)


@verb(token, "list", examples=[("timingwheel token list --json", "")])
def list_tokens(session: Session) -> None:
    """List names and roles; the tokens themselves nobody knows any more."""
    with _book(session) as book:
        found = book.tokens()
    printer = session.printer
    if printer.as_json:
        rows = [
            {"name": one.name, "role": one.role, "created": time_text(one.created_ns)}
            for one in found
        ]
        printer.document({"tokens": rows})
        return
    printer.table(
        ("name", "role", "created"),
        [(one.name, one.role, printer.moment(one.created_ns)) for one in found],
        empty="there are no tokens: whoever reaches the server may do everything",
    )


@verb(token, "revoke", examples=[("timingwheel token revoke ci", "")])
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
def revoke_token(session: Session, *, names: tuple[str, ...]) -> None:
    """Refuse tokens from now on; a running server does so a second later."""
    with _book(session) as book:
        known = {one.name for one in book.tokens()}
        missing = [name for name in names if name not in known]
        if missing:
            raise RefusedError(
                f"there is no token of {', '.join(missing)}; timingwheel token list "
                "shows those there are"
            )
        for name in dict.fromkeys(names):
            book.revoke(name)
        is_last = not book.tokens()
    if session.printer.as_json:
        session.printer.document({"revoked": list(dict.fromkeys(names))})
        return
    session.printer.say(f"revoked: {', '.join(dict.fromkeys(names))}")
    if is_last:
        session.printer.hint(
            "that was the last one: at its next start the server serves this machine "
            "alone, and asks for none"
        )


def _book(session: Session, *, create: bool = False) -> closing[TokenBook]:
    """Return the tokens of the store, for the length of a block.

    Raises:
        MisuseError: a server is named.
        RefusedError: there is no store.
    """
    if session.settings.url is not None:
        raise MisuseError(
            "tokens are made where the jobs are: name the directory with --data, or the "
            f"database with --store ({session.settings.all['url'].origin} names a server)"
        )
    try:
        from timingwheel.server.starting import is_store, make_store, token_book
    except ImportError as error:
        raise missing_server(error) from error
    place = session.settings.store or session.settings.data
    if create:
        make_store(place)
    elif not is_store(place):
        raise RefusedError(
            f"{without_secret(place)} is no store yet "
            f"({session.settings.place.origin}): name the directory with --data, the "
            "database with --store, or make one with --create"
        )
    return closing(token_book(place, clock=session.clock))
