"""`timingwheel calendar list | show | set | exclude | include`."""

from __future__ import annotations

from datetime import date
from typing import Final

import click

from timingwheel.cli.documents import calendar_document
from timingwheel.cli.grammar import noun, option, verb
from timingwheel.cli.output import Printer
from timingwheel.cli.session import Session
from timingwheel.cli.values import DAY
from timingwheel.jobs.calendars import WEEKDAYS, NamedCalendar
from timingwheel.jobs.errors import UnknownCalendarError

calendar: Final = noun(
    "calendar",
    "Calendars: days on which jobs that name them do not run.",
    examples=[
        ("timingwheel calendar set holidays --weekday SAT --weekday SUN", ""),
        ("timingwheel calendar exclude holidays 2026-12-25 2026-12-26", ""),
    ],
)


_calendar_argument = click.argument("name", metavar="CALENDAR")
_days_argument = click.argument(
    "days", nargs=-1, required=True, type=DAY, metavar="DAY..."
)


@verb(calendar, "list", examples=[("timingwheel calendar list", "")])
def list_calendars(session: Session) -> None:
    """List all calendars."""
    printer = session.printer
    with session.connected() as connection:
        found = sorted(connection.calendars().items())
    if printer.as_json:
        printer.document(
            {"calendars": [calendar_document(name, one) for name, one in found]}
        )
        return
    printer.table(
        ("calendar", "in words"),
        [(name, one.explain()) for name, one in found],
        empty="no calendar was set",
    )


@verb(calendar, "show", examples=[("timingwheel calendar show holidays", "")])
@_calendar_argument
def show_calendar(session: Session, *, name: str) -> None:
    """Show the days of a calendar."""
    with session.connected() as connection:
        found = connection.app.calendar(name).get()
    if found is None:
        raise UnknownCalendarError(
            "calendar", name, "there is no such calendar; timingwheel calendar list"
        )
    _print(session.printer, name, found)


@verb(
    calendar,
    "set",
    examples=[
        (
            "timingwheel calendar set holidays --date 2026-12-25 --weekday SUN",
            "",
        )
    ],
)
@_calendar_argument
@option("--date", "dates", multiple=True, type=DAY, help="A day; may be repeated.")
@option(
    "--weekday",
    "weekdays",
    multiple=True,
    type=click.Choice(WEEKDAYS, case_sensitive=False),
    help="A day of every week; may be repeated.",
)
@option("--tz", metavar="ZONE", help="In whose days an instant counts: the job's zone.")
def set_calendar(
    session: Session,
    *,
    name: str,
    dates: tuple[date, ...],
    weekdays: tuple[str, ...],
    tz: str | None,
) -> None:
    """Replace a calendar; jobs that use it are planned anew from now."""
    with session.connected() as connection:
        found = connection.app.calendar(name).set(dates=dates, weekdays=weekdays, tz=tz)
    _print(session.printer, name, found)


@verb(
    calendar,
    "exclude",
    examples=[("timingwheel calendar exclude holidays 2026-12-25", "")],
)
@_calendar_argument
@_days_argument
def exclude(session: Session, *, name: str, days: tuple[date, ...]) -> None:
    """Add days on which nothing runs; makes the calendar if there is none."""
    with session.connected() as connection:
        found = connection.app.calendar(name).exclude(*days)
    _print(session.printer, name, found)


@verb(
    calendar,
    "include",
    examples=[("timingwheel calendar include holidays 2026-12-25", "")],
)
@_calendar_argument
@_days_argument
def include(session: Session, *, name: str, days: tuple[date, ...]) -> None:
    """Take days off a calendar again, so that jobs run on them."""
    with session.connected() as connection:
        found = connection.app.calendar(name).include(*days)
    _print(session.printer, name, found)


def _print(printer: Printer, name: str, found: NamedCalendar) -> None:
    if printer.as_json:
        printer.document(calendar_document(name, found))
        return
    printer.facts(
        [
            ("calendar", name),
            ("in words", found.explain()),
            ("weekdays", " ".join(found.weekdays)),
            ("dates", "\n".join(day.isoformat() for day in found.dates)),
            ("zone", found.tz),
        ]
    )
