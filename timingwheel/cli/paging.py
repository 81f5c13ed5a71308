"""Long answers: a page at a time, or all of them as they come."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple, ParamSpec, TypeVar

from timingwheel.cli.grammar import option
from timingwheel.cli.output import Printer
from timingwheel.scheduler.handles import Page
from timingwheel.scheduler.questions import PAGE_LIMIT_MAX

_P = ParamSpec("_P")
_R = TypeVar("_R")
_Row = TypeVar("_Row")
PAGES: Final = "Pages"
LIMIT: Final = 50


class Paging(NamedTuple):
    """What part of an answer is wanted.

    Attributes:
        limit: rows at most.
        cursor: where to go on.
        all: every row there is.
    """

    limit: int
    cursor: str | None
    all: bool


def paging_options(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Add --limit, --cursor and --all; the function takes them as `paging`."""

    @functools.wraps(function)
    def called(
        *args: Any, limit: int, cursor: str | None, all_: bool, **kw: Any
    ) -> Any:
        whole: Any = function
        return whole(*args, paging=Paging(limit, cursor, all_), **kw)

    made: Callable[..., Any] = called
    for add in (
        option("--all", "all_", is_flag=True, section=PAGES, help="All there are."),
        option("--cursor", metavar="TEXT", section=PAGES, help="Go on from there."),
        option(
            "--limit",
            default=LIMIT,
            show_default=True,
            metavar="N",
            section=PAGES,
            help="Rows at most.",
        ),
    ):
        made = add(made)
    return made


def paged(
    printer: Printer,
    ask: Callable[..., Page[_Row]],
    paging: Paging,
    *,
    name: str,
    document: Callable[[_Row], object],
    columns: Sequence[str],
    row: Callable[[_Row], Sequence[str]],
    empty: str,
) -> None:
    """Print the rows of a query.

    Args:
        printer: how.
        ask: the query; takes limit and cursor.
        paging: which part.
        name: what the rows are, in a JSON document.
        document: of a row, for programs; with `paging.all` one a line.
        columns: headings.
        row: the cells of one, for people.
        empty: what to say of none.
    """
    if paging.all:
        rows = every_row(ask, cursor=paging.cursor)
        if printer.as_json:
            printer.lines(map(document, rows))
        else:
            printer.table(columns, map(row, rows), empty=empty)
        return
    page = ask(limit=paging.limit, cursor=paging.cursor)
    if printer.as_json:
        found = [document(one) for one in page]
        printer.document({name: found, "cursor": page.cursor})
        return
    printer.table(columns, [row(one) for one in page], empty=empty)
    if page.cursor is not None:
        printer.hint(f"there are more: --all, or --cursor {page.cursor}")


def every_row(
    ask: Callable[..., Page[_Row]], *, cursor: str | None = None
) -> Iterator[_Row]:
    """Yield the rows of a query, page after page."""
    while True:
        page = ask(limit=PAGE_LIMIT_MAX, cursor=cursor)
        yield from page
        cursor = page.cursor
        if cursor is None:
            return
