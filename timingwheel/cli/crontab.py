"""`timingwheel import crontab`: each line of a crontab becomes a job with a name.

The commands run by a task of the program that hands them to the subprocess executor:

    @app.task(executor="subprocess", retry=Retry(1))
    def command(argv: list[str]) -> list[str]:
        return argv
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple, TextIO

import click

from timingwheel.cli.connection import Connection
from timingwheel.cli.grammar import noun, option, verb
from timingwheel.cli.refusal import EXPECTED, MisuseError, RefusedError, told
from timingwheel.cli.session import Session
from timingwheel.errors import CronError
from timingwheel.jobs.cron import Cron
from timingwheel.jobs.schedule import instant_datetime

imports: Final = noun(
    "import",
    "Take over jobs from elsewhere.",
    examples=[
        (
            "crontab -l | timingwheel import crontab - --task jobs:command --tz UTC",
            "",
        )
    ],
)

_ASSIGNMENT: Final = re.compile(r"\s*([A-Za-z_]\w*)\s*=\s*(.*?)\s*", re.ASCII)
_FIELDS: Final = 5
_NOT_PASSED_ON: Final = frozenset({"MAILTO", "MAILFROM", "CRON_TZ", "SHELL"})
_PLAIN_PERCENT: Final = re.compile(r"(?<!\\)%")


class Entry(NamedTuple):
    """One line of a crontab that says when.

    Attributes:
        line: its number, from 1.
        expression: the cron expression.
        command: for the shell.
        environment: what the lines above have set.
        refusal: why it is not taken over; "" if it can be.
    """

    line: int
    expression: str
    command: str
    environment: dict[str, str]
    refusal: str = ""

    @property
    def argv(self) -> list[str]:
        """The program that does what cron would."""
        kept = [
            f"{name}={value}"
            for name, value in self.environment.items()
            if name not in _NOT_PASSED_ON
        ]
        shell = self.environment.get("SHELL", "/bin/sh")
        return [*(["/usr/bin/env", *kept] if kept else []), shell, "-c", self.command]


class Taken(NamedTuple):
    """What became of an entry.

    Attributes:
        entry: which.
        name: of its job.
        result: added, updated, there, planned (a dry run) or refused.
        note: its next time, or why it is refused.
    """

    entry: Entry
    name: str
    result: str
    note: str


@verb(
    imports,
    "crontab",
    examples=[
        ("crontab -l | timingwheel import crontab - --task jobs:command --tz UTC", ""),
        (
            "timingwheel import crontab - --task jobs:run --tz UTC --dry-run < old.cron",
            "say what would be made",
        ),
    ],
)
@click.argument("file", type=click.File("r"), metavar="FILE|-")
@option("--task", required=True, metavar="NAME", help="The task that runs commands.")
@option(
    "--argument",
    default="argv",
    show_default=True,
    metavar="NAME",
    help="Its argument, a list of texts.",
)
@option("--tz", metavar="ZONE", help="The zone of its times, where no CRON_TZ says it.")
@option("--system", is_flag=True, help="The sixth field is a user, as in /etc/crontab.")
@option("--prefix", default="", metavar="TEXT", help="Before the names of the jobs.")
@option("--misfire", metavar="RULE", help="Of times missed: as cron it is skip.")
@option("--queue", metavar="NAME", help="Where the runs wait.")
@option("--dry-run", is_flag=True, help="Add nothing, and say what would be made.")
@option("--create", is_flag=True, help="Make the directory if it is no store yet.")
def import_crontab(
    session: Session,
    *,
    file: TextIO,
    task: str,
    argument: str,
    tz: str | None,
    system: bool,
    prefix: str,
    misfire: str | None,
    queue: str | None,
    dry_run: bool,
    create: bool,
) -> None:
    """Make a job of each line of a crontab.

    The same file again finds the same jobs; a line whose time has changed updates its
    job. A command goes to the shell with the variables above it. Lines that cannot be
    taken over are told, and it ends with 1.
    """
    entries = list(read_crontab(file, has_user=system))
    zones = {entry.environment.get("CRON_TZ", tz) for entry in entries}
    if None in zones:
        raise MisuseError("cron runs in its machine's zone: say which with --tz")
    named = list(_named(entries, prefix))
    options = {"misfire": misfire, "queue": queue}
    taken: list[Taken] = []
    with session.connected(create=create) as connection:
        show = session.printer.progress("lines")
        for count, (name, entry) in enumerate(named, 1):
            zone = entry.environment.get("CRON_TZ", tz) or "UTC"
            taken.append(
                _take(
                    connection,
                    entry,
                    name,
                    zone=zone,
                    call=None if dry_run else (task, argument),
                    options=options,
                    session=session,
                )
            )
            show(count, len(named))
    _print(session, taken)


def read_crontab(lines: Iterable[str], *, has_user: bool) -> Iterator[Entry]:
    """Yield what a crontab says, line by line.

    Args:
        lines: of the file.
        has_user: a user stands before the command.
    """
    environment: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        assigned = _ASSIGNMENT.fullmatch(text)
        if assigned is not None:
            environment = {**environment, assigned[1]: _unquoted(assigned[2])}
            continue
        fields = 1 if text.startswith("@") else _FIELDS
        parts = text.split(None, fields + has_user)
        expression = " ".join(parts[:fields])
        command = parts[-1] if len(parts) == fields + has_user + 1 else ""
        yield Entry(
            number,
            expression,
            command.replace("\\%", "%"),
            environment,
            _refusal(expression, command),
        )


def _refusal(expression: str, command: str) -> str:
    if expression == "@reboot":
        return "@reboot is no time: add a job with a delay when the program starts"
    if not command:
        return "there is no command after the time"
    if _PLAIN_PERCENT.search(command):
        return "% feeds the rest to the command's input: write it as a script"
    return ""


def _unquoted(text: str) -> str:
    if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'":
        return text[1:-1]
    return text


def _named(entries: Iterable[Entry], prefix: str) -> Iterator[tuple[str, Entry]]:
    """Yield names that stay the same while the command does."""
    seen: dict[str, int] = {}
    for entry in entries:
        words = re.findall(r"[A-Za-z0-9_.-]+", entry.command) or ["job"]
        base = f"{prefix}{words[0].rpartition('/')[2][:40]}"
        base += f"-{zlib.crc32(entry.command.encode()):08x}"
        seen[base] = seen.get(base, 0) + 1
        yield (base if seen[base] == 1 else f"{base}-{seen[base]}"), entry


def _take(
    connection: Connection,
    entry: Entry,
    name: str,
    *,
    zone: str,
    call: tuple[str, str] | None,
    options: dict[str, Any],
    session: Session,
) -> Taken:
    """Make the job of an entry; without a call, only look whether it could be made."""
    if entry.refusal:
        return Taken(entry, name, "refused", entry.refusal)
    try:
        now = instant_datetime(connection.now_ns())
        first = Cron(entry.expression, tz=zone).next(now)
        note = "" if first is None else f"next {session.printer.shown(first)}"
        if call is None:
            return Taken(entry, name, "planned", note)
        task, argument = call
        ref = connection.app.add(
            connection.call(task, {argument: entry.argv}, version=1),
            cron=entry.expression,
            tz=zone,
            name=name,
            tags={"from": "crontab"},
            **options,
        )
    except CronError as error:
        return Taken(entry, name, "refused", str(error))
    except EXPECTED as error:
        return Taken(entry, name, "refused", told(error))
    result = "added" if ref.created else "updated" if ref.updated else "there"
    return Taken(entry, name, result, note)


def _print(session: Session, taken: list[Taken]) -> None:
    printer = session.printer
    if printer.as_json:
        printer.document(
            {
                "lines": [
                    {
                        "line": one.entry.line,
                        "cron": one.entry.expression,
                        "command": one.entry.command,
                        "name": one.name,
                        "result": one.result,
                        "note": one.note,
                    }
                    for one in taken
                ]
            }
        )
    else:
        printer.table(
            ("line", "cron", "job", "result", "note"),
            [
                (
                    str(one.entry.line),
                    one.entry.expression,
                    one.name,
                    one.result,
                    one.note,
                )
                for one in taken
            ],
            empty="no line of it says when",
        )
    refused = sum(one.result == "refused" for one in taken)
    if refused:
        raise RefusedError(f"{refused:,} of {len(taken):,} lines were not taken over")
