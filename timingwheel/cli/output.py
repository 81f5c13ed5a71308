"""How commands answer: tables and sentences for people, JSON for programs.

On a terminal a table has colours and fits the width; in a pipe it is plain columns, two
spaces apart, and nothing is cut. Times are shown by the user's clock with its offset.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from typing import Any, Final

import click

from timingwheel.clock import Clock
from timingwheel.jobs.schedule import instant_datetime

_STYLES: Final[Mapping[str, str]] = {
    "active": "green",
    "succeeded": "green",
    "ok": "green",
    "running": "cyan",
    "ready": "cyan",
    "retrying": "yellow",
    "paused": "yellow",
    "quarantined": "red",
    "failed": "red",
    "lost": "red",
    "error": "red",
    "timeout": "red",
    "cancelled": "bright_black",
    "skipped": "bright_black",
    "done": "bright_black",
}
_CONTROLS: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_RELATIVE: Final = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))


class Printer:
    """Prints what a command has found.

    Args:
        clock: the present, for "in 5m".
        as_json: whether programs read it.
        in_utc: whether times are shown in UTC.
    """

    def __init__(self, clock: Clock, *, as_json: bool, in_utc: bool) -> None:
        self._clock = clock
        self.as_json = as_json
        self._in_utc = in_utc

    # -- for programs -----------------------------------------------------------------------

    def document(self, value: object) -> None:
        """Print one JSON document."""
        indent = 2 if sys.stdout.isatty() else None
        click.echo(json.dumps(value, indent=indent, ensure_ascii=False))

    def lines(self, values: Iterable[object]) -> None:
        """Print JSON lines, one a value, as they come."""
        for value in values:
            click.echo(json.dumps(value, ensure_ascii=False))

    # -- for people -------------------------------------------------------------------------

    def say(self, text: str = "") -> None:
        """Print a sentence; for programs nothing."""
        if not self.as_json:
            click.echo(printable(text))

    def hint(self, text: str) -> None:
        """Print a remark that is no part of the answer, on standard error."""
        if not self.as_json:
            click.echo(click.style(printable(text), dim=True), err=True)

    def table(
        self, columns: Sequence[str], rows: Iterable[Sequence[str]], *, empty: str = ""
    ) -> None:
        """Print rows under headings; `empty` if there are none."""
        found = [tuple(row) for row in rows]
        if not found:
            if empty:
                self.hint(empty)
        elif sys.stdout.isatty():
            _print_rich(columns, found)
        else:
            click.echo("\n".join(plain_table(columns, found)))

    def facts(self, facts: Iterable[tuple[str, str | None]]) -> None:
        """Print names and values, one a line; what has no value is left out."""
        found = [(name, value) for name, value in facts if value]
        width = max((len(name) for name, _ in found), default=0)
        for name, value in found:
            head, *rest = printable(value).splitlines() or [""]
            click.echo(f"{click.style(name.ljust(width), bold=True)}  {_styled(head)}")
            for line in rest:
                click.echo(f"{'':{width}}  {line}")

    def working(self, what: str) -> AbstractContextManager[object]:
        """Show on a terminal that something takes its time."""
        if self.as_json or not sys.stderr.isatty():
            return nullcontext()
        from rich.console import Console

        return Console(stderr=True).status(what)

    def progress(self, what: str) -> Callable[[int, int], None]:
        """Return what shows (done, total) on a terminal, and nothing elsewhere."""
        if self.as_json or not sys.stderr.isatty():
            return lambda _done, _total: None

        def show(done: int, total: int) -> None:
            end = "\r\033[K" if done >= total else ""
            click.echo(f"\r{what}: {done:,} of {total:,}{end}", err=True, nl=False)

        return show

    # -- times ------------------------------------------------------------------------------

    def moment(self, ns: int | None) -> str:
        """Return an instant as the user's clock shows it, with its offset."""
        return "" if ns is None else self.shown(instant_datetime(ns))

    def shown(self, moment: datetime) -> str:
        """Return a datetime as the user's clock shows it, with its offset."""
        local = moment.astimezone(UTC if self._in_utc else None)
        return local.replace(microsecond=0).isoformat(" ")

    def ahead(self, ns: int | None) -> str:
        """Return an instant with how far away it is, such as "(in 5m 20s)"."""
        if ns is None:
            return ""
        away_s = (ns - self._clock.wall_ns()) // 1_000_000_000
        words = short_length(abs(away_s))
        return f"{self.moment(ns)} ({f'in {words}' if away_s >= 0 else f'{words} ago'})"


def printable(text: str, *, lines: bool = True) -> str:
    """Return a text whose control characters are seen and not obeyed.

    Names, notes, logs and errors are written by others, also by way of the HTTP API: they
    may not move the cursor, name the window or forge a line of a table.

    Args:
        text: what was stored.
        lines: whether it may have several, and tabs.
    """
    return _CONTROLS.sub(
        lambda found: (
            found[0] if lines and found[0] in "\n\t" else repr(found[0])[1:-1]
        ),
        text,
    )


def short_length(seconds: int) -> str:
    """Return a length of time by its two largest units, such as "5m 20s"."""
    parts: list[str] = []
    for unit, size in _RELATIVE:
        number, seconds = divmod(seconds, size)
        if number or (unit == "s" and not parts):
            parts.append(f"{number}{unit}")
    return " ".join(parts[:2])


def plain_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterable[str]:
    """Return lines of columns, two spaces apart, with the headings first."""
    shown = [[printable(cell, lines=False) for cell in row] for row in rows]
    whole = [[one.upper() for one in columns], *shown]
    widths = [max(len(row[place]) for row in whole) for place in range(len(columns))]
    for row in whole:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield "  ".join(cells).rstrip()


def _styled(text: str) -> str:
    colour = _STYLES.get(text)
    return text if colour is None else click.style(text, fg=colour)


def _print_rich(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for name in columns:
        table.add_column(name, overflow="fold")
    for row in rows:
        cells = [printable(cell, lines=False) for cell in row]
        table.add_row(*(Text(cell, style=_rich_style(cell)) for cell in cells))
    Console().print(table)


def _rich_style(cell: str) -> str:
    return _STYLES.get(cell, "")


def as_words(value: Any) -> str:
    """Return a JSON value for people: text as it is, all else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
